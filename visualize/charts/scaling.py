"""Speedup of a model over threads or GPUs, against perfect scaling."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from benchmarking.core.text import counted
from visualize.drawing import words
from visualize.drawing.batch_charts import MOST_LINES
from visualize.drawing.configurations import cut_note, finding, reach, speedup
from visualize.drawing.figure import Figure, Line, Mark, NotDrawn, Panel, end_notes
from visualize.drawing.marks import Series, figure, legend, marks_of, spread, states_legend
from visualize.drawing.rows import (
    LATENCY,
    MODEL_COLUMNS,
    SUBJECT,
    ChartPlugin,
    Row,
    details,
    distinct_names,
    grouped,
    is_ok,
    trust,
)
from visualize.drawing.rows import POINT_COLUMNS as FURTHER
from visualize.drawing.scales import size_axis, value_axis

POINT = ("batch_size", *FURTHER)
PLACEMENT = "placement"
"""The setting for how a model is distributed over several GPUs; absent on one GPU."""
INTERVAL = "Band or whisker: 95 % interval of the speedup of the typical launch."
WIDTH_IN, HEIGHT_IN = 6.4, 3.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """What is scaled: threads or GPUs."""

    one: str
    several: str
    column: str
    """Column with their number."""
    subject: tuple[str, ...]
    """What all results of a picture share."""
    line: tuple[str, ...]
    """Columns that identify a line."""

    @property
    def title(self) -> str:
        """ "Scaling over threads" """
        return f"Scaling over {self.several}"

    def count(self, row: Row) -> int:
        """How many the result used."""
        return int(row[self.column])


SETUP = ("runtime", "precision", "simulated")
THREADS = Resource(
    one="thread",
    several="threads",
    column="num_threads",
    subject=(*SUBJECT, "hardware_id", "device"),
    line=(*SETUP, "runtime_mode", *POINT),
)
GPUS = Resource(
    one="GPU",
    several="GPUs",
    column="gpus",
    subject=(*SUBJECT, "card", "device_type", "cpu_model"),
    line=(*SETUP, "mode", "num_threads", *POINT),
)


class Scaling(ChartPlugin):
    name = "scaling"
    title = "Scaling over threads or GPUs"
    needs = "a model measured at one point with two thread counts (--num-threads) or GPU counts (--device D:0,D:1)"
    # Several GPUs have a selector such as a:0,a:1 and a name such as "2 x A", from which their number follows. Results
    # on one GPU are read if several GPUs of the same type were measured.
    columns = f"""{LATENCY}, len(string_split(run.device, ',')) AS gpus,
        split_part(run.device, ':', 1) AS device_type, regexp_replace(hardware.device_name, '^[0-9]+ x ', '') AS card,
        hardware.cpu_model,
        split_part(run.device, ':', 1) IN (
            SELECT split_part(device, ':', 1) FROM benchmark_runs
            WHERE contains(device, concat(',', split_part(device, ':', 1), ':'))
        ) AS is_gpu"""  # noqa: S608 - a constant of ours
    newest = "comparable"
    condition = "run.num_threads IS NOT NULL OR is_gpu"
    is_judged = True

    def draw(self, rows: Sequence[Row]) -> Iterator[Figure | NotDrawn]:
        on_gpus = []
        for row in rows:
            if row["is_gpu"]:  # with the placement separated from the other settings
                mode = json.loads(row["runtime_mode"])
                placement = mode.pop(PLACEMENT, None)
                on_gpus.append({**row, PLACEMENT: placement, "mode": json.dumps(mode, sort_keys=True)})
        with_threads = [row for row in rows if row["num_threads"] is not None]
        for resource, found in ((THREADS, with_threads), (GPUS, on_gpus)):
            for key, members in grouped(found, resource.subject):
                drawn = [row for row in members if is_ok(row) and row["value"]]
                # Results on one GPU start the line of every placement.
                lines: list[tuple[Row, list[Row]]] = []
                for own, of_setup in grouped(drawn, resource.line):
                    for name in sorted({row[PLACEMENT] for row in of_setup if row.get(PLACEMENT)}) or [None]:
                        of_line = [row for row in of_setup if row.get(PLACEMENT) in (None, name)]
                        named = next((row for row in of_line if row.get(PLACEMENT)), of_line[0])
                        if len({resource.count(row) for row in of_line if trust(row) != "invalid"}) > 1:
                            lines.append(({**own, "runtime_mode": named["runtime_mode"]}, of_line))
                if lines:
                    yield self._figure(resource, key, members, lines)
                else:
                    what = f"{resource.title}: {key['model_id']} on {words.device(members[0])}"
                    yield NotDrawn(what=what, why=f"no point was measured with two {resource.one} counts")

    def _figure(
        self, resource: Resource, key: Row, members: Sequence[Row], groups: Sequence[tuple[Row, list[Row]]]
    ) -> Figure:
        shown = spread(groups, MOST_LINES)
        names = [words.SEPARATOR.join((own["runtime"], own["precision"], words.point(own))) for own, _ in shown]
        labels = distinct_names(names, [details(own, ("runtime_mode", "simulated")) for own, _ in shown], ", ")
        series = []
        for style, (label, (own, rows)) in enumerate(zip(labels, shown, strict=True)):
            first = _first(resource, rows)
            ratios = [(row, speedup(first, row)) for row in rows]
            scaled = tuple({**row, "value": ratio.value, "low": ratio.low, "high": ratio.high} for row, ratio in ratios)
            series.append(Series(label=label, rows=scaled, style=style, is_simulated=bool(own["simulated"])))
        drawn = [row for one in series for row in one.rows]
        counts = sorted({resource.count(row) for row in drawn})
        ideal = tuple(Mark(x=count, y=count / counts[0]) for count in counts)
        highs = [row["high"] for row in drawn]
        edge = reach([*(mark.y for mark in ideal), *(row["value"] for row in drawn)], highs)
        y_title = f"Speedup over {counted(counts[0], resource.one)}\nhigher is better"
        y = value_axis(y_title, [0.0, edge], room=1.1, may_be_log=False)
        x = size_axis(resource.several[0].upper() + resource.several[1:], counts)
        x = replace(x, high=x.high * (x.high / x.low) ** 0.2 if x.is_log else x.high + 0.2 * (x.high - x.low))
        perfect = Line(
            label="", role="perfect", colour="grey", shape=None, dashes=1, width=1.0, marks=ideal, in_table=False
        )
        lines = [one.line(marks_of(one.rows, resource.column)) for one in series]
        named = end_notes(y, [(ideal[-1].x, ideal[-1].y, "perfect scaling")], HEIGHT_IN)
        # For a single line, the most against the fewest.
        result = None
        if len(shown) == 1:
            first, most = _first(resource, shown[0][1]), max(shown[0][1], key=resource.count)
            sides = [counted(resource.count(row), resource.one) for row in (most, first)]
            result = finding((sides[0], most), (sides[1], first), [first, most], verb="are")
        cut, rest = cut_note(highs, y.high), len(groups) - len(shown)
        shown_ids = {row["result_id"] for _, rows in groups for row in rows}
        missing = [row for row in members if row["result_id"] not in shown_ids]
        alone = words.missing_points([*drawn, *missing], drawn, otherwise=f"with a single {resource.one} count")
        reading = (INTERVAL if any(row["low"] for row in drawn) else None, cut, result.note if result else None)
        lacking = (words.doubts(drawn), words.left_out(rest, len(groups), "lines"), alone)
        title = f"{key['model_id']}: {result.text}" if result else f"{resource.title}: {key['model_id']}"
        device = words.device(members[0]) if resource is THREADS else str(key["card"] or key["device_type"])
        about = (device, str(key["task"]), names[0] if len(shown) == 1 else "")
        return figure(
            self, key, drawn, [Panel(x=x, y=y, elements=(perfect, *lines, *named), height_in=HEIGHT_IN)],
            title=title, subtitle=words.subtitle(title, resource.title, *about),
            notes=words.sentences(reading, lacking), width_in=WIDTH_IN,
            legend=legend(series, drawn) if len(series) > 1 else states_legend(drawn),
            names=[str(key.get("device") or f"{key['device_type']}-gpus")],
            details=details({**members[0], **key}, (*MODEL_COLUMNS, "device_name", "hardware_id")),
        )  # fmt: skip


def _first(resource: Resource, rows: Sequence[Row]) -> Row:
    """The result with the fewest that is not invalid; its speedup is 1."""
    return min((row for row in rows if trust(row) != "invalid"), key=resource.count)


PLUGIN = Scaling()
