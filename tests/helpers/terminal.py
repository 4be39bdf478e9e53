"""Runs a command on a terminal of a known width, and returns the visible output."""

from __future__ import annotations

import os
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

WIDTH = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a command left."""

    code: int
    text: str
    """Of the terminal, without colours and spaces at the ends of lines."""
    stderr: str


def on_a_terminal(script: str, folder: Path) -> Shown:
    """Run a script of bash in a folder, stdout on a terminal and stderr in a file. The first failure ends it."""
    import fcntl
    import termios

    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, WIDTH, 0, 0))
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": str(WIDTH)}
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", script], cwd=folder, env=environment,
            stdin=subprocess.DEVNULL, stdout=theirs, stderr=errors,
        )  # fmt: skip
        os.close(theirs)
        printed = _read_all(ours)
        code = process.wait()
        errors.seek(0)
        stderr = errors.read().decode()
    lines = printed.decode().replace("\r\n", "\n").splitlines()
    return Shown(code=code, text="\n".join(line.rstrip() for line in lines), stderr=stderr)


def _read_all(terminal: int) -> bytes:
    """Until nobody has the other end open, which Linux reports as an error and others as an empty read."""
    parts = []
    with os.fdopen(terminal, "rb", buffering=0) as stream:
        try:
            while part := stream.read(65536):
                parts.append(part)
        except OSError:
            pass
    return b"".join(parts)
