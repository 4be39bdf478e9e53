"""The fuzzing script: what it must find is found, the kept cases hold, and a few new ones of each kind."""

from __future__ import annotations

import os
import subprocess
import sys
from random import Random

import pytest

from benchmarking import cli
from tests.fuzz import cases, mutations
from tests.fuzz.sandbox import Command, Scratch
from tests.helpers.paths import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="its limits are those of Linux")

MISDEEDS = {
    "traceback": "raise ValueError('a bug')",
    "exit code": "print('x'); return 5",
    "hang": "import time; time.sleep(60)",
    "lines": "import sys; [print('x: error: y', file=sys.stderr) for _ in range(4)]; return 1",
    "silence": "return 1",
    "long line": "import sys; print('x' * 30_000, file=sys.stderr)",
    "memory": "x = bytearray(b'x') * ((2 << 30) - (16 << 20))",
    "control": r"print('\x1b[31m')",
    "bytes": r"import os; os.write(1, b'\xff')",
    "event": "import socket; socket.socket().connect_ex(('127.0.0.1', 1))",
    "file": "open('../outside/pwned', 'w').close()",
    "canary": "open('mine', 'w').write(open('../outside/canary.txt').read())",
}
"""What a command may not do, by the kind of problem that it is."""


@pytest.mark.parametrize("kind", MISDEEDS)
def test_what_a_command_may_not_do_is_found(tmp_path, monkeypatch, kind):
    names: dict[str, object] = {}
    exec("def main(words):\n    " + MISDEEDS[kind] + "\n    return 0\n", names)
    monkeypatch.setattr(cli, "main", names["main"])
    command = Command(words=("x",), writes=("work/mine",), limit_s=5 if kind == "hang" else 60)
    problems = Scratch(tmp_path / "scratch").run(command)
    assert [one.kind for one in problems] == [kind], problems


def test_a_clean_command_has_no_problem(tmp_path):
    assert Scratch(tmp_path / "scratch").run(Command(words=("--help",))) == []


def fuzzed(*arguments):
    """The output of the script, which must find nothing."""
    command = [sys.executable, "-m", "tests.fuzz", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_kept_cases_hold():
    names = cases.kept()
    assert len(names) >= 4
    assert fuzzed("--kept").splitlines() == [f"{name}: ok" for name in names]


@pytest.mark.slow
def test_new_cases_have_no_problems():
    targets = ("yaml_files", "words", "caches", "databases", "foreign_files")
    printed = fuzzed("--only", ",".join(targets), "--seed", "0", "--case", "0")
    assert printed.splitlines() == [f"{target} 0: ok" for target in targets]


def test_a_case_is_the_same_for_the_same_seed_and_number(tmp_path):
    def made(folder):
        folder.mkdir()
        with cases.made("yaml_files", 5, 1, folder) as (scratch, commands):
            return commands, {path.name: path.read_bytes() for path in scratch.work.iterdir()}

    assert made(tmp_path / "a") == made(tmp_path / "b")


def test_every_mutation_of_json_differs_from_the_data_and_leaves_it_as_it_is():
    data = {"a": [1, 2.5, {"b": "text"}], "c": None}
    texts = {mutations.tree_mutated(Random(number), data) for number in range(200)}
    assert len(texts) > 100
    assert data == {"a": [1, 2.5, {"b": "text"}], "c": None}


def test_the_input_of_a_case_is_reduced_to_what_its_problem_needs(tmp_path, monkeypatch):
    def main(words):
        if os.path.exists("runs/7.json"):
            os.write(1, b"\xff")
        return 0

    monkeypatch.setattr(cli, "main", main)
    (problem,) = cases.run_case("run_files", 0, 0, tmp_path)
    with cases.shrunk("run_files", 0, 0, tmp_path, problem) as (scratch, _):
        assert [path.name for path in (scratch.work / "runs").iterdir()] == ["7.json"]
