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
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Literal

from benchmarking.core.contracts import Operation
from benchmarking.core.errors import BenchhouseError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.provenance import utc_now
from benchmarking.core.records import MAX_REQUESTS, Count, Json, Number, Point, PositiveCount, Requests
from benchmarking.measure.request_loop import NS_PER_MS, QueuedRequest, check_callable, requests_of, timed_call

Scenario = Literal["single-stream", "multi-stream", "offline", "server"]
SCENARIOS: tuple[Scenario, ...] = ("single-stream", "multi-stream", "offline", "server")
NAMES = {"single-stream": "SingleStream", "multi-stream": "MultiStream", "offline": "Offline", "server": "Server"}
PREFIX = "mlperf_log_"
DETAIL, TRACE = f"{PREFIX}detail.txt", f"{PREFIX}trace.json"
MARK = ":::MLLOG "
KEPT = ("result_", "early_stopping_", "effective_", "error_", "warning_", "loadgen_version", "num_errors")
"""Prefixes of the keys in loadgen's detailed log that are stored."""
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
    check_callable(operation)
    for _ in range(settings.warmup):
        timed_call(operation, synchronize, lambda: None)
    gc.collect()
    started_at, issued = utc_now(), list[QueuedRequest]()
    waiting: SimpleQueue[Any] = SimpleQueue()
    thread = threading.Thread(target=_test, args=(settings, issued, waiting), daemon=True)
    thread.start()
    _serve(operation, synchronize, point.batch_size, settings, waiting)
    thread.join()
    folder = Path(settings.folder)
    if settings.scenario == "server":
        for place, delay_ns in issue_delays_ns((folder / TRACE).read_text()).items():
            issued[place].intended_ns -= delay_ns
    requests = requests_of(issued, [operation], point.batch_size, launch, started_at)
    return requests, figures((folder / DETAIL).read_text(errors="replace"))


def _serve(
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


def _test(settings: ScenarioSettings, issued: list[QueuedRequest], waiting: SimpleQueue[Any]) -> None:
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
        output.outdir, output.prefix, output.copy_summary_to_stdout = settings.folder, PREFIX, False
        log.log_output, log.enable_trace = output, settings.scenario == "server"  # the trace holds its schedule
        try:
            test = loadgen.TestSettings()
            test.scenario = getattr(loadgen.TestScenario, NAMES[settings.scenario])
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
    events = (json.loads(line[len(MARK) :]) for line in detail.splitlines() if line.startswith(MARK))
    return {event["key"]: event["value"] for event in events if event["key"].startswith(KEPT)}
