"""GuideLLM's report, written by the tool against its own mock server: value by value."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from statistics import median

import pytest
import yaml

from db.importers.guidellm import PLUGIN
from db.importers.support.files import NoResultsError, read_file
from tests.helpers.left_out import left_out
from tests.helpers.paths import FIXTURES

REPORT = FIXTURES / "imports/guidellm/benchmarks.json"


def runs_of(path):
    return list(PLUGIN.runs(read_file(path)))


@pytest.fixture(scope="module")
def runs():
    return runs_of(REPORT)


@pytest.fixture
def changed(edited):
    """Applies a function to the JSON of the report; returns the runs of the result."""
    return lambda change: runs_of(edited(REPORT, change))


def test_each_kind_of_load_is_a_run_with_its_own_point(runs):
    assert [(run.cell.runtime_mode, run.results[0].point.label) for run in runs] == [
        ({"load": "concurrent", "loop": "closed"}, "b1 n16 c2 input_tokens_requested=32"),
        ({"load": "constant", "loop": "open"}, "b1 n16 input_tokens_requested=32 request_rate=4.0"),
    ]
    assert runs[0].started_at == "2026-11-21T13:25:52.498945+00:00"
    assert (runs[0].origin.tool_version, runs[0].provenance.versions["python"]) == ("0.8.1", "3.11.7")


def test_raw_latencies_and_first_tokens_are_samples_and_fill_the_columns(runs):
    result = runs[0].results[0]
    requests = json.loads(REPORT.read_text())["benchmarks"][0]["requests"]["successful"]
    latencies_ms = [1000 * one["request_latency"] for one in requests]
    first_ms = [one["time_to_first_token_ms"] for one in requests]
    assert [one.values for one in result.samples[:2]] == [
        pytest.approx(tuple(latencies_ms)),
        pytest.approx(tuple(first_ms)),
    ]
    assert result.metrics["latency_median_ms"] == pytest.approx(median(latencies_ms))
    assert result.metrics["time_to_first_token_ms"] == pytest.approx(median(first_ms))
    assert result.extra["kept"]["stated"]["time_to_first_token_ms"] == pytest.approx(37.183523178100586)


def test_what_is_read_of_a_load_is_not_kept_again_with_its_result(changed, tmp_path):
    def with_a_key(data):
        data["benchmarks"][0]["config"]["backend"]["api_key"] = "sk-of-the-server"

    kept = changed(with_a_key)[0].results[0].extra["kept"]
    assert {"start_time", "end_time"}.isdisjoint(kept)
    assert kept["config"]["confidence"] == 0.95, "what is not read stays"
    assert "backend" not in kept["config"], "a model, an address, a key"
    for run in runs_of(Path(shutil.copy(TABLE, tmp_path))):
        assert {"start_time", "end_time", "Timings, Start Time", "config"}.isdisjoint(run.results[0].extra["kept"])


def token_times_ms(data, load=0):
    return [one["inter_token_latency_ms"] for one in data["benchmarks"][load]["requests"]["successful"]]


def many_requests(data, count=300):
    """A report with so many requests that every percentile is supported, of 2 to 5 tokens, 1 ms to 300 ms apart."""
    load = data["benchmarks"][0]
    (request, *_) = load["requests"]["successful"]
    load["requests"]["successful"] = [
        {**request, "inter_token_latency_ms": float(number), "output_tokens": 2 + number % 4}
        for number in range(1, count + 1)
    ]
    load["metrics"]["request_totals"]["successful"] = count
    load["metrics"]["output_token_count"]["successful"] |= {"min": 2, "max": 5}


def test_time_per_output_token_is_the_inter_token_latency_of_each_request(runs):
    result, data = runs[0].results[0], json.loads(REPORT.read_text())
    stated = data["benchmarks"][0]["metrics"]
    assert result.metrics["time_per_output_token_ms"] == pytest.approx(median(token_times_ms(data)))
    (samples,) = (one for one in result.samples if one.metric == "time_per_output_token")
    assert samples.values == pytest.approx(tuple(token_times_ms(data)))
    assert result.missing["time_per_output_token_p90_ms"] == "too_few_samples"
    assert result.missing["time_per_output_token_p99_ms"] == "too_few_samples"
    # All requests have 16 tokens, so its percentiles weighted by tokens are those of the requests.
    theirs = stated["inter_token_latency_ms"]["successful"]
    assert result.metrics["stated_time_per_output_token_p99_ms"] == theirs["percentiles"]["p99"]
    assert result.metrics["time_per_output_token_mean_ms"] == theirs["mean"]


def test_its_own_time_per_output_token_includes_the_first_and_has_another_name(runs):
    stated = json.loads(REPORT.read_text())["benchmarks"][0]["metrics"]["time_per_output_token_ms"]["successful"]
    metrics = runs[0].results[0].metrics
    assert metrics["normalized_time_per_output_token_median_ms"] == stated["median"]
    assert metrics["normalized_time_per_output_token_p99_ms"] == stated["percentiles"]["p99"]
    assert stated["median"] > metrics["time_per_output_token_ms"]


def test_median_and_percentiles_of_the_time_per_output_token_have_one_definition(changed):
    result = changed(many_requests)[0].results[0]
    assert result.metrics["time_per_output_token_ms"] == 150.5
    assert result.metrics["time_per_output_token_p90_ms"] == pytest.approx(270.1)
    assert result.metrics["time_per_output_token_p99_ms"] == pytest.approx(297.01)
    assert result.metrics["token_weighted_time_per_output_token_median_ms"] == pytest.approx(3.532759348551432)


def test_without_all_requests_weighted_percentiles_are_no_times_per_output_token(changed):
    def change(data):
        many_requests(data)
        data["benchmarks"][0]["requests"]["successful"].pop()

    result = changed(change)[0].results[0]
    names = ("time_per_output_token_ms", "time_per_output_token_p90_ms", "time_per_output_token_p99_ms")
    assert {name: result.missing[name] for name in names} == dict.fromkeys(
        names, "not_stated: GuideLLM weights its requests by their tokens, and the report has only some of the requests"
    )
    assert not result.metrics.keys() & set(names)


def test_without_all_requests_equal_weights_leave_its_percentiles_usable(changed):
    result = changed(lambda data: data["benchmarks"][0]["requests"]["successful"].pop())[0].results[0]
    assert result.metrics["time_per_output_token_ms"] == pytest.approx(3.532759348551432)
    assert result.metrics["stated_time_per_output_token_p90_ms"] == pytest.approx(4.378350575764974)


def test_a_request_with_one_token_has_no_time_per_output_token(changed):
    def change(data):
        request = data["benchmarks"][0]["requests"]["successful"][0]
        request |= {"inter_token_latency_ms": None, "output_tokens": 1}

    result, data = changed(change)[0].results[0], json.loads(REPORT.read_text())
    assert result.metrics["time_per_output_token_ms"] == pytest.approx(median(token_times_ms(data)[1:]))


def test_rates_are_means_over_the_load(runs):
    metrics = runs[0].results[0].metrics
    assert metrics["throughput_samples_per_sec"] == pytest.approx(15.719709240187917)
    assert metrics["throughput_tokens_per_sec"] == pytest.approx(
        json.loads(REPORT.read_text())["benchmarks"][0]["metrics"]["output_tokens_per_second"]["successful"]["mean"]
    )


def test_tails_of_six_requests_are_only_stated(runs):
    result = runs[0].results[0]
    assert result.missing["latency_p90_ms"] == "too_few_samples"
    assert result.metrics["stated_latency_p90_ms"] == pytest.approx(176.931143, abs=1e-5)


def test_how_the_server_was_found_tells_no_loads_apart(runs, changed):
    def of_version_0_6(data):
        for load in data["benchmarks"]:
            load["config"]["backend"]["validate_backend"] = {"method": "GET", "url": "http://127.0.0.1:18555/health"}

    assert [run.cell for run in changed(of_version_0_6)] == [run.cell for run in runs]


def test_an_empty_distribution_gives_no_metrics(runs):
    assert not [name for name in runs[0].results[0].metrics if name.startswith("time_to_last_round_trip")]


def test_its_warnings_are_doubts_and_a_rate_has_no_concurrency_limit(runs):
    assert [doubt.kind for doubt in runs[0].results[0].doubts] == ["guidellm_warning"]
    kinds = [doubt.kind for doubt in runs[1].results[0].doubts]
    assert kinds == ["guidellm_warning", "concurrency_unlimited", "late_generator", "saturation_unknown"]
    assert runs[0].results[0].doubts[0].evidence["code"] == "generation_delay_ttft"


def test_a_users_limit_of_requests_in_flight_at_a_rate_is_the_concurrency_and_the_clients_own_is_none(
    changed, tmp_path
):
    def limited(limit):
        def change(data):
            of_rate = data["benchmarks"][1]["config"]
            of_rate["strategy"]["max_concurrency"] = limit or 10240
            of_rate["profile"]["max_concurrency"] = limit

        run = changed(change)[1]
        return run.results[0].point.concurrency, run.cell.runtime_mode["loop"], _is_unlimited(run)

    assert [limited(None), limited(1), limited(4)] == [(1, "open", True), (1, "open", False), (4, "open", False)]
    text = TABLE.read_text().replace('""max_concurrency"": null', '""max_concurrency"": 4')
    (tmp_path / "limited.csv").write_text(text)
    (run,) = runs_of(tmp_path / "limited.csv")
    assert (run.results[0].point.concurrency, _is_unlimited(run)) == (4, False)


def _is_unlimited(run):
    return "concurrency_unlimited" in [doubt.kind for doubt in run.results[0].doubts]


def test_a_report_with_only_some_requests_has_its_statistics_but_no_samples(changed):
    run = changed(lambda data: data["benchmarks"][0]["requests"]["successful"].pop())[0]
    result = run.results[0]
    assert (result.samples, result.iterations) == ((), 6)
    assert result.metrics["time_to_first_token_ms"] == pytest.approx(37.183523178100586)


def test_a_load_without_a_successful_request_is_a_failed_result(changed):
    def change(data):
        data["benchmarks"][0]["metrics"]["request_totals"]["successful"] = 0

    assert changed(change)[0].results[0].error == "no request succeeded"


def test_an_invalid_value_is_one_line_with_its_place(changed):
    def change(data):
        data["benchmarks"][1]["metrics"]["request_latency"]["successful"]["mean"] = "slow"

    with left_out(r"benchmarks\[1\]\.metrics\.request_latency\.successful\.mean: expected a number, found 'slow'"):
        changed(change)


def test_requests_are_rows_and_at_a_rate_their_intended_start_is_the_scheduled_one(runs):
    closed, of_rate = (run.results[0].requests[0] for run in runs)
    assert closed.intended_ms == closed.sent_ms
    assert of_rate.intended_ms == pytest.approx([250.0 * place for place in range(5)], abs=0.001)
    late = [sent - at for at, sent in zip(of_rate.intended_ms, of_rate.sent_ms, strict=True)]
    assert late[0] == pytest.approx(3.9386749, abs=0.001)
    assert {name: set(getattr(of_rate, name)) for name in ("tokens_out", "error")} == {
        "tokens_out": {16},
        "error": {None},
    }


def of_version_0_3(data):
    """Rewrites a report in the layout before version 0.4."""
    (of_data,) = data.pop("config")["spec"]["data"]
    for load in data["benchmarks"]:
        config, totals = load.pop("config"), load["metrics"].pop("request_totals")
        times = {name: load.pop(name) for name in ("start_time", "end_time")}
        load["args"] = {"strategy": {**config["strategy"], "start_time": times["start_time"]}}
        load["worker"] = {"backend_model": config["backend"]["model"], "backend_target": config["backend"]["target"]}
        lengths = {name: of_data[name] for name in ("prompt_tokens", "output_tokens")}
        load["request_loader"] = {"data": json.dumps(lengths), "data_args": None, "processor": "tok"}
        load["run_stats"] = {**times, "requests_made": totals}
        load.pop("scheduler_metrics")
        for request in load["requests"]["successful"]:
            timings = request.pop("info")["timings"]
            request["scheduler_info"] = {
                **{name: timings[name] for name in ("request_start", "request_end")},
                "targeted_start_time": timings["targeted_start"],
            }
            request["first_token_time"] = timings["first_token_iteration"]


def test_reports_before_version_0_4_have_the_same_numbers(runs, changed):
    for new, old in zip(runs, changed(of_version_0_3), strict=True):
        assert (old.cell.workload, old.cell.runtime_mode) == (new.cell.workload, new.cell.runtime_mode)
        assert (old.started_at, old.finished_at, old.provenance.host) == (
            (new.started_at, new.finished_at, new.provenance.host)
        )
        (result,), (again,) = new.results, old.results
        assert (again.point, again.iterations, again.requests) == (result.point, result.iterations, result.requests)
        per_token = "normalized_time_per_output_token_", "first_to_last_token_per_output_token_"
        renamed = {name.replace(*per_token): value for name, value in result.metrics.items()}
        assert again.metrics == renamed


TABLE = FIXTURES / "imports/guidellm/benchmarks.csv"


def table_cell(row, *column):
    lines = list(csv.reader(TABLE.open(newline="")))
    return lines[3 + row][list(zip(*lines[:3], strict=True)).index(column)]


def test_the_rows_of_a_table_are_loads_with_its_statistics(tmp_path):
    (run,) = runs_of(Path(shutil.copy(TABLE, tmp_path)))
    assert (run.cell.workload.model_id, run.provenance.host, run.origin.tool_version) == (
        ("demo", "127.0.0.1:18765", "0.8.1")
    )
    assert (run.started_at, run.cell.runtime_mode["load"]) == ("2026-11-26T11:56:01+00:00", "constant")
    assert [one.point.label for one in run.results] == ["b1 s8 n16 request_rate=4.0", "b1 s8 n16 request_rate=8.0"]
    for row, result in enumerate(run.results):
        metrics = result.metrics
        median_s = float(table_cell(row, "Request Latency", "Successful Sec", "Median"))
        assert metrics["service_time_p50_ms"] == pytest.approx(1000 * median_s)
        quantiles = json.loads(table_cell(row, "Request Latency", "Successful Sec", "Percentiles"))
        assert (metrics["service_time_min_ms"], metrics["service_time_max_ms"]) == pytest.approx(
            (1000 * quantiles[0], 1000 * quantiles[-1])
        )
        for column, name in {
            ("Time to First Token", "Successful ms", "Median"): "time_to_first_token_ms",
            ("Inter Token Latency", "Successful ms", "Median"): "time_per_output_token_ms",
            ("Time per Output Token", "Successful ms", "Mean"): "normalized_time_per_output_token_mean_ms",
            ("Server Throughput", "Successful Requests/Sec", "Mean"): "throughput_samples_per_sec",
            ("Token Throughput", "Successful Output Tokens/Sec", "Mean"): "throughput_tokens_per_sec",
        }.items():
            assert metrics[name] == float(table_cell(row, *column)), name
        assert result.iterations == 10
        assert {"time_zone_unknown", "latency_from_sending"} <= {doubt.kind for doubt in result.doubts}


def test_a_damaged_row_or_list_of_a_table_leaves_the_others_stored(tmp_path):
    lines = TABLE.read_text().splitlines()
    lines[3:3] = ["warning: retry", lines[3].replace("[0.0774846076965332", '[""x""')]
    (tmp_path / "noisy.csv").write_text("\n".join(lines))
    file = read_file(tmp_path / "noisy.csv")
    (run,) = PLUGIN.runs(file)
    assert len(run.results) == 3
    assert [one.place for one in file.left_out][:1] == ["line 4"]
    assert run.results[0].metrics["time_to_first_token_ms"] == run.results[1].metrics["time_to_first_token_ms"]


def test_a_sweeps_loads_have_the_rates_of_its_profile_where_the_strategy_has_none(tmp_path):
    lines = list(csv.reader(TABLE.open(newline="")))
    done = [{"type_": "constant", "rate": rate} for rate in (4.125, 8.25)]
    for row in lines[3:]:
        row[lines[1].index("Strategy")] = "constant"
        row[lines[1].index("Profile")] = json.dumps({"type_": "sweep", "completed_strategies": done})
    with (tmp_path / "of_0_4.csv").open("w", newline="") as out:
        csv.writer(out).writerows(lines)
    (run,) = runs_of(tmp_path / "of_0_4.csv")
    assert [one.point.axes["request_rate"] for one in run.results] == [4.125, 8.25]


def test_a_table_states_the_output_length_that_was_requested(tmp_path):
    lines = list(csv.reader(TABLE.open(newline="")))
    for column, *cells in (
        (("Token Metrics", "Successful Output Tokens", "Percentiles"), *[str([*range(6, 17)])] * 2),
        (("Runtime Info", "Arguments", ""), *[json.dumps({"spec": {"data": [{"output_tokens": 512}]}})] * 2),
    ):
        columns = list(zip(*lines[:3], strict=True))
        if column not in columns:
            for line, cell in zip(lines, (*column, *cells), strict=True):
                line.append(cell)
        else:
            for line, cell in zip(lines[3:], cells, strict=True):
                line[columns.index(column)] = cell
    with (tmp_path / "requested.csv").open("w", newline="") as out:
        csv.writer(out).writerows(lines)
    (run,) = runs_of(tmp_path / "requested.csv")
    assert {one.point.axes["output_tokens_requested"] for one in run.results} == {512}


def test_a_table_before_version_0_4_has_the_names_of_the_report(tmp_path):
    statistics = {"request latency": 2.0, "time to first token ms": 30.0, "inter token latency ms": 0.0}
    row = {
        "Type": "generative_benchmark",
        "Run Id": "a",
        "Id": "b",
        "Name": "concurrent@4",
        "Start Time": "2025-06-01 10:00:00",
        "End Time": "2025-06-01 10:01:00",
        "Duration": 60.0,
        "Successful Requests": 120,
        "Errored Requests": 2,
    }
    for name, value in statistics.items():
        title = f"Successful {name.capitalize()}"
        row |= {f"{title} mean": value, f"{title} median": value, f"{title} std dev": 0.0}
        row[f"{title} [min, 0.1, 1, 5, 10, 25, 75, 90, 95, 99, max]"] = str([value] * 11)
    row["Args"] = json.dumps({"strategy": {"type_": "concurrent", "streams": 4}})
    row["Worker"] = json.dumps({"backend_model": "demo/model", "backend_target": "http://10.0.0.1:8000"})
    row["Request Loader"] = json.dumps({"data": "prompt_tokens=32,prompt_tokens_stdev=8,output_tokens=16"})
    with (tmp_path / "old.csv").open("w", newline="") as out:
        csv.writer(out).writerows([row.keys(), row.values()])
    (run,) = runs_of(tmp_path / "old.csv")
    (result,) = run.results
    assert (run.cell.workload.model_id, run.provenance.host) == ("demo/model", "10.0.0.1:8000")
    assert (run.started_at, result.point.concurrency) == ("2025-06-01T10:00:00+00:00", 4)
    requested = {"input_tokens_requested": 32, "output_tokens_requested": 16}
    assert (result.point.axes, run.cell.runtime_mode["prompt_tokens_stdev"]) == (requested, 8)
    assert (result.metrics["latency_median_ms"], result.metrics["time_to_first_token_ms"]) == (2000, 30)
    assert "time_per_output_token_ms" not in result.metrics  # all 0: no value
    assert not {"Args", "Worker", "Request Loader"} & result.extra["kept"].keys()  # which are kept as args and worker
    assert [doubt.evidence["failed_requests"] for doubt in result.doubts if doubt.kind == "failed_requests"] == [2]


def test_a_report_in_yaml_has_the_numbers_of_its_json(tmp_path, runs):
    (tmp_path / "benchmarks.yaml").write_text(yaml.safe_dump(json.loads(REPORT.read_text())))
    again = runs_of(tmp_path / "benchmarks.yaml")
    assert [one.metrics for run in again for one in run.results] == [one.metrics for run in runs for one in run.results]


def test_one_report_in_several_formats_is_read_once(tmp_path):
    for ending in (".csv", ".yaml", ".json"):
        assert runs_of(Path(shutil.copy(REPORT.with_suffix(ending), tmp_path)))
    for ending in (".csv", ".yaml"):
        with pytest.raises(NoResultsError, match=r"all its numbers are in benchmarks\.json"):
            runs_of(tmp_path / f"benchmarks{ending}")


@pytest.mark.parametrize("ending", [".csv", ".yaml"])
def test_a_table_beside_the_report_of_another_run_is_read(tmp_path, ending):
    data = json.loads(REPORT.read_text())
    for load in data["benchmarks"]:
        load["config"]["run_id"] = "another"
    (tmp_path / "benchmarks.json").write_text(json.dumps(data))
    assert runs_of(Path(shutil.copy(REPORT.with_suffix(ending), tmp_path)))
