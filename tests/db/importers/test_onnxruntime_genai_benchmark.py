"""onnxruntime-genai's benchmark_e2e.py, written by hand after its source: one mean for each number."""

from __future__ import annotations

import json
import shutil

import pytest

from benchmarking.core.errors import FormatError
from db.importers.onnxruntime_benchmarks import GENAI
from db.importers.support.building import is_unnamed
from db.importers.support.files import NoResultsError, read_file
from tests.helpers.left_out import left_out
from tests.helpers.paths import FIXTURES

FOLDER = FIXTURES / "imports/onnxruntime_genai_benchmark"


def only_run(path):
    (run,) = GENAI.runs(read_file(path))
    return run


@pytest.mark.parametrize("name", ["records.json", "genai_e2e.csv"])
def test_records_are_points_of_one_run(name):
    run = only_run(FOLDER / name)
    first, larger = run.results
    assert first.metrics == pytest.approx(
        {
            "latency_mean_ms": 1600.0,
            "prompt_processing_mean_ms": 20.0,
            "prefill_tokens_per_sec": 6400.0,
            "time_per_output_token_mean_ms": 10.0,
            "decode_tokens_per_sec": 100.0,
            "tokenize_mean_ms": 0.8,
            "tokenize_tokens_per_sec": 160000.0,
            "sampling_mean_ms": 0.2,
            "sampling_tokens_per_sec": 5000.0,
            "total_tokens_per_sec": 160.0,
            "gpu_memory_peak_mb": 2.5 * 1073.741824,
        }
    )
    assert (first.point.label, larger.point.label) == ("b1 s128 n128", "b4 s128 n128")
    assert (run.cell.workload.model_id, run.cell.runtime) == ("phi-3-mini", "onnxruntime-genai")
    assert (run.cell.precision, run.cell.device.type) == ("int4", "cuda")
    assert run.provenance.versions == {"onnxruntime-genai-cuda": "0.9.2"}


def test_a_line_for_each_quantity_is_read_and_the_time_of_a_prompt_token_is_not_the_prompts():
    run = only_run(FOLDER / "first_versions.csv")
    (result,) = run.results
    assert result.point.label == "b1 s16 n150"
    assert is_unnamed(run.cell.workload.model_id)
    assert result.metrics["prompt_processing_mean_ms"] == pytest.approx(16 * 53.31430000001092)
    assert result.metrics["prefill_tokens_per_sec"] == 18.756693795094286
    assert result.metrics["latency_mean_ms"] == pytest.approx(22110.735177993774)
    assert result.metrics["time_per_output_token_mean_ms"] == 142.19924563757553


def test_a_table_without_models_has_the_same_numbers():
    first, second = only_run(FOLDER / "first_table.csv").results
    assert [one.metrics["prompt_processing_mean_ms"] for one in (first, second)] == [20.0, 25.0]
    assert (second.point.label, second.metrics["total_tokens_per_sec"]) == ("b2 s16 n128", 177.231)
    assert first.metrics["gpu_memory_peak_mb"] == pytest.approx(4.04 * 1073.741824)


def test_tokens_that_were_never_generated_are_not_counted():
    _, result = only_run(FOLDER / "records.json").results  # its max_length is 512
    assert "total_tokens_per_sec" not in result.metrics
    assert result.missing["total_tokens_per_sec"].startswith("the file counts max_length tokens")
    assert result.extra["kept"]["max_length"] == 512


def test_the_repetitions_in_the_file_are_only_kept():
    run = only_run(FOLDER / "records.json")
    assert [one.iterations for one in run.results] == [None, None]
    assert run.origin.kept["records"][0]["config"]["measured_runs"] == 10


def test_the_csv_is_left_to_the_json_in_its_folder(tmp_path):
    shutil.copy(FOLDER / "genai_e2e.csv", tmp_path)
    shutil.copy(FOLDER / "records.json", tmp_path / "genai_e2e.json")
    with pytest.raises(NoResultsError, match=r"all its numbers are in genai_e2e\.json"):
        only_run(tmp_path / "genai_e2e.csv")


def test_a_wrong_date_is_named_with_its_position(tmp_path):
    records = json.loads((FOLDER / "records.json").read_text())
    records[1]["trigger_date"] = "yesterday"
    (tmp_path / "a.json").write_text(json.dumps(records))
    with left_out(r"record 2\.trigger_date: expected a time such as .*'yesterday'"):
        only_run(tmp_path / "a.json")


def test_line_ends_of_old_macs_are_no_fault_of_the_program(tmp_path):
    content = (FOLDER / "first_versions.csv").read_bytes().replace(b"\n", b"\r")
    (tmp_path / "e2e.csv").write_bytes(content)
    with pytest.raises(FormatError, match="line 1: not CSV"):
        list(GENAI.runs(read_file(tmp_path / "e2e.csv")))
