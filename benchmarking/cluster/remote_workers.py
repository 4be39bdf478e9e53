"""Workers that a command starts on other machines: over the system's `ssh`, which checks host keys and may prompt as
usual, or as Slurm jobs through dask-jobqueue.

With ssh nothing listens beyond loopback: the scheduler is on loopback here, and each connection forwards a loopback
port of the remote machine to it, and one here to the worker there. Since other users of these machines can reach
loopback too, the connection uses TLS with certificates for this command only, which the worker reads from stdin.

With Slurm the scheduler runs in the command, on a machine that the nodes can reach (a login node), and each job is one
worker. The nodes read the certificates of the command from the folder of the jobs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import field, fields
from pathlib import Path
from socket import socket
from typing import Any

from benchmarking import __version__
from benchmarking.cluster.scheduler import (
    INSTALL,
    MODULE,
    TLS_FLAGS,
    WORKER,
    ClusterEndpoint,
    Setup,
    WorkerRequirements,
    own_scratch_folder,
    preparation,
    remote_command,
    security,
    started_workers,
    temporary_security,
)
from benchmarking.core.child_process import Finished, program, run_program, signals_deferred
from benchmarking.core.errors import BenchhouseError, FormatError, NotInstalledError, UsageError, storage_errors
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.plugins import check_installed
from benchmarking.core.temporary import temporary_folder
from benchmarking.core.text import counted
from benchmarking.core.untrusted.input_files import read_text, read_yaml
from benchmarking.core.untrusted.redaction import last_line

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
PROGRAMS = ("sbatch", "squeue", "scancel")
POLL_S = 2.0
"""Seconds between two calls of squeue."""
UNKNOWN_JOB = "Invalid job id"
"""What squeue says of a job that ended long ago, with an exit code of failure."""
PROGRAM_S = 60.0
"""Time limit of Slurm's programs."""
LOST_JOB_S = 1e9
"""Seconds until Dask cancels the job of a lost worker: never, since Slurm may have queued it again."""
END_GRACE_S = 10.0
"""Seconds after the end of the last job until it is an error, since one of its workers may just be joining."""
MAX_COUNT = 10_000
"""Maximum number of jobs, and of processors of a job."""


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
            version, (remote_port, worker_port) = answer["benchhouse"], map(int, answer["ports"])
        except (ValueError, LookupError, TypeError) as error:
            raise BenchhouseError(
                f"{host}: benchhouse does not start: {why}: install benchhouse {__version__} for its python3, or use "
                "--setup venv"
            ) from error
        if version != __version__:
            raise BenchhouseError(
                f"{host} has benchhouse {version}, expected {__version__}: install this version, or use --setup venv"
            )
        return remote_port, worker_port

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


def ssh_workers(hosts: Sequence[str], ssh: Ssh, say: Callable[[str], None]) -> AbstractContextManager[ClusterEndpoint]:
    """Workers on all hosts. Raises BenchhouseError for a host on which no worker can run."""
    security = temporary_security("--cluster ssh")
    say(f"ssh: preparing {', '.join(hosts)}")
    with ThreadPoolExecutor(MAX_CONCURRENT) as pool:
        ports = dict(zip(hosts, pool.map(ssh.prepare, hosts), strict=True))

    def commands(address: str, folder: Path) -> dict[str, tuple[str, ...]]:
        port = address.rpartition(":")[2]
        return {host: ssh.worker(host, ports[host], port) for host in hosts}

    return started_workers(security, commands, has_logs=True)


Check = tuple[str, Callable[[Any], object]]
"""What a value is, in words, and whether one is."""


def _text(pattern: str, example: str) -> Check:
    """A check of text that goes into the job script, which may be nothing else."""
    return f"text such as {example}", lambda value: isinstance(value, str) and re.fullmatch(pattern, value)


def _key(check: Check, default: Any = None, option: str | None = None) -> Any:
    """A key of the configuration: the check of its value, or of each line of a list; and the option of sbatch that it
    is."""
    return field(default=default, metadata={"check": check, "option": option})


NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
GRES = r"[A-Za-z0-9_.]+(:[A-Za-z0-9_.-]+){0,2}"
TIME = r"(\d+-)?\d{1,5}(:[0-5]\d){0,2}|UNLIMITED"
COUNT: Check = (f"a whole number from 1 to {MAX_COUNT}", lambda value: type(value) is int and 1 <= value <= MAX_COUNT)
SHELL: Check = ("shell commands", lambda text: isinstance(text, str) and text.strip() and text.isprintable())
YES_OR_NO: Check = ("true or false", lambda value: isinstance(value, bool))
SECONDS: Check = ("seconds above 0", lambda value: type(value) in (int, float) and 0 < value < float("inf"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmConfig:
    """The request to Slurm, per job unless a field states otherwise. None is Slurm's default."""

    partition: str | None = _key(_text(rf"{NAME}(,{NAME})*", "gpu"), option="partition")
    account: str | None = _key(_text(NAME, "my-project"), option="account")
    gres: str | None = _key(_text(rf"{GRES}(,{GRES})*", "gpu:1"), option="gres")
    time_limit: str | None = _key(_text(TIME, '"02:00:00" (hours, minutes, seconds)'), option="time")
    exclusive: bool = _key(YES_OR_NO, True)
    """Whether a job has exclusive use of its node."""
    jobs: int = _key(COUNT, 1)
    cpus: int | None = _key(COUNT, option="cpus-per-task")
    memory: str | None = _key(_text(r"\d+[KMGT]?", "64G"), option="mem")
    directives: tuple[str, ...] = _key(_text(r"--[a-z][a-z-]*(=[^\s#]+)?", '"--constraint=a100"'), ())
    """Further arguments of #SBATCH lines."""
    setup: tuple[str, ...] = _key(SHELL, ())
    """Shell commands to run before the worker starts."""
    interface: str | None = _key(_text(r"[A-Za-z0-9][A-Za-z0-9._-]{0,14}", "ib0"))
    """The network interface of scheduler and workers; None for Dask's choice."""
    folder: str = _key(_text(r"[^\s'\"\\\\]+", "slurm_jobs, without spaces"), "slurm_jobs")
    """Folder for job output and runs in progress, shared with the nodes."""
    wait_s: float = _key(SECONDS, 3600.0)
    """Time limit for the first job to start, since a queue may be long."""


def read_config(path: Path) -> SlurmConfig:
    """The configuration in a YAML file. Raises UsageError with the place, and UnreadableError."""
    keys, values = {key.name: key for key in fields(SlurmConfig)}, dict[str, Any]()
    for name, node in read_yaml(path).mapping("the configuration of Slurm").items():
        node.check_known(name, tuple(keys))
        takes, fits = keys[name].metadata["check"]
        is_list = isinstance(keys[name].default, tuple)
        lines = node.items() if is_list else [node]
        for line in lines:
            if not fits(line.content):
                node.refuse(f"{name}: takes {takes}: got {line.text}")
        values[name] = tuple(line.content for line in lines) if is_list else node.content
    return SlurmConfig(**values)


@contextmanager
def slurm_jobs(
    config: SlurmConfig, setup: Setup, requirements: WorkerRequirements, own_security: Any, say: Callable[[str], None]
) -> Iterator[ClusterEndpoint]:
    """The jobs of a configuration, cancelled at the end, with certificates for this command only unless the user has
    some (`own_security`). Raises NotInstalledError without Slurm or dask-jobqueue, BenchhouseError with Slurm's message
    if it rejects the jobs."""
    check_installed("--cluster slurm", ("dask_jobqueue",), INSTALL)
    programs = {name: program(name) for name in PROGRAMS}
    if absent := [name for name, path in programs.items() if path is None]:
        raise NotInstalledError(f"{absent[0]} is not on PATH: use a machine that can submit Slurm jobs")
    with storage_errors(f"cannot use {config.folder}, the folder of the Slurm jobs", "choose another"):
        folder = Path(os.path.expanduser(config.folder)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
    with signals_deferred():  # the import replaces the handler of Ctrl-C, which this restores
        from dask_jobqueue import SLURMCluster
        from dask_jobqueue.slurm import SLURMJob

    logs = f"{folder}/benchhouse-%J"
    options = {key.metadata["option"]: getattr(config, key.name) for key in fields(config)}
    directives = [
        *("--job-name=benchhouse", "--ntasks=1"),
        *(shlex.quote(f"--output={logs}.out"), shlex.quote(f"--error={logs}.err")),
        *(f"--{option}={value}" for option, value in options.items() if None not in (option, value)),
        *(("--exclusive",) if config.exclusive else ()),
        *config.directives,
    ]

    class WorkerJob(SLURMJob):  # type: ignore[misc]
        def __init__(self, scheduler: str | None = None, name: str | None = None, **settings: Any) -> None:
            super().__init__(scheduler, name, **settings)
            files = settings["security"].get_tls_config_for_role("worker")
            words = remote_command(
                setup,
                *(WORKER, str(scheduler), "--name", str(name), "--spool-dir", str(folder / str(name)), "--quiet"),
                *("--tls-ca-file", files["ca_file"], "--tls-cert", files["cert"], "--tls-key", files["key"]),
                *(() if config.interface is None else ("--interface", config.interface)),
                *requirements.flags,
                devices=requirements.devices,
                volumes=(str(folder),),
            )
            self._command_template = f"exec {shlex.join(words)}"

    with temporary_folder(".tls", folder) as tls_folder, own_scratch_folder(), ExitStack() as stack:
        import dask

        stack.enter_context(dask.config.set({"distributed.deploy.lost-worker-timeout": f"{LOST_JOB_S}s"}))
        try:
            cluster = stack.enter_context(
                SLURMCluster(
                    job_cls=WorkerJob,
                    name="slurm",
                    cores=1,
                    processes=1,
                    memory="1GB",  # dask-jobqueue demands cores and memory, for its header
                    # What the configuration leaves open is Slurm's default, not one of Dask or dask-jobqueue.
                    job_directives_skip=["#SBATCH"],
                    job_extra_directives=directives,
                    job_script_prologue=list(config.setup),
                    shebang="#!/bin/bash",
                    log_directory=str(folder),
                    interface=config.interface,
                    security=own_security or certificate_files(tls_folder),
                    scheduler_options={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
                    silence_logs=50,
                )
            )
        except RuntimeError as error:
            raise BenchhouseError(f"no scheduler for jobs starts here: {error.__cause__}: check interface") from error
        path = tls_folder / "job.sh"
        path.write_text(cluster.job_script(), encoding="utf-8")
        trial = run_program((str(programs["sbatch"]), "--test-only", str(path)), limit_s=PROGRAM_S)
        if trial.exit_code != 0:
            why = trial.last_line or f"no answer within {PROGRAM_S:g} s"
            raise BenchhouseError(f"Slurm rejected the jobs: {why}")
        cluster.scale(jobs=config.jobs)
        say(f"slurm: {counted(config.jobs, 'job')} submitted; their output: {folder}")
        yield ClusterEndpoint(
            address=cluster.scheduler_address,
            security=cluster.security,
            workers=1,
            limit_s=config.wait_s,
            failure=jobs_failure(cluster, str(programs["squeue"]), folder, say),
        )


def certificate_files(folder: Path) -> Any:
    """Certificates for this command only, in files of a folder that only this user can read. Those that dask-jobqueue
    writes for its jobs are deleted when Python happens to collect them, with a traceback if their folder is gone."""
    texts = temporary_security("--cluster slurm").get_tls_config_for_role("worker")
    files = {flag: folder / f"{flag}.pem" for flag in TLS_FLAGS}
    for flag, path in files.items():
        path.touch(mode=0o600, exist_ok=False)
        path.write_text(texts[flag.removeprefix("tls_")], encoding="ascii")
    return security(argparse.Namespace(**{flag: str(path) for flag, path in files.items()}))


def jobs_failure(cluster: Any, squeue: str, folder: Path, say: Callable[[str], None]) -> Callable[[], str | None]:
    """Returns why none of the submitted jobs will start a worker, as squeue shows them; None if one may. Says what they
    are waiting for."""
    polled_s, last_message, over_since_s = 0.0, "", math.inf

    def failure() -> str | None:
        nonlocal polled_s, last_message, over_since_s
        if time.monotonic() - polled_s < POLL_S:
            return None
        polled_s = time.monotonic()
        ids = sorted(job.job_id for job in list(cluster.workers.values()) if job.job_id)
        if not ids:  # Dask has them once all are submitted
            return None
        answer = run_program((squeue, "-h", "-j", ",".join(ids), "-o", "%T %r"), limit_s=PROGRAM_S)
        if answer.exit_code != 0 and UNKNOWN_JOB not in answer.stderr:
            return None  # the controller restarts, or is busy
        if states := sorted({line.strip().removesuffix(" None").lower() for line in answer.stdout.splitlines()} - {""}):
            over_since_s = math.inf
            if (message := f"slurm: waiting for a worker: {', '.join(states)}") != last_message:
                last_message = message
                say(message)
            return None
        over_since_s = min(over_since_s, time.monotonic())
        if time.monotonic() - over_since_s <= END_GRACE_S:
            return None
        for job_id in ids:
            if said := last_line(path := folder / f"benchhouse-{job_id}.err"):
                return f"its jobs have ended: {said} ({path})"
        return f"its jobs have ended: their output is in {folder}"

    return failure
