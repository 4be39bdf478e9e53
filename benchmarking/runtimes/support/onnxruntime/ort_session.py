"""A workload's bundles in ONNX Runtime: the session shared by the runtimes on it, its two ways to call graphs, and
calls under ONNX Runtime's own profiler.

Graphs run through `run` with arrays in host memory, or with inputs and outputs bound to the device's memory. For a
profile, separate sessions on the same graphs write one each. It does not mark calls, only successive runs of a graph;
every call makes the same number of runs.
"""

from __future__ import annotations

import bisect
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from benchmarking.core.contracts import Operation, Session, Stage
from benchmarking.core.errors import BenchhouseError, UnsupportedError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import ns_to_ms
from benchmarking.core.model_contracts import GraphRunner, Placed, States
from benchmarking.core.profiles import KERNEL_TIME, TRACE_FILE, Breakdown, CallProfiler
from benchmarking.core.records import NOT_SUPPORTED, Cell, Json, Point
from benchmarking.core.temporary import temporary_folder
from benchmarking.devices.support.ort_providers import HOST_MEMORY, OrtProvider
from benchmarking.graphs.bundle import Bundle, bundle_facts, check_weights
from benchmarking.graphs.exported_model import graph_operation
from benchmarking.graphs.ort_graphs import LOGITS, TOKENS, fused_operators
from benchmarking.graphs.profiling import NodeTime, Origins, breakdown
from benchmarking.runtimes.support.onnxruntime.kernel_profile import (
    GraphProfile,
    placement,
    read_graph_profile,
    read_profile,
)
from benchmarking.runtimes.support.onnxruntime.ort_runtime import (
    SessionSettings,
    assigned_nodes,
    error_types,
    open_graph,
    session_facts,
    translate_error,
)
from benchmarking.runtimes.support.worker_threads import WorkersOperation
from benchmarking.workloads.support.processing import open_processing

if TYPE_CHECKING:
    import numpy as np

    from benchmarking.graphs.operations import GraphOperation


IoMode = Literal["device", "host"]
GRAPH_ID, NOT_CAPTURED = "gpu_graph_id", "-1"
"""Entry of a run's configuration that identifies a captured graph, and its value for a run without one."""
NEXT_TOKEN = "next_token"  # noqa: S105 - the name of a session
Replay = Callable[[GraphRunner], None]
"""Repeats the measured call on another runner."""
US_PER_MS = 1000
MAX_WRITTEN_BYTES = 2_000_000_000
"""Limit of the weights that ONNX Runtime may write with its graph: a second's work, in a temporary folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSource:
    """The graphs of a point, and how their sessions are opened. Equal sources share their sessions."""

    folder: Path
    bundle: Bundle
    settings: SessionSettings
    next_token: Path | None = None
    """The file of the graph that chooses the next tokens; None if the host chooses them."""


Locate = Callable[[Point], GraphSource]
"""Finds the graphs of a point. Raises BenchhouseError if they are missing."""


class OrtSession(Session):
    """A model loaded by ONNX Runtime. The first point's graphs are loaded immediately, those of other points when
    needed."""

    def __init__(
        self,
        cell: Cell,
        points: Sequence[Point],
        locate: Locate,
        stage: Stage,
        check: Callable[[GraphSource], None] = lambda source: None,
    ) -> None:
        """`check` is called after each load and raises BenchhouseError if the prepared build was not loaded."""
        self._cell = cell
        self._check = check
        self._locate = locate
        self._processing = processing = open_processing(cell.workload, stage)
        self._io_mode: IoMode = "device" if cell.runtime_mode.get("io_mode") == "device" else "host"
        self._loaded: LoadedGraphs | None = None
        with stage("weights_read"):  # ONNX Runtime also places the weights on the device here
            loaded = self._load(points[0])
        bundle = loaded.source.bundle
        self.weights_bytes: int | None = bundle.weights_bytes
        self.parameter_count: int | None = bundle.parameter_count
        # What actually runs: the sessions' settings, the types of the weights in the files, the nodes' providers.
        first = next(iter(loaded.sessions.values()))
        by_graph, total = [assigned_nodes(session) for session in loaded.sessions.values()], Counter[str]()
        for nodes in by_graph:
            total.update(nodes or {})
        self.verified: Mapping[str, Json] = {
            **session_facts(first, loaded.source.settings),
            "io_mode": self._io_mode,
            **({"tokens_chosen_on": "device" if loaded.chooses_tokens else "host"} if bundle.generates else {}),
            **bundle_facts(loaded.source.folder, loaded.source.bundle),
            **fused_operators(loaded.source.bundle),
            # Over all graphs; None if ONNX Runtime does not report them.
            "assigned_nodes_by_provider": None if None in by_graph else dict[str, Json](total),
            **processing.verified,
        }
        num_threads = self.verified["num_threads"]
        if cell.num_threads is not None and num_threads != cell.num_threads:
            raise BenchhouseError(f"requested {cell.num_threads} threads, but ONNX Runtime uses {num_threads}")
        check_weights(bundle, cell.precision)

    def operation(self, point: Point) -> Operation:
        loaded = self._load(point)

        def operation_on(runner: GraphRunner) -> GraphOperation:
            return graph_operation(loaded.source.bundle, runner, self._cell.workload, point, self._processing)

        def replay(runner: GraphRunner) -> None:
            operation_on(runner).run(lambda name: None)

        def create() -> Operation:
            operation = operation_on(runner_of(loaded, self._io_mode, replay))
            if not loaded.source.settings.is_replayed:  # a replay runs no node that ONNX Runtime's profiler sees
                operation.make_profiler = partial(OrtProfiler, loaded.source, self._io_mode, operation_on)
            return operation

        return create() if point.concurrency == 1 else WorkersOperation([create() for _ in range(point.concurrency)])

    def close(self) -> None:
        self._loaded = None

    def _load(self, point: Point) -> LoadedGraphs:
        """The graphs of a point. Other loaded graphs are released first."""
        source = self._locate(point)
        if self._loaded is None or self._loaded.source != source:
            self._loaded = None
            loaded = load_graphs(source)
            self._check(source)
            self._loaded = loaded
        return self._loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedGraphs:
    """The sessions of a bundle, by graph."""

    source: GraphSource
    sessions: Mapping[str, Any]

    @property
    def chooses_tokens(self) -> bool:
        """Whether next tokens are chosen in the device's memory."""
        return NEXT_TOKEN in self.sessions


def load_graphs(source: GraphSource, profiles_in: Path | None = None) -> LoadedGraphs:
    """Sessions of all graphs. With a folder for profiles each session writes one there, which slows it down. Raises as
    `open_graph` does."""
    files = {name: source.folder / graph.file for name, graph in source.bundle.graphs.items()}
    if source.next_token is not None and source.bundle.generates:
        files[NEXT_TOKEN] = source.next_token
    sessions = {
        name: open_graph(file, source.settings, profile=None if profiles_in is None else profiles_in / f"{name}-")
        for name, file in files.items()
    }
    return LoadedGraphs(source=source, sessions=sessions)


def runner_of(loaded: LoadedGraphs, io_mode: IoMode, replay: Replay | None = None) -> HostRunner | DeviceRunner:
    if io_mode == "host":
        return HostRunner(loaded, replay)
    return CapturedRunner(loaded, replay) if loaded.source.settings.is_replayed else DeviceRunner(loaded, replay)


class OrtRunner(GraphRunner):
    """Base of both ways to call graphs: tensors, fresh states, and where the kernels ran."""

    io_mode: IoMode
    memory: str = HOST_MEMORY
    """ONNX Runtime's name for the memory that tensors are placed in."""

    def __init__(self, loaded: LoadedGraphs, replay: Replay | None) -> None:
        import numpy
        import onnxruntime

        self._numpy = numpy
        self._value = onnxruntime.OrtValue
        self._errors = error_types()
        self._loaded = loaded
        self._replay = replay
        self._graphs = loaded.source.bundle.graphs
        self._outputs = {name: [output.name for output in graph.outputs] for name, graph in self._graphs.items()}
        self._kept = {
            name: {state.output: state.input for state in graph.states} for name, graph in self._graphs.items()
        }
        self._zeros: dict[tuple[str, int], dict[str, Placed]] = {}

    def place(self, array: np.ndarray) -> Placed:
        return self._value.ortvalue_from_numpy(self._numpy.ascontiguousarray(array), self.memory, 0)

    def fetch(self, tensor: Placed) -> np.ndarray:
        array: np.ndarray = tensor.numpy()
        return array

    def keep(self, logits: Placed) -> Placed:
        return logits  # every call with changed inputs has new outputs

    def begin(self, graph: str, batch_size: int, first: Mapping[str, Placed]) -> States:
        """The zeros are reused, since no call writes to its inputs."""
        if (graph, batch_size) not in self._zeros:
            described = self._graphs[graph]
            self._zeros[graph, batch_size] = {
                state.input: self.place(
                    self._numpy.zeros(state.first_shape(batch_size), dtype=described.input(state.input).dtype)
                )
                for state in described.states
                if state.first_from is None
            }
        return {**self._zeros[graph, batch_size], **first}

    def step(self, graph: str, feeds: Mapping[str, Placed], states: States) -> tuple[Mapping[str, Placed], States]:
        outputs, kept = self.call(graph, {**feeds, **states}), self._kept[graph]
        after = {kept[name]: value for name, value in outputs.items() if name in kept}
        return {name: value for name, value in outputs.items() if name not in kept}, after

    def verified(self) -> dict[str, Json]:
        """Where the kernels of a call ran, from one additional call in profiled sessions."""
        if self._replay is None:
            return {}
        with temporary_folder("benchhouse-profile") as folder:
            loaded = load_graphs(self._loaded.source, folder)
            self._replay(runner_of(loaded, self.io_mode))
            profiles = {graph: Path(session.end_profiling()) for graph, session in loaded.sessions.items()}
            kernels = [kernel for graph, path in profiles.items() for kernel in read_profile(path, graph)]
        settings = self._loaded.source.settings
        precision = settings.precision
        placed = placement(kernels, settings.provider.name, quantizes_activations=settings.quantizes_activations)
        types = placed["compute_types"]
        # On a CPU without half-precision arithmetic, ONNX Runtime silently puts conversions around float32 kernels.
        if precision in ("float16", "bfloat16") and isinstance(types, dict) and types and precision not in types:
            placed["emulated_precision"] = precision
        return placed


class HostRunner(OrtRunner):
    """`run` with arrays in host memory: every call copies its inputs to the device and its outputs back.

    Tensors passed between graphs stay in ONNX Runtime's own values, which need no copy if the host computes.
    """

    io_mode: IoMode = "host"

    def __init__(self, loaded: LoadedGraphs, replay: Replay | None) -> None:
        super().__init__(loaded, replay)
        self._takes_arrays = loaded.source.bundle.kind in ("forward", "denoiser")

    def place(self, array: np.ndarray) -> Placed:
        return array if self._takes_arrays else super().place(array)

    def fetch(self, tensor: Placed) -> np.ndarray:
        return tensor if isinstance(tensor, self._numpy.ndarray) else super().fetch(tensor)

    def call(self, graph: str, feeds: Mapping[str, Placed]) -> Mapping[str, Placed]:
        names, session = self._outputs[graph], self._loaded.sessions[graph]
        try:
            if self._takes_arrays:
                return dict(zip(names, session.run(names, feeds), strict=True))
            return dict(zip(names, session.run_with_ort_values(names, feeds), strict=True))
        except self._errors as error:
            raise translate_error(f"running graph {graph!r}", error) from error


class DeviceRunner(OrtRunner):
    """Inputs and outputs bound to the device's memory, where states stay between steps without a copy."""

    io_mode: IoMode = "device"

    def __init__(self, loaded: LoadedGraphs, replay: Replay | None) -> None:
        super().__init__(loaded, replay)
        self.memory = bindable_memory(loaded.source.settings.provider)
        outputs = {**self._outputs, NEXT_TOKEN: [TOKENS]}
        self._bindings = {
            name: Binding(session, outputs[name], self.memory) for name, session in loaded.sessions.items()
        }

    def call(self, graph: str, feeds: Mapping[str, Placed]) -> Mapping[str, Placed]:
        try:
            return self._bindings[graph].run(feeds)
        except self._errors as error:
            raise translate_error(f"running graph {graph!r}", error) from error

    def next_tokens(self, logits: Placed) -> Placed:
        """Tokens chosen in the device's memory; the logits never reach the host."""
        if not self._loaded.chooses_tokens:
            return super().next_tokens(logits)
        return self.call(NEXT_TOKEN, {LOGITS: logits})[TOKENS]


class CapturedRunner(DeviceRunner):
    """One graph at one shape whose kernels the provider captures once and then replays, with inputs and outputs at the
    captured addresses.

    The first call is not captured; it reveals the shapes of the outputs. The session has the sizes of one point and
    thus one captured graph.
    """

    def __init__(self, loaded: LoadedGraphs, replay: Replay | None) -> None:
        import onnxruntime

        super().__init__(loaded, replay)
        self._inputs: Mapping[str, Placed] = {}
        self._captured: dict[str, Placed] = {}
        self._captured_binding: Any = None
        self._uncaptured, self._run_options = onnxruntime.RunOptions(), onnxruntime.RunOptions()
        self._uncaptured.add_run_config_entry(GRAPH_ID, NOT_CAPTURED)
        self._run_options.add_run_config_entry(GRAPH_ID, "1")

    def call(self, graph: str, feeds: Mapping[str, Placed]) -> Mapping[str, Placed]:
        """Raises BenchhouseError for inputs other than those of the first call, whose addresses are captured."""
        session = self._loaded.sessions[graph]
        try:
            if self._captured_binding is None:  # the first call, which is not captured
                outputs, make = self._bindings[graph].run(feeds, self._uncaptured), self._value
                self._inputs, self._captured = (
                    feeds,
                    {
                        name: make.ortvalue_from_shape_and_type(value.shape(), value.element_type(), self.memory, 0)
                        for name, value in outputs.items()
                    },
                )
                binding = session.io_binding()
                for name, value in feeds.items():
                    binding.bind_ortvalue_input(name, value)
                for name, value in self._captured.items():
                    binding.bind_ortvalue_output(name, value)
                self._captured_binding = binding
            elif any(self._inputs.get(name) is not value for name, value in feeds.items()):
                raise BenchhouseError(f"graph {graph!r} was captured with other inputs")
            session.run_with_iobinding(self._captured_binding, self._run_options)
            self._captured_binding.synchronize_outputs()
        except self._errors as error:
            raise translate_error(f"running graph {graph!r}", error) from error
        return self._captured


def bindable_memory(provider: OrtProvider) -> str:
    """ONNX Runtime's name for the memory that a provider's tensors are bound to. Raises UnsupportedError if the
    installed version lacks it."""
    import onnxruntime
    from onnxruntime.capi.onnxruntime_inference_collection import OrtDevice

    memory = provider.memory or HOST_MEMORY
    try:
        OrtDevice.make(memory, 0)
    except Exception as error:
        raise UnsupportedError(
            f"io_mode 'device': onnxruntime {onnxruntime.__version__} cannot bind to the memory {memory!r} of "
            f"{provider.name}: install a newer {provider.install}, or use --io-mode host"
        ) from error
    return memory


class Binding:
    """A session's inputs and outputs bound to memory. Only those that changed since the last call are bound again."""

    def __init__(self, session: Any, outputs: list[str], memory: str) -> None:
        self._session = session
        self._outputs = outputs
        self._memory = memory
        self._binding = session.io_binding()
        self._bound: dict[str, Placed] = {}

    def run(self, feeds: Mapping[str, Placed], options: Any = None) -> dict[str, Placed]:
        """The finished outputs by name, on the device. They are in the same memory if the inputs are the same as
        before, else in new memory, so one call's outputs can be the next call's inputs."""
        changed = [name for name, value in feeds.items() if self._bound.get(name) is not value]
        for name in changed:
            self._binding.bind_ortvalue_input(name, feeds[name])
            self._bound[name] = feeds[name]
        if changed or not feeds:
            self._binding.clear_binding_outputs()
            for name in self._outputs:
                self._binding.bind_output(name, self._memory, 0)
        self._session.run_with_iobinding(self._binding, options)
        self._binding.synchronize_outputs()
        return dict(zip(self._outputs, self._binding.get_outputs(), strict=True))


class OrtProfiler(CallProfiler):
    """A point's call on profiled sessions."""

    def __init__(
        self, source: GraphSource, io_mode: IoMode, operation_on: Callable[[GraphRunner], Operation], folder: Path
    ) -> None:
        self._source = source
        self._folder = folder
        self._loaded = load_graphs(source, folder)
        self._operation = operation_on(runner_of(self._loaded, io_mode))
        self._calls: list[tuple[int, bool]] = []
        """Nanoseconds of each call, and whether the call is kept."""

    def run(self, *, is_kept: bool = True) -> int:
        self._operation.reset()
        begin_ns = time.perf_counter_ns()
        self._operation.run(lambda name: None)
        elapsed_ns = time.perf_counter_ns() - begin_ns
        self._calls.append((elapsed_ns, is_kept))
        return elapsed_ns

    def breakdown(self) -> Breakdown:
        profile_files = {graph: Path(session.end_profiling()) for graph, session in self._loaded.sessions.items()}
        profiles = {graph: read_graph_profile(path, graph) for graph, path in profile_files.items()}
        calls = nodes_by_call(profiles, len(self._calls))
        kept = [index for index, (_, is_kept) in enumerate(self._calls) if is_kept]
        files = {name: self._source.folder / graph.file for name, graph in self._source.bundle.graphs.items()}
        origins = Origins.of(files)
        if origins.modules:
            origins = origins.optimised(optimised_graphs(self._source, self._folder))
        (self._folder / TRACE_FILE).write_text(json.dumps(merge_traces(profile_files)), encoding="utf-8")
        found = breakdown([calls[index] for index in kept], [ns_to_ms(self._calls[i][0]) for i in kept], origins)
        if (why_not := kernel_time_missing(self._source.settings.provider.memory, profiles)) is not None:
            found = replace(found, missing={**found.missing, KERNEL_TIME: why_not})
        return found


def kernel_time_missing(memory: str | None, profiles: Mapping[str, GraphProfile]) -> str | None:
    """None, or why nodes have no kernel time: on a GPU the profile of most builds has the times of launches only."""
    has_device = any(kernel.device_us is not None for profile in profiles.values() for kernel in profile.kernels)
    if memory in (None, HOST_MEMORY) or has_device:
        return None
    return (
        f"{NOT_SUPPORTED}: this build of ONNX Runtime has the times in which the host launched the kernels, not their "
        "own (a build with --enable_cuda_profiling has both)"
    )


def optimised_graphs(source: GraphSource, folder: Path) -> dict[str, Path]:
    """The graphs that sessions with the same settings run, by name, if ONNX Runtime can write them: not graphs compiled
    by a provider, nor those of a model whose weights would fill the disk."""
    paths: dict[str, Path] = {}
    if (source.bundle.weights_bytes or 0) > MAX_WRITTEN_BYTES:
        return paths
    for name, graph in source.bundle.graphs.items():
        path = folder / f"{name}.optimised.onnx"
        try:
            open_graph(source.folder / graph.file, source.settings, optimised=path)
        except BenchhouseError:
            continue
        path.with_name(f"{path.name}.data").unlink(missing_ok=True)  # the weights are not needed
        paths[name] = path
    return paths


def merge_traces(profiles: Mapping[str, Path]) -> list[Any]:
    """The events of all graphs as a list in Chrome's format, with one process per graph. Each graph has its session's
    clock."""
    events: list[Any] = []
    for number, (graph, path) in enumerate(profiles.items(), start=1):
        events.append({"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": {"name": graph}})
        events += [{**event, "pid": number} for event in json.loads(path.read_text(encoding="utf-8"))]
    return events


def nodes_by_call(profiles: Mapping[str, GraphProfile], calls: int) -> list[list[NodeTime]]:
    """The nodes of each call, over all graphs."""
    by_call: list[list[NodeTime]] = [[] for _ in range(calls)]
    for graph, profile in profiles.items():
        runs_a_call = max(len(profile.runs_us) // calls, 1)
        for kernel in profile.kernels:
            run = max(bisect.bisect_right(profile.runs_us, kernel.began_us) - 1, 0)
            by_call[min(run // runs_a_call, calls - 1)].append(
                NodeTime(
                    graph=graph,
                    name=kernel.node,
                    operator=kernel.operator,
                    placed=kernel.provider,
                    ms=(kernel.duration_us - kernel.inside_us) / US_PER_MS,
                    inside_ms=kernel.inside_us / US_PER_MS,
                    device_ms=None if kernel.device_us is None else sum(kernel.device_us) / US_PER_MS,
                    launches=len(kernel.device_us or ()),
                )
            )
    return by_call
