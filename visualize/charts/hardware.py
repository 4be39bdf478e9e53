"""Charts of a model across hardware: its latency on every configuration, and the speedup over a baseline device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from benchmarking.core.text import number as exact
from visualize.drawing import words
from visualize.drawing.batch_charts import BATCH_LABEL
from visualize.drawing.configurations import (
    CONFIGURATION,
    LABEL_IN,
    MOST_COLOURS,
    Ratio,
    configurations,
    cut_note,
    fastest,
    finding,
    reach,
    rows_panel,
    speedup,
)
from visualize.drawing.figure import NotDrawn, Panel
from visualize.drawing.marks import (
    Series,
    ends,
    figure,
    held,
    held_names,
    legend,
    marks_of,
    spread,
    states_legend,
)
from visualize.drawing.rows import LATENCY, POINT_COLUMNS, SUBJECT, ChartPlugin, Drawing, Row, grouped, is_ok, trust
from visualize.drawing.scales import Axis, log_ticks, number, size_axis, spans_decade, ticks, value_axis

UNSHARED = "measured on a single configuration"
MOST_PANELS = 9
COLUMNS, PANEL_WIDTH_IN, PANEL_HEIGHT_IN = 3, 3.0, 2.7


class HardwareComparison(ChartPlugin):
    name = "hardware_comparison"
    title = "Latency by hardware"
    needs = "a model measured at the same points on two devices, runtimes or precisions"
    columns = LATENCY
    newest = "comparable"
    alike = SUBJECT

    def drawing(self, key: Row, members: Sequence[Row]) -> Drawing:
        drawn = [row for row in members if is_ok(row) and row["validity"] != "invalid" and row["value"] is not None]
        if not drawn:
            return words.nothing_to_draw(members)
        count = len(grouped(drawn, CONFIGURATION))
        if count > 1:  # only points that two configurations share
            places = {(_at(row, ("batch_size", *POINT_COLUMNS)), _at(row, CONFIGURATION)) for row in drawn}
            shared = Counter(point for point, _ in places)
            drawn = [row for row in drawn if shared[_at(row, ("batch_size", *POINT_COLUMNS))] > 1]
        if not drawn:
            return f"{count} configurations, but no two share a point"
        series, slower = fastest(configurations(drawn), MOST_COLOURS)
        groups = grouped([row for one in series for row in one.rows], POINT_COLUMNS)
        shown = spread(groups, MOST_PANELS)
        drawn = [row for _, rows in shown for row in rows]
        x = size_axis(BATCH_LABEL, sorted({int(row["batch_size"]) for row in drawn}), 6)
        y = value_axis(words.value_title("latency_median_ms"), ends(drawn))
        columns = min(len(shown), COLUMNS)
        panels = []
        for point, rows in shown:
            here = set(map(id, rows))
            parts = [(one, [row for row in one.rows if id(row) in here]) for one in series]
            lines = tuple(one.line(marks_of(part, "batch_size")) for one, part in parts if part)
            title = words.unbroken(words.point(point, with_batch=False))
            panels.append(Panel(x=x, y=y, elements=lines, title=title, height_in=PANEL_HEIGHT_IN))
        kept = set(map(id, drawn))
        series = [one for one in series if kept.intersection(map(id, one.rows))]
        left_out = (slower, words.left_out(len(groups) - len(shown), len(groups), "panels"))
        alone = "Only one configuration has results, so there is no comparison." if len(series) == 1 else None
        notes = words.caption(
            words.accountable(members, drawn, *left_out), drawn, words.interval(drawn), lacking=(alone, *left_out),
            named=words.cell_and_point, otherwise=UNSHARED,
        )  # fmt: skip
        width_in = max(6.4, PANEL_WIDTH_IN * columns)
        return figure(
            self, key, drawn, panels, notes=notes, columns=columns, width_in=width_in, legend=legend(series, drawn)
        )


def _at(row: Row, columns: Sequence[str]) -> tuple[object, ...]:
    return tuple(row[column] for column in columns)


PANEL_IN, MOST_BATCHES = 2.9, 3
AXIS = "Speedup over the baseline\nhigher is better"
ROOM = 1.45
"""Length of a linear axis as a multiple of the largest speedup; the rest is room for labels."""
LOG_ROOM = 0.6
"""The same room on a log axis, as a share of the distance from the smallest to the largest speedup."""


class HardwareSpeedup(ChartPlugin):
    name = "hardware_speedup"
    title = "Speedup by hardware"
    needs = "a model measured at the same point on two devices"
    columns = f"""{LATENCY}, $baseline IS NOT NULL AS is_baseline_chosen, coalesce(
        $baseline IN (run.device, split_part(run.device, ':', 1), hardware.device_name), FALSE
    ) AS is_on_baseline"""
    newest = "comparable"
    is_judged = True
    alike = (*SUBJECT, *POINT_COLUMNS)

    def drawing(self, key: Row, members: Sequence[Row]) -> Drawing:
        drawn = [row for row in members if is_ok(row) and row["value"]]
        what = f"{self.title}: {key['model_id']} at {words.point({**key, 'batch_size': 1}, with_batch=False)}"
        if len({row["hardware_id"] for row in drawn}) < 2:
            return None  # a single device has nothing to compare with
        baseline = _baseline(drawn)
        if baseline is None:
            return NotDrawn(what=what, why="no valid result on the --baseline device")
        sizes = {row["batch_size"] for row in baseline.rows}
        compared = [row for row in drawn if row["batch_size"] in sizes]
        if len({row["hardware_id"] for row in compared}) < 2:
            return NotDrawn(what=what, why=f"no batch size of {baseline.label} was measured on another device")
        series, left_out = fastest(configurations(compared))
        at = {row["batch_size"]: row for row in baseline.rows}
        batches = sorted(at)
        if len(batches) > MOST_BATCHES:
            batches = [batches[0], batches[len(batches) // 2], batches[-1]]
        shown = [row for one in series for row in one.rows if row["batch_size"] in batches]
        ratios = {id(row): speedup(at[row["batch_size"]], row) for row in shown}
        highs = [ratio.high for ratio in ratios.values()]
        # The axis begins at 0, or is logarithmic if values span a decade, with room for labels.
        values = [ratio.value for ratio in ratios.values()]
        shortest, longest = min(values), reach(values, highs)
        if spans_decade(values):
            low, high = shortest / (longest / shortest) ** 0.06, longest * (longest / shortest) ** LOG_ROOM
            x = Axis(title=AXIS, low=low, high=high, ticks=log_ticks(low, high), is_log=True, is_value=True)
        else:
            high = longest * ROOM
            x = Axis(title=AXIS, low=0.0, high=high, ticks=ticks(0.0, high, 5), is_value=True)
        panels = [
            rows_panel(
                series, [row for row in shown if row["batch_size"] == batch], lambda row: ratios[id(row)],
                lambda row: _remark(row, ratios[id(row)]), x, words.axis("batch_size", batch),
            )
            for batch in batches
        ]  # fmt: skip
        # The fastest device against the baseline's, each with its best configuration.
        base = at[batches[0]]
        ranked = [
            row for row in shown if row["batch_size"] == batches[0] and trust(row) != "invalid" and not row["simulated"]
        ]
        others = [row for row in ranked if row["hardware_id"] != base["hardware_id"]]
        rivals = [base, *(min(rows, key=_latency) for _, rows in grouped(others, ("hardware_id",)))]
        best = min(rivals, key=_latency)
        result = None if best is base else finding((words.device(best), best), (words.device(base), base), rivals)
        skipped = [size for size in sorted(at) if size not in batches]
        notes = words.caption(
            [row for row in words.accountable(members, shown, left_out) if row["batch_size"] not in skipped],
            shown,
            f"Baseline: {baseline.label}, the best configuration of its device.",
            words.interval(shown, "Whisker", "the speedup of "),
            cut_note(highs, x.high),
            result.note if result else None,
            lacking=(
                f"Batch sizes without a panel: {', '.join(map(str, skipped))}." if skipped else None,
                left_out,
            ),
            named=words.cell_and_point,
            otherwise="left out or without a baseline",
        )
        told = f"{result.text} at batch {batches[0]}" if result else None
        return figure(
            self, key, shown, panels, told, place=[held(key)], names=held_names(key), notes=notes, columns=len(panels),
            width_in=LABEL_IN + PANEL_IN * len(batches), legend=states_legend(shown),
        )  # fmt: skip


def _baseline(drawn: Sequence[Row]) -> Series | None:
    """The best configuration of the chosen device, or else of the device whose best configuration is slowest, with its
    result at each batch size."""
    sound = [row for row in drawn if trust(row) != "invalid" and not row["simulated"]]
    if drawn[0]["is_baseline_chosen"]:
        sound = [row for row in drawn if trust(row) != "invalid" and row["is_on_baseline"]]
    if not sound:
        return None
    batch = min(row["batch_size"] for row in sound)
    best = {
        key["hardware_id"]: min((row for row in rows if row["batch_size"] == batch), key=_latency, default=None)
        for key, rows in grouped(sound, ("hardware_id",))
    }
    chosen = max((row for row in best.values() if row is not None), key=_latency)
    (line,) = configurations([row for row in sound if all(row[name] == chosen[name] for name in CONFIGURATION)])
    return line


def _latency(row: Row) -> float:
    return float(row["value"])


def _remark(row: Row, ratio: Ratio) -> str:
    times = f"{exact(ratio.value, 3)}\N{MULTIPLICATION SIGN} ({number(row['value'])} ms)"
    if row["simulated"]:
        return "simulated, not ranked"
    return "invalid, not ranked" if trust(row) == "invalid" else times


PLUGINS = (HardwareComparison(), HardwareSpeedup())
