"""Charts of a model in several runtimes and precisions on one device."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from statistics import geometric_mean
from typing import get_args

from benchmarking.core.metrics import DEFAULT_METRIC
from benchmarking.core.records import Precision
from benchmarking.core.text import counted, distinct_names
from benchmarking.core.text import number as exact
from visualize.drawing import words
from visualize.drawing.configurations import above, clear_winner, cut_note, finding, reach, speedup, unsure_baseline
from visualize.drawing.figure import Block, Element, Figure, Line, NotDrawn, Note, Panel, Rule, State
from visualize.drawing.marks import Cell, figure, heat_key, heat_panel, held, held_names, mark, not_drawn, spread
from visualize.drawing.rows import (
    LATENCY,
    MODEL_COLUMNS,
    POINT_COLUMNS,
    SUBJECT,
    ChartPlugin,
    Drawing,
    Row,
    details,
    drawable,
    grouped,
    is_ok,
    settings,
    shown_settings,
    trust,
)
from visualize.drawing.scales import number, row_axis, value_axis

ALIKE = (*SUBJECT, "place", "num_threads", "cpu_list")
"""What all results of a picture share, besides their point without its batch size."""
BAR = ("runtime", "precision", "runtime_mode", "device", "device_name", "simulated", "hardware_id")
"""Columns that identify a bar."""
BASELINE = "unmodified PyTorch at float32"
NO_BASELINE = f"without a baseline ({BASELINE}, with as many threads)"
UNRANKED = "Crossed out: not ranked, because the result is invalid or the device is simulated."
ERROR = "Error: relative L2 distance from the baseline's output."
COLUMNS, LABEL_IN, PANEL_IN = 3, 2.5, 2.7
ROW_IN, NARROW_ROW_IN, NARROW_FROM = 0.36, 0.25, 12
"""Height of a bar with its gap, the lower height of many bars, and the number of bars from which it is used."""
MOST_BARS, MOST_HEIGHT_IN = 40, 10.0
"""Limits of a picture. The fastest configurations are kept, and batch sizes evenly from smallest to largest."""
ROOM = 1.75
"""Length of the axis as a multiple of the longest bar; the rest is room for labels."""


class RuntimeComparison(ChartPlugin):
    name = "runtime_comparison"
    title = "Speedup by runtime"
    needs = f"a model measured at the same points with {BASELINE} and with another runtime or precision"
    columns = """c.place, c.is_ranked, c.baseline_latency_ms, c.baseline_mode, c.baseline_validity,
        c.latency_median_ms, r.latency_ci_low_ms AS own_low, r.latency_ci_high_ms AS own_high,
        c.speedup_ci_low AS low, c.speedup_ci_high AS high, r.output_error, c.baseline_result_id,
        c.baseline_result_id = r.result_id AS is_baseline, baseline.runtime AS baseline_runtime,
        baseline.precision AS baseline_precision"""
    joins = """JOIN runtime_comparison c ON c.result_id = r.result_id
        LEFT JOIN (
            SELECT result_id, runtime, precision FROM benchmark_results JOIN benchmark_runs USING (run_id)
        ) baseline ON baseline.result_id = c.baseline_result_id"""
    newest = None
    judged = DEFAULT_METRIC

    def draw(self, rows: Sequence[Row]) -> Iterator[Figure | NotDrawn]:
        for key, members in grouped(rows, ALIKE):
            compared = [row for row in members if _is_comparable(row)]
            if not compared:
                yield not_drawn(self, key, f"{counted(len(members), 'point')} {NO_BASELINE}")
            elif all(row["is_baseline"] for row in compared):
                why = f"measured only with {_baseline(compared)}, so there is no comparison"
                yield not_drawn(self, key, why)
            else:  # one picture for each point that has more than the baseline
                for point, found in grouped(members, (*ALIKE, *POINT_COLUMNS)):
                    if any(_is_comparable(row) and not row["is_baseline"] for row in found):
                        yield self._figure(point, found)

    def _figure(self, key: Row, found: Sequence[Row]) -> Figure:
        members = _with_speedups(found)
        kept, labels, slower = _bars([row for row in members if _is_comparable(row)])
        bars = {id(row): place for place, rows in enumerate(kept) for row in rows}
        drawn = [row for rows in kept for row in rows]
        height_in = (ROW_IN if len(labels) < NARROW_FROM else NARROW_ROW_IN) * len(labels) + 0.8
        sizes = grouped(drawn, ("batch_size",))
        shown = spread(sizes, COLUMNS * max(1, int(MOST_HEIGHT_IN / height_in)))
        drawn = [row for _, rows in shown for row in rows]
        left_out = (slower, words.left_out(len(sizes) - len(shown), len(sizes), "batch sizes"))
        ranked = [row for row in drawn if row["is_ranked"]]
        highs = [row["high"] for row in ranked]
        edge = reach([row["speedup"] for row in drawn], highs)
        columns = min(len(shown), COLUMNS)
        x = value_axis(f"Speedup over {_baseline(drawn)}\nhigher is better", [edge], room=ROOM, may_be_log=False)
        # The fastest result against the baseline at the smallest batch size.
        result, told = None, None
        batch = min((row["batch_size"] for row in ranked), default=None)
        rivals = [_latency(row) for row in ranked if row["batch_size"] == batch]
        base = next((row for row in rivals if row["is_baseline"]), None)
        best = min(rivals, key=lambda row: float(row["value"]), default=None)
        if base is not None and best is not None and best is not base:
            at = "" if best["precision"] == base["precision"] else f" at {best['precision']}"
            name = f"{best['runtime']}{at}"
            if name == base["runtime"]:
                name = f"{name} with {shown_settings(best['runtime_mode'])}"
            if (at, best["runtime"], best["runtime_mode"]) != ("", base["runtime"], base["runtime_mode"]):
                result = finding((name, best), (_baseline(ranked), base), rivals)
            told = f"{result.text} at batch {batch}" if result else None
        # A CPU driven by two libraries has two names.
        devices = " and ".join(dict.fromkeys(words.device({**row, "simulated": False}) for row in drawn))
        base_modes = sorted({settings(row["baseline_mode"]) for row in drawn} - {""})
        setup = [_baseline(drawn).replace(" at ", ", "), *base_modes, *details(key, ("num_threads", "cpu_list"))]
        reading = (
            f"Baseline: {', '.join(setup)}.",
            words.interval([row for row in ranked if not row["is_baseline"]], "Whisker", "the speedup of "),
            cut_note(highs, x.high),
            ERROR if any(row["output_error"] is not None for row in drawn) else None,
            result.note if result else None,
        )
        missing = words.accountable(members, drawn, *left_out)
        lacking = (
            unsure_baseline(row["baseline_validity"] for row in drawn),
            UNRANKED if len(ranked) < len(drawn) else None,
            *left_out,
            words.doubts(ranked),
            words.missing_points(missing, drawn, words.cell_and_point, NO_BASELINE),
        )
        return figure(
            self, key, drawn,
            [
                Panel(
                    x=x, y=row_axis(labels), elements=tuple(_elements(rows, bars, labels, edge)), height_in=height_in,
                    title=words.axis("batch_size", point["batch_size"]),
                )
                for point, rows in shown
            ],
            told, about=(devices, str(key["task"]), held(key)), notes=words.sentences(reading, lacking),
            columns=columns, width_in=LABEL_IN + PANEL_IN * columns,
            columns_of_table=("configuration", "point", "speedup", "low", "high", "median ms", "output error", "state"),
            rows=tuple(
                (
                    labels[bars[id(row)]], words.point(row), row["speedup"], row["low"], row["high"],
                    row["latency_median_ms"], row["output_error"], row["validity"],
                )
                for row in drawn
            ),
            names=(str(drawn[0]["device"]).split(":")[0], *held_names(key)),
            details=details(key, (*MODEL_COLUMNS, "num_threads", "cpu_list", "place")),
        )  # fmt: skip


def _with_speedups(found: Sequence[Row]) -> list[Row]:
    """The rows, each with its speedup over the baseline and, by the judge if both are of one command, its interval."""
    by_id = {row["result_id"]: row for row in found}
    members: list[Row] = []
    for row in found:
        base = by_id.get(row["baseline_result_id"])
        if not _is_comparable(row):
            members.append(row)
        elif base is None or base is row:
            members.append({**row, "speedup": row["baseline_latency_ms"] / row["latency_median_ms"]})
        else:
            ratio = speedup(_latency(base), _latency(row))
            members.append({**row, "speedup": ratio.ratio, "low": ratio.low, "high": ratio.high})
    return members


def _bars(compared: Sequence[Row]) -> tuple[list[list[Row]], list[str], str | None]:
    """The configurations of a picture, the same in every panel, with unique names: fastest first, unranked ones last;
    and a note about slower ones that are left out."""

    def rank(group: tuple[Row, list[Row]]) -> tuple[bool, float]:  # ranked first, then by geometric mean speedup
        ranked = [row for row in group[1] if row["is_ranked"]]
        return (not ranked, -geometric_mean([row["speedup"] for row in ranked or group[1]]))

    setups = sorted(grouped(compared, BAR), key=rank)
    kept = [
        (own, rows)
        for place, (own, rows) in enumerate(setups)
        if place < MOST_BARS or any(row["is_baseline"] for row in rows)
    ]
    slower = words.left_out(len(setups) - len(kept), len(setups), "configurations", "slowest")
    # Settings are aligned by position, so differences can be named.
    modes = [json.loads(own["runtime_mode"]) for own, _ in kept]
    settings_of = sorted({name for mode in modes for name in mode})
    facts = [
        (
            *(f"{name}={mode[name]}" if name in mode else "" for name in settings_of),
            *details(own, ("device", "device_name", "simulated", "hardware_id")),
        )
        for mode, (own, _) in zip(modes, kept, strict=True)
    ]
    plain = [words.SEPARATOR.join((own["runtime"], own["precision"])) for own, _ in kept]
    labels = distinct_names(plain, facts, ", ")
    return [rows for _, rows in kept], labels, slower


def _is_comparable(row: Row) -> bool:
    return row["baseline_latency_ms"] is not None and bool(row["latency_median_ms"])


def _latency(row: Row) -> Row:
    """The row with its latency as the value that is judged."""
    columns = {"value": "latency_median_ms", "low": "own_low", "high": "own_high"}
    return drawable({**row, **{name: row[column] for name, column in columns.items()}})


def _baseline(compared: Sequence[Row]) -> str:
    """The runtime and precision of the baseline."""
    return f"{compared[0]['baseline_runtime']} at {compared[0]['baseline_precision']}"


def _elements(rows: Sequence[Row], bars: Mapping[int, int], labels: Sequence[str], edge: float) -> Iterator[Element]:
    """One bar per row, hollow if doubtful and crossed out if not ranked, with its interval, speedup and error."""
    yield Rule(at=1, along="x", role="baseline")
    for row in sorted(rows, key=lambda row: bars[id(row)]):
        place, end = bars[id(row)], row["speedup"]
        label = labels[place]
        state: State = "invalid" if not row["is_ranked"] else "valid" if trust(row) == "valid" else "doubtful"
        yield Block(
            left=0.0, right=end, bottom=place - 0.31, top=place + 0.31, role=f"bar {label}",
            fill="grey" if row["is_baseline"] else 0, state=state, words=f"{label}, {words.point(row)}: {_remark(row)}",
        )  # fmt: skip
        if row["is_ranked"] and row["low"] is not None and row["high"] is not None:
            own = mark({**row, "validity": "valid"}, end, place, low=row["low"], high=min(row["high"], edge * ROOM))
            end = max(end, min(row["high"], edge))
            yield Line(
                label=label, role="interval", marks=(own,), colour="ink", shape=None, dashes=None, is_across=True,
                has_bands=False,
            )  # fmt: skip
        dy = above(row["high"] if row["is_ranked"] else None, end)
        yield Note(x=end, y=place, text=_remark(row), dx=4, dy=dy, colour="ink" if row["is_ranked"] else "grey")
    for place in set(range(len(labels))).difference(bars[id(row)] for row in rows):
        yield Note(x=0.0, y=place, text="not measured", dx=4, colour="grey")


def _remark(row: Row) -> str:
    """Speedup and error of a ranked row, or why it is not ranked."""
    error = "" if row["output_error"] is None else f"error {exact(row['output_error'], 2)}"
    if row["simulated"]:
        return ", ".join(filter(None, ("simulated", error)))
    if not row["is_ranked"]:
        return ", ".join(filter(None, ("invalid", error)))
    factor = "baseline" if row["is_baseline"] else f"{exact(row['speedup'], 3)}\N{MULTIPLICATION SIGN}"
    return ", ".join(filter(None, (factor, error)))


RUNTIME = ("runtime", "runtime_mode", "device", "device_name", "simulated", "hardware_id")
"""Columns that identify a row."""
PRECISIONS: tuple[str, ...] = get_args(Precision)
"""Precisions in column order."""
DARKER = "Darker is faster{}."
STAR = "Star: faster than every other one, by launches in turns."
TORCH_ERROR = "Error: relative L2 distance from the output of unmodified PyTorch at float32."
NAME_IN, CELL_IN, GRID_ROW_IN, MOST_PANELS, MOST_ROWS = 2.6, 1.15, 0.6, 2, 30


class RuntimePrecision(ChartPlugin):
    name = "runtime_precision"
    title = "Latency by runtime and precision"
    needs = "a model measured with two runtimes or precisions on the same device"
    columns = f"c.place, c.is_ranked, {LATENCY}, r.output_error"
    joins = "JOIN runtime_comparison c ON c.result_id = r.result_id"
    newest = None
    judged = DEFAULT_METRIC
    alike = (*ALIKE, *POINT_COLUMNS)

    def drawing(self, key: Row, members: Sequence[Row]) -> Drawing:
        drawn = [row for row in members if is_ok(row) and row["value"]]
        if len({(row["runtime"], row["precision"]) for row in drawn}) < 2:
            return None  # a single cell is no comparison
        groups = sorted(grouped(drawn, RUNTIME), key=lambda group: min(row["value"] for row in group[1]))
        shown = groups[:MOST_ROWS]
        facts = [details(own, RUNTIME[1:]) for own, _ in shown]
        quantizations = (words.settings_of(own).get("quantization", "") for own, _ in shown)  # as a setting: too long
        plain = [f"{own['runtime']} {name}".strip() for (own, _), name in zip(shown, quantizations, strict=True)]
        names = distinct_names(plain, facts, ", ")
        columns = [name for name in PRECISIONS if any(row["precision"] == name for row in drawn)]
        sizes = sorted({row["batch_size"] for row in drawn})
        batches = sizes if len(sizes) <= MOST_PANELS else [sizes[0], sizes[-1]]
        panels = []
        winners = []
        for batch in batches:
            at = {
                (columns.index(row["precision"]), place): row
                for place, (_, members) in enumerate(shown)
                for row in members
                if row["batch_size"] == batch
            }
            winners.append(clear_winner([row for row in at.values() if row["is_ranked"]], "lower"))
            cells = {place: _cell(row, is_best=row is winners[-1]) for place, row in at.items()}
            title = f"batch {batch}: ms per call"
            panels.append(heat_panel(cells, columns, names, better="lower", title=title, row_in=GRID_ROW_IN))
        rows = [row for _, members in shown for row in members if row["batch_size"] in batches]
        missing = [str(size) for size in sizes if size not in batches]

        lacking = (
            words.doubts(rows, ("~", "Crossed out")),
            f"Batch sizes without a panel: {', '.join(missing)}." if missing else None,
            words.left_out(len(groups) - len(shown), len(groups), "runtimes", "slowest"),
        )
        reading = [
            DARKER.format(", within a panel" if len(batches) > 1 else ""),
            STAR if any(winner is not None for winner in winners) else None,
            TORCH_ERROR if any(row["output_error"] is not None for row in rows) else None,
        ]
        finding, best = None, winners[0]
        if best is not None:
            finding = f"{best['runtime']} at {best['precision']} is the fastest at batch {batches[0]}"
        ranked = [row["value"] for row in rows if row["is_ranked"]] if len(batches) == 1 else []
        return figure(
            self, key, rows, panels, finding,
            about=[words.device({**rows[0], "simulated": False}), str(key["task"]), held(key)],
            notes=words.sentences(reading, lacking), columns=len(panels),
            width_in=max(NAME_IN + CELL_IN * len(columns) * len(batches), 5.4),
            legend=heat_key(ranked, "ms", better="lower"),
            names=(str(drawn[0]["device"]).split(":")[0], *held_names(key)),
            details=details(key, (*MODEL_COLUMNS, "num_threads", "cpu_list", "place")),
        )  # fmt: skip


def _cell(row: Row, *, is_best: bool) -> Cell:
    """The latency, marked with ~ if doubtful and a star if fastest, and the error."""
    mark = "~" if trust(row) == "doubtful" else ""
    star = " \N{BLACK STAR}" if is_best else ""
    error = "" if row["output_error"] is None else f"\nerror {exact(row['output_error'], 2)}"
    state = "\nsimulated" if row["simulated"] else "\ninvalid" if trust(row) == "invalid" else ""
    text = f"{mark}{number(row['value'])}{star}{error}{state}"
    value = row["value"] if row["is_ranked"] or trust(row) == "invalid" else None
    about = f"{row['runtime']}, {row['precision']}, {words.point(row)}: {number(row['value'])} ms"
    return Cell(value=value, text=text, is_invalid=trust(row) == "invalid", words=about)


PLUGINS = (RuntimeComparison(), RuntimePrecision())
