"""benchmark_v2's first layout: scenarios with statistics, raw times in seconds and the use of the GPU."""

from __future__ import annotations

import json

import pytest

from db.importers.support.files import read_file
from db.importers.transformers_benchmark_v2 import FIRST_LAYOUT
from tests.helpers.left_out import left_out
from tests.helpers.paths import FIXTURES

FILE = FIXTURES / "imports/benchmark_scenarios/gpt2_benchmark_20250915_101500.json"


@pytest.fixture(scope="module")
def imported():
    return list(FIRST_LAYOUT.runs(read_file(FILE)))


def test_seconds_become_milliseconds_and_gpu_utilization_has_its_columns(imported):
    (result,) = imported[0].results
    by_metric = {one.metric: one.values for one in result.samples}
    assert by_metric["latency_wall"] == (200.0, 220.0, 210.0, 250.0)
    assert by_metric["time_to_first_token"] == (20.0, 30.0, 20.0, 20.0)
    assert by_metric["time_per_output_token"] == pytest.approx((20.0, 22.0, 21.0, 25.0))
    assert result.metrics["latency_median_ms"] == 215
    assert result.metrics["throughput_tokens_per_sec"] == pytest.approx(45.7684, rel=1e-5)  # as stated: of one sequence
    assert result.metrics["throughput_samples_per_sec"] == pytest.approx(2 / 0.22)
    assert result.metrics["throughput_at_median"] == pytest.approx(2 / 0.215)
    assert (result.metrics["utilization_mean_percent"], result.metrics["utilization_max_percent"]) == (81.5, 93)
    assert result.metrics["memory_device_used_mean_mb"] == pytest.approx(1500 * 1.048576)
    assert [doubt.kind for doubt in result.doubts] == ["time_zone_unknown", "token_divisor"]


def test_the_run_has_the_scenarios_settings_and_keeps_the_rest(imported):
    run = imported[0]
    assert (run.cell.workload.model_id, run.cell.runtime, run.cell.precision) == (
        "openai-community/gpt2",
        "compiled",
        "float16",
    )
    assert run.cell.runtime_mode == {
        "attn_implementation": "sdpa",
        "sdpa_backend": "math",
        "compile_mode": "max-autotune",
    }
    assert (run.cell.device.type, run.cell.device.name) == ("cuda", "NVIDIA A10G")
    assert run.provenance.tags == {"scenario": "compiled_compile_max-autotune_sdpa_math"}
    kept = run.origin.kept
    assert kept["gpu_metrics"]["gpu_utilization_min"] == 64
    assert kept["measurements"]["tokens_per_second"]["measurements"][0] == 50.0


def test_a_scenario_without_a_number_is_a_failed_result(imported):
    run = imported[1]
    assert (run.status, run.cell.runtime, run.cell.device.type) == ("failed", "eager", "cpu")
    assert run.cell.runtime_mode == {"attn_implementation": "eager", "use_cache": False}
    assert run.results[0].error == "no latency, rate or throughput that is understood"


def test_a_wrong_field_is_named_with_its_place(tmp_path):
    path = tmp_path / "broken.json"
    path.write_text(FILE.read_text().replace('"gpu_utilization_mean": 81.5', '"gpu_utilization_mean": "high"'))
    with left_out("gpu_utilization_mean"):
        list(FIRST_LAYOUT.runs(read_file(path)))


def test_times_are_in_the_unit_that_stands_beside_them(tmp_path, imported):
    def edited(words, factor):
        data = json.loads(FILE.read_text())
        for measures in (one["measurements"] for one in data["benchmark_scenarios"]):
            for (name, entry), word in zip(measures.items(), words, strict=False):
                if name != "tokens_per_second":
                    scaled = {key: value * factor for key, value in entry.items() if isinstance(value, float)}
                    entry |= scaled | {"measurements": [value * factor for value in entry["measurements"]]}
                    entry["unit"] = word
        (tmp_path / "a.json").write_text(json.dumps(data))
        return read_file(tmp_path / "a.json")

    run, *_ = FIRST_LAYOUT.runs(edited(("milliseconds", "ms", "", "ms/token"), 1e3))
    assert run.results[0].metrics == pytest.approx(imported[0].results[0].metrics)
    with left_out(r"latency\.unit: expected seconds or milliseconds, found 'ticks'"):
        list(FIRST_LAYOUT.runs(edited(("ticks",) * 4, 1.0)))
