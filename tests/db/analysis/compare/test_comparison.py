"""Comparing selections: the pairs, the refusals, and the notes on verdicts."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from benchmarking.core.doubts import sentence
from benchmarking.core.metrics import JUDGED
from benchmarking.core.records import LOOP, Doubt, Hardware, Origin, canonical_hash
from benchmarking.core.text import number
from benchmarking.core.verdicts.judging import AB_HINT, MIN_LAUNCHES, judge
from benchmarking.core.verdicts.words import Judgement
from db.analysis.compare import comparison
from db.analysis.compare.comparison import compare, compare_within, with_what_decides
from db.analysis.compare.comparison_text import comparison_junit, comparison_markdown, comparison_text
from db.analysis.compare.matching import across_column, allowed_across, differences, keys_of
from db.analysis.recommend.measured_options import judged, options_by_workload
from db.analysis.recommend.recommendation import recommend
from db.analysis.recommend.recommendation_text import recommendation_words
from db.analysis.selection import EVERYTHING, POOLED, Selection
from db.values import percent_change
from tests.helpers.run_changes import Alter

UNJUDGED = Judgement(verdict="not judged", reason=f"too few sessions; {AB_HINT}")
LATENCY = JUDGED["latency_median_ms"]
LAUNCH_FACTORS = (1.0, 1.002, 0.998, 1.001, 0.999)
DAY = timedelta(days=1)
START = datetime(2026, 3, 1, 12)
OFFSETS = {"b": timedelta(minutes=3), "c": timedelta(minutes=6)}


def test_a_load_is_not_sent_to_a_command_that_measures_no_load():
    assert with_what_decides(UNJUDGED, {"runtime": "eager", "runtime_mode attention": "sdpa"}) == UNJUDGED
    reason = with_what_decides(UNJUDGED, {f"runtime_mode {LOOP}": "open"}).reason
    assert reason.startswith("too few sessions; five loads of each side")
    assert f"--repetitions {MIN_LAUNCHES}" in reason


def scattered(run, *, start=None, minutes=10):
    """The run with launches that differ a little, each some minutes after the one before."""
    begin = start or datetime.fromisoformat(run.started_at.removesuffix("Z"))
    results = []
    for result in run.results:
        samples = tuple(
            replace(
                one,
                values=tuple(value * LAUNCH_FACTORS[one.launch] for value in one.values),
                started_at=f"{(begin + timedelta(minutes=minutes * one.launch)).isoformat()}Z",
            )
            for one in result.samples
        )
        results.append(replace(result, samples=samples))
    return replace(run, results=tuple(results))


@pytest.fixture
def store(warehouse, make_run):
    """A function that stores a run of five launches with the tag side=..., and gives it.

    Of the same day, the launches of sides a, b and c alternate.
    """

    def add(side, *, day=0, cell=None, change=lambda run: run, minutes=10, tags=None, **fields):
        start = START + day * DAY + OFFSETS.get(side, timedelta())
        run = make_run(launches=5, started_at=f"{start.isoformat()}Z", **fields)
        run = replace(run, finished_at=f"{(start + timedelta(minutes=5 * minutes)).isoformat()}Z")
        run = replace(
            run, provenance=replace(run.provenance, tags={"side": side, **(tags or {})}, git_commit_time=None)
        )
        run = replace(run, cell=replace(run.cell, **(cell or {})))
        run = change(scattered(run, start=start, minutes=minutes))
        warehouse.ingest(run)
        return run

    return add


@pytest.fixture
def sides(warehouse):
    """A function that compares side=a with side=b, or other selections."""

    def compared(before="tag.side=a", after="tag.side=b", metric=LATENCY, across=()):
        return compare(warehouse, Selection.parse(before), Selection.parse(after), metric, across)

    return compared


def verdicts(comparison):
    return {one.point: one.judgement.verdict for one in comparison.findings}


def slower_at(label, factor):
    """A change that makes one point slower."""

    def change(run):
        def of(result):
            if result.point.label != label:
                return result
            samples = tuple(replace(one, values=tuple(v * factor for v in one.values)) for one in result.samples)
            return replace(result, samples=samples)

        return replace(run, results=tuple(map(of, run.results)))

    return change


def test_points_are_judged_one_by_one_and_sorted_worst_first(store, sides):
    store("a")
    store("b", change=slower_at("b2 s32", 1.3))
    found = sides()
    assert verdicts(found) == {
        "b2 s32": "slower",
        "b1 s32": "equivalent",
        "b1 s128": "equivalent",
        "b2 s128": "equivalent",
    }
    worst = found.findings[0]
    assert worst.judgement.change == pytest.approx(0.3)
    assert worst.judgement.scope == "in turns"
    assert (worst.before.launches, worst.after.launches, worst.before.results) == (5, 5, 1)
    assert found.counts == {"slower": 1, "equivalent": 3}
    assert not found.is_empty


def test_an_unfit_result_is_not_sent_to_a_flag_with_which_it_is_unfit_too(store, sides):
    store("a", batch_sizes=(1,), sequence_lengths=(32,))
    store("b", cell={"runtime": "compiled"}, batch_sizes=(1,), sequence_lengths=(32,),
          change=lambda run: Alter.results(run, Alter.invalid))  # fmt: skip
    (finding,) = sides().findings
    assert finding.judgement.reason == "not comparable: B: invalid (nan_output)"
    text, (before, after) = comparison_text(sides()), (finding.before.value, finding.after.value)
    change = percent_change(after / before - 1)
    assert f"as measured, without a verdict: b1 s32: A {number(before)}, B {number(after)} ms ({change})" in text
    assert "nan_output (B " in text, "what makes it invalid is explained, with what to do"


def test_a_throttled_result_is_judged_only_in_turns_and_is_no_session_of_others(store, sides):
    def throttled(run):
        doubt = Doubt(kind="throttle_reason", severity="throttled", evidence={})
        return replace(run, results=tuple(replace(one, validity="throttled", doubts=(doubt,)) for one in run.results))

    for day in range(12):
        store("h", day=day, slowdown=1 + 0.001 * (day * 5 % 7), **ONE)
    store("h", day=12, slowdown=3.0, change=throttled, **ONE)
    store("a", day=13, **ONE)
    store("b", day=14, slowdown=1.3, change=throttled, **ONE)
    (finding,) = sides().findings
    assert finding.judgement.reason == "not comparable: B: throttled (throttle_reason)"
    fit = store("b", day=15, **ONE)
    (finding,) = sides().findings
    assert (finding.after.run_id, finding.after.results) == (fit.run_id, 1)
    assert finding.judgement.scope == "between sessions"
    assert finding.judgement.detectable < 0.1, "the throttled session of the history does not count"
    store("a", day=20, tags={"throttled": "yes"}, **ONE)
    store("b", day=20, slowdown=1.3, tags={"throttled": "yes"}, change=throttled, **ONE)
    (finding,) = sides("tag.side=a,tag.throttled=yes", "tag.side=b,tag.throttled=yes").findings
    assert (finding.judgement.scope, finding.judgement.change) == ("in turns", pytest.approx(0.3))


def test_points_of_one_name_are_told_apart_in_the_notes(store, sides, warehouse):
    """By their runtime, where that is what the sides differ in; how many points have no row is said."""
    store("a")
    store("b", cell={"runtime": "onnxruntime"}, change=lambda run: Alter.results(run, Alter.noisy))
    lost = {"change": Alter.failed, "where": lambda point: point.batch_size == 2}
    store("c", cell={"runtime": "openvino"}, change=lambda run: Alter.results(run, **lost))
    found = comparison_text(compare_within(warehouse, EVERYTHING, "runtime", LATENCY))
    lines = " ".join(found.split())
    assert "B onnxruntime b1 s32" in lines
    assert "eager / openvino b2 s32" in lines
    assert "2 of 8 points have no figures, and no row in the table" in lines


def test_a_recommendation_has_the_verdict_of_a_comparison(store, sides, warehouse):
    """One judge: what a comparison does not judge is not beyond doubt in a recommendation."""
    one_point = {"batch_sizes": (1,), "sequence_lengths": (32,)}
    store("a", **one_point)

    def recommended(metric):
        ((workload, options),) = options_by_workload(warehouse, ("bert-base-uncased",), EVERYTHING).items()
        found = judged(warehouse, recommend(options, {}, metric), {}, has_tokens=workload.has_tokens)
        return recommendation_words(workload, found, {}).advice

    store("d", day=1, runtime="onnxruntime", slowdown=0.5, **one_point)
    (finding,) = sides("tag.side=d", "tag.side=a", across=("all",)).findings
    assert finding.judgement.verdict == "not judged"
    for aim in ("latency", "throughput"):
        found = recommended(aim)
        assert "by a factor of 2, as measured, and not judged: " in found
        assert found.endswith(finding.judgement.reason)


def test_a_recommendation_of_launches_in_turns_is_judged(store, sides, warehouse):
    one_point = {"batch_sizes": (1,), "sequence_lengths": (32,)}
    store("a", **one_point)
    store("b", runtime="onnxruntime", slowdown=0.5, **one_point)
    ((_, options),) = options_by_workload(warehouse, ("bert-base-uncased",), EVERYTHING).items()
    (finding,) = sides("tag.side=b", "tag.side=a", across=("all",)).findings
    assert finding.judgement.verdict == "slower"
    found = judged(warehouse, recommend(options, {}, "latency"), {}, has_tokens=False)
    assert found.how == "judged slower"


def test_a_session_that_is_stored_twice_counts_once(store, sides, warehouse):
    warehouse.ingest(Alter.renewed(store("a", batch_sizes=(1,), sequence_lengths=(32,))))
    store("b", batch_sizes=(1,), sequence_lengths=(32,))
    (finding,) = sides().findings
    assert (finding.before.results, finding.before.launches, finding.after.launches) == (1, 5, 5)


def test_a_copy_of_a_session_is_not_compared_with_it(store, sides, warehouse):
    copy = Alter.renewed(store("a", batch_sizes=(1,), sequence_lengths=(32,)))
    warehouse.ingest(replace(copy, provenance=replace(copy.provenance, tags={"side": "b"})))
    (finding,) = sides().findings
    assert finding.judgement.reason.startswith("not comparable: the same result is on both sides")


def test_quantizations_are_compared_by_their_names(store, warehouse):
    for side, quantization in (("a", "Q8_0"), ("b", "Q4_K - Medium")):
        cell = {"precision": "other", "runtime_mode": {"quantization": quantization}}
        store(side, batch_sizes=(1,), sequence_lengths=(32,), cell=cell)
    found = compare_within(warehouse, Selection.parse(""), "precision", LATENCY)
    assert (found.before, found.after) == ("Q8_0", "Q4_K - Medium")
    (finding,) = found.findings
    assert finding.subject["precision"] == ("Q8_0", "Q4_K - Medium")
    assert "other" not in comparison_text(found)


def test_two_files_of_a_model_are_compared_though_their_precisions_differ(store, warehouse):
    """As models that differ: the quantization is in the names. Models of other names keep their precisions apart."""
    names = ("a-1b.Q8_0.gguf", "a-1b.Q4_0.gguf", "b", "c")
    for name, precision in zip(names, ("int8", "int4", "float32", "int8"), strict=True):
        one = {"batch_sizes": (1,), "sequence_lengths": (32,), "precision": precision}
        store(name, change=lambda run, name=name: Alter.workload(run, model_id=name, config_hash=name), **one)

    def found(a, b):
        return compare(warehouse, Selection.parse(f"model={a}"), Selection.parse(f"model={b}"), LATENCY)

    files = found("a-1b.Q8_0.gguf", "a-1b.Q4_0.gguf")
    (finding,) = files.findings
    assert not files.is_empty
    assert finding.subject["precision"] == ("int8", "int4")
    assert "not comparable: precision: float32 / int8" in found("b", "c").findings[0].judgement.reason
    assert not found("a-1b.Q8_0.gguf", "c").is_empty, "a file and another model of the same precision"
    assert not found("c", "a-1b.Q8_0.gguf").is_empty
    assert "not comparable: precision: int4 / int8" in found("a-1b.Q4_0.gguf", "c").findings[0].judgement.reason


def test_another_machine_is_not_comparable_and_the_reason_has_both_values(store, sides):
    def elsewhere(run):
        keys = {**run.hardware.hashed_keys, "cpu_model": "Test CPU 4000"}
        hardware = {name: getattr(run.hardware, name) for name in Hardware.__dataclass_fields__}
        hardware |= {"hashed_keys": keys, "hardware_id": canonical_hash(keys)[:16]}
        return replace(run, hardware=Hardware(**hardware))

    store("a", batch_sizes=(1,), sequence_lengths=(32,))
    store("b", batch_sizes=(1,), sequence_lengths=(32,), change=elsewhere)
    (finding,) = sides().findings
    assert finding.judgement.reason == (
        "not comparable: hardware cpu model: Test CPU 3000 / Test CPU 4000 (allow it with --across hardware)"
    )
    assert sides().is_empty
    assert verdicts(sides(across=["hardware_id"])) == {"b1 s32": "equivalent"}


def test_a_field_of_both_selections_may_differ_with_its_settings(store, sides):
    store("a", batch_sizes=(1,), sequence_lengths=(32,), runtime="eager")
    store(
        "b", batch_sizes=(1,), sequence_lengths=(32,), cell={"runtime": "compiled", "runtime_mode": {"dynamic": "auto"}}
    )
    assert sides().findings[0].judgement.reason == (
        "not comparable: runtime: eager / compiled (allow it with --across runtime); also attention, dynamic"
    )
    assert verdicts(sides("runtime=eager", "runtime=compiled")) == {"b1 s32": "equivalent"}
    assert verdicts(sides(across=[across_column("runtime")])) == {"b1 s32": "equivalent"}


def test_sides_are_named_by_what_they_differ_in(store, sides):
    """Not by a device that a pair without a verdict differs in, nor by settings that tell apart results of one side."""

    def masked(run):
        return Alter.workload(run, task="fill-mask")

    point = {"batch_sizes": (1,), "sequence_lengths": (32,)}
    store("a", **point, change=masked)
    store("c", **point, change=lambda run: masked(Alter.on_device(run, "Fast", "cuda")))
    store("b", **point)
    assert "task feature-extraction is " in sides("task=fill-mask", "task=feature-extraction").sentence
    assert sides("task=fill-mask", "task=feature-extraction").sentence.count("cpu") == 0
    assert "cuda is " in sides("device=cpu", "device=cuda").sentence


def test_the_same_point_on_two_machines_is_two_rows_and_two_test_cases(store, sides):
    for day, (card, slowdown) in enumerate({"A100": 0.5, "H100": 2.0}.items()):
        for side, factor in (("a", 1.0), ("b", slowdown)):
            store(
                side, day=day, batch_sizes=(1,), sequence_lengths=(32,), slowdown=factor,
                change=lambda run, card=card: Alter.on_device(run, card, "cuda"),
            )  # fmt: skip
    assert {one.subject["settings"][0]: one.judgement.verdict for one in sides().findings} == {
        "hardware A100": "faster",
        "hardware H100": "slower",
    }
    found = comparison_junit(sides(), (), 0, "", suite="compare")
    assert len(set(re.findall('classname="(.*?)"', found))) == 2


def test_an_equal_field_of_both_selections_must_be_equal(store, sides):
    store("a", batch_sizes=(1,), sequence_lengths=(32,))
    store("b", batch_sizes=(1, 2), sequence_lengths=(32,))
    assert verdicts(sides("tag.side=a,batch=1|2", "tag.side=b,batch=1|2")) == {"b1 s32": "equivalent"}
    assert verdicts(sides("tag.side=a,batch=1", "tag.side=b,batch=2")) == {"b1 s32 / b2 s32": "slower"}


def test_results_of_two_definitions_are_never_compared(store, sides):
    theirs = Origin(format="tool", definition="tool: mean of all calls")
    store("a", batch_sizes=(1,), sequence_lengths=(32,))
    store("b", batch_sizes=(1,), sequence_lengths=(32,), origin=theirs)
    (finding,) = sides(across=["all"]).findings
    assert finding.judgement.reason == (
        "not comparable: definition: none / tool: mean of all calls (numbers of two definitions are never compared: "
        "see each alone, with benchhouse show, a load as its own curve on the page Loads)"
    )
    text = " ".join(comparison_text(sides(across=["all"])).split())
    assert "as measured, without a verdict: b1 s32: A 8, B 8 ms" in text
    assert "B 8 ms (" not in text
    store("c", batch_sizes=(1,), sequence_lengths=(32,), origin=theirs)
    assert verdicts(sides("tag.side=b", "tag.side=c")) == {"b1 s32": "equivalent"}


def test_all_comparable_results_of_a_side_count(store, sides):
    def invalid(run):
        wrong = Doubt(kind="wrong_output", severity="invalid", evidence={})
        return replace(run, results=tuple(replace(one, validity="invalid", doubts=(wrong,)) for one in run.results))

    store("a")
    store("b", day=1, slowdown=2.0)
    fit = store("b", day=2, slowdown=8.0)
    store("b", day=3, slowdown=64.0, change=invalid)
    (finding, *_) = sides().findings
    assert (finding.after.run_id, finding.after.results, finding.after.launches) == (fit.run_id, 2, 10)
    assert finding.judgement.change == pytest.approx(3.0)  # the geometric mean of 2 and 8 is 4
    assert "B: a point has up to 2 comparable results, and its figure is of all of them" in comparison_text(sides())


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"validity": "invalid", "doubts": ("wrong_output", "invalid")}, "B: invalid (wrong_output)"),
        ({"status": "failed", "error": "out of memory", "validity": None}, "B: failed: out of memory"),
    ],
)
def test_an_unfit_side_is_not_comparable_with_its_reason(store, sides, fields, reason):
    def spoiled(run):
        own = dict(fields)
        if "doubts" in own:
            kind, severity = own["doubts"]
            mild = Doubt(kind="steal", severity="noisy", evidence={})
            own["doubts"] = (mild, Doubt(kind=kind, severity=severity, evidence={}))
        return replace(run, results=tuple(replace(one, **own) for one in run.results))

    store("a", batch_sizes=(1,), sequence_lengths=(32,))
    store("b", batch_sizes=(1,), sequence_lengths=(32,), change=spoiled)
    (finding,) = sides().findings
    assert (finding.judgement.verdict, finding.judgement.reason) == ("not judged", f"not comparable: {reason}")


def test_very_noisy_launches_are_shown_and_do_not_prevent_a_verdict(store, sides):
    def noisy(run):
        doubt = Doubt(kind="very_noisy", severity="noisy", evidence={"launches": [0, 1, 2, 3, 4]})
        return replace(run, results=tuple(replace(one, validity="noisy", doubts=(doubt,)) for one in run.results))

    store("a", batch_sizes=(1,), sequence_lengths=(32,))
    store("b", batch_sizes=(1,), sequence_lengths=(32,), change=noisy)
    comparison = sides()
    (finding,) = comparison.findings
    assert (finding.judgement.verdict, finding.after.doubts) == ("equivalent", ("very_noisy",))
    lines = comparison_text(comparison).splitlines()
    assert any(line.endswith("  B noisy") for line in lines), "a word in the row"
    assert f"very_noisy (B b1 s32): {sentence('very_noisy')}" in lines


@pytest.mark.parametrize(("step", "verdict"), [(0.2, "not judged"), (1e300, "not judged"), ("x", "equivalent")])
def test_medians_of_a_coarse_clock_are_not_equivalent_though_they_are_equal(store, sides, step, verdict):
    def ticked(run):
        evidence = {"launches": [0], "clock_step_over_median": step}
        doubt = Doubt(kind="coarse_clock", severity="noisy", evidence=evidence)
        return replace(run, results=tuple(replace(one, validity="noisy", doubts=(doubt,)) for one in run.results))

    for side in "ab":
        store(side, batch_sizes=(1,), sequence_lengths=(32,), change=ticked)
    (finding,) = sides().findings
    assert finding.judgement.verdict == verdict
    assert (finding.judgement.low < -0.1, finding.judgement.high > 0.1) == (verdict == "not judged",) * 2
    (finding,) = sides(metric=JUDGED["throughput_samples_per_sec"]).findings
    assert finding.judgement.verdict == "equivalent", "a rate is by the mean, which ticks do not bias"


def test_the_same_result_on_both_sides_is_not_compared(store, sides):
    store("a", batch_sizes=(1,), sequence_lengths=(32,))
    (finding,) = sides("latest", "tag.side=a").findings
    assert finding.judgement.reason == "not comparable: the same result is on both sides: narrow one of the selections"


def test_a_missing_metric_has_its_stored_reason(store, sides):
    store("a", batch_sizes=(1,), sequence_lengths=(32,))
    store("b", batch_sizes=(1,), sequence_lengths=(32,))
    (finding,) = sides(metric=JUDGED["latency_p99_ms"]).findings
    assert finding.judgement.reason == ("not comparable: A and B: no latency p99: too few samples")


def test_a_pooled_percentile_has_no_verdict(store, sides):
    def pooled(run):
        (one,) = run.results
        return replace(run, results=(replace(one, pooled_quantiles=("latency_p90_ms",)),))

    store("a", batch_sizes=(1,), sequence_lengths=(32,), iterations=40)
    store("b", batch_sizes=(1,), sequence_lengths=(32,), iterations=10, change=pooled)
    (finding,) = sides(metric=JUDGED["latency_p90_ms"]).findings
    assert finding.judgement.reason == f"not comparable: B: no latency p90: {POOLED}"
    (finding,) = sides(metric=JUDGED["latency_median_ms"]).findings
    assert finding.judgement.change is not None


def test_points_of_one_side_only_are_listed(store, sides):
    store("a", batch_sizes=(1, 2), sequence_lengths=(32,))
    store("b", batch_sizes=(1, 4), sequence_lengths=(32,))
    found = sides()
    assert [one.point for one in found.only_before] == ["b2 s32"]
    assert [one.point for one in found.only_after] == ["b4 s32"]
    assert "only in B: bert-base-uncased, cpu, eager, float32: b4 s32" in comparison_text(found)


def test_many_setups_that_only_one_side_has_are_counted(store, sides):
    store("a", batch_sizes=(1,), sequence_lengths=(32,))
    for place in range(6):
        store("b", batch_sizes=(1, 2), sequence_lengths=(32,), model_id=f"m{place}")
    lines = [line for line in comparison_text(sides()).splitlines() if line.startswith("only in B")]
    assert len(lines) == 4
    assert lines[-1] == "only in B: 6 points of 3 other setups (--json lists them)"


def test_unrelated_lists_of_models_are_not_paired(store, sides):
    for model in ("m1", "m2"):
        store("a", batch_sizes=(1,), sequence_lengths=(32,), model_id=model)
    for model in ("m2", "m3"):
        store("b", batch_sizes=(1,), sequence_lengths=(32,), model_id=model)
    found = sides()
    assert [one.subject["model_id"] for one in found.findings] == [("m2", "m2")]
    assert [one.subject["model_id"] for one in found.only_before + found.only_after] == ["m1", "m3"]


def test_two_models_are_not_comparable_by_their_names(store, sides):
    store("a", batch_sizes=(1,), sequence_lengths=(32,), model_id="m1")
    store("b", batch_sizes=(1,), sequence_lengths=(32,), model_id="m2")
    assert sides().findings[0].judgement.reason.endswith("model: m1 / m2 (allow it with --across model)")
    assert verdicts(sides("model=m1", "model=m2")) == {"b1 s32": "equivalent"}


def test_an_aliased_rename_keeps_a_series_comparable(store, sides, warehouse):
    store("a", batch_sizes=(1,), sequence_lengths=(32,), model_id="old-name")
    store("b", batch_sizes=(1,), sequence_lengths=(32,), model_id="new-name")
    ids = {
        row["model_id"]: row["series_id"] for row in warehouse.query("SELECT model_id, series_id FROM series").dicts()
    }
    warehouse.query(
        "INSERT INTO series_alias VALUES (?, ?, 'renamed', TIMESTAMP '2026-01-01')", [ids["old-name"], ids["new-name"]]
    )
    assert verdicts(sides()) == {"b1 s32": "equivalent"}


ONE = {"batch_sizes": (1,), "sequence_lengths": (32,)}


def test_alternating_launches_are_rounds(store, sides):
    store("a", **ONE)
    store("b", **ONE)
    (finding,) = sides().findings
    assert finding.judgement.scope == "in turns"
    assert "A and B were measured in turns and are compared by rounds" in comparison_text(sides())


def anonymous(run):
    return replace(run, provenance=replace(run.provenance, host=""))


def test_runs_without_a_host_count_as_one_machine_only_if_one_command_measured_both(store, sides):
    for side in "ab":
        store(side, change=anonymous, **ONE)
    assert verdicts(sides()) == {"b1 s32": "not judged"}
    for side in "ab":
        store(side, day=1, change=anonymous, tags={"ab": "one"}, **ONE)
    assert verdicts(sides("tag.ab=one,tag.side=a", "tag.ab=one,tag.side=b")) == {"b1 s32": "equivalent"}


def drifting(run):
    """Each launch 3 % slower than the one before."""

    def of(result):
        samples = tuple(replace(one, values=tuple(v * 1.03**one.launch for v in one.values)) for one in result.samples)
        return replace(result, samples=samples)

    return replace(run, results=tuple(map(of, run.results)))


def test_a_drift_of_the_machine_does_not_hide_a_change_between_rounds(store, sides):
    store("a", change=drifting, **ONE)
    store("b", change=lambda run: drifting(slower_at("b1 s32", 1.3)(run)), **ONE)
    (finding,) = sides().findings
    assert (finding.judgement.verdict, finding.judgement.change) == ("slower", pytest.approx(0.3))


def test_launches_that_do_not_alternate_are_not_rounds(store, sides):
    store("a", minutes=1, **ONE)
    store("b", minutes=1, **ONE)  # three minutes later: A A A B A B A B B B
    (finding,) = sides().findings
    assert (finding.judgement.verdict, finding.judgement.scope) == ("not judged", None)


def test_rounds_of_several_sessions_count_together(store, sides):
    for day in (0, 1):
        store("a", day=day, **ONE)
        store("b", day=day, slowdown=1.3, **ONE)
    (finding,) = sides().findings
    assert (finding.judgement.verdict, finding.before.launches) == ("slower", 10)


def test_a_launch_is_in_one_round_also_where_two_commands_ran_at_once(store, sides, monkeypatch):
    for day in (0, 0.003):  # four minutes later
        for side in "ab":
            store(side, day=day, **ONE)
    judged = []
    monkeypatch.setattr(comparison.judging, "judge", lambda pairs, metric: judged.extend(pairs) or judge(pairs, metric))
    sides()
    assert [len(pair.rounds) for pair in judged] == [10]


def test_a_difference_without_interleaving_or_history_is_described(store, sides):
    store("a", **ONE)
    store("b", day=1, slowdown=1.1, **ONE)
    found = sides()
    (finding,) = found.findings
    assert (finding.judgement.verdict, finding.judgement.low, finding.judgement.is_worse) == ("not judged", None, None)
    assert finding.judgement.reason == (
        "they did not run in turns, and a series has fewer than 5 other sessions; benchhouse ab decides"
    )
    assert found.is_empty
    assert found.counts == {"not judged": 1}


def test_the_sessions_of_one_side_are_a_history_for_both(store, sides):
    """Twelve nights against one, and no other sessions of the series; a single night more or less says nothing."""
    for day in range(12):
        store("a", day=day, slowdown=1 + 0.001 * (day * 5 % 7), **ONE)
    store("b", day=12, slowdown=1.2, **ONE)
    (finding,) = sides().findings
    assert (finding.judgement.verdict, finding.judgement.scope) == ("slower", "between sessions")
    assert finding.judgement.low < finding.judgement.change < finding.judgement.high


@pytest.mark.parametrize("nights", [1, 5, 8])
def test_more_sessions_of_a_side_make_the_interval_narrower(store, sides, nights):
    """With an estimate of each side alone, five nights against twelve had an interval six times as wide as one."""
    for day in range(12 + nights):
        slowdown = 1 + 0.01 * (day * 5 % 7) + (0.1 if day >= 12 else 0)
        store("a" if day < 12 else "b", day=day, slowdown=slowdown, **ONE)
    (finding,) = sides().findings
    width = math.log1p(finding.judgement.high) - math.log1p(finding.judgement.low)
    assert width < {1: 0.2, 5: 0.15, 8: 0.12}[nights]


@pytest.mark.parametrize(("nights", "scope"), [(4, None), (5, "between sessions")])
def test_two_sides_of_few_sessions_are_no_history(store, sides, nights, scope):
    """A mode of three nights made 2.5 % of equal sides changed, with three against three."""
    for day in range(2 * nights):
        store("a" if day < nights else "b", day=day, slowdown=1 + 0.001 * (day * 5 % 7), **ONE)
    (finding,) = sides().findings
    assert finding.judgement.scope == scope


@pytest.mark.parametrize(("sittings", "scope"), [(1, None), (5, "between sessions")])
def test_sessions_of_one_sitting_are_one_witness_of_the_day(store, sides, sittings, scope):
    """Five runs within an hour of one Monday against five of the next, when the machine was 3 % slower: by the
    variation within a sitting, a quarter of all such days was a change."""
    for week in range(2 * sittings):
        for run in range(5):
            slowdown = 1 + 0.03 * (week % 2) + 0.001 * (run * 2 % 5)
            store("b" if week >= sittings else "a", day=7 * week + run / 144, slowdown=slowdown, **ONE)
    (finding,) = sides().findings
    assert (finding.judgement.scope, finding.judgement.is_worse) == (scope, None)
    if scope is None:
        assert "fewer than 5 sessions at other times (those within 6 hours count as one)" in finding.judgement.reason


def test_a_history_of_one_sitting_is_said_to_count_as_one_session(store, sides):
    for run in range(8):
        store("earlier", day=run / 144, slowdown=1 + 0.001 * (run * 2 % 5), **ONE)
    store("a", day=7, **ONE)
    store("b", day=14, slowdown=1.1, **ONE)
    (finding,) = sides().findings
    assert "fewer than 5 sessions at other times (those within 6 hours count as one)" in finding.judgement.reason


def test_sessions_of_one_sitting_of_both_sides_are_compared_one_by_one(store, sides):
    """Back to back, the day is the same for both."""
    for run in range(10):
        store("b" if run >= 5 else "a", day=run / 144, slowdown=(1.2 if run >= 5 else 1) + 0.001 * (run * 2 % 5), **ONE)
    (finding,) = sides().findings
    assert (finding.judgement.scope, finding.judgement.verdict) == ("between sessions", "slower")


@pytest.mark.parametrize(
    ("days_of_a", "days_of_b", "change", "scope"),
    [
        ((10, 0), (5, 5), 0.0, "between sessions"),  # by the first day
        ((10, 5), (4, 2), 0.0, "between sessions"),  # of the same shares: all of them
        ((8, 2), (2, 8), 0.0, None),  # two of each on either day
        ((10, 0), (4, 6), 0.02, None),  # each day is one session
    ],
)
def test_sides_that_share_days_are_compared_by_those(store, sides, days_of_a, days_of_b, change, scope):
    """The second day is 4 % slower. Counted one by one, five sessions of each day against ten of the first made up to
    half of equal sides changed."""
    for side, days in (("a", days_of_a), ("b", days_of_b)):
        for day, count in enumerate(days):
            for run in range(count):
                slowdown = (1.04 if day else 1) + 0.001 * (run * 2 % 5 - 2)
                store(side, day=day + run / 48 + (side == "b") / 96, minutes=1, slowdown=slowdown, **ONE)
    (finding,) = sides().findings
    assert (finding.judgement.scope, finding.judgement.is_worse) == (scope, None)
    assert finding.judgement.verdict == ("not judged" if scope is None else "equivalent")
    assert finding.judgement.change == pytest.approx(change, abs=0.002)


def test_sessions_that_do_not_count_are_said(store, sides):
    for run in range(10):
        store("a", day=run / 48, minutes=1, slowdown=1 + 0.001 * (run * 2 % 5), **ONE)
        store("b", day=run // 5 + run % 5 / 48 + 1 / 96, minutes=1, slowdown=1 + 0.001 * (run * 2 % 5), **ONE)
    text = comparison_text(sides())
    assert "A: a point has up to 10 comparable results, and its figure is of all of them\n" in text
    assert "of all of them but up to 5, of days that the other side lacks or has less of" in " ".join(text.split())


def test_nights_of_one_session_each_all_count(store, sides):
    """Nothing is counted several times, whichever nights the sides share."""
    for night in range(10):
        store("a", day=night, minutes=1, slowdown=1 + 0.002 * (night * 3 % 7), **ONE)
        store("b", day=night + 5 + 1 / 48, minutes=1, slowdown=(1.2 if night < 5 else 1.1), **ONE)
    (finding,) = sides().findings
    assert finding.judgement.after / finding.after.value == pytest.approx((1.2 / 1.1) ** 0.5)


def test_with_a_history_the_sessions_variation_is_in_the_interval(store, sides):
    for day, slowdown in enumerate((1.0, 1.1, 0.95, 1.05, 0.9, 1.0)):
        store("earlier", day=day, slowdown=slowdown, **ONE)
    store("a", day=14, **ONE)
    store("b", day=15, slowdown=1.1, **ONE)
    (finding,) = sides().findings
    assert (finding.judgement.verdict, finding.judgement.scope) == ("not judged", "between sessions")
    assert finding.judgement.change == pytest.approx(0.1)
    assert finding.judgement.detectable > 0.1


def test_sessions_of_a_quiet_history_can_be_equivalent(store, sides):
    for day in range(8):
        store("earlier", day=day, slowdown=1 + day % 5 / 2000, **ONE)
    store("a", day=20, **ONE)
    store("b", day=21, slowdown=1.001, **ONE)
    assert verdicts(sides()) == {"b1 s32": "equivalent"}


def test_sessions_far_apart_in_a_drifting_history_need_a_larger_change(store, sides):
    level = 1.0
    for day in range(24):
        level *= 1 + (day * 7919 % 13 - 6) / 400  # a walk with steps of up to 1.5 %
        side = {0: "a", 22: "near", 23: "b"}.get(day, "earlier")
        store(side, day=day, slowdown=level, **ONE)
    (far,), (near,) = sides().findings, sides("tag.side=near").findings
    assert far.judgement.detectable > 2 * near.judgement.detectable


@pytest.mark.parametrize("name", ["throughput_samples_per_sec", "load_time_s"])
def test_metrics_other_than_latency_have_a_history_too(store, sides, name):
    one = {"batch_sizes": (1,), "sequence_lengths": (32,)}
    for day in range(7):
        store("earlier", day=day, **one)
    store("a", day=20, **one)
    store("b", day=21, **one)
    assert sides(metric=JUDGED[name]).findings[0].judgement.scope == "between sessions"


def test_later_runs_are_not_part_of_the_history(store, sides):
    one = {"batch_sizes": (1,), "sequence_lengths": (32,)}
    store("a", day=0, **one)
    store("b", day=1, slowdown=1.1, **one)
    for day in range(6):
        store("later", day=2 + day, **one)
    assert sides().findings[0].judgement.verdict == "not judged"


def test_many_models_that_move_together_are_reported_as_environment(store, sides):
    for model in range(6):
        for day in range(7):
            store("earlier", day=day, slowdown=1 + day % 5 / 2000, model_id=f"m{model}", **ONE)
        store("a", day=20, model_id=f"m{model}", **ONE)
        store("b", day=21, slowdown=1.1, model_id=f"m{model}", **ONE)
    found = sides()
    assert found.counts == {"slower": 6}
    assert found.moved_together is not None
    assert "6 slower: environment, not code?" in comparison_text(found)


def test_by_compares_each_value_with_the_usual_or_the_given_baseline(store, warehouse):
    one = {"batch_sizes": (1,), "sequence_lengths": (32,), "precision": "float32"}
    store("b", runtime="onnxruntime", slowdown=0.5, tags={"side": "a"}, **one)
    store("a", runtime="eager", **one)
    store("c", runtime="openvino", slowdown=2.0, tags={"side": "a"}, **one)
    selection = Selection.parse("tag.side=a")
    found = compare_within(warehouse, selection, "runtime", LATENCY)
    shown = {one.subject["runtime"]: one.judgement.verdict for one in found.findings}
    assert shown == {("eager", "openvino"): "slower", ("eager", "onnxruntime"): "faster"}
    assert (found.before, found.after) == ("eager", "onnxruntime, openvino")
    first, second = sorted(found.sentence.split(". "))
    assert first.startswith("onnxruntime is 2.00 ")
    assert second.startswith("openvino takes 2.00 ")
    named = compare_within(warehouse, selection, "runtime", LATENCY, baseline="openvino")
    assert {one.subject["runtime"][0] for one in named.findings} == {"openvino"}


def test_by_tells_what_only_the_baseline_has(store, warehouse):
    one = {"batch_sizes": (1,), "precision": "float32"}
    store("a", runtime="eager", sequence_lengths=(16, 32), **one)
    store("b", runtime="onnxruntime", sequence_lengths=(32, 64), **one)
    found = compare_within(warehouse, Selection.parse(""), "runtime", LATENCY)
    assert [single.point for single in found.only_before] == ["b1 s16"]
    assert [single.point for single in found.only_after] == ["b1 s64"]


def test_differing_code_and_versions_are_reported(store, sides):
    def newer(run):
        versions = {**run.provenance.versions, "torch": "2.14.0"}
        return replace(run, provenance=replace(run.provenance, git_commit="1" * 40, versions=versions))

    store("a")
    store("b", change=newer)
    assert sides().provenance == {"git_commit": ("0" * 40, "1" * 40), "torch": ("2.13.0", "2.14.0")}
    assert "torch: 2.13.0 / 2.14.0" in comparison_text(sides())


def test_a_detectable_change_beyond_use_is_no_figure(store, sides):
    store("a", batch_sizes=(1,), sequence_lengths=(32,))
    store("b", batch_sizes=(1,), sequence_lengths=(32,))
    found = sides()
    (finding,) = found.findings
    noisy = replace(finding, judgement=replace(finding.judgement, detectable=2.7e11))
    assert "> 1000%" in comparison_text(replace(found, findings=(noisy,)))
    assert "> 1000%" not in comparison_text(found)


def test_markdown_of_a_hostile_name_is_text(store, sides):
    name = "evil|<img src=x>\n`@team` [x](http://x)\x1b[31m"
    one = {"batch_sizes": (1,), "sequence_lengths": (32,)}
    store("a", model_id=name, **one)
    store("b", model_id=name, **one)
    text = comparison_markdown(sides())
    assert "<img" not in text
    assert "\x1b" not in text
    assert "\x1b" not in comparison_text(sides())
    assert "evil\\|&lt;img" in text


def test_null_keys_equal_absent_ones():
    one = keys_of({"model_id": "m", "num_threads": None, "axes": {"steps": 4}}, {"cpu_model": "X"}, is_simulated=False)
    assert one == {"axes steps": 4, "hardware cpu_model": "X", "model_id": "m", "simulated": False}
    assert differences(one, {**one, "num_threads": 2}) == {"num_threads": (None, 2)}


def test_across_all_allows_everything_but_point_and_definition_to_differ():
    may_differ = allowed_across(["all"])
    assert may_differ("hardware cpu_model")
    assert may_differ("model_id")
    assert not may_differ("batch_size")
    assert not may_differ("axes steps")
    assert not may_differ("definition")
    assert not may_differ("metric_definition")
    assert not may_differ("simulated")
    assert allowed_across(["all", "batch_size"])("batch_size")
    assert not allowed_across(["git_commit", "tag.x"])("num_threads")


def test_documents_are_json(store, sides):
    from benchmarking.core.records import to_json

    store("a")
    store("b")
    document = json.loads(json.dumps(to_json(sides())))
    assert document["findings"][0]["judgement"]["verdict"] == "equivalent"
    assert document["unit"] == "ms"


def test_results_of_two_tools_without_a_common_point_say_where_to_look(store, sides):
    theirs = Origin(format="tool", definition="tool: mean of all calls")
    store("a", batch_sizes=(1,), sequence_lengths=(32,))
    store("b", batch_sizes=(2,), sequence_lengths=(32,), origin=theirs)
    text = " ".join(comparison_text(sides()).split())
    assert "definition: this program / tool: mean of all calls: numbers of two definitions are never compared" in text
