"""The built-in catalog: published configurations of well-known models, which run without a network.

The folder catalog has one file per family; a family may also list models in its `catalog`. The facts are the models'
config.json values, without those used only for training or sampling. Files are read on first use.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from benchmarking.core import plugins
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import Json
from benchmarking.workloads.support.families import family_named


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A model of the catalog."""

    name: str
    aliases: tuple[str, ...]
    """Other names of the model, such as the hub's longer one."""
    hub: bool
    """False for the tiny models made for this catalog, which are not on the hub."""
    model_class: str
    """The transformers class to which `parameter_count` refers: that of the family's default task."""
    parameter_count: int
    """Number of parameters as published for that class; shared parameters count once."""
    config: Mapping[str, Json]


@cache
def entries() -> tuple[Entry, ...]:
    """Every model of the catalog, family by family: those in the family's file, and those listed by its plugin."""
    models: list[Mapping[str, Any]] = []
    for family in plugins.family_names():
        file = resources.files(plugins.FAMILIES).joinpath("catalog", f"{family}.json")
        if file.is_file():
            models += json.loads(file.read_text(encoding="utf-8"))
        models += plugin.catalog if (plugin := family_named(family)) else ()
    return tuple(Entry(**{**model, "aliases": tuple(model["aliases"])}) for model in models)


def find(name: str) -> Entry | None:
    """The entry with this name or alias, or None."""
    return next((entry for entry in entries() if name == entry.name or name in entry.aliases), None)


def names() -> tuple[str, ...]:
    """All names and aliases, for suggestions."""
    return tuple(name for entry in entries() for name in (entry.name, *entry.aliases))
