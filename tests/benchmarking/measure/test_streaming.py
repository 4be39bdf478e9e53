import pytest

from benchmarking.errors import BenchhouseError
from benchmarking.measure.streaming import check_tokens, phase_series, token_reasons, token_series
from benchmarking.measure.timing import Stopwatch


def watch(fake, script, calls, new_tokens):
    handle = fake.handle()
    watch = Stopwatch(fake.operation(handle, script, new_tokens=new_tokens), handle)
    watch.run(calls)
    return watch


def test_token_times_by_hand(fake):
    # tokens at 50, 60, 72, 80 ms, the call ends at 83 ms: ttft 50, tpot (83 - 50) / 3
    timed = watch(fake, [[("token", 50), ("token", 10), ("token", 12), ("token", 8), 3]], 2, 4)
    series = token_series(timed, 4)
    assert series["time_to_first_token"] == (50.0, 50.0)
    assert series["time_per_output_token"] == (11.0, 11.0)
    assert series["inter_token_latency"] == (10.0, 12.0, 8.0) * 2


def test_a_single_token_has_no_time_per_token(fake):
    timed = watch(fake, [[("token", 50)]], 2, 1)
    assert token_series(timed, 1) == {"time_to_first_token": (50.0, 50.0)}
    assert set(token_reasons(1)) == {"time_per_output_token", "inter_token_latency"}
    assert all(why.startswith("not_applicable") for why in token_reasons(1).values())


def test_without_generation_there_are_no_token_times(fake):
    assert token_series(watch(fake, [5], 2, None), None) == {}
    assert len(token_reasons(None)) == 3
    assert token_reasons(8) == {}


@pytest.mark.parametrize("marks", [1, 3])
def test_a_call_with_another_number_of_tokens_is_refused(fake, marks):
    timed = watch(fake, [[("token", 5)] * 2, [("token", 5)] * marks], 2, 2)
    with pytest.raises(BenchhouseError, match=f"call 1 generated {marks} tokens where 2 were asked"):
        check_tokens(timed, 2)


def test_phases_are_timed_from_the_mark_before(fake):
    timed = watch(fake, [[("embed", 4), ("retrieve", 6), ("token", 20), ("token", 1)]], 2, 2)
    assert phase_series(timed) == {"phase_embed": (4.0, 4.0), "phase_retrieve": (6.0, 6.0)}
    check_tokens(timed, 2)
    assert token_series(timed, 2)["time_to_first_token"] == (30.0, 30.0)
