"""A graph that chooses the next tokens from a decoder's logits in the memory that holds them. Only the tokens reach the
host: 8 bytes per sequence instead of 200 kB for a vocabulary of 50 000.

It is a separate session, because runtimes that choose on the host would also compute nodes in the decoder's graph.

2026-11-22: ONNX's ArgMax is not used. On CUDA it is cuDNN's reduction, which does not specify which of several equal
maxima it finds; in float16 ties are frequent, and every later token would differ from the host's. Like numpy, this
graph chooses the first id among the maxima, and all five operators have kernels in ONNX Runtime's CUDA and CPU
providers (tests/benchmarking/graphs/test_on_cuda.py checks the CUDA provider itself).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarking.builds.store import Build, BuildKey, BuildStore
from benchmarking.core.plugins import version_of
from benchmarking.core.records import Json, Rebuild
from benchmarking.graphs.bundle import Bundle

KIND = "next-token"
VERSION = 1
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
    logits = (
        next((output for output in decode.outputs if output.name == decode.result), None)
        if decode is not None
        else None
    )
    if logits is None or len(logits.shape) != 3 or not isinstance(logits.shape[-1], int):
        return None
    parts: dict[str, Json] = {
        "version": VERSION,
        "dtype": logits.dtype,
        "vocabulary": logits.shape[-1],
        "versions": {"onnx": version_of("onnx")},
    }
    return BuildKey(kind=KIND, parts=parts)


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
    import numpy as np
    import onnx
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
