"""Makes this machine a worker of a Dask cluster, which measures the cells sent by benchhouse batch --cluster.

The worker offers every device that it finds and measures one cell at a time on each, holding the device's lock. It
keeps its results on disk until the coordinator has saved the run. Ctrl-C stops it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a file: the module path starts at the repository, not at the folder of this file
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarking.cluster.execution import WorkerContext
from benchmarking.cluster.scheduler import (
    INSTALL,
    add_tls,
    check_exposure,
    read_certificates,
    scheme_and_host,
    security,
)
from benchmarking.core.argument_types import is_loopback, names
from benchmarking.core.command_line import Parser, command, note, notes
from benchmarking.core.errors import EXIT_OK, BenchhouseError, UnsupportedError, WorkersLostError
from benchmarking.core.plugins import check_installed
from benchmarking.core.records import Device
from benchmarking.core.settings import DIR, WORD, Setting, Values, add_flags
from benchmarking.core.shared_settings import SHARED
from benchmarking.core.temporary import temporary_folder
from benchmarking.sweep.plan.measuring_settings import add_runtime_options
from benchmarking.sweep.run import spool

NAME = "benchhouse worker"
DEFAULT_FOLDER = "worker_results"
CONNECT_S = 30.0
QUIET_DASK = {
    # Timers would disturb measurements on this machine.
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.tick.limit": "30s",
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.admin.system-monitor.disk": False,
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.diagnostics.nvml": False,
    # The model is in a child process, whose memory the supervisor watches.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
}
EXAMPLES = """\
examples:
  dask scheduler --host 127.0.0.1 --port 8786        (in another terminal)
  benchhouse worker tcp://127.0.0.1:8786
  benchhouse worker tls://server:8786 --tls-ca-file ca.pem --tls-cert me.pem --tls-key me-key.pem

exit codes: 0 stopped by Ctrl-C; 1 scheduler not reachable or lost; 2 usage
"""


@command(NAME)
def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    parser = Parser(prog=NAME, description=__doc__, epilog=EXAMPLES)
    parser.add_argument(
        "scheduler", metavar="ADDRESS", help="address of the Dask scheduler: tcp://HOST:PORT or tls://HOST:PORT"
    )
    what = "devices to offer, such as cuda or cuda:0 (default: all hardware)"
    parser.add_argument("--devices", action=Values, type=names, metavar="D,D", help=what)
    own = (
        Setting("name", WORD, "name of the worker in the cluster", default_words="host name and PID"),
        Setting("spool_dir", DIR, "folder for runs in progress, one per worker", default=DEFAULT_FOLDER),
    )
    add_flags(parser, *own)
    add_runtime_options(parser)
    add_tls(parser)
    what = "read CA, certificate and key from stdin as one JSON object (default: from files)"
    parser.add_argument("--tls-stdin", action="store_true", help=what)
    parser.add_argument("--interface", metavar="NAME", help="network interface to listen on (default: chosen by Dask)")
    what = "port to listen on (default: a free one)"
    parser.add_argument("--listen-port", type=int, default=0, metavar="PORT", help=what)
    what = "address at which the scheduler reaches this worker, if ports are forwarded (default: its own)"
    parser.add_argument("--contact-address", metavar="ADDRESS", help=what)
    scripts = Setting("scripts", DIR, "folder of scripts that plans may run on this machine", default_words="none")
    quiet = "only errors on stderr (default: one line per point)"
    add_flags(parser, scripts, SHARED["quiet"].here(help=quiet))
    arguments = parser.parse_args(argv)
    check_installed(NAME, ("distributed",), INSTALL)
    if arguments.tls_stdin:
        read_certificates(sys.stdin, arguments)
    check_exposure(arguments.scheduler, arguments)
    security(arguments)  # certificates that cannot be used are known before devices are looked for
    devices = offered(arguments.devices)
    folder = Path(arguments.spool_dir)
    spool.prepare(folder)
    context = WorkerContext(
        name=arguments.name or f"{platform.node()}-{os.getpid()}",
        devices=devices,
        folder=folder,
        arguments=vars(arguments),
        say=notes(quiet=arguments.quiet),
    )
    with temporary_folder("benchhouse-dask") as dask_folder:
        is_stopped = asyncio.run(_serve(arguments, context, dask_folder))
    if not is_stopped:
        raise WorkersLostError(
            f"lost the scheduler {arguments.scheduler}: run this command again once it is back; results so far are in "
            f"{folder}"
        )
    return EXIT_OK


def offered(requested: Sequence[str] | None) -> tuple[Device, ...]:
    """The requested devices that this machine has. Raises UnsupportedError if there are none."""
    from benchmarking.devices.support.select import probe_all, select

    if requested is None:
        return tuple(device for found in probe_all().values() for device in found if device.found)
    probed: dict[str, tuple[Device, ...]] = {}
    chosen: dict[str, Device] = {}
    absent: list[str] = []
    for name in requested:
        try:
            device = select(name, lambda device: None, probed)
        except UnsupportedError as error:
            absent.append(str(error))
        else:
            of_kind = probed.get(device.type, (device,)) if ":" not in name else (device,)
            chosen |= {found.selector: found for found in of_kind}
    if not chosen:
        raise UnsupportedError(f"no device to offer: {'; '.join(absent)}")
    for why in absent:
        note(f"not offered: {why}")
    return tuple(chosen.values())


async def _serve(arguments: argparse.Namespace, context: WorkerContext, dask_folder: Path) -> bool:
    """Work until a signal (True) or until the scheduler is lost (False). Raises WorkersLostError if it is
    unreachable."""
    import dask
    from distributed import Worker

    dask.config.set(QUIET_DASK)
    _, host = scheme_and_host(arguments.scheduler)
    worker: Any = Worker(
        arguments.scheduler,
        name=context.name,
        nthreads=len(context.devices),
        resources={device.selector: 1 for device in context.devices},
        memory_limit=0,
        dashboard=False,
        dashboard_address="127.0.0.1:0",  # Dask serves its pages even with dashboard=False, without TLS
        host="127.0.0.1" if is_loopback(host) and arguments.interface is None else None,
        interface=arguments.interface,
        port=arguments.listen_port,
        contact_address=arguments.contact_address,
        security=security(arguments),
        death_timeout=CONNECT_S,
        local_directory=str(dask_folder),
        silence_logs=50,
    )
    worker.benchhouse = context  # as `execution` finds it
    context.say(f"connecting to the scheduler {arguments.scheduler}, for up to {CONNECT_S:g} s")
    try:
        await asyncio.wait_for(worker.start(), CONNECT_S + 5)
    except (TimeoutError, OSError, RuntimeError, ValueError) as error:
        await worker.close(nanny=False)
        if (why := error.__cause__) is not None and isinstance(error, RuntimeError):
            flags = "--name, --interface, --listen-port and --contact-address"
            raise BenchhouseError(f"a worker does not start here: {why}: check {flags}") from error
        raise WorkersLostError(
            f"no scheduler at {arguments.scheduler} ({type(error).__name__}): start one with "
            "dask scheduler --host HOST --port PORT"
        ) from error
    has = ", ".join(device.selector for device in context.devices)
    context.say(f"worker {context.name} at {worker.address}: {has}")
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM) if os.name == "posix" else ()
    for number in signals:
        loop.add_signal_handler(number, stopped.set)
    ending = [asyncio.ensure_future(stopped.wait()), asyncio.ensure_future(worker.finished())]
    await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
    if stopped.is_set():
        await worker.close(nanny=False, timeout=1)  # orders stop at their next message; their points are on disk
    ending[0].cancel()
    return stopped.is_set()


if __name__ == "__main__":
    sys.exit(main())
