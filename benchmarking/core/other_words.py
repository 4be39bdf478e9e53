"""Command lines written for other tools, in words of ours: what a tool calls differently is replaced before parsing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarking.core.errors import UsageError

ARGUMENT = ""
"""In place of a flag: its value is an argument without a flag."""


def in_our_words(argv: Sequence[str], flags: Mapping[str, str]) -> list[str]:
    """The words with another tool's flags replaced (theirs -> ours, or `ARGUMENT`); what follows "--" stays."""
    words: list[str] = []
    for index, word in enumerate(argv):
        if word == "--":
            return [*words, *argv[index:]]
        flag, equals, value = word.partition("=")
        ours = flags.get(flag)
        if ours is None:
            words.append(word)
        elif ours != ARGUMENT:
            words.append(f"{ours}{equals}{value}")
        elif equals:
            words.append(value)
    return words


def lists_joined(argv: Sequence[str], flag: str, ending: str) -> list[str]:
    """The words with the values after a flag as one list: `--devices a b` becomes `--devices a,b`. The list ends at a
    flag, and at a word that contains `ending`."""
    words: list[str] = []
    values: list[str] | None = None
    for word in argv:
        if values is not None and not word.startswith("-") and ending not in word:
            values.append(word)
            continue
        if values:
            words.append(",".join(values))
        values = [] if word == flag else None
        words.append(word)
    return [*words, ",".join(values)] if values else words


def flags_in(words: Sequence[str]) -> list[str]:
    """The flags among the words, without their values, up to "--"."""
    own = words[: list(words).index("--")] if "--" in words else words
    return [word.partition("=")[0] for word in own if word.startswith("-")]


def repeated(words: Sequence[str], flags: Sequence[str]) -> list[str]:
    """The words with several values after one of the flags as several flags: `--include a b` becomes `--include a
    --include b`."""
    found: list[str] = []
    flag: str | None = None
    for word in words:
        if word.startswith("-"):
            flag = word if word in flags else None
        elif flag is not None and found[-1] != flag:
            found.append(flag)
        found.append(word)
    return found


def taken(words: Sequence[str], flag: str) -> tuple[str | None, list[str]]:
    """The last value of a flag, or None without one, and the other words. Raises UsageError for a missing value."""
    found: str | None = None
    rest: list[str] = []
    waiting = False
    for word in words:
        name, equals, value = word.partition("=")
        if waiting:
            found, waiting = word, False
        elif name == flag:
            found, waiting = (value, False) if equals else (None, True)
        else:
            rest.append(word)
    if waiting:
        raise UsageError(f"{flag} needs a value")
    return found, rest


def with_default_model(argv: Sequence[str], flags: Sequence[str], model: str) -> list[str]:
    """The words, with this model as an argument if they are nothing but these flags, each with a value."""
    words = [part for word in argv for part in (word.split("=", 1) if word.startswith("--") else (word,))]
    return [model, *argv] if all(flag in flags for flag in words[::2]) else list(argv)
