"""Requests in flight are part of the point, and refused by runtimes that run one request at a time."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from benchmarking.batch.cell_plans import cell_requests
from benchmarking.batch.model_list import Entry
from benchmarking.core.contracts import Completion, Operation
from benchmarking.core.errors import BenchhouseError, UnsupportedError, UsageError
from benchmarking.core.records import Cell, Device, Point, Readings
from benchmarking.devices.cpu import CpuHandle
from benchmarking.measure.aggregate import rate_metrics
from benchmarking.measure.context import MeasureContext, settings
from benchmarking.measure.point import measure_point
from benchmarking.measure.timing import (
    ConcurrentStopwatch,
    check_requests,
    run_untimed,
    settings_in_flight,
    stopwatch,
)
from benchmarking.runtimes.eager import PLUGIN as EAGER
from benchmarking.runtimes.onnxruntime import PLUGIN as ONNXRUNTIME
from benchmarking.runtimes.openvino import PLUGIN as OPENVINO
from benchmarking.runtimes.support.worker_threads import WorkersOperation
from benchmarking.sweep.plan.plan import grid
from benchmarking.sweep.plan.request import Request, check_numbers, plan_cell, why_not_requests
from benchmarking.sweep.run.reference import reference_key
from benchmarking.workloads.support.footprint import activation_bytes
from benchmarking.workloads.support.resolve import resolve

LATENCY, THROUGHPUT = {"hint": "latency"}, {"hint": "throughput"}
ALONE = Point(batch_size=2, sequence_length=8)
FOUR = replace(ALONE, concurrency=4)


def cell(runtime="openvino", mode=LATENCY):
    device = Device(type="cpu", selector="cpu", found=True)
    workload = resolve("tiny-bert", weights="random")
    return Cell(workload=workload, device=device, requested_device="cpu", runtime=runtime, runtime_mode=mode)


def request(**fields):
    return Request(model_id="tiny-bert", device="null", weights="random", settings=settings("quick"), **fields)


class Calls(Operation):
    """An operation with this number of requests in flight; without a number, the default."""

    def __init__(self, requests=None):
        if requests is not None:
            self.requests_in_flight = requests

    def run(self, mark):
        return None

    def problem(self, output):
        return None

    def count(self):
        return Readings()


def test_wrong_number_of_requests_in_flight_is_not_measured():
    check_requests(Calls(4), FOUR, settings("quick"))
    check_requests(Calls(), ALONE, settings("quick"))
    with pytest.raises(
        BenchhouseError, match="b2 s8 c4: concurrency 4 was requested, but the runtime keeps 2 in flight"
    ):
        check_requests(Calls(2), FOUR, settings("quick"))
    with pytest.raises(BenchhouseError, match="but the runtime keeps 1 in flight"):
        check_requests(Calls(), FOUR, settings("quick"))
    with pytest.raises(BenchhouseError, match="b2 s8: concurrency 1 was requested, but the runtime keeps 2 in flight"):
        check_requests(Calls(2), ALONE, settings("quick"))
    with pytest.raises(BenchhouseError, match="3 timed requests cannot keep 4 in flight: use --iterations 40 or more"):
        check_requests(Calls(4), FOUR, settings("quick", iterations=3))
    check_requests(Calls(4), FOUR, settings("quick", iterations=4))


def test_a_runtime_that_runs_one_request_at_a_time_refuses_more():
    assert why_not_requests(cell("eager", {}), ALONE) is None
    assert why_not_requests(cell("eager", {}), FOUR) == "runtime eager runs one request at a time here"
    assert why_not_requests(cell(), FOUR).endswith("one request at a time here: use --hint throughput for more")
    assert why_not_requests(cell(mode=THROUGHPUT), FOUR) is None


def test_a_device_number_is_required_only_if_there_are_several_devices():
    check_numbers(OPENVINO, THROUGHPUT, (1, 2))
    check_numbers(OPENVINO, LATENCY, None)
    check_numbers(ONNXRUNTIME, {}, None)
    check_numbers(EAGER, {}, (1, 4))  # of which the points decide
    with pytest.raises(UsageError, match=r"runtime openvino keeps several requests in flight .* set --conc"):
        check_numbers(OPENVINO, THROUGHPUT, None)
    with pytest.raises(UnsupportedError, match="runtime eager runs one request at a time here"):
        check_numbers(EAGER, {}, (4,))


def test_unsupported_points_are_refused_in_the_plan_or_skipped():
    with pytest.raises(UsageError, match="point b1 s32 c4: runtime null runs one request at a time here"):
        plan_cell(request(batch_sizes=(1,), sequence_lengths=(32,), concurrency=(1, 4)), "session")
    plan = plan_cell(
        request(batch_sizes=(1,), sequence_lengths=(32,), concurrency=(1, 4), skip_unsupported=True), "session"
    )
    assert plan.skipped == {"b1 s32 c4": "runtime null runs one request at a time here"}
    assert [point.label for point in plan.runnable] == ["b1 s32"]


def test_requests_multiply_work_and_memory_but_not_the_compared_outputs():
    points = grid({"batch_size": (1, 2), "concurrency": (1, 3)})
    assert [point.label for point in points] == ["b1", "b2", "b1 c3", "b2 c3"]
    assert activation_bytes(cell(), FOUR) == 4 * activation_bytes(cell(), ALONE)
    eager = cell("eager", {})
    assert reference_key(eager, FOUR) == reference_key(eager, ALONE)


def test_a_batch_takes_the_numbers_from_a_list_a_grid_or_a_flag():
    entry = Entry(
        model_id="tiny-bert",
        location="here",
        model_settings={"concurrency": (2,), "grids": ({}, {"concurrency": (4,)})},
    )
    (ask,) = cell_requests([entry], {}, ())
    assert [one.concurrency for one in ask.requests] == [(2,), (4,)]
    (ask,) = cell_requests([entry], {"concurrency": (8,)}, ())
    assert {one.concurrency for one in ask.requests} == {(8,)}
    (ask,) = cell_requests([Entry(model_id="tiny-bert", location="here")], {}, ())
    assert ask.requests[0].concurrency is None


class Sleep(Calls):
    """A request of 10 ms, or of the given times in turn, that counts concurrent runs."""

    items_per_call = 2
    running = most = started = 0
    lock = threading.Lock()

    def __init__(self, until=lambda: True):
        super().__init__()
        self.until, self.calls = until, 0

    def run(self, mark):
        with Sleep.lock:
            Sleep.running += 1
            Sleep.started += 1
            Sleep.most = max(Sleep.most, Sleep.running)
            self.calls += 1
        limit_s = time.monotonic() + 20
        time.sleep(0.01)
        while not self.until() and time.monotonic() < limit_s:
            time.sleep(0.001)
        mark("encode")
        with Sleep.lock:
            Sleep.running -= 1
        return Sleep.most

    def arrays(self, output):
        return {"out": np.ones(1)}


@pytest.fixture
def workers():
    """A function that creates an operation with a number of workers."""
    made = []

    def start(*operations):
        Sleep.running = Sleep.most = Sleep.started = 0
        made.append(WorkersOperation(operations))
        return made[-1]

    yield start
    for operation in made:
        operation.close()


def test_a_worker_starts_its_next_request_without_waiting_for_the_others(workers):
    slow = Sleep(until=lambda: Sleep.started == 12)
    fast = Sleep(until=lambda: slow.calls > 0)
    done = workers(slow, fast).keep_in_flight(12, time.perf_counter_ns)
    assert (len(done), Sleep.started, Sleep.most) == (12, 12, 2)
    assert (slow.calls, fast.calls) == (1, 11)  # awaiting both each time would be six calls of each
    assert [one.completed_ns for one in done] == sorted(one.completed_ns for one in done)
    assert all([name for name, _ in one.marks] == ["encode"] for one in done)


def test_a_request_counts_from_the_end_of_the_one_before_it(workers):
    """What a worker waits for the interpreter or a processor between two requests is part of the second one's time."""
    ticks = count()
    operation, began = workers(Sleep(), Sleep()), 0
    done = operation.keep_in_flight(12, lambda: next(ticks))
    ends = {one.completed_ns for one in done}
    assert all(one.submitted_ns in {began, *ends} for one in done)
    later = [one.submitted_ns for one in done if one.submitted_ns != began]
    assert len(set(later)) == len(later) == len(done) - 2, "each place begins again when it ends"


def test_requests_in_flight_end_after_the_time_limit(workers):
    operation = workers(Sleep(), Sleep(), Sleep())
    assert len(operation.keep_in_flight(100, time.perf_counter_ns, until_ns=0.0, least=5)) == 5
    assert operation.verified() == {"requests": 3, "requests_agree": True}


def test_samples_are_latencies_of_requests_and_throughput_counts_them_over_the_wall_time(workers):
    point = Point(batch_size=2, concurrency=4)
    operation = workers(*(Sleep() for _ in range(4)))
    measurement = measure_point(operation, CpuHandle(), point, 0, settings("quick", iterations=40, warmup_iterations=4))
    (wall,) = [one.values for one in measurement.samples if one.metric == "latency_wall" and one.phase == "measure"]
    assert len(wall) == 40
    assert min(wall) >= 10  # a request's own time: of a whole round there would be 10 values
    rates = rate_metrics([measurement])
    seconds = measurement.extra["requests_wall_ms"] / 1000
    assert rates["throughput_samples_per_sec"] == pytest.approx(40 * 2 / seconds)
    assert 0.1 <= seconds < sum(wall) / 1000 / 2
    assert measurement.extra["memory_calls"] % 8 == 0  # whole rounds, for at least 25 ms


def test_stopping_rule_uses_complete_rounds_of_requests():
    three = settings_in_flight(settings("quick"), 3)
    assert (three.min_samples, three.max_samples) == (30, 201)
    assert settings_in_flight(settings("quick"), 1) == settings("quick")
    assert isinstance(
        stopwatch(MeasureContext(operation=Calls(3), handle=CpuHandle(), settings=three)), ConcurrentStopwatch
    )


class SlowCalls(Calls):
    """Requests of 5 ms, one after another."""

    def keep_in_flight(self, count, now_ns, until_ns=float("inf"), least=0):
        done = []
        while len(done) < count and (len(done) < least or now_ns() < until_ns):
            submitted = now_ns()
            time.sleep(0.005)
            done.append(Completion(submitted_ns=submitted, completed_ns=now_ns()))
        return done


@pytest.mark.parametrize(("left_s", "requests"), [(0.03, range(3, 8)), (-1.0, [3])])
def test_no_request_starts_after_the_deadline_and_those_in_flight_complete(left_s, requests):
    within = replace(settings("quick"), deadline_s=time.monotonic() + left_s)
    context = MeasureContext(operation=SlowCalls(3), handle=CpuHandle(), settings=within)
    watch = stopwatch(context)
    watch.run(1000)
    assert len(watch) in requests
    assert run_untimed(context, 1000) == 3
