"""Lists regression alerts, and records their triage.

benchhouse check stores an alert for each regression that it finds; alert raise stores one for each confirmed regression
in the history. An alert is new until its triage is set: regression or improvement (real), intended (a slowdown that is
wanted), method (the measurement changed), hardware (the machine changed) or noise. While one of check is new, its
results are no history of later checks, which fail at that level, until a later run is fine: they are then variation, as
with noise, and a gate that they make too noisy says so. Those of a regression are never history. With any other triage
the level stays: later checks judge by it, as soon as 2 runs are at it. An alert stays when its series recovers: list
then names the run since which less than half of the change is left.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from itertools import takewhile
from operator import itemgetter
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a file: the path has its folder, not the repository
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarking.core.argument_types import names
from benchmarking.core.command_line import choice, command, note
from benchmarking.core.errors import EXIT_OK, UsageError
from benchmarking.core.settings import Values, add_settings
from benchmarking.core.shared_settings import COMMON
from benchmarking.core.tables import Column, table_of, table_text
from benchmarking.core.terminal import stdout_page
from benchmarking.core.text import counted, wrapped
from db.analysis.gate.gate import PARAMETERS
from db.analysis.selection import EVERYTHING, Selection
from db.commands.arguments import (
    add_database,
    add_metrics,
    add_selection,
    add_shared,
    chosen_metrics,
    command_parser,
    open_to_read,
    open_to_write,
    plain_values,
    print_json,
    selection_in,
    unstored_in,
)
from db.values import heading, unique_prefixes

NAME = "benchhouse alert"
EXAMPLES = """
examples:
  benchhouse alert raise --since 2026-01-01
  benchhouse alert list --triage new
  benchhouse alert set 0199a3f2 0199a3f3 noise --note "a backup ran"
"""
EFFECTS = {
    "new": "later checks fail at the level of these results until the alert is triaged, or a later run is fine",
    "regression": "these results are no history of later checks, which fail at their level: mend it",
    "noise": (
        "these results count as variation in later checks, which expect a wider range while they are among the last "
        f"{PARAMETERS.max_points} runs (benchhouse delete run=ID takes one out); a level that stays is not noise: "
        "intended accepts it"
    ),
}
"""Triage -> what it does to `benchhouse check`, for an alert about times that check stored. Those of `alert raise` do
not count there."""
ACCEPTED = (
    "the level of these results stays: later checks judge by it, not by the runs before, and say 'not enough data' "
    f"until {PARAMETERS.min_points_after_change} earlier runs are at it"
)
"""What any other triage does."""
ACCEPTING = (
    *("accept", "accepted", "approved", "by-design", "close", "deliberate", "dismiss"),
    *("expected", "known", "resolve", "wanted", "wontfix"),
)
"""Words of other tools for a slowdown that stays."""


@command(NAME)
def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    parser = command_parser(NAME, __doc__, EXAMPLES)
    commands = parser.add_subparsers(dest="what", required=True, metavar="list|raise|set")
    listing = commands.add_parser("list", help="show alerts, newest first")
    raising = commands.add_parser("raise", help="store an alert for each confirmed regression without one")
    for subcommand in (listing, raising):
        add_selection(subcommand)
    add_settings(raising, COMMON, "since")
    add_metrics(raising)
    listing.add_argument(
        "--triage",
        action=Values,
        type=names,
        default=(),
        metavar="WORD,...",
        help="triages to list: new, regression, ... (default: all)",
    )
    setting = commands.add_parser("set", help="record the triage of alerts")
    setting.add_argument("ids", nargs="*", metavar="ID", help="alert id or unique prefix")
    setting.add_argument(
        "triage", metavar="TRIAGE", help="new, regression, improvement, intended, method, hardware or noise"
    )
    setting.add_argument("--note", metavar="TEXT", help="reason for the triage (default: the stored note)")
    for subcommand in (listing, raising, setting):
        add_shared(subcommand, json="print the alerts as JSON")
        add_database(subcommand)
    if argv and argv[0] not in commands.choices and not argv[0].startswith("-"):
        from db.analysis.gate.alerts import TRIAGES

        if argv[0] in (*TRIAGES, *ACCEPTING):
            ids = " ".join(takewhile(lambda word: not word.startswith("-"), argv[1:])) or "ID"
            triage = argv[0] if argv[0] in TRIAGES else "intended"
            raise UsageError(f"a triage is set by benchhouse alert set {ids} {triage} --note WHY")
    arguments = parser.parse_args(argv)
    return {"list": _list, "raise": _raise, "set": _set}[arguments.what](arguments)


def _list(arguments: argparse.Namespace) -> int:
    from db.analysis.gate.alerts import OPEN, TRIAGES, list_alerts, with_recovery

    if (word := arguments.selection) in (*TRIAGES, "open"):
        raise UsageError(
            f"{word!r} is not a selection: did you mean --triage {','.join(OPEN) if word == 'open' else word}?"
        )
    selection = selection_in(arguments, arguments.selection)

    for word in arguments.triage:
        choice(word, TRIAGES, "triage")
    with open_to_read(arguments) as warehouse:
        rows = with_recovery(warehouse, list_alerts(warehouse, selection, arguments.triage or TRIAGES))
        all_ids = [str(row["alert_id"]) for row in warehouse.query("SELECT alert_id FROM alerts").dicts()]
        recovered = any(row["recovered_since"] for row in rows)
        runs = warehouse.query("SELECT run_id FROM benchmark_runs").dicts() if recovered else []
    if arguments.json:
        print_json([plain_values(row) for row in rows])
    elif not rows:
        print(f"no alerts{unstored_in(arguments, arguments.selection)}")
    else:
        page = stdout_page()
        short = unique_prefixes([*all_ids, *(str(row["run_id"]) for row in runs)])
        ids = ("alert_id", "recovered_since")
        table = table_of(COLUMNS, [{**row, **{name: short.get(row[name]) for name in ids}} for row in rows], page)
        if table.shared:
            print(wrapped(", ".join(table.shared), page.text_width))
        print(table_text(table, page))
    return EXIT_OK


def _raise(arguments: argparse.Namespace) -> int:
    metrics = chosen_metrics(arguments, arguments.metric)
    selection = selection_in(arguments, arguments.selection)
    dates = EVERYTHING if arguments.since is None else Selection.parse(f"since={arguments.since}")

    from db.analysis.gate.alerts import alerts_of, raise_alerts
    from db.analysis.gate.webhook import notify
    from db.analysis.history.changes import open_refreshed, regressions

    # The selection may contain the user's SQL, so it runs on a read-only connection.
    opened, _ = open_refreshed(arguments.db_path, metrics, lock_timeout_s=arguments.lock_timeout)
    with opened as warehouse:
        confirmed = regressions(warehouse, metrics, dates=dates, selection=selection)
    with open_to_write(arguments) as warehouse:
        stored = raise_alerts(warehouse, confirmed)
        rows = [plain_values(row) for row in alerts_of(warehouse, stored.new)]
    notify(NAME, rows)
    if arguments.json:
        print_json({"new": stored.new, "known": stored.known})
    else:
        print(f"{counted(len(stored.new), 'alert')} stored, {len(stored.known)} already known")
    return EXIT_OK


def _set(arguments: argparse.Namespace) -> int:
    from db.analysis.gate.alerts import TRIAGES, alerts_of, set_triage
    from db.analysis.gate.gate import DETECTOR

    given: list[str] = [*arguments.ids, arguments.triage]
    if arguments.triage not in TRIAGES and given[0] in TRIAGES:
        triage, *ids = given
        raise UsageError(f"the triage comes last: benchhouse alert set {' '.join(ids)} {triage}")
    if arguments.triage in ACCEPTING:
        how = f"benchhouse alert set {' '.join(arguments.ids) or 'ID'} intended --note WHY"
        raise UsageError(
            f"{arguments.triage} is no triage: a slowdown that is wanted is intended, which accepts its level: {how}"
        )
    if not arguments.ids and re.fullmatch(r"[0-9a-f-]{4,}", arguments.triage):
        how = f"benchhouse alert set {arguments.triage} intended --note WHY"
        raise UsageError(f"a triage follows the id, one of {', '.join(TRIAGES)}: {how}")
    choice(arguments.triage, TRIAGES, "triage")
    if not arguments.ids or "all" in arguments.ids:
        how = f"benchhouse alert set ID ID {arguments.triage}"
        raise UsageError(f"each alert is named: {how}; benchhouse alert list --triage new shows their ids")
    with open_to_write(arguments) as warehouse:
        alert_ids = set_triage(warehouse, arguments.ids, arguments.triage, arguments.note)
        changed = alerts_of(warehouse, alert_ids)
    if arguments.json:
        note_stored = None if arguments.note is None else changed[0]["note"]
        print_json({"triage": arguments.triage, "note": note_stored, "alerts": alert_ids})
    else:
        print("\n".join(f"{alert_id}: {arguments.triage}" for alert_id in alert_ids))
    if any(one["detector"] == DETECTOR for one in changed):
        note(f"{NAME}: {EFFECTS.get(arguments.triage, ACCEPTED)}")
    return EXIT_OK


def _point(row: Mapping[str, Any]) -> str:
    from benchmarking.core.records import Point

    return Point.from_columns({**row, "axes": json.dumps(row["axes"])}).label


def _commits(row: Mapping[str, Any]) -> str:
    """The last good commit and the first bad one: "1f0c2ab..9be4410"; "1f0c2ab, unchanged" if they are the same."""
    first, last = ((row[name] or "")[:7] for name in ("first_commit", "last_commit"))
    if first and row["first_commit"] == row["last_commit"]:
        return f"{first}, unchanged"
    return f"{first}..{last}" if first or last else "-"


COLUMNS: tuple[Column[Mapping[str, Any]], ...] = (
    Column("alert", itemgetter("alert_id"), is_key=True),
    *(
        Column[Mapping[str, Any]](heading(name), itemgetter(name), is_key=True)
        for name in ("model_id", "device", "device_name", "runtime", "precision", "settings", "metric")
    ),
    Column("point", _point),
    Column(
        "change",
        lambda row: None if row["relative_change"] is None else f"{row['relative_change']:+.1%}",
        is_number=True,
    ),
    Column("commits", _commits),
    Column("confirmed", lambda row: "no" if row["confirmed_by"] is None and row["change_point_id"] is None else "yes"),
    Column("raised", lambda row: row["created_at"].isoformat(sep=" ", timespec="minutes")),
    Column("triage", itemgetter("triage")),
    Column("recovered since", itemgetter("recovered_since")),
    Column("note", itemgetter("note")),
)


if __name__ == "__main__":
    sys.exit(main())
