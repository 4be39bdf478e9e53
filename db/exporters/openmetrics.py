"""OpenMetrics text: every number of every result as a gauge in base units, with the time of its run.

Prometheus can scrape it, or `promtool tsdb create-blocks-from openmetrics` loads it. Times are in seconds, sizes in
bytes; HELP explains each number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarking.core.axes import AXES, FURTHER
from benchmarking.core.errors import UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import BYTES_PER_MB, MS_PER_S, YIELD
from db.exporters.support.exporting import ExportRequest, Scope, Tables, text_output
from db.query import dictionary

if TYPE_CHECKING:
    from db.warehouse import Warehouse

PREFIX = "benchhouse_"
LABELS = {
    "model": "model_id",
    **{name: name for name in ("weights", "task", "device", "device_name")},
    **{name: name for name in ("runtime", "runtime_mode", "precision", "num_threads", *AXES)},
    "definition": "origin_definition",
    "validity": "validity",
    "simulated": "simulated",
    "series": "series_id",
}
"""Label -> column. A NULL has no label."""
ROWS = """
SELECT * FROM all_results WHERE result_id IN (SELECT result_id FROM chosen) AND status = 'ok'
ORDER BY started_at, result_id
"""
UNITS = {
    "_flops_per_sec": ("_flops_per_second", "flops_per_second", 1, 1),
    "_bytes_per_sec": ("_bytes_per_second", "bytes_per_second", 1, 1),
    "_per_sec": ("_per_second", "", 1, 1),
    "_j_per_call": ("_per_call_joules", "joules", 1, 1),
    "_bytes": ("_bytes", "bytes", 1, 1),
    "_mb": ("_bytes", "bytes", BYTES_PER_MB, 1),
    "_ms": ("_seconds", "seconds", 1, MS_PER_S),
    "_s": ("_seconds", "seconds", 1, 1),
    "_w": ("_watts", "watts", 1, 1),
}
"""Suffix of a column -> suffix of the metric, its unit, and the multiplier and divisor of values; the first match."""
WORDS = (
    (r"\bMB \(10\^6 bytes\)|\bMB\b", "bytes"),
    (r"\bin ms\b", "in seconds"),
    (r"\bin s\b", "in seconds"),
    (r"\bin J\b", "in joules"),
    (r"\bin W\b", "in watts"),
)
"""Unit in the data dictionary, and its name here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The OpenMetrics family of a column."""

    name: str
    unit: str
    """Empty without a unit."""
    times: float = 1
    over: float = 1

    def value(self, stored: float) -> float:
        """The value in the family's unit. Milliseconds are divided by 1000, since 0.001 has no exact binary form."""
        return stored * self.times / self.over


class OpenMetricsExporter:
    """One text in the OpenMetrics 1.0 exposition format."""

    name = "openmetrics"
    endings = (".prom", ".om")
    summary = "gauges in base units for Prometheus, each with the time of its run"
    tables: tuple[Tables, ...] = ("results",)

    def export(self, warehouse: Warehouse, request: ExportRequest) -> tuple[Path, ...]:
        scope = Scope(warehouse, request.selection)
        scope.months()
        rows = scope.read(ROWS).dicts()
        if not rows:
            raise UsageError("the selection has no measured result: there are no numbers to export")
        columns = {field.name: field for field in dictionary.fields(warehouse, "all_results")}
        numbers = [name for name, field in columns.items() if field.type == "DOUBLE" and name not in FURTHER]
        # A time has one value, so only the last row of each series and time is kept.
        kept = list({(_labels(row), row["started_at"]): row for row in rows}.values())
        if len(rows) > len(kept):
            request.notify(f"left out: {len(rows) - len(kept)} results at the same time as another one of their series")
        others = sorted({name for row in kept for name in row["other_metrics"]} - set(numbers))
        # A family occurs once in the text, and tools state the same quantity in several units: duration_ms, duration_s.
        families: dict[str, list[str]] = {}
        for column in (*numbers, *others):
            families.setdefault(family(column).name, []).append(column)
        with text_output(request.file) as stream:
            for of_family in families.values():
                column, kind = of_family[0], family(of_family[0])
                meaning = columns[column].meaning if column in columns else f"{column}, which has no column."
                # The samples of a series are contiguous, oldest first.
                samples: dict[str, dict[float, str]] = {}
                for row, name in product(kept, of_family):
                    value = row["other_metrics"].get(name) if name not in row else row[name]
                    if value is not None:
                        time_s = row["started_at"].replace(tzinfo=UTC).timestamp()
                        labels = _labels(row)
                        line = f"{kind.name}{{{labels}}} {family(name).value(value)!r} {time_s!r}\n"
                        samples.setdefault(labels, {}).setdefault(time_s, line)
                if samples:
                    stream.write(f"# TYPE {kind.name} gauge\n")
                    if kind.unit:
                        stream.write(f"# UNIT {kind.name} {kind.unit}\n")
                    stream.write(f"# HELP {kind.name} {_escaped(in_base_units(meaning))}\n")
                    for lines in samples.values():
                        stream.writelines(lines.values())
            stream.write("# EOF\n")
        return request.output_paths


def family(column: str) -> Family:
    """The metric for a column: latency_median_ms becomes benchhouse_latency_median_seconds."""
    for ending, (new, unit, times, over) in UNITS.items() if YIELD.search(column) is None else ():
        if column.endswith(ending):
            return Family(name=_name(column.removesuffix(ending) + new), unit=unit, times=times, over=over)
    return Family(name=_name(column), unit="")


def _name(text: str) -> str:
    return PREFIX + re.sub(r"[^A-Za-z0-9_]", "_", text)


def in_base_units(meaning: str) -> str:
    """A column's meaning, with the units of this format: "in seconds" for "in ms"."""
    for pattern, words in WORDS:
        meaning = re.sub(pattern, words, meaning)
    return meaning


def _labels(row: Mapping[str, Any]) -> str:
    labels = []
    for label, column in LABELS.items():
        if (value := row[column]) is not None:
            text = f"{value:g}" if isinstance(value, float) else str(value)
            labels.append(f'{label}="{_escaped(text.lower() if isinstance(value, bool) else text)}"')
    return ",".join(labels)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


PLUGIN = OpenMetricsExporter()
