"""One model on one device in every runtime: speedup over the baseline and output error."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp, fsum, log
from typing import TYPE_CHECKING, Any

from visualize.drawing import words
from visualize.drawing.configurations import Finding, cut_note, finding, reach
from visualize.drawing.layout import FigureText, finish, new_figure, wrap
from visualize.drawing.lines import spread
from visualize.drawing.rows import (
    MODEL_COLUMNS,
    POINT_COLUMNS,
    ChartPlugin,
    Drawing,
    NotDrawn,
    Row,
    axis_values,
    details,
    distinct_names,
    drawable,
    grouped,
    is_doubtful,
    settings,
)
from visualize.drawing.style import SMALL_SIZE, TEXT_SIZE, colour, look, number, theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SQL = """
SELECT {facts}, c.place, c.is_ranked, c.baseline_latency_ms, c.baseline_mode, c.baseline_validity,
    c.latency_median_ms, r.latency_ci_low_ms AS own_low, r.latency_ci_high_ms AS own_high,
    c.speedup_ci_low AS low, c.speedup_ci_high AS high, r.output_error,
    c.baseline_result_id = r.result_id AS is_baseline, baseline.runtime AS baseline_runtime,
    baseline.precision AS baseline_precision
FROM {tables}
JOIN runtime_comparison c ON c.result_id = r.result_id
LEFT JOIN (SELECT result_id, runtime, precision FROM benchmark_results JOIN benchmark_runs USING (run_id)) baseline
    ON baseline.result_id = c.baseline_result_id
WHERE {selected}
ORDER BY {order}
"""

SUBJECT = ("model_id", *MODEL_COLUMNS, "place", "num_threads", "cpu_list")
"""What all results of a picture share, besides their point without its batch size."""
BAR = ("runtime", "precision", "runtime_mode", "device", "device_name", "simulated", "hardware_id")
"""Columns that identify a bar."""
BASELINE = "unmodified PyTorch at float32"
NO_BASELINE = f"without a baseline ({BASELINE})"
UNRANKED = "Grey and hatched: not ranked, because the output is wrong or the device is simulated."
COLUMNS, LINE_IN, AXIS_IN, LABEL_IN, PANEL_IN = 3, 0.16, 0.75, 2.3, 2.7
ROW_IN, NARROW_ROW_IN, NARROW_FROM = 0.34, 0.24, 12
"""Height of a bar with its gap, the lower height of many bars, and the number of bars from which it is used."""
MOST_BARS, MOST_HEIGHT_IN = 40, 10.0
"""Limits of a picture. The fastest configurations are kept, and batch sizes evenly from smallest to largest."""
ROOM = 1.75
"""Length of the axis as a multiple of the longest bar; the rest is room for labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """The configurations of a picture, the same in every panel: fastest first, unranked ones last."""

    labels: tuple[str, ...]
    keys: tuple[Row, ...]

    def place(self, row: Row) -> int:
        """The index of the row's bar, from the top."""
        return self.keys.index({column: row[column] for column in BAR})


class RuntimeComparison(ChartPlugin):
    name = "runtime_comparison"
    title = "Speedup by runtime"
    needs = f"a model measured at the same points with {BASELINE} and with another runtime or precision"
    sql = SQL

    def draw(self, rows: Sequence[Row]) -> Iterator[Drawing | NotDrawn]:
        for key, members in grouped(rows, SUBJECT):
            compared = [row for row in members if _is_comparable(row)]
            what = f"{self.title}: {key['model_id']}"
            if not compared:
                yield NotDrawn(what=what, why=f"{len(members)} points {NO_BASELINE}")
            elif all(row["is_baseline"] for row in compared):
                why = f"measured only with {_baseline(compared)}, so there is no comparison"
                yield NotDrawn(what=what, why=why)
            else:
                yield from _drawings(self.title, members)


def _drawings(title: str, members: Sequence[Row]) -> Iterator[Drawing]:
    """One picture for each point that has more than the baseline."""
    for key, rows in grouped(members, (*SUBJECT, *POINT_COLUMNS)):
        drawn = [row for row in rows if _is_comparable(row)]
        if not all(row["is_baseline"] for row in drawn):
            yield _drawing(title, key, rows, drawn)


def _is_comparable(row: Row) -> bool:
    return row["baseline_latency_ms"] is not None and bool(row["latency_median_ms"])


def _baseline(compared: Sequence[Row]) -> str:
    """The runtime and precision of the baseline."""
    return f"{compared[0]['baseline_runtime']} at {compared[0]['baseline_precision']}"


def _ratio(row: Row) -> float:
    """The speedup over the baseline, which is the length of the bar, even for unranked results."""
    return float(row["baseline_latency_ms"] / row["latency_median_ms"])


def _drawing(title: str, key: Row, members: Sequence[Row], drawn: Sequence[Row]) -> Drawing:
    bars, drawn, slower = _bars(drawn)
    height_in = _panel_height_in(bars)
    sizes = grouped(drawn, ("batch_size",))
    panels = spread(sizes, COLUMNS * max(1, int(MOST_HEIGHT_IN / height_in)))
    drawn = [row for _, rows in panels for row in rows]
    left_out = (slower, words.left_out(len(sizes) - len(panels), len(sizes), "batch sizes"))
    ends = [row["high"] for row in drawn if row["is_ranked"]]
    edge = reach(list(map(_ratio, drawn)), ends)
    columns = min(len(panels), COLUMNS)
    grid_rows = -(-len(panels) // columns)
    with theme():
        figure, axes = new_figure(LABEL_IN + PANEL_IN * columns, height_in * grid_rows, grid_rows, columns)
        for panel, (point, rows) in zip(axes, panels, strict=False):
            _draw_panel(panel, rows, bars, edge)
            panel.set_title(f"batch {point['batch_size']}")
        _scale(axes, len(panels), columns, drawn, bars, edge)
        finish(figure, _figure_text(title, key, members, drawn, left_out, cut_note(ends, edge * ROOM)))
    return Drawing(
        figure=figure,
        name_parts=(
            *(str(key["model_id"]), str(drawn[0]["device"]).split(":")[0]),
            *words.point_names(key["new_tokens"], key["concurrency"], axis_values(key)),
        ),
        details=details(key, (*MODEL_COLUMNS, "num_threads", "cpu_list", "place")),
    )


def _panel_height_in(bars: Bars) -> float:
    row_in = ROW_IN if len(bars.labels) < NARROW_FROM else NARROW_ROW_IN
    lines = max(label.count("\n") + 1 for label in bars.labels)
    return (row_in + (lines - 1) * LINE_IN) * len(bars.labels) + AXIS_IN


def _bars(drawn: Sequence[Row]) -> tuple[Bars, list[Row], str | None]:
    """The bars, the rows they show, and a note about slower configurations that are left out."""
    configurations = sorted(grouped(drawn, BAR), key=lambda group: _rank_key(group[1]))
    groups = [
        group
        for place, group in enumerate(configurations)
        if place < MOST_BARS or any(row["is_baseline"] for row in group[1])
    ]
    rest = len(configurations) - len(groups)
    note = f"Left out: the {rest} slowest of {len(configurations)} configurations; narrow the selection to see them."
    return _named(groups), [row for _, rows in groups for row in rows], note if rest else None


def _named(groups: Sequence[tuple[Row, list[Row]]]) -> Bars:
    names = [words.SEPARATOR.join((key["runtime"], key["precision"])) for key, _ in groups]
    keys = [key for key, _ in groups]
    facts = [
        (*modes, *details(key, ("device", "device_name", "simulated", "hardware_id")))
        for modes, key in zip(_modes(keys), keys, strict=True)
    ]
    labels = distinct_names(names, facts, ", ")
    return Bars(labels=tuple(wrap(label, TEXT_SIZE, LABEL_IN - 0.2) for label in labels), keys=tuple(keys))


def _modes(keys: Sequence[Row]) -> list[tuple[str, ...]]:
    """The settings of each configuration, aligned by position, so differences can be named."""
    modes = [json.loads(key["runtime_mode"]) for key in keys]
    names = sorted({name for mode in modes for name in mode})
    return [tuple(f"{name}={mode[name]}" if name in mode else "" for name in names) for mode in modes]


def _rank_key(rows: Sequence[Row]) -> tuple[bool, float]:
    """Sort key of a bar: ranked first, then by geometric mean speedup."""
    ranked = [row for row in rows if row["is_ranked"]]
    ratios = [_ratio(row) for row in ranked or rows]
    return (not ranked, -exp(fsum(map(log, ratios)) / len(ratios)))


def _draw_panel(axes: Axes, rows: Sequence[Row], bars: Bars, edge: float) -> None:
    """One bar per row, with its interval as a whisker up to the edge, and speedup and error at its end."""
    axes.axvline(1, color=look().grey, linewidth=1, linestyle="--", zorder=1, label="_baseline")
    rows = sorted(rows, key=bars.place)
    _draw_bars(axes, rows, bars)
    for row in rows:
        end = _ratio(row)
        if row["is_ranked"] and row["low"] is not None and row["high"] is not None:
            end = max(end, min(row["high"], edge))
            _draw_whisker(axes, row, bars)
        _write(axes, bars.place(row), end, _remark(row), look().ink if row["is_ranked"] else look().grey)
    for place in set(range(len(bars.labels))).difference(map(bars.place, rows)):
        _write(axes, place, 0, "not measured", look().grey)


def _draw_bars(axes: Axes, rows: Sequence[Row], bars: Bars) -> None:
    """Bars of rows sorted by position, each labelled "_bar" and its name; positions without a row stay empty."""
    import seaborn

    names = [bars.labels[bars.place(row)] for row in rows]
    seaborn.barplot(
        x=list(map(_ratio, rows)), y=names, order=bars.labels, orient="h", width=0.62, errorbar=None, zorder=2,
        legend=False, ax=axes,
    )  # fmt: skip
    for bar, name, row in zip(axes.patches, names, rows, strict=True):
        bar.set(label=f"_bar {name}", **_bar_style(row))


def _draw_whisker(axes: Axes, row: Row, bars: Bars) -> None:
    """The interval of the speedup."""
    place = bars.place(row)
    axes.plot(
        [row["low"], row["high"]], [place, place], color=look().ink, marker="|", markersize=6, linewidth=1.1, zorder=3,
        label=f"_interval {bars.labels[place]}",
    )  # fmt: skip


def _write(axes: Axes, place: int, end: float, text: str, text_colour: str) -> None:
    """Text at the end of a bar, legible over the baseline."""
    axes.annotate(
        text, (end, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=SMALL_SIZE,
        color=text_colour, bbox={"facecolor": look().background, "edgecolor": "none", "pad": 0.8}, zorder=4,
    )  # fmt: skip


def _bar_style(row: Row) -> dict[str, Any]:
    """Grey for the baseline, blue for other results; hollow if doubtful, hatched if not ranked."""
    if not row["is_ranked"]:
        return {"facecolor": look().background, "edgecolor": look().grey, "hatch": "////", "linewidth": 0.8}
    own = look().grey if row["is_baseline"] else colour(0)
    if is_doubtful(row):
        return {"facecolor": look().background, "edgecolor": own, "linewidth": 1.4}
    return {"facecolor": own, "edgecolor": own, "linewidth": 1.4}


def _remark(row: Row) -> str:
    """Speedup and error of a ranked row, or why it is not ranked."""
    error = "" if row["output_error"] is None else f"error {_error(row['output_error'])}"
    if row["simulated"]:
        return ", ".join(filter(None, ("simulated", error)))
    if not row["is_ranked"]:
        return ", ".join(filter(None, ("invalid", error)))
    factor = "baseline" if row["is_baseline"] else f"{_times(_ratio(row))}\N{MULTIPLICATION SIGN}"
    return ", ".join(filter(None, (factor, error)))


def _times(ratio: float) -> str:
    return f"{ratio:.3g}" if ratio < 1000 else number(ratio)


def _error(value: float) -> str:
    """A relative error with one or two digits: "0.0054", "3e-07"."""
    return f"{value:.2g}" if value == 0 or value >= 1e-3 else f"{value:.0e}"


def _scale(axes: Sequence[Axes], used: int, columns: int, drawn: Sequence[Row], bars: Bars, edge: float) -> None:
    """Scale from 0, so lengths are comparable; names beside the left panels, axis titles below the lowest."""
    axes[0].set_xlim(0, edge * ROOM)
    axes[0].set_ylim(len(bars.labels) - 0.45, -0.55)
    for index, panel in enumerate(axes):
        if index >= used:
            panel.remove()
            continue
        panel.set_ylabel("")
        panel.grid(axis="y", visible=False)
        panel.tick_params(axis="y", length=0)
        if index + columns >= used:
            panel.tick_params(labelbottom=True)
            panel.set_xlabel(f"Speedup over {_baseline(drawn)}", visible=True)


def _figure_text(
    title: str,
    key: Row,
    members: Sequence[Row],
    drawn: Sequence[Row],
    left_out: Sequence[str | None],
    cut: str | None,
) -> FigureText:
    ranked = [row for row in drawn if row["is_ranked"]]
    modes = sorted({settings(row["baseline_mode"]) for row in drawn} - {""})
    held = (_devices(drawn), str(key["task"]), words.unbroken(words.point({**key, "batch_size": 1}, with_batch=False)))
    setup = details(key, ("num_threads", "cpu_list"))
    unsure = {row["baseline_validity"] for row in drawn} - {"valid"}
    result = _finding(ranked)
    heading = f"{title}: {key['model_id']}"
    if result:
        heading = f"{key['model_id']}: {result.text} at batch {min(row['batch_size'] for row in ranked)}"
    reading = (
        f"Baseline: {', '.join((_baseline(drawn).replace(' at ', ', '), *modes, *setup))}.",
        words.interval([row for row in ranked if not row["is_baseline"]], "Whisker").replace("median", "speedup"),
        cut,
        "Error: relative L2 distance from the baseline's output.",
        result.note if result else None,
    )
    lacking = (
        f"The baseline itself is {' or '.join(sorted(unsure))}." if unsure else None,
        UNRANKED if len(ranked) < len(drawn) else None,
        *left_out,
        words.doubts(ranked),
        words.missing_points(words.accountable(members, drawn, *left_out), drawn, words.cell_and_point, NO_BASELINE),
    )
    return FigureText(
        title=heading,
        subtitle=words.subtitle(heading, title, *held),
        source=words.provenance(drawn),
        notes=words.sentences(reading, lacking),
    )


def _finding(ranked: Sequence[Row]) -> Finding | None:
    """The fastest result against the baseline at the smallest batch size."""
    batch = min((row["batch_size"] for row in ranked), default=None)
    latency = {"value": "latency_median_ms", "low": "own_low", "high": "own_high"}
    rivals = [
        drawable({**row, **{name: row[column] for name, column in latency.items()}})
        for row in ranked
        if row["batch_size"] == batch
    ]
    base = next((row for row in rivals if row["is_baseline"]), None)
    best = min(rivals, key=lambda row: float(row["value"]), default=None)
    if base is None or best is None or best is base:
        return None
    name = best["runtime"] if best["precision"] == base["precision"] else f"{best['runtime']} at {best['precision']}"
    if name == base["runtime"]:
        name = f"{name} with {settings(best['runtime_mode'])}"
    return finding((name, best), (_baseline(ranked), base), rivals)


def _devices(drawn: Sequence[Row]) -> str:
    """Device names; a CPU driven by two libraries has two."""
    return " and ".join(dict.fromkeys(words.device({**row, "simulated": False}) for row in drawn))


PLUGIN = RuntimeComparison()
