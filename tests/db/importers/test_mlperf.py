"""MLPerf inference: units, power, logs, and the systems that they are joined with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from db.importers.mlperf import PLUGIN
from db.importers.support.files import NoResultsError, read_file
from db.importers.support.mlperf_files import hardware
from db.warehouse import Warehouse
from tests.helpers.left_out import left_out
from tests.helpers.paths import FIXTURES

FOLDER = FIXTURES / "imports/mlperf"
TEST = FOLDER / "closed/Example/results/H200x8/llama2-70b-99/Server/performance/run_1"


def runs(path):
    return list(PLUGIN.runs(read_file(path)))


def without_results(path):
    """Why the file has no results."""
    with pytest.raises(NoResultsError) as raised:
        runs(path)
    return str(raised.value).removeprefix(f"{path}: ")


def test_the_unit_of_a_row_decides_its_metric():
    llama, orin, bert = runs(FOLDER / "summary.csv")
    assert llama.results[0].metrics == {"throughput_tokens_per_sec": 785522.0}
    assert bert.results[0].metrics == {"throughput_samples_per_sec": 1250.5}
    assert orin.results[0].metrics["latency_p90_early_stopping_ms"] == 0.62


def test_the_second_row_of_a_result_is_its_power():
    _, orin, _ = runs(FOLDER / "summary.csv")
    assert orin.results[0].metrics["system_energy_j_per_query"] == pytest.approx(0.0185)


def test_a_rows_system_is_joined_with_its_description():
    llama, *_ = runs(FOLDER / "summary.csv")
    device = llama.cell.device
    assert (device.type, device.name, device.count) == ("rocm", "AMD Instinct MI355X 288GB HBM3e", 88)
    assert device.memory_bytes == 288_000_000_000
    assert (llama.hardware.cpu_model, llama.hardware.cpu_cores) == ("AMD EPYC 9575F", 512)
    assert llama.hardware.memory_bytes == 3_000_000_000_000
    assert llama.origin.kept["system"]["hw_notes"] == "87 of 88 used"


def test_model_software_and_precision_have_our_names():
    llama, _, bert = runs(FOLDER / "summary.csv")
    assert (llama.cell.workload.family, llama.cell.workload.task) == ("decoder-only", "text-generation")
    assert (llama.cell.runtime, llama.cell.precision) == ("pytorch", "other")
    assert llama.cell.runtime_mode["weight_data_types"] == "fp4"
    assert llama.provenance.versions == {"pytorch": "2.9.1+git8907517", "rocm": "7.0.0"}
    assert (bert.cell.device.type, bert.cell.device.name, bert.cell.precision) == (
        "cpu",
        "Intel Xeon 8480+",
        "bfloat16",
    )


def test_errors_of_the_checker_make_a_result_invalid():
    *_, bert = runs(FOLDER / "summary.csv")
    assert bert.results[0].validity == "invalid"


def test_published_json_gives_the_same_runs_as_the_csv():
    (run,) = runs(FOLDER / "datacenter_results.json")
    assert run.results[0].metrics == {"throughput_tokens_per_sec": 1520.25, "system_power_w": 8421.5}
    assert run.cell.runtime_mode["scenario"] == "offline"
    assert (run.cell.device.type, run.cell.device.count, run.origin.tool_version) == ("cuda", 8, "v6.0")
    assert run.origin.kept["Location"] == "closed/Example/results/H200x8/llama3.1-405b/offline"


def test_systems_of_two_submitters_with_the_same_hardware_are_told_apart(tmp_path):
    (row,) = json.loads((FOLDER / "datacenter_results.json").read_text())
    rows = [row, row | {"Submitter": "Other"}, row | {"Platform": "H200x8_b"}]
    (tmp_path / "datacenter_results.json").write_text(json.dumps(rows))
    found = [run.cell.runtime_mode for run in runs(tmp_path / "datacenter_results.json")]
    assert [(one["submitter"], one["system"]) for one in found] == [
        *(("Example", "H200x8"), ("Other", "H200x8"), ("Example", "H200x8_b"))
    ]


EXPECTED = {
    "throughput_samples_per_sec": 74.96,
    "throughput_tokens_per_sec": 22020.92,
    "latency_median_ms": 19900.0,
    "latency_mean_ms": 20500.0,
    "latency_min_ms": 818.13,
    "latency_max_ms": 70100.0,
    "latency_p90_ms": 41000.0,
    "latency_p99_ms": 60000.0,
    "latency_p99_9_ms": 66000.0,
    "time_to_first_token_ms": 250.0,
    "time_to_first_token_p99_ms": 1900.0,
    "time_per_output_token_ms": 68.5,
    "time_per_output_token_p99_ms": 180.0,
}


def test_each_value_of_the_detailed_log_is_imported_with_its_place_in_the_submission():
    (run,) = runs(TEST / "mlperf_log_detail.txt")
    assert run.results[0].metrics == EXPECTED
    assert (run.results[0].iterations, run.results[0].point.label) == (45000, "b1 target_qps=76.0")
    assert (run.cell.workload.model_id, run.cell.runtime_mode["system"]) == ("llama2-70b-99", "H200x8")
    assert run.provenance.host == "unknown"  # what names a submission is published with it, unlike a machine's name
    assert run.cell.runtime_mode == {
        "scenario": "server",
        "division": "closed",
        "submitter": "Example",
        "system": "H200x8",
    }
    assert run.started_at == "2025-07-30T14:10:16+00:00"


def test_the_summary_log_is_equivalent_and_ignored_where_there_is_a_detailed_one(tmp_path):
    assert without_results(TEST / "mlperf_log_summary.txt") == "all its numbers are in mlperf_log_detail.txt"
    (run,) = runs(Path(shutil.copy(TEST / "mlperf_log_summary.txt", tmp_path)))
    assert run.results[0].metrics == EXPECTED
    assert [doubt.kind for doubt in run.results[0].doubts] == ["undated"]
    assert run.origin.kept["effective_min_query_count"] == "100"


@pytest.mark.parametrize("name", ["mlperf_log_detail.txt", "mlperf_log_summary.txt"])
def test_a_search_for_the_highest_rate_is_not_a_test_at_the_rate_it_began_with(tmp_path, name):
    text = (TEST / name).read_text()
    assert "PerformanceOnly" in text
    (tmp_path / name).write_text(text.replace("PerformanceOnly", "FindPeakPerformance"))
    (run,) = runs(tmp_path / name)
    assert (run.results[0].point.axes, run.cell.runtime_mode["test_mode"]) == ({}, "FindPeakPerformance")


def test_an_invalid_test_is_an_invalid_result():
    (run,) = runs(FOLDER / "mlperf_log_summary.txt")
    (result,) = run.results
    assert (result.validity, result.doubts[-1].kind) == ("invalid", "mlperf_invalid")
    assert result.metrics["latency_p90_ms"] == 4.7275


def test_a_test_of_endpoints_has_tokens_and_its_failures_are_a_doubt():
    (run,) = runs(FOLDER / "result_summary.json")
    (result,) = run.results
    assert result.metrics["time_to_first_token_ms"] == 19.0
    assert result.metrics["throughput_tokens_per_sec"] == 4200.5
    assert result.metrics["latency_mean_ms"] == pytest.approx(2500.0000000005)
    assert "request_errors" in [doubt.kind for doubt in result.doubts]
    assert run.cell.device.type == "unknown"


def test_accuracy_tests_and_systems_give_no_runs(tmp_path):
    text = (TEST / "mlperf_log_detail.txt").read_text().replace("PerformanceOnly", "AccuracyOnly")
    (tmp_path / "mlperf_log_detail.txt").write_text(text)
    assert without_results(tmp_path / "mlperf_log_detail.txt").startswith("accuracy test")
    (tmp_path / "mlperf_log_accuracy.json").write_text("[\n]\n")
    assert without_results(tmp_path / "mlperf_log_accuracy.json").startswith("accuracy log")
    described = FOLDER / "closed/AMD/systems/87xMI355X_22xEPYC_9575F.json"
    assert without_results(described).startswith("description of a system")


def test_offline_latencies_are_left_out(tmp_path):
    text = (FOLDER / "mlperf_log_summary.txt").read_text().replace("SingleStream", "Offline")
    (tmp_path / "s.txt").write_text(text.replace("90.0th percentile latency (ns) : 4727500", "Samples per second: 50"))
    (run,) = runs(tmp_path / "s.txt")
    assert run.results[0].metrics == {"throughput_samples_per_sec": 50.0}
    assert run.results[0].missing["latency_median_ms"].startswith("not_applicable: offline")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("Tokens/s", "bananas", r"line 2\.Units: AMD .*: expected tokens/s, .*, found 'bananas'"),
        ("785522.0", "many", r"line 2\.Result: expected a number, found 'many'"),
        ("ROUGE1: 44.5439  ROUGE2: 22.1342", '","', r"line 2: 32 cells under 31 column names"),
    ],
)
def test_an_invalid_row_is_refused_with_its_line(tmp_path, old, new, problem):
    (tmp_path / "summary.csv").write_text((FOLDER / "summary.csv").read_text().replace(old, new, 1))
    with left_out(problem):
        runs(tmp_path / "summary.csv")


def test_power_without_its_result_is_refused(tmp_path):
    lines = (FOLDER / "summary.csv").read_text().splitlines()
    (tmp_path / "summary.csv").write_text("\n".join([lines[0], lines[3]]))
    with left_out("the file has no result for this power measurement"):
        runs(tmp_path / "summary.csv")


ROUND = FOLDER / "closed/MLCommons/results/RTX4090x1-nvidia-gpu-TensorRT-default_config"
LOG = "singlestream/performance/run_1/mlperf_log_detail.txt"


def test_tokens_that_a_table_calls_samples_are_stored_as_tokens_with_a_doubt():
    found = {(run.cell.workload.model_id, run.cell.runtime_mode["scenario"]): run.results[0] for run in v41()}
    expected = {"mixtral-8x7b": 57174.1, "llama2-70b-99": 29715.3, "gptj-99": 19250.4}
    for model, value in expected.items():
        result = found[(model, "server")]
        assert result.metrics == {"throughput_tokens_per_sec": value}
        (doubt,) = [doubt for doubt in result.doubts if doubt.kind == "mislabelled_throughput"]
        assert doubt.evidence == {"value": value, "stated_unit": "Queries/s", "unit": "tokens/s"}
    assert found[("bert-99", "server")].metrics == {"throughput_samples_per_sec": 58090.2}
    assert found[("retinanet", "offline")].metrics == {"throughput_samples_per_sec": 14988.0}


def v41():
    return runs(FOLDER / "v41_summary.csv")


def test_gptj_counted_samples_before_its_round_of_tokens(tmp_path):
    text = (FOLDER / "v41_summary.csv").read_text().replace("v4.1", "v4.0")
    (tmp_path / "s.csv").write_text(text)
    (result,) = [
        run.results[0]
        for run in runs(tmp_path / "s.csv")
        if (run.cell.workload.model_id, run.cell.runtime_mode["scenario"]) == ("gptj-99", "offline")
    ]
    assert result.metrics == {"throughput_samples_per_sec": 20041.3}


def test_equal_logs_of_two_models_are_two_results(tmp_path, empty_database):
    low, high = (runs(ROUND / model / LOG)[0] for model in ("3d-unet-99", "3d-unet-99.9"))
    assert (ROUND / "3d-unet-99" / LOG).read_bytes() == (ROUND / "3d-unet-99.9" / LOG).read_bytes()
    assert [run.cell.workload.model_id for run in (low, high)] == ["3d-unet-99", "3d-unet-99.9"]
    with Warehouse.open(shutil.copy2(empty_database, tmp_path / "w.duckdb")) as warehouse:
        sha256 = read_file(ROUND / "3d-unet-99" / LOG).sha256
        assert [warehouse.ingest(run, source_sha256=sha256) for run in (low, high, low)] == [True, True, False]


def test_the_estimate_of_early_stopping_is_not_the_observed_percentile(tmp_path):
    (run,) = runs(ROUND / "3d-unet-99" / LOG)
    metrics = run.results[0].metrics
    assert (metrics["latency_p90_ms"], metrics["latency_p90_early_stopping_ms"]) == (432.845778, 433.237048)
    (again,) = runs(FOLDER / "mlperf_log_summary.txt")
    metrics = again.results[0].metrics
    assert (metrics["latency_p90_ms"], metrics["latency_p90_early_stopping_ms"]) == (4.7275, 4.7438)


def test_estimates_for_the_times_of_tokens_are_none_of_a_query(tmp_path):
    titles = "".join(
        f"{of} Early Stopping Result:\n * Early stopping 90.0th percentile estimate: {ns}\n"
        for of, ns in (("TTFT", 52_000_000), ("TPOT", 9_100_000))
    )
    summary = (FOLDER / "mlperf_log_summary.txt").read_text()
    (tmp_path / "mlperf_log_summary.txt").write_text(summary.replace("Early Stopping Result:\n", titles))
    result = runs(tmp_path / "mlperf_log_summary.txt")[0].results[0]
    assert (result.metrics["latency_p90_ms"], "latency_p90_early_stopping_ms" in result.metrics) == (4.7275, False)
    # The detailed log has them under the keys of a query's estimates.
    key, of_tokens = '"key": "early_stopping_result"', '"key": "early_stopping_ttft_result"'
    detail = (ROUND / "3d-unet-99" / LOG).read_text().replace(key, of_tokens)
    (tmp_path / "mlperf_log_detail.txt").write_text(detail)
    (run,) = runs(tmp_path / "mlperf_log_detail.txt")
    assert "latency_p90_early_stopping_ms" not in run.results[0].metrics
    assert run.origin.kept["early_stopping_latency_ss"] == 433237048
    table = (FOLDER / "summary.csv").read_text().splitlines()
    model = table[0].split(",").index('"Model"' if '"Model"' in table[0] else "Model")
    row = next(line.split(",") for line in table if "SingleStream" in line)
    (tmp_path / "summary.csv").write_text(
        "\n".join([table[0], ",".join([*row[:model], "llama3.1-8b-edge", *row[model + 1 :]])])
    )
    assert runs(tmp_path / "summary.csv")[0].results[0].metrics == {"latency_p90_ms": 0.62}


def test_the_queries_of_the_first_multistream_are_not_their_samples(tmp_path):
    lines = """================================================
MLPerf Results Summary
================================================
SUT name :
Scenario : Multi Stream
Mode     : Performance
Samples per query : 2692
Result is : VALID
================================================
Additional Stats
================================================
Intervals between each IssueQuery:  "qps" : 20, "ms" : 50
50.00 percentile : 1
99.90 percentile : 2

Per-query latency:  "target_ns" : 50000000, "target_ms" : 50
50.00 percentile latency (ns)   : 43831598
99.00 percentile latency (ns)   : 49262268

Per-sample latency:
Min latency (ns)                : 18496507
Mean latency (ns)               : 35478783
50.00 percentile latency (ns)   : 31149851
================================================
Test Parameters Used
================================================
samples_per_query : 2692
"""
    (tmp_path / "mlperf_log_summary.txt").write_text(lines)
    (tmp_path / "mlperf_log_detail.txt").write_text('"pid": 1, "ts": 2: "loadgen_version" : "0.5a1"\n')
    (run,) = runs(tmp_path / "mlperf_log_summary.txt")
    (result,) = run.results
    assert result.metrics == {"latency_median_ms": 43.831598, "latency_p99_ms": 49.262268}
    assert (run.cell.runtime_mode["scenario"], result.point.label) == ("multistream", "b2692")
    assert run.origin.kept["Per-sample latency: Mean latency (ns)"] == "35478783"


@pytest.mark.parametrize(
    ("scenario", "version", "metrics"),
    [
        ("SingleStream", "v0.7", {"latency_p90_ms": 0.5}),
        ("MultiStream", "v1.1", {"latency_p99_ms": 0.5}),
        ("Offline", "v1.1", {"throughput_samples_per_sec": 0.5}),
        ("MultiStream", "v1.0", "a number of streams before round 1.1"),
        ("Offline", "v2.0", "Units: is missing"),
    ],
)
def test_a_table_without_units_has_those_of_its_scenario(scenario, version, metrics, tmp_path):
    (tmp_path / "summary.csv").write_text(
        "Organization,Division,Model,Scenario,Result,version,infered\n"
        f"Org,closed,ssd-small,{scenario},0.5,{version},1\nOrg,closed,resnet,Server,7,v1.0,0\n"
    )
    if isinstance(metrics, str):
        with left_out(metrics):
            runs(tmp_path / "summary.csv")
        return
    first, server = (run.results[0] for run in runs(tmp_path / "summary.csv"))
    assert first.metrics == metrics
    assert "inferred_scenario" in [doubt.kind for doubt in first.doubts]
    assert server.metrics == {"throughput_samples_per_sec": 7.0}


def test_before_early_stopping_a_tables_latency_is_the_observed_percentile(tmp_path):
    text = (FOLDER / "summary.csv").read_text().replace('"v5.1"', '"v1.1"')
    (tmp_path / "summary.csv").write_text(text)
    assert [run.results[0].metrics.get("latency_p90_ms") for run in runs(tmp_path / "summary.csv")][1] == 0.62


def test_a_log_of_compliance_or_accuracy_has_no_results(tmp_path):
    audit = FOLDER / "closed/MLCommons/compliance/RTX4090x1-nvidia-gpu-TensorRT-default_config/bert-99"
    path = audit / "singlestream/TEST01/performance/run_1/mlperf_log_detail.txt"
    assert without_results(path).startswith("compliance test: a repetition under changed conditions")
    assert without_results(Path(shutil.copy(path, tmp_path))).startswith("compliance test")
    for inside in ("results/S/bert-99/Offline/TEST04/performance/run_1", "audit/S/bert-99/Offline/TEST05"):
        log = tmp_path / "closed/Somebody" / inside / "mlperf_log_summary.txt"
        log.parent.mkdir(parents=True)
        shutil.copy(FOLDER / "mlperf_log_summary.txt", log)
        assert without_results(log).startswith("compliance test")
    accuracy = ROUND / "3d-unet-99/singlestream/accuracy/mlperf_log_accuracy.json"
    assert without_results(accuracy) == "accuracy log: answers of the model, without times"


def test_the_batch_of_an_offline_test_is_not_its_number_of_samples(tmp_path):
    text = (ROUND / "3d-unet-99" / LOG).read_text().replace("SingleStream", "Offline")
    text = text.replace('"effective_samples_per_query", "value": 1,', '"effective_samples_per_query", "value": 24576,')
    speed = ':::MLLOG {"key": "result_samples_per_second", "value": 54.36}\n'
    (tmp_path / "mlperf_log_detail.txt").write_text(text + speed)
    (run,) = runs(tmp_path / "mlperf_log_detail.txt")
    (result,) = run.results
    assert (result.point.label, result.metrics) == ("b1", {"throughput_samples_per_sec": 54.36})
    assert [doubt.kind for doubt in result.doubts] == ["batch_size_not_stated"]
    assert run.origin.kept["effective_samples_per_query"] == 24576


def test_three_files_of_one_test_are_one_result(tmp_path):
    for name in ("mlperf_log_detail.txt", "mlperf_log_summary.txt"):
        shutil.copy(TEST / name, tmp_path)
    (tmp_path / "mlperf_log_accuracy.json").write_text('[\n{ "seq_id" : 0, "qsl_idx" : 1, "data" : "00" }\n]\n')
    assert len(runs(tmp_path / "mlperf_log_detail.txt")) == 1
    for name in ("mlperf_log_summary.txt", "mlperf_log_accuracy.json"):
        assert without_results(tmp_path / name)


def test_precision_comes_from_the_test_description_or_the_system(tmp_path):
    models = ("3d-unet-99", "3d-unet-99.9")
    assert [runs(ROUND / model / LOG)[0].cell.precision for model in models] == ["int8", "unknown"]
    shutil.copytree(FOLDER / "closed/MLCommons", tmp_path / "closed/MLCommons")
    system = tmp_path / "closed/MLCommons/systems/RTX4090x1-nvidia-gpu-TensorRT-default_config.json"
    system.write_text(json.dumps(json.loads(system.read_text()) | {"weight_data_types": "fp16"}))
    there = tmp_path / "closed/MLCommons/results" / ROUND.name
    assert [runs(there / model / LOG)[0].cell.precision for model in models] == ["int8", "float16"]


def test_a_summary_without_its_title_is_one(tmp_path):
    text = "SUT name : PySUT\nScenario : Offline\nMode     : PerformanceOnly\nSamples per second: 0.857965\n"
    (tmp_path / "notes.txt").write_text(f"{'=' * 48}\n{text}Tokens per second: 289.078\nResult is : VALID\n")
    (run,) = PLUGIN.runs(read_file(tmp_path / "notes.txt"))
    assert run.results[0].metrics["throughput_samples_per_sec"] == 0.857965
    assert run.results[0].metrics["throughput_tokens_per_sec"] == 289.078


def test_a_first_token_that_the_system_under_test_did_not_report_has_no_time(tmp_path):
    text = "SUT name : PySUT\nScenario : Server\nMode     : PerformanceOnly\nResult is : INVALID\n"
    text += "Completed tokens per second: 43.45\n50.00 percentile latency (ns)   : 4004045558\n"
    firsts = (f"{place} percentile first token latency (ns)   : 0\n" for place in ("50.00", "99.00"))
    (tmp_path / "notes.txt").write_text(text + "".join(firsts))
    (run,) = PLUGIN.runs(read_file(tmp_path / "notes.txt"))
    (result,) = run.results
    assert result.metrics == {"throughput_tokens_per_sec": 43.45, "latency_median_ms": 4004.045558}
    reason = "left_out: 0 in the file: the system under test did not report it"
    for column in ("time_to_first_token_ms", "time_to_first_token_p99_ms"):
        assert result.missing[column] == reason


def test_a_memory_that_no_machine_has_is_unknown():
    described = {"accelerator_model_name": "NVIDIA H100", "accelerator_memory_capacity": f"{'9' * 400} GB"}
    assert hardware(described)["device_memory_bytes"] is None


SUMMARY = """\
================================================
MLPerf Results Summary
================================================
SUT name : PySUT
Scenario : {}
Mode     : PerformanceOnly
{}
Result is : {}
  Min duration satisfied : Yes
"""


def test_every_summary_in_a_text_is_a_run(tmp_path):
    offline = SUMMARY.format("Offline", "Samples per second: 1.21305", "INVALID")
    single = SUMMARY.format("SingleStream", "90th percentile latency (ns) : 8434934462", "VALID")
    untitled = single[single.index("SUT") :].replace("8434934462", "9434934462")
    text = f"# Summary\n{offline}\n{single}{offline.replace('PerformanceOnly', 'AccuracyOnly')}{untitled}"
    (tmp_path / "notes.md").write_text(text)
    file = read_file(tmp_path / "notes.md")
    runs = list(PLUGIN.runs(file))
    assert [run.cell.runtime_mode["scenario"] for run in runs] == ["offline", "singlestream", "singlestream"]
    assert [run.results[0].metrics.get("latency_p90_ms") for run in runs] == pytest.approx([None, 8434.934, 9434.934])
    assert [run.results[0].validity for run in runs] == ["invalid", "valid", "valid"]
    assert [one.text for one in file.left_out] == ["test 3: accuracy test: its times are not results"]
    assert len({run.run_id for run in runs}) == 3
