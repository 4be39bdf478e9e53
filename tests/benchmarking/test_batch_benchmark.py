"""The batch command end to end on the null device: measuring, storing, errors and messages."""

from __future__ import annotations

import getpass
import json
import re
import shutil
import subprocess
import sys

import pytest

from benchmarking.batch import cell_plans
from benchmarking.batch_benchmark import main
from benchmarking.commands import benches
from db.warehouse import Warehouse

QUICK = ["--devices", "null", "--profile", "quick", "--weights", "random", "--quiet"]
SMALL = ["--batch-sizes", "1", "--sequence-lengths", "32", "--iterations", "3", "--warmup-iterations", "1"]
TWO = ["--models", "tiny-bert,tiny-gpt2", "--new-tokens", "4"]


pytestmark = [pytest.mark.forked_children, pytest.mark.usefixtures("empty_working_folder")]


def summary(tmp_path):
    return json.loads((tmp_path / "benchmark_results" / "benchmark_summary.json").read_text())


def planned(capsys, *arguments):
    """The points of each planned cell, by model, device and precision."""
    assert main([*arguments, "--dry-run", "--json"]) == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    names = [
        (c["cell"]["workload"]["model_id"], c["cell"]["device"]["selector"], c["cell"]["precision"]) for c in cells
    ]
    return dict(zip(names, [[_label(point) for point in cell["points"]] for cell in cells], strict=True))


def _label(point):
    tokens = "" if point["new_tokens"] is None else f" n{point['new_tokens']}"
    return f"b{point['batch_size']} s{point['sequence_length']}{tokens}"


def test_the_plans_of_an_anonymous_batch_have_no_user_name(capsys, monkeypatch):
    monkeypatch.setattr(getpass, "getuser", lambda: "alice")
    assert main([*TWO, *SMALL, "--dry-run", "--json", "--anonymous", "--description", "by alice"]) == 0
    (described,) = {cell["provenance"]["description"] for cell in json.loads(capsys.readouterr().out)["cells"]}
    assert described == "by user"


def test_every_model_is_measured_stored_summarised_logged_and_reported(tmp_path, capsys, null_script):
    null_script(latency_ms={"*": [9.0, 2.0, 4.0, 6.0]})
    code = main([*TWO, *QUICK, *SMALL, "--launches", "2", "--report", "new/report.html", "--tag", "suite=x"])
    out = capsys.readouterr().out
    written = summary(tmp_path)
    folder = tmp_path / "benchmark_results"
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[2:]] == ["tiny-bert", "tiny-gpt2"]
    assert written["cells_by_status"] == {"ok": 2}
    cell = written["cells"][0]
    assert cell["points"][0]["metrics"]["latency_median_ms"] == pytest.approx(4.0, abs=2.0)
    assert sorted(path.suffix for path in folder.iterdir()) == [".json", ".json", ".json", ".log"]
    run = json.loads((folder / cell["run_file"]).read_text())
    assert (run["session_id"], run["provenance"]["tags"]) == (written["session_id"], {"suite": "x"})
    with Warehouse.open("benchmark_db.duckdb") as warehouse:
        rows = warehouse.query("select session_id, model_id from benchmark_runs order by 2").dicts()
    assert rows == [{"session_id": written["session_id"], "model_id": name} for name in ("tiny-bert", "tiny-gpt2")]
    log = next(folder.glob("*.log")).read_text()
    assert log.index("tiny-gpt2 on null (null, float32): launch 1 of 2") < log.index(
        "tiny-bert on null (null, float32): launch 2 of 2"
    )
    assert log.index("stored tiny-") < log.rindex("finished tiny-")  # in either order, a run is stored at its end
    assert "tiny-gpt2" in (tmp_path / "new" / "report.html").read_text()


def test_failures_are_listed_and_the_batch_continues(tmp_path, capsys, null_script):
    null_script(faults={"b1 s32": "raise"})
    code = main([*TWO, *QUICK, *SMALL])
    err = capsys.readouterr().err
    assert code == 1
    assert "failed: tiny-bert on null (null, float32): b1 s32: failed: RuntimeError: scripted: the call raised\n" in err
    assert summary(tmp_path)["cells_by_status"] == {"failed": 1, "ok": 1}


@pytest.mark.forked_children(False)  # a library in the fork server sends all logs to stderr
def test_runs_that_could_not_be_stored_are_stored_by_resume(tmp_path, capsys, monkeypatch):
    database = tmp_path / "here.duckdb"
    command = [sys.executable, "-m", "benchmarking.batch_benchmark", *TWO, *QUICK, *SMALL]
    with Warehouse.open(database):
        command += ["--db-path", "here.duckdb", "--lock-timeout", "0"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("not stored: ")) == (1, 2)
    assert [cell["stored"] for cell in summary(tmp_path)["cells"]] == [False, False]
    assert main(["--resume", "--quiet"]) == 2
    assert (
        f"refers to {database}, outside its folder: to use it, repeat --db-path {database}" in capsys.readouterr().err
    )
    moved = shutil.move(database, tmp_path / "away")
    Warehouse.open(tmp_path / "own/here.duckdb").close()
    monkeypatch.setenv("BENCHMARK_DB_PATH", "own/here.duckdb")
    assert main(["--resume", "--quiet"]) == 2
    how = "which is not there any more: to use own/here.duckdb, add --db-path own/here.duckdb"
    assert how in capsys.readouterr().err
    shutil.move(moved, database)
    assert main([*TWO, *QUICK, "--resume"]) == 2
    assert "was started with these settings" in capsys.readouterr().err
    assert main([*command[3:], "--resume"]) == 0  # as it was typed before
    assert [cell["stored"] for cell in summary(tmp_path)["cells"]] == [True, True]
    with Warehouse.open(database) as warehouse:
        assert warehouse.query("select count(*) as n from benchmark_runs").dicts() == [{"n": 2}]


def test_without_save_nothing_is_left(tmp_path, capsys):
    assert main([*TWO, *QUICK, *SMALL, "--no-save", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cells_by_status"] == {"ok": 2}
    assert list(tmp_path.iterdir()) == []


def test_axes_apply_to_the_models_that_have_them(capsys):
    plan = planned(capsys, *TWO, *QUICK, *SMALL)
    assert plan == {
        ("tiny-bert", "null", "float32"): ["b1 s32"],
        ("tiny-gpt2", "null", "float32"): ["b1 s32 n4"],
    }


def test_yaml_lists_are_multiplied_and_grids_are_combined(capsys, tmp_path):
    (tmp_path / "models.yaml").write_text(
        """
devices: "null"
precisions: [float32, float16]
batch_sizes: [1]
sequence_lengths: [32]
weights: random
models:
  - tiny-bert
  - id: tiny-gpt2
    precisions: bfloat16
    new_tokens: 2
    grids: [{batch_sizes: [1, 2]}, {sequence_lengths: 64}, {batch_sizes: 2}]
"""
    )
    assert planned(capsys, "--model-list", "models.yaml") == {
        ("tiny-bert", "null", "float32"): ["b1 s32"],
        ("tiny-bert", "null", "float16"): ["b1 s32"],
        ("tiny-gpt2", "null", "bfloat16"): ["b1 s32 n2", "b1 s64 n2", "b2 s32 n2"],
    }
    assert set(planned(capsys, "--model-list", "models.yaml", "--precisions", "int8", "--include", "*bert")) == {
        ("tiny-bert", "null", "int8")
    }


def test_dry_runs_estimate_the_time_from_earlier_runs(capsys, tmp_path):
    arguments = [*TWO, *QUICK, *SMALL]
    assert main([*arguments, "--dry-run"]) == 0
    assert "2 cells, 2 points; estimated time: unknown, since nothing similar was measured" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
    main(arguments)
    capsys.readouterr()
    assert main([*arguments, "--dry-run"]) == 0
    assert re.search(r"2 cells, 2 points; estimated time: about \d+ s \(2 measured before\)", capsys.readouterr().out)


def test_every_unsupported_cell_is_named(capsys, tmp_path):
    code = main(["--models", "tiny-bert,tiny-bret,tiny-gpt2", *QUICK, "--devices", "null,nul", *SMALL])
    lines = capsys.readouterr().err.splitlines()
    assert code == 2
    assert len(lines) == 3
    assert lines[0].startswith("tiny-bert on nul (float32) [--models], tiny-gpt2 on nul (float32) [--models]: unknown")
    assert "tiny-bret on null (float32) [--models], tiny-bret on nul (float32) [--models]: " in lines[1]
    assert lines[2] == "batch_benchmark: error: nothing measured: 4 of 6 cells are unsupported or invalid"
    assert list(tmp_path.iterdir()) == []


def test_unsupported_points_can_be_stored_as_skipped(tmp_path):
    arguments = ["--models", "tiny-bert", *QUICK, *SMALL, "--devices", "qnn,null", "--skip-unsupported"]
    assert main(arguments) == 0
    assert summary(tmp_path)["cells_by_status"] == {"skipped": 1, "ok": 1}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to measure: give MODEL ..., --model-list FILE or --benches DIR"),
        (["--models", "a", "--model-list", "b"], "not allowed with argument"),
        (["--models", "tiny-bert", "--image-sizes", "32"], "no model of the batch has the axis image_size"),
        (["--models", "tiny-bert", "--precisions", "float64"], "unknown precision 'float64': did you mean float16"),
        (["--models", "tiny-bert", "--report", "a.pdf"], "expected a name that ends with .html or .md"),
        (["--models", "tiny-bert", "--include", "x*"], "no model matches 'x*'"),
        (["--models", "tiny-bert", "--benches", "none"], "--benches none: no such folder"),
        (["--benches", "none", "--batch-sizes", "2,4"], "as in BenchmarkConfig(name=..., batch_size=2)"),
        (["--benches", "none", "--image-sizes", "32"], 'as in BenchmarkConfig(name=..., axes={"image_size": 32})'),
        (["--benches", "none", "--attention", "sdpa"], 'BenchmarkConfig(name=..., options={"attention": "sdpa"})'),
        (["--benches", "none", "--compile-mode", "default"], 'BenchmarkConfig(name=..., compile_mode="default")'),
        (["--benches", "none", "--runtimes", "null"], "--runtimes applies to models only: benchmarks have no runtime"),
        (["--benches", "none", "--num-threads", "2"], "torch.set_num_threads(2) in setup_model()"),
        (["--benches", "none", "--concurrency", "2"], "benchmarks have no such setting: remove it"),
        (["--resume"], "no unfinished batch in benchmark_results"),
        (["--resume", "--no-save"], "--resume continues a saved batch"),
        (["--model-list", "none.yaml"], "none.yaml does not exist"),
    ],
)
def test_usage_errors_are_one_line(capsys, arguments, message):
    assert main([*arguments, "--quiet"]) in (1, 2)
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_duplicate_cells_under_two_device_names_are_errors(capsys):
    code = main(["--models", "tiny-bert", "--devices", "cpu,auto", "--runtimes", "eager", "--quiet"])
    assert code == 2
    assert "is the same cell (tiny-bert on cpu (eager, float32)) as tiny-bert on cpu" in capsys.readouterr().err


@pytest.mark.slow
def test_mock_benchmarks_run_when_they_are_enabled(capsys):
    from benchmarking.benches.discovery import EXAMPLES

    arguments = ["--benches", str(EXAMPLES), "--enable-mock", "--profile", "quick", "--iterations", "3", "--quiet"]
    arguments += ["--warmup-iterations", "1", "--no-save", "--json"]
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["cells_by_status"].keys() == {"ok"}


def test_a_file_of_benchmarks_may_be_joined_to_its_flag(monkeypatch):
    seen = []
    monkeypatch.setattr(benches.batch, "run", lambda argv, *_, **__: seen.append(argv) or 0)
    assert benches.main(["--benches=mine.py", "--dry-run"]) == 0
    assert seen == [["--benches=mine.py", "--dry-run"]]


@pytest.mark.parametrize(
    ("words", "is_stored"),
    [
        ([], False),
        (["--quiet"], False),
        (["--save"], True),
        (["--output-dir", "out"], True),
        (["--db-path", "mine.duckdb"], True),
        (["tiny-bert"], True),
        (["--models", "tiny-bert"], True),
    ],
)
def test_examples_of_ours_are_run_where_there_is_no_folder_and_stored_only_if_asked(
    words, is_stored, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    seen = []
    monkeypatch.setattr(
        benches.batch, "run", lambda argv, name, text, finished, remark, **_: seen.append((argv, remark)) or 0
    )
    assert benches.main(words) == 0
    ((argv, remark),) = seen
    assert cell_plans.parser("run_benchmarks", None).parse_args(argv).save is is_stored
    assert "there is no folder ./benches: the examples in " in remark
    assert ("nothing is stored without --save" in remark) is not is_stored
    (tmp_path / "benches").mkdir()
    assert benches.main(words) == 0
    assert seen[1] == (["--benches", "benches", *words], None)
