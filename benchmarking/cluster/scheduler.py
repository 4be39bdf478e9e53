"""Clusters that a command starts for itself: a scheduler in this process, and workers that join it.

This module has workers on this machine (`local:N`) and everything that such clusters share. Slurm jobs and workers over
SSH have their own modules.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import Any

from benchmarking.cluster.security import ROLES
from benchmarking.core.child_process import module_command, start
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
    check_installed(what, ("cryptography",), 'pip install "benchhouse[cluster]"')
    from distributed.security import Security

    return Security.temporary()


def send_certificates(process: Popen[str], security: Any) -> None:
    """Give a worker that was started with --tls-stdin its certificates."""
    assert process.stdin is not None
    try:
        process.stdin.write(f"{json.dumps(security.get_tls_config_for_role('worker'))}\n")
        process.stdin.close()
    except OSError:
        process.stdin = None  # it has ended: `failure` says why


def temporary_certificate_files(folder: Path) -> Any:
    """The same certificates in files of a folder that only this user can read."""
    from distributed.security import Security

    texts = temporary_security("--cluster").get_tls_config_for_role("worker")
    paths = {part: folder / f"{part}.pem" for part in ("ca_file", "cert", "key")}
    for part, path in paths.items():
        path.touch(mode=0o600, exist_ok=False)
        path.write_text(texts[part], encoding="ascii")
    files = {f"tls_{role}_{part}": str(paths[part]) for role in ROLES for part in ("cert", "key")}
    return Security(tls_ca_file=str(paths["ca_file"]), require_encryption=True, **files)


@contextmanager
def own_scratch_folder() -> Iterator[None]:
    """Inside, Dask's schedulers have their scratch folder in one that is deleted at the end. In the temporary folder of
    all users it would stay."""
    import dask

    with temporary_folder("benchhouse-dask") as folder, dask.config.set({"temporary-directory": str(folder)}):
        yield


@contextmanager
def scheduler_on_loopback(security: Any) -> Iterator[str]:
    """A scheduler in this process that listens on loopback only; yields its address."""
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
        ) as cluster,
    ):
        yield cluster.scheduler_address


@contextmanager
def local_workers(count: int, requirements: WorkerRequirements) -> Iterator[ClusterEndpoint]:
    """Workers on this machine. The connection has its own certificates, since other users can reach loopback too."""
    security = temporary_security("--cluster local")
    with (
        scheduler_on_loopback(security) as address,
        temporary_folder("benchhouse-workers") as folder,
        ExitStack() as stack,
    ):
        processes = []
        for number in range(count):
            spool_dir = str(Path(folder) / str(number))
            command = module_command(
                *("benchmarking.cluster.worker", address, "--name", f"local-{number}", "--spool-dir", spool_dir),
                *("--quiet", "--tls-stdin", *requirements.flags),
            )
            process = stack.enter_context(start(command, stdin=PIPE, stdout=DEVNULL, stderr=None))
            stack.callback(process.terminate)
            send_certificates(process, security)
            processes.append(process)

        def failure() -> str | None:
            ended = [process.returncode for process in processes if process.poll() is not None]
            return f"a worker ended with exit code {ended[0]}: see its message above" if ended else None

        yield ClusterEndpoint(address=address, security=security, workers=count, accepts_workers=False, failure=failure)
