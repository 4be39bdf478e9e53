"""The tiny model of every family through the command on this machine's CPU: counts match the request."""

from __future__ import annotations

import json
import os
from math import isclose
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from benchmarking.batch_benchmark import main
from benchmarking.core import plugins
from benchmarking.core.records import Run, run_from_json
from benchmarking.workloads.support import families
from benchmarking.workloads.support.families import family_of

pytestmark = pytest.mark.forked_children
BATCH, ITERATIONS, NEW_TOKENS, STEPS = 2, 4, 4, 2
TINY = {family_of(entry.config, entry.name).name: entry for entry in families.catalog_entries() if not entry.hub}
FAMILIES = [plugins.load("benchmarking.workloads", name).name for name in plugins.names("benchmarking.workloads")]
GRID = ["--batch-sizes", BATCH, "--sequence-lengths", 32, "--new-tokens", NEW_TOKENS, "--steps", STEPS]
GRID += ["--documents", 50, "--top-k", 2, "--iterations", ITERATIONS, "--warmup-iterations", 1, "--launches", 1]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """The runs of one batch of all tiny models, by family."""
    folder = tmp_path_factory.mktemp("families")
    names = ",".join(entry.name for entry in TINY.values())
    kept = ["--output-dir", folder, "--db-path", folder / "b.duckdb", "--quiet"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "HF_HUB_OFFLINE", "1")
        assert main([str(word) for word in ("--models", names, "--devices", "cpu", *GRID, *kept)]) == 0
    files = [path for path in Path(folder).glob("*.json") if path.name != "benchmark_summary.json"]
    found = [run_from_json(json.loads(path.read_text()), str(path)) for path in files]
    return {str(run.cell.workload.family): run for run in found}


@pytest.mark.slow
def test_every_family_has_a_tiny_model_and_a_run(runs: dict[str, Run]) -> None:
    assert sorted(runs) == sorted(TINY) == sorted(FAMILIES)


@pytest.mark.parametrize("family", FAMILIES)
def test_counts_match_the_request_exactly(runs: dict[str, Run], family: str) -> None:
    run = runs[family]
    (result,) = run.results
    assert (result.status, result.error, result.point.batch_size) == ("ok", None, BATCH)
    assert (result.launches, result.iterations, result.warmup_iterations) == (1, ITERATIONS, 1)
    assert run.cell.workload.parameter_count == TINY[family].parameter_count
    calls = {metric: len(values) for metric, values in samples(result).items()}
    assert calls["latency_wall"] == ITERATIONS
    if result.point.new_tokens is not None:
        assert result.point.new_tokens == NEW_TOKENS
        assert calls["time_to_first_token"] == calls["phase_prefill"] == calls["phase_decode"] == ITERATIONS
        assert calls["inter_token_latency"] == ITERATIONS * (NEW_TOKENS - 1)
    assert calls.get("phase_step") == (ITERATIONS * STEPS if family == "diffusion" else None)


@pytest.mark.parametrize("family", FAMILIES)
def test_numbers_follow_from_the_samples_and_are_plausible(runs: dict[str, Run], family: str) -> None:
    (result,) = runs[family].results
    metrics, raw = result.metrics, samples(result)
    wall = raw["latency_wall"]
    assert metrics["latency_median_ms"] == median(wall)
    assert isclose(metrics["throughput_samples_per_sec"], BATCH * ITERATIONS * 1000 / sum(wall))
    assert metrics["memory_weights_mb"] * 1e6 >= 4 * TINY[family].parameter_count  # buffers come on top
    assert metrics["flops"] > TINY[family].parameter_count / 10
    assert metrics["bytes_accessed"] > 0
    assert not [doubt.kind for doubt in result.doubts if doubt.severity == "invalid"]
    phases = [name for name in raw if name.startswith("phase_") and name != "phase_step"]
    per_call = zip(wall, *(raw[name] for name in phases), strict=True)
    assert all(sum(parts) <= whole + 1e-6 for whole, *parts in per_call)
    if result.point.new_tokens is not None:
        assert all(0 < first < whole for first, whole in zip(raw["time_to_first_token"], wall, strict=True))


@pytest.mark.parametrize(
    ("family", "column"),
    [
        ("encoder-decoder", "encode_ms"),
        ("speech", "encode_ms"),
        ("speech", "real_time_factor"),
        ("multimodal", "image_encode_ms"),
        ("diffusion", "step_ms"),
        ("mixture-of-experts", "active_parameter_count"),
        ("mixture-of-experts", "expert_load_imbalance"),
        ("rag", "retrieve_ms"),
    ],
)
def test_families_have_their_specific_metrics(runs: dict[str, Run], family: str, column: str) -> None:
    (result,) = runs[family].results
    assert result.metrics[column] > 0
    (other,) = runs["encoder-only"].results
    assert other.missing[column].startswith("not_applicable")


def samples(result: Any) -> dict[str, tuple[float, ...]]:
    """The raw values of the timed calls by metric."""
    return {one.metric: one.values for one in result.samples if one.phase == "measure"}
