"""Flags that several commands have, in one place: the same flag means the same everywhere."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from benchmarking.cli_support import (
    default_database,
    non_negative_int,
    non_negative_seconds,
    positive_int,
    positive_ints,
    positive_numbers,
    positive_seconds,
    tag,
)
from benchmarking.measure.settings import PROFILES
from benchmarking.sweep.request import DEFAULT_BATCH_SIZES, DEFAULT_TIMEOUT_S

DEFAULT_OUTPUT_DIR = "benchmark_results"
DEFAULT_PROFILE = "standard"
AXIS_FLAGS = {
    "image_size": "image_sizes",
    "audio_seconds": "audio_seconds",
    "steps": "steps",
    "documents": "documents",
    "top_k": "top_k",
}
"""Axes of the grid beside batch, sequence and new tokens, and the flag of each."""


def add_model_options(group: argparse._ArgumentGroup) -> None:
    """How a model is loaded and run, beside device, runtime and precision."""
    group.add_argument(
        "--weights",
        choices=("auto", "pretrained", "random"),
        default="auto",
        help="auto takes pretrained weights where they can be had, else seeded random ones, and says so",
    )
    group.add_argument("--attention", help="attention implementation (eager, sdpa, ...); without it the runtime's own")
    group.add_argument("--cache", help="key-value cache of models that generate: dynamic (without it) or static")
    group.add_argument("--compile-mode", metavar="MODE", help="compiled: default, reduce-overhead or max-autotune")
    group.add_argument("--dynamic", help="compiled: shapes in the code: auto (without it), true or false")
    group.add_argument("--quantization", metavar="METHOD", help="int8 and int4: dynamic or weight-only")
    group.add_argument("--io-mode", help="onnxruntime: inputs and outputs on the device or on the host")
    group.add_argument("--hint", help="openvino: latency (without it) or throughput, with as many requests as it likes")
    group.add_argument("--kernel-repo", metavar="DIR", help="kernelized: a folder with a kernel repository")
    group.add_argument("--performance-mode", metavar="MODE", help="qnn: burst, balanced, high_performance, ...")
    group.add_argument("--num-threads", type=positive_int, metavar="N", help="intra-op threads")


def add_grid(parser: argparse.ArgumentParser) -> None:
    """The axes of the grid."""
    grid = parser.add_argument_group("grid")
    _add_list(grid, "--batch-sizes", DEFAULT_BATCH_SIZES, "sequences, images, ... per call")
    _add_list(grid, "--sequence-lengths", None, "tokens per sequence; default 128,512 for text")
    _add_list(grid, "--new-tokens", None, "tokens to generate per sequence, where the task generates; default 16")
    _add_list(grid, "--image-sizes", None, "pixels a side, where images go in or come out; default the model's own")
    grid.add_argument("--audio-seconds", type=positive_numbers, metavar="S,S", help="seconds of speech per sequence")
    _add_list(grid, "--steps", None, "denoising steps per call of a diffusion model")
    _add_list(grid, "--documents", None, "documents of the corpus of retrieval-augmented generation")
    _add_list(grid, "--top-k", None, "documents retrieved per question")


def add_measuring(parser: argparse.ArgumentParser) -> None:
    """How long and how often is measured, and what becomes of what cannot be."""
    how = parser.add_argument_group("how it is measured")
    how.add_argument("--profile", choices=tuple(PROFILES), default=DEFAULT_PROFILE, help="how exact, and so how long")
    how.add_argument("--iterations", type=positive_int, metavar="N", help="exactly N timed calls per point and launch")
    how.add_argument("--warmup-iterations", type=non_negative_int, metavar="N", help="exactly N calls before them")
    how.add_argument("--launches", type=positive_int, metavar="N", help="fresh processes")
    how.add_argument(
        "--timeout",
        type=positive_seconds,
        default=DEFAULT_TIMEOUT_S,
        metavar="S",
        help=f"seconds for loading, and for each point of a launch (default {DEFAULT_TIMEOUT_S:g})",
    )
    how.add_argument("--skip-unsupported", action="store_true", help="store what cannot be as skipped, with its reason")


def add_keeping(group: argparse._ArgumentGroup) -> None:
    """Where run files and the database are, and what is written to them beside the numbers."""
    group.add_argument(
        "--output-dir", default=DEFAULT_OUTPUT_DIR, metavar="DIR", help="run files (default %(default)s)"
    )
    group.add_argument(
        "--db-path",
        default=default_database(),
        metavar="FILE",
        help="DuckDB file (default $BENCHMARK_DB_PATH or benchmark_db.duckdb)",
    )
    group.add_argument(
        "--lock-timeout",
        type=non_negative_seconds,
        default=30.0,
        metavar="S",
        help="seconds to wait for a database in use (default %(default)g)",
    )
    group.add_argument(
        "--tag", type=tag, action="append", default=[], metavar="K=V", help="label of the run; repeatable"
    )
    group.add_argument("--description", help="a sentence about the run")


def add_showing(group: argparse._ArgumentGroup) -> None:
    """What is printed."""
    group.add_argument("--dry-run", action="store_true", help="print the plan and measure nothing")
    group.add_argument("--json", action="store_true", help="results on stdout as JSON")
    group.add_argument("--quiet", action="store_true", help="no progress on stderr")


def axes(arguments: argparse.Namespace) -> dict[str, tuple[float, ...]]:
    """The values that were given for further axes, by axis."""
    given = {axis: getattr(arguments, flag) for axis, flag in AXIS_FLAGS.items()}
    return {axis: values for axis, values in given.items() if values is not None}


def _add_list(group: argparse._ArgumentGroup, flag: str, default: tuple[int, ...] | None, text: str) -> None:
    shown = f"; default {_text(default)}" if default else ""
    group.add_argument(flag, type=positive_ints, default=default, metavar="N,N", help=text + shown)


def _text(values: Sequence[int]) -> str:
    return ",".join(map(str, values))
