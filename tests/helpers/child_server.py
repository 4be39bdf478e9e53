"""Children of the product that start in milliseconds: forked from a server that has imported what they import.

A worker that starts as users' do imports torch, transformers and our packages for two to six seconds of a processor. In
tests with the mark `forked_children` (tests/conftest.py), `Popen` stands in for `subprocess.Popen`: it starts our
modules (`python -m ...`) by a fork, and everything else, or where the environment differs in what libraries read at
their import, as before. A forked child is a child of this process (its id, exit status, streams and signals are real),
starts in the folder, session and environment that it is given, with the same arguments, and runs the module from its
first line. A command forks a server of its own, which forks its workers.

What it cannot show is what a start costs (times and memory of the load), imports that a module forgot, the command line
that the system lists, and what goes by the modules that are imported, as the work of a benchmark of one's own does.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import logging
import multiprocessing.util
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
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from benchmarking.devices.support import select
from tests.helpers.databases import copying
from tests.helpers.paths import ROOT

PR_SET_CHILD_SUBREAPER = 36
MADV_COLLAPSE, LARGE_PAGE_BYTES = 25, 1 << 21
LEAVES = (
    "benchmarking.sweep.run.worker",
    "benchmarking.sweep.run.preparation",
    "benchmarking.benches.discovery",
    "benchmarking.scripts.analysis",
    "benchmarking.load.generator",
    "benchmarking.load.observer",
    select.MODULE,
    "db.service",
    "db.query.questions",
    "onnxruntime_genai.models.builder",
)
"""Start no module of ours, or few; everything else is a command. The last is ONNX Runtime's own program, which imports
what our workers do."""
COMMANDS = ("benchmarking.cli", "benchmarking.commands.run", "benchmarking.commands.batch", "db.commands.sql")
OURS = ("benchmarking", "db", "visualize")
PACKAGES = ("core", "measure", "sweep", "devices", "runtimes", "workloads", "graphs", "builds")
LIBRARIES = (
    *("numpy", "numpy.fft", "psutil", "pandas", "pyarrow", "pyarrow.dataset", "duckdb", "torch"),
    "torch.utils.flop_counter",
    *(f"transformers.models.{name}.modeling_{name}" for name in ("auto", "bert", "gpt2", "t5", "vit")),
)
READ_AT_START = (
    *("PYTHON", "LD_", "LANG", "LC_", "TZ", "MALLOC_", "OMP_", "GOMP_", "MKL_", "OPENBLAS_", "NUMEXPR_", "DNNL_"),
    *("ONEDNN_", "ATEN_", "TORCH", "PYTORCH_", "CUDA_", "NVIDIA_", "HIP_", "HSA_", "ROCR_", "XDG_", "ARROW_"),
    *("HF_", "HUGGINGFACE_", "DISABLE_TELEMETRY", "TRANSFORMERS_", "TOKENIZERS_", "SAFETENSORS_", "USE_"),
)
"""Beginnings of variables that the interpreter reads at its start, or what the server imports at its import: where one
of them differs, a child starts as before. All others are read when they are used, as a forked child has them."""
NO_DIFFERENCE = ("PYTHONPATH", "PYTHONIOENCODING", "TRANSFORMERS_NO_ADVISORY_WARNINGS", "TORCHINDUCTOR_CACHE_DIR")
"""The first two are each child's own (`use_folders`, `begin`); the others are set by libraries at their import in the
process of the tests, and read when they use it."""


class Popen(subprocess.Popen):  # type: ignore[type-arg]
    """`subprocess.Popen`, which leaves the start of some children to the server."""

    server_environment: ClassVar[Mapping[str, str]] = {}
    """Of the server: that of this process before any test."""
    empty_database: ClassVar[Path | None] = None
    """What a new warehouse of a child is a copy of; None to make it."""

    def _execute_child(self, args: Any, *others: Any) -> None:
        # As subprocess hands them over: executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo,
        # creationflags, shell, the two ends of each pipe, restore_signals, gid, gids, uid, umask, start_new_session,
        # process_group.
        cwd, env, ends, is_new_session = others[4], others[5], others[9:15], others[20]
        variables = os.environ if env is None else env
        served = served_module(args)
        is_plain = others[:2] == (None, None) and not (others[3] or others[8]) and others[16:20] == (None,) * 3 + (-1,)
        if served is None or not is_plain or not is_like_the_server(variables):
            super()._execute_child(args, *others)  # type: ignore[misc]
            return
        module, arguments = served
        streams = [own if end == -1 else end for own, end in enumerate((ends[0], ends[3], ends[5]))]
        folder = os.path.abspath(os.getcwd() if cwd is None else cwd)
        try:
            self.pid = start(
                module, arguments, variables, folder, streams,
                is_safe_path=args[1] == "-P", is_new_session=is_new_session,
            )  # fmt: skip
            self._child_created = True
        finally:
            self._close_pipe_fds(*ends)  # type: ignore[attr-defined]


def start(
    module: str,
    arguments: Sequence[str],
    variables: Mapping[str, str],
    folder: str,
    streams: Sequence[int],
    *,
    is_safe_path: bool = True,
    is_new_session: bool = False,
) -> int:
    """The id of a new child of this process that runs a module, with these standard streams."""
    request = {
        "module": module,
        "arguments": list(arguments),
        "is_safe_path": is_safe_path,
        "variables": dict(variables),
        "folder": folder,
        "is_new_session": is_new_session,
        "processors": sorted(os.sched_getaffinity(0)),
        "empty_database": None if Popen.empty_database is None else str(Popen.empty_database),
    }
    return _server().start(request, list(streams))


def is_like_the_server(variables: Mapping[str, str]) -> bool:
    """Whether the libraries of a child would read the same variables at their import as those of the server."""
    return _fixed(variables) == _fixed(Popen.server_environment)


def served_module(words: Any) -> tuple[str, list[str]] | None:
    """The module of ours, or that leaf of another, which a command line runs with this Python, and its arguments; or
    None."""
    if isinstance(words, str | bytes | os.PathLike) or list(words[:1]) != [sys.executable]:
        return None
    rest = [str(word) for word in words[2 if list(words[1:2]) == ["-P"] else 1 :]]
    if len(rest) < 2:
        return None
    flag, name, *arguments = rest
    if (flag, name) == ("-c", select.CHILD_CODE):  # the probe of a kind of devices
        return select.MODULE, arguments
    if flag != "-m" or (name.split(".")[0] not in OURS and name not in LEAVES):
        return None
    return name, arguments


class Server:
    """The process that has imported everything, and forks."""

    def __init__(self, connection: socket.socket, process: subprocess.Popen[bytes] | None = None) -> None:
        self._socket, self._process, self._lock = connection, process, threading.Lock()

    @classmethod
    def started(cls) -> Server:
        """A new one, which ends with this process."""
        own, its = socket.socketpair()
        command = [sys.executable, "-P", "-m", "tests.helpers.child_server", str(its.fileno())]
        # Libraries warn at their import, which would be among what a test captures.
        process = subprocess.Popen(
            command, env=Popen.server_environment, pass_fds=[its.fileno()], stderr=subprocess.DEVNULL
        )
        its.close()
        server = cls(own, process)
        atexit.register(server.close)
        return server

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
        if self._process is not None:
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
_starting = threading.Lock()


def _server() -> Server:
    """That of this process, started for its first child."""
    with _starting:
        if os.getpid() not in _servers:
            _servers[os.getpid()] = Server.started()
        return _servers[os.getpid()]


def _fixed(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(READ_AT_START) and name not in NO_DIFFERENCE}


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
    use_folders(request["variables"].get("PYTHONPATH", ""))
    if not request["is_safe_path"]:
        sys.path.insert(0, request["folder"])
    if request["is_new_session"]:
        os.setsid()
    tempfile.tempdir = None  # as this environment says, not the one of the server
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # The server's would still take these streams for what the server's are, such as files that can be read back.
    stated, _, errors = os.environ.get("PYTHONIOENCODING", "").partition(":")
    encoding = stated or sys.stdin.encoding
    sys.stdin = open(0, encoding=encoding, errors=errors or None, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding=encoding, errors=errors or None, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, encoding=encoding, errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.argv = ["-m", *request["arguments"]]
    package, _, name = request["module"].rpartition(".")
    if package and sys.modules.pop(request["module"], None) is not None:  # it runs from its first line
        delattr(sys.modules[package], name)
    if request["empty_database"] is not None:
        Popen.empty_database = Path(request["empty_database"])
        of_child = importlib.import_module("db.warehouse")
        setattr(of_child, "_create", copying(Path(request["empty_database"])))  # noqa: B010 - a name of its own
    gc.get_freeze_count = lambda: 1  # counting what the server froze takes a tenth of a second
    gc.enable()


def use_folders(python_path: str) -> None:
    """Where PYTHONPATH has other folders than this repository: import from them, and ours anew."""
    if further := [folder for folder in python_path.split(os.pathsep) if folder not in ("", str(ROOT))]:
        sys.path[:0] = further
        for name in [name for name in sys.modules if name.split(".")[0] in OURS]:
            del sys.modules[name]


def _modules() -> Iterator[str]:
    """Ours that workers and commands import."""
    for package in PACKAGES:
        path = [str(ROOT / "benchmarking" / package)]
        yield from (module.name for module in pkgutil.walk_packages(path, f"benchmarking.{package}."))


def use_large_pages() -> None:
    """Move this process's memory into large pages, where Linux has them: a fork copies the list of the pages, and the
    end of a child takes its copy down, which is most of what a child costs that does little."""
    advise, size = ctypes.CDLL(None).madvise, LARGE_PAGE_BYTES
    for line in Path("/proc/self/maps").read_text().splitlines():
        places, rights, *_ = fields = line.split()
        if rights == "rw-p" and fields[5:] in ([], ["[heap]"]):
            start, end = (int(place, 16) for place in places.split("-"))
            for place in range(-(-start // size) * size, end - size + 1, size):
                advise(ctypes.c_void_p(place), ctypes.c_size_t(size), MADV_COLLAPSE)


def main() -> None:
    """Import everything, and serve; in a child, run its module and end."""
    for number in (signal.SIGINT, signal.SIGTERM):  # it ends when the tests' process does
        signal.signal(number, signal.SIG_IGN)
    Popen.server_environment = dict(os.environ)
    gc.disable()
    for name in (*LEAVES, *COMMANDS, *LIBRARIES, *_modules()):
        with suppress(ImportError):  # of an extra that is not installed
            importlib.import_module(name)
    for module in [module for name, module in sys.modules.items() if name.split(".")[0] in OURS]:
        for made in [value for value in vars(module).values() if isinstance(value, type)]:
            hasattr(made, "__init__")  # which generates the methods of a record (benchmarking/core/lazy_dataclass.py)
    # What libraries want to end and finalize is the server's: in a child it would take as long as most children do.
    weakref.finalize._registry.clear()  # type: ignore[attr-defined]
    atexit._clear()
    for ending in (logging.shutdown, multiprocessing.util._exit_function, weakref.finalize._exitfunc):  # type: ignore[attr-defined]
        atexit.register(ending)
    with suppress(ImportError):
        import duckdb

        duckdb.default_connection().close()  # its threads would be missing in a child, which waits for them at its end
    gc.freeze()
    use_large_pages()
    connection = socket.socket(fileno=int(sys.argv[1]))
    while True:
        request = None
        with suppress(OSError, EOFError):  # a command that was killed while it asked
            request = serve(connection)
        if request is None:
            os._exit(0)  # the usual end would wait for threads of libraries, which no fork has
        connection.detach()
        if request["module"] in LEAVES:
            break
        own, connection = socket.socketpair()
        if os.fork() != 0:  # the command; its child goes on as a server
            connection.close()
            _servers[os.getpid()] = Server(own)
            subprocess.Popen = Popen  # type: ignore[misc]
            break
        own.close()
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nothing, stream)
        os.close(nothing)
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
    for output in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            output.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
