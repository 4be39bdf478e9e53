"""The header of a GGUF file (llama.cpp's format): its metadata and tensors, read within limits.

The file may be untrusted, and engines map it into memory by its header. So every length is checked against the file
before it is used, tensors must lie within the file, and arrays (the vocabulary) are skipped. The format:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import os
import re
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from io import BufferedReader
from math import prod
from pathlib import Path
from typing import NoReturn

from benchmarking.core.errors import FormatError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import Json, Precision
from benchmarking.core.untrusted.input_files import lfs_pointer, open_regular
from benchmarking.workloads.support.configuration import is_inside

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_ENTRIES, MAX_TENSORS, MAX_NAME_BYTES, MAX_DIMENSIONS = 10_000, 100_000, 65_535, 4
MAX_TEXT_BYTES = 1 << 20
"""Size limit of a value; the longest are chat templates of about 10 kB."""
MAX_DEPTH = 4
"""Nesting limit of arrays."""
DEFAULT_ALIGNMENT = 32

_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_TEXT, _ARRAY = 8, 9


@dataclass(frozen=True, slots=True)
class TensorType:
    """A tensor type: the number of values in a block, and its bytes."""

    name: str
    block: int
    bytes: int


TYPES: Mapping[int, TensorType] = {
    0: TensorType("F32", 1, 4),
    1: TensorType("F16", 1, 2),
    2: TensorType("Q4_0", 32, 18),
    3: TensorType("Q4_1", 32, 20),
    6: TensorType("Q5_0", 32, 22),
    7: TensorType("Q5_1", 32, 24),
    8: TensorType("Q8_0", 32, 34),
    9: TensorType("Q8_1", 32, 40),
    10: TensorType("Q2_K", 256, 84),
    11: TensorType("Q3_K", 256, 110),
    12: TensorType("Q4_K", 256, 144),
    13: TensorType("Q5_K", 256, 176),
    14: TensorType("Q6_K", 256, 210),
    15: TensorType("Q8_K", 256, 292),
    16: TensorType("IQ2_XXS", 256, 66),
    17: TensorType("IQ2_XS", 256, 74),
    18: TensorType("IQ3_XXS", 256, 98),
    19: TensorType("IQ1_S", 256, 50),
    20: TensorType("IQ4_NL", 32, 18),
    21: TensorType("IQ3_S", 256, 110),
    22: TensorType("IQ2_S", 256, 82),
    23: TensorType("IQ4_XS", 256, 136),
    24: TensorType("I8", 1, 1),
    25: TensorType("I16", 1, 2),
    26: TensorType("I32", 1, 4),
    27: TensorType("I64", 1, 8),
    28: TensorType("F64", 1, 8),
    29: TensorType("IQ1_M", 256, 56),
    30: TensorType("BF16", 1, 2),
    34: TensorType("TQ1_0", 256, 54),
    35: TensorType("TQ2_0", 256, 66),
    39: TensorType("MXFP4", 32, 17),
}
"""Types by ggml_type. The numbers and sizes are those of ggml.h and ggml-common.h."""

FILE_TYPES: Mapping[int, str] = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    25: "IQ4_NL",
    30: "IQ4_XS",
    32: "BF16",
}
"""Common names of type mixtures by general.file_type (llama_ftype in llama.h)."""

FLOAT_PRECISIONS: Mapping[str, Precision] = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def precision_of(name: str) -> Precision:
    """The precision of the series that a type belongs to: the narrowest with enough bits. So Q5_K_M and Q6_K count as
    int8 and Q3_K_M as int4; their names distinguish them, and `bits_per_weight` has the actual number of bits."""
    digits = re.search(r"[0-9]", name)
    return FLOAT_PRECISIONS.get(name) or ("int8" if digits is not None and int(digits[0]) > 4 else "int4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    name: str
    type: TensorType
    shape: tuple[int, ...]
    offset: int
    """Offset from the start of the tensor data."""

    @property
    def values(self) -> int:
        return prod(self.shape)

    @property
    def size_bytes(self) -> int:
        return self.values // self.type.block * self.type.bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Gguf:
    """The header of a file."""

    metadata: Mapping[str, Json]
    """Values by key; for an array, only its length."""
    tensors: tuple[Tensor, ...]

    @property
    def architecture(self) -> str:
        """llama.cpp's name for the architecture."""
        return str(self.metadata.get("general.architecture", ""))

    @property
    def quantization(self) -> str:
        """The name of the file's type mixture, or its most common type if the file does not name one."""
        file_type = self.metadata.get("general.file_type")
        if isinstance(file_type, int) and file_type in FILE_TYPES:
            return FILE_TYPES[file_type]
        counted: Counter[str] = Counter()
        for tensor in self.tensors:
            if len(tensor.shape) > 1:
                counted[tensor.type.name] += tensor.values
        return max(counted, key=lambda name: counted[name], default="F32")

    @property
    def parameter_count(self) -> int:
        """Number of values in all tensors."""
        return sum(tensor.values for tensor in self.tensors)

    @property
    def weights_bytes(self) -> int:
        """Bytes of all tensors, including scales."""
        return sum(tensor.size_bytes for tensor in self.tensors)

    def of_architecture(self, key: str) -> Json:
        """The value of an architecture-specific key, such as `context_length`."""
        return self.metadata.get(f"{self.architecture}.{key}")


def read_gguf(path: Path) -> Gguf:
    """The header of a file. Raises FormatError if it is not a GGUF file, truncated or beyond the limits, and
    UnreadableError."""
    with open_regular(path) as file:
        return _Reader(file, path).read()


def read_gguf_model(path: Path) -> tuple[Gguf, tuple[Path, ...]]:
    """The header of a model with the tensors of all its files, and these files: llama.cpp loads the other parts of a
    split model with the first, by their names. Raises FormatError and UnreadableError, also for a part."""
    first = read_gguf(path)
    count = first.metadata.get("split.count")
    if not isinstance(count, int) or count < 2:
        return first, (path,)
    if first.metadata.get("split.no"):
        raise FormatError(f"{path} is not the first of the {count} files of a model: give the first")
    ending = f"-00001-of-{count:05d}.gguf"
    if not path.name.endswith(ending):
        raise FormatError(
            f"{path} is the first of {count} files of a model, which llama.cpp finds by their names: its own must end "
            f"in {ending}"
        )
    name = path.name.removesuffix(ending)
    files = [path]
    tensors = list(first.tensors)
    for part in range(2, count + 1):
        files.append(path.with_name(f"{name}-{part:05d}-of-{count:05d}.gguf"))
        if not files[-1].is_file():
            raise FormatError(f"{files[-1]} is missing: the model in {path.name} has {count} files")
        if not is_inside(files[-1], (path.parent.resolve(), path.resolve().parent)):
            raise FormatError(f"{files[-1]} links to a file elsewhere: replace it by a copy of that file")
        tensors += read_gguf(files[-1]).tensors
    return replace(first, tensors=tuple(tensors)), tuple(files)


class HeaderReader:
    """Reads a binary file from its start, checking every length against the remaining size. Raises FormatError."""

    kind: str
    """What the file should be, for errors."""

    def __init__(self, file: BufferedReader, path: Path) -> None:
        self.file = file
        self.path = path
        self.size = os.fstat(file.fileno()).st_size

    def number(self, kind: str) -> int:
        """The next whole number, by its format in the module struct."""
        found: int = struct.unpack(kind, self.take(struct.calcsize(kind)))[0]
        return found

    def take(self, count: int) -> bytes:
        found = self.file.read(count)
        if len(found) < count:
            raise FormatError(f"{self.path} is truncated: its header exceeds {self.size} bytes: fetch it again")
        return found

    def left(self) -> int:
        """The bytes after this place."""
        return self.size - self.file.tell()

    def refuse(self, problem: str) -> NoReturn:
        """Raise FormatError with the problem."""
        raise FormatError(f"{self.path} is not a {self.kind} within the limits: {problem}")


class _Reader(HeaderReader):
    kind = "GGUF file"

    def read(self) -> Gguf:
        if self.file.read(4) != MAGIC:
            raise FormatError(lfs_pointer(self.path) or f"{self.path} is not a GGUF file")
        version = self.number("<I")
        if version not in VERSIONS:
            raise FormatError(
                f"{self.path}: GGUF version {version} is not supported (supported: {VERSIONS[0]} and {VERSIONS[1]})"
            )
        tensors = self._count("<Q", MAX_TENSORS, "tensors")
        entries = self._count("<Q", MAX_ENTRIES, "metadata entries")
        metadata: dict[str, Json] = {}
        for _ in range(entries):
            key = self._text(MAX_NAME_BYTES)
            metadata[key] = self._value(self.number("<I"), 0)
        placed: list[Tensor] = []
        for _ in range(tensors):
            tensor_name = self._text(MAX_NAME_BYTES)
            dimensions = self._count("<I", MAX_DIMENSIONS, f"dimensions of {tensor_name}")
            shape = tuple(self.number("<Q") for _ in range(dimensions))
            kind, offset = self.number("<I"), self.number("<Q")
            if kind not in TYPES:
                self.refuse(f"{tensor_name} has unknown type {kind}")
            if not all(0 < size < 1 << 40 for size in shape) or (shape and shape[0] % TYPES[kind].block):
                self.refuse(f"{tensor_name} has shape {shape}, which is invalid for {TYPES[kind].name}")
            placed.append(Tensor(name=tensor_name, type=TYPES[kind], shape=shape, offset=offset))
        # All tensors must lie within the file without overlapping.
        alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or not 0 < alignment <= 1 << 20:
            self.refuse(f"invalid alignment {alignment}")
        begin = -(-self.file.tell() // alignment) * alignment
        end = 0
        for tensor in sorted(placed, key=lambda tensor: tensor.offset):
            if tensor.offset < end:
                self.refuse(f"{tensor.name} overlaps another tensor")
            end = tensor.offset + tensor.size_bytes
        if begin + end > self.size and placed:
            raise FormatError(f"{self.path} is truncated: {self.size} of {begin + end} bytes: fetch it again")
        return Gguf(metadata=metadata, tensors=tuple(placed))

    def _value(self, kind: int, depth: int) -> Json:
        if kind == _TEXT:
            return self._text(MAX_TEXT_BYTES)
        if kind == _ARRAY:
            return self._skipped(depth)
        if kind not in _SCALARS:
            self.refuse(f"a value has unknown type {kind}")
        found: Json = struct.unpack(_SCALARS[kind], self.take(struct.calcsize(_SCALARS[kind])))[0]
        return found

    def _skipped(self, depth: int) -> int:
        """Skip an array and return its length."""
        kind, length = self.number("<I"), self.number("<Q")
        if depth >= MAX_DEPTH:
            self.refuse("too deeply nested arrays")
        if kind in _SCALARS:
            self._skip(length * struct.calcsize(_SCALARS[kind]))
            return length
        if length > self.left():  # every element takes at least one byte
            self.refuse(f"an array of {length} elements")
        for _ in range(length):
            if kind == _TEXT:
                self._skip(self.number("<Q"))
            elif kind == _ARRAY:
                self._skipped(depth + 1)
            else:
                self.refuse(f"an array has unknown type {kind}")
        return length

    def _count(self, kind: str, most: int, what: str) -> int:
        count = self.number(kind)
        if count > most:
            self.refuse(f"{count} {what}, limit {most}")
        return count

    def _text(self, most: int) -> str:
        length = self.number("<Q")
        if length > most:
            self.refuse(f"a text of {length} bytes, limit {most}")
        return self.take(length).decode("utf-8", "replace")

    def _skip(self, count: int) -> None:
        if count > self.left():
            self.refuse(f"expected {count} more bytes, {self.left()} are left")
        self.file.seek(count, os.SEEK_CUR)
