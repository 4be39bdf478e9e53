"""`--help` of the warehouse's commands: examples that parse, and help with a default for every flag."""

from __future__ import annotations

import argparse
import shlex

import pytest

from benchmarking import cli
from benchmarking.core.command_line import parser_of
from db.commands.recommend import OLD_LIMITS

COMMANDS = (
    *("setup_benchmark_db", "compare", "history", "regressions", "series", "check", "alert", "annotate", "recommend"),
    *("import", "export", "merge", "query", "sql", "compact"),
)
SWITCHES = (argparse._StoreTrueAction, argparse._AppendAction)
"""Flags whose default needs no words: off, or none."""
WITHOUT_DEFAULT = {
    "--reason", "--run", "--by", "--across", "--file", "--describe", "--price", "--junit", "--markdown", "--backup",
    "--rebuild-from", "--raw-older-than", "--model-id", "--device", "--device-name", "--precision", "--date",
    "--github", "--runtime", "--hardware",
}  # fmt: skip
"""Flags that are required, or that change nothing unless they are given."""
EARLIER = {"help_all", *OLD_LIMITS}
"""Hidden flags without one that is shown for the same: --help names --help-all, and the limits were flags once."""


def flags_of(parser):
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from flags_of(child)
        elif not isinstance(action, argparse._HelpAction):
            yield action


@pytest.mark.parametrize("command", COMMANDS)
def test_every_flag_has_help_with_its_default(command):
    limits = [group for group in parser_of(command)._action_groups if "(default: " in (group.title or "")]
    of_group = {action.dest for group in limits for action in group._group_actions}
    flags = list(flags_of(parser_of(command)))
    shown = {action.dest for action in flags if action.help != argparse.SUPPRESS}
    for action in flags:
        assert action.help, action.dest
        if action.help == argparse.SUPPRESS:
            assert action.dest in shown or action.dest in EARLIER, action.dest
            continue
        is_plain = isinstance(action, SWITCHES) or action.required or action.dest in of_group
        named = WITHOUT_DEFAULT.intersection(action.option_strings) or not action.option_strings
        assert is_plain or named or "(default: " in action.help, (action.dest, action.help)


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_at_the_end_parse(command):
    parser = parser_of(command)
    below = parser.epilog.split("examples:\n")[1]
    lines = [line.strip() for line in below.splitlines() if line.startswith("  benchhouse ")]
    assert len(lines) >= 2
    for line in lines:
        words = shlex.split(line.removeprefix("benchhouse "))
        assert words[0] == cli.ALIASES.get(command, command)
        if "onnx" not in words:  # an export of a model has another parser
            parser.parse_args(words[1:])
