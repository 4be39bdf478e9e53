"""Formats of other benchmarks of single calls: llama-bench's SQL, and the JSON of transformers' benchmark_v2.

SQL like llama-bench's: a table with its columns, and one INSERT for each result on text, with times in nanoseconds. A
result is "prompt + generation" (n_prompt and n_gen), "prompt" (n_gen = 0) or "generation" (n_prompt = 0). Columns of
llama-bench without a value here are NULL; our own columns follow its columns. Results imported from llama-bench get
their original words and settings back.

benchmark_v2's JSON: one entry for each result, with times in seconds. The format covers torch only and has no field for
device or precision: only results of torch that generated text have an entry, and further facts are in the metadata of
each entry under "benchhouse". Its first layout (`core.scenario_file`) has one scenario for each result of any runtime.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import inf, isfinite
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from benchmarking.core.codec import canonical_hash
from benchmarking.core.metrics import BYTES_PER_GIB, BYTES_PER_MB, MS_PER_S, NS_PER_MS, NS_PER_S
from benchmarking.core.records import Result, Run, Scalar
from benchmarking.core.scenario_file import facts, raw_values, scenario_file
from db.connection import literal
from db.exporters.support.exporting import ExportRequest, Scope, Tables, supported_results, text_output, why_no_calls

if TYPE_CHECKING:
    from db.warehouse import Warehouse

LLAMA_COLUMNS = {
    **dict.fromkeys(("build_commit",), "TEXT"),
    "build_number": "INTEGER",
    **dict.fromkeys(("cpu_info", "gpu_info", "backends", "model_filename", "model_type"), "TEXT"),
    **dict.fromkeys(("model_size", "model_n_params", "n_batch", "n_ubatch", "n_threads"), "INTEGER"),
    "cpu_mask": "TEXT",
    **dict.fromkeys(("cpu_strict", "poll"), "INTEGER"),
    **dict.fromkeys(("type_k", "type_v"), "TEXT"),
    **dict.fromkeys(("n_gpu_layers", "n_cpu_moe"), "INTEGER"),
    "split_mode": "TEXT",
    **dict.fromkeys(("main_gpu", "no_kv_offload", "flash_attn"), "INTEGER"),
    **dict.fromkeys(("devices", "tensor_split", "tensor_buft_overrides"), "TEXT"),
    **dict.fromkeys(("use_mmap", "use_direct_io", "embeddings", "no_op_offload", "no_host"), "INTEGER"),
    **dict.fromkeys(("fit_target", "fit_min_ctx", "n_prompt", "n_gen", "n_depth"), "INTEGER"),
    "test_time": "TEXT",
    **dict.fromkeys(("avg_ns", "stddev_ns"), "INTEGER"),
    **dict.fromkeys(("avg_ts", "stddev_ts"), "REAL"),
}
"""llama-bench's columns in its order, with their SQLite types."""
FURTHER_COLUMNS = {
    "batch_size": "INTEGER",
    **dict.fromkeys(("device", "runtime", "runtime_mode", "precision", "validity", "doubts"), "TEXT"),
    **dict.fromkeys(("run_id", "result_id"), "TEXT"),
    "simulated": "INTEGER",
    **dict.fromkeys(("axes", "model_id", "weights", "family", "task"), "TEXT"),
}
LLAMA_TABLE = "llama_bench"

RUNTIMES = ("eager", "compiled", "kernelized")
MEASUREMENTS = {
    "e2e_latency": "latency_wall",
    "time_to_first_token": "time_to_first_token",
    "inter_token_latency": "time_per_output_token",
}
"""Its name -> our name. Its inter-token latency is the mean of an iteration: our time per output token."""


class LlamaBenchExporter:
    """A script for `sqlite3 FILE < script.sql`."""

    name = "llama_bench_sql"
    endings = (".sql",)
    summary = "a script like that of llama-bench -o sql, for results on text: sqlite3 FILE < script.sql"
    tables: tuple[Tables, ...] = ("results",)

    def export(self, warehouse: Warehouse, request: ExportRequest) -> tuple[Path, ...]:
        rows: list[dict[str, Any]] = []
        for run, result in supported_results(Scope(warehouse, request.selection), request, _why_no_row):
            point, cell = result.point, run.cell
            kept = run.origin.kept if run.origin else {}
            started_at = next((samples.started_at for samples in result.samples), run.started_at)
            axes = {name: value for name, value in point.axes.items() if name != "depth"}
            size_mb = result.metrics.get("model_size_mb", result.metrics.get("memory_weights_mb"))
            rows.append(
                {
                    "build_commit": run.provenance.git_commit,
                    "cpu_info": run.hardware.cpu_model,
                    "gpu_info": None if cell.device.type == "cpu" else cell.device.name,
                    "backends": cell.runtime,
                    "model_filename": cell.workload.path or cell.workload.model_id,
                    "model_type": f"{cell.workload.model_id} {cell.precision}",
                    "model_size": None if size_mb is None else round(size_mb * BYTES_PER_MB),
                    "model_n_params": cell.workload.parameter_count,
                    "n_threads": cell.num_threads,
                    "n_prompt": point.sequence_length or 0,
                    "n_gen": point.new_tokens or 0,
                    "n_depth": int(point.axes.get("depth", 0)),
                    "test_time": f"{started_at[:19]}Z",
                    **times_and_speeds(result),
                    "batch_size": point.batch_size,
                    "device": cell.device.selector,
                    "runtime": cell.runtime,
                    "runtime_mode": json.dumps(dict(cell.runtime_mode), sort_keys=True),
                    "precision": cell.precision,
                    "validity": result.validity,
                    "doubts": ",".join(doubt.kind for doubt in result.doubts),
                    "run_id": run.run_id,
                    "result_id": result.result_id,
                    "model_id": cell.workload.model_id,
                    "weights": cell.workload.weights,
                    "family": cell.workload.family,
                    "task": cell.workload.task,
                    "simulated": 1 if run.is_simulated else None,
                    "axes": json.dumps(axes, sort_keys=True) if axes else None,
                    **{
                        name: value
                        for name, value in (*cell.runtime_mode.items(), *kept.items())
                        if name in LLAMA_COLUMNS
                    },
                }
            )
        columns = LLAMA_COLUMNS | FURTHER_COLUMNS
        definitions = ",\n".join(f"  {name} {kind}" for name, kind in columns.items())
        with text_output(request.file) as stream:
            stream.write(f"CREATE TABLE IF NOT EXISTS {LLAMA_TABLE} (\n{definitions}\n);\n\n")
            for row in rows:
                # Unknown columns are left out, and so NULL: readers of the script expect every value in quotes.
                known = {name: _quoted_text(row[name]) for name in columns if row.get(name) is not None}
                stream.write(f"INSERT INTO {LLAMA_TABLE} ({', '.join(known)}) VALUES ({', '.join(known.values())});\n")
        return request.output_paths


def _why_no_row(run: Run, result: Result) -> str | None:
    is_text = result.point.sequence_length or result.point.new_tokens
    if reason := why_no_calls(run, result):
        return reason
    if not is_text:
        return "without text input"
    numbers = times_and_speeds(result)
    has_number = any(numbers.get(name) is not None for name in ("avg_ns", "avg_ts"))
    return None if has_number else "neither a mean latency nor the tokens per second of a call"


def _quoted_text(value: Any) -> str:
    """An SQL literal. Like llama-bench, it quotes every value; unlike llama-bench, it escapes quotes."""
    text = repr(value) if isinstance(value, float) else str(value)
    # A line end or NUL would break the script, so both are written as char().
    quoted = literal(text)
    for character in ("\0", "\r", "\n"):
        quoted = quoted.replace(character, f"'||char({ord(character)})||'")
    return quoted


def times_and_speeds(result: Result) -> dict[str, Any]:
    """Means and sample standard deviations over the calls, as in llama-bench: avg_ts is the mean of the calls' tokens
    per second, not a ratio of means. Without raw samples, only the stored mean and llama-bench's own statistics."""
    calls_ms = raw_values(result, "latency_wall")
    if not calls_ms:
        mean_ms, std_ms = result.metrics.get("latency_mean_ms"), result.metrics.get("latency_std_ms")
        times: dict[str, Any] = {"avg_ns": None if mean_ms is None else round(mean_ms * NS_PER_MS)}
        if mean_ms is None:
            # The speed that the file states for what a call processes: a prompt, new tokens, or both.
            prompt, new = result.point.sequence_length, result.point.new_tokens
            of_call = "total" if prompt and new else "decode" if new else "prefill"
            speeds = (f"{of_call}_tokens_per_sec", *(() if prompt and new else ("throughput_tokens_per_sec",)))
            stated = next((one for name in speeds if (one := result.metrics.get(name)) is not None), None)
            times |= {} if stated is None else {"avg_ts": stated}
        own = result.extra.get("kept")
        if not isinstance(own, dict) or "stddev_ts" not in own:
            return times
        speed = own.get("avg_ts", result.metrics.get("throughput_tokens_per_sec"))
        std_ns = None if std_ms is None else round(std_ms * NS_PER_MS)
        return times | {"stddev_ns": std_ns, "avg_ts": speed, "stddev_ts": own["stddev_ts"]}
    point = result.point
    tokens = point.batch_size * ((point.sequence_length or 0) + (point.new_tokens or 0))
    calls_ns = [value * NS_PER_MS for value in calls_ms]
    # A call that is said to take no time has no speed, and a mean without it would be one of other calls.
    rates = [tokens * NS_PER_S / value if value else inf for value in calls_ns]
    rates = rates if isfinite(sum(rates)) else []
    several = len(calls_ns) > 1
    return {
        "avg_ns": round(fmean(calls_ns)),
        "stddev_ns": round(stdev(calls_ns)) if several else None,
        "avg_ts": fmean(rates) if rates else None,
        "stddev_ts": stdev(rates) if several and rates else None,
    }


class TransformersExporter:
    """One JSON object with entries by the hash of their configuration."""

    name = "transformers_benchmark_v2"
    summary = "the JSON of transformers' benchmark_v2, for results that generate text on torch"
    tables: tuple[Tables, ...] = ("results",)

    def export(self, warehouse: Warehouse, request: ExportRequest) -> tuple[Path, ...]:
        chosen = supported_results(Scope(warehouse, request.selection), request, _why_no_entry)
        entries = dict(_entry(run, result) for run, result in chosen)
        return _write_json(entries, request)


def _why_no_entry(run: Run, result: Result) -> str | None:
    if reason := why_no_calls(run, result):
        return reason
    if run.cell.runtime not in RUNTIMES:
        return "not measured on torch"
    return "no text generated" if result.point.new_tokens is None else _why_no_scenario(run, result)


def _entry(run: Run, result: Result) -> tuple[str, dict[str, Any]]:
    """The entry and its key, which depends on the result, since a configuration may have been measured twice."""
    point, cell, origin = result.point, run.cell, run.provenance
    device, mode = cell.device, cell.runtime_mode
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
        "benchhouse": facts(run, result),
    }
    # The format has a time after the first token: that of a tool over all tokens is another one.
    wrong = ("time_per_output_token",) if any(one.kind == "token_divisor" for one in result.doubts) else ()
    measurements: dict[str, Any] = {
        **{
            name: [ms / MS_PER_S for ms in raw_values(result, metric)] if metric not in wrong else []
            for name, metric in MEASUREMENTS.items()
        },
        "shape_and_decoded_outputs": [],
        "gpu_metrics": None,
        "timestamps": None,
    }
    config = {
        "name": f"{cell.workload.model_id} {cell.runtime} {cell.precision} {point.label}",
        "warmup_iterations": result.warmup_iterations,
        "measurement_iterations": result.iterations,
        "gpu_monitoring": False,
        "continuous_batching": mode.get("continuous_batching") is True,
        "batch_size": point.batch_size,
        "sequence_length": point.sequence_length,
        "num_tokens_to_generate": point.new_tokens,
        "attn_implementation": mode.get("attention", mode.get("attn_implementation")),
        "compile_kwargs": _compile_kwargs(mode) if cell.runtime == "compiled" else None,
        "kernelize": cell.runtime == "kernelized" or mode.get("kernelize") is True,
    }
    key = canonical_hash({"config": config, "result_id": result.result_id})
    return key, {"metadata": metadata, "measurements": measurements, "config": config}


def _compile_kwargs(mode: Mapping[str, Scalar]) -> dict[str, Any]:
    """How torch compiled: as an imported file states it in JSON, or the mode alone."""
    try:
        stated = json.loads(str(mode.get("compile_kwargs")))
    except (ValueError, RecursionError):
        stated = None
    return stated if isinstance(stated, dict) else {"mode": mode.get("compile_mode", "default")}


class ScenariosExporter:
    """One JSON object: the names of the models, and a scenario for each result."""

    name = "benchmark_scenarios"
    summary = "benchmark_v2's first layout (model_name, benchmark_scenarios, gpu_metrics)"
    tables: tuple[Tables, ...] = ("results",)

    def export(self, warehouse: Warehouse, request: ExportRequest) -> tuple[Path, ...]:
        measured = list(supported_results(Scope(warehouse, request.selection), request, _why_no_scenario))
        names = dict.fromkeys(run.cell.workload.model_id for run, _ in measured)
        return _write_json(scenario_file(", ".join(names), measured), request)


def _why_no_scenario(run: Run, result: Result) -> str | None:
    return why_no_calls(run, result) or (None if raw_values(result, "latency_wall") else "no raw samples stored")


def _write_json(document: Mapping[str, Any], request: ExportRequest) -> tuple[Path, ...]:
    with text_output(request.file) as stream:
        json.dump(document, stream, indent=2, ensure_ascii=False, allow_nan=False)
        stream.write("\n")
    return request.output_paths


PLUGINS = (LlamaBenchExporter(), TransformersExporter(), ScenariosExporter())
