"""Children of the product that start in milliseconds: forked from a server that has imported what they import.

A worker that starts as users' do imports torch, transformers and our packages for two to six seconds of a processor. In
tests with the mark `forked_children` (tests/conftest.py), `Popen` stands in for `subprocess.Popen` in
`benchmarking.core.child_process`: it starts the modules named in SERVED by a fork, and everything else, or where the
environment differs in what libraries read at their import, as before. A forked child is a child of this process (its
id, exit status, streams and signals are real), starts in the same folder, with the same arguments and variables, and
runs the module from its first line.

What it cannot show is what a start costs (times and memory of the load), imports that a module forgot, and what goes by
the modules that are imported, as the work of a benchmark of one's own does. What tests start themselves is never
served.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarking.core.child_process import environment
from db import warehouse
from tests.helpers.databases import copying
from tests.helpers.paths import ROOT

PR_SET_CHILD_SUBREAPER = 36
SERVED = (
    "benchmarking.sweep.run.worker",
    "benchmarking.sweep.run.preparation",
    "benchmarking.benches.discovery",
    "benchmarking.scripts.analysis",
    "db.service",
)
PACKAGES = ("measure", "sweep", "devices", "runtimes", "workloads", "graphs", "builds")
LIBRARIES = (
    *("numpy", "numpy.fft", "psutil", "pandas", "pyarrow", "pyarrow.dataset", "torch", "torch.utils.flop_counter"),
    *(f"transformers.models.{name}.modeling_{name}" for name in ("auto", "bert", "gpt2", "t5", "vit")),
)
"""Not duckdb, whose import starts threads: they would be missing in a child, which waits for them at its end."""
FREE = (
    *("BENCHHOUSE_", "BENCHMARK_", "MY_", "PYTEST_", "COLUMNS", "LINES", "PATH", "PWD", "OLDPWD", "TMPDIR"),
    *("KERAS_", "KMP_", "TF_", "TORCHINDUCTOR_CACHE_DIR"),
)
"""Beginnings of variables that may differ from the server's: they are read when they are used, or are what libraries
set at their import in the process of the tests, which would otherwise start all later children as before."""


ENVIRONMENT = environment({"HF_HUB_OFFLINE": "1", "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "passive")})
"""Of the server: that of this process before any test, with what tests/conftest.py sets."""


class Popen(subprocess.Popen):  # type: ignore[type-arg]
    """`subprocess.Popen`, which leaves the start of some children to the server."""

    empty_database: Path | None = None
    """What a new warehouse of a child is a copy of; None to make it."""

    def _execute_child(self, args: Any, *others: Any) -> None:
        # As subprocess hands them over: executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo,
        # creationflags, shell, then the two ends of each pipe.
        cwd, env, ends = others[4], others[5], others[9:15]
        words = list(args)
        is_module = words[:3] == [sys.executable, "-P", "-m"] and words[3] in SERVED
        if not is_module or cwd is not None or not _is_servers(env):
            super()._execute_child(args, *others)  # type: ignore[misc]
            return
        child_ends = ends[0], ends[3], ends[5]
        request = {
            "module": words[3],
            "arguments": words[4:],
            "variables": dict(env),
            "folder": os.getcwd(),
            "processors": sorted(os.sched_getaffinity(0)),
            "empty_database": None if self.empty_database is None else str(self.empty_database),
        }
        try:
            self.pid = _server().start(request, [own if end == -1 else end for own, end in enumerate(child_ends)])
            self._child_created = True
        finally:
            self._close_pipe_fds(*ends)  # type: ignore[attr-defined]


class Server:
    """The process that has imported everything, and forks."""

    def __init__(self) -> None:
        own, its = socket.socketpair()
        self._socket, self._lock = own, threading.Lock()
        command = [sys.executable, "-P", "-m", "tests.helpers.child_server", str(its.fileno())]
        # Libraries warn at their import, which would be among what a test captures.
        self._process = subprocess.Popen(command, env=ENVIRONMENT, pass_fds=[its.fileno()], stderr=subprocess.DEVNULL)
        its.close()
        atexit.register(self.close)

    def start(self, request: Mapping[str, Any], streams: list[int]) -> int:
        """The id of a new child of this process with these streams."""
        text = json.dumps(request).encode()
        with self._lock:
            become_reaper(True)
            try:
                socket.send_fds(self._socket, [len(text).to_bytes(4)], streams)
                self._socket.sendall(text)
                return int.from_bytes(received(self._socket, 4))
            finally:
                become_reaper(False)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


def become_reaper(is_one: bool) -> None:
    """Whether orphans below this process become its children, which a forked child is for a moment."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(is_one), 0, 0, 0)


def received(connection: socket.socket, size: int) -> bytes:
    """Exactly that many bytes. Raises EOFError at the end of the connection."""
    data = b""
    while len(data) < size:
        if not (more := connection.recv(size - len(data))):
            raise EOFError("the other process has ended")
        data += more
    return data


_servers: dict[int, Server] = {}


def _server() -> Server:
    """That of this process, started for its first child."""
    if os.getpid() not in _servers:
        _servers[os.getpid()] = Server()
    return _servers[os.getpid()]


def _is_servers(env: Mapping[str, str]) -> bool:
    """Whether the libraries of a child would read the same variables at their import as those of the server."""
    return _fixed(env) == _fixed(ENVIRONMENT)


def _fixed(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if not name.startswith(FREE)}


def serve(connection: socket.socket) -> dict[str, Any] | None:
    """Fork a child for each request. Returns the request in the child, and None at the end in the server."""
    while True:
        header, streams, _, _ = socket.recv_fds(connection, 4, 3)
        if not header:
            return None
        request: dict[str, Any] = json.loads(received(connection, int.from_bytes(header)))
        # The child of a process that ends becomes one of the tests' process, which waits for it as for any other.
        between = os.fork()
        if between == 0:
            own = os.getpid()
            if os.fork() != 0:
                os._exit(0)
            while os.getppid() == own:
                time.sleep(0.0005)
            connection.sendall(os.getpid().to_bytes(4))
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            os.closerange(3, max(connection.fileno(), *streams) + 1)
            return request
        os.waitpid(between, 0)
        for stream in streams:
            os.close(stream)


def begin(request: Mapping[str, Any]) -> None:
    """Make this process what a new one would be."""
    os.environ.clear()
    os.environ.update(request["variables"])
    os.sched_setaffinity(0, request["processors"])
    os.chdir(request["folder"])
    tempfile.tempdir = None  # as this environment says, not the one of the server
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    sys.argv = ["-m", *request["arguments"]]
    package, _, name = request["module"].rpartition(".")
    del sys.modules[request["module"]]  # it runs from its first line
    delattr(sys.modules[package], name)
    if request["empty_database"] is not None:
        setattr(warehouse, "_create", copying(Path(request["empty_database"])))  # noqa: B010 - a name of its own
    gc.get_freeze_count = lambda: 1  # counting what the server froze takes a tenth of a second, several times a launch
    gc.enable()


def _modules() -> Iterator[str]:
    """Ours that workers import."""
    for package in PACKAGES:
        path = [str(ROOT / "benchmarking" / package)]
        yield from (module.name for module in pkgutil.walk_packages(path, f"benchmarking.{package}."))


def main() -> None:
    """Import everything, and serve; in a child, run its module and end."""
    for number in (signal.SIGINT, signal.SIGTERM):  # it ends when the tests' process does
        signal.signal(number, signal.SIG_IGN)
    gc.disable()
    for name in (*SERVED, *LIBRARIES, *_modules()):
        with suppress(ImportError):  # of an extra that is not installed
            importlib.import_module(name)
    gc.freeze()
    connection = socket.socket(fileno=int(sys.argv[1]))
    request = serve(connection)
    if request is None:
        os._exit(0)
    connection.detach()
    begin(request)
    code: Any = 0
    try:
        runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - as Python itself does
        traceback.print_exc()
        code = 1
    # Taking down what the server imported would copy each of its pages, a fifth of a second of a processor.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
