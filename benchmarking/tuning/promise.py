"""Which untried cell a search tries next: the one with the largest expected improvement per second.

Cells that share a runtime, a precision or a setting have similar costs. The logarithm of a cell's cost is modelled as a
sum of effects of its traits, each normal around zero with the deviation in `EFFECT_SD` (Bayesian linear regression), so
what was tried says what to expect of the rest: a runtime whose int8 was slow is less promising with float16, and a
setting that helped one precision is tried on the next. The expected improvement on the best so far is that of Jones,
Schonlau and Welch (1998), divided by the expected time as by Snoek, Larochelle and Adams (2012), so that a build of a
minute has to promise more than a launch of five seconds. Pure, like the race: `tests/perf/tune.py` replays it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any

from benchmarking.core.lazy_dataclass import dataclass

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
    while none of these has a cost."""
    costs = [one.log_cost for one in tried if one.log_cost is not None]
    if not (costs and untried):
        return [1.0] * len(untried)
    import numpy as np

    best, failed = min(costs), max(costs) + FAILED
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
