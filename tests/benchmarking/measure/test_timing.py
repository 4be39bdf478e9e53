import gc
import subprocess
import sys

import pytest

from benchmarking.core.errors import BenchhouseError
from benchmarking.measure.timing import MAX_INNER_LOOPS, Stopwatch, inner_loops_for, quiet_gc

MS = 1_000_000


def test_only_the_call_and_its_sync_are_between_the_clock_readings(fake):
    handle = fake.handle()
    Stopwatch(fake.operation(handle, [2]), handle).run(2)
    assert handle.events == ["reset", "sync", "now", "run", "sync", "now"] * 2


def test_each_call_is_timed_exactly(fake):
    handle = fake.handle()
    watch = Stopwatch(fake.operation(handle, [2, 3.5, 4]), handle)
    watch.run(4)
    assert watch.block_ns == [2 * MS, 3_500_000, 4 * MS, 2 * MS]
    assert watch.started_ns == [0, 2 * MS, 5_500_000, 9_500_000]
    assert watch.calls_ms == [2.0, 3.5, 4.0, 2.0]
    assert watch.device_ms == []
    assert watch.spent_ns == 11_500_000


def test_a_block_is_synced_call_by_call_and_its_sample_is_the_mean(fake):
    handle = fake.handle()
    watch = Stopwatch(fake.operation(handle, [0.2, 0.4]), handle, inner_loops=4)
    watch.run(1)
    assert handle.events == ["reset", "sync", "now", *["run", "sync"] * 4, "now"]
    assert watch.calls_ms == [pytest.approx(0.3)]


def test_device_time_is_read_from_the_events_of_a_call(fake):
    handle = fake.handle(has_events=True)
    watch = Stopwatch(fake.operation(handle, [2, 4]), handle)
    watch.run(2)
    assert watch.device_ms == [1.0, 2.0]
    blocks = Stopwatch(fake.operation(handle, [0.4, 0.8]), handle, inner_loops=2)
    blocks.run(1)
    assert blocks.device_ms == [pytest.approx(0.3)]


def test_marks_are_kept_by_call(fake):
    handle = fake.handle()
    watch = Stopwatch(fake.operation(handle, [[("token", 5), ("token", 2)], [("token", 4), ("token", 3)]]), handle)
    watch.run(2)
    first, second = watch.call_marks()
    assert first == (0, [("token", 5 * MS), ("token", 7 * MS)])
    assert second == (7 * MS, [("token", 11 * MS), ("token", 14 * MS)])


def test_the_time_limit_allows_at_least_three_calls(fake):
    handle = fake.handle()
    watch = Stopwatch(fake.operation(handle, [100]), handle)
    watch.run(50, limit_ns=10 * MS)
    assert len(watch) == 3
    longer = Stopwatch(fake.operation(handle, [100]), handle)
    longer.run(50, limit_ns=500 * MS)
    assert len(longer) == 5


@pytest.mark.parametrize(
    ("call_ms", "why"),
    [([0], "the clock did not advance during 3 calls"), ([5, 5, -3], "a call took -3 ms: the clock went back")],
)
def test_calls_on_a_clock_that_stands_still_or_goes_back_are_an_error(fake, call_ms, why):
    handle = fake.handle()
    with pytest.raises(BenchhouseError, match=why):
        Stopwatch(fake.operation(handle, call_ms), handle).run(3)


def test_run_returns_the_last_output(fake):
    handle = fake.handle()
    assert Stopwatch(fake.operation(handle, [1]), handle).run(3) == 3


@pytest.mark.parametrize(
    ("call_ns", "loops"), [(2 * MS, 1), (MS, 1), (999_999, 2), (300_000, 4), (100, 10_000), (0, MAX_INNER_LOOPS)]
)
def test_blocks_last_at_least_a_millisecond(call_ns, loops):
    assert inner_loops_for(call_ns) == loops


QUIET = """
import gc
from benchmarking.measure.timing import quiet_gc
{freeze}
before = gc.get_freeze_count()
try:
    with quiet_gc():
        assert not gc.isenabled()
        assert gc.get_freeze_count() > 0
        raise ZeroDivisionError
except ZeroDivisionError:
    assert gc.isenabled()
    assert (gc.get_freeze_count() > 0) == (before > 0)
    assert gc.get_freeze_count() <= before  # nothing of a point is among what stays
"""


@pytest.mark.parametrize("freeze", ["gc.unfreeze()", "gc.freeze()"])
def test_garbage_collection_is_off_inside_and_restored_after_an_exception(freeze):
    """In a small process: what a process that runs tests has collected is long to look at."""
    subprocess.run([sys.executable, "-c", QUIET.format(freeze=freeze)], check=True)


def test_disabled_garbage_collection_stays_disabled():
    gc.disable()
    try:
        with quiet_gc():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
