"""The charts against the batch size: latency, throughput, memory, energy, and the times of generated tokens."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarking.core.metrics import ENERGY, ENERGY_PARTS, PEAK_MEMORY
from visualize.drawing import words
from visualize.drawing.batch_charts import BatchChart
from visualize.drawing.rows import JUDGED_THROUGHPUT, LATENCY, MEMORY_COLUMNS, Row, is_ok, memory_column
from visualize.drawing.scales import number

READING = "Median over launches, one reading each; no interval."
ENERGY_READING = "Median over launches, one reading each, including idle power; no interval."
ENERGIES = ", ".join(f"r.{column}" for column in ENERGY)


def _interval(drawn: Sequence[Row]) -> list[str]:
    return [words.interval(drawn)]


def _throughput_title(row: Row) -> str:
    """Generated tokens if the model generates, else images or other inputs."""
    is_image = row["sequence_length"] is None and row["image_size"] is not None
    unit = "generated tokens" if row["new_tokens"] is not None else "images" if is_image else "inputs"
    return f"Throughput ({unit}/s)\n{words.better('higher')}"


def _with_memory(members: Sequence[Row]) -> list[Row]:
    column = memory_column(members) or PEAK_MEMORY[0]
    return [{**row, "value": row[column], "low": None, "high": None, "column": column} for row in members]


def _weights(drawn: Sequence[Row]) -> tuple[str, float] | None:
    sizes = [row["memory_weights_mb"] for row in drawn if row["memory_weights_mb"] is not None]
    return (f"weights alone, {number(max(sizes))} MB", max(sizes)) if sizes else None


def _with_energy(members: Sequence[Row]) -> list[Row]:
    column = next(name for name in ENERGY if any(row[name] is not None for row in members))
    read = [row[column] / row["batch_size"] if is_ok(row) and row[column] is not None else None for row in members]
    return [
        {**row, "value": value, "low": None, "high": None, "column": column}
        for row, value in zip(members, read, strict=True)
    ]


PLUGINS = (
    BatchChart(
        name="latency_vs_batch_size",
        title="Latency vs batch size",
        needs="a model with a measured result",
        quantity="the latency",
        judged="latency_median_ms",
        columns=LATENCY,
        value_title=lambda row: words.value_title("latency_median_ms"),
        notes=_interval,
    ),
    BatchChart(
        name="throughput_vs_batch_size",
        title="Throughput vs batch size",
        needs="a model with a measured result",
        quantity="the throughput",
        judged="latency_median_ms",
        better="higher",
        columns=JUDGED_THROUGHPUT,
        value_title=_throughput_title,
        notes=lambda drawn: [words.interval(drawn, "Band or whisker, converted from latency")],
    ),
    BatchChart(
        name="memory_vs_batch_size",
        title="Peak memory vs batch size",
        needs="a model with a memory reading",
        quantity="peak memory",
        columns=f"{MEMORY_COLUMNS}, r.memory_weights_mb",
        prepare=_with_memory,
        value_title=lambda row: words.value_title(row["column"]),
        notes=lambda drawn: [READING],
        reference=_weights,
    ),
    BatchChart(
        name="energy_per_input",
        title="Energy per input",
        needs="a device with a readable energy counter",
        quantity="the energy per input",
        columns=ENERGIES,
        condition=f"coalesce({ENERGIES}) IS NOT NULL",
        prepare=_with_energy,
        value_title=lambda row: f"Energy of the {ENERGY_PARTS[row['column']]} per input (J)\n{words.better('lower')}",
        notes=lambda drawn: [ENERGY_READING],
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
            ("time_to_first_token", "a generative model with a measured result", "the time to the first token"),
            ("time_per_output_token", "a model that generates two or more tokens", "the time per token"),
        )
    ),
)
