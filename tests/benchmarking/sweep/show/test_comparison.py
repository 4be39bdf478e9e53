"""Comparison of several runtimes: ranking, the fastest, and the table."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarking.core.records import Device, Doubt, LaunchLoad, Result, to_json
from benchmarking.sweep.show.compared_runtimes import Summary, compare, comparison_text, comparisons, condensed
from tests.helpers.run_changes import Alter

DIFFERS = Doubt(kind="output_differs", severity="invalid", evidence={"relative_l2": 0.5})


def changed(run, place, **fields):
    """The run with fields of one of its results changed; metrics are merged into the existing ones."""
    results = list(run.results)
    metrics = {**results[place].metrics, **fields.pop("metrics", {})}
    results[place] = dataclasses.replace(results[place], metrics=metrics, **fields)
    return dataclasses.replace(run, results=tuple(results))


def of(comparison, point, runtime):
    entries = next(one.entries for one in comparison.points if one.point == point)
    return next(entry for entry in entries if entry.runtime == runtime)


@pytest.fixture
def eager(make_run):
    """Medians of 8 and 32 ms at b1 s32 and b1 s128."""
    return make_run(batch_sizes=(1,))


@pytest.fixture
def faster(make_run):
    """Medians of 4 and 8 ms, with an error."""
    run = make_run(batch_sizes=(1,), runtime="onnxruntime", slowdown=0.5)
    samples = tuple(dataclasses.replace(one, values=(8.0,)) for one in run.results[1].samples)
    run = changed(run, 1, metrics={"latency_median_ms": 8.0}, samples=samples)
    return changed(run, 0, metrics={"output_error": 2e-7})


def test_speedups_are_relative_to_eager_in_any_order(eager, faster):
    comparison = compare([faster, eager])
    assert comparison.baseline == "eager"
    entry = of(comparison, "b1 s32", "onnxruntime")
    assert (entry.speedup.ratio, entry.speedup.scope) == (2.0, "between")
    assert 1 < entry.speedup.low < 2.0 < entry.speedup.high < 3
    assert (entry.output_error, entry.peak_memory_mb, entry.is_fastest) == (2e-7, 910.0, True)
    base = of(comparison, "b1 s32", "eager")
    # By the judge, three rounds show that it is slower: they prove a change of more than half.
    assert (entry.speedup.judgement.verdict, base.is_fastest) == ("faster", False)
    assert (base.speedup, base.is_reference) == (None, True)


def test_mean_best_and_worst_are_over_the_points(eager, faster):
    (summary,) = compare([eager, faster]).summaries
    assert summary == Summary(
        runtime="onnxruntime",
        points=2,
        geometric_mean=pytest.approx((2 * 4) ** 0.5),
        best=4.0,
        best_point="b1 s128",
        worst=2.0,
        worst_point="b1 s32",
        doubtful=0,
        sentence=summary.sentence,
    )
    assert summary.sentence.startswith("onnxruntime is ")


def test_without_eager_the_first_runtime_is_the_baseline(make_run, faster):
    slower = make_run(batch_sizes=(1,), runtime="openvino")
    assert compare([faster, slower]).baseline == "onnxruntime"
    assert of(compare([faster, slower]), "b1 s32", "openvino").speedup.ratio == 0.5


def test_invalid_results_are_shown_but_not_ranked(eager, faster):
    wrong = changed(faster, 0, validity="invalid", doubts=(DIFFERS,))
    comparison = compare([eager, wrong])
    entry = of(comparison, "b1 s32", "onnxruntime")
    assert (entry.median_ms, entry.speedup, entry.is_fastest, entry.doubts) == (4.0, None, False, ("output_differs",))
    assert of(comparison, "b1 s32", "eager").is_fastest
    assert comparison.summaries[0].points == 1
    assert "onnxruntime over eager: 4.00 at b1 s128" in comparison_text(comparison).splitlines()
    text = comparison_text(comparison)
    assert any(line.endswith("  invalid") for line in text.splitlines())
    assert text.count("eager *") == 1


def test_an_invalid_baseline_gives_no_speedup(eager, faster):
    comparison = compare([changed(eager, 0, validity="invalid", doubts=(DIFFERS,)), faster])
    assert of(comparison, "b1 s32", "onnxruntime").speedup is None
    assert of(comparison, "b1 s128", "onnxruntime").speedup is not None


@pytest.mark.parametrize("seen", ["before", "read back"])
def test_an_emulator_is_never_ranked(eager, faster, seen):
    if seen == "before":
        device = dataclasses.replace(faster.cell.device, simulated=True)
        emulated = dataclasses.replace(faster, cell=dataclasses.replace(faster.cell, device=device))
    else:
        load = LaunchLoad(launch=0, stages_s={}, verified={"is_simulated": True})
        emulated = dataclasses.replace(faster, loads=(load,))
    entry = of(compare([eager, emulated]), "b1 s32", "onnxruntime")
    assert (entry.speedup, entry.is_fastest) == (None, False)


def test_runtimes_tied_with_the_fastest_are_marked(eager, make_run):
    """Ratios of the launches' medians 1.1, 0.9 and 1.1 have 1 in their interval."""
    other = make_run(batch_sizes=(1,), sequence_lengths=(32,), runtime="onnxruntime")
    samples = tuple(
        dataclasses.replace(one, values=tuple(value * factor for value in one.values))
        for one, factor in zip(other.results[0].samples, (1.1, 0.9, 1.1), strict=True)
    )
    other = changed(other, 0, samples=samples, metrics={"latency_median_ms": 8.8})
    comparison = compare([eager, other])
    assert of(comparison, "b1 s32", "eager").is_fastest
    assert of(comparison, "b1 s32", "onnxruntime").is_fastest


def test_marks_that_all_runtimes_of_a_point_would_have_are_a_sentence(make_run):
    """Of 15 %, five rounds are not sure, and eight are."""

    def runs(launches, **fields):
        given = {"batch_sizes": (1,), "sequence_lengths": (32,), "launches": launches, **fields}
        return [
            Alter.varied(make_run(**given)),
            Alter.varied(make_run(**given, runtime="onnxruntime", slowdown=0.85)),
        ]

    tied = comparison_text(compare(runs(5)))
    assert "\nno runtime is shown to be slower than the one with the lowest median; benchhouse ab A B" in tied
    assert " *" not in tied
    assert "* lowest" not in tied
    decided = comparison_text(compare(runs(8)))
    assert "no runtime is shown" not in decided
    assert "onnxruntime *" in decided
    assert "eager *" not in decided
    assert "* lowest median, or not judged slower than it" in decided
    alone = make_run(batch_sizes=(1,), sequence_lengths=(32, 128), launches=5)
    both = comparison_text(compare([alone, runs(5)[1]]))
    assert "no runtime is shown to be slower than the one with the lowest median at b1 s32; " in both
    assert "* lowest median, or not judged slower than it" in both


def test_the_mark_of_the_fastest_is_the_judges(make_run):
    """Of 15 %, eight rounds are sure and five are not, though the interval of both is far from 1."""
    for launches, marked in ((8, False), (5, True)):
        fields = {"batch_sizes": (1,), "sequence_lengths": (32,), "launches": launches}
        runs = [
            Alter.varied(make_run(**fields)),
            Alter.varied(make_run(**fields, runtime="onnxruntime", slowdown=0.85)),
        ]
        comparison = compare(runs)
        assert of(comparison, "b1 s32", "onnxruntime").speedup.low > 1.1
        assert of(comparison, "b1 s32", "onnxruntime").is_fastest
        assert of(comparison, "b1 s32", "eager").is_fastest == marked
    assert "8 rounds may decide (in benchhouse ab --max-rounds 8" in comparison_text(comparison)


def test_the_mark_and_the_sentence_have_one_verdict(make_run):
    """However far the launches' ratios are apart: with 5 launches some spread is at the edge of what is judged."""
    fields = {"batch_sizes": (1,), "sequence_lengths": (32,), "launches": 5}
    base, other, verdicts = make_run(**fields), make_run(**fields, runtime="onnxruntime", slowdown=0.7), set()
    for spread in range(60, 200, 5):
        factors = [1 + spread / 1000 * place for place in (-1.3, -0.4, 0.0, 0.6, 1.1)]
        samples = tuple(
            dataclasses.replace(one, values=tuple(value * factor for value in one.values))
            for one, factor in zip(other.results[0].samples, factors, strict=True)
        )
        comparison = compare([base, changed(other, 0, samples=samples)])
        verdict = of(comparison, "b1 s32", "onnxruntime").speedup.judgement.verdict
        verdicts.add(verdict)
        assert of(comparison, "b1 s32", "eager").is_fastest == (verdict != "faster"), spread
    assert verdicts == {"faster", "not judged"}


def test_skipped_runtimes_are_one_line_with_the_reason(eager, faster):
    skipped = dataclasses.replace(
        faster,
        status="skipped",
        results=tuple(
            Result(result_id=one.result_id, point=one.point, status="skipped", error="no such thing")
            for one in faster.results
        ),
    )
    comparison = compare([eager, skipped], {"qnn": "not installed"})
    assert comparison.not_measured == {"onnxruntime": "no such thing", "qnn": "not installed"}
    assert [entry.runtime for point in comparison.points for entry in point.entries] == ["eager", "eager"]
    lines = comparison_text(comparison).splitlines()
    assert "onnxruntime: not measured: no such thing" in lines
    assert "qnn: not measured: not installed" in lines


def test_failed_points_show_their_reason_and_the_others_are_compared(eager, faster):
    failed = Result(result_id="f", point=faster.results[0].point, status="failed", error="it broke")
    comparison = compare([eager, dataclasses.replace(faster, results=(failed, faster.results[1]))])
    assert of(comparison, "b1 s32", "onnxruntime").median_ms is None
    assert "failed: it broke" in comparison_text(comparison)
    assert comparison.summaries[0].points == 1


def test_runs_are_compared_within_a_model_device_and_precision(make_run, eager, faster):
    half = make_run(batch_sizes=(1,), precision="float16")
    other_model = make_run(batch_sizes=(1,), model_id="gpt2", family="decoder-only")
    other_device = make_run(batch_sizes=(1,), device="cuda", runtime="onnxruntime")
    (found,) = comparisons([eager, half, other_model, faster, other_device])
    assert [entry.runtime for entry in found.points[0].entries] == ["eager", "onnxruntime"]
    assert comparisons([eager, half]) == ()


def test_condensed_runs_compare_like_complete_ones(eager, faster):
    runs = [condensed(eager), condensed(faster)]
    assert compare(runs) == compare([eager, faster])
    assert all(len(samples.values) == 1 for run in runs for one in run.results for samples in one.samples)


def test_the_table_has_speedups_over_eager_and_their_mean(eager, faster):
    lines = comparison_text(compare([eager, faster])).splitlines()
    assert lines[0] == (
        "bert-base-uncased (feature-extraction) on Test CPU, float32: runtimes compared, speedup over eager"
    )
    assert lines[1].split("  ")[0] == "point"
    assert [line.split() for line in lines[3:5]] == [
        ["b1", "s32", "eager", "8", "1", "-", "reference", "910"],
        ["onnxruntime", "*", "4", "2.00", "1.71", "..", "2.34", "2e-07", "910"],
    ]
    assert "onnxruntime over eager: geometric mean 2.83 (2 points), best 4.00 at b1 s128, worst 2.00 at b1 s32" in lines
    assert "equal tokens" not in lines[1]


def test_intervals_within_launches_are_marked(make_run):
    runs = [
        make_run(batch_sizes=(1,), sequence_lengths=(32,), launches=1, runtime=runtime)
        for runtime in ("eager", "openvino")
    ]
    text = comparison_text(compare(runs))
    assert "(calls)" in text.splitlines()[4]
    assert "covers the calls of the measured launches, not other launches" in text.splitlines()[-1]


def test_comparisons_serialize_to_json(eager, faster):
    document = to_json(compare([eager, faster]))
    assert document["points"][0]["entries"][1]["speedup"]["ratio"] == 2.0
    assert document["summaries"][0]["best_point"] == "b1 s128"


def test_each_row_shows_doubts_as_one_word(eager, faster):
    noisy = tuple(Doubt(kind=kind, severity="noisy") for kind in ("drift", "steal", "noisy"))
    wrong = changed(faster, 0, validity="invalid", doubts=(*noisy, DIFFERS))
    comparison = compare([eager, wrong])
    assert comparison.points[0].entries[1].doubts == ("output_differs", "drift", "steal", "noisy")
    assert any(line.endswith("  invalid") for line in comparison_text(comparison).splitlines())
    assert "output_differs" not in comparison_text(comparison)


def test_devices_without_a_name_show_their_selector(eager, faster):
    nameless = Device(type="cpu", selector="cpu", found=True)
    runs = [dataclasses.replace(run, cell=dataclasses.replace(run.cell, device=nameless)) for run in (eager, faster)]
    assert " on cpu, float32:" in comparison_text(compare(runs))
