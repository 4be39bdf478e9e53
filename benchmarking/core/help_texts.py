"""The layout of help texts: one usage line, and the flags in groups."""

from __future__ import annotations

import argparse
import shutil

NARROWEST, WIDEST = 60, 120
FLAG_WIDTH = 30
"""Columns of flags with their placeholders; longer ones have their text on the next line."""


OPTIONS = "runtime options"
"""Title of the group that --help-options shows."""
RARE = "is_rare"
"""The mark of flags and groups that few people need."""


def few_need(*things: argparse.Action | argparse._ActionsContainer) -> None:
    """Show these flags or groups in --help-all only."""
    for thing in things:
        vars(thing)[RARE] = True


def many_need(*things: argparse.Action | argparse._ActionsContainer) -> None:
    """Show these in --help too, in a command where a flag that few need elsewhere is one of a few."""
    for thing in things:
        vars(thing)[RARE] = False


def help_text(parser: argparse.ArgumentParser, *, everything: bool, details: str = "") -> str:
    """The help of a parser: all of it, or without what few people need, whose groups are named at the end."""
    width = min(max(shutil.get_terminal_size().columns - 2, NARROWEST), WIDEST)
    formatter = parser.formatter_class(prog=parser.prog, max_help_position=FLAG_WIDTH, width=width)  # type: ignore[call-arg]
    formatter.add_usage(parser.usage or usage(parser), parser._actions, parser._mutually_exclusive_groups)
    formatter.add_text(parser.description)
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
        others = ", ".join(title for title in dict.fromkeys(hidden) if title != OPTIONS)
        formatter.add_text(f"{options}--help-all all flags{f': {others}' if others else ''}.")
    formatter.add_text(parser.epilog)
    formatter.add_text(details or None)
    return formatter.format_help()


def _is_rare(thing: argparse.Action | argparse._ArgumentGroup) -> bool:
    return bool(vars(thing).get(RARE))


def usage(parser: argparse.ArgumentParser) -> str:
    """The name with the positional arguments; flags are listed below it."""
    words = {"?": "[{}]", "*": "[{} ...]", "+": "{} ..."}
    positional = [
        ("{}" if getattr(action, "is_needed", False) else words.get(str(action.nargs), "{}")).format(
            _placeholder(action)
        )
        for action in parser._actions
        if not action.option_strings and action.help != argparse.SUPPRESS
    ]
    return " ".join(["%(prog)s", *positional, "[flags]"]).replace("%(prog)s", parser.prog.replace("%", "%%"), 1)


def _placeholder(action: argparse.Action) -> str:
    metavar = action.metavar[0] if isinstance(action.metavar, tuple) else action.metavar
    return (metavar or action.dest).replace("%", "%%")
