"""Reads foreign YAML as if it were JSON: times stay text, and a programming language's own types are refused."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from db.importers import ForeignFile

if TYPE_CHECKING:
    import yaml

MAX_BYTES = 16 * 1024**2
"""The parser takes seconds for a megabyte."""
MAX_VALUES = 1_000_000
"""Each alias counts with all it stands for: without a limit a file of ten lines holds more than any memory."""
TIMESTAMP = "tag:yaml.org,2002:timestamp"


def yaml_object(file: ForeignFile) -> dict[str, Any]:
    """The file's one mapping. Raises FormatError for a file that is none, with the line that is wrong."""
    import yaml

    if len(file.content) > MAX_BYTES:
        file.refuse(f"larger than {MAX_BYTES >> 20} MiB, which is no result file in YAML")
    try:
        data = yaml.load(file.text or "", Loader=_loader())
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        file.refuse(f"not YAML: {' '.join(str(error).split())[:200]}")
    if not isinstance(data, dict) or not all(isinstance(name, str) for name in data):
        file.refuse("not YAML with names and values")
    if _size(data, {}) > MAX_VALUES:
        file.refuse(f"its aliases stand for more than {MAX_VALUES} values")
    return {name: _plain(file, value, name) for name, value in data.items()}


def _loader() -> type[yaml.SafeLoader]:
    """yaml's safe loader without times, which JSON has none of."""
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != TIMESTAMP]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    return Loader


def _plain(file: ForeignFile, value: Any, place: str) -> Any:
    """The value as JSON has it: names are text, and what is no number is None."""
    if isinstance(value, dict):
        return {str(name): _plain(file, one, f"{place}.{name}") for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(file, one, f"{place}[{index}]") for index, one in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is not None and not isinstance(value, bool | int | float | str):
        file.refuse(f"{place[:100]}: expected text, a number, a list or names and values, found {type(value).__name__}")
    return value


def _size(value: Any, known: dict[int, int]) -> int:
    """Values in it, those behind aliases each time they are named. What holds itself is endless."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in known:
        known[id(value)] = MAX_VALUES + 1  # until it is counted: met again inside itself, it is endless
        held = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_size(one, known) for one in held)
    return known[id(value)]
