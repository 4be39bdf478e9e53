"""Workers on other machines over SSH: the system's `ssh`, which checks host keys and asks as it does for its user.

Nothing listens beyond loopback: the scheduler is on loopback here, and each connection forwards a port of the other
machine's loopback to it, and one here to the worker there. Since other users of those machines reach loopback, too, the
connection has TLS with certificates of this command alone, which the worker reads from its stdin.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import socket
from subprocess import DEVNULL, PIPE, Popen
from typing import IO

from benchmarking import __version__
from benchmarking.cluster.far_side import HERE, PORTS, Setup, preparation, python_command, worker_command
from benchmarking.cluster.started import (
    Started,
    Wanted,
    scheduler_on_loopback,
    send_certificates,
    temporary_security,
)
from benchmarking.core.child_process import Finished, program, run_program, start
from benchmarking.core.errors import BenchhouseError, FormatError, NotInstalledError, UsageError
from benchmarking.core.temporary import temporary_folder
from benchmarking.core.untrusted.input_files import read_text

HOST = re.compile(r"(?:\w[\w.-]*@)?(?:\[[0-9A-Fa-f:.]+\]|\w[\w.-]*)(?P<port>:\d{1,5})?", re.ASCII)
MAX_BYTES = 1_000_000
"""Of a file of hosts."""
ANSWER_S = 60.0
PREPARE_S = 1800.0
"""For pip, which may load gigabytes."""
AT_ONCE = 16
SPOOL = ".cache/benchhouse/worker_results"
"""In the home folder of the other machine."""
TUNNEL = (
    *("-o", "ExitOnForwardFailure=yes", "-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3"),
    *("-o", "ControlMaster=no", "-o", "ControlPath=none"),  # a shared connection would keep the forwarded ports
)
SSH_FAILED = 255
"""The exit code of ssh itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A machine, as it is written."""

    name: str

    @property
    def destination(self) -> str:
        """For ssh: a name of its configuration, or with a port a URI."""
        return f"ssh://{self.name}" if HOST.fullmatch(self.name)["port"] else self.name  # type: ignore[index]


def read_host(text: str, where: str) -> Host:
    """The host in a text. Raises UsageError."""
    if HOST.fullmatch(text) is None:
        raise UsageError(f"{where}: {text!r} is no host: write MACHINE or USER@MACHINE, with a port MACHINE:PORT")
    return Host(name=text)


def read_hosts(path: Path) -> tuple[Host, ...]:
    """The hosts of a file, one on a line; # begins a comment. Raises UsageError with the line, and UnreadableError."""
    try:
        lines = read_text(path, MAX_BYTES).splitlines()
    except FormatError as error:
        raise UsageError(str(error)) from error
    found: dict[Host, int] = {}
    for number, line in enumerate(lines, start=1):
        if text := line.partition("#")[0].strip():
            host = read_host(text, f"{path}:{number}")
            if host in found:
                raise UsageError(f"{path}:{number}: {text} is listed twice (first: line {found[host]})")
            found[host] = number
    if not found:
        raise UsageError(f"{path}: contains no host")
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ssh:
    """How hosts are reached, and benchhouse is started there."""

    setup: Setup
    package: str
    """What pip installs in a new environment."""
    config: str | None
    """A configuration file; None for the user's."""
    wanted: Wanted

    def command(self, host: Host, words: Sequence[str], *options: str) -> tuple[str, ...]:
        """The words that run words on a host. The shell there gets each of them quoted."""
        found = program("ssh")
        if found is None:
            raise NotInstalledError("there is no ssh on the PATH: install OpenSSH's client")
        own = () if self.config is None else ("-F", self.config)
        return (found, *own, "-T", *options, "--", host.destination, shlex.join(words))

    def prepare(self, host: Host) -> tuple[int, ...]:
        """Prepare a host: free ports there. Raises BenchhouseError with what is wrong with it."""
        if (words := preparation(self.setup, self.package)) is not None:
            made = run_program(self.command(host, words), limit_s=PREPARE_S)
            if made.exit_code != 0:
                raise BenchhouseError(f"{host.name}: --setup venv:{self.setup.what} failed: {_reason(made, PREPARE_S)}")
        asked = run_program(self.command(host, python_command(self.setup, HERE)), limit_s=ANSWER_S)
        if asked.exit_code == SSH_FAILED:
            raise BenchhouseError(f"{host.name} cannot be reached: {_reason(asked, ANSWER_S)}")
        try:
            answer = json.loads(asked.stdout.strip().splitlines()[-1])
            version, ports = answer["benchhouse"], tuple(map(int, answer["ports"]))
        except (ValueError, LookupError, TypeError) as error:
            raise BenchhouseError(
                f"{host.name}: benchhouse does not start there: {_reason(asked, ANSWER_S)}: install benchhouse "
                f"{__version__} for its python3, or let --setup venv do so"
            ) from error
        if version != __version__:
            raise BenchhouseError(
                f"{host.name} has benchhouse {version}, and this is {__version__}: install the same, or let --setup "
                "venv do so"
            )
        if len(ports) != PORTS:
            raise BenchhouseError(f"{host.name}: expected {PORTS} ports, got {len(ports)}")
        return ports

    def start(self, host: Host, ports: Sequence[int], scheduler_port: int, stderr: IO[bytes]) -> Popen[str]:
        """Start the worker of a host; it waits for its certificates on stdin."""
        there, listens = ports
        here = _free_port()
        forwarded = (
            *("-R", f"127.0.0.1:{there}:127.0.0.1:{scheduler_port}"),
            *("-L", f"127.0.0.1:{here}:127.0.0.1:{listens}"),
        )
        words = worker_command(
            self.setup,
            *(f"tls://127.0.0.1:{there}", "--name", host.name, "--spool-dir", SPOOL, "--quiet", "--tls-stdin"),
            *("--listen-port", str(listens), "--contact-address", f"tls://127.0.0.1:{here}"),
            *self.wanted.flags,
            devices=self.wanted.devices,
        )
        return start(self.command(host, words, *TUNNEL, *forwarded), stdin=PIPE, stdout=DEVNULL, stderr=stderr)


@contextmanager
def ssh_workers(hosts: Sequence[Host], ssh: Ssh, say: Callable[[str], None]) -> Iterator[Started]:
    """A worker on each host, ended at the end. Raises BenchhouseError for a host that cannot have one."""
    security = temporary_security("--cluster ssh")
    say(f"ssh: preparing {', '.join(host.name for host in hosts)}")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        ports = list(pool.map(ssh.prepare, hosts))
    with (
        scheduler_on_loopback(security) as address,
        temporary_folder("benchhouse-ssh") as folder,
        ExitStack() as stack,
    ):
        scheduler_port = int(address.rpartition(":")[2])
        processes: dict[Host, Popen[str]] = {}
        for number, host in enumerate(hosts):
            log = stack.enter_context((folder / str(number)).open("wb"))
            process = stack.enter_context(ssh.start(host, ports[number], scheduler_port, log))
            stack.callback(process.terminate)
            send_certificates(process, security)
            processes[host] = process

        def trouble() -> str | None:
            for number, (host, process) in enumerate(processes.items()):
                if process.poll() is not None:
                    lines = (folder / str(number)).read_text(errors="replace").strip().splitlines() or ["no message"]
                    return f"the worker of {host.name} ended with exit code {process.returncode}: {lines[-1]}"
            return None

        yield Started(address=address, security=security, workers=len(hosts), takes_others=False, trouble=trouble)


def _free_port() -> int:
    with socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def _reason(done: Finished, limit_s: float) -> str:
    if done.exit_code is None:
        return f"no answer within {limit_s:g} s"
    return done.last_line or f"exit code {done.exit_code}"
