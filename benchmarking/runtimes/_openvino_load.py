"""A build brought into memory and compiled: for any shape at once, or for the shapes of one point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarking.errors import BenchhouseError
from benchmarking.graphs.bundle import Bundle, Graph, read_bundle
from benchmarking.records import Cell, Json, Point
from benchmarking.runtimes import Stage
from benchmarking.runtimes._openvino_build import check_weights, find_build, graph_file, weights_of
from benchmarking.runtimes._openvino_compile import Compiled, compile_graph
from benchmarking.workloads._families import plugin_of
from benchmarking.workloads._page_cache import page_cache

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A build in memory."""

    folder: Path
    bundle: Bundle
    models: Mapping[str, Any]
    """openvino.Model by graph."""
    compiled: Mapping[str, Compiled]
    """By graph; empty where shapes are fixed, since every point is then compiled by itself."""
    page_cache: Mapping[str, Json]
    """State of the weight files before they were read."""


def load(cell: Cell, core: Any, point: Point, stage: Stage, *, is_fixed: bool) -> Loaded:
    """The build of a point. Stages: weights_read, and to_device, which is compiling. Raises BenchhouseError as
    `find_build` and `compile_graph` do."""
    folder = find_build(cell, point)
    bundle = read_bundle(folder)
    files = {name: folder / graph_file(name) for name in bundle.graphs}
    cached = page_cache([file.with_suffix(".bin") for file in files.values()])
    with stage("weights_read"):
        models = {name: core.read_model(str(file)) for name, file in files.items()}
    with stage("to_device"):
        compiled = {} if is_fixed else compile_all(cell, core, bundle, models)
    return Loaded(folder=folder, bundle=bundle, models=models, compiled=compiled, page_cache=cached)


def compile_all(cell: Cell, core: Any, bundle: Bundle, models: Mapping[str, Any]) -> dict[str, Compiled]:
    """Every graph of a bundle on the cell's device."""
    return {
        name: compile_graph(core, model, cell, has_states=bool(bundle.graphs[name].states))
        for name, model in models.items()
    }


def compile_at(cell: Cell, core: Any, loaded: Loaded, point: Point) -> dict[str, Compiled]:
    """Every graph at the shapes of a point. Raises BenchhouseError for a graph whose shapes
    a point does not tell."""
    arrays = plugin_of(cell.workload).inputs(cell.workload, point, cell.workload.seed)
    models = {}
    for name, model in loaded.models.items():
        models[name] = model.clone()
        models[name].reshape(shapes_at(loaded.bundle, name, point, arrays))
    return compile_all(cell, core, loaded.bundle, models)


def shapes_at(bundle: Bundle, name: str, point: Point, arrays: Mapping[str, np.ndarray]) -> dict[str, list[int]]:
    """The shapes of a graph's inputs at a point, whose family's inputs are `arrays`."""
    graph = bundle.graphs[name]
    return {tensor.name: _shape(bundle, graph, tensor.name, point, arrays) for tensor in graph.inputs}


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
