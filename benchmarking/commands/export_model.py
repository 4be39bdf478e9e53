"""Exports a model to ONNX or OpenVINO files, runs them, and reports the error relative to the PyTorch model.

The output folder contains one file per graph with a separate weights file, and bundle.json, which describes the inputs
of the graphs and how they are called together (encoder and decoder, or prefill and decode steps). It also contains the
model's configuration and tokenizer, so other commands accept it: --model-id FOLDER --runtime onnxruntime. With --output
FILE.onnx a model of one graph becomes that file alone; --output-name NAME.onnx puts it in ./models, if there is such a
folder.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from benchmarking.builds.store import CACHE_VARIABLE
from benchmarking.core.child_process import environment_variable
from benchmarking.core.command_line import Parser, command, note, notes
from benchmarking.core.errors import EXIT_OK, NotInstalledError, UnsupportedError, UsageError
from benchmarking.core.plugins import check_measuring, export_runtimes, how_to_install, is_installed, processor
from benchmarking.core.records import Cell, Point
from benchmarking.core.settings import DIR, WHOLE, WORD, Setting, add_flags, one_of
from benchmarking.core.shared_settings import COMMON, SHARED
from benchmarking.core.tables import Table, table_text
from benchmarking.core.temporary import temporary_folder
from benchmarking.core.terminal import Page, stdout_page
from benchmarking.core.text import size_text
from benchmarking.graphs.exported_model import (
    DEFAULT_OPSET,
    FORMATS,
    Export,
    FinishedExport,
    check_request,
    check_single_file,
    export_to_folder,
    missing,
    pack,
    why_not,
)
from benchmarking.graphs.exported_model import FOLDER_PRECISIONS as EXPORTED_PRECISIONS
from benchmarking.sweep.plan import flags
from benchmarking.workloads.support.families import plugin_of
from benchmarking.workloads.support.graph_file import format_of
from benchmarking.workloads.support.hub import HUB_CACHE
from benchmarking.workloads.support.resolve import resolve

NAME = "export_to_onnx"
MODELS = "models"
ENDING = ".onnx"
EXAMPLES = """\
examples:
  benchhouse export-model bert-base-uncased --output-name b.onnx --opset 14
  benchhouse export-model gpt2 --output-dir gpt2-int8 --precision int8
  benchhouse export-model gpt2 --output-dir gpt2-ir --format openvino
"""
OLDEST_OPSET = 7
"""The oldest version that torch's TorchScript exporter writes."""
DEFAULT_LENGTH = 16
"""Default sequence length of the check. The graphs accept every length."""
CHECKED_TOKENS = 4


@command(NAME)
def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    parser = Parser(
        prog=NAME,
        usage="%(prog)s MODEL [--output FILE | --output-dir DIR] [flags]",
        description=__doc__,
        epilog=EXAMPLES,
    )
    flags.add_named_model(parser.add_argument_group("model"))
    files = parser.add_argument_group("files")
    files.add_argument(
        "--output-dir",
        metavar="DIR",
        help="new or empty folder for the files; with --output-name its parent (default: a folder named after model, "
        "precision and format)",
    )
    name, opset = "name of the folder, or NAME.onnx for a single file", "ONNX opset version"
    precisions = "; ".join(f"{name}: {', '.join(known)}" for name, known in EXPORTED_PRECISIONS.items())
    length = "sequence length in tokens of the check"
    other_flags = ("--opset-version",)  # of ML Systems Bench's script of this name
    add_flags(
        files,
        COMMON["output"].here(help="new single file, FILE.onnx, instead of a folder", default_words="a folder"),
        COMMON["format"].here(kind=one_of(FORMATS, "format"), help="file format", default="onnx"),
        Setting("output_name", WORD, name, default_words="see --output-dir"),
        Setting("precision", WORD, precisions, default="float32", metavar="P"),
        Setting("opset", WHOLE, opset, default_words=str(DEFAULT_OPSET), other_flags=other_flags),
        Setting("max_length", WHOLE, length, default_words=str(DEFAULT_LENGTH)),
    )
    downloads, cached = f"${HUB_CACHE}, else Hugging Face's cache", f"${CACHE_VARIABLE}, else the user's cache folder"
    add_flags(
        parser.add_argument_group("caches"),
        Setting("cache_dir", DIR, "folder that models are downloaded to", default_words=downloads),
        Setting("build_cache", DIR, "folder of cached exports", default_words=cached, short_flag="-d"),
    )
    output = parser.add_argument_group("output")
    add_flags(output, SHARED["json"].here(help="files and error on stdout as JSON (default: a table)"), SHARED["quiet"])
    arguments = parser.parse_args(argv)
    flags.use_cache_dir(arguments.build_cache)
    file = _file(arguments)
    hub_cache = nullcontext() if arguments.cache_dir is None else environment_variable(HUB_CACHE, arguments.cache_dir)
    with temporary_folder(NAME) as temporary, hub_cache:
        export = _export(arguments)
        if file is not None:
            export = replace(export, folder=temporary / MODELS)
            check_single_file(export, file)
        check_request(export)
        if arguments.output_dir is None and not arguments.quiet:
            note(f"file: {file}" if file is not None else f"folder: {export.folder}")
        finished = export_to_folder(export, notes(quiet=arguments.quiet))
        if file is not None:
            finished = replace(finished, files=pack(export.folder, file))
            export = replace(export, folder=file.parent)
    document = {
        "model_id": export.cell.workload.model_id,
        "task": export.cell.workload.task,
        "format": export.format,
        "precision": export.cell.precision,
        "folder": str(export.folder),
        "files": dict(finished.files),
        "agreement": dict(finished.agreement),
    }
    print(json.dumps(document, indent=1) if arguments.json else _text(finished, stdout_page()))
    return EXIT_OK


def _file(arguments: argparse.Namespace) -> Path | None:
    """The file of --output, or of --output-name NAME.onnx; None for a folder. Raises UsageError if it exists."""
    name: str | None = arguments.output_name
    if arguments.output is not None:
        flag, path = f"--output {arguments.output}", Path(arguments.output)
        if name is not None or arguments.output_dir is not None:
            raise UsageError(f"{flag} is the whole path: remove --output-name and --output-dir")
        if path.suffix != ENDING or path.stem == ENDING:
            raise UsageError(f"{flag}: expected a file FILE{ENDING}; a folder of files is --output-dir")
    elif name is None or not name.endswith(ENDING) or name == ENDING:
        return None
    else:
        flag = f"--output-name {name}"
        _check_name(name)
        path = Path(arguments.output_dir or (MODELS if Path(MODELS).is_dir() else ".")) / name
    if arguments.format != "onnx":
        raise UsageError(f"{flag} is an ONNX file: remove --format {arguments.format}, or give a folder")
    if path.exists():
        raise UsageError(f"{flag}: {path} exists: choose another name, or delete it")
    return path


def _export(arguments: argparse.Namespace) -> Export:
    """The requested export. Raises UsageError and UnsupportedError if it is not possible."""
    check_measuring("exporting a model")
    if (absent := missing()) is not None:
        raise NotInstalledError(absent)
    if arguments.format == "openvino" and not is_installed("openvino"):
        raise NotInstalledError(f"--format openvino needs openvino: {how_to_install()}")
    if arguments.format == "openvino" and arguments.opset is not None:
        raise UsageError("--opset applies to ONNX files only: remove it with --format openvino")
    if arguments.opset is not None:
        from onnx.defs import onnx_opset_version

        newest = onnx_opset_version()
        if not OLDEST_OPSET <= arguments.opset <= newest:
            raise UsageError(f"--opset {arguments.opset}: expected a version from {OLDEST_OPSET} to {newest}")
    workload = resolve(arguments.model_id, task=arguments.task, weights=arguments.weights)
    if workload.weights_reason is not None and not arguments.quiet:
        note(f"{workload.model_id}: random weights: {workload.weights_reason}")
    if workload.source == "file":
        raise UnsupportedError(f"{workload.model_id} is already in {format_of(workload)}: choose a PyTorch model")
    if (reason := why_not(workload)) is not None:
        raise UnsupportedError(f"{workload.model_id} ({workload.task}): {reason}")
    (device,) = processor().probe()
    cell = Cell(
        workload=workload,
        device=device,
        requested_device=device.selector,
        runtime=export_runtimes()[arguments.format],
        precision=arguments.precision,
    )
    # The folder of the files: "bert-base-uncased-onnx", "gpt2-int8-onnx".
    name, parent = arguments.output_name, arguments.output_dir
    if name is None and parent is not None:
        folder = Path(parent)
    else:
        if name is not None:
            _check_name(name)
        model = Path(workload.model_id.rstrip("/")).name
        precision = "" if arguments.precision == "float32" else f"-{arguments.precision}"
        folder = Path(parent or ".") / (name or f"{model}{precision}-{arguments.format}")
    family = plugin_of(workload)
    axes = {name: values[0] for name, values in family.axes(workload).items()}
    default = axes.pop("sequence_length", None)
    if arguments.max_length is not None and default is None:
        raise UsageError(
            f"--max-length {arguments.max_length}: {workload.model_id} has no token inputs: remove the flag"
        )
    short = default if default is None or family.counts_image_tokens else min(int(default), DEFAULT_LENGTH)
    length = short if arguments.max_length is None else arguments.max_length
    point = Point(
        batch_size=1,
        sequence_length=None if length is None else int(length),
        new_tokens=CHECKED_TOKENS if axes.pop("new_tokens", None) is not None else None,
        axes={
            name: 2 if name == "steps" else int(value) if value == int(value) else value for name, value in axes.items()
        },
    )
    if (problem := family.check(workload, point)) is not None:
        raise UsageError(problem)
    return Export(
        cell=cell,
        point=point,
        format=arguments.format,
        folder=folder,
        opset=arguments.opset or DEFAULT_OPSET,
    )


def _check_name(name: str) -> None:
    if Path(name).name != name or name in ("", ".", ".."):
        raise UsageError(
            f"--output-name takes a name, not a path: got {name!r}: set the parent folder with --output-dir"
        )


def _text(finished: FinishedExport, page: Page) -> str:
    """A row per file with its size, then the agreement."""
    rows = tuple((name, size_text(size_bytes)) for name, size_bytes in finished.files.items())
    files = table_text(Table(headings=("file", "size"), rows=rows, numbers=(1,)), page)
    agreement = finished.agreement
    points = agreement["points"]
    assert isinstance(points, list)
    error, tokens = agreement["relative_l2"], agreement["equal_token_share"]
    how = [] if error is None else [f"relative L2 {error:.2g}"]
    how += [] if tokens is None else [f"{tokens:.0%} of tokens equal"]
    return "\n".join([files, f"agrees with torch: {', '.join(how)} (at {'; '.join(points)})"])
