"""Workers over SSH: a real sshd on loopback, and the command lines that start benchhouse remotely."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
import sys
from pathlib import Path

import pytest

pytest.importorskip("distributed")

from benchmarking import benchmark_script, run_hardware_benchmark
from benchmarking.cluster.remote_workers import Ssh, destination, read_hosts
from benchmarking.cluster.scheduler import (
    DEFAULT_VENV,
    LOCKS,
    WORKER,
    Setup,
    WorkerRequirements,
    preparation,
    read_setup,
    remote_command,
)
from benchmarking.cluster.target import add_cluster, resolve_target, target_flags
from benchmarking.core.child_process import run_program
from benchmarking.core.command_line import Parser
from benchmarking.core.errors import UsageError
from benchmarking.measure.context import settings
from benchmarking.sweep.plan.plan import check_loaded_plan
from benchmarking.sweep.plan.request import Request, plan_cell
from tests.helpers.services import sshd

RUN = ["--model-id", "tiny-bert", "--device", "null", "--weights", "random", "--batch-sizes", "1", "--iterations", "3"]
RUN += ["--sequence-lengths", "32", "--json"]


@pytest.mark.slow
def test_models_and_scripts_are_measured_over_ssh_and_unknown_host_keys_are_refused(tmp_path, capsys, monkeypatch):
    with sshd(tmp_path, "gpu-box") as config:
        there = ["--backend", "remote", "--host", "gpu-box", "--ssh-config", str(config)]
        assert run_hardware_benchmark.main([*RUN, *there, "--setup", f"venv:{sys.prefix}"]) == 0
        shown = capsys.readouterr()
        (run,) = json.loads(shown.out)
        found = run["environment"]["values"]
        assert (run["status"], found["cluster"], found["cluster_worker"]) == ("ok", "ssh://gpu-box", "gpu-box")
        assert "1 of 1 done  tiny-bert" in shown.err
        monkeypatch.setenv("BENCHHOUSE_CACHE_DIR", str(tmp_path / "cache"))
        script = tmp_path / "net.py"
        script.write_text("import torch\ntorch.manual_seed(0)\ntorch.nn.Linear(4, 4)(torch.ones(2, 4))")
        elsewhere = {"backend": "remote", "host": "gpu-box", "ssh_config": config, "setup": f"venv:{sys.prefix}"}
        report = benchmark_script(script, devices="null", launches=1, iterations=3, **elsewhere)
        assert report.failures == ()
        (scripts,) = report.runs
        found = scripts.environment.values
        assert (scripts.status, scripts.cell.subject, found["cluster_worker"]) == ("ok", "net.Linear", "gpu-box")
        (copies,) = (tmp_path / "home").glob("**/worker_results")
        assert not list(copies.iterdir())  # the worker's copy of the finished run
        assert run_hardware_benchmark.main([*RUN, *there, "--setup", "conda:bench"]) == 1
        assert "gpu-box: benchhouse does not start: " in capsys.readouterr().err
        (tmp_path / "known").write_text("")
        assert run_hardware_benchmark.main([*RUN, *there]) == 1
        assert "cannot reach gpu-box: Host key verification failed." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--backend", "remote"], "--backend remote requires --remote-host USER@MACHINE"),
        (["--host", "lab"], "--remote-host lab requires --backend remote"),
        (["--backend", "remote", "--host", "a b"], "--remote-host: invalid host 'a b'"),
        (["--backend", "remote", "--host=-oProxyCommand=x"], "invalid host '-oProxyCommand=x'"),
        (
            ["--backend", "remote", "--host", "lab", "--use-slurm"],
            "--backend remote and --use-slurm: give only one of them",
        ),
        (["--setup", "venv"], "--setup, --setup-package and --ssh-config require a remote machine"),
        (["--setup-package", "mine"], "--setup, --setup-package and --ssh-config require a remote machine"),
        (["--use-slurm", "--ssh-config", "mine"], "--ssh-config has no effect on slurm: it applies to ssh: only"),
        (
            ["--use-slurm", "--setup", "venv", "--setup-package", "mine"],
            "--setup-package has an effect only on machines",
        ),
        (["--backend", "remote", "--host", "lab", "--setup-package", "mine"], "over SSH with --setup venv: add it"),
        (["--use-slurm", "--setup", "docker"], "--setup docker: expected venv, venv:DIR, conda:NAME, or docker:IMAGE"),
        (["--use-slurm", "--setup", "conda:-n"], "--setup conda:-n: expected venv"),
        (
            ["--backend", "remote", "--host", "lab", "--calibrate-device"],
            "--calibrate-device works on this machine only",
        ),
    ],
)
def test_remote_flags_are_checked_before_connecting(flags, why, capsys):
    assert run_hardware_benchmark.main([*RUN[2:], *flags]) == 2
    assert why in capsys.readouterr().err


def test_a_resumed_command_is_named_with_all_flags_of_its_place():
    parser = Parser(prog="batch_benchmark")
    add_cluster(parser)
    flags = ["--backend", "remote", "--remote-host", "lab", "--setup", "venv:x", "--setup-package", "./benchhouse.whl"]
    flags += ["--ssh-config", "mine", "--spread", "--require-same-versions"]
    arguments = parser.parse_args(flags)
    resolve_target(arguments)
    assert target_flags(arguments) == tuple(flags)


def test_errors_in_a_host_file_name_the_line(tmp_path):
    path = tmp_path / "hosts"
    path.write_text("# the lab\nme@lab-1  # two GPUs\n\n[::1]:2222\n")
    hosts = read_hosts(path)
    assert [destination(host, "") for host in hosts] == ["me@lab-1", "ssh://[::1]:2222"]
    for text, why in (
        ("a\nb;c", r"hosts:2: invalid host 'b;c'"),
        ("a\n\na", r"hosts:3: a is listed twice \(first: line 1\)"),
        ("# none", "contains no hosts"),
    ):
        path.write_text(text)
        with pytest.raises(UsageError, match=why):
            read_hosts(path)


def test_words_are_quoted_for_the_remote_shell():
    words = ["sh", "-c", 'printf "%s|" "$@"', "sh", "a b", "$(id)", "it's", ";", "--devices"]
    command = Ssh(setup=Setup(), package="p", config="my config", requirements=WorkerRequirements()).command(
        "lab", words
    )
    assert command[1:-1] == ("-F", "my config", "-T", "--", "lab")
    assert run_program(("sh", "-c", command[-1])).stdout == "a b|$(id)|it's|;|--devices|"


def test_script_paths_in_the_home_folder_are_resolved_on_the_worker(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    flag, scripts = WorkerRequirements(scripts="/home/me/lab/net.py").flags
    assert (flag, scripts) == ("--scripts", "~/lab/net.py")
    plan = planned_script("/home/there/lab/net.py")
    monkeypatch.setenv("HOME", "/home/there")
    check_loaded_plan(plan, {"scripts": scripts}, "the plan")
    with pytest.raises(UsageError, match="the plan would run the code in"):
        check_loaded_plan(plan, {"scripts": "/home/me/lab/net.py"}, "the plan")


def planned_script(path):
    request = Request(model_id="tiny-bert", device="null", weights="random", settings=settings("quick"))
    plan = plan_cell(request, "session")
    workload = dataclasses.replace(plan.cell.workload, source="module", path=path)
    return dataclasses.replace(plan, cell=dataclasses.replace(plan.cell, workload=workload))


def test_workers_start_in_an_environment_or_a_container():
    run = "-P -m benchmarking.cluster.worker tls://127.0.0.1:8786"
    started = {
        "venv:/opt/bench": f"/opt/bench/bin/python {run}",
        "venv": f"{DEFAULT_VENV}/bin/python {run}",
        "venv:~/bench": f"bench/bin/python {run}",  # where ssh starts commands
        "conda:bench": f"conda run --no-capture-output --name bench python {run}",
        "docker:registry.local:5000/bench@sha256:ab": "docker run --rm --interactive --network host --volume "
        f"{LOCKS}:{LOCKS} --gpus all registry.local:5000/bench@sha256:ab python {run}",
    }
    for setup, command in started.items():
        words = remote_command(read_setup(setup), WORKER, "tls://127.0.0.1:8786", devices=("cuda:0", "cpu"))
        assert shlex.join(words) == command
    assert read_setup("venv:~/bench", "/home/me/").what == "/home/me/bench"
    with pytest.raises(UsageError, match="--setup venv:~you/bench: expected"):
        read_setup("venv:~you/bench")
    assert "--gpus" not in remote_command(Setup(kind="docker", what="bench"), WORKER)


def test_venvs_are_created_if_missing_and_updated_for_other_versions(tmp_path):
    calls = tmp_path / "calls"
    python = tmp_path / "venv/bin/python"
    fake = f'#!/bin/sh\necho "$@" >> {calls}\n[ "$2" != -c ] || [ "$4" = "$(cat {tmp_path}/installed)" ]\n'
    maker = tmp_path / "bin/python3"
    maker.parent.mkdir()
    maker.write_text(f'#!/bin/sh\necho "made $3" >> {calls}\nmkdir -p "$3/bin"\ncp {tmp_path}/fake "$3/bin/python"\n')
    (tmp_path / "fake").write_text(fake)
    (tmp_path / "installed").write_text("0.0.1")
    for path in (maker, tmp_path / "fake"):
        path.chmod(0o755)
    words = preparation(read_setup(f"venv:{tmp_path}/venv"), "a package")
    for version in ("0.0.1", words[-2]):
        (tmp_path / "installed").write_text(version)
        done = run_program(words, env={"PATH": f"{maker.parent}:/usr/bin:/bin"})
        assert (done.exit_code, done.stderr) == (0, "")
    python_calls = re.sub(r"(?m)^-P -c .*$", "looked", calls.read_text()).splitlines()
    assert python_calls == [f"made {tmp_path}/venv", "looked", "-m pip install --quiet -- a package", "looked"]
    assert python.exists()
    assert preparation(read_setup("conda:bench")) is None
    assert Path(DEFAULT_VENV).parts[0] == ".cache"
