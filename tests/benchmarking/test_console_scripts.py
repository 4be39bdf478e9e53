"""The entry points of the installed commands."""

from __future__ import annotations

import inspect
import runpy
import sys

import pytest

from benchmarking import console_scripts
from benchmarking.cli import COMMANDS, SCRIPTS

MODULES = {"benchhouse": "benchmarking.cli"} | {script: COMMANDS[name].module for script, name in SCRIPTS.items()}
MODULES["profiler"] = "benchmarking.profiler"  # a script only: benchhouse profile with other defaults
"""Entry point -> the module of its command."""


class InterruptedImport:
    """Ctrl-C while a module is imported."""

    def __init__(self, module):
        self.module = module

    def find_spec(self, name, path=None, target=None):
        if name == self.module:
            raise KeyboardInterrupt


@pytest.fixture
def interrupt_import_of(monkeypatch):
    def interrupt(module):
        monkeypatch.delitem(sys.modules, module, raising=False)
        monkeypatch.setattr(sys, "meta_path", [InterruptedImport(module), *sys.meta_path])

    return interrupt


def test_every_command_has_an_entry_point():
    functions = {name for name, one in inspect.getmembers(console_scripts, inspect.isfunction)} - {"run"}
    assert functions == set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_ctrl_c_during_the_imports_is_one_line(interrupt_import_of, capsys, name):
    interrupt_import_of(MODULES[name])
    assert getattr(console_scripts, name)() == 130
    assert capsys.readouterr() == ("", f"{name}: interrupted\n")


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
