"""Requests in flight are part of the point: asked for, refused where a runtime cannot, and never another number."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarking.batch.model_list import Entry
from benchmarking.batch.planning import cell_requests
from benchmarking.core.contracts import Operation
from benchmarking.core.errors import BenchhouseError, UnsupportedError, UsageError
from benchmarking.core.records import Cell, Device, Point, Readings
from benchmarking.measure.point import check_requests
from benchmarking.measure.settings import settings
from benchmarking.runtimes.eager import PLUGIN as EAGER
from benchmarking.runtimes.openvino import PLUGIN as OPENVINO
from benchmarking.runtimes.support.lookup import check_numbers, why_not_requests
from benchmarking.sweep.plan.plan import grid
from benchmarking.sweep.plan.request import Request, plan_cell
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
    """An operation that starts this many requests in a call; without a number, as many as an operation ordinarily."""

    def __init__(self, requests=None):
        if requests is not None:
            self.requests_per_call = requests

    def run(self, mark):
        return None

    def problem(self, output):
        return None

    def count(self):
        return Readings()


def test_a_call_with_another_number_of_requests_than_the_points_is_not_measured():
    check_requests(Calls(4), FOUR)
    check_requests(Calls(), ALONE)
    with pytest.raises(BenchhouseError, match="point b2 s8 c4: concurrency 4 was requested, but a call runs 2 at once"):
        check_requests(Calls(2), FOUR)
    with pytest.raises(BenchhouseError, match="but a call runs 1 at once"):
        check_requests(Calls(), FOUR)
    with pytest.raises(BenchhouseError, match="point b2 s8: concurrency 1 was requested, but a call runs 2 at once"):
        check_requests(Calls(2), ALONE)


def test_a_runtime_that_runs_one_request_at_a_time_refuses_more():
    assert why_not_requests(cell("eager", {}), ALONE) is None
    assert why_not_requests(cell("eager", {}), FOUR) == "runtime eager runs one request at a time here"
    assert why_not_requests(cell(), FOUR).endswith("one request at a time here: take --hint throughput for more")
    assert why_not_requests(cell(mode=THROUGHPUT), FOUR) is None


def test_a_number_is_asked_for_where_several_run_and_only_there():
    check_numbers(OPENVINO, THROUGHPUT, (1, 2))
    check_numbers(OPENVINO, LATENCY, None)
    check_numbers(EAGER, {}, (1, 4))  # of which the points decide
    with pytest.raises(UsageError, match=r"runtime openvino runs several requests at once .* say how many with --conc"):
        check_numbers(OPENVINO, THROUGHPUT, None)
    with pytest.raises(UnsupportedError, match="runtime eager runs one request at a time here"):
        check_numbers(EAGER, {}, (4,))


def test_points_beyond_what_a_runtime_runs_are_refused_in_the_plan_or_skipped():
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
    entry = Entry(model_id="tiny-bert", where="here", own={"concurrency": (2,), "grids": ({}, {"concurrency": (4,)})})
    (ask,) = cell_requests([entry], {}, ())
    assert [one.concurrency for one in ask.requests] == [(2,), (4,)]
    (ask,) = cell_requests([entry], {"concurrency": (8,)}, ())
    assert {one.concurrency for one in ask.requests} == {(8,)}
    (ask,) = cell_requests([Entry(model_id="tiny-bert", where="here")], {}, ())
    assert ask.requests[0].concurrency is None
