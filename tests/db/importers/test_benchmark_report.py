"""llm-d's Benchmark Report: read with its units, written again as it was, and written of our own results."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import yaml

from benchmarking.core.errors import FormatError, UsageError
from benchmarking.load.generator import Level
from benchmarking.load.results import result_of
from benchmarking.load.traffic import Lengths, Traffic
from db.analysis.selection import Selection
from db.commands.compact import main as compact
from db.exporters.benchmark_report import PLUGIN as EXPORTER
from db.exporters.support.exporting import ExportRequest
from db.importers.inference_perf import BENCHMARK_REPORT as PLUGIN
from db.importers.support.files import read_file
from db.warehouse import Warehouse
from tests.helpers.imported_files import importer_for
from tests.helpers.left_out import left_out
from tests.helpers.load import make_load, make_requests
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
    """A function that stores runs and exports them: the reports, by file name. `notes` are those of the last export."""
    database = tmp_path / "a.duckdb"
    database.write_bytes(empty_database.read_bytes())

    def export(*runs, output, are_stored=False):
        export.notes = []
        with Warehouse.open(database) as warehouse:
            if not are_stored:
                warehouse.ingest_all(runs)
            request = ExportRequest(
                selection=Selection.parse(f"run={'|'.join(run.run_id for run in runs)}"),
                output=tmp_path / output,
                notify=export.notes.append,
            )
            (made,) = EXPORTER.export(warehouse, request)
        files = [made] if made.is_file() else sorted(made.iterdir())
        return {path.name: yaml.safe_load(path.read_text()) for path in files}

    export.database = database
    return export


def test_a_report_is_read_with_its_units():
    run = run_of(REPORT)
    (result,) = run.results
    expected = {
        "service_time_mean_ms": 2958.3877717027036,
        "service_time_p99_ms": 3554.694139161147,
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


def test_a_processor_is_no_gpu_and_engines_that_are_not_known_are_apart(written):
    def of(tool, accelerator):
        engine = {**ENGINE["standardized"], "tool": tool, "accelerator": {"model": accelerator, "count": 1}}
        return run_of(written(changed(scenario={"stack": [{**ENGINE, "standardized": engine}]}))).cell

    kinds = {
        name: of("vllm", name).device.type
        for name in ("AMD EPYC 9654", "AMD-MI300X", "AMD Ryzen AI Max w/ Radeon 8060S", "AMD Ryzen 9 7950X")
    }
    assert list(kinds.values()) == ["unknown", "rocm", "rocm", "unknown"]
    assert "engine" not in of("vllm", "NVIDIA L4").runtime_mode
    first, second = of("onnxruntime", "NVIDIA L4"), of("eager", "NVIDIA L4")
    assert first.runtime == second.runtime == "server"
    assert (first.runtime_mode["engine"], second.runtime_mode["engine"]) == ("onnxruntime", "eager")


SCHEDULER = {
    "metadata": {"cfg_id": "s1"},
    "standardized": {"kind": "generic", "tool": "scheduler"},
    "native": {"config": {"plugins": ["prefix"]}},
}


def of_engine(cfg_id="c1", parallelism=None, args=None, **fields):
    accelerator = {**ENGINE["standardized"]["accelerator"], "parallelism": {"tp": 8, "pp": 1, **(parallelism or {})}}
    standardized = {**ENGINE["standardized"], "accelerator": accelerator, **fields}
    return {"metadata": {"cfg_id": cfg_id}, "standardized": standardized, "native": {"args": args or {}}}


@pytest.mark.parametrize(
    ("stack", "load", "setting"),
    [
        ([of_engine(replicas=4)], {}, {"decode_replicas": 4}),
        ([ENGINE, ENGINE], {}, {"decode_replicas": 2}),
        ([of_engine(cfg_id="c2")], {}, {"decode_config": "c2"}),
        ([of_engine(parallelism={"workers": 2, "dp_local": 1})], {}, {"decode_workers": 2}),
        ([ENGINE, SCHEDULER], {}, {"scheduler_config": "s1"}),
        ([ENGINE], {"parallelism": 8, "source": "random"}, {"load_parallelism": 8, "load_source": "random"}),
    ],
)
def test_the_parts_of_a_stack_and_their_number_tell_loads_apart(written, stack, load, setting):
    plain = run_of(written(changed(scenario={"stack": [ENGINE]}))).cell.runtime_mode
    run = run_of(written(changed(scenario={"stack": stack}, load=load)))
    assert run.cell.runtime_mode == {**plain, **setting}
    assert plain["decode_config"] == "c1"


def test_the_arguments_of_a_part_without_a_digest_tell_loads_apart_but_for_those_of_one_run(written):
    def config(args):
        return run_of(written(changed(scenario={"stack": [of_engine(cfg_id=None, args=args)]}))).cell.runtime_mode

    plain, other = config({"--max-num-seqs": "256", "--port": 1}), config({"--max-num-seqs": "1", "--port": 1})
    assert plain["decode_config"] != other["decode_config"]
    assert plain == config({"--max-num-seqs": "256", "--port": 2})
    assert "decode_config" not in config({})


@pytest.mark.parametrize("name", ["report.yaml", "report.json"])
def test_a_report_is_exported_unchanged(written, exported, name):
    report = changed(version="0.2.1", load={"concurrency": math.inf}, scenario={"stack": [ENGINE]}, more={"kept": [1]})
    run = run_of(written(report, name))
    assert "concurrency_unlimited" in {doubt.kind for doubt in run.results[0].doubts}
    assert exported(run, output="again.yaml") == {"again.yaml": report}


@pytest.mark.parametrize(
    "parts",
    [
        {"scenario": ["x"]},
        {"scenario": {"load": ["x"]}},
        {"scenario": {"load": {"standardized": "x"}}},
    ],
)
def test_a_report_with_another_value_in_the_place_of_an_object_is_exported_unchanged(parts, written, exported):
    path = written(report := yaml.safe_load(REPORT.read_text()) | parts)
    (again,) = exported(run_of(path), output="again.yaml").values()
    assert again == report


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
    with left_out(message):
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


def test_failures_that_are_not_stated_are_unknown_and_not_none(written):
    data = changed()
    requests = data["results"]["request_performance"]["aggregate"]["requests"]
    del requests["failures"]
    (result,) = run_of(written(data)).results
    assert result.iterations is None
    assert "failed_requests" not in [doubt.kind for doubt in result.doubts]
    requests |= {"failures": 7, "incomplete": 50}
    (result,) = run_of(written(data)).results
    assert result.iterations == 1657 - 57


@pytest.mark.parametrize(("rate", "is_short"), [(28, False), (40, True)])
def test_an_impossible_request_rate_is_a_doubt(written, rate, is_short):
    """1657 requests ended in 61.6 s, of which the longest took 3.6 s: at most 28.6 were sent a second."""
    (result,) = run_of(written(changed(load={"rate_qps": rate}))).results
    assert ("rate_not_achieved" in {doubt.kind for doubt in result.doubts}) == is_short


def test_own_reports_round_trip(make_run, exported, written):
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
    assert (again.results[0].point, again.cell.runtime_mode) == (run.results[0].point, run.cell.runtime_mode)
    assert again.results[0].iterations == run.results[0].iterations == 3 * 30
    assert exported(again, output="again.yaml") == {"again.yaml": first}


def test_a_tail_that_the_calls_do_not_support_comes_back_as_unsupported(exported, written):
    path = read_file(FIXTURES / "imports/onnxruntime_transformers_benchmark/versions.csv")
    run = next(one for one in importer_for(path).runs(path) if one.results[0].point.batch_size == 4)
    (report,) = exported(run, output="a.yaml").values()
    (before,), (result,) = run.results, run_of(written(report)).results
    assert (result.iterations, result.missing["latency_p99_ms"]) == (before.iterations, "too_few_samples")
    assert "latency_p99_ms" not in result.metrics
    assert result.metrics["stated_latency_p99_ms"] == pytest.approx(before.metrics["stated_latency_p99_ms"])


def test_degrees_of_parallelism_are_written_whatever_their_tool_calls_them(exported):
    run = run_of(FIXTURES / "imports/vllm_bench_serve/detailed.json")
    assert (run.cell.runtime_mode["tp"], run.cell.device.count) == (2, 2)
    (report,) = exported(run, output="report.yaml").values()
    accelerator = report["scenario"]["stack"][0]["standardized"]["accelerator"]
    assert (accelerator["count"], accelerator["parallelism"]) == (2, {"tp": 2, "dp": 1, "ep": 1, "pp": 1})


def test_a_result_without_a_number_of_a_report_is_left_out(exported, written):
    (sweep,) = importer_for(file := read_file(FIXTURES / "imports/llama_batched_bench/sweep.jsonl")).runs(file)
    load = run_of(FIXTURES / "imports/vllm_bench_serve/detailed.json")
    reports = exported(sweep, load, output="reports.yaml")
    assert len(reports) == 1
    assert f"left out: {len(sweep.results)} results: no number that a report has a field for" in exported.notes
    with pytest.raises(UsageError, match="no result with a number that a report has a field for"):
        exported(sweep, output="none", are_stored=True)


def test_an_unstated_end_is_omitted(exported, written):
    run = run_of(FIXTURES / "imports/onnxruntime_genai_benchmark/records.json")
    assert run.finished_at is None
    for report in exported(run, output="reports").values():
        assert report["run"]["time"] == {"start": "2026-03-01T12:00:00+00:00"}
        assert run_of(written(report)).finished_at is None


def test_an_unstated_number_of_requests_is_omitted(exported, written):
    run = run_of(FIXTURES / "imports/onnxruntime_genai_benchmark/records.json")
    assert {result.iterations for result in run.results} == {None}
    for report in exported(run, output="reports").values():
        assert "requests" not in report["results"]["request_performance"]["aggregate"]
        (result,) = run_of(written(report)).results
        assert (result.status, result.validity) == ("ok", "valid")
        assert (result.point.sequence_length, result.point.new_tokens) == (128, 128)


SENT = 400
LATENCIES = tuple(
    f"{name}_ms"
    for name in (
        *("latency_mean", "latency_median", "latency_p25", "latency_p90", "latency_p99", "latency_max"),
        *("time_to_first_token", "time_to_first_token_p90", "time_to_first_token_p99"),
        *("time_per_output_token", "time_per_output_token_p90", "time_per_output_token_p99"),
        *("inter_token_latency_p50", "inter_token_latency_p90", "inter_token_latency_p99"),
    )
)


def load(lengths_in="uniform:20-40"):
    """A load of our own in an open loop at 10 requests/s, of which the last one failed."""
    firsts = [at * 100 + 20 + at % 7 for at in range(SENT)]
    gaps = [2 + at % 3 for at in range(SENT)]
    fails = [at == SENT - 1 for at in range(SENT)]
    requests = make_requests(
        intended_ms=tuple(at * 100.0 for at in range(SENT)),
        sent_ms=tuple(at * 100.0 for at in range(SENT)),
        first_token_ms=tuple(None if bad else float(first) for bad, first in zip(fails, firsts, strict=True)),
        token_ms=tuple(
            () if bad else (float(first), float(first + gap), float(first + 3 * gap))
            for bad, first, gap in zip(fails, firsts, gaps, strict=True)
        ),
        end_ms=tuple(float(first + 3 * gap) for first, gap in zip(firsts, gaps, strict=True)),
        tokens_in=tuple(None if bad else 20 + at % 21 for at, bad in enumerate(fails)),
        tokens_out=tuple(None if bad else 3 for bad in fails),
        cached_tokens=(0,) * SENT,
        error=tuple("http_503" if bad else None for bad in fails),
        detail=(None,) * SENT,
        meets_limits=(None,) * SENT,
        conversation=(None,) * SENT,
        turn=(None,) * SENT,
    )
    traffic = Traffic(lengths_in=Lengths(lengths_in), lengths_out=Lengths("3"))
    run = make_load()
    cell = replace(run.cell, runtime_mode=traffic.keys({}, is_open=True))
    return replace(run, cell=cell, results=(result_of(traffic, Level(rate=10.0), [requests]),))


def test_a_load_of_our_own_keeps_every_time_its_failures_and_its_lengths(exported, written):
    run = load()
    (report,) = exported(run, output="load.yaml").values()
    aggregate = report["results"]["request_performance"]["aggregate"]
    settings = report["scenario"]["load"]["standardized"]
    assert (aggregate["requests"]["total"], aggregate["requests"]["failures"]) == (SENT, 1)
    assert (settings["rate_qps"], settings["concurrency"]) == (10.0, math.inf)
    assert settings["input_seq_len"] == {"distribution": "uniform", "value": 30.0, "min": 20, "max": 40}
    assert (aggregate["requests"]["input_length"]["min"], aggregate["requests"]["input_length"]["max"]) == (20, 40)
    for name in ("time_to_first_token", "time_per_output_token", "inter_token_latency", "request_latency"):
        assert {"mean", "stddev", "min", "p25", "p50", "p75", "p90", "p95", "p99", "max"} < set(
            aggregate["latency"][name]
        )
    assert aggregate["latency"]["time_to_first_token"]["max"] == 0.026
    (first,), (again,) = run.results, run_of(written(report)).results
    known = [name for name in LATENCIES if name in first.metrics]
    assert set(LATENCIES).difference(known) == {"latency_max_ms"}, "one request never ended"
    assert [again.metrics[name] for name in known] == pytest.approx([first.metrics[name] for name in known])
    assert again.point == first.point
    assert again.iterations == first.iterations == SENT - 1
    *_, metrics, raw = exported.notes
    assert "of 1 result: a report has no field for them (latency_mad_ms, " in metrics
    assert raw == "left out: raw samples and single requests of 1 result: a report has statistics"


def test_a_load_whose_samples_were_compacted_keeps_its_means(exported):
    run = load()
    (before,) = exported(run, output="before.yaml").values()
    compact(["--raw-older-than", "1d", "--yes", "--db-path", str(exported.database)])
    (after,) = exported(run, output="after.yaml", are_stored=True).values()
    was, now = (one["results"]["request_performance"]["aggregate"]["latency"] for one in (before, after))
    assert {name: each["mean"] for name, each in now.items()} == pytest.approx(
        {name: each["mean"] for name, each in was.items()}
    )
    assert set(now["time_to_first_token"]) == {"units", "mean", "p50", "p90", "p95", "p99"}


@pytest.mark.parametrize(
    ("lengths_in", "planned"),
    [
        ("24", {"distribution": "fixed", "value": 24}),
        ("normal:30+-5", {"distribution": "gaussian", "value": 30, "std_dev": 5.0}),
    ],
)
def test_the_lengths_of_a_load_are_those_it_was_set_to(exported, lengths_in, planned):
    (report,) = exported(load(lengths_in), output="load.yaml").values()
    assert report["scenario"]["load"]["standardized"]["input_seq_len"] == planned


def test_a_time_without_a_mean_is_left_out_and_noted(exported):
    run = load()
    (result,) = run.results
    kept = tuple(one for one in result.samples if one.metric != "time_to_first_token")
    (report,) = exported(replace(run, results=(replace(result, samples=kept),)), output="load.yaml").values()
    latency = report["results"]["request_performance"]["aggregate"]["latency"]
    assert list(latency) == ["time_per_output_token", "inter_token_latency", "request_latency"]
    assert exported.notes[0] == "left out: time_to_first_token of 1 result: no mean, which a report requires"


@pytest.mark.parametrize(
    ("file", "means", "length"),
    [
        ("inference_perf/stage_1_lifecycle_metrics.json", (61.669, 11.265, 11.265), {"value": 135}),
        ("guidellm/benchmarks.json", (62.390, 3.603, None), {"value": 14, "min": 13, "max": 16}),
        ("vllm_bench_serve/appended.json", (34.5, 6.7, 6.814), {"value": 128}),
    ],
)
def test_an_imported_load_without_a_fixed_length_keeps_its_times(exported, written, file, means, length):
    path = read_file(FIXTURES / "imports" / file)
    run = next(iter(importer_for(path).runs(path)))
    before = run.results[0]
    (first,) = exported(replace(run, results=(before,)), output="a.yaml").values()
    latency = first["results"]["request_performance"]["aggregate"]["latency"]
    names = ("time_to_first_token", "time_per_output_token", "inter_token_latency")
    found = [latency[name]["mean"] * 1000 if name in latency else None for name in names]
    assert found == [one if one is None else pytest.approx(one, abs=1e-3) for one in means]
    assert first["scenario"]["load"]["standardized"]["input_seq_len"] == {"distribution": "other"} | length
    (after,) = run_of(written(first)).results
    assert (after.point, after.iterations) == (before.point, before.iterations)
    for name in ("time_to_first_token_ms", "time_per_output_token_ms", "throughput_tokens_per_sec"):
        assert after.metrics[name] == pytest.approx(before.metrics[name])


@pytest.mark.parametrize(
    ("file", "first_ms", "each_ms"),
    [
        ("aiperf/profile_export_aiperf.json", 279.604, 2.920),
        ("genai_perf/profile_export_genai_perf.json", 34.5, 6.7),
        ("sglang_bench_serving/detailed.jsonl", 23.638, 3.572),
        ("trtllm_bench/report.json", 200.0, 14.5),
    ],
)
def test_the_means_of_other_tools_are_found_under_their_names(exported, file, first_ms, each_ms):
    (report,) = exported(run_of(FIXTURES / "imports" / file), output="a.yaml").values()
    latency = report["results"]["request_performance"]["aggregate"]["latency"]
    each = latency.get("inter_token_latency") or latency["time_per_output_token"]
    assert latency["time_to_first_token"]["mean"] * 1000 == pytest.approx(first_ms, abs=1e-3)
    assert each["mean"] * 1000 == pytest.approx(each_ms, abs=1e-3)
    assert {"p50", "p90", "p95", "p99"} <= set(latency["time_to_first_token"])


def test_tokens_of_answers_of_unstated_single_lengths_are_output(exported, make_run):
    run = make_run(family="decoder-only", launches=1, batch_sizes=(1,), sequence_lengths=(32,))
    metrics = {"throughput_tokens_per_sec": 23405.9, "output_tokens_mean": 128.0}
    (one,) = run.results
    result = replace(one, point=replace(one.point, new_tokens=None), metrics={**one.metrics, **metrics})
    (report,) = exported(replace(run, results=(result,)), output="report.yaml").values()
    rates = report["results"]["request_performance"]["aggregate"]["throughput"]
    assert rates["output_token_rate"]["mean"] == 23405.9
    assert "input_token_rate" not in rates
