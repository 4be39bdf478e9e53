"""Creates, upgrades, fills, verifies and backs up the warehouse.

Without flags, creates the database or upgrades it to this version, and counts its content.
"""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import sys
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a file: the path has its folder, not the repository
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarking.core.command_line import Parser, command, flag_words, note
from benchmarking.core.command_names import as_typed
from benchmarking.core.errors import EXIT_FAILED, EXIT_OK, StorageError, UsageError
from benchmarking.core.metrics import bytes_to_mb
from benchmarking.core.run_file import MAX_RAW
from benchmarking.core.settings import PATH, SWITCH, Setting, add_flags
from benchmarking.core.storage_paths import database_exists, is_lake
from db import ingestion
from db.commands.arguments import add_database, add_shared, command_parser, confirm, print_json
from db.file_copy import copy_as_it_is, old_copies
from db.migrate import latest_version
from db.upkeep.verify import inspected, leftovers_near, repair, unread_log, verify
from db.warehouse import OutdatedError, Warehouse

NAME = "setup_benchmark_db"
EXAMPLES = """
examples:
  benchhouse setup --ingest benchmark_results
  benchhouse setup --verify --backup benchmark_db.backup.duckdb
  benchhouse setup --rebuild-from benchmark_results --db-path benchmark_db.duckdb
"""
EXIT_CODES = """
exit codes: 0 done; 1 a fault was found, a file refused, or every run is unfinished; 2 usage
"""

COUNTS = """
SELECT
    (SELECT max(version) FROM schema_migrations) AS schema_version,
    (SELECT count(*) FROM benchmark_runs) AS runs,
    (SELECT count(*) FROM benchmark_results) AS results,
    (SELECT count(*) FROM hardware_info) AS hardware
"""

INGESTED = {"loaded": "loaded", "present": "already stored", "refused": "refused", "unfinished": "unfinished"}

Report = dict[str, Any]


@command(NAME, interrupted="stored runs are kept: run the command again to continue")
def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    arguments = _parser().parse_args(argv)
    # Check everything before anything is done, and ask before a database is emptied, if there is someone to ask: a
    # script that says --overwrite means it.
    for flag, places in (("--ingest", arguments.ingest), ("--rebuild-from", arguments.rebuild_from)):
        for place in places:
            if not place.exists():
                raise UsageError(f"{flag}: {place} does not exist: give run files, or a folder of them")
    ended = [place for place in arguments.ingest if place.name.endswith(ingestion.UNFINISHED)]
    if arguments.rebuild_from and is_lake(arguments.db_path):
        raise UsageError("--rebuild-from rebuilds a file: load the run files into a new DuckLake with --ingest")
    if arguments.rebuild_from and arguments.overwrite:
        raise UsageError("--rebuild-from keeps the content of the database, --overwrite deletes it: choose one")
    if arguments.backup is not None and arguments.backup.exists():
        raise UsageError(f"--backup: {arguments.backup} already exists: choose another path")
    if arguments.overwrite and not arguments.yes and database_exists(arguments.db_path) and sys.stdin.isatty():
        confirm(f"Drop everything in {arguments.db_path}?", arguments.db_path)
    report: Report = {"database": arguments.db_path}
    for place in dict.fromkeys(ended):
        from benchmarking.sweep.run.command_session import end_early

        run_file, measured = end_early(place)
        note(f"{as_typed('setup')}: {place} is ended, {measured}: its run file is {run_file}")
        arguments.ingest = [run_file if one == place else one for one in arguments.ingest]
    if arguments.rebuild_from:
        from db.upkeep.merging import rebuild

        files = ingestion.run_files(arguments.rebuild_from)
        rebuilt = rebuild(Path(arguments.db_path), files, lock_timeout_s=arguments.lock_timeout)
        report |= {
            **_files(rebuilt.loaded, arguments.rebuild_from),
            "kept": None if rebuilt.kept is None else str(rebuilt.kept),
            "compared": [dataclasses.asdict(compared) for compared in rebuilt.compared],
            "brought": None if rebuilt.copied is None else dict(rebuilt.copied.added),
            "differing": [str(conflict) for conflict in rebuilt.differing],
            "lost": {**rebuilt.lost, **({"log": rebuilt.lost_log} if rebuilt.lost_log else {})},
        }
    has_log = arguments.verify and not is_lake(arguments.db_path)
    unread = unread_log(Path(arguments.db_path), lock_timeout_s=arguments.lock_timeout) if has_log else []
    with _open(arguments) as warehouse:
        # Load, verify, back up, in this order.
        if arguments.ingest:
            report |= _files(ingestion.load_files(warehouse, ingestion.run_files(arguments.ingest)), arguments.ingest)
        if arguments.repair:
            report["repaired"] = repair(warehouse)
        if arguments.verify:
            report["findings"] = [dataclasses.asdict(finding) for finding in (*verify(warehouse), *unread)]
            report["leftovers"] = [str(left) for left in leftovers_near(warehouse, arguments.db_path)]
            has_fault = len(report["findings"]) > len(unread)
            if not has_fault and not is_lake(arguments.db_path) and warehouse.file_version is None:
                # The copies that were kept before upgrades, now that the file has no fault.
                for old in filter(_is_old_copy, old_copies(Path(arguments.db_path).resolve())):
                    with suppress(OSError):  # a read-only medium
                        old.unlink()
                        report.setdefault("removed_old", []).append(str(old))
        if arguments.backup is not None:
            if warehouse.file_version is None:
                warehouse.backup(arguments.backup)
            else:  # a backup can be read by the version that wrote the file
                copy_as_it_is(Path(arguments.db_path), arguments.backup, lock_timeout_s=arguments.lock_timeout)
            report["backup"] = str(arguments.backup)
        report |= warehouse.repeated(lambda: warehouse.query(COUNTS).dicts()[0])
        report |= {} if warehouse.file_version is None else {"schema_version": warehouse.file_version}
    if arguments.compact:
        before, after = Warehouse.compact(arguments.db_path, lock_timeout_s=arguments.lock_timeout)
        report["compacted"] = {"bytes_before": before, "bytes_after": after}
    _show(report, arguments)
    has_faults = any(report.get(name) for name in ("refused", "findings", "lost", "differing"))
    is_all_unfinished = report.get("unfinished") and not (report["loaded"] or report["present"])
    return EXIT_FAILED if has_faults or is_all_unfinished else EXIT_OK


def _parser() -> Parser:
    parser = command_parser(NAME, __doc__, EXAMPLES, EXIT_CODES)
    content = parser.add_argument_group("content")
    content.add_argument(
        "--ingest",
        action="append",
        default=[],
        type=Path,
        metavar="DIR|FILE",
        help="run file, or folder of run files at any depth, to load; repeatable; stored runs are skipped. Of an "
        f"interrupted run, its *{ingestion.UNFINISHED}: that ends the run with what is measured of it",
    )
    content.add_argument(
        "--rebuild-from",
        nargs="+",
        default=[],
        type=Path,
        metavar="DIR|FILE",
        help="run files to rebuild the database from; the old file is kept under another name, and rows found only "
        "there are copied if they can be read",
    )
    add_flags(content, Setting("overwrite", SWITCH, "empty the database; asks first on a terminal"))
    add_shared(content, yes="do not ask before --overwrite")
    repair = "put quantiles of compacted samples in order that rounding had disordered in earlier versions"
    add_flags(
        parser.add_argument_group("file"),
        Setting("repair", SWITCH, repair),
        Setting("verify", SWITCH, "check schema, names, references, counts and checksums"),
        Setting("compact", SWITCH, "rewrite the file without its free space, to about half its size"),
        Setting("backup", PATH, "copy of the database, to a new file"),
    )
    add_shared(parser.add_argument_group("output"), json="print the outcome as JSON", quiet="print problems only")
    add_database(parser)
    return parser


def _open(arguments: argparse.Namespace) -> AbstractContextManager[Warehouse]:
    """The database, created or upgraded; read-only for --verify and --backup."""
    if arguments.overwrite:
        existed = database_exists(arguments.db_path)
        emptied = Warehouse.overwrite(arguments.db_path, lock_timeout_s=arguments.lock_timeout)
        if existed and not arguments.yes and not sys.stdin.isatty():  # nobody was asked; a refused file is not emptied
            note(f"{as_typed('setup')}: --overwrite: everything in {arguments.db_path} was deleted")
        return emptied
    if (arguments.verify or arguments.backup is not None) and not (arguments.ingest or arguments.repair):
        return inspected(arguments.db_path, lock_timeout_s=arguments.lock_timeout)
    # A mistyped path must not pass as an empty database.
    create = not (arguments.compact or arguments.repair) or bool(arguments.ingest)
    return Warehouse.open(arguments.db_path, lock_timeout_s=arguments.lock_timeout, create=create)


def _is_old_copy(path: Path) -> bool:
    """Whether it is what its name says: a database of that schema."""
    try:
        with Warehouse.open(path, read_only=True):
            version = latest_version()
    except OutdatedError as error:
        version = error.version
    except StorageError:
        return False
    return f".schema-{version}." in path.name


def _files(outcome: ingestion.Loaded, places: Sequence[Path]) -> Report:
    """The run files by outcome."""
    return {
        "loaded": [str(path) for path in outcome.loaded],
        "present": [str(path) for path in outcome.present],
        "refused": [{"file": str(path), "reason": reason} for path, reason in outcome.refused],
        **({"compacted_files": [str(path) for path in outcome.compacted]} if outcome.compacted else {}),
        "unfinished": [str(path) for path in ingestion.unfinished_files(places)],
    }


def _show(report: Report, arguments: argparse.Namespace) -> None:
    """Results on stdout; refused and unfinished files on stderr."""
    for refusal in report.get("refused", ()):
        file, reason = refusal["file"], refusal["reason"]
        note(f"{as_typed('setup')}: refused {reason if reason.startswith(file) else f'{file}: {reason}'}")
    for path in report.get("compacted_files", ()):
        without = f"more than {MAX_RAW} samples: stored without the samples, which the file keeps"
        note(f"{as_typed('setup')}: {path}: {without}")
    for path in report.get("unfinished", ()):
        finish = f"{as_typed('run')} --resume {shlex.join(flag_words('--output-dir', str(Path(path).parent)))}"
        note(f"{as_typed('setup')}: unfinished {path}: finish it with {finish}, or give the file to end it as it is")
    if arguments.json:
        print_json(report)
        return
    for finding in report.get("findings", ()):
        print(f"{finding['kind']}: {finding['problem']}")
    if arguments.quiet:
        return
    lines = [f"loaded {path}" for path in report.get("loaded", ())]
    lines += [f"already stored {path}" for path in report.get("present", ())]
    if "loaded" in report:
        files = (f"{len(report[kind])} {word}" for kind, word in INGESTED.items())
        lines.append(f"run files: {', '.join(files)}")
    if report.get("kept") is not None:  # how the rebuilt database compares with the old one
        lines.append(f"old database: {report['kept']}")
        words = {"raw_benchmark_data": "raw samples"}
        counts = (report["brought"] or {}).items()
        copied = [f"{count} {words.get(name, f'of {name}')}" for name, count in counts if count]
        lines += [f"copied from the old database, since no run file has them: {', '.join(copied)}"] if copied else []
        for table in (table for table in report["compared"] if table["is_equal"] is not None):
            verdict = "equal" if table["is_equal"] else "not equal"
            lines.append(f"{table['table']}: {table['rows_before']} rows before, {table['rows_after']} now: {verdict}")
        lines += [f"differs in the old database: {conflict}" for conflict in report["differing"]]
        lost = defaultdict[str, list[str]](list)
        for name, reason in report["lost"].items():
            lost[reason].append(name)
        lines += [f"neither compared nor copied: {', '.join(names)}: {reason}" for reason, names in lost.items()]
    if "repaired" in report:
        lines.append(f"repaired: quantiles of {report['repaired']} launches and metrics")
    if "findings" in report:
        lines += [
            f"left by a killed process: {left} (the next command there removes it)" for left in report["leftovers"]
        ]
        lines.append(f"verified: {len(report['findings']) or 'no'} fault{'s' * (len(report['findings']) != 1)}")
    lines += [f"removed {old}, kept before an upgrade" for old in report.get("removed_old", ())]
    if "compacted" in report:
        before, after = (bytes_to_mb(report["compacted"][name]) for name in ("bytes_before", "bytes_after"))
        held = " of data files and catalog" if is_lake(report["database"]) else ""
        lines.append(f"compacted: {before:.1f} MB -> {after:.1f} MB{held}")
    if "backup" in report:
        lines.append(f"backup: {report['backup']}")
    is_old = report["schema_version"] < latest_version()
    later = f" (upgraded to {latest_version()} when it is next written)" if is_old else ""
    lines.append(
        f"{report['database']}: schema {report['schema_version']}{later}, runs {report['runs']}, "
        f"results {report['results']}, hardware {report['hardware']}"
    )
    print("\n".join(lines))


if __name__ == "__main__":
    sys.exit(main())
