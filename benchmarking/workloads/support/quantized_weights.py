"""Quantized checkpoints as people download them: what their configuration says, whether it can be loaded here, and what
the loaded modules really hold.

transformers' own quantizers load them. Some of these convert the weights back to floating point on a device that lacks
their kernels, and only log it: that is refused where it is known beforehand, and read back otherwise.

2026-11-26: seen running on a CPU with bitsandbytes, compressed-tensors and torchao. The other methods were read in
transformers' quantizers (5.23).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.plugins import is_installed, version_of
from benchmarking.core.records import Json, Precision, Scalar, Workload

CONFIG = "quantization_config"
"""The key in a model's configuration."""
OPTION = "quantization"
"""The setting of a series."""
MIN_QUANTIZED_SHARE = 0.5
"""Minimum share of the matrix weights in quantized modules, below which the precision would be a mere label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    modules: tuple[str, ...]
    """Modules that transformers needs to load it."""
    packages: str
    """What pip installs for them."""
    needs_gpu: str = ""
    """Why it is not run on a CPU; empty if it is."""


METHODS: Mapping[str, Method] = {
    "awq": Method(modules=("gptqmodel", "accelerate"), packages="gptqmodel accelerate"),
    "bitsandbytes": Method(modules=("bitsandbytes", "accelerate"), packages="bitsandbytes accelerate"),
    "compressed-tensors": Method(modules=("compressed_tensors",), packages="compressed-tensors"),
    "fp8": Method(
        modules=("accelerate",),
        packages="accelerate",
        needs_gpu="without a GPU of compute capability 8.9 or newer, transformers converts the weights to bfloat16",
    ),
    "gptq": Method(modules=("gptqmodel", "optimum"), packages="gptqmodel optimum"),
    "mxfp4": Method(modules=("accelerate", "kernels", "triton"), packages="accelerate kernels triton"),
    "torchao": Method(modules=("torchao",), packages="torchao"),
}
"""By transformers' `quant_method`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    method: str
    type: str
    """Type of the values: "int4", "nf4", "float8", "mxfp4"."""
    bits: int
    group: str = ""
    """Number of values that share a scale ("128", "128x128"), or "channel" or "tensor"; empty if it is not stated."""
    activations: str = ""
    """Type to which the inputs of products are quantized ("int8"); empty if they are not, or if the method always does
    the same."""

    @property
    def setting(self) -> str:
        """The value of the setting `quantization`: "gptq:int4:g128"."""
        group = f":g{self.group}" if self.group[:1].isdigit() else f":{self.group}" if self.group else ""
        return f"{self.method}:{self.type}{group}" + (f":a-{self.activations}" if self.activations else "")

    @property
    def precision(self) -> Precision:
        """The precision of the series: the narrowest with enough bits."""
        if self.bits > 4:
            return "float8_e4m3" if "float" in self.type else "int8"
        return "int4"


def is_setting(value: Scalar | None) -> bool:
    """Whether a value of the setting `quantization` is that of a checkpoint."""
    return str(value).partition(":")[0] in METHODS and ":" in str(value)


def quantization_of(workload: Workload) -> Quantization | None:
    """How a workload's weights are quantized; None for unquantized weights."""
    config = workload.config.get(CONFIG)
    return None if config is None or workload.weights != "pretrained" else parse(config, workload.model_id)


def parse(config: Json, where: str) -> Quantization:
    """The quantization in a configuration. Raises UsageError for a method that is not supported or states no bits."""
    if not isinstance(config, dict):
        raise UsageError(f"{where}: {CONFIG} is not an object")
    method = config.get("quant_method")
    if method is None and (config.get("load_in_4bit") or config.get("load_in_8bit")):
        method = "bitsandbytes"
    if not isinstance(method, str) or method not in METHODS:
        raise UsageError(
            f"{where}: weights quantized with {method!s:.40} are not supported, only with {', '.join(METHODS)}: use "
            "the unquantized model"
        )
    type_, bits, group, activations = _READERS[method](config)
    if bits == UNSUPPORTED:
        raise UsageError(
            f"{where}: {CONFIG} of {method} has {type_:.60}, which is not supported: use the unquantized model"
        )
    if not isinstance(bits, int) or not 1 < bits <= 8:
        raise UsageError(f"{where}: {CONFIG} of {method} does not say how many bits (2 to 8) its weights have")
    return Quantization(method=method, type=type_, bits=bits, group=group, activations=activations)


Read = tuple[str, Any, str, str]
"""Type, bits, group and activations. Of what is not supported: its name, and `UNSUPPORTED` bits."""
UNSUPPORTED = 0


def _grouped(config: Mapping[str, Any]) -> Read:
    """GPTQ and AWQ, whose older files say w_bit and q_group_size."""
    bits = config.get("bits", config.get("w_bit"))
    group = config.get("group_size", config.get("q_group_size"))
    return f"int{bits}", bits, _group(group), ""


def _group(size: Any) -> str:
    """A group size; -1 or none is one group per channel."""
    if isinstance(size, list):
        return "x".join(str(one) for one in size if isinstance(one, int))
    return str(size) if isinstance(size, int) and size > 0 else "channel"


def _bitsandbytes(config: Mapping[str, Any]) -> Read:
    if config.get("load_in_8bit"):
        return "int8", 8, "channel", ""
    kind = str(config.get("bnb_4bit_quant_type", "fp4"))
    return (kind if kind in ("nf4", "fp4") else "fp4"), 4 if config.get("load_in_4bit") else None, "64", ""


def _fp8(config: Mapping[str, Any]) -> Read:
    group = _group(config["weight_block_size"]) if config.get("weight_block_size") else "tensor"
    return "float8", 8, group, ""


TORCHAO_NAME = re.compile(
    r"((?P<activations>float8|int8)(dyn|dynamic|static)activation)?(?P<weights>float8|int8|int4|intx)weight"
)
"""In the name of a configuration: Int8DynamicActivationInt4WeightConfig, int8_weight_only. The bits of intx are in its
data."""
INTEGER = re.compile(r"u?int([1-8])")


def _torchao(config: Mapping[str, Any]) -> Read:
    """By the class of torchao's configuration; a plain name is that of earlier versions ("int8_weight_only")."""
    kind = config.get("quant_type")
    default = kind.get("default") if isinstance(kind, dict) else None
    name = str(default.get("_type")) if isinstance(default, dict) else str(kind)
    data = default.get("_data") if isinstance(default, dict) else config.get("quant_type_kwargs")
    if not isinstance(data, dict):
        data = {}
    match = TORCHAO_NAME.search(name.lower().replace("_", ""))
    if match is None:
        return (name, UNSUPPORTED, "", "") if kind else ("", None, "", "")
    activations, type_ = match["activations"] or "", match["weights"]
    if type_ == "intx":
        dtype = data.get("weight_dtype")
        stated = INTEGER.fullmatch(str(dtype.get("_data") if isinstance(dtype, dict) else dtype))
        if stated is None:
            return "", None, "", ""
        type_ = f"int{stated[1]}"
    return type_, 8 if type_ == "float8" else int(type_[3:]), _granularity(data), activations


def _granularity(data: Mapping[str, Any]) -> str:
    """The group of a configuration of torchao; of two, the second is that of the weights. Older ones have a group size
    alone."""
    found = data.get("granularity", data.get("weight_granularity"))
    found = found[-1] if isinstance(found, list) and found else found
    if not isinstance(found, dict):
        return _group(data.get("group_size"))
    stated = found.get("_data")
    stated = stated if isinstance(stated, dict) else {}
    if found.get("_type") == "PerTensor":
        return "tensor"
    size = stated.get("block_size") if found.get("_type") == "PerBlock" else stated.get("group_size")
    return _block(size) if isinstance(size, list) else _group(size)


def _block(sizes: Sequence[int]) -> str:
    """The group of a block: of one row, its length."""
    return _group(list(sizes)) if sizes[:-1] != [1] else _group(sizes[-1])


def _compressed_tensors(config: Mapping[str, Any]) -> Read:
    """By the weights of its groups of layers, which must be of one kind."""
    groups = config.get("config_groups")
    kinds = list[Read]()
    for group in groups.values() if isinstance(groups, dict) else ():
        weights = group.get("weights") if isinstance(group, dict) else None
        if isinstance(weights, dict):
            is_float = weights.get("type") == "float"
            strategy, bits = str(weights.get("strategy")), weights.get("num_bits")
            size = weights.get("block_structure") if strategy == "block" else weights.get("group_size")
            group_text = _group(size) if strategy in ("group", "block", "tensor_group") else strategy
            inputs = group.get("input_activations")
            activations = f"{inputs.get('type', 'int')}{inputs.get('num_bits')}" if isinstance(inputs, dict) else ""
            kinds.append((f"{'float' if is_float else 'int'}{bits}", bits, group_text, activations))
    if not kinds or any(kind != kinds[0] for kind in kinds):
        return ("weights of several kinds", UNSUPPORTED, "", "") if kinds else ("unknown", None, "", "")
    return kinds[0]


_READERS = {
    "awq": _grouped,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed_tensors,
    "fp8": _fp8,
    "gptq": _grouped,
    "mxfp4": lambda config: ("mxfp4", 4, "32", ""),
    "torchao": _torchao,
}


def why_not(workload: Workload, precision: Precision, *, on_processor: bool, loads_quantized: bool) -> str | None:
    """None, or why a quantized checkpoint cannot be measured as requested; None for unquantized weights."""
    stored = quantization_of(workload)
    if stored is None:
        return None
    method = METHODS[stored.method]
    if not loads_quantized:
        return (
            f"{workload.model_id} has weights quantized with {stored.setting}, which only torch's runtimes load: use "
            "--runtime eager or the unquantized model"
        )
    absent = [name for name in method.modules if not is_installed(name)]
    if absent:
        return (
            f"{workload.model_id} has weights quantized with {stored.setting}, for which transformers needs "
            f"{', '.join(absent)}: pip install {method.packages}"
        )
    if on_processor and method.needs_gpu:
        return f"{workload.model_id} has weights quantized with {stored.setting}: {method.needs_gpu}: use a GPU"
    if precision != stored.precision:
        return f"{workload.model_id} holds weights of {stored.setting}: use --precision {stored.precision}"
    return None


def read_back(model: Any, stored: Quantization) -> dict[str, Json]:
    """What the loaded modules hold, as facts. Raises UnsupportedError if they are not what the configuration says, or
    if most of the model's matrices are not quantized."""
    found = [(module, one) for module in model.modules() if (one := _held_by(module, stored)) is not None]
    kinds = {one.setting for _, one in found}
    if found and kinds != {stored.setting}:
        others = ", ".join(sorted(kinds - {stored.setting}))
        raise UnsupportedError(f"the configuration says {stored.setting}, but loaded modules hold {others}")
    quantized = {id(module) for module, _ in found}
    values = sum(_value_count(module) for module, _ in found)
    plain = sum(_value_count(module) for module in _linear(model) if id(module) not in quantized)
    share = values / (values + plain) if values + plain else 0.0
    if share < MIN_QUANTIZED_SHARE:
        raise UnsupportedError(
            f"the configuration says {stored.setting}, but {share:.0%} of the loaded matrix weights are quantized: "
            f"transformers has converted the others"
        )
    packages = {name: version_of(name.replace("_", "-")) for name in METHODS[stored.method].modules}
    # Modules whose weights were converted back to floating point, so that products and memory are unquantized.
    schemed = [module for module, _ in found if getattr(module, "quantization_scheme", None) is not None]
    weights = [module.weight for module in schemed if getattr(module, "weight", None) is not None]
    in_floats = [weight for weight in weights if weight.is_floating_point() and weight.element_size() > 1]
    facts: dict[str, Json] = {
        "quantization_method": stored.method,
        "quantization_bits": stored.bits,
        "quantization_type": stored.type,
        "quantization_group": stored.group,
        "quantized_by": {name: version for name, version in packages.items() if version is not None},
        "quantized_layers": len(found),
        "quantized_matrix_share": share,
    }
    return {**facts, **({"weights_dequantized_to": str(in_floats[0].dtype)[6:]} if in_floats else {})}


def parameter_count(model: Any) -> int:
    """Number of values in the parameters, those of quantized modules however they are packed, shared ones once."""
    linear = _linear(model)
    own = {id(parameter) for module in linear for parameter in module.parameters(recurse=False)}
    others: int = sum(parameter.numel() for parameter in model.parameters() if id(parameter) not in own)
    # Some quantizers hold both as buffers. The list keeps what they make on access, so that no id is used twice.
    held = [(one.qweight if hasattr(one, "qweight") else one.weight, one) for one in linear]
    matrices = {id(matrix): _value_count(module) for matrix, module in held}
    biases: dict[int, int] = {
        id(one.bias): one.bias.numel() for one in linear if hasattr(getattr(one, "bias", None), "numel")
    }
    return others + sum(matrices.values()) + sum(biases.values())


def _linear(model: Any) -> list[Any]:
    """The modules with a matrix of products: those of torch and of the quantizers, but not the output's, which most
    checkpoints leave as it is."""
    output = model.get_output_embeddings()
    modules = [module for module in model.modules() if "Linear" in type(module).__name__ and module is not output]
    return [module for module in modules if hasattr(module, "weight") or hasattr(module, "qweight")]


def _held_by(module: Any, stored: Quantization) -> Quantization | None:
    """How one module's weights are quantized, by its own attributes; None if they are not."""
    weight: Any = getattr(module, "weight", None)
    kind = type(module).__name__
    if (scheme := getattr(module, "quantization_scheme", None)) is not None:  # compressed-tensors
        held = scheme.weights
        strategy = str(getattr(held.strategy, "value", held.strategy))
        size = held.block_structure if strategy == "block" else held.group_size
        group = _group(size) if strategy in ("group", "block", "tensor_group") else strategy
        type_ = f"{getattr(held.type, 'value', held.type)}{held.num_bits}"
        inputs = scheme.input_activations
        activations = "" if inputs is None else f"{getattr(inputs.type, 'value', inputs.type)}{inputs.num_bits}"
        return replace(stored, type=type_, bits=held.num_bits, group=group, activations=activations)
    if (state := getattr(weight, "quant_state", None)) is not None:  # bitsandbytes, 4 bits
        return replace(stored, type=state.quant_type, bits=4, group=str(state.blocksize))
    if kind == "Linear8bitLt":
        return replace(stored, type="int8", bits=8, group="channel")
    if hasattr(module, "qweight") and hasattr(module, "bits"):  # gptqmodel: GPTQ and AWQ
        bits, size = int(module.bits), getattr(module, "group_size", None)
        is_channel = size in (-1, getattr(module, "in_features", None))
        group = "channel" if is_channel and stored.group == "channel" else _group(size)
        return replace(stored, type=f"int{bits}", bits=bits, group=group)
    if kind == "FP8Linear" and "float8" in str(weight.dtype):
        block = getattr(module, "block_size", None)
        group = _group(list(block)) if block else "tensor"
        return replace(stored, type="float8", bits=8, group=group)
    if "Mxfp4" in kind:
        return stored
    return _held_by_torchao(weight, stored) if stored.method == "torchao" else None


def _held_by_torchao(weight: Any, stored: Quantization) -> Quantization | None:
    """The quantization of one of torchao's tensors, which are torch's linear layers' weights."""
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    if weight is None or not is_traceable_wrapper_subclass(weight):
        return None
    tensor: Any = weight
    block = list(getattr(tensor, "block_size", None) or [])
    rows, width = tensor.shape[0], tensor.shape[-1]
    group = "channel"
    if block and (block[-1] not in (-1, width) or stored.group == str(width)):
        group = _block(block)
    elif block[:-1] == [rows] and rows > 1:
        group = "tensor"
    name = f"{type(tensor).__name__} {getattr(tensor, 'qdata', tensor).dtype}".lower()
    found = next((one for one in ("float8", "int8", "int4") if one in name.replace("uint8", "int8")), stored.type)
    type_ = "int4" if "int4" in type(tensor).__name__.lower() else found
    if (narrow := INTEGER.fullmatch(str(getattr(tensor, "target_dtype", "")).removeprefix("torch."))) is not None:
        type_ = f"int{narrow[1]}"  # of the values, in wider integers
    inputs = [getattr(tensor, name, None) for name in ("act_quant_kwargs", "activation_quantization")]
    activations = "" if inputs == [None, None] else stored.activations or type_
    bits = 8 if type_ == "float8" else int(type_[3:])
    return replace(stored, type=type_, bits=bits, group=group, activations=activations)


def _value_count(module: Any) -> int:
    """The values of a module's matrix, however they are packed."""
    rows, columns = getattr(module, "out_features", None), getattr(module, "in_features", None)
    if isinstance(rows, int) and isinstance(columns, int):
        return rows * columns
    return sum(parameter.numel() for name, parameter in module.named_parameters(recurse=False) if name != "bias")
