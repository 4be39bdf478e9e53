"""What launches say: those of a point about the typical launch and the next one, and those of two sides in rounds about
a change between them; and the words for it. Pure.

An interval covers one of three things, and every table, page and document names it by the same words (`COVERS`):

    calls            one or two launches: their median calls. Another launch may be far outside
    typical launch   three or more: the median launch, by a t interval on the logarithms (`sample_statistics`). More
                     launches make it narrower, so the next launch is often outside: of 20, every second one
    next launch      five or more: where another launch of this session would be, with 95 % probability.
                     mean -+ t(0.975, n - 1) s sqrt(1 + 1/n) of the logarithms, widened to the launches seen, since
                     levels that occurred will occur again

From three or four launches no next launch is predicted: if launches have two levels, all of them are often on the same
one, and the interval would cover 87 to 90 %. From five on it covers 91 to 98 %, whatever the noise: normal, with a
heavy or a skewed tail, on two levels. `tests/perf/coverage.py` prints the coverage.

Two levels are named if the best division into two groups explains more of the variation than it does for normal values
(Otsu 1979, "A threshold selection method from gray-level histograms"): 2 in 100 sets of normal launches pass.

The sides of a round run in random order, drawn for each round by itself. Without a difference between the sides, each
round's difference then has either sign with the same probability, whatever the machine did meanwhile: a disturbance
that comes back every k-th launch or a wave of any period cannot follow coins. So the share of all sign patterns that
would have given a mean as far from 0 is an exact p (Fisher's randomisation test), which no pattern of noise can fool.

n rounds have 2^n patterns, so the least p is 2 / 2^n. With fewer than 8 rounds it is above 1 %, and equal sides may
differ by as much as the machine's worst disturbance: only differences larger than any such disturbance are judged.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from statistics import NormalDist, median
from typing import TypeVar

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import np
from benchmarking.core.sample_statistics import MIN_LAUNCHES_FOR_BETWEEN, MOST_LOG, IntervalScope
from benchmarking.core.student_t import quantile
from benchmarking.core.text import ends, number
from benchmarking.core.verdicts.words import MIN_CHANGE

COVERS: Mapping[IntervalScope | None, str] = {
    "between": "the typical launch",
    "within": "the calls of the measured launches, not other launches",
    None: "nothing: there are too few calls for an interval",
}
"""`ci_scope` -> what the 95 % interval covers."""
UNSEEN_LAUNCHES = 0.10
"""Least relative half-width of an interval that does not cover the variation between launches."""
CALLS_NOTE = (
    f"(calls): the interval covers {COVERS['within']}: that takes {MIN_LAUNCHES_FOR_BETWEEN} or more (--launches)"
)
"""The meaning of the mark "(calls)"."""
INTERVAL = "95 % interval"
"""Heading of the interval of the typical launch."""
NEXT = "next launch"
"""Heading of the prediction interval."""
LEAST_FOR_NEXT = 5
LEAST_ON_A_LEVEL = 2
THROUGHPUT_APART = 1.05
"""Ratio of the throughput over all calls and that at the median latency from which both are shown."""
SHARE_OF_NORMAL, SHARE_OF_FEW = 0.637, 0.79
"""A normal distribution cut at its mean explains 2 / pi of its variance; 98 % of n normal values stay below that plus
0.79 / sqrt(n), by simulation for 6 to 60 values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """Two levels of launches."""

    lower: float
    """Median of the launches on the lower level, in the metric's unit."""
    upper: float
    on_upper: int
    """Launches on the upper level."""
    launches: int

    @property
    def words(self) -> str:
        """ "two levels 4 % apart, 30 % of launches on the upper one (3 of 10)" """
        share = f"{self.on_upper / self.launches:.0%} of launches on the upper one ({self.on_upper} of {self.launches})"
        return f"two levels {self.upper / self.lower - 1:.0%} apart, {share}"


def next_launch(values: Sequence[float]) -> tuple[float, float] | None:
    """The ends of the interval in which another launch would be with 95 % probability, from each launch's value, above
    0; None below five launches."""
    count = len(values)
    if count < LEAST_FOR_NEXT or min(values) <= 0:
        return None
    if min(values) == max(values):
        return values[0], values[0]
    logs = [math.log(value) for value in values]
    mean = math.fsum(logs) / count
    variance = math.fsum((log - mean) ** 2 for log in logs) / (count - 1)
    half = quantile(0.975, count - 1) * math.sqrt(variance * (1 + 1 / count))
    return min(math.exp(mean - half), *values), max(math.exp(min(mean + half, MOST_LOG)), *values)


def two_levels(values: Sequence[float]) -> Levels | None:
    """The two levels on which the launches lie, given each launch's value; None without two that are 2 % apart and have
    two launches each."""
    if len(values) < LEAST_FOR_NEXT or min(values) <= 0:
        return None
    ordered = sorted(values)
    logs = [math.log(value) for value in ordered]
    count, mean = len(logs), math.fsum(logs) / len(logs)
    total = math.fsum((log - mean) ** 2 for log in logs)
    explained, place = max(
        (math.fsum(mean - log for log in logs[:below]) ** 2 * count / (below * (count - below)), below)
        for below in range(LEAST_ON_A_LEVEL, count - LEAST_ON_A_LEVEL + 1)
    )
    if explained <= total * (SHARE_OF_NORMAL + SHARE_OF_FEW / math.sqrt(count)):
        return None
    if ordered[place] / ordered[place - 1] < 1 + MIN_CHANGE:
        return None
    lower, upper = median(ordered[:place]), median(ordered[place:])
    return Levels(lower=lower, upper=upper, on_upper=count - place, launches=count)


def next_launch_text(values: Sequence[float]) -> str | None:
    """The interval of the next launch in a table: "3.5 .. 3.7"; None below five launches."""
    interval = next_launch(values)
    return None if interval is None else " .. ".join(ends(*interval))


def level_notes(points: Mapping[str, Sequence[float]]) -> list[str]:
    """Notes about labelled points whose launches lie on two levels."""
    return [f"{label}: {levels.words}" for label, values in points.items() if (levels := two_levels(values))]


def launch_notes(points: Mapping[str, Sequence[float]], left_out: Collection[str] = ()) -> list[str]:
    """Notes about the launches of labelled points: the levels on which they lie, and where no next launch can be
    predicted although there is an interval of the typical one. Headings that are `left_out` are not explained."""
    notes = level_notes(points)
    most = max(map(len, points.values()), default=0)
    parts = []
    if most >= MIN_LAUNCHES_FOR_BETWEEN and INTERVAL not in left_out:
        parts.append(f"{INTERVAL}: of {COVERS['between']}")
        if most < LEAST_FOR_NEXT:
            parts.append(f"{most} launches are too few to predict the next one (--launches {LEAST_FOR_NEXT})")
    if most >= LEAST_FOR_NEXT and NEXT not in left_out:
        parts.append(f"{NEXT}: where another one would be, with 95 % probability")
    return [*notes, *(["; ".join(parts)] if parts else [])]


def throughput_note(label: str, per_sec: float | None, at_median: float | None, unit: str) -> str | None:
    """The note on a throughput that does not follow from the median latency; None if the two differ by up to 5 %."""
    ratio = per_sec / at_median if per_sec and at_median else 0
    if not per_sec or not at_median or ratio <= 0 or abs(math.log(ratio)) <= math.log(THROUGHPUT_APART):
        return None
    lost = 1 - per_sec / at_median
    why = f"slow calls cost {lost:.0%}" if lost > 0 else "some calls are much faster than the median call"
    return f"{label}: {number(per_sec)} {unit} over all calls, {number(at_median)} {unit} at the median latency: {why}"


Side = TypeVar("Side")
MIN_ROUNDS = 3
"""Minimum rounds: with 2, the interval is too wide to be useful, and its width is mostly chance."""
ROUNDS_TO_PROVE = 8
"""The least number of rounds whose order proves a difference: 2 / 2^8 is below 1 %."""
LEAST_RATIO = {3: 1.5, 4: 1.5, 5: 1.25, 6: 1.25, 7: 1.25}
"""Rounds -> the least ratio that is judged without that proof: more than neighbours, placement in memory or clock
frequencies make of equal sides."""
FIRST_ALPHA, LATER_ALPHA = 0.0079, 0.0005
"""Maximum p of the order at the first look that can prove anything, and at the next one; it halves with each further
look. In total below 1 %."""
FEW_PATTERNS, SMALL_ALPHA = 0.16, 0.04
"""How much more of a difference the order takes than a t test of the same p, where few patterns prove it, and with each
power of ten of that p: within 4 % of simulations for 9 to 20 normal rounds."""
ROUNDING = 1 - 1e-12
"""Factor by which sums of logarithms that are equal in theory may differ."""
MOST_EXACT = 16
"""Rounds up to which all patterns are tried; of more, as many at random."""


def random_order(seed: str, number: int, sides: Sequence[Side]) -> tuple[Side, ...]:
    """The order of the sides in a round, counted from 0: the same for the same seed, which is stored with the runs."""
    tickets = [sha256(f"{seed} {number} {place}".encode()).digest() for place in range(len(sides))]
    return tuple(sides[place] for place in sorted(range(len(sides)), key=tickets.__getitem__))


def least_proof(rounds: int, looks: int, is_first: Sequence[bool] = ()) -> tuple[float | None, float]:
    """What proves a difference of so many rounds, evaluated `looks` times: the maximum p of their order, and the least
    ratio. Where the order proves nothing (too few rounds, or an order that repeats, such as A B, A B or A B, B A of
    earlier versions), the p is None and the ratio above what recurring disturbances make of equal sides."""
    turned = [one != (place % 2 == 0) for place, one in enumerate(is_first)]
    # A known order of enough rounds that is constant or alternates, which coins hardly ever do.
    repeats = len(is_first) >= ROUNDS_TO_PROVE and (len(set(is_first)) == 1 or len(set(turned)) == 1)
    if rounds < ROUNDS_TO_PROVE or repeats:
        return None, LEAST_RATIO.get(rounds, LEAST_RATIO[5])
    return FIRST_ALPHA if looks <= 2 else LATER_ALPHA / 2 ** (looks - 3), 1 + MIN_CHANGE


def why_not_proven(differences: Sequence[float], looks: int, is_first: Sequence[bool] = ()) -> str | None:
    """Why significant differences of the rounds, as logarithms, may come from their order in time; None if they cannot.

    `looks` is how often they were evaluated. `is_first` tells for each round whether the first side ran first, if it is
    known.
    """
    rounds = len(differences)
    alpha, least = least_proof(rounds, looks, is_first)
    if alpha is not None:
        is_proven = order_p(differences) <= alpha
        return None if is_proven else "other orders of the rounds would have given as large a difference"
    if abs(math.fsum(differences) / rounds) >= math.log(least) * ROUNDING:
        return None
    if rounds >= ROUNDS_TO_PROVE:
        return "the sides ran in a fixed order, which a recurring disturbance can follow"
    return (
        f"with {rounds} rounds a recurring disturbance may look like a difference of up to {least - 1:.0%}: "
        f"{rounds_words(ROUNDS_TO_PROVE)}"
    )


def errors_to_prove(rounds: int, alpha: float, power: float) -> float:
    """How many standard errors a difference needs for the order of normal rounds to prove it with this probability:
    infinity where no order could. If only equal signs of all rounds prove it, each has to have that sign."""
    patterns = alpha * 2**rounds / 2
    if patterns < 1:
        return math.inf
    signs = NormalDist().inv_cdf(power ** (1 / rounds)) * math.sqrt(rounds)
    if patterns < 2:
        return signs
    excess = FEW_PATTERNS / (1 + math.log2(patterns)) + SMALL_ALPHA * math.log10(FIRST_ALPHA / alpha)
    t_test = quantile(1 - alpha / 2, rounds - 1) + quantile(power, rounds - 1)
    return min(signs, t_test * (1 + excess))


def rounds_words(count: int, more: str = "") -> str:
    """How many rounds may decide, with the flags that measure them: of a command with several runtimes, and of ab."""
    return f"{more}{count} rounds may decide (in benchhouse ab --max-rounds {count}, elsewhere --launches {count})"


def order_p(differences: Sequence[float]) -> float:
    """The share of sign patterns whose mean is at least as far from 0."""
    x = np.asarray(differences, dtype=np.float64)
    observed = abs(float(x.sum())) * ROUNDING
    if len(x) <= MOST_EXACT:
        sums = np.zeros(1)
        for value in x:
            sums = np.concatenate((sums + value, sums - value))
        return float((np.abs(sums) >= observed).mean())
    signs = _drawn_signs(len(x))
    return (1 + int((np.abs(signs @ x) >= observed).sum())) / (1 + len(signs))


@lru_cache(maxsize=1)
def _drawn_signs(rounds: int) -> np.ndarray:
    """Sign patterns of so many rounds, the same in each call; drawing them takes as long as ten uses."""
    return (np.random.default_rng(rounds).integers(0, 2, (1 << MOST_EXACT, rounds)) * 2 - 1).astype(np.int8)
