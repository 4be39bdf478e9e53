"""One model by every runtime on one device: how much faster than eager at float32, and how far from its output."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp, fsum, log
from typing import TYPE_CHECKING, Any, Literal

from visualize import words
from visualize.charts import Drawing, NotDrawn, Query, Row, Selection, _rows
from visualize.layout import Words, finish, new_figure, wrap
from visualize.style import GREY, SMALL_SIZE, TEXT_SIZE, colour, look

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SQL = """
SELECT {facts}, c.place, c.is_ranked, c.baseline_latency_ms, c.baseline_mode, c.baseline_validity,
    c.latency_median_ms, c.speedup_ci_low AS low, c.speedup_ci_high AS high, r.output_error,
    c.baseline_result_id = r.result_id AS is_baseline
FROM {tables}
JOIN runtime_comparison c ON c.result_id = r.result_id
WHERE {selected}
ORDER BY {order}
"""

SUBJECT = ("model_id", *_rows.MODEL, "place", "num_threads", "cpu_list")
"""What speed-ups are of. A picture is of one, at one point but for its batch size."""
BAR = ("runtime", "precision", "runtime_mode", "device", "simulated")
"""What makes a bar."""
ALONE = "measured by eager at float32 only: there is nothing to compare it with"
NO_BASELINE = "without eager at float32 to compare with"
UNRANKED = "Grey and hatched: never ranked, since the output is wrong, or a simulator ran."
COLUMNS, ROW_IN, LINE_IN, AXIS_IN, LABEL_IN, PANEL_IN = 2, 0.34, 0.16, 0.75, 2.3, 3.1
ROOM = 1.75
"""The axis over the longest bar: what is written beside it needs the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """The configurations of a picture, the fastest first, what is never ranked last: the same rows in every panel."""

    labels: tuple[str, ...]
    keys: tuple[Row, ...]

    def place(self, row: Row) -> int:
        """The row's line, from the top."""
        return self.keys.index({column: row[column] for column in BAR})


@dataclass(frozen=True)
class RuntimeComparison:
    name: str = "runtime_comparison"
    title: str = "Speed-up by runtime"
    needs: str = "a model measured at the same points by eager at float32 and by another runtime or precision"
    scope: Literal["model", "models"] = "model"

    def query(self, selection: Selection) -> Query:
        return _rows.query(SQL, selection)

    def draw(self, rows: Sequence[Row]) -> Iterator[Drawing | NotDrawn]:
        for key, members in _rows.grouped(rows, SUBJECT):
            compared = [row for row in members if _is_comparable(row)]
            what = f"{self.title}: {key['model_id']}"
            if not compared:
                yield NotDrawn(what=what, why=f"nothing to draw: {len(members)} points {NO_BASELINE}")
            elif all(row["is_baseline"] for row in compared):
                yield NotDrawn(what=what, why=ALONE)
            else:
                yield from _drawings(self.title, members)


def _drawings(title: str, members: Sequence[Row]) -> Iterator[Drawing]:
    """A picture for each point at which something is beside the baseline."""
    for key, rows in _rows.grouped(members, (*SUBJECT, *_rows.POINT)):
        drawn = [row for row in rows if _is_comparable(row)]
        if not all(row["is_baseline"] for row in drawn):
            yield _drawing(title, key, rows, drawn)


def _is_comparable(row: Row) -> bool:
    return row["baseline_latency_ms"] is not None and bool(row["latency_median_ms"])


def _ratio(row: Row) -> float:
    """How long the bar is. What is never ranked has one, too, that is drawn as such."""
    return float(row["baseline_latency_ms"] / row["latency_median_ms"])


def _drawing(title: str, key: Row, members: Sequence[Row], drawn: Sequence[Row]) -> Drawing:
    bars = _bars(drawn)
    panels = _rows.grouped(drawn, ("batch_size",))
    columns = min(len(panels), COLUMNS)
    grid_rows = -(-len(panels) // columns)
    with look():
        lines = max(label.count("\n") + 1 for label in bars.labels)
        height_in = (ROW_IN + (lines - 1) * LINE_IN) * len(bars.labels) + AXIS_IN
        figure, axes = new_figure(LABEL_IN + PANEL_IN * columns, height_in * grid_rows, grid_rows, columns)
        for panel, (point, rows) in zip(axes, panels, strict=False):
            _draw_panel(panel, rows, bars)
            panel.set_title(f"batch {point['batch_size']}")
        _scale(axes, len(panels), columns, drawn, bars)
        finish(figure, _words(title, key, members, drawn))
    return Drawing(
        figure=figure,
        named_by=(
            *(str(key["model_id"]), str(drawn[0]["device"]).split(":")[0]),
            *words.point_names(key["new_tokens"], key["concurrency"], _rows.axes(key)),
        ),
        told_apart_by=_rows.details(key, (*_rows.MODEL, "num_threads", "cpu_list", "place")),
    )


def _bars(drawn: Sequence[Row]) -> Bars:
    groups = sorted(_rows.grouped(drawn, BAR), key=lambda group: _standing(group[1]))
    names = [words.SEPARATOR.join((key["runtime"], key["precision"])) for key, _ in groups]
    keys = [key for key, _ in groups]
    facts = [
        (*modes, *_rows.details(key, ("device", "simulated"))) for modes, key in zip(_modes(keys), keys, strict=True)
    ]
    labels = _rows.told_apart(names, facts, ", ")
    return Bars(labels=tuple(wrap(label, TEXT_SIZE, LABEL_IN - 0.2) for label in labels), keys=tuple(keys))


def _modes(keys: Sequence[Row]) -> list[tuple[str, ...]]:
    """The settings of each one by one, the same ones in the same order for all: of several with one name those that
    differ tell them apart."""
    modes = [json.loads(key["runtime_mode"]) for key in keys]
    names = sorted({name for mode in modes for name in mode})
    return [tuple(f"{name}={mode[name]}" if name in mode else "" for name in names) for mode in modes]


def _standing(rows: Sequence[Row]) -> tuple[bool, float]:
    """What bars are sorted by: those of which nothing may be ranked are last, then by the mean factor."""
    ranked = [row for row in rows if row["is_ranked"]]
    ratios = [_ratio(row) for row in ranked or rows]
    return (not ranked, -exp(fsum(map(log, ratios)) / len(ratios)))


def _draw_panel(axes: Axes, rows: Sequence[Row], bars: Bars) -> None:
    """A bar for each row, its interval as a whisker, and beside it the factor and the error in words."""
    axes.axvline(1, color=GREY, linewidth=1, linestyle="--", zorder=1, label="_baseline")
    for row in rows:
        place, label = bars.place(row), bars.labels[bars.place(row)]
        axes.barh(place, _ratio(row), height=0.62, label=f"_bar {label}", zorder=2, **_look(row))
        end = _ratio(row)
        if row["is_ranked"] and row["low"] is not None and row["high"] is not None:
            end = max(end, row["high"])
            axes.plot(
                [row["low"], row["high"]], [place, place], color="black", marker="|", markersize=6, linewidth=1.1,
                zorder=3, label=f"_interval {label}",
            )  # fmt: skip
        _write(axes, place, end, _remark(row), "black" if row["is_ranked"] else GREY)
    there = {bars.place(row) for row in rows}
    for place in range(len(bars.labels)):
        if place not in there:
            _write(axes, place, 0, "not measured", GREY)


def _write(axes: Axes, place: int, end: float, text: str, text_colour: str) -> None:
    """The text beside the end of a bar, legible over the line of the baseline."""
    axes.annotate(
        text, (end, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=SMALL_SIZE,
        color=text_colour, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8}, zorder=4,
    )  # fmt: skip


def _look(row: Row) -> dict[str, Any]:
    """Coloured by what it is: the baseline, another result; hollow where it is doubtful, hatched where never ranked."""
    if not row["is_ranked"]:
        return {"facecolor": "white", "edgecolor": GREY, "hatch": "////", "linewidth": 0.8}
    own = GREY if row["is_baseline"] else colour(0)
    if _rows.is_doubtful(row):
        return {"facecolor": "white", "edgecolor": own, "linewidth": 1.4}
    return {"facecolor": own, "edgecolor": own, "linewidth": 1.4}


def _remark(row: Row) -> str:
    """The factor and the error of a row that is ranked, else why it is not."""
    error = "" if row["output_error"] is None else f"error {_error(row['output_error'])}"
    if row["simulated"]:
        return ", ".join(filter(None, ("simulated", error)))
    if not row["is_ranked"]:
        return ", ".join(filter(None, ("invalid", error)))
    factor = "baseline" if row["is_baseline"] else f"{_ratio(row):.3g}\N{MULTIPLICATION SIGN}"
    return ", ".join(filter(None, (factor, error)))


def _error(value: float) -> str:
    """A relative error in one or two digits: "0.0054", "3e-07"."""
    return f"{value:.2g}" if value == 0 or value >= 1e-3 else f"{value:.0e}"


def _scale(axes: Sequence[Axes], used: int, columns: int, drawn: Sequence[Row], bars: Bars) -> None:
    """From 0, so that lengths may be compared; names at the left panels, the axis at the lowest."""
    longest = max(max(_ratio(row), (row["high"] or 0) if row["is_ranked"] else 0) for row in drawn)
    axes[0].set_xlim(0, longest * ROOM)
    axes[0].set_yticks(range(len(bars.labels)), bars.labels)
    axes[0].set_ylim(len(bars.labels) - 0.45, -0.55)
    for index, panel in enumerate(axes):
        if index >= used:
            panel.remove()
            continue
        panel.grid(axis="y", visible=False)
        panel.tick_params(axis="y", length=0)
        if index + columns >= used:
            panel.tick_params(labelbottom=True)
            panel.set_xlabel("Times as fast as eager at float32")


def _words(title: str, key: Row, members: Sequence[Row], drawn: Sequence[Row]) -> Words:
    modes = sorted({_rows.settings(row["baseline_mode"]) for row in drawn} - {""})
    held = (_devices(drawn), str(key["task"]), words.whole(words.point({**key, "batch_size": 1}, with_batch=False)))
    setup = _rows.details(key, ("num_threads", "cpu_list"))
    unsure = {row["baseline_validity"] for row in drawn} - {"valid"}
    ranked = [row for row in drawn if row["is_ranked"]]
    notes = (
        words.provenance(drawn),
        f"Baseline: eager, float32{''.join(f', {mode}' for mode in modes)}; {', '.join(setup)}.",
        f"The baseline itself is {' or '.join(sorted(unsure))}." if unsure else None,
        words.interval(ranked, "Whisker").replace("median latency", "factor"),
        "Error: relative L2 distance of the output from eager's at float32.",
        UNRANKED if len(ranked) < len(drawn) else None,
        words.doubts(ranked),
        words.absences(members, drawn, _cell_and_point, NO_BASELINE),
    )
    return Words(
        title=f"{title}: {key['model_id']}",
        subtitle=words.SEPARATOR.join(part for part in held if part),
        notes=tuple(note for note in notes if note),
    )


def _cell_and_point(row: Row) -> str:
    return f"{words.cell(row)} at {words.point(row)}"


def _devices(drawn: Sequence[Row]) -> str:
    """The devices in words; a CPU that two libraries drive has two names for one thing."""
    return " and ".join(dict.fromkeys(words.device({**row, "simulated": False}) for row in drawn))


PLUGIN = RuntimeComparison()
