import pytest

from benchmarking.core.errors import BenchhouseError
from benchmarking.measure.timing import (
    Stopwatch,
    check_tokens,
    phase_reasons,
    phase_series,
    token_reasons,
    token_series,
)


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


def test_calls_without_streaming_have_all_token_times_but_the_gaps(fake):
    # the first token at 50 ms, the other three together at 80 ms, the call ends at 83 ms: tpot (83 - 50) / 3
    timed = watch(fake, [[("token", 50), ("token", 30), 3]], 2, 4)
    check_tokens(timed, 4, streams=False)
    series = token_series(timed, 4, streams=False)
    assert series == {"time_to_first_token": (50.0, 50.0), "time_per_output_token": (11.0, 11.0)}
    (why,) = token_reasons(4, streams=False).items()
    assert why == ("inter_token_latency", "not_applicable: all tokens after the first reach the host together")
    assert token_reasons(1, streams=False) == token_reasons(1)
    assert phase_series(timed)["phase_decode"] == (30.0, 30.0)
    with pytest.raises(BenchhouseError, match="call 0 generated 2 tokens, expected 4"):
        check_tokens(timed, 4)


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
def test_a_call_with_the_wrong_number_of_tokens_is_an_error(fake, marks):
    timed = watch(fake, [[("token", 5)] * 2, [("token", 5)] * marks], 2, 2)
    with pytest.raises(BenchhouseError, match=f"call 1 generated {marks} tokens, expected 2"):
        check_tokens(timed, 2)


def test_phases_start_at_the_previous_mark_and_decode_spans_the_tokens(fake):
    timed = watch(fake, [[("embed", 4), ("retrieve", 6), ("token", 20), ("token", 1), ("token", 2), 5]], 2, 3)
    assert phase_series(timed) == {
        "phase_embed": (4.0, 4.0),
        "phase_retrieve": (6.0, 6.0),
        "phase_prefill": (20.0, 20.0),
        "phase_decode": (3.0, 3.0),
    }
    check_tokens(timed, 3)
    assert token_series(timed, 3)["time_to_first_token"] == (30.0, 30.0)


def test_a_single_token_is_all_prefill(fake):
    assert phase_series(watch(fake, [[("token", 50), 3]], 1, 1)) == {"phase_prefill": (50.0,)}


def test_repeated_phases_have_one_value_per_occurrence(fake):
    timed = watch(fake, [[("step", 4), ("step", 6), ("step", 5)]], 2, None)
    assert phase_series(timed) == {"phase_step": (4.0, 6.0, 5.0) * 2}


def test_phases_end_with_the_device_and_tokens_at_their_mark(fake):
    handle = fake.handle()
    watch = Stopwatch(fake.operation(handle, [[("encode", 4), ("token", 6)]], new_tokens=1), handle)
    watch.run(1)
    # the call's own sync at either end, and one more for the phase, before its clock reading; none for the token
    assert handle.events == ["reset", "sync", "now", "run", "sync", "now", "now", "sync", "now"]


def test_missing_phases_are_not_applicable():
    reasons = phase_reasons({"phase_encode"})
    assert "phase_encode" not in reasons
    assert reasons["phase_step"] == "not_applicable: the call does not have this phase"
