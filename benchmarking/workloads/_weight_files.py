"""The safetensors files of a folder: which there are, and whether they are whole. Nothing but headers is read."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from pathlib import Path
from typing import Any

from benchmarking.errors import FormatError, StorageError, UsageError

STEMS = ("model", "diffusion_pytorch_model")
"""How transformers and diffusers name weight files, before .safetensors, .safetensors.index.json or -00001-of-..."""
PICKLED_PATTERNS = ("pytorch_model*.bin", "diffusion_pytorch_model*.bin", "*.pt", "*.pth", "*.ckpt")

Tensor = dict[str, Any]
"""An entry of a header: dtype, shape, data_offsets."""

LENGTH_BYTES = 8
MAX_HEADER_BYTES = 100_000_000
"""safetensors' own limit; a longer header means that the file is something else."""


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The weight files, one or all shards; empty when there are none.

    Raises UsageError when there are only pickled weights, StorageError for a missing shard, FormatError for a file
    that is broken off or not safetensors.
    """
    files = _files(folder)
    for path in files:
        check_whole(path)
    if not files and (pickled := pickled_files(folder)):
        raise UsageError(
            f"{folder} has only pickled weights ({pickled[0].name}), which can run code when read. Convert them: load "
            "the model with transformers where you trust it and call save_pretrained, which writes safetensors"
        )
    return files


def pickled_files(folder: Path) -> tuple[Path, ...]:
    """Weight files in formats that are not read."""
    return tuple(sorted(path for pattern in PICKLED_PATTERNS for path in folder.glob(pattern)))


def revision_of(files: tuple[Path, ...]) -> str:
    """SHA-256 (hex) of the files' names and sizes: tells versions of a local folder apart without reading weights."""
    text = "\n".join(f"{path.name} {path.stat().st_size}" for path in files)
    return hashlib.sha256(text.encode()).hexdigest()


def check_whole(path: Path) -> None:
    """Raise FormatError unless the file is as long as its safetensors header says."""
    tensors, header_end = _header(path)
    needed = header_end + max((entry["data_offsets"][1] for entry in tensors.values()), default=0)
    if (size := path.stat().st_size) < needed:
        raise FormatError(f"{path} is broken off: {size} bytes of {needed}. Fetch it again")


def tensor_names(path: Path) -> frozenset[str]:
    """The names of the tensors in a file. Raises FormatError as `check_whole` does."""
    return frozenset(_header(path)[0])


def value_count(path: Path) -> int:
    """Values in all tensors of a file. Raises FormatError as `check_whole` does."""
    return sum(math.prod(entry["shape"]) for entry in _header(path)[0].values())


def _header(path: Path) -> tuple[dict[str, Tensor], int]:
    """The tensors by name, and where their bytes begin."""
    with path.open("rb") as file:
        start = file.read(LENGTH_BYTES)
        length = struct.unpack("<Q", start)[0] if len(start) == LENGTH_BYTES else 0
        if not 0 < length <= MAX_HEADER_BYTES:
            pointer = ": it is a git-lfs pointer, run `git lfs pull`" if start.startswith(b"version ") else ""
            raise FormatError(f"{path} is not a safetensors file{pointer}")
        header = file.read(length)
    if len(header) < length:
        size = path.stat().st_size
        raise FormatError(f"{path} is broken off: {size} bytes of at least {LENGTH_BYTES + length}. Fetch it again")
    return _tensors(path, header), LENGTH_BYTES + length


def _tensors(path: Path, header: bytes) -> dict[str, Tensor]:
    try:
        tensors = {name: entry for name, entry in json.loads(header).items() if name != "__metadata__"}
        for entry in tensors.values():
            entry["data_offsets"][1] + math.prod(entry["shape"])  # both there, both numbers
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise FormatError(f"{path} is not a safetensors file: its header cannot be read") from error
    return tensors


def _files(folder: Path) -> tuple[Path, ...]:
    for stem in STEMS:
        if (index := folder / f"{stem}.safetensors.index.json").is_file():
            return _shards(folder, index)
        if (single := folder / f"{stem}.safetensors").is_file():
            return (single,)
    return ()


def _shards(folder: Path, index: Path) -> tuple[Path, ...]:
    """The files that an index of shards names. Raises StorageError for a missing one, FormatError for a bad index."""
    try:
        weight_map: dict[str, str] = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        shards = sorted(set(weight_map.values()))
        paths = {name: folder / Path(name).name for name in shards}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"{index} is not an index of safetensors shards: no weight_map can be read") from error
    missing = [name for name, path in paths.items() if not path.is_file()]
    if missing:
        raise StorageError(
            f"{folder} lacks {len(missing)} of {len(shards)} weight files: {', '.join(missing)}. Fetch the model again"
        )
    held = {name: tensor_names(path) for name, path in paths.items()}
    absent = [tensor for tensor, name in weight_map.items() if tensor not in held[name]]
    if absent:
        raise FormatError(
            f"{index} names {len(absent)} tensors that its files do not hold, the first is {absent[0]}. Fetch the "
            "model again"
        )
    return tuple(paths.values())
