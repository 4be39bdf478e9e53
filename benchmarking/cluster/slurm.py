"""Workers as Slurm jobs, through dask-jobqueue: the YAML configuration, and the jobs of a command.

The scheduler runs in the command, on a machine that the nodes can reach (a login node). Each job is one worker.
Connections use TLS with certificates for this command only, which the nodes read from the folder of the jobs.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarking.cluster.remote_setup import Setup, worker_command
from benchmarking.cluster.scheduler import (
    ClusterEndpoint,
    WorkerRequirements,
    own_scratch_folder,
    quiet_dask,
    temporary_certificate_files,
)
from benchmarking.core.child_process import program, run_program
from benchmarking.core.command_line import choice
from benchmarking.core.errors import BenchhouseError, NotInstalledError, StorageError, UsageError
from benchmarking.core.plugins import check_installed
from benchmarking.core.temporary import temporary_folder
from benchmarking.core.untrusted.yaml_files import Node, read_yaml

PROGRAMS = ("sbatch", "squeue", "scancel")
INSTALL = 'pip install "benchhouse[cluster]"'
WAIT_S = 3600.0
"""Default time limit for the first job to start, since a queue may be long."""
POLL_S = 2.0
"""Seconds between two calls of squeue."""
PROGRAM_S = 60.0
"""Time limit of Slurm's programs."""
END_GRACE_S = 10.0
"""Seconds after the end of the last job until it is an error, since one of its workers may just be joining."""
MAX_COUNT = 10_000
"""Maximum number of jobs, and of processors of a job."""
WORD = r"[A-Za-z0-9][A-Za-z0-9._-]*"
FOLDER = "slurm_jobs"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmConfig:
    """The request to Slurm, per job unless a field states otherwise."""

    partition: str | None = None
    """None for the default partition."""
    account: str | None = None
    gres: str | None = None
    time_limit: str | None = None
    """None for the partition's default."""
    exclusive: bool = True
    """Whether a job has exclusive use of its node."""
    jobs: int = 1
    cpus: int | None = None
    memory: str | None = None
    directives: tuple[str, ...] = ()
    """Further arguments of #SBATCH lines."""
    setup: tuple[str, ...] = ()
    """Shell commands to run before the worker starts."""
    interface: str | None = None
    """The network interface of scheduler and workers; None for Dask's choice."""
    folder: str = FOLDER
    """Folder for job output and runs in progress, shared with the nodes."""
    wait_s: float = WAIT_S
    """Time limit for the first job to start."""


def _matching(pattern: str, example: str) -> Callable[[Node], str]:
    def read(node: Node) -> str:
        if not isinstance(node.content, str) or not re.fullmatch(pattern, node.content):
            raise UsageError(f"takes text such as {example}: got {node.text}")
        return node.content

    return read


def _line(node: Node) -> str:
    if not isinstance(node.content, str) or not node.content.strip() or not node.content.isprintable():
        raise UsageError(f"takes shell commands: got {node.text}")
    return node.content


def _integer(node: Node) -> int:
    if isinstance(node.content, bool) or not isinstance(node.content, int) or not 1 <= node.content <= MAX_COUNT:
        raise UsageError(f"takes a whole number from 1 to {MAX_COUNT}: got {node.text}")
    return node.content


def _seconds(node: Node) -> float:
    value = node.content
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise UsageError(f"takes seconds above 0: got {node.text}")
    return float(value)


def _flag(node: Node) -> bool:
    if not isinstance(node.content, bool):
        raise UsageError(f"takes true or false: got {node.text}")
    return node.content


def _each(read: Callable[[Node], str]) -> Callable[[Node], tuple[str, ...]]:
    return lambda node: tuple(map(read, node.items()))


READERS: dict[str, Callable[[Node], Any]] = {
    "partition": _matching(rf"{WORD}(,{WORD})*", "gpu"),
    "account": _matching(WORD, "my-project"),
    "gres": _matching(r"[A-Za-z0-9_.]+(:[A-Za-z0-9_.]+){0,2}(,[A-Za-z0-9_.]+(:[A-Za-z0-9_.]+){0,2})*", "gpu:1"),
    "time_limit": _matching(r"(\d+-)?\d{1,3}(:[0-5]\d){1,2}|\d+-\d{1,2}", '"02:00:00" (hours, minutes, seconds)'),
    "exclusive": _flag,
    "jobs": _integer,
    "cpus": _integer,
    "memory": _matching(r"\d+[KMGT]", "64G"),
    "directives": _each(_matching(r"--[a-z][a-z-]*(=[^\s#]+)?", '"--constraint=a100"')),
    "setup": _each(_line),
    "interface": _matching(r"[A-Za-z0-9][A-Za-z0-9._-]{0,14}", "ib0"),
    "folder": _matching(r"[^\s'\"\\\\]+", "slurm_jobs, without spaces"),
    "wait_s": _seconds,
}
"""How the value of each key is read."""


def read_config(path: Path) -> SlurmConfig:
    """The configuration in a YAML file. Raises UsageError with the place, and UnreadableError."""
    fields = read_yaml(path).mapping("the configuration of Slurm")
    values = {}
    for key, node in fields.items():
        try:
            choice(key, tuple(READERS), "key")
            values[key] = READERS[key](node)
        except UsageError as error:
            node.refuse(f"{key}: {error}" if key in READERS else str(error))
    return SlurmConfig(**values)


def directives(config: SlurmConfig) -> list[str]:
    """The arguments of #SBATCH lines that dask-jobqueue does not support itself."""
    gres = [] if config.gres is None else [f"--gres={config.gres}"]
    return [*gres, *(["--exclusive"] if config.exclusive else []), *config.directives]


def suppressed_directives(config: SlurmConfig) -> list[str]:
    """Directives that dask-jobqueue would add without being in the configuration."""
    skipped = {"--cpus-per-task": config.cpus, "--mem=": config.memory, "#SBATCH -t ": config.time_limit}
    return [words for words, value in skipped.items() if value is None]


@contextmanager
def slurm_jobs(
    config: SlurmConfig, setup: Setup, requirements: WorkerRequirements, security: Any, say: Callable[[str], None]
) -> Iterator[ClusterEndpoint]:
    """The jobs of a configuration, cancelled at the end. Raises NotInstalledError without Slurm or dask-jobqueue,
    BenchhouseError with Slurm's message if it rejects the jobs."""
    check_installed("--cluster slurm", ("dask_jobqueue",), INSTALL)
    programs = {name: program(name) for name in PROGRAMS}
    if absent := [name for name, path in programs.items() if path is None]:
        raise NotInstalledError(f"{absent[0]} is not on PATH: use a machine that can submit Slurm jobs")
    try:
        folder = Path(config.folder).absolute()
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"cannot use {config.folder}, the folder of the Slurm jobs: {error.strerror}: choose another"
        ) from error
    quiet_dask()
    with (
        temporary_folder(".tls", folder) as tls_folder,
        _cluster(
            config, setup, requirements, security := security or temporary_certificate_files(tls_folder), folder
        ) as cluster,
    ):
        path = tls_folder / "job.sh"
        path.write_text(cluster.job_script(), encoding="utf-8")
        trial = run_program((str(programs["sbatch"]), "--test-only", str(path)), limit_s=PROGRAM_S)
        if trial.exit_code != 0:
            why = trial.last_line or f"no answer within {PROGRAM_S:g} s"
            raise BenchhouseError(f"Slurm rejected the jobs: {why}")
        cluster.scale(jobs=config.jobs)
        jobs = Jobs(cluster, str(programs["squeue"]), folder, config.jobs, say)
        say(f"slurm: {config.jobs} {'job' if config.jobs == 1 else 'jobs'} submitted; their output: {folder}")
        yield ClusterEndpoint(
            address=cluster.scheduler_address,
            security=security,
            workers=1,
            limit_s=config.wait_s,
            failure=jobs.failure,
        )


@contextmanager
def _cluster(
    config: SlurmConfig,
    setup: Setup,
    requirements: WorkerRequirements,
    security: Any,
    folder: Path,
) -> Iterator[Any]:
    """Dask's cluster of jobs."""
    import dask
    from dask_jobqueue import SLURMCluster
    from dask_jobqueue.slurm import SLURMJob

    class WorkerJob(SLURMJob):  # type: ignore[misc]
        """A job that runs a benchhouse worker."""

        def __init__(self, scheduler: str | None = None, name: str | None = None, **fields: Any) -> None:
            super().__init__(scheduler, name, **fields)
            files = fields["security"].get_tls_config_for_role("worker")
            self._words = worker_command(
                setup,
                *(str(scheduler), "--name", str(name), "--spool-dir", str(folder / str(name)), "--quiet"),
                *("--tls-ca-file", str(files["ca_file"])),
                *("--tls-cert", str(files["cert"]), "--tls-key", str(files["key"])),
                *(() if config.interface is None else ("--interface", config.interface)),
                *requirements.flags,
                devices=requirements.devices,
                volumes=(str(folder),),
            )

        def job_script(self) -> str:
            return "\n".join(["#!/bin/bash", self.job_header, *config.setup, f"exec {shlex.join(self._words)}", ""])

    unset = {"queue": None, "account": None, "project": None, "job-mem": None, "job-cpu": None, "walltime": None}
    with (
        own_scratch_folder(),
        dask.config.set({f"jobqueue.slurm.{key}": value for key, value in unset.items()}),
        SLURMCluster(
            job_cls=WorkerJob,
            name="slurm",
            queue=config.partition,
            account=config.account,
            walltime=config.time_limit or "0",
            cores=1,
            processes=1,
            memory="1GB",
            job_cpu=config.cpus,
            job_mem=config.memory,
            job_name="benchhouse",
            job_directives_skip=suppressed_directives(config),
            job_extra_directives=directives(config),
            log_directory=str(folder),
            interface=config.interface,
            security=security,
            scheduler_options={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
            silence_logs=50,
        ) as cluster,
    ):
        yield cluster


class Jobs:
    """The submitted jobs, as squeue shows them."""

    def __init__(self, cluster: Any, squeue: str, folder: Path, count: int, say: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._squeue = squeue
        self._folder = folder
        self._count = count
        self._say = say
        self._polled_s = 0.0
        self._last_message = ""
        self._seen: set[str] = set()
        self._over_since_s: float | None = None

    def failure(self) -> str | None:
        """Why none of the jobs will start a worker; None if one may. Reports what they are waiting for."""
        if time.monotonic() - self._polled_s < POLL_S:
            return None
        self._polled_s = time.monotonic()
        self._seen |= {job.job_id for job in self._cluster.workers.values() if job.job_id}
        if not self._seen:
            return None
        squeue_output = run_program(
            (self._squeue, "-h", "-j", ",".join(sorted(self._seen)), "-o", "%T %r"), limit_s=PROGRAM_S
        )
        states = sorted(
            {line.strip().removesuffix(" None").lower() for line in squeue_output.stdout.splitlines()} - {""}
        )
        if states:
            self._over_since_s = None
            if (message := f"slurm: waiting for a worker: {', '.join(states)}") != self._last_message:
                self._last_message = message
                self._say(message)
            return None
        if self._over_since_s is None:
            self._over_since_s = time.monotonic()
        if len(self._seen) < self._count or time.monotonic() - self._over_since_s <= END_GRACE_S:
            return None
        for job_id in sorted(self._seen):
            path = self._folder / f"benchhouse-{job_id}.err"
            lines = path.read_text(errors="replace").strip().splitlines() if path.is_file() else []
            if lines:
                return f"its jobs ended without starting a worker: {lines[-1]} ({path})"
        return f"its jobs ended without starting a worker: their output is in {self._folder}"
