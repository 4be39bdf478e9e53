"""A build brought into memory and compiled: for any shape at once, or for those of one point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarking.errors import BenchhouseError
from benchmarking.graphs.bundle import Bundle, Graph, read_bundle
from benchmarking.records import Cell, Json, Point
from benchmarking.runtimes._openvino_build import check_weights, graph_file, weights_of
from benchmarking.runtimes._openvino_compile import Compiled, compile_graph, is_fixed
from benchmarking.workloads._families import plugin_of

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A build in memory."""

    folder: Path
    bundle: Bundle
    models: Mapping[str, Any]
    """openvino.Model by graph."""


def read(core: Any, folder: Path) -> Loaded:
    """The build in a folder. Raises BenchhouseError for a folder without one."""
    bundle = read_bundle(folder)
    models = {name: core.read_model(str(folder / graph_file(name))) for name in bundle.graphs}
    return Loaded(folder=folder, bundle=bundle, models=models)


def compile_for(cell: Cell, core: Any, loaded: Loaded, point: Point, cache: Path | None = None) -> dict[str, Compiled]:
    """Every graph on the cell's device: for any shape, or, where shapes are fixed, for the point's. Raises
    BenchhouseError as `compile_graph` does, and for a graph whose shapes a point does not tell."""
    models = _reshaped(cell, loaded, point) if is_fixed(cell) else loaded.models
    return {
        name: compile_graph(core, model, cell, point, has_states=bool(loaded.bundle.graphs[name].states), cache=cache)
        for name, model in models.items()
    }


def shapes_at(bundle: Bundle, name: str, point: Point, arrays: Mapping[str, np.ndarray]) -> dict[str, list[int]]:
    """The shapes of a graph's inputs at a point, whose family's inputs are `arrays`."""
    graph = bundle.graphs[name]
    return {tensor.name: _shape(bundle, graph, tensor.name, point, arrays) for tensor in graph.inputs}


def _reshaped(cell: Cell, loaded: Loaded, point: Point) -> dict[str, Any]:
    arrays = plugin_of(cell.workload).inputs(cell.workload, point, cell.workload.seed)
    models = {name: model.clone() for name, model in loaded.models.items()}
    for name, model in models.items():
        model.reshape(shapes_at(loaded.bundle, name, point, arrays))
    return models


def weights(loaded: Loaded, cell: Cell) -> tuple[dict[str, Json], int]:
    """For `verified` the types of the weights, and their bytes, both of all graphs together and read from the models.
    Raises UnsupportedError for weights that are not in the cell's precision."""
    dtypes: dict[str, int] = {}
    weights_bytes = 0
    for model in loaded.models.values():
        counted, size_bytes = weights_of(model)
        weights_bytes += size_bytes
        for dtype, count in counted.items():
            dtypes[dtype] = dtypes.get(dtype, 0) + count
    check_weights(dtypes, cell.precision, cell.workload.model_id)
    return {"parameter_dtypes": sorted(dtypes), "parameters_by_dtype": dict(sorted(dtypes.items()))}, weights_bytes


def _shape(bundle: Bundle, graph: Graph, name: str, point: Point, arrays: Mapping[str, np.ndarray]) -> list[int]:
    source = graph.feeds.get(name, "")
    if source == "timestep":
        return [point.batch_size]
    array = str(bundle.facts.get("latents")) if source == "latents" else source.removeprefix("inputs.")
    if array not in arrays:
        raise BenchhouseError(f"the shape of {name} ({source or 'fed by nothing'}) is not known at {point.label}")
    return list(arrays[array].shape)
