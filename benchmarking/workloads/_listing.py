"""The catalog as people and programs see it: `--list-models`."""

from __future__ import annotations

from typing import Any

from benchmarking.builds.sizes import size_text
from benchmarking.core.tables import Table, table_text
from benchmarking.core.terminal import PLAIN, Page
from benchmarking.records import Family
from benchmarking.workloads import _catalog
from benchmarking.workloads._families import family_of
from benchmarking.workloads._resolve import resolve

HEADINGS = ("model", "family", "task", "parameters", "float32", "max sequence", "grid beside the batch size")
NUMBERS = (3, 4, 5)
FLOAT32_BYTES = 4
"""Columns of numbers, which stand to the right."""


def listing_json() -> list[dict[str, Any]]:
    """One object a model: name, aliases, family, task, model_class, parameter_count, float32_bytes (of the
    parameters), max_sequence_length (or null), and the grid's axes beside the batch size."""
    return [_row(entry) for entry in _catalog.entries()]


def listing_text(page: Page = PLAIN) -> str:
    """The catalog as a table, and what else `--model-id` takes."""
    table = Table(headings=HEADINGS, rows=tuple(_cells(row) for row in listing_json()), numbers=NUMBERS)
    further = (
        "--model-id also takes a folder with config.json and safetensors weights, or a name on the Hugging Face hub."
    )
    return "\n".join([table_text(table, page), "", further])


def _row(entry: _catalog.Entry) -> dict[str, Any]:
    plugin = family_of(entry.config, entry.name)
    family: Family = plugin.name
    return {
        "name": entry.name,
        "aliases": list(entry.aliases),
        "family": family,
        "task": plugin.tasks_of(entry.config)[0],
        "model_class": entry.model_class,
        "parameter_count": entry.parameter_count,
        "float32_bytes": entry.parameter_count * FLOAT32_BYTES,
        "max_sequence_length": plugin.max_sequence_length(entry.config),
        "axes": list(plugin.axes(resolve(entry.name, weights="random"))),
    }


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    limit, axes = row["max_sequence_length"], row["axes"]
    longest = "-" if "sequence_length" not in axes else "none" if limit is None else str(limit)
    parameters, size = f"{row['parameter_count'] / 1e6:.1f} M", size_text(row["float32_bytes"])
    return (row["name"], row["family"], row["task"], parameters, size, longest, ", ".join(axes).replace("_", " "))
