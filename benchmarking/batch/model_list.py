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
from dataclasses import field
from fnmatch import fnmatchcase
from functools import cache, partial
from pathlib import Path
from typing import Any

from benchmarking.core.axes import AXES, BY_KEY, Axis
from benchmarking.core.command_line import note
from benchmarking.core.errors import FormatError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.settings import TAGS, TEXT, Kind, Setting
from benchmarking.core.untrusted.input_files import MAX_YAML_BYTES, Node, read_text, read_yaml
from benchmarking.sweep.plan.measuring_settings import MEASURING, runtime_options

SettingValues = Mapping[str, Any]
"""Settings by key, checked: lists are tuples."""


FAMILY_AXES: Mapping[str, Axis] = {key: axis for key, axis in BY_KEY.items() if not axis.of_every_model}
"""The axes that only some models have, by key."""


BUILT_IN: SettingValues = {
    **{
        setting.key: (setting.default,) if setting.plural and setting.kind is not TAGS else setting.default
        for setting in MEASURING.values()
        if setting.is_key and setting.default is not None and setting.name not in AXES
    },
    **{key: axis.default for key, axis in BY_KEY.items() if axis.default},
    "runtimes": (None,),
    "grids": ({},),
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
        node.check_known(key, (*others, *readers()))
    return {key: read_settings(key, node) for key, node in mapping.items() if key in readers()}


def merged_settings(base: SettingValues, override: SettingValues) -> dict[str, Any]:
    """The settings of both. `override` takes precedence, even over values in the other's grids. Tags are combined."""
    merged = {**base, **override, "tags": {**base.get("tags", {}), **override.get("tags", {})}}
    if "grids" in base and "grids" not in override:
        merged["grids"] = tuple(
            {key: values for key, values in grid.items() if key not in override} for grid in base["grids"]
        )
    return merged


def _value(kind: Kind, node: Node) -> Any:
    return kind.check(node.content, node.text)


def _values(setting: Setting, node: Node) -> tuple[Any, ...]:
    values = setting.kind.listed(setting.key, node)
    return tuple(sorted(values)) if setting.kind.is_sorted else values


def _tags(node: Node) -> dict[str, str]:
    tags = node.mapping("tags")
    for key, value in tags.items():
        if isinstance(value.content, dict | list) or value.content is None:
            value.refuse(f"tags: {key} takes a word or a number: got {value.text}")
    return {key: str(value.content) for key, value in tags.items()}


def _grids(node: Node) -> tuple[dict[str, Any], ...]:
    """Grids, each a mapping of axes."""
    grids = []
    for item in node.items():
        grid = item.mapping("grids")
        for key, value in grid.items():
            if key not in BY_KEY:
                value.refuse(f"grids: {key} is not an axis: known: {', '.join(BY_KEY)}")
        grids.append({key: read_settings(key, value) for key, value in grid.items()})
    if not grids:
        raise UsageError("is an empty list: remove it, or give a grid")
    return tuple(grids)


@cache
def readers() -> Mapping[str, Callable[[Node], Any]]:
    """How the value of each key is read."""
    by_key: dict[str, Callable[[Node], Any]] = {
        setting.key: _tags
        if setting.kind is TAGS
        else partial(_values, setting)
        if setting.takes_list
        else partial(_value, setting.kind)
        for setting in MEASURING.values()
        if setting.is_key
    }
    return {**by_key, **dict.fromkeys(runtime_options(), partial(_value, TEXT)), "grids": _grids}


def help_text() -> str:
    """The format of lists of models, and all settings."""
    settings = textwrap.fill(f"Settings: {' '.join(readers())}.", width=118)
    return f"{__doc__}\n{settings}\n"


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


def entries_from_names(names: Sequence[str]) -> tuple[Entry, ...]:
    """Entries for the names of --models. Raises UsageError for a duplicate name."""
    return _check_unique([Entry(model_id=name, location="--models") for name in names])


def entries_from_file(path: Path) -> tuple[Entry, ...]:
    """The entries of a list. Raises UsageError with file, line and key, and StorageError."""
    if not path.exists():
        raise UsageError(f"--model-list {path} does not exist: check the path")
    if path.suffix.lower() in YAML_SUFFIXES:
        root = read_yaml(path)
        if isinstance(root.content, list):  # models without settings
            entries = [_entry(node, {}, []) for node in root.content]
        else:
            top = root.mapping("a list of models")
            defaults = top["defaults"].mapping("defaults") if "defaults" in top else {}
            for key, node in defaults.items():
                if key in top:
                    node.refuse(f"{key} is set twice: under defaults and at the top level (line {top[key].line})")
            shared_settings = {**setting_values(defaults), **setting_values(top, others=TOP_KEYS)}
            if "models" not in top:
                root.refuse("models is missing: list at least one")
            overrides: list[tuple[str, dict[str, Any]]] = []
            for node in top["overrides"].items() if "overrides" in top else ():
                override = node.mapping("overrides")
                match = override.get("match")
                if match is None or not isinstance(match.content, str):
                    node.refuse('overrides takes a pattern of model ids: match: "gpt2*"')
                overrides.append((match.content, setting_values(override, others=("match",))))
            entries = [_entry(node, shared_settings, overrides) for node in top["models"].items()]
            if not entries:
                top["models"].refuse("models is an empty list")
            for pattern, _ in overrides:
                if not any(fnmatchcase(entry.model_id, pattern) for entry in entries):
                    note(f"{top['overrides'].location}: overrides: no model matches {pattern!r}")
            include, exclude = _patterns(top, "include"), _patterns(top, "exclude")
            entries = list(select_entries(entries, include, exclude, str(path)))
    else:
        try:
            lines = read_text(path, MAX_YAML_BYTES).splitlines()
        except FormatError as error:
            raise UsageError(str(error)) from error
        texts = [(number, COMMENT.sub("", line).strip()) for number, line in enumerate(lines, start=1)]
        entries = [Entry(model_id=text, location=f"{path}:{number}") for number, text in texts if text]
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
    left = [
        entry
        for entry in entries
        if not include or any(fnmatchcase(entry.model_id, pattern) for pattern in include)
        if not any(fnmatchcase(entry.model_id, pattern) for pattern in exclude)
    ]
    if not left:
        raise UsageError(f"{location}: include and exclude select none of {len(entries)} models")
    return tuple(left)


def _check_unique(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    seen: dict[str, str] = {}
    for entry in entries:
        if entry.model_id in seen:
            raise UsageError(f"{entry.location}: {entry.model_id} is listed twice (first: {seen[entry.model_id]})")
        seen[entry.model_id] = entry.location
    return tuple(entries)


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
    nodes = top[key].items()
    for node in nodes:
        if not isinstance(node.content, str) or not node.content:
            node.refuse(f"{key} takes patterns of model ids: got {node.text}")
    return tuple(str(node.content) for node in nodes)
