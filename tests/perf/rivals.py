"""Three change detection rules of other tools, written from their published descriptions.

Each takes the values of a history, lower is better, and returns the positions where it would report a regression.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ASV_DEGREES_PER_STEP = 4
ASV_THRESHOLD = 0.05
ASV_LEAST_SIZE = 2
PENALTIES = 12
"""Penalties tried, evenly on a logarithmic scale from 0.1 / n of the whole deviation to all of it."""
CONBENCH_RUNS = 100
CONBENCH_Z = 5.0


def previous_point(values: Floats) -> list[int]:
    """Slower than the run before by more than 5 %."""
    return [int(place) for place in 1 + np.flatnonzero(values[1:] > 1.05 * values[:-1])]


def conbench(values: Floats) -> list[int]:
    """The look-back z-score: above the mean of up to 100 runs before by more than 5 of their standard deviations."""
    found = []
    for place in range(2, len(values)):
        before = values[max(0, place - CONBENCH_RUNS) : place]
        if values[place] - before.mean() > CONBENCH_Z * before.std(ddof=1):
            found.append(place)
    return found


def asv(values: Floats) -> list[int]:
    """Upward steps of a piecewise constant fit by more than 5 % (and both pieces' mean deviations), not undone later.

    The fit has the least sum of absolute deviations plus a penalty a step. Among the fits of several penalties the one
    with the least 4 ln(n) / n a piece + ln(deviation) is taken, the deviations freed of what each takes from the one
    before it. A piece of a single run counts only where the level does not come back.
    """
    pieces = _fitted(values)
    found: list[int] = []
    best, best_error = pieces[-1].level, pieces[-1].error
    short: tuple[float, float] | None = None
    following = len(values)
    for piece in reversed(pieces):
        least = max(piece.error, best_error, ASV_THRESHOLD * piece.level)
        if best > piece.level + least:
            if piece.end - piece.start < ASV_LEAST_SIZE:
                short = best, best_error
            found.append(following)
            best, best_error = piece.level, piece.error
        elif short is not None:
            if short[0] <= piece.level + least:
                found.pop()
                best, best_error = short
            short = None
        following = piece.start
    return found[::-1]


RIVALS: Mapping[str, Callable[[Floats], list[int]]] = {
    "previous > 5 %": previous_point,
    "asv": asv,
    "conbench z > 5": conbench,
}
"""By the name the table has for them."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of the fit: values[start:end] lie around the level, `error` away on average."""

    start: int
    end: int
    level: float
    error: float


def _fitted(values: Floats) -> list[Piece]:
    deviations = _deviations(values)
    whole = float(deviations[0, len(values)]) or 1.0
    penalties = whole * np.geomspace(0.1 / len(values), 1.0, PENALTIES)
    fits = {tuple(_bounds(deviations, float(penalty))) for penalty in penalties}
    return min((_pieces(values, bounds) for bounds in sorted(fits)), key=lambda pieces: _criterion(values, pieces))


def _deviations(values: Floats) -> Floats:
    """[start, end] -> sum of absolute deviations of values[start:end] from their median."""
    count = len(values)
    table = np.zeros((count + 1, count + 1))
    for start in range(count):
        ordered: list[float] = []
        for end in range(start + 1, count + 1):
            ordered.insert(int(np.searchsorted(ordered, values[end - 1])), float(values[end - 1]))
            half = len(ordered) // 2
            table[start, end] = sum(ordered[-half:]) - sum(ordered[:half]) if half else 0.0
    return table


def _bounds(deviations: Floats, penalty: float) -> list[int]:
    """Ends of the pieces of the least penalised deviation, by dynamic programming over the last piece."""
    count = len(deviations) - 1
    cost = np.full(count + 1, -penalty)
    came_from = np.zeros(count + 1, dtype=int)
    for end in range(1, count + 1):
        costs = cost[:end] + penalty + deviations[:end, end]
        came_from[end] = int(np.argmin(costs))
        cost[end] = costs[came_from[end]]
    bounds = [count]
    while bounds[-1] > 0:
        bounds.append(int(came_from[bounds[-1]]))
    return bounds[-2::-1]


def _pieces(values: Floats, bounds: Sequence[int]) -> list[Piece]:
    pieces = []
    for start, end in zip((0, *bounds), bounds, strict=False):
        level = float(np.median(values[start:end]))
        pieces.append(Piece(start, end, level, float(np.abs(values[start:end] - level).mean())))
    return pieces


def _criterion(values: Floats, pieces: Sequence[Piece]) -> float:
    residuals = np.concatenate([values[piece.start : piece.end] - piece.level for piece in pieces])
    left = min(
        abs(residuals[0]) + float(np.abs(residuals[1:] - share * residuals[:-1]).sum())
        for share in np.linspace(-0.95, 0.95, 39)
    )
    levels = np.array([piece.level for piece in pieces])
    floor = 0.1 * np.abs(np.diff(levels)).min() if len(levels) > 2 else 0.001 * np.abs(levels).min()
    penalty = ASV_DEGREES_PER_STEP * math.log(len(values)) / len(values)
    return penalty * len(pieces) + math.log(max(float(floor) + left, 1e-300))
