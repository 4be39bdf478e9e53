"""Calls under OpenVINO's own profiler: the graphs compiled once more with performance counters (PERF_COUNT), which tell
the time of each node after a run.

The execution graph says which layers of the file a node was fused from (originalLayersNames); the first of them that
came from a module is the node's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from benchmarking.core.contracts import Operation
from benchmarking.core.errors import BenchhouseError
from benchmarking.core.metrics import ns_to_ms
from benchmarking.core.model_contracts import GraphRunner, Placed
from benchmarking.core.profiles import OUTSIDE, Breakdown, CallProfiler
from benchmarking.core.records import Cell, Point
from benchmarking.graphs.bundle import Graph
from benchmarking.graphs.profiling import NodeTime, Origins, breakdown
from benchmarking.graphs.session import find_bundle
from benchmarking.runtimes.support.openvino.build import SOURCE_PRECISION
from benchmarking.runtimes.support.openvino.nodes import NO_WORK
from benchmarking.runtimes.support.openvino.session import OpenVinoRunner

PERF_COUNT = "PERF_COUNT"
ORIGINALS = "originalLayersNames"


class ProfilingRunner(OpenVinoRunner):
    """Graphs in one request each, whose nodes' times are read after every run."""

    def __init__(self, compiled: Mapping[str, Any], graphs: Mapping[str, Graph], origins: Origins) -> None:
        super().__init__(compiled, graphs, dict)
        self.nodes: list[NodeTime] = []
        """Of the runs since `begin_call`."""
        self.read_ns = 0
        """Spent on reading since then, which is no part of a call."""
        self._compiled = compiled
        self._origins = origins
        self._named: dict[str, dict[str, str]] = {}

    def begin_call(self) -> None:
        """Forget the runs so far."""
        self.nodes, self.read_ns = [], 0

    def call(self, graph: str, feeds: Mapping[str, Placed]) -> Mapping[str, Placed]:
        outputs = super().call(graph, feeds)
        self._read(graph)
        return outputs

    def step(self, graph: str, feeds: Mapping[str, Placed], states: None) -> tuple[Mapping[str, Placed], None]:
        outputs = super().step(graph, feeds, states)
        self._read(graph)
        return outputs

    def _read(self, graph: str) -> None:
        begin_ns = time.perf_counter_ns()
        named = self._named.get(graph)
        if named is None:  # before the first run, what depends on shapes is not compiled yet
            named = self._named[graph] = originals(self._compiled[graph], graph, self._origins)
        for info in self._by_graph[graph].request.get_profiling_info():
            if info.status == info.Status.EXECUTED and info.node_type not in NO_WORK:
                self.nodes.append(
                    NodeTime(
                        graph=graph,
                        name=named.get(info.node_name, info.node_name),
                        operator=info.node_type,
                        placed=info.exec_type,
                        ms=info.real_time.total_seconds() * 1e3,
                    )
                )
        self.read_ns += time.perf_counter_ns() - begin_ns


class OpenVinoProfiler(CallProfiler):
    """A point's call on a profiling runner."""

    def __init__(
        self, runner: ProfilingRunner, operation_on: Callable[[GraphRunner], Operation], origins: Origins
    ) -> None:
        self._runner = runner
        self._operation = operation_on(runner)
        self._origins = origins
        self._calls: list[tuple[list[NodeTime], int]] = []

    def run(self, *, is_kept: bool = True) -> int:
        self._operation.reset()
        self._runner.begin_call()
        begin_ns = time.perf_counter_ns()
        self._operation.run(lambda name: None)
        elapsed_ns = time.perf_counter_ns() - begin_ns - self._runner.read_ns
        if is_kept:
            self._calls.append((self._runner.nodes, elapsed_ns))
        return elapsed_ns

    def breakdown(self) -> Breakdown:
        nodes = [nodes for nodes, _ in self._calls]
        return breakdown(nodes, [ns_to_ms(elapsed_ns) for _, elapsed_ns in self._calls], self._origins)


def originals(compiled: Any, graph: str, origins: Origins) -> dict[str, str]:
    """Name of a node that runs -> the first layer it was fused from that came from a module; without one its own."""
    try:
        operations = compiled.get_runtime_model().get_ops()
    except RuntimeError:  # a plugin without an execution graph
        return {}
    found: dict[str, str] = {}
    for operation in operations:
        information: Mapping[str, Any] = operation.get_rt_info()
        names = str(information[ORIGINALS].value).split(",") if ORIGINALS in information else []
        known = next((name for name in names if origins.module(graph, name) != OUTSIDE), None)
        if known is not None:
            found[operation.get_friendly_name()] = known
    return found


def source_origins(cell: Cell, point: Point, graphs: Mapping[str, Graph]) -> Origins:
    """The modules of the ONNX files that a build was converted from; none when they were deleted from the cache."""
    try:
        folder = find_bundle(cell, point, SOURCE_PRECISION)
    except BenchhouseError:
        return Origins.of({})
    return Origins.of({name: folder / graph.file for name, graph in graphs.items()})
