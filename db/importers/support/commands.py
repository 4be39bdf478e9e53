"""Commands that are written above printed results: they name the model and the settings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

UNRESOLVED = re.compile(r"[$<]")
"""In a value: a variable of a script, or a placeholder."""
FLAG = re.compile(
    r"(?:^|[\s`(])(?:--([a-z][\w-]+)|-([a-z]{1,3})(?![\w-]))"
    r"(?:[= ]\s*(?!-{1,2}[a-z])(\"[^\"]*\"|'[^']*'|[^\s\\`]+))?"
)


def commands_of(program: str, text: str) -> list[str]:
    """The commands of a program (a pattern) in a text, each with its flags, also on lines after a backslash."""
    pattern = re.compile(rf"(?<![\w.-])(?:{program})(?:\.exe)?[ \t](?:\\\r?\n|\"[^\"\n]*\"|'[^'\n]*'|[^\n|;&`])*")
    return [found[0] for found in pattern.finditer(text)]


def flags_of(command: str, short: Mapping[str, str]) -> dict[str, str]:
    """The flags of a command with their values, "True" for none; a flag of one dash has the name in `short`."""
    found: dict[str, str] = {}
    for flag, letters, value in FLAG.findall(command):
        if flag or letters in short:
            found[flag.replace("-", "_") or short[letters]] = value.strip("'\"") or "True"
    return found


def agreed(several: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """What several commands above a result have alike, since it is not known which of them printed it. (One without
    anything is prose.)"""
    stated = [one for one in several if one]
    first: Mapping[str, str] = stated[0] if stated else {}
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in stated)}
