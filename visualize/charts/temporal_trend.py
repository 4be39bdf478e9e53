"""A metric of each series over time: runs, levels, change points, changed software versions, and user notes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

from benchmarking.core.metrics import DEFAULT_METRIC, DESCRIBED, Metric
from visualize.drawing import words
from visualize.drawing.layout import FigureText, finish, new_figure, wrap
from visualize.drawing.lines import doubtful_entries, draw_trusted
from visualize.drawing.rows import ChartPlugin, Drawing, NotDrawn, Row, Selection, drawable, grouped
from visualize.drawing.style import SMALL_SIZE, TEXT_SIZE, colour, look, theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from db.analysis.history.histories import History
    from db.warehouse import Warehouse

# Every measured result of the series, in the order and selection of `histories`. That excludes invalid results, which
# are drawn but not judged.
SQL = """
SELECT r.*, {value} AS value, {low} AS low, {high} AS high, places.device_place
FROM all_results r
JOIN (
    SELECT hardware_id, row_number() OVER (ORDER BY first_seen_at, hardware_id) - 1 AS device_place FROM hardware_info
) places USING (hardware_id)
WHERE r.series_id IN (SELECT unnest(?::VARCHAR[])) AND r.status = 'ok' AND value IS NOT NULL AND ({condition})
ORDER BY r.series_id, r.history_time, r.started_at, r.result_id
"""
NOTES = """
SELECT target_id, note FROM annotations
WHERE target_id IN (SELECT unnest(?::VARCHAR[])) AND target_kind IN ('run', 'result', 'series') ORDER BY created_at
"""
MOST_SERIES = 12
COLUMNS, WIDTH_IN = 2, 9.6
PANEL_IN, LOW_PANEL_IN, FEW = 2.5, 2.1, 4
"""Height of a panel, the lower height of many panels, and the number of panels up to which the first is used."""
MOST_LISTED = 6
"""Maximum versions and user notes in the caption."""
ORDER = "by commit time, or by run time without a commit"
SEGMENTS = "Steps: median level between changes; dashed lines: changes."


class TemporalTrend(ChartPlugin):
    name = "temporal_trend"
    title = "A metric over time"
    needs = "a series with two or more runs (--metric selects the metric)"
    sql = SQL
    has_metric = True

    def rows(self, warehouse: Warehouse, selection: Selection) -> list[Row]:
        """One row per measured result of each selected series, with its segment and the change that begins it."""
        from db.analysis.history.histories import histories
        from db.analysis.selection import Selection as Words
        from db.analysis.selection import judged_metric, judged_value

        metric = judged_metric(warehouse, selection.metric or DEFAULT_METRIC)
        condition, values = _condition(selection)
        selected = Words(text="", words=condition, values=values)
        found, _ = histories(warehouse, selected, metric)
        levels = {result: level for history in found for result, level in _levels(history).items()}
        ids = [history.series_id for history in found]
        sql = SQL.format(condition=condition, value=judged_value(metric), **_bounds(metric))
        rows = warehouse.query(sql, [ids, *values]).dicts()
        nothing = {"segment": None, "level": None, "change": None, "change_state": None}
        notes = _notes(warehouse, rows)
        return [
            drawable(
                {**row, **levels.get(row["result_id"], nothing), "notes": notes[row["result_id"]], "metric": metric}
            )
            for row in rows
        ]

    def draw(self, rows: Sequence[Row]) -> Iterator[Drawing | NotDrawn]:
        for key, members in grouped(rows, ("model_id",)):
            series = [runs for _, runs in grouped(members, ("series_id",)) if len(runs) > 1]
            if series:
                yield _drawing(key, series)
            else:
                what = f"{_heading_of(members[0])}: {key['model_id']}"
                yield NotDrawn(what=what, why="every series has a single run")


def _condition(selection: Selection) -> tuple[str, tuple[Any, ...]]:
    """The selection as a condition on the view all_results, with its parameter values."""
    parts: list[tuple[str, tuple[Any, ...]]] = []
    for column in ("model_id", "runtime", "precision"):
        if getattr(selection, column) is not None:
            parts.append((f"{column} = ?", (getattr(selection, column),)))
    if selection.device is not None:
        parts.append(("(device = ? OR split_part(device, ':', 1) = ?)", (selection.device, selection.device)))
    if selection.results is not None:
        parts.append(("result_id IN (SELECT unnest(?::VARCHAR[]))", (list(selection.results),)))
    return " AND ".join(condition for condition, _ in parts) or "TRUE", tuple(v for _, values in parts for v in values)


def _bounds(metric: Metric) -> dict[str, str]:
    """Columns of the interval ends; NULL for metrics without an interval."""
    has_one = metric.source == "samples" and metric.statistic == "median"
    described = DESCRIBED.get(metric.of, ()) if has_one else ()
    columns: dict[str, str] = {one.statistic: one.column for one in described}
    return {end: columns.get(f"ci_{end}", "NULL") for end in ("low", "high")}


def _levels(history: History) -> dict[str, dict[str, Any]]:
    """For each result, the number and median of its segment, and for the first result of a segment its change."""
    changes = {change.first_changed.result_id: change.change for change in history.change_points}
    segments: list[list[str]] = [[]]
    for point in history.points:
        if point.result_id in changes and segments[-1]:
            segments.append([])
        segments[-1].append(point.result_id)
    values = {point.result_id: point.value for point in history.points}
    levels = {}
    for number, segment in enumerate(segments):
        for result in segment:
            change = changes.get(result)
            levels[result] = {
                "segment": number,
                "level": median(values[name] for name in segment),
                "change": change.relative_change if change else None,
                "change_state": change.state if change else None,
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


def _drawing(key: Row, series: Sequence[list[Row]]) -> Drawing:
    ordered = sorted(series, key=lambda rows: (all(row["change"] is None for row in rows), -len(rows)))
    shown = ordered[:MOST_SERIES]
    columns = min(COLUMNS, len(shown))
    lines = -(-len(shown) // columns)
    listed: list[str] = []
    panel_in = PANEL_IN if len(shown) <= FEW else LOW_PANEL_IN
    with theme():
        width_in = WIDTH_IN if columns > 1 else WIDTH_IN * 0.75
        figure, panels = new_figure(width_in, panel_in * lines + 0.4, lines, columns, sharex=False, sharey=False)
        for place, (axes, rows) in enumerate(zip(panels, shown, strict=False)):
            _draw_series(axes, rows, listed)
            axes.set_title(wrap(_heading(rows[-1]), TEXT_SIZE, width_in / columns - 1.3), loc="left", x=0)
            if place % columns == 0:
                axes.set_ylabel(words.metric_title(rows[-1]["metric"]))
        for axes in panels[len(shown) :]:
            axes.remove()
        finish(figure, _figure_text(key, series, shown, listed))
    metric = str(shown[0][0]["metric"].column)
    return Drawing(figure=figure, name_parts=(str(key["model_id"]), *([metric] if metric != DEFAULT_METRIC else [])))


def _heading_of(row: Row) -> str:
    """ "Latency per call over time" """
    return f"{words.metric_name(row['metric'])} over time"


def _heading(row: Row) -> str:
    return words.unbroken(f"{words.cell(row)}: {words.point(row)}")


def _draw_series(axes: Axes, rows: Sequence[Row], listed: list[str]) -> None:
    """Draw runs, levels and changes of a series. Text too long for the panel is appended to `listed`."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num

    times = [float(date2num(row[_time_of(rows)])) for row in rows]  # type: ignore[no-untyped-call]
    place = rows[-1]["device_place"]
    for time, row in zip(times, rows, strict=True):
        if row["low"] is not None and row["high"] is not None:
            axes.vlines(time, row["low"], row["high"], color=colour(place), linewidth=1, alpha=0.5, label="_interval")
    points = [(time, row["value"], row) for time, row in zip(times, rows, strict=True)]
    draw_trusted(axes, points, colour(place), place, "run", size=4.5)
    ends = [row[end] for row in rows for end in ("value", "low", "high") if row[end] is not None]
    margin = 0.15 * (max(ends) - min(ends)) or 0.05 * max(ends)
    axes.set_ylim(min(ends) - margin, max(ends) + 1.6 * margin)  # not from 0, which would hide a change of 2 %
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.4g}")
    _draw_levels(axes, times, rows)
    for before, (time, row) in zip(rows, list(zip(times, rows, strict=True))[1:], strict=False):
        changed = _changed_versions(before, row)
        if changed:
            _flag(axes, time, str(1 + sum(text[0].isdigit() for text in listed)), changed, listed, look().grey)
    for time, row in zip(times, rows, strict=True):
        for note in row["notes"]:
            letter = ascii_uppercase[sum(text[0].isalpha() for text in listed) % len(ascii_uppercase)]
            _flag(axes, time, letter, words.shortened(note), listed, look().ink)
    locator = AutoDateLocator(minticks=2, maxticks=6)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    margin = (times[-1] - times[0]) * 0.04 or 0.5
    axes.set_xlim(times[0] - margin, times[-1] + margin)


def _time_of(rows: Sequence[Row]) -> str:
    """The time column of a series: the start of its runs if all have the same commit."""
    return "history_time" if len({row["history_time"] for row in rows}) > 1 else "started_at"


def _draw_levels(axes: Axes, times: Sequence[float], rows: Sequence[Row]) -> None:
    judged = [(time, row) for time, row in zip(times, rows, strict=True) if row["segment"] is not None]
    for _, segment in grouped([{**row, "at": time} for time, row in judged], ("segment",)):
        axes.plot(
            [segment[0]["at"], segment[-1]["at"]], [segment[0]["level"]] * 2, color=look().ink, linewidth=1.4,
            label=f"_level {segment[0]['segment']}", zorder=3,
        )  # fmt: skip
    for time, row in judged:
        if row["change"] is not None:
            axes.axvline(time, color=look().grey, linestyle="--", linewidth=1, label="_change")
            state = "" if row["change_state"] == "confirmed" else " (suspected)"
            is_late = 2 * time > times[0] + times[-1]
            axes.annotate(
                f"{row['change']:+.1%}{state}", (time, 0), xycoords=("data", "axes fraction"),
                xytext=(-3 if is_late else 3, 4), ha="right" if is_late else "left", textcoords="offset points",
                fontsize=SMALL_SIZE, color=look().ink,
            )  # fmt: skip


def _changed_versions(before: Row, row: Row) -> str:
    """Software that changed since the previous run: "torch 2.13 to 2.14"."""
    old, new = before["versions"] or {}, row["versions"] or {}
    changed = [f"{name} {old[name]} to {new[name]}" for name in sorted(new) if name in old and old[name] != new[name]]
    return ", ".join(changed)


def _flag(axes: Axes, time: float, mark: str, text: str, listed: list[str], own: str) -> None:
    """A mark at the top of the panel, explained in the caption; equal explanations are listed once."""
    known = next((line for line in listed if line.partition(": ")[2] == text), None)
    if known is None:
        listed.append(f"{mark}: {text}")
    mark = known.partition(": ")[0] if known else mark
    axes.annotate(
        mark, (time, 1), xycoords=("data", "axes fraction"), xytext=(0, -3), textcoords="offset points", ha="center",
        va="top", fontsize=SMALL_SIZE, color=own, label=f"_flag {mark}",
        bbox={"boxstyle": "round,pad=0.2", "facecolor": look().background, "edgecolor": own, "linewidth": 0.7},
    )  # fmt: skip


def _figure_text(
    key: Row, series: Sequence[list[Row]], shown: Sequence[list[Row]], listed: Sequence[str]
) -> FigureText:
    drawn = [row for rows in shown for row in rows]
    rest = len(series) - len(shown)
    more = f"; and {len(listed) - MOST_LISTED} more" if len(listed) > MOST_LISTED else ""
    changed = any(row["change"] is not None for row in drawn)
    reading = (
        SEGMENTS if changed else "Line: median level; no change detected.",
        words.interval(drawn, "Vertical lines"),
        f"{'Axes do' if len(shown) > 1 else 'the axis does'} not start at 0.",
    )
    marks = f"Marks: {'; '.join(listed[:MOST_LISTED])}{more}." if listed else ""
    lacking = (
        words.doubts(drawn),
        f"Left out: {rest} of {len(series)} series; series with changes come first. Narrow the selection to see more."
        if rest else None,
    )  # fmt: skip
    title = _title(key, shown)
    return FigureText(
        title=title,
        subtitle=words.subtitle(title, _heading_of(drawn[0]), ORDER),
        source=marks,
        notes=words.sentences(reading, lacking),
        legend=doubtful_entries(drawn),
    )


def _metric(shown: Sequence[list[Row]]) -> str:
    name = words.metric_name(shown[0][0]["metric"])
    return f"{name[0].lower()}{name[1:]}"


def _title(key: Row, shown: Sequence[list[Row]]) -> str:
    """The last confirmed change of a single series, or how many of several series changed."""
    changes = [
        row for rows in shown for row in rows if row["change"] is not None and row["change_state"] == "confirmed"
    ]
    if len(shown) == 1 and changes:
        last = changes[-1]
        day = last["history_time"].date().isoformat()
        verb = "rose" if last["change"] > 0 else "fell"
        return f"{key['model_id']}: {_metric(shown)} {verb} by {abs(last['change']):.1%} on {day}"
    moved = sum(any(row["change_state"] == "confirmed" for row in rows) for rows in shown)
    if len(shown) > 1 and moved:
        return f"{key['model_id']}: {_metric(shown)} changed in {moved} of {len(shown)} series"
    return f"{_heading_of(shown[0][0])}: {key['model_id']}"


PLUGIN = TemporalTrend()
