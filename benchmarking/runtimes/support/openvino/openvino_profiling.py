"""Calls under OpenVINO's own profiler: graphs compiled once more with performance counters (PERF_COUNT), which report
the time of each node.

A plug-in optimises the graph before running it, and the resulting nodes have names of their own. So `tag_modules` first
tags each operation with its module, in the attribute that plug-ins propagate to the nodes made from an operation and
show in the execution graph (originalLayersNames). A node fused from several modules belongs to the first one.

2026-11-23: the counters of OpenVINO's CPU plug-in are whole microseconds, averaged over all runs since compilation (as
seen with a graph that ran once for 2000 rows and then for one). The time of the runs between two readings is the
difference of mean x number of runs. Other plug-ins report the last run, and are read after each run.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarking.core.contracts import Operation
from benchmarking.core.errors import BenchhouseError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import ns_to_ms
from benchmarking.core.model_contracts import GraphRunner, Placed
from benchmarking.core.profiles import OUTSIDE, Breakdown, CallProfiler
from benchmarking.core.records import Cell, Point
from benchmarking.graphs.bundle import Graph
from benchmarking.graphs.exported_model import find_bundle
from benchmarking.graphs.profiling import NodeTime, Origins, breakdown, infer_modules
from benchmarking.runtimes.support.openvino.compile import SOURCE_PRECISION
from benchmarking.runtimes.support.openvino.openvino_session import NO_WORK, OpenVinoRunner

ONNX = ".onnx"
ORIGINALS = "originalLayersNames"
LAYER = "layerType"
MODULE = "module:"
"""Prefix of a module's path among the layer names."""
PROCESSOR = "CPU"


@dataclass(slots=True)
class NodeTotals:
    """A node's totals over the runs of a profile."""

    operator: str
    placed: str
    ms: float = 0.0
    """Total of all runs."""
    runs: int = 0
    last_ms: float = 0.0
    """Mean x number of runs at the last reading, for a plug-in that reports means."""


class ProfilingRunner(OpenVinoRunner):
    """Graphs with one request each, whose counters are read."""

    def __init__(self, compiled: Mapping[str, Any], graphs: Mapping[str, Graph]) -> None:
        super().__init__(compiled, graphs, dict)
        self.reports_means = {
            name: all(str(device).startswith(PROCESSOR) for device in model.get_property("EXECUTION_DEVICES"))
            for name, model in compiled.items()
        }
        """Whether a graph's counters are means over all its runs, by graph."""
        self.nodes: dict[tuple[str, str], NodeTotals] = {}
        """Nodes over the runs since `restart`."""
        self.read_ns = 0
        """Time spent on reading since then, which does not belong to a call."""
        self._runs = Counter[str]()
        self._since = Counter[str]()

    def restart(self) -> None:
        """Start over: earlier runs do not count."""
        self.read()
        self.nodes = {
            key: NodeTotals(node.operator, node.placed, last_ms=node.last_ms) for key, node in self.nodes.items()
        }
        self._since = Counter(self._runs)
        self.read_ns = 0

    def read(self) -> None:
        """Add the runs since the last reading, for graphs whose counters are means."""
        for graph, reports_means in self.reports_means.items():
            if reports_means and self._runs[graph]:
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
        if not self.reports_means[graph]:
            self._read(graph)

    def _read(self, graph: str) -> None:
        begin_ns = time.perf_counter_ns()
        runs = self._runs[graph]
        for info in self._by_graph[graph].request.get_profiling_info():
            if info.status != info.Status.EXECUTED or info.node_type in NO_WORK:
                continue
            node = self.nodes.setdefault((graph, info.node_name), NodeTotals(info.node_type, info.exec_type))
            reported_ms = info.real_time.total_seconds() * 1e3
            if self.reports_means[graph]:
                node.ms += max(runs * reported_ms - node.last_ms, 0.0)
                node.last_ms, node.runs = runs * reported_ms, runs - self._since[graph]
            else:
                node.ms, node.runs = node.ms + reported_ms, node.runs + 1
        self.read_ns += time.perf_counter_ns() - begin_ns


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
        """`marks` are the modules with which each graph's operations were tagged (`tag_modules`)."""
        self._compiled = compiled
        self._marks = marks
        self._runner = ProfilingRunner(compiled, graphs)
        self._operation = operation_on(self._runner)
        self._origins = origins
        self._calls_ns: list[int] = []

    def run(self, *, is_kept: bool = True) -> int:
        self._operation.reset()
        if is_kept and not self._calls_ns:
            self._runner.restart()
        read_ns = self._runner.read_ns
        begin_ns = time.perf_counter_ns()
        self._operation.run(lambda name: None)
        elapsed_ns = time.perf_counter_ns() - begin_ns - (self._runner.read_ns - read_ns)
        if is_kept:
            self._calls_ns.append(elapsed_ns)
        return elapsed_ns

    def breakdown(self) -> Breakdown:
        """Breakdown of the mean call, since the times of single calls are unknown."""
        self._runner.read()
        modules = {
            name: modules_by_node(model, self._marks[name], self._origins.module_infos)
            for name, model in self._compiled.items()
        }
        calls, mean = len(self._calls_ns), list[NodeTime]()
        for (graph, name), node in self._runner.nodes.items():
            executions = max(round(node.runs / calls), 1)  # in the mean call, with equal times
            execution = NodeTime(
                graph=graph,
                name=name,
                operator=node.operator,
                placed=node.placed,
                module=modules[graph].get(name, OUTSIDE),
                ms=node.ms / calls / executions,
            )
            mean += [execution] * executions if node.ms else []
        return breakdown([mean], [ns_to_ms(ns) for ns in self._calls_ns], self._origins, has_samples=False)


def tag_modules(model: Any, graph: str, origins: Origins) -> dict[str, str]:
    """Tag each operation of a model with its module. Returns modules by operation name.

    An operation has the name of its node in the ONNX file or, if it was rewritten, of the node's tensor. Operations
    added by the conversion belong to the modules that use their results.
    """
    operations = model.get_ordered_ops()
    known: dict[str, str] = {}
    for operation in operations:
        name = operation.get_friendly_name()
        tensors = [tensor for output in operation.outputs() for tensor in output.get_names()]
        if (module := origins.module(graph, name)) != OUTSIDE:
            known[name] = module
        elif (key := next(((graph, each) for each in tensors if (graph, each) in origins.tensors), None)) is not None:
            known[name] = origins.tensors[key]
    modules = infer_modules(_producers(operations), known, origins.module_infos)
    for operation in operations:
        if operation.get_friendly_name() in modules:
            operation.get_rt_info()[ORIGINALS] = MODULE + modules[operation.get_friendly_name()]
    return modules


def modules_by_node(compiled: Any, marks: Mapping[str, str], paths: Mapping[str, Any]) -> dict[str, str]:
    """Modules by name of the executed node; `marks` are those of the operations from which nodes were made."""
    try:
        nodes = compiled.get_runtime_model().get_ordered_ops()
    except RuntimeError:  # a plugin without an execution graph
        return dict(marks)
    known: dict[str, str] = {}
    for node in nodes:
        name, information = node.get_friendly_name(), node.get_rt_info()
        originals = str(information[ORIGINALS].value).split(",") if ORIGINALS in information else []
        modules = [one.removeprefix(MODULE) if one.startswith(MODULE) else marks.get(one) for one in (*originals, name)]
        known_modules = [module for module in modules if module is not None]
        if known_modules:
            known[name] = next((module for module in known_modules if module != OUTSIDE), OUTSIDE)
    return infer_modules(_producers(nodes), known, paths)


def _producers(operations: Sequence[Any]) -> dict[str, list[str]]:
    """Computing operations in order, each with those whose results it uses. Constants are left out, as different
    modules may share them."""
    computing = {node.get_friendly_name(): node for node in operations if _type(node) not in NO_WORK}
    sources = {
        name: [port.get_source_output().get_node().get_friendly_name() for port in node.inputs()]
        for name, node in computing.items()
    }
    return {name: [source for source in names if source in computing] for name, names in sources.items()}


def _type(operation: Any) -> str:
    """The type of an operation; for a node of an execution graph, its layer's type."""
    information = operation.get_rt_info()
    return str(information[LAYER].value) if LAYER in information else operation.get_type_name()


def source_origins(cell: Cell, point: Point, graphs: Mapping[str, Graph]) -> Origins:
    """The modules of the ONNX files from which a build was converted; none if they were deleted from the cache, or if
    the build was made from OpenVINO's own files."""
    try:
        folder = find_bundle(cell, point, SOURCE_PRECISION)
    except BenchhouseError:
        return Origins.of({})
    return Origins.of({name: folder / graph.file for name, graph in graphs.items() if graph.file.endswith(ONNX)})
