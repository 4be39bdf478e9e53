"""`--help` of the measuring commands: grouped, with a default for every flag, and with examples that parse."""

from __future__ import annotations

import argparse
import os
import re
import shlex

import pytest

from benchmarking import cli
from benchmarking.core.child_process import module_command, start
from benchmarking.core.command_line import parser_of
from benchmarking.core.errors import EXIT_OK
from benchmarking.core.help_texts import help_text

COMMANDS = (
    "run_hardware_benchmark",
    "batch_benchmark",
    "compare_onnx",
    "export_to_onnx",
    "manage_cache",
    "ab",
    "benchit",
)
SWITCHES = (argparse._StoreTrueAction, argparse._AppendAction)
"""Flags whose default needs no description: off, or none."""
WITHOUT_DEFAULT = {
    "run_hardware_benchmark": {"model_id", "description", "compare_to", "turn"},
    "batch_benchmark": {"model_ids", "models", "model_list", "benches", "description", "report", "turn"},
    "compare_onnx": {"model_id", "description"},
    "export_to_onnx": {"model_id", "output_dir"},
    "ab": {"a", "b", "description"},
    "benchit": {"description"},
    "manage_cache": {"build"},
}
"""Arguments that are required, or that mean nothing without a value."""


def flags_of(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    found = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found += [flag for child in action.choices.values() for flag in flags_of(child)]
        elif not isinstance(action, argparse._HelpAction):
            found.append(action)
    return found


def examples(text: str) -> list[str]:
    """The command lines below "examples:"."""
    below = re.sub(r" \\\n +", " ", text.split("examples:\n")[1])
    return [line.strip() for line in below.splitlines() if line.startswith("  ")]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_flag_has_help_with_its_default(command: str) -> None:
    for action in flags_of(parser_of(command)):
        if action.help == argparse.SUPPRESS:
            continue
        assert action.help, action.dest
        is_plain = isinstance(action, SWITCHES) or action.dest in WITHOUT_DEFAULT.get(command, set())
        assert is_plain or "(default: " in action.help, (action.dest, action.help)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_ends_with_three_examples_that_parse(command: str) -> None:
    parser = parser_of(command)
    lines = examples(parser.format_help())
    assert len(lines) == 3
    for line in lines:
        words = shlex.split(line.removeprefix("benchhouse "))
        assert words[0] == cli.ALIASES.get(command, command)
        parser.parse_args(words[1:])


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_help_has_fewer_than_60_lines_and_help_all_has_every_flag(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")  # what it is taken for where output is no terminal
    parser = parser_of(command)
    assert len(parser.format_help().splitlines()) < 60
    full = help_text(parser, everything=True, details=parser.details)
    shown = [one for one in parser._actions if one.help != argparse.SUPPRESS]
    assert [one.option_strings for one in shown if one.option_strings and one.option_strings[-1] not in full] == []
    hidden = [one for one in shown if one.option_strings and one.option_strings[-1] not in parser.format_help()]
    assert not hidden or "--help-all" in parser.format_help()


def test_help_options_lists_the_options_of_one_runtime_or_of_all(capsys):
    assert cli.main(["load", "--help-options", "openvino"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("openvino:")
    assert "--hint" in out
    assert "--compile-mode" not in out
    assert "--concurrency requests in flight: latency or throughput (default: latency)" in " ".join(out.split())
    assert cli.main(["run", "--help-options"]) == 0
    assert "compiled:" in capsys.readouterr().out
    assert cli.main(["run", "--help-options", "openvin"]) == 2
    assert "did you mean openvino" in capsys.readouterr().err
    assert cli.main(["run", "--help-options", "null"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith("null: no options; computes nothing, to try commands")
    assert '$BENCHHOUSE_NULL_SCRIPT, such as {"latency_ms": {"*": [5.0, 5.1]}}' in shown


def test_benchhouse_help_has_examples_of_existing_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    lines = examples(capsys.readouterr().out)
    assert len(lines) == 4
    for line in lines:
        assert shlex.split(line)[1] in cli.COMMANDS


def test_flags_of_a_run_are_grouped() -> None:
    titles = [group.title for group in parser_of("run_hardware_benchmark")._action_groups if group._group_actions]
    assert titles[1:] == [
        *("model", "device and runtime", "runtime options", "grid", "measurement", "builds"),
        *("remote machine", "output"),
        "instead of measuring a model",
    ]


@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_a_closed_pipe_is_not_an_error(flag):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        process = start(module_command("benchmarking.cli", flag), stdout=closed)
        _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (EXIT_OK, "")
