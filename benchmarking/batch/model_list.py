"""A list of models: a text file with one id per line, or a YAML file with settings.

YAML keys (settings have the names of flags, with `_` for `-`; a list of one item can be written as the item):

    models:                    names, or mappings with `id` and settings of this model only
      - bert-base-uncased
      - {id: gpt2, precisions: [float32], new_tokens: [16, 64]}
    devices: [cpu, cuda]       settings of all models, at the top level or under `defaults:`
    precisions: [float32, bfloat16]
    batch_sizes: [1, 8]
    grids:                     several grids, measured together
      - {batch_sizes: [1, 2, 4], sequence_lengths: [128]}
      - {batch_sizes: [1], sequence_lengths: [512]}
    overrides:                 settings of models whose id matches; later ones win
      - {match: "gpt2*", launches: 5}
    include: ["bert*", gpt2]   measure only models that match a pattern
    exclude: ["*-large-*"]     skip models that match a pattern

`runtimes: all` means every runtime that is compared with eager; those that cannot run are left out, with the reason.
Precedence: built-in defaults < settings in the file < overrides in order < the model's own < flags on the command line.
An axis applies to the models that have it, and an option to the runtimes that have it. It is an error to set an axis
for a single model that lacks it or for a batch without any model that has it, or an option that no runtime has.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from benchmarking.core.axes import BY_KEY, Axis
from benchmarking.core.command_line import MAX_NUMBER, MAX_SECONDS, choice
from benchmarking.core.errors import FormatError, UsageError
from benchmarking.core.records import PRECISIONS, REBUILDS, WEIGHTS_CHOICES, available
from benchmarking.core.untrusted.input_files import read_text
from benchmarking.core.untrusted.yaml_files import MAX_BYTES, Node, read_yaml
from benchmarking.measure.settings import DEFAULT_PROFILE, PROFILES
from benchmarking.sweep.plan.options import runtime_options
from benchmarking.sweep.plan.request import AUTO, DEFAULT_TIMEOUT_S

SettingValues = Mapping[str, Any]

"""Settings by key, checked: lists are tuples."""


FAMILY_AXES: Mapping[str, Axis] = {key: axis for key, axis in BY_KEY.items() if not axis.of_every_model}

"""The axes that only some models have, by key."""


BUILT_IN: SettingValues = {
    "devices": (AUTO,),
    "runtimes": (None,),
    "precisions": ("float32",),
    **{key: axis.default for key, axis in BY_KEY.items() if axis.default},
    "grids": ({},),
    "profile": DEFAULT_PROFILE,
    "weights": "auto",
    "rebuild": "if_needed",
    "timeout": DEFAULT_TIMEOUT_S,
    "cold_cache": False,
    "skip_unsupported": False,
    "tags": {},
}

"""Defaults; None leaves the choice to the device."""


def read_settings(key: str, node: Node) -> Any:
    """The checked value of a key. Raises UsageError with the place."""
    try:
        return readers()[key](node)
    except UsageError as error:
        text = str(error)
        raise UsageError(text if text.startswith(f"{node.path}:") else f"{node.location}: {key} {text}") from error


def setting_values(mapping: Mapping[str, Node], *, others: tuple[str, ...] = ()) -> dict[str, Any]:
    """The settings in a mapping, without the keys in `others`. Raises UsageError for unknown keys."""
    for key, node in mapping.items():
        if key not in readers() and key not in others:
            try:
                choice(key, (*others, *readers()), "key")
            except UsageError as error:
                node.refuse(str(error))
    return {key: read_settings(key, node) for key, node in mapping.items() if key in readers()}


def merged_settings(base: SettingValues, override: SettingValues) -> dict[str, Any]:
    """The settings of both. `override` takes precedence, even over values in the other's grids. Tags are combined."""
    merged = {**base, **override, "tags": {**base.get("tags", {}), **override.get("tags", {})}}
    if "grids" in base and "grids" not in override:
        merged["grids"] = tuple(
            {key: values for key, values in grid.items() if key not in override} for grid in base["grids"]
        )
    return merged


def _word(node: Node) -> str:
    if node.content is None:
        raise UsageError('takes a word: got null (to get the word, write "null" in quotes)')
    if not isinstance(node.content, str) or not node.content.strip():
        raise UsageError(f"takes a word: got {node.text}")
    return node.content.strip()


def _option(node: Node) -> str:
    """A word as accepted by the flag, including YAML's true, false and numbers."""
    if isinstance(node.content, bool):
        return str(node.content).lower()
    return str(node.content) if isinstance(node.content, int) else _word(node)


def _flag(node: Node) -> bool:
    if not isinstance(node.content, bool):
        raise UsageError(f"takes true or false: got {node.text}")
    return node.content


def _integer(minimum: int) -> Callable[[Node], int]:
    def read_integer(node: Node) -> int:
        value = node.content
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise UsageError(f"takes whole numbers from {minimum}: got {node.text}")
        return value

    return read_integer


def _positive(node: Node, most: float = MAX_NUMBER) -> float:
    value = node.content
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise UsageError(f"takes numbers above 0: got {node.text}")
    if value > most:
        raise UsageError(f"takes numbers above 0, up to {most:g}: got {node.text}")
    return value


def _seconds(node: Node) -> float:
    return _positive(node, MAX_SECONDS)


def _one_of(known: tuple[str, ...], what: str) -> Callable[[Node], str]:
    return lambda node: choice(_word(node), known, what)


def _list_of(read_item: Callable[[Node], Any], *, ordered: bool = False) -> Callable[[Node], tuple[Any, ...]]:
    """A list, or a single item; `ordered` sorts it."""

    def read_list(node: Node) -> tuple[Any, ...]:
        items = [read_item(item) for item in node.items()]
        if not items:
            raise UsageError("is an empty list: remove it, or give a value")
        if len(set(items)) != len(items):
            duplicate = next(item for item in items if items.count(item) > 1)
            raise UsageError(f"contains {duplicate!r} twice: remove one")
        return tuple(sorted(items) if ordered else items)

    return read_list


def _tags(node: Node) -> dict[str, str]:
    found = node.mapping("tags")
    for key, value in found.items():
        if isinstance(value.content, dict | list) or value.content is None:
            value.refuse(f"tags: {key} takes a word or a number: got {value.text}")
    return {key: str(value.content) for key, value in found.items()}


def _grids(node: Node) -> tuple[dict[str, Any], ...]:
    """Grids, each a mapping of axes."""
    found = []
    for item in node.items():
        grid = item.mapping("grids")
        for key, value in grid.items():
            if key not in BY_KEY:
                value.refuse(f"grids: {key} is not an axis: known: {', '.join(BY_KEY)}")
        found.append({key: read_settings(key, value) for key, value in grid.items()})
    if not found:
        raise UsageError("is an empty list: remove it, or give a grid")
    return tuple(found)


NUMBERS = _list_of(_integer(1), ordered=True)


@cache
def readers() -> Mapping[str, Callable[[Node], Any]]:
    """How the value of each key is read."""
    return {
        "devices": _list_of(_word),
        "runtimes": _list_of(_word),
        "precisions": _list_of(lambda node: choice(available(_word(node)), PRECISIONS, "precision")),
        **{key: _list_of(_positive, ordered=True) if axis.kind is float else NUMBERS for key, axis in BY_KEY.items()},
        "grids": _grids,
        "task": _word,
        "weights": _one_of(WEIGHTS_CHOICES, "kind of weights"),
        **dict.fromkeys(runtime_options(), _option),
        "num_threads": NUMBERS,
        "cpu_list": _option,
        "rebuild": _one_of(REBUILDS, "rebuild"),
        "profile": _one_of(tuple(PROFILES), "profile"),
        "iterations": _integer(1),
        "warmup_iterations": _integer(0),
        "launches": _integer(1),
        "timeout": _seconds,
        "cold_cache": _flag,
        "skip_unsupported": _flag,
        "tags": _tags,
        "description": _word,
    }


def help_text() -> str:
    """The format of lists of models, and all settings."""
    return f"{__doc__}\n{textwrap.fill(f'Settings: {chr(32).join(readers())}.', width=118)}\n"


YAML_SUFFIXES = (".yaml", ".yml")

TOP_KEYS = ("models", "defaults", "overrides", "include", "exclude")

COMMENT = re.compile(r"(^|\s)#.*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A requested model and its settings."""

    model_id: str
    location: str
    """"models.yaml:3", or the flag."""
    shared_settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings shared by several models."""
    model_settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of this model only."""


def entries_from_names(names: Sequence[str], location: str) -> tuple[Entry, ...]:
    """Entries for names on the command line. Raises UsageError for a duplicate name."""
    return _check_unique([Entry(model_id=name, location=location) for name in names])


def entries_from_file(path: Path) -> tuple[Entry, ...]:
    """The entries of a list. Raises UsageError with file, line and key, and StorageError."""
    entries = _from_yaml(path) if path.suffix.lower() in YAML_SUFFIXES else _from_text(path)
    if not entries:
        raise UsageError(f"{path}: contains no models: list at least one")
    return _check_unique(entries)


def select_entries(
    entries: Sequence[Entry], include: Sequence[str], exclude: Sequence[str], location: str
) -> tuple[Entry, ...]:
    """The entries whose model id matches a pattern of `include`, if there are patterns, and none of `exclude`.

    Raises UsageError for a pattern of `include` that no model matches, and if no entry is left.
    """
    for pattern in include:
        if not any(fnmatchcase(entry.model_id, pattern) for entry in entries):
            raise UsageError(f"{location}: include: no model matches {pattern!r}")
    left = [entry for entry in entries if not include or _matches(entry, include)]
    left = [entry for entry in left if not _matches(entry, exclude)]
    if not left:
        raise UsageError(f"{location}: include and exclude select none of {len(entries)} models")
    return tuple(left)


def _matches(entry: Entry, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(entry.model_id, pattern) for pattern in patterns)


def _check_unique(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    seen: dict[str, str] = {}
    for entry in entries:
        if entry.model_id in seen:
            raise UsageError(f"{entry.location}: {entry.model_id} is listed twice (first: {seen[entry.model_id]})")
        seen[entry.model_id] = entry.location
    return tuple(entries)


def _from_text(path: Path) -> list[Entry]:
    try:
        lines = read_text(path, MAX_BYTES).splitlines()
    except FormatError as error:
        raise UsageError(str(error)) from error
    found = [(number, COMMENT.sub("", line).strip()) for number, line in enumerate(lines, start=1)]
    return [Entry(model_id=text, location=f"{path}:{number}") for number, text in found if text]


def _from_yaml(path: Path) -> list[Entry]:
    root = read_yaml(path)
    if isinstance(root.content, list):  # models without settings
        return [_entry(node, {}, []) for node in root.content]
    top = root.mapping("a list of models")
    shared_settings = {**_defaults(top), **setting_values(top, others=TOP_KEYS)}
    if "models" not in top:
        root.refuse("models is missing: list at least one")
    overrides = [_override(node) for node in top["overrides"].items()] if "overrides" in top else []
    entries = [_entry(node, shared_settings, overrides) for node in top["models"].items()]
    if not entries:
        top["models"].refuse("models is an empty list")
    include, exclude = _patterns(top, "include"), _patterns(top, "exclude")
    return list(select_entries(entries, include, exclude, str(path)))


def _defaults(top: Mapping[str, Node]) -> dict[str, Any]:
    if "defaults" not in top:
        return {}
    defaults = top["defaults"].mapping("defaults")
    for key, node in defaults.items():
        if key in top:
            node.refuse(f"{key} is set twice: under defaults and at the top level (line {top[key].line})")
    return setting_values(defaults)


def _override(node: Node) -> tuple[str, dict[str, Any]]:
    override = node.mapping("overrides")
    match = override.get("match")
    if match is None or not isinstance(match.content, str):
        node.refuse('overrides takes a pattern of model ids: match: "gpt2*"')
    return match.content, setting_values(override, others=("match",))


def _entry(node: Node, shared_settings: Mapping[str, Any], overrides: Sequence[tuple[str, Mapping[str, Any]]]) -> Entry:
    fields = node.content if isinstance(node.content, dict) else {"id": node}
    name = fields.get("id")
    if name is None or not isinstance(name.content, str) or not name.content.strip():
        node.refuse(f"models takes model ids, or mappings with an id: got {node.text}")
    model_id = name.content.strip()
    model_settings = setting_values(fields, others=("id",))
    settings = dict(shared_settings)
    for pattern, values in overrides:
        if fnmatchcase(model_id, pattern):
            settings = merged_settings(settings, values)
    return Entry(model_id=model_id, location=node.location, shared_settings=settings, model_settings=model_settings)


def _patterns(top: Mapping[str, Node], key: str) -> tuple[str, ...]:
    if key not in top:
        return ()
    for node in top[key].items():
        if not isinstance(node.content, str) or not node.content:
            node.refuse(f"{key} takes patterns of model ids: got {node.text}")
    return tuple(str(node.content) for node in top[key].items())
