"""inference-perf's stages: seconds of requests at a rate."""

from __future__ import annotations

import json
import shutil

import pytest

from benchmarking.core.metrics import SERVICE_TIMES
from db.importers.inference_perf import INFERENCE_PERF as PLUGIN
from db.importers.support.files import NoResultsError, read_file
from db.importers.support.measures import median_of
from tests.helpers.imported_files import importer_for
from tests.helpers.paths import FIXTURES

FOLDER = FIXTURES / "imports/inference_perf"


def runs(name):
    return list(PLUGIN.runs(read_file(FOLDER / name)))


def test_a_stage_is_a_load_at_its_rate_with_times_in_milliseconds():
    (run,) = runs("stage_1_lifecycle_metrics.json")
    (result,) = run.results
    assert result.point.axes == {"input_tokens_mean": 135, "request_rate": 27.63}
    expected = {
        "service_time_mean_ms": 2958.3877717027036,
        "service_time_p50_ms": 3031.1553650543634,
        "service_time_p99_ms": 3554.694139161147,
        "time_to_first_token_ms": 61.39931897632778,
        "time_to_first_token_p99_ms": 87.07189518027007,
        "time_per_output_token_ms": 11.538466330842344,
        "inter_token_latency_median_ms": 0.12252002488821745,
        "normalized_time_per_output_token_mean_ms": 22.989927791627486,
        "throughput_samples_per_sec": 26.918126386371846,
        "throughput_tokens_per_sec": 3464.49445121497,
        "achieved_rate_per_sec": 27.653777212486172,
    }
    assert {name: result.metrics[name] for name in expected} == pytest.approx(expected)
    assert (result.iterations, run.cell.workload.model_id[:8]) == (1657, "unknown-")


def test_the_model_is_in_the_configuration_in_the_same_folder(tmp_path):
    shutil.copy(FOLDER / "stage_1_lifecycle_metrics.json", tmp_path)
    (tmp_path / "config.yaml").write_text("server:\n  type: vllm\n  model_name: org/model\n")
    (run,) = PLUGIN.runs(read_file(tmp_path / "stage_1_lifecycle_metrics.json"))
    assert run.cell.workload.model_id == "org/model"


def test_the_summary_of_several_stages_is_not_imported(tmp_path):
    for name in ("stage_1_lifecycle_metrics.json", "summary_lifecycle_metrics.json"):
        shutil.copy(FOLDER / "stage_1_lifecycle_metrics.json", tmp_path / name)
    with pytest.raises(NoResultsError, match="summary of all stages"):
        list(PLUGIN.runs(read_file(tmp_path / "summary_lifecycle_metrics.json")))


def test_failed_requests_are_a_doubt_and_a_stage_without_successes_failed(tmp_path):
    stage = json.loads((FOLDER / "stage_1_lifecycle_metrics.json").read_text())
    stage["failures"]["count"] = 3
    stage["successes"]["count"] = 0
    (tmp_path / "stage_0_lifecycle_metrics.json").write_text(json.dumps(stage))
    (run,) = PLUGIN.runs(read_file(tmp_path / "stage_0_lifecycle_metrics.json"))
    assert (run.status, run.results[0].error) == ("failed", "no request succeeded")


@pytest.mark.parametrize(
    ("load", "kind"),
    [
        ({"requested_rate": 28.0}, None),  # 1 % less, and 8 % may be chance
        ({"requested_rate": 31.0}, "rate_not_achieved"),
        ({"schedule_delay": {"p95": 0.0006}}, None),
        ({"schedule_delay": {"p95": 0.0007}}, "late_generator"),  # of 61.4 ms to the first token
    ],
)
def test_the_rules_of_our_own_loads_apply_to_a_stage(load, kind, tmp_path):
    stage = json.loads((FOLDER / "stage_1_lifecycle_metrics.json").read_text())
    stage["load_summary"] |= load
    (tmp_path / "stage_0_lifecycle_metrics.json").write_text(json.dumps(stage))
    (run,) = PLUGIN.runs(read_file(tmp_path / "stage_0_lifecycle_metrics.json"))
    judged = {doubt.kind for doubt in run.results[0].doubts if doubt.severity == "invalid"}
    assert judged == ({kind} if kind else set())


def test_prefix_cache_hits_are_a_doubt_if_the_prompts_share_nothing(folder):
    path, config = folder / "stage_0_lifecycle_metrics.json", folder / "config.yaml"
    stage = json.loads(path.read_text())
    stage["successes"]["prompt_tokens"] |= {"cached": 144.0}
    path.write_text(json.dumps(stage))
    kinds = []
    for data in ("random", "shared_prefix"):
        config.write_text(f"server:\n  model_name: tiny\ndata:\n  type: {data}\n")
        kinds.append({doubt.kind for doubt in next(PLUGIN.runs(read_file(path))).results[0].doubts})
    assert ["prefix_cache_hit" in found for found in kinds] == [True, False]


@pytest.fixture
def folder(tmp_path):
    """A copy of a folder that inference-perf wrote."""
    return shutil.copytree(FIXTURES / "import_folders/inference_perf_rate", tmp_path / "rate")


def test_the_times_of_each_request_are_those_in_the_folders_list(folder):
    (run,) = PLUGIN.runs(read_file(folder / "stage_0_lifecycle_metrics.json"))
    (result,) = run.results
    samples = {one.metric: one.values for one in result.samples}
    assert (len(samples["latency_wall"]), len(samples["inter_token_latency"])) == (18, 18 * 7)
    stated = result.extra["kept"]["stated"]
    own = {name: SERVICE_TIMES.get(name, name) for name in stated}
    assert {name: result.metrics[own[name]] for name in stated} == pytest.approx(stated)
    assert median_of(samples["time_to_first_token"]) == pytest.approx(result.metrics["time_to_first_token_ms"])
    assert median_of(samples["time_per_output_token"]) == pytest.approx(result.metrics["time_per_output_token_ms"])
    assert (result.point.label, run.cell.workload.model_id) == ("b1 s16 n8 request_rate=10.0", "tiny")
    assert run.started_at == "2026-11-23T07:46:19.334875+00:00"
    assert result.metrics["request_goodput_per_sec"] == pytest.approx(9.744155066)
    assert result.metrics["schedule_delay_p99_ms"] == pytest.approx(1.3041285)
    assert result.missing["time_to_first_token_p90_ms"] == "too_few_samples"
    (requests,) = result.requests
    assert (len(requests), requests.error.count("http_503"), requests.tokens_out.count(8)) == (20, 2, 18)
    assert requests.started_at == run.started_at
    assert "intended_start_not_stated" in [doubt.kind for doubt in result.doubts]


def test_a_list_of_other_requests_is_not_joined(folder):
    path = folder / "per_request_lifecycle_metrics.json"
    path.write_text(json.dumps(json.loads(path.read_text())[1:]))
    (run,) = PLUGIN.runs(read_file(folder / "stage_0_lifecycle_metrics.json"))
    assert (run.results[0].samples, run.results[0].requests) == ((), ())


def test_a_stage_at_a_concurrency_has_no_rate():
    (run,) = PLUGIN.runs(
        read_file(FIXTURES / "import_folders/inference_perf_concurrency/stage_0_lifecycle_metrics.json")
    )
    (result,) = run.results
    assert (result.point.concurrency, result.point.axes) == (2, {"input_tokens_mean": 15})
    assert result.extra["kept"]["requested_rate"] == 12.0


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("per_request_lifecycle_metrics.json", r"imported with stage_0_lifecycle_metrics\.json"),
        ("summary_lifecycle_metrics.json", "each stage has its own file"),
        ("inference-perf.partial.stage_0.yaml", r"all its numbers are in stage_0_lifecycle_metrics\.json"),
    ],
)
def test_files_repeating_a_stage_have_no_results(folder, name, reason):
    file = read_file(folder / name)
    with pytest.raises(NoResultsError, match=reason):
        list(importer_for(file).runs(file))


def test_a_part_of_a_damaged_stage_is_read_itself(folder):
    stage = folder / "stage_0_lifecycle_metrics.json"
    stage.write_bytes(stage.read_bytes()[:100])
    part = read_file(folder / "inference-perf.partial.stage_0.yaml")
    assert len(list(importer_for(part).runs(part))) == 1


def test_the_first_versions_call_the_median_p50(tmp_path):
    times = {"mean": 0.15, "min": 0.07, "p50": 0.13, "p90": 0.23, "max": 0.4}
    stage = {
        "load_summary": {"count": 120, "schedule_accuracy": {"mean": 2e-4, "p50": 2e-4}, "requested_rate": 4.0},
        "successes": {"count": 120, "latency": {"request_latency": times, "time_to_first_token": times}},
        "failures": {"count": 0},
    }
    (tmp_path / "stage_1_lifecycle_metrics.json").write_text(json.dumps(stage))
    (run,) = PLUGIN.runs(read_file(tmp_path / "stage_1_lifecycle_metrics.json"))
    metrics = run.results[0].metrics
    assert metrics["service_time_p50_ms"] == metrics["time_to_first_token_ms"] == 130
    assert metrics["schedule_delay_median_ms"] == 0.2


def test_a_rate_of_0_is_none(tmp_path):
    times = {"mean": 1.6, "median": 1.1}
    load = {"requested_rate": 0.0, "achieved_rate": 1.0}
    stage = {"load_summary": load, "successes": {"count": 79, "latency": {"request_latency": times}}, "failures": {}}
    (tmp_path / "stage_0_lifecycle_metrics.json").write_text(json.dumps(stage))
    (run,) = PLUGIN.runs(read_file(tmp_path / "stage_0_lifecycle_metrics.json"))
    assert "request_rate" not in run.results[0].point.axes
    assert run.results[0].metrics["latency_median_ms"] == 1100


def test_the_requests_of_an_adapter_are_another_series(tmp_path):
    stage = FOLDER / "stage_1_lifecycle_metrics.json"
    of_stage, of_all = "adapter_sql_stage_1_lifecycle_metrics.json", "adapter_sql_lifecycle_metrics.json"
    for name in (stage.name, of_stage, of_all):
        shutil.copy(stage, tmp_path / name)
    (run,) = PLUGIN.runs(read_file(tmp_path / of_stage))
    assert run.cell.runtime_mode["adapter"] == "sql"
    with pytest.raises(NoResultsError, match="summary of an adapter's stages"):
        list(PLUGIN.runs(read_file(tmp_path / of_all)))


def test_lengths_beside_totals_are_the_prompts_size(tmp_path):
    stage = json.loads((FOLDER / "stage_1_lifecycle_metrics.json").read_text())
    successes = stage["successes"]
    successes |= {"prompt_len": {"mean": 64.0, "min": 64.0, "max": 64.0}}
    successes["prompt_tokens"] = {"total": 640.0, "cached": 320.0, "uncached": 320.0}
    (tmp_path / "stage_1_lifecycle_metrics.json").write_text(json.dumps(stage))
    (run,) = PLUGIN.runs(read_file(tmp_path / "stage_1_lifecycle_metrics.json"))
    assert run.results[0].point.sequence_length == 64
    assert run.results[0].metrics["cached_prompt_tokens"] == 320
