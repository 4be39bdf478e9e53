"""Kills, interruptions and concurrent commands lose no finished point and leave nothing running."""

from __future__ import annotations

import json
import os
import pty
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from subprocess import DEVNULL, PIPE, Popen

import psutil
import pytest

from benchmarking.sweep.run import spool
from db.warehouse import Warehouse
from tests.helpers.sweeps import wait_for

pytestmark = [pytest.mark.forked_children, pytest.mark.skipif(os.name != "posix", reason="POSIX signals")]

COMMAND = [sys.executable, "-m", "benchmarking.run_hardware_benchmark", "--quiet"]
MODEL = ["--model-id", "tiny-bert", "--device", "null", "--sequence-lengths", "32", "--weights", "random"]
SWEEP = [*MODEL, "--batch-sizes", "1,2,4"]
SHORT = ["--iterations", "20", "--warmup-iterations", "2", "--launches", "2", "--save"]
POINTS = 3 * 2
KILLS = 10 if os.environ.get("BENCHHOUSE_TEST_ALL") else 1
"""Moments at which each process is killed; each costs some seconds."""


@pytest.fixture(autouse=True)
def in_real_time(tmp_path, monkeypatch, null_script, empty_database):
    monkeypatch.chdir(tmp_path)
    null_script(real_time=True, latency_ms={"*": [8.0, 9.0, 8.5]})
    shutil.copy(empty_database, "benchmark_db.duckdb")


def start(*arguments):
    """A command that starts as a user's does: the system lists what it and its workers run. `Popen` is the one from
    before the tests, which does not fork."""
    return Popen([*COMMAND, *arguments], stdout=DEVNULL, stderr=PIPE, text=True)


def forked(*arguments, stdout=DEVNULL):
    """A command of which it does not matter how it starts."""
    return subprocess.Popen([*COMMAND, *arguments], stdout=stdout, stderr=PIPE, text=True)


def finish(process):
    _, err = process.communicate(timeout=120)
    return process.returncode, err


def kept(folder):
    """The samples of every finished point in the unfinished and finished runs of a folder."""
    found = {}
    for partial in spool.unfinished(folder):
        for one in partial.read().measurements:
            found |= {key(one.point.label, s.launch, s.metric, s.phase): list(s.values) for s in one.samples}
    for path in folder.glob("*.json"):
        for result in json.loads(path.read_text())["results"]:
            label = "b{batch_size} s{sequence_length}".format(**result["point"])
            found |= {key(label, s["launch"], s["metric"], s["phase"]): s["values"] for s in result["samples"]}
    return found


def key(*parts):
    return " ".join(map(str, parts))


def workers(supervisor):
    """The measuring processes of a command, without its short-lived helpers."""
    try:
        children = psutil.Process(supervisor.pid).children(recursive=True)
        return [child for child in children if "benchmarking.sweep.run.worker" in child.cmdline()]
    except psutil.NoSuchProcess:
        return []


def complete(folder):
    """The one finished run, every point of every launch in it."""
    (path,) = folder.glob("*.json")
    run = json.loads(path.read_text())
    assert list(folder.glob("*.partial.jsonl")) == []
    return run


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(KILLS))
def test_killing_the_supervisor_loses_no_finished_point(tmp_path, seed):
    folder = tmp_path / "benchmark_results"
    process = start(*SWEEP, *SHORT)
    time.sleep(random.Random(seed).uniform(0.5, 2.0))
    children = workers(process)
    process.kill()
    finish(process)
    psutil.wait_procs(children, timeout=10)
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children)
    before = kept(folder)
    if spool.unfinished(folder):
        assert finish(forked("--resume")) == (0, "")
    elif not list(folder.glob("*.json")):  # killed before there was anything to keep
        assert finish(start(*SWEEP, *SHORT)) == (0, "")
    after = kept(folder)
    assert all(after[name] == values for name, values in before.items())
    assert all(result["launches"] == 2 for result in complete(folder)["results"])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(KILLS))
def test_killing_a_worker_loses_no_finished_point(tmp_path, seed):
    folder = tmp_path / "benchmark_results"
    process = start(*SWEEP, *SHORT)
    time.sleep(random.Random(seed).uniform(0.5, 2.0))
    before = kept(folder) if folder.is_dir() else {}
    for child in workers(process):
        child.kill()
    code, _ = finish(process)
    after, run = kept(folder), complete(folder)
    assert all(after[name] == values for name, values in before.items())
    failed = [result for result in run["results"] if result["status"] != "ok"]
    assert all("killed by SIGKILL" in result["error"] for result in failed)
    doubted = any(doubt["kind"] == "launch_failed" for result in run["results"] for doubt in result["doubts"])
    assert code == (1 if failed or doubted else 0)


def test_interruptions_keep_results_and_resume_continues(tmp_path):
    folder = tmp_path / "benchmark_results"
    process = forked(*SWEEP, *SHORT)
    wait_for(lambda: folder.is_dir() and kept(folder))
    process.send_signal(signal.SIGINT)
    code, err = finish(process)
    before = kept(folder)
    assert code == 130
    advice = "continue with run_hardware_benchmark --resume --output-dir benchmark_results"
    assert f"of {POINTS} points measured: saved; {advice}\n" in err
    assert "the database has a run when all of it is measured; to end one instead, and store what there is of " in err
    assert before
    assert finish(forked("--resume"))[0] == 0
    after = kept(folder)
    assert all(after[name] == values for name, values in before.items())
    assert len([name for name in after if name.endswith("latency_wall measure")]) == POINTS
    with Warehouse.open(tmp_path / "benchmark_db.duckdb") as warehouse:
        (row,) = warehouse.query("select count(*) as results from benchmark_results").dicts()
    assert row == {"results": 3}


def left_of(process):
    """A function that returns the processes of a command that still run."""
    found = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]

    def left():
        _, alive = psutil.wait_procs(found, timeout=10)
        return [one.cmdline() for one in alive if one.status() != psutil.STATUS_ZOMBIE]

    return left


def advised(err, flags="--resume"):
    """The arguments of the command for runs that a message advises."""
    return shlex.split(re.search(rf"(?:run_hardware_benchmark|benchhouse run) ({flags} \S+ [^\s,]+)", err)[1])


def test_sigterm_ends_a_run_like_ctrl_c_and_it_can_be_resumed(tmp_path):
    folder = tmp_path / "kept here"
    process = start(*SWEEP, *SHORT, "--output-dir", str(folder))
    wait_for(lambda: folder.is_dir() and kept(folder) and workers(process))
    left = left_of(process)
    process.send_signal(signal.SIGTERM)
    code, err = finish(process)
    before = kept(folder)
    assert code == 128 + signal.SIGTERM
    assert "points measured: saved; continue with run_hardware_benchmark --resume" in err
    assert err.endswith("run_hardware_benchmark: interrupted\n")
    assert left() == []
    resume = shlex.split(err.split("saved; continue with run_hardware_benchmark ")[1].splitlines()[0])
    assert finish(forked(*resume)) == (0, "")
    after = kept(folder)
    assert all(after[name] == values for name, values in before.items())
    assert all(result["launches"] == 2 for result in complete(folder)["results"])


def test_a_signal_to_every_process_of_a_run_fails_no_point(tmp_path):
    folder = tmp_path / "benchmark_results"
    process = Popen([*COMMAND, *SWEEP, *SHORT], stderr=PIPE, text=True, start_new_session=True)
    wait_for(lambda: folder.is_dir() and kept(folder) and workers(process))
    left = left_of(process)
    os.killpg(process.pid, signal.SIGTERM)
    code, err = finish(process)
    (partial,) = spool.unfinished(folder)
    assert (code, "interrupted" in err, left()) == (143, True, [])
    assert [one.error for one in partial.read().measurements if one.status != "ok"] == []


def test_closing_the_terminal_ends_a_run_like_ctrl_c(tmp_path):
    folder = tmp_path / "benchmark_results"
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(COMMAND[0], [word for word in (*COMMAND, *SWEEP, *SHORT) if word != "--quiet"])
    wait_for(lambda: os.read(terminal, 1) and folder.is_dir() and kept(folder))
    found = psutil.Process(pid).children(recursive=True)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 128 + signal.SIGHUP
    _, alive = psutil.wait_procs(found, timeout=60)
    assert [one.cmdline() for one in alive if one.status() != psutil.STATUS_ZOMBIE] == []
    before = kept(folder)
    assert before
    assert finish(forked("--resume")) == (0, "")
    after = kept(folder)
    assert all(after[name] == values for name, values in before.items())
    assert all(result["launches"] == 2 for result in complete(folder)["results"])


def test_ignored_signals_stay_ignored(tmp_path):
    def ignore():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does

    folder = tmp_path / "benchmark_results"
    process = Popen([*COMMAND, *SWEEP, *SHORT], stdout=DEVNULL, preexec_fn=ignore)
    wait_for(lambda: folder.is_dir() and kept(folder))
    process.send_signal(signal.SIGHUP)
    assert process.wait(timeout=120) == 0


def ab(*arguments):
    side = shlex.join([*MODEL, "--batch-sizes", "1,2", "--iterations", "20"])
    command = [sys.executable, "-m", "benchmarking", "ab", side, f"{side} --warmup-iterations 3", *arguments]
    return Popen([*command, "--rounds", "2"], stderr=PIPE, text=True)


def test_ending_ab_ends_its_command_and_names_the_results(tmp_path):
    process = ab("--save", "--output-dir", "runs")
    wait_for(lambda: any(kept(folder) for folder in tmp_path.glob("runs/ab-*/*/a")) and workers(process))
    left = left_of(process)
    process.send_signal(signal.SIGTERM)
    code, err = finish(process)
    assert (code, left()) == (143, [])
    assert err.endswith("benchhouse ab: interrupted\n")
    (folder,) = tmp_path.glob("runs/ab-*/*/a")
    before = kept(folder)
    assert finish(forked(*advised(err)))[0] == 0
    after = kept(folder)
    assert before
    assert all(after[name] == values for name, values in before.items())


def test_killing_ab_leaves_no_process(tmp_path):
    process = ab("--save", "--output-dir", "runs")
    wait_for(lambda: any(tmp_path.glob("runs/ab-*/*/*/*.partial.jsonl")) and workers(process))
    left = left_of(process)
    process.kill()
    finish(process)
    assert left() == []


def test_interruptions_without_save_print_the_results(tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    process = forked(*SWEEP, *[flag for flag in SHORT if flag != "--save"], stdout=PIPE)
    wait_for(lambda: any(kept(folder) for folder in scratch.glob("benchhouse-*") if folder.is_dir()))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "not saved, since --save was not given" in err
    assert "median ms" in out
    assert "no launch measured this point" in out
    assert list(scratch.glob("benchhouse-*/*.partial.jsonl")) == []


def test_runs_in_progress_cannot_be_resumed(tmp_path):
    folder = tmp_path / "benchmark_results"
    process = forked(*SWEEP, *SHORT)
    wait_for(lambda: folder.is_dir() and spool.unfinished(folder))
    code, err = finish(forked("--resume"))
    assert code == 1
    assert f"in use by PID {process.pid}" in err
    assert finish(process)[0] == 0


def test_concurrent_saves_lose_nothing(tmp_path):
    quick = ["--batch-sizes", "1", "--iterations", "5", "--launches", "1", "--save"]
    processes = [forked(*MODEL, *quick) for _ in range(3)]
    assert [finish(process) for process in processes] == [(0, "")] * 3
    files = list((tmp_path / "benchmark_results").glob("*.json"))
    with Warehouse.open(tmp_path / "benchmark_db.duckdb") as warehouse:
        runs = warehouse.query("select run_id from benchmark_runs").df()
        raw = warehouse.query(
            "select len(samples) as n from raw_benchmark_data where phase = 'measure' and metric = 'latency_wall'"
        ).df()
    assert len(files) == 3
    assert sorted(runs.run_id.astype(str)) == sorted(json.loads(path.read_text())["run_id"] for path in files)
    assert list(raw.n) == [5] * 3
