"""What commands are called: `benchhouse run`, or by the script's name `run_hardware_benchmark`. Messages name a command
in the family of names that the user typed, so that what they advise can be typed like the command before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

SCRIPTS: Mapping[str, str] = {
    "run": "run_hardware_benchmark",
    "batch": "batch_benchmark",
    "script": "benchit",
    "benches": "run_benchmarks",
    "compare-runtimes": "compare_onnx",
    "profile": "profile_model",
    "charts": "visualize_benchmarks",
    "export-model": "export_to_onnx",
    "setup": "setup_benchmark_db",
    "cache": "manage_cache",
}
"""Command after `benchhouse` -> the script that is installed for it too; other names are too common for a PATH."""
SCRIPT_ALIASES: Mapping[str, str] = {"integration_benchmark": "batch_benchmark"}
"""Further names of scripts."""
FURTHER_SCRIPTS = ("profiler",)
"""Scripts that are no command of `benchhouse`."""

_TYPED: ContextVar[str | None] = ContextVar("typed", default=None)
_RUNNING: ContextVar[str | None] = ContextVar("running", default=None)


@contextmanager
def typed_as(name: str) -> Iterator[None]:
    """Inside, the command that runs shows this name, which the user typed, in its usage line and errors."""
    token = _TYPED.set(name)
    try:
        yield
    finally:
        _TYPED.reset(token)


@contextmanager
def running(name: str) -> Iterator[str]:
    """Inside, the command with this name runs; gives what it is called in messages."""
    token = _RUNNING.set(name)
    try:
        yield _TYPED.get() or name
    finally:
        _RUNNING.reset(token)


def shown_name(name: str) -> str:
    """What the usage line of a command with this name shows: what was typed, if it is the running command."""
    return (name == _RUNNING.get() and _TYPED.get()) or name


def as_typed(command: str) -> str:
    """How a message names a command (`run`): by its script if a script was typed, else after `benchhouse`.

    In a page, a child process or a notebook nothing was typed, and it is `benchhouse run`.
    """
    script, running_name = SCRIPTS.get(command), _RUNNING.get()
    typed = _TYPED.get() or running_name or ""
    if script is not None and running_name == script:
        return typed
    scripts = (*SCRIPTS.values(), *SCRIPT_ALIASES, *FURTHER_SCRIPTS)
    return script if script is not None and typed.split(" ")[0] in scripts else f"benchhouse {command}"


def words_as_typed(words: Sequence[str]) -> tuple[str, ...]:
    """A command line, which begins with a script's name where it was measured with that, as `as_typed` names it."""
    commands = {script: command for command, script in SCRIPTS.items()}
    first = SCRIPT_ALIASES.get(words[0], words[0]) if words else ""
    return (*as_typed(commands[first]).split(" "), *words[1:]) if first in commands else tuple(words)
