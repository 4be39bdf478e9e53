"""Child processes: their imports, output and limits."""

from __future__ import annotations

import ast
import os
import re
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
def test_in_a_terminal_the_child_handles_an_interrupt(where, last, code):
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
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", ".", "/elsewhere", "src", ""]))
    found = child_process.environment({"A_VARIABLE": "1"})
    assert found["PYTHONPATH"] == os.pathsep.join([str(child_process.ROOT), "/elsewhere"])
    assert found["A_VARIABLE"] == "1"


CHILDREN = (
    "benchmarking.benches.discovery",
    "benchmarking.calibration.calibration_plans",
    "benchmarking.devices.support.select",
    "benchmarking.runtimes.support.browser.browser_runtime",
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
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", "."]))  # an empty entry means the working folder, too
    return tmp_path


@pytest.mark.parametrize("module", CHILDREN)
def test_no_child_imports_from_the_working_folder(hostile_folder, module):
    done = child_process.run_module(module, "--help", input_text="[]", limit_s=120.0)
    assert done.exit_code != 99
    assert not (hostile_folder / "mark").exists()


def test_without_the_helper_a_file_in_the_working_folder_would_run(hostile_folder):
    command = [sys.executable, "-m", "benchmarking.sweep.run.worker"]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(child_process.ROOT)}, stdin=subprocess.DEVNULL)
    assert (hostile_folder / "mark").exists()


@pytest.mark.parametrize(("max_bytes", "is_too_long"), [(10, True), (10_000, False)])
def test_a_child_is_killed_at_its_output_limit(max_bytes, is_too_long):
    done = child_process.run_module_within("this", limit_s=60.0, max_bytes=max_bytes)
    assert done.is_too_long is is_too_long
    assert done.stdout.startswith("The Zen of"[:max_bytes])
    assert (len(done.stdout) == max_bytes) is is_too_long


def test_a_silent_child_is_killed_at_its_time_limit():
    done = child_process.run_module_within("http.server", "0", "--bind", "127.0.0.1", limit_s=0.5, max_bytes=1000)
    assert (done.exit_code, done.is_too_long) == (None, False)


def test_a_run_imports_nothing_from_the_working_folder(hostile_folder):
    grid = ("--model-id", "tiny-bert", "--device", "null", "--batch-sizes", "1", "--sequence-lengths", "32")
    where = ("--save", "--db-path", "own.duckdb")
    done = child_process.run_module("benchmarking.run_hardware_benchmark", *grid, *where, limit_s=300.0)
    assert (done.exit_code, done.last_line) == (0, "stored in own.duckdb")
    assert not (hostile_folder / "mark").exists()


def test_system_programs_are_not_taken_from_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "tool", tmp_path / "folder" / "tool"):
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join(["", ".", "folder"]))
    assert child_process.program("tool") is None
    monkeypatch.setenv("PATH", os.pathsep.join([".", str(tmp_path / "folder")]))
    assert child_process.program("tool") == str(tmp_path / "folder" / "tool")


STARTS_CHILDREN = {
    "asyncio": ("create_subprocess_exec", "create_subprocess_shell"),
    "concurrent.futures": ("ProcessPoolExecutor",),
    "multiprocessing": ("",),
    "os": ("exec", "fork", "popen", "posix_spawn", "spawn", "startfile", "system"),
    "pty": ("",),
    "subprocess": ("Popen", "call", "check_", "get", "run"),
}
"""Module -> how the names of its functions that start or become a process begin; "" for all of them."""
MENTION = re.compile(rf"\b(?:{'|'.join(module.partition('.')[0] for module in STARTS_CHILDREN)}|shell)\b")
MAY_START = {"benchmarking/core/child_process.py": {"subprocess.Popen"}}
"""The exceptions: `start`."""


def test_one_function_starts_every_child():
    found = {}
    for room in ("benchmarking", "db", "visualize"):
        for path in sorted((child_process.ROOT / room).rglob("*.py")):
            source = path.read_text(encoding="utf-8")
            if MENTION.search(source) and (calls := started_in(ast.parse(source))):
                found[path.relative_to(child_process.ROOT).as_posix()] = calls
    assert found == MAY_START
    source = (child_process.ROOT / "benchmarking/core/child_process.py").read_text(encoding="utf-8")
    assert source.count("subprocess.Popen(") == 1


@pytest.mark.parametrize(
    "code",
    [
        "import subprocess\nsubprocess.run([])",
        "import subprocess as s\ns.check_output([])",
        "from subprocess import Popen\nPopen([])",
        "import os\nos.execv('x', [])",
        "from os import system\nsystem('x')",
        "import multiprocessing",
        "from torch import multiprocessing",
        "from concurrent.futures import ProcessPoolExecutor",
        "import asyncio\nasyncio.create_subprocess_exec('x')",
        "start([], shell=True)",
    ],
)
def test_other_calls_that_start_a_child_are_detected(code):
    assert started_in(ast.parse(code))


def test_constants_and_errors_of_subprocess_are_allowed():
    code = (
        "import subprocess\ntry: f(subprocess.PIPE)\nexcept subprocess.TimeoutExpired: pass\np: subprocess.Popen[str]"
    )
    assert started_in(ast.parse(code)) == set()


def started_in(tree):
    """What a module calls or imports that starts a process, as module.name, and shells."""
    names, found = {}, set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    found |= {name for name in names.values() if name.split(".")[-1] in ("multiprocessing", "pty")}
    found |= {name for name in names.values() if name.endswith("ProcessPoolExecutor")}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        first, dot, rest = called.partition(".")
        module, _, name = f"{names.get(first, first)}{dot}{rest}".rpartition(".")
        if any(name.startswith(start) for start in STARTS_CHILDREN.get(module, ())):
            found.add(f"{module}.{name}")
        found |= {"a shell" for keyword in node.keywords if keyword.arg == "shell"}
    return found


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_json_output_of_a_child_is_parsed_in_every_encoding_of_the_terminal(monkeypatch, encoding):
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    monkeypatch.setattr(child_process, "module_command", lambda *words: (*child_process.OWN_PYTHON, "-c", *words))
    echo = "import sys; print('noise'); print(sys.stdin.read())"
    assert child_process.run_module_json(echo, input_text='{"modèle": [1, null]}') == {"modèle": [1, None]}


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
def test_a_child_without_json_output_is_an_error_with_the_reason(monkeypatch, program, kind, words):
    monkeypatch.setattr(child_process, "module_command", lambda *words: (*child_process.OWN_PYTHON, "-c", *words))
    with pytest.raises(kind, match=words):
        child_process.run_module_json(program, limit_s=0.5 if "sleep" in program else None)
