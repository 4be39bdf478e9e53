"""Reads system values, and records why a value cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from benchmarking.core.child_process import program, run_program
from benchmarking.core.records import FAILED, NO_PERMISSION, NOT_SUPPORTED, Json, Readings

RunCommand = Callable[[Sequence[str]], str]
"""Runs a command and returns its stdout. Raises UnreadableError."""

COMMAND_LIMIT_S = 10.0
"""Time limit of a system tool; the slowest one used (system_profiler) takes about a second."""


class UnreadableError(Exception):
    """A value cannot be read. The message is the reason as stored in `Readings.missing`."""


def gather(sources: Mapping[str, Callable[[], Json]]) -> Readings:
    """Each name's value, or the reason its source raised as UnreadableError."""
    values: dict[str, Json] = {}
    missing: dict[str, str] = {}
    for name, source in sources.items():
        try:
            values[name] = source()
        except UnreadableError as error:
            missing[name] = str(error)
    return Readings(values=values, missing=missing)


def all_missing(reason: str, names: Iterable[str]) -> Readings:
    """Readings with every name missing for the same reason."""
    return Readings(missing=dict.fromkeys(names, reason))


def read_text(path: Path) -> str:
    """The file's text without surrounding white space. Raises UnreadableError with the path."""
    try:
        return path.read_text(errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UnreadableError(f"{NOT_SUPPORTED}: no {path}") from error
    except PermissionError as error:
        raise UnreadableError(f"{NO_PERMISSION}: {path}") from error
    except OSError as error:
        raise UnreadableError(f"{FAILED}: {path}: {error.strerror}") from error


def text_or_empty(path: Path) -> str:
    """The file's text, or "" if it cannot be read: for files whose absence is an answer in itself."""
    try:
        return read_text(path)
    except UnreadableError:
        return ""


def first_of(*sources: Callable[[], Json]) -> Callable[[], Json]:
    """A source that returns the first of these values that can be read, else raises the last UnreadableError."""

    def read() -> Json:
        for source in sources[:-1]:
            try:
                return source()
            except UnreadableError:
                continue
        return sources[-1]()

    return read


def number_or_none(source: Callable[[], Json]) -> float | None:
    """A source's number, or None if it cannot be read: for numbers whose reason is recorded elsewhere."""
    try:
        value = source()
    except UnreadableError:
        return None
    return float(value) if isinstance(value, int | float) else None


def read_int(path: Path) -> int:
    """The integer in the file. Raises UnreadableError."""
    text = read_text(path)
    try:
        return int(text, 0)
    except ValueError as error:
        raise UnreadableError(f"{FAILED}: {path} holds {text[:40]!r}, not a number") from error


def run_command(arguments: Sequence[str]) -> str:
    """A system tool's stdout. Raises UnreadableError if the tool is missing, fails or hangs."""
    name, *rest = arguments
    path = program(name)
    if path is None:
        raise UnreadableError(f"{NOT_SUPPORTED}: no command {name}")
    try:
        done = run_program((path, *rest), limit_s=COMMAND_LIMIT_S)
    except PermissionError as error:
        raise UnreadableError(f"{NO_PERMISSION}: {name}") from error
    if done.exit_code is None:
        raise UnreadableError(f"{FAILED}: {name} took more than {COMMAND_LIMIT_S:g} s")
    if done.exit_code != 0:
        raise UnreadableError(f"{FAILED}: {name}: {done.last_line or f'exit code {done.exit_code}'}")
    return done.stdout
