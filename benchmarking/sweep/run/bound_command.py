"""Runs any command so that it ends when its parent process ends, for whatever reason.

This module runs as a process between the two. Its stdin is a pipe from the parent, which closes when the parent ends,
even by SIGKILL; it then ends the command. This works for commands of other interpreters and versions too.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from benchmarking.core.child_process import module_command, start

EXIT_NOT_STARTED = 126
END_S = 15.0
"""Time for the command to clean up after it was told to end, before it is killed."""


def run(command: Sequence[str], variables: Mapping[str, str], folder: Path | None) -> int:
    """Run the command to its end, with its stdout on this process's stderr; returns its exit code (128 + signal).

    An interruption is raised after the command has ended.
    """
    process = start(module_command(__name__), stdin=subprocess.PIPE, stdout=sys.stderr.fileno(), stderr=None)
    assert process.stdin is not None
    job = {"command": list(command), "variables": dict(variables), "folder": None if folder is None else str(folder)}
    try:
        process.stdin.write(json.dumps(job) + "\n")
        process.stdin.flush()
        return process.wait()
    finally:
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()


def main() -> int:
    """Run the command that is described on stdin; returns its exit code."""
    interrupted = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        # Handled rather than ignored, which the command would inherit. This process waits for the command.
        signal.signal(number, lambda *_: interrupted.set())
    job = json.loads(sys.stdin.buffer.readline())
    try:
        command = start(job["command"], stdout=None, stderr=None, env=job["variables"], folder=job["folder"])
    except OSError as error:
        print(f"{job['command'][0]}: {error.strerror}", file=sys.stderr)
        return EXIT_NOT_STARTED
    threading.Thread(target=_end_with_stdin, args=(command, interrupted), daemon=True).start()
    code = command.wait()
    return 128 - code if code < 0 else code


def _end_with_stdin(command: subprocess.Popen[str], interrupted: threading.Event) -> None:
    """End the command when stdin closes. A signal to the whole group has reached it already and is not sent again."""
    os.read(sys.stdin.fileno(), 1)
    if not interrupted.is_set():
        command.terminate()
    try:
        command.wait(END_S)
    except subprocess.TimeoutExpired:
        command.kill()


if __name__ == "__main__":
    sys.exit(main())
