"""Charts of a quantity against the batch size: one figure per cell, one line per sequence length or other axis."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from benchmarking.core.axes import AXES
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import METRICS
from benchmarking.core.text import number as exact
from visualize.drawing import words
from visualize.drawing.configurations import judged_pairs
from visualize.drawing.figure import Entry, Line, Panel, Rule, end_notes
from visualize.drawing.marks import Series, ends, figure, held, legend, marks_of, not_drawn, spread
from visualize.drawing.rows import (
    CELL,
    ChartPlugin,
    Drawing,
    Row,
    axis_values,
    grouped,
    is_ok,
    measured_apart,
    read_column,
    trust,
    varying,
)
from visualize.drawing.scales import size_axis, spans_decade, value_axis

BATCH_LABEL = AXES["batch_size"].title
ALIKE = ("new_tokens", "concurrency")
"""The axes that all results of a figure share; the other axes make lines."""
MOST_LINES = 10
"""Maximum lines of a figure. With more, the axes with the fewest values make separate figures; a single axis with more
values is thinned out."""
WIDTH_IN, PANEL_HEIGHT_IN = 6.4, 3.5
ONE_POINT = "measured at one batch size, and not along one other axis"


@dataclass(frozen=True, kw_only=True)  # no slots: attributes of ChartPlugin have defaults
class BatchChart(ChartPlugin):
    """A chart against the batch size, or with one batch size against the only axis on which the results differ."""

    name: str
    title: str
    needs: str
    columns: str
    """SELECT list of `value`, `low` and `high` (by default those of the launches), or of the `readings`."""
    value_title: Callable[[Row], str]
    """Name and unit of the values of a row."""
    notes: Callable[[Sequence[Row]], Sequence[str]]
    """Caption sentences about the interval."""
    condition: str = "TRUE"
    quantity: str | None = None
    """Name of the quantity in titles: "peak memory"."""
    judged: str | None = None
    """With None, titles state plain ratios of readings."""
    of_cell: bool = True
    also_by_sequence: bool = False
    """Whether a second panel shows the results against sequence length, which without several batch sizes is the only
    one of each chart."""
    readings: tuple[str, ...] = ()
    """Columns, of which the first with a reading on a device and runtime is the value, without an interval."""
    is_per_input: bool = False
    """Whether a reading is divided by the batch size."""
    reference: Callable[[Sequence[Row]], tuple[str, float] | None] = lambda rows: None
    """A horizontal reference line: (label, value)."""

    def groups(self, rows: Sequence[Row]) -> Iterator[tuple[Row, list[Row]]]:
        if self.readings:
            read: list[Row] = []
            for _, members in grouped(rows, ("hardware_id", "device", "runtime")):
                column = read_column(members, self.readings) or self.readings[0]
                for row in members:
                    value = row[column] / row["batch_size"] if row[column] and self.is_per_input else row[column]
                    read.append({**row, "value": value, "low": None, "high": None, "column": column})
            rows = read
        for key, members in grouped(rows, (*CELL, *ALIKE)):
            # All rows go into one figure unless that has too many lines; then axes get figures of their own.
            drawn = [row for row in members if _is_drawn(row)]
            lines, apart = list(varying(drawn)), list[str]()
            while len(lines) > 1 and len({_at(row, lines) for row in drawn}) > MOST_LINES:
                fewest = min(lines, key=lambda name: len({_at(row, [name]) for row in drawn}))
                lines.remove(fewest)
                apart.append(fewest)
            for place, part in _by_axes(members, apart):
                yield {**members[0], **key, "apart": dict(zip(apart, place, strict=True))}, part

    def drawing(self, key: Row, members: Sequence[Row]) -> Drawing:
        drawn = [row for row in members if _is_drawn(row)]
        if not drawn:
            return None if key["apart"] else words.nothing_to_draw(members)
        sizes = sorted({int(row["batch_size"]) for row in drawn})
        alone = ("sequence_length",) if drawn[0]["sequence_length"] is not None else ()
        names = varying(drawn) or alone
        across = names[0] if len(varying(drawn)) == 1 and all(names[0] in axis_values(row) for row in drawn) else None
        if len(sizes) > 1 and not (self.also_by_sequence and across == "sequence_length"):
            across = None
        is_single = len(sizes) < 2 and across is None
        is_by_batch = len(sizes) > 1 or is_single
        chart = self
        if across is not None and not is_by_batch:
            chart = replace(self, title=self.title.replace("batch size", across.replace("_", " ")))
        groups = _by_axes(drawn, names)
        every = [
            Series(
                label=words.count(place[0] if place else None)
                if len(names) < 2
                else ", ".join(words.axis(name, value) for name, value in zip(names, place, strict=True)),
                rows=tuple(rows),
                style=style,
            )
            for style, (place, rows) in enumerate(groups)
        ]
        series = [replace(one, style=style) for style, one in enumerate(spread(every, MOST_LINES))]
        reference = self.reference(drawn) if is_by_batch else None
        values = ends(drawn)
        reached = [*values, *([reference[1]] if reference else [])]
        y = value_axis(self.value_title(key), reached, may_be_log=spans_decade(values))
        lines: list[Line | Rule] = []
        for one in series:  # which end where a point failed
            place = _at(one.rows[0], names)
            failed = [row["batch_size"] for row in members if not is_ok(row) and _at(row, names) == place]
            parts = grouped(
                [{**row, "part": sum(size < row["batch_size"] for size in failed)} for row in one.rows], ("part",)
            )
            lines += [one.line(marks_of(part, "batch_size")) for _, part in parts]
        if reference:
            lines.append(Rule(at=reference[1], along="y", role="reference", label=reference[0]))
        panels = []
        if is_by_batch:
            panels.append(Panel(x=size_axis(BATCH_LABEL, sizes), y=y, elements=tuple(lines), height_in=PANEL_HEIGHT_IN))
        if across is not None:
            panels.append(_by_axis(across, drawn, len(series) if is_by_batch else 0, self.value_title(key)))
        fixed_axes = {name: value for name, value in axis_values(drawn[0]).items() if name not in names}
        shared = {**key, "sequence_length": fixed_axes.pop("sequence_length", None), "axes": json.dumps(fixed_axes)}
        # The finding is the ratio of the quantity at the largest and smallest batch size (a range over several lines),
        # if valid results of one command support it, and the judge has a verdict on each pair.
        pairs = []
        for _, rows in groups:
            at = {row["batch_size"]: row for row in rows}
            first, last = at.get(sizes[0]), at.get(sizes[-1])
            if first and last and first["value"] and {trust(first), trust(last)} == {"valid"}:
                pairs.append((first, last))
        finding = None
        is_told = self.quantity is not None and len(sizes) > 1 and len(pairs) == len(groups)
        is_told = is_told and not measured_apart(drawn) and not key["simulated"]
        if is_told and self.judged is not None:
            better = METRICS[self.judged].better or "lower"
            is_told = all(judged_pair.verdict != "not judged" for judged_pair in judged_pairs(pairs, better))
        if is_told:
            ratios = [last["value"] / first["value"] for first, last in pairs]
            least, most = (exact(ratio, 2) for ratio in (min(ratios), max(ratios)))
            times = "about" if least == most == "1" else f"{least if least == most else f'{least} to {most}'} times"
            same = "the same as" if times == "about" else "that"
            finding = f"{self.quantity} at batch {sizes[-1]} is {times} {same} at batch {sizes[0]}"
        left_out = words.left_out(len(every) - len(series), len(every), "lines")
        entries = legend(series if names and is_by_batch else (), drawn)
        found = figure(
            chart, key, drawn, panels, finding, place=[held(shared)],
            names=words.point_names(key["new_tokens"], key["concurrency"], key["apart"]),
            notes=words.caption(members, drawn, *self.notes(drawn), lacking=[left_out]),
            columns=len(panels), width_in=WIDTH_IN * (1 + (len(panels) - 1) / 2),
            legend=(*entries, *(() if reference is None else (Entry(label=reference[0], colour="grey", dashes=1),))),
            legend_title=words.axis_title(names[0]) if len(names) == 1 and is_by_batch else None,
        )  # fmt: skip
        return replace(not_drawn(self, key, ONE_POINT), alone=found) if is_single else found


def _is_drawn(row: Row) -> bool:
    return is_ok(row) and row["value"] is not None


def _by_axes(rows: Sequence[Row], names: Sequence[str]) -> list[tuple[tuple[float | None, ...], list[Row]]]:
    """Rows grouped and sorted by their values on the axes."""
    groups = grouped([{**row, **dict(zip(names, _at(row, names), strict=True))} for row in rows], names)
    return [(tuple(key.values()), members) for key, members in groups]


def _at(row: Row, names: Sequence[str]) -> tuple[float | None, ...]:
    return tuple(axis_values(row).get(name) for name in names)


def _by_axis(axis: str, drawn: Sequence[Row], first_style: int, title: str) -> Panel:
    """The results against an axis: one line per batch size, labelled at its end."""

    def at(row: Row) -> float:
        return axis_values(row)[axis]

    y = value_axis(title, ends(drawn))
    series = [
        Series(label=words.axis("batch_size", key["batch_size"]), rows=tuple(rows), style=first_style + number)
        for number, (key, rows) in enumerate(grouped(drawn, ("batch_size",)))
    ]
    lines = [one.line(marks_of(one.rows, at)) for one in series]
    named = end_notes(y, [(line.marks[-1].x, line.marks[-1].y, line.label) for line in lines], PANEL_HEIGHT_IN)
    x = size_axis(words.axis_title(axis), sorted(set(map(at, drawn))), 6)
    x = replace(x, high=x.high * (x.high / x.low) ** 0.25 if x.is_log else x.high + 0.25 * (x.high - x.low))
    return Panel(x=x, y=y, elements=(*lines, *named), height_in=PANEL_HEIGHT_IN)
