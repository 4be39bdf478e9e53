"""What one launch says about the objective and the limits of a search."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from benchmarking import cli
from benchmarking.core.errors import UsageError
from benchmarking.core.quality import Quality, QualityValue
from benchmarking.core.records import Point, Result
from benchmarking.measure.quality_measures import share_value
from benchmarking.tuning import space
from benchmarking.tuning.space import Goal, quality_to_show
from benchmarking.workloads.support.resolve import resolve

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
    (line,) = capsys.readouterr().err.splitlines()
    assert "--limit on the quality of tiny-gpt2: random weights have no quality: take trained weights, such as" in line
    assert line.endswith("or leave the limit on kl out")


def trained(model, task=None):
    """The catalog's tiny model as if its weights were trained."""
    return replace(resolve(model, task=task), weights="pretrained")


@pytest.mark.parametrize(
    ("model", "task", "least", "windows"),
    [
        ("tiny-bert", "text-classification", 0.99, 368),
        ("tiny-bert", "text-classification", 0.95, 72),
        ("tiny-bert", "text-classification", 0.5, 16),
        ("tiny-bert", "fill-mask", 0.995, 16),
        ("tiny-bert", "fill-mask", 0.999, 58),
        ("tiny-gpt2", None, 0.99, 8),
        ("tiny-gpt2", None, 0.995, 12),
    ],
)
def test_a_least_agreement_is_measured_on_as_many_equal_choices_as_show_it(monkeypatch, model, task, least, windows):
    text = SimpleNamespace(tokens=range(60), scored=64)
    monkeypatch.setattr(space, "text_windows", lambda workload, settings: text)
    workload = trained(model, task)
    found = quality_to_show({"agreement": least, "latency": 5.0}, workload)
    assert found.windows == windows
    each = {"text-classification": 1}.get(workload.task, 64)
    assert share_value([1.0] * windows, windows * each).low >= least
    fewest = {"text-generation": 8}.get(workload.task, 16)
    assert windows == fewest or share_value([1.0] * (windows - 1), (windows - 1) * each).low < least


@pytest.mark.parametrize(
    ("model", "task", "limits", "message"),
    [
        (
            "tiny-bert",
            "text-classification",
            {"agreement": 0.995},
            "512 equal choices, the most that are",
        ),
        (
            "tiny-bert",
            "text-classification",
            {"agreement": 1.0},
            "agreement of 0.9928 at most, not 1: lower it",
        ),
        ("tiny-gpt2", None, {"agreement": 0.9995}, "3840 equal choices"),
        (
            "tiny-bert",
            "text-classification",
            {"perplexity_increase": 1.0},
            "limit on perplexity_increase out",
        ),
        ("tiny-bert", "feature-extraction", {"kl": 0.1, "agreement": 0.9}, "leave the limit on kl and agreement out"),
    ],
)
def test_a_limit_on_quality_that_nothing_can_meet_is_refused(monkeypatch, model, task, limits, message):
    text = SimpleNamespace(tokens=range(60), scored=64)
    monkeypatch.setattr(space, "text_windows", lambda workload, settings: text)
    with pytest.raises(UsageError, match=message):
        quality_to_show(limits, trained(model, task))
