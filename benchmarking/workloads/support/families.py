"""Which family and task a configuration belongs to. The model's name has no say in it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from benchmarking.core import plugins
from benchmarking.core.contracts import Recipe, WorkloadFamily
from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.records import Family, Json, Workload

PACKAGE = "benchmarking.workloads"

OTHER_FAMILIES: Mapping[Family, frozenset[str]] = {
    "multimodal": frozenset({"idefics2", "llava_next", "paligemma"}),
}
"""The best-known model types of families that may have no plugin, to name the family instead of saying "unknown". The
types of a family that has one are its plugin's."""

ARCHITECTURE_TASKS = {"ForSequenceClassification": "text-classification"}
"""Ends of architecture names of models that were made for one task and lose their head at any other."""


def families() -> tuple[WorkloadFamily, ...]:
    """The plugin of every family there is."""
    return tuple(plugins.load(PACKAGE, name) for name in plugins.names(PACKAGE))


def family_named(family: Family | None) -> WorkloadFamily | None:
    """The plugin of a family; None for one that this version does not have."""
    plugin: WorkloadFamily | None = None
    if (name := (family or "").replace("-", "_")) in plugins.names(PACKAGE):
        plugin = plugins.load(PACKAGE, name)
    return plugin


def plugin_of(workload: Workload) -> WorkloadFamily:
    """The plugin of the workload's family. Raises UnsupportedError when there is none."""
    if (plugin := family_named(workload.family)) is None:
        raise UnsupportedError(f"{workload.model_id}: this version does not run family {workload.family}")
    return plugin


def recipe_of(workload: Workload) -> Recipe | str:
    """How the workload is exported to graphs, or why it cannot be."""
    if workload.family is None or workload.source == "module":
        return f"graphs are exported from a model that has a configuration, not from a {workload.source}"
    return plugin_of(workload).recipe(workload)


def family_of(config: Mapping[str, Json], model_id: str) -> WorkloadFamily:
    """The family of a configuration. Raises UsageError that says what is known for a model that no family takes."""
    model_type = str(config.get("model_type") or config.get("_class_name"))
    for plugin in families():
        if model_type in plugin.model_types:
            _check_architecture(plugin, config, model_id)
            return plugin
    for family, model_types in OTHER_FAMILIES.items():
        if model_type in model_types:
            own = next((sorted(plugin.model_types) for plugin in families() if plugin.name == family), [])
            have = ", ".join(own or [plugin.name for plugin in families()])
            raise UsageError(
                f"{model_id} is of family {family} ({model_type}), which this version does not run: {have}"
            )
    raise UsageError(f"{model_id}: unknown model_type {model_type!r}{_suggestion(model_type)}")


def task_of(plugin: WorkloadFamily, config: Mapping[str, Json], asked: str | None, model_id: str) -> str:
    """The task that was asked for, else the one the model was made for, else the family's default."""
    tasks = plugin.tasks_of(config)
    if asked is not None:
        if asked not in tasks:
            whose = "whose tasks are" if tasks == plugin.tasks else "and its tasks are"
            raise UsageError(f"--task {asked}: {model_id} is of family {plugin.name}, {whose} {', '.join(tasks)}")
        return asked
    for ending, task in ARCHITECTURE_TASKS.items():
        if task in tasks and any(name.endswith(ending) for name in architectures(config)):
            return task
    return tasks[0]


def architectures(config: Mapping[str, Json]) -> tuple[str, ...]:
    """The class names in the configuration."""
    value = config.get("architectures")
    return tuple(str(name) for name in value) if isinstance(value, list) else ()


def _check_architecture(plugin: WorkloadFamily, config: Mapping[str, Json], model_id: str) -> None:
    """Raise UsageError for a model type used against its family: a BERT made a decoder, half a T5."""
    if (why_not := plugin.why_not_architecture(config, architectures(config))) is not None:
        raise UsageError(f"{model_id} is {why_not}, which is not supported")


def _suggestion(model_type: str) -> str:
    known = sorted(name for plugin in families() for name in plugin.model_types)
    near = ", ".join(difflib.get_close_matches(model_type, known, n=3))
    question = f" (did you mean {near}?)" if near else ""
    by_family = "; ".join(f"{plugin.name}: {', '.join(sorted(plugin.model_types))}" for plugin in families())
    return f"{question}. Known are {by_family}"
