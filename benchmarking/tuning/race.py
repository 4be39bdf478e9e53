"""The race between configurations: which untried one is tried next, which are measured again, and which are left
behind. Pure: it neither measures nor reads a clock, so `tests/perf/tune.py` replays it with simulated times.

Cells that share a runtime, a precision or a setting have similar costs. The logarithm of a cell's cost is modelled as a
sum of effects of its traits, each normal around zero with the deviation in `EFFECT_SD` (Bayesian linear regression), so
what was tried says what to expect of the rest: a runtime whose int8 was slow is less promising with float16, and a
setting that helped one precision is tried on the next. The next one tried has the largest expected improvement on the
best so far (Jones, Schonlau and Welch, 1998) per second (Snoek, Larochelle and Adams, 2012), so a build of a minute has
to promise more than a launch of five seconds.

Configurations that differ only in their point (batch size) share a cell, whose launch measures all of them. The first
round is the screening: one short launch of each cell. Every later round is one launch of each cell that still has
configurations in the race, in random order, so drift of the machine affects all of them alike. After a round, these
leave the race:

    failed      no launch worked
    unknown     two launches could not measure the objective or a limited quantity
    misses      even the lower bound of a limited quantity is beyond its limit
    behind      worse than the leader, which meets all limits: by a ratio after the screening and the
                first round, then if the judge's 95 % interval of the paired rounds excludes that they are equal
    no room     the time that is left does not hold enough rounds for all, so the last in order go; nothing is proven
                about them, and they come back when others have left

Who leads, and who is behind, is in `benchmarking.core.verdicts.standing`, by which stored launches are judged too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from statistics import NormalDist, median
from typing import Any, Literal

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import np
from benchmarking.core.verdicts.launches import MIN_ROUNDS, ROUNDS_TO_PROVE
from benchmarking.core.verdicts.standing import judged, scores, why_behind

Traits = frozenset[tuple[str, ...]]
"""Each is a kind of effect, of `EFFECT_SD`, and what it belongs to."""
EFFECT_SD = {"runtime": 0.7, "precision": 0.5, "base": 0.35, "setting": 0.2, "runtime setting": 0.2, "cell": 0.35}
"""Standard deviation of the effect on the logarithm of the cost: .7 is a factor of 2, .2 is 20 %."""
LAUNCH_SD = 0.1
"""Of a short launch."""
FAILED = 0.5
"""How much worse than the worst a cell counts that failed: others like it are likely to fail, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A cell that had a launch."""

    traits: Traits
    log_cost: float | None
    """Logarithm of its best cost, None if it failed; more where it misses a limit."""


def traits(runtime: str, precision: str, settings: Mapping[str, object]) -> Traits:
    """The traits of a cell with these settings beside the defaults."""
    base = (runtime, precision)
    found = {("runtime", runtime), ("precision", precision), ("base", *base)}
    for name, value in settings.items():
        found |= {("setting", name, str(value)), ("runtime setting", runtime, name, str(value))}
    if settings:
        found.add(("cell", *base, *sorted(f"{name} {value}" for name, value in settings.items())))
    return frozenset(found)


def improvement(untried: Sequence[Traits], tried: Sequence[Tried]) -> list[float]:
    """The expected improvement of each untried cell on the best of the tried ones, in the logarithm of the cost; 1 each
    while none is tried. Where all of these failed, the least alike is the most promising."""
    if not (tried and untried):
        return [1.0] * len(untried)
    costs = [one.log_cost for one in tried if one.log_cost is not None]
    best, failed = min(costs, default=0.0), max(costs, default=0.0) + FAILED
    found = np.array([failed if one.log_cost is None else one.log_cost for one in tried])
    known = [one.traits for one in tried]
    columns = {trait: column for column, trait in enumerate(frozenset().union(*untried, *known))}

    def effects(cells: Sequence[Traits]) -> Any:
        """A row for each cell with the deviations of its effects: products of rows are prior covariances."""
        rows = np.zeros((len(cells), len(columns)))
        for row, cell in zip(rows, cells, strict=True):
            for trait in cell:
                row[columns[trait]] = EFFECT_SD[trait[0]]
        return rows

    new, old = effects(untried), effects(known)
    weights = new @ old.T @ np.linalg.inv(old @ old.T + LAUNCH_SD**2 * np.eye(len(old)))
    expected = np.mean(found) + weights @ (found - np.mean(found))
    variance = np.sum(new**2, axis=1) - np.sum(weights * (new @ old.T), axis=1)
    deviation = np.sqrt(np.maximum(variance, 1e-9))
    normal = NormalDist()
    return [
        float(sd) * (normal.pdf(z) + z * normal.cdf(z))
        for sd, z in zip(deviation, (best - expected) / deviation, strict=True)
    ]


Out = Literal["failed", "unknown", "misses", "behind", "no room"]
SHARES = (0.45, 0.3, 0.25)
"""Share of the time left that the screening and the first rounds may take. Each later round gets an equal part."""
ROUNDS = 1 + ROUNDS_TO_PROVE
"""The screening, and the rounds of finalists whose random order proves a difference."""
MOST_ROUNDS = 2 * ROUNDS
"""With the rounds of those that enter late."""
LEAST_TO_MEASURE = 2
"""Launches after which a quantity that none of them measured is taken to be unknown: one may have been throttled."""
LEAST_LAUNCHES = 1 + MIN_ROUNDS
"""Launches of the recommended configuration, even if all others are out: fewer give no interval between launches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What one launch says about a configuration."""

    cost: float | None
    """What is to be minimized, above 0; None if it was not measured."""
    excess: Mapping[str, float | None] = field(default_factory=dict)
    """Limit -> the value as a share of the limit (its inverse where more is better): at most 1 meets it; None if the
    value is unknown."""
    least_excess: Mapping[str, float | None] = field(default_factory=dict)
    """The same at the bound of the value that other launches will hardly pass."""


@dataclass(slots=True, kw_only=True)
class Entrant:
    key: str
    cell: str
    launches: dict[int, Launch] = field(default_factory=dict)
    """Round -> launch."""
    out: Out | None = None
    """Why it left the race; None while it is in it."""
    reason: str | None = None
    """The same in words."""

    @property
    def excess(self) -> float | None:
        """The largest share of a limit, as the median over launches: at most 1 meets them all; None if unknown."""
        shares = [launch.excess for launch in self.launches.values()]
        names = {name for share in shares for name in share}
        found = {name: [value for share in shares if (value := share.get(name)) is not None] for name in names}
        largest = max((median(values) for values in found.values() if values), default=0.0)
        return largest if largest > 1 or all(found.values()) else None

    @property
    def costs(self) -> dict[int, float]:
        """Round -> cost, of those in which it was measured."""
        return {number: launch.cost for number, launch in self.launches.items() if launch.cost and launch.cost > 0}


class Race:
    """The configurations, their launches so far, and who is in the race."""

    def __init__(self, entrants: Sequence[Entrant]) -> None:
        self.entrants = {entrant.key: entrant for entrant in entrants}
        self.round = 0
        """Finished rounds, the screening included."""
        self._rounds = ROUNDS
        """Rounds after which the race is over."""

    @property
    def racing(self) -> list[Entrant]:
        return [entrant for entrant in self.entrants.values() if entrant.out is None]

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells that the next round measures."""
        return tuple(dict.fromkeys(entrant.cell for entrant in self.racing))

    def keys_of(self, cell: str) -> tuple[str, ...]:
        """The configurations of a cell that are in the race."""
        return tuple(entrant.key for entrant in self.racing if entrant.cell == cell)

    def record(self, key: str, launch: Launch) -> None:
        """A launch of the round that runs."""
        self.entrants[key].launches[self.round] = launch

    def leave(self, key: str, out: Out, reason: str) -> None:
        """Take a configuration out of the race."""
        self.entrants[key].out, self.entrants[key].reason = out, reason

    def share(self) -> float:
        """The share of the time left that the next round may take."""
        return SHARES[self.round] if self.round < len(SHARES) else 1 / max(1, self._rounds - self.round)

    def settle(self) -> None:
        """End the round: configurations that cannot win leave the race."""
        self.round += 1
        for entrant in self.racing:
            if (limit := _hopeless_limit(entrant)) is not None:
                self.leave(entrant.key, "misses", limit)
            elif (unknown := _unmeasured(entrant)) is not None:
                self.leave(entrant.key, "unknown", f"{unknown} is not measured here")
        leader = self.leader()
        if leader is None:
            return
        for entrant in self.racing:
            if entrant is not leader and (reason := why_behind(entrant.costs, leader.costs)) is not None:
                self.leave(entrant.key, "behind", reason)

    def narrow(self, left_s: float, cost_s: Callable[[str, Collection[str]], float]) -> None:
        """Take out the last in order until the next round fits its share of the time left. `cost_s` is the time of a
        launch of a cell with some of its configurations."""
        ranking = self.ranking(self.racing)
        while len(ranking) > 1 and self._round_s(cost_s) > left_s * self.share():
            last = ranking.pop()
            leader = self.leader()
            behind = ""
            if leader is not None and leader is not last:
                by_score = _scores([leader, last])
                if len(by_score) == 2:
                    behind = f"; {max(0.0, math.expm1(by_score[last.key] - by_score[leader.key])):.0%} behind so far"
            self.leave(last.key, "no room", f"the budget has no room to measure it longer{behind}")

    def readmit(self, left_s: float, cost_s: Callable[[str, Collection[str]], float]) -> bool:
        """Take back those that had no room, the best first, as far as the next round fits its share of the time left
        with them; returns whether there were any. `cost_s` is as in `narrow`."""
        waiting = [one for one in self.entrants.values() if one.out == "no room" and one.launches]
        came_back = False
        for entrant in self.ranking(waiting) if self.round < self._rounds else ():
            reason, entrant.out, entrant.reason = entrant.reason, None, None
            if self._round_s(cost_s) > left_s * self.share():
                entrant.out, entrant.reason = "no room", reason
                break
            came_back = True
        return came_back

    def extend(self, keys: Collection[str]) -> None:
        """Take in configurations that had no launch yet, with as many rounds as the others had after the screening, up
        to `MOST_ROUNDS`."""
        for entrant in (self.entrants[key] for key in keys):
            entrant.out = entrant.reason = None
        if keys:
            self._rounds = min(MOST_ROUNDS, self.round + ROUNDS_TO_PROVE)

    def least_s(self, cost_s: Callable[[str, Collection[str]], float]) -> float:
        """The expected time of the launches that the best so far needs to be recommended; 0 if nothing was measured.
        `cost_s` is as in `narrow`."""
        best = next(iter(self.ranking([entrant for entrant in self.racing if entrant.launches])), None)
        return 0.0 if best is None else (LEAST_LAUNCHES - 1) * cost_s(best.cell, [best.key])

    def _round_s(self, cost_s: Callable[[str, Collection[str]], float]) -> float:
        """The expected time of the next round."""
        return sum(cost_s(cell, self.keys_of(cell)) for cell in self.cells)

    def is_over(self) -> bool:
        """Whether more rounds would not change the answer: everyone left is equivalent to the leader, or the rounds
        that prove a difference are done."""
        racing = self.racing
        if not racing or self.round >= self._rounds:
            return True
        leader = self.leader()
        if leader is None or self.round < LEAST_LAUNCHES:
            return False
        others = [judged(entrant.costs, leader.costs) for entrant in racing if entrant is not leader]
        return all(judgement is not None and judgement.verdict == "equivalent" for judgement in others)

    def ranking(self, members: Sequence[Entrant]) -> list[Entrant]:
        """These, best first; those known to miss a limit come last, the closest first."""
        by_score = _scores(members)

        def place(entrant: Entrant) -> tuple[float, float]:
            excess = entrant.excess
            return (excess if excess is not None and excess > 1 else 0.0, by_score.get(entrant.key, math.inf))

        return sorted(members, key=place)

    def leader(self) -> Entrant | None:
        """The one with the least cost of those in the race that are known to meet all limits; None if there is none."""
        members = [entrant for entrant in self.racing if (excess := entrant.excess) is not None and excess <= 1]
        by_score = _scores(members)
        return min((one for one in members if one.key in by_score), key=lambda one: by_score[one.key], default=None)


def _scores(members: Collection[Entrant]) -> dict[str, float]:
    return scores({member.key: member.costs for member in members})


def _unmeasured(entrant: Entrant) -> str | None:
    """What two launches or more could not measure; None if everything has a value, or may get one."""
    launches = list(entrant.launches.values())
    if len(launches) < LEAST_TO_MEASURE:
        return None
    if all(launch.cost is None for launch in launches):
        return "the objective"
    bounds = [launch.least_excess for launch in launches if launch.cost is not None]
    return next((name for name in bounds[0] if all(bound.get(name) is None for bound in bounds)), None)


def _hopeless_limit(entrant: Entrant) -> str | None:
    """Why even the bound of a limited quantity is beyond its limit; None if it may be met."""
    launches = list(entrant.launches.values())
    for name in dict.fromkeys(name for launch in launches for name in launch.least_excess):
        values = [value for launch in launches if (value := launch.least_excess.get(name)) is not None]
        if values and median(values) > 1:
            return f"{name} is at least {median(values) - 1:.0%} beyond its limit"
    return None
