"""Parameters and URLs: each state has one URL, and URLs are parsed back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarking.core.errors import UsageError
from visualize.pages import site


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    key: str
    text: str | None = None
    count: int | None = None
    page: int = 1
    ticked: bool = False
    names: tuple[str, ...] = ()
    order: Literal["up", "down"] = "up"


texts = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1).map(str.strip)


@given(
    st.builds(
        Example,
        key=texts.filter(bool),
        text=st.none() | texts.filter(bool),
        count=st.none() | st.integers(1, 10**9),
        page=st.integers(1, 10**9),
        ticked=st.booleans(),
        names=st.lists(texts.filter(bool), max_size=3).map(tuple),
        order=st.sampled_from(["up", "down"]),
    )
)
def test_parameters_survive_a_round_trip_through_the_url(example):
    given = [*site.path_of(example).items(), *site.query_of(example)]
    assert site.parse(Example, given) == example


def test_defaults_are_not_in_the_url():
    assert site.query_of(Example(key="a")) == ()
    assert site.path_of(Example(key="a")) == {"key": "a"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], "key is missing"),
        ([("key", "a"), ("other", "1")], "unknown parameter 'other'"),
        ([("key", "a"), ("count", "-1")], "count=-1: expected a whole number from 1"),
        ([("key", "a"), ("count", "\u0663")], "expected a whole number"),
        ([("key", "a"), ("order", "sideways")], "unknown order 'sideways': known: up, down"),
        ([("key", "a\0b")], "no NUL"),
        ([("key", "a" * 20_001)], "at most 20000 characters"),
    ],
)
def test_invalid_parameters_are_named(given, expected):
    with pytest.raises(UsageError, match=expected):
        site.parse(Example, given)
