"""Sessions of the runtime openvino, and the operations that points become in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarking.errors import OutOfMemoryError
from benchmarking.graphs.session import graph_operation
from benchmarking.measure.timing import LATENCY_REQUEST
from benchmarking.records import Cell, Json, Point, Readings
from benchmarking.runtimes import Mark, Operation, Session, Stage
from benchmarking.runtimes._openvino_build import find_build
from benchmarking.runtimes._openvino_cache import COLD, find_cache
from benchmarking.runtimes._openvino_compile import (
    Compiled,
    check_devices,
    device_name,
    is_compiled_alone,
    is_concurrent,
    kind_of,
    read_back,
)
from benchmarking.runtimes._openvino_load import compile_for, read, weights
from benchmarking.runtimes._openvino_nodes import Node, check_kernels, described, nodes_of
from benchmarking.runtimes._openvino_runner import ConcurrentRunner, OpenVinoRunner
from benchmarking.runtimes._openvino_words import is_out_of_memory, last_line
from benchmarking.units import NS_PER_MS
from benchmarking.workloads._page_cache import page_cache

if TYPE_CHECKING:
    from benchmarking.graphs.operations import GraphOperation
    from benchmarking.workloads._processing import Processing

WARM = "compile_warm_s"
OF_A_REQUEST = ("audio_seconds_per_call",)
"""Readings that grow with the requests of a call."""

Runner = OpenVinoRunner | ConcurrentRunner


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The graphs of a point, compiled."""

    compiled: Mapping[str, Compiled]
    cached_s: float | None
    """Seconds of the cold compilation, where OpenVINO was given what came of it; None without such a cache."""

    @property
    def facts(self) -> dict[str, Json]:
        """What was read back of the graphs, and how long they took."""
        return {**_joined({name: each.facts for name, each in self.compiled.items()}), **self.compile_times}

    @property
    def compile_times(self) -> dict[str, Json]:
        """`compile_cold_s`, and `compile_warm_s` where every graph really came from the cache."""
        took_s = sum(each.compile_s for each in self.compiled.values())
        if self.cached_s is None or not all(each.facts.get("is_from_cache") for each in self.compiled.values()):
            return {COLD: took_s}
        return {COLD: self.cached_s, WARM: took_s}


class OpenVinoOperation(Operation):
    """A point's call: that of the graphs, with what OpenVINO itself knows of it.

    A call of several requests does the work of all of them; its latency is the time until the last is done.
    """

    has_runtime_clock = True

    def __init__(self, inner: GraphOperation, runner: Runner, compile_s: Json, *, is_one_run: bool) -> None:
        self.requests_per_call = runner.requests
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
        try:
            return self._inner.run(mark)
        except (MemoryError, RuntimeError) as error:
            if is_out_of_memory(error):
                raise OutOfMemoryError(f"out of memory in OpenVINO: {last_line(error)}") from error
            raise

    def problem(self, output: Any) -> str | None:
        return self._inner.problem(output)

    def readings(self, output: Any) -> Readings:
        told = self._inner.readings(output)
        summed = {name: self._of_all(told.values[name]) for name in OF_A_REQUEST if name in told.values}
        return told | Readings(values={"compile_s": self._compile_s, **summed})

    def count(self) -> Readings:
        return self._inner.count()

    def arrays(self, output: Any) -> Mapping[str, Any]:
        return self._inner.arrays(output)

    def verified(self) -> Mapping[str, Json]:
        return self._runner.verified()

    def runtime_times_ns(self) -> Mapping[str, int]:
        """What a request took by OpenVINO's clock, without the way in and out of Python, where it is one run of a
        graph; of several at once their median."""
        latency_ms = self._runner.request_latency_ms() if self._is_one_run else None
        return {} if latency_ms is None else {LATENCY_REQUEST: round(latency_ms * NS_PER_MS)}

    def _of_all(self, of_one: Json) -> Json:
        assert isinstance(of_one, int | float)
        return of_one * self.requests_per_call


class OpenVinoSession(Session):
    """A workload's graphs on a device of OpenVINO."""

    def __init__(self, cell: Cell, core: Any, stage: Stage, first: Point, processing: Processing) -> None:
        """Loads the build of the first point; compiles it, unless every point is compiled by itself. Stages:
        weights_read, and to_device, which is the compiling."""
        self._cell = cell
        self._core = core
        self._processing = processing
        folder = find_build(cell, first)
        cached = page_cache(sorted(folder.glob("*.bin")))  # before anything reads them
        with stage("weights_read"):
            self._loaded = read(core, folder)
        with stage("to_device"):
            self._ready = None if is_compiled_alone(cell) else self._compile(first)
        stored, weights_bytes = weights(self._loaded, cell)
        self.parameter_count: int | None = self._loaded.bundle.parameter_count
        self.weights_bytes: int | None = weights_bytes
        self.verified: Mapping[str, Json] = {
            "openvino_device": device_name(cell.device),
            **stored,
            **({} if self._ready is None else self._ready.facts),
            **cached,
            **processing.verified,
        }

    def operation(self, point: Point) -> Operation:
        self._load_for(point)
        ready = self._ready or self._compile(point)
        bundle = self._loaded.bundle
        runner = self._runner(ready, point)
        inner = graph_operation(bundle, runner, self._cell.workload, point, self._processing)
        return OpenVinoOperation(inner, runner, ready.compile_times[COLD], is_one_run=bundle.kind == "forward")

    def close(self) -> None:
        self._ready = None
        del self._loaded

    def _load_for(self, point: Point) -> None:
        """Put the graphs of a point that has its own in the place of those that are loaded."""
        folder = find_build(self._cell, point)
        if folder == self._loaded.folder:
            return
        self._loaded = read(self._core, folder)
        weights(self._loaded, self._cell)
        self._ready = None if is_compiled_alone(self._cell) else self._compile(point)

    def _compile(self, point: Point) -> Ready:
        cache = find_cache(self._cell, self._core, point)
        folder = None if cache is None else cache.folder
        compiled = compile_for(self._cell, self._core, self._loaded, point, folder)
        return Ready(compiled=compiled, cached_s=None if cache is None else cache.cold_s)

    def _runner(self, ready: Ready, point: Point) -> Runner:
        graphs = self._loaded.bundle.graphs
        models = {name: each.model for name, each in ready.compiled.items()}

        def verify() -> dict[str, Json]:
            return ran(self._cell, ready)

        if not is_concurrent(self._cell):
            return OpenVinoRunner(models, graphs, verify)
        ((name, model),) = models.items()
        return ConcurrentRunner(model, graphs[name], point.concurrency, verify)


def ran(cell: Cell, ready: Ready) -> dict[str, Json]:
    """What the calls of a point ran on, read back after them. Raises UnsupportedError when it is not what was asked
    for."""
    name = device_name(cell.device)
    facts = {graph: read_back(each.model, each.asked) for graph, each in ready.compiled.items()}
    for each in facts.values():
        check_devices(each.get("execution_devices"), name)
    return {**_joined(facts), **ready.compile_times, **_nodes(ready.compiled, name)}


def _nodes(compiled: Mapping[str, Compiled], name: str) -> dict[str, Json]:
    """The nodes of all graphs together, or why they are not known."""
    together: list[Node] = []
    for each in compiled.values():
        nodes = nodes_of(each.model)
        if isinstance(nodes, str):
            return {"nodes_missing": nodes}
        check_kernels(nodes, each.asked.get("INFERENCE_PRECISION_HINT"), name)
        together += nodes
    return described(together, kind_of(name))


def _joined(facts: Mapping[str, Mapping[str, Json]]) -> dict[str, Json]:
    """The facts of several graphs: what they share once, what differs by graph."""
    names = dict.fromkeys(name for each in facts.values() for name in each)
    joined: dict[str, Json] = {}
    for name in names:
        values = {graph: each[name] for graph, each in facts.items() if name in each}
        first = next(iter(values.values()))
        joined[name] = first if all(value == first for value in values.values()) else dict(values)
    return joined
