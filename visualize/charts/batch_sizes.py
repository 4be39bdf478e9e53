"""Charts over batch sizes: a quantity against the batch size, and throughput by batch size and sequence length."""

from __future__ import annotations

import json
from collections.abc import Sequence

from benchmarking.core.axes import AXES
from benchmarking.core.metrics import ENERGY, ENERGY_PARTS, PEAK_MEMORY
from visualize.drawing import words
from visualize.drawing.batch_charts import BATCH_LABEL, BatchChart
from visualize.drawing.configurations import clear_winner
from visualize.drawing.marks import Cell, figure, heat_key, heat_panel, held
from visualize.drawing.rows import (
    CELL,
    LATENCY,
    MEMORY_COLUMNS,
    POINT_COLUMNS,
    THROUGHPUT,
    ChartPlugin,
    Drawing,
    Row,
    is_ok,
    trust,
)
from visualize.drawing.scales import number

SIZES_OR_LENGTHS = "two or more batch sizes or sequence lengths"
READING = "Median over launches, one reading each; no interval."
ENERGY_READING = "Median over launches, one reading each, including idle power; no interval."
ENERGIES = ", ".join(f"r.{column}" for column in ENERGY)


def _interval(drawn: Sequence[Row]) -> list[str]:
    return [words.interval(drawn)]


def _throughput_title(row: Row) -> str:
    """Generated tokens if the model generates, else images or other inputs."""
    is_image = row["sequence_length"] is None and row["image_size"] is not None
    unit = "generated tokens" if row["new_tokens"] is not None else "images" if is_image else "inputs"
    return f"Throughput ({unit}/s)\nhigher is better"


def _weights(drawn: Sequence[Row]) -> tuple[str, float] | None:
    sizes = [row["memory_weights_mb"] for row in drawn if row["memory_weights_mb"] is not None]
    return (f"weights alone, {number(max(sizes))} MB", max(sizes)) if sizes else None


CELL_WIDTH_IN, LEAST_WIDTH_IN = 0.72, 6.4


class BatchSequenceHeatmap(ChartPlugin):
    name = "batch_sequence_heatmap"
    title = "Throughput by batch size and sequence length"
    needs = "a model measured at two or more batch sizes and sequence lengths"
    columns = f"{THROUGHPUT} AS value"
    condition = "r.sequence_length IS NOT NULL"
    judged = "throughput_samples_per_sec"
    of_cell = True
    alike = (*CELL, *(name for name in POINT_COLUMNS if name != "sequence_length"))

    def drawing(self, key: Row, members: Sequence[Row]) -> Drawing:
        drawn = [row for row in members if is_ok(row) and row["value"] is not None]
        if not drawn:
            return words.nothing_to_draw(members)
        if min(len({row[name] for row in drawn}) for name in ("batch_size", "sequence_length")) < 2:
            return "needs two batch sizes and two sequence lengths"
        batches, lengths = (sorted({row[name] for row in members}) for name in ("batch_size", "sequence_length"))
        cells = {}
        for row in members:  # the value, marked with ~ if doubtful, or the status of a point that was not measured
            value = row["value"] if is_ok(row) else None
            state = trust(row)
            text = ("~" if state == "doubtful" else "") + number(value) if value is not None else ""
            status = str(row["status"]).replace("_", " ")
            cells[batches.index(row["batch_size"]), lengths.index(row["sequence_length"])] = Cell(
                value=value,
                text=text or (status if not is_ok(row) else "no value"),
                is_invalid=value is not None and state == "invalid",
                words=f"{words.point(row)}: {text or status}",
            )
        unit = "inputs/s" if drawn[0]["new_tokens"] is None else "generated tokens/s"
        sound = [row for row in drawn if trust(row) != "invalid"]
        finding, best = None, clear_winner(sound, "higher")
        if best:
            place = f"batch {best['batch_size']}, sequence {best['sequence_length']:,}"
            finding = f"highest throughput at {place} ({number(best['value'])} {unit})"
        panel = heat_panel(
            cells, [f"{size:,}" for size in batches], [f"{size:,}" for size in lengths], better="higher",
            title=f"Throughput ({unit}), higher is better", x_title=BATCH_LABEL,
            y_title=AXES["sequence_length"].title,
        )  # fmt: skip
        lacking = [words.doubts(drawn, ("~", "Crossed out")), words.missing_points(members, drawn)]
        return figure(
            self, key, drawn, [panel], finding, place=[held(key, sequence_length=None)],
            names=words.point_names(key["new_tokens"], key["concurrency"], json.loads(key["axes"])),
            notes=words.sentences(["Darker is faster."], lacking),
            width_in=max(LEAST_WIDTH_IN, 1.9 + CELL_WIDTH_IN * len(batches)),
            legend=heat_key([row["value"] for row in sound], unit, better="higher"),
        )  # fmt: skip


PLUGINS = (
    BatchSequenceHeatmap(),
    BatchChart(
        name="latency_vs_batch_size",
        title="Latency vs batch size",
        needs=f"a model measured at {SIZES_OR_LENGTHS}",
        quantity="the latency",
        judged="latency_median_ms",
        columns=LATENCY,
        value_title=lambda row: words.value_title("latency_median_ms"),
        notes=_interval,
    ),
    BatchChart(
        name="throughput_vs_batch_size",
        title="Throughput vs batch size",
        needs=f"a model measured at {SIZES_OR_LENGTHS}",
        quantity="the throughput",
        judged="throughput_samples_per_sec",
        columns=f"{THROUGHPUT} AS value",
        value_title=_throughput_title,
        notes=_interval,
    ),
    BatchChart(
        name="memory_vs_batch_size",
        title="Peak memory vs batch size",
        needs=f"a model with a memory reading at {SIZES_OR_LENGTHS}",
        quantity="peak memory",
        columns=f"{MEMORY_COLUMNS}, r.memory_weights_mb",
        readings=tuple(PEAK_MEMORY),
        value_title=lambda row: words.value_title(row["column"]),
        notes=lambda drawn: [words.readings(drawn, READING)],
        reference=_weights,
    ),
    BatchChart(
        name="energy_per_input",
        title="Energy per input",
        needs=f"a device with a readable energy counter, and {SIZES_OR_LENGTHS}",
        quantity="the energy per input",
        columns=ENERGIES,
        condition=f"coalesce({ENERGIES}) IS NOT NULL",
        readings=tuple(ENERGY),
        is_per_input=True,
        value_title=lambda row: f"Energy of the {ENERGY_PARTS[row['column']]} per input (J)\nlower is better",
        notes=lambda drawn: [words.readings(drawn, ENERGY_READING)],
        also_by_sequence=True,
    ),
    *(
        BatchChart(
            name=name,
            title=name.replace("_", " ").capitalize(),
            needs=needs,
            quantity=quantity,
            judged=f"{name}_ms",
            columns=f"r.{name}_ms AS value, r.{name}_ci_low_ms AS low, r.{name}_ci_high_ms AS high",
            condition="r.new_tokens IS NOT NULL",
            value_title=lambda row, column=f"{name}_ms": words.value_title(column),  # type: ignore[misc]
            notes=_interval,
            also_by_sequence=True,
        )
        for name, needs, quantity in (
            ("time_to_first_token", f"a generative model at {SIZES_OR_LENGTHS}", "the time to the first token"),
            (
                "time_per_output_token",
                f"a model that generates two or more tokens, at {SIZES_OR_LENGTHS}",
                "the time per token",
            ),
        )
    ),
)
