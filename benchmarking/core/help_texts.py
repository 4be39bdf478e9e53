"""The layout of help texts: one usage line, and the flags in groups."""

from __future__ import annotations

import argparse
import itertools
import re
import shutil
import textwrap

NARROWEST, WIDEST = 60, 120
FLAG_WIDTH = 30
"""Columns of flags with their placeholders; longer ones have their text on the next line."""


OPTIONS = "runtime options"
"""Title of the group that --help-options shows."""
RARE = "is_rare"
"""The mark of flags and groups that few people need."""
IN_SERIES = "in_series"
"""The mark of flags of which different values make separate series."""


def few_need(*things: argparse.Action | argparse._ActionsContainer, is_rare: bool = True) -> None:
    """Show these flags or groups in --help-all only; or in --help too, in a command where they are some of a few."""
    for thing in things:
        vars(thing)[RARE] = is_rare


def series_flags(parser: argparse.ArgumentParser) -> str:
    """Which flags of a parser make separate series, in a sentence; empty for none."""
    found = [
        action.option_strings[-1] for action in parser._actions if vars(action).get(IN_SERIES) and action.option_strings
    ]
    options = any(group.title == OPTIONS for group in parser._action_groups)
    also = ", and runtime options" if options else ""
    return f"Runs with different values of these are separate series: {', '.join(found)}{also}." if found else ""


def help_text(parser: argparse.ArgumentParser, *, everything: bool, details: str = "") -> str:
    """The help of a parser: all of it, or without what few people need."""
    width = min(max(shutil.get_terminal_size().columns - 2, NARROWEST), WIDEST)
    formatter = parser.formatter_class(prog=parser.prog, max_help_position=FLAG_WIDTH, width=width)  # type: ignore[call-arg]
    formatter.add_usage(parser.usage or usage(parser), parser._actions, parser._mutually_exclusive_groups)
    formatter.add_text(fitted(parser.description or "", width + 2))
    hidden: list[str] = []
    for group in parser._action_groups:
        listed = [action for action in group._group_actions if action.help != argparse.SUPPRESS]
        shown = listed if everything else [one for one in listed if not _is_rare(group) and not _is_rare(one)]
        hidden += [group.title or ""] if len(shown) < len(listed) else []
        formatter.start_section(group.title)
        formatter.add_text(group.description if everything else None)
        formatter.add_arguments(shown)
        formatter.end_section()
    if hidden:
        options = "--help-options [RUNTIME] shows the options of runtimes, " if OPTIONS in hidden else ""
        formatter.add_text(f"{options}--help-all all flags.")
    if everything:
        formatter.add_text(fitted(series_flags(parser), width + 2))
    formatter.add_text(fitted(parser.epilog or "", width + 2))
    formatter.add_text(fitted(details, width + 2))
    return formatter.format_help()


def fitted(text: str, width: int) -> str:
    """The text with no line wider than `width`, unless a word is: a paragraph is filled anew, and a line that begins
    with spaces, an example or a row of a list, continues on the next, after a backslash if it is a command."""
    lines: list[str] = []
    for is_indented, group in itertools.groupby(text.splitlines(), key=lambda line: line[:1] in (" ", "")):
        block = list(group)
        if max(map(len, block)) <= width:
            lines += block
        elif not is_indented:
            lines += textwrap.wrap(" ".join(block), width, break_long_words=False, break_on_hyphens=False)
        else:
            for line in block:
                lines += _continued(line, width) if len(line) > width else [line]
    return "\n".join(lines)


def _continued(line: str, width: int) -> list[str]:
    """The lines of an indented line: a command breaks before a flag."""
    indent = line[: len(line) - len(line.lstrip())]
    more = f"{indent}    "
    if line.split()[:1] != ["benchhouse"]:
        return textwrap.wrap(line, width, subsequent_indent=more, break_long_words=False, break_on_hyphens=False)
    lines = [indent.removesuffix(" ")]
    for part in re.split(r" (?=--)", line.strip()):
        if len(lines[-1]) + len(part) + 3 > width and lines[-1].strip():
            lines[-1] += " \\"
            lines.append(more.removesuffix(" "))
        lines[-1] += f" {part}"
    return lines


def _is_rare(thing: argparse.Action | argparse._ArgumentGroup) -> bool:
    return bool(vars(thing).get(RARE))


def usage(parser: argparse.ArgumentParser) -> str:
    """The name with the positional arguments; flags are listed below it."""
    words = {"?": "[{}]", "*": "[{} ...]", "+": "{} ..."}
    positional = []
    for action in parser._actions:
        if not action.option_strings and action.help != argparse.SUPPRESS:
            metavar = action.metavar[0] if isinstance(action.metavar, tuple) else action.metavar
            placeholder = (metavar or action.dest).replace("%", "%%")
            form = "{}" if getattr(action, "is_needed", False) else words.get(str(action.nargs), "{}")
            positional.append(form.format(placeholder))
    return " ".join(["%(prog)s", *positional, "[flags]"]).replace("%(prog)s", parser.prog.replace("%", "%%"), 1)
