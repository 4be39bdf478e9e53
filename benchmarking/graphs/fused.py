"""Bundles optimized by onnxruntime.transformers, which replaces known patterns by ONNX Runtime's fused operators
(SkipLayerNormalization, Attention, ...).

2026-11-22: ONNX Runtime finds many of these patterns itself when it loads a graph. The operators fused by the optimizer
are in the build's facts (`fused_operators`), and the result's `output_error` shows the effect on accuracy.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarking.builds.store import Build, BuildKey, BuildStore, combined_facts
from benchmarking.core.errors import BenchhouseError, UnsupportedError, first_line
from benchmarking.core.plugins import version_of
from benchmarking.core.records import Cell, Json, Point, Precision, Rebuild, Workload
from benchmarking.graphs.bundle import Bundle, Graph, read_bundle, write_bundle
from benchmarking.graphs.export import onnx_files
from benchmarking.graphs.export.exporter import build_facts
from benchmarking.graphs.exported_model import QUANTIZER_PACKAGES, bundle_key, ensure_bundle

KIND = "fused"
FUSED = "fused_operators"
PRECISIONS: tuple[Precision, ...] = ("float32", "tf32", "float16")
PATTERNS: Mapping[str, str] = {
    **dict.fromkeys(("bert", "albert", "camembert", "distilbert", "roberta", "xlm-roberta"), "bert"),
    **{name: name for name in ("bart", "gpt2", "gpt_neox", "phi", "qwen3", "swin", "t5", "vit")},
}
"""The optimizer's model types by `model_type` of a configuration (MODEL_TYPES in optimizer.py; huggingface_models.py
lists the models that share BERT's)."""
HEADS, WIDTH = ("num_attention_heads", "n_head", "num_heads"), ("hidden_size", "n_embd", "d_model")
"""Configuration keys of the numbers that the optimizer needs, for models with one of each (otherwise it detects
them)."""
IN_ONE_FILE_BYTES = 1_500_000_000
"""Larger weights are in a separate file, since a protobuf file is limited to 2 GB."""


def why_not_fused(workload: Workload) -> str | None:
    """None, or why the optimizer does not support a workload's model."""
    model_type = str(workload.config.get("model_type", "none"))
    if model_type in PATTERNS:
        return None
    return f"onnxruntime.transformers supports {', '.join(sorted(PATTERNS))}, not {model_type}"


def ensure_fused(cell: Cell, points: Sequence[Point], store: BuildStore, rebuild: Rebuild) -> Mapping[str, Json]:
    """Make the bundles of these points and the fused ones if they are missing in the store. Returns the facts of the
    fused ones.

    Raises as `ensure_bundle` does, and UnsupportedError if nothing was fused."""
    ensure_bundle(cell, points, store, rebuild)
    by_digest = {(key := fused_key(cell, point)).digest: (key, point) for point in points}
    builds: list[tuple[Build, bool]] = []
    for key, point in by_digest.values():
        source = store.folder(bundle_key(cell, point))
        builds.append(store.get(key, partial(write_fused, source, cell.workload), rebuild))
    return combined_facts(KIND, builds)


def find_fused(cell: Cell, point: Point) -> Path:
    """The folder of a point's fused bundle. Raises BenchhouseError if it is not in the store."""
    return BuildStore().require(fused_key(cell, point), f"{cell.workload.model_id} at {point.label}")[0]


def fused_key(cell: Cell, point: Point) -> BuildKey:
    """The inputs of a point's fused bundle."""
    parts: dict[str, Json] = {
        "model_id": cell.workload.model_id,
        "task": cell.workload.task,
        "bundle": bundle_key(cell, point).digest,
        "patterns": PATTERNS[str(cell.workload.config["model_type"])],
        "versions": {name: version for name in QUANTIZER_PACKAGES if (version := version_of(name)) is not None},
    }
    return BuildKey(kind=KIND, parts=parts)


def write_fused(source: Path, workload: Workload, folder: Path) -> Mapping[str, Json]:
    """Fill an empty folder with the fused graphs of a bundle. Returns the facts of the build."""
    bundle = read_bundle(source)
    counts: Counter[str] = Counter()
    for name, graph in bundle.graphs.items():
        counts += _write_fused_graph(name, graph, source / graph.file, workload, folder / graph.file)
    if not counts:
        raise UnsupportedError(
            f"the optimizer of onnxruntime.transformers found nothing to fuse in {', '.join(bundle.graphs)} of "
            f"{workload.model_id}: omit --fusion"
        )
    weights = onnx_files.weights([folder / graph.file for graph in bundle.graphs.values()])
    fused: dict[str, Json] = {FUSED: dict[str, Json](sorted(counts.items()))}
    facts = {**bundle.facts, **fused}
    new = dataclasses.replace(
        bundle, weights_bytes=weights.size_bytes, weight_dtypes=weights.values_by_dtype, facts=facts
    )
    write_bundle(folder, new)
    return {**build_facts(new), **fused}


def fused_operators(bundle: Bundle) -> dict[str, Json]:
    """For `verified`: the numbers of fused operators in the bundle's files; empty for an unfused bundle."""
    counts = bundle.facts.get(FUSED)
    return {} if counts is None else {FUSED: counts}


def _write_fused_graph(name: str, graph: Graph, source: Path, workload: Workload, target: Path) -> Counter[str]:
    """Write a graph's fused version. Returns its new operators with their numbers. Raises BenchhouseError unless it has
    the inputs and outputs of the original.

    The optimizer makes only its own fusions (level 0), since ONNX Runtime's optimizations at load time depend on the
    provider."""
    import onnx

    config = workload.config
    operators_before = _operators(onnx.load(str(source), load_external_data=False))
    try:
        with onnx_files.quiet():
            from onnxruntime.transformers import optimizer

            optimized = optimizer.optimize_model(
                str(source),
                model_type=PATTERNS[str(config["model_type"])],
                num_heads=_number(config, HEADS),
                hidden_size=_number(config, WIDTH),
                opt_level=0,
            )
            is_large = (
                sum(file.stat().st_size for file in (source, *onnx_files.weight_files(source))) > IN_ONE_FILE_BYTES
            )
            optimized.save_model_to_file(str(target), use_external_data_format=is_large)
    except ImportError as error:
        raise UnsupportedError(f"fused graphs need the packages of onnxruntime's optimizer: {error}") from error
    except (RuntimeError, ValueError, KeyError, IndexError, AssertionError, AttributeError, TypeError) as error:
        raise BenchhouseError(
            f"onnxruntime's optimizer failed on graph {name!r}: {type(error).__name__}: {first_line(error)}"
        ) from error
    inputs, outputs = onnx_files.tensors(target)
    fused = [(tensor.name, tensor.dtype) for tensor in (*inputs, *outputs)]
    original = [(tensor.name, tensor.dtype) for tensor in (*graph.inputs, *graph.outputs)]
    if sorted(fused) != sorted(original):
        raise BenchhouseError(f"onnxruntime's optimizer changed the inputs or outputs of graph {name!r}")
    return _operators(optimized.model) - operators_before


def _number(config: Mapping[str, Json], names: Sequence[str]) -> int:
    """The first of these numbers in a configuration, or 0, which makes the optimizer detect it."""
    return next((value for name in names if isinstance(value := config.get(name), int)), 0)


def _operators(model: Any) -> Counter[str]:
    """Number of nodes by operator, for ONNX Runtime's own operators."""
    own = [node.op_type for node in model.graph.node if node.domain == "com.microsoft"]
    return Counter(own)
