"""Roofline: results against the measured compute and memory-bandwidth peaks of a calibrated device."""

from __future__ import annotations

from collections.abc import Sequence

from visualize.drawing import words
from visualize.drawing.figure import Element, Figure, Line, Mark, NotDrawn, Note, Panel
from visualize.drawing.marks import Series, legend, marks_of
from visualize.drawing.rows import ChartPlugin, Drawing, Row, distinct_names, grouped, trust
from visualize.drawing.scales import Axis, log_ticks, number

SERIES = ("model_id", "runtime", "precision")
"""Columns that identify a series, which has its own marker and colour."""
WIDTH_IN, HEIGHT_IN, MOST_SERIES = 7.2, 4.4, 40
GIGA = 1e9
NOTE = (
    "Lines: matrix-multiply and memory-bandwidth peaks measured on this device; points above the slope read some data "
    "from caches."
)


class Roofline(ChartPlugin):
    name = "roofline"
    title = "Roofline"
    needs = "a calibrated device (--calibrate-device) and results with operation and byte counts"
    scope = "models"
    columns = """e.arithmetic_intensity, e.achieved_flops_per_sec AS value, e.peak_flops_per_sec,
        e.peak_copy_bytes_per_sec, e.share_of_peak"""
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
        x = _log_axis("Arithmetic intensity (operations per byte)", lowest, highest)
        y = _log_axis("Speed (GFLOP/s)\nhigher is better", y_low, y_high)
        panel = Panel(x=x, y=y, elements=tuple(elements), height_in=HEIGHT_IN)
        left_out = words.left_out(len(groups) - len(shown_groups), len(groups), "series", "slowest")
        # The largest share of the measured peak; generic for simulated devices, which are never ranked.
        ranked = [row for row in shown if trust(row) != "invalid" and row["share_of_peak"]]
        best = max(ranked, key=lambda row: float(row["share_of_peak"]), default=None)
        if best is None or trust(best) != "valid":
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
                NOTE,
                lacking=[left_out],
                named=lambda row: f"{row['model_id']} at {words.point(row)}",
                otherwise="without operation or byte counts, or at a precision without calibration",
            ),
            panels=(panel,),
            width_in=WIDTH_IN,
            legend=legend(series, shown),
            name_parts=(str(key["device"]),),
            details=(str(key["device_name"]), key["hardware_id"]),
        )


def _log_axis(title: str, low: float, high: float) -> Axis:
    return Axis(title=title, low=low, high=high, ticks=log_ticks(low, high), is_log=True, is_value=True)


PLUGIN = Roofline()
