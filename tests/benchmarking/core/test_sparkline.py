"""Rows of bars, worked by hand."""

import pytest

from benchmarking.core.text import ASCII_BARS, BARS, bars_for, sparkline


def test_bars_span_the_lowest_and_highest_value():
    assert sparkline([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], 40) == "▁▂▃▄▅▆▇█"
    assert sparkline([1.0, 8.0], 40, ASCII_BARS) == "_#"


def test_small_variation_is_flat():
    # The range is widened to a tenth of the median: 95.5 ... 105.5 for 100 and 101, in steps of 1.25.
    assert sparkline([100.0, 101.0], 40) == "▄▅"
    assert sparkline([5.0, 5.0, 5.0], 40) == "▅▅▅"
    assert sparkline([0.0, 0.0], 40) == "▁▁"


def test_excess_values_are_reduced_to_medians_of_equal_parts():
    assert sparkline([1.0, 1.0, 9.0, 8.0, 8.0, 8.0], 2) == "▁█"
    assert sparkline([], 5) == ""


@pytest.mark.parametrize(
    ("encoding", "bars"),
    [("utf-8", BARS), ("ascii", ASCII_BARS), ("latin-1", ASCII_BARS), (None, ASCII_BARS), ("no-such", ASCII_BARS)],
)
def test_bars_depend_on_the_encoding(encoding, bars):
    assert bars_for(encoding) == bars
