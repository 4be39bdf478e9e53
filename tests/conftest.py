"""Fixtures every test may use: records made by hand, so that tests of storing and drawing need no measuring."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarking.records import (
    Cell,
    Device,
    Doubt,
    Hardware,
    LaunchLoad,
    Point,
    Precision,
    Provenance,
    Readings,
    Result,
    Run,
    Samples,
    Workload,
    canonical_hash,
)

RunMaker = Callable[..., Run]


def make_device(device_type: str = "cpu") -> Device:
    return Device(
        type=device_type,
        selector=device_type,
        found=True,
        name=f"Test {device_type.upper()}",
        vendor="Test",
        memory_bytes=16_000_000_000,
        facts=Readings(values={"capabilities": ["avx2"]}, missing={"power_cap_w": "not_supported"}),
        precisions=("float32",),
    )


def make_workload(model_id: str = "bert-base-uncased", family: Any = "encoder-only") -> Workload:
    task = "text-generation" if family == "decoder-only" else "feature-extraction"
    config = {"model_type": "bert" if family == "encoder-only" else "gpt2", "name": model_id}
    return Workload(
        model_id=model_id,
        family=family,
        task=task,
        source="catalog",
        config=config,
        config_hash=canonical_hash(config),
        weights="random",
        parameter_count=109_482_240,
        max_sequence_length=512,
        vocab_size=30522,
    )


def make_result(point: Point, median_ms: float, *, launches: int = 3, iterations: int = 30, **fields: Any) -> Result:
    """A result whose raw samples really have the median it claims: median_ms - 1 ... median_ms + 1."""
    half = (iterations - 1) / 2 or 1.0
    values = tuple(median_ms + (i - (iterations - 1) / 2) / half for i in range(iterations))
    metrics: dict[str, float] = {
        "latency_mean_ms": median_ms,
        "latency_median_ms": median_ms,
        "latency_std_ms": 0.6,
        "latency_min_ms": values[0],
        "latency_p90_ms": median_ms + 0.8,
        "latency_max_ms": values[-1],
        "latency_ci_low_ms": median_ms - 0.3,
        "latency_ci_high_ms": median_ms + 0.3,
        "throughput_samples_per_sec": point.batch_size * 1000 / median_ms,
        "throughput_tokens_per_sec": point.batch_size * (point.sequence_length or 1) * 1000 / median_ms,
        "first_call_ms": median_ms * 3,
        "memory_weights_mb": 437.9,
        "memory_peak_rss_infer_mb": 900.0 + 10 * point.batch_size,
    }
    samples = tuple(
        Samples(
            launch=launch,
            phase="measure",
            metric="latency_wall",
            unit="ms",
            started_at="2026-01-02T03:04:06Z",
            values=values,
        )
        for launch in range(launches)
    )
    defaults: dict[str, Any] = {
        "status": "ok",
        "validity": "valid",
        "launches": launches,
        "iterations": launches * iterations,
        "warmup_iterations": 20,
        "stop_reason": "target",
        "ci_scope": "between" if launches >= 3 else "within",
        "metrics": metrics,
        "missing": {"energy_gpu_j_per_call": "not_supported", "latency_p99_ms": "too_few_samples"},
        "samples": samples,
    }
    return Result(result_id=str(uuid.uuid4()), point=point, **{**defaults, **fields})


@pytest.fixture
def make_run() -> RunMaker:
    """A function that makes a complete run: 2 batch sizes x 2 sequence lengths, all ok unless told otherwise."""

    def make(
        *,
        model_id: str = "bert-base-uncased",
        family: str = "encoder-only",
        device: str = "cpu",
        runtime: str = "eager",
        precision: Precision = "float32",
        batch_sizes: tuple[int, ...] = (1, 2),
        sequence_lengths: tuple[int, ...] = (32, 128),
        launches: int = 3,
        iterations: int = 30,
        slowdown: float = 1.0,
        started_at: str = "2026-01-02T03:04:05Z",
        with_failed: bool = False,
        with_doubtful: bool = False,
        **fields: Any,
    ) -> Run:
        new_tokens = 4 if family == "decoder-only" else None
        points = [
            Point(batch_size=b, sequence_length=s, new_tokens=new_tokens) for b in batch_sizes for s in sequence_lengths
        ]
        results = [
            make_result(
                point,
                slowdown * point.batch_size * (point.sequence_length or 1) / 4,
                launches=launches,
                iterations=iterations,
            )
            for point in points
        ]
        if with_doubtful:
            noisy = Doubt(kind="cpu_pressure", severity="noisy", evidence={"psi_some_avg10": 42.0})
            results[-1] = make_result(points[-1], 99.0, launches=launches, validity="noisy", doubts=(noisy,))
        if with_failed:
            results.append(
                Result(
                    result_id=str(uuid.uuid4()),
                    point=Point(batch_size=64, sequence_length=512, new_tokens=new_tokens),
                    status="failed",
                    error="OutOfMemoryError: 64 GB asked, 16 GB there",
                    missing={"latency_median_ms": "failed"},
                )
            )
        found = make_device(device)
        keys = {"device_name": found.name, "cpu_model": "Test CPU 3000", "cpu_cores": 8}
        defaults: dict[str, Any] = {
            "run_id": str(uuid.uuid4()),
            "session_id": str(uuid.uuid4()),
            "status": "failed" if with_failed else "ok",
            "started_at": started_at,
            "finished_at": "2026-01-02T03:14:05Z",
            "cell": Cell(
                workload=make_workload(model_id, family),
                device=found,
                requested_device=device,
                runtime=runtime,
                runtime_mode={"attention": "sdpa"},
                precision=precision,
            ),
            "hardware": Hardware(
                hardware_id=canonical_hash(keys)[:16],
                hash_version=1,
                hashed_keys=keys,
                device=found,
                cpu_model="Test CPU 3000",
                cpu_cores=8,
                cpu_threads=16,
                memory_bytes=16_000_000_000,
            ),
            "provenance": Provenance(
                tool_version="0.1.0",
                command=("run_hardware_benchmark", "--model-id", model_id),
                host="testhost",
                git_commit="0" * 40,
                git_branch="main",
                git_dirty=False,
                git_commit_time="2026-01-01T00:00:00Z",
                versions={"python": "3.11.7", "torch": "2.13.0"},
                tags={"suite": "test"},
            ),
            "settings": {"profile": "standard", "launches": launches},
            "loads": tuple(
                LaunchLoad(
                    launch=launch,
                    stages_s={"spawn": 0.1, "import": 2.0, "device_init": 0.0, "weights_read": 1.0, "to_device": 0.2},
                    memory_bytes={"weights_bytes": 437_928_960, "rss_base_bytes": 400_000_000},
                    verified={"parameter_dtypes": ["float32"], "num_threads": 2},
                )
                for launch in range(launches)
            ),
            "results": tuple(results),
        }
        return Run(**{**defaults, **fields})

    return make


@pytest.fixture(autouse=True)
def without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test asks the hub, wherever the tests run; those of the hub's own code bring a server along."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def null_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """A function that writes the null device's script and makes this process and its children play it."""

    def write(**script: Any) -> Path:
        path = tmp_path / "null_script.json"
        path.write_text(json.dumps(script))
        monkeypatch.setenv("BENCHHOUSE_NULL_SCRIPT", str(path))
        return path

    return write
