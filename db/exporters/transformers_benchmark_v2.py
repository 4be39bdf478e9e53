"""The JSON of transformers' benchmark_v2: one entry for each result, with times in seconds.

The format covers torch only and has no field for device or precision: only results of torch that generated text have an
entry, and further facts are in the metadata of each entry under "benchhouse". Its first layout (`core.scenario_file`)
has one scenario for each result of any runtime.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarking.core.codec import canonical_hash
from benchmarking.core.metrics import MS_PER_S
from benchmarking.core.records import Result, Run
from benchmarking.core.scenario_file import raw_values, scenario_file
from db.exporters.support.exporting import (
    ExportRequest,
    RunResult,
    Scope,
    Tables,
    supported_results,
    text_output,
    why_no_calls,
)

if TYPE_CHECKING:
    from db.warehouse import Warehouse

RUNTIMES = ("eager", "compiled", "kernelized")
BYTES_PER_GIB = 1024**3
MEASUREMENTS = {
    "e2e_latency": "latency_wall",
    "time_to_first_token": "time_to_first_token",
    "inter_token_latency": "time_per_output_token",
}
"""Its name -> our name. Its inter-token latency is the mean of an iteration: our time per output token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformersExporter:
    """One JSON object with entries by the hash of their configuration."""

    name: str = "transformers_benchmark_v2"
    summary: str = "the JSON of transformers' benchmark_v2, for results that generate text on torch"
    tables: tuple[Tables, ...] = ("results",)

    def export(self, warehouse: Warehouse, request: ExportRequest) -> tuple[Path, ...]:
        chosen = supported_results(Scope(warehouse, request.selection), request, _why_not)
        entries = dict(map(_entry, chosen))
        with text_output(request.file) as stream:
            json.dump(entries, stream, indent=2, ensure_ascii=False, allow_nan=False)
            stream.write("\n")
        return request.output_paths


def _why_not(run: Run, result: Result) -> str | None:
    if reason := why_no_calls(run, result):
        return reason
    if run.cell.runtime not in RUNTIMES:
        return "not measured on torch"
    if result.point.new_tokens is None:
        return "no text generated"
    return None if raw_values(result, "latency_wall") else "no raw samples stored"


def _entry(chosen: RunResult) -> tuple[str, dict[str, Any]]:
    """The entry and its key, which depends on the result, since a configuration may have been measured twice."""
    run, result, point, cell = chosen.run, chosen.result, chosen.result.point, chosen.run.cell
    origin, device, mode = run.provenance, cell.device, cell.runtime_mode
    of_gpu = device.type in ("cuda", "rocm")
    metadata = {
        "model_id": cell.workload.model_id,
        "timestamp": run.started_at.replace("Z", "+00:00"),
        "branch_name": origin.git_branch,
        "commit_id": origin.git_commit,
        "commit_message": None,
        "hardware_info": {
            "gpu_name": device.name if of_gpu else None,
            "gpu_memory_total_gb": device.memory_bytes / BYTES_PER_GIB if of_gpu and device.memory_bytes else None,
            "python_version": origin.versions.get("python"),
            "torch_version": origin.versions.get("torch"),
        },
        "success": True,
        "benchhouse": {
            "result_id": result.result_id,
            "run_id": run.run_id,
            "device": device.selector,
            "device_name": device.name,
            "precision": cell.precision,
            "validity": result.validity,
            "doubts": [doubt.kind for doubt in result.doubts],
        },
    }
    measurements: dict[str, Any] = {
        **{name: [ms / MS_PER_S for ms in raw_values(result, metric)] for name, metric in MEASUREMENTS.items()},
        "shape_and_decoded_outputs": [],
        "gpu_metrics": None,
        "timestamps": None,
    }
    config = {
        "name": f"{cell.workload.model_id} {cell.runtime} {cell.precision} {point.label}",
        "warmup_iterations": result.warmup_iterations,
        "measurement_iterations": result.iterations,
        "gpu_monitoring": False,
        "continuous_batching": False,
        "batch_size": point.batch_size,
        "sequence_length": point.sequence_length,
        "num_tokens_to_generate": point.new_tokens,
        "attn_implementation": mode.get("attention"),
        "compile_kwargs": {"mode": mode.get("compile_mode", "default")} if cell.runtime == "compiled" else None,
        "kernelize": cell.runtime == "kernelized",
    }
    key = canonical_hash({"config": config, "result_id": result.result_id})
    return key, {"metadata": metadata, "measurements": measurements, "config": config}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenariosExporter:
    """One JSON object: the names of the models, and a scenario for each result."""

    name: str = "benchmark_scenarios"
    summary: str = "benchmark_v2's first layout (model_name, benchmark_scenarios, gpu_metrics)"
    tables: tuple[Tables, ...] = ("results",)

    def export(self, warehouse: Warehouse, request: ExportRequest) -> tuple[Path, ...]:
        chosen = supported_results(Scope(warehouse, request.selection), request, _why_no_scenario)
        measured = [(run_result.run, run_result.result) for run_result in chosen]
        names = dict.fromkeys(run.cell.workload.model_id for run, _ in measured)
        document = scenario_file(", ".join(names), measured)
        with text_output(request.file) as stream:
            json.dump(document, stream, indent=2, ensure_ascii=False, allow_nan=False)
            stream.write("\n")
        return request.output_paths


def _why_no_scenario(run: Run, result: Result) -> str | None:
    if reason := why_no_calls(run, result):
        return reason
    return None if raw_values(result, "latency_wall") else "no raw samples stored"


PLUGINS = (TransformersExporter(), ScenariosExporter())
