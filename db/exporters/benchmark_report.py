"""llm-d's Benchmark Report 0.2: a YAML report for each result on text, with times in seconds.

A call is a batch of simultaneous requests, so the batch size is part of the report's concurrency. Results that were
imported from such a report are written unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarking.core.codec import canonical_hash, to_json
from benchmarking.core.records import Result, Run
from db.exporters.support.exporting import ExportRequest, Tables, folder_output, text_output
from db.exporters.support.selected_runs import RunResult, Scope, selected_runs, supported_results, values

if TYPE_CHECKING:
    from db.warehouse import Warehouse

NAME = "benchmark_report"
VERSION = "0.2"
COMPONENT_VERSION = "0.0.1"
MS_PER_S = 1000
INFINITY = ".inf"
"""Value of an unlimited concurrency in a kept report."""
STATISTICS = {"mean": "mean", "std": "stddev", "min": "min", "median": "p50"} | {
    name: name for name in ("p25", "p75", "p90", "p95", "p99", "max")
}
"""Our name -> its name."""
TIMES = {
    "time_to_first_token": ({"p50": "time_to_first_token_ms"}, "s", "time_to_first_token"),
    "time_per_output_token": ({"p50": "time_per_output_token_ms"}, "s/token", "time_per_output_token"),
    "request_latency": (
        {its: f"latency_{ours}_ms" for ours, its in STATISTICS.items()},
        "s",
        "latency_wall",
    ),
}
"""Its metric -> its statistics by our columns, its unit, and our raw samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkReportExporter:
    """One report on stdout or in a file, or several in a folder."""

    name: str = NAME
    summary: str = "llm-d's Benchmark Report 0.2 (yaml) for results on text: FILE.yaml for one, a folder for several"
    tables: tuple[Tables, ...] = ("results",)

    def export(self, warehouse: Warehouse, request: ExportRequest) -> tuple[Path, ...]:
        runs = (stored.run for stored in selected_runs(Scope(warehouse, request.selection)))
        found = {one.result.result_id: _report(one) for one in supported_results(runs, _why_not, request)}
        if len(found) == 1:
            with text_output(request.output) as stream:
                stream.writelines(map(_yaml, found.values()))
            return request.made
        with folder_output(request.output) as folder:
            for result_id, report in found.items():
                (folder / f"benchmark_report_v{VERSION}_{result_id}.yaml").write_text(_yaml(report), encoding="utf-8")
        return request.made


def _why_not(run: Run, result: Result) -> str | None:
    if _kept(run) is not None:
        return None
    if result.status != "ok":
        return "not measured (failed, skipped or timed out)"
    if result.metrics.get("latency_mean_ms") is None and not values(result, "latency_wall"):
        return "no mean latency"
    return None if result.point.sequence_length else "without text input"


def _kept(run: Run) -> Mapping[str, Any] | None:
    """The report that the run was imported from."""
    if run.origin is None or run.origin.format != NAME:
        return None
    kept = run.origin.kept.get("report")
    return kept if isinstance(kept, Mapping) else None


def _yaml(report: Mapping[str, Any]) -> str:
    import yaml

    text: str = yaml.safe_dump(report, sort_keys=False, allow_unicode=True)
    return text


def _report(one: RunResult) -> dict[str, Any]:
    if (kept := _kept(one.run)) is not None:
        return _with_infinity(to_json(kept))
    return {
        "version": VERSION,
        "run": _run(one),
        "scenario": {"stack": [_engine(one)], "load": _load(one)},
        "results": {"request_performance": {"aggregate": _performance(one.result)}},
    }


def _with_infinity(report: dict[str, Any]) -> dict[str, Any]:
    """The report with the unlimited concurrency that JSON cannot hold."""
    settings = (((report.get("scenario") or {}).get("load") or {}).get("standardized")) or {}
    if settings.get("concurrency") == INFINITY:
        settings["concurrency"] = math.inf
    return report


def _run(one: RunResult) -> dict[str, Any]:
    run, origin = one.run, one.run.provenance
    start, end = (datetime.fromisoformat(time) for time in (run.started_at, run.finished_at or run.started_at))
    keywords = [f"{name}={value}" for name, value in origin.tags.items()]
    return {
        "uid": one.result.result_id,
        "eid": run.session_id,
        "time": {
            "start": start.isoformat(),
            "end": end.isoformat(),
            "duration": f"PT{(end - start).total_seconds()}S",
        },
        **({"description": origin.description} if origin.description else {}),
        **({"keywords": keywords} if keywords else {}),
    }


def _engine(one: RunResult) -> dict[str, Any]:
    cell, hardware = one.run.cell, one.run.hardware
    config = {
        "device": cell.device.selector,
        "precision": cell.precision,
        "num_threads": cell.num_threads,
        "weights": cell.workload.weights,
        "runtime_mode": dict(cell.runtime_mode),
    }
    origin = one.run.provenance
    return {
        "metadata": {
            "schema_version": COMPONENT_VERSION,
            "label": cell.runtime,
            "cfg_id": canonical_hash({"runtime": cell.runtime, "model": cell.workload.config_hash, **config}),
        },
        "standardized": {
            "kind": "inference_engine",
            "tool": cell.runtime,
            "tool_version": origin.versions.get(cell.runtime) or f"benchhouse {origin.tool_version}",
            "role": "replica",
            "replicas": 1,
            "model": {"name": cell.workload.model_id},
            "accelerator": {
                "model": cell.device.name or hardware.cpu_model or cell.device.type,
                "count": cell.device.count,
                "parallelism": {"tp": 1, "dp": 1, "ep": 1, "pp": 1},
            },
        },
        "native": {"config": {**config, "versions": dict(origin.versions)}},
    }


def _load(one: RunResult) -> dict[str, Any]:
    point, result = one.result.point, one.result
    rate = point.axes.get("request_rate")
    sizes = to_json(point)
    return {
        "metadata": {"schema_version": COMPONENT_VERSION, "cfg_id": canonical_hash(sizes)},
        "standardized": {
            "tool": "benchhouse",
            "tool_version": one.run.provenance.tool_version,
            "source": "random",
            "input_seq_len": {"distribution": "fixed", "value": point.sequence_length},
            **({"output_seq_len": _fixed(point.new_tokens)} if point.new_tokens else {}),
            **({"rate_qps": float(rate)} if rate else {}),
            "concurrency": point.batch_size * (point.concurrency or 1),
        },
        "native": {
            "config": {
                "point": sizes,
                "launches": result.launches,
                "validity": result.validity,
                "doubts": [doubt.kind for doubt in result.doubts],
            }
        },
    }


def _fixed(tokens: int) -> dict[str, Any]:
    return {"distribution": "fixed", "value": tokens}


def _performance(result: Result) -> dict[str, Any]:
    point, metrics = result.point, result.metrics
    calls = len(values(result, "latency_wall")) or result.iterations
    latency = {name: times for name, of in TIMES.items() if (times := _times(result, *of)) is not None}
    rates = {"request_rate": ("throughput_samples_per_sec", "queries/s")}
    if point.new_tokens:
        rates["output_token_rate"] = ("throughput_tokens_per_sec", "tokens/s")
    throughput = {
        name: {"units": unit, "mean": metrics[column]}
        for name, (column, unit) in rates.items()
        if metrics.get(column) is not None
    }
    lengths = {"input_length": point.sequence_length, "output_length": point.new_tokens}
    return {
        "requests": {
            **({"total": calls * point.batch_size, "failures": 0} if calls else {}),  # an importer may not know
            **{
                name: {"units": "count", "mean": float(tokens), "min": tokens, "max": tokens}
                for name, tokens in lengths.items()
                if tokens
            },
        },
        "latency": latency,
        **({"throughput": throughput} if throughput else {}),
    }


def _times(result: Result, columns: Mapping[str, str], unit: str, samples: str) -> dict[str, Any] | None:
    """The statistics of a time in seconds; None without a mean, which a report requires."""
    stated = {its: result.metrics.get(column) for its, column in columns.items()}
    if stated.get("mean") is None:
        raw = values(result, samples)
        if not raw:
            return None
        stated["mean"] = math.fsum(raw) / len(raw)
    return {"units": unit, **{its: ms / MS_PER_S for its, ms in stated.items() if ms is not None}}


PLUGIN = BenchmarkReportExporter()
