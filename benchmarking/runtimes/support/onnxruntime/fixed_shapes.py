"""Graphs compiled for one fixed shape by a device's compiler (TensorRT, QNN), for a point, and kept as builds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarking.builds.store import Build, BuildKey, BuildStore
from benchmarking.core.errors import BenchhouseError
from benchmarking.core.records import Cell, Json, Point, Rebuild, Workload
from benchmarking.graphs import session as graphs
from benchmarking.graphs.bundle import Bundle, Graph, read_bundle
from benchmarking.workloads.support.families import plugin_of, recipe_of

if TYPE_CHECKING:
    import numpy as np

INPUTS = "inputs."
MakeFixed = Callable[[Path, Bundle, Mapping[str, int], Path], Mapping[str, Json]]
"""Compiles the bundle in the first folder at fixed sizes of its free dimensions into the last folder: its facts."""


def why_not_forward(runtime: str, workload: Workload) -> str | None:
    """None for a workload that is one pass through one graph; else why it has no single fixed shape."""
    recipe = recipe_of(workload)
    if isinstance(recipe, str):
        return recipe
    if recipe.kind != "forward":
        return (
            f"runtime {runtime} compiles graphs for fixed shapes: one forward pass, not {workload.task}, "
            "whose shapes grow from step to step"
        )
    return None


def fixed_dimensions(bundle: Bundle, arrays: Mapping[str, np.ndarray]) -> dict[str, int]:
    """The sizes of the free dimensions of all graphs with these inputs. Raises BenchhouseError for a dimension of no
    input."""
    sizes: dict[str, int] = {}
    for graph in bundle.graphs.values():
        sizes |= _sizes(graph, arrays)
        free = {size for tensor in graph.inputs for size in tensor.shape if isinstance(size, str)}
        if unknown := sorted(free - set(sizes)):
            raise BenchhouseError(f"no input of the model has the dimension {', '.join(unknown)}")
    return sizes


def point_dimensions(cell: Cell, point: Point, bundle: Bundle) -> dict[str, int]:
    """The sizes at a point, from the family's inputs."""
    arrays = plugin_of(cell.workload).inputs(cell.workload, point, cell.workload.seed)
    return fixed_dimensions(bundle, arrays)


def ensure_fixed(
    kind: str,
    cell: Cell,
    points: Sequence[Point],
    store: BuildStore,
    rebuild: Rebuild,
    depends_on: Mapping[str, Json],
    make: MakeFixed,
) -> Mapping[str, Json]:
    """Make the bundles of these points and compile each, where the store lacks them.

    The facts are those of the bundles, with the compiled builds under the kind's name."""
    facts = graphs.ensure_bundle(cell, points, store, rebuild)
    made: list[tuple[Build, bool]] = []
    for point in points:
        folder = graphs.find_bundle(cell, point, store=store)
        bundle = read_bundle(folder)
        sizes = point_dimensions(cell, point, bundle)
        key = fixed_key(kind, cell, point, sizes, depends_on)

        def compiled_into(
            out: Path, folder: Path = folder, bundle: Bundle = bundle, sizes: Mapping[str, int] = sizes
        ) -> Mapping[str, Json]:
            return make(folder, bundle, sizes, out)

        made.append(store.get(key, compiled_into, rebuild))
    compiled: list[Json] = [
        {**build.facts, "digest": build.digest, "build_s": build.build_s, "is_new": is_new} for build, is_new in made
    ]
    return {**facts, kind: compiled, f"{kind}_build_s": sum(build.build_s for build, is_new in made)}


def fixed_key(
    kind: str, cell: Cell, point: Point, sizes: Mapping[str, int], depends_on: Mapping[str, Json]
) -> BuildKey:
    """The key of compiled graphs: the bundle, the shape, and the device and versions in `depends_on`."""
    parts: dict[str, Json] = {
        "model_id": cell.workload.model_id,
        "bundle": graphs.bundle_key(cell, point).digest,
        "precision": cell.precision,
        "dimensions": dict(sizes),
        **depends_on,
    }
    return BuildKey(kind=kind, parts=parts)


def find_fixed(
    kind: str, cell: Cell, point: Point, sizes: Mapping[str, int], depends_on: Mapping[str, Json]
) -> tuple[Path, Build]:
    """The folder and record of a compiled build. Raises BenchhouseError when it is not in the store."""
    key = fixed_key(kind, cell, point, sizes, depends_on)
    return BuildStore().require(key, f"{cell.workload.model_id} at {point.label}")


def _sizes(graph: Graph, arrays: Mapping[str, np.ndarray]) -> dict[str, int]:
    found: dict[str, int] = {}
    for tensor in graph.inputs:
        source = graph.feeds.get(tensor.name, "")
        array = arrays.get(source.removeprefix(INPUTS)) if source.startswith(INPUTS) else None
        if array is not None:
            pairs = zip(tensor.shape, array.shape, strict=True)
            found |= {free: size for free, size in pairs if isinstance(free, str)}
    return found
