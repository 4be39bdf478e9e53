"""What a value of a foreign file must be to be stored, and how it is shown in a message."""

from __future__ import annotations

import math
from typing import Any

from benchmarking.records import Json
from db.importers import ForeignFile

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
MAX_DEPTH = 100
"""Objects and lists inside each other: more than any tool writes, and less than what reading them again can take."""


def storable(file: ForeignFile, value: Any, place: str, depth: int = 0) -> Json:
    """The value of a JSON file, if a warehouse can hold it. Raises FormatError for a number beyond double precision,
    half of a surrogate pair, and nesting without end."""
    if depth > MAX_DEPTH:
        file.refuse(f"{place[:100]}: more than {MAX_DEPTH} lists and objects inside each other")
    if isinstance(value, str):
        _check_text(file, value, place)
    elif isinstance(value, float) and not math.isfinite(value):
        file.refuse(f"{place}: {value} is no number")
    elif isinstance(value, list):
        return [storable(file, one, f"{place}[{index}]", depth + 1) for index, one in enumerate(value)]
    elif isinstance(value, dict):
        for name in value:
            _check_text(file, name, place)
        return {name: storable(file, one, f"{place}.{short_name(name)}", depth + 1) for name, one in value.items()}
    return value  # type: ignore[no-any-return]


def short(value: Any) -> str:
    """The value, for a message."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def short_name(name: str) -> str:
    """The name of a field, for a message."""
    return name if len(name) <= 60 else f"{name[:57]}..."


def _check_text(file: ForeignFile, text: str, place: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        file.refuse(f"{place}: the text holds half of a surrogate pair, which is no character")


def parsed_number(text: str) -> int | float | str:
    """The number that the text is, or the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
