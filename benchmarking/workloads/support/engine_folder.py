"""Model folders in the formats of OpenVINO GenAI (openvino_model.xml) and onnxruntime-genai (genai_config.json).

A folder may be untrusted, and an engine follows its configuration: onnxruntime-genai loads operator libraries and
execution providers from paths there. So only listed keys with values of the listed kinds are accepted, any other key is
rejected by name, and all files must be plain files in the folder. Graphs are read by a separate process, this module's
`main`, which gets a path on stdin and answers in JSON.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from typing import Any

from benchmarking.core.child_process import run_module_json
from benchmarking.core.errors import BenchhouseError, FormatError
from benchmarking.core.lazy_modules import onnx
from benchmarking.core.records import Json
from benchmarking.core.untrusted.input_files import read_json
from benchmarking.workloads.support.configuration import CONFIG_NAME, check_files
from benchmarking.workloads.support.families import positions
from benchmarking.workloads.support.graph_contents import (
    ACTIVATIONS,
    DEFAULT_BITS,
    INT8,
    PACKED,
    check_entities,
    check_same_folder,
    contents,
)

MODULE = "benchmarking.workloads.support.engine_folder"
TIME_LIMIT_S = 300.0
MAX_CONFIG_BYTES = 1_000_000
GENAI_CONFIG = "genai_config.json"
IR, TOKENIZERS = "openvino_model.xml", ("openvino_tokenizer.xml", "openvino_detokenizer.xml")
RUNTIME_OPTIONS = "runtime_options"
"""Section of an OpenVINO file with properties that plugins apply when compiling it."""
ALLOWED_OPTIONS = frozenset(
    {
        *("ACTIVATIONS_SCALE_FACTOR", "DYNAMIC_QUANTIZATION_GROUP_SIZE", "KV_CACHE_PRECISION"),
        *("KEY_CACHE_PRECISION", "VALUE_CACHE_PRECISION", "KEY_CACHE_GROUP_SIZE", "VALUE_CACHE_GROUP_SIZE"),
    }
)
"""Properties that only affect arithmetic; others name files, folders and devices."""
FLOATS: Mapping[str, str] = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
INTEGERS: Mapping[str, str] = {"u8": "int8", "i8": "int8", "u4": "int4", "i4": "int4"}
"""Precision by OpenVINO's weight type. Indices and shapes have wider types."""
UNSUPPORTED_TYPES = frozenset({"nf4", "f4e2m1", "f8e4m3", "f8e5m2", "f8e8m0", "u1", "u2", "u3", "u6"})
"""OpenVINO's types without a precision here."""
ONNX_TYPES: Mapping[str, str] = {
    **{name: name for name in ("float32", "float16", "bfloat16")},
    **dict.fromkeys(("int8", "uint8"), "int8"),
    **dict.fromkeys(("int4", "uint4"), "int4"),
}
PRECISIONS = ("float32", "float16", "bfloat16", "int8", "int4")
COMPUTED_TABLES = frozenset({"cos_cache", "sin_cache"})
"""Rotation tables that onnxruntime-genai's builder computes; they are not weights."""
PROVIDERS = frozenset({"cuda", "dml"})
"""Execution providers of onnxruntime-genai's graphs for GPUs, in its words."""
PROVIDER_OPTIONS = "provider_options"
SWITCH = re.compile(r"enable_[a-z_]{1,60}")
MAX_NUMBER, MAX_LAYERS = 10**8, 10_000
NAME = re.compile(r"[\w.\-/]{0,60}(%d[\w.\-/]{0,60})?")
"""Name of an input or output. onnxruntime-genai replaces `%d` by numbers, so other format specifiers are forbidden."""


def _is_number(value: Json) -> bool:
    return value is None or (isinstance(value, bool | int | float) and abs(value) <= MAX_NUMBER)


def _is_short_text(value: Json) -> bool:
    return isinstance(value, str) and len(value) < 200


def _is_tensor_name(value: Json) -> bool:
    return isinstance(value, str) and NAME.fullmatch(value) is not None


def _are_ids(value: Json) -> bool:
    return _is_number(value) or (isinstance(value, list) and all(_is_number(one) for one in value))


def _provider(value: Json) -> str | None:
    """The execution provider of provider_options, in lower case ("" for the CPU); None if it must not be used. Only
    switches are accepted as its options, which are not applied: the run's device chooses them."""
    if value in ([], [{"cpu": {}}]):
        return ""
    if not isinstance(value, list) or len(value) != 1 or not isinstance(value[0], dict) or len(value[0]) != 1:
        return None
    ((name, options),) = value[0].items()
    are_switches = isinstance(options, dict) and all(
        SWITCH.fullmatch(key) and state in ("0", "1", True, False) for key, state in options.items()
    )
    return name.lower() if are_switches and name.lower() in PROVIDERS else None


Keys = Mapping[str, "Callable[[Json], bool] | Keys"]
"""For each key, a check of its value, or the keys of its object."""

ALLOWED: Keys = {
    "model": {
        "type": _is_tensor_name,
        **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id"), _are_ids),
        **dict.fromkeys(("context_length", "vocab_size", "decoder_start_token_id"), _is_number),
        "decoder": {
            "filename": _is_short_text,
            **dict.fromkeys(("head_size", "hidden_size", "num_attention_heads", "num_key_value_heads"), _is_number),
            "num_hidden_layers": lambda value: isinstance(value, int) and 0 < value <= MAX_LAYERS,
            "sliding_window": lambda value: isinstance(value, dict) and all(map(_are_ids, value.values())),
            "inputs": dict.fromkeys(
                ("input_ids", "attention_mask", "position_ids", "past_key_names", "past_value_names", "past_names"),
                _is_tensor_name,
            ),
            "outputs": dict.fromkeys(
                ("logits", "present_key_names", "present_value_names", "present_names"), _is_tensor_name
            ),
            "session_options": {
                **dict.fromkeys(("log_id", "graph_optimization_level"), _is_short_text),
                **dict.fromkeys(("intra_op_num_threads", "inter_op_num_threads"), _is_number),
                **dict.fromkeys(("log_severity_level", "log_verbosity_level"), _is_number),
                **dict.fromkeys(("enable_cpu_mem_arena", "enable_mem_pattern"), _is_number),
                PROVIDER_OPTIONS: lambda value: _provider(value) is not None,
            },
        },
    },
    "search": dict.fromkeys(
        (
            *("diversity_penalty", "do_sample", "early_stopping", "length_penalty", "max_length", "min_length"),
            *("no_repeat_ngram_size", "num_beams", "num_return_sequences", "past_present_share_buffer", "random_seed"),
            *("repetition_penalty", "temperature", "top_k", "top_p", "chunk_size"),
        ),
        _is_number,
    ),
}
"""Accepted keys of genai_config.json."""


def is_ir_folder(path: Path) -> bool:
    """Whether a folder is an OpenVINO GenAI model rather than a folder of weights with additional OpenVINO files."""
    return (path / IR).is_file() and not any(path.glob("*.safetensors"))


def describe_genai(folder: Path) -> dict[str, Json]:
    """The description of an onnxruntime-genai model (`engine_file.Description`). Raises BenchhouseError if the folder
    must not be loaded."""
    check_same_folder(folder / GENAI_CONFIG, GENAI_CONFIG)
    check_files(folder)
    config = read_json(folder / GENAI_CONFIG, MAX_CONFIG_BYTES)
    _check_keys(config, ALLOWED, GENAI_CONFIG)
    model = config.get("model", {})
    file = model.get("decoder", {}).get("filename")
    if not isinstance(file, str) or not isinstance(model.get("type"), str):
        raise FormatError(f"{GENAI_CONFIG} lacks model.type or model.decoder.filename: export the model again")
    if Path(file).suffix != ".onnx":
        raise FormatError(
            f"{GENAI_CONFIG}: model.decoder.filename is {file!r:.60}: expected an .onnx file in the same folder"
        )
    check_same_folder(folder / GENAI_CONFIG, file)
    vocabulary = _vocabulary(model.get("vocab_size"), f"{GENAI_CONFIG} has no vocab_size")
    graph = _describe_graph(folder / file)
    options = model["decoder"].get("session_options", {})
    provider = _provider(options.get(PROVIDER_OPTIONS, []))
    return {
        **({"provider": provider} if provider else {}),
        **({ACTIVATIONS: INT8} if graph[ACTIVATIONS] == INT8 else {}),
        "model_type": model["type"],
        "vocab_size": vocabulary,
        "max_position_embeddings": positive_integer(model.get("context_length")),
        **_weights_facts(graph),
        "config_sha256": hashlib.sha256((folder / GENAI_CONFIG).read_bytes()).hexdigest(),
        "files": [GENAI_CONFIG, *graph["files"]],
    }


def describe_ir(folder: Path) -> dict[str, Json]:
    """The description of an OpenVINO GenAI model. Raises BenchhouseError if the folder must not be loaded."""
    check_files(folder)
    files = [Path(name).with_suffix(suffix).name for name in TOKENIZERS for suffix in (".xml", ".bin")]
    for name in files:
        check_same_folder(folder / IR, name)
    for name in TOKENIZERS:
        check_entities(folder / name)
    graph = _describe_graph(folder / IR)
    config = read_json(folder / CONFIG_NAME, MAX_CONFIG_BYTES) if (folder / CONFIG_NAME).is_file() else {}
    if not isinstance(config, dict):
        raise FormatError(f"{CONFIG_NAME} is not a model configuration: expected a JSON object")
    rows = next((shape[-1] for name, shape in graph["outputs"].items() if name == "logits" and shape), None)
    return {
        # OpenVINO's files do not name the kind of decoder.
        "model_type": str(config.get("model_type", "llama")),
        "vocab_size": _vocabulary(rows, f"{IR} has no logits output of fixed width"),
        "max_position_embeddings": positive_integer(positions(config)),
        **_weights_facts(graph),
        "files": [*graph["files"], *files],
    }


def _describe_graph(path: Path) -> dict[str, Any]:
    description: dict[str, Any] = run_module_json(MODULE, input_text=json.dumps(str(path)), limit_s=TIME_LIMIT_S)
    return description


def _weights_facts(graph: Mapping[str, Any]) -> dict[str, Json]:
    """The type of the graph's weights: the narrowest integer type among them, else the most common type. A 4-bit model
    has 8-bit embeddings and an 8-bit last layer, which may be the larger part."""
    values: dict[str, int] = graph["values"]
    if unknown := sorted(set(values) - set(PRECISIONS)):
        raise FormatError(f"weights of type {unknown[0]} are not supported (supported: {', '.join(PRECISIONS)})")
    floats = max(values, key=lambda name: values[name], default="float32")
    kind = next((name for name in ("int4", "int8") if name in values), floats)
    return {
        "parameter_count": sum(values.values()),
        "weights_bytes": graph["bytes"],
        "quantization": kind,
        "precision": kind,
        "values_by_type": dict[str, Json](values),
    }


def _check_keys(value: Any, allowed: Keys, where: str) -> None:
    """Raise FormatError for a forbidden key or an invalid value."""
    if not isinstance(value, dict):
        raise FormatError(f"{where}: expected an object, found {value!r:.60}")
    for name, entry in value.items():
        path = f"{where}: {name}" if ":" not in where else f"{where}.{name}"
        check = allowed.get(name)
        if check is None:
            raise FormatError(f"{path:.120} is not allowed: remove it, or export the model for cpu")
        if isinstance(check, Mapping):
            _check_keys(entry, check, path)
        elif not check(entry) and name == PROVIDER_OPTIONS:
            raise FormatError(
                f"{path} names {entry!r:.60}: export the model for cpu, {' or '.join(sorted(PROVIDERS))}, without "
                "options other than switches"
            )
        elif not check(entry):
            raise FormatError(f"{path}: invalid value {entry!r:.60}")


def _vocabulary(value: Any, problem: str) -> int:
    if (size := positive_integer(value)) is None:
        raise FormatError(f"{problem}: expected a model that generates text")
    return size


def positive_integer(value: Any) -> int | None:
    """The value if it is a positive integer, else None."""
    return value if type(value) is int and value > 0 else None


# In the process that reads the graph.


def main() -> int:
    """Describe the graph in the file named on stdin, on stdout."""
    try:
        path = Path(json.load(sys.stdin))
        print(json.dumps((_read_openvino if path.suffix == ".xml" else _read_onnx)(path)))
    except BenchhouseError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _read_onnx(path: Path) -> dict[str, Any]:
    """`files`, the type of `activations`, and the `counted_weights`."""
    description = contents(path)
    counted = counted_weights(onnx.load(str(path), load_external_data=False).graph)
    return {"files": description["files"], ACTIVATIONS: description.get(ACTIVATIONS), **counted}


def counted_weights(graph: Any) -> dict[str, Any]:
    """Number of `values` of a graph's weights by type, those that share a byte counted each, and the `bytes` of all
    initializers."""
    bits: dict[str, int] = {}
    scales: set[str] = set()
    for node in graph.node:
        weights, others, attribute = PACKED.get(node.op_type, ((), (), ""))
        bits_attribute = next((one.i for one in node.attribute if one.name == attribute), DEFAULT_BITS)
        bits |= {node.input[index]: bits_attribute for index in weights if index < len(node.input)}
        scales |= {node.input[index] for index in others if index < len(node.input)}
    values: Counter[str] = Counter()
    size_bytes = 0
    for tensor in graph.initializer:
        if tensor.name in COMPUTED_TABLES:
            continue
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
        name, count = ONNX_TYPES.get(dtype.name), prod(tensor.dims)
        size_bytes += count // 2 if name == "int4" else count * dtype.itemsize
        if tensor.name in bits and name == "int8":  # bytes that hold several
            values[f"int{bits[tensor.name]}"] += count * 8 // max(bits[tensor.name], 1)
        elif name is not None and tensor.name not in scales and (name.startswith("float") or len(tensor.dims) > 1):
            values[name] += count
    return {"values": dict(values), "bytes": size_bytes}


def _read_openvino(path: Path) -> dict[str, Any]:
    """`files`, `outputs` with their shapes, number of `values` of the weights by type, and their `bytes`."""
    import openvino

    description = contents(path)
    model = openvino.Core().read_model(str(path))
    information = model.get_rt_info()
    options = information[RUNTIME_OPTIONS] if RUNTIME_OPTIONS in information else {}  # noqa: SIM401 - it has no `get`
    if forbidden := sorted(set(map(str, options)) - ALLOWED_OPTIONS):
        raise BenchhouseError(f"{path.name}: {RUNTIME_OPTIONS}.{forbidden[0]:.60} is not allowed: remove it")
    values: Counter[str] = Counter()
    size_bytes = 0
    for constant in (one for one in model.get_ops() if one.get_type_name() == "Constant"):
        kind = constant.get_element_type().get_type_name()
        size_bytes += constant.get_byte_size()
        name = INTEGERS.get(kind) or FLOATS.get(kind) or (kind if kind in UNSUPPORTED_TYPES else None)
        if name is not None and len(constant.shape) > 1 and constant.shape[-1] > 1:  # scales have a last axis of 1
            values[name] += prod(int(size) for size in constant.shape)
    outputs = {one["name"]: one["shape"] for one in description["outputs"]}
    return {"files": description["files"], "outputs": outputs, "values": dict(values), "bytes": size_bytes}


if __name__ == "__main__":
    sys.exit(main())
