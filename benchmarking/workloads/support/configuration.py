"""config.json as plain JSON, read in the supervisor, which imports no transformers.

A pipeline of diffusers is a folder of several models, of which the denoiser is run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from benchmarking.core.errors import FormatError, StorageError, UsageError
from benchmarking.core.records import Json

CONFIG_NAME = "config.json"

FLOAT_TAG = "__float__"
"""The only key of an object that represents a float that JSON lacks."""

NOT_ABOUT_THE_MODEL = frozenset({"_diffusers_version", "_name_or_path", "dtype", "torch_dtype", "transformers_version"})
"""Keys about a file's origin and storage. Left out, so that they do not change the hash: the precision is the run's."""


def read_config(folder: Path) -> Mapping[str, Json]:
    """The configuration of the model in `folder`.

    Raises UsageError when there is none or it has no model type, StorageError when it cannot be read, FormatError when
    it is not JSON.
    """
    path = folder / CONFIG_NAME
    try:
        data = json.loads(path.read_text(encoding="utf-8"), parse_constant=_tagged)
    except FileNotFoundError as error:
        raise UsageError(
            f"{folder} has no {CONFIG_NAME}: --model-id takes a folder saved with save_pretrained"
        ) from error
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise FormatError(f"{path} is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise FormatError(f"{path} is not a model's configuration: it is no JSON object")
    return check_config({key: value for key, value in data.items() if key not in NOT_ABOUT_THE_MODEL}, str(path))


def check_config(config: Mapping[str, Json], where: str) -> Mapping[str, Json]:
    """The configuration. Raises UsageError when it has no model type, or has quantized layers."""
    if not isinstance(config.get("model_type"), str) and not isinstance(config.get("_class_name"), str):
        raise UsageError(f"{where} has no model_type: expected a model's configuration")
    if (quantization := config.get("quantization_config")) is not None:
        method = quantization.get("quant_method") if isinstance(quantization, dict) else quantization
        raise UsageError(f"{where}: weights quantized by {method} are not supported; take the unquantized model")
    return config


def integer(config: Mapping[str, Json], name: str, default: int) -> int:
    """A whole number of a configuration, or the library's default."""
    value = config.get(name)
    return value if isinstance(value, int) else default


def integers(config: Mapping[str, Json], name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    """A list of whole numbers of a configuration, or the library's default."""
    value = config.get(name)
    return tuple(int(each) for each in value if isinstance(each, int)) if isinstance(value, list) else default


def part(config: Mapping[str, Json], name: str) -> Mapping[str, Json]:
    """The configuration of a model inside the model; empty when it was left out as all defaults."""
    value = config.get(name)
    return value if isinstance(value, dict) else {}


def _tagged(constant: str) -> Json:
    """Infinity in the form that transformers writes since version 5, which is JSON. NaN is refused."""
    if constant == "NaN":
        raise ValueError(f"{constant} is not allowed")
    return {FLOAT_TAG: constant}


INDEX_NAME = "model_index.json"
"""A pipeline's file in place of config.json."""

DENOISERS = ("unet", "transformer")
"""diffusers' subfolders of the model that runs at every step."""

CONFIG_FILES = (CONFIG_NAME, INDEX_NAME, *(f"{name}/{CONFIG_NAME}" for name in DENOISERS))
"""Configuration files of a model's folder and of a pipeline's."""


def model_folder(folder: Path) -> Path:
    """The folder of the model that is run: a pipeline's denoiser, else `folder` itself."""
    if has_config(folder) or not (folder / INDEX_NAME).is_file():
        return folder
    return next((folder / name for name in DENOISERS if has_config(folder / name)), folder)


def has_config(folder: Path) -> bool:
    """Whether there is a config.json in the folder itself."""
    return (folder / CONFIG_NAME).is_file()
