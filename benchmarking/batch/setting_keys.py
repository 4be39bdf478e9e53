"""The settings of a batch by key: the flags of the command and the keys of a YAML list are the same words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from benchmarking.batch.yaml_nodes import Node
from benchmarking.cli_support import choice
from benchmarking.core.axes import BY_KEY, Axis
from benchmarking.errors import UsageError
from benchmarking.measure.settings import PROFILES
from benchmarking.records import PRECISIONS, REBUILDS
from benchmarking.sweep.request import AUTO, DEFAULT_TIMEOUT_S, OPTIONS
from benchmarking.workloads._resolve import WEIGHTS_CHOICES

Values = Mapping[str, Any]
"""Settings by key, checked: lists are tuples."""

FAMILY_AXES: Mapping[str, Axis] = {key: axis for key, axis in BY_KEY.items() if not axis.of_every_model}
"""The axes that not every model has, by key."""

BUILT_IN: Values = {
    "devices": (AUTO,),
    "runtimes": (None,),
    "precisions": ("float32",),
    **{key: axis.default for key, axis in BY_KEY.items() if axis.default},
    "grids": ({},),
    "profile": "standard",
    "weights": "auto",
    "rebuild": "if_needed",
    "timeout": DEFAULT_TIMEOUT_S,
    "skip_unsupported": False,
    "tags": {},
}
"""What holds where nothing is said; None leaves the choice to the device."""


def read(key: str, node: Node) -> Any:
    """The checked value of a key. Raises UsageError that names the place."""
    try:
        return READERS[key](node)
    except UsageError as error:
        text = str(error)
        raise UsageError(text if text.startswith(f"{node.path}:") else f"{node.where}: {key} {text}") from error


def values(mapping: Mapping[str, Node], *, beside: tuple[str, ...] = ()) -> dict[str, Any]:
    """The settings in a mapping, keys in `beside` left out. Raises UsageError for unknown keys."""
    for key, node in mapping.items():
        if key not in READERS and key not in beside:
            try:
                choice(key, (*beside, *READERS), "key")
            except UsageError as error:
                node.refuse(str(error))
    return {key: read(key, node) for key, node in mapping.items() if key in READERS}


def merged(under: Values, over: Values) -> dict[str, Any]:
    """Both, `over` winning: also over what the other's grids say of an axis. Tags of both stay."""
    together = {**under, **over, "tags": {**under.get("tags", {}), **over.get("tags", {})}}
    if "grids" in under and "grids" not in over:
        together["grids"] = tuple(
            {key: values for key, values in grid.items() if key not in over} for grid in under["grids"]
        )
    return together


def _word(node: Node) -> str:
    if node.content is None:
        raise UsageError('takes a word: got nothing (null is YAML\'s nothing: the word is "null")')
    if not isinstance(node.content, str) or not node.content.strip():
        raise UsageError(f"takes a word: got {node.text}")
    return node.content.strip()


def _option(node: Node) -> str:
    """A word as the flag takes it; YAML's own true, false and numbers are such words, too."""
    if isinstance(node.content, bool):
        return str(node.content).lower()
    return str(node.content) if isinstance(node.content, int) else _word(node)


def _flag(node: Node) -> bool:
    if not isinstance(node.content, bool):
        raise UsageError(f"takes true or false: got {node.text}")
    return node.content


def _whole(minimum: int) -> Callable[[Node], int]:
    def read_whole(node: Node) -> int:
        value = node.content
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise UsageError(f"takes whole numbers from {minimum}: got {node.text}")
        return value

    return read_whole


def _positive(node: Node) -> float:
    value = node.content
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise UsageError(f"takes numbers above 0: got {node.text}")
    return value


def _one_of(known: tuple[str, ...], what: str) -> Callable[[Node], str]:
    return lambda node: choice(_word(node), known, what)


def _some(read_item: Callable[[Node], Any], *, ordered: bool = False) -> Callable[[Node], tuple[Any, ...]]:
    """A list, or one item for a list of it; numbers are sorted."""

    def read_list(node: Node) -> tuple[Any, ...]:
        items = [read_item(item) for item in node.items()]
        if not items:
            raise UsageError("is an empty list: leave it out, or name something")
        if len(set(items)) != len(items):
            twice = next(item for item in items if items.count(item) > 1)
            raise UsageError(f"has {twice!r} twice")
        return tuple(sorted(items) if ordered else items)

    return read_list


def _tags(node: Node) -> dict[str, str]:
    found = node.mapping("tags")
    for key, value in found.items():
        if isinstance(value.content, dict | list) or value.content is None:
            value.refuse(f"tags: {key} takes a word or a number: got {value.text}")
    return {key: str(value.content) for key, value in found.items()}


def _grids(node: Node) -> tuple[dict[str, Any], ...]:
    """Grids whose points are measured together, each a mapping of axes."""
    found = []
    for item in node.items():
        grid = item.mapping("grids")
        for key, value in grid.items():
            if key not in BY_KEY:
                value.refuse(f"grids: {key} is no axis: there are {', '.join(BY_KEY)}")
        found.append({key: read(key, value) for key, value in grid.items()})
    if not found:
        raise UsageError("is an empty list: leave it out, or write a grid")
    return tuple(found)


NUMBERS = _some(_whole(1), ordered=True)
READERS: Mapping[str, Callable[[Node], Any]] = {
    "devices": _some(_word),
    "runtimes": _some(_word),
    "precisions": _some(_one_of(PRECISIONS, "precision")),
    **{key: _some(_positive, ordered=True) if axis.kind is float else NUMBERS for key, axis in BY_KEY.items()},
    "grids": _grids,
    "task": _word,
    "weights": _one_of(WEIGHTS_CHOICES, "kind of weights"),
    **dict.fromkeys(OPTIONS, _option),
    "num_threads": _whole(1),
    "cpu_list": _option,
    "rebuild": _one_of(REBUILDS, "rebuild"),
    "profile": _one_of(tuple(PROFILES), "profile"),
    "iterations": _whole(1),
    "warmup_iterations": _whole(0),
    "launches": _whole(1),
    "timeout": _positive,
    "skip_unsupported": _flag,
    "tags": _tags,
    "description": _word,
}
"""How the value of each key is read."""
