"""Whether a step of a history exceeds what its days do: runs that began within hours of each other share whatever the
machine did that day, and are no independent witnesses of a level.

The model has random effects: a run deviates from the level by what is common to its sitting, and by its own. Both
variances are taken from differences of neighbours (of the sittings' means, and of runs within sittings), large ones
clipped, so that a few real steps make neither. A step is then tested by generalised least squares: at the boundary of
two sittings it has to exceed the variation between sittings, and inside one that of its runs. The degrees of freedom
are Satterthwaite's (1946).

Where sittings differ no more than their runs let expect, or each has one run, nothing is tested here. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import Floats, np
from benchmarking.core.sample_statistics import SIGMA_PER_MAD
from benchmarking.core.student_t import cumulative
from benchmarking.core.verdicts.sessions import SITTING

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.intp]
    Times = Sequence[datetime] | NDArray[np.datetime64]

CLIP_SD = 3.0
"""Larger differences count as this many standard deviations."""
DEGREES_A_DIFFERENCE = 2 / 3
"""Of a variance by differences of neighbours, which share their values."""
BEYOND = 3.0
"""Standard errors by which the logarithm of the variance between sittings must exceed what their runs let expect."""
MORE = 1.1
"""Factor of the variance between sittings by which its share of a step's error is seen."""
ROUNDING = 1e-9
"""Difference of the means of equal values, which are sums of other numbers of them."""
FEW = 0.25
"""Maximum share of the neighbouring sittings that differ where the others are equal and what differs are steps."""
LEAST_BETWEEN = 3
"""Minimum differences between sittings, besides the one that is judged."""


def sittings(times: Times) -> Integers | None:
    """The number of each run's sitting: a run that began within `SITTING` of the one before is of the same. None if no
    sitting has two runs, or there are too few to know how much they vary."""
    starts = np.asarray(times, dtype="datetime64[us]")
    is_other = np.abs(np.diff(starts)) > np.timedelta64(SITTING)
    if is_other.all() or is_other.sum() <= LEAST_BETWEEN:
        return None
    return np.cumsum([0, *is_other])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Variation:
    within: float
    """Variance of the runs of a sitting."""
    ratio: float
    """Variance that is common to the runs of a sitting, over the former."""
    degrees_within: float
    degrees_between: float


def p_between(values: Floats, numbers: Integers, start: int, at: int, end: int, reach: int, shift: int) -> float:
    """The p of a step between the levels from `start` and to `end`, at `at` or up to `shift` runs from it, where it is
    clearest; 0 where sittings do not vary more than their runs do, in up to `reach` runs on either side."""
    variation = _variation(values, numbers, at, reach)
    if variation is None:
        return 0.0
    own, of = values[start:end] - values[start:end].mean(), numbers[start:end] - numbers[start]
    places = np.arange(max(start + 1, at - shift), min(end - 1, at + shift) + 1)
    columns = np.column_stack([np.ones(len(own)), own, np.arange(start, end)[:, None] >= places])
    sizes = np.bincount(of)
    sums = np.add.reduceat(columns, np.flatnonzero(np.diff(of, prepend=-1)))

    def fitted(ratio: float) -> tuple[Floats, Floats, Floats]:
        """The steps, the sums of squares of their columns, and the squares that they leave."""
        common = (1 - 1 / np.sqrt(1 + sizes * ratio)) / sizes
        whitened = columns - (common[:, None] * sums)[of]
        level, others = whitened[:, 0], whitened[:, 1:]
        others = others - np.outer(level, level @ others / (level @ level))
        rest, steps = others[:, 0], others[:, 1:]
        squares = (steps**2).sum(axis=0)
        changes = rest @ steps / squares
        return changes, squares, rest @ rest - changes**2 * squares

    changes, squares, left = fitted(variation.ratio)
    errors = np.sqrt(np.maximum(left / max(len(own) - 2, 1), variation.within) / squares)
    of_between = np.log(squares / fitted(MORE * variation.ratio)[1]) / math.log(MORE)
    degrees = 1 / (of_between**2 / variation.degrees_between + (1 - of_between) ** 2 / variation.degrees_within)
    return min(2 * cumulative(-t, each) for t, each in zip(np.abs(changes) / errors, degrees, strict=True))


def _variation(values: Floats, numbers: Integers, at: int, reach: int) -> _Variation | None:
    """The variation around a place, without the step there; None if sittings do not vary more than their runs do."""
    near = slice(max(0, at - reach), at + reach)
    own, of = values[near], numbers[near] - numbers[near][0]
    sizes = np.bincount(of)
    means = np.bincount(of, own) / sizes
    between, expected = np.diff(means), 1 / sizes[1:] + 1 / sizes[:-1]
    differs = np.abs(between) > ROUNDING
    is_stepped = not (differs[1:] & differs[:-1]).any()  # levels that last, and no odd sitting among equal ones
    if numbers[at] != numbers[at - 1]:
        judged = int(numbers[at - 1] - numbers[near][0])
        between, expected = np.delete(between, judged), np.delete(expected, judged)
    runs = np.diff(own)[np.diff(of) == 0]
    if len(between) < LEAST_BETWEEN or not len(runs):
        return None
    if is_stepped and float((np.abs(between) > ROUNDING).mean()) <= FEW:  # a coarse clock: no size to clip steps by
        return None
    of_differences = _mean_square(between)
    within = max(_mean_square(runs) / 2, 1e-6 * of_differences)
    if not of_differences:
        return None
    degrees_between, degrees_within = (DEGREES_A_DIFFERENCE * len(one) for one in (between, runs))
    by_runs = within * float(expected.mean())
    if math.log(of_differences / by_runs) <= BEYOND * math.sqrt(2 / degrees_between + 2 / degrees_within):
        return None
    return _Variation(
        within=within,
        ratio=(of_differences - by_runs) / 2 / within,
        degrees_within=degrees_within,
        degrees_between=degrees_between,
    )


def _mean_square(differences: Floats) -> float:
    limit = CLIP_SD * SIGMA_PER_MAD * float(np.median(np.abs(differences)))
    clipped = np.clip(differences, -limit, limit) if limit else differences
    return float((clipped**2).mean())
