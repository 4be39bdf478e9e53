"""Child processes: what they may import, what they answer, and how they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from benchmarking.core import child_process

HANDING_OVER = """
import sys
from benchmarking.core.child_process import hand_over
child = (sys.executable, "-c", sys.argv[1])
print("ended with", hand_over(child, is_terminal=sys.argv[2] == "terminal"), flush=True)
"""
TAKING_INTERRUPTS = """
import signal, sys, time
signal.signal(signal.SIGINT, lambda *_: sys.exit(7))
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(os.name == "nt", reason="there are no process groups")
@pytest.mark.parametrize(("where", "last", "code"), [("terminal", "ended with 7\n", 0), ("script", "", -signal.SIGINT)])
def test_in_a_terminal_the_other_program_handles_an_interrupt(where, last, code):
    with subprocess.Popen(
        [sys.executable, "-c", HANDING_OVER, TAKING_INTERRUPTS, where],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=child_process.environment(),
    ) as process:
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)
        out, _ = process.communicate(timeout=30)
    assert (out, process.returncode) == (last, code)


def test_a_program_is_killed_at_its_time_limit():
    assert (
        child_process.hand_over((sys.executable, "-c", "import time; time.sleep(60)"), limit_s=0.2, is_terminal=False)
        is None
    )


def test_the_module_path_has_our_packages_first_and_never_the_working_folder(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", "/elsewhere", ""]))
    found = child_process.environment({"A_VARIABLE": "1"})
    assert found["PYTHONPATH"] == os.pathsep.join([str(child_process.ROOT), "/elsewhere"])
    assert found["A_VARIABLE"] == "1"


CHILDREN = (
    "benchmarking.benches.discovery",
    "benchmarking.calibration.sizes",
    "benchmarking.devices.support.select",
    "benchmarking.runtimes.support.browser.runtime",
    "benchmarking.run_hardware_benchmark",
    "benchmarking.sweep.run.preparation",
    "benchmarking.sweep.run.worker",
    "benchmarking.workloads.support.hub",
    "db.commands.compare",
    "db.service",
    "db.setup_benchmark_db",
)


@pytest.fixture
def hostile_folder(tmp_path, monkeypatch):
    """The working folder, with files in it that are named like modules and leave a mark when they run."""
    for name in ("random", "types", "numpy", "json", "torch", "duckdb"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'mark')!r}, 'w').close()\nraise SystemExit(99)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep)  # an empty entry means the working folder
    return tmp_path


@pytest.mark.parametrize("module", CHILDREN)
def test_no_child_imports_from_the_working_folder(hostile_folder, module):
    done = child_process.run_module(module, "--help", question="[]", limit_s=120.0)
    assert done.exit_code != 99
    assert not (hostile_folder / "mark").exists()


def test_without_the_helper_such_a_file_would_run(hostile_folder):
    command = [sys.executable, "-m", "benchmarking.sweep.run.worker"]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(child_process.ROOT)}, stdin=subprocess.DEVNULL)
    assert (hostile_folder / "mark").exists()


def test_a_whole_run_imports_nothing_from_the_working_folder(hostile_folder):
    grid = ("--model-id", "tiny-bert", "--device", "null", "--batch-sizes", "1", "--sequence-lengths", "32")
    where = ("--save", "--db-path", "own.duckdb")
    done = child_process.run_module("benchmarking.run_hardware_benchmark", *grid, *where, limit_s=300.0)
    assert (done.exit_code, done.last_line) == (0, "stored in own.duckdb")
    assert not (hostile_folder / "mark").exists()


def test_a_child_answers_in_json(monkeypatch):
    monkeypatch.setattr(child_process, "module_command", lambda *words: (*child_process.OWN_PYTHON, "-c", *words))
    echo = "import sys; print('noise'); print(sys.stdin.read())"
    assert child_process.ask(echo, question='{"a": [1, null]}') == {"a": [1, None]}


@pytest.mark.parametrize(
    ("program", "kind", "words"),
    [
        ("import sys; sys.exit('first\\nlast word')", child_process.ChildError, "^last word$"),
        ("import sys; sys.exit(3)", child_process.ChildError, "^exit code 3$"),
        ("print('no JSON')", child_process.ChildError, "no answer in JSON: 'no JSON'"),
        ("pass", child_process.ChildError, "no answer in JSON: ''"),
        ("import time; time.sleep(60)", child_process.ChildTimeLimitError, "^no answer within 0.5 s$"),
    ],
)
def test_a_child_without_an_answer_is_an_error_that_says_why(monkeypatch, program, kind, words):
    monkeypatch.setattr(child_process, "module_command", lambda *words: (*child_process.OWN_PYTHON, "-c", *words))
    with pytest.raises(kind, match=words):
        child_process.ask(program, limit_s=0.5 if "sleep" in program else None)
