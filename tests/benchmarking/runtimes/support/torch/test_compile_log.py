"""Readings from torch's compiler: graphs, breaks, recompilations, seconds. The backend "eager" compiles no code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import torch

from benchmarking.core.contracts import Operation
from benchmarking.core.records import Point, Readings
from benchmarking.devices.cpu import CpuHandle
from benchmarking.measure.context import Settings
from benchmarking.measure.point import measure_point
from benchmarking.runtimes.support.torch.compiling import CompileLog


@pytest.fixture
def log() -> Iterator[CompileLog]:
    with ExitStack() as cleanup:
        yield CompileLog.begin(cleanup)


def compiled(function):
    return torch.compile(function, backend="eager", dynamic=False)


def test_log_starts_empty(log):
    compiled(lambda x: x + 1)(torch.ones(2))
    with ExitStack() as cleanup:
        begun = CompileLog.begin(cleanup)
        assert (begun.compiles(), begun.graphs(), begun.seconds()) == (0, 0, 0)


def test_one_graph_is_one_graph(log):
    function = compiled(lambda x: x * 2 + 1)
    function(torch.ones(3))
    function(torch.ones(3))
    verified = log.verified()
    assert (verified["graph_count"], verified["graph_break_count"], verified["recompile_count"]) == (1, 0, 0)
    assert verified["compile_s"] == log.seconds() > 0
    assert log.compiles() == 1


def test_graph_break_has_a_reason_and_makes_two_graphs(log):
    def broken(x):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    compiled(broken)(torch.ones(3))
    verified = log.verified()
    assert (verified["graph_count"], verified["graph_break_count"], verified["recompile_count"]) == (2, 1, 0)
    assert "graph_break" in verified["graph_break_reasons"][0]


def test_new_shape_is_a_recompilation_with_its_reason(log):
    function = compiled(lambda x: x * 2)
    for size in (2, 3, 4):
        function(torch.ones(size))
    verified = log.verified()
    assert (verified["graph_count"], verified["recompile_count"]) == (3, 2)
    assert len(verified["recompile_reasons"]) == 2
    assert "size mismatch" in verified["recompile_reasons"][0]


def test_recording_a_cuda_graph_is_work_of_the_compiler_and_no_recompilation(log):
    """By torch's own timer, as its CUDA graphs use it when they are recorded for the second compilation of a frame."""
    from torch._dynamo.utils import dynamo_timed, get_runtime_metrics_context
    from torch._guards import CompileId

    compiled(lambda x: x * 2)(torch.ones(2))
    second = CompileId(frame_id=0, frame_compile_id=1)
    column = "runtime_cudagraphify_time_us"
    with dynamo_timed("record_function", compile_id=second, dynamo_compile_column_us=column):
        pass
    get_runtime_metrics_context().finish()
    assert log.compiles() == 2
    assert log.verified()["recompile_count"] == 0


def test_exceeding_the_recompile_limit_raises(log):
    function, limit = compiled(lambda x: x * 2), torch._dynamo.config.recompile_limit
    for size in range(2, 2 + limit):
        function(torch.ones(size))
    with pytest.raises(Exception, match="recompile_limit"):
        function(torch.ones(2 + limit))


class Growing(Operation):
    """A compiled call whose input has another shape in one of the calls."""

    items_per_call = 1

    def __init__(self, changes_at):
        self.calls, self.changes_at = 0, changes_at
        self.function = compiled(lambda x: x * 2)

    def run(self, mark):
        self.calls += 1
        return self.function(torch.ones(3 if self.calls == self.changes_at else 2))

    def problem(self, output):
        return None

    def count(self):
        return Readings()


@pytest.mark.parametrize(("changes_at", "compiles"), [(8, 1), (3, None)])
def test_a_recompilation_among_the_timed_calls_invalidates_the_result(log, changes_at, compiles):
    """A first call, 4 of warm-up, 6 timed ones: the 8th call is timed, the 3rd is not."""
    settings = Settings(fixed_iterations=6, fixed_warmup_iterations=4, memory_calls=0)
    result = measure_point(
        Growing(changes_at), CpuHandle(), Point(batch_size=1), 0, settings, compile_count=log.compiles
    )
    found = [one for one in result.doubts if one.kind == "compiled_in_window"]
    if compiles is None:
        assert found == []
        return
    (doubt,) = found
    assert (doubt.severity, doubt.evidence["compiles"]) == ("invalid", compiles)
