"""llama-bench's five outputs, of the versions with 33, 38 and 41 columns."""

from __future__ import annotations

import csv
import json
import re
import shutil
from statistics import fmean

import pytest

from db.analysis.selection import Selection
from db.exporters.benchmark_formats import LlamaBenchExporter
from db.exporters.support.exporting import ExportRequest
from db.importers.llama_batched_bench import PLUGIN as BATCHED_BENCH
from db.importers.llama_bench import PLUGIN as LLAMA_BENCH
from db.importers.support.files import read_file
from db.warehouse import Warehouse
from tests.helpers.left_out import left_out
from tests.helpers.paths import FIXTURES

FOLDER = FIXTURES / "imports/llama_bench"


def only_run(name):
    (run,) = LLAMA_BENCH.runs(read_file(FOLDER / name))
    return run


def test_prompt_and_generation_tests_have_the_tools_speed():
    prompt, generation, both = only_run("33_columns.json").results
    assert [one.point.label for one in (prompt, generation, both)] == ["b1 s512", "b1 n128 depth=512", "b1 s512 n128"]
    assert prompt.metrics["prefill_tokens_per_sec"] == prompt.metrics["throughput_tokens_per_sec"] == 7263.609157
    assert prompt.metrics["throughput_samples_per_sec"] == pytest.approx(1000 / 70.49722)
    assert generation.metrics["decode_tokens_per_sec"] == stated_speed(1)
    assert generation.metrics["time_per_output_token_ms"] == pytest.approx(1063 / 128)
    assert both.metrics["total_tokens_per_sec"] == stated_speed(2)
    mean_ms = fmean(both.samples[0].values)
    assert both.metrics["throughput_tokens_per_sec"] == pytest.approx(128 / mean_ms * 1000)
    assert not {"prefill_tokens_per_sec", "decode_tokens_per_sec"} & both.metrics.keys()


def stated_speed(row):
    return json.loads((FOLDER / "33_columns.json").read_text())[row]["avg_ts"]


def test_a_mean_of_speeds_far_from_tokens_over_time_is_a_doubt(tmp_path):
    rows = json.loads((FOLDER / "33_columns.json").read_text())[:1]
    rows[0] |= {"samples_ns": [10_000_000, 90_000_000], "avg_ts": (512 / 0.01 + 512 / 0.09) / 2}
    (tmp_path / "uneven.json").write_text(json.dumps(rows))
    (run,) = LLAMA_BENCH.runs(read_file(tmp_path / "uneven.json"))
    (doubt,) = (one for one in run.results[0].doubts if one.kind == "mean_of_ratios")
    assert doubt.evidence == {"field": "avg_ts", "tokens_over_time": pytest.approx(1024 / 0.1)}


def test_raw_values_are_imported_in_milliseconds():
    prompt, *_ = only_run("33_columns.json").results
    assert prompt.samples[0].values == (71.551, 71.2228, 70.3641, 69.4391, 69.9091)
    assert prompt.metrics["latency_median_ms"] == 70.3641
    assert prompt.metrics["latency_mean_ms"] == pytest.approx(70.49722)
    assert prompt.metrics["model_size_mb"] == 4677.12
    assert prompt.doubts == ()


def test_raw_speeds_stand_for_raw_times_that_a_script_left_out(tmp_path):
    rows = json.loads((FOLDER / "33_columns.json").read_text())
    for row in rows:
        del row["samples_ns"]
    (tmp_path / "short.json").write_text(json.dumps(rows))
    whole = list(LLAMA_BENCH.runs(read_file(FOLDER / "33_columns.json")))
    short = list(LLAMA_BENCH.runs(read_file(tmp_path / "short.json")))
    for one, other in zip(whole, short, strict=True):
        for result, again in zip(one.results, other.results, strict=True):
            assert again.samples[0].values == pytest.approx(result.samples[0].values, rel=1e-3)
            assert speed_of(again) == pytest.approx(speed_of(result), rel=1e-3)


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
    assert both.metrics["total_tokens_per_sec"] == 561.40
    assert both.extra["kept"] == {"avg_ts": "561.40", "stddev_ts": "1.00"}
    assert run.cell.workload.parameter_count == 7_620_000_000


def test_a_build_outside_of_a_repository_has_no_version(tmp_path):
    text = (FOLDER / "table.md").read_text(encoding="utf-8").replace("8cf427ff (5163)", "unknown (0)")
    (tmp_path / "a.md").write_text(text, encoding="utf-8")
    (run,) = LLAMA_BENCH.runs(read_file(tmp_path / "a.md"))
    assert (run.provenance.git_commit, run.origin.tool_version, run.provenance.versions) == (None, None, {})


def test_json_csv_and_sql_of_one_setting_are_one_series():
    modes = [only_run(name).cell.runtime_mode for name in ("33_columns.json", "33_columns.csv", "38_columns.sql")]
    assert modes == [{"n_gpu_layers": "99", "flash_attn": "0", "quantization": "Q4_K - Medium"}] * 3


def test_the_run_has_model_precision_and_build():
    run = only_run("33_columns.json")
    assert (run.cell.workload.model_id, run.cell.workload.family) == ("Qwen2.5-7B-Instruct-Q4_K_M", "decoder-only")
    assert (run.cell.precision, run.cell.num_threads, run.cell.runtime) == ("other", 8, "llama.cpp")
    assert run.provenance.versions == {"llama.cpp": "b5163"}
    assert run.started_at == "2025-04-24T11:59:33+00:00"
    assert run.finished_at is None, "the start of the last test is not its end"


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
    (run,) = LLAMA_BENCH.runs(read_file(tmp_path / "a.json"))
    assert (run.cell.precision, run.cell.workload.family) == (precision, family)


def test_a_generation_after_a_prompt_that_is_not_timed_is_at_its_depth(tmp_path):
    """Of ik_llama.cpp, in JSON and in its table."""
    (row, *_) = json.loads((FOLDER / "33_columns.json").read_text())
    times = {"samples_ns": [12_000_000_000] * 3, "samples_ts": [10.667] * 3, "avg_ts": 10.667}
    rows = [{**row, **times, "n_prompt": 2048, "n_gen": 128, "test": test} for test in ("tg128@pp2048", "pp2048+tg128")]
    (tmp_path / "results.json").write_text(json.dumps(rows))
    table = "| model | size | params | backend | test | t/s |\n|---|---|---|---|---|---|\n"
    (tmp_path / "table.md").write_text(
        f"{table}| llama 7B Q4_0 | 3.5 GiB | 6.7 B | CUDA | tg128@pp2048 | 10.67 ± 0.01 |\n"
    )
    (run,), (of_table,) = (list(LLAMA_BENCH.runs(read_file(tmp_path / name))) for name in ("results.json", "table.md"))
    after, both = run.results
    assert (after.point.label, of_table.results[0].point.label) == ("b1 n128 depth=2048",) * 2
    assert after.metrics["decode_tokens_per_sec"] == 10.667
    assert after.metrics["time_per_output_token_ms"] == 93.75
    assert "total_tokens_per_sec" not in after.metrics
    assert both.point.label == "b1 s2048 n128"


def test_a_repeated_test_is_another_run(tmp_path):
    rows = json.loads((FOLDER / "33_columns.json").read_text())
    (tmp_path / "a.json").write_text(json.dumps([*rows, rows[0]]))
    first, again = LLAMA_BENCH.runs(read_file(tmp_path / "a.json"))
    assert (len(first.results), len(again.results)) == (3, 1)
    assert first.run_id != again.run_id


def test_the_processor_is_the_device_where_no_accelerator_was_used(tmp_path):
    row = json.loads((FOLDER / "33_columns.json").read_text())[0] | {"backends": "CPU", "gpu_info": ""}
    (tmp_path / "a.json").write_text(json.dumps([row]))
    (run,) = LLAMA_BENCH.runs(read_file(tmp_path / "a.json"))
    assert (run.cell.device.type, run.cell.device.name) == ("cpu", "AMD Ryzen 7 7800X3D 8-Core Processor")


@pytest.mark.parametrize(
    ("chosen", "name", "count"),
    [
        ({"devices": "CUDA1"}, "RTX 3060", 1),
        ({"devices": "CUDA0/CUDA2"}, "RTX 4090", 2),
        ({"devices": "auto"}, "RTX 4090, RTX 3060, RTX 4090", 1),
        ({"split_mode": "none", "main_gpu": 0}, "RTX 4090", 1),
        ({"split_mode": "none", "main_gpu": 1}, "RTX 3060", 1),
        ({"devices": "CUDA1/CUDA2", "split_mode": "none", "main_gpu": 1}, "RTX 4090", 1),
        ({"devices": "CUDA1", "backends": "CUDA,Vulkan"}, "RTX 4090, RTX 3060, RTX 4090", 1),
    ],
)
def test_the_hardware_is_the_gpus_that_were_chosen(tmp_path, chosen, name, count):
    row = json.loads((FOLDER / "33_columns.json").read_text())[0]
    row |= {"backends": "CUDA", "gpu_info": "RTX 4090, RTX 3060, RTX 4090", **chosen}
    (tmp_path / "a.json").write_text(json.dumps([row]))
    (run,) = LLAMA_BENCH.runs(read_file(tmp_path / "a.json"))
    assert (run.cell.device.type, run.cell.device.name, run.cell.device.count) == ("cuda", name, count)


def test_a_test_without_prompt_and_generation_is_refused(tmp_path):
    row = json.loads((FOLDER / "33_columns.json").read_text())[0] | {"n_prompt": 0}
    (tmp_path / "a.json").write_text(json.dumps([row]))
    with left_out(r"row 0\.n_prompt: neither a prompt nor tokens to generate"):
        list(LLAMA_BENCH.runs(read_file(tmp_path / "a.json")))


def test_sql_with_more_values_than_columns_is_refused(tmp_path):
    (tmp_path / "a.sql").write_text("INSERT INTO test (a, build_commit) VALUES ('it', 's', 'x');\n")
    with left_out("INSERT 1: 3 values for 2 columns"):
        list(LLAMA_BENCH.runs(read_file(tmp_path / "a.sql")))


def test_first_versions_write_a_space_in_a_test():
    prompt, generation = only_run("first_version.md").results
    assert (prompt.point.label, generation.point.label) == ("b1 s512", "b1 n128")
    assert prompt.metrics["prefill_tokens_per_sec"] == 2368.80
    assert generation.metrics["decode_tokens_per_sec"] == 131.42


def test_every_table_of_a_file_is_read_with_its_own_columns_device_and_build():
    first, second = LLAMA_BENCH.runs(read_file(FOLDER / "two_tables.md"))
    assert [one.point.label for one in first.results] == ["b1 s512", "b1 n128"]
    assert [one.point.label for one in second.results] == ["b1 s2048 depth=32768", "b1 n32 depth=32768"]
    assert second.results[0].metrics["prefill_tokens_per_sec"] == 691.94
    assert second.cell.runtime_mode["n_ubatch"] == "2048"
    assert {run.cell.device.name for run in (first, second)} == {"AMD Radeon 8060S Graphics"}
    assert {run.provenance.git_commit for run in (first, second)} == {"0253fb21f"}


def test_output_redirected_by_powershell_is_read_from_utf_16():
    (result,) = only_run("powershell_utf16.json").results
    assert result.samples[0].values == (381.2896, 389.7642, 378.4702, 383.301, 386.2664)
    assert only_run("powershell_utf16.json").cell.device.name == "Intel(R) Arc(TM) Pro B70 Graphics"


def test_a_vulkan_device_is_named_without_its_driver():
    device = only_run("vulkan.log").cell.device
    assert (device.type, device.name) == ("vulkan", "AMD Radeon 8060S Graphics")


@pytest.mark.parametrize(
    ("printed", "name"),
    [
        ("ggml_metal_device_init: GPU name:   Apple M4 Max", "Apple M4 Max"),
        ("0.00.041.705 I ggml_metal_init: GPU name:   Apple M4", "Apple M4"),
        ("ggml_metal_device_init: GPU name:   MTL0 (Apple M5 Max)", "Apple M5 Max"),
        ("ggml_metal_device_init: GPU name:   MTL0", None),
        (
            "ggml_opencl: device: 'Qualcomm(R) Adreno(TM) X1-85 GPU (OpenCL 3.0 QUALCOMM)'\n"
            "ggml_opencl: default device: 'Qualcomm(R) Adreno(TM) X1-85 GPU (OpenCL 3.0 QUALCOMM)'",
            "Qualcomm(R) Adreno(TM) X1-85 GPU",
        ),
        ("|ID|\n| 0| [level_zero:gpu:0]|   Intel Arc A770 Graphics|  12.55|    512|", "Intel Arc A770 Graphics"),
        ("llama_model_load: using device CUDA0 (NVIDIA GB10) (0000:01:00.0) - 99 MiB free", "NVIDIA GB10"),
        ("Available devices:\n  GPUOpenCL: Adreno(TM) 840 (5561 MiB, 4537 MiB free)", "Adreno(TM) 840"),
    ],
)
def test_the_device_is_named_as_each_backend_prints_it(tmp_path, printed, name):
    rows = (FOLDER / "table.md").read_text().partition("\n| model")
    (tmp_path / "a.md").write_text(f"{printed}{''.join(rows[1:])}")
    (run,) = LLAMA_BENCH.runs(read_file(tmp_path / "a.md"))
    assert (run.cell.device.name, run.cell.device.count) == (name, 1)


def test_a_quoted_table_has_the_device_quoted_above_it(tmp_path):
    text = "".join(f"> {line}\n" for line in (FOLDER / "two_tables.md").read_text().splitlines())
    (tmp_path / "a.md").write_text(text)
    names = {run.cell.device.name for run in LLAMA_BENCH.runs(read_file(tmp_path / "a.md"))}
    assert names == {"AMD Radeon 8060S Graphics"}


def test_the_flags_of_the_first_versions_name_the_backend():
    run = only_run("first_version.json")
    assert (run.cell.device.type, run.cell.device.name) == ("cuda", "NVIDIA GeForce RTX 3090 Ti")
    assert run.results[0].metrics["latency_median_ms"] == 212.328053


def test_a_mix_of_quantizations_is_a_known_word():
    cell = only_run("mixed_quantization.jsonl").cell
    assert (cell.precision, cell.runtime_mode["quantization"]) == ("other", "IQ3_S mix - 3.66 bpw")


def test_a_model_in_several_files_is_named_without_the_part(tmp_path):
    row = json.loads((FOLDER / "33_columns.json").read_text())[0] | {"model_filename": "m/Big-Q4-00001-of-00003.gguf"}
    (tmp_path / "a.json").write_text(json.dumps([row]))
    (run,) = LLAMA_BENCH.runs(read_file(tmp_path / "a.json"))
    assert run.cell.workload.model_id == "Big-Q4"


@pytest.mark.parametrize(
    ("columns", "mode"),
    [
        ({"load_mode": "auto"}, {}),
        ({"load_mode": "mmap"}, {}),
        ({"load_mode": "mlock"}, {"load_mode": "mlock"}),
        ({"load_mode": "none"}, {"use_mmap": "0"}),
        ({"use_mmap": False, "use_direct_io": False}, {"use_mmap": "0"}),
        ({"load_mode": "dio"}, {"use_direct_io": "1"}),
        ({"use_mmap": True, "use_direct_io": True}, {"use_direct_io": "1"}),
        ({"use_mmap": False, "use_direct_io": True}, {"use_direct_io": "1"}),
    ],
)
def test_a_way_of_loading_other_than_the_default_is_one_series_in_old_and_new_words(tmp_path, columns, mode):
    row = json.loads((FOLDER / "33_columns.json").read_text())[0]
    for name in ("use_mmap", "use_direct_io"):
        row.pop(name, None)
    (tmp_path / "a.json").write_text(json.dumps([row, row | columns]))
    plain, *other = (run.cell.runtime_mode for run in LLAMA_BENCH.runs(read_file(tmp_path / "a.json")))
    assert (other or [plain]) == [{**plain, **mode}]


def test_a_column_that_is_not_known_tells_runs_apart_and_a_fraction_is_a_result(tmp_path):
    """Those of ik_llama.cpp, or of a later version."""
    row = json.loads((FOLDER / "33_columns.json").read_text())[0]
    columns = [
        {"mla_attn": 0, "ser": "", "repack": True},
        {"mla_attn": 3, "speedup": 1.25},
        {"use_thp": True, "spec_model": "/home/a/d.gguf"},
    ]
    (tmp_path / "a.json").write_text(json.dumps([row | one for one in columns]))
    standard = only_run("33_columns.json").cell.runtime_mode
    found = [(run.cell.runtime, run.cell.runtime_mode) for run in LLAMA_BENCH.runs(read_file(tmp_path / "a.json"))]
    assert found == [
        ("ik_llama.cpp", standard),
        ("ik_llama.cpp", standard | {"mla_attn": "3"}),
        ("llama.cpp", standard | {"use_thp": "1", "spec_model": "d.gguf"}),
    ]


def test_a_table_names_settings_as_the_json_of_the_same_run(tmp_path):
    table = (FOLDER / "table.md").read_text()
    for old, new in (
        ("ngl |", "ngl | rpk |   lm | fitt | mla | x t/s |"),
        (" 99 |", " 99 | 0 | none | 8192 | 3 | 7.5 x |"),
    ):
        table = table.replace(old, new)
    (tmp_path / "a.md").write_text(table.replace("--: | --", "--: | -- | -- | -- | -- | --: | --", 1))
    (run,) = LLAMA_BENCH.runs(read_file(tmp_path / "a.md"))
    standard = only_run("table.md").cell.runtime_mode
    assert run.cell.runtime_mode == standard | {"repack": "0", "use_mmap": "0", "fit_target": "8192", "mla": "3"}


@pytest.mark.parametrize("name", ["38_columns.sql", "33_columns.json", "two_tables.md", "first_version.json"])
def test_an_export_of_imported_results_comes_back_equal(tmp_path, empty_database, name):
    database = shutil.copy2(empty_database, tmp_path / "w.duckdb")
    runs = list(LLAMA_BENCH.runs(read_file(FOLDER / name)))
    with Warehouse.open(database) as warehouse:
        warehouse.ingest_all(runs)
        request = ExportRequest(selection=Selection.parse(""), output=tmp_path / "out.sql", notify=pytest.fail)
        LlamaBenchExporter().export(warehouse, request)
    again = list(LLAMA_BENCH.runs(read_file(tmp_path / "out.sql")))
    expected = {cell_of(run): results_of(run) for run in runs}
    assert {cell_of(run): results_of(run) for run in again} == expected


def test_every_output_of_a_prompt_and_generation_has_the_speed_of_its_generation(tmp_path):
    row = json.loads((FOLDER / "33_columns.json").read_text())[0]
    row |= {
        "n_prompt": 512,
        "n_gen": 128,
        "avg_ns": 2_000_000_000,
        "avg_ts": 320.0,
        "samples_ns": [2_000_000_000] * 3,
        "samples_ts": [320.0] * 3,
    }
    columns = {name: value for name, value in row.items() if not name.startswith("samples_")}
    (tmp_path / "a.json").write_text(json.dumps([row]))
    with (tmp_path / "a.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([columns.keys(), columns.values()])
    for name in ("a.json", "a.csv"):
        ((result,),) = (run.results for run in LLAMA_BENCH.runs(read_file(tmp_path / name)))
        assert (result.metrics["throughput_tokens_per_sec"], result.metrics["total_tokens_per_sec"]) == (64.0, 320.0)


def cell_of(run):
    """What makes a run: model, device, settings and build."""
    cell = run.cell
    return (
        cell.workload.model_id,
        cell.workload.family,
        cell.workload.parameter_count,
        (cell.device.type, cell.device.name, cell.device.count),
        tuple(sorted(cell.runtime_mode.items())),
        cell.precision,
        cell.num_threads,
        run.provenance.git_commit,
        run.origin.tool_version,
        run.hardware.hardware_id,
    )


def results_of(run):
    """Point and stated speed of each result."""
    return sorted((one.point.label, one.metrics.get("model_size_mb"), speed_of(one)) for one in run.results)


def speed_of(result):
    """The mean of the repetitions' tokens per second, as llama-bench prints it."""
    tokens = (result.point.sequence_length or 0) + (result.point.new_tokens or 0)
    walls = [value for one in result.samples if one.metric == "latency_wall" for value in one.values]
    if walls:
        return round(fmean(tokens / value * 1000 for value in walls), 6)
    stated = result.extra["kept"].get("avg_ts", result.metrics.get("throughput_tokens_per_sec"))
    return round(float(stated), 6)


@pytest.mark.parametrize("sign", [" Â± ", " ┬▒ ", " +/- ", "** ± ", None])
def test_a_speed_is_read_without_its_deviation_with_another_sign_or_in_bold(tmp_path, sign):
    text = (FOLDER / "table.md").read_text()
    assert " ± " in text
    text = re.sub(r"([\d.]+) ± ", r"**\1 ± ", text) if sign and "**" in sign else text
    text = re.sub(r" ± [\d.]+", "", text) if sign is None else text.replace(" ± ", sign)
    (tmp_path / "table.md").write_text(text)
    found, expected = (
        [one.metrics for run in LLAMA_BENCH.runs(read_file(path)) for one in run.results]
        for path in (tmp_path / "table.md", FOLDER / "table.md")
    )
    assert found == expected


@pytest.mark.parametrize("speed", ["1,955.27", "1,955", "1.95e+03"])
def test_a_speed_in_another_notation_is_left_out_instead_of_cut(tmp_path, speed):
    text = (FOLDER / "table.md").read_text()
    (tmp_path / "table.md").write_text(re.sub(r"[\d.]+ ± [\d.]+", speed, text))
    with left_out("expected a test such as pp512 and a speed"):
        list(LLAMA_BENCH.runs(read_file(tmp_path / "table.md")))


def models_of(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    return [run.cell.workload.model_id for run in LLAMA_BENCH.runs(read_file(tmp_path / name))]


@pytest.mark.parametrize(
    ("filename", "model_id"),
    [
        ("/a/mistral/ggml-model-q4_0.gguf", "mistral/ggml-model-q4_0"),
        ("C:\\llama2\\ggml-model-Q4_K_M.gguf", "llama2/ggml-model-Q4_K_M"),
        ("models/unsloth.Q4_K_M.gguf", "unsloth.Q4_K_M (7615616512 parameters)"),
        ("model.gguf", "model (7615616512 parameters)"),
        ("a/model-20b.gguf", "model-20b"),
    ],
)
def test_a_converters_default_name_names_no_model(tmp_path, filename, model_id):
    row = json.loads((FOLDER / "33_columns.json").read_text())[0] | {"model_filename": filename}
    assert models_of(tmp_path, "a.json", json.dumps([row])) == [model_id]


TABLE = """
| model                          |       size |     params | backend    | ngl |            test |                  t/s |
| ------------------------------ | ---------: | ---------: | ---------- | --: | --------------: | -------------------: |
| llama 7B Q4_0                  |   3.83 GiB |     {} B | CUDA       |  99 |           tg128 |        119.84 ± 0.10 |
"""


def test_tables_of_one_type_are_of_the_models_in_the_commands_above_them(tmp_path):
    command = "$ ./llama-bench -m models/{}.gguf -p 0 -n 64,128\n"
    text = command.format("mistral-7b-v0.1.Q4_0") + TABLE.format("7.24")
    text += command.format("llama-2-7b.Q4_0") + TABLE.format("6.74")
    assert models_of(tmp_path, "a.md", text) == ["mistral-7b-v0.1.Q4_0", "llama-2-7b.Q4_0"]


@pytest.mark.parametrize(
    "command",
    ["", "llama-bench -m $MODEL", "llama-bench -m a.gguf -m b.gguf", "llama-bench -m a.gguf\nllama-bench -m b.gguf"],
)
def test_tables_of_one_type_without_a_name_are_told_apart_by_their_parameters(tmp_path, command):
    text = f"{command}\n{TABLE.format('7.24')}\n{TABLE.format('6.74')}"
    expected = ["llama 7B Q4_0 (7240000000 parameters)", "llama 7B Q4_0 (6740000000 parameters)"]
    assert models_of(tmp_path, "a.md", text) == expected
    assert models_of(tmp_path, "a.md", f"{command}\n{TABLE.format('7.24')}") == ["llama 7B Q4_0"]


BENCHY = """\
| model | test | t/s | peak t/s | ttfr (ms) | est_ppt (ms) | e2e_ttft (ms) |
|:------|-----:|----:|---------:|----------:|-------------:|--------------:|
| Q-4B | pp512 @ d1024 | 10814.42 ± 28.13 | | 142.69 ± 0.37 | 142.13 ± 0.37 | 142.69 ± 0.37 |
| Q-4B | tg128 @ d1024 | 83.96 ± 0.04 | 84.67 ± 0.47 | | | |
"""


def test_a_table_of_llama_benchy_is_no_result_of_llama_cpp(tmp_path):
    (tmp_path / "benchy.md").write_text(BENCHY)
    with left_out(r"line 3: a table of llama-benchy, a client of any server: it is not read$"):
        list(LLAMA_BENCH.runs(read_file(tmp_path / "benchy.md")))
    own = "llama-bench -p 512\n| model | test | t/s |\n|---|---:|---:|\n| llama 7B Q4_0 | pp512 | 100.00 ± 1.00 |\n"
    (tmp_path / "both.md").write_text(f"{BENCHY}\n{own}")
    file = read_file(tmp_path / "both.md")
    (run,) = LLAMA_BENCH.runs(file)
    assert run.results[0].metrics["prefill_tokens_per_sec"] == 100.0
    assert [one.text for one in file.left_out] == [
        "line 3: a table of llama-benchy, a client of any server: it is not read"
    ]


def test_a_table_without_a_backend_is_of_another_engine(tmp_path):
    table = "| model | size | test | t/s |\n|---|---:|---:|---:|\n| M | 20889 MiB | pp128 | 552.07 ± 1.29 |\n"
    (tmp_path / "raw.md").write_text(f"# Raw BaseRT benchmark output\n{table}")
    with left_out(r"line 4: a table without backend, which llama-bench prints: of another engine$"):
        list(LLAMA_BENCH.runs(read_file(tmp_path / "raw.md")))


@pytest.mark.parametrize("after", ["---", "  ", "|", "------|------", "|---|---|---|---|---|---|"])
def test_what_stands_below_a_table_takes_no_row_of_it(tmp_path, after):
    row = "| 7B Q8_0 | 7.54 GiB | 7.62 B | CUDA | {} | {} |"
    table = ["| model | size | params | backend | test | t/s |", "|---|---|---|---|---|---|"]
    rows = [row.format("pp512", "7263.61 ± 90.94"), row.format("tg128", "119.84 ± 0.70")]
    (tmp_path / "a.md").write_text("\n".join([*table, *rows, after, "build: 8cf427ff (5163)"]))
    (run,) = LLAMA_BENCH.runs(read_file(tmp_path / "a.md"))
    assert [one.point.label for one in run.results] == ["b1 s512", "b1 n128"]
    (tmp_path / "b.md").write_text("\n".join([*table, *rows[:1], after, "", *table, *rows[1:], after]))
    assert sum(len(run.results) for run in LLAMA_BENCH.runs(read_file(tmp_path / "b.md"))) == 2


@pytest.mark.parametrize("around", ["....{}", "llama-bench: benchmark 2/2: generation run 1/5{}", "{}llama_perf: done"])
@pytest.mark.parametrize(
    ("importer", "path"),
    [(LLAMA_BENCH, FOLDER / "table.md"), (BATCHED_BENCH, FOLDER.parent / "llama_batched_bench/table.log")],
)
def test_a_row_with_something_printed_before_or_after_it_is_read(tmp_path, importer, path, around):
    lines = path.read_text().splitlines()
    last = max(at for at, line in enumerate(lines) if line.startswith("|"))
    lines[last] = around.format(lines[last].rstrip())
    (tmp_path / path.name).write_text("\n".join(lines))
    results, expected = (
        [(one.point, one.metrics) for run in importer.runs(read_file(folder / path.name)) for one in run.results]
        for folder in (tmp_path, path.parent)
    )
    assert results == expected
