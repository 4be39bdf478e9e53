"""The installed commands, as a shell finds them, forked from the server of tests/helpers/child_server.py.

A folder for PATH holds a program for each of our commands. It hands its streams, folder and environment to the process
of the tests, which has the server fork the command, and ends as that does; signals go to the command. Where the
environment differs in what libraries read at their import, it becomes the installed command.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.helpers.child_server import is_like_the_server, received, start

PROGRAM = """#!{python} -IS
import json, os, signal, socket, sys
real = {real!r}
about = {{"argv": [real, *sys.argv[1:]], "entry": {entry!r}, "variables": dict(os.environ), "folder": os.getcwd()}}
text = json.dumps(about).encode()
there = socket.socket(socket.AF_UNIX)
there.connect({address!r})
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, frame: there.send(bytes([number])))
socket.send_fds(there, [len(text).to_bytes(4)], [0, 1, 2])
there.sendall(text)
answer = json.loads(there.makefile().readline())
if answer is None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    os.execv(real, about["argv"])
if answer < 0:
    signal.signal(-answer, signal.SIG_DFL)
    os.kill(os.getpid(), -answer)
os._exit(answer)
"""
"""`-answer` is the signal that ended the command; no answer: the environment is not the server's."""


@contextmanager
def commands_in(folder: Path) -> Iterator[Path]:
    """The folder, with the programs; they work inside."""
    address = str(folder / "socket")
    installed = Path(sys.executable).parent
    for script in importlib.metadata.distribution("benchhouse").entry_points.select(group="console_scripts"):
        program = folder / script.name
        program.write_text(
            PROGRAM.format(
                python=sys.executable, real=str(installed / script.name), entry=script.value, address=address
            )
        )
        program.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        threading.Thread(target=_accept, args=(listener,), daemon=True).start()
        try:
            yield folder
        finally:
            listener.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket) -> None:
    """A thread for each command, until the listener is shut down."""
    with suppress(OSError):
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=_serve, args=(connection,), daemon=True).start()


def _serve(connection: socket.socket) -> None:
    """Run a command, and answer with how it ended."""
    with connection:
        header, streams, _, _ = socket.recv_fds(connection, 4, 3)
        about: dict[str, Any] = json.loads(received(connection, int.from_bytes(header)))
        answer = None
        try:
            if is_like_the_server(about["variables"]):
                words = [about["entry"], *about["argv"]]
                pid = start(__name__, words, about["variables"], about["folder"], streams)
                answer = _ended(pid, connection)
        finally:
            for stream in streams:
                os.close(stream)
            with suppress(BrokenPipeError):
                connection.sendall(json.dumps(answer).encode() + b"\n")


def _ended(pid: int, connection: socket.socket) -> int:
    """The exit code of a command, negative for a signal; meanwhile, signals that arrive are passed on."""
    watched: list[Any] = [os.pidfd_open(pid), connection]
    while watched[0] not in (ready := select.select(watched, [], [])[0]):
        if ready == [connection]:
            number = connection.recv(1)
            os.kill(pid, number[0] if number else signal.SIGTERM)
            if not number:  # the program was killed
                watched.remove(connection)
    os.close(watched[0])
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main() -> int:
    """In a forked process: the command of an entry point, whose arguments follow."""
    entry, *sys.argv = sys.argv[1:]
    module, _, function = entry.partition(":")
    return int(getattr(importlib.import_module(module), function)())


if __name__ == "__main__":
    sys.exit(main())
