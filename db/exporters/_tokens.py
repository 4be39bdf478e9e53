"""What a target that is about generating text can take, and what is said of the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from benchmarking.errors import UsageError
from benchmarking.records import Result, Run
from db.exporters import Wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """A result that the target has a place for, with its run."""

    run: Run
    result: Result


def fitting(runs: Iterable[Run], why_not: Callable[[Run, Result], str | None], wanted: Wanted) -> Iterator[Fitting]:
    """The results for which `why_not` gives no reason. How many have which reason is said.

    Raises UsageError when there is none.
    """
    found = 0
    reasons: dict[str, int] = {}
    for run in runs:
        for result in run.results:
            reason = why_not(run, result)
            if reason is None:
                found += 1
                yield Fitting(run=run, result=result)
            else:
                reasons[reason] = reasons.get(reason, 0) + 1
    for reason, count in reasons.items():
        wanted.say(f"left out: {count} result{'s' * (count > 1)}: {reason}")
    if not found:
        raise UsageError("nothing that the format has a place for is selected")


def values(result: Result, metric: str) -> list[float]:
    """The raw samples of a metric, one launch after the other; empty where there are none."""
    return [
        value
        for samples in sorted(result.samples, key=lambda samples: samples.launch)
        if samples.metric == metric and samples.phase == "measure"
        for value in samples.values
    ]
