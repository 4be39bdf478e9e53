"""GenAI-Perf's and AIPerf's exports: AIPerf's of a real load, GenAI-Perf's made by its own classes."""

from __future__ import annotations

import gzip
import json
import shutil

import pytest

from benchmarking.core.errors import FormatError
from db.importers.aiperf import AIPERF, GENAI_PERF
from db.importers.support.files import NoResultsError, read_file, recognising
from tests.helpers.left_out import left_out
from tests.helpers.paths import FIXTURES

IMPORTS = FIXTURES / "imports"
GENAI_PERF_EXPORT = IMPORTS / "genai_perf/profile_export_genai_perf.json"
AIPERF_EXPORT = IMPORTS / "aiperf/profile_export_aiperf.json"


def only_run(plugin, path):
    (run,) = plugin.runs(read_file(path))
    return run


@pytest.fixture
def changed(tmp_path):
    """Applies a function to the JSON of an export; returns the file."""

    def write(export, change):
        data = json.loads(export.read_text())
        change(data)
        (tmp_path / "changed.json").write_text(json.dumps(data))
        return tmp_path / "changed.json"

    return write


def test_each_value_of_a_genai_perf_export_is_imported():
    run = only_run(GENAI_PERF, GENAI_PERF_EXPORT)
    (result,) = run.results
    expected = {
        "latency_mean_ms": 135.0,
        "latency_median_ms": 135.0,
        "latency_min_ms": 120.0,
        "latency_p25_ms": 127.5,
        "latency_p75_ms": 142.5,
        "latency_max_ms": 150.0,
        "stated_latency_p99_ms": 149.7,
        "request_latency_std_ms": 11.180339887498949,
        "throughput_samples_per_sec": 15.25,
        "throughput_tokens_per_sec": 244.0,
        "time_to_first_token_ms": 34.0,
        "time_to_first_token_avg_ms": 34.5,
        "inter_token_latency_p50_ms": 6.733333,
        "output_token_throughput_per_user_avg_tokens_per_sec_per_user": 150.08,
        "request_count": 4,
    }
    assert {name: result.metrics.get(name) for name in expected} == pytest.approx(expected)
    assert (result.point.label, result.iterations) == ("b1 s32 n16 c2", 4)
    assert [doubt.kind for doubt in result.doubts] == ["undated"]
    assert (run.cell.workload.model_id, run.cell.runtime) == ("demo/model", "unknown")


def test_genai_perfs_ambiguous_inter_token_latency_is_in_no_column():
    run = only_run(GENAI_PERF, GENAI_PERF_EXPORT)
    assert "time_per_output_token_ms" not in run.results[0].metrics
    assert "the file does not say which" in run.origin.definitions["inter_token_latency"]


def test_statistics_without_a_metric_are_kept():
    run = only_run(GENAI_PERF, GENAI_PERF_EXPORT)
    assert run.origin.kept["request_latency"] == {"p1": 120.3, "p5": 121.5, "p10": 123.0}


def test_older_inputs_of_genai_perf_are_flat(changed):
    def change(data):
        data["input_config"] = {"model": ["old/model"], "concurrency": 7, "service_kind": "openai"}

    run = only_run(GENAI_PERF, changed(GENAI_PERF_EXPORT, change))
    assert (run.cell.workload.model_id, run.results[0].point.concurrency) == ("old/model", 7)


def test_each_value_of_an_aiperf_export_is_imported():
    run = only_run(AIPERF, AIPERF_EXPORT)
    (result,) = run.results
    expected = {
        "latency_mean_ms": 437.29537216666665,
        "latency_median_ms": 261.4605165,
        "latency_min_ms": 142.979916,
        "latency_max_ms": 918.83146,
        "throughput_samples_per_sec": 4.312861583711109,
        "throughput_tokens_per_sec": 237.20738710411098,
        "time_to_first_token_ms": 104.89507049999999,
        "time_per_output_token_ms": 3.0381398055555553,
        "inter_chunk_latency_p99_ms": 43.655905329999996,
        "benchmark_duration_ms": 1375.317248,
        "osl_mismatch_diff_pct_avg_percent": 243.75,
    }
    assert {name: result.metrics.get(name) for name in expected} == pytest.approx(expected)
    assert (result.point.label, result.iterations) == ("b1 s32 n55 c2", 6)
    assert (run.started_at, run.origin.tool_version) == ("2026-11-21T13:31:11.582535+00:00", "0.13.0")
    assert run.provenance.command[0].startswith("aiperf profile -m 'demo/model'")
    assert [doubt.kind for doubt in result.doubts] == ["time_zone_unknown"]


@pytest.mark.parametrize(("report", "listed"), [("a_aiperf.json", "a.jsonl"), ("a.json", "a.jsonl.gz")])
def test_the_times_of_aiperfs_requests_are_its_samples_if_they_have_the_means_of_the_report(tmp_path, report, listed):
    def line(latency_ms, *, error=None, **about):
        metrics = {"request_latency": (latency_ms / 1e3, "sec"), "time_to_first_token": (9.0, "ms")}
        about = {"request_start_ns": 1, "benchmark_phase": "profiling", "was_cancelled": False, **about}
        values = {name: {"value": value, "unit": unit} for name, (value, unit) in metrics.items()}
        return json.dumps({"metadata": about, "metrics": values, "error": error})

    data = json.loads(AIPERF_EXPORT.read_text())
    data["request_latency"] |= {"avg": 150.0, "p50": 150.0}
    (tmp_path / report).write_text(json.dumps(data))
    lines = [line(100), line(900, phase_kind="warmup"), line(900, error={"code": 500}), line(200), "[1]"]
    text = "\n".join([*lines, line(900, was_cancelled=True)]).encode()
    (tmp_path / listed).write_bytes(gzip.compress(text) if listed.endswith(".gz") else text)
    with left_out("a.jsonl: line 5: expected an object"):
        (result,) = only_run(AIPERF, tmp_path / report).results
    # Those of another load have another mean: the first tokens.
    assert [(one.metric, one.values) for one in result.samples] == [("latency_wall", (100.0, 200.0))]
    assert (result.metrics["latency_median_ms"], result.metrics["time_to_first_token_ms"]) == (
        150.0,
        104.89507049999999,
    )
    with pytest.raises(
        NoResultsError, match=r"requests of a load: their times are imported with profile_export_aiperf"
    ):
        only_run(AIPERF, tmp_path / listed)


def test_a_truncated_load_is_invalid(changed):
    def change(data):
        data |= {"is_complete": False, "incomplete_reason": "stalled"}

    (result,) = only_run(AIPERF, changed(AIPERF_EXPORT, change)).results
    assert result.validity == "invalid"
    assert result.doubts[-1].evidence == {"cancelled": False, "reason": "stalled"}


def test_a_request_rate_of_aiperf_is_an_axis(changed):
    def change(data):
        data["input_config"]["phases"] = [{"kind": "profiling", "type": "poisson", "rate": 12.5}]

    (result,) = only_run(AIPERF, changed(AIPERF_EXPORT, change)).results
    assert result.point.axes == {"request_rate": 12.5}
    assert "concurrency_unlimited" in [doubt.kind for doubt in result.doubts]


def test_a_warm_up_phase_is_not_the_load_and_its_type_tells_the_arrivals(changed):
    def change(data):
        data["input_config"]["phases"] = [
            {"name": "profiling", "type": "gamma", "rate": 12.5, "exclude_from_results": False},
            {"name": "warmup", "type": "concurrency", "concurrency": 4, "exclude_from_results": True},
        ]

    run = only_run(AIPERF, changed(AIPERF_EXPORT, change))
    assert run.results[0].point.axes == {"request_rate": 12.5}
    assert run.cell.runtime_mode["arrivals"] == "gamma"


@pytest.mark.parametrize("scaled", [False, True])
def test_the_defaults_that_reports_of_several_runs_state_are_no_settings(changed, scaled):
    steering = {"control_variable": "concurrency", "control_min": 1.0, "scale_step_percent": 25.0}
    defaults = {"trajectory_start_min_ratio": 0.25, "trajectory_start_max_ratio": 0.75, "burst_phase_starts": False}
    defaults |= {"adaptive_scale": scaled} | {f"adaptive_{name}": value for name, value in steering.items()}

    def state(data):
        data["input_config"]["phases"][-1] |= {**defaults, "sla": [], "seamless": False}
        data["input_config"]["datasets"][0] |= {"sampling": "sequential"}
        data["input_config"]["datasets"][0]["audio"] = {"channels": 1}
        data["input_config"]["datasets"][0]["prompts"] |= {"cache_bust": {"target": "none"}, "batch_size": 1}

    run, plain = only_run(AIPERF, changed(AIPERF_EXPORT, state)), only_run(AIPERF, AIPERF_EXPORT)
    assert (run.cell.runtime_mode == plain.cell.runtime_mode) != scaled
    assert ("varying_rate" in [doubt.kind for doubt in run.results[0].doubts]) == scaled


@pytest.mark.parametrize(
    ("name", "given", "default"),
    [("cancellation", {"rate": 10.0}, {"delay": 0.0}), ("concurrency_ramp", {"duration": 5.0}, {"strategy": "linear"})],
)
def test_a_default_in_an_object_of_a_phase_is_no_setting(changed, name, given, default):
    def mode(stated):
        file = changed(AIPERF_EXPORT, lambda data: data["input_config"]["phases"][-1].update({name: stated}))
        return only_run(AIPERF, file).cell.runtime_mode

    alike, other = {**given, **default}, {**given, **dict.fromkeys(default, "other")}
    assert name in mode(given)
    assert mode(given) == mode(alike) != mode(other)


def test_a_sweep_is_read_from_its_runs_or_without_them_from_its_aggregate(tmp_path):
    metrics = {
        "request_latency": {"unit": "ms", "mean": 20.0, "avg": 20.0, "p50": 19.0, "p99": 30.0, "count": 300},
        "request_throughput": {"unit": "requests/sec", "mean": 6.5, "avg": 6.5},
        "request_count": {"unit": "requests", "mean": 300, "avg": 300},
    }
    combinations = [
        {"parameters": {name: value}, "metrics": metrics}
        for name, value in (("concurrency", 16), ("phases.profiling.request_rate", 2.5))
    ]
    sweep = tmp_path / "sweep_aggregate/profile_export_aiperf_sweep.json"
    sweep.parent.mkdir()
    sweep.write_text(
        json.dumps({"aggregation_type": "sweep", "num_profile_runs": 2, "per_combination_metrics": combinations})
    )
    first, second = only_run(AIPERF, sweep).results
    assert (first.point.concurrency, second.point.axes) == (16, {"request_rate": 2.5})
    assert (first.iterations, first.metrics["latency_median_ms"]) == (300, 19.0)
    assert first.metrics["throughput_samples_per_sec"] == 6.5
    spread = {"datasets.main.prompts.isl.mean": 64, "datasets.main.prompts.isl.stddev": 8, "concurrency": 16}
    combinations += [{"parameters": {**spread, "phases.profiling.prefill_concurrency": 2}, "metrics": metrics}]
    combinations += [{"parameters": spread, "metrics": metrics}]
    sweep.write_text(
        json.dumps({"aggregation_type": "sweep", "num_profile_runs": 4, "per_combination_metrics": combinations})
    )
    plain, limited, spread_out = AIPERF.runs(read_file(sweep))
    assert [len(run.results) for run in (plain, limited, spread_out)] == [2, 1, 1]
    stddev = {"datasets.main.prompts.isl.stddev": 8}
    assert limited.cell.runtime_mode.items() >= {**stddev, "phases.profiling.prefill_concurrency": 2}.items()
    assert spread_out.cell.runtime_mode.items() >= stddev.items()
    assert limited.results[0].point.axes["input_tokens_requested"] == 64
    (tmp_path / "concurrency_16").mkdir()
    shutil.copy(AIPERF_EXPORT, tmp_path / "concurrency_16")
    with pytest.raises(NoResultsError, match="each run has its own file"):
        only_run(AIPERF, sweep)


def test_the_two_formats_are_distinguished():
    for plugin, export in ((GENAI_PERF, GENAI_PERF_EXPORT), (AIPERF, AIPERF_EXPORT)):
        assert recognising(read_file(export)) == (plugin,)


def test_seconds_become_ms_and_a_latency_without_a_time_is_refused(changed):
    def seconds(data):
        data["request_latency"] |= {"unit": "sec", "avg": 1.5}

    assert only_run(AIPERF, changed(AIPERF_EXPORT, seconds)).results[0].metrics["latency_mean_ms"] == 1500
    with pytest.raises(FormatError, match=r"request_latency\.unit: expected a time, found 'requests'"):
        only_run(AIPERF, changed(AIPERF_EXPORT, lambda data: data["request_latency"].update(unit="requests")))


CSV = GENAI_PERF_EXPORT.parent / "gpt2-openai-chat-concurrency2/profile_export_genai_perf.csv"


def test_the_csv_has_the_numbers_of_the_json_rounded_and_the_load_of_its_folder(tmp_path):
    (of_csv,), (of_json,) = (only_run(GENAI_PERF, path).results for path in (CSV, GENAI_PERF_EXPORT))
    assert of_csv.point == of_json.point
    shared = {name: value for name, value in of_json.metrics.items() if name in of_csv.metrics}
    assert len(shared) > 30
    assert {name: of_csv.metrics[name] for name in shared} == pytest.approx(shared, abs=0.0051)
    assert of_csv.metrics["time_to_first_token_ms"] == 34.0
    large = CSV.read_text().replace("Latency (ms),135.00", 'Latency (ms),"1,135.25"')
    (tmp_path / "profile_export_genai_perf.csv").write_text(large)
    (result,) = only_run(GENAI_PERF, tmp_path / "profile_export_genai_perf.csv").results
    assert result.metrics["latency_mean_ms"] == 1135.25


def test_the_csv_is_left_to_the_json_in_its_folder(tmp_path):
    for path in (CSV, GENAI_PERF_EXPORT):
        shutil.copy(path, tmp_path)
    with pytest.raises(NoResultsError, match=r"all its numbers are in profile_export_genai_perf\.json"):
        only_run(GENAI_PERF, tmp_path / CSV.name)


def test_each_gpu_keeps_its_numbers_in_a_table(tmp_path):
    table = "\nMetric,GPU,avg,max\nGPU Power Usage (W),0,190.50,225.00\nGPU Power Usage (W),1,80.00,90.00\n"
    (tmp_path / CSV.name).write_text(CSV.read_text() + table)
    run = only_run(GENAI_PERF, tmp_path / CSV.name)
    power = {"unit": "W", "gpu0": {"avg": 190.5, "max": 225}, "gpu1": {"avg": 80, "max": 90}}
    assert run.origin.kept["telemetry_stats"] == {"gpu_power_usage": power}


@pytest.mark.parametrize("least", ["a few", [], {"tokens": 1}, True])
def test_a_length_that_is_no_number_is_left_out_alone(changed, least):
    def damage(data):
        data["input_sequence_length"] |= {"min": least, "max": least}

    before, after = only_run(AIPERF, AIPERF_EXPORT), only_run(AIPERF, changed(AIPERF_EXPORT, damage))
    assert after.results[0].point.sequence_length is None
    assert after.results[0].metrics["latency_median_ms"] == before.results[0].metrics["latency_median_ms"]
