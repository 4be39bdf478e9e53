"""Sessions of the runtime openvino, and the operations that points become in them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from benchmarking.graphs.session import graph_operation
from benchmarking.records import Cell, Json, Point, Readings
from benchmarking.runtimes import Mark, Operation, Stage
from benchmarking.runtimes._openvino_compile import Compiled, check_devices, device_name, kind_of, properties, read_back
from benchmarking.runtimes._openvino_load import Loaded, compile_at, load, weights
from benchmarking.runtimes._openvino_nodes import Node, check_kernels, described, nodes_of
from benchmarking.runtimes._openvino_runner import ConcurrentRunner, OpenVinoRunner
from benchmarking.units import NS_PER_MS

if TYPE_CHECKING:
    from benchmarking.graphs.operations import GraphOperation
    from benchmarking.workloads._processing import Processing

LATENCY_REQUEST = "latency_request"
"""Raw metric: what OpenVINO's own clock says of a request, without the way in and out of Python."""

Runner = OpenVinoRunner | ConcurrentRunner


class OpenVinoOperation:
    """A point's call: that of the graphs, with what OpenVINO itself knows of it.

    A call of several requests does the work of all of them; its latency is the time until the last is done.
    """

    def __init__(self, inner: GraphOperation, runner: Runner, compile_s: float, *, is_one_run: bool) -> None:
        self.items_per_call = inner.items_per_call * runner.requests
        self.tokens_per_call = None if inner.tokens_per_call is None else inner.tokens_per_call * runner.requests
        self.prompt_tokens_per_call = inner.prompt_tokens_per_call
        self.new_tokens = inner.new_tokens
        self._inner = inner
        self._runner = runner
        self._is_one_run = is_one_run
        self._compile_s = compile_s

    def reset(self) -> None:
        self._inner.reset()

    def run(self, mark: Mark) -> Any:
        return self._inner.run(mark)

    def problem(self, output: Any) -> str | None:
        return self._inner.problem(output)

    def readings(self, output: Any) -> Readings:
        return Readings(values={"compile_s": self._compile_s}) | self._inner.readings(output)

    def count(self) -> Readings:
        return self._inner.count()

    def arrays(self, output: Any) -> Mapping[str, Any]:
        return self._inner.arrays(output)

    def verified(self) -> Mapping[str, Json]:
        return self._runner.verified()

    def also_ns(self) -> Mapping[str, int]:
        """What the last call took by OpenVINO's clock, where a call is one run of a graph, or several at once."""
        latency_ms = self._runner.request_latency_ms() if self._is_one_run else None
        return {} if latency_ms is None else {LATENCY_REQUEST: round(latency_ms * NS_PER_MS)}


class OpenVinoSession:
    """A workload's graphs on a device of OpenVINO."""

    def __init__(self, cell: Cell, core: Any, loaded: Loaded, processing: Processing) -> None:
        self.parameter_count: int | None = loaded.bundle.parameter_count
        stored, weights_bytes = weights(loaded, cell)
        self.weights_bytes: int | None = weights_bytes
        self.verified: Mapping[str, Json] = {
            "openvino_device": device_name(cell.device),
            **stored,
            **_joined_facts(loaded.compiled),
            **loaded.page_cache,
            **processing.verified,
        }
        self._cell = cell
        self._core = core
        self._loaded = loaded
        self._processing = processing

    @classmethod
    def open(cls, cell: Cell, core: Any, stage: Stage, point: Point, processing: Processing) -> OpenVinoSession:
        """The session of a cell whose first point this is."""
        return cls(cell, core, load(cell, core, point, stage, is_fixed=is_fixed(cell)), processing)

    def operation(self, point: Point) -> Operation:
        loaded = self._loaded_for(point)
        compiled = loaded.compiled or compile_at(self._cell, self._core, loaded, point)
        runner = self._runner(loaded, compiled, point)
        inner = graph_operation(loaded.bundle, runner, self._cell.workload, point, self._processing)
        compile_s = sum(each.compile_s for each in compiled.values())
        return OpenVinoOperation(inner, runner, compile_s, is_one_run=loaded.bundle.kind == "forward")

    def close(self) -> None:
        del self._loaded

    def _loaded_for(self, point: Point) -> Loaded:
        """What is loaded; for a point with graphs of its own those, in its place."""
        from benchmarking.runtimes._openvino_build import find_build

        if find_build(self._cell, point) != self._loaded.folder:
            self._loaded = load(
                self._cell, self._core, point, lambda name: nullcontext(), is_fixed=is_fixed(self._cell)
            )
            weights(self._loaded, self._cell)
        return self._loaded

    def _runner(self, loaded: Loaded, compiled: Mapping[str, Compiled], point: Point) -> Runner:
        graphs = loaded.bundle.graphs

        def verify() -> dict[str, Json]:
            return ran(self._cell, compiled)

        if self._cell.runtime_mode["hint"] == "latency":
            return OpenVinoRunner({name: each.model for name, each in compiled.items()}, graphs, verify)
        ((name, only),) = compiled.items()
        requests = point.concurrency if point.concurrency > 1 else int(str(only.facts["optimal_requests"]))
        return ConcurrentRunner(only.model, graphs[name], requests, verify)


def is_fixed(cell: Cell) -> bool:
    """Whether every point is compiled by itself, at its own shapes."""
    return cell.runtime_mode["dynamic"] == "false"


def ran(cell: Cell, compiled: Mapping[str, Compiled]) -> dict[str, Json]:
    """What the calls of a point ran on, read back after them. Raises UnsupportedError when it is not what was asked
    for."""
    name = device_name(cell.device)
    facts = {graph: read_back(each.model) for graph, each in compiled.items()}
    for each in facts.values():
        check_devices(each.get("execution_devices"), name)
    return {**_joined(facts), **_nodes(cell, compiled, name)}


def _nodes(cell: Cell, compiled: Mapping[str, Compiled], name: str) -> dict[str, Json]:
    """The nodes of all graphs together, or why they are not known."""
    together: list[Node] = []
    for each in compiled.values():
        nodes = nodes_of(each.model)
        if isinstance(nodes, str):
            return {"nodes_missing": nodes}
        together += nodes
    hint = properties(cell, has_states=False).get("INFERENCE_PRECISION_HINT")
    check_kernels(together, None if hint is None else str(hint), name)
    return described(together, kind_of(name))


def _joined_facts(compiled: Mapping[str, Compiled]) -> dict[str, Json]:
    return _joined({graph: each.facts for graph, each in compiled.items()})


def _joined(facts: Mapping[str, Mapping[str, Json]]) -> dict[str, Json]:
    """The facts of several graphs: what they share once, what differs by graph."""
    names = dict.fromkeys(name for each in facts.values() for name in each)
    joined: dict[str, Json] = {}
    for name in names:
        values = {graph: each[name] for graph, each in facts.items() if name in each}
        first = next(iter(values.values()))
        joined[name] = first if all(value == first for value in values.values()) else dict(values)
    return joined
