"""The entry points of the installed commands."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
from functools import partial

import pytest

from benchmarking import console_scripts
from benchmarking.core.command_names import COMMANDS, SCRIPTS

MODULES = {"benchhouse": "benchmarking.cli"} | {script: COMMANDS[name].module for name, script in SCRIPTS.items()}
MODULES["profiler"] = "benchmarking.profiler"  # `profile` with other defaults
MODULES["integration_benchmark"] = "benchmarking.integration_benchmark"  # a script only: batch_benchmark
"""Entry point -> the module of its command."""


class InterruptedImport:
    """Ctrl-C while a module is imported."""

    def __init__(self, module):
        self.module = module

    def find_spec(self, name, path=None, target=None):
        if name == self.module:
            raise KeyboardInterrupt


@pytest.fixture(autouse=True)
def kept_handler():
    """The tests' own handler of SIGINT, which an interrupted command in this process leaves to the system."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def interrupt_import_of(monkeypatch):
    def interrupt(module):
        monkeypatch.delitem(sys.modules, module, raising=False)
        monkeypatch.setattr(sys, "meta_path", [InterruptedImport(module), *sys.meta_path])

    return interrupt


def test_every_command_has_an_entry_point():
    entries = {name for name, one in vars(console_scripts).items() if isinstance(one, partial)}
    assert entries == set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_ctrl_c_during_the_imports_is_one_line(interrupt_import_of, capsys, name):
    interrupt_import_of(MODULES[name])
    assert getattr(console_scripts, name)() == 130
    assert capsys.readouterr() == ("", f"{name}: interrupted\n")


@pytest.mark.parametrize("name", ["run_hardware_benchmark", "batch_benchmark"])
def test_ctrl_c_during_the_imports_of_a_turn_is_one_line(interrupt_import_of, monkeypatch, capsys, name):
    """As `ab` and `bisect` start them: as modules."""
    interrupt_import_of(MODULES[name])
    monkeypatch.delitem(sys.modules, f"benchmarking.{name}", raising=False)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(f"benchmarking.{name}", run_name="__main__")
    assert (ended.value.code, capsys.readouterr()) == (130, ("", f"{name}: interrupted\n"))


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such signals")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_sigterm_during_the_imports_is_one_line_and_its_exit_code(number, code):
    """And afterwards the command's own handlers are in place."""
    early = (
        "import os, sys, importlib.abc\nfrom benchmarking import console_scripts\n"
        "class Signal(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'benchmarking.cli': os.kill(os.getpid(), int(sys.argv[1]))\n"
        "sys.meta_path.insert(0, Signal())\nsys.exit(console_scripts.benchhouse())"
    )
    done = subprocess.run([sys.executable, "-c", early, str(int(number))], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "benchhouse: interrupted\n")
    late = (
        "import os, signal, sys\nfrom benchmarking import console_scripts\nfrom benchmarking.core import command_line\n"
        "kill = lambda _: os.kill(os.getpid(), int(sys.argv[1]))\n"
        "class Late:\n    main = staticmethod(lambda: command_line.run_command('late', kill, []))\n"
        "sys.modules['late'] = Late\nsys.exit(console_scripts.run('late', 'late'))"
    )
    done = subprocess.run([sys.executable, "-c", late, str(int(number))], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, "late: interrupted\n")


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such signals")
def test_a_second_ctrl_c_while_the_interpreter_ends_has_no_traceback():
    ending = (
        "import os, signal, sys, threading, time\nfrom benchmarking import console_scripts\n"
        "main = threading.main_thread().ident\n"
        "def interrupt():\n"
        "    while sys._current_frames()[main].f_code.co_name != '_shutdown': time.sleep(0.01)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(60)\n"
        "class Late:\n"
        "    def main():\n        threading.Thread(target=interrupt).start()\n        raise KeyboardInterrupt\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "sys.modules['late'] = Late\nsys.exit(console_scripts.run('late', 'late'))"
    )
    done = subprocess.run([sys.executable, "-c", ending], capture_output=True, text=True, check=False, timeout=50)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "late: interrupted\n")


def test_ctrl_c_during_the_imports_of_the_package_as_a_module(interrupt_import_of, capsys):
    interrupt_import_of("benchmarking.cli")
    with pytest.raises(SystemExit) as stop:
        runpy.run_module("benchmarking", run_name="__main__")
    assert stop.value.code == 130
    assert capsys.readouterr() == ("", "benchhouse: interrupted\n")


@pytest.mark.parametrize("name", MODULES)
def test_an_entry_point_runs_its_command(monkeypatch, capsys, name):
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    assert getattr(console_scripts, name)() == 0
    assert capsys.readouterr().out.startswith(f"usage: {name} ")
