"""A workload's bundles, loaded by ONNX Runtime: the session that the runtimes over it share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarking.core.contracts import Operation, Session, Stage
from benchmarking.core.errors import BenchhouseError, UnsupportedError
from benchmarking.core.graph_contracts import GraphRunner
from benchmarking.core.records import Cell, Json, Point
from benchmarking.graphs.bundle import Bundle
from benchmarking.graphs.session import graph_operation
from benchmarking.runtimes.support.onnxruntime.options import SessionSettings, assigned_nodes, in_force
from benchmarking.runtimes.support.onnxruntime.runner import IoMode, LoadedGraphs, load_graphs, runner_of
from benchmarking.workloads.support.processing import Processing


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSource:
    """Where the graphs of a point are, and how their sessions are opened. Equal ones share their sessions."""

    folder: Path
    bundle: Bundle
    settings: SessionSettings


Locate = Callable[[Point], GraphSource]
"""Finds the graphs of a point. Raises BenchhouseError when they are not there."""


class OrtSession(Session):
    """A model loaded by ONNX Runtime. The first point's graphs are loaded with it, others when a point needs them."""

    def __init__(
        self,
        cell: Cell,
        points: Sequence[Point],
        locate: Locate,
        processing: Processing,
        stage: Stage,
        check: Callable[[GraphSource], None] = lambda source: None,
    ) -> None:
        """`check` is asked after each loading, and raises BenchhouseError when it was no loading of what is there."""
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
        """The graphs of a point: those that are loaded where they are the same, else they are let go first."""
        source = self._locate(point)
        if self._loaded is None or self._source != source:
            self._loaded = None
            self._loaded = load_graphs(source.folder, source.bundle, source.settings)
            self._check(source)
            self._source = source
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
    }


def files_bytes(folder: Path) -> int:
    """Bytes of the graphs' files: operators and weights."""
    return sum(file.stat().st_size for file in folder.iterdir() if file.is_file() and file.suffix != ".json")


def _assigned(loaded: LoadedGraphs) -> Json:
    """Nodes by provider over all graphs; None where ONNX Runtime does not tell."""
    totals: dict[str, int] = {}
    for session in loaded.sessions.values():
        nodes = assigned_nodes(session)
        if nodes is None:
            return None
        totals |= {provider: count + totals.get(provider, 0) for provider, count in nodes.items()}
    return dict[str, Json](totals)


STORED_AS = {"tf32": ("float32",), "int8": ("int8", "uint8"), "int4": ("int4", "uint4", "uint8")}
"""Types that weights of a precision have in the file, where they are not called as it. Four bits lie two in a byte."""


def _check(cell: Cell, verified: Mapping[str, Json]) -> None:
    """Raise when what runs is not what was asked for."""
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
