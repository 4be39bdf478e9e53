"""A model in an inference engine's own format: a `.gguf` file, or a folder written by an engine's converter.

`--model-id` names it, and engines that read the format run it unchanged. It may be untrusted, so its header is checked
before an engine maps or parses it: once when it is resolved, and again in the process that loads it. It has no torch
model, so its tokens are not compared with a reference.

A format is an entry in `FORMATS`. CTranslate2's is a folder with `model.bin`, config.json and vocabulary; its memory is
allocated by the file's contents, so the header is read variable by variable, every length is checked against the file,
and values are skipped. It is defined in ctranslate2's `specs/model_spec.py`, binary version 4 to 6.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from typing import Any

from benchmarking.core.errors import BenchhouseError, FormatError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import Json, Workload, canonical_hash
from benchmarking.core.untrusted.input_files import open_regular, read_json
from benchmarking.core.untrusted.redaction import redacted_folder
from benchmarking.graphs.bundle import ORIGIN, origin_of, weights_of
from benchmarking.workloads.support.configuration import check_files
from benchmarking.workloads.support.engine_folder import (
    GENAI_CONFIG,
    describe_genai,
    describe_ir,
    is_ir_folder,
    positive_integer,
)
from benchmarking.workloads.support.families import family_of, task_of
from benchmarking.workloads.support.gguf_file import HeaderReader, precision_of, read_gguf_model
from benchmarking.workloads.support.weights import tensor_shapes, weight_files

MODEL = "model.bin"
VOCABULARIES = ("vocabulary.json", "vocabulary.txt")
MAX_VARIABLES, MAX_DIMENSIONS, MAX_JSON_BYTES = 100_000, 8, 64_000_000
BINARY_VERSIONS = range(4, 7)
TYPES: tuple[str, ...] = ("float32", "int8", "int16", "int32", "float16", "bfloat16")
"""Types by number, as in `_dtype_to_type_id` of ctranslate2's specs/model_spec.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ct2Stored:
    """The header of `model.bin`."""

    spec: str
    """CTranslate2's name for the kind of model."""
    weights_bytes: int
    """Bytes of all variables with dimensions, including scales."""
    values_by_type: Mapping[str, int]
    """Number of values in variables with dimensions, by type, without the scales of quantized ones."""
    vocabulary_size: int
    """Rows of the embedding table."""
    positions: int | None
    """Rows of the position table; None for a model without one."""

    @property
    def parameter_count(self) -> int:
        return sum(self.values_by_type.values())


def vocabulary_of(folder: Path) -> list[str]:
    """The text of each id. Raises FormatError and UnreadableError."""
    for name in VOCABULARIES:
        path = folder / name
        if not path.is_file():
            continue
        if name.endswith(".json"):
            found = read_json(path, MAX_JSON_BYTES)
            if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
                raise FormatError(f"{path} is not a list of tokens")
            return found
        with open_regular(path) as opened:  # CTranslate2 ends a token only there: some tokens are other line breaks
            return opened.read(MAX_JSON_BYTES).decode("utf-8", "replace").removesuffix("\n").split("\n")
    raise FormatError(f"{folder} has no vocabulary: expected {' or '.join(VOCABULARIES)}")


def model_of(folder: Path) -> Ct2Stored:
    """The header of the model in a folder. Raises FormatError if it is truncated, in another format or beyond the
    limits, and UnreadableError."""
    with open_regular(folder / MODEL) as file:
        return _Reader(file, folder / MODEL).read()


class _Reader(HeaderReader):
    kind = "CTranslate2 model"

    def read(self) -> Ct2Stored:
        version = self.number("<I")
        if version not in BINARY_VERSIONS:
            self.refuse(f"version {version}; supported: {BINARY_VERSIONS[0]} to {BINARY_VERSIONS[-1]}")
        spec = self._text()
        self.number("<I")  # the revision of the kind of model
        count = self.number("<I")
        if count > MAX_VARIABLES:
            self.refuse(f"{count} variables, limit {MAX_VARIABLES}")
        arrays: dict[str, tuple[tuple[int, ...], str, int]] = {}
        for _ in range(count):
            name = self._text()
            dimensions = self.number("<B")
            if dimensions > MAX_DIMENSIONS:
                self.refuse(f"{name} has {dimensions} dimensions")
            shape = tuple(self.number("<I") for _ in range(dimensions))
            number = self.number("<B")
            if number >= len(TYPES):
                self.refuse(f"{name} has unknown type {number}")
            size = self.number("<I")
            if size > self.left():
                raise FormatError(f"{self.path} is truncated: {name} exceeds the file: fetch it again")
            self.file.seek(size, os.SEEK_CUR)
            if shape:
                arrays[name] = shape, TYPES[number], size
        by_type: dict[str, int] = {}
        for name, (shape, kind, _) in arrays.items():
            if not name.endswith("_scale"):
                by_type[kind] = by_type.get(kind, 0) + prod(shape)
        tables = {name: shape[0] for name, (shape, _, _) in arrays.items() if len(shape) > 1}
        if not tables:
            self.refuse("it has no weights")
        return Ct2Stored(
            spec=spec,
            weights_bytes=sum(size for _, _, size in arrays.values()),
            values_by_type=by_type,
            vocabulary_size=next((rows for name, rows in tables.items() if "embeddings" in name), 0),
            positions=next((rows for name, rows in tables.items() if "position_encodings" in name), None),
        )

    def _text(self) -> str:
        """A text, stored with its length in front and a zero at the end."""
        length = self.number("<H")
        return self.take(length).rstrip(b"\0").decode("utf-8", "replace")


Description = dict[str, Json]
"""`model_type`, `vocab_size`, `max_position_embeddings`, `parameter_count`, `weights_bytes`, `quantization` (the
engine's own name for the type), `precision` (of the series that it belongs to; absent if unknown), and `files`, the
names of the files whose sizes identify the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFormat:
    name: str
    recognises: Callable[[Path], bool]
    """Recognizes the format by the file's name, or by the files in a folder, of which it reads at most the
    configuration."""
    describe: Callable[[Path], Description]
    """Checks the model. Raises FormatError and UnreadableError if it must not be loaded."""


GGUF_MODEL_TYPES: Mapping[str, str] = {
    "gemma3": "gemma3_text",
    "phi2": "phi",
    "gptneox": "gpt_neox",
    "qwen2moe": "qwen2_moe",
    "qwen3moe": "qwen3_moe",
    "starcoder": "gpt_bigcode",
}
"""transformers' names of llama.cpp's architectures, where they differ."""


def _describe_gguf(path: Path) -> Description:
    header, files = read_gguf_model(path)
    if not header.architecture:
        raise FormatError(f"{path} is not a model: it names no architecture (it may be an adapter or a projector)")
    if str(header.metadata.get("general.type", "model")) != "model":
        raise FormatError(f"{path} is of type {header.metadata['general.type']}, not a model")
    vocabulary = header.metadata.get("tokenizer.ggml.tokens")
    if not isinstance(vocabulary, int) or not vocabulary:
        # llama.cpp's server reads the vocabulary unchecked and aborts without one.
        raise FormatError(f"{path} has no vocabulary, without which llama.cpp's server crashes: convert it again")
    if not header.tensors:
        raise FormatError(f"{path} has a vocabulary but no weights: give the model's own file")
    quantization = header.quantization
    return {
        "model_type": GGUF_MODEL_TYPES.get(header.architecture, header.architecture),
        "vocab_size": vocabulary,
        "max_position_embeddings": header.of_architecture("context_length"),
        "parameter_count": header.parameter_count,
        "weights_bytes": header.weights_bytes,
        "quantization": quantization,
        "precision": precision_of(quantization),
        **origin_of(header.metadata.get(ORIGIN)),
        "files": [file.name for file in files],
    }


DECODER = "TransformerDecoder"
"""Prefix of CTranslate2's names for decoder-only models."""


def _describe_ct2(folder: Path) -> Description:
    check_files(folder)
    stored = model_of(folder)
    if not stored.spec.startswith(DECODER):
        raise FormatError(f"{folder} is a {stored.spec} of CTranslate2: only decoders are supported")
    tokens = len(vocabulary_of(folder))
    if tokens != stored.vocabulary_size:
        raise FormatError(f"{folder} has {tokens} tokens in its vocabulary, but {stored.vocabulary_size} embeddings")
    most_common = max(stored.values_by_type, key=lambda name: stored.values_by_type[name])
    is_float = most_common.startswith(("float", "bfloat"))
    return {
        "model_type": "gpt2" if stored.positions else "llama",  # the folder does not name the kind of decoder
        "architecture": stored.spec,
        "vocab_size": tokens,
        "max_position_embeddings": stored.positions,
        "parameter_count": stored.parameter_count,
        "weights_bytes": stored.weights_bytes,
        "quantization": most_common if is_float else "int8_float32",
        "precision": most_common if is_float else "int8",
        "files": [MODEL],
    }


CONFIG, MAX_CONFIG_BYTES = "config.json", 10_000_000
PACKED, PACKED_BITS = "U32", 32
"""Type and bits of the words that hold several quantized values each."""
PRECISIONS_OF_BITS = {4: "int4", 8: "int8"}
SCALES = (".scales", ".biases")
"""Suffixes of tensors that accompany a packed tensor of the same module; they hold no values of the model."""


def _is_packed_folder(folder: Path) -> bool:
    """Whether a folder's weights are packed in mlx-lm's way, according to its configuration."""
    try:
        return (folder / CONFIG).is_file() and "quantization" in _packed_config(folder)
    except BenchhouseError:
        return False  # reading it as a folder of weights reports the problem


def _packed_config(folder: Path) -> Mapping[str, Any]:
    config = read_json(folder / CONFIG, MAX_CONFIG_BYTES)
    return config if isinstance(config, dict) else {}


def _describe_packed(folder: Path) -> Description:
    check_files(folder)
    config = _packed_config(folder)
    quantization = config["quantization"]
    bits = _bits(quantization, "")
    if "model_file" in config:
        raise FormatError(
            f"{folder / CONFIG} names the model's own code ({config['model_file']!r:.60}), which is never run"
        )
    files = weight_files(folder)
    if not files:
        raise FormatError(f"{folder} has no weights (model.safetensors)")
    if others := sorted(set(folder.glob("model*.safetensors")) - set(files)):
        raise FormatError(f"{others[0]} is no part of the weights, but mlx-lm would load it too: remove it")
    tensors = {name: entry for file in files for name, entry in tensor_shapes(file).items()}
    packed_modules = {name.removesuffix(".weight") for name, (dtype, _) in tensors.items() if dtype == PACKED}
    count = 0
    for name, (dtype, shape) in tensors.items():
        module = name.rpartition(".")[0]
        if dtype == PACKED:
            count += prod(shape) * PACKED_BITS // _bits(quantization, module)
        elif not (module in packed_modules and name.endswith(SCALES)):
            count += prod(shape)
    precision = PRECISIONS_OF_BITS.get(bits)
    return {
        "model_type": str(config.get("model_type")),
        "vocab_size": positive_integer(config.get("vocab_size")),
        "max_position_embeddings": positive_integer(config.get("max_position_embeddings")),
        "parameter_count": count,
        "weights_bytes": sum(file.stat().st_size for file in files),
        "quantization": f"{bits}bit",
        **({"precision": precision} if precision else {}),
        "files": [CONFIG, *(file.name for file in files)],
    }


def _bits(quantization: Any, module: str) -> int:
    """The bits of a module's values: its own setting or the general one. Raises FormatError."""
    module_setting = quantization.get(module) if isinstance(quantization, dict) else None
    setting = module_setting if isinstance(module_setting, dict) and "bits" in module_setting else quantization
    bits = setting.get("bits") if isinstance(setting, dict) else None
    if type(bits) is not int or not 0 < bits <= PACKED_BITS:
        raise FormatError(f"{CONFIG}: quantization: expected bits, found {setting!r:.60}")
    return bits


FORMATS: tuple[EngineFormat, ...] = (
    EngineFormat(
        name="ct2",
        recognises=lambda path: (path / MODEL).is_file() and any((path / name).is_file() for name in VOCABULARIES),
        describe=_describe_ct2,
    ),
    EngineFormat(
        name="gguf", recognises=lambda path: path.suffix.lower() == ".gguf" and path.is_file(), describe=_describe_gguf
    ),
    EngineFormat(name="ort-genai", recognises=lambda path: (path / GENAI_CONFIG).is_file(), describe=describe_genai),
    EngineFormat(name="openvino-ir", recognises=is_ir_folder, describe=describe_ir),
    EngineFormat(name="packed-safetensors", recognises=_is_packed_folder, describe=_describe_packed),
)


def engine_format_of(path: Path) -> EngineFormat | None:
    """The engine format of a file or folder; None for any other."""
    return next((engine_format for engine_format in FORMATS if engine_format.recognises(path)), None)


def engine_workload(model_id: str, path: Path, kind: EngineFormat, *, task: str | None, seed: int) -> Workload:
    """An engine's model as a workload. Raises UsageError for another task and for a rejected model."""
    try:
        config = _config(path, kind)
    except BenchhouseError as error:
        raise UsageError(f"MODEL {model_id}: {error}") from error
    plugin = family_of(config, model_id)
    count, vocabulary = config.get("parameter_count"), config.get("vocab_size")
    return Workload(
        model_id=redacted_folder(model_id),
        family=plugin.name,
        task=task_of(plugin, config, task, model_id),
        source="file",
        config=config,
        config_hash=canonical_hash(config),
        weights=weights_of(config),
        seed=seed,
        path=str(path.absolute()),
        parameter_count=count if isinstance(count, int) and count > 0 else None,  # 0: none was recognized
        max_sequence_length=plugin.max_sequence_length(config),
        vocab_size=vocabulary if isinstance(vocabulary, int) else None,
    )


def check_unchanged(workload: Workload) -> Path:
    """The model's file or folder, checked again before an engine reads it. Raises BenchhouseError if it differs from
    the description."""
    path = Path(workload.path or "")
    kind = next(engine_format for engine_format in FORMATS if engine_format.name == workload.config["format"])
    if _config(path, kind) != workload.config:
        raise BenchhouseError(f"{path} has changed since the start of the run: run again")
    return path


def _config(path: Path, kind: EngineFormat) -> Description:
    """The description of a model with its format and `identity`: a hash of it with the sizes of the files."""
    description = kind.describe(path)
    folder = path if path.is_dir() else path.parent
    names = description["files"]
    sizes = [[name, (folder / str(name)).stat().st_size] for name in names] if isinstance(names, list) else []
    identity = hashlib.sha256(json.dumps([description, sizes], sort_keys=True).encode()).hexdigest()
    return {"format": kind.name, **description, "identity": identity}
