"""Hand-made records for tests of storage and charts."""

from __future__ import annotations

import itertools
import math
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from statistics import median
from typing import Any

from benchmarking.core.profiles import Breakdown, CallProfile, ModuleTime, OperatorTime, Profile
from benchmarking.core.records import (
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

TASKS = {
    **dict.fromkeys(("decoder-only", "mixture-of-experts", "state-space"), "text-generation"),
    "encoder-decoder": "text2text-generation",
    "vision": "image-classification",
    "vision-text": "zero-shot-image-classification",
    "speech": "automatic-speech-recognition",
    "multimodal": "image-text-to-text",
    "diffusion": "text-to-image",
    "rag": "retrieval-augmented-generation",
}
"""Of families other than encoder-only."""
MEASURED_AT = datetime.fromisoformat("2026-01-02T03:04:06Z")
"""Start of the first launch of every result; the others follow a minute apart, in turns with those of other runs."""
WITHOUT_TEXT = ("vision", "speech", "diffusion")
AXES: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "vision": {"image_size": (224, 384)},
    "vision-text": {"image_size": (224,)},
    "speech": {"audio_seconds": (5.0, 30.0)},
    "multimodal": {"image_size": (336,)},
    "diffusion": {"image_size": (256, 512), "steps": (4,)},
    "rag": {"documents": (1000,), "top_k": (2, 8)},
}
PHASES = {"encoder-decoder": "encode", "speech": "encode", "multimodal": "image_encode", "rag": "retrieve"}
"""The phase before prefill, a quarter of the latency."""


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
    task = TASKS.get(family, "feature-extraction")
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


def tokens_per_sec(point: Point, median_ms: float) -> dict[str, float]:
    tokens = point.batch_size * (point.sequence_length or point.new_tokens or 0)
    return {"throughput_tokens_per_sec": tokens * 1000 / median_ms} if tokens else {}


def of_family(family: str, point: Point, median_ms: float) -> dict[str, float]:
    """The metrics that only some families have, whole shares of the median."""
    metrics = {f"{PHASES[family]}_ms": median_ms / 4} if family in PHASES else {}
    if point.new_tokens is not None:
        first_ms = sum(metrics.values()) + median_ms / 4
        rest_ms = median_ms - first_ms
        metrics |= {"prefill_ms": median_ms / 4, "decode_ms": rest_ms, "time_to_first_token_ms": first_ms}
        metrics |= {"time_per_output_token_ms": rest_ms / max(point.new_tokens - 1, 1)}
    if "steps" in point.axes:
        metrics["step_ms"] = median_ms / point.axes["steps"]
    if "audio_seconds" in point.axes:
        audio_s = point.batch_size * point.axes["audio_seconds"]
        metrics |= {"audio_seconds_per_call": audio_s, "real_time_factor": median_ms / 1000 / audio_s}
    if family == "mixture-of-experts":
        metrics |= {"active_parameter_count": 12_000_000.0, "expert_load_imbalance": 1.5}
    return metrics


def make_points(
    family: str, batch_sizes: tuple[int, ...], sequence_lengths: tuple[int | None, ...], axes: Mapping[str, Any]
) -> list[Point]:
    """The grid: every batch size with every sequence length and every value of every axis."""
    new_tokens = 4 if "generation" in TASKS.get(family, "") or family in ("multimodal", "speech") else None
    return [
        Point(batch_size=b, sequence_length=s, new_tokens=new_tokens, axes=dict(zip(axes, values, strict=True)))
        for b in batch_sizes
        for s in sequence_lengths
        for values in itertools.product(*axes.values())
    ]


def work_of(point: Point, axes: Mapping[str, Any]) -> float:
    """Milliseconds of a call on no particular machine: batch x sequence / 4, times each axis over its first value."""
    factors = (point.axes[name] / values[0] for name, values in axes.items())
    return float(point.batch_size * (point.sequence_length or 32) / 4 * math.prod(factors))


def make_result(
    point: Point,
    median_ms: float,
    *,
    launches: int = 3,
    iterations: int = 30,
    family: str = "encoder-only",
    **fields: Any,
) -> Result:
    """A result with raw samples of this median: median_ms - 1 ... median_ms + 1."""
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
        **tokens_per_sec(point, median_ms),
        "first_call_ms": median_ms * 3,
        "memory_weights_mb": 437.9,
        "memory_peak_rss_infer_mb": 900.0 + 10 * point.batch_size,
        **of_family(family, point, median_ms),
    }
    samples = tuple(
        Samples(
            launch=launch,
            phase="measure",
            metric="latency_wall",
            unit="ms",
            started_at=(MEASURED_AT + timedelta(minutes=launch)).strftime("%Y-%m-%dT%H:%M:%SZ"),
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


def with_own_median(result: Result) -> Result:
    """The result with the median latency of its samples."""
    timed = [one.values for one in result.samples if (one.phase, one.metric) == ("measure", "latency_wall")]
    return replace(result, metrics={**result.metrics, "latency_median_ms": median(map(median, timed))})


def make_hardware(device: Device) -> Hardware:
    keys = {"device_name": device.name, "cpu_model": "Test CPU 3000", "cpu_cores": 8}
    return Hardware(
        hardware_id=canonical_hash(keys)[:16],
        hash_version=1,
        hashed_keys=keys,
        device=device,
        cpu_model="Test CPU 3000",
        cpu_cores=8,
        cpu_threads=16,
        memory_bytes=16_000_000_000,
    )


def make_provenance(model_id: str) -> Provenance:
    return Provenance(
        tool_version="0.1.0",
        command=("run_hardware_benchmark", "--model-id", model_id),
        host="testhost",
        git_commit="0" * 40,
        git_branch="main",
        git_dirty=False,
        git_commit_time="2026-01-01T00:00:00Z",
        versions={"python": "3.11.7", "torch": "2.13.0"},
        tags={"suite": "test"},
    )


def make_load(launch: int) -> LaunchLoad:
    return LaunchLoad(
        launch=launch,
        stages_s={"spawn": 0.1, "import": 2.0, "device_init": 0.0, "weights_read": 1.0, "to_device": 0.2},
        memory_bytes={"weights_bytes": 437_928_960, "rss_base_bytes": 400_000_000},
        verified={"parameter_dtypes": ["float32"], "num_threads": 2},
    )


def out_of_memory(point: Point) -> Result:
    """The failure of a point larger than the given one."""
    return Result(
        result_id=str(uuid.uuid4()),
        point=replace(point, batch_size=64, sequence_length=point.sequence_length and 512),
        status="failed",
        error="OutOfMemoryError: 64 GB asked, 16 GB there",
        missing={"latency_median_ms": "failed"},
    )


def ten_minutes_after(started_at: str) -> str:
    """That time; any for a start that is no time."""
    try:
        return (datetime.fromisoformat(started_at) + timedelta(minutes=10)).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError):
        return "2026-01-02T03:14:05Z"


def make_run(
    *,
    model_id: str = "bert-base-uncased",
    family: str = "encoder-only",
    device: str = "cpu",
    runtime: str = "eager",
    precision: Precision = "float32",
    batch_sizes: tuple[int, ...] = (1, 2),
    sequence_lengths: tuple[int | None, ...] | None = None,
    axes: Mapping[str, tuple[float, ...]] | None = None,
    launches: int = 3,
    iterations: int = 30,
    slowdown: float = 1.0,
    started_at: str = "2026-01-02T03:04:05Z",
    with_failed: bool = False,
    with_doubtful: bool = False,
    **fields: Any,
) -> Run:
    """A complete run: 2 batch sizes x 2 sequence lengths, or the axes the family has instead of them (AXES).

    Every point is ok by default; `fields` replace those of the run.
    """
    lengths = sequence_lengths or ((None,) if family in WITHOUT_TEXT else (32, 128))
    further = AXES.get(family, {}) if axes is None else axes
    points = make_points(family, batch_sizes, lengths, further)
    results = [
        make_result(point, slowdown * work_of(point, further), launches=launches, iterations=iterations, family=family)
        for point in points
    ]
    if with_doubtful:
        noisy = Doubt(kind="cpu_pressure", severity="noisy", evidence={"psi_some_avg10": 42.0})
        results[-1] = make_result(points[-1], 99.0, launches=launches, validity="noisy", doubts=(noisy,))
    if with_failed:
        results.append(out_of_memory(points[-1]))
    found = make_device(device)
    defaults: dict[str, Any] = {
        "run_id": str(uuid.uuid4()),
        "session_id": str(uuid.uuid4()),
        "status": "failed" if with_failed else "ok",
        "started_at": started_at,
        "finished_at": ten_minutes_after(started_at),
        "cell": Cell(
            workload=make_workload(model_id, family),
            device=found,
            requested_device=device,
            runtime=runtime,
            runtime_mode={"attention": "sdpa"},
            precision=precision,
        ),
        "hardware": make_hardware(found),
        "provenance": make_provenance(model_id),
        "settings": {"profile": "standard", "launches": launches},
        "loads": tuple(make_load(launch) for launch in range(launches)),
        "results": tuple(results),
    }
    return Run(**{**defaults, **fields})


def make_profile(factor: float = 1.0, **fields: Any) -> Profile:
    """A profile of two layers, the second `factor` times as slow as the first, of 8 calls of (2 + factor) ms."""
    run = replace(make_run(launches=1), results=())
    times = {"layers.0": 1.0, "layers.1": factor, "": 1.0}
    modules = tuple(
        ModuleTime(
            module=path,
            kind="attention" if path else "other",
            layer=path or None,
            calls=1.0,
            inclusive_ms=ms if path else sum(times.values()),
            exclusive_ms=ms,
            inclusive_samples_ms=tuple(ms * (1 + step / 1000) for step in range(8)),
        )
        for path, ms in times.items()
    )
    operators = tuple(
        OperatorTime(
            module=path,
            operator="aten::addmm",
            kind="attention",
            layer=path,
            placed="cpu",
            calls=1.0,
            exclusive_ms=times[path] / 2,
            inclusive_ms=times[path] / 2,
        )
        for path in ("layers.0", "layers.1")
    )
    call = CallProfile(
        profiler="torch.profiler",
        breakdown=Breakdown(host_ms=2 + factor, modules=modules, operators=operators),
        latency_ms=(1.5 + factor,) * 8,
        profiled_ms=(2 + factor,) * 8,
        missing={"tokenize": "not_applicable"},
    )
    point = Point(batch_size=1, sequence_length=32)
    return Profile(**{"profile_id": str(uuid.uuid4()), "run": run, "point": point, "call": call, **fields})
