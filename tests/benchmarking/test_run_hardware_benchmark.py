"""The main command end to end on the null device: exact numbers, faults, and stored results."""

from __future__ import annotations

import json

import pytest

from benchmarking.run_hardware_benchmark import main
from db.warehouse import Warehouse

NULL = ["--model-id", "tiny-bert", "--device", "null", "--quiet"]


pytestmark = [pytest.mark.forked_children, pytest.mark.usefixtures("empty_working_folder")]


def run_json(capsys, *arguments):
    code = main([*NULL, "--json", *arguments])
    (run,) = json.loads(capsys.readouterr().out)
    return code, run


def by_label(run):
    return {"b{batch_size} s{sequence_length}".format(**result["point"]): result for result in run["results"]}


def raw(result, metric="latency_wall", phase="measure"):
    return [s["values"] for s in result["samples"] if (s["metric"], s["phase"]) == (metric, phase)]


def test_fixed_iterations_give_the_scripted_numbers(capsys, null_script):
    null_script(latency_ms={"*": [9.0, 2.0, 4.0, 6.0, 8.0, 10.0]})
    arguments = ["--batch-sizes", "2", "--sequence-lengths", "32", "--iterations", "5", "--warmup-iterations", "0"]
    code, run = run_json(capsys, *arguments, "--launches", "3")
    (result,) = run["results"]
    metrics = result["metrics"]
    assert code == 0
    assert raw(result) == [[2.0, 4.0, 6.0, 8.0, 10.0]] * 3
    assert metrics["first_call_ms"] == 9.0
    assert metrics["latency_median_ms"] == metrics["latency_mean_ms"] == 6.0
    assert (metrics["latency_min_ms"], metrics["latency_max_ms"]) == (2.0, 10.0)
    assert metrics["throughput_samples_per_sec"] == pytest.approx(2 * 5 / 0.030)
    assert metrics["throughput_tokens_per_sec"] == pytest.approx(2 * 32 * 5 / 0.030)
    assert result["missing"]["latency_p90_ms"] == "too_few_samples"
    assert (result["launches"], result["iterations"], result["stop_reason"]) == (3, 15, "fixed")


def test_the_results_of_a_script_are_said_to_be_simulated(capsys):
    assert main([*NULL, "--batch-sizes", "1", "--sequence-lengths", "32", "--iterations", "3"]) == 0
    assert "simulated: the numbers come from a script or an emulator, not from a device" in capsys.readouterr().out


def test_generation_splits_into_first_and_further_tokens(capsys, null_script):
    null_script(latency_ms={"*": [20.0, 22.0, 18.0]})
    arguments = ["--model-id", "tiny-gpt2", "--batch-sizes", "2", "--sequence-lengths", "32", "--new-tokens", "5"]
    _, run = run_json(capsys, *arguments, "--iterations", "3", "--warmup-iterations", "2", "--launches", "1")
    (result,) = run["results"]
    metrics = result["metrics"]
    assert raw(result) == [[20.0, 22.0, 18.0]]
    assert raw(result, "time_to_first_token") == [[10.0, 11.0, 9.0]]
    assert raw(result, "inter_token_latency") == [[2.5] * 4 + [2.75] * 4 + [2.25] * 4]
    assert metrics["time_to_first_token_ms"] == 10.0
    assert metrics["time_per_output_token_ms"] == 2.5
    assert metrics["prefill_tokens_per_sec"] == pytest.approx(2 * 32 / 0.010)
    assert metrics["decode_tokens_per_sec"] == pytest.approx(2 * 4 / 0.010)


def test_percentiles_of_few_calls_are_pooled_and_tokenizing_has_samples(capsys, null_script):
    null_script(latency_ms={"*": [float(ms) for ms in range(20, 40, 2)]}, tokenize_ms=[1.0, 3.0, 2.5])
    arguments = ["--model-id", "tiny-gpt2", "--batch-sizes", "1", "--sequence-lengths", "32", "--new-tokens", "2"]
    _, run = run_json(capsys, *arguments, "--iterations", "10", "--warmup-iterations", "0", "--launches", "3")
    (result,) = run["results"]
    metrics = result["metrics"]
    # Each launch has the calls 20, 22, ..., 38, half of each for the first token and half for the second; all together
    # have each three times. The 90th percentile is at place 26.1 of 0..29, between the ninth and the tenth value.
    assert metrics["latency_p90_ms"] == pytest.approx(36.2)
    for name, median in (("time_to_first_token", ""), ("time_per_output_token", ""), ("inter_token_latency", "_p50")):
        assert metrics[f"{name}{median}_ms"] == pytest.approx(14.5)
        assert metrics[f"{name}_p90_ms"] == pytest.approx(18.1)
        assert metrics[f"{name}_ci_low_ms"] == metrics[f"{name}_ci_high_ms"] == pytest.approx(14.5)
        assert result["missing"][f"{name}_p99_ms"] == "too_few_samples"
    assert result["pooled_quantiles"] == [
        "latency_p90_ms",
        "time_to_first_token_p90_ms",
        "time_per_output_token_p90_ms",
        "inter_token_latency_p90_ms",
    ]
    assert raw(result, "tokenize") == [[1.0, 3.0, 2.5]] * 3
    assert (metrics["tokenize_ms"], metrics["total_ms"]) == (2.5, 31.5)


def test_cold_cache_calls_are_a_separate_series(capsys):
    arguments = ["--model-id", "tiny-bert", "--device", "cpu", "--batch-sizes", "1", "--sequence-lengths", "8"]
    few = ["--iterations", "3", "--warmup-iterations", "0", "--launches", "1", "--save", "--quiet"]
    for further in ((), ("--cold-cache",)):
        assert main([*arguments, *few, *further]) == 0
    capsys.readouterr()
    with Warehouse.open("benchmark_db.duckdb") as warehouse:
        rows = warehouse.query(
            "SELECT series_id, json_extract_string(runtime_mode, '$.cold_cache') AS cold,"
            " json_extract(extra, '$.launches[0].cold_cache_bytes') AS bytes, missing['host_gap_ms'] AS why"
            " FROM all_results ORDER BY cold"
        ).dicts()
    assert len({row["series_id"] for row in rows}) == 2
    assert [row["cold"] for row in rows] == ["true", None]
    assert int(rows[0]["bytes"]) > 0
    assert all(row["why"].startswith("not_applicable") for row in rows)


def test_devices_without_a_cache_flush_are_errors_before_anything_runs(capsys):
    assert main([*NULL, "--cold-cache"]) == 2
    assert "--cold-cache: the cache of null cannot be flushed under runtime null" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("fault", "status", "error"),
    [
        ("raise", "failed", "RuntimeError: scripted: the call raised"),
        ("oom", "failed", "scripted: out of memory"),
        ("lost", "failed", "RuntimeError: scripted: CUDA error: device-side assert triggered"),
        ("exit", "failed", "ended with exit code 3"),
        ("kill", "failed", "killed by SIGKILL"),
        ("hang", "timed_out", "not finished within the time limit of 2 s"),
    ],
)
def test_a_failed_point_is_recorded_and_the_sweep_continues(capsys, null_script, fault, status, error):
    null_script(faults={"b2 s32": fault})
    arguments = ["--batch-sizes", "1,2,4", "--sequence-lengths", "32", "--profile", "quick", "--timeout", "2"]
    code, run = run_json(capsys, *arguments, "--launches", "2")
    results = by_label(run)
    assert code == 1
    assert {label: result["status"] for label, result in results.items()} == {
        "b1 s32": "ok",
        "b2 s32": status,
        "b4 s32": "ok",
    }
    assert error in results["b2 s32"]["error"]
    assert error in run["error"]
    assert run["error"].startswith("1 of 3 points failed; b2 s32: ")
    assert results["b2 s32"]["metrics"] == {}
    assert results["b4 s32"]["launches"] == 2


def test_a_failed_launch_among_good_ones_leaves_a_doubt(capsys, null_script):
    null_script(faults={"b1 s32": "raise"}, fault_launches=[1])
    code, run = run_json(
        capsys, "--batch-sizes", "1", "--sequence-lengths", "32", "--profile", "quick", "--launches", "3"
    )
    (result,) = run["results"]
    assert code == 1
    assert (result["status"], result["launches"]) == ("ok", 2)
    assert "launch_failed" in [doubt["kind"] for doubt in result["doubts"]]


@pytest.mark.parametrize("fault", ["raise", "oom", "kill", "hang"])
def test_a_failed_load_fails_every_point_with_its_reason(capsys, null_script, fault):
    null_script(faults={"load": fault})
    arguments = ["--batch-sizes", "1,2", "--sequence-lengths", "32", "--profile", "quick", "--timeout", "2"]
    code, run = run_json(capsys, *arguments)
    assert code == 1
    assert run["status"] == ("timed_out" if fault == "hang" else "failed")
    assert all(result["error"] for result in run["results"])


def test_nan_outputs_make_a_result_invalid(capsys, null_script):
    null_script(faults={"b1 s32": "nan"})
    _, run = run_json(capsys, "--batch-sizes", "1", "--sequence-lengths", "32", "--profile", "quick")
    (result,) = run["results"]
    assert result["validity"] == "invalid"


def test_wrong_token_counts_fail_the_point(capsys, null_script):
    null_script(faults={"b1 s32 n4": "tokens"})
    arguments = ["--model-id", "tiny-gpt2", "--batch-sizes", "1", "--sequence-lengths", "32", "--new-tokens", "4"]
    code, run = run_json(capsys, *arguments, "--profile", "quick")
    assert code == 1
    assert "token" in run["results"][0]["error"]


def test_load_stages_are_stored(capsys, null_script):
    null_script(load_s={"weights_read": 1.5, "to_device": 0.25})
    _, run = run_json(capsys, "--batch-sizes", "1", "--sequence-lengths", "32", "--profile", "quick")
    stages = run["loads"][0]["stages_s"]
    assert (stages["weights_read"], stages["to_device"]) == (1.5, 0.25)
    assert stages["spawn"] > 0


def test_results_without_save_leave_nothing_behind(capsys, tmp_path):
    code, _ = run_json(capsys, "--batch-sizes", "1", "--sequence-lengths", "32", "--profile", "quick")
    assert code == 0
    assert list(tmp_path.iterdir()) == []


def test_save_spools_and_stores_the_same_run(capsys, tmp_path):
    from db.warehouse import Warehouse

    arguments = ["--batch-sizes", "1,2", "--sequence-lengths", "32", "--profile", "quick", "--save"]
    code, run = run_json(capsys, *arguments, "--tag", "suite=nightly", "--description", "a try")
    (path,) = (tmp_path / "benchmark_results").glob("tiny-bert_null_null_float32_*.json")
    assert code == 0
    assert json.loads(path.read_text()) == run
    with Warehouse.open(tmp_path / "benchmark_db.duckdb") as warehouse:
        rows = warehouse.query("select count(*) as n, min(tags['suite']) as suite from benchmark_runs").df()
        results = warehouse.query("select latency_median_ms from benchmark_results order by batch_size").df()
    assert (rows.n[0], rows.suite[0]) == (1, "nightly")
    assert list(results.latency_median_ms) == [result["metrics"]["latency_median_ms"] for result in run["results"]]


def test_results_are_stored_from_a_folder_and_in_a_database_whose_names_begin_with_a_dash(capsys, tmp_path):
    arguments = ["--batch-sizes", "1", "--sequence-lengths", "32", "--iterations", "3", "--save"]
    assert run_json(capsys, *arguments, "--output-dir=-runs", "--db-path=-b.duckdb")[0] == 0
    assert len(list((tmp_path / "-runs").glob("*.json"))) == 1
    with Warehouse.open(tmp_path / "-b.duckdb", read_only=True) as warehouse:
        assert len(warehouse.query("SELECT run_id FROM benchmark_runs").dicts()) == 1


def test_the_table_shows_points_and_doubts(capsys, null_script):
    null_script(faults={"b1 s32": "nan", "b4 s32": "raise"})
    code = main([*NULL, "--batch-sizes", "1,2,4", "--sequence-lengths", "32", "--profile", "quick"])
    out = capsys.readouterr().out
    assert code == 1
    assert "median ms" in out
    assert any(line.endswith("  invalid") for line in out.splitlines())
    assert "b4 s32: failed: RuntimeError: scripted: the call raised" in out


def test_dry_run_prints_the_plan_and_measures_nothing(capsys, tmp_path):
    assert main([*NULL, "--dry-run", "--save"]) == 0
    out = capsys.readouterr().out
    assert "tiny-bert (encoder-only, feature-extraction, random weights)" in out
    assert "b8 s512" in out
    assert list(tmp_path.iterdir()) == []


def test_the_options_of_a_runtime_are_in_its_mode(capsys):
    grid = ["--batch-sizes", "1", "--sequence-lengths", "8"]
    options = ["--attention", "eager", "--cache", "static"]
    assert main(["--model-id", "tiny-gpt2", "--device", "cpu", *grid, *options, "--dry-run", "--json"]) == 0
    (plan,) = json.loads(capsys.readouterr().out)
    assert plan["cell"]["runtime_mode"] == {"attention": "eager", "cache": "static"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "MODEL is missing"),
        (["--model-id", "bert-bas-uncased"], "bert-base-uncased"),
        (["--model-id", "tiny-bert", "--device", "nul"], "null"),
        (["--model-id", "tiny-bert", "--device", "cuda:97"], "cuda"),
        (["--model-id", "tiny-bert", "--runtime", "eagre"], "did you mean eager"),
        (["--model-id", "tiny-bert", "--batch-sizes", "0"], "--batch-sizes: takes a whole number from 1: got '0'"),
        (["--model-id", "tiny-bert", "--batch-sizes", "-1"], "--batch-sizes"),
        (["--model-id", "tiny-bert", "--batch-sizes", "2147483648"], "takes a whole number up to 2147483647"),
        (["--model-id", "tiny-bert", "--timeout", "1e300"], "takes seconds above 0, such as 90 or 2m, up to 1e+09"),
        (["--model-id", "tiny-bert", "--audio-seconds", "1e300"], "takes numbers above 0, up to 1e+15: got '1e300'"),
        (["--model-id", "tiny-bert", "--batch-sizes", "two"], "takes whole numbers: got 'two'"),
        (["--model-id", "tiny-bert", "--batch-sizes", ","], "the list is empty"),
        (["--model-id", "tiny-bert", "--sequence-lengths", "1,x"], "--sequence-lengths"),
        (["--model-id", "tiny-bert", "--device", "null", "--sequence-lengths", "99999"], "b1 s99999"),
        (["--model-id", "tiny-bert", "--new-tokens", "4"], "does not generate"),
        (["--model-id", "RWKV/rwkv-4-169m-pile", "--batch-sizes", "1,2"], "point b2 s128 n16: batch size 2: "),
        (
            ["--model-id", "tiny-gpt2", "--device", "cpu", "--cache", "big"],
            "cache 'big': runtime eager has",
        ),
        (["--model-id", "tiny-bert", "--device", "cpu", "--cache", "static"], "no option 'cache'"),
        (["--model-id", "tiny-bert", "--precision", "int3"], "--precision"),
        (["--model-id", "tiny-bert", "--iterations", "0"], "--iterations"),
        (["--model-id", "tiny-bert", "--timeout", "nan"], "takes seconds above 0"),
        (["--model-id", "tiny-bert", "--tag", "novalue"], "takes key=value"),
        (["--model-id", "tiny-bert", "--device", "null", "--attention", "sdpa"], "no option 'attention'"),
        (["--resume"], "no unfinished run"),
        (["--resume", "--dry-run"], "--resume continues saved runs: remove --dry-run"),
        (["--colour"], "unknown flag --colour"),
    ],
)
def test_usage_errors_are_one_line_and_exit_code_2(capsys, arguments, message):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_a_file_as_output_folder_is_one_clear_line(capsys, tmp_path):
    (tmp_path / "taken").write_text("")
    assert main([*NULL, "--save", "--output-dir", "taken"]) == 2
    err = capsys.readouterr().err
    assert "--output-dir: takes a folder: taken is a file" in err
    assert err.count("\n") == 1


def test_files_that_are_no_database_are_errors_before_measuring(capsys, tmp_path):
    (tmp_path / "notes.txt").write_text("not a database, but long enough to be looked at " * 100)
    code = main([*NULL, "--save", "--db-path", "notes.txt"])
    err = capsys.readouterr().err
    assert code == 1
    assert "notes.txt" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "benchmark_results").exists()
