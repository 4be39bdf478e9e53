"""transformers' benchmark_v2: today's file, the older one, and the lines of the hub."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from db.importers.support.files import read_file
from db.importers.transformers_benchmark_v2 import BENCHMARK_V2
from tests.helpers.left_out import left_out
from tests.helpers.paths import FIXTURES

FOLDER = FIXTURES / "imports/transformers_benchmark_v2"


def runs(path):
    return list(BENCHMARK_V2.runs(read_file(path)))


def test_seconds_become_milliseconds_and_tokens_have_their_own_gaps():
    run, _ = runs(FOLDER / "benchmark.json")
    (result,) = run.results
    by_metric = {one.metric: one.values for one in result.samples}
    assert by_metric["latency_wall"] == (200.0, 210.0, 160.0)
    assert by_metric["time_to_first_token"] == (100.0, 100.0, 90.0)
    assert by_metric["time_per_output_token"] == pytest.approx((25.0, 27.5, 20.0))
    assert len(by_metric["inter_token_latency"]) == 3 * 2 * 3  # iterations x requests x gaps
    assert by_metric["inter_token_latency"][:6] == pytest.approx((20.0, 20.0, 20.0, 30.0, 30.0, 30.0))
    assert result.metrics["throughput_tokens_per_sec"] == pytest.approx(2 * 4 / 0.19)
    assert result.metrics["decode_tokens_per_sec"] == pytest.approx(2 / (0.0725 / 3))
    assert result.metrics["throughput_at_median"] == pytest.approx(2 / 0.2)
    assert result.metrics["memory_device_global_peak_mb"] == pytest.approx(16.5 * 1073.741824)


def test_the_run_has_the_scenarios_settings():
    run, _ = runs(FOLDER / "benchmark.json")
    assert run.cell.workload.model_id == "meta-llama/Llama-3.1-8B-Instruct"
    assert (run.cell.runtime, run.cell.precision) == ("eager", "unknown")
    of_runtime = {"attn_implementation": "sdpa", "continuous_batching": True}
    assert run.cell.runtime_mode == {**of_runtime, "gpu_monitoring": True}
    assert (run.cell.device.type, run.cell.device.name) == ("cuda", "NVIDIA A10G")
    assert run.cell.device.memory_bytes == round(22.5 * 2**30)
    assert run.provenance.git_commit == "1f3c0de2a4b5c6d7e8f90123456789abcdef0123"
    assert run.started_at == "2025-10-15T09:30:00.500000+00:00"
    assert run.origin.kept["metadata"]["commit_message"] == "Fix the cache"
    assert [doubt.kind for doubt in run.results[0].doubts] == ["not_stated"]


def test_a_failed_scenario_is_a_failed_result():
    _, run = runs(FOLDER / "benchmark.json")
    assert (run.status, run.cell.runtime) == ("failed", "compiled")
    assert run.results[0].error == "the tool could not run it"


def test_older_files_have_doubts_about_tokens_and_prompt(tmp_path):
    path = shutil.copy(FOLDER / "older.json", tmp_path / "gpt2_benchmark_20250920_100000.json")
    (run,) = runs(Path(path))
    (result,) = run.results
    assert run.cell.workload.model_id == "gpt2"
    assert [doubt.kind for doubt in result.doubts] == ["not_stated", "prompt_cut", "token_divisor"]
    assert result.validity == "noisy"
    assert result.missing["inter_token_latency_p50_ms"].startswith("not_supported: the file has no times")
    assert run.cell.runtime_mode["compile_options"] == '{"dynamic": false}'


def test_each_line_from_the_hub_is_a_run():
    new, old = runs(FOLDER / "hub.jsonl")
    (whole, _) = runs(FOLDER / "benchmark.json")
    assert new.results[0].metrics == whole.results[0].metrics
    assert old.results[0].metrics["latency_median_ms"] == pytest.approx(510.0)


def test_requests_with_the_same_times_count_once(tmp_path):
    data = json.loads((FOLDER / "benchmark.json").read_text())
    entry = next(iter(data.values()))
    entry["measurements"]["timestamps"] = [[[0.1, 0.2], [0.1, 0.2]]]
    (tmp_path / "a.json").write_text(json.dumps({"a": entry}))
    (run,) = runs(tmp_path / "a.json")
    (gaps,) = (one.values for one in run.results[0].samples if one.metric == "inter_token_latency")
    assert gaps == pytest.approx((100.0,))


def test_times_of_tokens_give_what_the_first_versions_do_not_state(tmp_path):
    data = json.loads((FOLDER / "older.json").read_text())
    entry = next(iter(data.values()))
    entry["measures"] = {
        "e2e_latency": [0.5, 0.52],
        "token_generation_times": [[0.05, 0.07, 0.1], [0.06, 0.09, 0.1]],
        "decoded_outputs": ["x", "x"],
        "gpu_metrics": None,
    }
    (tmp_path / "a.json").write_text(json.dumps(data))
    (run,) = runs(tmp_path / "a.json")
    (result,) = run.results
    by_metric = {one.metric: one.values for one in result.samples}
    assert by_metric["time_to_first_token"] == pytest.approx((50.0, 60.0))
    assert by_metric["time_per_output_token"] == pytest.approx((25.0, 20.0))
    assert by_metric["inter_token_latency"] == pytest.approx((20.0, 30.0, 30.0, 10.0))
    assert [doubt.kind for doubt in result.doubts] == ["not_stated", "prompt_cut"]


def test_invalid_times_are_refused_with_their_place(tmp_path):
    data = json.loads((FOLDER / "benchmark.json").read_text())
    next(iter(data.values()))["measurements"]["timestamps"][1][0][2] = "late"
    (tmp_path / "a.json").write_text(json.dumps(data))
    with left_out(r"timestamps\[1\]\[0\]\[2\]: expected a number, found 'late'"):
        runs(tmp_path / "a.json")
