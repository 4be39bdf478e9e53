"""The header of a CTranslate2 model: `model.bin` in a folder with config.json and vocabulary.

The file may be untrusted, and CTranslate2 allocates memory by its contents. So it is read variable by variable, and
every length is checked against the file. Values are skipped. The format is defined in ctranslate2's
`specs/model_spec.py`, binary version 4 to 6.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from io import BufferedReader
from math import prod
from pathlib import Path
from typing import NoReturn

from benchmarking.core.errors import FormatError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.untrusted.input_files import open_regular, read_json

MODEL = "model.bin"
VOCABULARIES = ("vocabulary.json", "vocabulary.txt")
MAX_VARIABLES, MAX_NAME_BYTES, MAX_DIMENSIONS, MAX_JSON_BYTES = 100_000, 65_535, 8, 64_000_000
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
    """Number of values in variables with two or more dimensions, by type."""
    parameter_count: int
    """Number of values in variables with dimensions, without the scales of quantized ones."""
    vocabulary_size: int
    """Rows of the embedding table."""
    positions: int | None
    """Rows of the position table; None for a model without one."""


def is_ct2_folder(path: Path) -> bool:
    """Whether a folder contains the files of a converted model."""
    return (path / MODEL).is_file() and any((path / name).is_file() for name in VOCABULARIES)


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
        with open_regular(path) as opened:
            return opened.read(MAX_JSON_BYTES).decode("utf-8", "replace").splitlines()
    raise FormatError(f"{folder} has no vocabulary: expected {' or '.join(VOCABULARIES)}")


def model_of(folder: Path) -> Ct2Stored:
    """The header of the model in a folder. Raises FormatError if it is truncated, in another format or beyond the
    limits, and UnreadableError."""
    with open_regular(folder / MODEL) as file:
        return _Reader(file, folder / MODEL).read()


class _Reader:
    """Reads a file from its start, checking every length against the remaining size."""

    def __init__(self, file: BufferedReader, path: Path) -> None:
        self._file = file
        self._path = path
        self._size = os.fstat(file.fileno()).st_size

    def read(self) -> Ct2Stored:
        version = self._number("<I")
        if version not in BINARY_VERSIONS:
            self._refuse(f"version {version}; supported: {BINARY_VERSIONS[0]} to {BINARY_VERSIONS[-1]}")
        spec = self._text()
        self._number("<I")  # the revision of the kind of model
        count = self._number("<I")
        if count > MAX_VARIABLES:
            self._refuse(f"{count} variables, limit {MAX_VARIABLES}")
        arrays: dict[str, tuple[tuple[int, ...], str, int]] = {}
        for _ in range(count):
            name = self._text()
            dimensions = self._number("<B")
            if dimensions > MAX_DIMENSIONS:
                self._refuse(f"{name} has {dimensions} dimensions")
            shape = tuple(self._number("<I") for _ in range(dimensions))
            number = self._number("<B")
            if number >= len(TYPES):
                self._refuse(f"{name} has unknown type {number}")
            size = self._number("<I")
            if size > self._size - self._file.tell():
                raise FormatError(f"{self._path} is truncated: {name} exceeds the file: fetch it again")
            self._file.seek(size, os.SEEK_CUR)
            if shape:
                arrays[name] = shape, TYPES[number], size
        by_type: dict[str, int] = {}
        for shape, kind, _ in arrays.values():
            if len(shape) > 1:
                by_type[kind] = by_type.get(kind, 0) + prod(shape)
        tables = {name: shape[0] for name, (shape, _, _) in arrays.items() if len(shape) > 1}
        return Ct2Stored(
            spec=spec,
            weights_bytes=sum(size for _, _, size in arrays.values()),
            values_by_type=by_type,
            parameter_count=sum(prod(shape) for name, (shape, _, _) in arrays.items() if not name.endswith("_scale")),
            vocabulary_size=next((rows for name, rows in tables.items() if "embeddings" in name), 0),
            positions=next((rows for name, rows in tables.items() if "position_encodings" in name), None),
        )

    def _text(self) -> str:
        """A text, stored with its length in front and a zero at the end."""
        length = self._number("<H")
        return self._bytes(length).rstrip(b"\0").decode("utf-8", "replace")

    def _number(self, kind: str) -> int:
        found: int = struct.unpack(kind, self._bytes(struct.calcsize(kind)))[0]
        return found

    def _bytes(self, count: int) -> bytes:
        found = self._file.read(count)
        if len(found) < count:
            raise FormatError(f"{self._path} is truncated at {self._size} bytes: fetch it again")
        return found

    def _refuse(self, problem: str) -> NoReturn:
        raise FormatError(f"{self._path} is not a CTranslate2 model within the limits: {problem}")
