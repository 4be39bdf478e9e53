"""Clusters that a command starts for itself: a scheduler in this process, and workers that join it.

This module has workers on this machine (`local:N`) and everything that such clusters share. Slurm jobs and workers over
SSH have their own modules.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import Any

from benchmarking.cluster.remote_setup import WORKER
from benchmarking.cluster.security import INSTALL
from benchmarking.core.child_process import module_command, start
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.plugins import check_installed
from benchmarking.core.temporary import temporary_folder
from benchmarking.core.untrusted.redaction import from_home

START_S = 120.0
"""Time limit for workers started as processes, since probing a driver may take a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEndpoint:
    """The scheduler of a cluster, and the number of workers to wait for before a batch is planned."""

    address: str
    security: Any = None
    """Dask's security settings; None without TLS."""
    workers: int = 0
    """Number of workers to wait for."""
    limit_s: float = START_S
    accepts_workers: bool = True
    """Whether more workers may join it later."""
    failure: Callable[[], str | None] = lambda: None
    """Returns why not all workers will join; None while they may. Called while waiting for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRequirements:
    """What a command requires of the workers that are started for it."""

    devices: tuple[str, ...] | None = None
    """None for all hardware."""
    scripts: str | None = None
    """The script whose models it measures, or the folder of several scripts."""

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags of the worker's command. `~` in the path of a script is the worker's home folder, as in its
        plans."""
        scripts = () if self.scripts is None else ("--scripts", from_home(self.scripts))
        return (*scripts, *(() if self.devices is None else ("--devices", ",".join(self.devices))))


def quiet_dask() -> None:
    """Silence Dask's messages about workers that we end or report ourselves."""
    logging.getLogger("distributed").setLevel(logging.CRITICAL + 1)


def temporary_security(what: str) -> Any:
    """In-memory certificates for this command only, without which nothing can connect."""
    check_installed(what, ("cryptography",), INSTALL)
    from distributed.security import Security

    return Security.temporary()


@contextmanager
def own_scratch_folder() -> Iterator[None]:
    """Inside, Dask's schedulers have their scratch folder in one that is deleted at the end. In the temporary folder of
    all users it would stay."""
    import dask

    with temporary_folder("benchhouse-dask") as folder, dask.config.set({"temporary-directory": str(folder)}):
        yield


@contextmanager
def started_workers(
    security: Any, commands: Callable[[str, Path], Mapping[str, Sequence[str]]], *, has_logs: bool
) -> Iterator[ClusterEndpoint]:
    """A scheduler in this process that listens on loopback only, and worker processes, which are stopped at the end.

    `commands` are their command lines by name, given the scheduler's address and a temporary folder. They get the
    certificates on stdin, since other users can reach loopback too. With `has_logs` their stderr goes to files, whose
    last line is why one ended; otherwise to this process's.
    """
    from distributed import LocalCluster

    quiet_dask()
    with (
        own_scratch_folder(),
        LocalCluster(
            n_workers=0,
            host="127.0.0.1",
            scheduler_port=0,
            dashboard_address="127.0.0.1:0",
            silence_logs=50,
            security=security,
            protocol="tls://",
        ) as scheduler,
        temporary_folder("benchhouse-workers") as folder,
        ExitStack() as stack,
    ):
        processes: dict[str, Popen[str]] = {}
        for number, (name, command) in enumerate(commands(scheduler.scheduler_address, folder).items()):
            log = stack.enter_context((folder / f"{number}.log").open("wb")) if has_logs else None
            process = processes[name] = stack.enter_context(start(command, stdin=PIPE, stdout=DEVNULL, stderr=log))
            stack.callback(process.terminate)
            assert process.stdin is not None
            try:
                process.stdin.write(f"{json.dumps(security.get_tls_config_for_role('worker'))}\n")
                process.stdin.close()
            except OSError:
                process.stdin = None  # it has ended: `failure` says why

        def failure() -> str | None:
            for number, (name, process) in enumerate(processes.items()):
                if process.poll() is not None and not has_logs:
                    return f"a worker ended with exit code {process.returncode}: see its message above"
                if process.poll() is not None:
                    log = (folder / f"{number}.log").read_text(errors="replace")
                    why = (log.strip().splitlines() or ["no message"])[-1]
                    return f"the worker on {name} ended with exit code {process.returncode}: {why}"
            return None

        yield ClusterEndpoint(
            address=scheduler.scheduler_address,
            security=security,
            workers=len(processes),
            accepts_workers=False,
            failure=failure,
        )


@contextmanager
def local_workers(count: int, requirements: WorkerRequirements) -> Iterator[ClusterEndpoint]:
    """Workers on this machine."""

    def commands(address: str, folder: Path) -> dict[str, tuple[str, ...]]:
        names = [f"local-{number}" for number in range(count)]
        further = ("--quiet", "--tls-stdin", *requirements.flags)
        return {
            name: module_command(WORKER, address, "--name", name, "--spool-dir", str(folder / name), *further)
            for name in names
        }

    with started_workers(temporary_security("--cluster local"), commands, has_logs=False) as endpoint:
        yield endpoint
