"""llama-bench's five outputs, of the versions with 33, 38 and 41 columns."""

from __future__ import annotations

import json

import pytest

from benchmarking.core.errors import FormatError
from db.importers.llama_bench import PLUGIN
from db.importers.support.files import read_file
from tests.helpers.paths import FIXTURES

FOLDER = FIXTURES / "imports/llama_bench"


def only_run(name):
    (run,) = PLUGIN.runs(read_file(FOLDER / name))
    return run


def test_prompt_and_generation_tests_are_distinguished_by_the_zero():
    prompt, generation, both = only_run("33_columns.json").results
    assert [one.point.label for one in (prompt, generation, both)] == ["b1 s512", "b1 n128 depth=512", "b1 s512 n128"]
    assert prompt.metrics["prefill_tokens_per_sec"] == pytest.approx(512 / 0.0703641)
    assert generation.metrics["decode_tokens_per_sec"] == pytest.approx(128 / 1.063)
    assert generation.metrics["time_per_output_token_ms"] == pytest.approx(1063 / 128)
    assert both.metrics["throughput_tokens_per_sec"] == pytest.approx(128 / 1.14)
    assert not {"prefill_tokens_per_sec", "decode_tokens_per_sec"} & both.metrics.keys()


def test_raw_values_are_imported_in_milliseconds_and_the_tools_means_kept():
    prompt, *_ = only_run("33_columns.json").results
    assert prompt.samples[0].values == (71.551, 71.2228, 70.3641, 69.4391, 69.9091)
    assert prompt.metrics["latency_median_ms"] == 70.3641
    assert prompt.metrics["latency_mean_ms"] == pytest.approx(70.49722)
    assert prompt.metrics["model_size_mb"] == 4677.12
    assert prompt.extra["kept"]["avg_ts"] == 7263.609157


@pytest.mark.parametrize("name", ["33_columns.csv", "38_columns.sql"])
def test_outputs_without_raw_values_have_the_tools_means_and_a_reason(name):
    prompt, _ = only_run(name).results
    assert prompt.metrics == {
        "latency_mean_ms": 70.49722,
        "latency_std_ms": 0.883196,
        "throughput_tokens_per_sec": 7263.609157,
        "prefill_tokens_per_sec": 7263.609157,
        "model_size_mb": 4677.12,
    }
    assert prompt.missing["latency_median_ms"] == "not_supported: this output has means alone"
    assert [doubt.kind for doubt in prompt.doubts] == ["mean_of_ratios"]


def test_the_table_has_only_speeds_and_the_device_printed_above_it():
    run = only_run("table.md")
    prompt, generation, both = run.results
    assert (run.cell.device.type, run.cell.device.name) == ("cuda", "NVIDIA GeForce RTX 4080")
    assert (run.provenance.git_commit, run.origin.tool_version) == ("8cf427ff", "5163")
    assert prompt.metrics["prefill_tokens_per_sec"] == 7263.61
    assert generation.metrics["decode_tokens_per_sec"] == 119.84
    assert generation.point.axes == {"depth": 512}
    assert "throughput_tokens_per_sec" not in both.metrics
    assert both.extra["kept"] == {"avg_ts": "561.40", "stddev_ts": "1.00"}
    assert run.cell.workload.parameter_count == 7_620_000_000


def test_json_csv_and_sql_of_one_setting_are_one_series():
    modes = [only_run(name).cell.runtime_mode for name in ("33_columns.json", "33_columns.csv", "38_columns.sql")]
    assert modes == [{"n_gpu_layers": "99", "flash_attn": "0", "quantization": "Q4_K - Medium"}] * 3


def test_the_run_has_model_precision_and_build():
    run = only_run("33_columns.json")
    assert (run.cell.workload.model_id, run.cell.workload.family) == ("Qwen2.5-7B-Instruct-Q4_K_M", "decoder-only")
    assert (run.cell.precision, run.cell.num_threads, run.cell.runtime) == ("other", 8, "llama.cpp")
    assert run.provenance.versions == {"llama.cpp": "b5163"}
    assert run.started_at == "2025-04-24T11:59:33+00:00"
    assert run.finished_at == "2025-04-24T11:59:40+00:00"


def test_possibly_automatic_flash_attention_is_a_doubt():
    for result in only_run("41_columns.jsonl").results:
        assert [doubt.kind for doubt in result.doubts] == ["flash_attention_maybe_auto"]


@pytest.mark.parametrize(
    ("model_type", "precision", "family"),
    [
        ("llama 8B F16", "float16", "decoder-only"),
        ("llama 8B BF16", "bfloat16", "decoder-only"),
        ("llama 1B all F32", "float32", "decoder-only"),
        ("llama 7B IQ2_XS - 2.3125 bpw", "other", "decoder-only"),
        ("qwen3moe 30B.A3B Q8_0", "other", "mixture-of-experts"),
        ("llama 8x7B Q4_K - Small", "other", "mixture-of-experts"),
        ("mamba 2.8B F16", "float16", "state-space"),
        ("something new", "unknown", None),
    ],
)
def test_precision_and_family_come_from_the_model_type(tmp_path, model_type, precision, family):
    rows = json.loads((FOLDER / "33_columns.json").read_text())
    (tmp_path / "a.json").write_text(json.dumps([{**rows[0], "model_type": model_type}]))
    (run,) = PLUGIN.runs(read_file(tmp_path / "a.json"))
    assert (run.cell.precision, run.cell.workload.family) == (precision, family)


def test_a_repeated_test_is_another_run(tmp_path):
    rows = json.loads((FOLDER / "33_columns.json").read_text())
    (tmp_path / "a.json").write_text(json.dumps([*rows, rows[0]]))
    first, again = PLUGIN.runs(read_file(tmp_path / "a.json"))
    assert (len(first.results), len(again.results)) == (3, 1)
    assert first.run_id != again.run_id


def test_the_processor_is_the_device_where_no_accelerator_was_used(tmp_path):
    row = json.loads((FOLDER / "33_columns.json").read_text())[0] | {"backends": "CPU", "gpu_info": ""}
    (tmp_path / "a.json").write_text(json.dumps([row]))
    (run,) = PLUGIN.runs(read_file(tmp_path / "a.json"))
    assert (run.cell.device.type, run.cell.device.name) == ("cpu", "AMD Ryzen 7 7800X3D 8-Core Processor")


def test_a_test_without_prompt_and_generation_is_refused(tmp_path):
    row = json.loads((FOLDER / "33_columns.json").read_text())[0] | {"n_prompt": 0}
    (tmp_path / "a.json").write_text(json.dumps([row]))
    with pytest.raises(FormatError, match=r"row 0\.n_prompt: neither a prompt nor tokens to generate"):
        list(PLUGIN.runs(read_file(tmp_path / "a.json")))


def test_sql_with_more_values_than_columns_is_refused(tmp_path):
    (tmp_path / "a.sql").write_text("INSERT INTO test (a, build_commit) VALUES ('it', 's', 'x');\n")
    with pytest.raises(FormatError, match="INSERT 1: 3 values for 2 columns"):
        list(PLUGIN.runs(read_file(tmp_path / "a.sql")))
