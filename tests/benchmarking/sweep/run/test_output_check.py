"""Output comparison and read-back values through the command, with exact numbers."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from benchmarking.builds.store import BuildStore
from benchmarking.core.records import Preparation
from benchmarking.run_hardware_benchmark import main
from benchmarking.sweep.run.output_check import Check
from benchmarking.sweep.run.process import Job
from benchmarking.sweep.run.reference import FILE, ReferenceMaker
from db.warehouse import Warehouse

pytestmark = pytest.mark.usefixtures("in_an_empty_folder")
REFERENCE = {"logits": [[3.0, 4.0]]}
OFF_BY_A_TENTH = {"float32": REFERENCE, "int8": {"logits": [[3.0, 4.5]]}}
"""||(0, 0.5)|| / ||(3, 4)|| = 0.1, within int8's tolerance."""
WRONG = {"float32": REFERENCE, "int8": {"logits": [[4.0, -3.0]]}}
"""||(1, -7)|| / 5 = sqrt(2), and a cosine of 0."""


def evidence(result, kind):
    return next(doubt["evidence"] for doubt in result["doubts"] if doubt["kind"] == kind)


def test_the_first_output_is_compared_with_the_reference_exactly(null_script, measured, doubts_of):
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


def test_a_different_output_makes_the_result_invalid_everywhere(null_script, capsys, sweep_arguments):
    null_script(outputs=WRONG)
    assert main([*sweep_arguments, "--save"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[3].endswith("  invalid")
    words = " ".join(out.split())
    assert "output_differs (b1 s32, b2 s32): " in words
    assert "Found: relative_l2 = 1.414, tolerance_relative_l2 = 0.3" in words
    assert out.splitlines()[1].split()[-2:] == ["error", "doubts"]
    assert " 1.4  invalid" in out.splitlines()[3]
    with Warehouse.open("benchmark_db.duckdb") as warehouse:
        sql = "SELECT validity, doubts, round(output_error, 6) AS error FROM latest_results"
        for row in warehouse.query(sql).dicts():
            assert (row["validity"], row["error"]) == ("invalid", 1.414214)
            assert "output_differs" in row["doubts"]
        for view in ("accepted_results", "hardware_comparison", "architecture_comparison", "device_efficiency"):
            assert warehouse.query(f"SELECT * FROM {view}").dicts() == [], view
        shown = warehouse.query("SELECT is_ranked, speedup FROM runtime_comparison").dicts()
        assert shown == [{"is_ranked": False, "speedup": None}] * 2


def test_the_reference_itself_is_not_compared(null_script, measured, doubts_of):
    null_script(outputs=OFF_BY_A_TENTH)
    _, run = measured("--precision", "float32")
    assert run["preparation"] is None
    assert run["results"][0]["missing"]["output_error"] == "not_applicable: it is the reference"
    assert doubts_of(run["results"][0]) == []


def test_operations_without_outputs_are_not_compared(null_script, measured, doubts_of):
    null_script()
    _, run = measured()
    assert run["preparation"] is None
    assert run["results"][0]["missing"]["output_error"] == "not_applicable: runtime null has no reference"
    assert doubts_of(run["results"][0]) == []


def test_deleted_and_damaged_references_are_reasons_for_a_missing_comparison(null_script, null_track):
    null_script(outputs=OFF_BY_A_TENTH)
    plan = null_track().plan
    points = plan.points
    digest = ReferenceMaker(plan.cell, BuildStore()).digest(points[0])
    job = Job(
        cell=plan.cell,
        launch=0,
        points=points,
        settings=plan.settings,
        spawned_at_ns=0,
        preparation=Preparation(references={"b1 s32": digest}),
    )
    arrays = {"logits": np.array([[3.0, 4.5]])}
    assert Check.of(job, points[0])(arrays).result.metrics["output_error"] == pytest.approx(0.1)
    nothing = Check.of(job, points[0])({})
    assert nothing.result.missing["output_error"] == "not_supported: the call has no comparable output"
    outputs = BuildStore().root / "reference" / digest / FILE
    outputs.write_text("no zip")
    damaged = Check.of(job, points[0])(arrays)
    assert damaged.result.missing["output_error"].startswith("failed: the reference in the cache is damaged")
    shutil.rmtree(outputs.parent)
    gone = Check.of(job, points[0])(arrays)
    assert gone.result.missing["output_error"].startswith(
        "failed: the reference was deleted from the cache (No such file"
    )
    assert [doubt.kind for doubt in (*nothing.doubts, *damaged.doubts, *gone.doubts)] == ["not_compared"] * 3
    assert Check.of(job, points[1])(arrays).result.missing["output_error"] == "not_run"


def test_cpu_fallback_makes_only_its_point_invalid(null_script, measured, doubts_of):
    null_script(verified={"b1 s32": {"nodes": 40, "nodes_on_cpu_unasked": 3}, "*": {"nodes": 40}})
    _, run = measured()
    first, second = run["results"]
    assert (first["validity"], doubts_of(first)) == ("invalid", [("cpu_fallback", "invalid")])
    assert evidence(first, "cpu_fallback")["nodes_on_cpu_unasked"] == 3
    assert (first["metrics"]["nodes"], first["metrics"]["nodes_on_cpu_unasked"]) == (40.0, 3.0)
    assert (second["validity"], doubts_of(second), second["metrics"]["nodes"]) == ("valid", [], 40.0)
    assert second["missing"]["nodes_on_cpu_unasked"].startswith("not_applicable")


def test_a_recompilation_in_the_window_makes_the_result_invalid(null_script, measured, doubts_of):
    null_script(compiles=[1, 0, 0, 1], verified={"*": {"graph_count": 1, "graph_break_count": 2, "recompile_count": 1}})
    _, run = measured()
    first, second = run["results"]
    assert doubts_of(first) == [("compiled_in_window", "invalid")]
    assert doubts_of(second) == []
    assert [first["metrics"][name] for name in ("graph_count", "graph_break_count", "recompile_count")] == [1, 2, 1]


def test_work_is_taken_from_the_reference_if_the_runtime_cannot_count(null_script, measured):
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
