"""Several runtimes in a batch: options in YAML and as flags, flags of builds, and the final comparison."""

from __future__ import annotations

import json
import re

import pytest

from benchmarking.batch import model_list
from benchmarking.batch_benchmark import main

pytestmark = pytest.mark.forked_children

SMALL = ["--batch-sizes", "1", "--sequence-lengths", "32", "--iterations", "3", "--warmup-iterations", "0", "--quiet"]


@pytest.fixture(autouse=True)
def in_an_empty_folder(empty_working_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("BENCHHOUSE_CACHE_DIR", str(tmp_path / "cache"))


def plans(capsys, *arguments):
    assert main([*arguments, *SMALL, "--dry-run", "--json"]) == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    return {plan["cell"]["runtime"]: plan for plan in cells}


def write(tmp_path, text):
    path = tmp_path / "models.yaml"
    path.write_text(text)
    return str(path)


def test_every_option_is_a_yaml_key_and_yaml_keywords_are_read_as_words(tmp_path):
    path = tmp_path / "models.yaml"
    path.write_text(
        "models: [{id: tiny-bert, compile_mode: default, dynamic: true, quantization: dynamic, io_mode: host, "
        "hint: latency, kernel_repo: here, performance_mode: burst, cpu_list: 0, rebuild: never}]\n"
    )
    (entry,) = model_list.entries_from_file(path)
    assert entry.model_settings == {
        "compile_mode": "default",
        "dynamic": "true",
        "quantization": "dynamic",
        "io_mode": "host",
        "hint": "latency",
        "kernel_repo": "here",
        "performance_mode": "burst",
        "cpu_list": "0",
        "rebuild": "never",
    }


def test_an_option_in_a_list_applies_to_the_runtimes_that_declare_it(capsys, tmp_path):
    text = "{models: [tiny-bert], devices: cpu, runtimes: [eager, compiled], dynamic: false, rebuild: always}\n"
    found = plans(capsys, "--model-list", write(tmp_path, text))
    assert "dynamic" not in found["eager"]["cell"]["runtime_mode"]
    assert found["compiled"]["cell"]["runtime_mode"]["dynamic"] == "false"
    assert {plan["rebuild"] for plan in found.values()} == {"always"}


@pytest.mark.parametrize("place", ["flag", "list", "model"])
def test_an_option_that_no_runtime_has_is_refused(capsys, tmp_path, place):
    model_settings = "{id: tiny-bert, performance_mode: burst}" if place == "model" else "tiny-bert"
    shared = "performance_mode: burst," if place == "list" else ""
    path = write(tmp_path, f"{{models: [{model_settings}], {shared} devices: cpu, runtimes: [eager, compiled]}}\n")
    flags = ["--performance-mode", "burst"] if place == "flag" else []
    assert main(["--model-list", path, *flags, *SMALL, "--dry-run"]) == 2
    assert "none of these runtimes has an option performance_mode" in capsys.readouterr().err


def test_an_option_set_for_one_model_needs_a_runtime_of_that_model(capsys, tmp_path):
    text = (
        "{models: [{id: tiny-bert, runtimes: eager, compile_mode: default}, {id: tiny-vit, runtimes: compiled}], "
        "devices: cpu}\n"
    )
    arguments = ["--model-list", write(tmp_path, text), "--batch-sizes", "1", "--quiet", "--dry-run"]
    assert main(arguments) == 2
    assert "none of these runtimes has an option compile_mode: eager has" in capsys.readouterr().err


def test_build_flags_do_not_apply_to_user_written_benchmarks(capsys, tmp_path):
    assert main(["--benches", str(tmp_path), "--rebuild", "always"]) == 2
    assert "--rebuild applies to models only" in capsys.readouterr().err


def test_runtimes_all_measures_supported_runtimes_and_reports_the_others(capsys, tmp_path):
    text = "{models: [tiny-bert], devices: cpu, runtimes: all, precisions: float32,\n"
    text += " grids: [{batch_sizes: 2}, {sequence_lengths: 64}]}\n"
    arguments = ["--model-list", write(tmp_path, text), "--iterations", "3", "--dry-run", "--json"]
    assert main(arguments) == 0
    output = capsys.readouterr()
    found = {plan["cell"]["runtime"]: plan for plan in json.loads(output.out)["cells"]}
    assert {"eager", "compiled"} <= set(found)
    assert not {"null", "bench", "qnn", "tensorrt"} & set(found)
    labels = [(point["batch_size"], point["sequence_length"]) for point in found["eager"]["points"]]
    assert labels == [(1, 64), (2, 64), (2, 128), (4, 64), (8, 64), (2, 512)]
    why = "left out: tiny-bert on cpu (all, float32)"
    assert any(line.startswith(f"{why} [") and "]: qnn: " in line for line in output.err.splitlines())


def test_a_runtime_named_in_addition_to_all_is_a_duplicate(capsys):
    models = ["--models", "tiny-bert", "--devices", "cpu", "--runtimes", "all,eager"]
    assert main([*models, *SMALL, "--dry-run"]) == 2
    assert "is the same cell" in capsys.readouterr().err


def test_runtimes_of_a_model_are_compared_at_the_end(capsys, null_script, tmp_path):
    null_script(latency_ms={"*": [4.0]})
    models = ["--models", "tiny-bert", "--devices", "null", "--runtimes", "null,eager"]
    arguments = [*models, *SMALL, "--skip-unsupported", "--launches", "1", "--no-save", "--report", "report.md"]
    assert main([*arguments, "--json"]) == 0
    (comparison,) = json.loads(capsys.readouterr().out)["comparisons"]
    assert comparison["points"][0]["entries"][0]["median_ms"] == 4.0
    assert list(comparison["not_measured"]) == ["eager"]
    report = (tmp_path / "report.md").read_text()
    assert re.search(r"eager · float32, skipped: batch 1, sequence 32: \S+", report)
