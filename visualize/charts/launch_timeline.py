"""All calls of one result over time, from the first warm-up call to the last timed one, with its doubts explained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from benchmarking.core.doubts import KINDS
from visualize.drawing import words
from visualize.drawing.figure import Element, Figure, Line, Mark, NotDrawn, Panel, Rule, entries
from visualize.drawing.marks import figure, held_names
from visualize.drawing.rows import CELL_COLUMNS, POINT_COLUMNS, ChartPlugin, Row, grouped, trust
from visualize.drawing.scales import value_axis

MOST_PICTURES, MOST_LAUNCHES, MOST_DOUBTS = 6, 5, 3
WIDTH_IN, PANEL_IN = 8.4, 1.7
NOTE = "Time starts at the first warm-up call; the line marks the result's median."


class LaunchTimeline(ChartPlugin):
    name = "launch_timeline"
    title = "Calls over time"
    needs = "a result with raw samples"
    columns = """raw.launch, raw.phase, raw.samples, raw.inner_loops, raw.started_at AS phase_started_at,
        r.latency_median_ms AS value"""
    joins = "JOIN raw_benchmark_data raw ON raw.result_id = r.result_id"
    condition = "raw.metric = 'latency_wall' AND len(raw.samples) > 0"
    then_by = "raw.launch, raw.phase DESC"
    by_default = False

    def draw(self, rows: Sequence[Row]) -> Iterator[Figure | NotDrawn]:
        results = [members for _, members in grouped(rows, (*CELL_COLUMNS, "batch_size", *POINT_COLUMNS, "result_id"))]
        results.sort(key=lambda members: trust(members[0]) == "valid")  # doubtful results first
        for members in results[:MOST_PICTURES]:
            yield self._figure(members)
        rest = len(results) - MOST_PICTURES
        if rest > 0:
            why = f"limit of {MOST_PICTURES} pictures, doubtful results first: narrow the selection, e.g. batch=8"
            yield NotDrawn(what=f"{self.title} of {rest} more results", why=why)

    def _figure(self, members: Sequence[Row]) -> Figure:
        key = members[0]
        launches = grouped(members, ("launch",))
        shown = launches[:MOST_LAUNCHES]
        lines = [[_line(row, phases[0]) for row in phases] for _, phases in shown]
        marks = [one for of_launch in lines for line in of_launch for one in line.marks]
        x = value_axis("Time (s)", [one.x for one in marks], room=1.02, may_be_log=False)
        y = value_axis("Latency (ms)", [one.y for one in marks])
        median = [Rule(at=key["value"], along="y", role="median", colour="ink", dashes=0)] if key["value"] else []
        panels = []
        for (launch, _), of_launch in zip(shown, lines, strict=True):
            elements: tuple[Element, ...] = (*median, *of_launch)
            panels.append(
                Panel(x=x, y=y, elements=elements, title=f"launch {launch['launch'] + 1}", height_in=PANEL_IN)
            )
        kinds = sorted(key["doubts"], key=lambda kind: kind in KINDS and KINDS[kind].severity == "info")
        sentences = [KINDS[kind].sentence if kind in KINDS else kind.replace("_", " ") + "." for kind in kinds]
        if len(sentences) > MOST_DOUBTS:
            sentences[MOST_DOUBTS:] = [f"{len(sentences) - MOST_DOUBTS} more doubts are not listed."]
        rest = len(launches) - len(shown)
        left_out = f"Left out: {rest} of {len(launches)} launches." if rest else None
        named = {line.label: line for of_launch in lines for line in of_launch}
        return figure(
            self, key, [key], panels, of_cell=True,
            title=f"{self.title}: {key['model_id']}, {words.point(key)} ({trust(key)})",
            notes=(*words.sentences([NOTE, left_out]), *sentences), width_in=WIDTH_IN,
            legend=entries(named[name] for name in ("warm-up, hollow", "timed") if name in named),
            names=(f"b{key['batch_size']}", *held_names(key)),
        )  # fmt: skip


def timeline(row: Row, origin_row: Row) -> list[tuple[float, float]]:
    """(start in seconds since the first sample of `origin_row`, duration in ms) of each sample of a phase."""
    offset_s = (row["phase_started_at"] - origin_row["phase_started_at"]).total_seconds()
    spans_s = [value * row["inner_loops"] / 1e3 for value in row["samples"]]
    starts_s = [offset_s, *(offset_s + end_s for end_s in accumulate(spans_s))]
    return list(zip(starts_s, row["samples"], strict=False))


def _line(row: Row, first: Row) -> Line:
    """The calls of a phase: warm-up calls are grey and hollow, timed calls filled."""
    is_timed = row["phase"] == "measure"
    return Line(
        label="timed" if is_timed else "warm-up, hollow", role=row["phase"], colour=0 if is_timed else "grey", shape=0,
        dashes=None, size=3.0,
        marks=tuple(
            Mark(x=x, y=y, state="valid" if is_timed else "doubtful") for x, y in timeline(row, first)
        ),
    )  # fmt: skip


PLUGIN = LaunchTimeline()
