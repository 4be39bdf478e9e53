"""Calls under OpenVINO's own profiler: the graphs compiled once more with performance counters (PERF_COUNT), which tell
the times of the nodes that ran.

A plug-in optimises the graph before it runs it, and what it makes has names of its own. So each operation gets its
module written into it before (`marked`), in the attribute that plug-ins pass on to what they make of an operation and
show in the execution graph (originalLayersNames). Of a node that was fused from several modules the first counts.

2026-11-23: the counters of OpenVINO's processor plug-in are whole microseconds, means over all runs since the graph was
compiled: seen with a graph that ran once for 2000 rows and then for one. What runs took between two readings is the
difference of mean times number. Other plug-ins tell of the last run, and are read after each.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarking.core.contracts import Operation
from benchmarking.core.errors import BenchhouseError
from benchmarking.core.metrics import ns_to_ms
from benchmarking.core.model_contracts import GraphRunner, Placed
from benchmarking.core.profiles import OUTSIDE, Breakdown, CallProfiler
from benchmarking.core.records import Cell, Point
from benchmarking.graphs.bundle import Graph
from benchmarking.graphs.profiling import NodeTime, Origins, breakdown, filled
from benchmarking.graphs.session import find_bundle
from benchmarking.runtimes.support.openvino.build import SOURCE_PRECISION
from benchmarking.runtimes.support.openvino.nodes import NO_WORK
from benchmarking.runtimes.support.openvino.session import OpenVinoRunner

ONNX = ".onnx"
ORIGINALS = "originalLayersNames"
LAYER = "layerType"
MODULE = "module:"
"""Begins a module's path among the names of layers."""
PROCESSOR = "CPU"


@dataclass(slots=True)
class Counted:
    """A node of a graph over the runs of a profile."""

    operator: str
    placed: str
    ms: float = 0.0
    """Of all runs together."""
    runs: int = 0
    last_ms: float = 0.0
    """Mean times number of runs at the last reading, of a plug-in that tells means."""


class ProfilingRunner(OpenVinoRunner):
    """Graphs in one request each, whose counters are read."""

    def __init__(self, compiled: Mapping[str, Any], graphs: Mapping[str, Graph]) -> None:
        super().__init__(compiled, graphs, dict)
        self.tells_means = {name: _is_on_processor(model) for name, model in compiled.items()}
        """Graph -> whether its counters are means over all its runs."""
        self.nodes: dict[tuple[str, str], Counted] = {}
        """Of the runs since `forget`."""
        self.read_ns = 0
        """Spent on reading since then, which is no part of a call."""
        self._runs = Counter[str]()
        self._since = Counter[str]()

    def forget(self) -> None:
        """Begin: what ran before does not count."""
        self.read()
        self.nodes = {key: _begun(node) for key, node in self.nodes.items()}
        self._since = Counter(self._runs)
        self.read_ns = 0

    def read(self) -> None:
        """Add what the runs of graphs whose counters are means took since the last reading."""
        for graph, tells_means in self.tells_means.items():
            if tells_means and self._runs[graph]:
                self._read(graph)

    def call(self, graph: str, feeds: Mapping[str, Placed]) -> Mapping[str, Placed]:
        outputs = super().call(graph, feeds)
        self._ran(graph)
        return outputs

    def step(self, graph: str, feeds: Mapping[str, Placed], states: None) -> tuple[Mapping[str, Placed], None]:
        outputs = super().step(graph, feeds, states)
        self._ran(graph)
        return outputs

    def _ran(self, graph: str) -> None:
        self._runs[graph] += 1
        if not self.tells_means[graph]:
            self._read(graph)

    def _read(self, graph: str) -> None:
        begin_ns = time.perf_counter_ns()
        runs = self._runs[graph]
        for info in self._by_graph[graph].request.get_profiling_info():
            if info.status != info.Status.EXECUTED or info.node_type in NO_WORK:
                continue
            node = self.nodes.setdefault((graph, info.node_name), Counted(info.node_type, info.exec_type))
            told_ms = info.real_time.total_seconds() * 1e3
            if self.tells_means[graph]:
                node.ms += max(runs * told_ms - node.last_ms, 0.0)
                node.last_ms, node.runs = runs * told_ms, runs - self._since[graph]
            else:
                node.ms, node.runs = node.ms + told_ms, node.runs + 1
        self.read_ns += time.perf_counter_ns() - begin_ns


def _begun(node: Counted) -> Counted:
    return Counted(node.operator, node.placed, last_ms=node.last_ms)


class OpenVinoProfiler(CallProfiler):
    """A point's call on a profiling runner."""

    def __init__(
        self,
        compiled: Mapping[str, Any],
        graphs: Mapping[str, Graph],
        marks: Mapping[str, Mapping[str, str]],
        operation_on: Callable[[GraphRunner], Operation],
        origins: Origins,
    ) -> None:
        """`marks` are the modules that were written into each graph's operations (`marked`)."""
        self._compiled = compiled
        self._marks = marks
        self._runner = ProfilingRunner(compiled, graphs)
        self._operation = operation_on(self._runner)
        self._origins = origins
        self._calls_ns: list[int] = []

    def run(self, *, is_kept: bool = True) -> int:
        self._operation.reset()
        if is_kept and not self._calls_ns:
            self._runner.forget()
        read_ns = self._runner.read_ns
        begin_ns = time.perf_counter_ns()
        self._operation.run(lambda name: None)
        elapsed_ns = time.perf_counter_ns() - begin_ns - (self._runner.read_ns - read_ns)
        if is_kept:
            self._calls_ns.append(elapsed_ns)
        return elapsed_ns

    def breakdown(self) -> Breakdown:
        """Of the mean call: a single call's times are not known."""
        self._runner.read()
        found = {
            name: modules_of(model, self._marks[name], self._origins.places) for name, model in self._compiled.items()
        }
        mean = [one for node in self._runner.nodes.items() for one in self._mean_call(*node, found)]
        return breakdown([mean], [ns_to_ms(ns) for ns in self._calls_ns], self._origins, has_samples=False)

    def _mean_call(
        self, key: tuple[str, str], node: Counted, modules: Mapping[str, Mapping[str, str]]
    ) -> Sequence[NodeTime]:
        """A node's executions in the mean call, which are alike."""
        graph, name = key
        calls = len(self._calls_ns)
        executions = max(round(node.runs / calls), 1)
        one = NodeTime(
            graph=graph,
            name=name,
            operator=node.operator,
            placed=node.placed,
            module=modules[graph].get(name, OUTSIDE),
            ms=node.ms / calls / executions,
        )
        return [one] * executions if node.ms else []


def marked(model: Any, graph: str, origins: Origins) -> dict[str, str]:
    """Write into each operation of a model which module it is of: name of the operation -> module.

    An operation has the name of its node in the ONNX file or, where that was rewritten, still the name of the node's
    tensor. What the conversion added belongs where its results are used.
    """
    operations = model.get_ordered_ops()
    known: dict[str, str] = {}
    for one in operations:
        name = one.get_friendly_name()
        tensors = [tensor for output in one.outputs() for tensor in output.get_names()]
        if (module := origins.module(graph, name)) != OUTSIDE:
            known[name] = module
        elif (found := [origins.tensors[graph, each] for each in tensors if (graph, each) in origins.tensors]) != []:
            known[name] = found[0]
    modules = filled(_producers(operations), known, origins.places)
    for one in operations:
        if one.get_friendly_name() in modules:
            one.get_rt_info()[ORIGINALS] = MODULE + modules[one.get_friendly_name()]
    return modules


def modules_of(compiled: Any, marks: Mapping[str, str], paths: Mapping[str, Any]) -> dict[str, str]:
    """Name of a node that runs -> its module; `marks` are those of the operations that it was made of."""
    try:
        nodes = compiled.get_runtime_model().get_ordered_ops()
    except RuntimeError:  # a plugin without an execution graph
        return dict(marks)
    known: dict[str, str] = {}
    for node in nodes:
        name, information = node.get_friendly_name(), node.get_rt_info()
        originals = str(information[ORIGINALS].value).split(",") if ORIGINALS in information else []
        read = [one.removeprefix(MODULE) if one.startswith(MODULE) else marks.get(one) for one in (*originals, name)]
        told = [one for one in read if one is not None]
        if told:
            known[name] = next((one for one in told if one != OUTSIDE), OUTSIDE)
    return filled(_producers(nodes), known, paths)


def _producers(operations: Sequence[Any]) -> dict[str, list[str]]:
    """What computes, in order, each with those whose results it takes: a constant may be shared by unlike modules."""
    computing = {one.get_friendly_name(): one for one in operations if _type(one) not in NO_WORK}
    sources = {
        name: [each.get_source_output().get_node().get_friendly_name() for each in one.inputs()]
        for name, one in computing.items()
    }
    return {name: [one for one in found if one in computing] for name, found in sources.items()}


def _type(operation: Any) -> str:
    """Of a node of an execution graph its layer's."""
    information = operation.get_rt_info()
    return str(information[LAYER].value) if LAYER in information else operation.get_type_name()


def _is_on_processor(compiled: Any) -> bool:
    return all(str(name).startswith(PROCESSOR) for name in compiled.get_property("EXECUTION_DEVICES"))


def source_origins(cell: Cell, point: Point, graphs: Mapping[str, Graph]) -> Origins:
    """The modules of the ONNX files that a build was converted from; none when they were deleted from the cache, or
    when it was made of OpenVINO's own files."""
    try:
        folder = find_bundle(cell, point, SOURCE_PRECISION)
    except BenchhouseError:
        return Origins.of({})
    return Origins.of({name: folder / graph.file for name, graph in graphs.items() if graph.file.endswith(ONNX)})
