"""Reads values of the system, and keeps the reason for each that cannot be read."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from benchmarking.core.records import FAILED, NO_PERMISSION, NOT_SUPPORTED, Json, Readings

RunCommand = Callable[[Sequence[str]], str]
"""Runs a command and gives its stdout. Raises UnreadableError."""

COMMAND_LIMIT_S = 10.0
"""A slower system tool hangs: the slowest one used (system_profiler) takes about a second."""


class UnreadableError(Exception):
    """A value that cannot be read; the message is the reason as `Readings.missing` holds it."""


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


def absent(reason: str, names: Iterable[str]) -> Readings:
    """Readings in which every name is missing for the same reason."""
    return Readings(missing=dict.fromkeys(names, reason))


def read_text(path: Path) -> str:
    """The file's text without surrounding white space. Raises UnreadableError, which names the path."""
    try:
        return path.read_text(errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UnreadableError(f"{NOT_SUPPORTED}: no {path}") from error
    except PermissionError as error:
        raise UnreadableError(f"{NO_PERMISSION}: {path}") from error
    except OSError as error:
        raise UnreadableError(f"{FAILED}: {path}: {error.strerror}") from error


def text_or_empty(path: Path) -> str:
    """The file's text; empty where it cannot be read: for files whose absence is itself the answer."""
    try:
        return read_text(path)
    except UnreadableError:
        return ""


def first_of(*sources: Callable[[], Json]) -> Callable[[], Json]:
    """A source with the value of the first of these that can be read; raises the last one's UnreadableError."""

    def read() -> Json:
        for source in sources[:-1]:
            try:
                return source()
            except UnreadableError:
                continue
        return sources[-1]()

    return read


def read_int(path: Path) -> int:
    """The file's whole number. Raises UnreadableError."""
    text = read_text(path)
    try:
        return int(text, 0)
    except ValueError as error:
        raise UnreadableError(f"{FAILED}: {path} holds {text[:40]!r}, not a number") from error


def run_command(arguments: Sequence[str]) -> str:
    """A system tool's stdout. Raises UnreadableError when it is missing, fails or hangs."""
    try:
        done = subprocess.run(
            arguments, capture_output=True, text=True, errors="replace", timeout=COMMAND_LIMIT_S, check=True
        )
    except FileNotFoundError as error:
        raise UnreadableError(f"{NOT_SUPPORTED}: no command {arguments[0]}") from error
    except PermissionError as error:
        raise UnreadableError(f"{NO_PERMISSION}: {arguments[0]}") from error
    except subprocess.TimeoutExpired as error:
        raise UnreadableError(f"{FAILED}: {arguments[0]} took more than {COMMAND_LIMIT_S:g} s") from error
    except subprocess.CalledProcessError as error:
        detail = (error.stderr or "").strip().splitlines()[-1:] or [f"exit code {error.returncode}"]
        raise UnreadableError(f"{FAILED}: {arguments[0]}: {detail[0]}") from error
    return done.stdout
