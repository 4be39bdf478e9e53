"""The coordinator's connection to its cluster: the workers, their offers, and events.

`tcp://` and `tls://` name a running scheduler; all other names start one in this process, with its workers.
"""

from __future__ import annotations

import argparse
import queue
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from benchmarking import __version__
from benchmarking.cluster.execution import clock_s, execute, forget, offer_text
from benchmarking.cluster.messages import ORDER as ORDER_NAME
from benchmarking.cluster.messages import (
    Clock,
    Offer,
    Order,
    Report,
    TaskResult,
    message_text,
    read_done,
    read_offer,
    read_report,
    version_in,
)
from benchmarking.cluster.scheduler import ClusterEndpoint, WorkerRequirements, local_workers
from benchmarking.cluster.security import security
from benchmarking.cluster.slurm import slurm_jobs
from benchmarking.cluster.ssh import ssh_workers
from benchmarking.cluster.target import LOCAL, SLURM, SSH, slurm_settings, ssh_settings
from benchmarking.core.command_line import note, notes
from benchmarking.core.errors import BenchhouseError, FormatError, WorkersLostError
from benchmarking.core.text import duration

CONNECT_S = 10.0
POLL_S = 0.05
ROUNDS = 5
"""Number of clock queries, of which the one with the shortest round trip is used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """A worker has joined."""

    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A worker has left or was lost."""

    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A task has its result."""

    attempt: str
    done: TaskResult


Event = Joined | Left | Ended | Report


class Cluster:
    """A connected cluster. Dask's threads put events into a queue, which the coordinator reads."""

    def __init__(self, client: Any, address: str, *, accepts_workers: bool) -> None:
        self.address = address
        self.accepts_workers = accepts_workers
        """Whether more workers may join it."""
        self.topic: str = client.id
        """Topic of the reports. A scheduler deletes a topic's messages when a client of the same name disconnects."""
        self._client = client
        self._events: queue.Queue[Event] = queue.Queue()
        self._futures: dict[str, Any] = {}
        client.subscribe_topic("all", self._on_membership)
        client.subscribe_topic(self.topic, self._on_report)

    def addresses(self) -> tuple[str, ...]:
        """The addresses of its workers."""
        return tuple(self._client.scheduler_info(n_workers=-1)["workers"])

    def offers(self, addresses: Sequence[str]) -> dict[str, Offer]:
        """The offers of these workers. Workers of other programs or versions are left out with a note."""
        offers: dict[str, Offer] = {}
        texts = self._client.run(offer_text, workers=list(addresses), on_error="return") if addresses else {}
        for address, text in texts.items():
            try:
                if isinstance(text, BaseException) or text is None:
                    raise FormatError("not a benchhouse worker, or an older version: start benchhouse worker")
                if (version := version_in(text)) != __version__:
                    raise FormatError(f"expected benchhouse {__version__}, found {version}: install the same version")
                offers[address] = read_offer(text)
            except BenchhouseError as error:
                note(f"left out: worker at {address}: {error}")
        return dict(sorted(offers.items(), key=lambda item: item[1].worker))

    def clocks(self, addresses: Sequence[str]) -> dict[str, Clock]:
        """The clock offset of each worker, by the query with the shortest round trip."""
        clocks = {}
        for address in addresses:
            queries = []
            for _ in range(ROUNDS):
                sent_s, began_s = time.time(), time.monotonic()
                worker_s = self._client.run(clock_s, workers=[address])[address]
                half_trip_s = (time.monotonic() - began_s) / 2
                queries.append(Clock(offset_s=worker_s - sent_s - half_trip_s, error_s=half_trip_s))
            clocks[address] = min(queries, key=lambda clock: clock.error_s)
        return clocks

    def submit(self, order: Order, address: str, selector: str) -> None:
        """Send an order to a worker, for this device. An `Ended` event follows, unless the worker is lost."""
        future = self._client.submit(
            execute,
            message_text(ORDER_NAME, order),
            key=order.attempt,
            workers=[address],
            allow_other_workers=False,
            resources={selector: 1},
            retries=0,
            pure=False,
        )
        self._futures[order.attempt] = future
        future.add_done_callback(lambda done: self._on_result(order.attempt, done))

    def cancel(self, attempt: str) -> None:
        """Cancel an attempt; its worker stops at its next message."""
        if (future := self._futures.pop(attempt, None)) is not None:
            future.cancel(force=True)

    def forget(self, addresses: Sequence[str], run_ids: Sequence[str]) -> None:
        """Tell workers to delete their copies of runs that are saved here; a worker that is lost keeps its own."""
        if addresses and run_ids and self._client.status == "running":
            with suppress(OSError, TimeoutError):  # the scheduler is shutting down
                self._client.run(forget, list(run_ids), workers=list(addresses), on_error="ignore")

    def next_event(self, limit_s: float) -> Event | None:
        """The next event; None after `limit_s`. Raises WorkersLostError if the scheduler is lost."""
        try:
            return self._events.get(timeout=limit_s)
        except queue.Empty:
            if self._client.status != "running":
                raise WorkersLostError(
                    f"lost the scheduler {self.address}: all reported results are saved: continue with --resume"
                ) from None
            return None

    def close(self) -> None:
        """Unsubscribe from events."""
        for topic in ("all", self.topic):
            self._client.unsubscribe_topic(topic)

    def _on_membership(self, event: tuple[float, Any]) -> None:
        _, message = event
        action = message.get("action") if isinstance(message, dict) else None
        if action == "add-worker":
            self._events.put(Joined(address=message["worker"]))
        elif action == "remove-worker":
            self._events.put(Left(address=message["worker"]))

    def _on_report(self, event: tuple[float, Any]) -> None:
        if not isinstance(event[1], str):  # an event of the scheduler about this client
            return
        try:
            self._events.put(read_report(event[1]))
        except FormatError as error:
            note(f"ignored: {error}")

    def _on_result(self, attempt: str, future: Any) -> None:
        if future.cancelled():
            return
        try:
            done = read_done(future.result())
        except Exception as error:  # noqa: BLE001 - whatever Dask or the worker raised is the cell's failure
            done = TaskResult(records=0, error=f"the task failed: {type(error).__name__}: {error}")
        self._futures.pop(attempt, None)
        self._events.put(Ended(attempt=attempt, done=done))


@contextmanager
def connect(name: str, arguments: argparse.Namespace, requirements: WorkerRequirements) -> Iterator[Cluster]:
    """Connect to the cluster named by --cluster. `requirements` applies to workers that are started here.

    Raises WorkersLostError if no scheduler answers, or if no worker joins a cluster that was started here.
    """
    from distributed import Client

    with ExitStack() as stack:
        endpoint = stack.enter_context(_start_cluster(name, arguments, requirements))
        # Each run stores the versions of its worker; Dask compares packages that do not matter here.
        warnings.filterwarnings("ignore", message="(?s).*Mismatched versions", module="distributed")
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
        cluster = Cluster(client, name, accepts_workers=endpoint.accepts_workers)
        stack.callback(cluster.close)
        yield cluster


def _start_cluster(
    name: str, arguments: argparse.Namespace, requirements: WorkerRequirements
) -> AbstractContextManager[ClusterEndpoint]:
    """The cluster named by --cluster: a running scheduler, or one that is started here with its workers."""
    if (local := LOCAL.fullmatch(name)) is not None:
        return local_workers(int(local[1]), requirements)
    if name.startswith(SLURM):
        config, setup = slurm_settings(name, arguments)
        return slurm_jobs(config, setup, requirements, security(arguments), notes(quiet=arguments.quiet))
    if name.startswith(SSH):
        hosts, ssh = ssh_settings(name, arguments, requirements)
        return ssh_workers(hosts, ssh, notes(quiet=arguments.quiet))
    return nullcontext(ClusterEndpoint(address=name, security=security(arguments)))
