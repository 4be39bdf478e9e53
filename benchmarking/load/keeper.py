"""Keeps a server that a load test started: a process between the two, so that the server never outlives the load.

The load test holds the other end of this process's stdin. When it closes, no matter how the load test ends (Ctrl-C,
SIGKILL), the server and all its processes get SIGTERM, and after a grace period SIGKILL. The keeper has a process group
and session of its own, and so has the server, so signals to the load test's group do not reach them. On Linux, children
whose parents have ended become children of the keeper, even if they started a session of their own, so none is lost.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import STDOUT, Popen
from typing import Any

from benchmarking.core.child_process import at_end_of_stdin, start
from benchmarking.core.lazy_modules import psutil

PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.2
"""How often the keeper looks whether the server has ended."""
SLOW_POLL_S = 1.0
"""The same for a server whose first process has ended, since listing all processes takes milliseconds."""
KILLED_S = 5.0
"""How long killed processes may take to disappear."""
PRIVATE = 0o600


def main() -> int:
    """Run the server that is described on stdin (one JSON line: command, variables, cpus, log, grace_s) until stdin
    closes. Writes one JSON line when it has started, or could not be, and one when it has ended by itself."""
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        # Handled rather than ignored, which the server would inherit.
        signal.signal(number, lambda *_: over.set())
    job = json.loads(sys.stdin.buffer.readline())
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        if job["cpus"]:
            os.sched_setaffinity(0, job["cpus"])
    try:
        log = os.open(Path(job["log"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE)
        with os.fdopen(log, "wb") as opened:
            server = start(job["command"], stdout=opened, stderr=STDOUT, env=job["variables"], new_session=True)
    except (OSError, ValueError) as error:
        say(error=getattr(error, "strerror", None) or str(error))
        return 1
    say(pid=server.pid)
    at_end_of_stdin(over.set)
    has_said = False
    while not over.wait(POLL_S if server.poll() is None else SLOW_POLL_S):
        # A command may start the server in the background and end.
        if server.poll() is not None and not has_said and not living(server):
            say(ended=server.returncode)
            has_said = True
    end(server, job["grace_s"])
    return 0


def say(**message: Any) -> None:
    """Write a message to the load test, which may have ended."""
    with suppress(OSError):
        print(json.dumps(message), flush=True)


def end(server: Popen[str], grace_s: float) -> None:
    """End the server's processes: each by one SIGTERM, and those left after the grace period by SIGKILL."""
    _signal(server, living(server), is_kill=False)
    if _are_gone(server, grace_s):
        return
    deadline_s = time.monotonic() + KILLED_S
    while living(server) and time.monotonic() < deadline_s:  # again, since a process may start others at this moment
        _signal(server, living(server), is_kill=True)
        _are_gone(server, POLL_S)


def living(server: Popen[str]) -> list[psutil.Process]:
    """The server's processes that are still running. Reaps those that became children of this process."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
            elif os.name == "posix" and process.pid != server.pid:
                with suppress(ChildProcessError):
                    os.waitpid(process.pid, os.WNOHANG)
    return found


def _signal(server: Popen[str], processes: Sequence[psutil.Process], *, is_kill: bool) -> None:
    if sys.platform not in ("linux", "win32"):  # a child whose parent has ended is found by its group only
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(server.pid, signal.SIGKILL if is_kill else signal.SIGTERM)
        return
    for process in processes:
        with suppress(psutil.Error):
            (process.kill if is_kill else process.terminate)()


def _are_gone(server: Popen[str], limit_s: float) -> bool:
    """Wait until none of the processes is left; returns whether none is."""
    deadline_s = time.monotonic() + limit_s
    while True:
        server.poll()
        if not living(server):
            return True
        if time.monotonic() > deadline_s:
            return False
        time.sleep(min(POLL_S, limit_s / 10))


if __name__ == "__main__":
    sys.exit(main())
