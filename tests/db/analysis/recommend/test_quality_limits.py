"""Limits on quality, and verdicts on it, from stored runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from benchmarking.core.quality import (
    QUALITY_METRICS,
    Quality,
    QualityValue,
    QualityVerdict,
    judge_quality,
    without_quality,
)
from benchmarking.core.records import Run
from benchmarking.measure.quality_measures import share_value, token_values
from db.commands.compare import main as compare
from db.commands.recommend import main as recommend
from db.commands.show import main as show
from db.run_records import qualities
from db.warehouse import Warehouse

KL, AGREEMENT, PERPLEXITY = (QUALITY_METRICS[name] for name in ("kl_divergence", "top1_agreement", "perplexity"))


def value(mean: float, half: float = 0.001, windows: tuple[float, ...] = ()) -> QualityValue:
    return QualityValue(value=mean, low=mean - half, high=mean + half, by_window=windows)


def run_with(make_run: Any, precision: str, quality: Quality | None, slowdown: float) -> Run:
    run: Run = make_run(precision=precision, slowdown=slowdown)
    return replace(run, quality=quality)


@pytest.fixture
def database(make_run: Any, tmp_path: Path) -> str:
    """Three precisions of a model: int4 is the fastest and has a divergence of 0.05, bfloat16 no known quality."""
    eight, four = (
        Quality(inputs="same", values={KL.name: value(mean), AGREEMENT.name: value(share)}, how={"windows": 16})
        for mean, share in ((0.01, 0.99), (0.05, 0.90))
    )
    unknown = without_quality("not_supported: the engine returns tokens", (KL.name, AGREEMENT.name))
    path = tmp_path / "quality.duckdb"
    with Warehouse.open(path) as warehouse:
        for precision, quality, factor in (("int8", eight, 1.0), ("int4", four, 0.5), ("bfloat16", unknown, 0.25)):
            warehouse.ingest(run_with(make_run, precision, quality, factor))
    return str(path)


@pytest.mark.parametrize("limit", [("--max-kl", "0.02"), ("--min-agreement", "0.98"), ("--limit", "kl:0.02nats")])
def test_a_limit_on_quality_is_met_by_the_worse_end_of_its_interval(
    limit: tuple[str, str], database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert recommend(["bert-base-uncased", *limit, "--db-path", database]) == 0
    shown = capsys.readouterr().out
    assert "int8" in next(line for line in shown.splitlines() if "recommend" in line.lower())
    assert "unknown" in shown or "the engine returns tokens" in shown


def test_the_quality_of_a_run_is_shown_with_its_series(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert show(["model=bert-base-uncased", "--db-path", database]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "quality of bert-base-uncased eager int8: KL 0.01 (0.009 .. 0.011) nats, top-1 0.99" in words
    assert "quality of bert-base-uncased eager bfloat16: not measured: the engine returns tokens" in words
    assert show(["model=bert-base-uncased", "--json", "--db-path", database]) == 0
    rows = {row["precision"]: row["quality"] for row in json.loads(capsys.readouterr().out)}
    assert rows["int4"]["kl_divergence"]["value"] == 0.05
    assert rows["bfloat16"] == {}


def test_an_unknown_quality_meets_no_limit(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert recommend(["bert-base-uncased", "--max-kl", "0.0105", "--db-path", database]) == 1  # int8: up to 0.011
    assert "0 of" in capsys.readouterr().out


def test_a_comparison_judges_the_quality_that_both_sides_have(
    database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    compare(["precision=int8", "precision=int4", "--db-path", database])
    shown = " ".join(capsys.readouterr().out.split())
    assert "quality: KL 0.01 -> 0.05 nats: worse" in shown
    assert "margin 0.01 nats" in shown
    compare(["precision=int8", "precision=bfloat16", "--db-path", database])
    assert "quality:" not in capsys.readouterr().out


def test_verdicts_by_windows_see_what_single_intervals_hide() -> None:
    windows = tuple(20.0 + 5 * index for index in range(8))
    before = QualityValue(value=37.5, low=27.0, high=48.0, by_window=windows)
    after = replace(before, by_window=tuple(1.05 * one for one in windows), value=39.4)
    paired = judge_quality(before, after, PERPLEXITY, same_windows=True)
    assert (paired.verdict, paired.is_paired) == ("worse", True)
    assert paired.change == pytest.approx(0.05)
    alone = judge_quality(replace(before, by_window=()), replace(after, by_window=()), PERPLEXITY, same_windows=True)
    assert (alone.verdict, alone.reason) == (
        "not judged",
        "the interval is too wide to tell a change of 1 % from none",
    )
    other = judge_quality(before, replace(after, value=15.0), PERPLEXITY, same_windows=False)
    assert (other.verdict, other.reason) == ("not judged", "measured on different texts or tokens")
    impossible = judge_quality(before, replace(after, value=0.0), PERPLEXITY, same_windows=True)
    assert (impossible.verdict, impossible.reason) == ("not judged", "a value is not positive")


def test_verdicts_know_the_better_direction_and_the_margin() -> None:
    assert judge_quality(value(0.90), value(0.99), AGREEMENT, same_windows=False).verdict == "better"
    assert judge_quality(value(0.99), value(0.90), AGREEMENT, same_windows=False).verdict == "worse"
    assert judge_quality(value(0.01), value(0.012), KL, same_windows=False).verdict == "equivalent"
    few = judge_quality(QualityValue(value=0.1), value(0.2), KL, same_windows=False)
    assert (few.verdict, few.reason) == ("not judged", "fewer than 5 windows")


@pytest.mark.parametrize(
    ("count", "lost", "gained", "verdict"),
    [
        (100, 0, 0, "not judged"),  # up to 3.6 of 100 may be lost unseen
        (1000, 0, 0, "equivalent"),
        (100, 10, 0, "worse"),
        (100, 3, 0, "not judged"),
        (100, 0, 10, "better"),
        (1000, 30, 25, "not judged"),
    ],
)
def test_answers_are_judged_by_how_many_became_right_and_wrong(
    count: int, lost: int, gained: int, verdict: str
) -> None:
    before = (*[1.0] * lost, *[0.0] * gained, *[1.0] * (count - lost - gained))
    after = (*[0.0] * lost, *[1.0] * gained, *[1.0] * (count - lost - gained))
    sides = [value(sum(one) / count, windows=one) for one in (before, after)]
    found = judge_quality(*sides, QUALITY_METRICS["exact_match"], same_windows=True)
    assert found.verdict == verdict, found
    assert found.change == pytest.approx((gained - lost) / count)
    other = judge_quality(*sides, QUALITY_METRICS["exact_match"], same_windows=False)
    assert other.reason == "measured on other prompts or answers"


def test_scores_of_a_users_questions_are_kept_beside_the_other_measures_and_limited(
    make_run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hits = (1.0,) * 8 + (0.0,) * 2
    path = str(tmp_path / "own.duckdb")
    runs = []
    for precision, low, inputs in (("int8", 0.75, "q"), ("int4", 0.5, "q"), ("bfloat16", 0.9, "other")):
        score = QualityValue(value=0.8, low=low, high=0.95, by_window=hits, inputs=inputs)
        how = {"windows": 16, "questions": {"file": "a\x1b[31m.jsonl", "left_out": {"3": "not an object"}}}
        found = Quality(inputs="text", values={KL.name: value(0.01), "exact_match": score}, how=how)
        runs.append(run_with(make_run, precision, found, {"int8": 1.0, "int4": 0.5, "bfloat16": 3.0}[precision]))
    with Warehouse.open(path) as warehouse:
        warehouse.ingest_all(runs)
        assert qualities(warehouse, [one.run_id for one in runs]) == {one.run_id: one.quality for one in runs}
        rows = warehouse.query("SELECT windows, inputs FROM quality_results WHERE metric = 'exact_match'").dicts()
        assert [(row["windows"], row["inputs"]) for row in rows] == [(10, "q"), (10, "q"), (10, "other")]
    assert recommend(["bert-base-uncased", "--limit", "exact_match:70%", "--db-path", path]) == 0
    assert "int8" in next(line for line in capsys.readouterr().out.splitlines() if "recommend" in line.lower())
    assert recommend(["bert-base-uncased", "--limit", "choice_accuracy:70%", "--db-path", path]) == 1
    assert "no questions were asked" in " ".join(capsys.readouterr().out.split())
    assert compare(["precision=int8", "precision=bfloat16", "--db-path", path]) == 0  # by the speeds
    shown = " ".join(capsys.readouterr().out.split())
    assert "exact match 0.8 -> 0.8: not judged: measured on other prompts or answers" in shown
    assert show(["model=bert-base-uncased", "--db-path", path]) == 0
    shown = capsys.readouterr().out
    assert "10 prompts of a\\x1b[31m.jsonl; left out: line 3 (not an object)" in " ".join(shown.split())


def test_each_precision_at_its_best_is_compared_with_the_most_precise_one(
    database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert recommend(["bert-base-uncased", "--db-path", database]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "Against bfloat16 by eager" in words
    assert (
        "/s on Test CPU, all at b1 s32, as measured: "
        "int8 has 0.25 times the throughput and the "
        "same peak memory (KL 0.01 nats, top-1 0.99); int4 has 0.5 times the throughput and the same peak memory (KL "
        "0.05 nats, top-1 0.9). Not all of them were measured in one session: the load of the machine may have "
        "changed between them."
    ) in words
    assert recommend(["bert-base-uncased", "--prefer", "latency", "--max-kl", "0.02", "--db-path", database]) == 0
    assert "ms, KL 0.01 nats, top-1 0.99" in " ".join(capsys.readouterr().out.split())


def test_precisions_are_compared_at_the_same_batch_size_only(
    make_run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The best option of each may be at its own batch size, of which a ratio says nothing about precisions."""
    path = str(tmp_path / "batches.duckdb")
    grids = (("float32", (1, 4), 1.0), ("int8", (4,), 0.5), ("int4", (8,), 0.25))
    with Warehouse.open(path) as warehouse:
        for precision, batches, slowdown in grids:
            own = {"precision": precision, "batch_sizes": batches, "slowdown": slowdown, "sequence_lengths": (32,)}
            warehouse.ingest(make_run(**own))
    assert recommend(["bert-base-uncased", "--db-path", path]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "on Test CPU, all at b4 s32, as measured: int8 has 2 times the throughput" in words
    assert "Not measured there: int4." in words


@pytest.mark.parametrize("metric", ["token_error_rate", "top1_agreement"])
def test_a_few_inputs_without_a_loss_do_not_prove_that_none_has_one(metric: str) -> None:
    of, right = QUALITY_METRICS[metric], float(metric == "top1_agreement")

    def judged(count: int, lost: int) -> QualityVerdict:
        sides = ([right] * count, [1 - right] * lost + [right] * (count - lost))
        before, after = (QualityValue(value=fmean(side), by_window=tuple(side)) for side in sides)
        return judge_quality(before, after, of, same_windows=True)

    few = judged(16, 0)
    assert (few.verdict, few.low, few.high) == ("not judged", pytest.approx(-0.206, abs=1e-3), -(few.low or 0.0))
    assert few.reason == "none of 16 windows differs, and up to 21% of others may"
    assert judged(1000, 0).verdict == "equivalent"
    assert judged(64, 1).verdict == "not judged"
    assert judged(64, 12).verdict == "worse"
    sure = token_values(np.ones((16, 8), int), np.ones((16, 8), int))["token_error_rate"]
    assert (sure.low, sure.high) == (0.0, pytest.approx(0.206, abs=1e-3))


def test_texts_without_a_change_are_equivalent_by_their_tokens() -> None:
    for shares in ([1.0] * 16, [60 / 64, 61 / 64] * 8):
        same = share_value(shares, 16 * 64)
        found = judge_quality(same, same, AGREEMENT, same_windows=True)
        assert (found.verdict, found.high) == ("equivalent", pytest.approx(0.206 / 64, rel=0.15))
    one = value(0.01, windows=(0.01,) * 16)
    assert judge_quality(one, one, KL, same_windows=True).verdict == "equivalent"  # the outputs are the same
