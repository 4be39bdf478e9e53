"""The JSON of benchmark_v2's first layout: one scenario for each result, times in seconds (`core.scenario_file`)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarking.core.records import Result, Run
from benchmarking.core.scenario_file import raw_values, scenario_file
from db.exporters.support.exporting import ExportRequest, Scope, Tables, supported_results, text_output, why_no_calls

if TYPE_CHECKING:
    from db.warehouse import Warehouse


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenariosExporter:
    """One JSON object: the names of the models, and a scenario for each result."""

    name: str = "benchmark_scenarios"
    summary: str = "benchmark_v2's first layout (model_name, benchmark_scenarios, gpu_metrics)"
    tables: tuple[Tables, ...] = ("results",)

    def export(self, warehouse: Warehouse, request: ExportRequest) -> tuple[Path, ...]:
        chosen = supported_results(Scope(warehouse, request.selection), request, _why_not)
        measured = [(run_result.run, run_result.result) for run_result in chosen]
        names = dict.fromkeys(run.cell.workload.model_id for run, _ in measured)
        document = scenario_file(", ".join(names), measured)
        with text_output(request.file) as stream:
            json.dump(document, stream, indent=2, ensure_ascii=False, allow_nan=False)
            stream.write("\n")
        return request.output_paths


def _why_not(run: Run, result: Result) -> str | None:
    if reason := why_no_calls(run, result):
        return reason
    return None if raw_values(result, "latency_wall") else "no raw samples stored"


PLUGIN = ScenariosExporter()
