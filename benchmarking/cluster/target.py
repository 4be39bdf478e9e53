"""Where a command measures: on this machine, or on the workers of a cluster named by its flags.

`--cluster` names any cluster. `--backend remote --remote-host H` and `--use-slurm` are short forms for machines over
SSH and for Slurm jobs, which commands for a single model have too.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarking.cluster.scheduler import (
    INSTALL,
    PACKAGE,
    TLS_FLAGS,
    ClusterEndpoint,
    Setup,
    WorkerRequirements,
    add_tls,
    check_exposure,
    local_workers,
    read_setup,
    security,
)
from benchmarking.core import plugins
from benchmarking.core.command_line import Parser, add_aliases, choice, notes
from benchmarking.core.errors import UnsupportedError, UsageError, WorkersLostError
from benchmarking.core.help_texts import few_need
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.plugins import check_installed, kinds
from benchmarking.core.records import Cell, Device, Hardware, Readings
from benchmarking.core.suggestions import meant_by, unknown_name
from benchmarking.core.text import duration, flag_of
from benchmarking.sweep.plan.measuring_settings import AUTO
from benchmarking.sweep.plan.plan import CLUSTER, Machine
from benchmarking.sweep.run.command_session import Executor

if TYPE_CHECKING:
    from benchmarking.cluster.coordinator import ClusterSweep
    from benchmarking.cluster.execution import Offer, OfferedDevice

LOCAL = re.compile(r"local:([1-9]\d{0,2})")
"""Prefix of a cluster that the command starts on this machine."""
SLURM, SSH, HOSTS = "slurm:", "ssh:", "ssh://"
"""Prefixes of other clusters that it starts: with an optional Slurm file, a file of hosts, or hosts."""
CONNECT_S = 10.0
POLL_S = 0.05
"""Seconds between two looks for workers that join."""


def add_cluster(parser: Parser) -> None:
    cluster = parser.add_argument_group("cluster")
    few_need(cluster)
    cluster.add_argument(
        "--cluster",
        metavar="CLUSTER",
        help="measure on the workers of a Dask cluster: tcp://HOST:PORT or tls://HOST:PORT of its scheduler; local:N "
        "for N workers on this machine; ssh:HOSTFILE for one worker per host in a file; slurm:CONFIG.yaml for Slurm "
        "jobs (default: measure on this machine)",
    )
    spread = "spread the launches of a cell over workers with the same hardware (default: one worker per cell)"
    cluster.add_argument("--spread", action="store_true", help=spread)
    same = "refuse workers whose package versions or commit differ (default: each run stores its worker's)"
    cluster.add_argument("--require-same-versions", action="store_true", help=same)
    add_remote(parser)
    add_tls(parser)


def add_remote(parser: Parser) -> None:
    """Add the flags for measuring on another machine."""
    group = parser.add_argument_group("remote machine")
    few_need(group)
    place = "this machine, or the machine of --remote-host (default: local)"
    group.add_argument("--backend", type=_place, default="local", metavar="local|remote", help=place)
    where = "SSH destination to measure on, with --backend remote; MACHINE:PORT for a port; repeatable"
    host = group.add_argument("--remote-host", dest="host", action="append", metavar="USER@MACHINE", help=where)
    add_aliases(group, host, "--host")
    group.add_argument(
        "--use-slurm",
        nargs="?",
        const="",
        metavar="CONFIG",
        help="measure in Slurm jobs, configured by the YAML file CONFIG (default: this machine; without CONFIG: one "
        "job with an exclusive node of the default partition)",
    )
    group.add_argument(
        "--setup",
        metavar="HOW",
        help="environment of benchhouse on hosts and nodes: venv or venv:DIR (created over SSH if missing), "
        "conda:NAME, or docker:IMAGE (default: the host's python3; on Slurm nodes this Python)",
    )
    package = "package that pip installs into a new venv (default: %(default)s)"
    group.add_argument("--setup-package", metavar="SPEC", default=PACKAGE, help=package)
    group.add_argument("--ssh-config", metavar="FILE", help="SSH configuration file (default: the user's)")


def _place(text: str) -> str:
    if text in ("local", "remote"):
        return text
    if runtimes := meant_by(text, plugins.names(plugins.RUNTIMES)):
        meant = f"takes local or remote, the place to measure: got {text}: a runtime is --runtime {runtimes[0]}"
        raise argparse.ArgumentTypeError(meant)
    raise argparse.ArgumentTypeError(unknown_name(text, ("local", "remote"), "place"))


def resolve_target(arguments: argparse.Namespace) -> None:
    """Set `arguments.cluster` from the flags of another machine, and check them. Raises UsageError."""
    named = getattr(arguments, "cluster", None)
    is_remote, is_slurm = arguments.backend == "remote", arguments.use_slurm is not None
    given = {"--cluster": named is not None, "--backend remote": is_remote, "--use-slurm": is_slurm}
    if len(flags := [flag for flag, is_given in given.items() if is_given]) > 1:
        raise UsageError(f"{' and '.join(flags)}: give only one of them")
    if is_remote and not arguments.host:
        raise UsageError("--backend remote requires --remote-host USER@MACHINE")
    if arguments.host and not is_remote:
        raise UsageError(f"--remote-host {arguments.host[0]} requires --backend remote: add it")
    if arguments.host:
        named = HOSTS + ",".join(arguments.host)
    elif is_slurm:
        named = SLURM + arguments.use_slurm
    arguments.cluster = named
    if named is not None:
        read_cluster(named, arguments)
    elif (arguments.setup, arguments.setup_package, arguments.ssh_config) != (None, PACKAGE, None):
        raise UsageError(
            "--setup, --setup-package and --ssh-config require a remote machine: give --remote-host or --use-slurm"
        )


Start = Callable[[WorkerRequirements, Callable[[str], None]], AbstractContextManager[ClusterEndpoint]]
"""Starts a cluster with such workers, saying what it waits for; it ends with the context."""


def read_cluster(name: str, arguments: argparse.Namespace) -> Start:
    """How to start the cluster of --cluster, or to reach a running one. Raises UsageError for an invalid name, with the
    place of an invalid value in its file, and for security settings that are insufficient or without effect."""
    from benchmarking.cluster import remote_workers as remote

    home = "" if name.startswith(SSH) else f"{Path.home()}/"  # where ssh starts commands; nodes share that of here
    setup = None if arguments.setup is None else read_setup(arguments.setup, home)
    if setup is not None and not name.startswith((SLURM, SSH)):
        raise UsageError(f"--setup has no effect on {name}: it applies to ssh: and slurm: only")
    if arguments.ssh_config is not None and not name.startswith(SSH):
        raise UsageError(f"--ssh-config has no effect on {name.rstrip(':')}: it applies to ssh: only")
    is_installed = name.startswith(SSH) and setup is not None and setup.kind == "venv"
    if arguments.setup_package != PACKAGE and not is_installed:
        raise UsageError("--setup-package has an effect only on machines over SSH with --setup venv: add it")
    local = LOCAL.fullmatch(name)
    has_certificates = any(getattr(arguments, flag, None) for flag in TLS_FLAGS)
    if has_certificates and (local or name.startswith(SSH)):
        raise UsageError(
            f"--tls-ca-file, --tls-cert and --tls-key have no effect on {name}: they apply to tls:// and slurm:"
        )
    if local:
        return lambda requirements, say: local_workers(int(local[1]), requirements)
    if name.startswith("local"):
        raise UsageError(f"--cluster {name}: expected local:N, with the number of workers to start on this machine")
    if name.startswith(SLURM):
        if has_certificates:
            check_exposure("tls://localhost:1", arguments)
        file = name.removeprefix(SLURM)
        config = remote.read_config(Path(file)) if file else remote.SlurmConfig()
        on_node = setup or Setup(what=sys.executable)
        return lambda requirements, say: remote.slurm_jobs(config, on_node, requirements, security(arguments), say)
    if name.startswith(SSH):
        if name.startswith(HOSTS):
            hosts = tuple(name.removeprefix(HOSTS).split(","))
            for host in hosts:
                remote.destination(host, "--remote-host")
        else:
            hosts = remote.read_hosts(Path(name.removeprefix(SSH)))
        how = {"setup": setup or Setup(), "package": arguments.setup_package, "config": arguments.ssh_config}
        return lambda requirements, say: remote.ssh_workers(hosts, remote.Ssh(requirements=requirements, **how), say)
    check_exposure(name, arguments)
    return lambda requirements, say: nullcontext(ClusterEndpoint(address=name, security=security(arguments)))


def target_flags(arguments: argparse.Namespace) -> tuple[str, ...]:
    """The flags that name the same place in another command; empty for this machine."""
    if (name := arguments.cluster) is None:
        return ()
    if arguments.host:
        words = ["--backend", "remote", *(word for host in arguments.host for word in ("--remote-host", host))]
    elif arguments.use_slurm is not None:
        words = ["--use-slurm", *filter(None, [arguments.use_slurm])]
    else:
        words = ["--cluster", name]
    for flag in ("setup", "setup_package", "ssh_config", *TLS_FLAGS):
        if (value := getattr(arguments, flag, None)) not in (None, PACKAGE):
            words += [flag_of(flag), value]
    switches = ("insecure", "spread", "require_same_versions")
    return (*words, *(flag_of(name) for name in switches if getattr(arguments, name, False)))


def remote_arguments(
    backend: str,
    host: str | Sequence[str] | None,
    *,
    use_slurm: bool | str | Path,
    setup: str | None,
    ssh_config: str | Path | None,
) -> argparse.Namespace:
    """The checked flags of a remote machine from the arguments of the Python API. Raises UsageError."""
    choice(backend, ("local", "remote"), "backend")
    hosts = [host] if isinstance(host, str) else list(host or ())
    config = None if use_slurm is False else "" if use_slurm is True else str(use_slurm)
    arguments = argparse.Namespace(
        backend=backend,
        host=hosts,
        use_slurm=config,
        setup=setup,
        setup_package=PACKAGE,
        ssh_config=None if ssh_config is None else str(ssh_config),
        cluster=None,
        quiet=True,
    )
    resolve_target(arguments)
    return arguments


class ClusterMachine(Machine):
    """The machine for planning a batch, based on the offers of a cluster. Of several devices of one name, it has the
    one with the most free memory: what fits on that can be measured, and no other is given what does not fit on it."""

    is_here = False

    def __init__(self, offers: Mapping[str, Offer], name: str) -> None:
        super().__init__()
        self._name = name
        offered = [device for offer in offers.values() for device in offer.devices]
        offered.sort(key=lambda device: device.free_bytes)
        self._offered = {device.device.selector: device for device in offered}
        counts = sorted(Counter(device.device.selector for device in offered).items())
        has = ", ".join(f"{count} x {selector}" if count > 1 else selector for selector, count in counts)
        why_not = f"no worker of {name} has one; the cluster offers {has or 'nothing: it has no workers'}"
        for kind in kinds():
            found = tuple(device.device for device in self._offered.values() if device.device.type == kind.name)
            absent = Device(type=kind.name, selector=kind.name, found=False, why_not=why_not)
            self.devices[kind.name] = found or (absent,)

    @property
    def environment(self) -> Readings:
        """The environment of this machine, until a worker takes the cell."""
        return super().environment | Readings(values={CLUSTER: self._name})

    def hardware(self, device: Device) -> Hardware:
        found = self._offer_of(device)
        return super().hardware(device) if found is None else found.hardware

    def free_memory(self, device: Device) -> Readings:
        found = self._offer_of(device)
        return super().free_memory(device) if found is None else found.free

    def _offer_of(self, device: Device) -> OfferedDevice | None:
        """None for an absent device, whose points are skipped. Raises UnsupportedError for several devices as one."""
        found = self._offered.get(device.selector)
        if found is None and device.found:
            raise UnsupportedError(
                f"--device {device.selector}: a worker measures on one device at a time: run this on its machine itself"
            )
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a command plans and measures; the other fields are None for this machine."""

    machine: Machine
    cluster: ClusterSweep | None = None
    executor: Executor | None = None
    """As a session measures its plans there."""


def device_kinds(cells: Iterable[Cell]) -> tuple[str, ...]:
    """The kinds of device that the cells of an earlier command need, which workers started for them must offer."""
    return tuple(dict.fromkeys(cell.device.type for cell in cells))


@contextmanager
def open_target(
    arguments: argparse.Namespace, devices: Sequence[str] | None, scripts: Sequence[Path] = ()
) -> Iterator[Target]:
    """This machine, or the cluster chosen by `resolve_target`, which is started or reached. `devices` are those that
    the command names (None: all), `scripts` those whose models it measures.

    Raises UsageError for versions that differ but must not; WorkersLostError if no scheduler answers, or if no worker
    joins a cluster that was started here.
    """
    if (name := arguments.cluster) is None:
        yield Target(machine=Machine())
        return
    check_installed("--cluster", ("distributed",), INSTALL)
    from distributed import Client

    from benchmarking.cluster.coordinator import Cluster, ClusterSweep

    for logger in ("distributed", "distributed.client"):  # what they say of lost peers is said here
        logging.getLogger(logger).setLevel(logging.CRITICAL + 1)
    # Each run stores the versions of its worker; Dask compares packages that do not matter here.
    warnings.filterwarnings("ignore", message="(?s).*Mismatched versions", module="distributed")
    requirements = WorkerRequirements(
        devices=None if devices is None or AUTO in devices else tuple(devices),
        scripts=os.path.commonpath(scripts) if scripts else None,
    )
    with read_cluster(name, arguments)(requirements, notes(quiet=arguments.quiet)) as endpoint, ExitStack() as stack:
        try:
            client = stack.enter_context(
                Client(endpoint.address, security=endpoint.security, timeout=CONNECT_S, set_as_default=False)
            )
        except (OSError, TimeoutError) as error:
            raise WorkersLostError(
                f"--cluster {name}: no scheduler at this address: start one with dask scheduler --host HOST --port PORT"
            ) from error
        deadline_s = time.monotonic() + endpoint.limit_s
        while len(client.scheduler_info(n_workers=-1)["workers"]) < endpoint.workers:
            if (why := endpoint.failure()) is not None:
                raise WorkersLostError(f"--cluster {name}: {why}")
            if time.monotonic() > deadline_s:
                raise WorkersLostError(f"--cluster {name}: no worker joined within {duration(endpoint.limit_s)}")
            time.sleep(POLL_S)
        cluster = Cluster(client, name, accepts_workers=endpoint.accepts_workers, failure=endpoint.failure)
        stack.callback(cluster.close)
        offers = cluster.offers()
        # Of a batch alone.
        spread, same_versions = (getattr(arguments, flag, False) for flag in ("spread", "require_same_versions"))
        sweep = ClusterSweep(cluster, offers, spread=spread, same_versions=same_versions)
        executor = Executor(sweep=sweep, is_cluster=True, flags=target_flags(arguments))
        yield Target(machine=ClusterMachine(offers, name), cluster=sweep, executor=executor)
