"""Output comparison and read-back values through the command, with exact numbers."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

from benchmarking.builds.store import BuildStore
from benchmarking.core.errors import StorageError
from benchmarking.core.records import Measurement, Point, Preparation, StandIn
from benchmarking.devices.null import PLUGIN as NULL_DEVICE
from benchmarking.run_hardware_benchmark import main
from benchmarking.runtimes.null import PLUGIN as NULL
from benchmarking.sweep.run import reference
from benchmarking.sweep.run.output_check import Check
from benchmarking.sweep.run.process import Job
from benchmarking.sweep.run.reference import FILE, ReferenceMaker
from benchmarking.workloads.support.footprint import Fit
from db.warehouse import Warehouse

pytestmark = [pytest.mark.forked_children, pytest.mark.usefixtures("in_an_empty_folder")]
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


@pytest.mark.slow
def test_a_different_output_makes_the_result_invalid_everywhere(null_script, capsys, sweep_arguments):
    """At one point: for each, torch computes the model in float64, in a process of its own."""
    null_script(outputs=WRONG)
    assert main([*("1" if word == "1,2" else word for word in sweep_arguments), "--save"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[3].endswith("  invalid")
    words = " ".join(out.split())
    assert "output_differs (b1 s32): " in words
    assert "Found: relative l2 1.414, tolerance relative l2 0.3" in words
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
        assert shown == [{"is_ranked": False, "speedup": None}]


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


@pytest.mark.parametrize(("precision", "kinds"), [("int8", ["not_compared"]), ("float32", ["output_differs"])])
def test_tokens_alone_are_not_compared_below_float32_which_is_said(null_script, null_track, precision, kinds):
    tokens = {"tokens": [[1.0, 2.0]]}
    null_script(outputs={"float32": tokens, "int8": tokens})
    plan = null_track().plan
    check = Check(
        precision=precision,
        family=None,
        digest=ReferenceMaker(plan.cell, BuildStore()).digest(plan.points[0]),
        why_not=None,
        is_wanted=True,
        point=plan.points[0],
        torch_workload=None,
    )
    found = check({"tokens": np.array([[1.0, 3.0]])})
    assert [doubt.kind for doubt in found.doubts] == kinds
    assert found.result.metrics == {"output_equal_token_share": 0.5}


LARGE, SMALL = Point(batch_size=8, sequence_length=512), Point(batch_size=1, sequence_length=128)


def test_a_smaller_shape_stands_for_a_reference_that_would_be_too_slow(null_script, null_track, monkeypatch):
    """1 call of 128 tokens takes 4 s, so one of 8 x 512 tokens takes 128 s."""
    null_script(outputs=OFF_BY_A_TENTH, latency_ms={SMALL.label: [4000.0]})
    monkeypatch.setattr(reference, "LEAST_FLOPS", 0)
    cell = null_track().plan.cell
    stand_in = ReferenceMaker(cell, BuildStore()).stand_in(LARGE)
    assert stand_in == StandIn(point=SMALL, why="it would take about 128 s on null, limited to 120 s")
    assert ReferenceMaker(cell, BuildStore()).stand_in(SMALL) is None
    assert ReferenceMaker(cell, BuildStore(), timeout_s=200).stand_in(LARGE).why.endswith("limited to 100 s")
    monkeypatch.setattr(reference, "MAX_S", 130.0)
    maker = ReferenceMaker(cell, BuildStore())
    assert maker.stand_in(LARGE) is None
    maker.digest(LARGE)
    monkeypatch.setattr(reference, "MAX_S", 120.0)
    assert ReferenceMaker(cell, BuildStore()).stand_in(LARGE) is None, "the point's own reference is in the cache"


def test_a_smaller_shape_stands_for_a_reference_that_exceeds_the_memory(null_script, null_track, monkeypatch):
    null_script(outputs=OFF_BY_A_TENTH)
    monkeypatch.setattr(Fit, "why_not", lambda self, point: "needs 90 GB" if point.batch_size > 1 else None)
    maker = ReferenceMaker(null_track().plan.cell, BuildStore())
    assert maker.stand_in(LARGE).why == "it does not fit into memory: needs 90 GB"
    monkeypatch.setattr(Fit, "why_not", lambda self, point: "needs 90 GB")
    assert ReferenceMaker(null_track().plan.cell, BuildStore()).stand_in(LARGE) is None


@pytest.mark.parametrize(("outputs", "doubts"), [(OFF_BY_A_TENTH, []), (WRONG, ["output_differs"])])
def test_the_output_is_compared_at_the_smaller_shape_and_the_result_says_so(null_script, null_track, outputs, doubts):
    null_script(outputs=outputs, flops=1e6)
    plan = null_track().plan
    stand_in = StandIn(point=SMALL, why="it would take about 128 s on null, limited to 120 s")
    preparation = Preparation(
        references={LARGE.label: ReferenceMaker(plan.cell, BuildStore()).digest(SMALL)},
        stand_ins={LARGE.label: stand_in},
    )
    job = Job(
        cell=plan.cell, launch=0, points=(LARGE,), settings=plan.settings, spawned_at_ns=0, preparation=preparation
    )
    check, handle = replace(Check.of(job, LARGE), torch_workload=None), NULL_DEVICE.open(plan.cell.device)
    first = check({"logits": np.array([[1.0, 2.0]])})
    assert (first.doubts, first.result.missing["output_error"]) == ((), "not_run")
    at = "2026-01-02T03:04:05Z"
    measured = Measurement(
        point=LARGE,
        launch=0,
        status="ok",
        started_at=at,
        finished_at=at,
        missing={**first.result.missing, "flops": "not_applicable"},
    )
    session = NULL.open(plan.cell, handle, lambda name: nullcontext(), (LARGE,))
    found = check.at_stand_in(measured, session)
    assert [doubt.kind for doubt in found.doubts] == [*doubts, "compared_at_smaller_shape"]
    assert found.doubts[-1].evidence == {"shape": "b1 s128", "why": stand_in.why}
    assert found.metrics["output_error"] == pytest.approx(1.414214 if doubts else 0.1)
    assert "output_error" not in found.missing
    assert "flops" not in check.with_work(found).metrics, "the work of another shape"
    session.operation = lambda point: 1 / 0
    failed = check.at_stand_in(measured, session)
    assert failed.missing["output_error"] == "failed: no call at the smaller b1 s128: division by zero"
    assert [doubt.kind for doubt in failed.doubts] == ["not_compared"]


def test_a_cache_that_cannot_be_written_costs_only_the_reason_of_a_difference(null_script, null_track, monkeypatch):
    """The references in it are those of another user, as is the folder."""
    null_script(outputs=WRONG, flops=1e6)
    plan = null_track().plan
    point = plan.points[0]
    made = Preparation(references={point.label: ReferenceMaker(plan.cell, BuildStore()).digest(point)})
    job = Job(cell=plan.cell, launch=0, points=(point,), settings=plan.settings, spawned_at_ns=0, preparation=made)
    check = Check.of(job, point)

    def refuse(*_):
        raise StorageError("cannot write to the build cache")

    monkeypatch.setattr(BuildStore, "get", refuse)
    found = check({"logits": np.array([[4.0, -3.0]])})
    assert [doubt.kind for doubt in found.doubts] == ["output_differs"]
    monkeypatch.setattr(BuildStore, "find_digest", refuse)
    at, missing = "2026-01-02T03:04:05Z", {"flops": "not_applicable"}
    measured = Measurement(point=point, launch=0, status="ok", started_at=at, finished_at=at, missing=missing)
    assert check.with_work(measured) == measured


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


@pytest.mark.parametrize(
    ("mode", "flag"),
    [
        ({"flash_attention": "on", "kv_cache_type": "q8_0"}, None),
        ({"prefix_cache": "on"}, "--prefix-cache"),
        ({"context_depth": 100}, "--context-depth"),
        ({"draft_model": "tiny-llama", "draft_tokens": 3}, "--draft-model"),
        ({"ngram_lookup": 2}, "--ngram-lookup"),
        ({"lora": "adapter.gguf"}, "--lora"),
    ],
)
def test_the_work_of_a_reference_is_not_taken_for_calls_that_do_other_work(null_script, null_track, mode, flag):
    """A cached prompt is not computed again, a draft and a deeper context add to the model's own operations."""
    null_script(outputs=OFF_BY_A_TENTH, flops=1e6)
    plan = null_track().plan
    point, cell = plan.points[0], replace(plan.cell, runtime="llamacpp", runtime_mode=mode)
    made = Preparation(references={point.label: ReferenceMaker(plan.cell, BuildStore()).digest(point)})
    job = Job(cell=cell, launch=0, points=(point,), settings=plan.settings, spawned_at_ns=0, preparation=made)
    at, missing = "2026-01-02T03:04:05Z", {"flops": "not_supported"}
    measured = Measurement(point=point, launch=0, status="ok", started_at=at, finished_at=at, missing=missing)
    found = Check.of(job, point).with_work(measured)
    why = f"not_applicable: with {flag}, a call has other operations than its reference"
    assert (found.metrics.get("flops"), found.missing.get("flops")) == ((1e6, None) if flag is None else (None, why))
