"""Charts that compare models: by architecture family, a block per task, and on the roofline, the measured compute and
memory-bandwidth peaks of a calibrated device."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarking.core.axes import FURTHER
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import PEAK_MEMORY
from benchmarking.core.plugins import family_names
from benchmarking.core.text import counted, distinct_names
from visualize.drawing import words
from visualize.drawing.figure import Element, Entry, Figure, Line, Mark, NotDrawn, Note, Panel
from visualize.drawing.marks import Series, ends, legend, mark, marks_of, states_legend
from visualize.drawing.rows import (
    LATENCY,
    MEMORY_COLUMNS,
    POINT_COLUMNS,
    ChartPlugin,
    Drawing,
    Row,
    detail,
    details,
    grouped,
    is_ok,
    read_column,
    trust,
)
from visualize.drawing.scales import Axis, log_axis, name_axis, number, value_axis

ALIKE = (
    "device",
    "runtime",
    "precision",
    "weights",
    "device_name",
    "simulated",
    "num_threads",
    "cpu_list",
    "hardware_id",
    "metric_definition",
)
"""What all results of a picture share. Runtime settings may differ, since models support different ones."""
DETAILS = ("device_name", "num_threads", "cpu_list", "metric_definition", "hardware_id")
ROW_IN, NARROW_ROW_IN, NARROW_FROM, BLOCK_IN = 0.34, 0.27, 13, 0.45
"""Height of a row, the lower height of many rows, the number of rows from which it is used, and the rest of a block."""
WIDTH_IN = 9.0
CHOICE = "Each block shows the point that most of its models share."


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The models of one task, at the point that most of them share. Families without that point get another block."""

    point: Row
    rows: tuple[Row, ...]
    """From bottom to top: slowest family first, and within a family slowest model first."""
    elsewhere: tuple[str, ...]
    """Models of the task measured only at other points."""


class ArchitectureComparison(ChartPlugin):
    name = "architecture_comparison"
    title = "Models by architecture family"
    needs = "two or more models on the same device, runtime and precision, with the same kind of weights"
    scope = "models"
    columns = f"{MEMORY_COLUMNS}, {LATENCY}"
    newest = "comparable"
    alike = ALIKE

    def drawing(self, key: Row, members: Sequence[Row]) -> Drawing:
        measured = [row for row in members if is_ok(row) and row["validity"] != "invalid" and row["value"] is not None]
        what = f"{self.title} on {words.cell(key)}, {key['weights']} weights"
        if not measured:
            return NotDrawn(what=what, why=words.nothing_to_draw(members))
        if len({row["model_id"] for row in measured}) < 2:
            return NotDrawn(what=what, why=f"{measured[0]['model_id']} is the only model")
        blocks = _blocks(measured)
        drawn = [row for block in blocks for row in block.rows]
        if len(drawn) < 2:
            return NotDrawn(
                what=what, why=f"{len({row['model_id'] for row in measured})} models, but no two share a point"
            )
        styles = {family: _place(own[0]["architecture_type"]) for family, own in _by_family(drawn)}
        memory = read_column(drawn, PEAK_MEMORY)
        columns = ["value", *([memory] if memory else [])]
        axes = {"value": value_axis(words.value_title("latency_median_ms"), ends(drawn))}
        if memory:
            axes[memory] = value_axis(words.value_title(memory), ends(drawn, memory))
        row_in = ROW_IN if len(drawn) < NARROW_FROM else NARROW_ROW_IN
        elsewhere = [f"{block.point['task']}: {', '.join(block.elsewhere)}" for block in blocks if block.elsewhere]
        tasks = "Tasks do different work per call: compare only within a block." if len(blocks) > 1 else None
        missing = f"Measured only at other points: {'; '.join(elsewhere)}." if elsewhere else None
        sound = set(map(id, measured))
        lost = [row for row in members if id(row) not in sound]
        bound = [detail(column, key[column]) for column in ("num_threads", "cpu_list") if key[column] is not None]
        is_of_family = any(row["architecture_type"] for row in drawn)
        entries = [Entry(label=family, colour=style, shape=style) for family, style in styles.items()]
        return Figure(
            title=self.title if is_of_family else "Latency by model",
            subtitle=words.SEPARATOR.join([words.cell(key), *bound]),
            source=words.provenance(drawn),
            notes=words.caption(
                [*drawn, *lost],
                drawn,
                words.interval(drawn, "Whisker"),
                tasks,
                CHOICE,
                lacking=[missing],
                named=lambda row: f"{row['model_id']} at {words.point(row)}",
            ),
            panels=tuple(_panel(block, column, axes[column], styles, row_in) for block in blocks for column in columns),
            columns=len(columns),
            width_in=WIDTH_IN,
            legend=(*(entries if is_of_family else ()), *states_legend(drawn)),
            legend_title="Architecture family" if is_of_family else None,
            name_parts=tuple(str(key[column]) for column in ("device", "runtime", "precision", "weights")),
            details=details(key, DETAILS),
        )


def _blocks(measured: Sequence[Row]) -> list[Block]:
    """Blocks that together cover every family, in family order. A block is at the point with the most models; ties go
    to the smallest batch, then the longest sequence, then the smallest values on all other axes."""

    def preference(group: tuple[Row, list[Row]]) -> tuple[float, ...]:
        point, rows = group
        further = [point[name] or 0 for name in FURTHER]
        models = len({row["model_id"] for row in rows})
        return (-models, point["batch_size"], -(point["sequence_length"] or 0), point["new_tokens"] or 0, *further)

    blocks: list[Block] = []
    for key, rows in grouped(measured, ("task",)):
        while rows:
            point, chosen = min(grouped(rows, ("batch_size", *POINT_COLUMNS)), key=preference)
            shown = {row["architecture_type"] for row in chosen}
            best = {family: min(row["value"] for row in members) for family, members in _by_family(chosen)}
            ordered = sorted(chosen, key=lambda row: (-best[words.family(row)], words.family(row), -row["value"]))
            models = {row["model_id"] for row in rows if row["architecture_type"] in shown}
            elsewhere = sorted(models - {row["model_id"] for row in chosen})
            blocks.append(Block(point={**point, **key}, rows=tuple(ordered), elsewhere=tuple(elsewhere)))
            rows = [row for row in rows if row["architecture_type"] not in shown]
    return sorted(blocks, key=lambda block: min(_place(row["architecture_type"]) for row in block.rows))


def _by_family(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """Rows grouped by family, in family order."""
    groups = grouped(rows, ("architecture_type",))
    groups.sort(key=lambda group: _place(group[0]["architecture_type"]))
    return [(words.family(key), members) for key, members in groups]


def _place(family: str | None) -> int:
    """Index of the family, which fixes its colour and marker in every picture."""
    names = family_names()
    return names.index(family) if family in names else len(names)


def _panel(block: Block, column: str, x: Axis, styles: dict[str, int], row_in: float) -> Panel:
    """One mark per model, with its family's colour and shape, and its interval as a whisker."""
    lines = []
    for place, row in enumerate(block.rows):
        if row[column] is not None:
            style = styles[words.family(row)]
            low, high = (row["low"], row["high"]) if column == "value" else (None, None)
            own = mark(row, row[column], place, low=low, high=high)
            lines.append(
                Line(
                    label=str(row["model_id"]), role="mark", marks=(own,), colour=style, shape=style, dashes=None,
                    is_across=True, has_bands=False,
                )
            )  # fmt: skip
    title = ""
    if column == "value":  # the task and the point, preceded by the family if there is only one
        families = {words.family(row) for row in block.rows}
        only = families.pop() if len(families) == 1 and block.rows[0]["architecture_type"] else None
        task = ", ".join(filter(None, (only, block.point["task"])))
        title = words.unbroken(f"{task}: {words.point(block.point)}")
    # Settings distinguish models of the same name.
    facts = [details(row, ("runtime_mode", "model_revision", "config_hash")) for row in block.rows]
    plain = [
        str(row["model_id"])
        + ("" if (size := row["parameter_count"]) is None else " " + words.unbroken(f"({words.size(size)})"))
        for row in block.rows
    ]
    names = distinct_names(plain, facts, ", ")
    return Panel(
        x=x, y=name_axis(names, edge=0.6), elements=tuple(lines), title=title,
        height_in=BLOCK_IN + len(block.rows) * row_in,
    )  # fmt: skip


SERIES = ("model_id", "runtime", "precision")
"""Columns that identify a series, which has its own marker and colour."""
ROOFLINE_IN, HEIGHT_IN, MOST_SERIES = 7.2, 4.4, 40
GIGA = 1e9
CALIBRATION = """(
    SELECT {
        'at': max(c.started_at), 'threads': max(c.num_threads), 'cpus': max(c.cpu_list),
        'validity': list(DISTINCT p.validity)
    }
    FROM benchmark_runs c JOIN benchmark_results p USING (run_id)
    WHERE c.run_id = e.calibration_run_id AND p.status = 'ok' HAVING count(*) > 0
) AS calibration"""
"""The newest calibration of the device: when, on what, and how far it can be trusted."""


class Roofline(ChartPlugin):
    name = "roofline"
    title = "Roofline"
    needs = "a calibrated device (--calibrate-device) and results with operation and byte counts"
    scope = "models"
    columns = (
        """e.arithmetic_intensity, e.achieved_flops_per_sec AS value, e.peak_flops_per_sec,
        e.peak_copy_bytes_per_sec, e.share_of_peak, """
        + CALIBRATION
    )
    joins = "JOIN device_efficiency e ON e.result_id = r.result_id"
    newest = None
    alike = ("hardware_id", "device", "device_name", "simulated")

    def drawing(self, key: Row, members: Sequence[Row]) -> Drawing:
        what = f"{self.title} of {words.device(key)}"
        drawn = [row for row in members if row["arithmetic_intensity"] and row["value"] and row["peak_flops_per_sec"]]
        if members[0]["peak_copy_bytes_per_sec"] is None:
            why = f"not calibrated: benchhouse run --calibrate-device --device {key['device']} --save"
            return NotDrawn(what=what, why=why)
        if not drawn:
            return NotDrawn(what=what, why="no result at a calibrated precision has operation and byte counts")
        groups = sorted(grouped(drawn, SERIES), key=lambda group: -max(row["value"] for row in group[1]))
        shown_groups = groups[:MOST_SERIES]
        plain = [words.SEPARATOR.join(map(str, own.values())) for own, _ in shown_groups]
        names = distinct_names(plain, [()] * len(shown_groups), ", ")
        series = [
            Series(label=name, rows=tuple({**row, "speed": row["value"] / GIGA} for row in rows), style=style)
            for style, (name, (_, rows)) in enumerate(zip(names, shown_groups, strict=True))
        ]
        shown = [row for one in series for row in one.rows]
        lines = [one.line(marks_of(one.rows, "arithmetic_intensity", "speed"), dashes=None) for one in series]
        # The memory-bandwidth slope, and one ceiling per precision.
        bytes_per_s = shown[0]["peak_copy_bytes_per_sec"]
        peaks = dict(sorted({row["precision"]: row["peak_flops_per_sec"] for row in shown}.items()))
        lowest = min(*(row["arithmetic_intensity"] for row in shown), min(peaks.values()) / bytes_per_s) / 3
        highest = max(max(row["arithmetic_intensity"] for row in shown), max(peaks.values()) / bytes_per_s) * 6
        elements: list[Element] = list(lines)
        for index, (precision, peak) in enumerate(peaks.items()):
            ridge = peak / bytes_per_s
            start = min(lowest, ridge)
            corners = [(start, start * bytes_per_s / GIGA), (ridge, peak / GIGA), (highest, peak / GIGA)]
            elements.append(
                Line(
                    label=precision, role="roof", colour="ink", shape=None, dashes=index, width=1.2, in_table=False,
                    marks=tuple(Mark(x=x, y=y) for x, y in corners),
                )
            )  # fmt: skip
        for peak in dict.fromkeys(peaks.values()):
            alike = ", ".join(name for name, own in peaks.items() if own == peak)
            text = f"{alike}: {number(peak / GIGA)} GFLOP/s"
            elements.append(Note(x=highest, y=peak / GIGA, text=text, dy=7, align="right"))
        memory = f"memory: {number(bytes_per_s / GIGA)} GB/s"
        elements.append(Note(x=lowest, y=lowest * bytes_per_s / GIGA, text=memory, dx=10, dy=-6))
        speeds = [
            *(row["speed"] for row in shown),
            lowest * bytes_per_s / GIGA,
            *(peak / GIGA for peak in peaks.values()),
        ]
        y_low, y_high = min(speeds) / 2, max(speeds) * 2
        x = log_axis("Arithmetic intensity (operations per byte)", lowest, highest)
        y = log_axis("Speed (GFLOP/s)\nhigher is better", y_low, y_high)
        panel = Panel(x=x, y=y, elements=tuple(elements), height_in=HEIGHT_IN)
        left_out = words.left_out(len(groups) - len(shown_groups), len(groups), "series", "slowest")
        # The largest share of the measured peak; generic for simulated devices, which are never ranked.
        ranked = [row for row in shown if trust(row) != "invalid" and row["share_of_peak"]]
        best = max(ranked, key=lambda row: float(row["share_of_peak"]), default=None)
        above = sum(row["value"] > row["peak_flops_per_sec"] for row in shown)
        too_low = (
            f"{above} of {counted(len(shown), 'point')} {'is' if above == 1 else 'are'} above the peak of the "
            "precision, which was measured too low: calibrate the device again when it is idle."
        )
        if best is None or trust(best) != "valid" or above:
            title = f"{self.title}: speed against operations per byte"
        else:
            share = f"{number(100 * best['share_of_peak'])}%"
            title = f"{self.title}: up to {share} of the measured peak ({best['model_id']})"
        return Figure(
            title=title,
            subtitle=words.subtitle(title, self.title, words.device(key)),
            source=words.provenance(shown),
            notes=words.caption(
                [row for row in members if not any(row is other for other in drawn)] + shown,
                shown,
                f"Lines: matrix-multiply and memory-bandwidth peaks measured on this device{_calibration(shown[0])}; "
                "points above the slope read some data from caches.",
                too_low if above else None,
                lacking=[left_out],
                named=lambda row: f"{row['model_id']} at {words.point(row)}",
                otherwise="without operation or byte counts, or at a precision without calibration",
            ),
            panels=(panel,),
            width_in=ROOFLINE_IN,
            legend=legend(series, shown),
            name_parts=(str(key["device"]),),
            details=(str(key["device_name"]), key["hardware_id"]),
        )


def _calibration(row: Row) -> str:
    """When and on what the peaks were measured: " (2026-11-30, 4 threads, valid)"."""
    if (found := row["calibration"]) is None:  # its run is not stored any more
        return ""
    threads = counted(found["threads"], "thread") if found["threads"] else None
    bound = f"CPUs {found['cpus']}" if found["cpus"] else None
    words_of = (f"{found['at']:%Y-%m-%d}", threads, bound, *sorted(found["validity"]))
    return f" ({', '.join(filter(None, words_of))})"


PLUGINS = (ArchitectureComparison(), Roofline())
