"""From the name of a model to its workload: configuration, weights, family, task and limits.

Runs in the supervisor, so it imports neither torch nor transformers: config.json is read as JSON, and the hub is
queried by a child process.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from benchmarking.core.command_names import as_typed
from benchmarking.core.errors import StorageError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import WEIGHTS_CHOICES, Json, WeightsChoice, WeightsKind, Workload, canonical_hash
from benchmarking.core.untrusted.redaction import redacted_folder
from benchmarking.workloads.support import families, hub, quantized_weights
from benchmarking.workloads.support.configuration import CONFIG_NAME, check_files, model_folder, read_config
from benchmarking.workloads.support.engine_file import engine_format_of, engine_workload
from benchmarking.workloads.support.exported_folder import exported_workload
from benchmarking.workloads.support.families import family_of, task_of
from benchmarking.workloads.support.graph_file import NO_CHOICES, GraphChoices, graph_file_of, graph_file_workload
from benchmarking.workloads.support.weights import revision_of, weight_files

HUB_ADDRESS = re.compile(r"(https?://)?(huggingface\.co|hf\.co)/|hf://")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A model's origin, and the choice of its weights."""

    kind: Literal["catalog", "local", "hub"]
    config: Mapping[str, Json]
    weights: WeightsKind
    weights_reason: str | None = None
    path: Path | None = None
    revision: str | None = None
    entry: families.CatalogEntry | None = None


def resolve(
    model_id: str,
    *,
    task: str | None = None,
    weights: WeightsChoice = "auto",
    seed: int = 0,
    graph: GraphChoices = NO_CHOICES,
) -> Workload:
    """The workload of a local or exported folder, a graph or engine file, or a name on the hub or in the catalog.

    `graph` is what the user says about the inputs of a graph file. Raises UsageError for an unknown name (with similar
    ones), a model without a family, an unsupported task, or choices for a model that is not a graph file;
    StorageError and FormatError for missing or broken files.
    """
    path = Path(os.path.expanduser(model_id))  # unlike Path's, it leaves the name of an unknown user as it is
    exported = None if graph else exported_workload(model_id, path, task=task, weights=weights, seed=seed)
    if exported is not None:
        return exported
    if (file := graph_file_of(model_id)) is not None:
        workload = graph_file_workload(model_id, file, task=task, seed=seed, choices=graph)
        if weights == "pretrained" and workload.weights == "given":
            raise UsageError(f"--weights pretrained: {model_id} does not say what its weights are: omit --weights")
        return _with_weights(workload, weights)
    if graph:
        raise UsageError(f"--dim, --input and --inputs are for graph files (.onnx, .xml), not {model_id}: omit them")
    if (kind := engine_format_of(path)) is not None:
        return _with_weights(engine_workload(model_id, path, kind, task=task, seed=seed), weights)
    return _workload(model_id, _source(model_id, path, weights), task=task, seed=seed)


def _with_weights(workload: Workload, asked: WeightsChoice) -> Workload:
    """A file's workload. Raises UsageError if its weights are others than those asked for: random ones where a file
    does not say, which has its own."""
    is_given = workload.weights == "given"
    if asked not in ("auto", workload.weights) and not (is_given and asked == "pretrained"):
        own = "its own" if is_given else workload.weights
        raise UsageError(f"--weights {asked}: {workload.model_id} has {own} weights: omit --weights")
    return workload


def catalog_workload(entry: families.CatalogEntry) -> Workload:
    """A model of the catalog with random weights, whatever folder has its name."""
    return _workload(entry.name, _from_catalog(entry, "random", ""), task=None, seed=0)


def _workload(model_id: str, source: Source, *, task: str | None, seed: int) -> Workload:
    if source.weights == "random":  # are not quantized
        config = {name: value for name, value in source.config.items() if name != quantized_weights.CONFIG}
        note = None if len(config) == len(source.config) else "they are not quantized, unlike its configuration's"
        reason = "; ".join(filter(None, (source.weights_reason, note))) or None
        source = replace(source, config=config, weights_reason=reason)
    plugin = family_of(source.config, model_id)
    chosen_task = task_of(plugin, source.config, task, model_id)
    # A published count is that of the default task's class.
    entry = source.entry if chosen_task == plugin.tasks_of(source.config)[0] else None
    vocab_size = source.config.get("vocab_size")
    return Workload(
        model_id=redacted_folder(model_id) if source.kind == "local" else model_id,
        family=plugin.name,
        task=chosen_task,
        source=source.kind,
        config=source.config,
        config_hash=canonical_hash(source.config),
        weights=source.weights,
        weights_reason=source.weights_reason,
        seed=seed,
        path=None if source.path is None else str(source.path),
        revision=source.revision,
        parameter_count=None if entry is None else entry.parameter_count,
        max_sequence_length=plugin.max_sequence_length(source.config),
        vocab_size=vocab_size if isinstance(vocab_size, int) else None,
    )


FILES = (".onnx", ".gguf", ".xml", ".safetensors", ".pt", ".pth", ".bin", ".tflite", ".engine", ".json")
"""Endings of files. A name on the hub may have one, too, if it has an owner: one whose folder is not here."""


def _source(model_id: str, path: Path, weights: WeightsChoice) -> Source:
    if weights not in WEIGHTS_CHOICES:
        raise UsageError(f"--weights takes {', '.join(WEIGHTS_CHOICES)}: got {weights!r}")
    if path.is_dir():
        # Broken weights are an error even if random ones are allowed, since the folder was requested.
        folder = model_folder(path.resolve())
        config = read_config(folder)
        check_files(folder, (hub.hub_cache_dir(),))
        source = Source(kind="local", config=config, weights="random", path=folder)
        if weights == "random":
            return source
        files = weight_files(folder)
        if files:
            return replace(source, weights="pretrained", revision=revision_of(files))
        if weights == "pretrained":
            raise UsageError(f"--weights pretrained: {folder} has no safetensors weights and no index of shards")
        return replace(source, weights_reason=f"{folder} has a configuration but no weights")
    entry = families.catalog_entry(model_id)
    if entry is not None and (weights == "random" or not entry.hub):
        return _from_catalog(entry, weights, "the catalog has only configurations, and this model is not on the hub")
    if entry is None and model_id.endswith(".py"):
        raise UsageError(
            f"{model_id} is a script: benchhouse script {shlex.quote(model_id)} measures the models that it calls, "
            f"benchhouse benches --benches {shlex.quote(model_id)} its benchmarks"
        )
    if entry is None and model_id.endswith((".yaml", ".yml", ".txt")):
        how = f"benchhouse batch --model-list {shlex.quote(model_id)}"
        raise UsageError(f"{model_id} is a list of models: {how} measures them")
    if entry is None and path.is_file():
        raise UsageError(f"MODEL {model_id} is a file: give the folder with {CONFIG_NAME} and the weights")
    owner, slash, _ = model_id.partition("/")
    has_unknown_owner = slash and hub.may_be_hub_name(model_id) and not Path(owner).exists()
    if entry is None and model_id.lower().endswith(FILES) and not has_unknown_owner:
        raise UsageError(f"MODEL {model_id}: there is no such file: check the path")
    if entry is None and not hub.may_be_hub_name(model_id):
        name = HUB_ADDRESS.sub("", model_id).partition("@")[0].strip("/")
        hint = f": did you mean {name}?" if name != model_id and hub.may_be_hub_name(name) else ""
        if "," in model_id and all(map(hub.may_be_hub_name, model_id.split(","))):
            hint = f": {as_typed('batch')} --models {model_id} measures several"
        raise UsageError(f"MODEL {model_id}: no such folder, and not a valid name on the hub{hint}")
    return _from_hub(model_id, entry, weights)


def _from_catalog(entry: families.CatalogEntry, weights: WeightsChoice, why_no_weights: str) -> Source:
    if weights == "pretrained":
        raise UsageError(f"--weights pretrained: no weights of {entry.name} were found: {why_no_weights}")
    reason = None if weights == "random" else why_no_weights
    return Source(kind="catalog", config=entry.config, weights="random", weights_reason=reason, entry=entry)


def _from_hub(model_id: str, entry: families.CatalogEntry | None, weights: WeightsChoice) -> Source:
    model = hub.look_up(model_id)
    if model.path is None or model.revision is None:
        why_absent = model.why_not or "it was not found"
        if entry is None:
            by_short_name = {name.rsplit("/", 1)[-1].lower(): name for name in reversed(families.catalog_names())}
            if model_id.lower().endswith(FILES):
                raise UsageError(f"MODEL {model_id}: there is no such file; as a name on the hub: {why_absent}")
            short = model_id.rsplit("/", 1)[-1].lower()
            # bert is bert-base-uncased rather than tiny-bert, qwen Qwen2.5-0.5B, and bert-tiny tiny-bert
            begun = [name for name in by_short_name if re.fullmatch(rf"{re.escape(short)}([-.\d].*)?", name)]
            turned = [name for name in by_short_name if sorted(name.split("-")) == sorted(short.split("-"))]
            near = difflib.get_close_matches(short, list(by_short_name), n=3)
            matches = turned or list(dict.fromkeys((*sorted(begun, key=len), *near)))[:3]
            question = f"Did you mean {', '.join(by_short_name[name] for name in matches)}? " if matches else ""
            raise UsageError(
                f"MODEL {model_id}: {why_absent}. {question}List the built-in models, which need no hub, with "
                f"{as_typed('run')} --list-models"
            )
        return _from_catalog(entry, weights, why_absent)
    folder = model_folder(model.path)
    source = Source(kind="hub", config=read_config(folder), weights="random", path=folder, revision=model.revision)
    if weights == "random":
        if not hub.is_offline():
            hub.fetch_processors(model_id, model.revision)
        check_files(folder)
        return source
    fetched = hub.fetch_weights(model_id, model.revision)
    folder = folder if fetched.path is None else model_folder(fetched.path)
    check_files(folder)
    why_not = fetched.why_not
    try:
        if weight_files(folder):
            return replace(source, weights="pretrained", path=folder)
    except (StorageError, UsageError) as error:
        why_not = why_not or str(error)
    why_not = why_not or f"{model_id} has no safetensors weights on the hub"
    if weights == "pretrained":
        raise UsageError(f"--weights pretrained: {why_not}")
    return replace(source, weights_reason=why_not)
