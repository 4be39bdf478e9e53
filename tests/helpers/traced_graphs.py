"""Graphs as torch's exporter writes them, with the modules in which each node was traced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarking.graphs.profiling import CLASSES, SCOPES

WIDTH = 64


def node(name: str, operator: str, *scopes: tuple[str, str]) -> Any:
    """A node with the metadata: paths and classes of the modules around it, then the operator itself."""
    made = helper.make_node(operator, ["x"], ["x"], name=name)
    paths, classes = ["", *(path for path, _ in scopes), name], ["own.Wrapper", *(one for _, one in scopes), "aten.op"]
    for key, value in ((SCOPES, paths), (CLASSES, classes)):
        made.metadata_props.add(key=key, value=repr(value))
    return made


def graph_in_modules(folder: Path) -> Path:
    """The file of a layer with a normalisation whose weights are ones, which engines leave out, and two products."""
    model, layer = ("model", "own.Model"), ("model.layer.0", "own.Layer")
    norm = ("model.layer.0.norm", "torch.nn.modules.normalization.LayerNorm")
    dense = ("model.layer.0.dense", "torch.nn.modules.linear.Linear")
    nodes = []
    for name, operator, inputs, output, scopes in (
        ("node_layer_norm", "LayerNormalization", ["x", "ones", "zeros"], "normed", (model, layer, norm)),
        ("node_linear", "MatMul", ["normed", "weight"], "wide", (model, layer, dense)),
        ("node_gelu", "Tanh", ["wide"], "active", (model, layer)),
        ("node_linear_1", "MatMul", ["active", "weight"], "y", (model, layer, dense)),
    ):
        one = node(name, operator, *scopes)
        one.input[:], one.output[:] = inputs, [output]
        nodes.append(one)
    values = np.random.default_rng(0).standard_normal((WIDTH, WIDTH)).astype(np.float32)
    constants = {"ones": np.ones(WIDTH, np.float32), "zeros": np.zeros(WIDTH, np.float32), "weight": values}
    told = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", WIDTH]) for name in ("x", "y")]
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "layer", told[:1], told[1:], initializers)
    path = folder / "layer.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))
    return path
