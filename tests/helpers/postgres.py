"""A PostgreSQL server from Debian's packages on loopback, in its own folder, that ends with this process."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

USER = "postgres"
"""The user that runs the server if the tests run as root, which the server refuses."""
START_LIMIT_S = 60.0


def missing() -> str | None:
    """Why no server can be started here; None if one can."""
    if sys.platform != "linux":
        return "the test starts PostgreSQL as Debian lays it out"
    if _program("initdb") is None:
        return "no PostgreSQL server: apt-get install postgresql"
    return None


class Server:
    """A server; use `running`."""

    def __init__(self, folder: Path, *, fsync: bool) -> None:
        self.folder = folder
        self._fsync = fsync
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        words = ["-D", str(folder / "data"), "-U", "bench", "-A", "trust", "--no-sync", "--no-locale", "-E", "UTF8"]
        _run([*_as_user(), str(_program("initdb")), *words])

    def start(self) -> None:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": self.folder,
            "fsync": "on" if self._fsync else "off",
            "max_connections": "100",
        }
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        log = (self.folder / "log").open("ab")
        # setpriv: the server ends with the process that started it, however that ends.
        command = [*_as_user("--pdeathsig", "QUIT"), str(_program("postgres")), "-D", str(self.folder / "data"), *words]
        self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
        log.close()
        deadline = time.monotonic() + START_LIMIT_S
        while subprocess.run([str(_program("pg_isready")), "-q", "-h", "127.0.0.1", "-p", str(self.port)]).returncode:
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError(f"PostgreSQL did not start: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.05)

    def stop(self) -> None:
        """As at a crash: connections are cut, nothing is tidied up."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(START_LIMIT_S)
            self._process = None

    def database(self, name: str) -> str:
        """A new, empty database: its connection string."""
        where = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "bench"]
        _run([str(_program("createdb")), *where, name])
        return f"dbname={name} host=127.0.0.1 port={self.port} user=bench"

    def ask(self, name: str, sql: str) -> str:
        """What psql prints for a statement in a database."""
        return subprocess.run(self._asking(name, sql), check=True, capture_output=True, text=True).stdout.strip()

    @contextmanager
    def asking(self, name: str, sql: str) -> Iterator[None]:
        """Runs a statement in a database meanwhile, and ends its session."""
        with subprocess.Popen(self._asking(name, sql), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                yield
            finally:
                self.ask(name, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = '{sql}'")
                process.kill()

    def _asking(self, name: str, sql: str) -> list[str]:
        where = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "bench", "-d", name, "-Atqc", sql]
        return [str(_program("psql")), *where]


@contextmanager
def running(*, fsync: bool = False) -> Iterator[Server]:
    """A server, stopped and deleted at the end."""
    # Not in pytest's folder, which only the user who runs the tests may enter.
    with tempfile.TemporaryDirectory(prefix="benchhouse-postgres-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        if os.geteuid() == 0:
            shutil.chown(folder, USER)
        server = Server(folder, fsync=fsync)
        try:
            server.start()
            yield server
        finally:
            server.stop()


def _as_user(*further: str) -> list[str]:
    words = ["--reuid", USER, "--regid", USER, "--clear-groups"] if os.geteuid() == 0 else []
    return ["setpriv", *words, *further] if words or further else []


def _program(name: str) -> Path | None:
    """The newest of Debian's versions, which are not on PATH, else the one on PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: float(path.parts[-3]))
    if found:
        return found[-1]
    on_path = shutil.which(name)
    return None if on_path is None else Path(on_path)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, cwd="/")
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
