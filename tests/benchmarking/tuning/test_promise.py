"""Which untried cell is the most promising: costs of others with the same traits, and nothing before the first."""

from __future__ import annotations

import math

import pytest

from benchmarking.tuning.race import Tried, improvement, traits


def tried(runtime, precision, cost, **settings):
    return Tried(traits=traits(runtime, precision, settings), log_cost=None if cost is None else math.log(cost))


def test_before_anything_has_a_cost_all_are_equal():
    untried = [traits("a", "float32", {}), traits("b", "int8", {})]
    assert improvement(untried, []) == [1, 1]
    assert improvement([], [tried("a", "int8", 1.0)]) == []


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (traits("fast", "int4", {}), traits("slow", "int4", {})),
        (traits("new", "int8", {}), traits("new", "float32", {})),
        (traits("fast", "int8", {"threads": 1}), traits("fast", "float32", {"threads": 1})),
        (traits("slow", "int8", {"cache": "static"}), traits("slow", "int8", {"threads": 2})),
        (traits("fast", "int4", {}), traits("broken", "int4", {})),
    ],
)
def test_a_cell_promises_as_much_as_those_that_have_its_traits(better, worse):
    known = [
        tried("fast", "float32", 4.0),
        tried("fast", "int8", 2.0),
        tried("slow", "float32", 12.0),
        tried("slow", "int8", 6.0),
        tried("fast", "float32", 3.0, cache="static"),
        tried("fast", "float32", 9.0, threads=2),
        tried("broken", "int8", None),
    ]
    high, low = improvement([better, worse], known)
    assert high > low > 0


def test_what_is_known_promises_less_than_what_is_not():
    """A second setting of a slow base may still be fast, but nothing of another runtime is known."""
    known = [tried("a", "int8", 1.0), tried("b", "int8", 3.0)]
    neighbour, other = improvement([traits("b", "int8", {"threads": 1}), traits("c", "int8", {})], known)
    assert other > 5 * neighbour


def test_after_a_launch_that_did_not_finish_another_runtime_is_more_promising():
    untried = [traits("a", "int8", {"threads": 1}), traits("a", "float32", {}), traits("b", "float32", {})]
    variant, precision, other = improvement(untried, [tried("a", "int8", None)])
    assert variant < precision < other
