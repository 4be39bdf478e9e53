"""Shows series over time: one point per run, in commit order, with the change points.

A change is found from two runs on at its new level. It is suspected while it is found only with the newest run, and
confirmed by the next one. Changes are computed from the stored results on each call; --update stores them for
benchhouse regressions, benchhouse check and SQL.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a file: the path has its folder, not the repository
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarking.core.command_line import command, note
from benchmarking.core.errors import EXIT_NOT_ENOUGH_DATA, EXIT_OK
from benchmarking.core.terminal import stdout_page
from benchmarking.core.text import bars_for, counted
from db.commands.arguments import (
    add_database,
    add_rows,
    add_selection,
    add_shared,
    chosen_metrics,
    command_parser,
    open_to_read,
    plain_values,
    print_json,
    selection_in,
    unstored_in,
)

NAME = "benchhouse history"
EXAMPLES = """
examples:
  benchhouse history model=bert-base-uncased,since=2026-01-01
  benchhouse history runtime=eager --metric throughput_tokens_per_sec --only-changes
  benchhouse history series=3f2a91bc --metric memory_peak_rss_infer_mb --json
"""
EXIT_CODES = """
exit codes: 0 shown; 1 the database cannot be read; 2 usage; 3 nothing to show
"""
DEFAULT_LIMIT = 50
SIDES = "SELECT count(*) AS runs FROM benchmark_runs WHERE run_id IN (SELECT unnest(?)) AND {condition}"


@command(NAME)
def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    parser = command_parser(NAME, __doc__, EXAMPLES, EXIT_CODES)
    add_selection(parser)
    add_shared(parser, metric="metric")
    parser.add_argument("--update", action="store_true", help="first store the change points of all series")
    add_rows(parser, DEFAULT_LIMIT)
    add_shared(parser, only_changes="hide series without a change", json="points and changes as JSON")
    add_database(parser)
    arguments = parser.parse_args(argv)
    (metric,) = chosen_metrics(arguments, [arguments.metric])
    selection = selection_in(arguments, arguments.selection)

    from db.analysis.gate.alerts import excursions_of
    from db.analysis.gate.candidates import OF_AB
    from db.analysis.history.changes import open_refreshed
    from db.analysis.history.histories import histories, results_not_judged, results_without_history
    from db.values import plain

    if arguments.update:
        opened, counts = open_refreshed(arguments.db_path, [metric], lock_timeout_s=arguments.lock_timeout)
        note(f"{NAME}: {counts.text}")
    else:
        opened = open_to_read(arguments)
    with opened as warehouse:
        limit = None if arguments.only_changes else arguments.rows
        series, count = histories(warehouse, selection, metric, limit=limit)
        changing = [one for one in series if one.change_points or one.trend]
        listed = changing[: arguments.rows] if arguments.only_changes else series
        changed = {change.first_changed.result_id for history in series for change in history.change_points}
        excursions = excursions_of(warehouse, selection, metric, changed)
        without_history = results_without_history(warehouse, selection, metric)
        not_judged = 0 if series else results_not_judged(warehouse, selection, metric)
        runs = sorted({point.run_id for history in listed for point in history.points})
        (of_ab,) = warehouse.query(SIDES.format(condition=OF_AB), [runs]).dicts()
    if arguments.json:
        from benchmarking.core.records import to_json

        print_json(
            [
                {
                    "series_id": history.series_id,
                    "metric": metric.column,
                    "unit": metric.unit,
                    **history.subject,
                    "point": to_json(history.point),
                    "points": [_fields(point) for point in history.points],
                    "changes": [
                        {
                            **to_json(change_point.change),
                            "relative_change": plain(change_point.change.relative_change),
                            "last_good": _fields(change_point.last_good),
                            "first_changed": _fields(change_point.first_changed),
                        }
                        for change_point in history.change_points
                    ],
                    "trend": to_json(history.trend),
                    "excursions": [
                        {name: one[name] for name in ("alert_id", "relative_change", "runs_off", "recovered_since")}
                        for one in excursions
                        if one["series_id"] == history.series_id
                    ],
                    "left_out": history.left_out,
                }
                for history in listed
            ]
        )
    elif listed:
        from db.analysis.history.history_text import histories_text

        bars = bars_for(sys.stdout.encoding)
        print(histories_text(listed, metric, excursions, bars=bars, page=stdout_page()))
    elif series:
        print(f"no changes in {len(series)} series")
    if of_ab["runs"] and not arguments.json:
        what = f"{counted(of_ab['runs'], 'run')} of these by benchhouse ab"
        note(f"{NAME}: {what}, of which a side may have other code or variables (tag.ab_side=b)")
    if without_history:
        from db.analysis.history.history_text import excluded_results_text

        note(f"{NAME}: series without a history: {excluded_results_text(without_history, metric)}")
    if not series:
        why = unstored_in(arguments, arguments.selection)
        from db.analysis.history.history_text import value_text

        what = value_text(metric) if not_judged else metric.column
        note(f"{NAME}: no series has {what} in {arguments.selection or 'this database'}{why}")
        return EXIT_NOT_ENOUGH_DATA
    count, what = (len(changing), " with a change") if arguments.only_changes else (count, "")
    if count > len(listed):
        note(f"{NAME}: {len(listed)} of {count} series{what}: narrow the selection, or raise --rows")
    return EXIT_OK


def _fields(point: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return plain_values(asdict(point))


if __name__ == "__main__":
    sys.exit(main())
