"""FLOPs and bytes of a call, counted while torch runs it operator by operator.

A formula gives an operator's FLOPs, two for each multiply-add, from the shapes and types of its tensors. `FORMULAS`
adds formulas that torch lacks, at least in some versions.

Counts depend on shapes only, so products, convolutions and attention, which are most of a call's work, are not
computed: their results are zeros. A call that then reads a value (generated tokens, chosen experts) runs again with
everything computed. Counts do not vary between calls and are stored in the build cache.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import cache
from math import isfinite, prod
from typing import Any

from benchmarking.builds.store import BuildKey, BuildStore, model_parts
from benchmarking.core.codec import is_number
from benchmarking.core.errors import OutOfMemoryError, StorageError, memory_errors
from benchmarking.core.lazy_modules import torch
from benchmarking.core.plugins import version_of
from benchmarking.core.records import FAILED, NOT_APPLICABLE, NOT_SUPPORTED, Cell, Json, Point, Readings
from benchmarking.core.untrusted.redaction import cut_to

NAMES = ("flops", "bytes_accessed")

BY_DEVICE = "flops_by_device"

MAX_NAMED = 3
"""Number of operators listed in a reason."""

VIEWS = frozenset({"aten::_unsafe_view", "aten::lift_fresh"})
"""Operators that return views of memory although their signatures do not declare it."""

ALLOCATIONS = frozenset(
    {"aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::new_empty_strided"}
)

OVERWRITES = frozenset({"aten::copy_", "aten::fill_", "aten::zero_"})
"""In-place operators that do not read the old values."""

LOOKUPS = frozenset({"aten::embedding", "aten::gather", "aten::index", "aten::index_select", "aten::take"})
"""Operators that read only the selected part of their first operand."""

BAGS = frozenset({"aten::_embedding_bag", "aten::_embedding_bag_forward_only"})
"""Operators that read only the rows of their first operand that the second selects, and add them up."""

SCATTERS = frozenset({"aten::index_copy_", "aten::index_fill_", "aten::index_put_", "aten::put_", "aten::scatter_"})
"""In-place operators that write only a part of their first operand."""
ADDING = frozenset({"aten::index_add_", "aten::index_reduce_", "aten::scatter_add_", "aten::scatter_reduce_"})
"""In-place operators that also read the part that they write."""

KIND = "flops"
"""Kind of the builds that hold counts."""
COUNTING_VERSION = 5
"""Incremented when the same call is counted differently than before, so that older counts are not used."""
PACKAGES = ("torch", "transformers", "torchao", "kernels")
"""Packages that decide which operators a call runs."""

OnKernel = Callable[[str, int, int], None]
"""Receives each operator that ran a kernel, with its FLOPs (0 without a formula) and bytes."""
OnDispatch = Callable[[str], None]
"""Receives the name of each operator that torch dispatches. A composite operator is followed by its parts."""


def count_key(cell: Cell, point: Point, arrays: Mapping[str, Any]) -> BuildKey:
    """Everything that the counts of a point's call depend on; `arrays` are its inputs on the host, by name.

    Weights matter, since they choose the experts of a mixture and the generated tokens, and so does the device's model,
    by which torch chooses its attention kernel. Requests in flight and threads do not.
    """
    parts: dict[str, Json] = {
        **model_parts(cell.workload),
        "point": replace(point, concurrency=1).label,
        "inputs": [[name, list(array.shape), str(array.dtype)] for name, array in sorted(arrays.items())],
        "device": cell.device.type,
        "device_name": cell.device.name,
        "runtime": cell.runtime,
        "mode": dict(cell.runtime_mode),
        "precision": cell.precision,
        "counting_version": COUNTING_VERSION,
        "versions": {name: version_of(name) for name in PACKAGES},
    }
    return BuildKey(kind=KIND, parts=parts)


def cached_count(key: BuildKey, count: Callable[[], Readings], store: BuildStore | None = None) -> Readings:
    """The result of `count`, or the stored counts of an equal key, without calling it.

    Failed counts are not stored, damaged ones are counted again, and without a writable cache nothing is stored. A
    counting process does not wait for others.
    """
    store = store or BuildStore()
    try:
        build = store.find(key)
    except StorageError:
        build = None
    if build is not None and (cached := stored_counts(build.facts)) is not None:
        return cached
    counts = count()
    if not has_failed(counts):
        with suppress(StorageError):  # a count is not worth losing a point
            facts: dict[str, Json] = {"values": dict(counts.values), "missing": dict(counts.missing)}
            store.get(key, lambda folder: facts, "always")
    return counts


def has_failed(counts: Readings) -> bool:
    """Whether the call failed while it was counted, so that only a part of it was."""
    return any(why.startswith(FAILED) for why in counts.missing.values())


def stored_counts(facts: Mapping[str, Any]) -> Readings | None:
    """The counts in a build's facts; None if they are invalid."""
    values, missing = facts.get("values"), facts.get("missing")
    if not isinstance(values, dict) or not isinstance(missing, dict) or {*values, *missing} != {*NAMES, BY_DEVICE}:
        return None
    by_device = values.get(BY_DEVICE)
    counts = [values[name] for name in NAMES if name in values]
    counts += by_device.values() if isinstance(by_device, dict) else [None]
    are_numbers = all(is_number(count) for count in counts)
    if not are_numbers or not all(isfinite(count) and count >= 0 for count in counts):
        return None
    if not all(isinstance(why, str) for why in missing.values()):
        return None
    return Readings(values=values, missing=missing)


def count_by_shapes(
    call: Callable[[], Any], reset: Callable[[], None] = lambda: None, on_dispatch: OnDispatch | None = None
) -> Readings:
    """`count_work` with zeros instead of the results of products, convolutions and attention. If the call then reads
    values, or fails on them, it is reset and counted with everything computed."""
    names: list[str] = []
    counter = _counter_class()(None, names.append, computes=False)
    try:
        with _no_value_reads()(counter):
            _run_counted(counter, call)
    except (Exception, _ValueNeededError):  # noqa: BLE001 - zeros may break a call; its own errors recur
        reset()
        return count_work(call, on_dispatch=on_dispatch)
    if on_dispatch is not None:
        for name in names:
            on_dispatch(name)
    return _readings(counter)


def count_work(
    call: Callable[[], Any], on_kernel: OnKernel | None = None, on_dispatch: OnDispatch | None = None
) -> Readings:
    """`flops` and `bytes_accessed` of one call, run uncompiled in the caller's modes. `on_kernel` receives those of
    each operator, `on_dispatch` the name of every operator.

    flops: two for each multiply-add of matrix products, convolutions and attention, by the formulas of torch's
    FlopCounterMode and `FORMULAS`; element-wise operators, normalisation and softmax are left out. Causal attention
    counts in full.

    bytes_accessed: for each operator that runs a kernel, the bytes of its tensor operands, each read once, and of its
    results, each written once: the traffic without any cache between operators. Views and allocations move nothing; a
    broadcast dimension counts once; a lookup reads only the selected part and an in-place scatter writes only the given
    part; a result that is only overwritten is not read.

    flops_by_device: the counted FLOPs that torch computed, by its device type ("cpu", "cuda").

    A value that would be incomplete is missing with a reason: an operator without a formula, no operator with one, or a
    call that fails while being counted. Out of memory is raised."""
    counter = _counter_class()(on_kernel, on_dispatch)
    try:
        _run_counted(counter, call)
    except OutOfMemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - a call that cannot be counted loses only its counts
        why = f"{FAILED}: while counting: {type(error).__name__}: {cut_to(' '.join(str(error).split()), 200)}"
        return Readings(missing=dict.fromkeys(NAMES, why))
    return _readings(counter)


def _run_counted(counter: Any, call: Callable[[], Any]) -> None:
    """Run the call uncompiled under the counter. Unless something is compiled, torch's compiler is not imported, which
    takes as long as importing torch."""
    uncompiled = torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
    with memory_errors("counting"), uncompiled, counter:
        call()


def _readings(counter: Any) -> Readings:
    """What a counter has counted, with a reason for each count that would be incomplete."""
    values: dict[str, Json] = {BY_DEVICE: dict[str, Json](counter.flops_by_device)}
    missing: dict[str, str] = {}
    if uncounted := counter.uncounted:
        listed = ", ".join(f"{name} ({why})" for name, why in list(uncounted.items())[:MAX_NAMED])
        more = f" and {len(uncounted) - MAX_NAMED} more" if len(uncounted) > MAX_NAMED else ""
        missing["flops"] = f"{NOT_SUPPORTED}: operators without a FLOP count: {listed}{more}"
    elif counter.flops == 0:
        why = f"{NOT_APPLICABLE}: torch sees no matrix product, convolution or attention in the call"
        missing["flops"] = why
    else:
        values["flops"] = counter.flops
    if counter.bytes_accessed == 0:
        missing["bytes_accessed"] = f"{NOT_APPLICABLE}: the call runs no torch operator"
    else:
        values["bytes_accessed"] = counter.bytes_accessed
    return Readings(values=values, missing=missing)


@cache
def _counter_class() -> type[Any]:
    """The dispatch mode that counts, defined on first use because its base class is torch's."""
    from torch._ops import HigherOrderOperator, OpOverload
    from torch.utils import _python_dispatch

    dispatch_mode: Any = _python_dispatch.TorchDispatchMode

    class Counter(dispatch_mode):  # type: ignore[misc]  # torch leaves it untyped
        """Sees every operator before its kernel runs; composite operators are decomposed first."""

        supports_higher_order_operators = True

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # else torch imports its compiler to say so

        def __init__(
            self, on_kernel: OnKernel | None, on_dispatch: OnDispatch | None, *, computes: bool = True
        ) -> None:
            super().__init__()
            self.flops = 0
            self.bytes_accessed = 0
            self.flops_by_device: dict[str, int] = {}
            self.uncounted: dict[str, str] = {}
            """Why an operator's FLOPs are unknown, by operator."""
            self.has_skipped = False
            """Whether some operator was not computed."""
            self._formulas = _formulas()
            self._on_kernel = on_kernel
            self._on_dispatch = on_dispatch
            self._computes = computes

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if types and any(tensor.is_nested for tensor in _tensors((args, kwargs))):
                return NotImplemented  # its class calls operators of its values, which come here too
            is_higher = isinstance(func, HigherOrderOperator)
            if self._on_dispatch is not None:
                self._on_dispatch(_name(func))
            if not is_higher and self._formula(func) is None and func.name() != "prim::device":
                with self:
                    parts = func.decompose(*args, **kwargs)
                if parts is not NotImplemented:
                    return parts
            if self.has_skipped and (is_higher or _reads_values(func, args)):
                raise _ValueNeededError
            result = self._result(func, types, args, kwargs)
            flops = self._count(func, args, kwargs, result)
            moved_bytes = _moved_bytes(None if is_higher else func, args, kwargs, result)
            self.bytes_accessed += moved_bytes
            if self._on_kernel is not None and (flops or moved_bytes):
                self._on_kernel(_name(func), flops, moved_bytes)
            return result

        def _result(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
            """The operator's result, or zeros."""
            # Only an operator that creates a new result from ordinary tensors can be left out.
            is_plain = isinstance(func, OpOverload) and not types and not func._schema.is_mutable
            if self._computes or self._formula(func) is None or not is_plain or _has_sparse(args, kwargs):
                return func(*args, **kwargs)
            zeros = _zeros(func, args, kwargs)
            self.has_skipped = True
            return zeros

        def _formula(self, func: Any) -> Callable[..., int] | None:
            return self._formulas.get(getattr(func, "_overloadpacket", func))

        def _count(self, func: Any, args: Any, kwargs: Any, result: Any) -> int:
            """The operator's FLOPs; 0 if they are not counted."""
            formula, name = self._formula(func), _name(func)
            if formula is None:
                if name in WITHOUT_FORMULA or name.partition("::")[0] not in TORCH_NAMESPACES:
                    self.uncounted[name] = "no formula"
                return 0
            if _has_sparse(args, kwargs):
                self.uncounted[name] = "sparse operands"
                return 0
            try:
                flops = int(formula(*args, **kwargs, out_val=result))
                if any(tensor.is_complex() for tensor in _tensors(result)):
                    flops *= 4  # a complex multiply-add is four real ones
                self.flops += flops
                results = result if isinstance(result, tuple | list) else (result,)
                place = next((str(tensor.device.type) for tensor in results if hasattr(tensor, "device")), None)
                if place is not None:
                    self.flops_by_device[place] = self.flops_by_device.get(place, 0) + flops
                return flops
            except (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
                self.uncounted[name] = f"its formula does not fit: {cut_to(str(error), 80) or type(error).__name__}"
                return 0

    return Counter


class _ValueNeededError(BaseException):  # not an Exception, which a model may catch
    """A call reads a value that was not computed."""


VALUE_READS = frozenset({"tolist", "numpy", "__array__", "__dlpack__", "data_ptr", "untyped_storage", "storage"})
"""Methods of a tensor that read its memory without an operator."""


@cache
def _no_value_reads() -> type[Any]:
    """A mode in which the methods `VALUE_READS` raise once the counter has skipped computing an operator."""
    from torch.overrides import TorchFunctionMode

    class NoValueReads(TorchFunctionMode):
        def __init__(self, counter: Any) -> None:
            super().__init__()
            self._counter = counter

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if self._counter.has_skipped and getattr(func, "__name__", "") in VALUE_READS:
                raise _ValueNeededError
            return func(*args, **(kwargs or {}))

    return NoValueReads


def _reads_values(func: Any, args: Any) -> bool:
    """Whether the operator returns a value to Python, or a result whose shape depends on values."""
    if func.name() == "aten::index.Tensor":
        return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])
    return torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags


def _zeros(func: Any, args: Any, kwargs: Any) -> Any:
    """Zeros in the shape, type and layout of the operator's result, which torch infers without computing it."""
    from torch.utils import _pytree

    tensors = _tensors((args, kwargs))

    def on_meta(tensor: Any) -> Any:
        return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta")

    def zeros_like(tensor: Any) -> Any:
        zeros = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensors[0].device)
        return zeros.zero_()

    args, kwargs = _pytree.tree_map_only(torch.Tensor, on_meta, (args, kwargs))
    return _pytree.tree_map_only(torch.Tensor, zeros_like, func(*args, **kwargs))


@cache
def _formulas() -> Mapping[Any, Callable[..., int]]:
    """FLOP formulas by operator: torch's, overridden by `FORMULAS`, and the same for in-place variants."""
    from torch.utils.flop_counter import FlopCounterMode

    added = {}
    for name, formula in FORMULAS.items():
        namespace, _, operator = name.partition("::")
        packet = getattr(getattr(torch.ops, namespace), operator, None)
        if packet is not None:  # None if this version of torch, or of the package, lacks the operator
            added[packet] = formula
    formulas = FlopCounterMode(display=False, custom_mapping=added).flop_registry
    in_place = ((getattr(torch.ops.aten, f"{packet.__name__}_", None), formulas[packet]) for packet in formulas)
    return {**formulas, **{packet: formula for packet, formula in in_place if packet is not None}}


def _name(func: Any) -> str:
    """The qualified name without the overload: "aten::mm"."""
    schema = getattr(func, "_schema", None)
    return f"higher_order::{func.name()}" if schema is None else str(schema.name)


def _moved_bytes(func: Any, args: Any, kwargs: Any, result: Any) -> int:
    """Bytes that an operator reads and writes (see `count_work`); None for a higher-order operator, which has no
    schema."""
    read, written = _tensors((args, kwargs)), _tensors(result)
    if func is None:
        return _bytes_of(read) + _bytes_of(written)
    name = _name(func)
    if name in ALLOCATIONS or name in VIEWS or func.is_view:
        return 0
    if name in LOOKUPS:
        return _bytes_of(read[1:]) + 2 * _bytes_of(written)
    if name in BAGS:
        table, rows = read[0], args[1].numel()
        return _bytes_of(read[1:]) + int(rows * table.shape[1] * table.element_size()) + _bytes_of(written)
    if name in SCATTERS | ADDING:
        values = {**dict(zip((one.name for one in func._schema.arguments), args, strict=False)), **kwargs}
        adds = name in ADDING or values.get("accumulate") or "reduce" in values
        return _bytes_of(read[1:]) + (1 + bool(adds)) * _written_part(name, read, values)
    if name in OVERWRITES:
        read = read[1:]
    outs = {id(kwargs.get(argument.name)) for argument in func._schema.arguments if argument.is_out}
    return _bytes_of([tensor for tensor in read if id(tensor) not in outs]) + _bytes_of(written)


def _written_part(name: str, read: Sequence[Any], values: Mapping[str, Any]) -> int:
    """Bytes of the part of its first operand that an in-place scatter writes."""
    target, count = read[0], read[-1].numel()
    if "scatter" in name:  # one value for each index, whatever else the source holds
        count = values["index"].numel()
    elif name == "aten::index_fill_" and target.dim():
        count = values["index"].numel() * target.numel() // max(target.shape[values["dim"]], 1)
    elif name == "aten::index_put_":  # the values may be one for many places
        count = target[tuple(slice(None) if one is None else one for one in values["indices"])].numel()
    return int(count * target.element_size())


def _tensors(tree: Any) -> list[Any]:
    """The tensors in an operator's arguments or results, in order, each once."""
    from torch.utils import _pytree

    tensors = {id(leaf): leaf for leaf in _pytree.tree_iter(tree) if isinstance(leaf, torch.Tensor)}
    return list(tensors.values())


def _has_sparse(args: Any, kwargs: Any) -> bool:
    return any(is_sparse(tensor) for tensor in _tensors((args, kwargs)))


def is_sparse(tensor: Any) -> bool:
    """Whether a tensor is stored as indices and values, in any of torch's formats."""
    return str(tensor.layout).startswith("torch.sparse")


def sparse_parts(tensor: Any) -> list[Any]:
    """The dense tensors that a sparse tensor is stored in."""
    if tensor.layout == torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]


def _bytes_of(tensors: list[Any]) -> int:
    total = 0
    for tensor in tensors:
        if is_sparse(tensor):
            total += _bytes_of(sparse_parts(tensor))
        elif tensor.numel():
            # A broadcast dimension, which has no memory of its own, has stride 0.
            stored = (size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride != 0)
            total += prod(stored) * tensor.element_size()
    return total


Shape = Sequence[int]

TORCH_NAMESPACES = frozenset({"aten", "prim", "prims", "higher_order"})
"""Namespaces of torch's operators. The FLOPs of kernels in other namespaces are unknown."""

WITHOUT_FORMULA = frozenset(
    {
        *("aten::_cdist_forward", "aten::_cudnn_rnn", "aten::_lstm_mps", "aten::_mixed_dtypes_linear"),
        *("aten::_native_multi_head_attention", "aten::_scaled_grouped_mm", "aten::_scaled_grouped_mm_v2"),
        "aten::_scaled_mm_v2",
        *("aten::_sparse_addmm", "aten::_sparse_mm_reduce_impl", "aten::_sparse_sparse_matmul"),
        *("aten::_sparse_semi_structured_addmm", "aten::_sparse_semi_structured_linear"),
        *("aten::_sparse_semi_structured_mm", "aten::_cslt_sparse_mm", "aten::_transformer_encoder_layer_fwd"),
        *("aten::_trilinear", "aten::_weight_int4pack_mm", "aten::_weight_int4pack_mm_for_cpu"),
        *("aten::_weight_int4pack_mm_with_scales_and_zeros", "aten::_weight_int8pack_mm"),
        *("aten::addbmm", "aten::addbmm_", "aten::conv_tbc", "aten::hspmm", "aten::miopen_rnn"),
        *("aten::mkldnn_rnn_layer", "aten::quantized_gru", "aten::quantized_lstm", "aten::sparse_sampled_addmm"),
        *("aten::_fft_c2c", "aten::_fft_c2r", "aten::_fft_r2c"),
        *("aten::_cholesky_solve_helper", "aten::_linalg_det", "aten::_linalg_eigh", "aten::_linalg_eigvals"),
        *("aten::_linalg_slogdet", "aten::_linalg_solve_ex", "aten::_linalg_svd", "aten::_spsolve", "aten::cholesky"),
        *("aten::cholesky_inverse", "aten::cholesky_solve", "aten::geqrf", "aten::linalg_cholesky_ex"),
        *("aten::linalg_eig", "aten::linalg_eigvals", "aten::linalg_householder_product", "aten::linalg_inv_ex"),
        *("aten::linalg_ldl_factor_ex", "aten::linalg_ldl_solve", "aten::linalg_lstsq", "aten::linalg_lu"),
        *("aten::linalg_lu_factor_ex", "aten::linalg_lu_solve", "aten::linalg_matrix_exp", "aten::linalg_pinv"),
        *("aten::linalg_qr", "aten::linalg_solve_triangular", "aten::ormqr", "aten::triangular_solve"),
    }
)
"""torch operators with matrix products, or the work of many, but without a formula: a total without them would be too
small."""


def attention(query: Shape, key: Shape, value: Shape, *rest: Any, **named: Any) -> int:
    """Scores and their product with the values: 2 B H S T (D + E), for queries B x H x S x D and values B x G x T x E.

    Masked positions are counted too, as is usual, including with causal masks. Key heads shared by several query heads
    (G below H) count for each of them."""
    batch_heads, queries, width = prod(query[:-2]), query[-2], query[-1]
    return 2 * batch_heads * queries * key[-2] * (width + value[-1])


def grouped_product(left: Shape, right: Shape, *rest: Any, out_shape: Shape = (), **named: Any) -> int:
    """Rows divided over the matrices of a group: each row is multiplied by one K x N matrix, 2 K N.

    If the summed dimension is divided, the FLOPs are those of one full product: 2 M N K.
    """
    if len(left) == len(right) == 2:
        return 2 * left[0] * left[1] * right[1]
    return 2 * prod(left) * right[-1]


def product(left: Shape, right: Shape, *rest: Any, **named: Any) -> int:
    """M x K by K x N, or by a vector (N = 1), or a vector by a vector: 2 M K N."""
    return 2 * prod(left) * (right[1] if len(right) > 1 else 1)


def added_product(added: Shape, left: Shape, right: Shape, *rest: Any, **named: Any) -> int:
    """A product added to a tensor; the additions are not counted."""
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
    "aten::vdot": product,
    "transformers::grouped_mm_fallback": grouped_product,
}
"""Formulas by qualified name. They override torch's, which differ between versions for attention."""
