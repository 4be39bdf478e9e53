"""When a comparison ends its command with a failing exit code, so that it can gate CI: --fail-on slower[,not-judged].

    slower       1 if any point became worse (slower, more memory); 3 if that is not known of a point, because it has
                 no interval, or looks worse without enough evidence for a verdict
    not-judged   3 if any point has no verdict, for whatever reason

A point whose interval includes "no change" passes `slower` even if it is too wide for "equivalent": as with
`benchhouse check`, nothing speaks for a regression. What is printed says how large a change would have been found.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Literal

from benchmarking.core.errors import EXIT_FAILED, EXIT_NOT_ENOUGH_DATA, EXIT_OK
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import Metric
from benchmarking.core.verdicts.words import MIN_CHANGE, Judgement

FLAG = "--fail-on"
Condition = Literal["slower", "not-judged"]
WORDS: Mapping[str, Condition] = {
    **dict.fromkeys(("slower", "worse", "more", "regressed", "regression"), "slower"),
    **dict.fromkeys(("not-judged", "not judged", "unjudged", "undecided", "unknown"), "not-judged"),
}
"""What may be typed -> the condition; the other words for a regression depend on the metric and the command."""
EXIT_GATE_FAILED = 4
"""What the warehouse's child process answers for a failed gate; its 1 is an error."""
HELP = (
    "slower: exit code 1 if B is slower (or needs more) at a point, 3 if that is not known; slower,not-judged: 3 also "
    "for a point without a verdict (default: independent of verdicts)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the conditions make of a comparison."""

    exit_code: int
    """1 slower, 3 not known, 0 otherwise."""
    text: str
    """Why, in a sentence."""


def conditions(text: str) -> tuple[Condition, ...]:
    """The conditions of `--fail-on`. Raises ArgumentTypeError for another word."""
    words = [word.strip().lower() for word in text.split(",")]
    for word in words:
        if word not in WORDS:
            raise argparse.ArgumentTypeError(f"takes slower or slower,not-judged: got {word!r}")
    return tuple(dict.fromkeys(WORDS[word] for word in words))


def outcome(judgements: Sequence[Judgement], metric: Metric, asked: Sequence[Condition]) -> Outcome:
    """What the conditions make of the judgements of all points that both sides have."""
    words, count = f"{FLAG} {','.join(asked)}", len(judgements)
    points = f"of {count} point{'s' * (count != 1)}"
    if not judgements:
        return Outcome(exit_code=EXIT_NOT_ENOUGH_DATA, text=f"{words}: not known: no point is on both sides")
    worse = sum(one.is_worse is True for one in judgements)
    if worse and "slower" in asked:
        return Outcome(exit_code=EXIT_FAILED, text=f"{words}: failed: B is worse at {worse} {points}")
    unjudged = [one for one in judgements if one.verdict == "not judged"]
    unknown = sum("not-judged" in asked or _may_be_worse(one, metric) for one in unjudged)
    if unknown:
        return Outcome(exit_code=EXIT_NOT_ENOUGH_DATA, text=f"{words}: not known at {unknown} {points}")
    smallest = [one.detectable for one in unjudged if one.detectable is not None]
    limit = f"; a change of {max(smallest):.1%} would have been found at each" if smallest else ""
    return Outcome(exit_code=EXIT_OK, text=f"{words}: passed: nothing speaks for a change for the worse{limit}")


def _may_be_worse(judgement: Judgement, metric: Metric) -> bool:
    """Whether a point without a verdict looks worse, or has no interval that could show it."""
    if judgement.low is None or judgement.high is None or judgement.change is None:
        return True
    includes_none = judgement.low <= 0 <= judgement.high
    return not includes_none and abs(judgement.change) >= MIN_CHANGE and metric.is_worse(judgement.change)
