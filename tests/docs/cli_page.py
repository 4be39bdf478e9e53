"""Writes docs/cli.md from the parsers of the commands.

    python -m tests.docs.cli_page

Tables, and not the text of `--help`, which is laid out differently by each version of Python.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from unittest import mock

from benchmarking import cli
from benchmarking.core import command_names
from benchmarking.core.command_line import parser_of
from benchmarking.core.help_texts import series_flags
from tests.helpers.paths import ROOT

PAGE = ROOT / "docs" / "cli.md"
WIDTH = 120
FOUND_BY_THE_MACHINE = ("BENCHMARK_DB_PATH", "BENCHHOUSE_CACHE_DIR")
"""Variables that change defaults."""
LAID_OUT = re.compile(r"^ |\S  +\S", re.MULTILINE)
"""A paragraph whose lines and columns have a meaning."""
HEAD = """\
# Commands

Every command and every flag. This page is generated from the parsers by `python -m tests.docs.cli_page`; `--help` after
a command says the same. Which flags make separate series, so that results with different values are never compared as
one history, stands below the flags of a command that measures, and in its `--help-all`.

The commands with a script also run under its name, with and without `.py`, and as `benchhouse SCRIPT`; the others run
as `benchhouse NAME` only. Results go to stdout and progress to stderr;
[Getting started](getting-started.md#exit-codes) has the exit codes.
"""


def main() -> int:
    PAGE.write_text(page(), encoding="utf-8")
    return 0


def page() -> str:
    """The text of the page."""
    with _without_defaults_of_this_machine():
        commands = {name: parser_of(name) for name in cli.COMMANDS}
        return "\n".join([HEAD, _contents(), *(command(name, parser) for name, parser in commands.items())])


@contextlib.contextmanager
def _without_defaults_of_this_machine() -> Iterator[None]:
    kept = {name: value for name, value in os.environ.items() if name not in FOUND_BY_THE_MACHINE}
    with mock.patch.dict(os.environ, kept, clear=True):
        yield


def _contents() -> str:
    rows = [
        (
            f"[`{name}`](#{name})",
            f"`{command_names.SCRIPTS[name]}`" if name in command_names.SCRIPTS else "",
            f"{group}: {one.summary}",
        )
        for group, commands in command_names.GROUPS.items()
        for name, one in commands.items()
    ]
    return _table(("benchhouse", "script", "does"), rows)


def command(name: str, parser: argparse.ArgumentParser, level: int = 2) -> str:
    parts = [f"{'#' * level} {name}\n", _prose(parser.description)]
    for group in parser._action_groups:
        parts.append(_group(group))
    parts += [_prose(series_flags(parser)), _prose(parser.epilog)]
    for child, summary, subparser in subcommands(parser):
        own = subparser.description or f"{summary[:1].upper()}{summary[1:]}."
        subparser.description = own
        parts.append(command(f"{name} {child}", subparser, level + 1))
    return "\n".join(part for part in parts if part)


def subcommands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            summaries = {choice.dest: choice.help or "" for choice in action._choices_actions}
            yield from ((child, summaries.get(child, ""), own) for child, own in action.choices.items())


def _group(group: argparse._ArgumentGroup) -> str:
    """The table of a group of flags; nothing for one without flags of its own."""
    rows = [(_signature(action), _help(action)) for action in group._group_actions if _is_shown(action)]
    return _table((group.title or "", _plain(group.description or "")), rows) if rows else ""


def _is_shown(action: argparse.Action) -> bool:
    is_help = isinstance(action, argparse._HelpAction)
    return action.help != argparse.SUPPRESS and not is_help and not isinstance(action, argparse._SubParsersAction)


def _signature(action: argparse.Action) -> str:
    """A flag with what it takes, as code."""
    takes = _takes(action)
    if not action.option_strings:
        return f"`{takes}`"
    return ", ".join(f"`{option} {takes}`" if takes else f"`{option}`" for option in action.option_strings)


def _takes(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    name = action.dest.upper() if action.option_strings else action.dest
    metavar = action.metavar or "|".join(map(str, action.choices or ())) or name
    word = " ".join(metavar) if isinstance(metavar, tuple) else metavar
    return {"?": f"[{word}]", "*": f"[{word} ...]", "+": f"{word} [{word} ...]"}.get(str(action.nargs), word)


def _help(action: argparse.Action) -> str:
    values: Mapping[str, object] = {
        **{name: value for name, value in vars(action).items() if value is not argparse.SUPPRESS},
        "choices": ", ".join(map(str, action.choices or ())),
    }
    return _plain((action.help or "") % values)


def _plain(text: str) -> str:
    """The text with what Markdown would take as markup escaped, outside of code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([*<])", r"\\\1", part) for part in parts)


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table of Markdown with an empty line below it."""
    lines = [head, ("---",) * len(head), *(tuple(cell.replace("|", "\\|") for cell in row) for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def _prose(text: str | None) -> str:
    """Paragraphs filled anew; those that are laid out in lines and columns as blocks."""
    parts = []
    for paragraph in textwrap.dedent(text or "").strip("\n").split("\n\n"):
        if not paragraph.strip():
            continue
        if LAID_OUT.search(paragraph):
            parts.append(f"<!-- generated -->\n```\n{textwrap.dedent(paragraph)}\n```\n")
        else:
            text = _plain(" ".join(paragraph.split()))
            parts.append(textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
