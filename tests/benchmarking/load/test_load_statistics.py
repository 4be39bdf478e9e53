"""The statistics of loads on queues with a known answer; `tests/perf/load_statistics.py` prints their rates."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from benchmarking.core.doubts import doubt
from benchmarking.core.load_doubts import (
    HIGHEST_RATE,
    INVALID,
    RATE_HIGH,
    RATE_LOW,
    REQUIRED,
    SHARE_IN_TIME,
    HighestRate,
    invalid_levels_words,
    over_saturated,
    pooled_shares,
    queue_of,
)
from benchmarking.core.metrics import METRICS
from benchmarking.core.records import Point, Result
from benchmarking.core.sample_statistics import percentile_intervals
from benchmarking.load.curve import SearchInterrupted, holds, limits_outcome, search
from benchmarking.load.generator import Level
from benchmarking.load.load_statistics import Look, Posterior
from benchmarking.load.results import result_of
from benchmarking.load.traffic import Lengths, Traffic, share_in_time
from tests.helpers.queues import CAPACITY_PER_S, ENGINES, QUEUES, in_turn, poisson, requests_of

TRAFFIC = Traffic(lengths_in=Lengths("8"), lengths_out=Lengths("1"))
LIMIT_MS = 100.0
TRUTH = 27.8
"""The highest rate at which 99 % of the latencies of M/D/1 with 20 ms of service are at most 100 ms."""


def look(level, serve, seed=0, doubts=()):
    """The result of a level on a queue."""
    starts = np.array(replace(TRAFFIC, seed=seed).starts(level.rate, level.requests))
    requests = requests_of(starts, serve(np.random.default_rng(len(starts)), starts), LIMIT_MS)
    return Result(
        result_id="0",
        point=Point(batch_size=1, axes={"request_rate": level.rate}),
        status="ok",
        metrics={"goodput_share": sum(requests.meets_limits) / len(requests)},
        doubts=(*over_saturated(requests, level.rate), *doubts),
        requests=(requests,),
        extra={"custom_metrics": {}, "launches": []},
    )


def searched(measured, lowest=1.0, highest=64.0):
    """The rates that were measured, and the outcome."""
    *levels, outcome = search(measured, Level(rate=lowest, duration_s=30.0), highest, lambda text: None)
    return [one.point.axes["request_rate"] for one in levels], outcome


def test_a_search_finds_the_highest_rate_of_a_queue_and_its_interval_covers_the_truth():
    rates, outcome = searched(lambda level: look(level, QUEUES["M/D/1"]))
    found = outcome.metrics
    assert found[HIGHEST_RATE] == pytest.approx(TRUTH, rel=0.08)
    assert found[RATE_LOW] < TRUTH < found[RATE_HIGH]
    assert len(set(rates)) == len(rates)
    assert sum(abs(rate / TRUTH - 1) < 0.15 for rate in rates) > len(rates) / 2, "most levels are near the answer"
    assert outcome.point.axes == {}
    assert outcome.extra["load"]["looks"][0]["requests"] == 240


def test_a_search_for_another_share_of_the_requests_finds_the_rate_at_which_that_share_is_within_the_limits():
    """The truth is of a simulated hour: with 20 ms of service, 95 % wait for less at a higher rate than 99 % do."""

    def of_95(level):
        made = look(level, QUEUES["M/D/1"])
        return replace(made, extra={**made.extra, "load": {REQUIRED: 0.95}})

    *levels, outcome = search(of_95, Level(rate=1.0, duration_s=30.0), 64.0, lambda text: None, 0.95)
    found = outcome.metrics
    assert found[RATE_LOW] < found[HIGHEST_RATE] < found[RATE_HIGH]
    assert found[HIGHEST_RATE] > 1.1 * TRUTH
    assert outcome.extra["load"][REQUIRED] == 0.95, "who reads the answer knows of which share it is"
    for rate, is_within in ((found[RATE_LOW], True), (found[RATE_HIGH], False)):
        hour = look(Level(rate=rate, duration_s=3600.0), QUEUES["M/D/1"])
        assert (hour.metrics["goodput_share"] >= 0.95) is is_within
    assert all(holds(one) is (one.metrics["goodput_share"] >= 0.95) for one in levels if not one.doubts)


def test_a_search_takes_the_time_that_its_help_states_also_of_a_server_that_answers_late(monkeypatch):
    """Levels that nobody can tell apart, each with as much time for late answers as for sending."""
    clock, sent_s = [0.0], []

    def measured(level):
        sent_s.append(level.duration_s)
        clock[0] += 2 * level.duration_s
        return look(level, QUEUES["M/D/1"], seed=len(sent_s))

    monkeypatch.setattr("benchmarking.load.curve.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("benchmarking.load.curve._Search.is_settled", lambda self: False)
    search(measured, Level(rate=1.0, duration_s=10.0), 64.0, lambda text: None)
    assert 500 < clock[0] <= 640, "60 durations, and the last level's answers"
    assert sum(sent_s) < 330


@pytest.mark.parametrize("zero", [HIGHEST_RATE, RATE_LOW, RATE_HIGH])
def test_the_answer_of_a_file_with_a_rate_of_0_is_none_and_ends_no_comparison(zero):
    rates = {HIGHEST_RATE: 5.0, RATE_LOW: 4.0, RATE_HIGH: 6.0}
    assert HighestRate.of(rates, {}) is not None
    assert HighestRate.of({**rates, zero: 0.0}, {}) is None


@pytest.mark.parametrize(("lowest", "highest"), [(2.0, 12.0), (1.0, 24.0), (0.5, 20.0)])
def test_a_search_that_holds_at_its_upper_bound_ends_there(lowest, highest):
    rates, outcome = searched(lambda level: look(level, QUEUES["M/D/1"]), lowest, highest)
    assert outcome.metrics[HIGHEST_RATE] == highest
    assert RATE_HIGH not in outcome.metrics
    assert sum(rate >= 0.9 * highest for rate in rates) <= 2
    text = HighestRate.of(outcome.metrics, outcome.extra["load"]).text
    assert text.startswith(f"at least {highest:g} requests/s")
    assert "upper bound of the search; raise it" in text
    assert "as measured (" in text, "the rate that held and the lower end are two different statements"


@pytest.mark.parametrize(("lowest", "most_levels"), [(40.0, 3), (30.0, 4)])
def test_a_search_whose_lower_bound_fails_ends_there_and_does_not_name_it(lowest, most_levels):
    rates, outcome = searched(lambda level: look(level, QUEUES["M/D/1"]), lowest, 64.0)
    assert (outcome.status, HIGHEST_RATE in outcome.metrics) == ("failed", False)
    assert "search lower" in outcome.error
    assert len(rates) <= most_levels


def test_a_search_without_a_request_within_the_limits_ends_after_its_lower_bound():
    rates, outcome = searched(lambda level: look(level, lambda draws, starts: starts + 2 * LIMIT_MS / 1e3), 5.0, 20.0)
    assert rates[-1] == 5.0
    assert len(rates) <= 5
    assert outcome.error == (
        "not found: no request met the limits, at 5 requests/s or more: search lower, or change the limits"
    )


@pytest.mark.parametrize("lowest", [22.0, 25.0, 27.0])
def test_a_lower_bound_is_the_answer_only_if_it_was_measured(lowest):
    for queue in ("M/D/1", "batches of 8"):
        rates, outcome = searched(lambda level, queue=queue: look(level, QUEUES[queue]), lowest, 64.0)
        assert outcome.metrics.get(HIGHEST_RATE) != lowest or lowest in rates


def test_rates_of_a_search_have_four_digits_and_are_all_different():
    rates, _ = searched(lambda level: look(level, QUEUES["M/D/1"]), 27.5, 28.5)
    assert len(set(rates)) == len(rates)
    assert all(float(f"{rate:.4g}") == rate and 27.5 <= rate <= 28.5 for rate in rates)


def test_an_interrupted_search_tells_what_its_levels_show():
    def measured(level):
        if level.duration_s > 30:
            raise KeyboardInterrupt
        return look(level, QUEUES["M/D/1"])

    with pytest.raises(SearchInterrupted) as interrupted:
        searched(measured)
    outcome = interrupted.value.outcome
    assert outcome.metrics[RATE_LOW] < outcome.metrics[HIGHEST_RATE] < outcome.metrics[RATE_HIGH]
    assert "less sure" in interrupted.value.so_far


def test_an_interrupted_search_without_an_answer_tells_which_of_its_levels_tell():
    """By the rule of the table and the gate: twelve requests do not tell 99 %."""

    def measured(level):
        if len(rates) == 2:
            raise KeyboardInterrupt
        rates.append(level.rate)
        return look(replace(level, duration_s=12 / level.rate), QUEUES["M/D/1"])

    rates = []
    with pytest.raises(SearchInterrupted) as interrupted:
        searched(measured)
    assert interrupted.value.outcome is None
    assert (
        interrupted.value.so_far
        == "so far: no level is known to meet the limits, 2 levels had too few requests to tell"
    )


def test_levels_that_are_invalid_give_no_answer():
    rates, outcome = searched(lambda level: look(level, QUEUES["M/D/1"], doubts=[doubt("rate_not_achieved")]))
    assert (outcome.status, len(rates) < 10) == ("failed", True)
    assert outcome.error == "not found: no level was valid (rate_not_achieved)"


def late_look(level, delay_ms):
    """A level whose requests were all sent so late."""
    result = look(level, QUEUES["M/D/1"], doubts=[doubt("late_generator")])
    (found,) = result.requests
    requests = replace(found, sent_ms=tuple(at + delay_ms for at in found.intended_ms))
    facts = {SHARE_IN_TIME: share_in_time(requests, {"e2e": LIMIT_MS})}
    return replace(result, requests=(requests,), extra={**result.extra, "load": facts})


def test_a_search_finds_its_rate_although_all_requests_are_sent_late():
    """Latencies count from the schedule, so a limit that is met is met."""
    _, outcome = searched(lambda level: late_look(level, 1.0))
    assert outcome.metrics[HIGHEST_RATE] == pytest.approx(TRUTH, rel=0.08)


def test_a_level_that_lateness_decides_is_not_judged():
    level = Level(rate=1.08 * TRUTH, duration_s=30.0)
    shares = {delay: late_look(level, delay).extra["load"][SHARE_IN_TIME] for delay in (0.0, 5.0, 90.0)}
    assert shares[0.0] < shares[5.0] < shares[90.0]
    assert shares[0.0] < 0.99 < shares[90.0]
    assert [holds(late_look(level, delay)) for delay in (0.0, 90.0)] == [False, None]
    assert holds(late_look(Level(rate=10.0, duration_s=30.0), 90.0)) is True


def test_the_rates_of_an_answer_are_those_of_the_table():
    """The arrivals of a few requests have another mean rate than the level was asked for."""
    valid = []

    def measured(level):
        is_first = not valid or level.rate == valid[0]
        (valid.append if is_first else lambda rate: None)(level.rate)
        return look(
            level,
            lambda draws, starts: starts + 2 * LIMIT_MS / 1e3,
            doubts=() if is_first else [doubt("rate_not_achieved")],
        )

    levels = search(measured, Level(rate=1.0, duration_s=1.0), 4.0, lambda text: None)
    assert "all levels below 2 requests/s were invalid (rate_not_achieved)" in levels[-1].error


def test_a_search_says_before_it_starts_that_its_levels_are_short_and_why_it_measures_lower_rates():
    said = []
    doubts = [doubt("rate_not_achieved")]
    search(
        lambda level: look(level, QUEUES["M/D/1"], doubts=doubts if level.rate > 5 else ()),
        Level(rate=1.0, duration_s=3.0),
        64.0,
        said.append,
    )
    assert "a level near 8 requests/s has 24 requests, and 99% can be told with 100 or more" in said[0]
    assert said[0].endswith("so use --duration 13 or more"), "100 requests at 8/s"
    assert any("since higher levels were invalid (rate_not_achieved)" in one for one in said)
    longer = []
    search(lambda level: look(level, QUEUES["M/D/1"]), Level(rate=1.0, duration_s=30.0), 64.0, longer.append)
    assert not any("can be told" in one or "since higher" in one for one in longer)


def test_a_search_without_an_answer_names_its_server():
    def measured(level):
        found = look(level, QUEUES["M/D/1"], doubts=[doubt("rate_not_achieved")])
        return replace(found, extra={**found.extra, "load": {"server": "slots=2"}})

    *_, outcome = search(measured, Level(rate=1.0, duration_s=30.0), 64.0, lambda text: None)
    assert (outcome.status, outcome.extra["load"]["server"]) == ("failed", "slots=2")


def test_a_search_whose_lower_levels_are_invalid_does_not_say_that_a_lower_rate_may_hold():
    rates = []

    def measured(level):
        rates.append(level.rate)
        return look(level, QUEUES["M/D/1"], doubts=[doubt("rate_not_achieved")] if len(rates) > 1 else [])

    _, outcome = searched(measured, 20.0)
    assert outcome.status == "failed"
    assert "were invalid (rate_not_achieved), so nothing is known of these rates" in outcome.error
    assert "search lower" not in outcome.error


def test_a_disturbed_level_below_a_valid_one_does_not_limit_the_rates():
    """As when another program keeps the generator from sending in time, once."""
    disturbed, rates = [], []

    def measured(level):
        is_late = not disturbed and level.duration_s > 30 and level.rate < 0.97 * TRUTH
        (disturbed if is_late else rates).append(level.rate)
        return look(level, QUEUES["M/D/1"], doubts=[doubt("rate_not_achieved")] if is_late else [])

    _, outcome = searched(measured)
    assert len(disturbed) == 1
    assert max(rates[-3:]) > disturbed[0]
    assert outcome.metrics[HIGHEST_RATE] == pytest.approx(TRUTH, rel=0.08)


def test_levels_that_contradict_one_another_are_no_answer():
    """As on a machine where a level in five is so disturbed that no request is in time, whatever its rate."""

    def outcome(seed):
        chance = np.random.default_rng(seed)

        def measured(level):
            is_slow = chance.random() < 0.2
            serve = (lambda draws, starts: starts + 2 * LIMIT_MS / 1e3) if is_slow else QUEUES["M/D/1"]
            return look(level, serve, seed=seed * 100 + int(level.rate * 10))

        return search(measured, Level(rate=1.0, duration_s=4.0), 50.0, lambda text: None)[-1]

    outcomes = [outcome(seed) for seed in range(3)]
    contradicting = [one for one in outcomes if "they are too few, or disagree" in (one.error or "")]
    assert len(contradicting) == 2
    assert not any(HIGHEST_RATE in one.metrics for one in contradicting)
    answers = [one.metrics for one in outcomes if one.status == "ok" and RATE_HIGH in one.metrics]
    assert all(found[RATE_HIGH] < 4 * found[RATE_LOW] for found in answers)


def test_levels_that_are_invalid_above_a_rate_limit_the_answer_to_measured_rates():
    def measured(level):
        return look(level, QUEUES["M/D/1"], doubts=[doubt("rate_not_achieved")] if level.rate > 20 else [])

    _, outcome = searched(measured)
    assert 10 < outcome.metrics[HIGHEST_RATE] <= 20
    assert RATE_HIGH not in outcome.metrics
    assert set(outcome.extra["load"]["invalid_levels"].values()) == {"rate_not_achieved"}


def test_an_unknown_share_ends_the_search_with_its_reason():
    def measured(level):
        return replace(look(level, QUEUES["M/D/1"]), metrics={}, missing={"goodput_share": "no tokens counted"})

    rates, outcome = searched(measured)
    assert (len(rates), outcome.status, outcome.error) == (1, "failed", "not found: no tokens counted")


def test_requests_that_are_outside_at_any_rate_do_not_make_the_answer_too_high():
    """As of a server some of whose replies alone take longer than the limit: flat at low rates, steep at the answer."""
    truth, requests = 40.0, 20_000
    looks = []
    for rate in (8.0, 22.6, 38.0, 42.0, 44.0):
        more = 0.006 * math.exp(12 * (rate / truth - 1))
        outside = round(requests * (0.004 + more))
        looks.append(Look(rate=rate, requests=requests, outside=outside, spread=(outside, outside)))
    posterior = Posterior(looks, 1.0, 64.0, 0.01)
    assert posterior.quantile(0.5) == pytest.approx(truth, rel=0.015)
    assert posterior.quantile(0.025) < truth < posterior.quantile(0.975)


def test_requests_that_are_outside_at_any_rate_are_no_busy_periods_of_the_queue():
    """They are independent, and however many there are, they show nothing of the queue and end no search."""
    alone = [
        Look(rate=rate, requests=n, outside=n // 200, spread=(n // 200,) * 2)
        for rate, n in ((8.0, 2000), (22.0, 4000), (34.0, 20_000), (38.0, 20_000))
    ]
    waited = {42.0: 200, 44.0: 400}
    found = {}
    for together in (1, 40):
        busy = [
            Look(rate=rate, requests=20_000, outside=100 + n, spread=(100 + together * n,) * 2)
            for rate, n in waited.items()
        ]
        found[together] = Posterior([*alone, *busy], 1.0, 64.0, 0.01)
    assert found[1].clusters <= sum(waited.values())
    assert found[40].clusters < found[1].clusters / 10


def test_requests_that_fail_alone_at_any_rate_are_counted_apart_and_others_are_not():
    """0.8 % fail, by chance more here and fewer there; the queue has the rest of the 1 % that may be outside."""
    truth, looks = 30.0, []
    for place, rate in enumerate((8.0, 16.0, 22.0, 25.0, 27.0, 28.0, 29.0, 31.0, 32.0, 34.0, 40.0)):
        requests = round(120 * rate)
        failed = round(0.008 * requests + (2, -3, 1)[place % 3])
        slow = round(0.002 * math.exp(9 * (rate / truth - 1)) * requests)
        spread = {"spread": (failed + 10 * slow,) * 2, "slow_spread": (10 * slow,) * 2}
        looks.append(Look(rate=rate, requests=requests, outside=failed + slow, failed=failed, **spread))
    known = Posterior(looks, 1.0, 64.0, 0.01)
    assert known.quantile(0.5) == pytest.approx(truth, rel=0.05)
    assert known.quantile(0.025) < truth < known.quantile(0.975)
    unknown = Posterior([replace(one, failed=0) for one in looks], 1.0, 64.0, 0.01)
    assert known.slope > 2.5 * unknown.slope, "that of the queue"
    # A server that refuses what it cannot do in time: the failures depend on the rate.
    refused = Posterior([replace(one, failed=one.outside) for one in looks], 1.0, 64.0, 0.01)
    assert (refused.quantile(0.5), refused.slope) == (unknown.quantile(0.5), unknown.slope)


def test_a_server_that_refuses_what_is_too_much_is_not_counted_apart_from_requests_that_fail_at_any_rate():
    looks = []
    for rate in (8.0, 16.0, 32.0, 64.0, 64.0):  # 40 requests/s are answered, of which 0.4 % fail
        requests = round(60 * rate)
        failed = round(requests * (0.004 if rate < 40 else 1 - 40 / rate))
        spread = {"spread": (failed,) * 2, "failed_spread": (failed,) * 2, "slow_spread": (0.0,) * 2}
        looks.append(Look(rate=rate, requests=requests, outside=failed, failed=failed, **spread))
    assert Posterior(looks, 1.0, 64.0, 0.01).quantile(0.5) < 50


def test_a_server_that_was_slow_at_first_is_judged_by_what_came_after():
    marked, said = [], []
    for load in (0.9, 1.2):
        rate, doubts = load * CAPACITY_PER_S, []
        for seed in range(20):
            chance = np.random.default_rng([7, seed])
            starts = poisson(chance, rate, 1000)
            ends = QUEUES["warm-up of 5 s"](chance, starts)
            doubts += over_saturated(requests_of(starts, ends, 1.0), rate)
        marked.append(sum(one.kind == "over_saturated" for one in doubts))
        said.append([one.evidence["judged_from_s"] for one in doubts if one.kind == "warming_up"])
    assert marked[0] == 0
    assert marked[1] >= 15
    assert len(said[0]) >= 15  # and each says from when on it was judged
    assert all(2 < one < 12 for one in said[0])


@pytest.mark.parametrize("spread_s", [0.002, 0.1])
def test_constant_arrivals_at_a_server_without_a_queue_are_not_over_saturated(spread_s):
    """Replies of 3 to 10 s: a third of the level passes before the first."""
    marked = 0
    for reply_s, duration_s in ((3.0, 10.0), (5.0, 20.0), (10.0, 30.0)):
        starts = np.array(replace(TRAFFIC, arrivals="constant").starts(4.0, round(4 * duration_s)))
        for seed in range(20):
            ends = starts + reply_s + np.random.default_rng(seed).normal(0, spread_s, len(starts))
            marked += any(one.kind == "over_saturated" for one in over_saturated(requests_of(starts, ends, 1e6), 4.0))
    assert marked <= 3


@pytest.mark.parametrize("queue", QUEUES)
def test_a_queue_at_80_percent_of_its_capacity_is_not_over_saturated_and_one_at_130_is(queue):
    marked = {}
    for load in (0.8, 1.3):
        rate, kinds = load * CAPACITY_PER_S, []
        for seed in range(10):
            chance = np.random.default_rng(seed)
            starts = poisson(chance, rate, 1000)
            kinds += [one.kind for one in over_saturated(requests_of(starts, QUEUES[queue](chance, starts), 1.0), rate)]
        marked[load] = kinds.count("over_saturated")
    assert marked[0.8] <= 1
    assert marked[1.3] >= 9


@pytest.mark.parametrize(
    ("engine", "is_streamed", "overload"),
    [
        *(("engine of 32", False, (1.2, 200)), ("engine of 32", True, (1.2, 1000))),
        *(("engine of 128, lognormal 0.8", True, (1.2, 1000)), ("engine without a limit", True, (1.5, 1000))),
    ],
)
def test_a_server_that_batches_is_not_over_saturated_while_it_fills(engine, is_streamed, overload):
    marked = {}
    for load, number in ((0.9, 200), overload):
        rate, kinds = load * CAPACITY_PER_S, []
        for seed in range(40):
            chance = np.random.default_rng(seed)
            starts = poisson(chance, rate, number)
            firsts, ends = ENGINES[engine](chance, starts)
            requests = requests_of(starts, ends, 1.0, firsts if is_streamed else None)
            kinds += [one.kind for one in over_saturated(requests, rate)]
        marked[load] = kinds.count("over_saturated")
    assert marked[0.9] <= 3
    assert marked[overload[0]] >= 24


def test_a_level_that_is_too_short_names_the_duration_that_is_needed():
    chance, rate = np.random.default_rng(1), 0.9 * CAPACITY_PER_S
    doubts = []
    for _ in range(20):
        starts = poisson(chance, rate, 40)
        doubts += over_saturated(requests_of(starts, QUEUES["M/M/1"](chance, starts), 1.0), rate)
    needed = [one.evidence["needed_duration_s"] for one in doubts if one.kind == "saturation_unknown"]
    assert len(needed) > 3
    assert min(needed) > 40 / rate
    assert {one.severity for one in doubts if one.kind == "saturation_unknown"} == {"info"}


@pytest.mark.parametrize("reply_s", [0.5, 3.0, 10.0])
def test_throughput_and_requests_in_flight_are_those_of_the_steady_state(reply_s):
    starts = np.arange(120) / 4
    requests = requests_of(starts, starts + reply_s, 1e6)
    metrics = result_of(TRAFFIC, Level(rate=4.0, duration_s=30.0), [requests]).metrics
    assert metrics["throughput_samples_per_sec"] == pytest.approx(4, rel=0.02)
    assert metrics["goodput_requests_per_sec"] == pytest.approx(4, rel=0.02)
    assert metrics["in_flight_mean"] == pytest.approx(4 * reply_s, rel=0.02)
    assert metrics["total_requests_per_sec"] == pytest.approx(120 / (29.75 + reply_s), rel=0.001)


@pytest.mark.parametrize(("rate", "burst", "number"), [(8.0, 8, 40), (20.0, 50, 200), (1.0, 8, 32), (2.0, 1, 12)])
def test_bursts_are_counted_with_the_time_until_the_next(rate, burst, number):
    starts = np.array(
        Traffic(arrivals="burst", burst=burst, lengths_in=Lengths("1"), lengths_out=Lengths("1")).starts(rate, number)
    )
    for reply_s in (0.05, 0.5 * burst / rate):
        requests = requests_of(starts, starts + reply_s, 1e6)
        metrics = result_of(TRAFFIC, Level(rate=rate, number=number), [requests]).metrics
        assert metrics["throughput_samples_per_sec"] == pytest.approx(rate)
        assert metrics["goodput_requests_per_sec"] == pytest.approx(rate)
        assert metrics["total_requests_per_sec"] == pytest.approx(rate)


@pytest.mark.parametrize(("in_flight", "number"), [(8, 60), (16, 100), (32, 200), (16, 40), (16, 96), (1, 20)])
def test_replies_in_step_are_counted_with_the_time_of_their_wave_wherever_the_number_of_requests_ends(
    in_flight, number
):
    """A static batch answers all in flight every 0.1 s."""
    wave, place = np.divmod(np.arange(number), in_flight)
    starts = 0.1 * wave + 1e-5 * place
    requests = requests_of(starts, starts + 0.1 - 1e-6, 1e6)
    metrics = result_of(TRAFFIC, Level(concurrency=in_flight, number=number), [requests]).metrics
    for name in ("throughput_samples_per_sec", "goodput_requests_per_sec"):
        assert metrics[name] == pytest.approx(10 * in_flight, rel=0.001)
    assert metrics["in_flight_mean"] == pytest.approx(in_flight, rel=0.001)


@pytest.mark.parametrize("deviation", [0.05, 0.3])
def test_the_throughput_of_a_closed_loop_is_right_on_average_although_its_replies_begin_in_step(deviation):
    """Sixteen in flight, of 0.1 s on average, beside which nothing else matters."""
    rates = []
    for seed in range(40):
        ends = np.cumsum(np.random.default_rng(seed).normal(0.1, 0.1 * deviation, (16, 40)), axis=1)
        starts = np.hstack((np.zeros((16, 1)), ends[:, :-1])).ravel()
        order = np.argsort(starts, kind="stable")[:200]
        requests = requests_of(starts[order], ends.ravel()[order], 1e6)
        rates.append(result_of(TRAFFIC, Level(concurrency=16, number=200), [requests]).metrics)
    assert np.mean([one["throughput_samples_per_sec"] for one in rates]) == pytest.approx(160, rel=0.01)


@pytest.mark.parametrize(("in_flight", "number"), [(8, 25), (4, 13), (4, 40)])
def test_conversations_are_counted_while_none_of_their_places_stands_empty(in_flight, number):
    """Five turns of 0.1 s with 0.2 s between them; the places of the last ones are not taken again."""
    talk, turn = (one.ravel() for one in np.meshgrid(np.arange(number), np.arange(5), indexing="ij"))
    starts = 1.3 * (talk // in_flight) + 0.3 * turn + 1e-5 * (talk % in_flight)
    order = np.argsort(starts, kind="stable")
    requests = replace(
        requests_of(starts[order], starts[order] + 0.1 - 1e-6, 1e6),
        conversation=tuple(talk[order].tolist()),
        turn=tuple(turn[order].tolist()),
    )
    level = Level(concurrency=in_flight, number=number)
    metrics = result_of(replace(TRAFFIC, turns=5), level, [requests]).metrics
    assert metrics["throughput_samples_per_sec"] == pytest.approx(in_flight * 5 / 1.3, rel=0.001)


def test_conversations_in_step_are_counted_from_completion_to_completion():
    """Four places, each with requests of 0.2 s and pauses of 0.2 s between them, and others of 0.1 s between talks."""
    starts = np.repeat(np.cumsum([0.0, *[0.4, 0.4, 0.4, 0.3] * 6]), 4)
    starts += np.tile([0.0, 0.001, 0.002, 0.003], len(starts) // 4)
    requests = requests_of(starts, starts + 0.2, 1e6)
    metrics = result_of(TRAFFIC, Level(concurrency=4, number=len(starts)), [requests]).metrics
    assert metrics["throughput_samples_per_sec"] == pytest.approx(16 / 1.5, rel=0.01)


def test_a_level_without_a_steady_state_and_one_of_few_replies_are_doubts():
    starts, kinds = np.arange(40) / 4, {}
    for reply_s in (1.0, 5.0, 12.0):
        requests = requests_of(starts, starts + reply_s, 1e6)
        result = result_of(TRAFFIC, Level(rate=4.0, duration_s=10.0), [requests])
        kinds[reply_s] = {one.kind for one in result.doubts} - {"saturation_unknown"}
    assert kinds == {1.0: set(), 5.0: {"short_window"}, 12.0: {"no_steady_window"}}


def test_a_server_that_works_ever_more_slowly_violates_littles_law():
    starts = np.arange(400) / 4
    slower = requests_of(starts, starts + 1 + (starts / 22) ** 2, 1e6)
    doubts = {one.kind for one in result_of(TRAFFIC, Level(rate=4.0, duration_s=100.0), [slower]).doubts}
    assert doubts & {"unsteady", "over_saturated"}


def test_a_ramp_is_named_as_a_varying_rate_and_not_judged_as_one_rate():
    ramp = replace(TRAFFIC, arrivals="ramp")
    starts = np.array(ramp.starts(20.0, 600))
    requests = requests_of(starts, QUEUES["M/D/1"](np.random.default_rng(1), starts), 1e6)
    doubts = {one.kind for one in result_of(ramp, Level(rate=20.0, duration_s=30.0), [requests]).doubts}
    assert doubts == {"varying_rate"}


def test_a_level_in_which_requests_become_faster_is_a_server_that_warms_up():
    starts = np.arange(300) / 10
    quicker = requests_of(starts, starts + np.where(starts < 10, 0.3, 0.2) + 0.001 * np.sin(starts * 50), 1e6)
    steady = requests_of(starts, starts + 0.2 + 0.001 * np.sin(starts * 50), 1e6)
    level = Level(rate=10.0, duration_s=30.0)
    assert "warming_up" in {one.kind for one in result_of(TRAFFIC, level, [quicker]).doubts}
    assert "warming_up" not in {one.kind for one in result_of(TRAFFIC, level, [steady]).doubts}


def test_the_needed_duration_of_a_number_of_requests_begins_with_what_they_took():
    starts = np.arange(20) / 10
    (short,) = (
        one
        for one in result_of(TRAFFIC, Level(rate=10.0, number=20), [requests_of(starts, starts + 1, 1e6)]).doubts
        if one.kind == "short_window"
    )
    assert 3 < short.evidence["needed_duration_s"] < 7, "they took 2.9 s, and the default is 30 s"


def test_a_closed_loop_in_which_requests_become_slower_has_a_doubt():
    times = np.random.default_rng(1).gamma(25, 0.01, 200)
    level, turns = Level(concurrency=1, number=200), replace(TRAFFIC, turns=4)

    def doubts(services, traffic=TRAFFIC):
        ends = np.cumsum(services)
        return {one.kind for one in result_of(traffic, level, [requests_of(ends - services, ends, 1e6)]).doubts}

    assert "slowing_down" not in doubts(times)
    assert "slowing_down" in doubts(times * np.linspace(1, 2, 200))
    assert "slowing_down" not in doubts(times * np.linspace(1, 2, 200), turns), "later turns are longer"
    steady = np.random.default_rng(2).normal(0.02, 0.0004, 200)
    assert "slowing_down" in doubts(steady * np.linspace(1, 10, 200)), "nothing else varies"
    assert "slowing_down" in doubts(steady[:60] * np.linspace(1, 1.5, 60))
    busy = steady * np.repeat(np.random.default_rng(3).lognormal(0, 0.3, 20), 10)  # neighbours correlate
    assert "slowing_down" in doubts(busy * np.linspace(1, 10, 200))
    assert "slowing_down" not in doubts(busy)
    assert "slowing_down" not in doubts(steady)


def test_the_first_requests_of_a_closed_loop_which_wait_for_fewer_do_not_show_that_it_slows_down():
    """32 before one slot: the first wait for 0, 1, ... others, all later ones for 31."""
    ends = 0.02 * np.arange(1, 91)
    starts = np.concatenate((np.zeros(32), ends[:-32]))
    result = result_of(TRAFFIC, Level(concurrency=32, number=90), [requests_of(starts, ends, 1e6)])
    assert "slowing_down" not in {one.kind for one in result.doubts}


@pytest.mark.parametrize("error", ["timed_out", "http_429", "truncated"])
def test_percentiles_in_which_requests_without_an_answer_would_count_are_unknown(error):
    starts = np.arange(1200) / 100
    found = requests_of(starts, starts + 0.1 + 0.01 * np.sin(starts * 50), 1e6)
    errors = tuple(error if place % 150 == 149 else None for place in range(1200))
    level, unknown = Level(rate=100.0, number=1200), {"latency_p999_ms", "latency_max_ms"}
    result = result_of(TRAFFIC, level, [replace(found, error=errors)])
    assert not unknown & set(result.metrics)
    assert "8 of 1200 requests failed" in result.missing["latency_max_ms"]
    assert {"latency_p99_ms", "latency_median_ms"} <= set(result.metrics)
    assert unknown <= set(result_of(TRAFFIC, level, [found]).metrics)


def test_a_percentile_that_few_failures_would_move_is_unknown():
    """Of 2 000 requests 18 fail and 16 take 2 s: the 99th percentile of those that were answered was 0.1 s."""
    starts, place = np.arange(2000) / 100, np.arange(2000)
    found = requests_of(starts, starts + np.where(place % 125 == 60, 2.0, 0.1), 1e6)
    failing = {100 * number + 7 for number in range(18)}
    errors = tuple("timed_out" if one in failing else None for one in range(2000))
    result = result_of(TRAFFIC, Level(rate=100.0, number=2000), [replace(found, error=errors)])
    assert result.missing["latency_p99_ms"] == (
        "not_supported: 18 of 2000 requests failed: it is 100 ms without them, and 2000 ms with them as the longest"
    )
    assert "latency_p99_ms" not in result.metrics
    assert "latency_p95_ms" in result.metrics, "the same with and without them"


def test_percentiles_have_intervals_only_where_the_series_is_much_longer_than_its_correlation():
    chance = np.random.default_rng(3)
    independent = percentile_intervals(chance.exponential(1, 3000).tolist(), (0.5, 0.9, 0.99))
    assert independent[0.5][0] < np.log(2) < independent[0.5][1]
    assert independent[0.9][0] < np.log(10) < independent[0.9][1]
    starts = poisson(chance, 45.0, 1000)
    busy = (QUEUES["M/M/1"](chance, starts) - starts).tolist()
    assert percentile_intervals(busy, (0.5, 0.9, 0.99)) == {0.5: None, 0.9: None, 0.99: None}
    result = result_of(TRAFFIC, Level(rate=45.0, number=1000), [requests_of(starts, starts + busy, 1e6)])
    assert "latency_ci_low_ms" not in result.metrics
    assert result.missing["latency_ci_low_ms"].startswith("too_few_samples: requests share a queue")
    assert result.ci_scope is None


def test_a_percentile_of_several_repetitions_has_an_interval_only_if_each_has_one():
    """The value counts all of them, so the interval of some would lie beside it."""
    starts = poisson(np.random.default_rng(6), 5.0, 3000)
    long = requests_of(starts, starts + 0.02, 1e6)
    short = replace(requests_of(starts[:40], starts[:40] + 0.2, 1e6), launch=1)
    level, name = Level(rate=5.0, number=3000), "service_time_p90_ci_high_ms"
    assert name in result_of(TRAFFIC, level, [long]).metrics
    both = result_of(TRAFFIC, level, [long, short])
    assert name not in both.metrics
    assert both.missing[name].startswith("too_few_samples")


@pytest.mark.parametrize(("medians", "least"), [((50.0, 70.0), 0.95), ((50.0, 60.0, 70.0), 1.5)])
def test_the_interval_of_a_percentile_covers_the_differences_between_repetitions(medians, least):
    """All of two, and that between three or more; the median of each end was as narrow as in one repetition."""
    chance, starts = np.random.default_rng(8), np.arange(800) / 10
    repetitions = [
        replace(requests_of(starts, starts + chance.normal(middle, 1.0, 800) / 1e3, 1e6), launch=place)
        for place, middle in enumerate(medians)
    ]
    result = result_of(TRAFFIC, Level(rate=10.0, number=800), repetitions)
    found = result.metrics
    for name in ("latency_p50", "latency_p90", "service_time_p50", "service_time_p90"):
        width = found[f"{name}_ci_high_ms"] - found[f"{name}_ci_low_ms"]
        assert width >= (least if "p50" in name else 0.95) * (medians[-1] - medians[0]), name
    for end in ("low", "high"):
        assert found[f"latency_p50_ci_{end}_ms"] == pytest.approx(found[f"latency_ci_{end}_ms"])
    # 800 requests are too few for one in a repetition.
    assert ("latency_p99_ci_low_ms" in found) == (len(medians) == 3)
    assert {name for name in found if "_ci_" in name} <= {*METRICS, *result.extra["custom_metrics"]}
    assert not {*found} & {*result.missing}


@pytest.mark.parametrize(
    ("starts_s", "doubts"), [(15, {"no_steady_window"}), (30, {"short_window"}), (60, {"short_window"}), (200, set())]
)
def test_the_steady_window_of_conversations_begins_when_the_first_ones_have_ended(starts_s, doubts):
    """One a second, of ten turns each in 19 s: ten requests a second, and ever more until then."""
    number, turn = (one.ravel() for one in np.meshgrid(np.arange(starts_s), np.arange(10), indexing="ij"))
    starts = number + 2.0 * turn
    order = np.argsort(starts, kind="stable")
    requests = replace(
        requests_of(starts[order], starts[order] + 1.0, 1e6),
        conversation=tuple(number[order].tolist()),
        turn=tuple(turn[order].tolist()),
    )
    result = result_of(replace(TRAFFIC, turns=10), Level(rate=1.0, duration_s=float(starts_s)), [requests])
    assert {one.kind for one in result.doubts} - {"saturation_unknown"} == doubts
    rate = result.metrics["throughput_samples_per_sec"]
    assert rate == pytest.approx(result.metrics["total_requests_per_sec"] if starts_s == 15 else 10.0)


def test_the_tail_of_several_repetitions_is_that_of_the_requests_of_all():
    """Most repetitions of a busy queue have no long wait: the median of their p99 is that of a server less busy."""
    chance, off, covered = np.random.default_rng(9), [], []
    alone = [np.sort(chance.uniform(0, 25, 1000)) for _ in range(200)]
    truth = np.quantile(
        np.concatenate([(QUEUES["M/M/1"](chance, starts) - starts) * 1e3 for starts in alone]), (0.9, 0.99)
    )
    for _ in range(25):
        repetitions = []
        for launch in range(5):
            starts = np.sort(chance.uniform(0, 25, 1000))
            ends = QUEUES["M/M/1"](chance, starts)
            repetitions.append(replace(requests_of(starts - starts[0], ends - starts[0], 1e6), launch=launch))
        found = result_of(TRAFFIC, Level(rate=40.0, number=1000), repetitions).metrics
        off.append([found["latency_p90_ms"] / truth[0], found["latency_p99_ms"] / truth[1]])
        covered.append(found["latency_p90_ci_low_ms"] <= truth[0] <= found["latency_p90_ci_high_ms"])
    assert np.median(off, axis=0) == pytest.approx([1, 1], abs=0.1)
    assert sum(covered) >= 20


@pytest.mark.parametrize("fault", ["failed", "slow"])
def test_the_requests_of_all_repetitions_count_also_where_one_has_none_within_the_limits(fault):
    """A median over the repetitions had neither in it: 100 % within the limits, no failures."""
    starts, level, limits = np.arange(100) / 20, Level(rate=20.0, number=100), {"e2e": 500.0}
    good = requests_of(starts, starts + 0.02, 500.0)
    other = requests_of(starts, starts + (5.0 if fault == "slow" else math.nan), 500.0)
    repetitions = [replace(one, launch=place) for place, one in enumerate((good, other, good))]
    result = result_of(TRAFFIC, level, repetitions, limits=limits)
    assert result.status == "ok"
    assert result.metrics["goodput_share"] == pytest.approx(2 / 3)
    assert result.metrics["requests_sent"] == 300
    assert result.metrics["requests_failed"] == (100 if fault == "failed" else 0)
    whole = result_of(TRAFFIC, level, [good], limits=limits).metrics
    assert result.metrics["goodput_requests_per_sec"] == pytest.approx(2 / 3 * whole["goodput_requests_per_sec"])
    lost = whole.keys() - result.metrics.keys()
    assert lost == {name for name in lost if "requests failed" in result.missing[name]}
    assert bool(lost) is (fault == "failed"), "a third of the requests: percentiles above the median"
    assert "latency_median_ms" in result.metrics
    of_failures = [one.evidence for one in result.doubts if one.kind == "failed_requests"]
    assert of_failures == [{"failed_share": pytest.approx(1 / 3), "http_429": 100}] * (fault == "failed")
    outcome = limits_outcome([result], "missed")
    assert (outcome.exit_code, outcome.text) == (1, "--fail-on missed: failed: the limits were missed at 1 of 1 level")


def test_levels_of_one_rate_have_fresh_arrivals_at_exactly_that_rate():
    first, second = (replace(TRAFFIC, look=look).starts(4.0, 40) for look in (1, 2))
    assert first != second
    assert max(first) < 10
    assert first == replace(TRAFFIC, look=1).starts(4.0, 40)


def test_a_queue_of_high_load_that_happened_to_stay_short_shows_no_interval():
    values = np.random.default_rng(4).exponential(1, 3000).tolist()
    assert percentile_intervals(values, (0.5,), correlation=10.0)[0.5] is not None
    assert percentile_intervals(values, (0.5,), correlation=100.0)[0.5] is None
    chance = np.random.default_rng(5)
    correlations = {}
    for load in (0.5, 0.9, 1.2):
        starts = poisson(chance, load * CAPACITY_PER_S, 3000)
        ends = QUEUES["M/M/1"](chance, starts)
        correlations[load] = queue_of(starts * 1e3, ends * 1e3, load * CAPACITY_PER_S).correlation
    assert correlations[0.5] < 20
    assert correlations[0.9] > 100
    assert correlations[1.2] == np.inf


@pytest.mark.parametrize(
    ("levels", "share", "expected"),
    [
        ([(1.0, 194, 200), (2.0, 400, 400), (4.0, 800, 800)], 0.99, [1394 / 1400, None, None]),
        ([(4.0, 800, 800), (1.0, 194, 200), (2.0, 400, 400)], 0.99, [None, 1394 / 1400, None]),
        ([(1.0, 500, 500), (2.0, 390, 400), (2.0, 2000, 2000), (4.0, 10, 100)], 0.99, [None, 2390 / 2400, None, None]),
        ([(1.0, 194, 200), (2.0, 360, 400)], 0.99, [None, None]),
        ([(1.0, 194, 200), (2.0, 398, 400)], 0.99, [None, None]),
        ([(1.0, 0, 10), (2.0, 10, 10)], 0.0, [None, None]),
        ([(1.0, 9, 10), (2.0, 10_000, 10_000)], 1.0, [None, None]),
        ([], 0.99, []),
    ],
    ids=["disturbed", "any order", "same rate", "worse above", "perhaps by chance", "all hold", "every one", "none"],
)
def test_a_level_that_misses_is_pooled_with_higher_ones_that_did_better(levels, share, expected):
    assert pooled_shares(levels, share) == [one if one is None else pytest.approx(one) for one in expected]


def held_up_to(shares, share=0.99):
    """The number of levels that hold together with all lower ones: each by itself, and pooled."""
    alone = [met / count >= share for _, met, count in shares]
    together = [one or at is not None for one, at in zip(alone, pooled_shares(shares, share), strict=True)]
    return tuple(next((at for at, one in enumerate(each) if not one), len(each)) for each in (alone, together))


def test_a_disturbed_level_costs_no_rate_and_a_rate_that_fails_passes_no_more_often_than_without_it():
    """M/D/1 of 50/s, of which 99 % take at most 100 ms up to 27.8/s; it stands still for a second or not at all, in one
    of the two lowest levels."""
    rates, too_low, too_high = (4.0, 8.0, 14.0, 22.0, 32.0, 40.0), dict[tuple[bool, float], int](), {}
    for seed in range(200):
        for stop_s in (0.0, 1.0):
            rng, levels = np.random.default_rng(seed), []
            for place, rate in enumerate(rates):
                starts = poisson(rng, rate, round(60 * rate))
                services = np.full(len(starts), 1 / CAPACITY_PER_S)
                services[rng.integers(len(starts))] += stop_s * (place == seed % 2)
                times_ms = 1e3 * (in_turn(starts, services) - starts)
                levels.append((rate, int((times_ms <= LIMIT_MS).sum()), len(starts)))
            for is_pooled, held in zip((False, True), held_up_to(levels), strict=True):
                key = is_pooled, stop_s
                too_low[key] = too_low.get(key, 0) + (held < 3)
                too_high[key] = too_high.get(key, 0) + (held > 4)
    assert too_low[False, 0.0] == too_low[True, 0.0] == 0
    assert too_low[False, 1.0] > 150
    assert too_low[True, 1.0] < too_low[False, 1.0] / 8
    assert max(too_high[True, 0.0], too_high[True, 1.0]) <= too_high[False, 0.0]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ([{}], "3 of its 5 levels are invalid: see"),
        ([{INVALID: {}}], "3 of its 5 levels are invalid, none of them left out of the answer: see"),
        ([{INVALID: {"4": "failed"}}], "are invalid, 1 of them left out of the answer: see"),
        ([{INVALID: {"4": "a", "5": "b", "6": "c"}}], "are invalid and left out of the answer: see"),
        ([{INVALID: {"4": "a"}}, {INVALID: "?"}], "3 of its 5 levels are invalid: see"),
    ],
)
def test_it_is_said_how_many_invalid_levels_an_answer_leaves_out(facts, words):
    assert words in invalid_levels_words(3, 5, facts)
