"""The families of models: the family and task of a configuration, shared checks of points (axes and maximum text
length), and the built-in catalog.

Only the configuration decides the family, never the model's name. The catalog has published configurations of
well-known models, which run without a network: a file per family in the folder catalog, and what a family lists in its
`catalog`. They are the models' config.json values, without those used only for training or sampling, and are read on
first use.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Mapping
from functools import cache
from importlib import resources
from typing import Any

from benchmarking.core import plugins
from benchmarking.core.axes import AXES
from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.model_contracts import Recipe, WorkloadFamily
from benchmarking.core.records import Family, Json, Point, Workload

CALLS = "calls"
"""The configuration key that holds a module's recorded calls."""

ARCHITECTURE_TASKS = {"ForSequenceClassification": "text-classification"}
"""Suffixes of architecture names of models made for one task, which lose their head for any other."""

POSITION_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx")
"""Configuration keys for the number of positions, the most common first."""


def families() -> tuple[WorkloadFamily, ...]:
    return tuple(plugins.load(plugins.FAMILIES, name) for name in plugins.names(plugins.FAMILIES))


def family_named(family: Family | None) -> WorkloadFamily | None:
    """The plugin of a family; None if this version does not have it."""
    plugin: WorkloadFamily | None = None
    if (name := (family or "").replace("-", "_")) in plugins.names(plugins.FAMILIES):
        plugin = plugins.load(plugins.FAMILIES, name)
    return plugin


def is_given(workload: Workload) -> bool:
    """Whether the workload is a torch module with recorded calls as its configuration."""
    return workload.source == "module" and CALLS in workload.config


def plugin_of(workload: Workload) -> WorkloadFamily:
    """The plugin of the workload's family, or its substitute for modules with recorded inputs and for graph files.
    Raises UnsupportedError if there is none."""
    if is_given(workload):
        from benchmarking.workloads.support.given_modules import PLUGIN

        return PLUGIN
    if workload.source == "file" and workload.family is None:
        from benchmarking.workloads.support.graph_file import FAMILY

        return FAMILY
    if (plugin := family_named(workload.family)) is None:
        raise UnsupportedError(f"{workload.model_id}: this version does not support family {workload.family}")
    return plugin


def chosen_texts(workload: Workload) -> list[str]:
    """What was chosen for a model without being requested: random weights, and the inputs of a graph file."""
    from benchmarking.workloads.support.graph_file import chosen_text

    weights, inputs = workload.weights_reason, chosen_text(workload)
    random = None if weights is None else f"{workload.model_id}: random weights (seed {workload.seed}): {weights}"
    return [text for text in (random, inputs) if text is not None]


def recipe_of(workload: Workload) -> Recipe | str:
    """How the workload is exported to graphs, or why it cannot be."""
    has_recipe = is_given(workload) or workload.source == "file"
    if not has_recipe and (workload.family is None or workload.source == "module"):
        return f"exporting needs a model with a configuration, not a {workload.source}"
    return plugin_of(workload).recipe(workload)


def family_of(config: Mapping[str, Json], model_id: str) -> WorkloadFamily:
    """The family of a configuration. Raises UsageError with the supported model types if there is none."""
    model_type = str(config.get("model_type") or config.get("_class_name"))
    for plugin in families():
        if model_type in plugin.model_types:
            # A model type may be used unlike its family, such as BERT as a decoder or half a T5.
            if (why_not := plugin.why_not_architecture(config, architectures(config))) is not None:
                raise UsageError(f"{model_id} is {why_not}, which is not supported")
            return plugin
    for plugin in families():
        if model_type in plugin.unsupported_model_types:
            raise UsageError(
                f"{model_id} is of family {plugin.name}, but {model_type} is not supported "
                f"(supported: {', '.join(sorted(plugin.model_types))})"
            )
    known = sorted(name for plugin in families() for name in plugin.model_types)
    near = ", ".join(difflib.get_close_matches(model_type, known, n=3))
    question = f" (did you mean {near}?)" if near else ""
    by_family = "; ".join(f"{plugin.name}: {', '.join(sorted(plugin.model_types))}" for plugin in families())
    raise UsageError(f"{model_id}: unknown model_type {model_type!r}{question}. Supported: {by_family}")


def task_of(plugin: WorkloadFamily, config: Mapping[str, Json], requested: str | None, model_id: str) -> str:
    """The requested task, else the task that the model was made for, else the family's default."""
    tasks = plugin.tasks_of(config)
    if requested is not None:
        if requested not in tasks:
            relation = "with tasks" if tasks == plugin.tasks else "and supports"
            raise UsageError(
                f"--task {requested}: {model_id} is of family {plugin.name}, {relation} {', '.join(tasks)}"
            )
        return requested
    for ending, task in ARCHITECTURE_TASKS.items():
        if task in tasks and any(name.endswith(ending) for name in architectures(config)):
            return task
    return tasks[0]


def architectures(config: Mapping[str, Json]) -> tuple[str, ...]:
    """The class names in the configuration."""
    value = config.get("architectures")
    return tuple(str(name) for name in value) if isinstance(value, list) else ()


def positions(config: Mapping[str, Json]) -> int | None:
    """The number of positions in the configuration, or None."""
    values = (config.get(key) for key in POSITION_KEYS)
    return next((value for value in values if isinstance(value, int)), None)


def wrong_axes(workload: Workload, point: Point, names: Collection[str]) -> str | None:
    """None, or which axis a point lacks or should not have. `names` are the workload's axes without the batch size."""
    point_axes = axes_of(point)
    for name in names:
        if name not in point_axes:
            return f"task {workload.task} of {workload.model_id}: missing {AXES[name].noun}"
    return next((no_axis(workload, name, names) for name in point_axes if name not in names), None)


def no_axis(workload: Workload, name: str, names: Collection[str]) -> str:
    """Why a workload whose axes are `names` does not have this one."""
    task = f"task {workload.task} of {workload.model_id}"
    if name == "new_tokens":
        return f"{task} does not generate: omit new tokens"
    grid = ", ".join(AXES[axis].noun for axis in ("batch_size", *names))
    return f"{task} has no {AXES[name].noun if name in AXES else name}; its grid is {grid}"


def axes_of(point: Point) -> dict[str, float]:
    """The point's axis values without batch size and concurrency."""
    return {**{name: value for name, value in point.stated.items() if not AXES[name].of_every_model}, **point.axes}


def too_long(workload: Workload, prompt: int, new_tokens: int, *, shared_positions: bool) -> str | None:
    """None, or how a prompt and new tokens (0 for none) exceed the model's positions.

    `shared_positions`: new tokens continue the prompt's positions, as in decoders; otherwise they have separate
    positions with the same limit.
    """
    limit = workload.max_sequence_length
    if limit is None:
        return None
    if shared_positions and new_tokens and prompt + new_tokens > limit:
        return (
            f"sequence length {prompt} and {new_tokens} new tokens are {prompt + new_tokens} tokens: "
            f"{workload.model_id} takes at most {limit}"
        )
    if prompt > limit:
        return f"sequence length {prompt}: {workload.model_id} takes at most {limit}"
    if not shared_positions and new_tokens > limit:
        return f"{new_tokens} new tokens: {workload.model_id} generates at most {limit}"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEntry:
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
def catalog_entries() -> tuple[CatalogEntry, ...]:
    """Every model of the catalog, family by family: those in the family's file, and those listed by its plugin."""
    models: list[Mapping[str, Any]] = []
    for family in plugins.family_names():
        file = resources.files(plugins.FAMILIES).joinpath("catalog", f"{family}.json")
        if file.is_file():
            models += json.loads(file.read_text(encoding="utf-8"))
        models += plugin.catalog if (plugin := family_named(family)) else ()
    return tuple(CatalogEntry(**{**model, "aliases": tuple(model["aliases"])}) for model in models)


def catalog_entry(name: str) -> CatalogEntry | None:
    """The entry with this name or alias, or None."""
    return next((entry for entry in catalog_entries() if name == entry.name or name in entry.aliases), None)


def catalog_names() -> tuple[str, ...]:
    """All names and aliases, for suggestions."""
    return tuple(name for entry in catalog_entries() for name in (entry.name, *entry.aliases))
