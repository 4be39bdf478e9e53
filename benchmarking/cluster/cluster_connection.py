"""The coordinator's connection to its cluster: the workers, their offers, and events."""

from __future__ import annotations

import queue
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Any

from benchmarking.cluster.execution import (
    Offer,
    Order,
    Report,
    clock_s,
    execute,
    forget,
    message_text,
    offer_text,
    read_message,
)
from benchmarking.cluster.scheduler import ClusterEndpoint
from benchmarking.core.command_line import note
from benchmarking.core.errors import BenchhouseError, FormatError, WorkersLostError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.text import duration

CONNECT_S = 10.0
POLL_S = 0.05
ROUNDS = 5
"""Number of clock queries, of which the one with the shortest round trip is used."""


@dataclass(frozen=True, slots=True)
class Membership:
    """A worker has joined, or has left or was lost."""

    address: str
    has_joined: bool


class Cluster:
    """A connected cluster. Dask's threads put events into a queue, which the coordinator reads."""

    def __init__(self, client: Any, address: str, *, accepts_workers: bool) -> None:
        self.address = address
        self.accepts_workers = accepts_workers
        """Whether more workers may join it."""
        self._client = client
        self._events: queue.Queue[Membership | Report] = queue.Queue()
        self._futures: dict[str, Any] = {}
        client.subscribe_topic("all", self._on_membership)
        # A scheduler deletes a topic's messages when a client of the same name disconnects.
        client.subscribe_topic(client.id, self._on_report)

    def addresses(self) -> tuple[str, ...]:
        return tuple(self._client.scheduler_info(n_workers=-1)["workers"])

    def offers(self, addresses: Sequence[str]) -> dict[str, Offer]:
        """The offers of these workers. Workers of other programs or versions are left out with a note."""
        offers: dict[str, Offer] = {}
        texts = self._client.run(offer_text, workers=list(addresses), on_error="return") if addresses else {}
        for address, text in texts.items():
            try:
                if isinstance(text, BaseException) or text is None:
                    raise FormatError("not a benchhouse worker, or an older version: start benchhouse worker")
                offers[address] = read_message(Offer, text)
            except BenchhouseError as error:
                note(f"left out: worker at {address}: {error}")
        return dict(sorted(offers.items(), key=lambda item: item[1].worker))

    def clocks(self, addresses: Sequence[str]) -> dict[str, dict[str, float]]:
        """The clock of each worker, as stored in the environment of its runs: the seconds by which it is ahead of this
        machine's (negative if behind), by the query with the shortest round trip, and half of that trip, which is the
        uncertainty."""
        clocks = {}
        for address in addresses:
            queries = []
            for _ in range(ROUNDS):
                sent_s, began_s = time.time(), time.monotonic()
                worker_s = self._client.run(clock_s, workers=[address])[address]
                half_trip_s = (time.monotonic() - began_s) / 2
                queries.append((half_trip_s, worker_s - sent_s - half_trip_s))
            error_s, offset_s = min(queries)
            clocks[address] = {"cluster_clock_offset_s": offset_s, "cluster_clock_error_s": error_s}
        return clocks

    def submit(self, attempt: str, order: Order, address: str, selector: str) -> None:
        """Send an order to a worker, for this device. Its reports follow, of which the last says how it ended, unless
        the worker is lost."""
        future = self._client.submit(
            execute,
            self._client.id,
            message_text(order),
            key=attempt,
            workers=[address],
            allow_other_workers=False,
            resources={selector: 1},
            retries=0,
            pure=False,
        )

        def end(future: Any) -> None:
            error = None if future.cancelled() else future.exception()
            if error is not None:  # whatever Dask or the worker raised is the cell's failure
                why = f"the task failed: {type(error).__name__}: {error}"
                self._events.put(Report(attempt=attempt, kind="failed", text=why))
            self._futures.pop(attempt, None)

        self._futures[attempt] = future
        future.add_done_callback(end)

    def cancel(self, attempt: str) -> None:
        """Cancel an attempt; its worker stops at its next message."""
        if (future := self._futures.pop(attempt, None)) is not None:
            future.cancel(force=True)

    def forget(self, addresses: Sequence[str], run_ids: Sequence[str]) -> None:
        """Tell workers to delete their copies of runs that are saved here; a worker that is lost keeps its own."""
        if addresses and run_ids and self._client.status == "running":
            with suppress(OSError, TimeoutError):  # the scheduler is shutting down
                self._client.run(forget, list(run_ids), workers=list(addresses), on_error="ignore")

    def next_event(self, limit_s: float) -> Membership | Report | None:
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
        for topic in ("all", self._client.id):
            self._client.unsubscribe_topic(topic)

    def _on_membership(self, event: tuple[float, Any]) -> None:
        message = event[1] if isinstance(event[1], dict) else {}
        if (action := message.get("action")) in ("add-worker", "remove-worker"):
            self._events.put(Membership(message["worker"], action == "add-worker"))

    def _on_report(self, event: tuple[float, Any]) -> None:
        if isinstance(event[1], str):  # other events are the scheduler's, about this client
            try:
                self._events.put(read_message(Report, event[1]))
            except FormatError as error:
                note(f"ignored: {error}")


@contextmanager
def connect(name: str, start: AbstractContextManager[ClusterEndpoint]) -> Iterator[Cluster]:
    """Start the cluster named by --cluster, or reach a running one, and connect to it.

    Raises WorkersLostError if no scheduler answers, or if no worker joins a cluster that was started here.
    """
    from distributed import Client

    # Each run stores the versions of its worker; Dask compares packages that do not matter here.
    warnings.filterwarnings("ignore", message="(?s).*Mismatched versions", module="distributed")
    with start as endpoint, ExitStack() as stack:
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
