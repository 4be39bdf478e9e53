"""Compile time: reported by the runtime or an upper bound, with cold and warm caches."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from benchmarking.measure.point import compile_pass

STEADY = SimpleNamespace(watch=SimpleNamespace(block_ns=[100_000_000, 300_000_000, 200_000_000], inner_loops=2))
"""A steady call takes 100 ms: the median block of 200 ms has two of them."""


@pytest.fixture
def context(fake):
    return lambda compile_count=lambda: 1: fake.context([1], compile_count=compile_count)


def test_compile_times_of_the_runtime_are_preferred(context):
    result = compile_pass(context(), 2_000_000_000, 1, STEADY, {"compile_s": 1.25, "graph_count": 2})
    assert result.metrics == {"compile_s": 1.25}
    assert result.extra == {"compile_method": "counter", "verified": {"compile_s": 1.25, "graph_count": 2}}


def test_otherwise_compile_time_is_the_first_call_minus_a_steady_one(context):
    """2 s - 0.1 s."""
    result = compile_pass(context(), 2_000_000_000, 1, STEADY, {})
    assert result.metrics == {"compile_s": pytest.approx(1.9)}
    assert result.extra == {"compile_method": "upper_bound"}


@pytest.mark.parametrize("state", ["cold", "warm"])
@pytest.mark.parametrize(("own", "seconds"), [({"compile_s": 1.25}, 1.25), ({}, 1.9)])
def test_cold_and_warm_caches_have_separate_readings(context, state, own, seconds):
    result = compile_pass(context(), 2_000_000_000, 1, STEADY, {**own, "compile_cache": state})
    assert result.extra["verified"][f"compile_{state}_s"] == pytest.approx(seconds)
    assert not {"compile_cold_s", "compile_warm_s"} - {f"compile_{state}_s"} & set(result.extra["verified"])


@pytest.mark.parametrize(
    ("first_call_ns", "compiles", "verified"),
    [(2_000_000_000, 0, {}), (50_000_000, 1, {}), (2_000_000_000, 1, {"compile_s": 0.0, "compile_cache": "cold"})],
)
def test_calls_without_compilations_have_no_compile_time(context, first_call_ns, compiles, verified):
    result = compile_pass(context(), first_call_ns, compiles, STEADY, verified)
    assert result.metrics == {}
    assert result.missing == {"compile_s": "not_applicable: the first call compiled nothing"}
    assert result.extra == ({"verified": verified} if verified else {})


def test_runtimes_without_compilation_have_a_reason(context):
    result = compile_pass(context(compile_count=None), 2_000_000_000, 0, STEADY, {"nodes": 3})
    assert result.missing == {"compile_s": "not_applicable: nothing is compiled"}
    assert result.extra == {"verified": {"nodes": 3}}
