"""Starts every child process of our own: its interpreter, its module path, its answer in JSON, its time limit.

A child never looks for modules in the working folder (`-P`, and no empty entry in PYTHONPATH): a random.py that lies
there must not run. The installation or checkout that this very module belongs to comes first on its path.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from benchmarking.core.errors import BenchhouseError

ROOT = Path(__file__).resolve().parents[2]
"""The folder of our packages."""
OWN_PYTHON = (sys.executable, "-P")


def module_command(module: str, *arguments: str) -> tuple[str, ...]:
    """The command line that runs one of our modules."""
    return (*OWN_PYTHON, "-m", module, *arguments)


def environment(further: Mapping[str, str] | None = None, *, first: Path | None = None) -> dict[str, str]:
    """A child's environment: this process's own, then `further`, with our packages first on the module path.

    `first` is a folder that comes before everything else, in the place of our packages.
    """
    found = {**os.environ, **(further or {})}
    named = filter(None, found.get("PYTHONPATH", "").split(os.pathsep))
    found["PYTHONPATH"] = os.pathsep.join([str(first or ROOT), *named])
    return found


def start(
    command: Sequence[str],
    *,
    stdin: int = subprocess.DEVNULL,
    stdout: int | IO[bytes] = subprocess.PIPE,
    stderr: int | IO[bytes] = subprocess.PIPE,
    further: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    """A child that runs beside this process; whoever starts it ends it."""
    return subprocess.Popen(
        list(command),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=environment(further),
        text=True,
        encoding="utf-8",
        errors="replace",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A child that has ended, or was killed at its time limit."""

    exit_code: int | None
    """Negative for a signal; None for a child that was killed at its time limit."""
    stdout: str
    stderr: str
    """Empty where it went to this process's own."""

    @property
    def last_line(self) -> str:
        """The last line on stderr, which says why a child failed; empty for none."""
        lines = self.stderr.strip().splitlines()
        return lines[-1].strip() if lines else ""


def run_module(
    module: str, *arguments: str, question: str | None = None, limit_s: float | None = None, show_stderr: bool = False
) -> Finished:
    """One of our modules, run to its end with `question` on its stdin.

    `show_stderr` lets what it says go to this process's stderr.
    """
    try:
        done = subprocess.run(
            module_command(module, *arguments),
            input=question,
            stdin=subprocess.DEVNULL if question is None else None,
            stdout=subprocess.PIPE,
            stderr=None if show_stderr else subprocess.PIPE,
            env=environment(),
            timeout=limit_s,
            check=False,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
    except subprocess.TimeoutExpired as late:
        return Finished(exit_code=None, stdout=_text(late.stdout), stderr=_text(late.stderr))
    return Finished(exit_code=done.returncode, stdout=done.stdout, stderr=done.stderr or "")


class ChildError(BenchhouseError):
    """A child gave no answer; the text says why."""


class ChildTimeLimitError(ChildError):
    """No answer came within the time limit."""


def ask(
    module: str,
    *arguments: str,
    question: str | None = None,
    limit_s: float | None = None,
    show_stderr: bool = False,
) -> Any:
    """What one of our modules answers: the JSON of the last line on its stdout.

    Raises ChildTimeLimitError; ChildError with the last line on its stderr for an exit code other than 0, and for an
    answer that is no JSON.
    """
    done = run_module(module, *arguments, question=question, limit_s=limit_s, show_stderr=show_stderr)
    if done.exit_code is None:
        raise ChildTimeLimitError(f"no answer within {limit_s:g} s")
    if done.exit_code != 0:
        raise ChildError(done.last_line or f"exit code {done.exit_code}")
    try:
        return json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError) as error:
        raise ChildError(f"{module} gave no answer in JSON: {done.stdout.strip()[-60:]!r}") from error


def hand_over(command: Sequence[str], *, limit_s: float | None = None, is_terminal: bool) -> int | None:
    """Give stdin, stdout and stderr to another program until it ends: its exit code, None for one that was killed at
    its time limit.

    In a terminal a Ctrl-C is meant for the other program, which gets it as well; else it ends both.
    """
    with subprocess.Popen(list(command)) as process:
        while True:
            try:
                return process.wait(timeout=limit_s)
            except subprocess.TimeoutExpired:
                process.kill()
                return None
            except KeyboardInterrupt:
                if not is_terminal:
                    process.kill()
                    raise


def _text(output: str | bytes | None) -> str:
    """What a child had written when its time was up: bytes on POSIX, whatever was asked for."""
    return output.decode("utf-8", "replace") if isinstance(output, bytes) else output or ""
