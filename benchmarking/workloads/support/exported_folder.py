"""A model in a folder from `export_to_onnx`: its graphs, bundle.json, the model's configuration and its tokenizer.

bundle.json names the model and task of the graphs, and config.json is the model's configuration. So the family makes
the inputs and calls, as for graphs in the build cache, but the graphs are the folder's own files.

The folder may be untrusted. Every file used must be listed in bundle.json with its SHA-256 and be a plain file in the
folder, and each graph is read by a separate process, like a single graph file. The measured files are a copy in the
build cache of the checked contents.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarking.core.child_process import run_module_json
from benchmarking.core.errors import BenchhouseError, FormatError, UsageError
from benchmarking.core.model_contracts import BundleKind, Recipe
from benchmarking.core.records import Json, Point, Precision, WeightsChoice, Workload, canonical_hash
from benchmarking.core.untrusted.input_files import read_json
from benchmarking.core.untrusted.redaction import redacted_folder
from benchmarking.graphs.bundle import MANIFEST, MAX_MANIFEST_BYTES, Bundle, Exported, ExportedFile, read_bundle
from benchmarking.workloads.support import graph_contents, graph_file
from benchmarking.workloads.support.configuration import CONFIG_NAME, check_files, read_config
from benchmarking.workloads.support.families import family_of, plugin_of, task_of
from benchmarking.workloads.support.quantized_weights import quantization_of

FORMAT, EXPORTED = "format", "exported"
"""Additional keys of the workload's configuration: the format of the graph files, and what bundle.json says about the
model."""
GRAPHS: Mapping[BundleKind, frozenset[str]] = {
    "forward": frozenset({"model"}),
    "denoiser": frozenset({"model"}),
    "decoder": frozenset({"decode"}),
    "encoder-decoder": frozenset({"encoder", "cross", "decode"}),
}
"""Graphs that calls need, by kind of bundle."""


def bundle_in(folder: Path) -> Bundle | None:
    """The bundle of a folder that names its model; None for a folder without one, as written by earlier versions.

    Raises FormatError and UnreadableError for a damaged bundle.json."""
    path = folder / MANIFEST
    if not path.is_file():
        return None
    content = read_json(path, MAX_MANIFEST_BYTES)
    if not isinstance(content, dict) or content.get(EXPORTED) is None:
        return None
    return read_bundle(folder)


def exported_workload(
    model_id: str, folder: Path, *, task: str | None, weights: WeightsChoice, seed: int
) -> Workload | None:
    """The workload of an exported folder; None for any other folder. Raises UsageError for another task, other weights
    or a rejected folder."""
    try:
        if (bundle := bundle_in(folder)) is None or bundle.exported is None:
            return None
        exported = bundle.exported
        if task not in (None, exported.task):
            raise UsageError(f"it was exported for task {exported.task}, not {task}: omit --task")
        if weights not in ("auto", exported.weights):
            raise UsageError(f"it was exported with {exported.weights} weights, not {weights}: omit --weights")
        if CONFIG_NAME not in exported.files:
            raise FormatError(f"{MANIFEST} does not list {CONFIG_NAME}: export it again")
        for name, file in exported.files.items():
            graph_contents.check_same_folder(folder / MANIFEST, name)
            size = (folder / name).stat().st_size
            if size != file.size_bytes:
                raise FormatError(f"{name} has {size} bytes, expected {file.size_bytes}: export it again")
            if _digest(folder / name) != file.sha256:
                raise FormatError(f"checksum mismatch for {name}: export it again")
        for name, graph in bundle.graphs.items():
            kind = graph_contents.SUFFIXES.get(Path(graph.file).suffix)
            if graph.file not in exported.files or kind != exported.format:
                raise FormatError(
                    f"{MANIFEST}: graph {name!r} is in {graph.file!r}, which is not a listed {exported.format} file"
                )
        config = read_config(folder)
        check_files(folder)
        plugin = family_of(config, exported.model_id)
        facts: dict[str, Json] = {
            "model_id": exported.model_id,
            "revision": exported.revision,
            "precision": exported.precision,
            "seed": exported.seed,
            "fixed_axes": dict(exported.fixed_axes),
        }
        config = {**config, FORMAT: exported.format, EXPORTED: facts}
        vocab_size = config.get("vocab_size")
        workload = Workload(
            model_id=redacted_folder(model_id),
            family=plugin.name,
            task=task_of(plugin, config, exported.task, exported.model_id),
            source="file",
            config=config,
            config_hash=canonical_hash(config),
            weights=exported.weights,
            seed=seed,
            path=str(folder.absolute()),
            revision=_digest(folder / MANIFEST),  # it contains the digests of all other files
            parameter_count=bundle.parameter_count,
            max_sequence_length=plugin.max_sequence_length(config),
            vocab_size=vocab_size if isinstance(vocab_size, int) else None,
        )
        recipe = plugin_of(workload).recipe(workload)
        kind = recipe.kind if isinstance(recipe, Recipe) else "nothing"
        if kind != bundle.kind:
            raise FormatError(f"{MANIFEST} has graphs of kind {bundle.kind}, but the model of {CONFIG_NAME} is {kind}")
        if absent := sorted(GRAPHS[bundle.kind] - set(bundle.graphs)):
            raise FormatError(f"{MANIFEST} has no graph {absent[0]!r}, which kind {bundle.kind} needs: export it again")
        _graphs(folder, bundle, exported)
    except BenchhouseError as error:
        raise UsageError(f"MODEL {model_id}: {error}") from error
    return workload


def is_export(workload: Workload) -> bool:
    return workload.source == "file" and isinstance(workload.config.get(EXPORTED), dict)


def export_facts(workload: Workload) -> dict[str, Any]:
    """What bundle.json says about an exported folder's model: `model_id`, `precision`, `fixed_axes`, ..."""
    facts = workload.config[EXPORTED]
    assert isinstance(facts, dict), "the workload is not an exported folder"
    return facts


def why_not_precision(workload: Workload, precision: Precision, converted: Collection[Precision]) -> str | None:
    """None, or why the graphs of a file or of an exported folder do not run at a precision; `converted` are the
    precisions to which float32 graphs are converted."""
    if not is_export(workload):
        return graph_file.why_not_precision(workload, precision)
    exported_at = export_facts(workload)["precision"]
    from_float32 = ("tf32", *converted)
    if precision == exported_at or (exported_at == "float32" and precision in from_float32):
        return None
    return (
        f"{workload.model_id} was exported at {exported_at}: use --precision {exported_at}, or export it at {precision}"
    )


def why_not_point(workload: Workload, point: Point) -> str | None:
    """None, or why the graphs of an exported folder do not run at a point, if they contain axis values as constants."""
    if not is_export(workload):
        return None
    for name, value in export_facts(workload)["fixed_axes"].items():
        if point.axes.get(name) != value:
            noun = name.replace("_", " ")
            return f"{workload.model_id} was exported for {noun} {value}, not for {point.axes.get(name)}"
    return None


def torch_workload(workload: Workload) -> Workload | None:
    """The torch model of which a workload's graphs were made, as their reference: the workload itself if it has one;
    for an exported folder, the same seeded weights. None if there are no such weights, or only quantized ones."""
    if workload.source != "file":
        return None if quantization_of(workload) is not None else workload
    if not is_export(workload) or workload.weights != "random" or export_facts(workload)["seed"] != workload.seed:
        return None
    config = {name: value for name, value in workload.config.items() if name not in (FORMAT, EXPORTED)}
    # Source "local", so that the same tokenizer makes its inputs.
    return replace(workload, source="local", config=config, config_hash=canonical_hash(config), revision=None)


def copy_checked(workload: Workload, folder: Path) -> Bundle:
    """Copy the graphs of an exported folder into another one and return its bundle. Raises BenchhouseError if the
    folder differs from its description."""
    source = Path(workload.path or "")
    changed = f"{source} has changed since the start of the run: run again"
    if (bundle := bundle_in(source)) is None or _digest(source / MANIFEST) != workload.revision:
        raise BenchhouseError(changed)
    assert bundle.exported is not None  # `bundle_in` returns no other
    graphs = _graphs(source, bundle, bundle.exported)
    for name in dict.fromkeys(file for graph in graphs for file in graph["files"]):
        graph_contents.check_same_folder(source / MANIFEST, name)
        shutil.copyfile(source / name, folder / name, follow_symlinks=False)
        if _digest(folder / name) != bundle.exported.files[name].sha256:
            raise BenchhouseError(changed)
    return bundle


def file_of(path: Path) -> ExportedFile:
    """A file as listed in bundle.json."""
    return ExportedFile(size_bytes=path.stat().st_size, sha256=_digest(path))


def _graphs(folder: Path, bundle: Bundle, exported: Exported) -> list[dict[str, Any]]:
    """The graphs as described by a separate process. Raises BenchhouseError."""
    paths = [str(folder / graph.file) for graph in bundle.graphs.values()]
    limit_s = graph_contents.TIME_LIMIT_S * len(paths)
    graphs: list[dict[str, Any]] = run_module_json(graph_contents.MODULE, input_text=json.dumps(paths), limit_s=limit_s)
    unlisted = sorted({file for graph in graphs for file in graph["files"]} - set(exported.files))
    if unlisted:
        raise FormatError(f"{MANIFEST} does not list {unlisted[0]}, which holds weights of a graph: export it again")
    return graphs


def _digest(path: Path) -> str:
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
