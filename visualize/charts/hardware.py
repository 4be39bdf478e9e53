"""Charts of a model across hardware: its latency on every configuration, the speedup over a baseline device, and the
speedup over threads or GPUs against perfect scaling."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import DEFAULT_METRIC
from benchmarking.core.text import counted, distinct_names
from benchmarking.core.text import grouped as collected
from benchmarking.core.text import number as exact
from visualize.drawing import words
from visualize.drawing.batch_charts import BATCH_LABEL, MOST_LINES
from visualize.drawing.configurations import (
    CONFIGURATION,
    LABEL_IN,
    MOST_COLOURS,
    configurations,
    cut_note,
    fastest,
    finding,
    reach,
    rows_panel,
    speedup,
    unsure_baseline,
)
from visualize.drawing.figure import Figure, Line, Mark, NotDrawn, Panel, end_notes
from visualize.drawing.marks import (
    Series,
    ends,
    figure,
    held,
    held_names,
    legend,
    marks_of,
    not_drawn,
    spread,
    states_legend,
)
from visualize.drawing.rows import (
    LATENCY,
    MODEL_COLUMNS,
    POINT_COLUMNS,
    SUBJECT,
    ChartPlugin,
    Drawing,
    Row,
    details,
    grouped,
    is_ok,
    trust,
)
from visualize.drawing.scales import LOG_EDGE, Axis, log_axis, number, size_axis, spans_decade, ticks, value_axis

POINT = ("batch_size", *POINT_COLUMNS)
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
        why_alone = f"measured only on {words.cell(drawn[0])}, so there is no comparison" if count < 2 else None
        places = {(_at(row, POINT), _at(row, CONFIGURATION)) for row in drawn}
        shared = Counter(point for point, _ in places)
        if why_alone is None:  # only points that two configurations share
            drawn = [row for row in drawn if shared[_at(row, POINT)] > 1]
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
            panels.append(Panel(x=x, y=y, elements=lines, title=held(point), height_in=PANEL_HEIGHT_IN))
        kept = set(map(id, drawn))
        series = [one for one in series if kept.intersection(map(id, one.rows))]
        left_out = (slower, words.left_out(len(groups) - len(shown), len(groups), "panels"))
        alone = None if why_alone is None else "Only one configuration has results, so there is no comparison."
        notes = words.caption(
            words.accountable(members, drawn, *left_out), drawn, words.interval(drawn), lacking=(alone, *left_out),
            named=words.cell_and_point, otherwise=UNSHARED,
        )  # fmt: skip
        width_in = max(6.4, PANEL_WIDTH_IN * columns)
        found = figure(
            self, key, drawn, panels, notes=notes, columns=columns, width_in=width_in, legend=legend(series, drawn)
        )
        return found if why_alone is None else replace(not_drawn(self, key, why_alone), alone=found)


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
    judged = DEFAULT_METRIC
    alike = (*SUBJECT, *POINT_COLUMNS)

    def drawing(self, key: Row, members: Sequence[Row]) -> Drawing:
        real = [row for row in members if not row["simulated"]]  # the speed of an emulator says nothing
        drawn = [row for row in real if is_ok(row) and row["value"]]
        what = f"{self.title}: {key['model_id']} at {words.point(key, with_batch=False)}"
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
        values = [ratio.ratio for ratio in ratios.values()]
        shortest, longest = min(values), reach(values, highs)
        if spans_decade(values):
            span = longest / shortest
            x = log_axis(AXIS, shortest / span**LOG_EDGE, longest * span**LOG_ROOM)
        else:
            high = longest * ROOM
            x = Axis(title=AXIS, low=0.0, high=high, ticks=ticks(0.0, high, 5), is_value=True)

        def remark(row: Row) -> str:
            times = f"{exact(ratios[id(row)].ratio, 3)}\N{MULTIPLICATION SIGN} ({number(row['value'])} ms)"
            return "invalid, not ranked" if trust(row) == "invalid" else times

        panels = [
            rows_panel(
                series, [row for row in shown if row["batch_size"] == batch], lambda row: ratios[id(row)], remark, x,
                words.axis("batch_size", batch),
            )
            for batch in batches
        ]  # fmt: skip
        # The fastest device against the baseline's, each with its best configuration.
        base = at[batches[0]]
        ranked = [row for row in shown if row["batch_size"] == batches[0] and trust(row) != "invalid"]
        others = [row for row in ranked if row["hardware_id"] != base["hardware_id"]]
        rivals = [base, *(min(rows, key=_latency) for _, rows in grouped(others, ("hardware_id",)))]
        best = min(rivals, key=_latency)
        names = distinct_names(
            [words.device(row) for row in rivals], [details(row, ("hardware_id",)) for row in rivals], ", "
        )
        (best_name,) = (name for name, row in zip(names, rivals, strict=True) if row is best)
        result = None if best is base else finding((best_name, best), (names[0], base), rivals)
        skipped = [size for size in sorted(at) if size not in batches]
        label = next((one.label for one in series if any(row is base for row in one.rows)), baseline.label)
        notes = words.caption(
            [row for row in words.accountable(real, shown, left_out) if row["batch_size"] not in skipped],
            shown,
            f"Baseline: {label}, the best configuration of its device.",
            words.interval(shown, "Whisker", "the speedup of "),
            cut_note(highs, x.high),
            result.note if result else None,
            lacking=(
                unsure_baseline(at[batch]["validity"] for batch in batches),
                f"Batch sizes without a panel: {', '.join(map(str, skipped))}." if skipped else None,
                "Simulated devices are left out." if len(real) < len(members) else None,
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
    """The best configuration of the chosen devices, or else of the device whose best configuration is slowest, with its
    result at each batch size."""
    is_chosen = drawn[0]["is_baseline_chosen"]
    sound = [row for row in drawn if trust(row) != "invalid" and (row["is_on_baseline"] or not is_chosen)]
    if not sound:
        return None
    batch = min(row["batch_size"] for row in sound)
    best = {
        key["hardware_id"]: min((row for row in rows if row["batch_size"] == batch), key=_trusted, default=None)
        for key, rows in grouped(sound, ("hardware_id",))
    }
    devices = [row for row in best.values() if row is not None]
    chosen = min(devices, key=_trusted) if is_chosen else max(devices, key=_latency)
    (line,) = configurations([row for row in sound if all(row[name] == chosen[name] for name in CONFIGURATION)])
    return line


def _latency(row: Row) -> float:
    return float(row["value"])


def _trusted(row: Row) -> tuple[bool, float]:
    """Of these, the lowest is the best: valid ones come first."""
    return trust(row) != "valid", _latency(row)


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
    judged = DEFAULT_METRIC

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
                # A speedup is over the fewest of its line: lines that start at another number are another picture.
                starts = collected((resource.count(_first(resource, rows)), (own, rows)) for own, rows in lines)
                for start, of_start in sorted(starts.items()):
                    elsewhere = {row["result_id"] for own in lines if own not in of_start for row in own[1]}
                    rest = [row for row in members if row["result_id"] not in elsewhere]
                    yield self._figure(resource, key, rest, of_start, start)
                if not lines:
                    what = f"Scaling over {resource.several}: {key['model_id']} on {words.device(members[0])}"
                    yield NotDrawn(what=what, why=f"no point was measured with two {resource.one} counts")

    def _figure(
        self, resource: Resource, key: Row, members: Sequence[Row], groups: Sequence[tuple[Row, list[Row]]], start: int
    ) -> Figure:
        shown = spread(groups, MOST_LINES)
        names = [words.SEPARATOR.join((own["runtime"], own["precision"], words.point(own))) for own, _ in shown]
        labels = distinct_names(names, [details(own, ("runtime_mode", "simulated")) for own, _ in shown], ", ")
        series = []
        for style, (label, (own, rows)) in enumerate(zip(labels, shown, strict=True)):
            first = _first(resource, rows)
            ratios = [(row, speedup(first, row)) for row in rows]
            scaled = tuple({**row, "value": ratio.ratio, "low": ratio.low, "high": ratio.high} for row, ratio in ratios)
            series.append(Series(label=label, rows=scaled, style=style, is_simulated=bool(own["simulated"])))
        drawn = [row for one in series for row in one.rows]
        counts = sorted({resource.count(row) for row in drawn})
        ideal = tuple(Mark(x=count, y=count / start) for count in counts)
        highs = [row["high"] for row in drawn]
        edge = reach([*(mark.y for mark in ideal), *(row["value"] for row in drawn)], highs)
        y_title = f"Speedup over {counted(start, resource.one)}\nhigher is better"
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
        heading = f"Scaling over {resource.several}"
        title = f"{key['model_id']}: {result.text}" if result else f"{heading}: {key['model_id']}"
        device = words.device(members[0]) if resource is THREADS else str(key["card"] or key["device_type"])
        about = (device, str(key["task"]), names[0] if len(shown) == 1 else "")
        return figure(
            self, key, drawn, [Panel(x=x, y=y, elements=(perfect, *lines, *named), height_in=HEIGHT_IN)],
            title=title, subtitle=words.subtitle(title, heading, *about),
            notes=words.sentences(reading, lacking), width_in=WIDTH_IN,
            legend=legend(series, drawn) if len(series) > 1 else states_legend(drawn),
            names=[str(key.get("device") or f"{key['device_type']}-gpus")],
            details=(
                *details({**members[0], **key}, (*MODEL_COLUMNS, "device_name", "hardware_id")),
                f"over {counted(start, resource.one)}",
            ),
        )  # fmt: skip


def _first(resource: Resource, rows: Sequence[Row]) -> Row:
    """The result with the fewest that is not invalid; its speedup is 1."""
    return min((row for row in rows if trust(row) != "invalid"), key=resource.count)


PLUGINS = (HardwareComparison(), HardwareSpeedup(), Scaling())
