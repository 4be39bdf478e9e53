"""Load on a model in this process: requests wait in a queue for calls, or MLPerf's loadgen decides on them.

In an open loop, requests arrive on a schedule. In a closed loop, each of a fixed number of users sends the next request
when the previous one has ended.

By default, calls run one after another, each with as many waiting requests of equal size as a batch holds, oldest
first. Arrivals then need no thread, which would compete with the model for the interpreter: a request that is due
during a call joins the queue after the call, with its scheduled time. A model that combines the work of several calls
(continuous batching) runs a call in each of its slots, each in its own thread.

loadgen decides which samples are requested and when, and whether the test is valid; its logs are read afterwards. The
times of the requests come from benchhouse's own clock, as a cross-check. loadgen runs in a thread and the calls in the
main thread, since some runtimes must be called from the thread that loaded them.
"""

from __future__ import annotations

import json
import threading
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Literal

from benchmarking.core.contracts import TOKEN, Operation
from benchmarking.core.errors import BenchhouseError, UnsupportedError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import NS_PER_MS, NS_PER_S
from benchmarking.core.provenance import utc_now
from benchmarking.core.records import MAX_ARRIVALS, MAX_REQUESTS, Count, Json, Number, Point, PositiveCount, Requests
from benchmarking.measure.timing import short_gc

SPIN_NS = 2_000_000
"""Time before an arrival during which an idle loop polls the clock instead of sleeping, since timers are late."""
TIMED_OUT = "timed_out"
Scenario = Literal["single-stream", "multi-stream", "offline", "server"]
SCENARIOS: tuple[Scenario, ...] = ("single-stream", "multi-stream", "offline", "server")
LOADGEN_NAMES = {
    "single-stream": "SingleStream",
    "multi-stream": "MultiStream",
    "offline": "Offline",
    "server": "Server",
}
LOG_PREFIX = "mlperf_log_"
DETAIL, TRACE = f"{LOG_PREFIX}detail.txt", f"{LOG_PREFIX}trace.json"
LOG_MARK = ":::MLLOG "
KEPT_KEYS = ("result_", "early_stopping_", "effective_", "error_", "warning_", "loadgen_version", "num_errors")
"""Prefixes of the keys in loadgen's detailed log that are stored."""
ENDED = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    starts_s: tuple[Number, ...] = ()
    """Scheduled times of an open loop, in s from its beginning; empty for a closed loop."""
    concurrency: PositiveCount = 1
    """Users of a closed loop."""
    number: PositiveCount | None = None
    """Requests of a closed loop; None for as many as start within the duration."""
    duration_s: Number = 30.0
    sizes: tuple[Count, ...] = ()
    """Index of each request's point; empty if there is only one point."""
    timeout_s: Number = 120.0
    """Time limit per request, from its arrival to its end."""
    warmup: Count = 0
    """Untimed calls before the loop; with at least one, every further point gets a call too."""


@dataclass(slots=True)
class QueuedRequest:
    """A request and its times by `time.perf_counter_ns`."""

    intended_ns: int
    sent_ns: int
    size: int = 0
    """Index of its point."""
    tokens_ns: Sequence[int] = ()
    end_ns: int | None = None
    error: str | None = None
    detail: str | None = None


def run_loop(
    slots: Sequence[Sequence[Operation]],
    synchronize: Callable[[], None],
    batch_size: int,
    settings: LoopSettings,
    launch: int,
) -> Requests:
    """The requests of a loop. A slot holds the calls of its points, all of the same batch size; a call with fewer
    requests still runs a full batch. Calls of several slots run at the same time, each with one request.

    Raises UnsupportedError for operations whose requests cannot be timed from outside. Exceptions of the operations
    pass through.
    """
    for operations in slots:
        for place, operation in enumerate(operations):
            check_callable(operation)
            for _ in range(settings.warmup if place == 0 else min(settings.warmup, 1)):
                timed_call(operation, synchronize, lambda: None)
    timeout_ns = round(settings.timeout_s * NS_PER_S)
    with short_gc():
        started_at = utc_now()
        start_ns = time.perf_counter_ns()
        arrivals: _Schedule | _Users
        arrivals = _Schedule(settings, start_ns) if settings.starts_s else _Users(settings, start_ns)
        if len(slots) == 1:
            found = _serve(slots[0], synchronize, batch_size, arrivals, timeout_ns)
        else:
            found = _serve_together(slots, synchronize, arrivals, timeout_ns)
    return requests_of(found, slots[0], batch_size, launch, started_at)


def check_callable(operation: Operation) -> None:
    """Raise UnsupportedError for an operation whose calls cannot serve single requests."""
    if operation.times_itself:
        raise UnsupportedError("load tests: the runtime times its own calls, so the end of a request is unknown")
    if operation.requests_in_flight > 1:
        raise UnsupportedError("load tests run calls one after another: omit the flag for requests in flight")


def timed_call(
    operation: Operation, synchronize: Callable[[], None], at_first_token: Callable[[], None]
) -> tuple[Sequence[int], int]:
    """Run a call. Returns the times of its tokens and of its end in ns."""
    marks = array("q")

    def mark(name: str) -> None:
        if name == TOKEN:
            marks.append(time.perf_counter_ns())
            if len(marks) == 1:
                at_first_token()

    operation.reset()
    operation.run(mark)
    synchronize()
    return marks, time.perf_counter_ns()


class _Schedule:
    """The arrivals of an open loop."""

    def __init__(self, settings: LoopSettings, start_ns: int) -> None:
        sizes = settings.sizes or (0,) * len(settings.starts_s)
        due_ns = (start_ns + round(start_s * NS_PER_S) for start_s in settings.starts_s)
        self._coming = deque(sorted(zip(due_ns, sizes, strict=True), key=lambda one: one[0]))

    def due(self) -> Iterator[QueuedRequest]:
        """The requests that were due during a call. They were sent on time, since the queue takes them at any time."""
        now_ns = time.perf_counter_ns()
        while self._coming and self._coming[0][0] <= now_ns:
            at_ns, size = self._coming.popleft()
            yield QueuedRequest(at_ns, at_ns, size)

    def next(self) -> QueuedRequest | None:
        """Wait for the next request; None after the last."""
        if not self._coming:
            return None
        at_ns, size = self._coming.popleft()
        if (rest_ns := at_ns - time.perf_counter_ns() - SPIN_NS) > 0:
            time.sleep(rest_ns / NS_PER_S)
        while (now_ns := time.perf_counter_ns()) < at_ns:
            pass
        return QueuedRequest(at_ns, now_ns, size)

    def ended(self, request: QueuedRequest) -> None:
        """An open loop does not react to the end of a request."""

    def seconds_to_next(self) -> float | None:
        """Time until the next request is due; None after the last."""
        return max(0, self._coming[0][0] - time.perf_counter_ns()) / NS_PER_S if self._coming else None


class _Users:
    """The arrivals of a closed loop."""

    def __init__(self, settings: LoopSettings, start_ns: int) -> None:
        self._left = min(settings.number or MAX_REQUESTS, MAX_REQUESTS)
        self._until_ns = None if settings.number else start_ns + round(settings.duration_s * NS_PER_S)
        self._sizes = iter(settings.sizes or (0,) * self._left)
        self._coming: deque[QueuedRequest] = deque()
        for _ in range(settings.concurrency):
            self._send(start_ns)

    def due(self) -> Iterator[QueuedRequest]:
        """The requests whose users have seen the previous one end."""
        while self._coming:
            yield self._coming.popleft()

    def next(self) -> QueuedRequest | None:
        """The next request; None if all users are done."""
        return self._coming.popleft() if self._coming else None

    def ended(self, request: QueuedRequest) -> None:
        """The user of the request sends the next one."""
        assert request.end_ns is not None
        self._send(request.end_ns)

    def seconds_to_next(self) -> None:
        """None: a request is due only when another one ends."""

    def _send(self, now_ns: int) -> None:
        if self._left and (self._until_ns is None or now_ns < self._until_ns):
            self._left -= 1
            self._coming.append(QueuedRequest(now_ns, now_ns, next(self._sizes)))


def _serve(
    operations: Sequence[Operation],
    synchronize: Callable[[], None],
    batch_size: int,
    arrivals: _Schedule | _Users,
    timeout_ns: int,
) -> list[QueuedRequest]:
    """Serve all requests; returns them in the order of their arrival."""
    served, waiting = list[QueuedRequest](), deque[QueuedRequest]()
    while True:
        arrived = list(arrivals.due())
        if not arrived and not waiting:
            if (request := arrivals.next()) is None:
                return served
            arrived = [request]
        served += arrived
        waiting.extend(arrived)
        _drop_expired(waiting, arrivals, timeout_ns)
        if not waiting:
            continue
        # The oldest request, and others of its size up to a batch.
        batch, others = [waiting.popleft()], list[QueuedRequest]()
        while waiting and len(batch) < batch_size:
            request = waiting.popleft()
            (batch if request.size == batch[0].size else others).append(request)
        waiting.extendleft(reversed(others))
        tokens_ns, end_ns = timed_call(operations[batch[0].size], synchronize, lambda: None)
        for request in batch:
            _finish(request, tokens_ns, end_ns, timeout_ns)
            arrivals.ended(request)


def _serve_together(
    slots: Sequence[Sequence[Operation]], synchronize: Callable[[], None], arrivals: _Schedule | _Users, timeout_ns: int
) -> list[QueuedRequest]:
    """Serve all requests with up to one call per slot at the same time; returns them in the order of their arrival."""
    served, waiting, free = list[QueuedRequest](), deque[QueuedRequest](), deque(slots)
    done: SimpleQueue[tuple[Sequence[Operation], QueuedRequest, Exception | None]] = SimpleQueue()

    def call(slot: Sequence[Operation], request: QueuedRequest) -> None:
        try:
            _finish(request, *timed_call(slot[request.size], synchronize, lambda: None), timeout_ns)
            done.put((slot, request, None))
        except Exception as error:  # noqa: BLE001 - raised by the main thread
            done.put((slot, request, error))

    with ThreadPoolExecutor(len(slots)) as pool:
        while True:
            arrived = list(arrivals.due())
            if not arrived and not waiting and len(free) == len(slots):
                if (next_request := arrivals.next()) is None:
                    return served
                arrived = [next_request]
            now_ns = time.perf_counter_ns()
            for request in arrived:
                request.sent_ns = max(request.intended_ns, now_ns)
            served += arrived
            waiting.extend(arrived)
            _drop_expired(waiting, arrivals, timeout_ns)
            while waiting and free:
                pool.submit(call, free.popleft(), waiting.popleft())
            if len(free) == len(slots):
                continue
            try:
                slot, request, error = done.get(timeout=arrivals.seconds_to_next())
            except Empty:
                continue
            free.append(slot)
            if error is not None:
                raise error
            arrivals.ended(request)


def _finish(request: QueuedRequest, tokens_ns: Sequence[int], end_ns: int, timeout_ns: int) -> None:
    """Record the end of a request, which fails if it took too long."""
    request.tokens_ns, request.end_ns = tokens_ns, end_ns
    if end_ns - request.sent_ns > timeout_ns:
        request.error, request.detail = TIMED_OUT, f"not finished within {timeout_ns / NS_PER_S:g} s"


def _drop_expired(waiting: deque[QueuedRequest], arrivals: _Schedule | _Users, timeout_ns: int) -> None:
    """Fail the requests that have waited longer than the limit."""
    now_ns = time.perf_counter_ns()
    while waiting and now_ns - waiting[0].sent_ns > timeout_ns:
        request = waiting.popleft()
        _finish(request, (), now_ns, timeout_ns)
        arrivals.ended(request)


def requests_of(
    found: Sequence[QueuedRequest], operations: Sequence[Operation], batch_size: int, launch: int, started_at: str
) -> Requests:
    """The record of the requests, in the order of their scheduled starts; times in ms since the first start."""
    found = sorted(found, key=lambda one: one.intended_ns)
    zero_ns = found[0].intended_ns
    streams = all(operation.streams for operation in operations)
    keeps_all = streams and sum(len(request.tokens_ns) for request in found) <= MAX_ARRIVALS

    def ms(value: int | None) -> float | None:
        return None if value is None else round((value - zero_ns) / NS_PER_MS, 3)

    def tokens_in(one: QueuedRequest) -> int | None:
        prompt = operations[one.size].prompt_tokens_per_call
        return None if prompt is None else prompt // batch_size

    def tokens_out(one: QueuedRequest) -> int | None:
        operation = operations[one.size]
        if operation.new_tokens is None:
            return None
        return len(one.tokens_ns) if operation.streams or one.error is not None else operation.new_tokens

    absent = (None,) * len(found)
    return Requests(
        launch=launch,
        phase="measure",
        started_at=started_at,
        intended_ms=tuple(round((request.intended_ns - zero_ns) / NS_PER_MS, 3) for request in found),
        sent_ms=tuple(ms(request.sent_ns) for request in found),
        first_token_ms=tuple(ms(request.tokens_ns[0]) if request.tokens_ns else None for request in found),
        token_ms=tuple(
            tuple(round((at_ns - zero_ns) / NS_PER_MS, 3) for at_ns in request.tokens_ns) if keeps_all else ()
            for request in found
        ),
        end_ms=tuple(ms(request.end_ns) for request in found),
        tokens_in=tuple(map(tokens_in, found)),
        tokens_out=tuple(map(tokens_out, found)),
        cached_tokens=absent,
        error=tuple(request.error for request in found),
        detail=tuple(request.detail for request in found),
        meets_limits=absent,
        conversation=absent,
        turn=absent,
        last_token_ms=tuple(ms(request.tokens_ns[-1]) if request.tokens_ns and streams else None for request in found),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioSettings:
    scenario: Scenario
    folder: str
    """Folder for loadgen's logs."""
    rate: Number | None = None
    """Mean queries per second of the server scenario."""
    latency_ms: Number | None = None
    """Latency limit of the server scenario, which 99 % of the queries must meet."""
    first_token_ms: Number | None = None
    per_token_ms: Number | None = None
    """Limits of the server scenario for time to first token and time per output token, instead of `latency_ms`."""
    samples_per_query: PositiveCount = 8
    """Samples per query in the multi-stream scenario."""
    number: PositiveCount | None = None
    """Number of queries, or samples in the offline scenario; None for as many as start within the duration."""
    duration_s: Number = 30.0
    warmup: Count = 0
    """Untimed calls before the test."""
    seed: Count = 0

    @property
    def counts_tokens(self) -> bool:
        """Whether loadgen evaluates token times."""
        return self.first_token_ms is not None and self.per_token_ms is not None


def run_scenario(
    operation: Operation, synchronize: Callable[[], None], point: Point, settings: ScenarioSettings, launch: int
) -> tuple[Requests, dict[str, Json]]:
    """The samples of one test as requests, and loadgen's own figures by the keys of its detailed log.

    A call takes as many waiting samples as the point's batch size. The last call of a query may have fewer, but still
    runs a full batch. Raises UnsupportedError for operations whose requests cannot be timed from outside. Exceptions of
    the operation pass through and leave loadgen's thread behind.
    """
    check_callable(operation)
    for _ in range(settings.warmup):
        timed_call(operation, synchronize, lambda: None)
    started_at, issued = utc_now(), list[QueuedRequest]()
    waiting: SimpleQueue[Any] = SimpleQueue()
    thread = threading.Thread(target=_run_test, args=(settings, issued, waiting), daemon=True)
    with short_gc():
        thread.start()
        _serve_queries(operation, synchronize, point.batch_size, settings, waiting)
        thread.join()
    folder = Path(settings.folder)
    if settings.scenario == "server":
        for place, delay_ns in issue_delays_ns((folder / TRACE).read_text()).items():
            issued[place].intended_ns -= delay_ns
    requests = requests_of(issued, [operation], point.batch_size, launch, started_at)
    return requests, figures((folder / DETAIL).read_text(errors="replace"))


def _serve_queries(
    operation: Operation,
    synchronize: Callable[[], None],
    batch_size: int,
    settings: ScenarioSettings,
    waiting: SimpleQueue[Any],
) -> None:
    """Serve loadgen's queries until its test is over."""
    import mlperf_loadgen as loadgen

    pending: deque[tuple[QueuedRequest, int]] = deque()
    is_over = False
    while pending or not is_over:
        arrived = [] if pending else [waiting.get()]
        try:
            while True:
                arrived.append(waiting.get_nowait())
        except Empty:
            pass
        for query in arrived:
            if isinstance(query, Exception):
                raise BenchhouseError(f"loadgen ended the test: {query}") from query
            is_over |= query is ENDED
            pending.extend(query or ())
        if not pending:
            continue
        batch = [pending.popleft() for _ in range(min(batch_size, len(pending)))]
        ids = [sample_id for _, sample_id in batch]

        def report_first_token(ids: Sequence[int] = ids) -> None:
            if settings.counts_tokens:
                loadgen.FirstTokenComplete([loadgen.QuerySampleResponse(sample_id, 0, 0) for sample_id in ids])

        tokens_ns, end_ns = timed_call(operation, synchronize, report_first_token)
        count = len(tokens_ns) if operation.streams else operation.new_tokens
        tokens = (count,) if settings.counts_tokens else ()
        loadgen.QuerySamplesComplete([loadgen.QuerySampleResponse(sample_id, 0, 0, *tokens) for sample_id in ids])
        for request, _ in batch:
            request.tokens_ns, request.end_ns = tokens_ns, end_ns


def _run_test(settings: ScenarioSettings, issued: list[QueuedRequest], waiting: SimpleQueue[Any]) -> None:
    """Run loadgen's test. Its queries go to `waiting`, followed by an error or the end."""
    import mlperf_loadgen as loadgen

    def issue(samples: Sequence[Any]) -> None:
        at_ns = time.perf_counter_ns()
        requests = [QueuedRequest(at_ns, at_ns) for _ in samples]
        issued.extend(requests)
        waiting.put([(request, sample.id) for request, sample in zip(requests, samples, strict=True)])

    try:
        system = loadgen.ConstructSUT(issue, lambda: None)
        library = loadgen.ConstructQSL(1, 1, lambda samples: None, lambda samples: None)
        # A file of this name in the working directory could change the test.
        unread = str(Path(settings.folder) / "no-audit.config")
        output, log = loadgen.LogOutputSettings(), loadgen.LogSettings()
        output.outdir, output.prefix, output.copy_summary_to_stdout = settings.folder, LOG_PREFIX, False
        log.log_output, log.enable_trace = output, settings.scenario == "server"  # the trace holds its schedule
        try:
            test = loadgen.TestSettings()
            test.scenario = getattr(loadgen.TestScenario, LOADGEN_NAMES[settings.scenario])
            test.mode = loadgen.TestMode.PerformanceOnly
            by_number = settings.number is not None
            test.min_duration_ms = 0 if by_number else round(settings.duration_s * 1000)
            test.min_query_count = settings.number or 1
            if not by_number:
                test.max_query_count = MAX_REQUESTS // (
                    settings.samples_per_query if settings.scenario == "multi-stream" else 1
                )
            test.qsl_rng_seed = test.sample_index_rng_seed = test.schedule_rng_seed = settings.seed
            test.multi_stream_samples_per_query = settings.samples_per_query
            test.use_token_latencies = settings.counts_tokens
            if settings.scenario == "server":
                test.server_target_qps = settings.rate
                test.server_target_latency_ns = round((settings.latency_ms or 0) * NS_PER_MS)
            if settings.counts_tokens:
                test.ttft_latency = round((settings.first_token_ms or 0) * NS_PER_MS)
                test.tpot_latency = round((settings.per_token_ms or 0) * NS_PER_MS)
            loadgen.StartTestWithLogSettings(system, library, test, log, unread)
        finally:
            loadgen.DestroyQSL(library)
            loadgen.DestroySUT(system)
    except Exception as error:  # noqa: BLE001 - passed on to the waiting thread
        waiting.put(error)
    else:
        waiting.put(ENDED)


def issue_delays_ns(trace: str) -> dict[int, int]:
    """Delay in ns from a sample's scheduled start to its issue, by its position in the order of issue; from loadgen's
    trace."""
    delays_ns = {}
    for line in trace.splitlines():
        if '"issue_start_ns"' in line:
            about = json.loads(line.rstrip().rstrip(","))["args"]
            delays_ns[about["sample_seq"]] = about["issue_start_ns"]
    return delays_ns


def figures(detail: str) -> dict[str, Json]:
    """loadgen's own figures from its detailed log; the last value of each key."""
    events = (json.loads(line[len(LOG_MARK) :]) for line in detail.splitlines() if line.startswith(LOG_MARK))
    return {event["key"]: event["value"] for event in events if event["key"].startswith(KEPT_KEYS)}
