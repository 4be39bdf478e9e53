"""Loading a workload's torch model, its size and dtypes, its linear layers quantized by torchao, and a check that it is
the requested one.

A quantized model has its method and the share that is quantized. Everything but the weights of linear layers keeps
another dtype (`torch_settings.TORCH_DTYPES`). float8 also quantizes the inputs of each product, like the method
`dynamic` of int8.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarking.core.contracts import Option
from benchmarking.core.errors import BenchhouseError, UnsupportedError, UsageError, first_line, memory_errors
from benchmarking.core.lazy_modules import torch
from benchmarking.core.plugins import has, is_installed, is_processor, names_with, version_of
from benchmarking.core.records import Device, Json, Precision, Scalar, Workload
from benchmarking.devices.support.handles import SEPARATOR
from benchmarking.runtimes.support.torch.counting import is_sparse, sparse_parts
from benchmarking.runtimes.support.torch.torch_settings import dtype_of
from benchmarking.workloads.support.families import plugin_of
from benchmarking.workloads.support.quantized_weights import quantization_of


def load_model(
    workload: Workload, precision: Precision, attention: str | None, torch_name: str = ""
) -> tuple[Any, dict[str, Json]]:
    """The model in host memory and eval mode, with pretrained weights from its folder, seeded random weights, or its
    own.

    The second value is for `verified`: parameters missing in the pretrained weights (the head of another task), which
    get seeded random values."""
    from benchmarking.workloads.support.weights import fill, skip_random_initialisation

    plugin = plugin_of(workload)
    dtype = dtype_of(precision, torch_name)
    with memory_errors(f"loading {workload.model_id}"):
        if workload.weights == "given":
            return plugin.load(workload, dtype=dtype, attention=attention)[0], {}
        if quantization_of(workload) is not None:
            place = torch_name if torch_name.partition(SEPARATOR)[0] not in ("", "cpu") else None
            model, missing = plugin.load_quantized(workload, dtype=dtype, attention=attention, device=place)
            if missing:
                raise BenchhouseError(
                    f"the weights in {workload.path} lack {len(missing)} tensors, such as {missing[0]}"
                )
            return model, {}
        if workload.weights == "pretrained":
            model, missing = plugin.load(workload, dtype=dtype, attention=attention)
            # safetensors maps the file, whose pages are read on first access. Without a copy in the process's memory,
            # reading would happen in the first calls instead of in its stage, and writing to the file would change the
            # model. Storages allocated by torch (after a conversion) are resizable; mapped ones are not.
            for tensor in _tensors(model):
                if not tensor.untyped_storage().resizable():
                    tensor.data = tensor.data.clone()
            fill(model, seed=workload.seed, only=missing)
            return model, {"random_parameters": list(missing)}
        with skip_random_initialisation():
            model = plugin.build(workload, dtype=dtype, attention=attention)
        fill(model, seed=workload.seed)
        return model, {}


def to_device(model: Any, torch_name: str) -> Any:
    """The model on a device. Raises OutOfMemoryError if it does not fit."""
    with memory_errors(f"moving {weights_bytes(model)} bytes of weights to {torch_name}"):
        return model.to(torch_name)


def channels_last(tensor: Any) -> Any:
    """The tensor in channels-last layout, if it is a batch of images or the weights of a convolution over images (four
    dimensions); other tensors are returned unchanged."""
    is_image_like = tensor.dim() == 4 and tensor.is_floating_point()
    return tensor.to(memory_format=torch.channels_last) if is_image_like else tensor


def to_channels_last(model: Any) -> dict[str, Json]:
    """Put a model's convolution weights into channels-last layout, in place. Returns facts read from the model. Raises
    UnsupportedError for a model without convolutions over images."""
    weights = [parameter for parameter in model.parameters() if parameter.dim() == 4]
    for parameter in weights:
        parameter.data = channels_last(parameter.data)
    converted = sum(parameter.is_contiguous(memory_format=torch.channels_last) for parameter in weights)
    if not converted:
        raise UnsupportedError(f"memory format channels_last: {type(model).__name__} has no convolutions over images")
    return {"memory_format": "channels_last", "channels_last_weights": converted}


def weights_bytes(module: Any) -> int:
    """Bytes of the parameters and buffers, counting shared storage once; for a quantized parameter, those of the
    tensors that it wraps."""
    plain = [part for tensor in _tensors(module) for part in _parts(tensor)]
    storages = {(str(t.device), t.untyped_storage().data_ptr()): t.untyped_storage().nbytes() for t in plain}
    return sum(storages.values())


def parameter_count(module: Any) -> int:
    """Number of values in the parameters, counting shared ones once."""
    return sum(parameter.numel() for parameter in module.parameters())


def check_finite(module: Any, model_id: str) -> None:
    """Raise BenchhouseError for weights with NaN or infinity, naming the first such tensor.

    A sum is NaN or infinite if a summand is, and reads the memory once; only tensors whose sum is not finite are
    checked value by value.
    """
    for name, parameter in module.named_parameters():
        if (
            not parameter.is_floating_point()
            or parameter.element_size() == 1  # torch has no sums of 8-bit floats on every device
            or is_quantized(parameter)
            or torch.isfinite(parameter.detach().sum(dtype=torch.float32))
        ):
            continue
        finite = torch.isfinite(parameter)
        if not finite.all():
            count = f"{parameter.numel() - int(finite.sum())} of {parameter.numel()} values"
            raise BenchhouseError(f"the weights of {model_id} are broken: {name} contains NaN or Inf ({count})")


def verify(
    model: Any, precision: Precision, torch_name: str, attention: str | None, *, has_own_types: bool = False
) -> dict[str, Json]:
    """What actually runs, read from the model. Raises UnsupportedError if it differs from the request.

    `has_own_types`: whether parameters have types of their own: those of a quantized checkpoint, or of a user's module.

    Parameters that the model's authors keep in float32 at float16 are correct, and included in the facts.
    """
    from benchmarking.workloads.support.transformers_models import stays_float32

    requested_dtype = dtype_of(precision, torch_name)
    # Of a quantized checkpoint, `quantized_weights.read_back` checks the modules; a user's is converted by its family.
    for name, parameter in () if has_own_types else model.named_parameters():
        expected = torch.float32 if stays_float32(model, name, requested_dtype) else requested_dtype
        if parameter.dtype != expected:
            raise UnsupportedError(f"requested {precision}, but {name} is {_dtype_name(parameter.dtype)}")
    devices = sorted({_device_name(tensor) for tensor in _tensors(model)})
    if devices and devices != sorted(set(torch_name.split(SEPARATOR))):
        raise UnsupportedError(f"requested {torch_name}, but the model is on {', '.join(devices)}")
    actual_attention = getattr(getattr(model, "config", None), "_attn_implementation", None)
    if attention is not None and actual_attention != attention:
        raise UnsupportedError(f"requested attention {attention}, but the model uses {actual_attention}")
    return {**describe(model), "attention": actual_attention if attention is not None else None}


def describe(module: Any) -> dict[str, Json]:
    """Class, parameter dtypes with their counts, and devices of a module."""
    dtypes: dict[str, int] = {}
    for parameter in module.parameters():
        name = _true_dtype(parameter)
        dtypes[name] = dtypes.get(name, 0) + parameter.numel()
    return {
        "model_class": type(module).__name__,
        "parameter_dtypes": sorted(dtypes),
        "parameters_by_dtype": dict(sorted(dtypes.items())),
        "parameter_devices": sorted({_device_name(tensor) for tensor in _tensors(module)}),
    }


def _tensors(module: Any) -> Iterator[Any]:
    yield from module.parameters()
    yield from module.buffers()


def _parts(tensor: Any) -> list[Any]:
    """The tensors that hold a tensor's values: itself, those of a sparse tensor, or those wrapped by a quantized one
    (integers, scales, ...)."""
    if is_quantized(tensor):
        names, _ = tensor.__tensor_flatten__()
        return [part for name in names for part in _parts(getattr(tensor, name))]
    return sparse_parts(tensor) if is_sparse(tensor) else [tensor]


def _true_dtype(parameter: Any) -> str:
    """The dtype of a parameter's values in memory. A quantized parameter reports its products' dtype instead; its
    largest part holds the values, packed if it has fewer elements: int4 has two values per byte."""
    if not is_quantized(parameter):
        return _dtype_name(parameter.dtype)
    values = max(_parts(parameter), key=lambda part: part.nbytes)
    if values.numel() == parameter.numel():
        return _dtype_name(values.dtype)
    return f"int{round(8 * values.nbytes / parameter.numel())}"


def _device_name(tensor: Any) -> str:
    """The device name as in device handles: "cpu", "cuda:0", and "mps" without the number that torch adds."""
    device = tensor.device
    return str(device.type) if device.type in {"cpu", "mps"} else str(device)


def _dtype_name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


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
    OPTION,
    "quantization method",
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


def why_not_quantized(device: Device, precision: Precision, *, compiles: bool) -> str | None:
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
    linear = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    layers = sum(is_quantized(module.weight) for module in linear)
    # The parameters of matrix products: all but embedding tables, each once.
    modules = [module for module in model.modules() if not isinstance(module, torch.nn.Embedding)]
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
        **({"conv1d_as_linear": converted} if converted else {}),
    }


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
