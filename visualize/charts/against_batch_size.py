"""The charts against the batch size: latency, throughput, memory, energy, and the times of generated tokens."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarking.core.metrics import ENERGY, ENERGY_PARTS, PEAK_MEMORY
from visualize.drawing import words
from visualize.drawing.batch_charts import BatchChart
from visualize.drawing.rows import Row, is_ok, memory_column
from visualize.drawing.scales import number

READING = "Median over launches, one reading each; no interval."
ENERGY_READING = "Median over launches, one reading each, including idle power; no interval."
ENERGIES = ", ".join(f"r.{column}" for column in ENERGY)


def _interval(drawn: Sequence[Row]) -> list[str]:
    return [words.interval(drawn)]


def _throughput_title(row: Row) -> str:
    """Generated tokens if the model generates, else images or other inputs."""
    if row["new_tokens"] is not None:
        return f"Throughput (generated tokens/s)\n{words.better('higher')}"
    is_image = row["sequence_length"] is None and row["image_size"] is not None
    return f"Throughput ({'images' if is_image else 'inputs'}/s)\n{words.better('higher')}"


def _with_memory(members: Sequence[Row]) -> list[Row]:
    column = memory_column(members) or PEAK_MEMORY[0]
    return [{**row, "value": row[column], "low": None, "high": None, "column": column} for row in members]


def _weights(drawn: Sequence[Row]) -> tuple[str, float] | None:
    sizes = [row["memory_weights_mb"] for row in drawn if row["memory_weights_mb"] is not None]
    return (f"weights alone, {number(max(sizes))} MB", max(sizes)) if sizes else None


def _with_energy(members: Sequence[Row]) -> list[Row]:
    column = next(name for name in ENERGY if any(row[name] is not None for row in members))
    return [
        {
            **row,
            "value": row[column] / row["batch_size"] if is_ok(row) and row[column] is not None else None,
            "low": None,
            "high": None,
            "column": column,
        }
        for row in members
    ]


PLUGINS = (
    BatchChart(
        name="latency_vs_batch_size",
        title="Latency vs batch size",
        needs="a model with a measured result",
        quantity="the latency",
        judged="latency_median_ms",
        columns="r.latency_median_ms AS value, r.latency_ci_low_ms AS low, r.latency_ci_high_ms AS high",
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
        # One call is in flight at a time, so throughput is the work of a call divided by its latency, and its interval
        # is the scaled inverse of the latency interval.
        columns="""CASE WHEN r.new_tokens IS NULL THEN r.throughput_samples_per_sec ELSE r.throughput_tokens_per_sec END
            AS value, value * r.latency_median_ms / r.latency_ci_high_ms AS low,
            value * r.latency_median_ms / r.latency_ci_low_ms AS high, r.latency_median_ms""",
        value_title=_throughput_title,
        notes=lambda drawn: [words.interval(drawn, "Band or whisker, converted from latency")],
    ),
    BatchChart(
        name="memory_vs_batch_size",
        title="Peak memory vs batch size",
        needs="a model with a memory reading",
        quantity="peak memory",
        columns="{memory}, r.memory_weights_mb",
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
    BatchChart(
        name="time_to_first_token",
        title="Time to first token",
        needs="a generative model with a measured result",
        quantity="the time to the first token",
        judged="time_to_first_token_ms",
        columns="""r.time_to_first_token_ms AS value, r.time_to_first_token_ci_low_ms AS low,
            r.time_to_first_token_ci_high_ms AS high""",
        condition="r.new_tokens IS NOT NULL",
        value_title=lambda row: words.value_title("time_to_first_token_ms"),
        notes=_interval,
        also_by_sequence=True,
    ),
    BatchChart(
        name="time_per_output_token",
        title="Time per output token",
        needs="a model that generates two or more tokens",
        quantity="the time per token",
        judged="time_per_output_token_ms",
        columns="""r.time_per_output_token_ms AS value, r.time_per_output_token_ci_low_ms AS low,
            r.time_per_output_token_ci_high_ms AS high""",
        condition="r.new_tokens IS NOT NULL",
        value_title=lambda row: words.value_title("time_per_output_token_ms"),
        notes=_interval,
        also_by_sequence=True,
    ),
)
