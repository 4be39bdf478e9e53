"""Shows the newest result of each series, newest first, with the trend of the series.

Failed and invalid results are shown too, marked as such. The trend contains valid and noisy results only.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __package__ in (None, ""):  # run as a file: the path has its folder, not the repository
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarking.core.command_line import command, note
from benchmarking.core.doubts import doubt_notes
from benchmarking.core.errors import EXIT_NOT_ENOUGH_DATA, EXIT_OK
from benchmarking.core.load_doubts import HIGHEST_RATE
from benchmarking.core.metrics import DEFAULT_METRIC, METRICS, THROUGHPUT_AT_MEDIAN, peak_memory_column
from benchmarking.core.provenance import naive_now
from benchmarking.core.quality import quality_lines
from benchmarking.core.records import to_json
from benchmarking.core.tables import Column, table_of, table_text
from benchmarking.core.terminal import stdout_page
from benchmarking.core.text import bars_for, counted, ends, number, sparkline, wrapped
from benchmarking.core.verdicts.launches import (
    INTERVAL,
    NEXT,
    launch_notes,
    next_launch,
    next_launch_text,
    throughput_note,
)
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
from db.values import doubt_word, heading, precision_words, serious_kinds

if TYPE_CHECKING:
    from benchmarking.core.metrics import Metric

NAME = "benchhouse show"
EXAMPLES = """
examples:
  benchhouse show
  benchhouse show model=bert-base-uncased,since=2026-01-01 --rows 50
  benchhouse show runtime=onnxruntime --metric throughput_samples_per_sec --json
"""
EXIT_CODES = """
exit codes: 0 shown; 1 the database cannot be read; 2 usage; 3 nothing to show
"""
DEFAULT_LIMIT = 20
SEARCH = "highest rate"
"""Mark of the outcome of a search for the highest rate (`benchhouse load --find-rate`)."""
TREND_WIDTH = 12
MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400

Row = Mapping[str, Any]


@command(NAME)
def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    parser = command_parser(NAME, __doc__, EXAMPLES, EXIT_CODES)
    add_selection(parser)
    add_shared(parser, metric="metric of the trend")
    add_rows(parser, DEFAULT_LIMIT)
    add_shared(parser, json="rows as JSON, with the values of each trend")
    add_database(parser)
    arguments = parser.parse_args(argv)
    (metric,) = chosen_metrics(arguments, [arguments.metric])
    selection = selection_in(arguments, arguments.selection)
    from db.analysis.history.histories import newest_results
    from db.run_records import qualities as quality_of_runs
    from db.values import SETTINGS

    with open_to_read(arguments) as warehouse:
        rows, count = newest_results(warehouse, selection, metric, limit=arguments.rows)
        qualities = quality_of_runs(warehouse, sorted({row["run_id"] for row in rows}))
    if arguments.json:
        print_json(
            [
                {
                    **plain_values(row),
                    "next_launch": next_launch(row["launch_values"]),
                    "quality": None if row["run_id"] not in qualities else to_json(qualities[row["run_id"]].values),
                }
                for row in rows
            ]
        )
    elif rows:
        page = stdout_page()
        table = table_of(_columns(rows, metric), rows, page)
        # The name of each row in the notes: what tells the rows apart, and its point.
        names = ("model_id", "device_name", "runtime", "precision")
        threads = [row["num_threads"] and counted(row["num_threads"], "thread") for row in rows]
        subjects = [
            [*(_subject(row, name) for name in names), count, row[SETTINGS]]
            for row, count in zip(rows, threads, strict=True)
        ]
        differs = [len(set(values)) > 1 for values in zip(*subjects, strict=True)]
        named = (compress(values, differs) for values in subjects)
        labelled = [
            (" ".join(filter(None, [*values, _point(row)])), row) for values, row in zip(named, rows, strict=True)
        ]
        failures = [f"{label}: {_state(row)}: {row['error']}" for label, row in labelled if row["status"] != "ok"]
        doubts = doubt_notes((kind, label) for label, row in labelled for kind in serious_kinds(row["doubts"] or ()))
        rates = [
            throughput_note(label, row["throughput_samples_per_sec"], row[THROUGHPUT_AT_MEDIAN], "items/s")
            for label, row in labelled
        ]
        launches = launch_notes({label: row["launch_values"] for label, row in labelled}, table.left_out)
        of_runs = {row["run_id"]: f"{row['model_id']} {row['runtime']} {_subject(row, 'precision')}" for row in rows}
        quality = [
            line.replace("quality", f"quality of {name}", 1)
            for run_id, name in of_runs.items()
            if run_id in qualities
            for line in quality_lines(qualities[run_id])
        ]
        notes = [*launches, *dict.fromkeys(quality), *(note for note in rates if note is not None), *failures, *doubts]
        texts = (", ".join(table.shared), "\n".join(notes))
        head, below = (wrapped(text, page.text_width) for text in texts)
        print("\n\n".join(part for part in (head, table_text(table, page), below) if part))
    if not rows:
        why = unstored_in(arguments, arguments.selection)
        note(f"{NAME}: no results in {arguments.selection or 'this database'}{why}")
        return EXIT_NOT_ENOUGH_DATA
    if count > len(rows):
        note(f"{NAME}: {len(rows)} of {count} series: narrow the selection, or raise --rows")
    return EXIT_OK


def _columns(rows: Sequence[Row], metric: Metric) -> tuple[Column[Row], ...]:
    from db.analysis.history.histories import NEWEST_SUBJECTS, RATES
    from db.values import SETTINGS

    now = naive_now()
    bars = bars_for(sys.stdout.encoding)
    key, value = partial(Column[Row], is_key=True), partial(Column[Row], is_number=True)
    rate = next((name for name in RATES if any(row[name] is not None for row in rows)), RATES[-1])
    names = [name for name in dict.fromkeys((metric.column, rate)) if name != DEFAULT_METRIC]
    return (
        *(
            key(heading=heading(name), text=partial(_subject, name=name), spare=2 * (name == "device_name"))
            for name in NEWEST_SUBJECTS
        ),
        key(heading=SETTINGS, text=lambda row: row[SETTINGS]),
        key(heading="point", text=_point),
        value(heading=_heading(DEFAULT_METRIC), text=partial(_number, name=DEFAULT_METRIC)),
        value(heading=INTERVAL, text=_interval, spare=3),
        *(value(heading=_heading(name), text=partial(_number, name=name)) for name in names[:-1]),
        value(heading=NEXT, text=lambda row: next_launch_text(row["launch_values"]), spare=4),
        *(value(heading=_heading(name), text=partial(_number, name=name)) for name in names[-1:]),
        value(heading="peak MB", text=_peak_memory, spare=1),
        Column("trend", lambda row: sparkline(row["trend"], TREND_WIDTH, bars) if len(row["trend"]) > 1 else None),
        Column("age", lambda row: age((now - row["started_at"]).total_seconds())),
        Column("state", _state, is_state=True),
    )


def _heading(name: str) -> str:
    return (METRICS[name].heading if name in METRICS else "") or name


def _subject(row: Row, name: str) -> str | None:
    if name == "precision":
        return precision_words(row["precision"], row["runtime_mode"])
    return None if row[name] is None else str(row[name])


def _point(row: Row) -> str:
    from benchmarking.core.records import Point

    label, rate = Point.from_columns(row).label, row[HIGHEST_RATE]
    if not row["is_search"]:
        return label
    return f"{label} {SEARCH}" if rate is None else f"{label} {SEARCH} {number(rate)}/s"


def _number(row: Row, name: str) -> str | None:
    return None if row[name] is None else number(row[name])


def _interval(row: Row) -> str | None:
    """The interval of the typical launch; None where it would only cover the calls of the measured launches."""
    low, high = row["latency_ci_low_ms"], row["latency_ci_high_ms"]
    return None if low is None or high is None or row["ci_scope"] != "between" else " .. ".join(ends(low, high))


def _peak_memory(row: Row) -> str | None:
    found = peak_memory_column(row)
    return None if found is None else f"{row[found]:.0f}"


def _state(row: Row) -> str:
    if row["status"] != "ok":
        return str(row["status"]).replace("_", " ")
    return doubt_word(serious_kinds(row["doubts"] or ())) or "ok"


def age(seconds: float) -> str:
    """A duration in one unit: "now", "5 min", "3 h", "12 d"."""
    if seconds < MINUTE_S:
        return "now"
    size, unit = next(
        ((size, unit) for size, unit in ((DAY_S, "d"), (HOUR_S, "h")) if seconds >= size), (MINUTE_S, "min")
    )
    return f"{seconds // size:.0f} {unit}"


if __name__ == "__main__":
    sys.exit(main())
