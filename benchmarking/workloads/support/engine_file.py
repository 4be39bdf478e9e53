"""A model that is in an inference engine's own format: a `.gguf` file, or a folder that an engine's converter wrote.

`--model-id` names it, and the engines that read the format run it as it is. It may be a stranger's, so what its header
says is checked before an engine maps or parses it: once when it is resolved, and again in the process that loads it. It
has no torch model, so its tokens are compared with nothing.

A format is an entry in `FORMATS`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarking.core.errors import BenchhouseError, FormatError, UsageError
from benchmarking.core.records import Json, Workload, canonical_hash
from benchmarking.core.untrusted.redaction import stored_name
from benchmarking.workloads.support.ct2_file import MODEL, is_ct2_folder, model_of, vocabulary_of
from benchmarking.workloads.support.families import family_of, task_of
from benchmarking.workloads.support.gguf_file import precision_of, read_gguf

Description = dict[str, Json]
"""`model_type`, `vocab_size`, `max_position_embeddings`, `parameter_count`, `weights_bytes`, `quantization` (the
engine's own name of the type), `precision` (whose series it stands in; absent where that is not known), and `files`:
the names of the files whose sizes identify the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFormat:
    """A format of models of engines."""

    name: str
    recognises: Callable[[Path], bool]
    """By the name of the file, or by those of the files in a folder. Reads nothing."""
    describe: Callable[[Path], Description]
    """Checks the model. Raises FormatError and UnreadableError for one that must not be loaded."""


GGUF_MODEL_TYPES: Mapping[str, str] = {
    "gemma3": "gemma3_text",
    "phi2": "phi",
    "gptneox": "gpt_neox",
    "qwen2moe": "qwen2_moe",
    "qwen3moe": "qwen3_moe",
    "starcoder": "gpt_bigcode",
}
"""llama.cpp's names of architectures -> transformers', where they differ."""


def _gguf(path: Path) -> Description:
    header = read_gguf(path)
    if not header.architecture:
        raise FormatError(f"{path} names no architecture: it is not a model (an adapter or a projector, perhaps)")
    if str(header.metadata.get("general.type", "model")) != "model":
        raise FormatError(f"{path} is of type {header.metadata['general.type']}, not a model")
    vocabulary = header.metadata.get("tokenizer.ggml.tokens")
    if not isinstance(vocabulary, int) or not vocabulary:
        # llama.cpp's server reads the vocabulary unchecked and ends its process without one.
        raise FormatError(f"{path} has no vocabulary, without which llama.cpp's server crashes: convert it again")
    quantization = header.quantization
    return {
        "model_type": GGUF_MODEL_TYPES.get(header.architecture, header.architecture),
        "vocab_size": vocabulary,
        "max_position_embeddings": header.of_architecture("context_length"),
        "parameter_count": header.parameter_count,
        "weights_bytes": header.weights_bytes,
        "quantization": quantization,
        "precision": precision_of(quantization),
        "files": [path.name],
    }


DECODER = "TransformerDecoder"
"""Begins CTranslate2's names of models that generate text from text alone."""


def _ct2(folder: Path) -> Description:
    stored = model_of(folder)
    if not stored.spec.startswith(DECODER):
        raise FormatError(f"{folder} is a {stored.spec} of CTranslate2: decoders are run")
    tokens = len(vocabulary_of(folder))
    if tokens != stored.vocabulary_size:
        raise FormatError(f"{folder} has {tokens} tokens in its vocabulary and {stored.vocabulary_size} embeddings")
    most = max(stored.values_by_type, key=lambda name: stored.values_by_type[name])
    is_float = most.startswith(("float", "bfloat"))
    return {
        "model_type": "gpt2" if stored.positions else "llama",  # the folder does not say which kind of decoder it is
        "architecture": stored.spec,
        "vocab_size": tokens,
        "max_position_embeddings": stored.positions,
        "parameter_count": stored.parameter_count,
        "weights_bytes": stored.weights_bytes,
        "quantization": most if is_float else "int8_float32",
        "precision": most if is_float else "int8",
        "files": [MODEL],
    }


FORMATS: tuple[EngineFormat, ...] = (
    EngineFormat(name="ct2", recognises=is_ct2_folder, describe=_ct2),
    EngineFormat(
        name="gguf", recognises=lambda path: path.suffix.lower() == ".gguf" and path.is_file(), describe=_gguf
    ),
)


def engine_format_of(path: Path) -> EngineFormat | None:
    """The format of a file or folder; None for any other."""
    return next((one for one in FORMATS if one.recognises(path)), None)


def engine_workload(model_id: str, path: Path, kind: EngineFormat, *, task: str | None, seed: int) -> Workload:
    """An engine's model as a workload. Raises UsageError for another task and for a model that is refused."""
    try:
        config = _config(path, kind)
    except BenchhouseError as error:
        raise UsageError(f"--model-id {model_id}: {error}") from error
    plugin = family_of(config, model_id)
    count, vocabulary = config.get("parameter_count"), config.get("vocab_size")
    return Workload(
        model_id=stored_name(model_id),
        family=plugin.name,
        task=task_of(plugin, config, task, model_id),
        source="file",
        config=config,
        config_hash=canonical_hash(config),
        weights="given",
        seed=seed,
        path=str(path.absolute()),
        parameter_count=count if isinstance(count, int) else None,
        max_sequence_length=plugin.max_sequence_length(config),
        vocab_size=vocabulary if isinstance(vocabulary, int) else None,
    )


def check_unchanged(workload: Workload) -> Path:
    """The model's file or folder, checked again before an engine reads it. Raises BenchhouseError where it is not what
    was described."""
    path = Path(workload.path or "")
    kind = next(one for one in FORMATS if one.name == workload.config["format"])
    if _config(path, kind) != workload.config:
        raise BenchhouseError(f"{path} has changed since it was described: start again")
    return path


def _config(path: Path, kind: EngineFormat) -> Description:
    """The description of a model with its format and `identity`: a hash of it with the sizes of the files."""
    described = kind.describe(path)
    folder = path if path.is_dir() else path.parent
    names = described["files"]
    sizes = [[name, (folder / str(name)).stat().st_size] for name in names] if isinstance(names, list) else []
    identity = hashlib.sha256(json.dumps([described, sizes], sort_keys=True).encode()).hexdigest()
    return {"format": kind.name, **described, "identity": identity}
