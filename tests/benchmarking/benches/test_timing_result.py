"""Statistics of times from any source, against examples computed by hand."""

import pytest

from benchmarking import TimingResult, flush_memory
from benchmarking.core.errors import UsageError
from benchmarking.core.records import Point, Result, Samples


def samples(values, **about):
    fields = {"launch": 0, "phase": "measure", "metric": "latency_wall", "unit": "ms", "started_at": ""}
    return Samples(values=values, **(fields | about))


def test_percentiles_match_the_raw_values():
    result = TimingResult(number / 100 for number in range(101))
    assert result.median_s == result.percentile_s(50) == 0.5
    assert result.mean_s == pytest.approx(0.5)
    assert result.percentile_s(25) == 0.25
    assert result.percentile_s(95) == pytest.approx(0.95)
    assert (result.statistics.min, result.statistics.max, result.statistics.n) == (0.0, 1.0, 101)


def test_percentiles_with_too_few_calls_are_none():
    assert TimingResult([1.0] * 28).percentile_s(90) is None
    assert TimingResult([1.0] * 29).percentile_s(90) == 1.0
    assert TimingResult([1.0] * 298).percentile_s(99) is None
    assert TimingResult([1.0] * 299).percentile_s(1) == 1.0


def test_a_result_combines_the_calls_of_all_launches():
    parts = (samples((1.0, 2.0)), samples((3.0,), launch=1), samples((99.0,), phase="warmup"))
    result = Result(result_id="r", point=Point(batch_size=1), status="ok", samples=parts)
    assert TimingResult.of(result).values_s == (0.001, 0.002, 0.003)
    with pytest.raises(UsageError, match=r"no samples of decode\. Found: latency_wall"):
        TimingResult.of(result, "decode")


def test_calls_timed_in_blocks_have_no_raw_values():
    result = Result(result_id="r", point=Point(batch_size=1), status="ok", samples=(samples((1.0,), inner_loops=8),))
    with pytest.raises(UsageError, match="timed in blocks"):
        TimingResult.of(result)


@pytest.mark.parametrize("values", [[], [-1.0], [float("nan")], [1.0, float("inf")]])
def test_an_invalid_time_is_refused(values):
    with pytest.raises(UsageError, match="TimingResult"):
        TimingResult(values)


@pytest.mark.parametrize("percent", [0, 100, -3, 200])
def test_percentiles_are_between_0_and_100(percent):
    with pytest.raises(UsageError, match="between 0 and 100"):
        TimingResult([1.0]).percentile_s(percent)


def test_flushing_memory_collects_garbage():
    import weakref

    class Cycle:
        pass

    one = Cycle()
    one.itself = one
    left = weakref.ref(one)
    del one
    flush_memory()
    assert left() is None
