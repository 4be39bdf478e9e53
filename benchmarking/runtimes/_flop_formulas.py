"""FLOPs of operators that torch itself has no formula for, or not in every version; and those that nobody has one for.

A formula takes the shapes of an operator's tensors and gives FLOPs: two for each multiply-add.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

Shape = Sequence[int]

TORCH_NAMESPACES = frozenset({"aten", "prim", "prims", "higher_order"})
"""Operators of torch itself. One of another namespace is somebody's kernel, whose work is not known here."""

WITHOUT_FORMULA = frozenset(
    {
        "aten::_cdist_forward",
        "aten::_cudnn_rnn",
        "aten::_native_multi_head_attention",
        "aten::_scaled_grouped_mm",
        "aten::_transformer_encoder_layer_fwd",
        "aten::_trilinear",
        "aten::_weight_int4pack_mm",
        "aten::_weight_int4pack_mm_for_cpu",
        "aten::_weight_int8pack_mm",
        "aten::addbmm",
        "aten::miopen_rnn",
        "aten::mkldnn_rnn_layer",
    }
)
"""torch's operators that hold matrix products and are not counted: a total without them would be too small."""


def attention(query: Shape, key: Shape, value: Shape, *rest: Any, **named: Any) -> int:
    """Scores and their product with the values: 2 B H S T (D + E), for queries B x H x S x D and values B x G x T x E.

    Masks save nothing here, causal ones neither: what they leave out is counted, as is usual. Heads of keys that
    several queries share (G below H) work for each of them.
    """
    batch_heads, queries, width = prod(query[:-2]), query[-2], query[-1]
    return 2 * batch_heads * queries * key[-2] * (width + value[-1])


def grouped_product(left: Shape, right: Shape, *rest: Any, out_shape: Shape = (), **named: Any) -> int:
    """Rows that are split over the matrices of a group: each row meets one K x N matrix, 2 K N.

    Where the summed dimension is the one that is split, it is that of one whole product: 2 M N K.
    """
    if len(left) == len(right) == 2:
        return 2 * left[0] * left[1] * right[1]
    return 2 * prod(left) * right[-1]


def product(left: Shape, right: Shape, *rest: Any, **named: Any) -> int:
    """M x K by K x N, or by a vector (N = 1), or a vector by a vector: 2 M K N."""
    return 2 * prod(left) * (right[1] if len(right) > 1 else 1)


def added_product(added: Shape, left: Shape, right: Shape, *rest: Any, **named: Any) -> int:
    """A product that is added to something; the additions are left out."""
    return product(left, right)


FORMULAS: dict[str, Callable[..., int]] = {
    "aten::_scaled_dot_product_attention_math_for_mps": attention,
    "aten::_scaled_dot_product_cudnn_attention": attention,
    "aten::_scaled_dot_product_efficient_attention": attention,
    "aten::_scaled_dot_product_flash_attention": attention,
    "aten::_scaled_dot_product_flash_attention_for_cpu": attention,
    "aten::_scaled_dot_product_fused_attention_overrideable": attention,
    "aten::_addmm_activation": added_product,
    "aten::_grouped_mm": grouped_product,
    "aten::_int_mm": product,
    "aten::addmv": added_product,
    "aten::dot": product,
    "aten::mv": product,
    "transformers::grouped_mm_fallback": grouped_product,
}
"""By qualified name. They come before torch's own formulas, which for attention differ between versions."""
