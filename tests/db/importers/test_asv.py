"""A result file of airspeed velocity, written by asv 0.6.6: value by value."""

from __future__ import annotations

import json
from statistics import fmean, median

import pytest

from db.importers.asv import PLUGIN
from db.importers.support.files import read_file
from tests.helpers.left_out import left_out
from tests.helpers.paths import FIXTURES

FILE = FIXTURES / "imports/asv/result.json"
DATA = json.loads(FILE.read_text())


@pytest.fixture(scope="module")
def runs():
    return {run.cell.subject: run for run in PLUGIN.runs(read_file(FILE))}


@pytest.fixture
def changed(edited):
    """Applies a function to the JSON of the file; returns the runs of the result."""
    return lambda change: list(PLUGIN.runs(read_file(edited(FILE, change))))


def stored(name, column):
    return DATA["results"][name][DATA["result_columns"].index(column)]


def test_numbers_are_axes_and_other_parameters_make_separate_runs(runs):
    assert sorted(runs) == [
        "bench.Sorting.peakmem_sorted [param1=random]",
        "bench.Sorting.peakmem_sorted [param1=reversed]",
        "bench.Sorting.time_sorted [param1=random]",
        "bench.Sorting.time_sorted [param1=reversed]",
        "bench.Sorting.track_length [param1=random]",
        "bench.Sorting.track_length [param1=reversed]",
        "bench.mem_list",
        "bench.time_broken",
        "bench.time_range",
        "bench.timeraw_import",
    ]
    results = runs["bench.Sorting.time_sorted [param1=random]"].results
    assert [result.point.axes for result in results] == [{"param0": 100}, {"param0": 1000}]


def test_recorded_samples_are_blocks_of_calls_and_the_median_is_asvs(runs):
    result = runs["bench.Sorting.time_sorted [param1=random]"].results[1]
    seconds = stored("bench.Sorting.time_sorted", "samples")[2]  # 100 random, 100 reversed, 1000 random, ...
    (samples,) = result.samples
    assert (samples.values, samples.inner_loops) == (pytest.approx([1000 * one for one in seconds]), 20)
    assert result.metrics["latency_median_ms"] == pytest.approx(1000 * stored("bench.Sorting.time_sorted", "result")[2])
    assert result.metrics["latency_median_ms"] == pytest.approx(1000 * median(seconds))
    assert result.metrics["latency_mean_ms"] == pytest.approx(1000 * fmean(seconds))
    assert result.metrics["latency_ci_99_low_ms"] == 1000 * stored("bench.Sorting.time_sorted", "stats_ci_99_a")[2]
    assert (result.iterations, result.launches, result.ci_scope) == (8, 1, "within")
    assert result.missing["latency_p99_ms"].startswith("not_applicable")


def test_the_commit_and_its_time_order_the_history(runs):
    run = runs["bench.time_range"]
    assert run.provenance.git_commit == "666189599b99e6b85318970fcf14b26606251cc8"
    assert run.provenance.git_commit_time == "2026-03-01T10:00:00+00:00"
    assert run.started_at == "2026-11-21T13:39:56.150000+00:00"


def test_another_version_of_the_benchmarks_code_and_another_environment_are_other_series(runs):
    run = runs["bench.time_range"]
    assert run.cell.workload.revision == stored("bench.time_range", "version")
    assert run.cell.runtime_mode == {"environment": "existing-py_opt_python_bin_python"}


def test_the_name_of_an_environment_has_no_secret_of_its_variables(changed):
    variables = {"env_name": "virtualenv-py3.12-HF_TOKENabc9-OMP4", "env_vars": {"HF_TOKEN": "abc9", "OMP": "4"}}
    modes = {run.cell.runtime_mode["environment"] for run in changed(lambda data: data.update(variables))}
    assert modes == {"virtualenv-py3.12-HF_TOKEN***-OMP4"}


def test_the_machine_is_that_of_the_file(runs):
    run = runs["bench.time_range"]
    assert (run.hardware.cpu_model, run.hardware.cpu_threads, run.provenance.host) == ("AMD EPYC", 2, "bench-machine")
    assert run.origin.kept["params"]["ram"] == "25276514304"


def test_memory_is_in_mb_and_tracked_values_have_no_unit(runs):
    memory = runs["bench.Sorting.peakmem_sorted [param1=random]"].results[0]
    peak_bytes = stored("bench.Sorting.peakmem_sorted", "result")[0]
    assert memory.metrics == {"memory_peak_rss_infer_mb": peak_bytes / 1e6}
    assert memory.missing["latency_median_ms"] == "not_applicable: a peakmem benchmark"
    assert runs["bench.mem_list"].results[0].metrics == {"object_size_mb": 0.002104}
    tracked = runs["bench.Sorting.track_length [param1=random]"].results
    assert [result.metrics["tracked_value"] for result in tracked] == [100, 1000]


def test_nan_is_skipped_and_null_is_failed(runs):
    skipped = runs["bench.Sorting.time_sorted [param1=reversed]"]
    assert [result.status for result in skipped.results] == ["ok", "skipped"]
    assert (skipped.status, runs["bench.time_broken"].status) == ("skipped", "failed")


def test_without_samples_the_statistics_are_those_of_asv(changed):
    def change(data):
        for entry in data["results"].values():
            del entry[11:]

    runs = {run.cell.subject: run for run in changed(change)}
    result = runs["bench.time_range"].results[0]
    assert (result.samples, result.iterations) == ((), 10)
    assert result.metrics["latency_p25_ms"] == 1000 * stored("bench.time_range", "stats_q_25")[0]
    assert result.extra["kept"]["stats_number"] == stored("bench.time_range", "stats_number")[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.update(version=3), "version: expected 1 or 2, found 3: a version of asv"),
        (lambda data: data.pop("commit_hash"), "commit_hash: is missing"),
        (
            lambda data: data["results"]["bench.time_range"][0].append(1.0),
            r"result: expected 1 values, one per combination",
        ),
        (
            lambda data: data["results"]["bench.time_range"].__setitem__(0, ["x"]),
            r"result: expected a number, found 'x'",
        ),
        (lambda data: data["results"]["bench.time_range"].__setitem__(3, "x"), r"started_at: expected a number"),
        (lambda data: data.update(results=[]), r"results: expected an object, found \[\]"),
    ],
)
def test_an_invalid_value_is_one_line_with_its_place(changed, change, message):
    with left_out(rf"changed\.json: .*{message}"):
        changed(change)


def of_version_1(data):
    """Rewrites a file in the form of version 1, as asv wrote it up to 0.4."""
    columns, names = data.pop("result_columns"), ("benchmark_version", "started_at", "duration")
    results, shared = {}, {name: {} for name in names}
    for name, values in data["results"].items():
        own = dict(zip(columns, values, strict=False))
        for target, column in zip(names, ("version", "started_at", "duration"), strict=True):
            shared[target][name] = own.get(column)
        count = len(own["result"]) if own.get("result") else 0
        lists = {column: own.get(column) or [None] * count for column in columns if column.startswith("stats_")}
        stats = [
            {
                "ci_99": [lists["stats_ci_99_a"][at], lists["stats_ci_99_b"][at]],
                **{word: lists[f"stats_{word}"][at] for word in ("q_25", "q_75", "number", "repeat")},
            }
            for at in range(count)
        ]
        results[name] = {"result": own.get("result"), "params": own["params"], "stats": stats}
        results[name] |= {"samples": own["samples"]} if own.get("samples") else {}
    data |= {"version": 1, "results": results, **shared}


def test_files_of_version_1_have_the_results_of_version_2(runs, changed):
    again = {run.cell.subject: run for run in changed(of_version_1)}
    assert again.keys() == runs.keys()
    for name, run in again.items():
        assert (run.started_at, run.cell) == (runs[name].started_at, runs[name].cell)
        for result, expected in zip(run.results, runs[name].results, strict=True):
            assert (result.point, result.status, result.metrics) == (expected.point, expected.status, expected.metrics)
            assert [one.values for one in result.samples] == [one.values for one in expected.samples]


def test_a_value_alone_is_a_result_of_version_1(tmp_path):
    data = {
        "version": 1,
        "commit_hash": "a" * 40,
        "date": 1_500_000_000_000,
        "python": "2.7",
        "requirements": {},
        "params": {"machine": "demo", "cpu": "Demo CPU"},
        "results": {"mod.time_a": 0.02, "mod.time_b": None, "mod.track_c": {"result": 3, "params": []}},
    }
    (tmp_path / "first.json").write_text(json.dumps(data))
    found = {run.cell.subject: run.results[0] for run in PLUGIN.runs(read_file(tmp_path / "first.json"))}
    assert found["mod.time_a"].metrics["latency_median_ms"] == 20
    assert (found["mod.time_b"].status, found["mod.track_c"].metrics["tracked_value"]) == ("failed", 3)


def test_parameters_that_combine_to_billions_leave_out_their_benchmark_alone(changed):
    def many(data):
        data["results"]["bench.Sorting.time_sorted"][data["result_columns"].index("params")] = [["1"] * 1000] * 4

    assert "bench.Sorting.track_length [param1=random]" in {run.cell.subject for run in changed(many)}
    assert not any("time_sorted" in run.cell.subject for run in changed(many))


def test_files_of_the_first_version_are_of_the_environment_that_asv_gives_them():
    found = list(PLUGIN.runs(read_file(FIXTURES / "imports/asv/first_results.json")))
    assert {run.cell.runtime_mode["environment"] for run in found} == {"py2.7-Cython-numpy1.8"}
    results = {run.cell.subject: run.results for run in found}
    (latitude,) = results["time_coordinates.time_latitude"]
    assert latitude.metrics["latency_median_ms"] == pytest.approx(0.4540278911590576)
    assert results["time_units.mem_unit"][0].metrics["object_size_mb"] == pytest.approx(344 / 1e6)
    assert [one.metrics["latency_median_ms"] for one in results["time_other.time_parameterized"]] == [1e3, 2e3, 3e3]
    assert (results["time_AAA_failure"][0].status, results["time_AAA_skip"][0].status) == ("failed", "skipped")


@pytest.mark.parametrize("is_link", [False, True])
def test_what_a_benchmark_measures_is_its_type_where_asv_describes_it(is_link, tmp_path):
    results = tmp_path / "results"
    data = {"version": 1, "commit_hash": "a" * 40, "date": 0, "python": "3.12", "requirements": {}}
    data |= {"params": {"machine": "demo"}, "results": {"mod.named": 0.02}}
    (results / "machine").mkdir(parents=True)
    (results / "machine/a.json").write_text(json.dumps(data))
    path = (tmp_path if is_link else results) / "benchmarks.json"
    path.write_text(json.dumps({"mod.named": {"type": "time", "param_names": []}}))
    if is_link:  # to a file of the user's, outside of the results
        (results / "benchmarks.json").symlink_to(path)
    file = read_file(results / "machine/a.json")
    (run,) = PLUGIN.runs(file)
    assert run.results[0].metrics.get("latency_median_ms") == (None if is_link else 20)
    assert [one.problem for one in file.left_out] == ["not read, since it is not in the folder of the file"] * is_link
