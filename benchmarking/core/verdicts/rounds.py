"""The order of the sides in a round, and what that order can prove. Pure.

The sides of a round run in random order, drawn for each round by itself. Without a difference between the sides, each
round's difference then has either sign with the same probability, whatever the machine did meanwhile: a disturbance
that comes back every k-th launch or a wave of any period cannot follow coins. So the share of all sign patterns that
would have given a mean as far from 0 is an exact p (Fisher's randomisation test), which no pattern of noise can fool.

n rounds have 2^n patterns, so the least p is 2 / 2^n. With fewer than 8 rounds it is above 1 %, and equal sides may
differ by as much as the machine's worst disturbance: only differences larger than any such disturbance are judged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import sha256
from typing import TypeVar

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
ROUNDING = 1 - 1e-12
"""Factor by which sums of logarithms that are equal in theory may differ."""
MOST_EXACT = 16
"""Rounds up to which all patterns are tried; of more, as many at random."""


def random_order(seed: str, number: int, sides: Sequence[Side]) -> tuple[Side, ...]:
    """The order of the sides in a round, counted from 0: the same for the same seed, which is stored with the runs."""
    tickets = [sha256(f"{seed} {number} {place}".encode()).digest() for place in range(len(sides))]
    return tuple(sides[place] for place in sorted(range(len(sides)), key=tickets.__getitem__))


def is_proven(differences: Sequence[float], looks: int, is_first: Sequence[bool] = ()) -> bool:
    """Whether the differences of the rounds, as logarithms, cannot come from their order in time.

    `looks` is how often they were evaluated. `is_first` tells for each round whether the first side ran first, if it is
    known: an order that repeats (A B, A B or A B, B A), as earlier versions had, proves nothing.
    """
    rounds = len(differences)
    if rounds < ROUNDS_TO_PROVE or _repeats(is_first):
        least = LEAST_RATIO.get(rounds, LEAST_RATIO[5])
        return abs(math.fsum(differences) / rounds) >= math.log(least) * ROUNDING
    return order_p(differences) <= (FIRST_ALPHA if looks <= 2 else LATER_ALPHA / 2 ** (looks - 3))


def why_not_proven(rounds: int, is_first: Sequence[bool] = ()) -> str:
    """The reason to give for differences that are significant but not proven."""
    if _repeats(is_first):
        return "the sides ran in a fixed order, which a recurring disturbance can follow"
    if rounds < ROUNDS_TO_PROVE:
        return (
            f"with {rounds} rounds a recurring disturbance may look like a difference of up to "
            f"{LEAST_RATIO[rounds] - 1:.0%}: {rounds_words(ROUNDS_TO_PROVE)}"
        )
    return "other orders of the rounds would have given as large a difference"


def rounds_words(count: int, more: str = "") -> str:
    """How many rounds decide, with the flags that measure them: of a command with several runtimes, and of ab."""
    return f"{more}{count} rounds decide (--launches {count}; of benchhouse ab: --max-rounds {count})"


def order_p(differences: Sequence[float]) -> float:
    """The share of sign patterns whose mean is at least as far from 0."""
    import numpy as np

    x = np.asarray(differences, dtype=np.float64)
    observed = abs(float(x.sum())) * ROUNDING
    if len(x) <= MOST_EXACT:
        sums = np.zeros(1)
        for value in x:
            sums = np.concatenate((sums + value, sums - value))
        return float((np.abs(sums) >= observed).mean())
    signs = np.random.default_rng(len(x)).integers(0, 2, (1 << MOST_EXACT, len(x))) * 2 - 1
    return (1 + int((np.abs(signs @ x) >= observed).sum())) / (1 + len(signs))


def _repeats(is_first: Sequence[bool]) -> bool:
    """Whether a known order of enough rounds is constant or alternates, which coins hardly ever do."""
    if len(is_first) < ROUNDS_TO_PROVE:
        return False
    turned = [one != (place % 2 == 0) for place, one in enumerate(is_first)]
    return len(set(is_first)) == 1 or len(set(turned)) == 1
