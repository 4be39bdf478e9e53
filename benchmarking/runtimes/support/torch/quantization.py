"""Quantized linear layers by torchao: the methods, their application, and the quantized share of a model.

Everything but the weights of linear layers keeps another dtype (`settings.TORCH_DTYPES`). float8 also quantizes the
inputs of each product, like the method `dynamic` of int8.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarking.core.contracts import Option
from benchmarking.core.errors import UnsupportedError, UsageError, first_line, memory_errors
from benchmarking.core.plugins import is_installed, version_of
from benchmarking.core.records import Device, Json, Precision, Scalar
from benchmarking.devices.support.kinds import has, is_processor, names_with

OPTION = "quantization"
DYNAMIC, WEIGHT_ONLY, PER_ROW, PER_TENSOR = "dynamic", "weight-only", "per-row", "per-tensor"
METHODS: Mapping[Precision, tuple[str, ...]] = {
    "float8_e4m3": (PER_ROW, PER_TENSOR),
    "int8": (DYNAMIC, WEIGHT_ONLY),
    "int4": (WEIGHT_ONLY,),
}
"""The methods of each precision, the default first. For float8: one scale per row of a product's operands, or one per
operand."""
QUANTIZATION = Option(
    name=OPTION,
    help="quantization method",
    values=(DYNAMIC, WEIGHT_ONLY, PER_ROW, PER_TENSOR),
    default="; ".join(f"{methods[0]} at {precision}" for precision, methods in METHODS.items()),
    is_filled_in=False,
    tried=(WEIGHT_ONLY, PER_TENSOR),
)
MIN_QUANTIZED_SHARE = 0.5
"""Minimum quantized share of a model's matrix weights. Below it the precision would be a mere label: torchao does not
quantize convolutions or the stacked weights of experts."""

UNCOMPILED_INT8 = (
    "uncompiled, torchao's int8 product on a GPU synchronizes at every call and computes shapes that are not multiples "
    "of 8 on the CPU: use --runtime compiled for int8"
)
"""torchao.kernel.intmm.safe_int_mm (0.18) searches for "FakeTensor" in the input's `repr` and calls `.cpu()`; compiled
code does not. Uncompiled, the method weight-only would convert every weight at each call; compiled, that is fused."""


def why_not(device: Device, precision: Precision, *, compiles: bool) -> str | None:
    """None, or why torchao cannot quantize to a precision on a device. `compiles`: the runtime compiles the model."""
    if precision not in METHODS:
        return None
    if not is_installed("torchao"):
        return f"{precision} needs torchao: pip install torchao"
    on_processor = is_processor(device.type)
    if not has(device.type, lambda kind: kind.has_torchao_kernels) or (on_processor and precision == "float8_e4m3"):
        devices = names_with(
            lambda kind: kind.has_torchao_kernels and not (kind.is_processor and precision == "float8_e4m3")
        )
        return f"{precision} by torchao runs on {', '.join(devices)}, not on {device.type}"
    if on_processor:
        lacks_kernels = precision == "int4" and not is_installed("mslk")
        why = "int4 weight-only by torchao needs mslk (1.0.0 or later) on a CPU, which is not installed"
        return why if lacks_kernels else None
    if "bfloat16" not in device.precisions:
        return f"{precision} by torchao needs bfloat16, which {device.name or device.selector} does not support"
    if precision == "int8" and not compiles:
        return UNCOMPILED_INT8
    return None


def with_method(runtime: str, precision: Precision, mode: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """The settings with the method of a quantized precision. Raises UsageError if the precision lacks the method."""
    methods, requested = METHODS.get(precision, ()), mode.get(OPTION)
    if not methods:
        if requested is not None:
            quantized = " or ".join(METHODS)
            raise UsageError(f"{OPTION} {requested}: {precision} is not quantized: use --precision {quantized}")
        return dict(mode)
    if requested is not None and requested not in methods:
        raise UsageError(f"{OPTION} {requested!r}: runtime {runtime} supports {', '.join(methods)} at {precision}")
    return {**mode, OPTION: methods[0] if requested is None else requested}


def quantize(model: Any, precision: Precision, method: str, device_type: str) -> dict[str, Json]:
    """Quantize a model's linear layers in place. Returns facts read from the model.

    Raises UnsupportedError if torchao cannot, or if most of the model's matrices stay unquantized.
    """
    import torchao.quantization as ao

    converted = _replace_conv1d(model)
    try:
        with memory_errors(f"quantizing to {precision}"):
            config: Any
            if precision == "float8_e4m3":
                granularity = ao.PerRow() if method == PER_ROW else ao.PerTensor()
                config = ao.Float8DynamicActivationFloat8WeightConfig(granularity=granularity)
            elif precision == "int8":
                config = ao.Int8DynamicActivationInt8WeightConfig() if method == DYNAMIC else ao.Int8WeightOnlyConfig()
            elif is_processor(device_type):
                config = ao.Int4WeightOnlyConfig()
            else:  # the layout of torch's int4 kernels; others need another package
                config = ao.Int4WeightOnlyConfig(int4_packing_format="tile_packed_to_4d")
            ao.quantize_(model, config)
    except (AssertionError, ImportError, NotImplementedError, RuntimeError, ValueError) as error:
        raise UnsupportedError(f"torchao cannot quantize to {precision} {method}: {first_line(error)}") from error
    return {**_read_back(model, precision, method), **({"conv1d_as_linear": converted} if converted else {})}


def configuration(precision: Precision, method: Scalar | None) -> str | None:
    """torchao's configuration of a quantized precision as an expression in its module, on a CPU or in the layout of any
    device; None for another precision, and for int4, whose layout depends on the device."""
    return {
        ("float8_e4m3", PER_ROW): "Float8DynamicActivationFloat8WeightConfig(granularity=ao.PerRow())",
        ("float8_e4m3", PER_TENSOR): "Float8DynamicActivationFloat8WeightConfig(granularity=ao.PerTensor())",
        ("int8", DYNAMIC): "Int8DynamicActivationInt8WeightConfig()",
        ("int8", WEIGHT_ONLY): "Int8WeightOnlyConfig()",
    }.get((precision, str(method)))


def is_quantized(tensor: Any) -> bool:
    """Whether a tensor wraps others, as torchao's tensors do."""
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    return bool(is_traceable_wrapper_subclass(tensor))


def _replace_conv1d(model: Any) -> int:
    """Replace transformers' Conv1D (in GPT-2), which torchao would skip, by linear layers with the transposed weight.
    Returns their number."""
    import torch
    from transformers.pytorch_utils import Conv1D

    children = [(parent, name, child) for parent in model.modules() for name, child in parent.named_children()]
    children = [(parent, name, child) for parent, name, child in children if isinstance(child, Conv1D)]
    for parent, name, child in children:
        inputs, outputs = child.weight.shape
        linear = torch.nn.Linear(inputs, outputs, device="meta")
        linear.weight = torch.nn.Parameter(child.weight.detach().T.contiguous(), requires_grad=False)
        linear.bias = child.bias
        setattr(parent, name, linear.eval())
    return len(children)


def _read_back(model: Any, precision: Precision, method: str) -> dict[str, Json]:
    """The quantized layers and their share of the matrix weights. Raises UnsupportedError if the share is too small."""
    from torch import nn

    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    layers = sum(is_quantized(module.weight) for module in linear)
    # The parameters of matrix products: all but embedding tables, each once.
    modules = [module for module in model.modules() if not isinstance(module, nn.Embedding)]
    parameters = {id(parameter): parameter for module in modules for parameter in module.parameters(recurse=False)}
    matrices = [parameter for parameter in parameters.values() if parameter.dim() >= 2]
    total = sum(parameter.numel() for parameter in matrices)
    share = sum(parameter.numel() for parameter in matrices if is_quantized(parameter)) / total if total else 0.0
    if share < MIN_QUANTIZED_SHARE:
        raise UnsupportedError(
            f"{precision} {method}: torchao quantizes {layers} of the model's {len(linear)} linear layers, "
            f"{share:.0%} of its matrix weights; the rest would run unquantized"
        )
    versions = {name: version_of(name) for name in ("torchao", "mslk")}
    return {
        "quantization": method,
        "quantized_by": {name: version for name, version in versions.items() if version is not None},
        "quantized_layers": layers,
        "linear_layers": len(linear),
        "quantized_matrix_share": share,
    }
