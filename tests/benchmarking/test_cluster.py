"""Sweeps on a real Dask cluster of this machine: a scheduler, workers that come, go, are killed and pause."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

pytest.importorskip("distributed")

from benchmarking import batch_benchmark
from benchmarking.cluster import execution, worker
from benchmarking.cluster.coordinator import Cluster
from benchmarking.cluster.scheduler import WorkerRequirements, add_tls, check_exposure, local_workers
from benchmarking.core.command_line import Parser
from benchmarking.core.errors import UnsupportedError, UsageError, WorkersLostError
from benchmarking.core.provenance import uuid7
from benchmarking.core.records import Readings
from benchmarking.sweep.run import spool
from benchmarking.sweep.run.supervisor import Track
from tests.helpers.services import free_ports, hosts
from tests.helpers.sweeps import wait_for

pytestmark = [pytest.mark.forked_children, pytest.mark.skipif(os.name != "posix", reason="POSIX signals")]

COMMAND = [sys.executable, "-m", "benchmarking.batch_benchmark", "--devices", "null", "--weights", "random"]
GRID = ["--batch-sizes", "1,2,4", "--sequence-lengths", "32", "--warmup-iterations", "1"]


class OwnCluster:
    """A scheduler on loopback in this process, and worker processes."""

    def __init__(self, folder, scheduler, stack):
        self.folder = folder
        self.address = scheduler
        self.stack = stack

    def worker(self, name, *further, inside=(), **environment):
        command = [*inside, sys.executable, "-m", "benchmarking.cluster.worker", self.address, "--devices", "null"]
        command += ["--name", name, "--spool-dir", str(self.folder / name), *further]
        with open(self.folder / f"{name}.log", "w") as log:
            process = subprocess.Popen(command, stderr=log, env={**os.environ, **environment})
        self.stack.callback(process.wait)
        self.stack.callback(process.kill)
        wait_for(lambda: f"worker {name} at" in self.log(name))
        return process

    def log(self, name):
        return (self.folder / f"{name}.log").read_text()

    def batch(self, *arguments):
        return self.command(*COMMAND, *GRID, *arguments)

    def resumed(self):
        return self.command(*COMMAND[:3], "--resume")

    def command(self, *words):
        command = [*words, "--cluster", self.address, "--output-dir", str(self.folder / "runs")]
        log = open(self.folder / "batch.log", "a")  # noqa: SIM115
        self.stack.callback(log.close)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log, cwd=self.folder)
        self.stack.callback(process.wait)
        self.stack.callback(process.kill)
        return process

    def stderr(self):
        return (self.folder / "batch.log").read_text()

    def runs(self):
        return [json.loads(path.read_text()) for path in sorted((self.folder / "runs").glob("tiny*.json"))]


@pytest.fixture
def cluster(tmp_path, monkeypatch, empty_database):
    from distributed import LocalCluster

    shutil.copy(empty_database, tmp_path / "own.duckdb")
    monkeypatch.setenv("BENCHMARK_DB_PATH", str(tmp_path / "own.duckdb"))
    monkeypatch.chdir(tmp_path)
    with (
        LocalCluster(
            n_workers=0, host="127.0.0.1", scheduler_port=0, dashboard_address="127.0.0.1:0", silence_logs=50
        ) as dask,
        ExitStack() as stack,
    ):
        yield OwnCluster(tmp_path, dask.scheduler_address, stack)


@pytest.fixture
def slow(tmp_path, null_script):
    """Calls of 20 ms: a point of 60 calls outlasts a pause and the wait for a line."""
    null_script(real_time=True, latency_ms={"*": [20.0]})


@pytest.mark.slow
def test_kills_interrupts_and_pauses_neither_lose_nor_repeat_points(cluster, slow):
    sizes = ["1", "2", "4", "8", "16", "32"]

    def reported_points():
        return re.findall(r"\d of 6 done  tiny-bert  b(\d+) s32  launch", cluster.stderr())

    def wait_for_a_point():
        before = len(reported_points())
        wait_for(lambda: len(reported_points()) > before)

    def measured_by(name):
        return re.findall(r"b(\d+) s32  ok", cluster.log(name))

    first = cluster.worker("first")
    batch = cluster.batch("--models", "tiny-bert", "--iterations", "60", "--batch-sizes", ",".join(sizes))
    wait_for_a_point()
    batch.send_signal(signal.SIGKILL)
    batch.wait()
    batch = cluster.resumed()
    wait_for_a_point()
    batch.send_signal(signal.SIGINT)
    assert batch.wait(120) == 130
    resume = f"--resume --output-dir {cluster.folder / 'runs'} --cluster {cluster.address}"
    assert f"saved; continue with batch_benchmark {resume}" in cluster.stderr()
    batch = cluster.resumed()
    wait_for_a_point()
    first.send_signal(signal.SIGSTOP)
    time.sleep(0.7)
    first.send_signal(signal.SIGCONT)
    wait_for_a_point()
    first.send_signal(signal.SIGKILL)
    wait_for(lambda: "worker first was lost at tiny-bert" in cluster.stderr())
    cluster.worker("late")
    assert batch.wait(300) == 0
    assert "worker late joined: null" in cluster.stderr()
    assert reported_points() == measured_by("first") + measured_by("late") == sizes
    (run,) = cluster.runs()
    assert [(str(one["point"]["batch_size"]), one["status"], one["launches"]) for one in run["results"]] == [
        (size, "ok", 1) for size in sizes
    ]
    assert not list((cluster.folder / "runs").glob("*.jsonl"))
    found = run["environment"]["values"]
    assert (found["cluster"], found["cluster_worker"]) == (cluster.address, "first")
    # One clock: what is found is within half a round trip, however long that took.
    assert abs(found["cluster_clock_offset_s"]) <= found["cluster_clock_error_s"] + 1e-3
    assert found["cluster_clock_error_s"] > 0
    assert re.search(r"first .* lost +\d +0", cluster.stderr())
    assert re.search(rf"late .* idle +{len(measured_by('late'))} +0", cluster.stderr())


@pytest.mark.slow
def test_a_batch_whose_scheduler_is_killed_ends_in_one_line_and_keeps_its_points(cluster, slow):
    (port,) = free_ports(1)
    code = (
        "import asyncio, distributed\nasync def main():\n    scheduler = await distributed.Scheduler(host='127.0.0.1', "
        f"port={port}, dashboard=False, dashboard_address='127.0.0.1:0')\n    await scheduler.finished()\n"
        "asyncio.run(main())"
    )
    scheduler = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    cluster.stack.callback(scheduler.wait)
    cluster.stack.callback(scheduler.kill)
    cluster.address = f"tcp://127.0.0.1:{port}"
    measuring = cluster.worker("only")
    batch = cluster.batch("--models", "tiny-bert", "--iterations", "40")
    wait_for(lambda: "1 of 3 done" in cluster.stderr())
    scheduler.kill()
    assert (batch.wait(120), measuring.wait(120)) == (1, 1)
    assert "Traceback" not in cluster.stderr()
    assert f"lost the scheduler {cluster.address}: all reported results are saved" in cluster.stderr()
    (unfinished,) = spool.unfinished(cluster.folder / "runs")
    assert unfinished.read().measurements


def test_a_scheduler_lost_while_a_run_is_stored_is_told_in_one_line():
    from distributed import Client, LocalCluster

    quiet = {"n_workers": 0, "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "silence_logs": 50}
    with LocalCluster(**quiet) as dask, Client(dask.scheduler_address, timeout=1, set_as_default=False) as client:
        measuring = Cluster(client, "lab", accepts_workers=True)
        measuring.submit("attempt", execution.Order(plan=None, launches=(0,)), "tcp://127.0.0.1:1", "null")
        dask.close()
        wait_for(lambda: client.status == "closed")
        with pytest.raises(WorkersLostError, match="lost the scheduler lab"):
            measuring.next_event(0.1)
        measuring.cancel("attempt")
        measuring.close()


@pytest.mark.slow
def test_a_cell_moves_to_another_host_when_the_network_is_cut(tmp_path, monkeypatch, slow, capsys):
    from dask import config
    from distributed import LocalCluster

    monkeypatch.chdir(tmp_path)
    # Dask gives up a silent connection after 30 s by default, and 11 s at least.
    monkeypatch.setenv("DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP", "11s")
    with (
        hosts(2) as (first, second),
        config.set({"distributed.comm.timeouts.tcp": "11s"}),
        LocalCluster(n_workers=0, host="10.213.77.1", dashboard_address="127.0.0.1:0", silence_logs=50) as dask,
        ExitStack() as stack,
        ThreadPoolExecutor(1) as pool,
    ):
        own = OwnCluster(tmp_path, dask.scheduler_address, stack)
        cut = own.worker("cut", "--insecure", inside=("ip", "netns", "exec", first))
        listening = subprocess.run(
            ["ip", "netns", "exec", first, "ss", "-Hltn4"], capture_output=True, text=True
        ).stdout
        heard = [line.split()[3] for line in listening.splitlines()]
        assert len([address for address in heard if not address.startswith("127.")]) == 1, "its own port alone"

        def cut_the_network():
            wait_for(lambda: "b1 s32  ok" in own.log("cut"))
            subprocess.run(["ip", "link", "set", first, "down"], check=True)
            own.worker("there", "--insecure", inside=("ip", "netns", "exec", second))

        done = pool.submit(cut_the_network)
        batch = [*COMMAND[3:], *GRID, "--models", "tiny-bert", "--iterations", "40", "--output-dir", "runs"]
        assert batch_benchmark.main([*batch, "--cluster", own.address, "--insecure", "--db-path", "own.duckdb"]) == 0
        done.result()
        assert cut.wait(120) == 1
        assert "run this command again once it is back" in own.log("cut")
        stderr = capsys.readouterr().err
        assert "worker cut was lost at tiny-bert" in stderr
        reported_points = re.findall(r"\d of 3 done  tiny-bert  (b\d s32)  launch", stderr)
        assert reported_points == ["b1 s32", "b2 s32", "b4 s32"]
        (run,) = own.runs()
        assert [(one["status"], one["launches"]) for one in run["results"]] == [("ok", 1)] * 3
        assert "b4 s32  ok" in own.log("there")


def test_impossible_requests_are_errors_and_launches_spread_over_equal_workers(cluster, capsys):
    package = cluster.folder / "other" / "numpy-0.1.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 0.1\n")
    cluster.worker("one")
    cluster.worker("other", PYTHONPATH=str(package.parent))
    run = [*COMMAND[3:], *GRID, "--models", "tiny-bert", "--output-dir", "runs", "--cluster", cluster.address]
    assert batch_benchmark.main([*run, "--devices", "cuda"]) == 2
    assert f"no worker of {cluster.address} has one; the cluster offers 2 x null" in capsys.readouterr().err
    assert batch_benchmark.main([*run, "--require-same-versions"]) == 2
    assert re.search(r"the workers differ: numpy: \S+ on one, 0\.1 on other", capsys.readouterr().err)
    assert not (cluster.folder / "runs").exists()
    cluster.worker("two")
    assert batch_benchmark.main([*run, "--spread", "--launches", "2"]) == 0
    (finished,) = cluster.runs()
    assert [result["launches"] for result in finished["results"]] == [2, 2, 2]
    measured = {name: cluster.log(name).count("b1 s32  ok") for name in ("one", "two", "other")}
    assert measured == {"one": 1, "two": 1, "other": 0}
    assert capsys.readouterr().err.count("null    idle") == 3
    assert not [path for name in ("one", "two") for path in (cluster.folder / name).glob("*.jsonl")]


def test_workers_delete_copies_of_finished_runs_and_cluster_runs_resume_on_the_cluster(tmp_path, order_plan):
    import dataclasses

    plans = [dataclasses.replace(order_plan(), run_id=uuid7()) for _ in range(2)]
    kept, finished = (
        spool.PartialRun.create(
            tmp_path,
            dataclasses.replace(plan, environment=plan.environment | Readings(values={"cluster": "tcp://x:1"})),
        )
        for plan in plans
    )
    (tmp_path / "damaged.partial.jsonl").write_text("{")
    for file in (kept, finished):
        file.release()  # as at the end of an order
    context = execution.WorkerContext(name="w", devices=(), folder=tmp_path, arguments={}, say=print)
    execution.forget([plans[1].run_id], SimpleNamespace(benchhouse=context))
    assert kept.path.exists()
    assert not finished.path.exists()
    reporter = SimpleNamespace(context=context, report=print)
    track = execution.WorkerTrack.open(plans[0], execution.Order(plan=plans[0], launches=(0,)), reporter)
    assert track.file.path == kept.path, "the damaged file is no obstacle"
    track.close()
    with pytest.raises(UsageError, match="measured on the cluster"):
        Track.resume(kept)


def test_workers_lost_while_they_join_are_left_out(monkeypatch, capsys):
    def run(function, workers, on_error="raise"):
        if function is execution.clock_s and workers == ["tcp://lost:1"]:
            raise OSError("Timed out trying to connect")
        return dict.fromkeys(("tcp://lost:1", "tcp://here:1"), 0.0 if function is execution.clock_s else offer)

    context = execution.WorkerContext(name="w", devices=(), folder=None, arguments={}, say=print)
    offer = execution.offer_text(SimpleNamespace(benchhouse=context))
    client = SimpleNamespace(id="client", subscribe_topic=lambda topic, handler: None, run=run)
    offers = Cluster(client, "tcp://scheduler:1", accepts_workers=True).offers()
    assert list(offers) == ["tcp://here:1"]
    assert "left out: worker at tcp://lost:1: Timed out trying to connect" in capsys.readouterr().err


def test_messages_of_other_program_versions_are_refused(order_plan, monkeypatch):
    monkeypatch.setattr(execution, "__version__", "9.9.9")
    text = execution.message_text(execution.Order(plan=order_plan(), launches=(0,)))
    monkeypatch.undo()
    with pytest.raises(UnsupportedError, match=r"the order is from benchhouse 9\.9\.9, this worker is benchhouse"):
        execution.read_message(execution.Order, text)


def test_plans_with_foreign_code_or_devices_are_refused(tmp_path, order_plan, monkeypatch):
    context = execution.WorkerContext(name="w", devices=(), folder=tmp_path, arguments={}, say=print)
    with pytest.raises(UnsupportedError, match="worker w has no device null as planned"):
        execution.adapt_plan(order_plan(), context)
    context = execution.WorkerContext(
        name="w", devices=(order_plan().cell.device,), folder=tmp_path, arguments={}, say=print
    )
    with pytest.raises(UsageError, match=r"worker w needs tiny-bert at /nowhere: no such folder, and not"):
        execution.adapt_plan(order_plan(source="local", path="/nowhere"), context)
    with pytest.raises(UsageError, match=r"worker w needs tiny-bert at /nowhere.onnx: there is no such file"):
        execution.adapt_plan(order_plan(source="file", path="/nowhere.onnx"), context)
    resolved = []
    monkeypatch.setattr(execution, "resolve", lambda name, **asked: resolved.append(asked["weights"]) or workload)
    plan = order_plan(source="file", weights="given", path="model.onnx")
    workload = plan.cell.workload
    assert execution.adapt_plan(plan, context).cell == plan.cell
    assert resolved == ["auto"]  # a file of unknown weights does not pass for pretrained
    monkeypatch.undo()
    (tmp_path / "config.json").write_text('{"model_type": "bert", "vocab_size": 9}')
    with pytest.raises(UsageError, match=r"worker w: configuration of tiny-bert: expected \w+, found \w+:"):
        execution.adapt_plan(order_plan(source="local", path=str(tmp_path)), context)
    with pytest.raises(UsageError, match="so it was not started: if you trust the code, add --"):
        execution.adapt_plan(order_plan(runtime="bench", source="bench", path="/tmp/evil.py"), context)


@pytest.fixture
def order_plan():
    import dataclasses

    from benchmarking.measure.context import settings
    from benchmarking.sweep.plan.request import Request, plan_cell

    def made(runtime=None, **workload):
        plan = plan_cell(
            Request(model_id="tiny-bert", device="null", weights="random", settings=settings("quick")), "session"
        )
        cell = dataclasses.replace(
            plan.cell,
            runtime=runtime or plan.cell.runtime,
            workload=dataclasses.replace(plan.cell.workload, **workload),
        )
        return dataclasses.replace(plan, cell=cell)

    return made


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--cluster", "local:2", "--tls-cert", "x"], "have no effect on local:2: they apply to tls:// and slurm:"),
        (["--cluster", "slurm:", "--tls-cert", "x"], "TLS needs --tls-ca-file, --tls-key"),
        (
            ["--cluster", "tcp://127.0.0.1:1", "--setup", "venv"],
            "--setup has no effect on tcp://127.0.0.1:1: it applies to ssh: and slurm:",
        ),
        (["--cluster", "local:2", "--use-slurm"], "--cluster and --use-slurm: give only one of them"),
    ],
)
def test_flags_without_effect_on_a_cluster_are_errors(flags, why, capsys):
    assert batch_benchmark.main(["--models", "tiny-bert", *flags]) == 2
    assert why in capsys.readouterr().err


def test_local_workers_are_not_reachable_by_other_users_and_leave_no_files(tmp_path, monkeypatch):
    from distributed import Client

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with local_workers(1, WorkerRequirements(devices=("null",))) as started:
        address = started.address
        assert address.startswith("tls://127.0.0.1:")
        with pytest.raises(OSError):  # noqa: PT011 - without a certificate there is no connection
            Client(address.replace("tls://", "tcp://"), timeout=1, set_as_default=False)
        with Client(address, security=started.security, timeout=10, set_as_default=False) as client:
            client.wait_for_workers(1, timeout=60)
            (address,) = client.scheduler_info(n_workers=-1)["workers"]
    assert address.startswith("tls://127.0.0.1:")
    assert [path.name for path in tmp_path.iterdir()] == []


def test_a_worker_reports_that_it_is_connecting_and_that_no_scheduler_answers(tmp_path, monkeypatch, capsys):
    (port,) = free_ports(1)
    monkeypatch.setattr(worker, "CONNECT_S", 0.5)
    command = [f"tcp://127.0.0.1:{port}", "--devices", "null", "--spool-dir", str(tmp_path)]
    assert worker.main(command) == 1
    connecting, error = capsys.readouterr().err.splitlines()
    assert connecting == f"connecting to the scheduler tcp://127.0.0.1:{port}, for up to 0.5 s"
    assert error.startswith(f"benchhouse worker: error: no scheduler at tcp://127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--interface", "nosuch"], "'nosuch' is not a valid network interface"),
        (["--contact-address", "lab"], "missing port number in address 'lab'"),
    ],
)
def test_where_a_worker_cannot_listen_is_not_taken_for_a_missing_scheduler(flags, why, tmp_path, capsys):
    command = ["tcp://127.0.0.1:1", "--devices", "null", "--quiet", "--spool-dir", str(tmp_path), *flags]
    assert worker.main(command) == 1
    assert capsys.readouterr().err.startswith(f"benchhouse worker: error: a worker does not start here: {why}")


def test_unusable_certificates_are_one_line_errors(tmp_path, capsys):
    names = ["ca.pem", "cert.pem", "key.pem"]
    for name in names:
        (tmp_path / name).write_text("no certificate\n")
    flags = [
        word
        for flag, name in zip(("--tls-ca-file", "--tls-cert", "--tls-key"), names, strict=True)
        for word in (flag, str(tmp_path / name))
    ]
    assert worker.main(["tls://127.0.0.1:1", *flags]) == 2
    assert capsys.readouterr().err.startswith("benchhouse worker: error: --tls-ca-file, --tls-cert and --tls-key: no ")


@pytest.mark.parametrize(
    ("address", "flags", "why"),
    [
        ("tcp://10.1.1.1:8786", [], "is another machine, and without TLS"),
        ("tls://10.1.1.1:8786", [], "TLS needs --tls-ca-file, --tls-cert, --tls-key"),
        ("tcp://127.0.0.1:8786", ["--tls-ca-file", "x"], "does not use TLS"),
        ("server", [], "invalid scheduler address"),
    ],
)
def test_without_tls_only_loopback_clusters_are_allowed(address, flags, why):
    parser = Parser(prog="batch_benchmark")
    add_tls(parser)
    with pytest.raises(UsageError, match=why):
        check_exposure(address, parser.parse_args(flags))
    check_exposure("tcp://127.0.0.1:8786", parser.parse_args([]))
    check_exposure("tcp://10.1.1.1:8786", parser.parse_args(["--insecure"]))
