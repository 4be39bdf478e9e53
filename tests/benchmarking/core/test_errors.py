"""Errors while cleaning up: the first error is raised, the second is its note."""

from __future__ import annotations

import pytest

from benchmarking.core.errors import always_after


def test_it_closes_after_the_body():
    events = []
    with always_after(lambda: events.append("closed")):
        events.append("body")
    assert events == ["body", "closed"]


def test_it_closes_after_an_error_and_raises_that_error():
    events = []
    with pytest.raises(ValueError, match="first"), always_after(lambda: events.append("closed")):
        raise ValueError("first")
    assert events == ["closed"]


def test_an_error_while_closing_is_a_note_of_the_first_error():
    def close():
        raise KeyError("second")

    with pytest.raises(ValueError, match="first") as caught, always_after(close):
        raise ValueError("first")
    assert caught.value.__notes__ == ["and then, while cleaning up: KeyError: 'second'"]


def test_an_error_while_closing_is_raised_if_it_is_the_only_one():
    def close():
        raise KeyError("second")

    with pytest.raises(KeyError), always_after(close):
        pass
