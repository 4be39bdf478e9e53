"""Imports other tools' result files into the warehouse.

The format of each file is detected, and files that were imported before are skipped. --list-formats lists the formats.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __package__ in (None, ""):  # run as a file: the path has its folder, not the repository
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarking.core.command_line import add_aliases, choice, command, note
from benchmarking.core.errors import EXIT_FAILED, EXIT_OK, BenchhouseError, UsageError
from benchmarking.core.metrics import DEFAULT_METRIC
from benchmarking.core.provenance import naive_utc
from benchmarking.core.storage_paths import check_database, database_exists, is_lake
from benchmarking.core.tables import Table, table_text
from benchmarking.core.terminal import Display, stdout_page
from benchmarking.core.text import counted, grouped, listed
from db.commands.arguments import (
    add_database,
    add_labels,
    add_shared,
    command_parser,
    note_lost_alerts,
    open_to_read,
    print_json,
)
from db.connection import database_files

if TYPE_CHECKING:
    from db.importers.support.importing import GivenValues, Imported, Store
    from db.ingestion import FileRuns
    from db.warehouse import Warehouse

NAME = "benchhouse import"
WITHOUT_LATENCY = (
    *("time_to_first_token_ms", "time_per_output_token_ms", "throughput_tokens_per_sec", "throughput_samples_per_sec"),
    *("latency_p90_ms", "latency_p99_ms"),
)
"""What results without a median latency are judged by, the first that they have."""
EXAMPLES = """
examples:
  benchhouse import results.json --dry-run
  benchhouse import vllm_results/ --device cuda --hardware "NVIDIA H100 80GB HBM3" --tag suite=serving
  benchhouse import results.json --replace --precision bfloat16
  benchhouse import --list-formats
"""
EXIT_CODES = """
exit codes: 0 imported; 1 a file was refused (the others are imported), or no file has a known format; 2 usage
"""

KNOWN_FILES = """
SELECT run_id, ingested_at, origin_format, source, source_sha256, model_id, tags, origin->>'$.kept.place' AS place,
    json_exists(origin, '$.kept.replaced') AS is_labelled
FROM benchmark_runs
WHERE origin_format IS NOT NULL AND (
    source_sha256 IN (SELECT unnest($sha256)) OR source IN (SELECT unnest($sources)) OR run_id IN (SELECT unnest($ids))
    OR source IN (SELECT source FROM benchmark_runs WHERE source_sha256 IN (SELECT unnest($sha256)))
    OR list_bool_or(list_transform($tails, lambda tail: ends_with(source, tail)))
)
"""
OF_A_NAME = """
SELECT parse_filename(source) AS name, list(DISTINCT source_sha256) AS contents FROM benchmark_runs
WHERE origin_format IS NOT NULL AND source_sha256 IS NOT NULL AND parse_filename(source) IN (SELECT unnest($names))
GROUP BY ALL
"""
MAX_SHOWN = 5
"""Maximum values of a file that are listed as left out."""
STATE_WORDS = {
    "imported": "imported",
    "present": "already stored",
    "nothing": "no results in",
    "unknown": "unknown format",
    "unread": "not read",
    "refused": "refused",
}
"""State of a file -> words."""


@command(NAME, interrupted="stored files are kept: run the command again to continue")
def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    parser = command_parser(NAME, __doc__, EXAMPLES, EXIT_CODES)
    input_group = parser.add_argument_group("input")
    input_group.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="FILE|FOLDER|-",
        help="result files, folders to search at any depth, or - for the standard input",
    )
    of_files = input_group.add_argument(
        "--from-format", dest="format", metavar="NAME", help="format of the files (default: detected)"
    )
    add_aliases(input_group, of_files, "--format")
    input_group.add_argument("--list-formats", action="store_true", help="list the formats and exit")
    add_shared(input_group, dry_run="read the files and report their content; store nothing")
    input_group.add_argument(
        "--replace",
        action="store_true",
        help="replace what was stored from the same files, or from their earlier contents, to "
        "correct --model-id, --precision and so on",
    )
    values = parser.add_argument_group("values missing from the files, or to override theirs")
    add_labels(values)
    values.add_argument(
        "--date", type=_date, metavar="TIME", help="time of measurement, ISO 8601 (in UTC if it has no time zone)"
    )
    add_shared(values, tag="label of the runs; repeatable")
    add_shared(parser, json="print the outcome as JSON")
    add_database(parser)
    arguments = parser.parse_args(argv)
    if arguments.list_formats:
        from db.importers.support.files import importers

        formats = {importer.name: importer.summary for importer in importers()}
        table = Table(headings=("format", "reads"), rows=tuple(formats.items()))
        print(json.dumps(formats, indent=2, ensure_ascii=False) if arguments.json else table_text(table, stdout_page()))
        return EXIT_OK
    from benchmarking.core import plugins

    if not arguments.files:
        raise UsageError("no files: give result files, or folders of them (--list-formats lists the formats)")
    for path in arguments.files:
        if not path.exists() and path != Path("-"):
            what = "is an address: download it first" if re.match("https?:/", str(path)) else "does not exist"
            raise UsageError(f"{path} {what}: give a result file, or a folder of them")
    if arguments.format is not None:
        choice(arguments.format, tuple(plugins.by_name("db.importers")), "format")
    if arguments.dry_run:
        check_database(arguments.db_path)
    again: dict[str, list[str]] = {}
    outcomes = _import(arguments, again)
    for what, paths in again.items():
        places = f"({paths[0]}{', ...' if len(paths) > 1 else ''})"
        note(f"{NAME}: {counted(len(paths), 'file')} {what.format(places)}")
    if arguments.json:
        report = {
            "database": arguments.db_path,
            "dry_run": arguments.dry_run,
            "files": [dataclasses.asdict(outcome) | {"path": str(outcome.path)} for outcome in outcomes],
            "counts": {state: sum(outcome.state == state for outcome in outcomes) for state in STATE_WORDS},
        }
        print_json(report)
    else:
        _show_total(outcomes, arguments)
        judged: dict[str, set[str]] = {}
        for one in outcomes if not arguments.dry_run else ():
            for name in (one.format or "").split(" and ") if one.new_runs else ():
                judged.setdefault(name, set()).update(one.metrics)
        if judged:
            commands = listed([_judging(name, judged[name]) for name in sorted(judged)], MAX_SHOWN)
            note(f"{NAME}: the newest by date of what is imported is judged by {commands}")
    if all(
        outcome.state in ("unknown", "unread") for outcome in outcomes
    ):  # a mistyped folder must not pass as one without results
        note(
            f"{NAME}: no file has a known format: --list-formats lists them; run files and profiles of benchhouse are "
            "loaded with benchhouse setup --ingest"
        )
        return EXIT_FAILED
    return EXIT_FAILED if any(outcome.state == "refused" for outcome in outcomes) else EXIT_OK


def _judging(name: str, metrics: Set[str]) -> str:
    """The command that judges results of a format, by the metrics that they have if the one by default is none."""
    found = [] if DEFAULT_METRIC in metrics else [one for one in WITHOUT_LATENCY if one in metrics]
    return f"benchhouse check format={name}" + (f" --metric {','.join(found[:3])}" if found else "")


def _date(text: str) -> datetime:
    """A naive UTC time from ISO 8601, for argparse."""
    try:
        return naive_utc(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"expected a date or time in ISO 8601, such as 2026-01-31 or 2026-01-31T02:00: got {text!r}"
        ) from None


def _import(arguments: argparse.Namespace, again: dict[str, list[str]]) -> list[Imported]:
    """Import the files and print a line for each as it is done; those that were imported before are added to `again`,
    by what is to be said of them."""
    from benchmarking.core.run_file import MAX_RAW
    from db.importers.support.importing import GivenValues, files_in, import_files

    display = Display(quiet=arguments.json)
    is_many = len(arguments.files) > 1 or any(path.is_dir() for path in arguments.files)
    own = set() if is_lake(arguments.db_path) else set(database_files(arguments.db_path).values())
    files = [(path, is_given) for path, is_given in files_in(arguments.files) if os.path.realpath(path) not in own]
    given = GivenValues(
        model_id=arguments.model_id,
        device=arguments.device,
        device_name=arguments.hardware,
        precision=arguments.precision,
        runtime=arguments.runtime,
        started_at=arguments.date,
        tags=dict(arguments.tag),
    )
    outcomes: list[Imported] = []
    display_of = _with_progress(files, display) if is_many else files
    try:
        with _store_function(arguments, given, again) as store:
            for run in import_files(display_of, arguments.format, given, store):
                outcomes.append(run)
                if not arguments.json:
                    display.close()
                    if run.compacted:
                        too_many = f"more than {MAX_RAW} samples: stored without the samples, which the file keeps"
                        note(f"{NAME}: {run.path}: {too_many}")
                    for text in run.made_alike:
                        note(f"{NAME}: {run.path}: {text}, which told its runs apart")
                    for text in run.left_out[:MAX_SHOWN]:
                        note(f"{NAME}: {run.path}: left out {text}")
                    if len(run.left_out) > MAX_SHOWN:
                        note(f"{NAME}: {run.path}: left out {len(run.left_out) - MAX_SHOWN} more (--json lists all)")
                    if run.state == "refused":
                        text = run.reason or ""
                        reason = text if text.startswith(str(run.path)) else f"{run.path}: {text}"
                        note(f"{NAME}: refused {reason}")
                    else:
                        print(_line(run, "would import" if arguments.dry_run else "imported"), flush=True)
    finally:
        display.close()
    return outcomes


def _with_progress(files: Sequence[tuple[Path, bool]], display: Display) -> Iterator[tuple[Path, bool]]:
    for done, file in enumerate(files):
        display.show(str(file[0]), done=done, total=len(files), unit="files", immediate=False)
        yield file


BESIDE = "imported before, whose runs of then stay beside the new ones {}: --replace puts the new ones in their place"
LABELLED = "imported before with other labels, which are kept {}: --replace puts the file's own values in their place"
OTHER_TAGS = "imported before without these tags, which are not set {}: --replace sets them"
GROWN = "grown since an earlier import {}, whose results are stored already: only those that were added are new"
RESTATED = "with results that another file of the tool has stated {}, which are not stored again"
OTHER_CONTENT = (
    "imported before with other content {}, whose runs stay beside the new ones: if the same results are among them, "
    "--replace puts the new ones in their place"
)
GONE = (
    "imported before with other content from a folder that is gone {}, whose runs stay beside the new ones: benchhouse "
    "delete takes them out, if the folder was moved"
)
"""What is said of files that were imported before, with the place of their paths."""


@contextmanager
def _store_function(arguments: argparse.Namespace, given: GivenValues, again: dict[str, list[str]]) -> Iterator[Store]:
    """A function that stores the runs of files. The first file opens or creates the database. Files that were imported
    before are added to `again`.

    A dry run stores into a temporary database with the stored runs' ids, so that it makes every check that storing
    makes.
    """
    opened: list[Warehouse] = []

    def store(files: Sequence[FileRuns]) -> Sequence[int]:
        if not opened:
            from db.warehouse import Warehouse

            path = ":memory:" if arguments.dry_run else arguments.db_path
            opened.append(Warehouse.open(path, lock_timeout_s=arguments.lock_timeout))
        if arguments.dry_run:
            if not database_exists(arguments.db_path):
                return opened[0].ingest_files([*_without_restated(opened[0], files, again)])
            if arguments.replace:
                with open_to_read(arguments) as warehouse:
                    ids, files = _replaced(warehouse, files, again)
                    lost = warehouse.alerts_about(ids)
                note_lost_alerts(NAME, lost, "would be deleted, unless a new result has the values that it is about")
                return opened[0].ingest_files(files)
            with open_to_read(arguments) as warehouse:
                files, known = _not_stored(warehouse, files, arguments.format, given, again)
            counts = opened[0].ingest_files(files)
            return [
                min(count, sum(run.run_id not in known for run in file.runs))
                for file, count in zip(files, counts, strict=True)
            ]

        def chosen() -> tuple[Sequence[str], Sequence[FileRuns]]:
            if not arguments.replace:
                return (), _not_stored(opened[0], files, arguments.format, given, again)[0]
            return _replaced(opened[0], files, again)

        replaced = opened[0].replace_runs(chosen)
        note_lost_alerts(NAME, replaced.lost_alerts)
        return replaced.counts

    try:
        yield store
    finally:
        for warehouse in opened:
            warehouse.close()


SAME_MODELS = """
SELECT run_id, source_sha256 FROM benchmark_runs
WHERE (origin_format, model_id) IN (SELECT (unnest($formats), unnest($models)))
    AND run_id NOT IN (SELECT unnest($replaced))
"""


def _without_restated(
    warehouse: Warehouse, files: Sequence[FileRuns], again: dict[str, list[str]], replaced: Sequence[str] = ()
) -> Iterator[FileRuns]:
    """The files without the runs that say the same as one of another file, which is stored and is not `replaced`, or
    comes before."""
    from db.importers.support.importing import statement_of
    from db.run_records import stored_runs

    stated = {run.run_id: text for file in files for run in file.runs if (text := statement_of(run)) is not None}
    stated_by: dict[str, set[str | None]] = {}
    if stated:
        same = [run for file in files for run in file.runs if run.run_id in stated and run.origin]
        values = {
            "formats": [run.origin.format for run in same if run.origin],
            "models": [run.cell.workload.model_id for run in same],
            "replaced": replaced,
        }
        contents = {row["run_id"]: row["source_sha256"] for row in warehouse.query(SAME_MODELS, values).dicts()}
        for one in stored_runs(warehouse, [*contents]):
            if (text := statement_of(one.run)) is not None:
                stated_by.setdefault(text, set()).add(contents[one.run.run_id])
    for file in files:
        own = [
            run
            for run in file.runs
            if (text := stated.get(run.run_id)) is None
            or file.source_sha256 in stated_by.setdefault(text, {file.source_sha256})
        ]
        if len(own) < len(file.runs):
            _tell(again, RESTATED, file)
        yield dataclasses.replace(file, runs=own)


def _known(warehouse: Warehouse, files: Sequence[FileRuns]) -> list[dict[str, Any]]:
    """The stored runs of the files' contents, of their paths, of the paths of these contents, and with their runs'
    ids."""
    from db.importers.support.files import STDIN

    names = {
        "sha256": [file.source_sha256 for file in files],
        "sources": [file.source for file in files if file.source != STDIN],
        "ids": [run.run_id for file in files for run in file.runs],
        "tails": [f"{os.sep}{tail}" for tail in map(partial(_tail, warehouse), files) if tail is not None],
    }
    return warehouse.query(KNOWN_FILES, names).dicts()


def _tail(warehouse: Warehouse, file: FileRuns) -> Path | None:
    """The file's place below the folder of the database; None elsewhere."""
    folder = Path(warehouse.path).absolute().parent
    is_below = not is_lake(warehouse.path) and file.source is not None and Path(file.source).is_relative_to(folder)
    return Path(file.source or "").relative_to(folder) if is_below else None


def _earlier_places(
    warehouse: Warehouse, file: FileRuns, rows: Sequence[dict[str, Any]], again: dict[str, list[str]]
) -> set[str | None]:
    """The paths of the file: its own, and that in the project whose copy this one is, whose database has stored the
    same runs at the same time. (Another project's file may have been imported into this database.)

    Of a folder that is gone, `again` tells: the project may have been moved from there, or have had nothing to do with
    it.
    """
    from db.importers.support.files import STDIN

    tail, database = _tail(warehouse, file), Path(warehouse.path).absolute()
    found: set[str | None] = {file.source} - {STDIN}
    others = grouped(
        (str(row["source"]), (row["run_id"], row["ingested_at"]))
        for row in rows
        if tail is not None and row["source_sha256"] != file.source_sha256
    )
    for source, runs in others.items():
        if source in found or not source.endswith(f"{os.sep}{tail}"):
            continue
        folder = Path(source.removesuffix(str(tail)))
        if not os.path.lexists(folder):
            _tell(again, GONE, file)
        elif not _stored_in(folder / database.name).isdisjoint(runs):
            found.add(source)
    return found


@cache
def _stored_in(database: Path) -> frozenset[tuple[str, datetime]]:
    """The imported runs of another database, each with the time when it was stored; none of one that cannot be read."""
    from db.warehouse import Warehouse

    sql = "SELECT run_id, ingested_at FROM benchmark_runs WHERE origin_format IS NOT NULL"
    with suppress(BenchhouseError), Warehouse.open(database, read_only=True) as warehouse:
        return frozenset((row["run_id"], row["ingested_at"]) for row in warehouse.query(sql).dicts())
    return frozenset()


def _tell(again: dict[str, list[str]], what: str, file: FileRuns) -> None:
    if str(file.source) not in (paths := again.setdefault(what, [])):
        paths.append(str(file.source))


def _replaced(
    warehouse: Warehouse, files: Sequence[FileRuns], again: dict[str, list[str]]
) -> tuple[list[str], list[FileRuns]]:
    """The ids of the stored runs that are replaced: of the same content, wherever it stood, or of an earlier content of
    the same file; and the files with the runs that take their place."""
    rows = _known(warehouse, files)
    earlier = {row["run_id"] for file in files for row in _of_content(file, rows)}
    for file in files:
        places = _earlier_places(warehouse, file, rows, again)
        earlier |= {row["run_id"] for row in rows if row["source"] in places}
    return sorted(earlier), [*_without_restated(warehouse, files, again, sorted(earlier))]


def _of_content(file: FileRuns, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The stored runs of the file's content, but those of an identical file at another place of a submission, which
    are of another test: of another model, or repeated."""
    from db.importers.support.building import is_unnamed

    places = {run.origin.kept.get("place") for run in file.runs if run.origin}
    models = {run.cell.workload.model_id for run in file.runs}

    def is_other(row: dict[str, Any]) -> bool:
        if places == {None}:
            return False
        if row["place"] is not None:
            return row["place"] not in places
        # Stored without its place: its model is that of the folder, unless it was labelled or had no folder.
        return not row["is_labelled"] and not is_unnamed(row["model_id"]) and row["model_id"] not in models

    return [row for row in rows if row["source_sha256"] == file.source_sha256 and not is_other(row)]


def _name(source: str | None) -> str:
    """The name of a stored file, which may be of another system."""
    return re.split(r"[/\\]", source or "")[-1]


def _not_stored(
    warehouse: Warehouse,
    files: Sequence[FileRuns],
    format_name: str | None,
    given: GivenValues,
    again: dict[str, list[str]],
) -> tuple[list[FileRuns], set[str]]:
    """The files without what is stored of them under other ids, of which `again` tells, and the ids of stored runs.

    That are the runs of the same content with other labels, unless labels are given, and the results of an earlier
    content to which others were appended.
    """
    from db.importers.support.files import STDIN
    from db.importers.support.importing import GivenValues, since_earlier

    files = [*_without_restated(warehouse, files, again)]
    rows = _known(warehouse, files)
    known = {row["run_id"] for row in rows}
    names = {_name(one) for one in (*(file.source for file in files), *(row["source"] for row in rows))}
    # Results are appended to logs and lines: a JSON document does not grow, and trees have many of one name.
    may_grow = [name for name in names if name and not name.lower().endswith(".json")]
    of_name = warehouse.query(OF_A_NAME, {"names": may_grow}).dicts()
    contents: dict[str, set[str]] = {row["name"]: {*row["contents"]} for row in of_name}
    kept: list[FileRuns] = []
    for file in files:
        own = {run.run_id for run in file.runs}
        if own <= known:
            if any(not given.tags.items() <= row["tags"].items() for row in rows if row["run_id"] in own):
                _tell(again, OTHER_TAGS, file)
            kept.append(file)
            continue
        of_content = _of_content(file, rows)
        places = _earlier_places(warehouse, file, rows, again) | ({row["source"] for row in of_content} - {STDIN})
        earlier = {row["source_sha256"] for row in rows if row["source"] in places} - {file.source_sha256}
        # Of a moved or copied folder, or of another checkout: whether the file begins with it, its content tells.
        elsewhere = set[str]().union(*(contents.get(_name(place), ()) for place in places))
        grown_from = earlier | (elsewhere - {file.source_sha256})
        what = BESIDE if of_content else OTHER_CONTENT if earlier else None
        others = Counter(row["origin_format"] for row in of_content if row["run_id"] not in own)
        missing = Counter(run.origin.format for run in file.runs if run.origin and run.run_id not in known)
        rest = since_earlier(file, grown_from, format_name, given) if grown_from and file.source != STDIN else None
        if rest is not None:
            (file, is_as_before), new = rest, {run.run_id for run in rest[0].runs} - known
            what = None if not new else GROWN if is_as_before else BESIDE
        elif missing <= others and dataclasses.replace(given, tags={}) == GivenValues():
            file, what = dataclasses.replace(file, runs=[run for run in file.runs if run.run_id in known]), LABELLED
        if what is not None:
            _tell(again, what, file)
        kept.append(file)
    return kept, known


def _show_total(outcomes: Sequence[Imported], arguments: argparse.Namespace) -> None:
    """Print the counts, and what the files do not name."""
    imported = [outcome for outcome in outcomes if outcome.state == "imported"]
    if unnamed := sum(run.nameless for run in imported):
        note(
            f"{NAME}: {counted(unnamed, 'run')} on unnamed hardware, which all counts as one machine: "
            "name it with --hardware"
        )
    if undated := sum(run.doubts.get("undated", 0) for run in imported):
        note(
            f"{NAME}: {counted(undated, 'result')} without a date in the file, stored at the file's modification time, "
            "which copying changes: date with --date TIME (and --replace, to correct what was stored)"
        )
    if unnamed := sum(run.unnamed_models for run in imported):
        note(
            f"{NAME}: {counted(unnamed, 'run')} of a model that the file does not name, each file with a series of "
            "its own: name it with --model-id (and --replace, to correct what was stored)"
        )
    if unstated := sum(run.doubts.get("engine_not_stated", 0) for run in imported):
        note(
            f"{NAME}: {counted(unstated, 'load')} of a server whose engine the file does not name, all counted as "
            "one: name it with --runtime"
        )
    counts = Counter[str](outcome.state for outcome in outcomes)
    words = ", ".join(
        f"{counts[state]} {STATE_WORDS[state]}" for state in STATE_WORDS if counts[state] or state == "imported"
    )
    new_runs = sum(outcome.new_runs for outcome in outcomes)
    left_out = sum(len(outcome.left_out) for outcome in outcomes)
    lost = f"; left out: {left_out} (values, rows, lines)" if left_out else ""
    print(
        f"files: {words}; new: {counted(new_runs, 'run')}{lost}"
        + (" (dry run: nothing was stored)" if arguments.dry_run else "")
    )


def _line(one: Imported, imported: str) -> str:
    if one.state in ("unknown", "unread", "nothing"):
        reason = (one.reason or "").removeprefix(f"{one.path}: ").removeprefix(f"cannot read {one.path}: ")
        return f"{STATE_WORDS[one.state]} {one.path}" + (f": {reason}" if reason else "")
    doubts = ", ".join(f"{kind} ({count})" for kind, count in sorted(one.doubts.items()))
    parts = [
        f"{imported if one.state == 'imported' else STATE_WORDS[one.state]} {one.path}: {one.format}",
        counted(one.new_runs if one.state == "imported" else one.runs, "run"),
        counted(one.results, "result"),
        counted(one.samples, "sample"),
    ]
    lost = f"; left out: {len(one.left_out)}" if one.left_out else ""
    return f"{parts[0]}: {', '.join(parts[1:])}" + (f"; doubts: {doubts}" if doubts else "") + lost


if __name__ == "__main__":
    sys.exit(main())
