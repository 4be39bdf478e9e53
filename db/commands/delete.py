"""Deletes runs from the warehouse, with their results, samples, notes and alerts.

A run is deleted as a whole, even if only some of its results match. The runs, and the notes and alerts about them, are
shown first.
The run files of measured runs are moved to the folder .trash beside them, from where they can be loaded again with
benchhouse setup --ingest; files of other tools stay where they are. If the database was copied or moved with its folder
of run files, these are the files beside it, never those of the database that it was copied from.
"""

from __future__ import annotations

import gzip
import itertools
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a file: the path has its folder, not the repository
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarking.core.command_line import command, note
from benchmarking.core.errors import EXIT_FAILED, EXIT_OK, StorageError, UsageError
from benchmarking.core.records import FORMAT
from benchmarking.core.storage_paths import own_run_files
from benchmarking.core.tables import Table, table_text
from benchmarking.core.terminal import stdout_page
from benchmarking.core.text import counted
from benchmarking.core.untrusted.input_files import GZIP_MAGIC, open_regular, unpacked_digest
from db.analysis.selection import UUID
from db.commands.arguments import (
    SELECTION,
    add_database,
    add_shared,
    command_parser,
    confirm,
    open_to_read,
    open_to_write,
    plain_values,
    print_json,
    selection_in,
    unstored_in,
)
from db.file_copy import publish
from db.values import precision_words, unique_prefixes

NAME = "benchhouse delete"
EXAMPLES = """
examples:
  benchhouse delete format=vllm_bench_serve,model=base --dry-run
  benchhouse delete 0199a3f2
  benchhouse delete tag.lab=old --yes
"""
EXIT_CODES = """
exit codes: 0 deleted, or nothing matches; 1 a run was changed meanwhile, or a file not moved; 2 usage, or not confirmed
"""
TRASH = ".trash"
"""Folder for the files of deleted runs: hidden, so that loading the folder beside it does not find them."""
MOST_HEAD_BYTES = 16_000_000
"""Of a file, so much is read to tell whose it is."""
RUNS = """
SELECT run.run_id, run.started_at, run.model_id, run.device, run.runtime, run.precision, run.runtime_mode,
    run.origin_format, run.source, run.source_sha256, count(result_id) AS results,
    count(result_id) FILTER (WHERE starts_with(run.run_id, ?)
        OR result_id IN (SELECT result_id FROM all_results WHERE {condition})) AS matching
FROM benchmark_runs run LEFT JOIN benchmark_results USING (run_id)
WHERE starts_with(run.run_id, ?) OR run.run_id IN (SELECT run_id FROM all_results WHERE {condition})
GROUP BY ALL ORDER BY run.started_at, run.run_id
"""
"""The selected runs and, by its id, one that the views leave out: a calibration, or a run without a result."""


@command(NAME, interrupted="runs are deleted all or none")
def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    parser = command_parser(NAME, __doc__, EXAMPLES, EXIT_CODES)
    parser.add_argument("selection", nargs="?", default="", metavar="SELECTION", help=f"runs: {SELECTION}")
    add_shared(
        parser,
        dry_run="show the runs; delete nothing",
        yes="skip the confirmation",
        json="print the outcome as JSON",
    )
    add_database(parser)
    arguments = parser.parse_args(argv)
    if not arguments.selection.strip():
        raise UsageError("no selection: name the runs to delete, such as a run id or model=NAME")
    selection = selection_in(arguments, arguments.selection)
    with open_to_read(arguments) as warehouse:
        word = arguments.selection.strip()
        values = [word if UUID.fullmatch(word) else None, *selection.values]
        runs = warehouse.query(RUNS.format(condition=selection.condition), [*values, *values]).dicts()
        ids = [run["run_id"] for run in runs]
        notes, alerts = warehouse.notes_about(ids), warehouse.alerts_about(ids)
        short = unique_prefixes([row["run_id"] for row in warehouse.query("SELECT run_id FROM benchmark_runs").dicts()])
    if not arguments.json and not runs:
        note(f"{NAME}: no runs in {arguments.selection}{unstored_in(arguments, arguments.selection)}")
    elif not arguments.json:
        rows = tuple(
            (
                short[run["run_id"]],
                f"{run['started_at']:%Y-%m-%d %H:%M}",
                run["model_id"],
                run["device"],
                run["runtime"],
                precision_words(run["precision"], run["runtime_mode"]),
                f"{run['results']}" + (f" ({run['matching']} match)" if run["results"] != run["matching"] else ""),
                run["source"] or "",
            )
            for run in runs
        )
        headings = ("run", "started (UTC)", "model", "device", "runtime", "precision", "results", "file")
        print(table_text(Table(headings=headings, rows=rows), stdout_page()))
    if not arguments.json and notes:
        about = tuple((f"{one['target_kind']} {one['target_id']}", one["author"] or "", one["note"]) for one in notes)
        print(table_text(Table(headings=("note about", "author", "text"), rows=about), stdout_page()))
    if not arguments.json and alerts:
        raised = tuple((one["alert_id"], one["metric"], one["triage"], one["note"] or "") for one in alerts)
        print(table_text(Table(headings=("alert", "metric", "triage", "note"), rows=raised), stdout_page()))
    further = [counted(len(them), word) for them, word in ((notes, "note"), (alerts, "alert")) if them]
    moved: list[dict[str, str | None]] = []
    is_done = bool(runs) and not arguments.dry_run
    if is_done:
        if not arguments.yes:
            confirm(f"Delete {' and '.join([counted(len(runs), 'run'), *further])}?", arguments.db_path)
        with open_to_write(arguments) as warehouse:
            warehouse.remove_runs(ids)
        measured = [run for run in runs if run["origin_format"] is None and run["source"]]
        moved = [_moved(run, arguments.db_path) for run in measured]
    if arguments.json:
        gone = {name: [plain_values(one) for one in rows] for name, rows in (("notes", notes), ("alerts", alerts))}
        print_json({"deleted": is_done, "runs": ids, **gone, "files": moved})
        return EXIT_FAILED if any(one["problem"] for one in moved) else EXIT_OK
    for one in moved:
        if one["problem"]:
            note(f"{NAME}: {one['path']}: {one['problem']}")
    if is_done:
        in_trash = sum(one["trash"] is not None for one in moved)
        with_them = f" with {' and '.join(further)}" if further else ""
        moved_files = f"; {counted(in_trash, 'run file')} moved to {TRASH} beside them" if in_trash else ""
        print(f"deleted {counted(len(runs), 'run')}{with_them}{moved_files}")
    elif runs:
        print(f"would delete {counted(len(runs), 'run')} (dry run: nothing was deleted)")
    return EXIT_FAILED if any(one["problem"] for one in moved) else EXIT_OK


def _moved(run: dict[str, Any], database: str) -> dict[str, str | None]:
    """Move a run's own file (`own_run_files`) to the folder .trash beside it, unless it is there, is gone or has
    another content by now. Returns its `path`, and its new one (`trash`) or why it was left (`problem`)."""
    found = own_run_files(run["source"], database)
    kept: dict[str, str | None] = {"path": str(found[0] if found else run["source"]), "trash": None, "problem": None}
    if not found:
        return kept
    try:
        path = next((one for one in found if unpacked_digest(one) == run["source_sha256"]), None)
        if path is None:
            return {**kept, "problem": "its content is not that of the deleted run: left in place"}
        kept["path"] = str(path)
        if not _is_file_of(path, run["run_id"]):  # the database may be anyone's, and name any file
            return {**kept, "problem": "it is not a file of the deleted run: left in place"}
        if path.parent.name == TRASH:  # loaded from there
            return kept
        folder = path.parent / TRASH
        folder.mkdir(exist_ok=True)
        # Linked, then unlinked: a rename would replace a file that another command has just put there.
        names = (path.with_name(f"{path.stem}.{number}{path.suffix}").name for number in itertools.count(1))
        target = next(folder / name for name in itertools.chain([path.name], names) if publish(path, folder / name))
        path.unlink(missing_ok=True)
    except (OSError, StorageError) as error:
        return {**kept, "problem": f"cannot be moved: {getattr(error, 'strerror', None) or error}"}
    return {**kept, "trash": str(target)}


def _is_file_of(path: Path, run_id: str) -> bool:
    """Whether a file is a run file with this id, by the beginning of its content. Raises UnreadableError."""
    with open_regular(path) as opened:
        is_packed = opened.read(len(GZIP_MAGIC)) == GZIP_MAGIC
        opened.seek(0)
        with gzip.open(opened) if is_packed else nullcontext(opened) as unpacked:
            content = unpacked.read(MOST_HEAD_BYTES)
    return f'"{FORMAT}"'.encode() in content and run_id.encode() in content.lower()


if __name__ == "__main__":
    sys.exit(main())
