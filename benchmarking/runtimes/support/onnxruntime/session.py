"""A workload's bundles in ONNX Runtime: the session that the runtimes over it share, and its two ways of calling
graphs.

Graphs run through `run` with the host's arrays, or with inputs and outputs bound to the device's memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from benchmarking.core.contracts import Operation, Session, Stage
from benchmarking.core.errors import BenchhouseError, UnsupportedError
from benchmarking.core.graph_contracts import GraphRunner, Placed, States
from benchmarking.core.records import Cell, Json, Point, Precision
from benchmarking.devices.support.ort_providers import HOST_MEMORY
from benchmarking.graphs.bundle import Bundle, Graph
from benchmarking.graphs.session import graph_operation
from benchmarking.runtimes.support.onnxruntime.options import (
    SessionSettings,
    assigned_nodes,
    error_types,
    in_force,
    open_graph,
    translate_error,
)
from benchmarking.runtimes.support.onnxruntime.profile import placement, read_profile
from benchmarking.workloads.support.processing import Processing

if TYPE_CHECKING:
    import numpy as np

IoMode = Literal["device", "host"]
Replay = Callable[[GraphRunner], None]
"""Makes the measured call once more on another runner."""
STORED_AS = {"tf32": ("float32",), "int8": ("int8", "uint8"), "int4": ("int4", "uint4", "uint8")}
"""Types of the weights in the files of a precision, where they have other names. Four bits lie two in a byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSource:
    """The graphs of a point, and how their sessions are opened. Equal sources share their sessions."""

    folder: Path
    bundle: Bundle
    settings: SessionSettings


Locate = Callable[[Point], GraphSource]
"""Finds the graphs of a point. Raises BenchhouseError when they are missing."""


class OrtSession(Session):
    """A model loaded by ONNX Runtime. The first point's graphs are loaded at once, those of other points when
    needed."""

    def __init__(
        self,
        cell: Cell,
        points: Sequence[Point],
        locate: Locate,
        processing: Processing,
        stage: Stage,
        check: Callable[[GraphSource], None] = lambda source: None,
    ) -> None:
        """`check` is called after each load and raises BenchhouseError when the prepared build was not loaded."""
        self._cell = cell
        self._check = check
        self._locate = locate
        self._processing = processing
        self._io_mode: IoMode = "device" if cell.runtime_mode.get("io_mode") == "device" else "host"
        self._source: GraphSource | None = None
        self._loaded: LoadedGraphs | None = None
        with stage("weights_read"):  # where ONNX Runtime places the weights on the device too
            loaded = self._load(points[0])
        self.weights_bytes: int | None = loaded.bundle.weights_bytes
        self.parameter_count: int | None = loaded.bundle.parameter_count
        self.verified: Mapping[str, Json] = {**_describe(loaded, self._io_mode), **processing.verified}
        _check(cell, self.verified)

    def operation(self, point: Point) -> Operation:
        loaded = self._load(point)

        def replay(runner: GraphRunner) -> None:
            again = graph_operation(loaded.bundle, runner, self._cell.workload, point, self._processing)
            again.run(lambda name: None)

        runner = runner_of(loaded, self._io_mode, replay)
        return graph_operation(loaded.bundle, runner, self._cell.workload, point, self._processing)

    def close(self) -> None:
        self._source = self._loaded = None

    def _load(self, point: Point) -> LoadedGraphs:
        """The graphs of a point; others that are loaded are released first."""
        source = self._locate(point)
        if self._loaded is None or self._source != source:
            self._loaded = None
            self._loaded = load_graphs(source.folder, source.bundle, source.settings)
            self._check(source)
            self._source = source
        return self._loaded


def _describe(loaded: LoadedGraphs, io_mode: IoMode) -> dict[str, Json]:
    """What really runs: the sessions' settings, the types of the weights in the files, the nodes' providers."""
    bundle = loaded.bundle
    first = next(iter(loaded.sessions.values()))
    return {
        **in_force(first, loaded.settings),
        "io_mode": io_mode,
        "graphs": list[Json](bundle.graphs),
        "exporter": bundle.exporter,
        "parameter_dtypes": list[Json](sorted(bundle.weight_dtypes)),
        "parameters_by_dtype": dict(sorted(bundle.weight_dtypes.items())),
        "model_size_bytes": files_bytes(loaded.folder),
        "assigned_nodes_by_provider": _assigned(loaded),
    }


def files_bytes(folder: Path) -> int:
    """Bytes of the graphs' files, weights included."""
    return sum(file.stat().st_size for file in folder.iterdir() if file.is_file() and file.suffix != ".json")


def _assigned(loaded: LoadedGraphs) -> Json:
    """Nodes by provider over all graphs; None where ONNX Runtime does not report them."""
    totals: dict[str, int] = {}
    for session in loaded.sessions.values():
        nodes = assigned_nodes(session)
        if nodes is None:
            return None
        totals |= {provider: count + totals.get(provider, 0) for provider, count in nodes.items()}
    return dict[str, Json](totals)


def _check(cell: Cell, verified: Mapping[str, Json]) -> None:
    """Raise when what runs is not what was requested."""
    if cell.num_threads is not None and verified["num_threads"] != cell.num_threads:
        raise BenchhouseError(f"asked for {cell.num_threads} threads, but ONNX Runtime uses {verified['num_threads']}")
    types = verified["parameters_by_dtype"]
    assert isinstance(types, dict)
    counts = {name: count for name, count in types.items() if isinstance(count, int) and count}
    wanted = STORED_AS.get(cell.precision, (cell.precision,))
    floats = {name: count for name, count in counts.items() if "float" in name}
    is_there = any(name in counts for name in wanted)
    is_most = cell.precision in ("int8", "int4") or max(floats, key=lambda name: floats[name], default="") in wanted
    if not (is_there and is_most):
        held = ", ".join(f"{count} x {name}" for name, count in sorted(counts.items()))
        raise UnsupportedError(f"asked for {cell.precision}, but the graphs' weights are {held}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedGraphs:
    """The sessions of a bundle, by graph."""

    folder: Path
    bundle: Bundle
    settings: SessionSettings
    sessions: Mapping[str, Any]
    profiles: bool = False
    """Whether the sessions write profiles, which slows them."""


def load_graphs(
    folder: Path, bundle: Bundle, settings: SessionSettings, profiles_in: Path | None = None
) -> LoadedGraphs:
    """Sessions of all graphs; with a folder for profiles each writes one there. Raises as `open_graph` does."""
    sessions = {
        name: open_graph(
            folder / graph.file, settings, profile=None if profiles_in is None else profiles_in / f"{name}-"
        )
        for name, graph in bundle.graphs.items()
    }
    return LoadedGraphs(
        folder=folder, bundle=bundle, settings=settings, sessions=sessions, profiles=profiles_in is not None
    )


def runner_of(loaded: LoadedGraphs, io_mode: IoMode, replay: Replay | None = None) -> HostRunner | DeviceRunner:
    """A runner for one point's calls."""
    return HostRunner(loaded, replay) if io_mode == "host" else DeviceRunner(loaded, replay)


class OrtRunner(GraphRunner):
    """What both ways of calling share: the graphs, fresh states, and where the kernels ran."""

    io_mode: IoMode

    def __init__(self, loaded: LoadedGraphs, replay: Replay | None) -> None:
        import numpy
        import onnxruntime

        self._numpy = numpy
        self._value = onnxruntime.OrtValue
        self._errors = error_types()
        self._loaded = loaded
        self._replay = replay
        self._graphs = loaded.bundle.graphs
        self._outputs = {name: [one.name for one in graph.outputs] for name, graph in self._graphs.items()}
        self._kept = {name: {one.output: one.input for one in graph.states} for name, graph in self._graphs.items()}
        self._zeros: dict[tuple[str, int], dict[str, Placed]] = {}

    def begin(self, graph: str, batch_size: int, first: Mapping[str, Placed]) -> States:
        """The zeros are reused: no call writes to its inputs."""
        if (graph, batch_size) not in self._zeros:
            self._zeros[graph, batch_size] = self._made_zeros(self._graphs[graph], batch_size)
        return {**self._zeros[graph, batch_size], **first}

    def _made_zeros(self, graph: Graph, batch_size: int) -> dict[str, Placed]:
        made = {}
        for state in graph.states:
            if state.first_from is None:
                dtype = graph.input(state.input).dtype
                made[state.input] = self._on_device(self._numpy.zeros(state.first_shape(batch_size), dtype=dtype))
        return made

    def _on_device(self, array: np.ndarray) -> Placed:
        raise NotImplementedError

    def _split(self, graph: str, outputs: Mapping[str, Placed]) -> tuple[Mapping[str, Placed], States]:
        """A call's results, and its states by the inputs of the next call."""
        kept = self._kept[graph]
        states = {kept[name]: value for name, value in outputs.items() if name in kept}
        return {name: value for name, value in outputs.items() if name not in kept}, states

    def verified(self) -> dict[str, Json]:
        """Where the kernels of a call ran, from one further call in profiled sessions."""
        if self._replay is None:
            return {}
        with tempfile.TemporaryDirectory(prefix="benchhouse-profile-") as name:
            loaded = load_graphs(self._loaded.folder, self._loaded.bundle, self._loaded.settings, Path(name))
            self._replay(runner_of(loaded, self.io_mode))
            profiles = {graph: Path(session.end_profiling()) for graph, session in loaded.sessions.items()}
            kernels = [kernel for graph, path in profiles.items() for kernel in read_profile(path, graph)]
        settings = self._loaded.settings
        placed = placement(kernels, settings.provider.name)
        return {**placed, **_emulated(settings.precision, placed["compute_types"])}


def _emulated(precision: Precision, compute_types: Json) -> dict[str, Json]:
    """`emulated_precision` where no product of a half-precision graph computes in it: on a CPU without such arithmetic
    ONNX Runtime silently puts conversions around float32 kernels."""
    is_half = precision in ("float16", "bfloat16")
    if not is_half or not isinstance(compute_types, dict) or not compute_types or precision in compute_types:
        return {}
    return {"emulated_precision": precision}


class HostRunner(OrtRunner):
    """`run` with the host's arrays: every call copies its inputs to the device and its outputs back.

    What graphs pass to each other stays in ONNX Runtime's own values, which need no copy where the host computes.
    """

    io_mode: IoMode = "host"

    def __init__(self, loaded: LoadedGraphs, replay: Replay | None) -> None:
        super().__init__(loaded, replay)
        self._takes_arrays = loaded.bundle.kind in ("forward", "denoiser")

    def place(self, array: np.ndarray) -> Placed:
        return array if self._takes_arrays else self._on_device(array)

    def fetch(self, tensor: Placed) -> np.ndarray:
        array: np.ndarray = tensor if isinstance(tensor, self._numpy.ndarray) else tensor.numpy()
        return array

    def call(self, graph: str, feeds: Mapping[str, Placed]) -> Mapping[str, Placed]:
        names, session = self._outputs[graph], self._loaded.sessions[graph]
        try:
            if self._takes_arrays:
                return dict(zip(names, session.run(names, feeds), strict=True))
            return dict(zip(names, session.run_with_ort_values(names, feeds), strict=True))
        except self._errors as error:
            raise translate_error(f"running graph {graph!r}", error) from error

    def step(self, graph: str, feeds: Mapping[str, Placed], states: States) -> tuple[Mapping[str, Placed], States]:
        return self._split(graph, self.call(graph, {**feeds, **states}))

    def _on_device(self, array: np.ndarray) -> Placed:
        return self._value.ortvalue_from_numpy(self._numpy.ascontiguousarray(array))


class DeviceRunner(OrtRunner):
    """Inputs and outputs bound to the device's memory: states stay there from step to step without a copy."""

    io_mode: IoMode = "device"

    def __init__(self, loaded: LoadedGraphs, replay: Replay | None) -> None:
        super().__init__(loaded, replay)
        self._memory = loaded.settings.provider.memory or HOST_MEMORY
        self._bindings = {
            name: Binding(session, self._outputs[name], self._memory) for name, session in loaded.sessions.items()
        }

    def place(self, array: np.ndarray) -> Placed:
        return self._on_device(array)

    def fetch(self, tensor: Placed) -> np.ndarray:
        array: np.ndarray = tensor.numpy()
        return array

    def call(self, graph: str, feeds: Mapping[str, Placed]) -> Mapping[str, Placed]:
        try:
            return self._bindings[graph].run(feeds)
        except self._errors as error:
            raise translate_error(f"running graph {graph!r}", error) from error

    def step(self, graph: str, feeds: Mapping[str, Placed], states: States) -> tuple[Mapping[str, Placed], States]:
        return self._split(graph, self.call(graph, {**feeds, **states}))

    def _on_device(self, array: np.ndarray) -> Placed:
        return self._value.ortvalue_from_numpy(self._numpy.ascontiguousarray(array), self._memory, 0)


class Binding:
    """A session's inputs and outputs bound to memory. Only those that changed since the last call are bound again."""

    def __init__(self, session: Any, outputs: list[str], memory: str) -> None:
        self._session = session
        self._outputs = outputs
        self._memory = memory
        self._binding = session.io_binding()
        self._bound: dict[str, Placed] = {}

    def run(self, feeds: Mapping[str, Placed]) -> dict[str, Placed]:
        """The finished outputs by name, on the device: in the same memory when the inputs are the same as before, else
        in new memory, so that one call's outputs can be the next call's inputs."""
        changed = [name for name, value in feeds.items() if self._bound.get(name) is not value]
        for name in changed:
            self._binding.bind_ortvalue_input(name, feeds[name])
            self._bound[name] = feeds[name]
        if changed or not feeds:
            self._binding.clear_binding_outputs()
            for name in self._outputs:
                self._binding.bind_output(name, self._memory, 0)
        self._session.run_with_iobinding(self._binding)
        self._binding.synchronize_outputs()
        return dict(zip(self._outputs, self._binding.get_outputs(), strict=True))
