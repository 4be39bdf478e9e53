"""What one launch says about the objective and the limits of a search."""

from __future__ import annotations

import pytest

from benchmarking import cli
from benchmarking.core.quality import Quality, QualityValue
from benchmarking.core.records import Point, Result
from benchmarking.tuning.space import Goal

OK = Result(
    result_id="r",
    point=Point(batch_size=1),
    status="ok",
    validity="valid",
    metrics={"latency_median_ms": 10.0, "throughput_samples_per_sec": 100.0},
)


def quality_of(**values):
    """A quality with (value, low, high) by measure."""
    found = {name: QualityValue(value=value, low=low, high=high) for name, (value, low, high) in values.items()}
    return Quality(inputs="i", values=found)


@pytest.mark.parametrize(
    ("limits", "quality", "excess", "least"),
    [
        ({"kl": 0.02}, quality_of(kl_divergence=(0.01, 0.005, 0.015)), 0.75, 0.25),
        ({"kl": 0.02}, quality_of(kl_divergence=(0.03, 0.015, 0.045)), 2.25, 0.75),
        ({"agreement": 0.9}, quality_of(top1_agreement=(0.95, 0.9, 1.0)), 1.0, 0.9),
        ({"perplexity_increase": 1.0}, quality_of(perplexity_increase=(-0.5, -1.0, 0.0)), 0.0, -1.0),
        ({"kl": 0.02}, quality_of(kl_divergence=(0.01, None, None)), None, None),
        ({"kl": 0.02}, quality_of(), None, None),
        ({"kl": 0.02}, None, None, None),
    ],
)
def test_a_limit_on_quality_is_met_by_the_worse_end_and_hopeless_by_the_better_end(limits, quality, excess, least):
    (name,) = limits
    launch = Goal(objective="latency", limits=limits).launch(OK, quality)
    assert launch.cost == 10.0
    assert launch.excess == {name: None if excess is None else pytest.approx(excess)}
    assert launch.least_excess == {name: None if least is None else pytest.approx(least)}


def test_a_limit_on_the_quality_of_random_weights_is_refused_before_anything_is_measured(capsys):
    words = ["tune", "tiny-gpt2", "--device", "cpu", "--weights", "random", "--limit", "kl:0.02"]
    assert cli.main(words) == 2
    assert "--limit on the quality of tiny-gpt2: random weights have no quality" in capsys.readouterr().err
