"""Lists what the gate and the history found, and sets what it turned out to be.

`benchhouse check` raises alerts by itself; `alert raise` does for the confirmed regressions of the history.

  benchhouse alert raise --since 2026-01-01
  benchhouse alert list --triage new
  benchhouse alert set 0199a3f2 0199a3f3 noise --note "a backup ran"

An alert is new until somebody says what it is: regression or improvement (real), method (measured in another way),
hardware (another state of the machine) or noise. While it is new or a regression, what it names is no part of what the
gate judges later runs against.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a file: its folder is on the path, that of the packages is wanted
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarking.core.command_line import Parser, add_database_flags, choice, names, run_command
from benchmarking.core.errors import EXIT_OK, UsageError
from benchmarking.core.metrics import DEFAULT_METRIC, JUDGED
from benchmarking.core.tables import Table, table_text
from benchmarking.core.terminal import stdout_page
from db.analysis.selection import EVERYTHING, Selection

NAME = "benchhouse alert"
HEADINGS = ("alert", "raised", "triage", "what", "point", "metric", "change", "commits", "confirmed", "note")
NUMBERS = (HEADINGS.index("change"),)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command(NAME, _run, argv)


def _run(argv: Sequence[str]) -> int:
    arguments = _parser().parse_args(argv)
    return {"list": _list, "raise": _raise, "set": _set}[arguments.what](arguments)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog=NAME, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True, metavar="list|raise|set")
    listing = commands.add_parser("list", help="show alerts, newest first")
    raising = commands.add_parser("raise", help="raise an alert for each confirmed regression that has none")
    for command in (listing, raising):
        command.add_argument(
            "selection",
            nargs="?",
            default="",
            metavar="SELECTION",
            help="only of these results: model=gpt2, ...",
        )
    raising.add_argument("--since", metavar="DATE", help="first changed on that day or later, such as 2026-01-01")
    raising.add_argument(
        "--metric", type=names, default=(DEFAULT_METRIC,), metavar="COLUMN,...", help=f"default {DEFAULT_METRIC}"
    )
    listing.add_argument("--triage", type=names, default=(), metavar="WORD,...", help="new, regression, ...")
    setting = commands.add_parser("set", help="say what alerts turned out to be")
    setting.add_argument("ids", nargs="+", metavar="ID", help="an alert's id, or how it begins")
    setting.add_argument("triage", metavar="TRIAGE", help="new, regression, improvement, method, hardware or noise")
    setting.add_argument("--note", metavar="TEXT", help="why; without it the note stays as it is")
    for command in (listing, raising, setting):
        command.add_argument("--json", action="store_true", help="print the alerts as JSON")
        add_database_flags(command)
    return parser


def _list(arguments: argparse.Namespace) -> int:
    selection = Selection.parse(arguments.selection)

    from db.analysis.gate.alerts import TRIAGES, list_alerts
    from db.warehouse import Warehouse

    for word in arguments.triage:
        choice(word, TRIAGES, "triage")
    with Warehouse.open(arguments.db_path, read_only=True, lock_timeout_s=arguments.lock_timeout) as warehouse:
        rows = list_alerts(warehouse, selection, arguments.triage or TRIAGES)
    if arguments.json:
        print(json.dumps([_plain(row) for row in rows], indent=2, ensure_ascii=False))
    else:
        print(_text(rows))
    return EXIT_OK


def _raise(arguments: argparse.Namespace) -> int:
    metrics = [JUDGED[choice(name, tuple(JUDGED), "metric")] for name in arguments.metric]
    selection = Selection.parse(arguments.selection)
    dates = EVERYTHING if arguments.since is None else Selection.parse(f"since={arguments.since}")

    from db.analysis.gate.alerts import raise_alerts
    from db.analysis.history.changes import refresh_changes
    from db.analysis.history.regressions import regressions
    from db.warehouse import Warehouse

    refresh_changes(arguments.db_path, metrics, lock_timeout_s=arguments.lock_timeout)
    # The selection may hold SQL: it is asked on a connection that only reads.
    with Warehouse.open(arguments.db_path, for_questions=True, lock_timeout_s=arguments.lock_timeout) as warehouse:
        found = regressions(warehouse, metrics, dates=dates, selection=selection)
    with Warehouse.open(arguments.db_path, create=False, lock_timeout_s=arguments.lock_timeout) as warehouse:
        stored = raise_alerts(warehouse, found)
    if arguments.json:
        print(json.dumps({"new": stored.new, "known": stored.known}, indent=2))
    else:
        print(f"{len(stored.new)} alerts raised, {len(stored.known)} known already")
    return EXIT_OK


def _set(arguments: argparse.Namespace) -> int:
    from db.analysis.gate.alerts import TRIAGES, set_triage
    from db.warehouse import Warehouse

    if arguments.triage not in TRIAGES:
        raise UsageError(f"{arguments.triage!r} is no triage: the last word is one of {', '.join(TRIAGES)}")
    with Warehouse.open(arguments.db_path, create=False, lock_timeout_s=arguments.lock_timeout) as warehouse:
        alert_ids = set_triage(warehouse, arguments.ids, arguments.triage, arguments.note)
    if arguments.json:
        print(json.dumps({"triage": arguments.triage, "note": arguments.note, "alerts": alert_ids}, indent=2))
    else:
        print("\n".join(f"{alert_id}: {arguments.triage}" for alert_id in alert_ids))
    return EXIT_OK


def _text(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return "no alerts"
    table = Table(headings=HEADINGS, rows=tuple(_cells(row) for row in rows), numbers=NUMBERS)
    return table_text(table, stdout_page())


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    from benchmarking.core.records import Point

    subject = ", ".join((row["model_id"], row["device"], row["runtime"], row["precision"]))
    return (
        row["alert_id"],
        row["created_at"].isoformat(sep=" ", timespec="minutes"),
        row["triage"],
        subject,
        Point.from_columns({**row, "axes": json.dumps(row["axes"])}).label,
        row["metric"],
        "-" if row["relative_change"] is None else f"{row['relative_change']:+.1%}",
        _commits(row),
        "no" if row["confirmed_by"] is None and row["change_point_id"] is None else "yes",
        row["note"] or "",
    )


def _commits(row: Mapping[str, Any]) -> str:
    """The last good one and the first bad one: "1f0c2ab..9be4410"."""
    first, last = ((row[name] or "")[:7] for name in ("first_commit", "last_commit"))
    return f"{first}..{last}" if first or last else "-"


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    from db.values import plain

    return {name: plain(value) for name, value in row.items()}


if __name__ == "__main__":
    sys.exit(main())
