"""The interface for graph runtimes: the bundle of graphs for a cell and a point, and the operation on it; and exports
to a user's folder.

prepare    ensure_bundle(cell, points, store, rebuild)      in the preparing process; needs torch
open       find_bundle(cell, point), read_bundle(folder)    in the measuring process; needs no torch
operation  graph_operation(bundle, runner, workload, point, processing)

A device's compiler (TensorRT, QNN) makes more builds from a bundle, each for one fixed shape: `FixedShapes`.

An export to a user's folder has a bundle's files, which are compared there with the torch model.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from benchmarking.builds.store import RECORD, Build, BuildKey, BuildStore, combined_facts, model_parts
from benchmarking.core.errors import BenchhouseError, UnsupportedError, UsageError, first_line, storage_errors
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import onnx
from benchmarking.core.model_contracts import ONE_GRAPH, TRANSFORMERS_EXPORTER, GraphRunner, Recipe
from benchmarking.core.plugins import distributions_of, how_to_install, version_of, versions_of
from benchmarking.core.records import Cell, Json, Point, Precision, Rebuild, Workload
from benchmarking.core.temporary import temporary_folder
from benchmarking.graphs.bundle import (
    MANIFEST,
    ORIGIN,
    Bundle,
    Exported,
    Graph,
    origin_text,
    read_bundle,
    write_bundle,
)
from benchmarking.workloads.support.configuration import CONFIG_NAME
from benchmarking.workloads.support.exported_folder import export_facts, file_of, is_export, why_not_precision
from benchmarking.workloads.support.families import plugin_of, recipe_of
from benchmarking.workloads.support.graph_contents import PRECISION
from benchmarking.workloads.support.graph_file import format_of
from benchmarking.workloads.support.processing import HUB_FILES, Processing, open_processing

if TYPE_CHECKING:
    import numpy as np

    from benchmarking.graphs.operations import GraphOperation


KIND = "onnx"
EXPORT_VERSION = 3
"""Incremented when the same model is exported to different graphs, so that older bundles are no longer found."""
DEFAULT_OPSET = 20
PRECISIONS: tuple[Precision, ...] = ("float32", "tf32", "float16", "int8", "int4")
"""Precisions of bundles. TF32 is float32 in the files."""
QUANTIZED: tuple[Precision, ...] = ("int8", "int4")
"""Precisions converted from the float32 bundle."""
EXPORT_PACKAGES = ("torch", "onnx", "onnxscript")
INPUTS = "inputs."
"""Prefix of the source of a feed that is one of the family's inputs."""


def why_not(
    workload: Workload,
    precision: Precision | None = None,
    formats: Sequence[str] = ("onnx",),
    converted: Collection[Precision] = QUANTIZED,
) -> str | None:
    """None, or why this model and task cannot be exported, or why its files cannot run at a precision. `formats` are
    the graph files that the runtime reads, `converted` the precisions that it makes from float32 graphs."""
    if workload.source == "file":
        if format_of(workload) not in formats:
            return f"{workload.model_id} is a file in {format_of(workload)} format, which this runtime does not read"
        other = None if precision is None else why_not_precision(workload, precision, converted)
        if other is not None:
            return other
    recipe = recipe_of(workload)
    return recipe if isinstance(recipe, str) else None


def why_not_forward(runtime: str, workload: Workload, precision: Precision | None = None) -> str | None:
    """None for a workload that is one pass through one graph, else why it has no single fixed shape."""
    if (reason := why_not(workload, precision)) is not None:
        return reason
    if _recipe(workload).kind != "forward":
        return (
            f"runtime {runtime} compiles graphs for fixed shapes: it supports single forward passes, not "
            f"{workload.task}, whose shapes grow from step to step"
        )
    return None


def missing() -> str | None:
    """None, or the missing packages that an export needs."""
    absent = [name for name in ("torch", "transformers", "onnx", "onnxscript") if version_of(name) is None]
    return f"exporting to ONNX needs {', '.join(absent)}: {how_to_install()}" if absent else None


def quantizer_packages() -> tuple[str, ...]:
    """The distributions with ONNX Runtime's tools: whichever contain its module."""
    return ("onnxruntime", "onnxruntime-gpu", *distributions_of("onnxruntime"), "onnx")


def bundle_key(cell: Cell, point: Point, precision: Precision | None = None, opset: int = DEFAULT_OPSET) -> BuildKey:
    """The inputs of a point's bundle. `precision` is the graphs' precision if the runtime converts them to the cell's
    (by a hint, or a quantizer of float32). Raises UnsupportedError for a workload without graphs."""
    from benchmarking.graphs.export.exporter import OPTIMUM, shipped_file, shipped_file_identity

    recipe = _recipe(cell.workload)
    asked = precision or cell.precision
    if asked not in PRECISIONS:
        raise UnsupportedError(f"no graphs at {asked} (supported: {', '.join(PRECISIONS)})")
    stored_precision: Precision = "float32" if asked == "tf32" else asked
    # The packages that make the graphs or contain the models' code.
    packages = [*EXPORT_PACKAGES, "transformers" if recipe.exporter == TRANSFORMERS_EXPORTER else "diffusers"]
    if stored_precision in QUANTIZED:
        packages += quantizer_packages()
    shipped = shipped_file(cell.workload, recipe, stored_precision)
    parts: dict[str, Json] = {
        **model_parts(cell.workload),
        "signature": {"kind": recipe.kind, **recipe.signature(point)},
        "precision": stored_precision,
        "exporter": recipe.exporter if shipped is None else {OPTIMUM: shipped_file_identity(shipped)},
        "opset": opset,
        "export_version": EXPORT_VERSION,
        "versions": dict[str, Json](versions_of(packages)),
    }
    return BuildKey(kind=KIND, parts=parts)


def ensure_bundle(
    cell: Cell,
    points: Sequence[Point],
    store: BuildStore,
    rebuild: Rebuild,
    precision: Precision | None = None,
    opset: int = DEFAULT_OPSET,
) -> Mapping[str, Json]:
    """Make the bundles of these points that are missing in the store, one per key. Returns their facts
    (`combined_facts`).

    Raises UnsupportedError for a workload without graphs, BenchhouseError if the export fails or differs from the torch
    model."""
    by_digest = {(key := bundle_key(cell, point, precision, opset)).digest: (key, point) for point in points}
    builds = [_ensure(cell, key, point, store, rebuild) for key, point in by_digest.values()]
    return combined_facts(KIND, builds)


def find_bundle(cell: Cell, point: Point, precision: Precision | None = None, store: BuildStore | None = None) -> Path:
    """The folder of a point's bundle. Raises BenchhouseError if it is not in the store."""
    key = bundle_key(cell, point, precision)
    return (store or BuildStore()).require(key, f"{cell.workload.model_id} at {point.label}")[0]


def graph_operation(
    bundle: Bundle, runner: GraphRunner, workload: Workload, point: Point, processing: Processing | None = None
) -> GraphOperation:
    """The call at a point on a loaded bundle, with its inputs made and placed.

    `processing` makes the inputs with the model's tokenizer. Open it once per session with `open_processing`, which
    makes its loading part of the load. Raises UsageError for a point that the model cannot run."""
    from benchmarking.graphs.operations import operation_of

    processing = processing or open_processing(workload, lambda name: nullcontext())
    prepared = processing.checked_inputs(workload, point)
    return operation_of(bundle, runner, workload, point, prepared.arrays, prepared.readings)


@dataclass(frozen=True, slots=True, kw_only=True)
class PointGraphs:
    """The bundle of a point, and the sizes of its free dimensions there."""

    folder: Path
    bundle: Bundle
    sizes: Mapping[str, int]

    @classmethod
    def find(cls, cell: Cell, point: Point, store: BuildStore | None = None) -> PointGraphs:
        """Raises BenchhouseError if the bundle is missing, or for a dimension that no input has."""
        folder = find_bundle(cell, point, store=store)
        bundle = read_bundle(folder)
        return cls(folder=folder, bundle=bundle, sizes=sizes_at(cell, point, bundle))


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedShapes:
    """The builds of a device's compiler, each of one bundle at one shape."""

    kind: str
    cell: Cell
    depends_on: Mapping[str, Json]
    """The device and versions for which the graphs are compiled."""

    def key(self, point: Point, sizes: Mapping[str, int]) -> BuildKey:
        """The key of the graphs compiled at these sizes."""
        parts: dict[str, Json] = {
            "model_id": self.cell.workload.model_id,
            "bundle": bundle_key(self.cell, point).digest,
            "precision": self.cell.precision,
            "dimensions": dict(sizes),
            **self.depends_on,
        }
        return BuildKey(kind=self.kind, parts=parts)

    def find(self, point: Point, sizes: Mapping[str, int]) -> tuple[Path, Build]:
        """The folder and record of a build. Raises BenchhouseError if it is not in the store."""
        return BuildStore().require(self.key(point, sizes), f"{self.cell.workload.model_id} at {point.label}")

    def ensure(
        self,
        points: Sequence[Point],
        store: BuildStore,
        rebuild: Rebuild,
        compile_into: Callable[[PointGraphs, Path], Mapping[str, Json]],
    ) -> Mapping[str, Json]:
        """Make the bundles of these points, and compile each into the folder of its build, if missing in the store.

        Returns the facts of the bundles, with the compiled builds under the kind's name."""
        facts = ensure_bundle(self.cell, points, store, rebuild)
        builds: list[tuple[Build, bool]] = []
        for point in points:
            graphs = PointGraphs.find(self.cell, point, store)
            builds.append(store.get(self.key(point, graphs.sizes), partial(compile_into, graphs), rebuild))
        compiled: list[Json] = [
            {**build.facts, "digest": build.digest, "build_s": build.build_s, "is_new": is_new}
            for build, is_new in builds
        ]
        return {**facts, self.kind: compiled, f"{self.kind}_build_s": sum(build.build_s for build, _ in builds)}


def sizes_at(cell: Cell, point: Point, bundle: Bundle) -> dict[str, int]:
    """The sizes of a bundle's free dimensions at a point, from the family's inputs."""
    return sizes_of(bundle, plugin_of(cell.workload).inputs(cell.workload, point, cell.workload.seed))


def example_inputs(cell: Cell, point: Point, bundle: Bundle, graph: Graph) -> list[str]:
    """The lines of Python of a dictionary `inputs` with ones in the shapes of the point, to be replaced by real inputs.
    Texts are measured without padding, so a graph may have no input for its mask."""
    sizes = sizes_at(cell, point, bundle)
    rows = []
    for tensor in graph.inputs:
        shape = tuple(sizes.get(str(size), size) for size in tensor.shape)
        rows.append(f"    {tensor.name!r}: np.ones({shape!r}, np.{tensor.dtype}),")
    names = {tensor.name for tensor in graph.inputs}
    has_no_mask = "input_ids" in names and "attention_mask" not in names
    unpadded = " and without padding: the graph takes no attention_mask" if has_no_mask else ""
    return [f"inputs = {{  # yours, in these shapes{unpadded}", *rows, "}"]


def sizes_of(bundle: Bundle, arrays: Mapping[str, np.ndarray]) -> dict[str, int]:
    """The sizes of the free dimensions of all graphs with these inputs. Raises BenchhouseError for a dimension that no
    input has."""
    sizes: dict[str, int] = {}
    for graph in bundle.graphs.values():
        for tensor in graph.inputs:
            source = graph.feeds.get(tensor.name, "")
            array = arrays.get(source.removeprefix(INPUTS)) if source.startswith(INPUTS) else None
            if array is not None:
                pairs = zip(tensor.shape, array.shape, strict=True)
                sizes |= {name: size for name, size in pairs if isinstance(name, str)}
        free = {size for tensor in graph.inputs for size in tensor.shape if isinstance(size, str)}
        if unknown := sorted(free - set(sizes)):
            raise BenchhouseError(f"no input of the model has dimension {', '.join(unknown)}")
    return sizes


def _ensure(cell: Cell, key: BuildKey, point: Point, store: BuildStore, rebuild: Rebuild) -> tuple[Build, bool]:
    """The build of a key, and whether it was made now. A quantized bundle is converted from the float32 bundle, which
    is kept too."""
    from benchmarking.graphs.export.exporter import convert_bundle, export_bundle

    precision = next(name for name in PRECISIONS if name == key.parts["precision"])
    opset = int(str(key.parts["opset"]))

    def export(folder: Path) -> Mapping[str, Json]:
        return export_bundle(cell.workload, point, folder, precision=precision, opset=opset)

    def quantize(folder: Path) -> Mapping[str, Json]:
        source = bundle_key(cell, point, "float32", opset)
        _ensure(cell, source, point, store, "if_needed" if rebuild == "always" else rebuild)
        return convert_bundle(store.folder(source), precision, folder)

    workload = cell.workload
    stored = export_facts(workload)["precision"] if is_export(workload) else workload.config.get(PRECISION)
    is_quantized = workload.source == "file" and stored == precision
    return store.get(key, quantize if precision in QUANTIZED and not is_quantized else export, rebuild)


def _recipe(workload: Workload) -> Recipe:
    recipe = recipe_of(workload)
    if isinstance(recipe, str):
        raise UnsupportedError(f"{workload.model_id}: {recipe}")
    return recipe


Format = Literal["onnx", "openvino"]
FORMATS: tuple[Format, ...] = ("onnx", "openvino")
FOLDER_PRECISIONS: Mapping[Format, tuple[Precision, ...]] = {
    "onnx": ("float32", "float16", "int8", "int4"),
    "openvino": ("float32", "float16"),
}
"""Precisions of the files by format. OpenVINO makes lower ones when it loads a model."""

MAX_INSIDE_BYTES = 2_000_000_000
"""Largest model in a single file; protocol buffers end at 2 GiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    cell: Cell
    point: Point
    format: Format
    folder: Path
    opset: int = DEFAULT_OPSET


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedExport:
    files: Mapping[str, int]
    """Bytes by file name, the manifest last."""
    agreement: Mapping[str, Json]
    """Differences between the graphs in these files and the eager float32 model (`export.agreement.compare_at`)."""


def check_request(export: Export) -> None:
    """Raise UsageError for a precision that the format does not support, or for a folder that is not empty."""
    supported = FOLDER_PRECISIONS[export.format]
    if export.cell.precision not in supported:
        raise UsageError(f"--precision {export.cell.precision}: {export.format} files support {', '.join(supported)}")
    if export.folder.exists() and (not export.folder.is_dir() or any(export.folder.iterdir())):
        raise UsageError(f"--output-dir {export.folder} is not an empty folder: choose another one, or empty it")


def check_single_file(export: Export, file: Path) -> None:
    """Raise UsageError for a model of several graphs, which no single file holds."""
    if _recipe(export.cell.workload).plan not in ONE_GRAPH:
        raise UsageError(
            f"{file.name}: {export.cell.workload.model_id} has several graphs: give a folder with --output-dir"
        )


def export_to_folder(export: Export, say: Callable[[str], None]) -> FinishedExport:
    """Export (or take the export from the build cache), write the files, and compare them with the float32 torch model,
    at the points of every export and at the requested one. With the model's configuration and tokenizer, and the model
    named in the manifest, the folder can be measured by itself.

    Raises BenchhouseError if the model cannot be exported, the graphs do not agree or the folder cannot be written."""
    from benchmarking.graphs.export.agreement import (
        PlainRunner,
        checked_points,
        compare_at,
        onnx_evaluator,
        openvino_evaluator,
    )
    from benchmarking.graphs.export.onnx_files import add_metadata
    from benchmarking.runtimes.support.torch.model_loading import load_model

    check_request(export)
    store, cell, workload, point = BuildStore(), export.cell, export.cell.workload, export.point
    precision: Precision = "float32" if export.format == "openvino" else cell.precision
    say(f"exporting {workload.model_id} ({workload.task}) to {export.format}")
    ensure_bundle(cell, (point,), store, "if_needed", precision, export.opset)
    source = store.folder(bundle_key(cell, point, precision, export.opset))
    bundle = read_bundle(source)
    with _atomic_folder(export.folder) as folder:
        if export.format == "openvino":
            import openvino

            graphs = {}
            for name, graph in bundle.graphs.items():
                target = folder / f"{name}.xml"
                try:
                    model = openvino.convert_model(str(source / graph.file))
                except RuntimeError as error:  # OpenVINO raises it for every failure
                    raise BenchhouseError(f"OpenVINO cannot convert the graph {name!r}: {first_line(error)}") from error
                model.set_rt_info(origin_text(workload), ["framework", ORIGIN])
                openvino.save_model(model, str(target), compress_to_fp16=cell.precision == "float16")
                graphs[name] = replace(graph, file=target.name)
            bundle = replace(bundle, graphs=graphs)
        else:
            for path in source.iterdir():
                if path.name not in (RECORD, MANIFEST):
                    shutil.copyfile(path, folder / path.name)
            for graph in bundle.graphs.values():
                add_metadata(folder / graph.file, ORIGIN, origin_text(workload))
        say("comparing the files with the torch model")
        recipe = _recipe(workload)
        points = {each.label: each for each in (*checked_points(workload, point, recipe), point)}
        torch_model, _ = load_model(workload, "float32", plugin_of(workload).default_attention(workload.config))
        runner = PlainRunner(bundle, folder, openvino_evaluator if export.format == "openvino" else onnx_evaluator)
        agreement = compare_at(tuple(points.values()), torch_model, workload, bundle, runner, cell.precision)
        (folder / CONFIG_NAME).write_text(json.dumps(workload.config, indent=1), encoding="utf-8")
        for name in HUB_FILES if workload.path is not None else ():
            if (file := Path(workload.path or "") / name).is_file():
                shutil.copyfile(file, folder / name)
        exported = Exported(
            model_id=workload.model_id,
            task=workload.task,
            format=export.format,
            precision=cell.precision,
            weights=workload.weights,
            seed=workload.seed,
            revision=workload.revision,
            fixed_axes=recipe.signature(point),
            agreement=agreement,
            files={path.name: file_of(path) for path in sorted(folder.iterdir())},
        )
        write_bundle(folder, replace(bundle, exported=exported))
    paths = sorted(export.folder.iterdir(), key=lambda path: (path.name == MANIFEST, path.name))
    return FinishedExport(files={path.name: path.stat().st_size for path in paths}, agreement=agreement)


def pack(folder: Path, file: Path) -> dict[str, int]:
    """Write the only graph of an exported folder to a single file, with its weights inside, or in `<file>.data` if
    they are too large for that. Returns bytes by file name. Raises StorageError."""
    (graph,) = read_bundle(folder).graphs.values()
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
