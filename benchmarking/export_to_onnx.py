"""Exports a model to ONNX or OpenVINO files, checks them, and says how closely they agree with the torch model.

The folder gets one file a graph with its weights beside it, and `bundle.json`, which says what the graphs are fed with
and how they belong together: an encoder and a decoder, a prompt and the steps after it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

if __package__ in (None, ""):  # run as a file: its folder is on the path, the one above is wanted
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarking.core import plugins
from benchmarking.core.command_line import Parser, note, positive_int, run_command
from benchmarking.core.errors import EXIT_OK, UnsupportedError, UsageError
from benchmarking.core.plugins import is_installed
from benchmarking.core.records import Cell, Point, Workload
from benchmarking.core.tables import Table, table_text
from benchmarking.core.terminal import Page, stdout_page
from benchmarking.core.text import size_text
from benchmarking.graphs.delivery import FORMATS, Delivered, Export, check_request, deliver, manifest_last
from benchmarking.graphs.session import DEFAULT_OPSET, missing, why_not
from benchmarking.sweep.plan import flags
from benchmarking.workloads.support.families import plugin_of
from benchmarking.workloads.support.resolve import WEIGHTS_CHOICES, resolve

NAME = "export_to_onnx"
DEFAULT_LENGTH = 16
"""Tokens at which text models are checked where no length is asked for: any serves, since the graphs take all."""
CHECKED_TOKENS = 4


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command(NAME, _run, argv)


def _run(argv: Sequence[str]) -> int:
    arguments = _parser().parse_args(argv)
    flags.use_cache_dir(arguments.cache_dir)
    export = _export(arguments)
    check_request(export)
    delivered = deliver(export, _silence if arguments.quiet else note)
    print(_json(export, delivered) if arguments.json else _text(delivered, stdout_page()))
    return EXIT_OK


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog=NAME, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL", help="hub name, folder, or a name that --list-models shows")
    parser.add_argument("--output-dir", required=True, metavar="DIR", help="an empty folder, or one to be made")
    parser.add_argument("--format", choices=FORMATS, default="onnx", help="default %(default)s")
    parser.add_argument("--opset", type=positive_int, metavar="N", help=f"ONNX's operators (default {DEFAULT_OPSET})")
    parser.add_argument(
        "--max-length", type=positive_int, metavar="N", help="tokens; the files are checked at this length too"
    )
    parser.add_argument("--precision", default="float32", help="onnx: float32, float16, int8, int4; default float32")
    parser.add_argument("--task", help="default what the model was made for")
    parser.add_argument(
        "--weights",
        choices=WEIGHTS_CHOICES,
        default="auto",
        help="auto takes pretrained weights where they can be had, else seeded random ones, and says so",
    )
    flags.add_cache_dir(parser.add_argument_group("builds"))
    parser.add_argument("--json", action="store_true", help="files and agreement on stdout as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    return parser


def _export(arguments: argparse.Namespace) -> Export:
    """What is asked, looked up and found possible."""
    if (absent := missing()) is not None:
        raise UnsupportedError(absent)
    if arguments.format == "openvino" and not is_installed("openvino"):
        raise UnsupportedError("--format openvino needs openvino: pip install openvino")
    if arguments.format == "openvino" and arguments.opset is not None:
        raise UsageError("--opset: ONNX files have one, OpenVINO's have none: leave it out")
    workload = resolve(arguments.model, task=arguments.task, weights=arguments.weights)
    if workload.weights_reason is not None and not arguments.quiet:
        note(f"{workload.model_id}: random weights: {workload.weights_reason}")
    if (reason := why_not(workload)) is not None:
        raise UnsupportedError(f"{workload.model_id} ({workload.task}): {reason}")
    (device,) = plugins.load("benchmarking.devices", "cpu").probe()
    cell = Cell(
        workload=workload,
        device=device,
        requested_device="cpu",
        runtime={"onnx": "onnxruntime", "openvino": "openvino"}[arguments.format],
        precision=arguments.precision,
    )
    return Export(
        cell=cell,
        point=_point(workload, arguments.max_length),
        format=arguments.format,
        folder=Path(arguments.output_dir),
        opset=arguments.opset or DEFAULT_OPSET,
    )


def _point(workload: Workload, max_length: int | None) -> Point:
    """One sequence at the length that was asked for and the family's own values of its other axes."""
    family = plugin_of(workload)
    axes = {name: values[0] for name, values in family.axes(workload).items()}
    default = axes.pop("sequence_length", None)
    if max_length is not None and default is None:
        raise UsageError(f"--max-length {max_length}: {workload.model_id} takes no tokens: leave it out")
    short = default if default is None or workload.family == "multimodal" else min(int(default), DEFAULT_LENGTH)
    length = short if max_length is None else max_length
    point = Point(
        batch_size=1,
        sequence_length=None if length is None else int(length),
        new_tokens=CHECKED_TOKENS if axes.pop("new_tokens", None) is not None else None,
        axes={name: 2 if name == "steps" else _whole(value) for name, value in axes.items()},
    )
    if (problem := family.check(workload, point)) is not None:
        raise UsageError(problem)
    return point


def _whole(value: float) -> int | float:
    return int(value) if value == int(value) else value


def _text(delivered: Delivered, page: Page) -> str:
    """A line a file with its size, then one with the agreement."""
    names = sorted(delivered.files, key=manifest_last)
    rows = tuple((name, size_text(delivered.files[name])) for name in names)
    files = table_text(Table(headings=("file", "size"), rows=rows, numbers=(1,)), page)
    agreement = delivered.agreement
    points = agreement["points"]
    assert isinstance(points, list)
    tokens = agreement["equal_token_share"]
    share = "" if tokens is None else f", {tokens:.0%} of tokens equal"
    return "\n".join(
        [files, f"agrees with torch: relative L2 {agreement['relative_l2']:.2g}{share} (at {'; '.join(points)})"]
    )


def _json(export: Export, delivered: Delivered) -> str:
    return json.dumps(
        {
            "model_id": export.cell.workload.model_id,
            "task": export.cell.workload.task,
            "format": export.format,
            "precision": export.cell.precision,
            "folder": str(export.folder),
            "files": dict(delivered.files),
            "agreement": dict(delivered.agreement),
        },
        indent=1,
    )


def _silence(message: str) -> None:
    """For --quiet."""


if __name__ == "__main__":
    sys.exit(main())
