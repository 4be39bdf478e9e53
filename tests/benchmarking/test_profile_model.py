"""Profiling by command and from Python on the null device, with a scripted breakdown of calls."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import pytest

from benchmarking import MLRuntimeProfiler, profiler
from benchmarking.commands import profile as profile_model
from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.profiles import profile_from_json
from db.warehouse import Warehouse

pytestmark = pytest.mark.forked_children

SHARES = {"layers.0.attention": 0.25, "layers.0.mlp": 0.5}
ARGUMENTS = ["tiny-bert", "--device", "null", "--sequence-length", "10", "--num-runs", "4"]


@pytest.fixture
def scripted(null_script, tmp_path, monkeypatch):
    """Calls of 8 ms, 25 % slower under the profiler, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BENCHMARK_DB_PATH", str(tmp_path / "db.duckdb"))
    return null_script(latency_ms={"*": [8.0]}, modules=SHARES, profiler_overhead=0.25)


def test_profiles_are_printed_written_and_stored_separately_from_results(scripted, tmp_path, capsys):
    assert (
        profile_model.main([*ARGUMENTS, "--save", "--output-dir", "out", "--tensorboard", "logs", "--tag", "v=1"]) == 0
    )
    out, err = capsys.readouterr()
    assert "a call takes 10 ms with it and 8 ms without (+25%), 4 alternating calls each" in out
    assert "feed-forward 50%, attention 25%, other 25% of a call." in out
    assert "stored in" in err
    (results,) = (tmp_path / "out").glob("profiling_results_tiny-bert_null_null_float32_*.json")
    (trace,) = (tmp_path / "out").glob("trace_tiny-bert_*.json")
    (board,) = (tmp_path / "logs").glob("*.pt.trace.json")
    assert json.loads(trace.read_text()) == json.loads(board.read_text())
    profile = profile_from_json(json.loads(results.read_text()), "here")
    assert profile.run.results == ()
    assert profile.run.cell.workload.model_id == "tiny-bert"
    assert {one.module: one.exclusive_ms for one in profile.call.breakdown.modules} == pytest.approx(
        {"layers.0.attention": 2.5, "layers.0.mlp": 5.0, "": 2.5}
    )
    assert profile.call.breakdown.missing["bound"].startswith("not_supported: the device's peak rates")
    with Warehouse.open(tmp_path / "db.duckdb", read_only=True) as warehouse:
        sql = "SELECT profiler_overhead_share, profiler, (SELECT count(*) FROM benchmark_results) AS n FROM profiles"
        assert warehouse.query(sql).dicts() == [{"profiler_overhead_share": 0.25, "profiler": "null", "n": 0}]


def test_the_defaults_of_profiler_are_not_values_that_its_user_gave_twice(scripted, capsys):
    words = ["--batch-size", "2", "--sequence-lengths=10", "--num-runs", "4", "--output", "profile.json"]
    assert profiler.main(["--model", "tiny-bert", "--device", "null", *words]) == 0
    out, err = capsys.readouterr()
    assert "b2 s10" in out
    assert "twice" not in err


def test_profiler_takes_its_default_model_with_any_flags(scripted, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(profiler, "DEFAULT_MODEL", "tiny-bert")
    words = ["--device", "null", "--batch-size", "2", "--sequence-length", "10", "--quiet"]
    assert profiler.main([*words, "--output", "profile.json", "--tag", "version=2"]) == 0
    out, err = capsys.readouterr()
    assert "tiny-bert on null" in out
    assert err.splitlines()[0] == "no MODEL is given: tiny-bert is taken (profiler MODEL takes another)"


def test_a_profiler_that_slows_calls_by_more_than_half_is_a_doubt(null_script, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    null_script(latency_ms={"*": [8.0]}, modules=SHARES, profiler_overhead=0.75)
    assert profile_model.main([*ARGUMENTS, "--quiet"]) == 0
    out = capsys.readouterr().out
    assert re.search("^doubts: .*profiler_overhead", out, re.MULTILINE)
    assert "profiler_overhead (b1 s10): The profiler slowed calls by more than half" in out


def test_worker_failures_are_errors_of_the_command(null_script, capsys):
    null_script(faults={"b1 s10": "raise"})
    assert profile_model.main([*ARGUMENTS, "--quiet"]) == 1
    assert "scripted: the call raised" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--runtime", "tensorrt", "--device", "cpu"], "tensorrt"),
        (["--num-runs", "0"], "--num-runs"),
        (["--sequence-length", "100000"], "takes at most"),
        (
            ["--device", "cpu", "--runtime", "openvino", "--tensorboard", "logs"],
            "the profiler of openvino writes no trace",
        ),
    ],
)
def test_unsupported_profiles_are_refused_before_anything_runs(flags, message, scripted, capsys):
    assert profile_model.main([*ARGUMENTS, *flags]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--output-dir", "--tensorboard"])
def test_unwritable_folders_are_errors_before_anything_runs(flag, scripted, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert profile_model.main([*ARGUMENTS, flag, "file/inside"]) == 2
    out, err = capsys.readouterr()
    assert (out, f"{flag}: takes a folder: file is a file" in err) == ("", True)


@pytest.mark.parametrize(
    ("output", "message"),
    [("file/inside.json", "file is a file: choose another path"), ("out", "is a folder: give a file, such as out/")],
)
def test_output_is_a_file_that_is_checked_before_anything_runs(output, message, scripted, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    (tmp_path / "out").mkdir()
    assert profile_model.main([*ARGUMENTS, "--output", output]) == 2
    out, err = capsys.readouterr()
    assert (out, message in err) == ("", True)


def test_output_may_have_any_name_in_a_new_folder(scripted, tmp_path, capsys):
    assert profile_model.main([*ARGUMENTS, "--output", "new/plain", "--quiet"]) == 0
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["plain", "trace_plain.json"]


@pytest.fixture
def exported(scripted, monkeypatch):
    """ONNX Runtime as the null device at twice the speed, and no OpenVINO."""
    plan_profile, profiled = profile_model.plan_profile, profile_model.profiled

    def plan(request, session_id):
        if request.runtime == "openvino":
            raise UnsupportedError("openvino is not here")
        found = plan_profile(replace(request, runtime=None), session_id)
        return found if request.runtime is None else replace(found, cell=replace(found.cell, runtime=request.runtime))

    def profile(plan, *arguments, **named):
        name = plan.cell.runtime
        found = profiled(replace(plan, cell=replace(plan.cell, runtime="null")), *arguments, **named)
        call = found.profile.call
        call = replace(call, latency_ms=tuple(ms / (1 if name == "null" else 2) for ms in call.latency_ms))
        run = found.profile.run
        return replace(
            found, profile=replace(found.profile, call=call, run=replace(run, cell=replace(run.cell, runtime=name)))
        )

    monkeypatch.setattr(profile_model, "plan_profile", plan)
    monkeypatch.setattr(profile_model, "profiled", profile)


def test_exported_graphs_are_compared_and_unsupported_ones_are_listed(exported, tmp_path, capsys):
    assert profile_model.main([*ARGUMENTS, "--compare-onnx", "--output-dir", "out"]) == 0
    out, err = capsys.readouterr()
    table, note = out.rsplit("\n\n", 1)
    assert "not judged: benchhouse compare-runtimes measures in turns" in " ".join(note.split())
    table = [line.split() for line in table.splitlines()[-4:]]
    assert table[0] == ["runtime", "median", "ms", "speedup", "feed-forward", "attention", "other"]
    assert table[2:] == [
        ["null", "8", "1.00x", "50%", "25%", "25%"],
        ["onnxruntime", "4", "2.00x", "50%", "25%", "25%"],
    ]
    assert "without openvino: openvino is not here" in err
    assert len(list((tmp_path / "out").glob("profiling_results_*.json"))) == 2
    (file,) = (tmp_path / "out").glob("onnx_comparison_*.json")
    assert [one["speedup"] for one in json.loads(file.read_text())["runtimes"]] == [1.0, 2.0]


def test_exported_graphs_are_compared_from_python(exported, tmp_path, capsys):
    profiling = MLRuntimeProfiler("tiny-bert", device="null")
    with pytest.raises(UsageError, match="call profile_inference first"):
        profiling.compare_onnx()
    profiling.profile_inference(sequence_length=10, num_runs=2)
    found = profiling.compare_onnx()
    assert [(one["runtime"], one["speedup"]) for one in found["runtimes"]] == [("null", 1.0), ("onnxruntime", 2.0)]
    profiling.print_summary()
    assert "2.00x" in capsys.readouterr().out
    paths = profiling.save_results(tmp_path / "saved")
    assert json.loads(paths["onnx_comparison"].read_text()) == found


def test_a_request_that_fails_leaves_the_last_profile_and_its_comparison(exported):
    profiling = MLRuntimeProfiler("tiny-bert", device="null")
    profile = profiling.profile_inference(sequence_length=10, num_runs=2)
    with pytest.raises(UsageError):
        profiling.profile_inference(sequence_length=1_000_000, num_runs=2)
    assert profiling.compare_onnx()["point"] == "b1 s10"
    assert {one.profile.point.label for one in profiling._compared} == {"b1 s10"}
    assert profiling.profile == profile


def test_an_unreadable_database_loses_only_the_peak_rates(scripted, tmp_path, capsys):
    (tmp_path / "db.duckdb").write_text("not a database")
    assert profile_model.main([*ARGUMENTS, "--json"]) == 0
    out, err = capsys.readouterr()
    assert "without the device's peak rates: " in err
    assert json.loads(out)["call"]["breakdown"]["missing"]["bound"].startswith("failed: ")
    assert profile_model.main([*ARGUMENTS, "--save"]) == 1
    assert "db.duckdb" in capsys.readouterr().err


def test_the_python_api_profiles_texts_and_reports_invalid_requests(scripted, tmp_path, capsys):
    profiling = MLRuntimeProfiler("tiny-bert", device="null")
    with pytest.raises(UsageError, match="call profile_inference first"):
        profiling.print_summary()
    profile = profiling.profile_inference(["four words of text", "two more"], num_runs=2)
    assert (profile.point.batch_size, profile.point.sequence_length) == (2, 4)
    assert "the model's folder has no tokenizer" in profile.call.missing["tokenize"]
    profiling.print_summary()
    assert "tiny-bert on null" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["null_script.json"]  # nothing is written unasked
    assert set(profiling.save_results(tmp_path / "saved")) == {"results", "trace"}
    with pytest.raises(UsageError, match="no axis 'image_size'"):
        profiling.profile_inference(image_size=3)
    for wrong in (0, 2.5, None, "x", math.nan):
        with pytest.raises(UsageError, match=f"num_runs takes a whole number from 1: got {wrong!r}"):
            profiling.profile_inference(num_runs=wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="a size has a name: batch_size=8"):
        profiling.profile_inference(8)  # type: ignore[arg-type]
