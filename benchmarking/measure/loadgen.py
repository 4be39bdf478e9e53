"""MLPerf's loadgen with one operation as the system under test: a queue, and calls one after another.

loadgen decides which samples are requested and when, and whether the test is valid; its logs are read afterwards. The
times of the requests come from benchhouse's own clock, as a cross-check. loadgen runs in a thread and the calls in the
main thread, since some runtimes must be called from the thread that loaded them.
"""

from __future__ import annotations

import gc
import json
import threading
import time
from array import array
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Literal

from benchmarking.core.contracts import TOKEN, Operation
from benchmarking.core.errors import BenchhouseError, UnsupportedError
from benchmarking.core.provenance import utc_now
from benchmarking.core.records import MAX_ARRIVALS, MAX_REQUESTS, Count, Json, Number, Point, PositiveCount, Requests

Scenario = Literal["single-stream", "multi-stream", "offline", "server"]
SCENARIOS: tuple[Scenario, ...] = ("single-stream", "multi-stream", "offline", "server")
NAMES = {"single-stream": "SingleStream", "multi-stream": "MultiStream", "offline": "Offline", "server": "Server"}
PREFIX = "mlperf_log_"
DETAIL, TRACE = f"{PREFIX}detail.txt", f"{PREFIX}trace.json"
MARK = ":::MLLOG "
KEPT = ("result_", "early_stopping_", "effective_", "error_", "warning_", "loadgen_version", "num_errors")
"""Prefixes of the keys in loadgen's detailed log that are stored."""
NS_PER_MS = 1_000_000
ENDED = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioSettings:
    """Settings of a loadgen test."""

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


@dataclass(slots=True)
class _Log:
    """Times of each sample in order of issue, by `time.perf_counter_ns`."""

    sent_ns: array[int] = field(default_factory=lambda: array("q"))
    end_ns: dict[int, int] = field(default_factory=dict)
    tokens_ns: dict[int, tuple[int, ...]] = field(default_factory=dict)


def run_scenario(
    operation: Operation,
    synchronize: Callable[[], None],
    point: Point,
    settings: ScenarioSettings,
    launch: int,
) -> tuple[Requests, dict[str, Json]]:
    """The samples of one test as requests, and loadgen's own figures by the keys of its detailed log.

    A call takes as many waiting samples as the point's batch size. The last call of a query may have fewer, but still
    runs a full batch. Raises UnsupportedError for operations whose requests cannot be timed from outside. Exceptions of
    the operation pass through and leave loadgen's thread behind.
    """
    _check(operation)
    for _ in range(settings.warmup):
        operation.reset()
        operation.run(lambda name: None)
        synchronize()
    gc.collect()
    started_at, log = utc_now(), _Log()
    waiting: SimpleQueue[Any] = SimpleQueue()
    thread = threading.Thread(target=_test, args=(settings, log, waiting), daemon=True)
    thread.start()
    _serve(operation, synchronize, point.batch_size, settings, log, waiting)
    thread.join()
    folder = Path(settings.folder)
    delays_ns = issue_delays_ns((folder / TRACE).read_text()) if settings.scenario == "server" else {}
    requests = _requests(operation, point, log, delays_ns, launch, started_at)
    return requests, figures((folder / DETAIL).read_text(errors="replace"))


def _check(operation: Operation) -> None:
    if operation.times_itself:
        raise UnsupportedError("MLPerf scenarios: the runtime times its own calls, so the end of a sample is unknown")
    if operation.requests_in_flight > 1:
        raise UnsupportedError("MLPerf scenarios run calls one after another: omit the flag for requests in flight")


def _serve(
    operation: Operation,
    synchronize: Callable[[], None],
    batch_size: int,
    settings: ScenarioSettings,
    log: _Log,
    waiting: SimpleQueue[Any],
) -> None:
    """Serve loadgen's queries until its test is over."""
    import mlperf_loadgen as loadgen

    pending: deque[tuple[int, int]] = deque()
    is_over = False
    while pending or not is_over:
        arrived = [] if pending else [waiting.get()]
        try:
            while True:
                arrived.append(waiting.get_nowait())
        except Empty:
            pass
        for one in arrived:
            if isinstance(one, Exception):
                raise BenchhouseError(f"loadgen ended the test: {one}") from one
            is_over |= one is ENDED
            pending.extend(one or ())
        if not pending:
            continue
        batch = [pending.popleft() for _ in range(min(batch_size, len(pending)))]
        ids, marks = [one for _, one in batch], array("q")

        def mark(name: str, ids: Sequence[int] = ids, marks: array[int] = marks) -> None:
            if name == TOKEN:
                marks.append(time.perf_counter_ns())
                if settings.counts_tokens and len(marks) == 1:
                    loadgen.FirstTokenComplete([loadgen.QuerySampleResponse(one, 0, 0) for one in ids])

        operation.reset()
        operation.run(mark)
        synchronize()
        end_ns = time.perf_counter_ns()
        count = (operation.new_tokens or 0) if not operation.streams else len(marks)
        tokens = (count,) if settings.counts_tokens else ()
        loadgen.QuerySamplesComplete([loadgen.QuerySampleResponse(one, 0, 0, *tokens) for one in ids])
        times = tuple(marks)
        for place, _ in batch:
            log.end_ns[place], log.tokens_ns[place] = end_ns, times


def _test(settings: ScenarioSettings, log: _Log, waiting: SimpleQueue[Any]) -> None:
    """Run loadgen's test. Its queries go to `waiting`, followed by an error or the end."""
    import mlperf_loadgen as loadgen

    def issue(samples: Sequence[Any]) -> None:
        at_ns, first = time.perf_counter_ns(), len(log.sent_ns)
        log.sent_ns.extend([at_ns] * len(samples))
        waiting.put([(first + place, one.id) for place, one in enumerate(samples)])

    try:
        system = loadgen.ConstructSUT(issue, lambda: None)
        library = loadgen.ConstructQSL(1, 1, lambda samples: None, lambda samples: None)
        unread = str(
            Path(settings.folder) / "no-audit.config"
        )  # else a file in the working directory could change the test
        try:
            loadgen.StartTestWithLogSettings(system, library, _test_settings(settings), _log_settings(settings), unread)
        finally:
            loadgen.DestroyQSL(library)
            loadgen.DestroySUT(system)
    except Exception as error:  # noqa: BLE001 - passed on to the waiting thread
        waiting.put(error)
    else:
        waiting.put(ENDED)


def _test_settings(settings: ScenarioSettings) -> Any:
    import mlperf_loadgen as loadgen

    made = loadgen.TestSettings()
    made.scenario = getattr(loadgen.TestScenario, NAMES[settings.scenario])
    made.mode = loadgen.TestMode.PerformanceOnly
    by_number = settings.number is not None
    made.min_duration_ms = 0 if by_number else round(settings.duration_s * 1000)
    made.min_query_count = settings.number or 1
    if not by_number:
        made.max_query_count = MAX_REQUESTS // _samples(settings)
    made.qsl_rng_seed = made.sample_index_rng_seed = made.schedule_rng_seed = settings.seed
    made.multi_stream_samples_per_query = settings.samples_per_query
    made.use_token_latencies = settings.counts_tokens
    if settings.scenario == "server":
        made.server_target_qps = settings.rate
        made.server_target_latency_ns = round((settings.latency_ms or 0) * NS_PER_MS)
    if settings.counts_tokens:
        made.ttft_latency = round((settings.first_token_ms or 0) * NS_PER_MS)
        made.tpot_latency = round((settings.per_token_ms or 0) * NS_PER_MS)
    return made


def _samples(settings: ScenarioSettings) -> int:
    return settings.samples_per_query if settings.scenario == "multi-stream" else 1


def _log_settings(settings: ScenarioSettings) -> Any:
    """Log settings. Only the server scenario needs the trace, which holds its schedule."""
    import mlperf_loadgen as loadgen

    output = loadgen.LogOutputSettings()
    output.outdir, output.prefix, output.copy_summary_to_stdout = settings.folder, PREFIX, False
    made = loadgen.LogSettings()
    made.log_output, made.enable_trace = output, settings.scenario == "server"
    return made


def issue_delays_ns(trace: str) -> dict[int, int]:
    """Delay in ns from a sample's scheduled start to its issue, by its position in the order of issue; from loadgen's
    trace."""
    found = {}
    for line in trace.splitlines():
        if '"issue_start_ns"' in line:
            about = json.loads(line.rstrip().rstrip(","))["args"]
            found[about["sample_seq"]] = about["issue_start_ns"]
    return found


def figures(detail: str) -> dict[str, Json]:
    """loadgen's own figures from its detailed log; the last value of each key."""
    events = (json.loads(line[len(MARK) :]) for line in detail.splitlines() if line.startswith(MARK))
    return {one["key"]: one["value"] for one in events if one["key"].startswith(KEPT)}


def _requests(
    operation: Operation,
    point: Point,
    log: _Log,
    delays_ns: Mapping[int, int],
    launch: int,
    started_at: str,
) -> Requests:
    """The samples in order of issue, which matches the schedule; times in ms since the first start."""
    places = range(len(log.sent_ns))
    intended_ns = [sent - delays_ns.get(place, 0) for place, sent in enumerate(log.sent_ns)]
    zero_ns = min(intended_ns)
    keeps_all = operation.streams and sum(map(len, log.tokens_ns.values())) <= MAX_ARRIVALS
    prompt = operation.prompt_tokens_per_call

    def ms(value: int) -> float:
        return round((value - zero_ns) / NS_PER_MS, 3)

    def tokens_out(place: int) -> int | None:
        if operation.new_tokens is None:
            return None
        return len(log.tokens_ns[place]) if operation.streams else operation.new_tokens

    absent = (None,) * len(places)
    return Requests(
        launch=launch,
        phase="measure",
        started_at=started_at,
        intended_ms=tuple(map(ms, intended_ns)),
        sent_ms=tuple(map(ms, log.sent_ns)),
        first_token_ms=tuple(ms(times[0]) if (times := log.tokens_ns[place]) else None for place in places),
        token_ms=tuple(tuple(map(ms, log.tokens_ns[place])) if keeps_all else () for place in places),
        end_ms=tuple(ms(log.end_ns[place]) for place in places),
        tokens_in=absent if prompt is None else (prompt // point.batch_size,) * len(places),
        tokens_out=tuple(map(tokens_out, places)),
        cached_tokens=absent,
        error=absent,
        detail=absent,
        meets_limits=absent,
        conversation=absent,
        turn=absent,
    )
