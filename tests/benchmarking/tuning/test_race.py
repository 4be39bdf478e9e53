"""The race between configurations leaves behind only what is worse or hopeless, names what it cannot tell apart, and
tries the most promising first."""

from __future__ import annotations

import math

import pytest

from benchmarking.core.verdicts.standing import judged, standing
from benchmarking.tuning.race import LEAST_LAUNCHES, ROUNDS, Entrant, Launch, Race, Tried, improvement, traits
from tests.perf.tune import GOOD, NOISES, replay

NOISE = (1.0, 1.01, 0.99, 1.005, 0.995, 1.01, 0.99, 1.0, 1.005, 0.995)
"""Factors of successive launches."""


def race_of(*keys):
    return Race([Entrant(key=key, cell=key) for key in keys])


def standing_of(race, *keys, simplicity=None):
    """The answer among configurations of a race, the simplest first by these numbers."""
    return standing({key: race.entrants[key].costs for key in keys}, lambda key: (simplicity or {}).get(key, 0))


def run_round(race, **costs):
    """A round with these costs of a launch, or launches."""
    for key, cost in costs.items():
        if race.entrants[key].out is None:
            race.record(key, cost if isinstance(cost, Launch) else Launch(cost=cost))
    race.settle()


def limited(cost, excess, least=None):
    return Launch(cost=cost, excess={"p95": excess}, least_excess={"p95": excess / 1.1 if least is None else least})


def test_after_the_screening_only_the_hopelessly_slow_are_behind():
    race = race_of("a", "b", "c")
    run_round(race, a=1.0, b=1.4, c=1.6)
    assert {one.key for one in race.racing} == {"a", "b"}
    assert race.entrants["c"].reason == "60% behind the best as measured in 1 launch"


def test_the_launches_that_the_best_needs_for_an_interval_are_set_aside():
    race = race_of("a", "b", "untried")

    def each_s(cell, keys):
        return {"a": 1.0, "b": 2.0, "untried": 100.0}[cell]

    assert race.least_s(each_s) == 0
    race.record("b", Launch(cost=1.4))
    assert race.least_s(each_s) == 2.0 * (LEAST_LAUNCHES - 1)
    race.record("a", Launch(cost=1.0))
    assert race.least_s(each_s) == LEAST_LAUNCHES - 1, "the rest that is as good has to find its own time"


def test_a_difference_within_the_noise_of_the_rounds_keeps_both_in():
    race = race_of("a", "b")
    for number in range(4):
        run_round(race, a=NOISE[number], b=1.01 * NOISE[(number + 3) % 10])
    assert [one.key for one in race.racing] == ["a", "b"]


def test_a_clear_difference_over_rounds_ends_the_race_of_the_slower_although_the_machine_drifts():
    race = race_of("a", "b")
    for number in range(4):
        drift = 1 + 0.1 * number
        run_round(race, a=drift * NOISE[number], b=1.08 * drift * NOISE[(number + 5) % 10])
    assert race.entrants["b"].out == "behind"
    assert race.entrants["b"].reason == "8% behind the best as measured in 3 rounds", "no bound of what is true"


def test_the_screening_is_no_round_of_the_judge():
    race = race_of("a", "b")
    for _ in range(3):
        run_round(race, a=1.0, b=1.1)
    assert judged(race.entrants["b"].costs, race.entrants["a"].costs) is None
    assert race.entrants["b"].out is None


def test_what_cannot_meet_a_limit_by_its_own_bound_leaves_and_what_only_looks_so_stays():
    race = race_of("slow", "near", "good")
    run_round(race, slow=limited(1.0, 1.3), near=limited(1.0, 1.05), good=limited(1.2, 0.9))
    assert race.entrants["slow"].out == "misses"
    assert race.entrants["slow"].reason == "p95 is at least 18% beyond its limit"
    assert race.leader().key == "good"
    assert {one.key for one in race.racing} == {"near", "good"}


def test_an_unknown_limit_is_neither_met_nor_missed():
    race = race_of("unknown", "known")
    unknown = Launch(cost=1.0, excess={"p95": None}, least_excess={"p95": 0.5})
    run_round(race, unknown=unknown, known=limited(2.0, 0.9))
    assert race.entrants["unknown"].excess is None
    assert race.leader().key == "known"
    assert race.entrants["unknown"].out is None
    assert race.entrants["known"].out is None  # the faster one may turn out to miss the limit


def test_without_a_leader_nobody_is_behind():
    race = race_of("a", "b")
    run_round(race, a=limited(1.0, 1.05), b=limited(9.0, 1.05))
    assert race.leader() is None
    assert len(race.racing) == 2


def test_the_last_in_order_have_no_room_if_the_next_round_is_too_long_and_nothing_is_proven_about_them():
    race = race_of("a", "b", "c")
    run_round(race, a=1.0, b=1.1, c=1.2)
    race.narrow(10.0, lambda cell, keys: 1.0 if keys else 0.0)  # 30 % of 10 s hold three launches of 1 s
    assert len(race.racing) == 3
    race.narrow(7.0, lambda cell, keys: 1.0 if keys else 0.0)
    assert [one.key for one in race.racing] == ["a", "b"]
    assert race.entrants["c"].out == "no room"
    assert race.entrants["c"].reason == "the budget has no room to measure it longer; 20% behind so far"
    assert standing_of(race, "a", "b", "c").equal == ("b", "c")


def test_what_had_no_room_comes_back_when_others_have_left_and_there_is_room():
    def cost_s(cell, keys):
        return float(bool(keys))

    race = race_of("a", "b", "c", "d")
    run_round(race, a=1.0, b=1.1, c=1.2, d=1.3)
    race.narrow(7.0, cost_s)  # 30 % hold two launches
    assert [one.key for one in race.racing] == ["a", "b"]
    run_round(race, a=1.0, b=1.9)
    assert race.entrants["b"].out == "behind"
    assert not race.readmit(6.0, cost_s), "a quarter of 6 s holds only one launch"
    assert race.readmit(8.0, cost_s)
    assert [one.key for one in race.racing] == ["a", "c"], "the best first, and no more than there is room for"
    assert (race.entrants["c"].reason, race.entrants["d"].out) == (None, "no room")
    assert not race.is_over()


def test_what_enters_late_is_judged_by_the_rounds_that_it_shares_with_the_leader():
    race = race_of("a", "slow", "near")
    for key in ("slow", "near"):
        race.leave(key, "no room", "not tried")
    for number in range(ROUNDS):
        run_round(race, a=NOISE[number])
    assert race.is_over()
    race.extend(["slow", "near"])
    assert not race.is_over()
    assert race.share() == 1 / (ROUNDS - 1), "as many rounds as the others had after the screening"
    run_round(race, a=2.0, slow=2.2, near=1.6)  # the machine is half as fast now
    assert race.entrants["slow"].reason == "38% behind the best as measured in 1 launch"
    assert standing_of(race, "a", "near").equal, "one launch tells them not apart"
    for number in range(2):
        run_round(race, a=2.0 * NOISE[number], near=1.6 * NOISE[number])
    assert standing_of(race, "a", "near").best == "near"
    assert standing_of(race, "a", "near").equal == ()


def test_what_has_no_round_in_common_with_the_best_is_equal_only_if_its_launch_is_near():
    race = race_of("a", "near", "slow", "unknown")
    for key in ("near", "slow", "unknown"):
        race.leave(key, "no room", "not tried")
    for number in range(4):
        run_round(race, a=NOISE[number])
    race.extend(["near", "slow", "unknown"])
    for key, cost in (("near", 1.05), ("slow", 3.0), ("unknown", None)):  # a round that the budget ended
        race.record(key, Launch(cost=cost))
    answer = standing_of(race, "a", "near", "slow", "unknown")
    assert (answer.best, answer.equal) == ("a", ("near",))


def test_the_race_ends_when_all_left_are_equivalent_or_the_rounds_prove_a_difference():
    race = race_of("a", "b")
    for number in range(LEAST_LAUNCHES):
        assert not race.is_over()
        run_round(race, a=1.0 + 0.001 * (number % 2), b=1.001)
    assert race.is_over()
    wide = race_of("a", "b")
    for number in range(ROUNDS):
        assert not wide.is_over()
        run_round(wide, a=1 + 0.05 * (number % 2), b=1.05 - 0.05 * (number % 2))
    assert wide.is_over()


def test_of_equivalent_configurations_the_simplest_is_chosen_and_the_other_named():
    race = race_of("a", "b", "c")
    for number in range(5):
        run_round(race, a=NOISE[number] * 1.0, b=NOISE[number] * 1.005, c=NOISE[number] * 1.5)
    answer = standing_of(race, "a", "b", "c", simplicity={"a": 2, "b": 1, "c": 0})
    assert (answer.best, answer.equal) == ("b", ("a",))
    assert answer.judged["a"].verdict == "equivalent"


def test_there_is_no_answer_without_a_cost():
    race = race_of("a")
    run_round(race, a=Launch(cost=None))
    assert standing_of(race, "a") is None
    assert standing_of(race) is None


def test_configurations_of_a_cell_share_its_launches():
    race = Race([Entrant(key=f"x{n}", cell="x") for n in range(2)] + [Entrant(key="y", cell="y")])
    assert race.cells == ("x", "y")
    race.leave("x0", "failed", "out of memory")
    assert race.keys_of("x") == ("x1",)
    race.leave("x1", "failed", "out of memory")
    assert race.cells == ("y",)


@pytest.mark.parametrize("noise", ["launch sd 2 %", "two levels, 1 in 4 10 % slower"])
def test_the_choice_is_nearly_always_within_3_percent_of_the_best_in_a_quarter_of_the_time(noise):
    assert noise in NOISES
    _, right, _, _, _, most = replay(noise, 25)
    assert float(right.rstrip("%")) >= 92
    assert float(most.rstrip("%")) <= 26
    assert math.isclose(GOOD, 0.03)


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
