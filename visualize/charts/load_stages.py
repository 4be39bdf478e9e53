"""Load time of a model by stage, one stacked bar per configuration."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from statistics import median
from typing import TYPE_CHECKING

from visualize.drawing import words
from visualize.drawing.configurations import configurations, row_name, rows_height_in
from visualize.drawing.layout import FigureText, finish, new_figure
from visualize.drawing.lines import Line
from visualize.drawing.rows import MODEL_COLUMNS, ChartPlugin, Drawing, NotDrawn, Row, details, grouped
from visualize.drawing.style import SMALL_SIZE, colour, look, number, theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SQL = """
SELECT {facts}, run.loads, run.load_time_s
FROM {tables}
WHERE r.result_id IN {latest} AND r.status = 'ok' AND {selected}
QUALIFY row_number() OVER (PARTITION BY run.run_id ORDER BY r.result_id) = 1
ORDER BY {order}
"""

STAGES = {
    "spawn": "starting the process",
    "import": "importing libraries",
    "device_init": "opening the device",
    "tokenizer": "loading the tokenizer",
    "weights_read": "reading the weights",
    "to_device": "moving weights to the device",
}
"""Stages in loading order, with their labels; unknown stages follow."""
MOST_BARS = 24
WIDTH_IN = 8.4


class LoadStages(ChartPlugin):
    name = "load_stages"
    title = "Load time by stage"
    needs = "a model with timed loading"
    sql = SQL

    def draw(self, rows: Sequence[Row]) -> Iterator[Drawing | NotDrawn]:
        for key, members in grouped(rows, ("model_id", *MODEL_COLUMNS)):
            lines = [line for line in configurations(members) if stages(newest(line.rows))]
            if lines:
                yield _drawing(key, lines)
            else:
                yield NotDrawn(what=f"{self.title}: {key['model_id']}", why="no run has timed load stages")


def newest(rows: Sequence[Row]) -> Row:
    """The row of the newest run."""
    return max(rows, key=lambda row: str(row["started_at"]))


def stages(row: Row) -> dict[str, float]:
    """Median seconds over launches by stage, in loading order."""
    launches = [load["stages_s"] for load in json.loads(row["loads"]) if load.get("stages_s")]
    names = dict.fromkeys(name for launch in launches for name in launch)
    ordered = sorted(names, key=lambda name: list(STAGES).index(name) if name in STAGES else len(STAGES))
    return {name: median(launch.get(name, 0.0) for launch in launches) for name in ordered}


def _drawing(key: Row, lines: Sequence[Line]) -> Drawing:
    ordered = sorted(lines, key=lambda line: sum(stages(newest(line.rows)).values()))
    shown = ordered[:MOST_BARS]
    with theme():
        figure, (axes,) = new_figure(WIDTH_IN, rows_height_in(shown) + 0.6)
        _draw_bars(axes, shown)
        axes.set_xlabel("Load time (s), from a fresh process to a loaded model\nlower is better")
        finish(figure, _figure_text(key, shown, len(ordered)))
    return Drawing(figure=figure, name_parts=(str(key["model_id"]),), details=details(key, MODEL_COLUMNS))


def _draw_bars(axes: Axes, shown: Sequence[Line]) -> None:
    """One bar per configuration, fastest on top; each stage has the same colour in every picture."""
    longest = max(sum(stages(newest(line.rows)).values()) for line in shown)
    for place, line in enumerate(shown):
        left = 0.0
        for name, seconds in stages(newest(line.rows)).items():
            (bar,) = axes.barh(
                place, seconds, left=left, height=0.62, color=_colour(name), edgecolor=look().background,
                linewidth=0.5, zorder=2,
            )  # fmt: skip
            bar.set_label(f"_{name} {line.label}")
            left += seconds
        axes.annotate(
            f"{number(left)} s", (left, place), xytext=(4, 0), textcoords="offset points", va="center",
            fontsize=SMALL_SIZE,
        )  # fmt: skip
    axes.set_yticks(range(len(shown)), [row_name(line) for line in shown])
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_xlim(0, longest * 1.12 or 1)
    axes.grid(axis="y", visible=False)


def _colour(stage: str) -> str:
    return colour(list(STAGES).index(stage)) if stage in STAGES else look().grey


def _figure_text(key: Row, shown: Sequence[Line], total: int) -> FigureText:
    from matplotlib.patches import Patch

    names = dict.fromkeys(name for line in shown for name in stages(newest(line.rows)))
    rows = [newest(line.rows) for line in shown]
    left_out = (
        f"Left out: the {total - len(shown)} slowest of {total} configurations; narrow the selection to see them."
    )
    reading = ("Medians over launches (fresh processes) of each configuration's newest run.",)
    title = _title(key, shown)
    return FigureText(
        title=title,
        subtitle=words.subtitle(title, LoadStages.title, str(key["task"])),
        source=words.provenance(rows),
        notes=words.sentences(reading, [left_out if total > len(shown) else None]),
        legend=tuple(
            Patch(color=_colour(name), label=STAGES.get(name, name.replace("_", " ")))
            for name in sorted(names, key=lambda name: list(STAGES).index(name) if name in STAGES else len(STAGES))
        ),
    )


def _title(key: Row, shown: Sequence[Line]) -> str:
    """The dominant stage of a single configuration, or the range of load times of several."""
    if len(shown) == 1:
        own = stages(newest(shown[0].rows))
        name = max(own, key=lambda stage: own[stage])
        share = own[name] / (sum(own.values()) or 1)
        if name in STAGES and share > 0.5:
            return f"{key['model_id']}: {STAGES[name]} takes {share:.0%} of the load time"
    else:
        quickest, slowest = (sum(stages(newest(line.rows)).values()) for line in (shown[0], shown[-1]))
        ends = dict.fromkeys((number(quickest), number(slowest)))
        return f"{key['model_id']}: loading takes {'from ' if len(ends) > 1 else ''}{' to '.join(ends)} s"
    return f"{LoadStages.title}: {key['model_id']}"


PLUGIN = LoadStages()
