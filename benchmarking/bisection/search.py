"""Searches history for the first commit that behaves like BAD rather than GOOD, in git bisect's order.

Each step halves the candidates. A commit without a verdict is skipped, and a more distant one is tried next, since
neighbours tend to fail for the same reason. If GOOD is not an ancestor of BAD, their common ancestors are measured
first: if one is bad, the change is on GOOD's side. Finally the culprit is measured in turns with its parent, to confirm
that it made the change.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from benchmarking.bisection.steps import SHORT, Role, Step, change_text
from benchmarking.core.errors import UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.text import visible
from benchmarking.core.untrusted.history import History

GOLDEN = 0.6180339887498949
"""The fractional parts of its multiples are spread evenly over 0 to 1."""
Kind = Literal["found", "not confirmed", "equal", "not judged", "skipped", "merge base"]
Measure = Callable[[Role, str, str], Step]
"""Measures a commit in turns with another one; arguments: role, commit, other commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """The conclusion of a bisection."""

    kind: Kind
    """found: a confirmed culprit; not confirmed: a culprit that did not differ from its parent when both were measured;
    equal: BAD is equivalent to GOOD; not judged: it is unclear whether they differ; skipped: the culprit is one of
    several commits, all but the last of which were skipped; merge base: a common ancestor is already bad."""
    commits: tuple[str, ...] = ()
    """The culprit; all candidates if commits were skipped; or the bad common ancestor."""
    parent: str | None = None
    """The commit that the culprit was measured against."""
    step: Step | None = None
    """The decisive step: the culprit against its parent, or BAD against GOOD."""


def check_sides(history: History, good: str, bad: str) -> None:
    """Raise UsageError for commits without candidates in between."""
    if good == bad:
        raise UsageError(f"GOOD and BAD are the same commit {good[:12]}: give two different ones")
    if history.merge_bases(good, bad) == (bad,):
        raise UsageError(f"BAD ({bad[:12]}) is an ancestor of GOOD ({good[:12]}): give the older commit first")


def search(history: History, good: str, bad: str, measure: Measure, say: Callable[[str], None]) -> Conclusion:
    """Search for the commit that changed the metric. `say` is called with progress messages."""
    endpoints = measure("whole", bad, good)
    if endpoints.outcome != "bad":
        return Conclusion(kind="equal" if endpoints.outcome == "good" else "not judged", step=endpoints)
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
            say(f"no verdict on the common ancestor {base[:12]}: the change may be before it, on GOOD's side")
            skipped.add(base)
    while True:
        suspects = history.suspects(bad, tuple(known_good))
        remaining = [commit for commit in suspects if commit != bad and commit not in skipped]
        if not remaining:
            break
        # The commit to test: the one that splits the others best, or after a skip, one that is not next to
        # it. git bisect chooses the same way, with pseudo-random numbers in place of the multiples of the
        # golden ratio.
        skips = len(skipped)
        if suspects[0] not in skipped:
            commit = remaining[0]
        else:
            spread: float = (skips * GOLDEN) % 1
            commit = remaining[int(len(remaining) * spread**1.5)]
        say(f"{len(remaining)} commits left to test, in about {max(1, round(math.log2(len(remaining))))} steps")
        step = measure("step", commit, good)
        if step.outcome == "bad":
            bad = commit
        elif step.outcome == "good":
            known_good.append(commit)
        else:
            skipped.add(commit)
    undecided = tuple(commit for commit in suspects if commit in skipped)
    if undecided:
        return Conclusion(kind="skipped", commits=(*undecided, bad), step=endpoints)
    parent = next(iter(history.parents(bad)), good)
    step = measure("culprit", bad, parent)
    kind: Kind = "found" if step.outcome == "bad" else "not confirmed"
    return Conclusion(kind=kind, commits=(bad,), parent=parent, step=step)


def conclusion_text(found: Conclusion, history: History) -> str:
    """The conclusion in a few lines."""
    step = found.step
    changes = [f"  {change_text(point)}" for point in step.points] if step is not None else []
    if found.kind == "equal":
        return "\n".join(["BAD is equivalent to GOOD: there is no change to find", *changes])
    if found.kind == "not judged":
        reason = "" if step is None else visible(step.reason or "")
        return f"no verdict on whether BAD differs from GOOD: {reason}; a higher --max-rounds detects smaller changes"
    texts = ((commit, history.text(commit)) for commit in found.commits)
    named = [f"{commit} {text.subject} ({text.author}, {text.time})" for commit, text in texts]
    if found.kind == "merge base":
        head = "a common ancestor of GOOD and BAD already has the change, so it is on GOOD's side"
        return "\n".join([f"{head}:", f"  {named[0]}", *changes])
    if found.kind == "skipped":
        head = "the culprit is one of these commits, all but the last of which had no verdict:"
        return "\n".join([head, *(f"  {name}" for name in named), "BAD against GOOD:", *changes])
    parent = (found.parent or "")[:SHORT]
    if found.kind == "not confirmed":
        reason = f": {visible(step.reason)}" if step is not None and step.reason else ""
        head = f"not confirmed: when measured again, the commit does not differ from its parent {parent}{reason}"
        return "\n".join([head, f"  {named[0]}", *changes])
    return "\n".join([f"culprit: {named[0]}", f"against its parent {parent}:", *changes])
