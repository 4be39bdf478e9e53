"""A workload's graphs in OpenVINO: the session, its operations, and infer requests, run one at a time or several in
flight; and the kernels that computed them.

The kernels are read node by node from the model's execution graph after the first call. Before it, kernels that depend
on shapes are not chosen yet. A node's compute precision is at the end of its kernel's name ("brgemm_avx512_bf16");
`runtimePrecision` is the type of its output.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarking.core.contracts import Completion, Mark, Operation, Session, Stage
from benchmarking.core.errors import OutOfMemoryError, UnsupportedError, is_out_of_memory
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import np
from benchmarking.core.metrics import LATENCY_REQUEST, NS_PER_MS
from benchmarking.core.model_contracts import GraphRunner, Placed
from benchmarking.core.profiles import CallProfiler
from benchmarking.core.records import NOT_SUPPORTED, Cell, Json, Point, Readings, Scalar
from benchmarking.devices.openvino import device_name, last_line
from benchmarking.graphs.bundle import Graph
from benchmarking.graphs.exported_model import graph_operation
from benchmarking.runtimes.support.openvino.compile import (
    COLD,
    Compiled,
    check_devices,
    compile_for,
    find_build,
    find_cache,
    is_compiled_alone,
    is_concurrent,
    kind_of,
    read,
    read_back,
    weights,
)
from benchmarking.workloads.support.processing import Processing
from benchmarking.workloads.support.weights import page_cache

if TYPE_CHECKING:
    from benchmarking.graphs.operations import GraphOperation


NO_WORK = frozenset({"Const", "Constant", "Input", "Output", "Parameter", "Result"})
"""Layers without computation."""
MATRIX_LAYERS = (
    *("convolution", "deconvolution", "fullyconnected", "fully_connected", "gemm"),
    *("lstm", "matmul", "attention", "sdpa"),
)
"""Lower-case substrings of the names of layers with most of the arithmetic, in the CPU and GPU plugins."""
INTEGERS = frozenset({"i64", "i32", "u64", "u32", "i16", "u16", "boolean"})
"""Types of indices and shapes, which OpenVINO always computes on the CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    layer: str
    kernel: str
    precision: str
    """Type of its output: "f32", "u8"."""

    @property
    def is_matrix(self) -> bool:
        """Whether it is one of the layers with most of the arithmetic."""
        layer = self.layer.lower()
        return any(part in layer for part in MATRIX_LAYERS)

    @property
    def kernel_precision(self) -> str:
        """Its compute precision: the end of the kernel's name, or else the type of its output."""
        end = self.kernel.rpartition("_")[2].lower()
        return {"fp32": "f32", "fp16": "f16"}.get(end, end) if end else self.precision

    @property
    def is_on_cpu(self) -> bool:
        """Whether another device's plugin runs it on the CPU."""
        return "cpu" in self.kernel.lower().split("_") or self.kernel.lower().startswith("cpu")


def nodes_of(compiled: Any) -> tuple[Node, ...] | str:
    """The computing nodes of a compiled model, or why the plugin does not report them (NPU)."""
    try:
        operations = compiled.get_runtime_model().get_ops()
    except RuntimeError:
        return f"{NOT_SUPPORTED}: the plugin does not provide an execution graph"
    nodes = (
        Node(
            layer=_text(information, "layerType"),
            kernel=_text(information, "primitiveType"),
            precision=_text(information, "runtimePrecision").lower().replace("fp", "f"),
        )
        for information in (operation.get_rt_info() for operation in operations)
    )
    return tuple(node for node in nodes if node.layer not in NO_WORK)


def node_facts(nodes: Sequence[Node], kind: str) -> dict[str, Json]:
    """The stored facts of the nodes on a device of a kind ("CPU", "GPU")."""
    matrix = [node for node in nodes if node.is_matrix]
    facts: dict[str, Json] = {
        "nodes": len(nodes),
        "nodes_by_precision": _counted(node.precision for node in nodes),
        "matrix_nodes_by_precision": _counted(node.kernel_precision for node in matrix),
        "matrix_kernels": _counted(f"{node.layer} {node.kernel}" for node in matrix),
    }
    if kind != "CPU":
        facts["nodes_on_cpu_unasked"] = sum(node.is_on_cpu and node.precision not in INTEGERS for node in nodes)
    return facts


def check_kernels(nodes: Sequence[Node], hint: Scalar | None, name: str) -> None:
    """Raise UnsupportedError if a 16-bit precision was requested but no matrix product is computed in it, whatever hint
    the compiled model reports."""
    precisions = {node.kernel_precision for node in nodes if node.is_matrix}
    if hint in ("f16", "bf16") and precisions and hint not in precisions:
        raise UnsupportedError(
            f"requested {hint} on OpenVINO's {name}, but its matrix products are computed in "
            f"{', '.join(sorted(precisions))}"
        )


def _text(information: Mapping[str, Any], name: str) -> str:
    return str(information[name].value) if name in information else ""


def _counted(values: Iterable[str]) -> dict[str, Json]:
    return dict(sorted(Counter(values).items()))


Verify = Callable[[], Mapping[str, Json]]


class GraphRequest:
    """One infer request of a graph, with its current input tensors.

    Unchanged tensors are not set again, which would cost a few microseconds: the inputs of a forward pass never change.
    """

    def __init__(self, request: Any, graph: Graph) -> None:
        self.request = request
        self._bound: dict[str, Placed] = {}
        states = {state.output for state in graph.states}
        self._outputs = tuple(tensor.name for tensor in graph.outputs if tensor.name not in states)
        by_name = {variable.name: variable for variable in request.query_state()}
        self._states = [(state, by_name[state.input + state.output]) for state in graph.states]
        """Each state with the request's variable, whose name joins the state's input and output."""
        self._empty: dict[tuple[str, int], Any] = {}

    def bind(self, feeds: Mapping[str, Placed]) -> None:
        current = self._bound
        for name, tensor in feeds.items():
            if current.get(name) is not tensor:
                self.request.set_tensor(name, tensor)
                current[name] = tensor

    def infer(self, feeds: Mapping[str, Placed]) -> dict[str, Placed]:
        """Run once and wait. Returns the outputs by name, which are in the request's own memory until the next run.

        `share_outputs` keeps OpenVINO from copying every output to a new array.
        """
        self.bind(feeds)
        self.request.infer(share_outputs=True)
        return self.outputs()

    def outputs(self) -> dict[str, Placed]:
        """The outputs of the last run."""
        get = self.request.get_tensor
        return {name: get(name) for name in self._outputs}

    def begin(self, batch_size: int, first: Mapping[str, Placed]) -> None:
        """Set every state to the value in `first` for the state's input, else to zeros or an empty tensor.

        `reset_state` alone would leave a free batch dimension at 0, which does not match the inputs.
        """
        import openvino

        self.request.reset_state()
        for state, variable in self._states:
            value, key = first.get(state.input), (state.input, batch_size)
            if value is None and key not in self._empty:
                dtype = variable.state.element_type.to_dtype()
                self._empty[key] = openvino.Tensor(np.zeros(state.first_shape(batch_size), dtype=dtype))
            variable.state = self._empty[key] if value is None else value


class RequestRunner(GraphRunner):
    """Graphs over OpenVINO's tensors."""

    requests = 1
    """Number of requests in flight."""

    def place(self, array: np.ndarray) -> Placed:
        import openvino

        return openvino.Tensor(array)  # a copy, so that the array can be freed

    def fetch(self, tensor: Placed) -> np.ndarray:
        array: np.ndarray = tensor.data
        return array

    def keep_in_flight(
        self, count: int, now_ns: Callable[[], int], until_ns: float, least: int
    ) -> Sequence[Completion]:
        """As `Operation.keep_in_flight`, for a runner of several requests."""
        raise NotImplementedError("one request at a time")

    @abstractmethod
    def request_latency_ms(self) -> float | None:
        """Milliseconds of the last call's request by OpenVINO's clock; None before the first call."""


class OpenVinoRunner(RequestRunner):
    """Graphs called one after another, each with one request, as for the latency hint."""

    def __init__(self, compiled: Mapping[str, Any], graphs: Mapping[str, Graph], verify: Verify) -> None:
        """`compiled` has the openvino.CompiledModel of each graph; `verify` is called after the timed calls."""
        self._by_graph = {
            name: GraphRequest(model.create_infer_request(), graphs[name]) for name, model in compiled.items()
        }
        self._verify = verify
        self._last: GraphRequest | None = None

    def call(self, graph: str, feeds: Mapping[str, Placed]) -> Mapping[str, Placed]:
        self._last = self._by_graph[graph]
        return self._last.infer(feeds)

    def begin(self, graph: str, batch_size: int, first: Mapping[str, Placed]) -> None:
        self._by_graph[graph].begin(batch_size, first)

    def step(self, graph: str, feeds: Mapping[str, Placed], states: None) -> tuple[Mapping[str, Placed], None]:
        return self._by_graph[graph].infer(feeds), None

    def request_latency_ms(self) -> float | None:
        """Latency of the last call of a graph without states."""
        return None if self._last is None else float(self._last.request.latency)

    def verified(self) -> Mapping[str, Json]:
        return {**self._verify(), "requests": self.requests}


class ConcurrentRunner(RequestRunner):
    """The graph of a forward pass in several requests, as for the throughput hint. A call is one request, and
    `keep_in_flight` keeps OpenVINO's queue full."""

    def __init__(self, compiled: Any, graph: Graph, requests: int, verify: Verify) -> None:
        import openvino

        self.requests = requests
        self._queue = openvino.AsyncInferQueue(compiled, requests)
        self._by_number = [GraphRequest(self._queue[number], graph) for number in range(requests)]
        self._verify = verify
        self._now_ns = time.perf_counter_ns
        self._done: list[Completion] = []
        self._free_ns = [0] * requests
        self._last = self._by_number[0]
        self._queue.set_callback(self._completed)

    def call(self, graph: str, feeds: Mapping[str, Placed]) -> Mapping[str, Placed]:
        for request in self._by_number:
            request.bind(feeds)
        number: int = self._queue.get_idle_request_id()
        self._queue.start_async(share_inputs=True, userdata=number)
        self._queue.wait_all()
        self._last = self._by_number[number]
        return self._last.outputs()

    def keep_in_flight(
        self, count: int, now_ns: Callable[[], int], until_ns: float, least: int
    ) -> Sequence[Completion]:
        """As `Operation.keep_in_flight`; the requests use the inputs of the last call."""
        self._now_ns, self._done, self._free_ns = now_ns, [], [now_ns()] * self.requests
        start, wait_for_room = self._queue.start_async, self._queue.get_idle_request_id
        for number in range(count):
            place = wait_for_room()
            if number >= least and now_ns() >= until_ns:
                break
            start(share_inputs=True, userdata=place)
        self._queue.wait_all()
        # A thread may be interrupted between reading the clock and adding its request.
        return sorted(self._done, key=lambda done: done.completed_ns)

    def _completed(self, request: Any, place: int) -> None:
        """Called before the queue gives the place to another request, whose time begins here."""
        submitted_ns, completed_ns = self._free_ns[place], self._now_ns()
        self._free_ns[place] = completed_ns
        runtime_ns = round(request.latency * NS_PER_MS)
        self._done.append(Completion(submitted_ns=submitted_ns, completed_ns=completed_ns, runtime_ns=runtime_ns))

    def begin(self, graph: str, batch_size: int, first: Mapping[str, Placed]) -> None:
        raise NotImplementedError("the throughput hint is for graphs without states")

    def step(self, graph: str, feeds: Mapping[str, Placed], states: None) -> tuple[Mapping[str, Placed], None]:
        raise NotImplementedError("the throughput hint is for graphs without states")

    def request_latency_ms(self) -> float:
        """Latency of the last call's request."""
        return float(self._last.request.latency)

    def verified(self) -> Mapping[str, Json]:
        """The compiled model's facts, and whether the last outputs of all requests are equal."""
        first = self._by_number[0].outputs()
        same = all(
            np.array_equal(tensor.data, first[name].data)
            for request in self._by_number[1:]
            for name, tensor in request.outputs().items()
        )
        return {**self._verify(), "requests": self.requests, "requests_agree": same}


WARM = "compile_warm_s"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledPoint:
    compiled: Mapping[str, Compiled]
    cached_s: float | None
    """Seconds of the cold compilation that filled OpenVINO's cache; None without a cache."""

    @property
    def facts(self) -> dict[str, Json]:
        """The properties read back from the graphs, and the compile times."""
        return {**_merge_facts({name: each.facts for name, each in self.compiled.items()}), **self.compile_times}

    @property
    def compile_times(self) -> dict[str, Json]:
        """`compile_cold_s`, and `compile_warm_s` if every graph was actually loaded from the cache."""
        compile_s = sum(compiled.compile_s for compiled in self.compiled.values())
        if self.cached_s is None or not all(compiled.facts.get("is_from_cache") for compiled in self.compiled.values()):
            return {COLD: compile_s}
        return {COLD: self.cached_s, WARM: compile_s}


class OpenVinoOperation(Operation):
    """A point's call on the graphs, with OpenVINO's own clock. A call is one request."""

    has_runtime_clock = True

    def __init__(self, inner: GraphOperation, runner: RequestRunner, compile_s: Json, *, is_one_run: bool) -> None:
        self.requests_in_flight = runner.requests
        self.count_like(inner)
        self._inner = inner
        self._runner = runner
        self._is_one_run = is_one_run
        self._compile_s = compile_s
        self.make_profiler: Callable[[], CallProfiler | None] = lambda: None
        """Creates the profiler of the call; None if there is none."""

    def reset(self) -> None:
        self._inner.reset()

    def run(self, mark: Mark) -> Any:
        try:
            return self._inner.run(mark)
        except (MemoryError, RuntimeError) as error:
            if is_out_of_memory(error):
                raise OutOfMemoryError(f"out of memory in OpenVINO: {last_line(error)}") from error
            raise

    def keep_in_flight(
        self, count: int, now_ns: Callable[[], int], until_ns: float = float("inf"), least: int = 0
    ) -> Sequence[Completion]:
        try:
            return self._runner.keep_in_flight(count, now_ns, until_ns, least)
        except (MemoryError, RuntimeError) as error:
            if is_out_of_memory(error):
                raise OutOfMemoryError(f"out of memory in OpenVINO: {last_line(error)}") from error
            raise

    def problem(self, output: Any) -> str | None:
        return self._inner.problem(output)

    def readings(self, output: Any) -> Readings:
        return self._inner.readings(output) | Readings(values={"compile_s": self._compile_s})

    def next_token_logits(self, text: np.ndarray) -> np.ndarray:
        return self._inner.next_token_logits(text)

    def arrays(self, output: Any) -> Mapping[str, Any]:
        return self._inner.arrays(output)

    def verified(self) -> Mapping[str, Json]:
        return self._runner.verified()

    def profiler(self, folder: Path, synchronize: Callable[[], None]) -> CallProfiler | None:
        return self.make_profiler()

    def runtime_times_ns(self) -> Mapping[str, int]:
        """The request's time by OpenVINO's clock, without Python's overhead, if it is one run of a graph."""
        latency_ms = self._runner.request_latency_ms() if self._is_one_run else None
        return {} if latency_ms is None else {LATENCY_REQUEST: round(latency_ms * NS_PER_MS)}


class OpenVinoSession(Session):
    """A workload's graphs on an OpenVINO device."""

    def __init__(self, cell: Cell, core: Any, stage: Stage, first: Point, processing: Processing) -> None:
        """Loads the build of the first point and compiles it, unless every point is compiled separately. Stages:
        weights_read, and to_device, which is the compilation."""
        self._cell = cell
        self._core = core
        self._processing = processing
        folder = find_build(cell, first)
        cached = page_cache(sorted(folder.glob("*.bin")))  # before anything reads the files
        with stage("weights_read"):
            self._loaded = read(core, folder)
        with stage("to_device"):
            self._compiled_point = None if is_compiled_alone(cell) else self._compile(first)
        stored, weights_bytes = weights(self._loaded, cell)
        self.parameter_count: int | None = self._loaded.bundle.parameter_count
        self.weights_bytes: int | None = weights_bytes
        self.verified: Mapping[str, Json] = {
            "openvino_device": device_name(cell.device),
            **stored,
            **({} if self._compiled_point is None else self._compiled_point.facts),
            **cached,
            **processing.verified,
        }

    def operation(self, point: Point) -> Operation:
        folder = find_build(self._cell, point)
        if folder != self._loaded.folder:
            self._loaded = read(self._core, folder)
            weights(self._loaded, self._cell)
            self._compiled_point = None if is_compiled_alone(self._cell) else self._compile(point)
        compiled_point = self._compiled_point or self._compile(point)
        bundle = self._loaded.bundle
        models = {name: each.model for name, each in compiled_point.compiled.items()}
        verify = partial(verify_execution, self._cell, compiled_point)
        runner: RequestRunner
        if is_concurrent(self._cell):
            ((name, model),) = models.items()
            runner = ConcurrentRunner(model, bundle.graphs[name], point.concurrency, verify)
        else:
            runner = OpenVinoRunner(models, bundle.graphs, verify)
        inner = self._operation_on(runner, point)
        compile_s = compiled_point.compile_times[COLD]
        operation = OpenVinoOperation(inner, runner, compile_s, is_one_run=bundle.kind == "forward")
        operation.make_profiler = partial(self._profiler, point)
        return operation

    def _operation_on(self, runner: GraphRunner, point: Point) -> GraphOperation:
        return graph_operation(self._loaded.bundle, runner, self._cell.workload, point, self._processing)

    def _profiler(self, point: Point) -> CallProfiler | None:
        """The profiler of a point's calls; None for calls with several requests."""
        from benchmarking.runtimes.support.openvino import openvino_profiling

        if is_concurrent(self._cell):
            return None
        graphs = self._loaded.bundle.graphs
        origins = openvino_profiling.source_origins(self._cell, point, graphs)
        marks = {
            name: openvino_profiling.tag_modules(model, name, origins) for name, model in self._loaded.models.items()
        }
        compiled = compile_for(self._cell, self._core, self._loaded, point, is_profiled=True)
        models = {name: each.model for name, each in compiled.items()}
        return openvino_profiling.OpenVinoProfiler(
            models, graphs, marks, lambda runner: self._operation_on(runner, point), origins
        )

    def close(self) -> None:
        self._compiled_point = None
        del self._loaded

    def _compile(self, point: Point) -> CompiledPoint:
        folder, cold_s = find_cache(self._cell, self._core, point) or (None, None)
        compiled = compile_for(self._cell, self._core, self._loaded, point, folder)
        return CompiledPoint(compiled=compiled, cached_s=cold_s)


def verify_execution(cell: Cell, compiled_point: CompiledPoint) -> dict[str, Json]:
    """What the calls of a point actually ran on, verified after them. Raises UnsupportedError if it differs from the
    request."""
    name = device_name(cell.device)
    facts = {graph: read_back(each.model, each.requested) for graph, each in compiled_point.compiled.items()}
    for found in facts.values():
        check_devices(found.get("execution_devices"), name)
    verified, all_nodes = {**_merge_facts(facts), **compiled_point.compile_times}, list[Node]()
    for compiled in compiled_point.compiled.values():
        nodes = nodes_of(compiled.model)
        if isinstance(nodes, str):  # why they are unknown
            return {**verified, "nodes_missing": nodes}
        check_kernels(nodes, compiled.requested.get("INFERENCE_PRECISION_HINT"), name)
        all_nodes += nodes
    return {**verified, **node_facts(all_nodes, kind_of(name))}


def _merge_facts(facts: Mapping[str, Mapping[str, Json]]) -> dict[str, Json]:
    """The facts of several graphs: equal values once, different ones by graph."""
    names = dict.fromkeys(name for fact in facts.values() for name in fact)
    merged: dict[str, Json] = {}
    for name in names:
        values = {graph: each[name] for graph, each in facts.items() if name in each}
        first = next(iter(values.values()))
        merged[name] = first if all(value == first for value in values.values()) else dict(values)
    return merged
