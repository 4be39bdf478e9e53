"""Graphs for ONNX Runtime alone: bundles with its fused operators, and the choice of the next tokens.

The bundles are optimized by onnxruntime.transformers, which replaces known patterns by ONNX Runtime's fused operators
(SkipLayerNormalization, Attention, ...).

2026-11-22: ONNX Runtime finds many of these patterns itself when it loads a graph. The operators fused by the optimizer
are in the build's facts (`fused_operators`), and the result's `output_error` shows the effect on accuracy.

The next tokens are chosen from a decoder's logits by a graph of its own, in the memory that holds them. Only the tokens
reach the host: 8 bytes per sequence instead of 200 kB for a vocabulary of 50 000.

That graph is a separate session, because runtimes that choose on the host would also compute nodes in the decoder's
graph.

2026-11-22: ONNX's ArgMax is not used. On CUDA it is cuDNN's reduction, which does not specify which of several equal
maxima it finds; in float16 ties are frequent, and every later token would differ from the host's. Like numpy, this
graph chooses the first id among the maxima, and all five operators have kernels in ONNX Runtime's CUDA and CPU
providers (tests/benchmarking/graphs/test_on_cuda.py checks the CUDA provider itself).
"""

from __future__ import annotations

import dataclasses
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarking.builds.store import Build, BuildKey, BuildStore, combined_facts
from benchmarking.core.errors import BenchhouseError, UnsupportedError, first_line
from benchmarking.core.lazy_modules import np, onnx
from benchmarking.core.plugins import version_of, versions_of
from benchmarking.core.records import Cell, Json, Point, Precision, Rebuild, Workload
from benchmarking.graphs.bundle import Bundle, read_bundle, write_bundle
from benchmarking.graphs.export import onnx_files
from benchmarking.graphs.export.exporter import build_facts, with_weights
from benchmarking.graphs.exported_model import bundle_key, ensure_bundle, quantizer_packages

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
    builds = (
        (fused_key(cell, point), partial(write_fused, store.folder(bundle_key(cell, point)), cell.workload))
        for point in points
    )
    return combined_facts(KIND, store.get_all(builds, rebuild))


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
        "versions": dict[str, Json](versions_of(quantizer_packages())),
    }
    return BuildKey(kind=KIND, parts=parts)


def write_fused(source: Path, workload: Workload, folder: Path) -> Mapping[str, Json]:
    """Fill an empty folder with the fused graphs of a bundle. Returns the facts of the build. Raises BenchhouseError
    unless a graph keeps its inputs and outputs, UnsupportedError if nothing was fused."""
    bundle, config = read_bundle(source), workload.config
    counts: Counter[str] = Counter()
    for name, graph in bundle.graphs.items():
        old, new = source / graph.file, folder / graph.file
        operators_before = _operators(onnx.load(str(old), load_external_data=False))
        try:
            with onnx_files.quiet(io.StringIO()):
                from onnxruntime.transformers import optimizer

                # Only its own fusions (level 0): ONNX Runtime's optimizations at load time depend on the provider.
                optimized = optimizer.optimize_model(
                    str(old),
                    model_type=PATTERNS[str(config["model_type"])],
                    num_heads=_number(config, HEADS),
                    hidden_size=_number(config, WIDTH),
                    opt_level=0,
                )
                size_bytes = sum(file.stat().st_size for file in (old, *onnx_files.weight_files(old)))
                optimized.save_model_to_file(str(new), use_external_data_format=size_bytes > IN_ONE_FILE_BYTES)
        except ImportError as error:
            raise UnsupportedError(f"fused graphs need the packages of onnxruntime's optimizer: {error}") from error
        except (RuntimeError, ValueError, KeyError, IndexError, AssertionError, AttributeError, TypeError) as error:
            raise BenchhouseError(
                f"onnxruntime's optimizer failed on graph {name!r}: {type(error).__name__}: {first_line(error)}"
            ) from error
        inputs, outputs = onnx_files.tensors(new)
        fused_tensors = [(tensor.name, tensor.dtype) for tensor in (*inputs, *outputs)]
        original = [(tensor.name, tensor.dtype) for tensor in (*graph.inputs, *graph.outputs)]
        if sorted(fused_tensors) != sorted(original):
            raise BenchhouseError(f"onnxruntime's optimizer changed the inputs or outputs of graph {name!r}")
        counts += _operators(optimized.model) - operators_before
    if not counts:
        raise UnsupportedError(
            f"the optimizer of onnxruntime.transformers found nothing to fuse in {', '.join(bundle.graphs)} of "
            f"{workload.model_id}: omit --fusion"
        )
    fused: dict[str, Json] = {FUSED: dict[str, Json](sorted(counts.items()))}
    bundle = with_weights(dataclasses.replace(bundle, facts={**bundle.facts, **fused}), folder)
    write_bundle(folder, bundle)
    return {**build_facts(bundle), **fused}


def fused_operators(bundle: Bundle) -> dict[str, Json]:
    """For `verified`: the numbers of fused operators in the bundle's files; empty for an unfused bundle."""
    counts = bundle.facts.get(FUSED)
    return {} if counts is None else {FUSED: counts}


def _number(config: Mapping[str, Json], names: Sequence[str]) -> int:
    """The first of these numbers in a configuration, or 0, which makes the optimizer detect it."""
    return next((value for name in names if isinstance(value := config.get(name), int)), 0)


def _operators(model: Any) -> Counter[str]:
    """Number of nodes by operator, for ONNX Runtime's own operators."""
    return Counter(node.op_type for node in model.graph.node if node.domain == "com.microsoft")


NEXT_TOKEN_KIND = "next-token"  # noqa: S105 - the kind of a build
NEXT_TOKEN_VERSION = 1
"""Incremented when the graph changes."""
FILE = "next_token.onnx"
LOGITS, TOKENS = "logits", "tokens"
"""Input: batch x positions x vocabulary. Output: the first of the most likely ids at the last position, batch x 1,
int64; the vocabulary's last id for logits that are all NaN."""
OPSET, IR_VERSION = 17, 9
"""The last opset in which ReduceMax and ReduceMin have their axes as attributes."""


def next_token_key(bundle: Bundle) -> BuildKey | None:
    """The build of the graph for a bundle's logits; None if the bundle does not generate, or if its vocabulary has no
    fixed size."""
    decode = bundle.graphs.get("decode")
    outputs = () if decode is None else (output for output in decode.outputs if output.name == decode.result)
    logits = next(iter(outputs), None)
    if logits is None or len(logits.shape) != 3 or not isinstance(logits.shape[-1], int):
        return None
    parts: dict[str, Json] = {
        "version": NEXT_TOKEN_VERSION,
        "dtype": logits.dtype,
        "vocabulary": logits.shape[-1],
        "versions": {"onnx": version_of("onnx")},
    }
    return BuildKey(kind=NEXT_TOKEN_KIND, parts=parts)


def ensure_next_token(bundle: Bundle, store: BuildStore, rebuild: Rebuild) -> tuple[Build, bool] | None:
    """The build of a bundle's graph, made if it is missing in the store, and whether it was made now; None without
    one."""
    key = next_token_key(bundle)
    if key is None:
        return None
    dtype, vocabulary = str(key.parts["dtype"]), int(str(key.parts["vocabulary"]))

    def make(folder: Path) -> Mapping[str, Json]:
        write_next_token(folder / FILE, dtype, vocabulary)
        return {"vocabulary": vocabulary, "dtype": dtype}

    return store.get(key, make, rebuild)


def find_next_token(bundle: Bundle) -> Path | None:
    """The file of a bundle's graph; None for a bundle without one. Raises BenchhouseError if it is not in the store."""
    key = next_token_key(bundle)
    return None if key is None else BuildStore().require(key, "next tokens")[0] / FILE


def write_next_token(path: Path, dtype: str, vocabulary: int) -> None:
    """Write the graph for logits of a type (numpy's name) and vocabulary size."""
    from onnx import helper, numpy_helper

    nodes = [
        helper.make_node("Gather", [LOGITS, "last"], ["at_last"], axis=1),
        helper.make_node("ReduceMax", ["at_last"], ["largest"], axes=[1], keepdims=1),
        helper.make_node("Equal", ["at_last", "largest"], ["is_largest"]),
        helper.make_node("Where", ["is_largest", "ids", "last_id"], ["candidates"]),
        helper.make_node("ReduceMin", ["candidates"], [TOKENS], axes=[1], keepdims=1),
    ]
    constants = {
        "last": np.array(-1, dtype=np.int64),
        "ids": np.arange(vocabulary, dtype=np.int64)[np.newaxis],
        "last_id": np.array([vocabulary - 1], dtype=np.int64),
    }
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        nodes,
        "next_token",
        [helper.make_tensor_value_info(LOGITS, kind, ["batch", "positions", vocabulary])],
        [helper.make_tensor_value_info(TOKENS, onnx.TensorProto.INT64, ["batch", 1])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    onnx.checker.check_model(model)
    onnx.save(model, path)
