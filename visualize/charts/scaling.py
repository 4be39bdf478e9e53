"""Speedup of a model over threads or GPUs, against perfect scaling."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from visualize.drawing import words
from visualize.drawing.batch_charts import MOST_LINES
from visualize.drawing.configurations import cut_note, finding, reach, speedup
from visualize.drawing.figure import Figure, Line, Mark, NotDrawn, Panel, end_notes
from visualize.drawing.marks import Series, legend, marks_of, spread, states_legend
from visualize.drawing.rows import (
    MODEL_COLUMNS,
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

# Several GPUs have a selector such as a:0,a:1 and a name such as "2 x A", from which their number follows. Results on
# one GPU are read if several GPUs of the same type were measured.
SQL = """
SELECT {facts},
    r.latency_median_ms AS value, r.latency_ci_low_ms AS low, r.latency_ci_high_ms AS high,
    len(string_split(run.device, ',')) AS gpus, split_part(run.device, ':', 1) AS device_type,
    regexp_replace(hardware.device_name, '^[0-9]+ x ', '') AS card, hardware.cpu_model,
    split_part(run.device, ':', 1) IN (
        SELECT split_part(device, ':', 1) FROM benchmark_runs
        WHERE contains(device, concat(',', split_part(device, ':', 1), ':'))
    ) AS is_gpu
FROM {tables}
WHERE r.result_id IN {comparable} AND (run.num_threads IS NOT NULL OR is_gpu) AND {selected}
ORDER BY {order}
"""

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

    def count(self, row: Row) -> int:
        """How many the result used."""
        return int(row[self.column])

    def counted(self, number_of: int) -> str:
        """ "1 thread", "4 threads" """
        return f"{number_of} {self.one if number_of == 1 else self.several}"


SETUP = ("runtime", "precision", "simulated")
THREADS = Resource(
    one="thread",
    several="threads",
    column="num_threads",
    subject=("model_id", *MODEL_COLUMNS, "hardware_id", "device"),
    line=(*SETUP, "runtime_mode", *POINT),
)
GPUS = Resource(
    one="GPU",
    several="GPUs",
    column="gpus",
    subject=("model_id", *MODEL_COLUMNS, "card", "device_type", "cpu_model"),
    line=(*SETUP, "mode", "num_threads", *POINT),
)


class Scaling(ChartPlugin):
    name = "scaling"
    title = "Scaling over threads or GPUs"
    needs = "a model measured at one point with two thread counts (--num-threads) or GPU counts (--device D:0,D:1)"
    sql = SQL
    is_judged = True

    def draw(self, rows: Sequence[Row]) -> Iterator[Figure | NotDrawn]:
        yield from _figures(THREADS, [row for row in rows if row["num_threads"] is not None])
        yield from _figures(GPUS, [row for own in rows if own["is_gpu"] for row in [_with_mode(own)]])


def _with_mode(row: Row) -> Row:
    """The row with its GPU placement separated from its other settings."""
    mode = json.loads(row["runtime_mode"])
    return {**row, PLACEMENT: mode.pop(PLACEMENT, None), "mode": json.dumps(mode, sort_keys=True)}


def _figures(resource: Resource, rows: Sequence[Row]) -> Iterator[Figure | NotDrawn]:
    for key, members in grouped(rows, resource.subject):
        drawn = [row for row in members if is_ok(row) and row["value"]]
        groups = [
            group
            for group in _groups(resource, drawn)
            if len({resource.count(row) for row in group[1] if trust(row) != "invalid"}) > 1
        ]
        if groups:
            yield _figure(resource, key, members, groups)
        else:
            what = f"{_title(resource)}: {key['model_id']} on {words.device(members[0])}"
            yield NotDrawn(what=what, why=f"no point was measured with two {resource.one} counts")


def _title(resource: Resource) -> str:
    return f"Scaling over {resource.several}"


def _groups(resource: Resource, drawn: Sequence[Row]) -> list[tuple[Row, list[Row]]]:
    """Rows of each line. Results on one GPU start the line of every placement."""
    lines: list[tuple[Row, list[Row]]] = []
    for own, rows in grouped(drawn, resource.line):
        placements = sorted({row[PLACEMENT] for row in rows if row.get(PLACEMENT)})
        for name in placements or [None]:
            of_line = [row for row in rows if row.get(PLACEMENT) in (None, name)]
            named = next((row for row in of_line if row.get(PLACEMENT)), of_line[0])
            lines.append(({**own, "runtime_mode": named["runtime_mode"]}, of_line))
    return lines


def _first(resource: Resource, rows: Sequence[Row]) -> Row:
    """The result with the fewest that is not invalid; its speedup is 1."""
    return min((row for row in rows if trust(row) != "invalid"), key=resource.count)


def _scaled(resource: Resource, rows: Sequence[Row]) -> tuple[Row, ...]:
    """The results with their speedup over the first as `value`, `low` and `high`."""
    first = _first(resource, rows)
    ratios = [(row, speedup(first, row)) for row in rows]
    return tuple({**row, "value": ratio.value, "low": ratio.low, "high": ratio.high} for row, ratio in ratios)


def _name(own: Row) -> str:
    return words.SEPARATOR.join((own["runtime"], own["precision"], words.point(own)))


def _figure(resource: Resource, key: Row, members: Sequence[Row], groups: Sequence[tuple[Row, list[Row]]]) -> Figure:
    shown = spread(groups, MOST_LINES)
    names = [_name(own) for own, _ in shown]
    labels = distinct_names(names, [details(own, ("runtime_mode", "simulated")) for own, _ in shown], ", ")
    series = [
        Series(label=label, rows=_scaled(resource, rows), style=style, is_simulated=bool(own["simulated"]))
        for style, (label, (own, rows)) in enumerate(zip(labels, shown, strict=True))
    ]
    drawn = [row for one in series for row in one.rows]
    counts = sorted({resource.count(row) for row in drawn})
    ideal = tuple(Mark(x=count, y=count / counts[0]) for count in counts)
    highs = [row["high"] for row in drawn]
    edge = reach([*(one.y for one in ideal), *(row["value"] for row in drawn)], highs)
    several = resource.several[0].upper() + resource.several[1:]
    title = f"Speedup over {resource.counted(counts[0])}\nhigher is better"
    y = value_axis(title, [0.0, edge], room=1.1, may_be_log=False)
    x = size_axis(several, counts)
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
        names = [resource.counted(resource.count(row)) for row in (most, first)]
        result = finding((names[0], most), (names[1], first), [first, most], verb="are")
    cut, rest = cut_note(highs, y.high), len(groups) - len(shown)
    alone = f"Points with a single {resource.one} count are not drawn." if len(drawn) < len(members) else None
    reading = (INTERVAL if any(row["low"] for row in drawn) else None, cut, result.note if result else None)
    lacking = (words.doubts(drawn), words.left_out(rest, len(groups), "lines"), alone)
    title = f"{key['model_id']}: {result.text}" if result else f"{_title(resource)}: {key['model_id']}"
    alone_name = _name(shown[0][0]) if len(shown) == 1 else ""
    device = words.device(members[0]) if resource is THREADS else str(key["card"] or key["device_type"])
    return Figure(
        title=title,
        subtitle=words.subtitle(title, _title(resource), device, str(key["task"]), alone_name),
        source=words.provenance(drawn),
        notes=words.sentences(reading, lacking),
        panels=(Panel(x=x, y=y, elements=(perfect, *lines, *named), height_in=HEIGHT_IN),),
        width_in=WIDTH_IN,
        legend=legend(series, drawn) if len(series) > 1 else states_legend(drawn),
        name_parts=(str(key["model_id"]), str(key.get("device") or f"{key['device_type']}-gpus")),
        details=details({**members[0], **key}, (*MODEL_COLUMNS, "device_name", "hardware_id")),
    )


PLUGIN = Scaling()
