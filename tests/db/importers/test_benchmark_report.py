"""llm-d's Benchmark Report: read with its units, written again as it was, and written of our own results."""

from __future__ import annotations

import json
import math

import pytest
import yaml

from benchmarking.core.errors import FormatError
from db.analysis.selection import Selection
from db.exporters.benchmark_report import PLUGIN as EXPORTER
from db.exporters.support.exporting import ExportRequest
from db.importers.benchmark_report import PLUGIN
from db.importers.support.files import importer_for, read_file
from db.warehouse import Warehouse
from tests.helpers.paths import FIXTURES

REPORT = FIXTURES / "imports/benchmark_report/benchmark_report_v0.2.yaml"
ENGINE = {
    "metadata": {"label": "vllm-0", "cfg_id": "c1"},
    "standardized": {
        "kind": "inference_engine",
        "tool": "vllm",
        "tool_version": "0.11",
        "role": "decode",
        "model": {"name": "org/model"},
        "accelerator": {"model": "NVIDIA-H100-80GB-HBM3", "count": 8, "parallelism": {"tp": 8, "pp": 1}},
    },
    "native": {"args": {"--block-size": 1024}},
}


def changed(**parts):
    """The report of the fixture with other parts of its load, stack, ..., and its path in YAML."""
    report = yaml.safe_load(REPORT.read_text())
    report["scenario"]["load"]["standardized"] |= parts.pop("load", {})
    report["results"]["request_performance"]["aggregate"]["requests"] |= parts.pop("requests", {})
    report["scenario"] |= parts.pop("scenario", {})
    return report | parts


def run_of(path):
    (run,) = importer_for(read_file(path)).runs(read_file(path))
    return run


@pytest.fixture
def written(tmp_path):
    def write(report, name="report.yaml"):
        path = tmp_path / name
        path.write_text(json.dumps(report) if path.suffix == ".json" else yaml.safe_dump(report))
        return path

    return write


@pytest.fixture
def exported(tmp_path, empty_database):
    """A function that stores runs and exports them: the reports, by file name."""
    database = tmp_path / "a.duckdb"
    database.write_bytes(empty_database.read_bytes())

    def export(*runs, output):
        with Warehouse.open(database) as warehouse:
            for run in runs:
                warehouse.ingest(run)
            request = ExportRequest(
                selection=Selection.parse(f"run={'|'.join(run.run_id for run in runs)}"),
                output=tmp_path / output,
                notify=lambda _: None,
            )
            (made,) = EXPORTER.export(warehouse, request)
        files = [made] if made.is_file() else sorted(made.iterdir())
        return {path.name: yaml.safe_load(path.read_text()) for path in files}

    return export


def test_a_report_is_read_with_its_units():
    run = run_of(REPORT)
    (result,) = run.results
    expected = {
        "latency_mean_ms": 2958.3877717027036,
        "latency_p99_ms": 3554.694139161147,
        "time_to_first_token_ms": 61.39931897632778,
        "time_per_output_token_ms": 11.538466330842344,
        "inter_token_latency_p99_ms": 36.35376348160208,
        "throughput_samples_per_sec": 26.918126386371846,
        "throughput_tokens_per_sec": 3464.49445121497,
        "output_tokens_mean": 128.7048883524442,
    }
    assert {name: result.metrics[name] for name in expected} == pytest.approx(expected)
    assert (result.iterations, result.point.axes["input_tokens_mean"]) == (1657, 135)
    assert run.provenance.tool_version.startswith("benchmark_report inference-perf")


def test_the_stack_is_the_model_and_the_devices(written):
    run = run_of(written(changed(scenario={"stack": [ENGINE, ENGINE]}, load={"rate_qps": 10, "concurrency": 4})))
    assert run.cell.workload.model_id == "org/model"
    device = run.cell.device
    assert (device.type, device.name, device.count) == ("cuda", "NVIDIA-H100-80GB-HBM3", 16)
    assert (run.cell.runtime, run.cell.runtime_mode["decode_tp"]) == ("vllm", 8)
    (result,) = run.results
    assert (result.point.concurrency, result.point.axes["request_rate"]) == (4, 10)


@pytest.mark.parametrize("name", ["report.yaml", "report.json"])
def test_a_report_is_exported_unchanged(written, exported, name):
    report = changed(version="0.2.1", load={"concurrency": math.inf}, scenario={"stack": [ENGINE]}, more={"kept": [1]})
    run = run_of(written(report, name))
    assert "concurrency_unlimited" in {doubt.kind for doubt in run.results[0].doubts}
    assert exported(run, output="again.yaml") == {"again.yaml": report}


@pytest.mark.parametrize(
    ("report", "message"),
    [
        (changed(version="0.3"), r"Benchmark Report version '0\.3', expected 0\.2 or 0\.2\.1"),
        ({"version": "0.1", "scenario": {}, "metrics": {}}, r"version '0\.1', expected"),
        (changed(requests={"total": -1}), r"requests\.total: expected a whole number"),
        (changed(load={"concurrency": 0.5}), r"concurrency: expected a whole number"),
    ],
)
def test_other_versions_and_other_files_are_refused_by_name(written, report, message):
    file = read_file(written(report))
    assert PLUGIN.recognises(file)
    with pytest.raises(FormatError, match=message):
        list(PLUGIN.runs(file))


def test_a_time_in_an_unknown_unit_is_refused(written):
    report = changed()
    report["results"]["request_performance"]["aggregate"]["latency"]["request_latency"]["units"] = "count"
    with pytest.raises(FormatError, match=r"request_latency\.units: expected s, ms"):
        run_of(written(report))


def test_failed_requests_are_a_doubt(written):
    (result,) = run_of(written(changed(requests={"failures": 7}))).results
    assert result.iterations == 1650
    assert "some_requests_failed" in {doubt.kind for doubt in result.doubts}


@pytest.mark.parametrize(("rate", "is_short"), [(28, False), (40, True)])
def test_a_rate_that_the_requests_cannot_have_been_sent_at_is_a_doubt(written, rate, is_short):
    """1657 requests ended in 61.6 s, of which the longest took 3.6 s: at most 28.6 were sent a second."""
    (result,) = run_of(written(changed(load={"rate_qps": rate}))).results
    assert ("rate_not_achieved" in {doubt.kind for doubt in result.doubts}) == is_short


def test_our_results_are_reports_that_are_read_and_written_again_the_same(make_run, exported, written):
    run = make_run(family="decoder-only", batch_sizes=(2,), sequence_lengths=(32, 128))
    reports = exported(run, output="reports")
    assert sorted(reports) == sorted(f"benchmark_report_v0.2_{one.result_id}.yaml" for one in run.results)
    first = reports[f"benchmark_report_v0.2_{run.results[0].result_id}.yaml"]
    aggregate = first["results"]["request_performance"]["aggregate"]
    assert aggregate["latency"]["request_latency"]["p50"] == run.results[0].metrics["latency_median_ms"] / 1000
    assert aggregate["requests"]["total"] == 2 * 3 * 30
    assert first["scenario"]["load"]["standardized"]["concurrency"] == 2
    again = run_of(written(first))
    assert again.cell.workload.model_id == run.cell.workload.model_id
    assert again.results[0].metrics["latency_median_ms"] == pytest.approx(run.results[0].metrics["latency_median_ms"])
    assert (again.results[0].point.sequence_length, again.results[0].point.new_tokens) == (32, 4)
    assert exported(again, output="again.yaml") == {"again.yaml": first}


def test_a_number_of_requests_that_a_file_did_not_state_is_left_out(exported, written):
    run = run_of(FIXTURES / "imports/onnxruntime_genai_benchmark/records.json")
    assert {result.iterations for result in run.results} == {0}
    for report in exported(run, output="reports").values():
        assert "total" not in report["results"]["request_performance"]["aggregate"]["requests"]
        (result,) = run_of(written(report)).results
        assert (result.status, result.validity) == ("ok", "valid")
