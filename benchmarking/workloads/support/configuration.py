"""config.json as plain JSON, read in the supervisor without transformers; and checks of a model's folder.

A folder may come from anyone. Before anything is loaded from it, its files must be regular files inside it, its small
JSON files must be within limits, and the sizes in its configuration must be plausible.

A diffusers pipeline is a folder of several models, of which the denoiser is run.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from benchmarking.core.codec import is_whole
from benchmarking.core.errors import FormatError, StorageError, UsageError, storage_errors
from benchmarking.core.records import Json
from benchmarking.core.text import cut_off
from benchmarking.core.untrusted import input_files
from benchmarking.workloads.support import quantized_weights

CONFIG_NAME = "config.json"

OPEN_FILES = "/proc/self/fd"
"""Linux's folder with a path for each open file."""

MAX_CONFIG_BYTES = 16_000_000
"""Size limit of a configuration; the largest ones, of tokenizers, have a few megabytes."""

SPECIAL_TOKENS = "special_tokens_map.json"
"""Settings that override transformers' own, also the paths of files."""

SETTINGS_FILES = frozenset(
    {
        *("generation_config.json", "tokenizer_config.json", SPECIAL_TOKENS, "added_tokens.json"),
        *("preprocessor_config.json", "processor_config.json", "model_index.json", "scheduler_config.json"),
        CONFIG_NAME,
    }
)
"""JSON files that the libraries parse."""
READ_SUFFIXES = frozenset({".json", ".safetensors", ".txt", ".model", ".jinja"})
"""Suffixes of files that the libraries open."""
READ_FOLDERS = ("additional_chat_templates", "question_encoder_tokenizer", "generator_tokenizer")
"""Folders in a model's folder whose files the libraries open."""

FILES_IN_FOLDER = frozenset({"configuration_files", "fast_tokenizer_files", "gguf_file"})
"""Keys of settings with paths, from the model's folder, of files that transformers reads in place of its own."""
FILES_ANYWHERE = frozenset(
    {
        *("init_inputs", "merges", "merges_file", "model_file", "vocab", "vocab_file"),
        *("class_info_file", "repo_path"),
        *("mecab_option", "sudachi_config_path", "sudachi_dict_type", "sudachi_resource_dir"),
    }
)
"""Keys of settings with paths that classes of tokenizers and processors open as they are."""

NAMES_OF_CODE = frozenset(
    {
        *("auto_map", "custom_pipelines", "custom_generate", "use_kernels"),
        *("attn_implementation", "_attn_implementation", "_attn_implementation_internal"),
        *("experts_implementation", "_experts_implementation", "_experts_implementation_internal"),
        *("transformers_weights", "checkpoint_path"),
    }
)
"""Keys by which a configuration could choose code or weights to load; only the run chooses implementations, and only
the checked weights are loaded."""

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth")
ALL_LAYERS = (*LAYERS, "encoder_layers", "decoder_layers", "num_decoder_layers")
POSITIVE_SIZES = (
    *("hidden_size", "d_model", "n_embd", "dim", "num_attention_heads", "n_head", "vocab_size"),
    *("patch_size", "spatial_merge_size"),
)
SIZES = (
    *ALL_LAYERS,
    *POSITIVE_SIZES,
    *("embed_dim", "intermediate_size", "ffn_dim", "d_ff", "n_inner", "hidden_dim", "head_dim", "d_kv"),
    *("num_key_value_heads", "max_position_embeddings", "n_positions", "num_channels"),
)
MAX_LAYERS = 10_000
"""Limit of layers: the deepest published models have a few hundred, and each layer costs time and memory even without
its weights."""
MAX_SIZE = 10**12
"""Limit of other sizes; the memory that smaller ones need is estimated."""

FLOAT_TAG = "__float__"
"""The only key of an object that represents a float missing in JSON."""

NOT_ABOUT_THE_MODEL = frozenset({"_diffusers_version", "_name_or_path", "dtype", "torch_dtype", "transformers_version"})
"""Keys about a file's origin and storage. They are dropped so that they do not affect the hash: the run chooses the
precision."""


def read_config(folder: Path) -> Mapping[str, Json]:
    """The configuration of the model in `folder`.

    Raises UsageError if there is none or it has no model type or impossible sizes, StorageError if it cannot be read,
    FormatError if it is not JSON within the limits.
    """
    path = folder / CONFIG_NAME
    if not os.path.lexists(path):
        raise UsageError(f"{folder} has no {CONFIG_NAME}: MODEL is a folder saved with save_pretrained")
    data = read_json(path)
    if not isinstance(data, dict):
        raise FormatError(f"{path} is not a model configuration: expected a JSON object")
    return check_config({key: value for key, value in data.items() if key not in NOT_ABOUT_THE_MODEL}, str(path))


def check_config(config: Mapping[str, Json], where: str) -> Mapping[str, Json]:
    """The configuration. Raises UsageError if it has no model type, impossible sizes, or quantized layers."""
    if not isinstance(config.get("model_type"), str) and not isinstance(config.get("_class_name"), str):
        raise UsageError(f"{where} has no model_type: expected a model configuration")
    if (quantization := config.get(quantized_weights.CONFIG)) is not None:
        found = quantized_weights.parse(quantization, where)
        if "model_type" not in config:
            raise UsageError(
                f"{where}: weights quantized with {found.method} are supported for models of transformers only: use "
                "the unquantized model"
            )
    for section in (config, *(value for value in config.values() if isinstance(value, dict))):
        for name in SIZES:
            value = section.get(name)
            least, most = (1 if name in POSITIVE_SIZES else 0), (MAX_LAYERS if name in ALL_LAYERS else MAX_SIZE)
            for size in value if isinstance(value, list) else [value]:  # a list has one size per stage
                if size is None or (is_whole(size) and least <= size <= most):
                    continue
                text = cut_off(repr(size), 40)
                raise UsageError(f"{where}: {name} is {text}: expected an integer from {least} to {most}")
    return config


def read_json(path: Path, max_bytes: int = MAX_CONFIG_BYTES) -> Any:
    """The value in a model's JSON file. Raises StorageError if it is not a regular file or cannot be read, FormatError
    if it is not JSON within the limits."""
    return input_files.read_json(path, max_bytes, constant=_tag_constant)


def check_files(folder: Path, caches: Sequence[Path] = ()) -> None:
    """Check that the files in a model's folder may be opened and its settings parsed.

    Links and settings may lead to the folder's own files, into the hub's cache that contains the folder, and into
    `caches`. Raises UsageError if they lead elsewhere, StorageError for anything but a regular file, FormatError for
    invalid JSON.
    """
    roots = [folder.resolve(), *(cache.resolve() for cache in caches)]
    for parent in folder.parents:  # snapshots in the hub's cache link to blobs next to them
        if parent.name == "snapshots" and (parent.parent / "blobs").is_dir():
            roots.append(parent.parent)
    parts = [folder, *(folder / name for name in READ_FOLDERS if (folder / name).is_dir())]
    paths: list[Path] = []
    for part in parts:
        with storage_errors(f"cannot read {part}"):
            paths += sorted(part.iterdir())
    for path in paths:
        with storage_errors(f"cannot read {path}"):
            mode = path.stat().st_mode
        if stat.S_ISDIR(mode) and path.suffix not in READ_SUFFIXES:
            continue
        if not stat.S_ISREG(mode):
            raise StorageError(f"cannot read {path}: not a regular file")
        if not is_inside(path, roots):
            raise UsageError(f"{path} links to a file outside the model's folder: replace it by a copy of that file")
        for key, named in _named_files(path) if path.name in SETTINGS_FILES else ():
            if not is_inside(named, roots):
                raise UsageError(f"{path}: {key} names a file outside the model's folder, {named}: remove it")
            if not (named.is_file() or named.is_dir()):
                raise StorageError(f"{path}: {key} names {named}, which is not a regular file: remove it")


def is_inside(path: Path, roots: Sequence[Path]) -> bool:
    """Whether a path leads, through any links, into one of the folders."""
    try:
        place = path.resolve()
    except (OSError, RuntimeError):  # links in a circle
        return False
    return any(place.is_relative_to(root) for root in roots)


def _named_files(settings: Path) -> Iterator[tuple[str, Path]]:
    """The files that exist among those that settings name, with their keys."""
    for key, value in _entries(read_json(settings)):
        is_path = settings.name == SPECIAL_TOKENS and key.endswith(("_file", "_path", "_spm"))
        if key in FILES_IN_FOLDER or key in FILES_ANYWHERE or is_path:
            words = value.split() if key == "mecab_option" and isinstance(value, str) else value
            for name in words if isinstance(words, list) else [words]:
                if isinstance(name, str) and name:  # an empty text names none
                    path = Path(settings.parent if key in FILES_IN_FOLDER else "", name)
                    if os.path.lexists(path):
                        yield key, path


def _entries(settings: Json) -> Iterator[tuple[str, Json]]:
    """The keys at all levels of settings, and their values."""
    for key, value in settings.items() if isinstance(settings, dict) else []:
        yield key, value
        yield from _entries(value)
    for value in settings if isinstance(settings, list) else []:
        yield from _entries(value)


@cache
def library_path(folder: str) -> str:
    """A path of the folder that libraries accept, as some need UTF-8. Raises UsageError if there is none."""
    try:
        folder.encode()
    except UnicodeEncodeError as error:
        if not os.path.isdir(OPEN_FILES):
            readable = os.fsencode(folder).decode(errors="replace")
            raise UsageError(
                f"the path {readable} is not valid UTF-8, which libraries need: rename the folder"
            ) from error
        # Stays open until this process ends, since weights may be read on first use.
        return f"/proc/{os.getpid()}/fd/{os.open(folder, os.O_RDONLY)}"
    return folder


def without_code(config: Mapping[str, Json]) -> dict[str, Any]:
    """The configuration, including nested ones, without keys that name code, kernels or weights."""

    def cleaned(value: Json) -> Any:
        if isinstance(value, list):
            return [cleaned(each) for each in value]
        return without_code(value) if isinstance(value, dict) else value

    return {name: cleaned(value) for name, value in config.items() if name not in NAMES_OF_CODE}


def integer(config: Mapping[str, Json], name: str, default: int) -> int:
    """An integer from a configuration, or the library's default."""
    value = config.get(name)
    return value if isinstance(value, int) else default


def integers(config: Mapping[str, Json], name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    """A list of integers from a configuration, or the library's default."""
    value = config.get(name)
    return tuple(int(number) for number in value if isinstance(number, int)) if isinstance(value, list) else default


def part(config: Mapping[str, Json], name: str) -> Mapping[str, Json]:
    """The configuration of a submodel; empty if it was omitted because all values are defaults."""
    value = config.get(name)
    return value if isinstance(value, dict) else {}


def _tag_constant(constant: str) -> Json:
    """Infinity in the JSON form that transformers has written since version 5. NaN is rejected."""
    if constant == "NaN":
        raise ValueError(f"{constant} is not allowed")
    return {FLOAT_TAG: constant}


INDEX_NAME = "model_index.json"
"""A pipeline's file instead of config.json."""

DENOISERS = ("unet", "transformer")
"""diffusers' subfolders with the model that runs at every step."""

CONFIG_FILES = (CONFIG_NAME, INDEX_NAME, *(f"{name}/{CONFIG_NAME}" for name in DENOISERS))
"""Configuration files of model folders and of pipelines."""


def model_folder(folder: Path) -> Path:
    """The folder of the model to run: a pipeline's denoiser, else `folder` itself."""
    if has_config(folder) or not (folder / INDEX_NAME).is_file():
        return folder
    return next((folder / name for name in DENOISERS if has_config(folder / name)), folder)


def has_config(folder: Path) -> bool:
    """Whether there is a config.json in the folder itself."""
    return (folder / CONFIG_NAME).is_file()
