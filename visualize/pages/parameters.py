"""Parameters of a view as fields of a frozen dataclass, parsed from and written to URLs.

A field is a `str`, an `int`, a `float` from 0, a `bool` or a `Literal` of texts, with `| None` if it may be missing, or
a `tuple[str, ...]`, which is given once for each text.
Fields without a default are part of the URL's path, others of its query. Empty values count as missing, since forms
send them. URLs leave out defaults, so each state has exactly one URL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from benchmarking.core.command_line import choice
from benchmarking.core.errors import UsageError
from benchmarking.core.text import visible

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    P = TypeVar("P", bound=DataclassInstance)
else:
    P = TypeVar("P")

MAX_LENGTH = 20_000
"""Maximum characters of a value: SQL may be long, and uvicorn accepts 64 kB of headers."""
MAX_NUMBER = 10**9
TEXTS = tuple[str, ...]
MOST_TEXTS = 50
"""Maximum texts of a field."""
YES = "1"
"""The value of a checked box."""


def parse(kind: type[P], given: Iterable[tuple[str, str]]) -> P:
    """Parse parameters. Raises UsageError for unknown, repeated, missing or invalid ones."""
    known = _types(kind)
    values: dict[str, Any] = {}
    for name, text in given:
        if name not in known:
            choice(name, tuple(known), "parameter")
        if not text.strip():
            continue
        if known[name] == TEXTS:
            values[name] = (*values.get(name, ()), _value(name, text.strip(), str))
            if len(values[name]) > MOST_TEXTS:
                raise UsageError(f"{name} is given more than {MOST_TEXTS} times")
            continue
        if name in values:
            raise UsageError(f"{name} is given twice: give it once")
        values[name] = _value(name, text.strip(), known[name])
    for field in fields(kind):
        if _is_required(field) and field.name not in values:
            raise UsageError(f"{field.name} is missing")
    return kind(**values)


def query(parameters: DataclassInstance) -> tuple[tuple[str, str], ...]:
    """Query parameters of a URL as texts, without defaults."""
    given = ((field, getattr(parameters, field.name)) for field in fields(parameters))
    return tuple(
        (field.name, _text(one))
        for field, value in given
        if not _is_required(field) and value not in (None, field.default)
        for one in (value if isinstance(value, tuple) else (value,))
    )


def path(parameters: DataclassInstance) -> Mapping[str, str]:
    """Path parameters of a URL as texts."""
    return {field.name: _text(getattr(parameters, field.name)) for field in fields(parameters) if _is_required(field)}


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING


def _text(value: object) -> str:
    return YES if value is True else f"{value:.15g}" if isinstance(value, float) else str(value)


@cache
def _types(kind: type) -> dict[str, Any]:
    """Field types, without None."""
    types = {}
    for field in fields(kind):
        hint = get_type_hints(kind)[field.name]
        if get_origin(hint) in (Union, UnionType):
            (hint,) = (get_arg for get_arg in get_args(hint) if get_arg is not NoneType)
        types[field.name] = hint
    return types


def _value(name: str, text: str, kind: Any) -> Any:
    if len(text) > MAX_LENGTH or "\0" in text:
        raise UsageError(f"{name}: expected at most {MAX_LENGTH} characters, and no NUL")
    if kind is str:
        return text
    if kind is bool:
        if text != YES:
            raise UsageError(f"{name}={visible(text)}: expected {YES}, or nothing")
        return True
    if kind is int:
        if not (text.isascii() and text.isdigit() and 0 < len(text) < 11 and 1 <= int(text) <= MAX_NUMBER):
            raise UsageError(f"{name}={visible(text)[:40]}: expected a whole number from 1 to {MAX_NUMBER}")
        return int(text)
    if kind is float:
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value <= MAX_NUMBER:  # also rejects NaN
            raise UsageError(f"{name}={visible(text)[:40]}: expected a number from 0 to {MAX_NUMBER}")
        return value
    return choice(text, get_args(kind), name)
