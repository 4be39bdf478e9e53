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
from contextlib import contextmanager
from pathlib import Path
from socket import socket

from benchmarking import __version__
from benchmarking.cluster.remote_setup import MODULE, PORTS, WORKER, Setup, preparation, remote_command
from benchmarking.cluster.scheduler import ClusterEndpoint, WorkerRequirements, started_workers, temporary_security
from benchmarking.core.child_process import Finished, program, run_program
from benchmarking.core.errors import BenchhouseError, FormatError, NotInstalledError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
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


def destination(text: str, where: str) -> str:
    """The destination for ssh of a machine as written by the user: a host or an entry of its configuration, or with a
    port a URI. Raises UsageError."""
    if (found := HOST.fullmatch(text)) is None:
        raise UsageError(f"{where}: invalid host {text!r}: expected MACHINE or USER@MACHINE, optionally with :PORT")
    return f"ssh://{text}" if found["port"] else text


def read_hosts(path: Path) -> tuple[str, ...]:
    """The hosts in a file, one per line; # starts a comment. Raises UsageError with the line, and UnreadableError."""
    try:
        lines = read_text(path, MAX_BYTES).splitlines()
    except FormatError as error:
        raise UsageError(str(error)) from error
    lines_of: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if text := line.partition("#")[0].strip():
            destination(text, f"{path}:{number}")
            if text in lines_of:
                raise UsageError(f"{path}:{number}: {text} is listed twice (first: line {lines_of[text]})")
            lines_of[text] = number
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

    def command(self, host: str, words: Sequence[str], *options: str) -> tuple[str, ...]:
        """The command line that runs a command on a host; each word is quoted for the shell there."""
        found = program("ssh")
        if found is None:
            raise NotInstalledError("ssh is not on PATH: install the OpenSSH client")
        config = () if self.config is None else ("-F", self.config)
        return (found, *config, "-T", *options, "--", destination(host, "host"), shlex.join(words))

    def prepare(self, host: str) -> tuple[int, ...]:
        """Prepare a host; returns free ports there. Raises BenchhouseError with the problem."""

        def run(words: Sequence[str], limit_s: float) -> tuple[Finished, str]:
            """The ended command on the host, and why it failed if it did."""
            done = run_program(self.command(host, words), limit_s=limit_s)
            why = f"no answer within {limit_s:g} s" if done.exit_code is None else f"exit code {done.exit_code}"
            return done, (done.exit_code is not None and done.last_line) or why

        if (words := preparation(self.setup, self.package)) is not None:
            prepared, why = run(words, PREPARE_S)
            if prepared.exit_code != 0:
                raise BenchhouseError(f"{host}: --setup venv:{self.setup.what} failed: {why}")
        probe, why = run(remote_command(self.setup, MODULE), ANSWER_S)
        if probe.exit_code == SSH_FAILED:
            raise BenchhouseError(f"cannot reach {host}: {why}")
        try:
            answer = json.loads(probe.stdout.strip().splitlines()[-1])
            version, ports = answer["benchhouse"], tuple(map(int, answer["ports"]))
        except (ValueError, LookupError, TypeError) as error:
            raise BenchhouseError(
                f"{host}: benchhouse does not start: {why}: install benchhouse {__version__} for its python3, or use "
                "--setup venv"
            ) from error
        if version != __version__:
            raise BenchhouseError(
                f"{host} has benchhouse {version}, expected {__version__}: install this version, or use --setup venv"
            )
        if len(ports) != PORTS:
            raise BenchhouseError(f"{host}: expected {PORTS} ports, got {len(ports)}")
        return ports

    def worker(self, host: str, ports: Sequence[int], scheduler_port: str) -> tuple[str, ...]:
        """The command line that starts the worker of a host, which waits for its certificates on stdin."""
        remote_port, worker_port = ports
        with socket() as free:
            free.bind(("127.0.0.1", 0))
            local_port = free.getsockname()[1]
        forwarded = (
            *("-R", f"127.0.0.1:{remote_port}:127.0.0.1:{scheduler_port}"),
            *("-L", f"127.0.0.1:{local_port}:127.0.0.1:{worker_port}"),
        )
        words = remote_command(
            self.setup,
            *(WORKER, f"tls://127.0.0.1:{remote_port}", "--name", host, "--spool-dir", SPOOL, "--quiet"),
            *("--tls-stdin", "--listen-port", str(worker_port)),
            *("--contact-address", f"tls://127.0.0.1:{local_port}", *self.requirements.flags),
            devices=self.requirements.devices,
        )
        return self.command(host, words, *TUNNEL, *forwarded)


@contextmanager
def ssh_workers(hosts: Sequence[str], ssh: Ssh, say: Callable[[str], None]) -> Iterator[ClusterEndpoint]:
    """Workers on all hosts. Raises BenchhouseError for a host on which no worker can run."""
    security = temporary_security("--cluster ssh")
    say(f"ssh: preparing {', '.join(hosts)}")
    with ThreadPoolExecutor(MAX_CONCURRENT) as pool:
        ports = dict(zip(hosts, pool.map(ssh.prepare, hosts), strict=True))

    def commands(address: str, folder: Path) -> dict[str, tuple[str, ...]]:
        port = address.rpartition(":")[2]
        return {host: ssh.worker(host, ports[host], port) for host in hosts}

    with started_workers(security, commands, has_logs=True) as endpoint:
        yield endpoint
