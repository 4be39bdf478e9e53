"""Records (frozen dataclasses) to JSON and back, for files and pipes."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
import sys
import types
import typing
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, TypeGuard, TypeVar, Union, get_args, get_origin

from benchmarking.core.errors import FormatError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.text import cut_off

Record = TypeVar("Record")
SURROGATE = re.compile("[\ud800-\udfff]")
PLAIN = (str, int, bool, type(None))
"""Types that need no conversion."""
OBJECT = (dict, Mapping)
"""Of these, dict is found ten times as fast."""


@dataclass(frozen=True, slots=True)
class Range:
    """The least and the greatest value of a number in a record: `Annotated[int, Range(1, 10)]`."""

    least: float
    most: float

    def holds(self, *values: float) -> bool:
        return all(self.least <= value <= self.most for value in values)

    def __str__(self) -> str:
        return f"from {self.least:.12g} to {self.most:.12g}"


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether a value of JSON is a number: true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(value: Any) -> TypeGuard[int]:
    """Whether a value of JSON is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


def to_json(record: Any) -> Any:
    """The record as JSON values. Raises FormatError for NaN and infinity, which JSON does not allow."""
    if type(record) in PLAIN:  # first, since most values are plain: the other checks take ten times as long
        return record
    if isinstance(record, float):
        if not math.isfinite(record):
            raise FormatError(f"a record must not contain {record}: store None and a reason instead")
        return record
    if isinstance(record, OBJECT):
        return {str(key): value if type(value) in PLAIN else to_json(value) for key, value in record.items()}
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {f.name: to_json(getattr(record, f.name)) for f in dataclasses.fields(record)}
    if isinstance(record, list | tuple):
        if record and set(map(type, record)) == {float} and all(map(math.isfinite, record)):  # millions of samples
            return list(record)
        return [to_json(value) for value in record]
    return record


def from_json(kind: type[Record], data: Any, where: str = "") -> Record:
    """A record of type `kind` from `to_json` data. Raises FormatError that names the first invalid field."""
    return typing.cast(Record, _read(kind, data, where or kind.__name__))


def dumps(record: Any) -> str:
    """The record as one line of JSON."""
    text = json.dumps(to_json(record), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # Python reads a file name that is not UTF-8 as surrogates, which are written as escapes.
    return text if text.isascii() else SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def json_text(value: Any) -> str:
    """The value as canonical JSON (sorted keys, no spaces): equal values give equal text, which can be grouped."""
    return json.dumps(to_json(value), sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def canonical_hash(value: Any) -> str:
    """SHA-256 (hex) of the value's canonical JSON in UTF-8."""
    return hashlib.sha256(json_text(value).encode()).hexdigest()


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


def _read(kind: Any, data: Any, where: str) -> Any:
    """`data` as `kind`. Supports only the types that occur in records."""
    origin = get_origin(kind)
    if kind is Any:
        return data
    is_record = dataclasses.is_dataclass(kind)
    if is_record:
        _expect(isinstance(data, dict), data, where, "an object")
        fields = _hints(kind)
        unknown = sorted(data.keys() - fields.keys())
        if unknown:
            raise FormatError(f"{where}: unknown field {unknown[0]!r}")
        try:
            return kind(**{name: _read(fields[name], value, f"{where}.{name}") for name, value in data.items()})
        except TypeError as error:
            required = [
                f.name for f in dataclasses.fields(kind) if f.default is f.default_factory is dataclasses.MISSING
            ]
            missing = sorted(set(required) - data.keys())
            raise FormatError(f"{where}: missing field {missing[0]!r}" if missing else f"{where}: {error}") from error
    if origin is Annotated:
        plain, limits = get_args(kind)
        value = _read(plain, data, where)
        _expect(limits.holds(value), data, where, f"a number {limits}")
        return value
    if origin in (Union, types.UnionType):
        if type(data) in _accepted_types(kind):
            return data
        options = sorted(get_args(kind), key=lambda option: option is float)  # which also accepts int
        for option in options:
            try:
                return _read(option, data, where)
            except FormatError:
                is_only = len([o for o in options if o is not type(None)]) == 1
                if is_only and data is not None and option is not type(None):
                    raise
        names = " or ".join(getattr(option, "__name__", str(option)) for option in options)
        raise FormatError(f"{where}: expected {names}, found {_short(data)}")
    if origin is Literal:
        return _expect(data in get_args(kind), data, where, f"one of {', '.join(map(str, get_args(kind)))}")
    if origin is tuple:
        _expect(isinstance(data, list), data, where, "a list")
        if get_origin(get_args(kind)[0]) is Annotated and all(type(value) is float for value in data):
            limits = get_args(get_args(kind)[0])[1]
            if _all_hold(limits, data):
                return tuple(data)  # raw samples: by far the most values
        if (one := _optional_number(get_args(kind)[0])) is not None:  # a column of requests, with gaps
            plain, limits = one
            is_plain = all(type(value) in (plain, type(None)) for value in data)
            if is_plain and _all_hold(limits, [value for value in data if value is not None]):
                return tuple(data)
        return tuple(_read(get_args(kind)[0], value, f"{where}[{i}]") for i, value in enumerate(data))
    if origin is not None and issubclass(origin, Mapping):
        _expect(isinstance(data, dict), data, where, "an object")
        return {key: _read(get_args(kind)[1], value, f"{where}.{key}") for key, value in data.items()}
    if typing.is_typeddict(kind):
        _expect(isinstance(data, dict), data, where, "an object")
        hints = _hints(kind)
        for key, value in data.items():  # a key without a type is of another version of the program
            _read(hints.get(key, Any), value, f"{where}.{key}")
        return data
    if origin is list:
        return _expect(isinstance(data, list), data, where, "a list")
    if kind is float:
        return float(_expect(is_number(data) and abs(data) <= sys.float_info.max, data, where, "a number"))
    if kind is int:
        return _expect(is_whole(data), data, where, "a whole number")
    name = {type(None): "null", str: "text", bool: "true or false"}.get(kind, str(kind))
    return _expect(isinstance(data, kind), data, where, name)


def _all_hold(limits: Range, values: Sequence[float]) -> bool:
    """Whether all values are within the limits. NaN is not, and neither the least nor the greatest value shows it."""
    return not values or (limits.holds(min(values), max(values)) and all(map(math.isfinite, values)))


@cache
def _optional_number(kind: Any) -> tuple[type, Range] | None:
    """The type and limits of `Annotated[...] | None`; None for any other kind."""
    if get_origin(kind) not in (Union, types.UnionType):
        return None
    options = [option for option in get_args(kind) if option is not type(None)]
    if len(options) != 1 or get_origin(options[0]) is not Annotated:
        return None
    plain, limits = get_args(options[0])
    return plain, limits


@cache
def _accepted_types(kind: Any) -> frozenset[type]:
    """The JSON types that fit a union without further checks."""
    plain = (type(None), bool, int, float, str)
    wide = {list[Any]: list, dict[str, Any]: dict}
    return frozenset(wide.get(option, option) for option in get_args(kind) if option in plain or option in wide)


def _expect(fits: bool, data: Any, where: str, what: str) -> Any:
    if not fits:
        raise FormatError(f"{where}: expected {what}, found {_short(data)}")
    return data


def _short(data: Any) -> str:
    return cut_off(json.dumps(data, ensure_ascii=False, default=str))
