"""Variation of a series between sessions without a change: the error term of sides that are not interleaved. Pure.

A session's value is x(t) = level + e(t) + walk(t): e has the variance s^2, which includes that of the launches, and the
random walk adds a step of variance w^2 from each session to the next, since machines drift. For m consecutive sessions,
the m - 1 differences have a tridiagonal Toeplitz covariance matrix, whose eigenvectors are sines: with u the sine
transform of the differences, u(j) is normal with the variance w^2 + 4 s^2 sin^2(pi j / 2 m). s^2 and w^2 / s^2 are
maximum likelihood estimates, except that the ratio is the largest one whose log-likelihood is at most 1 below the
maximum. This allows for a walk that a short history cannot exclude, which matters for sessions far apart.

The history is cut where its level changed (`history.detector`), since a change is not noise. Otherwise at most one
difference in ten is clipped, to 4 robust standard deviations: a disturbed session, or the change under test. More
outliers are a property of the series; clipping them would report a change for a third of all equal sides.

The degrees of freedom, found by simulation (`tests/perf/verdicts.py`), are fewer than the differences, since two values
are estimated and noise is not normal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from db.analysis.history.detector import change_places

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

MIN_SESSIONS = 5
"""With 4 differences, the interval is about ten times as wide as the scatter; with fewer it is useless."""
RATIOS = (0.0, *np.geomspace(0.002, 10.0, 40).tolist())
"""Ratios of w^2 to s^2 to try."""
LIKELIHOOD_DROP = 1.0
DEGREES_A_DIFFERENCE = 0.65
DEGREES_LESS = 0.5
CLIP_SD = 4.0
MAX_CLIPPED = 0.1
SD_OF_MEDIAN_ABSOLUTE = 1.4826
"""Standard deviation over the median absolute value, for normal values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionScatter:
    """The variation between sessions of a series, of logarithms of values: 0.0001 is a standard deviation of 1 %."""

    variance: float
    """s^2: variance of a single session."""
    walk: float
    """w^2: variance of the step from one session to the next."""
    degrees: float
    """Degrees of freedom of both."""
    sessions: int
    """Number of sessions it was estimated from."""


def session_scatter(histories: Iterable[Sequence[float]]) -> SessionScatter | None:
    """The variation between sessions, from stretches of consecutive sessions, oldest first, with positive values.

    None if the stretches have fewer than 4 differences between neighbours in total.
    """
    stretches = [part for history in histories for part in _levels([value for value in history if value > 0])]
    differences = [np.diff(np.log(np.asarray(part))) for part in stretches if len(part) > 1]
    count = sum(map(len, differences))
    if count < MIN_SESSIONS - 1:
        return None
    ratio, variance = _fit(_clipped(differences))
    return SessionScatter(
        variance=variance,
        walk=ratio * variance,
        degrees=DEGREES_A_DIFFERENCE * count - DEGREES_LESS,
        sessions=count + len(differences),
    )


def _levels(history: Sequence[float]) -> list[Sequence[float]]:
    """The history, cut where its level changed. The detector runs only if there is a large step."""
    if len(history) < MIN_SESSIONS:
        return [history]
    steps = np.abs(np.diff(np.log(np.asarray(history))))
    if steps.max() <= CLIP_SD * SD_OF_MEDIAN_ABSOLUTE * float(np.median(steps)):
        return [history]
    cuts = [0, *change_places(history), len(history)]
    return [history[start:end] for start, end in pairwise(cuts)]


def _clipped(differences: Sequence[Floats]) -> list[Floats]:
    """The differences, with a few outliers clipped."""
    sizes = np.abs(np.concatenate(differences))
    reach = CLIP_SD * SD_OF_MEDIAN_ABSOLUTE * float(np.median(sizes))
    far = int((sizes > reach).sum())
    if far > max(1.0, MAX_CLIPPED * len(sizes)) or reach == 0:
        return list(differences)
    return [np.clip(each, -reach, reach) for each in differences]


def _fit(differences: Sequence[Floats]) -> tuple[float, float]:
    """w^2 / s^2 and s^2."""
    squares = np.concatenate([(each @ _sines(len(each))) ** 2 for each in differences])
    waves = np.concatenate([_waves(len(each)) for each in differences])
    if not squares.any():
        return 0.0, 0.0
    scales = np.asarray(RATIOS)[:, None] + waves
    variances = (squares / scales).mean(axis=1)
    likelihoods = -0.5 * (len(squares) * np.log(variances) + np.log(scales).sum(axis=1))
    place = int(np.flatnonzero(likelihoods >= likelihoods.max() - LIKELIHOOD_DROP)[-1])
    return RATIOS[place], float(variances[place])


@cache
def _sines(count: int) -> Floats:
    """The eigenvectors, as columns, of the covariance of `count` differences."""
    place = np.arange(1, count + 1)
    vectors: Floats = math.sqrt(2 / (count + 1)) * np.sin(np.pi * np.outer(place, place) / (count + 1))
    return vectors


@cache
def _waves(count: int) -> Floats:
    """4 sin^2(pi j / 2 m): the eigenvalues of the differences of independent values of variance 1."""
    waves: Floats = 4 * np.sin(np.pi * np.arange(1, count + 1) / (2 * (count + 1))) ** 2
    return waves
