"""Workers on other machines over the system's `ssh`, which checks host keys and may prompt as usual.

Nothing listens beyond loopback: the scheduler is on loopback here, and each connection forwards a loopback port of the
remote machine to it, and one here to the worker there. Since other users of these machines can reach loopback too, the
connection uses TLS with certificates for this command only, which the worker reads from stdin.
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
from benchmarking.cluster.remote_setup import MODULE, PORTS, Setup, preparation, python_command, worker_command
from benchmarking.cluster.scheduler import (
    ClusterEndpoint,
    WorkerRequirements,
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
"""Maximum size of a file of hosts."""
ANSWER_S = 60.0
PREPARE_S = 1800.0
"""Time limit of pip, which may download gigabytes."""
MAX_CONCURRENT = 16
SPOOL = ".cache/benchhouse/worker_results"
"""Relative to the home folder of the remote machine."""
TUNNEL = (
    *("-o", "ExitOnForwardFailure=yes", "-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3"),
    *("-o", "ControlMaster=no", "-o", "ControlPath=none"),  # a shared connection would keep ports forwarded
)
SSH_FAILED = 255
"""The exit code of ssh itself on an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A machine as written by the user."""

    name: str

    @property
    def destination(self) -> str:
        """The destination for ssh: a host or an entry of its configuration, or with a port a URI."""
        return f"ssh://{self.name}" if HOST.fullmatch(self.name)["port"] else self.name  # type: ignore[index]


def read_host(text: str, where: str) -> Host:
    """The host in a text. Raises UsageError."""
    if HOST.fullmatch(text) is None:
        raise UsageError(f"{where}: invalid host {text!r}: expected MACHINE or USER@MACHINE, optionally with :PORT")
    return Host(name=text)


def read_hosts(path: Path) -> tuple[Host, ...]:
    """The hosts in a file, one per line; # starts a comment. Raises UsageError with the line, and UnreadableError."""
    try:
        lines = read_text(path, MAX_BYTES).splitlines()
    except FormatError as error:
        raise UsageError(str(error)) from error
    lines_of: dict[Host, int] = {}
    for number, line in enumerate(lines, start=1):
        if text := line.partition("#")[0].strip():
            host = read_host(text, f"{path}:{number}")
            if host in lines_of:
                raise UsageError(f"{path}:{number}: {text} is listed twice (first: line {lines_of[host]})")
            lines_of[host] = number
    if not lines_of:
        raise UsageError(f"{path}: contains no hosts: list at least one")
    return tuple(lines_of)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ssh:
    """How to reach hosts and start benchhouse there."""

    setup: Setup
    package: str
    """The package that pip installs into a new environment."""
    config: str | None
    """An SSH configuration file; None for the user's."""
    requirements: WorkerRequirements

    def command(self, host: Host, words: Sequence[str], *options: str) -> tuple[str, ...]:
        """The command line that runs a command on a host; each word is quoted for the shell there."""
        found = program("ssh")
        if found is None:
            raise NotInstalledError("ssh is not on PATH: install the OpenSSH client")
        config = () if self.config is None else ("-F", self.config)
        return (found, *config, "-T", *options, "--", host.destination, shlex.join(words))

    def prepare(self, host: Host) -> tuple[int, ...]:
        """Prepare a host; returns free ports there. Raises BenchhouseError with the problem."""
        if (words := preparation(self.setup, self.package)) is not None:
            prepared = run_program(self.command(host, words), limit_s=PREPARE_S)
            if prepared.exit_code != 0:
                raise BenchhouseError(
                    f"{host.name}: --setup venv:{self.setup.what} failed: {_reason(prepared, PREPARE_S)}"
                )
        probe = run_program(self.command(host, python_command(self.setup, MODULE)), limit_s=ANSWER_S)
        if probe.exit_code == SSH_FAILED:
            raise BenchhouseError(f"cannot reach {host.name}: {_reason(probe, ANSWER_S)}")
        try:
            answer = json.loads(probe.stdout.strip().splitlines()[-1])
            version, ports = answer["benchhouse"], tuple(map(int, answer["ports"]))
        except (ValueError, LookupError, TypeError) as error:
            raise BenchhouseError(
                f"{host.name}: benchhouse does not start: {_reason(probe, ANSWER_S)}: install benchhouse {__version__} "
                "for its python3, or use --setup venv"
            ) from error
        if version != __version__:
            raise BenchhouseError(
                f"{host.name} has benchhouse {version}, expected {__version__}: install this version, or use --setup "
                "venv"
            )
        if len(ports) != PORTS:
            raise BenchhouseError(f"{host.name}: expected {PORTS} ports, got {len(ports)}")
        return ports

    def start(self, host: Host, ports: Sequence[int], scheduler_port: int, stderr: IO[bytes]) -> Popen[str]:
        """Start the worker of a host, which waits for its certificates on stdin."""
        remote_port, worker_port = ports
        with socket() as free:
            free.bind(("127.0.0.1", 0))
            local_port = free.getsockname()[1]
        forwarded = (
            *("-R", f"127.0.0.1:{remote_port}:127.0.0.1:{scheduler_port}"),
            *("-L", f"127.0.0.1:{local_port}:127.0.0.1:{worker_port}"),
        )
        words = worker_command(
            self.setup,
            *(f"tls://127.0.0.1:{remote_port}", "--name", host.name, "--spool-dir", SPOOL, "--quiet", "--tls-stdin"),
            *("--listen-port", str(worker_port), "--contact-address", f"tls://127.0.0.1:{local_port}"),
            *self.requirements.flags,
            devices=self.requirements.devices,
        )
        return start(self.command(host, words, *TUNNEL, *forwarded), stdin=PIPE, stdout=DEVNULL, stderr=stderr)


@contextmanager
def ssh_workers(hosts: Sequence[Host], ssh: Ssh, say: Callable[[str], None]) -> Iterator[ClusterEndpoint]:
    """Workers on all hosts, stopped at the end. Raises BenchhouseError for a host on which no worker can run."""
    security = temporary_security("--cluster ssh")
    say(f"ssh: preparing {', '.join(host.name for host in hosts)}")
    with ThreadPoolExecutor(MAX_CONCURRENT) as pool:
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

        def failure() -> str | None:
            for number, (host, process) in enumerate(processes.items()):
                if process.poll() is not None:
                    lines = (folder / str(number)).read_text(errors="replace").strip().splitlines() or ["no message"]
                    return f"the worker on {host.name} ended with exit code {process.returncode}: {lines[-1]}"
            return None

        yield ClusterEndpoint(
            address=address, security=security, workers=len(hosts), accepts_workers=False, failure=failure
        )


def _reason(done: Finished, limit_s: float) -> str:
    if done.exit_code is None:
        return f"no answer within {limit_s:g} s"
    return done.last_line or f"exit code {done.exit_code}"
