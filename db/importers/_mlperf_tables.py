"""MLPerf's tables of results: the submission checker's summary.csv, and the published *_results.json."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from db.importers import ForeignFile
from db.importers._reading import Fields, csv_rows

PUBLISHED = {
    "Submitter": "Organization",
    "Category": "Division",
    "Suite": "SystemType",
    "System": "SystemName",
    "UsedModel": "Model",
    "Model": "MlperfModel",
    "Nodes": "number_of_nodes",
    "Processor": "host_processor_model_name",
    "Accelerator": "accelerator_model_name",
    "a#": "accelerators_per_node",
    "Total Accelerators": "total_accelerators",
    "Software": "framework",
    "Notes": "notes",
    "Performance_Result": "Result",
    "Performance_Units": "Units",
}
"""Name in *_results.json -> in summary.csv; the others are called the same."""
NEEDED = {"Scenario", "Result", "Units"}
POWER_UNITS = ("watts", "millijoules", "joules", "millijoule", "watt")
SAME = ("Organization", "Division", "SystemName", "Platform", "Model", "MlperfModel", "Scenario", "Location", "version")
"""What the row of a result and that of its power have in common."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A result, and its power where that was measured."""

    fields: Fields
    power: tuple[float, str] | None = None
    """Value and unit."""


def is_table(file: ForeignFile, header: list[str]) -> bool:
    """Whether the file is one of the tables."""
    data = file.json
    if isinstance(data, list):
        return bool(data) and all(isinstance(row, dict) and _renamed(row).keys() >= NEEDED for row in data)
    return {*NEEDED, "Organization", "Division"} <= set(header)


def rows(file: ForeignFile) -> Iterator[Row]:
    """The results, each with its power. Raises FormatError for a power without a result."""
    found = list(_rows(file))
    powers = {_key(row): row for row in found if _is_power(row)}
    for row in found:
        if _is_power(row):
            continue
        power = powers.pop(_key(row), None)
        stated = _stated_power(row)
        yield Row(fields=row, power=stated if power is None else (power.must(power.number, "Result"), _units(power)))
    for row in powers.values():
        row.refuse("Units", "power of a result that is not in the file")


def _rows(file: ForeignFile) -> Iterator[Fields]:
    if not isinstance(file.json, list):
        yield from csv_rows(file)
        return
    for index, row in enumerate(file.json):
        if not isinstance(row, dict):
            file.refuse(f"row {index}: expected an object")
        yield Fields(file, _renamed(row), f"row {index}", numbers_are_text=True)


def _renamed(row: dict[str, Any]) -> dict[str, Any]:
    return {PUBLISHED.get(name, name): value for name, value in row.items()}


def _units(row: Fields) -> str:
    return row.text("Units") or ""


def _is_power(row: Fields) -> bool:
    return _units(row).lower() in POWER_UNITS


def _stated_power(row: Fields) -> tuple[float, str] | None:
    value, units = row.number("Power_Result", low=0), row.text("Power_Units")
    return None if value is None or units is None else (value, units)


def _key(row: Fields) -> tuple[str, ...]:
    return tuple(str(row.peek(name)).lower() for name in SAME)
