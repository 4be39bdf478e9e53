"""Suites of pyperf 2.10, written by it: value by value."""

from __future__ import annotations

import gzip
import json
from statistics import median

import pytest

from benchmarking.core.errors import FormatError
from db.importers.support.files import read_file
from db.importers.timers import PYPERF
from tests.helpers.left_out import left_out
from tests.helpers.paths import FIXTURES

FOLDER = FIXTURES / "imports/pyperf"


@pytest.fixture(scope="module")
def suite():
    return list(PYPERF.runs(read_file(FOLDER / "suite.json")))


@pytest.fixture
def changed(edited):
    """Applies a function to the JSON of the suite; returns the runs of the result."""
    return lambda change: list(PYPERF.runs(read_file(edited(FOLDER / "suite.json", change))))


def processes(index):
    """The processes of a benchmark that measured, as the file has them."""
    runs = json.loads((FOLDER / "suite.json").read_text())["benchmarks"][index]["runs"]
    return [run for run in runs if "values" in run]


def test_each_benchmark_is_a_run_and_each_process_a_launch(suite):
    assert [run.cell.workload.model_id for run in suite] == ["sort_reversed", "dict_comprehension"]
    (result,) = suite[0].results
    measured = [one for one in result.samples if one.phase == "measure"]
    assert [one.values for one in measured] == [
        pytest.approx([1000 * value for value in process["values"]]) for process in processes(0)
    ]
    assert {one.inner_loops for one in measured} == {512}
    assert (result.launches, result.iterations, result.ci_scope) == (3, 12, "between")


def test_warm_ups_have_their_own_phase(suite):
    warmups = [one for one in suite[0].results[0].samples if one.phase == "warmup"]
    assert [(one.launch, one.values, one.inner_loops) for one in warmups] == [
        (launch, pytest.approx([1000 * process["warmups"][0][1]]), 512) for launch, process in enumerate(processes(0))
    ]
    assert suite[0].results[0].warmup_iterations == 3 * 512


def test_columns_are_medians_over_processes_and_blocks_hide_single_calls(suite):
    metrics, missing = suite[0].results[0].metrics, suite[0].results[0].missing
    assert metrics["latency_median_ms"] == pytest.approx(1000 * median(median(one["values"]) for one in processes(0)))
    assert metrics["process_peak_rss_mb"] == 19.554304
    for name in ("latency_std_ms", "latency_min_ms", "latency_p25_ms", "latency_p90_ms", "latency_max_ms"):
        assert name not in metrics
        assert missing[name] == "not_applicable: the mean of a block of calls hides how they vary"


def test_calibrating_the_loops_is_kept_but_is_not_a_launch(suite):
    (found,) = suite[0].results[0].extra["kept"]["finding_loops"]
    assert found["warmups"][0] == [1, 5.650996172334999e-06]
    assert found["metadata"]["calibrate_loops"] == 512


def test_the_run_has_pyperfs_machine_and_interpreter(suite):
    run = suite[0]
    assert (run.hardware.cpu_model, run.hardware.cpu_threads, run.provenance.host) == ("AMD EPYC", 2, "bench-machine")
    assert (run.cell.runtime, run.provenance.versions["python"]) == ("cpython", "3.11.7 (64-bit)")
    assert (run.origin.tool_version, run.origin.kept["python_compiler"]) == ("2.10.0", "GCC 12.2.0")
    assert suite[1].origin.kept["timeit_stmt"] == "'{i: i for i in range(50)}'"  # of a benchmark with a name of its own
    assert run.started_at == "2026-11-21T13:17:06.526162+00:00"


def test_a_time_without_a_zone_is_a_doubt(suite):
    (doubt,) = suite[0].results[0].doubts
    assert (doubt.kind, doubt.evidence["stated"]) == ("time_zone_unknown", "2026-11-21 13:17:06.526162")


def test_tracked_memory_is_not_a_latency():
    (run,) = PYPERF.runs(read_file(FOLDER / "memory.json"))
    (result,) = run.results
    assert result.metrics == {"process_peak_rss_mb": 20.062208, "memory_peak_mb": pytest.approx(12.509184)}
    assert [(one.metric, one.unit, one.values) for one in result.samples] == [
        ("memory_peak_mb", "MB", pytest.approx((12.525568,))),
        ("memory_peak_mb", "MB", pytest.approx((12.4928,))),
    ]
    assert (result.launches, result.iterations) == (2, 2)
    assert result.missing["latency_median_ms"] == "not_applicable: the benchmark's unit is byte"


def test_inner_loops_multiply_the_calls_behind_a_value(changed):
    run = changed(lambda data: data["metadata"].update(inner_loops=10))[0]
    assert {one.inner_loops for one in run.results[0].samples} == {5120}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.update(version="0.8"), "version: expected 1.0, found '0.8'"),
        (lambda data: data["benchmarks"][0].pop("metadata"), r"benchmarks\[0\]\.metadata\.name: is missing"),
        (lambda data: data["metadata"].update(unit="mile"), r"unit: expected second, byte, integer, found 'mile'"),
        (lambda data: data["benchmarks"][1].update(runs=[]), r"benchmarks\[1\]\.runs: no process has measured values"),
        (
            lambda data: data["benchmarks"][0]["runs"][1].update(values=["x"]),
            r"runs\[1\]\.values\[0\]: expected a number",
        ),
        (lambda data: data["benchmarks"][0]["runs"][1].update(warmups=[1]), r"warmups\[0\]: expected \[loops, value\]"),
    ],
)
def test_an_invalid_value_is_one_line_with_its_place(changed, change, message):
    with left_out(rf"changed\.json: .*{message}"):
        changed(change)


def test_a_gzipped_suite_gives_the_same_runs(suite, tmp_path):
    content = (FOLDER / "suite.json").read_bytes()
    (tmp_path / "suite.json.gz").write_bytes(gzip.compress(content))
    file = read_file(tmp_path / "suite.json.gz")
    assert file.sha256 == read_file(FOLDER / "suite.json").sha256
    assert [run.results for run in PYPERF.runs(file)] == [run.results for run in suite]


@pytest.mark.parametrize(
    "content",
    [gzip.compress(b"x" * 1000, mtime=0)[:-20], b"\x1f\x8bno", b"\x1f\x8b\x08" + b"x" * 99],
    ids=["truncated", "not gzip", "damaged"],
)
def test_a_damaged_gzip_file_is_refused(tmp_path, content):
    (tmp_path / "suite.json.gz").write_bytes(content)
    with pytest.raises(FormatError, match=r"suite\.json\.gz: damaged or truncated gzip file: "):
        read_file(tmp_path / "suite.json.gz")


def test_arguments_in_the_name_and_the_metadata_are_axes(changed):
    def rename(data):
        data["benchmarks"][0]["metadata"]["name"] = "decode[batch=8, dtype=float16, layers=2]"
        data["benchmarks"][1]["metadata"] |= {"batch_size": 4, "seq_len": 128, "model": "bert"}

    first, second = changed(rename)
    assert (first.cell.workload.model_id, first.cell.precision) == ("decode", "float16")
    assert first.results[0].point.label == "b8 layers=2"
    assert (second.cell.workload.model_id, second.results[0].point.label) == ("bert", "b4 s128")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("decode[model=meta-llama/Llama-3.1-8B, batch=8]", ("meta-llama/Llama-3.1-8B", "b8", "cpu", "decode", None)),
        ("matmul[device=cuda:1, dtype=float16]", ("matmul", "b1", "cuda:1", None, None)),
        ("conv[shape=(1,3,224,224)]", ("conv", "b1", "cpu", None, "shape=(1,3,224,224)")),
        ("conv shape=(1,3) batch=2", ("conv", "b2", "cpu", None, "shape=(1,3)")),
        ("decode:batch=8/dtype=float16/fast", ("decode/fast", "b8", "cpu", None, None)),
        ("decode[greedy]/batch=8/dtype=float16", ("decode[greedy]", "b8", "cpu", None, None)),
        ("decode[batch=8/model=gpt2]:threads=2", ("gpt2", "b8", "cpu", "decode", None)),
    ],
)
def test_slashes_colons_and_commas_inside_of_a_value_in_brackets_are_its_own(changed, name, expected):
    run, _ = changed(lambda data: data["benchmarks"][0]["metadata"].update(name=name))
    cell, mode = run.cell, run.cell.runtime_mode
    found = (cell.workload.model_id, run.results[0].point.label, cell.device.selector)
    assert (*found, mode.get("benchmark"), mode.get("variant")) == expected


def test_true_is_no_size(changed):
    first, _ = changed(lambda data: data["benchmarks"][0]["metadata"].update(batch_size=True))
    assert first.results[0].point.label == "b1"
    assert first.cell.runtime_mode["variant"] == "batch_size=True"


def test_statements_and_commands_without_a_name_of_their_own_are_told_apart(changed):
    def rename(data):
        first, second = (one["metadata"] for one in data["benchmarks"])
        first |= {"name": "timeit", "timeit_stmt": "'sum(x)'", "timeit_setup": "'x = [1]'"}
        second |= {"name": "command", "command": "/bin/sleep 0.05"}

    statement, command = (run.cell for run in changed(rename))
    assert (statement.workload.model_id, statement.runtime_mode) == ("'sum(x)'", {"variant": "setup='x = [1]'"})
    assert command.workload.model_id == "/bin/sleep 0.05"
