"""Several runtimes in one sweep, through the commands. On the null device only the runtime null runs: its numbers are
exact, and all other runtimes are unsupported."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from benchmarking import cli, compare_onnx
from benchmarking.commands import compare_runtimes
from benchmarking.core import plugins
from benchmarking.core.records import Device
from benchmarking.run_hardware_benchmark import main

pytestmark = pytest.mark.forked_children

SMALL = ["--batch-sizes", "1,2", "--sequence-lengths", "32", "--iterations", "3", "--warmup-iterations", "0"]
NULL = ["--device", "null", "--quiet", "--launches", "3", *SMALL]
RUN = ["--model-id", "tiny-bert", *NULL]


@pytest.fixture(autouse=True)
def in_an_empty_folder(empty_working_folder, tmp_path, monkeypatch, null_script):
    monkeypatch.setenv("BENCHHOUSE_CACHE_DIR", str(tmp_path / "cache"))
    null_script(latency_ms={"b1 s32": [4.0], "b2 s32": [6.0]})


def test_one_unsupported_cell_is_a_one_line_error_for_the_plan(capsys):
    assert main([*RUN, "--runtime", "null,eager,onnxruntime"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("run_hardware_benchmark: error: nothing measured: 2 of 3 runtimes are unsupported: eager: ")
    assert "onnxruntime: " in line
    assert line.endswith("use --skip-unsupported to skip them and measure the others")


def test_skipped_runtimes_are_listed_in_the_comparison(capsys):
    assert main([*RUN, "--runtime", "null,eager", "--skip-unsupported"]) == 0
    shown = capsys.readouterr().out
    comparison = shown[shown.index("runtimes compared") :].splitlines()
    assert comparison[0].endswith("speedup over null")
    assert [line.split()[:4] for line in comparison[3:5]] == [["b1", "s32", "null", "4"], ["b2", "s32", "null", "6"]]
    _, reason = " ".join(" ".join(comparison).split()).split("eager: not measured: ")
    assert "eager runs on cpu, cuda, rocm, mps, xpu, not on null" in reason


def test_a_comparison_says_how_often_it_launches_unless_that_was_asked_for(capsys):
    words = ["tiny-bert", "--device", "null", "--runtime", "null,eager", "--skip-unsupported", *SMALL]
    assert main(words) == 0
    said = "each point is launched 8 times, to tell small differences; --launches 1 is a look\n"
    assert said in capsys.readouterr().err
    assert main([*words, "--launches", "3"]) == 0
    assert "times, to tell" not in capsys.readouterr().err


def test_json_gives_the_runs_and_the_comparison(capsys):
    assert main([*RUN, "--runtime", "null,eager", "--skip-unsupported", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {run["cell"]["runtime"]: run["status"] for run in document["runs"]} == {"null": "ok", "eager": "skipped"}
    comparison = document["comparison"]
    assert (comparison["baseline"], list(comparison["not_measured"])) == ("null", ["eager"])
    medians = {one["point"]: [entry["median_ms"] for entry in one["entries"]] for one in comparison["points"]}
    assert medians == {"b1 s32": [4.0], "b2 s32": [6.0]}


def test_a_single_runtime_is_shown_without_a_comparison(capsys):
    assert main([*RUN, "--runtime", "null", "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)
    assert run["cell"]["runtime"] == "null"


def test_each_runtime_is_a_cell_of_one_session(capsys):
    assert main([*RUN, "--runtime", "null,eager", "--skip-unsupported", "--dry-run", "--json"]) == 0
    plans = json.loads(capsys.readouterr().out)
    assert [(plan["cell"]["runtime"], plan["settings"]["launches"]) for plan in plans] == [("null", 3), ("eager", 3)]
    assert len({plan["session_id"] for plan in plans}) == 1
    assert len(plans[1]["skipped"]) == 2


@pytest.mark.parametrize(
    ("runtimes", "words"),
    [
        ("null,eagre", "unknown runtime 'eagre': did you mean eager"),
        ("all,null", "all already includes the others"),
        (",", "the list is empty"),
    ],
)
def test_invalid_runtime_lists_are_errors(capsys, runtimes, words):
    assert main([*RUN, "--runtime", runtimes]) == 2
    assert words in capsys.readouterr().err


def test_options_apply_to_the_runtimes_that_declare_them(capsys):
    arguments = ["--device", "cpu", "--model-id", "tiny-bert", *SMALL, "--dry-run", "--json"]
    assert main([*arguments, "--runtime", "eager,compiled", "--compile-mode", "max-autotune"]) == 0
    eager, compiled = json.loads(capsys.readouterr().out)
    assert "compile_mode" not in eager["cell"]["runtime_mode"]
    assert compiled["cell"]["runtime_mode"]["compile_mode"] == "max-autotune"


def test_an_option_that_none_of_the_runtimes_has_is_refused(capsys):
    arguments = ["--device", "cpu", "--model-id", "tiny-bert", *SMALL, "--dry-run"]
    assert main([*arguments, "--runtime", "eager,compiled", "--performance-mode", "burst"]) == 2
    assert "none of these runtimes has an option performance_mode: eager has " in capsys.readouterr().err


def test_all_skips_unsupported_runtimes_with_a_message(capsys):
    assert main(["--device", "cpu", "--model-id", "tiny-bert", *SMALL, "--dry-run", "--json", "--runtime", "all"]) == 0
    output = capsys.readouterr()
    planned = {plan["cell"]["runtime"] for plan in json.loads(output.out)}
    left_out = {line.split(": ")[1] for line in output.err.splitlines() if line.startswith("left out: ")}
    assert {"eager", "compiled"} <= planned
    assert {"tensorrt", "qnn"} <= left_out
    assert planned.isdisjoint(left_out)
    assert {"null", "bench"}.isdisjoint(planned | left_out)


def test_all_leaves_out_what_would_run_on_an_emulation_unless_it_is_named(capsys, monkeypatch):
    """A page's GPU on a processor is software: its times say nothing of a GPU."""
    webgpu, cpu = plugins.runtime("webgpu"), Device(type="cpu", selector="cpu", found=True)
    why = webgpu.emulated_on(cpu)
    assert why == "on cpu browsers emulate a GPU in software"
    assert webgpu.emulated_on(replace(cpu, type="cuda", selector="cuda")) is None
    monkeypatch.setattr(type(plugins.runtime("onnxruntime")), "emulated_on", lambda *_: why)
    words = ["--device", "cpu", "--model-id", "tiny-bert", *SMALL, "--dry-run", "--json", "--runtime"]
    for runtimes, is_planned in (("all", False), ("eager,onnxruntime", True)):
        assert main([*words, runtimes]) == 0
        output = capsys.readouterr()
        assert ("onnxruntime" in {plan["cell"]["runtime"] for plan in json.loads(output.out)}) == is_planned
        line = f"left out: onnxruntime: {why}: --runtimes eager,onnxruntime measures that"
        assert (line in output.err.splitlines()) != is_planned


@pytest.mark.parametrize(
    "command", [[main, "--model-id", "tiny-bert", "--runtime", "compiled,eager"], [compare_onnx.main, "tiny-bert"]]
)
def test_a_comparison_of_runtimes_has_the_launches_that_prove_any_difference(command, capsys):
    program, *arguments = command
    assert program([*arguments, "--device", "cpu", *SMALL, "--dry-run", "--json"]) == 0
    assert {plan["settings"]["launches"] for plan in json.loads(capsys.readouterr().out)} == {8}


def test_device_auto_is_resolved_once_for_all_runtimes(capsys):
    assert main(["--model-id", "tiny-bert", *SMALL, "--dry-run", "--json", "--runtime", "compiled,eager"]) == 0
    cells = [plan["cell"] for plan in json.loads(capsys.readouterr().out)]
    assert [cell["runtime"] for cell in cells] == ["compiled", "eager"]
    assert {cell["requested_device"] for cell in cells} == {"auto"}
    assert len({cell["device"]["selector"] for cell in cells}) == 1


def test_the_plan_shows_threads_and_rebuild(capsys):
    assert main([*RUN, "--runtime", "null", "--dry-run", "--rebuild", "always", "--num-threads", "1"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert "threads    1" in shown
    assert "rebuild    always" in shown


def test_runs_of_several_runtimes_are_stored(capsys, tmp_path):
    pytest.importorskip("duckdb")
    assert main([*RUN, "--runtime", "null,eager", "--skip-unsupported", "--save", "--db-path", "here.duckdb"]) == 0
    files = sorted(path.name for path in (tmp_path / "benchmark_results").glob("tiny-bert*.json"))
    assert len(files) == 2
    assert any("_null_null_" in name for name in files)


def test_compare_runtimes_needs_two_supported_runtimes(capsys):
    assert compare_onnx.main(["tiny-bert", *NULL]) == 2
    assert "--device null has runtime null, not eager, onnxruntime, openvino: " in capsys.readouterr().err
    assert cli.main(["compare-runtimes", "tiny-bert", *NULL, "--runtimes", "all"]) == 2
    shown = capsys.readouterr().err
    assert re.search(r" and \d+ more: choose another, such as --device cpu$", shown.strip())
    assert len(shown) < 1000
    assert compare_onnx.main(["tiny-bert", *NULL, "--runtimes", "null"]) == 2
    assert "a comparison needs two or more" in capsys.readouterr().err


def test_a_comparison_of_which_one_runtime_is_left_is_refused_before_a_launch(capsys):
    assert compare_onnx.main(["tiny-bert", *NULL, "--runtimes", "null,eager", "--skip-unsupported"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "compare_onnx: error: nothing to compare null with: eager: device 'null' (null device) cannot"
    )


def test_comparing_named_runtimes_gives_the_same_table(monkeypatch, capsys):
    monkeypatch.setattr(compare_runtimes, "LEAST_COMPARED", 1)  # the null device has one runtime
    assert compare_onnx.main(["tiny-bert", *NULL, "--runtimes", "null,eager", "--skip-unsupported", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [entry["median_ms"] for one in document["comparison"]["points"] for entry in one["entries"]] == [4.0, 6.0]


def test_benchhouse_accepts_short_command_names(capsys):
    assert cli.main(["compare-runtimes", "--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: benchhouse compare-runtimes")
    assert cli.main(["cache", "list", "--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: benchhouse cache list")
    assert cli.main(["compare-runtime"]) == 2
    known = capsys.readouterr().err
    assert "compare-runtimes" in known
    assert "compare_onnx" not in known


def test_a_script_without_a_model_says_which_it_takes_and_what_it_writes(tmp_path, monkeypatch, capsys):
    """The documents' default model is that of the script; our name of the command asks for one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compare_runtimes, "DEFAULT_MODEL", "tiny-bert")
    monkeypatch.setattr(compare_runtimes, "_compared", lambda: ("eager", "onnxruntime"))

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(compare_runtimes.command_session, "run_plans", stop)
    assert compare_onnx.main([]) == 130
    line = capsys.readouterr().err.splitlines()[0]
    assert line.startswith(
        "no MODEL is given: tiny-bert is taken (compare_onnx MODEL takes another); the comparison is"
    )
    assert re.search(r"written to results/onnx_comparison_tiny-bert_\d+_\d+\.json$", line)
    assert compare_onnx.main(["--num-runs", "3", "--output", "x.json"]) == 130
    assert "the comparison is written to x.json" in capsys.readouterr().err
    assert compare_onnx.main(["--sequence-lengths", "16", "--device", "cpu"]) == 130
    assert capsys.readouterr().err.startswith("no MODEL is given: tiny-bert is taken")
    for words in ([], ["--num-runs", "3"]):
        assert cli.main(["compare-runtimes", *words]) == 2
        assert "MODEL is missing" in capsys.readouterr().err
