"""llm_bench's reports, written by hand after its source: seconds of a call, milliseconds of its tokens."""

from __future__ import annotations

import json
import shutil

import pytest

from db.importers.openvino_llm_bench import PLUGIN
from db.importers.support.files import NoResultsError, read_file
from tests.helpers.left_out import left_out
from tests.helpers.paths import FIXTURES

FOLDER = FIXTURES / "imports/openvino_llm_bench"


def only_run(path):
    (run,) = PLUGIN.runs(read_file(path))
    return run


@pytest.fixture
def changed(tmp_path):
    """A function that writes the report with its iterations changed, and gives the path."""

    def write(change):
        report = json.loads((FOLDER / "report.json").read_text())
        report["perfdata"]["results"] = [change(dict(one)) for one in report["perfdata"]["results"]]
        (tmp_path / "report.json").write_text(json.dumps(report))
        return tmp_path / "report.json"

    return write


def test_a_call_takes_seconds_and_its_tokens_milliseconds():
    result, longer = only_run(FOLDER / "report.json").results
    samples = {(one.metric, one.phase): one.values for one in result.samples}
    assert samples["latency_wall", "measure"] == pytest.approx((800.0, 820.0, 840.0))
    assert samples["latency_wall", "warmup"] == pytest.approx((900.0,))
    assert samples["time_to_first_token", "measure"] == (50.0, 52.0, 54.0)
    expected = {
        "latency_median_ms": 820.0,
        "time_to_first_token_ms": 52.0,
        "time_per_output_token_ms": 41.0,
        "time_per_token_ms": 51.25,
        "decode_tokens_per_sec": 48.78049,
        "tokenize_ms": 0.7,
        "load_and_compile_s": 1.25,
        "memory_peak_rss_load_mb": 536.870912,
    }
    assert {name: result.metrics[name] for name in expected} == pytest.approx(expected)
    assert (result.point.label, longer.point.label) == ("b2 s32 n16", "b2 s128 n16")
    assert (result.iterations, result.warmup_iterations) == (3, 1)


def test_model_device_and_kind_of_weights_are_the_reports():
    run = only_run(FOLDER / "report.json")
    cell = run.cell
    assert (cell.workload.model_id, cell.device.selector, cell.runtime) == ("tiny-llama", "openvino:CPU", "openvino")
    assert (cell.precision, cell.runtime_mode["weights"]) == ("other", "OV_FP16-4BIT_DEFAULT")
    assert (run.started_at, run.finished_at) == ("2026-03-01T12:00:00+00:00", "2026-03-01T12:00:08.900000+00:00")
    assert [doubt.kind for doubt in run.results[0].doubts] == ["time_zone_unknown"]


def test_rows_of_averages_and_comments_in_the_csv_are_no_iterations():
    (result,) = only_run(FOLDER / "table.csv").results
    same = only_run(FOLDER / "report.json").results[0]
    assert result.samples[1].values == same.samples[1].values
    assert result.metrics["time_to_first_token_ms"] == 52.0
    assert "time_per_output_token_ms" not in result.metrics  # one of three iterations has NA


def test_joined_tables_and_rows_of_another_model_are_runs_of_their_own(tmp_path):
    text = (FOLDER / "table.csv").read_text()
    header, *rows = text.splitlines()
    others = [row.replace(",tiny-llama,ov,CPU,", ",other,ov,GPU,") for row in rows]
    warm = [row for row in rows if row.startswith("0,")]
    (tmp_path / "joined.csv").write_text("\n".join([text, *others, header, *rows, header, *warm]))
    with left_out("table 4: only warm-ups were run"):
        first, other, again = PLUGIN.runs(read_file(tmp_path / "joined.csv"))
    assert [run.cell.workload.model_id for run in (first, other, again)] == ["tiny-llama", "other", "tiny-llama"]
    assert [run.cell.device.selector for run in (first, other)] == ["openvino:CPU", "openvino:GPU"]
    assert {run.results[0].iterations for run in (first, other, again)} == {3}
    assert len({run.run_id for run in (first, other, again)}) == 3


def test_the_csv_is_left_to_the_json_of_its_run(tmp_path):
    shutil.copy(FOLDER / "table.csv", tmp_path / "a.csv")
    shutil.copy(FOLDER / "report.json", tmp_path / "a.json")
    with pytest.raises(NoResultsError, match=r"all its numbers are in a\.json"):
        only_run(tmp_path / "a.csv")
    report = (FOLDER / "report.json").read_text()
    (tmp_path / "a.json").write_text(report.replace('"generation_time": 0.82', '"generation_time": 0.81'))
    assert only_run(tmp_path / "a.csv").results, "a report of one name, of another run"


def test_a_step_of_an_image_is_not_a_token(changed):
    (result,) = only_run(changed(lambda one: {**one, "input_size": "", "output_size": ""})).results
    assert "time_to_first_token_ms" not in result.metrics
    assert (result.point.label, result.metrics["latency_median_ms"]) == ("b2", pytest.approx(1050.0))


def test_images_of_other_steps_and_prompts_are_other_points(changed):
    sizes = {"input_size": 12, "output_size": "", "latency": ""}
    images = only_run(changed(lambda one: {**one, **sizes, "infer_count": 4 + 16 * one["prompt_idx"]})).results
    assert [dict(result.point.axes) for result in images] == [{"steps": 4, "prompt": 0}, {"steps": 20, "prompt": 1}]
    (image,) = only_run(changed(lambda one: {**one, **sizes, "infer_count": 4, "prompt_idx": 0})).results
    assert dict(image.point.axes) == {"steps": 4}


def test_a_report_with_only_warm_ups_has_no_results(changed):
    with pytest.raises(NoResultsError, match=r"only warm-ups were run"):
        only_run(changed(lambda one: {**one, "iteration": 0}))


def test_an_invalid_time_is_reported_with_its_position(changed):
    with left_out(r"results\[0\]\.generation_time: expected a number, found 'fast'"):
        only_run(changed(lambda one: {**one, "generation_time": "fast"}))

    with left_out(r"results\[0\]\.input_size: expected a number"):
        only_run(changed(lambda one: one | {"input_size": [1]}))


def test_the_time_of_a_step_of_several_tokens_is_not_that_of_a_token():
    run = only_run(FOLDER / "speculative.json")
    (result,) = run.results
    each_ms = (2453.96 - 97.69024) / 127
    assert result.metrics["time_per_output_token_ms"] == pytest.approx(each_ms)
    assert result.metrics["decode_tokens_per_sec"] == pytest.approx(1000 / each_ms)
    assert result.metrics["second_infer_avg_latency_ms"] == 54.76905
    assert [doubt.evidence["steps"] for doubt in result.doubts if doubt.kind == "several_tokens_a_step"] == [44]
    assert run.cell.runtime_mode == {"engine": "llm_bench", "speculative_decoding": True}


def test_the_first_token_of_a_chat_is_stated_for_each_token_of_the_prompt():
    run = only_run(FOLDER / "chat.json")
    first, second = run.results
    assert (first.point.label, second.point.label) == ("b1 s40 n31", "b1 s10 n21")
    assert [one.metrics["time_to_first_token_ms"] for one in run.results] == [100.0, 50.0]
    assert first.metrics["first_infer_latency_ms"] == 90.0
    assert [one.metrics["time_per_output_token_ms"] for one in run.results] == [20.0, 20.0]
    assert run.cell.runtime_mode["chat"] is True
    assert first.metrics["memory_peak_rss_infer_mb"] == pytest.approx(1000 * 1.048576)


def test_the_latency_of_an_embedding_is_in_seconds_and_no_time_per_token(changed):
    (result,) = only_run(changed(lambda one: {**one, "input_size": 64, "output_size": "", "latency": 0.05})).results
    assert "time_per_token_ms" not in result.metrics
    assert (result.point.label, result.metrics["latency_median_ms"]) == ("b2 s32", pytest.approx(1050.0))
