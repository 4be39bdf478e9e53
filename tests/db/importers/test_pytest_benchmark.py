"""pytest-benchmark's JSON: rounds of seconds, with and without raw values."""

from __future__ import annotations

import pytest

from db.importers.support.files import read_file
from db.importers.timers import PYTEST_BENCHMARK
from tests.helpers.paths import FIXTURES

FOLDER = FIXTURES / "imports/pytest_benchmark"


def runs(name):
    return list(PYTEST_BENCHMARK.runs(read_file(FOLDER / name)))


def test_a_round_is_a_raw_value_and_a_numeric_parameter_an_axis():
    sort, join = runs("data.json")
    assert [run.cell.workload.model_id for run in (sort, join)] == [
        "bench_test.py::test_sort",
        "bench_test.py::test_join",
    ]
    assert [one.point.axes for one in sort.results] == [{"n": 100}, {"n": 400}]
    (samples,) = sort.results[0].samples
    assert samples.values[:2] == pytest.approx((7.669500519114081e-4, 7.494500096072443e-4))
    assert (len(samples.values), samples.inner_loops) == (20, 20)
    assert join.results[0].metrics["latency_median_ms"] == pytest.approx(5.878331042670956e-4)


def test_stated_statistics_are_converted_to_milliseconds():
    (run,) = runs("statistics.json")
    result = run.results[0]
    assert result.samples == ()
    assert result.iterations == 1219
    assert result.metrics == {
        "latency_mean_ms": pytest.approx(7.688344558447126e-4),
        "latency_median_ms": pytest.approx(7.424000614264514e-4),
        "latency_iqr_ms": pytest.approx(2.550018507463307e-6),
        "calls_per_sec": 1300670.114870569,
    }
    assert result.extra["kept"]["inner_loops"] == 20
    # A round of 20 calls hides how they vary.
    of_rounds = {"min": 7.378499503829516e-4, "max": 3.2275500416290013e-3, "std": 1.435833704994363e-4}
    of_rounds |= {"p25": 7.413999810523819e-4, "p75": 7.439499995598452e-4}
    assert result.extra["kept"]["stated"] == {
        f"latency_{name}_ms": pytest.approx(value) for name, value in of_rounds.items()
    }
    assert "hides how they vary" in result.missing["latency_std_ms"]


def test_the_run_has_machine_interpreter_and_time():
    run, _ = runs("data.json")
    assert (run.hardware.cpu_model, run.hardware.cpu_threads, run.provenance.host) == ("AMD EPYC", 2, "bench-host")
    assert (run.cell.runtime, run.provenance.versions) == ("CPython", {"python": "3.11.7"})
    assert run.started_at == "2026-11-22T14:34:32.392575+00:00"
    assert run.origin.tool_version == "5.3.1"


@pytest.mark.parametrize(
    ("stated", "stored"),
    [
        ({"id": "unversioned", "branch": "(unknown)", "dirty": False}, (None, None, None)),
        ({"id": "unknown", "branch": "(unknown)", "dirty": False, "error": "git"}, (None, None, None)),
        ({"id": "0123abcd" * 5, "branch": "(detached head)", "dirty": True}, ("0123abcd" * 5, None, True)),
        ({"id": "0123abcd" * 5, "branch": "main", "dirty": False}, ("0123abcd" * 5, "main", False)),
    ],
)
def test_a_word_for_no_commit_or_branch_is_none(edited, stated, stored):
    file = edited(FOLDER / "statistics.json", lambda data: data.update(commit_info=stated))
    (run,) = PYTEST_BENCHMARK.runs(read_file(file))
    assert (run.provenance.git_commit, run.provenance.git_branch, run.provenance.git_dirty) == stored


def test_older_versions_call_the_processor_brand(edited):
    def older(data):
        cpu = data["machine_info"]["cpu"]
        cpu["brand"] = cpu.pop("brand_raw", "Demo CPU")

    run, _ = PYTEST_BENCHMARK.runs(read_file(edited(FOLDER / "data.json", older)))
    assert run.cell.device.name == runs("data.json")[0].cell.device.name


@pytest.mark.parametrize(
    ("device", "name"), [("cuda", None), ("cpu", "AMD EPYC"), ("openvino:CPU", "AMD EPYC"), (None, "AMD EPYC")]
)
def test_the_processor_names_no_other_device(edited, device, name):
    def measured_on(data):
        for one in data["benchmarks"]:
            one["params"] = {"device": device} if device else None

    found = list(PYTEST_BENCHMARK.runs(read_file(edited(FOLDER / "data.json", measured_on))))
    assert {(run.cell.device.name, run.hardware.cpu_model) for run in found} == {(name, "AMD EPYC")}


def test_another_timer_is_another_series_and_cpu_time_is_no_latency(edited):
    def timed_otherwise(data):
        for one in data["benchmarks"]:
            one["options"]["timer"] = "process_time" if "sort" in one["name"] else "time.time"

    found = PYTEST_BENCHMARK.runs(read_file(edited(FOLDER / "data.json", timed_otherwise)))
    first, second = sorted(found, key=lambda run: str(run.cell.runtime_mode["clock"]))
    assert first.cell.runtime_mode["clock"] == "process_time"
    result = first.results[0]
    assert set(result.metrics) == {"cpu_time_ms"}
    assert [one.metric for one in result.samples] == ["cpu_time"]
    assert result.missing["latency_median_ms"] == "not_applicable: process_time measures CPU time"
    assert second.cell.runtime_mode["clock"] == "time"
    assert second.results[0].metrics["latency_median_ms"] > 0


def test_a_parameter_without_a_type_in_json_is_read_as_written(edited):
    def of_a_type(data):
        data["benchmarks"][0]["params"] = {"dtype": "UNSERIALIZABLE[torch.float16]"}

    found = PYTEST_BENCHMARK.runs(read_file(edited(FOLDER / "data.json", of_a_type)))
    assert "float16" in {run.cell.precision for run in found}


@pytest.mark.parametrize(
    ("others", "id_of_all", "variant"), [({}, "small", "cfg=small"), ({"n": 8}, "8-small", "param=8-small")]
)
def test_an_object_has_the_name_that_pytest_gives_it(edited, others, id_of_all, variant):
    def run_of(address):
        def of_an_object(data):
            data["benchmarks"][0]["params"] = {**others, "cfg": f"UNSERIALIZABLE[<t.Cfg object at 0x{address}>]"}
            data["benchmarks"][0]["param"] = id_of_all

        run, *_ = PYTEST_BENCHMARK.runs(read_file(edited(FOLDER / "data.json", of_an_object)))
        return run

    assert run_of("7fecf20e8790").cell == run_of("7fb43629b350").cell
    assert (run_of("7f").cell.runtime_mode, run_of("7f").results[0].point.axes) == ({"variant": variant}, others)
