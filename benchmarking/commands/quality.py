"""Measures the quality of series that are stored already: how far a runtime and precision are from eager float32.

Each setup (model, device, runtime, precision, threads, options) of the selection is loaded as its newest run was, and
only its quality is measured, as with benchhouse run --quality. It is stored with the newest run of each of its series,
so compare, check, recommend, charts and pages see it beside the speed. Setups that have a quality are left out.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from benchmarking.core.command_line import Parser, command, database_flags, note
from benchmarking.core.errors import (
    EXIT_FAILED,
    EXIT_NOT_ENOUGH_DATA,
    EXIT_OK,
    StorageError,
    UnsupportedError,
    UsageError,
)
from benchmarking.core.plugins import check_measuring
from benchmarking.core.provenance import MeasuredRun, utc_now, uuid7
from benchmarking.core.quality import Quality, QualitySettings, quality_lines
from benchmarking.core.records import canonical_hash, to_json
from benchmarking.core.settings import add_flags, add_settings
from benchmarking.core.shared_settings import SHARED
from benchmarking.core.storage_paths import database_exists
from benchmarking.core.terminal import stdout_page
from benchmarking.core.text import grouped, told_apart, why_text, wrapped
from benchmarking.sweep.plan import flags
from benchmarking.sweep.plan.flags import repeated_request
from benchmarking.sweep.plan.measuring_settings import MEASURING, QUALITY, measured_by
from benchmarking.sweep.plan.plan import CellPlan
from benchmarking.sweep.plan.request import plan_cell
from benchmarking.sweep.run import command_session
from benchmarking.sweep.run.command_session import store_quality, stored_runs
from benchmarking.sweep.run.quality_pass import quality_point, why_not_quality

NAME = "benchhouse quality"
EXAMPLES = """\
examples:
  benchhouse quality ./small-llama
  benchhouse quality model=bert-base-uncased,runtime=onnxruntime --again
  benchhouse quality ./small-llama --quality-text my_domain.txt
"""
EXIT_CODES = """
exit codes: 0 measured and stored, or nothing was left to do; 1 something failed, or no setup can be measured here;
2 usage; 3 no series is stored
"""
NOT_SETUP = ("run_id", "settings", "tags", "origin_format", "points", "has_skipped_points", "has_quality")
"""Fields in which runs of one setup may differ."""
HAS_QUALITY = "it has a quality: --again measures it again"
"""The only reason to leave out a setup that is no failure."""


@command(NAME)
def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    arguments = _parser().parse_args(argv)
    check_measuring()
    flags.use_cache_dir(arguments.cache_dir, writes=not arguments.dry_run)
    values = {name: getattr(arguments, name, None) for name in QUALITY}
    quality = measured_by({**values, "quality": True}).quality
    assert quality is not None
    words = ["benchhouse", "run", "MODEL", "--save", *database_flags(arguments.db_path)]
    first = f"store the first ones with {shlex.join(words)}"
    if not database_exists(arguments.db_path):
        note(f"{NAME}: not enough data: there is no warehouse at {arguments.db_path}: {first}")
        return EXIT_NOT_ENOUGH_DATA
    typed = arguments.selection
    stored = stored_runs(typed if any(mark in typed for mark in "=:") else f"model={typed}", arguments.db_path)
    if not stored:
        note(f"{NAME}: {arguments.selection!r} selects no result of {arguments.db_path}: {first}")
        return EXIT_NOT_ENOUGH_DATA
    names = _names(stored)
    planned, left_out = _plans(stored, names, quality, timeout_s=arguments.timeout, again=arguments.again)
    for name, why in left_out.items():
        note(f"{NAME}: left out: {name}: {why}")
    if arguments.dry_run:
        setups = [names[runs[-1].run_id] for _, runs in planned]
        shown = [{"setup": setup} for setup in setups]
        print(json.dumps(shown, indent=1) if arguments.json else "\n".join(setups) or "nothing to measure")
        return EXIT_OK
    if planned:
        command_session.database(arguments.db_path, arguments.lock_timeout, quiet=True)  # refused before measuring
    documents, codes = list[dict[str, object]](), [EXIT_OK]

    def done(plan: CellPlan, found: Quality) -> None:
        runs = next(runs for one, runs in planned if one.run_id == plan.run_id)
        name = names[runs[-1].run_id]
        found = replace(found, how={**found.how, "measured_at": utc_now()})
        ids = [run.run_id for run in runs if found.values or not run.has_quality]  # a failure replaces no quality
        if len(ids) < len(runs):
            note(f"{NAME}: {name}: not measured, so the quality that it has stays")
        try:
            if ids:
                store_quality(dict.fromkeys(ids, found), arguments.db_path, arguments.lock_timeout)
        except StorageError as error:
            note(f"{NAME}: not stored: {error}")
            codes.append(EXIT_FAILED)
        codes.append(EXIT_OK if found.values else EXIT_FAILED)
        documents.append({"setup": name, "runs": ids, "quality": to_json(found)})
        if not arguments.json:
            lines = [line.replace("quality", f"quality of {name}", 1) for line in quality_lines(found)]
            print(wrapped("\n".join(lines), stdout_page().text_width), flush=True)

    command_session.measure_qualities(
        [plan for plan, _ in planned], done, quiet=arguments.quiet, device_wait_s=arguments.lock_timeout
    )
    if arguments.json:
        print(json.dumps(documents, indent=1))
    if not planned and set(left_out.values()) != {HAS_QUALITY}:
        return EXIT_FAILED
    return max(codes)


def _parser() -> Parser:
    parser = Parser(
        prog=NAME, usage="%(prog)s MODEL|SELECTION [flags]", description=__doc__, epilog=EXAMPLES + EXIT_CODES
    )
    what = parser.add_argument_group("series")
    what.add_argument(
        "selection", metavar="SELECTION", help="a model, or FIELD=VALUE,... as benchhouse compare takes it"
    )
    what.add_argument("--again", action="store_true", help="measure also those that have a quality, and replace it")
    add_settings(parser.add_argument_group("quality"), MEASURING, *QUALITY[1:])
    add_settings(parser.add_argument_group("measurement"), MEASURING, "timeout", "cache_dir")
    output = parser.add_argument_group("output")
    add_flags(output, SHARED["db_path"], SHARED["lock_timeout"].here(default=None))
    flags.add_output_format(output)
    add_settings(output, SHARED, "dry_run")
    return parser


def _plans(
    stored: Sequence[MeasuredRun], names: Mapping[str, str], quality: QualitySettings, *, timeout_s: float, again: bool
) -> tuple[list[tuple[CellPlan, list[MeasuredRun]]], dict[str, str]]:
    """What to measure, each with the runs that it is stored with, and what is left out and why."""
    facts = [{name: value for name, value in to_json(run).items() if name not in NOT_SETUP} for run in stored]
    by_setup = grouped(zip(map(canonical_hash, facts), stored, strict=True))
    planned, left_out, session_id = list[tuple[CellPlan, list[MeasuredRun]]](), dict[str, str](), uuid7()
    for runs in by_setup.values():
        newest_at = {point.label: run for run in runs for point in run.points}  # they are oldest first
        newest_ids = {run.run_id for run in newest_at.values()}
        newest = [run for run in runs if run.run_id in newest_ids]
        if not again and all(run.has_quality for run in newest):
            left_out[names[runs[-1].run_id]] = HAS_QUALITY
            continue
        try:
            request = replace(repeated_request(runs[-1], runs[-1].points[:1]), timeout_s=timeout_s)
            plan = plan_cell(request, session_id)
            workload = plan.cell.workload
            if dict(plan.hardware.hashed_keys) != dict(runs[-1].hashed_keys):
                raise UnsupportedError("it was measured on another machine or device")
            if (workload.revision, workload.config_hash) != (runs[-1].model_revision, runs[-1].config_hash):
                raise UnsupportedError("the model has other weights or another configuration now")
            if (why_not := why_not_quality(workload)) is not None:
                raise UnsupportedError(why_text(why_not))
            points = (quality_point(workload, quality),)
            plan = replace(plan, points=points, skipped={}, settings=replace(plan.settings, quality=quality))
            planned.append((plan, newest))
        except (UnsupportedError, UsageError, StorageError) as error:
            left_out[names[runs[-1].run_id]] = str(error)
    return planned, left_out


def _names(stored: Sequence[MeasuredRun]) -> dict[str, str]:
    """Run id -> the name of its setup, with the threads and options in which others of the same model, device, runtime
    and precision differ."""
    settings = [{"threads": run.num_threads, "processors": run.cpu_list, **run.runtime_mode} for run in stored]
    names = told_apart([f"{run.model_id} {run.device} {run.runtime} {run.precision}" for run in stored], settings)
    return dict(zip((run.run_id for run in stored), names, strict=True))
