"""Bundles' graphs in ONNX Runtime: through `run` with the host's arrays, or bound to the device's memory."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from benchmarking.core.graph_contracts import GraphRunner, Placed, States
from benchmarking.core.records import Json, Precision
from benchmarking.devices.support.ort_providers import HOST_MEMORY
from benchmarking.graphs.bundle import Bundle, Graph
from benchmarking.runtimes.support.onnxruntime.options import SessionSettings, error_types, open_graph, translate_error
from benchmarking.runtimes.support.onnxruntime.profile import placement, read_profile

if TYPE_CHECKING:
    import numpy as np

IoMode = Literal["device", "host"]
Replay = Callable[[GraphRunner], None]
"""Makes the call that is measured once on another runner."""


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
    """Sessions of all graphs; with a folder for profiles, each writes its own. Raises as `open_graph` does."""
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
    """What both ways of running share: the graphs, fresh states, and what they really ran on."""

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
        """Zeros are made once: no call writes to its inputs."""
        if (graph, batch_size) not in self._zeros:
            self._zeros[graph, batch_size] = self._made_zeros(self._graphs[graph], batch_size)
        return {**self._zeros[graph, batch_size], **first}

    def _made_zeros(self, graph: Graph, batch_size: int) -> dict[str, Placed]:
        made = {}
        for state in graph.states:
            if state.first_from is None:
                shape = tuple(batch_size if size == "batch" else int(size) for size in state.first)
                made[state.input] = self._on_device(self._numpy.zeros(shape, dtype=graph.input(state.input).dtype))
        return made

    def _on_device(self, array: np.ndarray) -> Placed:
        raise NotImplementedError

    def _split(self, graph: str, outputs: Mapping[str, Placed]) -> tuple[Mapping[str, Placed], States]:
        """Outputs of the call, and states by the inputs that they are next."""
        kept = self._kept[graph]
        states = {kept[name]: value for name, value in outputs.items() if name in kept}
        return {name: value for name, value in outputs.items() if name not in kept}, states

    def verified(self) -> dict[str, Json]:
        """Where the kernels of a call ran, from a call more in sessions that are profiled."""
        if self._replay is None:
            return {}
        with tempfile.TemporaryDirectory(prefix="benchhouse-profile-") as name:
            loaded = load_graphs(self._loaded.folder, self._loaded.bundle, self._loaded.settings, Path(name))
            self._replay(runner_of(loaded, self.io_mode))
            profiles = {graph: Path(session.end_profiling()) for graph, session in loaded.sessions.items()}
            kernels = [kernel for graph, path in profiles.items() for kernel in read_profile(path, graph)]
        settings = self._loaded.settings
        told = placement(kernels, settings.provider.name)
        return {**told, **_emulated(settings.precision, told["compute_types"])}


def _emulated(precision: Precision, compute_types: Json) -> dict[str, Json]:
    """`emulated_precision` where every product of a half-precision graph computes in another type: on a CPU without
    such arithmetic ONNX Runtime puts conversions around kernels for float32, and says nothing."""
    is_half = precision in ("float16", "bfloat16")
    if not is_half or not isinstance(compute_types, dict) or not compute_types or precision in compute_types:
        return {}
    return {"emulated_precision": precision}


class HostRunner(OrtRunner):
    """`run` with arrays of the host: what goes to a device is copied there and back in every call.

    What graphs hand to each other stays in ONNX Runtime's own values, which cost no copy where the host computes.
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
    """A session's inputs and outputs bound to memory. Only what changed since the last call is bound anew."""

    def __init__(self, session: Any, outputs: list[str], memory: str) -> None:
        self._session = session
        self._outputs = outputs
        self._memory = memory
        self._binding = session.io_binding()
        self._bound: dict[str, Placed] = {}

    def run(self, feeds: Mapping[str, Placed]) -> dict[str, Placed]:
        """The outputs by name, on the device, which is done with them. After the same inputs again they are in the same
        memory; otherwise in memory of their own, so that one call's outputs can be the next one's inputs."""
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
