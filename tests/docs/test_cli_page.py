"""The page about the commands is what their parsers say."""

from __future__ import annotations

import argparse
import itertools
import re
import shlex

import pytest

from benchmarking import cli
from benchmarking.core import command_names
from benchmarking.core.command_line import parser_of
from tests.docs import cli_page
from tests.helpers.doc_pages import blocks

COMMANDS = tuple(cli.COMMANDS)


def test_the_page_equals_the_parsers():
    written = cli_page.PAGE.read_text(encoding="utf-8")
    assert written == cli_page.page(), "python -m tests.docs.cli_page writes docs/cli.md anew"


def test_the_page_does_not_depend_on_this_machines_settings(monkeypatch):
    expected = cli_page.page()
    monkeypatch.setenv("BENCHMARK_DB_PATH", "elsewhere.duckdb")
    monkeypatch.setenv("BENCHHOUSE_CACHE_DIR", "/elsewhere")
    monkeypatch.setenv("COLUMNS", "40")
    assert cli_page.page() == expected


@pytest.mark.parametrize("command", COMMANDS)
def test_every_flag_of_a_command_is_on_the_page(command):
    page = cli_page.PAGE.read_text(encoding="utf-8")
    flags = {flag for flag in flags_of(parser_of(command)) if flag not in ("-h", "--help")}
    assert flags
    assert [flag for flag in flags if f"`{flag}" not in page] == []


def flags_of(parser: argparse.ArgumentParser) -> set[str]:
    children = [child for _, _, child in cli_page.subcommands(parser)]
    own = {flag for action in parser._actions if action.help != argparse.SUPPRESS for flag in action.option_strings}
    return own.union(*map(flags_of, children))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_example_of_a_help_text_is_accepted_by_the_parser_it_is_for(command):
    for line in examples(parser_of(command)):
        words = shlex.split(line, comments=True)
        name, arguments = (words[1], words[2:]) if words[0] == "benchhouse" else (words[0], words[1:])
        arguments = list(itertools.takewhile(lambda word: word != "--", arguments))  # behind it: another command
        parser = parser_of(name, *arguments)
        parser.parse_args(arguments)  # exits where they are refused


def examples(parser: argparse.ArgumentParser) -> list[str]:
    """The command lines in the description and at the end of a help text."""
    text = f"{parser.description}\n{parser.epilog}".replace("\\\n", " ")
    names = "|".join([*command_names.SCRIPTS.values(), "benchhouse"])
    return re.findall(rf"^ +((?:{names})(?:\.py)? .+)$", text, re.MULTILINE)


def test_every_command_that_measures_or_draws_has_examples():
    assert all(examples(parser_of(command)) for command in command_names.SCRIPTS)


def test_only_the_page_about_commands_has_generated_blocks():
    assert any(block.kind == "generated" for block in blocks(cli_page.PAGE))


SMALL = argparse.ArgumentParser(prog="small", description="First.\n\n  laid   out\n\nA *b* `*` < c.")
SMALL.add_argument("--size", type=int, default=3, metavar="N", help="pixels (%(default)s)")
SMALL.add_argument("--mode", choices=("a", "b"), help="of %(choices)s")
SMALL.add_argument("--hidden", help=argparse.SUPPRESS)
SMALL.add_argument("name", nargs="*")


def test_a_command_is_a_heading_its_description_and_a_table_for_each_group():
    own = SMALL._action_groups[1].title
    assert cli_page.command("small", SMALL) == (
        "## small\n\nFirst.\n\n<!-- generated -->\n```\nlaid   out\n```\n\nA \\*b\\* `*` \\< c.\n\n"
        "| positional arguments |  |\n| --- | --- |\n| `[name ...]` |  |\n\n"
        f"| {own} |  |\n| --- | --- |\n| `--size N` | pixels (3) |\n| `--mode a\\|b` | of a, b |\n"
    )
