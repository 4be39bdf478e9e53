"""Every field of a run is stored: the run is put together again from the rows, and is equal."""

import dataclasses
import json
import shlex

from benchmarking.core import records
from benchmarking.core.axes import FURTHER
from benchmarking.core.records import Doubt, Point, Samples, from_json, to_json
from tests.helpers.load import make_requests


def test_a_stored_run_is_read_back_unchanged(warehouse, make_run):
    run = full_run(make_run)
    assert warehouse.ingest(run)
    assert rebuilt(warehouse, run.run_id) == run


def test_an_empty_run_is_read_back_unchanged(warehouse, make_run):
    run = dataclasses.replace(make_run(), results=(), loads=(), status="failed", error="no such model")
    assert warehouse.ingest(run)
    assert rebuilt(warehouse, run.run_id) == run


def full_run(make_run):
    """A run with something in every field."""
    run = make_run(family="decoder-only", with_failed=True)
    doubt = Doubt(kind="throttle", severity="throttled", evidence={"share": 0.5, "reasons": ["thermal"]})
    samples = Samples(
        launch=0,
        phase="warmup",
        metric="latency_wall",
        unit="ms",
        started_at="2026-01-02T03:04:05.250000Z",
        values=(0.1, 1e-9, 12345.678901234567),
        inner_loops=4,
    )
    first = dataclasses.replace(
        run.results[0],
        point=Point(
            batch_size=3,
            sequence_length=7,
            new_tokens=2,
            concurrency=2,
            axes={"steps": 20, "audio_seconds": 2.5, "scale": 7.5},
        ),
        validity="throttled",
        doubts=(doubt, doubt),
        metrics={**run.results[0].metrics, "energy_gpu_j_per_token": 0.1 + 0.2},
        samples=(samples, *run.results[0].samples),
        requests=(make_requests(),),
        extra={"windows": [{"steal": 0.25}], "note": "ä"},
    )
    workload = dataclasses.replace(
        run.cell.workload, revision="abc", path="/models/x", weights_reason="not in the cache", seed=3
    )
    device = dataclasses.replace(run.cell.device, driver="550.1", selector="cpu:0")
    cell = dataclasses.replace(
        run.cell,
        workload=workload,
        device=device,
        num_threads=2,
        cpu_list="0-3",
        runtime_mode={"attention": "sdpa", "cache": True},
    )
    preparation = records.Preparation(
        build={"kind": "onnx", "digest": "ab" * 16, "build_s": 2, "is_new": True, "exporter": "torch.onnx", "x": [1]},
        references={"b1 s32": "cd" * 16},
        missing={"b2 s32": "failed: too big"},
    )
    host = records.Readings(values={"numa_nodes": 2}, missing={"smt": "no_permission"})
    return dataclasses.replace(
        run,
        error="one point failed",
        cell=cell,
        hardware=dataclasses.replace(run.hardware, device=device, host=host),
        provenance=dataclasses.replace(run.provenance, description="nightly", git_dirty=True),
        environment=records.Readings(values={"governor": "powersave"}, missing={"turbo": "not_supported"}),
        preparation=preparation,
        results=(first, *run.results[1:]),
    )


def rebuilt(warehouse, run_id):
    """The run put together again from the rows: fails when anything of it was dropped or bent on the way in."""
    (row,) = warehouse.query(
        "SELECT run.*, h.* EXCLUDE (hardware_id) FROM benchmark_runs run JOIN hardware_info h USING (hardware_id) "
        "WHERE run_id = ?",
        [run_id],
    ).dicts()
    workload = {
        "model_id": row["model_id"],
        "family": row["architecture_type"],
        "source": row["model_source"],
        "revision": row["model_revision"],
        "path": row["model_path"],
        "seed": row["weights_seed"],
        "config": json.loads(row["config"]),
        **{
            name: row[name]
            for name in ("task", "config_hash", "weights", "weights_reason", "parameter_count", "max_sequence_length")
        },
        "vocab_size": row["vocab_size"],
    }
    device = json.loads(row["device_details"])
    cell = {
        "workload": workload,
        "device": device,
        "runtime_mode": json.loads(row["runtime_mode"]),
        **{name: row[name] for name in ("requested_device", "runtime", "precision", "num_threads", "cpu_list")},
    }
    hardware = {
        "hashed_keys": json.loads(row["hashed_keys"]),
        "device": json.loads(row["details"]),
        "memory_bytes": row["system_memory_bytes"],
        "host": json.loads(row["host_details"]),
        **{name: row[name] for name in ("hardware_id", "hash_version", "cpu_model", "cpu_cores", "cpu_threads")},
    }
    provenance = {
        "command": shlex.split(row["command"]),
        "git_commit_time": iso(row["git_commit_time"]),
        **{
            name: row[name]
            for name in ("tool_version", "host", "git_commit", "git_branch", "git_dirty", "versions", "tags")
        },
        "description": row["description"],
    }
    data = {
        "started_at": iso(row["started_at"]),
        "finished_at": iso(row["finished_at"]),
        "cell": cell,
        "hardware": hardware,
        "provenance": provenance,
        **{name: json.loads(row[name]) for name in ("settings", "environment", "loads")},
        "preparation": None if row["preparation"] is None else json.loads(row["preparation"]),
        **{name: row[name] for name in ("run_id", "session_id", "status", "error", "format_version")},
        "results": [rebuilt_result(warehouse, result) for result in results_of(warehouse, run_id)],
    }
    return from_json(records.Run, data)


def results_of(warehouse, run_id):
    return warehouse.query("SELECT * FROM benchmark_results WHERE run_id = ? ORDER BY rowid", [run_id]).dicts()


def rebuilt_result(warehouse, row):
    extra = json.loads(row["extra"])
    point = {
        "axes": json.loads(row["axes"]),
        **{name: row[name] for name in ("batch_size", "sequence_length", "new_tokens", "concurrency")},
    }
    named = {name: value for name, value in row.items() if isinstance(value, float) and name not in FURTHER}
    raw = warehouse.query("SELECT * FROM raw_benchmark_data WHERE result_id = ? ORDER BY rowid", [row["result_id"]])
    samples = [
        {
            "values": one["samples"],
            "started_at": iso(one["started_at"]),
            **{name: one[name] for name in ("launch", "phase", "metric", "unit", "inner_loops")},
        }
        for one in raw.dicts()
    ]
    plain = ("result_id", "status", "error", "validity", "launches", "iterations", "warmup_iterations", "stop_reason")
    return to_json(
        {
            "point": point,
            "doubts": extra.pop("doubts"),
            "extra": extra,
            "metrics": {**named, **row["other_metrics"]},
            "missing": row["missing"],
            "samples": samples,
            "requests": rebuilt_requests(warehouse, row["result_id"]),
            "ci_scope": row["ci_scope"],
            **{name: row[name] for name in plain},
        }
    )


def rebuilt_requests(warehouse, result_id):
    rows = warehouse.query("SELECT * FROM requests WHERE result_id = ? ORDER BY ordinal", [result_id]).dicts()
    if not rows:
        return []
    own = {"launch", "phase", "started_at", "result_id", "ordinal"}
    columns = {name: [row[name] for row in rows] for name in rows[0] if name not in own}
    shared = {"launch": rows[0]["launch"], "phase": rows[0]["phase"], "started_at": iso(rows[0]["started_at"])}
    return [{**columns, **shared}]


def iso(time):
    return None if time is None else time.isoformat() + "Z"
