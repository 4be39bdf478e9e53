"""A metric of each series over time: runs, levels, change points, changed software versions, and user notes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import chain, pairwise
from statistics import median
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

from benchmarking.core.axes import AXES
from benchmarking.core.metrics import DEFAULT_METRIC, DESCRIBED, Metric
from benchmarking.core.text import counted, distinct_names
from db.values import percent_change
from visualize.drawing import words
from visualize.drawing.figure import Colour, Element, Figure, Line, Mark, NotDrawn, Note, Panel, Rule
from visualize.drawing.marks import ends, mark, states_legend
from visualize.drawing.rows import (
    PLACES,
    ChartPlugin,
    Drawing,
    Row,
    Selection,
    details,
    drawable,
    grouped,
    sort_key,
)
from visualize.drawing.scales import close_axis, seconds_of, time_axis
from visualize.drawing.style import COLOURS

if TYPE_CHECKING:
    from db.analysis.history.detector import Trend
    from db.analysis.history.histories import History
    from db.analysis.selection import Selection as Words
    from db.warehouse import Warehouse

# Every measured result of the series, in the order and selection of `histories`. That excludes invalid results, which
# are drawn but not judged. The series are values of the statement, for which DuckDB skips whole row groups;
# from a subquery it would read every column of all results.
SQL = """
SELECT {columns}, {value} AS value, {low} AS low, {high} AS high, places.device_place
FROM all_results r
JOIN {places} USING (hardware_id)
WHERE r.series_id IN ({series}) AND r.status = 'ok' AND value IS NOT NULL AND ({condition})
ORDER BY r.series_id, r.history_time, r.started_at, r.result_id
"""
NOT_MEASURED = """
SELECT r.series_id, CASE WHEN r.status = 'ok' THEN 'without a value' ELSE r.status END AS why, count(*) AS results
FROM all_results r
WHERE r.series_id IN ({series}) AND (r.status <> 'ok' OR {value} IS NULL) AND ({condition})
GROUP BY ALL ORDER BY ALL
"""
APART = ("runtime_mode", "num_threads", "cpu_list", "hardware_id", "task", "weights", "model_revision", "config_hash")
"""Columns that tell series of the same device, runtime, precision and point apart."""
COLUMNS_READ = ", ".join(
    f"r.{name}"
    for name in (
        *("result_id", "run_id", "series_id", "model_id", "started_at", "history_time", "git_commit", "versions"),
        *("status", "error", "validity", "doubts", "launches", "ci_scope", "device", "device_name", "simulated"),
        *("runtime", "precision", *APART, *AXES, "axes", "origin_format"),
    )
)
"""Not every column of the view: of a million results, those not needed take as long as the rest of the page."""
NOTES = """
SELECT target_id, note FROM annotations
WHERE target_id IN (SELECT unnest(?::VARCHAR[])) AND target_kind IN ('run', 'result', 'series') ORDER BY created_at
"""
MOST_SERIES = 12
COLUMNS, WIDTH_IN = 2, 9.6
PANEL_IN = 2.5
"""Height of a panel: room for the title of its axis."""
CHANGES_AT, FLAGS_AT = 0.96, 0.885
"""Heights of the texts of changes and of flags, above all points (`close_axis`), as shares of a panel."""
MOST_LISTED, MOST_TRENDS = 6, 3
"""Maximum versions and user notes, and slow trends, in the caption."""
ORDER = "by commit time, or by run time if there is no commit or only one"
UNCHANGED = "Line: median level; no lasting change detected"
SEGMENTS = "Steps: median level between changes; dashed lines: changes."


class TemporalTrend(ChartPlugin):
    name = "temporal_trend"
    title = "A metric over time"
    needs = "a series with two or more runs (--metric selects the metric)"
    columns = ""
    has_metric = True
    alike = ("model_id",)

    def rows(self, warehouse: Warehouse, selection: Selection) -> list[Row]:
        """One row per measured result of each selected series, with its segment and the change that begins it."""
        from db.analysis.history.histories import histories
        from db.analysis.selection import Selection as Words
        from db.analysis.selection import judged_metric

        metric = judged_metric(warehouse, selection.metric or DEFAULT_METRIC)
        parts: list[tuple[str, tuple[Any, ...]]] = []  # conditions on the view all_results
        for column in ("model_id", "runtime", "precision"):
            if getattr(selection, column) is not None:
                parts.append((f"{column} = ?", (getattr(selection, column),)))
        if selection.device is not None:
            parts.append(("(device = ? OR split_part(device, ':', 1) = ?)", (selection.device, selection.device)))
        if selection.results is not None:
            parts.append(("result_id IN (SELECT unnest(?::VARCHAR[]))", (list(selection.results),)))
        condition = " AND ".join(one for one, _ in parts) or "TRUE"
        selected = Words(text="", words=condition, values=tuple(value for _, values in parts for value in values))
        found, _ = histories(warehouse, selected, metric)
        return self.rows_of(warehouse, found, metric, selected)

    def rows_of(self, warehouse: Warehouse, found: Sequence[History], metric: Metric, selected: Words) -> list[Row]:
        """The rows of these series within the selection."""
        from db.analysis.selection import judged_value

        levels = {result: level for history in found for result, level in _levels(history).items()}
        ids = [history.series_id for history in found]
        if not ids:
            return []
        # Columns of the interval ends; NULL for metrics without an interval.
        has_one = metric.source == "samples" and metric.statistic == "median"
        described = DESCRIBED.get(metric.of, ()) if has_one else ()
        columns: dict[str, str] = {one.statistic: one.column for one in described}
        bounds = {end: columns.get(f"ci_{end}", "NULL") for end in ("low", "high")}
        series = ", ".join("?" * len(ids))
        sql = SQL.format(
            columns=COLUMNS_READ,
            places=PLACES,
            series=series,
            condition=selected.condition,
            value=judged_value(metric),
            **bounds,
        )
        rows = warehouse.query(sql, [*ids, *selected.values]).dicts()
        nothing: Row = {
            "is_searched": False,
            **dict.fromkeys(("segment", "level", "change", "change_state", "since", "trend")),
        }
        notes = _notes(warehouse, rows)
        sql = NOT_MEASURED.format(series=series, condition=selected.condition, value=judged_value(metric))
        missing: dict[str, dict[str, int]] = {}
        for row in warehouse.query(sql, [*ids, *selected.values]).dicts():
            missing.setdefault(row["series_id"], {})[row["why"]] = row["results"]
        return [
            drawable(
                {
                    **row,
                    **levels.get(row["result_id"], nothing),
                    "notes": notes[row["result_id"]],
                    "metric": metric,
                    "not_measured": missing.get(row["series_id"], {}),
                }
            )
            for row in rows
        ]

    def drawing(self, key: Row, members: Sequence[Row]) -> Drawing:
        several = [runs for _, runs in grouped(members, ("series_id",)) if len(runs) > 1]
        series = [runs for runs in several if len({row[time_of(runs)] for row in runs}) > 1]
        if series:
            return trend_figure(key, series)
        what = f"{words.metric_name(members[0]['metric'])} over time: {key['model_id']}"
        alone = "all runs of a series have the same time" if several else "every series has a single run"
        return NotDrawn(what=what, why=alone)


def _levels(history: History) -> dict[str, dict[str, Any]]:
    """For each result, the number and median of its segment, for the first result of a segment its change, whether its
    series has enough runs to be searched for changes, and its trend."""
    from db.analysis.history.histories import LEAST_RUNS

    changes = {change.first_changed.result_id: change for change in history.change_points}
    segments: list[list[str]] = [[]]
    for point in history.points:
        if point.result_id in changes and segments[-1]:
            segments.append([])
        segments[-1].append(point.result_id)
    values = {point.result_id: point.value for point in history.points}
    levels = {}
    for number, segment in enumerate(segments):
        for result in segment:
            found = changes.get(result)
            change = found.change if found else None
            levels[result] = {
                "segment": number,
                "level": median(values[name] for name in segment),
                "change": change.relative_change if change else None,
                "change_state": change.state if change else None,
                "since": found.since if found else None,
                "is_searched": history.runs >= LEAST_RUNS,
                "trend": history.trend,
            }
    return levels


def _notes(warehouse: Warehouse, rows: Sequence[Row]) -> dict[str, list[str]]:
    """User notes by result; a note about a series belongs to its newest result."""
    newest = {row["series_id"]: row["result_id"] for row in rows}
    at = {row["result_id"]: [row["result_id"], row["run_id"]] for row in rows}
    for series, result in newest.items():
        at[result].append(series)
    targets = sorted({target for names in at.values() for target in names})
    notes: dict[str, list[str]] = {}
    for row in warehouse.query(NOTES, [targets]).dicts() if targets else []:
        notes.setdefault(row["target_id"], []).append(row["note"])
    return {result: [note for name in names for note in notes.get(name, ())] for result, names in at.items()}


def trend_figure(key: Row, series: Sequence[list[Row]]) -> Figure:
    """The series of a model, each in its panel, those with changes first, then the longest, else by setup and point."""

    def place(rows: Sequence[Row]) -> tuple[Any, ...]:
        named = ("device_name", "device", "runtime", "precision", "sequence_length", *AXES)
        return all(row["change"] is None for row in rows), -len(rows), *(sort_key(rows[-1][name]) for name in named)

    ordered = sorted(series, key=place)
    shown = ordered[:MOST_SERIES]
    columns = min(COLUMNS, len(shown))
    listed: list[str] = []
    newest = [rows[-1] for rows in shown]
    plain = [words.unbroken(f"{words.cell(row)}: {words.point(row)}") for row in newest]
    titles = distinct_names(plain, [details(row, APART) for row in newest], ", ")
    panels = tuple(_panel(rows, title, listed) for title, rows in zip(titles, shown, strict=True))
    drawn = [row for rows in shown for row in rows]
    metric, rest = str(drawn[0]["metric"].column), len(series) - len(shown)
    more = f"; and {len(listed) - MOST_LISTED} more" if len(listed) > MOST_LISTED else ""
    changed = any(row["change"] is not None for row in drawn)
    left_out = (
        f"Left out: {rest} of {len(series)} series; series with changes come first. Narrow the selection to see more."
    )
    found = [trend for rows in series if (trend := _trend(rows)) is not None]
    of = "" if len(series) == 1 else f" in {len(found)} of {len(series)} series"
    steps = ", ".join(f"{trend.per_run:+.2%} a run over {trend.runs} runs" for trend in found[:MOST_TRENDS])
    slow = f"Slow trend{of}, for which no single run is to blame: {steps}." if found else None
    # The last confirmed change of a single series, or how many of several series changed.
    heading = f"{words.metric_name(drawn[0]['metric'])} over time"
    name = heading[0].lower() + heading[1:].removesuffix(" over time")
    confirmed = [row for row in drawn if row["change"] is not None and row["change_state"] == "confirmed"]
    moved = sum(any(row["change_state"] == "confirmed" for row in rows) for rows in series)
    title = f"{heading}: {key['model_id']}"
    if len(shown) == 1 and confirmed:
        last = confirmed[-1]
        verb = "rose" if last["change"] > 0 else "fell"
        by = f"by {abs(last['change']):.1%}" if math.isfinite(last["change"]) else "from 0"
        title = f"{key['model_id']}: {name} {verb} {by} on {last['since']:%Y-%m-%d}"
    elif len(shown) == 1 and (trend := _trend(shown[0])) is not None:
        verb = "rises" if trend.change > 0 else "falls"
        title = f"{key['model_id']}: {name} {verb} slowly, by {abs(trend.change):.1%} over {trend.runs} runs"
    elif len(shown) > 1 and moved:
        title = f"{key['model_id']}: {name} changed in {moved} of {len(series)} series"
    return Figure(
        title=title,
        subtitle=words.subtitle(title, heading, ORDER),
        source=f"Marks: {'; '.join(listed[:MOST_LISTED])}{more}." if listed else "",
        notes=words.sentences(
            [SEGMENTS if changed else _unchanged(shown), slow, words.interval(drawn, "Vertical lines")],
            [words.doubts(drawn), _not_judged(drawn), _not_drawn(shown), left_out if rest else None],
        ),
        panels=panels,
        columns=columns,
        width_in=WIDTH_IN if columns > 1 else WIDTH_IN * 0.75,
        legend=states_legend(drawn),
        columns_of_table=("series", "time (UTC)", "commit", words.metric_title(drawn[0]["metric"], ", "), "state"),
        rows=tuple(
            (
                title, f"{row[time_of(rows)]:%Y-%m-%d %H:%M}", (row["git_commit"] or "-")[:10], row["value"],
                row["validity"],
            )
            for title, rows in zip(titles, shown, strict=True)
            for row in reversed(rows)
        ),
        name_parts=(str(key["model_id"]), *([metric] if metric != DEFAULT_METRIC else [])),
    )  # fmt: skip


def _unchanged(shown: Sequence[list[Row]]) -> str:
    """What the lines are, and that no series changed, as far as that can be known."""
    from db.analysis.history.histories import LEAST_RUNS

    short = sum(not any(row["is_searched"] for row in rows) for rows in shown)
    if not short:
        among = " among the points that are judged" if any(map(_is_outside, chain(*shown))) else ""
        return f"{UNCHANGED}{among}."
    if short == len(shown):
        return f"Too few runs to detect a change: {LEAST_RUNS} are needed."
    return f"{UNCHANGED}, but {short} of {len(shown)} series have fewer than the {LEAST_RUNS} runs needed."


def _is_outside(row: Row) -> bool:
    """Whether a point has a value that no change is searched in: relative to 0 or less, there is none."""
    value, is_rate = row["value"], row["metric"].better == "higher"
    return bool(value < 0 or (value == 0 and not is_rate))


def _not_judged(drawn: Sequence[Row]) -> str | None:
    """How many points have a value that is not judged; None without one."""
    outside = sum(map(_is_outside, drawn))
    if not outside:
        return None
    which = "below 0" if drawn[0]["metric"].better == "higher" else "not above 0"
    return f"Not judged: {outside} of {counted(len(drawn), 'point')}, {which}."


def _not_drawn(shown: Sequence[list[Row]]) -> str | None:
    """How many results of the series shown failed or have no value; None without one."""
    missing = Counter[str]()
    for rows in shown:
        missing.update(rows[0]["not_measured"])
    found = ", ".join(f"{count} {why.replace('_', ' ')}" for why, count in missing.most_common())
    return f"Not drawn: {found}." if found else None


def _trend(rows: Sequence[Row]) -> Trend | None:
    """The slow trend of a series, which no row without a segment has."""
    return next((row["trend"] for row in rows if row["trend"] is not None), None)


def _panel(rows: Sequence[Row], title: str, listed: list[str]) -> Panel:
    """Runs, levels and changes of a series. Versions and notes are appended to `listed`, and marked by number or
    letter."""
    shown_time = time_of(rows)
    times = [seconds_of(row[shown_time]) for row in rows]
    place = rows[-1]["device_place"] % len(COLOURS)
    runs = Line(
        label="", role="run", colour=place, shape=0, dashes=None, size=4.5, has_bands=False,
        marks=tuple(
            mark(
                row, time, row["value"], low=row["low"], high=row["high"],
                named=lambda row: f"{row[shown_time]:%Y-%m-%d %H:%M}, commit {(row['git_commit'] or 'none')[:10]}",
            )
            for time, row in zip(times, rows, strict=True)
        ),
    )  # fmt: skip
    # The median level of each segment, and a dashed line with its size at each change. Between two runs, a level would
    # look like a result.
    judged: list[Row] = [{**row, "at": time} for time, row in zip(times, rows, strict=True) if row["is_searched"]]
    elements: list[Element] = []
    for _, segment in grouped(judged, ("segment",)):
        level = tuple(Mark(x=row["at"], y=row["level"]) for row in (segment[0], segment[-1]))
        number = str(segment[0]["segment"])
        elements.append(
            Line(label=number, role="level", marks=level, colour="ink", shape=None, width=1.4, in_table=False)
        )
    for row in judged:
        if row["change"] is not None:
            text = f"{percent_change(row['change'])}{'' if row['change_state'] == 'confirmed' else ' (suspected)'}"
            line = Rule(at=row["at"], along="x", role="change", label=text)
            elements += [line, _note(times, row["at"], CHANGES_AT, text, "ink")]
    elements.append(runs)
    flags: dict[float, list[str]] = {}
    for (_, before), (time, row) in pairwise(zip(times, rows, strict=True)):
        old, new = before["versions"] or {}, row["versions"] or {}
        changed = ", ".join(
            f"{name} {old[name]} to {new[name]}" for name in sorted(new) if old.get(name, new[name]) != new[name]
        )
        if changed:
            flag = _flag(str(1 + sum(text[0].isdigit() for text in listed)), changed, listed)
            flags.setdefault(time, []).append(flag)
    for time, row in zip(times, rows, strict=True):
        for note in row["notes"]:
            letter = ascii_uppercase[sum(text[0].isalpha() for text in listed) % len(ascii_uppercase)]
            flags.setdefault(time, []).append(_flag(letter, words.shortened(note), listed))
    for time, of in flags.items():
        colour: Colour = "ink" if any(map(str.isalpha, of)) else "grey"
        elements.append(_note(times, time, FLAGS_AT, " ".join(of), colour))
    y = close_axis(words.metric_title(rows[-1]["metric"]), ends(rows))
    return Panel(x=time_axis(times), y=y, elements=tuple(elements), title=title, height_in=PANEL_IN)


def time_of(rows: Sequence[Row]) -> str:
    """The time column of a series: the start of its runs if all have the same commit."""
    return "history_time" if len({row["history_time"] for row in rows}) > 1 else "started_at"


def _note(times: Sequence[float], time: float, height: float, text: str, colour: Colour) -> Note:
    """A text beside a time, where the line of a change may be, on the side with more room."""
    is_late = 2 * time > times[0] + times[-1]
    return Note(
        x=time, y=height, text=text, dx=-3 if is_late else 3, align="right" if is_late else "left", colour=colour,
        in_share=True,
    )  # fmt: skip


def _flag(mark: str, text: str, listed: list[str]) -> str:
    """The mark of an explanation, which the source line lists; equal explanations are listed once."""
    known = next((line for line in listed if line.partition(": ")[2] == text), None)
    if known is None:
        listed.append(f"{mark}: {text}")
    return known.partition(": ")[0] if known else mark


PLUGIN = TemporalTrend()
