"""A file of models: text with one id a line, or YAML with settings beside them.

YAML keys (every setting is a flag's name in the plural it has there, `_` for `-`; one item may stand for a list):

    models:                    names, or mappings with `id` and settings of that model alone
      - bert-base-uncased
      - {id: gpt2, precisions: [float32], new_tokens: [16, 64]}
    devices: [cpu, cuda]       at the top level, or under `defaults:`: settings of every model
    precisions: [float32, bfloat16]
    batch_sizes: [1, 8]
    grids:                     several grids, whose points are measured together
      - {batch_sizes: [1, 2, 4], sequence_lengths: [128]}
      - {batch_sizes: [1], sequence_lengths: [512]}
    overrides:                 settings of the models whose id matches; later ones win
      - {match: "gpt2*", launches: 5}
    include: ["bert*", gpt2]   only models that match one of the patterns
    exclude: ["*-large-*"]     and none of these

Runtimes may be `all`: every one that is compared with eager; those that cannot be are left out, and why is said.
What is said nearer wins: built-in defaults < the file's settings < overrides in their order < the model's own < flags
of the command line. An axis goes to the models that have it, and an option to the runtimes that have it; an axis that
is asked of a single model which does not have it, or that no model has, is an error, as is an option that none of the
runtimes has.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from benchmarking.batch import setting_keys, yaml_nodes
from benchmarking.batch.yaml_nodes import Node
from benchmarking.errors import StorageError, UsageError

HELP = f"{__doc__}\n{textwrap.fill(f'Settings: {chr(32).join(setting_keys.READERS)}.', width=118)}\n"
"""What the command says of lists: how they are written, and every setting there is."""
YAML_SUFFIXES = (".yaml", ".yml")
TOP_KEYS = ("models", "defaults", "overrides", "include", "exclude")
COMMENT = re.compile(r"(^|\s)#.*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A model that is asked for, and what is said about it."""

    model_id: str
    where: str
    """"models.yaml:3", or the flag."""
    shared: Mapping[str, Any] = field(default_factory=dict)
    """Settings said of several models."""
    own: Mapping[str, Any] = field(default_factory=dict)
    """Settings said of this one."""


def from_names(names: Sequence[str], where: str) -> tuple[Entry, ...]:
    """Entries of names on the command line. Raises UsageError for a name that is there twice."""
    return _each_once([Entry(model_id=name, where=where) for name in names])


def from_file(path: Path) -> tuple[Entry, ...]:
    """The entries of a list. Raises UsageError that names file, line and key; StorageError."""
    entries = _from_yaml(path) if path.suffix.lower() in YAML_SUFFIXES else _from_text(path)
    if not entries:
        raise UsageError(f"{path}: no model is in it")
    return _each_once(entries)


def chosen(entries: Sequence[Entry], include: Sequence[str], exclude: Sequence[str], where: str) -> tuple[Entry, ...]:
    """The entries whose model id matches a pattern of `include`, if there are any, and none of `exclude`.

    Raises UsageError for a pattern of `include` that no model matches, and when nothing is left.
    """
    for pattern in include:
        if not any(fnmatchcase(entry.model_id, pattern) for entry in entries):
            raise UsageError(f"{where}: include: no model matches {pattern!r}")
    left = [entry for entry in entries if not include or _matches(entry, include)]
    left = [entry for entry in left if not _matches(entry, exclude)]
    if not left:
        raise UsageError(f"{where}: include and exclude leave no model of {len(entries)}")
    return tuple(left)


def _matches(entry: Entry, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(entry.model_id, pattern) for pattern in patterns)


def _each_once(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    seen: dict[str, str] = {}
    for entry in entries:
        if entry.model_id in seen:
            raise UsageError(f"{entry.where}: {entry.model_id} is there already ({seen[entry.model_id]})")
        seen[entry.model_id] = entry.where
    return tuple(entries)


def _from_text(path: Path) -> list[Entry]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not a text file (UTF-8)") from error
    found = [(number, COMMENT.sub("", line).strip()) for number, line in enumerate(lines, start=1)]
    return [Entry(model_id=text, where=f"{path}:{number}") for number, text in found if text]


def _from_yaml(path: Path) -> list[Entry]:
    root = yaml_nodes.read(path)
    if isinstance(root.content, list):  # nothing but models
        return [_entry(node, {}, []) for node in root.content]
    top = root.mapping("a list of models")
    shared = {**_defaults(top), **setting_keys.values(top, beside=TOP_KEYS)}
    if "models" not in top:
        root.refuse("models is missing: name some")
    overrides = [_override(node) for node in top["overrides"].items()] if "overrides" in top else []
    entries = [_entry(node, shared, overrides) for node in top["models"].items()]
    if not entries:
        top["models"].refuse("models is an empty list")
    include, exclude = _patterns(top, "include"), _patterns(top, "exclude")
    return list(chosen(entries, include, exclude, str(path)))


def _defaults(top: Mapping[str, Node]) -> dict[str, Any]:
    if "defaults" not in top:
        return {}
    defaults = top["defaults"].mapping("defaults")
    for key, node in defaults.items():
        if key in top:
            node.refuse(f"{key} is there twice: under defaults and at the top level (line {top[key].line})")
    return setting_keys.values(defaults)


def _override(node: Node) -> tuple[str, dict[str, Any]]:
    override = node.mapping("overrides")
    match = override.get("match")
    if match is None or not isinstance(match.content, str):
        node.refuse('overrides takes a pattern of model ids: match: "gpt2*"')
    return match.content, setting_keys.values(override, beside=("match",))


def _entry(node: Node, shared: Mapping[str, Any], overrides: Sequence[tuple[str, Mapping[str, Any]]]) -> Entry:
    fields = node.content if isinstance(node.content, dict) else {"id": node}
    name = fields.get("id")
    if name is None or not isinstance(name.content, str) or not name.content.strip():
        node.refuse(f"models takes model ids, or mappings with an id: got {node.text}")
    model_id = name.content.strip()
    own = setting_keys.values(fields, beside=("id",))
    nearer = dict(shared)
    for pattern, values in overrides:
        if fnmatchcase(model_id, pattern):
            nearer = setting_keys.merged(nearer, values)
    return Entry(model_id=model_id, where=node.where, shared=nearer, own=own)


def _patterns(top: Mapping[str, Node], key: str) -> tuple[str, ...]:
    if key not in top:
        return ()
    for node in top[key].items():
        if not isinstance(node.content, str) or not node.content:
            node.refuse(f"{key} takes patterns of model ids: got {node.text}")
    return tuple(str(node.content) for node in top[key].items())
