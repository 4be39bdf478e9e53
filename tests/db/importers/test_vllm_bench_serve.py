"""vLLM's serving results, written by hand after its source, value by value, in all of their shapes."""

from __future__ import annotations

import json

import pytest

from db.importers.serving_clients import SERVE
from db.importers.support.files import NoResultsError, read_file
from db.importers.support.serving import Sent, requests_record
from db.warehouse import Warehouse
from tests.helpers.left_out import left_out
from tests.helpers.paths import FIXTURES

FOLDER = FIXTURES / "imports/vllm_bench_serve"


def runs_of(path):
    return list(SERVE.runs(read_file(path)))


@pytest.fixture
def changed(tmp_path):
    """A function that writes detailed.json with some fields changed (None takes one out) and gives its runs."""

    def write(**fields):
        data = {**json.loads((FOLDER / "detailed.json").read_text()), **fields}
        path = tmp_path / "changed.json"
        path.write_text(json.dumps({name: value for name, value in data.items() if value is not None}))
        return runs_of(path)

    return write


def test_each_value_of_a_detailed_result_is_imported():
    (run,) = runs_of(FOLDER / "detailed.json")
    (result,) = run.results
    assert result.metrics == pytest.approx(
        {
            "duration_s": 2.0,
            "total_input_tokens": 512,
            "total_output_tokens": 64,
            "throughput_samples_per_sec": 2.0,
            "throughput_tokens_per_sec": 32.0,
            "total_tokens_per_sec": 288.0,
            "max_output_tokens_per_sec": 40.0,
            "max_concurrent_requests": 2,
            "time_to_first_token_ms": 34.0,
            "mean_ttft_ms": 34.5,
            "std_ttft_ms": 3.8405728739343,
            "stated_time_to_first_token_p99_ms": 39.88,
            "time_per_output_token_ms": 6.733333333,
            "mean_tpot_ms": 6.7,
            "std_tpot_ms": 0.4932882862,
            "stated_time_per_output_token_p99_ms": 7.3213333,
            "mean_itl_ms": 6.8142857,
            "median_itl_ms": 6.9,
            "std_itl_ms": 0.66,
            "p99_itl_ms": 7.958,
            "std_e2el_ms": 11.180339887498949,
            "p99.9_e2el_ms": 149.97,
            "stated_latency_p99_ms": 149.7,
            "latency_mean_ms": 135.0,
            "latency_median_ms": 135.0,
            "latency_std_ms": 12.909944487358056,  # of 120, 130, 150, 140 with n - 1
            "latency_mad_ms": 10.0,
            "latency_min_ms": 120.0,
            "latency_p25_ms": 127.5,
            "latency_p75_ms": 142.5,
            "latency_max_ms": 150.0,
        }
    )
    assert (result.point.label, result.iterations) == ("b1 s128 n16 c2 num_prompts=4", 4)
    assert result.missing["latency_p99_ms"] == "too_few_samples"
    assert (run.cell.workload.model_id, run.cell.runtime, run.cell.runtime_mode) == (
        "demo/model",
        "server",
        {"endpoint": "vllm", "tp": 2, "loop": "closed"},
    )


@pytest.mark.parametrize(
    ("stated", "model_id", "revision"),
    [
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B", None),
        ("/root/.cache/huggingface/hub/models--Qwen--Qwen3-8B/snapshots/0123abcd", "Qwen/Qwen3-8B", "0123abcd"),
        ("C:\\hub\\models--gpt2\\snapshots\\0123abcd\\", "gpt2", "0123abcd"),
        ("/data/a/Qwen3-8B/", "/data/a/Qwen3-8B", None),
        ("./net", "net", None),
        ("/data/Qwen3-8B-Q4_K_M.gguf", "Qwen3-8B-Q4_K_M", None),
        ("/data/model/", "/data/model", None),
    ],
)
def test_a_model_has_the_name_and_revision_that_its_place_states(changed, stated, model_id, revision):
    (run,) = changed(model_id=stated)
    assert (run.cell.workload.model_id, run.cell.workload.revision) == (model_id, revision)


def test_raw_lists_are_samples_in_ms_and_chunk_gaps_are_not_token_latencies():
    (run,) = runs_of(FOLDER / "detailed.json")
    samples = {one.metric: one.values for one in run.results[0].samples}
    assert samples == {
        "latency_wall": pytest.approx((120, 130, 150, 140)),
        "time_to_first_token": pytest.approx((30, 32, 40, 36)),
        "inter_chunk_latency": pytest.approx((6, 6, 6.5, 7, 7.3, 6.9, 8)),
    }
    assert run.results[0].extra["kept"]["gaps_per_request"] == [2, 2, 1, 2]


def test_the_date_is_the_end_in_an_unknown_zone():
    (run,) = runs_of(FOLDER / "detailed.json")
    assert (run.started_at, run.finished_at) == ("2025-04-24T11:59:31+00:00", "2025-04-24T11:59:33+00:00")
    doubt = next(doubt for doubt in run.results[0].doubts if doubt.kind == "time_zone_unknown")
    assert doubt.evidence == {"stated": "20250424-115933", "read_as": "UTC"}


def test_other_fields_are_kept():
    (run,) = runs_of(FOLDER / "detailed.json")
    assert run.origin.kept["version"] == "0.8.4"
    assert run.origin.kept["generated_texts"] == ["a", "b", "c", "d"]
    assert run.provenance.tags == {"label": "nightly"}


def test_each_appended_result_is_a_run_and_an_unlimited_load_has_a_doubt():
    first, second, third = runs_of(FOLDER / "appended.json")
    assert first.results[0].point.axes == {"input_tokens_mean": 128, "num_prompts": 4, "request_rate": 8.0}
    assert {doubt.kind for doubt in first.results[0].doubts} == {
        "time_zone_unknown",
        "concurrency_unlimited",
        "engine_not_stated",
        "failed_requests",
        "latency_from_sending",
    }
    assert first.results[0].validity == "invalid"
    assert (second.results[0].point.concurrency, second.results[0].point.axes["request_rate"]) == (1, 16.0)
    assert len({first.run_id, second.run_id, third.run_id}) == 3


@pytest.mark.parametrize(
    ("duration", "peak", "is_possible"),
    [(2.0, 40.0, True), (2.0, 22.0, True), (2.0, 20.0, False), (0.6, 20.0, True), (0.6, 18.0, False)],
)
def test_a_peak_of_whole_seconds_may_be_below_the_mean_of_a_short_load(changed, duration, peak, is_possible):
    (run,) = changed(duration=duration, max_output_tokens_per_s=peak)
    assert ("peak_below_mean" not in {doubt.kind for doubt in run.results[0].doubts}) == is_possible


def test_the_peak_of_pieces_of_several_tokens_is_left_out_without_a_doubt(changed):
    (run,) = changed(duration=32.6, max_output_tokens_per_s=0.5, spec_decode_acceptance_rate=72.0)
    (result,) = run.results
    assert "max_output_tokens_per_sec" not in result.metrics
    assert result.missing["max_output_tokens_per_sec"].startswith("left_out: 0.5 in the file counts pieces")
    assert "peak_below_mean" not in {doubt.kind for doubt in result.doubts}


def test_a_zero_first_token_time_is_not_a_measurement():
    result = runs_of(FOLDER / "appended.json")[1].results[0]
    assert "time_to_first_token_ms" not in result.metrics
    assert result.missing["time_to_first_token_ms"].startswith("left_out: 0 in the file")
    assert "first_token_not_counted" in [doubt.kind for doubt in result.doubts]


def test_a_load_without_a_successful_request_is_a_failed_result():
    run = runs_of(FOLDER / "appended.json")[2]
    assert (run.status, run.results[0].error) == ("failed", "none of 4 requests succeeded")


def test_latencies_that_a_script_kept_without_counts_are_read_and_no_failure_is_claimed(tmp_path):
    kept = {"model_id": "m", "num_prompts": 200, "request_rate": "inf", "median_ttft_ms": 103.9, "p99_ttft_ms": 165.5}
    path = tmp_path / "serving_qps_inf.json"
    path.write_text(json.dumps(kept))
    (run,) = runs_of(path)
    (result,) = run.results
    assert (result.status, result.iterations) == ("ok", None)
    assert result.metrics["time_to_first_token_ms"] == 103.9
    assert {doubt.kind for doubt in result.doubts} == {"engine_not_stated", "undated", "concurrency_unlimited"}
    path.write_text(json.dumps({**kept, "completed": 150}))
    (run,) = runs_of(path)
    (failures,) = [doubt.evidence for doubt in run.results[0].doubts if doubt.kind == "failed_requests"]
    assert failures["failed_requests"] == 50


def test_failed_requests_have_no_samples(changed):
    (run,) = changed(errors=["", "timeout", "", ""], failed=1, completed=3, total_input_tokens=384)
    samples = {one.metric: one.values for one in run.results[0].samples}
    assert samples["latency_wall"] == pytest.approx((120, 150, 140))
    assert run.results[0].extra["kept"]["errors"] == ["", "timeout", "", ""]


def test_with_failures_but_without_errors_the_lists_are_kept_unread(changed):
    (run,) = changed(errors=None, failed=1, completed=3)
    assert run.results[0].samples == ()
    assert run.origin.kept["latencies"] == [0.12, 0.13, 0.15, 0.14]


def of_a_rate(number=200, first_s=0.1, rise_s=0.0, **fields):
    """A load at 20 requests/s: each takes a second after its first token, which comes the later the longer it lasts."""
    firsts = [first_s + rise_s * place for place in range(number)]
    shared = {"num_prompts": number, "completed": number, "request_rate": 20.0, "max_concurrency": None}
    lists = {"input_lens": [8] * number, "output_lens": [2] * number, "errors": [""] * number, "itls": [[1.0]] * number}
    starts = {"start_times": [place / 20 for place in range(number)], "queue_times": [0.0] * number}
    shared["request_throughput"] = number / (number / 20 + 1 + firsts[-1])
    return {**shared, **lists, **starts, "ttfts": firsts, "latencies": [1 + one for one in firsts], **fields}


@pytest.mark.parametrize(
    ("load", "kinds"),
    [
        (of_a_rate(), set()),
        (of_a_rate(rise_s=0.01), {"over_saturated"}),
        (of_a_rate(queue_times=[0.0] * 180 + [0.01] * 20), {"late_generator"}),  # in the client
        (of_a_rate(request_rate=30.0), {"rate_not_achieved"}),
        (of_a_rate(request_rate=24.0), set()),  # Poisson arrivals of 200 requests may be so much rarer by chance
        (of_a_rate(request_rate=24.0, burstiness=100.0), {"rate_not_achieved"}),  # almost constant ones may not
        (of_a_rate(rise_s=0.01, request_rate="inf"), set()),  # all at once: no rate is asked for
    ],
)
def test_the_rules_of_our_own_loads_apply_to_a_load_at_a_rate(load, kinds, changed):
    (run,) = changed(**load)
    (result,) = run.results
    assert {doubt.kind for doubt in result.doubts if doubt.severity == "invalid"} == kinds
    assert result.validity == ("invalid" if kinds else "valid")
    assert len(result.requests[0]) == 200


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"date": "yesterday"}, r"date: expected a time such as 20260424-115933, found 'yesterday'"),
        ({"median_ttft_ms": "fast"}, r"median_ttft_ms: expected a number, found 'fast'"),
        ({"latencies": [0.1, None]}, r"latencies\[1\]: expected a number, found None"),
        ({"itls": [["x"]]}, r"itls\[0\]\[0\]: expected a number, found 'x'"),
        ({"num_prompts": 0}, r"num_prompts: expected a whole number from 1"),
    ],
)
def test_an_invalid_value_is_one_line_with_its_place(changed, fields, message):
    with left_out(rf"changed\.json: {message}"):
        changed(**fields)


SWEEP = FIXTURES / "import_folders/vllm_sweep"


def test_varied_parameters_of_a_sweep_are_part_of_the_series():
    runs = runs_of(FOLDER / "summary.csv")
    assert [run.results[0].point.axes["max_num_seqs"] for run in runs] == [16, 16, 32, 32, 32, 32]
    assert [run.results[0].point.concurrency for run in runs] == [2, 2, 2, 2, 4, 4]
    varied = {"benchmark_name": "eager", "enforce_eager": True}
    assert runs[0].cell.runtime_mode == {"endpoint": "vllm", **varied, "loop": "closed"}
    assert [run.results[0].metrics["throughput_samples_per_sec"] for run in runs[:2]] == [3.0, 3.1]


def test_a_combinations_summary_has_the_same_loads_as_the_table():
    loads, rows = runs_of(FOLDER / "summary.json"), runs_of(FOLDER / "summary.csv")[2:4]
    assert [run.results[0].point for run in loads] == [run.results[0].point for run in rows]
    assert [run.results[0].metrics for run in loads] == [run.results[0].metrics for run in rows]
    assert [run.cell for run in loads] == [run.cell for run in rows]


def test_each_run_in_a_sweeps_folder_is_read_once():
    outcome = {}
    for path in sorted(path for path in SWEEP.rglob("*") if path.is_file()):
        try:
            outcome[path.name] = len(runs_of(path))
        except NoResultsError as error:
            outcome[path.name] = str(error).removeprefix(f"{path}: ")
    once = "summary of a sweep: each run has its own file, run=N.json"
    assert outcome == {
        "run=0.json": 1,
        "run=1.json": 1,
        "run=2.failure.json": "failed run of a sweep: 'RuntimeError': 'server is gone'",
        "summary.csv": once,
        "summary.json": once,
        "warmup.json": "warm-up of a sweep",
    }


def test_a_run_of_a_sweep_without_its_own_file_is_read_from_the_summary(tmp_path):
    (folder,) = {path.parent for path in SWEEP.rglob("run=1.json")}
    for name in ("summary.json", "run=0.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    loads = json.loads((tmp_path / "summary.json").read_text())
    assert len(runs_of(tmp_path / "summary.json")) == len(loads) - 1
    (tmp_path / "run=0.json").write_bytes((folder / "run=0.json").read_bytes()[:100])  # the disk was full
    assert len(runs_of(tmp_path / "summary.json")) == len(loads)
    (tmp_path / "run=0.json").unlink()
    assert len(runs_of(tmp_path / "summary.json")) == len(loads)


def test_the_intended_start_of_a_request_in_a_closed_loop_is_the_actual_one(changed):
    (run,) = changed()
    (requests,) = run.results[0].requests
    assert requests.started_at == run.started_at
    assert requests.intended_ms == requests.sent_ms == pytest.approx((0.0, 10.0, 130.0, 150.0))
    assert requests.first_token_ms == pytest.approx((30.0, 42.0, 170.0, 186.0))
    assert requests.end_ms == pytest.approx((120.0, 140.0, 280.0, 290.0))
    assert requests.token_ms[0] == pytest.approx((30.0, 36.0, 42.0))
    assert (requests.tokens_in[0], requests.tokens_out[0], requests.error[0]) == (128, 16, None)


def test_in_an_open_loop_a_wait_in_the_client_is_part_of_the_latency(changed):
    (run,) = changed(request_rate=10.0, errors=["", "", "", "Bad Gateway"], failed=1, completed=3)
    (requests,) = run.results[0].requests
    assert run.cell.runtime_mode == {"endpoint": "vllm", "tp": 2, "loop": "open", "arrivals": "poisson"}
    assert requests.intended_ms == pytest.approx((0.0, 10.0, 30.0, 50.0))
    assert requests.sent_ms == pytest.approx((0.0, 10.0, 130.0, 150.0))
    assert (requests.error[3], requests.detail[3], requests.tokens_out[3]) == ("failed", "Bad Gateway", None)


def test_the_end_of_a_long_error_has_no_part_of_a_secret(changed):
    token = "hf_" + "AbCdEfGhJkLzXcVbNm12345678QwErTyUi"
    (run,) = changed(errors=["", "", "", f"args: {token} " + "x" * 180], failed=1, completed=3)
    assert run.results[0].requests[0].detail[3] == "args: *** " + "x" * 180


def test_a_detailed_file_of_the_client_itself_has_no_latencies_but_what_adds_up_to_them(tmp_path):
    lists = {
        "input_lens": [100, 100, 100],
        "output_lens": [3, 2, 0],
        "ttfts": [0.125, 0.25, 0.0],
        "itls": [[0.0625, 0.0625], [0.5], []],
        "start_times": [10.0, 10.5, 11.0],
        "generated_texts": ["", "", ""],
        "errors": ["", "", "Bad Gateway"],
    }
    load = {"model_id": "demo", "num_prompts": 3, "completed": 2, "failed": 1, "duration": 2.0, "max_concurrency": 2}
    load |= {"request_rate": "inf", "request_throughput": 1.0, "output_throughput": 2.5, "median_ttft_ms": 187.5}
    (tmp_path / "detailed.json").write_text(json.dumps(load | lists))
    (run,) = SERVE.runs(read_file(tmp_path / "detailed.json"))
    (result,) = run.results
    assert {one.metric: list(one.values) for one in result.samples if one.metric != "inter_chunk_latency"} == {
        "latency_wall": [250, 750],
        "time_to_first_token": [125, 250],
    }
    assert result.metrics["latency_mean_ms"] == 500
    (requests,) = result.requests
    assert (requests.sent_ms, requests.end_ms) == ((0, 500, 1000), (250, 1250, None))
    assert (requests.tokens_out, requests.error) == ((3, 2, None), (None, None, "failed"))


def test_a_request_without_a_first_token_takes_no_other_with_it(tmp_path):
    lists = {"input_lens": [8, 8, 8], "output_lens": [3, 0, 2], "ttfts": [0.125, 0.0, 0.25]}
    lists |= {"itls": [[0.0625, 0.0625], [], [0.5]], "start_times": [10.0, 10.5, 11.0], "errors": ["", "", ""]}
    load = {"model_id": "demo", "num_prompts": 3, "completed": 3, "duration": 2.0, "request_rate": "inf"}
    load |= {"request_throughput": 1.5, "max_concurrency": 3}
    (tmp_path / "detailed.json").write_text(json.dumps(load | lists))
    (run,) = SERVE.runs(read_file(tmp_path / "detailed.json"))
    (requests,) = run.results[0].requests
    assert (requests.sent_ms, requests.end_ms) == ((0, 500, 1000), (250, None, 1750))


@pytest.mark.parametrize(
    ("name", "value"),
    [("input_lens", -5), ("output_lens", 1e30), ("output_lens", 16.5), ("ttfts", -1), ("itls", [-0.1])],
)
def test_a_request_with_a_number_that_cannot_be_is_left_out_alone(name, value, tmp_path):
    data = json.loads((FOLDER / "detailed.json").read_text())
    data[name] = [value, *data[name][1:]]
    (tmp_path / "changed.json").write_text(json.dumps(data))
    file = read_file(tmp_path / "changed.json")
    with Warehouse.open(tmp_path / "a.duckdb") as warehouse:
        (run,) = SERVE.runs(file)
        warehouse.ingest(run)
    (requests,) = run.results[0].requests
    whole = name == "itls"  # the first request then has no latencies, but its lengths
    assert len(requests.intended_ms) == (4 if whole else 3)
    assert [one.place.partition("[")[0] for one in file.left_out] == [name]


def test_a_negative_statistic_is_left_out_and_named(tmp_path):
    data = json.loads((FOLDER / "detailed.json").read_text()) | {"mean_ttft_ms": -5.0, "output_throughput": -1.0}
    (tmp_path / "changed.json").write_text(json.dumps(data))
    file = read_file(tmp_path / "changed.json")
    (run,) = SERVE.runs(file)
    assert {"mean_ttft_ms", "throughput_tokens_per_sec"}.isdisjoint(run.results[0].metrics)
    assert [one.text for one in file.left_out] == [
        "output_throughput: expected a number from 0, found -1.0",
        "mean_ttft_ms: expected a number from 0, found -5.0",
    ]
    assert run.results[0].missing["throughput_tokens_per_sec"].startswith("left_out: output_throughput")


def test_outputs_before_a_request_was_sent_are_unknown():
    times = {"first_s": 1.0, "tokens_s": (1.0, 3.0), "end_s": 3.0}
    (requests,) = requests_record(
        [Sent(intended_s=2.0, sent_s=2.0, **times), Sent(intended_s=0.0, sent_s=0.0, **times)]
    )
    assert (requests.first_token_ms, requests.end_ms) == ((1000.0, None), (3000.0, None))
    assert requests.token_ms == ((1000.0, 3000.0), ())


RAMP = {"ramp_up_strategy": "linear", "ramp_up_start_rps": 1, "ramp_up_end_rps": 10}


def test_a_rate_that_rises_is_another_load_than_requests_at_once(changed):
    (rising,) = changed(request_rate="inf", max_concurrency=None, **RAMP)
    (at_once,) = changed(request_rate="inf", max_concurrency=None)
    ramp = {"ramp_up": "linear from 1 to 10 requests/s", "arrivals": "poisson"}
    assert rising.cell.runtime_mode == {**at_once.cell.runtime_mode, **ramp}
    (doubt,) = (one for one in rising.results[0].doubts if one.kind == "varying_rate")
    assert doubt.evidence == {"arrivals": "linear from 1 to 10 requests/s"}
    assert "varying_rate" not in [one.kind for one in at_once.results[0].doubts]


def test_the_goodput_of_older_versions_has_a_colon_in_its_name(changed):
    (run,) = changed(**{"request_goodput:": 1.5})
    assert run.results[0].metrics["request_goodput_per_sec"] == 1.5


@pytest.mark.parametrize("endpoint", ["openai-embeddings", "vllm-pooling", "vllm-rerank"])
def test_older_files_of_embeddings_have_their_task_from_the_request_function(changed, endpoint):
    (run,) = changed(backend=None, endpoint_type=endpoint, total_output_tokens=None, output_throughput=None)
    assert run.cell.workload.task == "feature-extraction"


def test_the_absolute_times_of_a_load_count_and_not_its_local_date(changed):
    times = {"benchmark_start_time_unix": 1781129194.5, "benchmark_end_time_unix": 1781129269.25}
    (run,) = changed(date="20260611-070749", **times)  # of a client nine hours ahead
    assert (run.started_at, run.finished_at) == ("2026-06-10T22:06:34.500000+00:00", "2026-06-10T22:07:49.250000+00:00")
    assert "time_zone_unknown" not in [doubt.kind for doubt in run.results[0].doubts]
    assert run.origin.kept["date"] == "20260611-070749"
