"""What launches say about the next one: coverage over kinds of noise, two levels, and the words."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarking.core.verdicts.launches import launch_notes, next_launch, throughput_note, two_levels

NOISES = {
    "normal": lambda rng, shape: 0.02 * rng.standard_normal(shape),
    "heavy tail": lambda rng, shape: 0.02 * rng.standard_t(3, shape),
    "two levels": lambda rng, shape: 0.04 * (rng.random(shape) < 0.3) + 0.005 * rng.standard_normal(shape),
    "skewed": lambda rng, shape: 0.02 * rng.exponential(1, shape),
}


@pytest.mark.parametrize("launches", [5, 10, 20])
@pytest.mark.parametrize("noise", NOISES)
def test_the_interval_of_the_next_launch_covers_it_in_about_95_percent(noise, launches):
    values = 10 * np.exp(NOISES[noise](np.random.default_rng(launches), (1500, launches + 1)))
    ends = [next_launch(row[:-1].tolist()) for row in values]
    covered = sum(low <= following <= high for (low, high), following in zip(ends, values[:, -1], strict=True))
    assert 0.9 <= covered / len(values) <= 0.99


def test_the_interval_of_the_next_launch_is_that_of_the_logarithms_and_of_the_launches_seen():
    values = [math.exp(each) for each in (0.1, -0.1, 0.1, -0.1, 0.0)]
    half = 2.7764451 * 0.1 * math.sqrt(1 + 1 / 5)  # t(0.975, 4), sd 0.1
    assert next_launch(values) == pytest.approx((math.exp(-half), math.exp(half)))
    low, high = next_launch([10.0] * 11 + [11.0])
    assert (low < 10, high) == (True, 11.0)


def test_too_few_launches_predict_no_other():
    assert next_launch([10.0, 10.1, 10.2, 10.3]) is None
    (note,) = launch_notes({"b1": [10.0, 10.1, 10.2]})
    assert "3 launches are too few to predict the next one" in note
    assert launch_notes({"b1": [10.0]}) == []


def test_a_column_that_is_not_shown_is_not_explained():
    values = {"b1": [10.0, 10.1, 10.0, 10.1, 10.0]}
    assert launch_notes(values) == [
        "95 % interval: of the typical launch; next launch: where another one would be, with 95 % probability"
    ]
    assert launch_notes(values, left_out=("next launch",)) == ["95 % interval: of the typical launch"]
    for launches in (values, {"b1": values["b1"][:3]}):
        assert launch_notes(launches, left_out=("95 % interval", "next launch")) == []


def test_two_levels_are_named_with_their_distance_and_share():
    values = [10.0, 10.4, 10.02, 9.99, 10.41, 10.01, 10.39, 10.0, 10.03, 9.98]
    found = two_levels(values)
    assert (found.lower, found.upper, found.on_upper) == (10.0, 10.4, 3)
    note, _ = launch_notes({"b1 s32": values})
    assert note == "b1 s32: two levels 4% apart, 30% of launches on the upper one (3 of 10)"


def test_launches_on_one_level_are_not_divided():
    rows = 10 * np.exp(0.02 * np.random.default_rng(1).standard_normal((500, 10)))
    assert sum(two_levels(row.tolist()) is not None for row in rows) <= 20
    assert two_levels([10.0] * 9 + [12.0]) is None
    assert two_levels([10.0] * 5 + [10.1] * 5) is None


def test_a_throughput_that_does_not_follow_from_the_median_is_shown_with_that_which_does():
    note = throughput_note("b1", 25.25, 50.0, "items/s")
    assert note == "b1: 25.25 items/s over all calls, 50 items/s at the median latency: slow calls cost 50%"
    assert throughput_note("b1", 48.0, 50.0, "items/s") is None
    assert throughput_note("b1", None, 50.0, "items/s") is None
