"""What is prepared before a cell's launches, through the shipped command: to exact numbers, and whatever goes wrong."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from benchmarking.builds.store import RECORD, BuildStore
from benchmarking.measure.settings import settings
from benchmarking.records import Preparation
from benchmarking.run_hardware_benchmark import main
from benchmarking.sweep import preparing, spool
from benchmarking.sweep.finishing import finish
from benchmarking.sweep.plan import CellPlan
from benchmarking.sweep.progress import Silence
from benchmarking.sweep.supervisor import sweep
from benchmarking.sweep.track import Track
from db.warehouse import Warehouse

SWEEP = ["--model-id", "tiny-bert", "--device", "null", "--batch-sizes", "1,2", "--sequence-lengths", "32"]
SWEEP += ["--weights", "random", "--precision", "int8", "--iterations", "3", "--warmup-iterations", "1", "--quiet"]
ONE = ["--launches", "1", "--json"]
REFERENCE = {"logits": [[3.0, 4.0]]}
OFF_BY_A_TENTH = {"float32": REFERENCE, "int8": {"logits": [[3.0, 4.5]]}}
"""||(0, 0.5)|| / ||(3, 4)|| = 0.1, within int8's tolerance."""
WRONG = {"float32": REFERENCE, "int8": {"logits": [[4.0, 3.0]]}}
"""||(1, -1)|| / 5 = 0.28, and a cosine of 24 / 25."""


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BENCHHOUSE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("BENCHMARK_DB_PATH", raising=False)


@pytest.fixture
def measured(capsys):
    """A function that runs the command and gives its exit code and run."""

    def measure(*arguments):
        code = main([*SWEEP, *ONE, *arguments])
        (run,) = json.loads(capsys.readouterr().out)
        return code, run

    return measure


def doubts_of(result, *machine):
    """The kinds and severities of a result's doubts, those about the machine and the few samples left out."""
    about_machine = {"vm", "container", "governor", "on_battery", "few_samples", "cpu_pressure"}
    return [(d["kind"], d["severity"]) for d in result["doubts"] if d["kind"] not in about_machine]


def evidence(result, kind):
    return next(doubt["evidence"] for doubt in result["doubts"] if doubt["kind"] == kind)


def test_the_first_output_is_compared_with_the_reference_s_to_the_digit(null_script, measured):
    null_script(outputs=OFF_BY_A_TENTH)
    code, run = measured()
    assert code == 0
    for result in run["results"]:
        metrics = result["metrics"]
        assert metrics["output_error"] == pytest.approx(0.1, abs=1e-15)
        assert metrics["output_max_abs_error"] == 0.5
        assert metrics["output_cosine_similarity"] == pytest.approx(27 / (5 * 29.25**0.5))
        assert "output_equal_token_share" not in metrics
        assert doubts_of(result) == []
    assert set(run["preparation"]["references"]) == {"b1 s32", "b2 s32"}
    assert run["preparation"]["missing"] == {}


def test_an_output_that_differs_makes_the_result_invalid_in_the_file_and_in_every_view(null_script, capsys):
    null_script(outputs=WRONG)
    assert main([*SWEEP, "--launches", "1", "--save"]) == 0
    out = capsys.readouterr().out
    assert "invalid: output_differs" in out
    assert "output_differs (invalid), first at b1 s32: relative_l2 = 0.2828, tolerance_relative_l2 = 0.15" in out
    assert out.splitlines()[1].split()[-2:] == ["error", "doubts"]
    assert " 0.28  invalid" in out.splitlines()[3]
    with Warehouse.open("benchmark_db.duckdb") as warehouse:
        sql = "SELECT validity, doubts, round(output_error, 6) AS error FROM latest_results"
        for row in warehouse.query(sql).dicts():
            assert (row["validity"], row["error"]) == ("invalid", 0.282843)
            assert "output_differs" in row["doubts"]
        for view in ("accepted_results", "hardware_comparison", "architecture_comparison", "device_efficiency"):
            assert warehouse.query(f"SELECT * FROM {view}").dicts() == [], view
        shown = warehouse.query("SELECT is_ranked, speedup FROM runtime_comparison").dicts()
        assert shown == [{"is_ranked": False, "speedup": None}] * 2


def test_the_reference_itself_is_compared_with_nothing_and_needs_no_preparation(null_script, measured):
    null_script(outputs=OFF_BY_A_TENTH)
    _, run = measured("--precision", "float32")
    assert run["preparation"] is None
    assert run["results"][0]["missing"]["output_error"] == "not_applicable: it is the reference"
    assert doubts_of(run["results"][0]) == []


def test_without_outputs_there_is_nothing_to_compare_and_no_doubt_about_it(null_script, measured):
    null_script()
    _, run = measured()
    assert run["preparation"] is None
    assert run["results"][0]["missing"]["output_error"] == "not_applicable: runtime null has no reference"
    assert doubts_of(run["results"][0]) == []


def test_the_build_is_made_once_and_what_there_is_to_know_of_it_is_in_columns(null_script, capsys):
    null_script(build={"exporter": "scripted"})
    for _ in range(2):
        assert main([*SWEEP, "--launches", "1", "--save"]) == 0
    capsys.readouterr()
    with Warehouse.open("benchmark_db.duckdb") as warehouse:
        columns = "exporter, build_kind, build_is_new, length(build_digest) AS digits"
        rows = warehouse.query(f"SELECT {columns} FROM benchmark_runs ORDER BY started_at").dicts()
        assert [tuple(row.values()) for row in rows] == [
            ("scripted", "null", True, 32),
            ("scripted", "null", False, 32),
        ]
        sizes = warehouse.query("SELECT DISTINCT model_size_mb, memory_weights_mb FROM benchmark_results").dicts()
        assert sizes == [{"model_size_mb": 0.001, "memory_weights_mb": None}]


def test_rebuild_always_makes_build_and_references_anew_and_never_makes_none(null_script, measured):
    null_script(build={"exporter": "scripted"}, outputs=OFF_BY_A_TENTH)
    code, run = measured("--rebuild", "never")
    assert (code, run["status"]) == (1, "failed")
    assert "--rebuild never forbids making one" in run["results"][0]["error"]
    assert measured()[1]["preparation"]["build"]["is_new"] is True
    times = {path: path.stat().st_mtime_ns for path in Path("cache").rglob(RECORD)}
    assert len(times) == 3, "the build and two references"
    assert measured("--rebuild", "never")[1]["preparation"]["build"]["is_new"] is False
    assert measured("--rebuild", "always")[1]["preparation"]["build"]["is_new"] is True
    assert all(path.stat().st_mtime_ns > time_ns for path, time_ns in times.items())


def test_a_build_that_cannot_be_made_fails_the_points_with_its_reason(null_script, measured):
    null_script(build={"exporter": "scripted"}, faults={"prepare": "raise"})
    code, run = measured()
    assert (code, run["status"], run["loads"]) == (1, "failed", [])
    for result in run["results"]:
        assert result["status"] == "failed"
        assert result["error"] == "null cannot build tiny-bert: RuntimeError: scripted: the call raised"


@pytest.mark.skipif(os.name != "posix", reason="POSIX signals")
@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("kill", "preparing: the worker was killed by SIGKILL (by the system, for lack of memory, or by a user)"),
        ("exit", "preparing: the worker was ended with exit code 3"),
        ("hang", "preparing: no end within the time limit of 10 s"),
    ],
)
def test_a_preparation_that_dies_or_hangs_fails_the_points_and_leaves_no_half_of_a_build(
    null_script, measured, fault, error
):
    null_script(build={"exporter": "scripted"}, faults={"prepare": fault})
    code, run = measured("--timeout", "10")
    assert (code, [result["error"] for result in run["results"]]) == (1, [error, error])
    assert list(Path("cache").rglob(RECORD)) == []


def test_the_cells_after_one_that_could_not_be_prepared_are_measured(make_run, tmp_path, null_script):
    null_script(build={"exporter": "scripted"}, faults={"prepare": "raise"})
    lost = _track(make_run, tmp_path, "int8")
    null_free = _track(make_run, tmp_path, "bfloat16", runtime="bench")
    done = []
    null_free.plan = _replaced(null_free.plan, skipped={"b1 s32": "not now", "b2 s32": "not now"})
    sweep([lost, null_free], Silence(), done.append)
    assert done == [lost, null_free]
    assert [one.status for one in lost.measurements] == ["failed", "failed"]


@pytest.mark.skipif(os.name != "posix", reason="POSIX signals")
@pytest.mark.parametrize(("fault", "why"), [("kill", "killed by SIGKILL"), ("hang", "no end within the time limit")])
def test_a_reference_that_dies_costs_the_comparison_and_not_the_measurement(null_script, measured, fault, why):
    null_script(outputs=OFF_BY_A_TENTH, faults={"reference b2 s32": fault})
    code, run = measured("--timeout", "10")
    assert code == 0
    first, second = run["results"]
    assert first["metrics"]["output_error"] == pytest.approx(0.1)
    assert (second["status"], second["validity"]) == ("ok", "valid")
    assert doubts_of(second) == [("not_compared", "info")]
    reason = second["missing"]["output_error"]
    assert reason.startswith("failed: preparing the reference: ")
    assert why in reason
    assert evidence(second, "not_compared")["why"] == reason == run["preparation"]["missing"]["b2 s32"]


def test_a_reference_that_raises_or_is_wrong_itself_is_a_reason_of_its_point_alone(null_script, measured):
    null_script(outputs=OFF_BY_A_TENTH, faults={"reference b1 s32": "nan", "reference b2 s32": "oom"})
    _, run = measured()
    assert run["preparation"]["missing"] == {
        "b1 s32": "failed: the null float32 reference has a wrong output itself: NaN in the output",
        "b2 s32": "failed: scripted: out of memory",
    }
    assert [doubts_of(result) for result in run["results"]] == [[("not_compared", "info")]] * 2


def test_a_reference_that_does_not_fit_is_not_tried(null_script, measured, make_run, monkeypatch):
    from benchmarking.records import Readings
    from benchmarking.sweep.reference import ReferenceMaker
    from benchmarking.workloads import _footprint

    null_script(outputs=OFF_BY_A_TENTH)
    cell = _track(make_run, Path.cwd(), "int8").plan.cell
    few = Readings(values={"free_memory_bytes": 1_000_000})
    monkeypatch.setattr(_footprint, "free_memory", lambda device: few)
    maker = ReferenceMaker(cell, BuildStore())
    with pytest.raises(Exception, match=r"null float32 reference does not fit: .* needs 0.4 GB for weights"):
        maker.digest(POINTS(1))
    assert list(Path("cache").rglob(RECORD)) == []


def test_a_reference_that_went_from_the_cache_or_is_damaged_is_said(null_script, make_run):
    from benchmarking.sweep.check import Check
    from benchmarking.sweep.messages import Job
    from benchmarking.sweep.reference import FILE, ReferenceMaker

    null_script(outputs=OFF_BY_A_TENTH)
    plan = _track(make_run, Path.cwd(), "int8").plan
    digest = ReferenceMaker(plan.cell, BuildStore()).digest(POINTS(1))
    job = Job(
        cell=plan.cell,
        launch=0,
        points=(POINTS(1),),
        settings=plan.settings,
        spawned_at_ns=0,
        preparation=Preparation(references={"b1 s32": digest}),
    )
    import numpy as np

    arrays = {"logits": np.array([[3.0, 4.5]])}
    assert Check.of(job, POINTS(1))(arrays).result.metrics["output_error"] == pytest.approx(0.1)
    nothing = Check.of(job, POINTS(1))({})
    assert nothing.result.missing["output_error"] == "not_supported: the call gives nothing that could be compared"
    outputs = BuildStore().root / "reference" / digest / FILE
    outputs.write_text("no zip")
    damaged = Check.of(job, POINTS(1))(arrays)
    assert damaged.result.missing["output_error"].startswith("failed: the reference in the cache is damaged")
    shutil.rmtree(outputs.parent)
    gone = Check.of(job, POINTS(1))(arrays)
    assert gone.result.missing["output_error"].startswith("failed: the reference is gone from the cache (No such file")
    assert [doubt.kind for doubt in (*nothing.doubts, *damaged.doubts, *gone.doubts)] == ["not_compared"] * 3
    assert Check.of(job, POINTS(2))(arrays).result.missing["output_error"] == "not_run"


def test_nodes_that_fell_back_to_the_cpu_make_their_point_invalid_and_no_other(null_script, measured):
    null_script(verified={"b1 s32": {"nodes": 40, "nodes_on_cpu_unasked": 3}, "*": {"nodes": 40}})
    _, run = measured()
    first, second = run["results"]
    assert (first["validity"], doubts_of(first)) == ("invalid", [("cpu_fallback", "invalid")])
    assert evidence(first, "cpu_fallback")["nodes_on_cpu_unasked"] == 3
    assert (first["metrics"]["nodes"], first["metrics"]["nodes_on_cpu_unasked"]) == (40.0, 3.0)
    assert (second["validity"], doubts_of(second), second["metrics"]["nodes"]) == ("valid", [], 40.0)
    assert second["missing"]["nodes_on_cpu_unasked"].startswith("not_applicable")


def test_a_recompilation_in_the_window_makes_the_result_invalid(null_script, measured):
    null_script(compiles=[1, 0, 0, 1], verified={"*": {"graph_count": 1, "graph_break_count": 2, "recompile_count": 1}})
    _, run = measured()
    first, second = run["results"]
    assert doubts_of(first) == [("compiled_in_window", "invalid")]
    assert doubts_of(second) == []
    assert [first["metrics"][name] for name in ("graph_count", "graph_break_count", "recompile_count")] == [1, 2, 1]


def test_the_work_of_a_call_is_the_reference_s_where_the_runtime_cannot_count(null_script, measured):
    null_script(outputs=OFF_BY_A_TENTH, flops=1e6, latency_ms={"*": [2.0, 2.0]})
    _, run = measured()
    for result in run["results"]:
        assert result["metrics"]["flops"] == 1e6
        assert result["metrics"]["achieved_flops_per_sec"] == pytest.approx(5e8)
        assert "flops" not in result["missing"]
        assert result["missing"]["bytes_accessed"].startswith("not_applicable")
        assert result["extra"]["launches"][0]["flops_source"] == "reference"
    _, reference = measured("--precision", "float32")
    assert reference["results"][0]["metrics"]["flops"] == 1e6
    assert "flops_source" not in reference["results"][0]["extra"]["launches"][0]


def test_a_launch_that_only_saw_software_is_stored_as_a_simulator_s(null_script, measured):
    null_script(verified={"load": {"is_simulated": True, "weight_dtypes": {"int8": 7}}})
    _, run = measured()
    assert run["loads"][0]["verified"]["is_simulated"] is True


def POINTS(batch_size):  # noqa: N802 - reads as the grid's own
    from benchmarking.records import Point

    return Point(batch_size=batch_size, sequence_length=32)


def _replaced(plan, **fields):
    import dataclasses

    return dataclasses.replace(plan, **fields)


def _track(make_run, folder, precision, runtime="null"):
    """A track on the null device with points of batch 1 and 2."""
    import dataclasses

    from benchmarking.devices.null import PLUGIN

    (device,) = PLUGIN.probe()
    run = make_run()
    cell = dataclasses.replace(run.cell, device=device, runtime=runtime, runtime_mode={}, precision=precision)
    plan = CellPlan(
        session_id="s",
        started_at="2026-01-02T03:04:05Z",
        cell=cell,
        hardware=dataclasses.replace(run.hardware, device=device),
        provenance=run.provenance,
        settings=settings("quick", launches=2, iterations=3),
        timeout_s=60.0,
        points=(POINTS(1), POINTS(2)),
    )
    return Track.start(folder, plan)


def test_a_run_that_is_resumed_is_prepared_again_and_the_last_preparation_counts(make_run, tmp_path, null_script):
    null_script(build={"exporter": "scripted"}, outputs=OFF_BY_A_TENTH)
    track = _track(make_run, tmp_path, "int8")
    track.begin()
    made = preparing.prepare(track.plan, lambda what: None)
    assert isinstance(made, Preparation)
    assert made.build["is_new"] is True
    track.keep(made)
    progress = track.file.read()
    assert progress.preparation == made
    shutil.rmtree(tmp_path / "cache")
    _give_up(track)
    (file,) = spool.unfinished(tmp_path)
    resumed = Track.resume(file)
    assert (resumed.preparation, resumed.is_prepared) == (made, False)
    sweep([resumed], Silence())
    assert resumed.is_prepared
    assert resumed.preparation.references == made.references
    run = finish(resumed).run
    assert run.preparation.build["is_new"] is True, "it was gone from the cache"
    assert [result.metrics["output_error"] for result in run.results] == pytest.approx([0.1, 0.1])


def _give_up(track):
    """Make the file look as if the process at it were gone."""
    lines = track.file.path.read_text().splitlines()
    kept = [line for line in lines if not line.startswith('{"Owner"')]
    track.file.path.write_text("\n".join(kept) + "\n")


def test_what_is_being_prepared_is_told(make_run, tmp_path, null_script):
    null_script(build={"exporter": "scripted"}, outputs=OFF_BY_A_TENTH)
    told = []
    preparing.prepare(_track(make_run, tmp_path, "int8").plan, told.append)
    assert told == ["the null build", "the reference's output at b1 s32", "the reference's output at b2 s32"]
