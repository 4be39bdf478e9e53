"""The built-in catalog: published configurations of well-known models, which run on a machine without network.

The folder catalog has one file a family. The facts are the models' config.json values, without those for training or
sampling only. Files are read on first use.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from benchmarking.core.records import FAMILIES, Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A model of the catalog."""

    name: str
    aliases: tuple[str, ...]
    """Other names of the model, such as the hub's longer one."""
    hub: bool
    """False for the tiny models made for this catalog, which no hub has."""
    model_class: str
    """The transformers class that `parameter_count` is of: that of the family's default task."""
    parameter_count: int
    """As published for that class; shared parameters count once."""
    config: Mapping[str, Json]


@cache
def entries() -> tuple[Entry, ...]:
    """Every model of the catalog, family by family."""
    folder = resources.files("benchmarking.workloads").joinpath("catalog")
    files = [folder.joinpath(f"{family}.json") for family in FAMILIES]
    models = [data for file in files if file.is_file() for data in json.loads(file.read_text(encoding="utf-8"))]
    return tuple(Entry(**{**data, "aliases": tuple(data["aliases"])}) for data in models)


def find(name: str) -> Entry | None:
    """The entry with this name or alias, or None."""
    return next((entry for entry in entries() if name == entry.name or name in entry.aliases), None)


def names() -> tuple[str, ...]:
    """Every name and alias, for "did you mean"."""
    return tuple(name for entry in entries() for name in (entry.name, *entry.aliases))
