"""Load time of a model by stage, one stacked bar per configuration."""

from __future__ import annotations

import json
from collections.abc import Sequence
from statistics import median

from visualize.drawing import words
from visualize.drawing.configurations import configurations, rows_height_in
from visualize.drawing.figure import Block, Colour, Element, Entry, Note, Panel
from visualize.drawing.marks import figure
from visualize.drawing.rows import SUBJECT, ChartPlugin, Drawing, Row
from visualize.drawing.scales import number, row_axis, value_axis

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
    columns = "run.loads, run.load_time_s"
    condition = "r.status = 'ok'"
    qualify = "QUALIFY row_number() OVER (PARTITION BY run.run_id ORDER BY r.result_id) = 1"
    alike = SUBJECT

    def drawing(self, key: Row, members: Sequence[Row]) -> Drawing:
        """One bar per configuration, fastest on top; each stage has the same colour in every figure."""
        times = []
        for line in configurations(members):
            row = max(line.rows, key=lambda one: str(one["started_at"]))  # of the newest run
            if own := stages(row):
                times.append((line.label, row, own))
        if not times:
            return "no run has timed load stages"
        times.sort(key=lambda one: sum(one[2].values()))
        shown = times[:MOST_BARS]
        left_out = words.left_out(len(times) - len(shown), len(times), "configurations", "slowest")
        elements: list[Element] = []
        for place, (label, _, own) in enumerate(shown):
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
        # The finding is the dominant stage of a single configuration, or the range of load times of several.
        sums = [sum(own.values()) for _, _, own in shown]
        finding = None
        if len(shown) == 1:
            own = shown[0][2]
            stage = max(own, key=lambda name: own[name])
            share = own[stage] / (sums[0] or 1)
            if stage in STAGES and share > 0.5:
                finding = f"{STAGES[stage]} takes {share:.0%} of the load time"
        else:
            ends = dict.fromkeys((number(sums[0]), number(sums[-1])))
            finding = f"loading takes {'from ' if len(ends) > 1 else ''}{' to '.join(ends)} s"
        labels = [label for label, _, _ in shown]
        axis_title = "Load time (s), from a fresh process to a loaded model\nlower is better"
        x = value_axis(axis_title, sums, room=1.12, may_be_log=False)
        names = dict.fromkeys(name for _, _, own in shown for name in own)
        return figure(
            self, key, [row for _, row, _ in shown],
            [Panel(x=x, y=row_axis(labels), elements=tuple(elements), height_in=rows_height_in(labels))], finding,
            notes=words.sentences([READING], [left_out]), width_in=WIDTH_IN,
            legend=tuple(
                Entry(label=STAGES.get(name, name.replace("_", " ")), colour=_colour(name))
                for name in sorted(names, key=_place)
            ),
            columns_of_table=("setup", "stage", "seconds"),
            rows=tuple(
                (label, STAGES.get(name, name), seconds) for label, _, own in shown for name, seconds in own.items()
            ),
        )  # fmt: skip


def stages(row: Row) -> dict[str, float]:
    """Median seconds over launches by stage, in loading order."""
    launches = [load["stages_s"] for load in json.loads(row["loads"]) if load.get("stages_s")]
    names = sorted(dict.fromkeys(name for launch in launches for name in launch), key=_place)
    return {name: median(launch[name] for launch in launches if name in launch) for name in names}


def _place(stage: str) -> int:
    return list(STAGES).index(stage) if stage in STAGES else len(STAGES)


def _colour(stage: str) -> Colour:
    return _place(stage) if stage in STAGES else "grey"


PLUGIN = LoadStages()
