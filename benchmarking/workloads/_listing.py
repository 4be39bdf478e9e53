"""The catalog as people and programs see it: `--list-models`."""

from __future__ import annotations

from typing import Any

from benchmarking.records import Family
from benchmarking.workloads import _catalog
from benchmarking.workloads._families import family_of, tasks_of
from benchmarking.workloads._resolve import resolve

HEADINGS = ("model", "family", "task", "parameters", "max sequence", "grid beside the batch size")
NUMBERS = (3, 4)
"""Columns of numbers, which stand to the right."""


def listing_json() -> list[dict[str, Any]]:
    """One object a model: name, aliases, family, task, model_class, parameter_count, max_sequence_length (or null),
    and the grid's axes beside the batch size."""
    return [_row(entry) for entry in _catalog.entries()]


def listing_text() -> str:
    """The catalog as a table, and what else `--model-id` takes."""
    rows = [_cells(row) for row in listing_json()]
    widths = [max(len(line[column]) for line in (HEADINGS, *rows)) for column in range(len(HEADINGS))]
    lines = [_line(line, widths) for line in (HEADINGS, tuple("-" * width for width in widths), *rows)]
    lines.append("")
    lines.append(
        "--model-id also takes a folder with config.json and safetensors weights, or a name on the Hugging Face hub."
    )
    return "\n".join(lines)


def _row(entry: _catalog.Entry) -> dict[str, Any]:
    plugin = family_of(entry.config, entry.name)
    family: Family = plugin.name
    return {
        "name": entry.name,
        "aliases": list(entry.aliases),
        "family": family,
        "task": tasks_of(plugin, entry.config)[0],
        "model_class": entry.model_class,
        "parameter_count": entry.parameter_count,
        "max_sequence_length": plugin.max_sequence_length(entry.config),
        "axes": list(plugin.axes(resolve(entry.name, weights="random"))),
    }


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    limit, axes = row["max_sequence_length"], row["axes"]
    longest = "-" if "sequence_length" not in axes else "none" if limit is None else str(limit)
    parameters = f"{row['parameter_count'] / 1e6:.1f} M"
    return (row["name"], row["family"], row["task"], parameters, longest, ", ".join(axes).replace("_", " "))


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    """Text to the left, numbers to the right."""
    parts = [
        cell.rjust(width) if column in NUMBERS else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(parts).rstrip()
