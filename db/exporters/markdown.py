"""Markdown: the selected results as a table for a page or a pull request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarking.core import text
from benchmarking.core.axes import AXES
from benchmarking.core.metrics import METRICS, PEAK_MEMORY
from benchmarking.core.quality import QUALITY_METRICS
from benchmarking.core.tables import NOTHING
from db.exporters.support.exporting import ExportRequest, Scope, Tables, text_output
from db.values import readable

if TYPE_CHECKING:
    from db.warehouse import Warehouse

Row = Mapping[str, Any]
ROWS = f"""
SELECT *, coalesce({", ".join(PEAK_MEMORY)}) AS memory_peak_mb
FROM all_results WHERE result_id IN (SELECT result_id FROM chosen)
ORDER BY model_id, batch_size, sequence_length, new_tokens, axes, device, runtime, precision, started_at, result_id
"""
WORDS = {
    "model_id": "model",
    "device_name": "device",
    "runtime": "runtime",
    "precision": "precision",
}
SHOWN = (
    *("latency_p90_ms", "throughput_samples_per_sec", "throughput_tokens_per_sec"),
    *("time_to_first_token_ms", "time_per_output_token_ms"),
)
AXIS_HEADINGS = {name: axis.heading for name, axis in AXES.items()}
NUMBERS = {
    "latency_median_ms": METRICS["latency_median_ms"].heading,
    "interval": "95 % interval",
    **{name: METRICS[name].heading for name in SHOWN},
    "memory_peak_mb": "peak MB",
    **{name: metric.heading_with_unit for name, metric in QUALITY_METRICS.items()},
}
REMARKS = {"verdict": "doubts", "started_at": "started (UTC)"}
IMPLIED = {name: str(axis.implied) for name, axis in AXES.items() if axis.implied is not None}
"""Values that need no column if all results share them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkdownExporter:
    """One table, without empty columns."""

    name: str = "markdown"
    summary: str = "a table of the results for a page or a pull request"
    tables: tuple[Tables, ...] = ("results",)

    def export(self, warehouse: Warehouse, request: ExportRequest) -> tuple[Path, ...]:
        scope = Scope(warehouse, request.selection)
        scope.months()
        stored = [{**_own_axes(row), **row} for row in scope.read(ROWS).dicts()]
        further = {name: name.replace("_", " ") for row in stored for name in sorted(_own_axes(row))}
        headings = WORDS | AXIS_HEADINGS | further | NUMBERS | REMARKS
        cells: list[dict[str, str]] = []
        for row in stored:
            # The interval is that of the typical launch; that of fewer than three would only cover their calls.
            low, high = row["latency_ci_low_ms"], row["latency_ci_high_ms"]
            has_interval = low is not None and high is not None and row["ci_scope"] == "between"
            if row["status"] != "ok":
                verdict = f"{row['status'].replace('_', ' ')}: {row['error']}"
            elif row["doubts"]:
                verdict = f"{row['validity']}: {', '.join(row['doubts'])}"
            else:
                verdict = NOTHING if row["validity"] == "valid" else str(row["validity"])
            texts = {"interval": f"{_text(low)} .. {_text(high)}" if has_interval else NOTHING, "verdict": verdict}
            cells.append({name: texts[name] if name in texts else _text(row.get(name)) for name in headings})
        kept = [name for name in headings if any(row[name] not in (NOTHING, IMPLIED.get(name)) for row in cells)]
        right = [place for place, name in enumerate(kept) if name not in WORDS | REMARKS]
        rows = [[row[name] for name in kept] for row in cells]
        with text_output(request.file) as stream:
            print(text.markdown_table([headings[name] for name in kept], rows, right=right), file=stream)
        return request.output_paths


def _own_axes(row: Row) -> dict[str, Any]:
    """The axes of a point that have no column, such as the rate of a load."""
    return dict(json.loads(row["axes"] or "{}"))


def _text(value: Any) -> str:
    return text.number(value) if isinstance(value, float) else readable(value)


PLUGIN = MarkdownExporter()
