"""Load time of a model by stage, one stacked bar per configuration."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from statistics import median

from visualize.drawing import words
from visualize.drawing.configurations import configurations, rows_height_in
from visualize.drawing.figure import Block, Colour, Element, Entry, Figure, NotDrawn, Note, Panel
from visualize.drawing.marks import Series
from visualize.drawing.rows import MODEL_COLUMNS, ChartPlugin, Row, details, grouped
from visualize.drawing.scales import number, row_axis, value_axis

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
READING = "Medians over launches (fresh processes) of each configuration's newest run."


class LoadStages(ChartPlugin):
    name = "load_stages"
    title = "Load time by stage"
    needs = "a model with timed loading"
    sql = SQL

    def draw(self, rows: Sequence[Row]) -> Iterator[Figure | NotDrawn]:
        for key, members in grouped(rows, ("model_id", *MODEL_COLUMNS)):
            lines = [line for line in configurations(members) if stages(newest(line.rows))]
            if lines:
                yield _figure(key, lines)
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


def _figure(key: Row, lines: Sequence[Series]) -> Figure:
    ordered = sorted(lines, key=lambda line: sum(stages(newest(line.rows)).values()))
    shown = ordered[:MOST_BARS]
    times = {line.label: stages(newest(line.rows)) for line in shown}
    names = dict.fromkeys(name for own in times.values() for name in own)
    total, rest = len(ordered), len(ordered) - len(shown)
    left_out = f"Left out: the {rest} slowest of {total} configurations; narrow the selection to see them."
    title = _title(key, shown)
    # One bar per configuration, fastest on top; each stage has the same colour in every figure.
    elements: list[Element] = []
    for place, (label, own) in enumerate(times.items()):
        left = 0.0
        for name, seconds in own.items():
            about = f"{label}: {STAGES.get(name, name)} {number(seconds)} s"
            elements.append(
                Block(
                    left=left, right=left + seconds, bottom=place - 0.31, top=place + 0.31, role=f"{name} {label}",
                    fill=_colour(name), words=about,
                )
            )  # fmt: skip
            left += seconds
        elements.append(Note(x=left, y=place, text=f"{number(left)} s", dx=4))
    axis_title = "Load time (s), from a fresh process to a loaded model\nlower is better"
    x = value_axis(axis_title, [sum(own.values()) for own in times.values()], room=1.12, may_be_log=False)
    return Figure(
        title=title,
        subtitle=words.subtitle(title, LoadStages.title, str(key["task"])),
        source=words.provenance([newest(line.rows) for line in shown]),
        notes=words.sentences([READING], [left_out if rest else None]),
        panels=(Panel(x=x, y=row_axis(list(times)), elements=tuple(elements), height_in=rows_height_in(times)),),
        width_in=WIDTH_IN,
        legend=tuple(
            Entry(label=STAGES.get(name, name.replace("_", " ")), colour=_colour(name))
            for name in sorted(names, key=lambda name: list(STAGES).index(name) if name in STAGES else len(STAGES))
        ),
        columns_of_table=("setup", "stage", "seconds"),
        rows=tuple(
            (label, STAGES.get(name, name), seconds) for label, own in times.items() for name, seconds in own.items()
        ),
        name_parts=(str(key["model_id"]),),
        details=details(key, MODEL_COLUMNS),
    )


def _colour(stage: str) -> Colour:
    return list(STAGES).index(stage) if stage in STAGES else "grey"


def _title(key: Row, shown: Sequence[Series]) -> str:
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
