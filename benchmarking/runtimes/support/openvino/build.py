"""A bundle of graphs as OpenVINO files: converted once, with weights compressed at int8 and int4.

An "openvino" build holds an `.xml` and a `.bin` for each graph of an "onnx" bundle, and the bundle's manifest. States
become model variables that live in the infer request, so a call passes only tokens.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from math import prod
from pathlib import Path
from typing import Any

from benchmarking.builds.store import BuildKey, BuildStore, combined_facts
from benchmarking.core.errors import BenchhouseError, UnsupportedError
from benchmarking.core.plugins import is_installed
from benchmarking.core.records import Cell, Json, Point, Precision, Rebuild
from benchmarking.devices.openvino import import_openvino, last_line
from benchmarking.graphs.bundle import (
    MANIFEST,
    QUANTIZED_TYPES,
    WEIGHT_NAMES,
    Graph,
    read_bundle,
    weights_precision,
)
from benchmarking.graphs.exported_model import bundle_key, ensure_bundle, find_bundle

KIND = "openvino"

CONVERSION_VERSION = 1
"""Incremented when the same bundle converts to different files, so that older builds are no longer found."""

SOURCE_PRECISION: Precision = "float32"
"""The bundle's precision for each precision of the cell: OpenVINO makes lower ones from float32 graphs."""

COMPRESSION: Mapping[Precision, str] = {"int8": "INT8_ASYM", "int4": "INT4_SYM"}
"""nncf's modes of weight compression. Where 4 bits are not possible (embeddings, the last layer, rows too short for a
group) nncf uses 8 bits; the number of values of each type is read from the files."""

GROUP_SIZE = 128
"""Number of 4-bit weights that share a scale, the usual size for language models. Halved down to `MIN_GROUP_SIZE` if a
row is not a multiple of it."""

MIN_GROUP_SIZE = 32

STORED_TYPES: Mapping[Precision, tuple[str, ...]] = {
    "float16": ("float16",),
    "int8": ("int8", "uint8"),
    "int4": ("int4", "uint4"),
}
"""Types of which at least one must occur among the weights of a precision."""


def build_key(cell: Cell, point: Point) -> BuildKey:
    """The inputs of a point's build. Imports neither torch nor openvino."""
    packages = ("openvino", "nncf") if cell.precision in COMPRESSION else ("openvino",)
    parts: dict[str, Json] = {
        "model_id": cell.workload.model_id,
        "bundle": bundle_key(cell, point, SOURCE_PRECISION).digest,
        "weights_in": _weights_in(cell.precision),
        "conversion_version": CONVERSION_VERSION,
        "versions": {name: version(name) for name in packages},
    }
    return BuildKey(kind=KIND, parts=parts)


def missing_for(precision: Precision) -> str | None:
    """None, or what must be installed to build a precision."""
    if precision in COMPRESSION and not is_installed("nncf"):
        return f"{precision} on openvino needs nncf to compress the weights: pip install nncf"
    return None


def ensure_builds(cell: Cell, points: Sequence[Point], store: BuildStore, rebuild: Rebuild) -> Mapping[str, Json]:
    """Make the builds of these points that are missing in the store, one per key. Returns their facts, with those of
    the bundles under `source`. Raises BenchhouseError if a graph cannot be converted."""
    source = ensure_bundle(cell, points, store, rebuild, SOURCE_PRECISION)

    def convert_at(point: Point, folder: Path) -> Mapping[str, Json]:
        found = find_bundle(cell, point, SOURCE_PRECISION, store)
        return convert(found, folder, cell.precision, cell.workload.model_id)

    builds = ((build_key(cell, point), partial(convert_at, point)) for point in points)
    return {**combined_facts(KIND, store.get_all(builds, rebuild)), "source": dict(source)}


def find_build(cell: Cell, point: Point, store: BuildStore | None = None) -> Path:
    """The folder of a point's build. Raises BenchhouseError if it is not in the store."""
    key = build_key(cell, point)
    return (store or BuildStore()).require(key, f"{cell.workload.model_id} at {point.label}")[0]


def graph_file(graph: str) -> str:
    """The file of a graph in a build."""
    return f"{graph}.xml"


def weights_of(models: Iterable[Any]) -> tuple[dict[str, int], int]:
    """Number of values by type and total bytes of all constants in openvino.Models, read from the models."""
    values: Counter[str] = Counter()
    size_bytes = 0
    for operation in (operation for model in models for operation in model.get_ops()):
        if operation.get_type_name() != "Constant":
            continue
        name = WEIGHT_NAMES.get(operation.get_element_type().get_type_name())
        size_bytes += operation.get_byte_size()
        if name is not None:
            values[name] += prod(int(size) for size in operation.shape)
    return dict(sorted(values.items())), size_bytes


def check_weights(dtypes: Mapping[str, int], precision: Precision, model_id: str) -> None:
    """Raise UnsupportedError if no weight has the precision's type or, at float32, if some have 16 bits."""
    counts = ", ".join(f"{count} {name}" for name, count in dtypes.items()) or "none"
    required = STORED_TYPES.get(precision)
    if required is not None and not any(dtypes.get(name) for name in required):
        raise UnsupportedError(f"{model_id} has no weights that can become {precision}; its weights are {counts}")
    if precision == "float32" and any(dtypes.get(name) for name in ("float16", "bfloat16")):
        raise UnsupportedError(f"requested float32, but the weights of {model_id} are {counts}")


def convert(source: Path, folder: Path, precision: Precision, model_id: str) -> Mapping[str, Json]:
    """Convert the bundle in `source` into `folder`. Returns the facts of the build."""
    bundle = read_bundle(source)
    is_quantized = weights_precision(bundle.weight_dtypes) in QUANTIZED_TYPES  # a user's file, which stays as it is
    saved = [
        _convert_graph(source / graph.file, graph, folder / graph_file(name), None if is_quantized else precision)
        for name, graph in bundle.graphs.items()
    ]
    dtypes, weights_bytes = weights_of(saved)
    check_weights(dtypes, precision, model_id)
    shutil.copyfile(source / MANIFEST, folder / MANIFEST)
    return {
        "exporter": bundle.exporter,
        "graphs": list(bundle.graphs),
        "weights_in": _weights_in(precision),
        "weight_dtypes": dict[str, Json](dtypes),
        "weights_bytes": weights_bytes,
    }


def _convert_graph(source: Path, graph: Graph, target: Path, precision: Precision | None) -> Any:
    """Read a graph, turn its states into variables, compress its weights (None: leave them), and save it. Returns the
    saved model."""
    openvino = import_openvino()
    from openvino._offline_transformations import apply_make_stateful_transformation, apply_moc_transformations

    core = openvino.Core()
    try:
        model = core.read_model(str(source))
    except RuntimeError as error:  # OpenVINO raises it for every failure
        raise BenchhouseError(f"OpenVINO cannot convert {source.name}: {last_line(error)}") from error
    # As `openvino.convert_model` simplifies; then its states become variables, which would hide some simplifications.
    apply_moc_transformations(model, cf=False)
    if graph.states:
        apply_make_stateful_transformation(model, {state.input: state.output for state in graph.states})
    if precision is not None and precision in COMPRESSION:
        import nncf
        from nncf.quantization.advanced_parameters import GroupSizeFallbackMode

        groups: dict[str, Any] = {}
        if precision != "int8":
            parameters = nncf.AdvancedCompressionParameters(
                group_size_fallback_mode=GroupSizeFallbackMode.ADJUST, min_adjusted_group_size=MIN_GROUP_SIZE
            )
            groups = {"group_size": GROUP_SIZE, "advanced_parameters": parameters}
        model = nncf.compress_weights(model, mode=nncf.CompressWeightsMode[COMPRESSION[precision]], **groups)
    openvino.save_model(model, str(target), compress_to_fp16=precision == "float16")
    return core.read_model(str(target))


def _weights_in(precision: Precision) -> str:
    """The storage of weights: 16 bits for float16, nncf's mode for integers, float32 otherwise."""
    return "FLOAT16" if precision == "float16" else COMPRESSION.get(precision, "FLOAT32")
