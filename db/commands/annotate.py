"""Stores notes about runs, results, series, machines and alerts: context that no measurement records.

Trend charts and pages show each note at the time of its subject. `label` corrects the labels of imported runs: model,
runtime, precision, hardware. Their old values are kept with the runs.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

if __package__ in (None, ""):  # run as a file: the path has its folder, not the repository
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarking.core.codec import canonical_hash
from benchmarking.core.command_line import command
from benchmarking.core.errors import EXIT_OK, UsageError
from benchmarking.core.tables import Column, table_of, table_text
from benchmarking.core.terminal import stdout_page
from benchmarking.core.text import counted
from db.analysis.selection import UUID
from db.commands.arguments import (
    SELECTION,
    add_database,
    add_labels,
    add_shared,
    command_parser,
    note_lost_alerts,
    open_to_read,
    open_to_write,
    plain_values,
    print_json,
    selection_in,
)
from db.values import unique_prefixes

if TYPE_CHECKING:
    from benchmarking.core.records import Run
    from db.analysis.annotations import Annotation
    from db.run_records import StoredRun

NAME = "benchhouse annotate"
EXAMPLES = """
examples:
  benchhouse annotate add 0199a3f2 "the fan was replaced" --author mira
  benchhouse annotate list
  benchhouse annotate remove 0199a3f4
  benchhouse annotate label format=llmperf --model-id mistral-7b --hardware "NVIDIA L4"
"""


@command(NAME)
def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    parser = command_parser(NAME, __doc__, EXAMPLES)
    commands = parser.add_subparsers(dest="what", required=True, metavar="add|list|remove|label")
    adding = commands.add_parser("add", help="store a note")
    adding.add_argument(
        "target",
        metavar="ID",
        help="id of a run, result, series, machine or alert, or unique prefix; latest: the newest run",
    )
    adding.add_argument("note", metavar="TEXT", help="text of the note, at most 2000 characters")
    adding.add_argument("--author", metavar="NAME", help="author of the note (default: none)")
    listing = commands.add_parser("list", help="show the notes, oldest first")
    removing = commands.add_parser("remove", help="delete a note")
    removing.add_argument("id", metavar="ID", help="id of the note or unique prefix")
    labelling = commands.add_parser("label", help="correct what imported runs are labelled with")
    labelling.add_argument("selection", metavar="SELECTION", help=f"imported runs: {SELECTION}")
    add_labels(labelling)
    for subcommand in (adding, listing, removing, labelling):
        add_shared(subcommand, json="print the result as JSON")
        add_database(subcommand)
    if argv[1:] and (argv[0] == "latest" or UUID.fullmatch(argv[0])):
        target, text = (shlex.quote(word) for word in argv[:2])
        raise UsageError(f"the action comes first: benchhouse annotate add {target} {text}")
    arguments = parser.parse_args(argv)
    return {"add": _add, "list": _list, "remove": _remove, "label": _label}[arguments.what](arguments)


def _add(arguments: argparse.Namespace) -> int:
    from db.analysis.annotations import annotate

    with open_to_write(arguments) as warehouse:
        annotation = annotate(warehouse, arguments.target, arguments.note, arguments.author)
    if arguments.json:
        print_json(plain_values(asdict(annotation)))
    else:
        print(f"{annotation.annotation_id}: about {annotation.target_kind} {annotation.target_id}")
    return EXIT_OK


def _list(arguments: argparse.Namespace) -> int:
    from db.analysis.annotations import list_annotations

    with open_to_read(arguments) as warehouse:
        annotations = list_annotations(warehouse)
    if arguments.json:
        print_json([plain_values(asdict(annotation)) for annotation in annotations])
    else:
        short = unique_prefixes([one.annotation_id for one in annotations])
        shown = [replace(one, annotation_id=short[one.annotation_id]) for one in annotations]
        print(table_text(table_of(COLUMNS, shown, stdout_page()), stdout_page()) if shown else "no notes")
    return EXIT_OK


def _remove(arguments: argparse.Namespace) -> int:
    from db.analysis.annotations import remove_annotation

    with open_to_write(arguments) as warehouse:
        removed = remove_annotation(warehouse, arguments.id)
    if arguments.json:
        print_json({"removed": removed})
    else:
        print(f"{removed}: removed")
    return EXIT_OK


def _label(arguments: argparse.Namespace) -> int:
    """Store the runs that have other labels again with the given ones, in place of the old ones, whose values are kept
    in their origin."""
    from db.importers.support.importing import GivenValues, run_without_secrets
    from db.ingestion import FileRuns
    from db.run_records import stored_runs

    given = GivenValues(
        model_id=arguments.model_id,
        runtime=arguments.runtime,
        precision=arguments.precision,
        device=arguments.device,
        device_name=arguments.hardware,
    )
    if given == GivenValues():
        raise UsageError("no label: give --model-id, --runtime, --precision, --device or --hardware")
    selection = selection_in(arguments, arguments.selection)
    labelled, unchanged, joined = dict[str, None](), dict[str, None](), dict[str, None]()

    def relabelled() -> tuple[list[str], list[FileRuns]]:
        found = warehouse.query(LABELLED.format(condition=selection.condition), selection.values).dicts()
        chosen = [row["run_id"] for row in found if row["is_chosen"]]
        rows = {row["run_id"]: row for row in found}
        if measured := [run_id for run_id in chosen if rows[run_id]["origin_format"] is None]:
            raise UsageError(f"run {measured[0]} was measured, not imported: its labels are what was measured")
        new: dict[str, Run] = {}
        for stored in stored_runs(warehouse, chosen):
            run = run_without_secrets(given.applied_to(stored.run))
            if _labels(run) == _labels(stored.run):
                unchanged[stored.run.run_id] = None
                continue
            _refuse_compacted(stored)
            new[stored.run.run_id] = run
        # A run of the same file that has these labels already, as after a merge, is the same measurement.
        names = {(run.cell.workload.model_id, run.cell.runtime, run.cell.precision) for run in new.values()}
        alike = [name for name, row in rows.items() if name not in new and (*map(row.get, NAMES),) in names]
        of_file = {run_id: {key: row[key] for key in ("source", "source_sha256")} for run_id, row in rows.items()}
        changed, files = list[str](), list[FileRuns]()
        first: dict[tuple[str | None, str], StoredRun | None] = {}
        for stored in stored_runs(warehouse, alike):
            first[rows[stored.run.run_id]["source_sha256"], _measurement(stored.run)] = stored
        for old_id, run in new.items():
            changed.append(old_id)
            key = rows[old_id]["source_sha256"], _measurement(run)
            if key[0] is None or key not in first:
                first[key] = None
                labelled[run.run_id] = None
                files.append(FileRuns(runs=[run], **of_file[old_id]))
                continue
            joined[old_id] = None
            if (twin := first[key]) is not None:  # stored again too, so that it takes over the notes and alerts
                _refuse_compacted(twin)
                first[key] = None
                changed.append(twin.run.run_id)
                files.append(FileRuns(runs=[twin.run], **of_file[twin.run.run_id]))
        return changed, files

    with open_to_write(arguments) as warehouse:
        note_lost_alerts(NAME, warehouse.replace_runs(relabelled).lost_alerts)
    if arguments.json:
        print_json({"labelled": list(labelled), "unchanged": list(unchanged), "joined": list(joined)})
    else:
        rest = f"; {counted(len(unchanged), 'run')} already so" if unchanged else ""
        rest += f"; {counted(len(joined), 'run')} joined with the same measurement" if joined else ""
        print(f"{counted(len(labelled), 'run')} labelled{rest}")
    return EXIT_OK


def _refuse_compacted(stored: StoredRun) -> None:
    if stored.compacted:
        raise UsageError(f"run {stored.run.run_id} has compacted samples: import its file again with --replace")


def _measurement(run: Run) -> str:
    """What a run of a file is of and has measured, and what its labels were in the file, without ids."""
    results = [(one.point, one.status, one.metrics, one.samples) for one in run.results]
    return canonical_hash((run.cell, run.hardware, run.origin, run.started_at, results))


def _labels(run: Run) -> tuple[object, ...]:
    """What `GivenValues.applied_to` changes in a run, without the ids that it makes anew."""
    return run.cell, run.hardware, run.origin, [result.doubts for result in run.results]


NAMES = ("model_id", "runtime", "precision")
LABELLED = f"""
WITH chosen AS (
    SELECT run_id, source_sha256 FROM benchmark_runs
    WHERE run_id IN (SELECT run_id FROM all_results WHERE {{condition}})
)
SELECT run_id, origin_format, source, source_sha256, {", ".join(NAMES)},
    run_id IN (SELECT run_id FROM chosen) AS is_chosen
FROM benchmark_runs WHERE is_chosen OR source_sha256 IN (SELECT source_sha256 FROM chosen) ORDER BY started_at, run_id
"""
"""The chosen runs, and the other runs of their files."""

COLUMNS: tuple[Column[Annotation], ...] = (
    Column("note", lambda one: one.annotation_id, is_key=True),
    Column("written", lambda one: one.created_at.isoformat(sep=" ", timespec="minutes")),
    Column("about", lambda one: f"{one.target_kind} {one.target_id}", is_key=True),
    Column("author", lambda one: one.author),
    Column("text", lambda one: one.note),
)


if __name__ == "__main__":
    sys.exit(main())
