"""Environment, not code: when the series of a session moved together."""

from __future__ import annotations

import pytest

from db.analysis.gate.gate import Shift, common_shift, sign_chance


def shifts(ratios, *, findings=(0,), groups=None):
    return [
        Shift(group=str(place) if groups is None else groups[place], ratio=ratio, is_finding=place in findings)
        for place, ratio in enumerate(ratios)
    ]


def test_the_chance_is_the_binomial_tail():
    assert sign_chance(5, 5) == 1 / 32
    assert sign_chance(7, 8) == 9 / 256
    assert sign_chance(0, 3) == 1


def test_six_models_that_all_became_slower_are_the_environment():
    together = common_shift(shifts([1.10, 1.06, 1.04, 1.05, 1.03, 1.08]))

    assert together.direction == "worse"
    assert (together.moved, together.groups) == (6, 6)
    assert together.ratio == pytest.approx(1.055)
    assert together.chance == 1 / 64
    assert together.text == (
        "6 of 6 combinations of model, runtime and precision became worse, by 5.5% (median; probability by chance "
        "0.016)"
    )


def test_the_points_of_one_model_are_one_group():
    """A change of its code moves them all, and says nothing of the machine."""
    assert common_shift(shifts([1.1] * 12, findings=range(12), groups=["bert"] * 12)) is None
    four = [f"model {place % 4}" for place in range(12)]
    assert common_shift(shifts([1.1] * 12, findings=range(12), groups=four)) is None


def test_one_model_among_steady_ones_is_code():
    assert common_shift(shifts([1.30, 1.003, 0.998, 1.001, 0.997, 1.002])) is None


def test_a_fraction_of_a_percent_is_not_a_common_change():
    assert common_shift(shifts([1.2, *[1.004] * 9])) is None
    assert common_shift(shifts([1.2, *[1.012] * 9])) is not None


def test_a_finding_the_other_way_rules_out_the_environment():
    ratios = [0.80, *[1.05] * 9]

    assert common_shift(shifts(ratios, findings=(1,))) is not None
    assert common_shift(shifts(ratios, findings=(0, 1))) is None


def test_four_fifths_must_move_the_same_way():
    slower = [1.05] * 16
    assert common_shift(shifts([*slower, *[0.99] * 4])).moved == 16
    assert common_shift(shifts([*slower[1:], *[0.99] * 5])) is None


def test_unchanged_series_count_against_it():
    assert common_shift(shifts([1.05] * 5 + [1.0] * 2)) is None


def test_a_common_improvement_is_the_environment_too():
    assert common_shift(shifts([0.9] * 6)).direction == "better"


def test_without_findings_there_is_nothing_to_explain():
    assert common_shift(shifts([1.05] * 8, findings=())) is None
    assert common_shift([]) is None
