"""The kernels of a compiled model, node by node, from its execution graph after the first call.

Before that call, kernels that depend on shapes are not chosen yet. A node's compute precision is at the end of its
kernel's name ("brgemm_avx512_bf16"); `runtimePrecision` is the type of its output.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarking.core.errors import UnsupportedError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import NOT_SUPPORTED, Json, Scalar

NO_WORK = frozenset({"Const", "Constant", "Input", "Output", "Parameter", "Result"})
"""Layers without computation."""
MATRIX_LAYERS = (
    "convolution",
    "deconvolution",
    "fullyconnected",
    "fully_connected",
    "gemm",
    "lstm",
    "matmul",
    "attention",
    "sdpa",
)
"""Lower-case substrings of the names of layers with most of the arithmetic, in the CPU and GPU plugins."""
INTEGERS = frozenset({"i64", "i32", "u64", "u32", "i16", "u16", "boolean"})
"""Types of indices and shapes, which OpenVINO always computes on the CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node of an execution graph."""

    layer: str
    kernel: str
    precision: str
    """Type of its output: "f32", "u8"."""

    @property
    def is_matrix(self) -> bool:
        """Whether it is one of the layers with most of the arithmetic."""
        layer = self.layer.lower()
        return any(part in layer for part in MATRIX_LAYERS)

    @property
    def kernel_precision(self) -> str:
        """Its compute precision: the end of the kernel's name, or else the type of its output."""
        end = self.kernel.rpartition("_")[2].lower()
        return {"fp32": "f32", "fp16": "f16"}.get(end, end) if end else self.precision

    @property
    def is_on_cpu(self) -> bool:
        """Whether another device's plugin runs it on the CPU."""
        return "cpu" in self.kernel.lower().split("_") or self.kernel.lower().startswith("cpu")


def nodes_of(compiled: Any) -> tuple[Node, ...] | str:
    """The computing nodes of a compiled model, or why the plugin does not report them (NPU)."""
    try:
        operations = compiled.get_runtime_model().get_ops()
    except RuntimeError:
        return f"{NOT_SUPPORTED}: the plugin does not provide an execution graph"
    nodes = (
        Node(
            layer=_text(information, "layerType"),
            kernel=_text(information, "primitiveType"),
            precision=_text(information, "runtimePrecision").lower().replace("fp", "f"),
        )
        for information in (operation.get_rt_info() for operation in operations)
    )
    return tuple(node for node in nodes if node.layer not in NO_WORK)


def node_facts(nodes: Sequence[Node], kind: str) -> dict[str, Json]:
    """The stored facts of the nodes on a device of a kind ("CPU", "GPU")."""
    matrix = [node for node in nodes if node.is_matrix]
    facts: dict[str, Json] = {
        "nodes": len(nodes),
        "nodes_by_precision": _counted(node.precision for node in nodes),
        "matrix_nodes_by_precision": _counted(node.kernel_precision for node in matrix),
        "matrix_kernels": _counted(f"{node.layer} {node.kernel}" for node in matrix),
    }
    if kind != "CPU":
        facts["nodes_on_cpu_unasked"] = sum(node.is_on_cpu and node.precision not in INTEGERS for node in nodes)
    return facts


def check_kernels(nodes: Sequence[Node], hint: Scalar | None, name: str) -> None:
    """Raise UnsupportedError if a 16-bit precision was requested but no matrix product is computed in it, whatever hint
    the compiled model reports."""
    precisions = {node.kernel_precision for node in nodes if node.is_matrix}
    if hint in ("f16", "bf16") and precisions and hint not in precisions:
        raise UnsupportedError(
            f"requested {hint} on OpenVINO's {name}, but its matrix products are computed in "
            f"{', '.join(sorted(precisions))}"
        )


def _text(information: Mapping[str, Any], name: str) -> str:
    return str(information[name].value) if name in information else ""


def _counted(values: Iterable[str]) -> dict[str, Json]:
    return dict(sorted(Counter(values).items()))
