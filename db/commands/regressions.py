"""Lists regressions since a date, worst first, with the commits between which the cause most likely lies, and slow
trends.

Reads the stored change points, as the view regressions does, after searching the results that arrived since the last
search (unless --no-update is given). What it finds in a database that cannot be written is shown, but not stored.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __package__ in (None, ""):  # run as a file: the path has its folder, not the repository
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarking.core.command_line import command, database_flags, note
from benchmarking.core.errors import EXIT_OK
from benchmarking.core.settings import add_settings
from benchmarking.core.shared_settings import COMMON
from benchmarking.core.storage_paths import is_lake
from benchmarking.core.temporary import temporary_folder
from benchmarking.core.terminal import stdout_page
from benchmarking.core.text import counted
from db.commands.arguments import (
    add_database,
    add_metrics,
    add_selection,
    add_shared,
    chosen_metrics,
    command_parser,
    open_to_read,
    plain_values,
    print_json,
    selection_in,
)

if TYPE_CHECKING:
    from db.analysis.history.changes import Regression
    from db.analysis.history.histories import WorseTrend

NAME = "benchhouse regressions"
EXAMPLES = """
examples:
  benchhouse regressions --since 2026-01-01
  benchhouse regressions --since 2026-01-01 model=gpt2 --metric latency_median_ms,memory_peak_rss_infer_mb --markdown
"""
EXIT_CODES = """
exit codes: 0 listed, even if there are none; 1 the database cannot be read; 2 usage
"""


@command(NAME)
def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    parser = command_parser(NAME, __doc__, EXAMPLES, EXIT_CODES)
    add_selection(parser)
    add_settings(parser, COMMON, "since", "until")
    add_metrics(parser)
    parser.add_argument("--no-update", action="store_true", help="only read the stored change points")
    form = parser.add_mutually_exclusive_group()
    add_shared(form, json="regressions as JSON", markdown="regressions as Markdown")
    add_database(parser)
    arguments = parser.parse_args(argv)
    metrics = chosen_metrics(arguments, arguments.metric)
    given = {word: getattr(arguments, word) for word in ("since", "until") if getattr(arguments, word) is not None}
    dates = selection_in(arguments, ",".join(f"{word}={date}" for word, date in given.items()))
    selection = selection_in(arguments, arguments.selection)

    from db.analysis.gate.alerts import OPEN, list_alerts, with_recovery
    from db.analysis.gate.gate import DETECTOR
    from db.analysis.history.changes import open_refreshed, regressions
    from db.analysis.history.histories import results_not_judged, series_too_short, too_short_text, worse_trends
    from db.analysis.selection import unstored
    from db.connection import UnwritableError
    from db.file_copy import copy_unlocked
    from db.warehouse import COPY_FOLDER

    with ExitStack() as stack:
        refreshed, path = None, arguments.db_path
        if not arguments.no_update:
            try:
                refreshed = open_refreshed(path, metrics, lock_timeout_s=arguments.lock_timeout)
            except UnwritableError as error:
                if is_lake(path):
                    note(f"{NAME}: only the stored change points are shown: {error}")
                else:
                    note(f"{NAME}: the change points are not stored: {error}")
                    path = str(copy_unlocked(Path(path), stack.enter_context(temporary_folder(COPY_FOLDER))))
                    refreshed = open_refreshed(path, metrics, lock_timeout_s=arguments.lock_timeout)
        warehouse = stack.enter_context(open_to_read(arguments) if refreshed is None else refreshed[0])
        if refreshed is not None and refreshed[1].series:
            note(f"{NAME}: {refreshed[1].text}")
        found = regressions(warehouse, metrics, dates=dates, selection=selection)
        trends = worse_trends(warehouse, metrics, selection, dates)
        raised = [
            one
            for one in list_alerts(warehouse, selection.within(dates), OPEN)
            if one["detector"] == DETECTOR and one["metric"] in arguments.metric
        ]
        raised = with_recovery(warehouse, raised)
        too_short = {metric.column: series_too_short(warehouse, selection, metric) for metric in metrics}
        why_none = "" if all(series for _, series in too_short.values()) else unstored(warehouse, selection)
        not_judged = {metric: results_not_judged(warehouse, selection.within(dates), metric) for metric in metrics}
    when = "".join(f" {word} {date}" for word, date in given.items())
    if arguments.json:
        print_json([*map(_json, found), *map(_trend_json, trends)])
    elif not found and not trends:
        print(f"no regressions of {', '.join(arguments.metric)}{when}")
        if raised:
            recovered = sum(one["recovered_since"] is not None for one in raised)
            confirmed = sum(one["confirmed_by"] is not None for one in raised)
            told = [f"{confirmed} confirmed"] if confirmed else []
            told += [f"{recovered} recovered since"] if recovered else []
            state = f" ({', '.join(told)})" if told else ", which later runs have to confirm"
            listing = shlex.join(["benchhouse", "alert", "list", *database_flags(arguments.db_path)])
            print(f"{counted(len(raised), 'open alert')} of benchhouse check{state}: see {listing}")
    else:
        from db.analysis.history.history_text import regressions_markdown, regressions_text

        if arguments.markdown:
            print(regressions_markdown(found, f"Regressions of {', '.join(arguments.metric)}{when}", trends))
        else:
            print(regressions_text(found, trends, stdout_page()))
    for column, (short, series) in too_short.items():
        if why := too_short_text(short, series) if series else f"no series is selected{why_none}":
            if arguments.json or found or trends:
                note(f"{NAME}: {column}: {why}")
            else:
                print(f"{column}: {why}")
    from db.analysis.history.history_text import value_text

    for metric, count in not_judged.items():
        if count:
            note(f"{NAME}: not judged: {counted(count, 'result')} without {value_text(metric)}")
    return EXIT_OK


def _json(one: Regression) -> dict[str, Any]:
    from dataclasses import asdict

    fields = plain_values(
        {name: value for name, value in asdict(one).items() if name not in ("metric", "common_shift")}
    )
    shift = None if one.common_shift is None else {**asdict(one.common_shift), "text": one.common_shift.text}
    return {"metric": one.metric.column, "unit": one.metric.unit, **fields, "together": shift}


def _trend_json(one: WorseTrend) -> dict[str, Any]:
    """The fields that a trend shares with a regression, with the state "trend" and without commits to blame."""
    from dataclasses import asdict

    return {
        "metric": one.metric.column,
        "unit": one.metric.unit,
        "state": "trend",
        **one.subject,
        "point": plain_values(asdict(one.point)),
        "series_id": one.series_id,
        "last_good_commit": None,
        "first_bad_commit": None,
        "value_before": one.first.value,
        "value_after": one.newest.value,
        "relative_change": one.trend.change,
        "change_per_run": one.trend.per_run,
        "runs": one.trend.runs,
        "since": one.since.isoformat(),
        "result_id": one.newest.result_id,
    }


if __name__ == "__main__":
    sys.exit(main())
