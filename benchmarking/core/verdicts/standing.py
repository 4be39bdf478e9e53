"""The answer among configurations that were launched in turns: in each round, one launch of each that may still win.

The first round is a screening, whose launches are shorter, so the judge sees those after it. The leader is the
configuration with the least cost by the median over rounds of its distance to the round's middle, so that neither drift
nor a single disturbed launch decides. Costs are times, energies or prices per item, above 0: lower is better.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import DEFAULT_METRIC, JUDGED
from benchmarking.core.text import counted
from benchmarking.core.verdicts.judging import Pair, judge
from benchmarking.core.verdicts.launches import MIN_ROUNDS
from benchmarking.core.verdicts.words import MIN_CHANGE, Judgement

Costs = Mapping[int, float]
"""Round -> cost, of one configuration."""
SCREENING = 0
"""The first round."""
LEAST_RATIO = (1.5, 1.35, 1.2)
"""Ratio to the leader beyond which a configuration is behind, by its rounds after the screening: with fewer than three
there is no interval, and a disturbed launch is up to 20 to 30 % slower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The answer among some configurations."""

    best: str
    """The configuration to choose."""
    equal: tuple[str, ...]
    """Others that could not be told from it, or are equivalent to it."""
    judged: Mapping[str, Judgement]
    """The others against the chosen one, where they have rounds in common."""


def standing(costs: Mapping[str, Costs], simplicity: Callable[[str], Any]) -> Standing | None:
    """The answer: the leader, or the simplest (by this sort key) of those that are equivalent to it. None if none has a
    cost."""
    by_score = scores(costs)
    if not by_score:
        return None
    leader = min(by_score, key=by_score.__getitem__)
    against = {key: judged(costs[key], costs[leader]) for key in costs if key != leader}
    equivalent = [key for key, found in against.items() if found is not None and found.verdict == "equivalent"]
    best = min([leader, *equivalent], key=lambda key: (simplicity(key), key != leader))
    judgements = {key: judged(costs[key], costs[best]) for key in costs if key != best}

    def is_open(key: str, judgement: Judgement | None) -> bool:
        """Whether a configuration is not known to be worse than the best."""
        if judgement is None:
            return key in by_score and why_behind(costs[key], costs[best]) is None
        assert judgement.low is not None
        return judgement.low <= 0 or judgement.verdict == "equivalent"

    equal = sorted((key for key, found in judgements.items() if is_open(key, found)), key=by_score.__getitem__)
    known = {key: found for key, found in judgements.items() if found is not None}
    return Standing(best=best, equal=tuple(equal), judged=known)


def judged(costs: Costs, leader: Costs) -> Judgement | None:
    """The judgement of a configuration against the leader over their common rounds after the screening; None below
    three."""
    rounds = _common(costs, leader)
    if len(rounds) < MIN_ROUNDS:
        return None
    return judge([Pair(rounds=tuple(rounds))], JUDGED[DEFAULT_METRIC])[0]


def why_behind(costs: Costs, leader: Costs) -> str | None:
    """Why a configuration is behind the leader; None if it may be as good.

    It saves time and is no verdict: asked after each round, against the luckiest of all, the 95 % interval excludes the
    truth of one in four that are as good.
    """
    judgement, rounds = judged(costs, leader), _common(costs, leader)
    if judgement is not None:
        assert judgement.change is not None
        assert judgement.low is not None
        if judgement.low > 0 and judgement.change >= MIN_CHANGE:
            return f"{judgement.change:.0%} behind the best as measured in {len(rounds)} rounds"
        return None
    screened = [(leader[SCREENING], costs[SCREENING])] if SCREENING in costs and SCREENING in leader else []
    differences = [math.log(other) - math.log(best) for best, other in [*screened, *rounds]]
    if not differences:  # measured in other rounds, such as a late one that was not finished
        found = scores({"leader": leader, "other": costs})
        differences = [found["other"] - found["leader"]] if len(found) == 2 else []
    if not differences or median(differences) <= math.log(LEAST_RATIO[len(rounds)]):
        return None
    return f"{math.expm1(median(differences)):.0%} behind the best as measured in {counted(len(differences), 'launch')}"


def scores(costs: Mapping[str, Costs]) -> dict[str, float]:
    """The logarithm of each one's cost, by the median over rounds of its distance to the middle of the round, without
    those that have no cost. The middle is of those that were in every round of these, so that it moves only with the
    machine."""
    logs = {key: {number: math.log(cost) for number, cost in each.items()} for key, each in costs.items() if each}
    if not logs:
        return {}
    longest = max(map(len, logs.values()))
    steady = [by_round for by_round in logs.values() if len(by_round) == longest]
    middle = {
        number: median(by_round[number] for by_round in steady if number in by_round)
        for number in {number for by_round in steady for number in by_round}
    }
    level = median(middle.values())
    return {
        key: level + median(cost - middle.get(number, level) for number, cost in by_round.items())
        for key, by_round in logs.items()
    }


def _common(costs: Costs, leader: Costs) -> list[tuple[float, float]]:
    """The costs of the leader and of another in the rounds after the screening that both have."""
    return [(leader[number], costs[number]) for number in sorted(costs) if number != SCREENING and number in leader]
