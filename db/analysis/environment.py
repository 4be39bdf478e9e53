"""Whether findings speak of the machine and not of the code: when nearly everything moved the same way. Pure.

The rule, for results of one machine in one session:

    1. What shares code counts once: the points of one model on one runtime at one precision (a `group`) move together
       whenever that code changes, so their median stands for them.
    2. There are at least 5 groups: chance alone points 4 of them one way once in 8 times.
    3. At least 80 % of them moved the same way, and so many do by a fair coin at most once in 20 times (sign test, one
       way; groups that did not move at all count as moved the other way).
    4. Their median change is at least 1 %.
    5. All findings point that way.

2026-11-21: 3 and 5 are asked for together. That all findings point one way is also what a change of code does that
several models share; only what the others did, which no judge flagged, tells the two apart. A slow-down of everything
by a new version of torch meets the rule too. So the verdict says where to look first, and never turns a regression into
none: what a fresh session shows again, on a quiet machine, still has to be explained.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import comb, log
from statistics import median
from typing import Literal

MIN_GROUPS = 5
MIN_SHARE = 0.8
MAX_CHANCE = 0.05
MIN_CHANGE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """How one series moved."""

    group: str
    """What its code is shared with: the series of one model, runtime and precision have the same."""
    ratio: float
    """After over before, above 1 for worse: of a metric where higher is better, before over after."""
    is_finding: bool
    """Whether a judge called it a change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """That a session's series moved together."""

    direction: Literal["worse", "better"]
    moved: int
    """Groups that moved that way."""
    groups: int
    ratio: float
    """Median of the groups' ratios."""
    chance: float
    """Probability of so many by a fair coin."""

    @property
    def text(self) -> str:
        """In words, without the verdict."""
        return (
            f"{self.moved} of {self.groups} pairs of model and runtime became {self.direction} together, "
            f"by {abs(self.ratio - 1):.1%} in the middle (by chance: {self.chance:.2g})"
        )


def moved_together(shifts: Iterable[Shift]) -> Together | None:
    """How the series of one machine and session moved together, by the rule above; None where they did not, where too
    few groups were judged to tell, and where there are no findings to explain."""
    known = tuple(shifts)
    findings = [shift for shift in known if shift.is_finding]
    ratios = _by_group(known)
    if len(ratios) < MIN_GROUPS or not findings:
        return None
    middle = median(ratios)
    is_worse = middle > 1
    moved = sum(ratio > 1 if is_worse else ratio < 1 for ratio in ratios)
    chance = sign_chance(moved, len(ratios))
    if moved < MIN_SHARE * len(ratios) or chance > MAX_CHANCE or abs(log(middle)) < log(1 + MIN_CHANGE):
        return None
    if any((shift.ratio > 1) is not is_worse for shift in findings):
        return None
    direction: Literal["worse", "better"] = "worse" if is_worse else "better"
    return Together(direction=direction, moved=moved, groups=len(ratios), ratio=middle, chance=chance)


def sign_chance(heads: int, tosses: int) -> float:
    """Probability of at least so many heads in so many tosses of a fair coin."""
    return float(sum(comb(tosses, count) for count in range(heads, tosses + 1)) / 2**tosses)


def _by_group(shifts: Sequence[Shift]) -> list[float]:
    """The median ratio of each group."""
    groups: dict[str, list[float]] = {}
    for shift in shifts:
        groups.setdefault(shift.group, []).append(shift.ratio)
    return [median(ratios) for ratios in groups.values()]
