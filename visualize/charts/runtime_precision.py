"""Latency and output error of a model for every runtime and precision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import get_args

from benchmarking.core.records import Precision
from benchmarking.core.text import number as exact
from visualize.drawing import words
from visualize.drawing.figure import Figure
from visualize.drawing.marks import figure, held, held_names
from visualize.drawing.panels import Cell, heat_key, heat_panel
from visualize.drawing.rows import (
    LATENCY,
    MODEL_COLUMNS,
    POINT_COLUMNS,
    SUBJECT,
    ChartPlugin,
    Row,
    details,
    distinct_names,
    grouped,
    is_ok,
    trust,
)
from visualize.drawing.scales import number
from visualize.drawing.verdicts import clear_winner

ALIKE = (*SUBJECT, "place", "num_threads", "cpu_list", *POINT_COLUMNS)
"""What all results of a picture share."""
RUNTIME = ("runtime", "runtime_mode", "device", "device_name", "simulated", "hardware_id")
"""Columns that identify a row."""
PRECISIONS: tuple[str, ...] = get_args(Precision)
"""Precisions in column order."""
DARKER = "Darker is faster, within a panel."
STAR = "Star: faster than every other one, by launches in turns."
ERROR = "Error: relative L2 distance from the output of unmodified PyTorch at float32."
LABEL_IN, CELL_IN, ROW_IN, MOST_PANELS, MOST_ROWS = 2.6, 1.15, 0.6, 2, 30


class RuntimePrecision(ChartPlugin):
    name = "runtime_precision"
    title = "Latency and error by runtime and precision"
    needs = "a model measured with two runtimes or precisions on the same device"
    columns = f"c.place, c.is_ranked, {LATENCY}, r.output_error"
    joins = "JOIN runtime_comparison c ON c.result_id = r.result_id"
    newest = None
    is_judged = True

    def draw(self, rows: Sequence[Row]) -> Iterator[Figure]:
        for key, members in grouped(rows, ALIKE):
            drawn = [row for row in members if is_ok(row) and row["value"]]
            if len({(row["runtime"], row["precision"]) for row in drawn}) > 1:  # a single cell is no comparison
                yield self._figure(key, drawn)

    def _figure(self, key: Row, drawn: Sequence[Row]) -> Figure:
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
            panels.append(heat_panel(cells, columns, names, better="lower", title=title, row_in=ROW_IN))
        rows = [row for _, members in shown for row in members if row["batch_size"] in batches]
        missing = [str(size) for size in sizes if size not in batches]

        lacking = (
            words.doubts(rows, ("~", "Crossed out")),
            f"Batch sizes without a panel: {', '.join(missing)}." if missing else None,
            words.left_out(len(groups) - len(shown), len(groups), "runtimes", "slowest"),
        )
        reading = [
            DARKER,
            STAR if any(one is not None for one in winners) else None,
            ERROR if any(row["output_error"] is not None for row in rows) else None,
        ]
        finding, best = None, winners[0]
        if best is not None:
            finding = f"{best['runtime']} at {best['precision']} is the fastest at batch {batches[0]}"
        ranked = [row["value"] for row in rows if row["is_ranked"]] if len(batches) == 1 else []
        return figure(
            self, key, rows, panels, finding,
            about=[words.device({**rows[0], "simulated": False}), str(key["task"]), held(key)],
            notes=words.sentences(reading, lacking), columns=len(panels),
            width_in=max(LABEL_IN + CELL_IN * len(columns) * len(batches), 5.4),
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


PLUGIN = RuntimePrecision()
