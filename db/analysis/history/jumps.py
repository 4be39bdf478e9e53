"""Finds single steps in a history whose neighbouring values are alike, or that moves steadily besides.

The model of a window of runs: a level, a slope, one step, and noise of the first-order autoregressive kind. For each
place of the step, the correlation of neighbours is the one of highest restricted likelihood (Patterson and Thompson,
1971), so that it is estimated with the step in the model and not from a history that the step makes look correlated;
the values are then whitened with it (Prais and Winsten, 1954), and the step has a t statistic. In strongly correlated
noise, that statistic is the jump from one run to the next, in standard deviations of such jumps.

Works on logarithms, so a step is a ratio.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from benchmarking.core.student_t import cumulative

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

CORRELATIONS = (0.0, 0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Those that are tried."""
PARAMETERS = 3
"""Level, slope, step."""
FEWEST_RUNS = 12
"""For fewer, slope and correlation cannot be told from a step."""
RUNS_BESIDE = 2
RAMP_RUNS = (6, 8, 12, 20)
"""Lengths of the ramps that a step has to fit better than: one that takes so many runs is no step."""


@dataclass(frozen=True, slots=True)
class _Design:
    """The model for windows of one length, one row per correlation r and one column per place of the step."""

    whiten: Floats
    """[r, run, run]: takes correlation, level and slope out of the values."""
    steps: Floats
    """[r, run, place]: the steps after the same, each of length 1."""
    log_volume: Floats
    """[r, place]: the part of the log likelihood that does not depend on the values."""


def jumps(logs: Floats, window: int, largest_p: float) -> dict[int, float]:
    """The first run after each step whose p is at most `largest_p`, with that p; in windows that overlap by half."""
    last = max(0, len(logs) - window)
    found: dict[int, float] = {}
    for start in (*range(0, last, window // 2), last):
        _search(logs, start, min(len(logs), start + window), largest_p, found)
    return found


def _search(logs: Floats, start: int, end: int, largest_p: float, found: dict[int, float]) -> None:
    """Add the clearest step between start and end to `found`, then those on both sides of it."""
    count = end - start
    if count < FEWEST_RUNS:
        return
    values = logs[start:end] - logs[start:end].mean()
    squares = float(values @ values)
    if squares == 0:
        return
    design = _design(count)
    whitened = design.whiten @ values
    explained = np.einsum("rnk,rn->rk", design.steps, whitened) ** 2
    left = np.maximum((whitened**2).sum(axis=1)[:, None] - explained, 1e-12 * squares)
    degrees = count - PARAMETERS
    likeliest = (design.log_volume - degrees / 2 * np.log(left)).argmax(axis=0)
    places = np.arange(count - 1)
    squared_t = degrees * explained[likeliest, places] / left[likeliest, places]
    squared_t[: RUNS_BESIDE - 1] = squared_t[count - RUNS_BESIDE :] = 0
    best = int(squared_t.argmax())
    p_value = 2 * cumulative(-(float(squared_t[best]) ** 0.5), degrees)
    row = likeliest[best]
    if p_value > largest_p or _is_ramp(whitened[row], design.whiten[row], best + 1, explained[row, best]):
        return
    at = start + best + 1
    found[at] = min(p_value, found.get(at, 1.0))
    _search(logs, start, at, largest_p, found)
    _search(logs, at, end, largest_p, found)


def _is_ramp(whitened: Floats, whiten: Floats, at: int, explained: float) -> bool:
    """Whether a ramp around the place leaves less than the step does."""
    runs = np.arange(len(whitened))
    for length, shift in product(RAMP_RUNS, (-2, -1, 0, 1, 2)):
        ramp = whiten @ np.clip((runs + 0.5 - (at + shift - length / 2)) / length, 0.0, 1.0)
        if (ramp @ whitened) ** 2 > explained * (ramp @ ramp):
            return True
    return False


@lru_cache(maxsize=16)
def _design(count: int) -> _Design:
    runs = np.arange(count)
    base = np.column_stack([np.ones(count), (runs - runs.mean()) / count])
    after = (runs[:, None] >= runs[None, 1:]).astype(np.float64)
    whiten, steps, log_volume = [], [], []
    for correlation in CORRELATIONS:
        filtered = np.eye(count) - correlation * np.eye(count, k=-1)
        filtered[0, 0] = (1 - correlation**2) ** 0.5
        basis, triangle = np.linalg.qr(filtered @ base)
        filtered -= basis @ (basis.T @ filtered)
        step = filtered @ after
        lengths = np.maximum(np.sqrt((step**2).sum(axis=0)), 1e-9)
        whiten.append(filtered)
        steps.append(step / lengths)
        log_volume.append(0.5 * np.log(1 - correlation**2) - np.log(np.abs(np.diag(triangle))).sum() - np.log(lengths))
    return _Design(np.array(whiten), np.array(steps), np.array(log_volume))
