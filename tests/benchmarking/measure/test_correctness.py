"""Differences from the reference, computed by hand, and the tolerances."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarking.core.plugins import family_names
from benchmarking.core.records import PRECISIONS
from benchmarking.measure.quality_measures import (
    ROUTED,
    TOLERANCES,
    Comparison,
    about_difference,
    compare,
    tolerance_of,
)


def array(*values, dtype=np.float32):
    return np.array(values, dtype=dtype)


def kinds(doubts):
    return [(doubt.kind, doubt.severity) for doubt in doubts]


def test_the_three_numbers_by_hand():
    # x = (3, 4), y = (3, 4.5): |y - x| = 0.5, ||x|| = 5, ||y|| = sqrt(29.25), x.y = 27
    found = compare({"logits": array(3, 4.5)}, {"logits": array(3, 4)})
    assert found.max_abs_error == 0.5
    assert found.relative_l2 == pytest.approx(0.1)
    assert found.cosine == pytest.approx(27 / (5 * math.sqrt(29.25)))
    assert (found.equal_token_share, found.problem) == (None, None)


def test_for_several_arrays_each_number_is_the_worst():
    reference = {"a": array(3, 4), "b": array(0, 1)}
    found = compare({"a": array(3, 4.5), "b": array(0.2, 1)}, reference)
    assert (found.max_abs_error, found.relative_l2) == (0.5, pytest.approx(0.2))
    assert found.cosine == pytest.approx(1 / math.sqrt(1.04))
    assert set(found.by_array) == {"a", "b"}
    assert found.by_array["a"]["relative_l2"] == pytest.approx(0.1)


def test_arrays_missing_from_the_reference_are_not_compared():
    found = compare({"logits": array(1), "more": array(9)}, {"logits": array(1)})
    assert (found.relative_l2, set(found.by_array)) == (0.0, {"logits"})


def test_equal_tokens_are_counted_by_position_after_a_difference_too():
    reference = {"tokens": np.array([[1, 2, 3, 4], [5, 6, 7, 8]])}
    found = compare({"tokens": np.array([[1, 9, 3, 4], [5, 6, 7, 9]])}, reference)
    assert found.equal_token_share == 0.75
    assert (found.max_abs_error, found.relative_l2, found.cosine) == (None, None, None)


def test_without_tokens_there_is_no_share():
    nothing = {"tokens": np.zeros((2, 0), dtype=np.int64)}
    assert compare(nothing, nothing).equal_token_share is None


def test_two_zero_outputs_are_equal():
    found = compare({"x": array(0, 0)}, {"x": array(0, 0)})
    assert (found.max_abs_error, found.relative_l2, found.cosine) == (0.0, 0.0, 1.0)


@pytest.mark.parametrize(("output", "reference"), [((0, 0), (3, 4)), ((3, 4), (0, 0))])
def test_zeros_instead_of_an_output_are_all_wrong(output, reference):
    found = compare({"x": array(*output)}, {"x": array(*reference)})
    assert (found.relative_l2, found.cosine) == (1.0, 0.0)


def test_empty_arrays_are_equal():
    found = compare({"x": array()}, {"x": array()})
    assert (found.max_abs_error, found.relative_l2, found.cosine) == (0.0, 0.0, 1.0)


def test_sums_over_large_values_do_not_overflow():
    large = array(3e38, 3e38)
    assert compare({"x": large}, {"x": large}).relative_l2 == 0.0


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        ({"logits": array(1, math.nan)}, "logits has NaN or Inf"),
        ({"logits": array(1, math.inf)}, "logits has NaN or Inf"),
        ({"logits": array(1, 2, 3)}, "logits has shape (3,), expected (2,)"),
        ({"other": array(1, 2)}, "the output has no logits"),
    ],
)
def test_incomparable_outputs_differ(output, problem):
    found = compare(output, {"logits": array(1, 2)})
    assert (found.problem, found.relative_l2) == (problem, None)
    (doubt,) = about_difference(found, "int4")
    assert (doubt.kind, doubt.severity) == ("output_differs", "invalid")
    assert doubt.evidence == {"problem": problem, "precision": "int4"}
    readings = found.readings()
    assert readings.values == {}
    assert set(readings.missing.values()) == {f"not_applicable: {problem}"}


def test_readings_are_the_known_numbers_and_reasons_for_the_others():
    readings = Comparison(max_abs_error=0.5, relative_l2=0.1, cosine=0.9).readings()
    assert readings.values == {
        "output_max_abs_error": 0.5,
        "output_error": 0.1,
        "output_cosine_similarity": 0.9,
    }
    assert readings.missing == {"output_equal_token_share": "not_applicable: the output has no array of this kind"}


@pytest.mark.parametrize("precision", PRECISIONS)
def test_an_output_passes_at_the_tolerance_and_fails_beyond_it(precision):
    tolerance = TOLERANCES[precision]
    at = Comparison(relative_l2=tolerance.relative_l2, cosine=tolerance.cosine)
    assert about_difference(at, precision) == ()
    further = Comparison(relative_l2=math.nextafter(tolerance.relative_l2, 1), cosine=tolerance.cosine)
    (doubt,) = about_difference(further, precision)
    assert doubt.evidence == {
        "relative_l2": further.relative_l2,
        "tolerance_relative_l2": tolerance.relative_l2,
        "precision": precision,
    }
    turned = Comparison(relative_l2=tolerance.relative_l2, cosine=math.nextafter(tolerance.cosine, 0))
    assert kinds(about_difference(turned, precision)) == [("output_differs", "invalid")]


def test_nan_never_passes():
    found = Comparison(relative_l2=math.nan, cosine=math.nan)
    assert kinds(about_difference(found, "int4")) == [("output_differs", "invalid")]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_tokens_are_compared_at_float32_only(precision):
    none_equal = Comparison(relative_l2=0.0, cosine=1.0, equal_token_share=0.0)
    assert bool(about_difference(none_equal, precision)) is (precision == "float32")


def test_ninety_percent_equal_tokens_are_enough_at_float32():
    assert about_difference(Comparison(equal_token_share=0.9), "float32") == ()
    (doubt,) = about_difference(Comparison(equal_token_share=0.89), "float32")
    assert doubt.evidence["tolerance_equal_token_share"] == 0.9


def test_lower_precisions_have_wider_tolerances():
    assert set(TOLERANCES) == set(PRECISIONS)
    order = ("float32", "tf32", "float16", "bfloat16", "float8_e4m3", "int8", "int4")
    errors = [TOLERANCES[precision].relative_l2 for precision in order]
    assert errors == sorted(errors)
    assert len(set(errors)) == len(errors)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_cosine_tolerances_match_the_error_tolerances(precision):
    tolerance = TOLERANCES[precision]
    assert 1 - tolerance.cosine == pytest.approx(tolerance.relative_l2**2 / 2, rel=1.1)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_routed_experts_may_differ_below_float32(precision):
    own = TOLERANCES[precision]
    expected = ROUTED if precision in ("tf32", "float16", "bfloat16", "float8_e4m3", "int8") else own
    assert tolerance_of(precision, "mixture-of-experts") == expected
    others = {tolerance_of(precision, family) for family in (*family_names(), None) if family != "mixture-of-experts"}
    assert others == {own}
    one_route_else = Comparison(relative_l2=0.25, cosine=0.97)
    assert bool(about_difference(one_route_else, precision, "mixture-of-experts")) is (precision == "float32")
    all_wrong = Comparison(relative_l2=1.41, cosine=0.0)
    assert kinds(about_difference(all_wrong, precision, "mixture-of-experts")) == [("output_differs", "invalid")]
