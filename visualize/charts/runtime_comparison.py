"""One model on one device in every runtime: speedup over the baseline and output error."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from benchmarking.core.text import relative_error
from visualize.drawing import words
from visualize.drawing.configurations import Finding, above, cut_note, finding, reach, speedup
from visualize.drawing.figure import Block, Element, Figure, Line, NotDrawn, Note, Panel, Rule, State
from visualize.drawing.marks import mark, spread
from visualize.drawing.rows import (
    MODEL_COLUMNS,
    POINT_COLUMNS,
    ChartPlugin,
    Row,
    axis_values,
    details,
    distinct_names,
    drawable,
    grouped,
    is_doubtful,
    settings,
)
from visualize.drawing.scales import number, row_axis, value_axis

SQL = """
SELECT {facts}, c.place, c.is_ranked, c.baseline_latency_ms, c.baseline_mode, c.baseline_validity,
    c.latency_median_ms, r.latency_ci_low_ms AS own_low, r.latency_ci_high_ms AS own_high,
    c.speedup_ci_low AS low, c.speedup_ci_high AS high, r.output_error,
    c.baseline_result_id, c.baseline_result_id = r.result_id AS is_baseline, baseline.runtime AS baseline_runtime,
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
UNRANKED = "Crossed out: not ranked, because the output is wrong or the device is simulated."
COLUMNS, LABEL_IN, PANEL_IN = 3, 2.5, 2.7
ROW_IN, NARROW_ROW_IN, NARROW_FROM = 0.36, 0.25, 12
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
    is_judged = True

    def draw(self, rows: Sequence[Row]) -> Iterator[Figure | NotDrawn]:
        for key, members in grouped(rows, SUBJECT):
            compared = [row for row in members if _is_comparable(row)]
            what = f"{self.title}: {key['model_id']}"
            if not compared:
                yield NotDrawn(what=what, why=f"{len(members)} points {NO_BASELINE}")
            elif all(row["is_baseline"] for row in compared):
                why = f"measured only with {_baseline(compared)}, so there is no comparison"
                yield NotDrawn(what=what, why=why)
            else:
                yield from _figures(members)


def _figures(members: Sequence[Row]) -> Iterator[Figure]:
    """One picture for each point that has more than the baseline."""
    for key, rows in grouped(members, (*SUBJECT, *POINT_COLUMNS)):
        with_speedups = [_with_speedup(row, rows) if _is_comparable(row) else row for row in rows]
        drawn = [row for row in with_speedups if _is_comparable(row)]
        if not all(row["is_baseline"] for row in drawn):
            yield _figure(key, with_speedups, drawn)


def _with_speedup(row: Row, rows: Sequence[Row]) -> Row:
    """The row with its speedup over the baseline and the interval of that, by the judge if both are of one command."""
    base = next((one for one in rows if one["result_id"] == row["baseline_result_id"]), None)
    if base is None or base is row:
        return {**row, "speedup": row["baseline_latency_ms"] / row["latency_median_ms"]}
    ratio = speedup(_latency(base), _latency(row))
    return {**row, "speedup": ratio.value, "low": ratio.low, "high": ratio.high}


def _latency(row: Row) -> Row:
    """The row with its latency as the value that is judged."""
    columns = {"value": "latency_median_ms", "low": "own_low", "high": "own_high"}
    return drawable({**row, **{name: row[column] for name, column in columns.items()}})


def _is_comparable(row: Row) -> bool:
    return row["baseline_latency_ms"] is not None and bool(row["latency_median_ms"])


def _baseline(compared: Sequence[Row]) -> str:
    """The runtime and precision of the baseline."""
    return f"{compared[0]['baseline_runtime']} at {compared[0]['baseline_precision']}"


def _figure(key: Row, members: Sequence[Row], drawn: Sequence[Row]) -> Figure:
    bars, drawn, slower = _bars(drawn)
    height_in = (ROW_IN if len(bars.labels) < NARROW_FROM else NARROW_ROW_IN) * len(bars.labels) + 0.8
    sizes = grouped(drawn, ("batch_size",))
    shown = spread(sizes, COLUMNS * max(1, int(MOST_HEIGHT_IN / height_in)))
    drawn = [row for _, rows in shown for row in rows]
    left_out = (slower, words.left_out(len(sizes) - len(shown), len(sizes), "batch sizes"))
    highs = [row["high"] for row in drawn if row["is_ranked"]]
    edge = reach([row["speedup"] for row in drawn], highs)
    columns = min(len(shown), COLUMNS)
    x = value_axis(f"Speedup over {_baseline(drawn)}\nhigher is better", [edge], room=ROOM, may_be_log=False)
    ranked = [row for row in drawn if row["is_ranked"]]
    # The fastest result against the baseline at the smallest batch size.
    batch = min((row["batch_size"] for row in ranked), default=None)
    rivals = [_latency(row) for row in ranked if row["batch_size"] == batch]
    base = next((row for row in rivals if row["is_baseline"]), None)
    best = min(rivals, key=lambda row: float(row["value"]), default=None)
    if base is None or best is None or best is base:
        result = None
    else:
        name = (
            best["runtime"] if best["precision"] == base["precision"] else f"{best['runtime']} at {best['precision']}"
        )
        if name == base["runtime"]:
            name = f"{name} with {settings(best['runtime_mode'])}"
        result = finding((name, best), (_baseline(ranked), base), rivals)
    heading = f"{RuntimeComparison.title}: {key['model_id']}"
    if result:
        heading = f"{key['model_id']}: {result.text} at batch {min(row['batch_size'] for row in ranked)}"
    # A CPU driven by two libraries has two names.
    devices = " and ".join(dict.fromkeys(words.device({**row, "simulated": False}) for row in drawn))
    held = (devices, str(key["task"]), words.unbroken(words.point({**key, "batch_size": 1}, with_batch=False)))
    return Figure(
        title=heading,
        subtitle=words.subtitle(heading, RuntimeComparison.title, *held),
        source=words.provenance(drawn),
        notes=_notes(key, members, drawn, left_out, cut_note(highs, x.high), result),
        panels=tuple(
            Panel(
                x=x, y=row_axis(bars.labels), elements=tuple(_elements(rows, bars, edge)), height_in=height_in,
                title=words.axis("batch_size", point["batch_size"]),
            )
            for point, rows in shown
        ),
        columns=columns,
        width_in=LABEL_IN + PANEL_IN * columns,
        columns_of_table=("configuration", "point", "speedup", "low", "high", "median ms", "output error", "state"),
        rows=tuple(
            (
                bars.labels[bars.place(row)], words.point(row), row["speedup"], row["low"], row["high"],
                row["latency_median_ms"], row["output_error"], row["validity"],
            )
            for row in drawn
        ),
        name_parts=(
            *(str(key["model_id"]), str(drawn[0]["device"]).split(":")[0]),
            *words.point_names(key["new_tokens"], key["concurrency"], axis_values(key)),
        ),
        details=details(key, (*MODEL_COLUMNS, "num_threads", "cpu_list", "place")),
    )  # fmt: skip


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
    names = [words.SEPARATOR.join((key["runtime"], key["precision"])) for key, _ in groups]
    keys = [key for key, _ in groups]
    facts = [
        (*modes, *details(key, ("device", "device_name", "simulated", "hardware_id")))
        for modes, key in zip(_modes(keys), keys, strict=True)
    ]
    labels = distinct_names(names, facts, ", ")
    return (
        Bars(labels=tuple(labels), keys=tuple(keys)),
        [row for _, rows in groups for row in rows],
        note if rest else None,
    )


def _modes(keys: Sequence[Row]) -> list[tuple[str, ...]]:
    """The settings of each configuration, aligned by position, so differences can be named."""
    modes = [json.loads(key["runtime_mode"]) for key in keys]
    names = sorted({name for mode in modes for name in mode})
    return [tuple(f"{name}={mode[name]}" if name in mode else "" for name in names) for mode in modes]


def _rank_key(rows: Sequence[Row]) -> tuple[bool, float]:
    """Sort key of a bar: ranked first, then by geometric mean speedup."""
    ranked = [row for row in rows if row["is_ranked"]]
    ratios = [row["speedup"] for row in ranked or rows]
    return (not ranked, -geometric_mean(ratios))


def _elements(rows: Sequence[Row], bars: Bars, edge: float) -> Iterator[Element]:
    """One bar per row, hollow if doubtful and crossed out if not ranked, with its interval, speedup and error."""
    yield Rule(at=1, along="x", role="baseline")
    for row in sorted(rows, key=bars.place):
        place, end = bars.place(row), row["speedup"]
        label = bars.labels[place]
        state: State = "invalid" if not row["is_ranked"] else "doubtful" if is_doubtful(row) else "valid"
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
    for place in set(range(len(bars.labels))).difference(map(bars.place, rows)):
        yield Note(x=0.0, y=place, text="not measured", dx=4, colour="grey")


def _remark(row: Row) -> str:
    """Speedup and error of a ranked row, or why it is not ranked."""
    error = "" if row["output_error"] is None else f"error {relative_error(row['output_error'])}"
    if row["simulated"]:
        return ", ".join(filter(None, ("simulated", error)))
    if not row["is_ranked"]:
        return ", ".join(filter(None, ("invalid", error)))
    times = f"{row['speedup']:.3g}" if row["speedup"] < 1000 else number(row["speedup"])
    factor = "baseline" if row["is_baseline"] else f"{times}\N{MULTIPLICATION SIGN}"
    return ", ".join(filter(None, (factor, error)))


def _notes(
    key: Row,
    members: Sequence[Row],
    drawn: Sequence[Row],
    left_out: Sequence[str | None],
    cut: str | None,
    result: Finding | None,
) -> tuple[str, ...]:
    ranked = [row for row in drawn if row["is_ranked"]]
    modes = sorted({settings(row["baseline_mode"]) for row in drawn} - {""})
    setup = details(key, ("num_threads", "cpu_list"))
    unsure = {row["baseline_validity"] for row in drawn} - {"valid"}
    reading = (
        f"Baseline: {', '.join((_baseline(drawn).replace(' at ', ', '), *modes, *setup))}.",
        words.interval([row for row in ranked if not row["is_baseline"]], "Whisker", "the speedup of "),
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
    return words.sentences(reading, lacking)


PLUGIN = RuntimeComparison()
