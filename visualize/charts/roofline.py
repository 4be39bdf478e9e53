"""Roofline: results against the measured compute and memory-bandwidth peaks of a calibrated device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from visualize.drawing import words
from visualize.drawing.layout import FigureText, finish, new_figure
from visualize.drawing.lines import doubtful_entries, draw_trusted, legend_entry
from visualize.drawing.rows import ChartPlugin, Drawing, NotDrawn, Row, distinct_names, grouped, trust
from visualize.drawing.style import SMALL_SIZE, colour, line_style, look, number, theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SQL = """
SELECT {facts}, e.arithmetic_intensity, e.achieved_flops_per_sec AS value, e.peak_flops_per_sec,
    e.peak_copy_bytes_per_sec, e.share_of_peak
FROM {tables}
JOIN device_efficiency e ON e.result_id = r.result_id
WHERE {selected}
ORDER BY {order}
"""

SERIES = ("model_id", "runtime", "precision")
"""Columns that identify a series, which has its own marker and colour."""
DEVICE = ("hardware_id", "device", "device_name", "simulated")
WIDTH_IN, HEIGHT_IN, MOST_SERIES = 7.2, 4.6, 40
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
    sql = SQL

    def draw(self, rows: Sequence[Row]) -> Iterator[Drawing | NotDrawn]:
        for key, members in grouped(rows, DEVICE):
            what = f"{self.title} of {words.device(key)}"
            drawn = [
                row for row in members if row["arithmetic_intensity"] and row["value"] and row["peak_flops_per_sec"]
            ]
            if members[0]["peak_copy_bytes_per_sec"] is None:
                why = f"not calibrated: run_hardware_benchmark --calibrate-device --device {key['device']} --save"
                yield NotDrawn(what=what, why=why)
            elif not drawn:
                why = "no result at a calibrated precision has operation and byte counts"
                yield NotDrawn(what=what, why=why)
            else:
                yield _drawing(key, members, drawn)


def _drawing(key: Row, members: Sequence[Row], drawn: Sequence[Row]) -> Drawing:
    groups = sorted(grouped(drawn, SERIES), key=lambda group: -max(row["value"] for row in group[1]))
    series = groups[:MOST_SERIES]
    names = distinct_names(
        [words.SEPARATOR.join(map(str, own.values())) for own, _ in series], [()] * len(series), ", "
    )
    shown = [row for _, rows in series for row in rows]
    with theme():
        figure, (axes,) = new_figure(WIDTH_IN, HEIGHT_IN)
        for style, (name, (_, rows)) in enumerate(zip(names, series, strict=True)):
            points = [(row["arithmetic_intensity"], row["value"] / GIGA, row) for row in rows]
            draw_trusted(axes, points, colour(style), style, name)
        _draw_roofs(axes, shown)
        axes.set(xlabel="Arithmetic intensity (operations per byte)", ylabel="Speed (GFLOP/s)\nhigher is better")
        entries = [legend_entry(name, colour(style), style) for style, name in enumerate(names)]
        rest = len(groups) - len(series)
        left_out = f"Left out: {rest} of {len(groups)} series; narrow the selection to see them." if rest else None
        best = max((row for row in shown if trust(row) != "invalid"), key=_share, default=None)
        finish(
            figure,
            FigureText(
                title=_title(best),
                subtitle=words.subtitle(_title(best), Roofline.title, words.device(key)),
                source=words.provenance(shown),
                notes=words.caption(
                    members, shown, NOTE, lacking=[left_out],
                    named=lambda row: f"{row['model_id']} at {words.point(row)}",
                    otherwise="without operation or byte counts, or at a precision without calibration",
                ),
                legend=(*entries, *doubtful_entries(shown)),
            ),
        )  # fmt: skip
    return Drawing(
        figure=figure, name_parts=(str(key["device"]),), details=(str(key["device_name"]), key["hardware_id"])
    )


def _share(row: Row) -> float:
    return float(row["share_of_peak"] or 0)


def _title(best: Row | None) -> str:
    """The largest share of the measured peak; generic for simulated devices, which are never ranked."""
    if best is None or not _share(best) or trust(best) != "valid":
        return f"{Roofline.title}: speed against operations per byte"
    return f"{Roofline.title}: up to {_share(best):.0%} of the measured peak ({best['model_id']})"


def _draw_roofs(axes: Axes, shown: Sequence[Row]) -> None:
    """The memory-bandwidth slope and one ceiling per precision, across the range of the points."""
    from matplotlib.ticker import FuncFormatter

    bytes_per_s = shown[0]["peak_copy_bytes_per_sec"]
    peaks = dict(sorted({row["precision"]: row["peak_flops_per_sec"] for row in shown}.items()))
    lowest = min(*(row["arithmetic_intensity"] for row in shown), min(peaks.values()) / bytes_per_s) / 3
    highest = max(max(row["arithmetic_intensity"] for row in shown), max(peaks.values()) / bytes_per_s) * 6
    for index, (precision, peak) in enumerate(peaks.items()):
        ridge = peak / bytes_per_s
        axes.plot(
            [min(lowest, ridge), ridge, highest], [min(lowest, ridge) * bytes_per_s / GIGA, peak / GIGA, peak / GIGA],
            color=look().ink, linewidth=1.2, linestyle=line_style(index * 11), label=f"_roof {precision}", zorder=1,
        )  # fmt: skip
    for peak in dict.fromkeys(peaks.values()):
        names = ", ".join(name for name, own in peaks.items() if own == peak)
        axes.annotate(
            f"{names}: {number(peak / GIGA)} GFLOP/s", (highest, peak / GIGA), xytext=(0, 4), ha="right",
            textcoords="offset points", fontsize=SMALL_SIZE,
        )  # fmt: skip
    axes.annotate(
        f"memory: {number(bytes_per_s / GIGA)} GB/s", (lowest, lowest * bytes_per_s / GIGA), xytext=(10, -2),
        textcoords="offset points", fontsize=SMALL_SIZE, va="top",
    )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
        axis.set_minor_formatter("")


PLUGIN = Roofline()
