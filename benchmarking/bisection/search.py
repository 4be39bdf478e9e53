"""Searches history for the first commit that is as BAD and not as GOOD, in git bisect's order.

Each step halves the commits that may be it. A commit that cannot be judged is skipped, and the next one is tried away
from it, since its neighbours tend to fail for the same reason. Where GOOD is no ancestor of BAD, their common
ancestors are measured first: if one is bad, the change is on GOOD's side. In the end the culprit is measured in turns
with its parent, so that the change that is reported is its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarking.bisection.steps import Role, Step
from benchmarking.core.errors import UsageError
from benchmarking.core.untrusted.history import History

GOLDEN = 0.6180339887498949
"""Its multiples, without their whole part, are spread evenly over 0 to 1."""
Kind = Literal["found", "not confirmed", "equal", "not judged", "skipped", "merge base"]
Measure = Callable[[Role, str, str], Step]
"""Measures a commit in turns with another one: role, commit, other commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """What a bisection found."""

    kind: Kind
    """found: the culprit, confirmed; not confirmed: the culprit, which did not differ from its parent when the two were
    measured; equal: BAD is equivalent to GOOD; not judged: neither is sure; skipped: the culprit is one of several
    commits, all but the last of which were skipped; merge base: a common ancestor is bad already."""
    commits: tuple[str, ...] = ()
    """The culprit; of skipped ones all that may be it; the bad common ancestor."""
    parent: str | None = None
    """What the culprit was measured against."""
    step: Step | None = None
    """The one that says so: the culprit against its parent, or BAD against GOOD."""


def check_sides(history: History, good: str, bad: str) -> None:
    """Raise UsageError for two commits between which there is nothing to find."""
    if good == bad:
        raise UsageError(f"GOOD and BAD are the same commit, {good[:12]}: name two")
    if history.merge_bases(good, bad) == (bad,):
        raise UsageError(f"BAD ({bad[:12]}) is an ancestor of GOOD ({good[:12]}): name the older commit first")


def search(history: History, good: str, bad: str, measure: Measure, say: Callable[[str], None]) -> Conclusion:
    """The commit after which the metric is as at BAD. `say` takes remarks on the way."""
    whole = measure("whole", bad, good)
    if whole.outcome != "bad":
        return Conclusion(kind="equal" if whole.outcome == "good" else "not judged", step=whole)
    known_good, skipped = [good], set[str]()
    for base in history.merge_bases(good, bad):
        if base == good:
            continue
        step = measure("merge base", base, good)
        if step.outcome == "bad":
            return Conclusion(kind="merge base", commits=(base,), step=step)
        if step.outcome == "good":
            known_good.append(base)
        else:
            say(f"the common ancestor {base[:12]} cannot be judged: the change may be before it, on the side of GOOD")
            skipped.add(base)
    while True:
        suspects = history.suspects(bad, tuple(known_good))
        left = [one for one in suspects if one != bad and one not in skipped]
        if not left:
            break
        commit = _next(left, suspects[0] in skipped, len(skipped))
        say(f"commits left to test: {len(left)}, in about log2 of that many steps")
        step = measure("step", commit, good)
        if step.outcome == "bad":
            bad = commit
        elif step.outcome == "good":
            known_good.append(commit)
        else:
            skipped.add(commit)
    unsure = tuple(one for one in suspects if one in skipped)
    if unsure:
        return Conclusion(kind="skipped", commits=(*unsure, bad), step=whole)
    parent = next(iter(history.parents(bad)), good)
    step = measure("culprit", bad, parent)
    kind: Kind = "found" if step.outcome == "bad" else "not confirmed"
    return Conclusion(kind=kind, commits=(bad,), parent=parent, step=step)


def _next(left: Sequence[str], is_first_skipped: bool, skips: int) -> str:
    """The commit to test: the one that divides the others best, or after a skip, one that is not next to it.

    git bisect chooses the same way, with pseudo-random numbers in place of the multiples of the golden ratio.
    """
    if not is_first_skipped:
        return left[0]
    spread: float = (skips * GOLDEN) % 1
    return left[int(len(left) * spread**1.5)]
