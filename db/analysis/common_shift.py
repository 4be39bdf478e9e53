"""Detects changes of the machine rather than the code: nearly everything moved in the same direction. Pure.

The rules, for results of one machine in one session:

    1. Shared code counts once: the points of one model, runtime and precision (a `group`) move together whenever their
       code changes, so a group counts once, by its median.
    2. There are at least 5 groups: by chance alone, 4 groups move in the same direction 1 time in 8.
    3. At least 80 % of the groups moved in the same direction, and fair coins would do so at most 1 time in 20
       (one-sided sign test; unchanged groups count as moved in the other direction).
    4. Their median change is at least 1 %.
    5. All findings moved in that direction.

2026-11-21: rule 3 is required in addition to rule 5, since a change of code that several models share also moves all
findings in one direction; only the series without a finding tell the two apart. A new version of torch that slows
everything down meets the rules as well. So the verdict tells where to look first, and never cancels a regression: one
that shows again in a fresh session on an idle machine must still be explained.
"""

from __future__ import annotations

from collections.abc import Iterable
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
    """The change of one series."""

    group: str
    """Equal for all series that share code: those of one model, runtime and precision."""
    ratio: float
    """After / before, or before / after if higher is better: above 1 is worse."""
    is_finding: bool
    """Whether it was judged a change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonShift:
    """The common change of a session's series."""

    direction: Literal["worse", "better"]
    moved: int
    """Groups that moved in that direction."""
    groups: int
    ratio: float
    """Median over the groups."""
    chance: float
    """Probability that as many fair coins agree."""

    @property
    def text(self) -> str:
        """In words."""
        return (
            f"{self.moved} of {self.groups} combinations of model, runtime and precision became {self.direction}, "
            f"by {abs(self.ratio - 1):.1%} (median; probability by chance {self.chance:.2g})"
        )


def common_shift(shifts: Iterable[Shift]) -> CommonShift | None:
    """The common change of the series of one machine and session, by the rules above. None if there is none, or if
    there are no findings to explain."""
    all_shifts = tuple(shifts)
    findings = [shift for shift in all_shifts if shift.is_finding]
    groups: dict[str, list[float]] = {}
    for shift in all_shifts:
        groups.setdefault(shift.group, []).append(shift.ratio)
    ratios = [median(ratios) for ratios in groups.values()]
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
    return CommonShift(direction=direction, moved=moved, groups=len(ratios), ratio=middle, chance=chance)


def sign_chance(heads: int, tosses: int) -> float:
    """Probability of at least as many heads in so many tosses of a fair coin."""
    return float(sum(comb(tosses, count) for count in range(heads, tosses + 1)) / 2**tosses)
