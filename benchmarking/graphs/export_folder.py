"""Exports to a user's folder: a bundle's files, compared there with the torch model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

from benchmarking.builds.store import RECORD, BuildStore
from benchmarking.core.errors import BenchhouseError, UsageError, first_line, storage_errors
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.model_contracts import Recipe
from benchmarking.core.records import Cell, Json, Point, Precision
from benchmarking.core.temporary import temporary_folder
from benchmarking.graphs.bundle import MANIFEST, Exported, read_bundle, write_bundle
from benchmarking.graphs.exported_model import DEFAULT_OPSET, bundle_key, ensure_bundle
from benchmarking.workloads.support.configuration import CONFIG_NAME
from benchmarking.workloads.support.exported_folder import file_of
from benchmarking.workloads.support.families import plugin_of, recipe_of
from benchmarking.workloads.support.processing import HUB_FILES

Format = Literal["onnx", "openvino"]
FORMATS: tuple[Format, ...] = ("onnx", "openvino")
PRECISIONS: Mapping[Format, tuple[Precision, ...]] = {
    "onnx": ("float32", "float16", "int8", "int4"),
    "openvino": ("float32", "float16"),
}
"""Precisions of the files by format. OpenVINO makes lower ones when it loads a model."""

MAX_INSIDE_BYTES = 2_000_000_000
"""Largest model in a single file; protocol buffers end at 2 GiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """A requested export."""

    cell: Cell
    point: Point
    format: Format
    folder: Path
    opset: int = DEFAULT_OPSET


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedExport:
    """A finished export."""

    files: Mapping[str, int]
    """Bytes by file name, the manifest last."""
    agreement: Mapping[str, Json]
    """Differences between the graphs in these files and the eager float32 model (`export.agreement.compare_at`)."""


def check_request(export: Export) -> None:
    """Raise UsageError for a precision that the format does not support, or for a folder that is not empty."""
    supported = PRECISIONS[export.format]
    if export.cell.precision not in supported:
        raise UsageError(f"--precision {export.cell.precision}: {export.format} files support {', '.join(supported)}")
    if export.folder.exists() and (not export.folder.is_dir() or any(export.folder.iterdir())):
        raise UsageError(f"--output-dir {export.folder} is not an empty folder: choose another one, or empty it")


def export_to_folder(export: Export, say: Callable[[str], None]) -> FinishedExport:
    """Export (or take the export from the build cache), write the files, and compare them with the torch model.

    Raises BenchhouseError if the model cannot be exported, the graphs do not agree or the folder cannot be written."""
    check_request(export)
    store = BuildStore()
    precision: Precision = "float32" if export.format == "openvino" else export.cell.precision
    say(f"exporting {export.cell.workload.model_id} ({export.cell.workload.task}) to {export.format}")
    ensure_bundle(export.cell, (export.point,), store, "if_needed", precision, export.opset)
    source = store.folder(bundle_key(export.cell, export.point, precision, export.opset))
    with _atomic_folder(export.folder) as folder:
        if export.format == "openvino":
            import openvino

            bundle = read_bundle(source)
            graphs = {}
            for name, graph in bundle.graphs.items():
                target = folder / f"{name}.xml"
                try:
                    model = openvino.convert_model(str(source / graph.file))
                except RuntimeError as error:  # OpenVINO raises it for every failure
                    raise BenchhouseError(f"OpenVINO cannot convert the graph {name!r}: {first_line(error)}") from error
                openvino.save_model(model, str(target), compress_to_fp16=export.cell.precision == "float16")
                graphs[name] = replace(graph, file=target.name)
            write_bundle(folder, replace(bundle, graphs=graphs))
        else:
            for path in source.iterdir():
                if path.name != RECORD:
                    shutil.copyfile(path, folder / path.name)
        say("comparing the files with the torch model")
        agreement = _agreement(export, folder)
        _name_model(export, folder, agreement)
    paths = sorted(export.folder.iterdir(), key=lambda path: (path.name == MANIFEST, path.name))
    files = {path.name: path.stat().st_size for path in paths}
    return FinishedExport(files=files, agreement=agreement)


def pack(folder: Path, file: Path) -> dict[str, int]:
    """Write the only graph of an exported folder to a single file, with its weights inside, or in `<file>.data` if
    they are too large for that. Returns bytes by file name. Raises UsageError for several graphs, StorageError."""
    import onnx

    graphs = read_bundle(folder).graphs
    if len(graphs) > 1:
        raise UsageError(
            f"{file.name}: the model has {len(graphs)} graphs ({', '.join(graphs)}): give a folder with --output-dir"
        )
    (graph,) = graphs.values()
    with storage_errors(f"cannot write {file}", "choose another place"):
        file.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(f".{file.name}", file.parent) as temporary:
            model = onnx.load(str(folder / graph.file))
            is_large = model.ByteSize() > MAX_INSIDE_BYTES
            onnx.save(model, str(temporary / file.name), save_as_external_data=is_large, location=f"{file.name}.data")
            names = sorted((path.name for path in temporary.iterdir()), key=len, reverse=True)
            for name in names:
                (temporary / name).replace(file.parent / name)
    return {name: (file.parent / name).stat().st_size for name in reversed(names)}


@contextmanager
def _atomic_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder that is renamed to the requested one at the end, so a failed export leaves nothing behind."""
    with storage_errors(f"--output-dir {folder}"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(f".{folder.name}", folder.parent) as temporary:
            yield temporary
            if folder.exists():
                folder.rmdir()  # it is empty
            temporary.chmod(0o755)
            temporary.rename(folder)


def _name_model(export: Export, folder: Path, agreement: Mapping[str, Json]) -> None:
    """Add the model's configuration and tokenizer, and record the model in the manifest, so that the folder can be
    measured by itself."""
    workload = export.cell.workload
    recipe = recipe_of(workload)
    assert isinstance(recipe, Recipe)  # it has been exported
    (folder / CONFIG_NAME).write_text(json.dumps(workload.config, indent=1), encoding="utf-8")
    for name in HUB_FILES if workload.path is not None else ():
        if (source := Path(workload.path or "") / name).is_file():
            shutil.copyfile(source, folder / name)
    exported = Exported(
        model_id=workload.model_id,
        task=workload.task,
        format=export.format,
        precision=export.cell.precision,
        weights=workload.weights,
        seed=workload.seed,
        revision=workload.revision,
        fixed_axes=recipe.signature(export.point),
        agreement=agreement,
        files={path.name: file_of(path) for path in sorted(folder.iterdir()) if path.name != MANIFEST},
    )
    write_bundle(folder, replace(read_bundle(folder), exported=exported))


def _agreement(export: Export, folder: Path) -> dict[str, Json]:
    """Compare the exported files with the float32 torch model, at the points of every export and at the requested
    point."""
    from benchmarking.graphs.export.agreement import (
        PlainRunner,
        checked_points,
        compare_at,
        onnx_evaluator,
        openvino_evaluator,
    )
    from benchmarking.runtimes.support.torch.model_loading import load_model

    workload = export.cell.workload
    recipe = recipe_of(workload)
    assert isinstance(recipe, Recipe)  # it has been exported
    model, _ = load_model(workload, "float32", plugin_of(workload).default_attention(workload.config))
    bundle = read_bundle(folder)
    evaluator = openvino_evaluator if export.format == "openvino" else onnx_evaluator
    points = {point.label: point for point in (*checked_points(workload, export.point, recipe), export.point)}
    runner = PlainRunner(bundle, folder, evaluator)
    return compare_at(tuple(points.values()), model, workload, bundle, runner, export.cell.precision)
