"""A workload's bundles, loaded by ONNX Runtime: the session that the runtimes over it share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from benchmarking.errors import BenchhouseError, UnsupportedError
from benchmarking.graphs.bundle import Bundle, read_bundle
from benchmarking.graphs.runner import GraphRunner
from benchmarking.graphs.session import find_bundle, graph_operation
from benchmarking.records import Cell, Json, Point
from benchmarking.runtimes import Operation, Stage
from benchmarking.runtimes._ort_options import SessionSettings, assigned_nodes, in_force
from benchmarking.runtimes._ort_runner import IoMode, LoadedGraphs, load_graphs, runner_of
from benchmarking.workloads._processing import Processing


class ChoosesSettings(Protocol):
    """How a runtime opens the sessions of a point."""

    def __call__(self, point: Point, bundle: Bundle) -> SessionSettings:
        """The settings; equal ones share their sessions."""


class OrtSession:
    """A model loaded by ONNX Runtime. The first point's graphs are loaded with it, others when a point needs them."""

    def __init__(
        self, cell: Cell, points: Sequence[Point], settings: ChoosesSettings, processing: Processing, stage: Stage
    ) -> None:
        self._cell = cell
        self._settings = settings
        self._processing = processing
        self._io_mode: IoMode = "device" if cell.runtime_mode.get("io_mode") == "device" else "host"
        self._loaded: LoadedGraphs | None = None
        with stage("weights_read"):
            loaded = self._load(points[0])
        with stage("to_device"):
            pass  # ONNX Runtime places the weights while it makes the session
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
        self._loaded = None

    def _load(self, point: Point) -> LoadedGraphs:
        """The graphs of a point: those of the last one where they are the same, which then are let go otherwise."""
        folder = find_bundle(self._cell, point)
        bundle = read_bundle(folder)
        settings = self._settings(point, bundle)
        held = self._loaded
        if held is None or (held.folder, held.settings) != (folder, settings):
            self._loaded = None
            self._loaded = load_graphs(folder, bundle, settings)
        assert self._loaded is not None
        return self._loaded


def _describe(loaded: LoadedGraphs, io_mode: IoMode) -> dict[str, Json]:
    """What really runs: the settings of the sessions, the types of the weights in the files, the nodes' providers."""
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
        "fixed_dimensions": dict(loaded.settings.dimensions),
    }


def files_bytes(folder: Path) -> int:
    """Bytes of the graphs' files: operators and weights."""
    return sum(file.stat().st_size for file in folder.iterdir() if file.is_file() and file.suffix != ".json")


def _assigned(loaded: LoadedGraphs) -> Json:
    """Nodes by provider over all graphs; None where ONNX Runtime does not tell."""
    totals: dict[str, Json] = {}
    for session in loaded.sessions.values():
        nodes = assigned_nodes(session)
        if nodes is None:
            return None
        for provider, count in nodes.items():
            totals[provider] = count + int(str(totals.get(provider, 0)))
    return totals


def _check(cell: Cell, verified: Mapping[str, Json]) -> None:
    """Raise when what runs is not what was asked for."""
    if cell.num_threads is not None and verified["num_threads"] != cell.num_threads:
        raise BenchhouseError(f"asked for {cell.num_threads} threads, but ONNX Runtime uses {verified['num_threads']}")
    types = verified["parameters_by_dtype"]
    assert isinstance(types, dict)
    wanted = {"tf32": "float32"}.get(cell.precision, cell.precision)
    held = {name for name, count in types.items() if count}
    if not any(_is_of(name, wanted) for name in held):
        raise UnsupportedError(f"asked for {cell.precision}, but the graphs' weights are {', '.join(sorted(held))}")


def _is_of(dtype: str, precision: str) -> bool:
    """Whether weights of a type make a graph one of a precision; four-bit ones lie two in a byte."""
    return dtype in {"int8": ("int8", "uint8"), "int4": ("int4", "uint4", "uint8")}.get(precision, (precision,))
