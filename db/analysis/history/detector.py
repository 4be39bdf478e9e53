"""Finds where the level of a history changed: split and merge with a t test, after the published Hunter method; and
whether its newest runs have a trend.

Fleming et al., "Hunter: Using Change Point Detection to Hunt for Performance Regressions" (ICPE 2023), uses the
statistic of E-divisive (Matteson and James, 2014) and replaces its permutation test with Student's t test. Here the
statistic has the exponent 2, which makes it the sum of squares between the two sides: suited to changes of level, and
computed in linear time. Additions prevent false alarms on histories without a change:

- values are clipped to their neighbourhood, so that single outliers neither create nor hide a change; values that many
  runs have are no outliers, but a level that comes and goes;
- values that resemble their neighbours count as fewer: with the correlation r of neighbouring residuals, the error of
  the difference grows by sqrt((1 + r) / (1 - r)), and the degrees of freedom shrink by the square of that;
- steps of one direction that a ramp explains as well, by the Bayesian information criterion, are no changes: what moves
  gradually is a trend (`find_trend`), and no run of it is to blame. A ramp that has ended is one change, between the
  last run before it and the first one after it;
- a step that stands out of a slope or of strongly correlated noise is found beside them (`jumps`);
- a change needs 2 points on either side, 2 % of the median, and separated points (see `superiority`);
- where runs of one sitting resemble each other more than those of two, a step between sittings has to exceed what
  sittings vary by (`sittings`);
- it is suspected until the next run confirms it.

A trend is a slow, steady movement: a verdict of its own, since no single run or commit is to blame for it. The newest
runs are fitted by a straight line. Runs of neighbouring nights resemble each other, which alone makes lines rise and
fall, so their correlation counts as above. A trend is reported if

- the slope is significant (t test, p at most 0.0001, in one of the windows),
- both halves move in its direction, and a straight line fits better than the best single step, and
- it amounts to 2 % over its window.

A walk whose neighbours hardly differ has too few degrees of freedom for either.

Both work on the logarithms of the values, so a change is a ratio. Pure: equal values give equal changes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from itertools import chain, pairwise, product
from typing import TYPE_CHECKING, Literal

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import Floats, np
from benchmarking.core.sample_statistics import MOST_LOG, neighbour_inflation
from benchmarking.core.student_t import cumulative
from benchmarking.core.verdicts.words import MIN_CHANGE, NEARLY_NONE
from db.analysis.history.sittings import p_between, sittings

if TYPE_CHECKING:
    from db.analysis.history.sittings import Times

CORRELATIONS = (0.0, 0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Those that are tried."""
FITTED = 3
"""What is fitted to a window with a step: its level, its slope and the step."""
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
    """The first run after each step whose p is at most `largest_p`, with that p; in windows that overlap by half.

    The model of a window: a level, a slope, one step, and noise of the first-order autoregressive kind. For each place
    of the step, the correlation of neighbours is the one of highest restricted likelihood (Patterson and Thompson,
    1971), so that it is estimated with the step in the model and not from a history that the step makes look
    correlated; the values are then whitened with it (Prais and Winsten, 1954), and the step has a t statistic. In
    strongly correlated noise, that is the jump from one run to the next, in standard deviations of such jumps.
    """
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
    degrees = count - FITTED
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


NAME = "split-merge-t"
VERSION = "7"
"""Increased whenever the same values and parameters give different changes."""
CLIP_WIDTH = 7
CLIP_REACH = CLIP_WIDTH // 2
SD_OF_RESIDUALS = 1.815
"""Standard deviation over the median absolute residual from a rolling median of 7, for normal values: by simulation, to
three digits. (1.4826 would be for residuals from a fixed median; here every seventh residual is 0.)"""
LEAST_FOR_CORRELATION = 10
PARAMETERS_OF_A_RAMP = 4
"""Two levels, the first run and the last. Each step has its place and its level."""
MOST_ENDS = 40
"""Places that are tried for either end of a ramp."""
ENDED = 2.0
"""Times the logarithm of the number of runs by which a ramp that has ended must fit better than one that goes on."""
State = Literal["suspected", "confirmed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Conditions of a change, stored with each change found."""

    p_value: float = 1e-4
    """Maximum p of the t test between the segments on either side."""
    split_p_value: float = 1e-3
    """Maximum p of a candidate: looser, since other changes in its window may hide it; merging tests all candidates
    again."""
    hidden_p_value: float = 1e-6
    """Maximum p of a candidate on one side of a place that failed: stricter, since many places are tested."""
    window: int = 60
    """Points in a search window, and the maximum on either side in a test: older points are not relevant."""
    clip_sd: float = 3.0
    """Maximum distance of a value from the rolling median, in robust standard deviations."""
    most_clipped: float = 0.125
    """Maximum share of values that are clipped: what more runs have is a level that comes and goes, and clipping it to
    the level of its neighbours would make changes of it."""
    points_beside: int = 2
    """Minimum points on either side."""
    jump_p_value: float = 1e-6
    """Maximum p of a step beside a slope and correlated noise: strict, since every place is tested, with a correlation
    that is estimated from a few dozen runs."""
    near: int = 30
    """Points on either side from which medians and superiority are computed, so that later values, such as a short
    return to the old level, do not undo a change."""
    near_jump: int = 10
    """The same for a step that stands out of a slope or of correlated noise, which move the further values."""
    least_change: float = 0.02
    """Minimum change of the median, as a fraction."""
    superiority: float = 0.9
    """Minimum probability that a value of the higher side exceeds one of the lower side."""
    ramp: int = 6
    """Minimum runs that a ramp takes; a shorter one is a step."""
    ramp_p_value: float = 1e-10
    """Maximum p of the levels beside a ramp that has ended: strict, since what wanders moves steadily for a while."""
    shift: int = 2
    """Points by which a change may move after a new run and still be the same change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of level."""

    index: int
    """Index of the first value after the change."""
    last_before: int
    """Index of the last value before it: the one before `index`, but for a ramp."""
    value_before: float
    """Median of the nearby values before, in their unit."""
    value_after: float
    p_value: float
    state: State

    @property
    def relative_change(self) -> float:
        """After / before - 1; infinite if nothing was there before."""
        return self.value_after / self.value_before - 1 if self.value_before else math.inf


PARAMETERS = Parameters()


def detect(values: Sequence[float], times: Times = ()) -> tuple[Change, ...]:
    """The changes of a history with one value per run, oldest first; `times` are the starts of the runs, if known.

    A change is confirmed if the history without its newest value has it too, otherwise suspected. Raises ValueError for
    a value that is negative or not finite.
    """
    logs = _logarithms(values)
    detected = _detected_sides(logs, times)
    earlier = _detected_sides(logs[:-1], times[:-1]) if detected else {}
    array = np.asarray(values, dtype=np.float64)
    changes = []
    for sides, p_value in detected.items():
        before, after = (float(np.median(nearby)) for nearby in sides.near(array))
        is_confirmed = any(
            one.since - sides.at <= PARAMETERS.shift and sides.since - one.at <= PARAMETERS.shift for one in earlier
        )
        changes.append(
            Change(
                index=sides.at,
                last_before=sides.since - 1,
                value_before=before,
                value_after=after,
                p_value=p_value,
                state="confirmed" if is_confirmed else "suspected",
            )
        )
    return tuple(changes)


def change_indices(values: Sequence[float]) -> tuple[int, ...]:
    """The index of each change that `detect` finds. Leaves out the state, which would double the time."""
    return tuple(sides.at for sides in _detected_sides(_logarithms(values), ()))


def winsorised(logs: Floats) -> Floats:
    """The values clipped to the rolling median of 7 plus and minus 3 robust standard deviations, or further where those
    would be more than an eighth of the values.

    The newest three have an incomplete window, in which the first runs after a step are the odd ones: they may instead
    be near the median of the values after them, and the newest value near the one before it. A single odd run at the
    end is clipped like any other: its square would hide every change before it.
    """
    # The median of the 7 values around each value; fewer at the ends.
    padded = np.full(len(logs) + 2 * CLIP_REACH, np.nan)
    padded[CLIP_REACH : CLIP_REACH + len(logs)] = logs
    ordered = np.sort(np.lib.stride_tricks.sliding_window_view(padded, CLIP_WIDTH), axis=1)  # NaN comes last
    counts = CLIP_WIDTH - np.isnan(ordered).sum(axis=1)
    rows = np.arange(len(logs))
    middle: Floats = (ordered[rows, (counts - 1) // 2] + ordered[rows, counts // 2]) / 2
    residuals = np.abs(logs - middle)
    reach = PARAMETERS.clip_sd * SD_OF_RESIDUALS * float(np.median(residuals))
    reach = max(reach, float(np.quantile(residuals, 1 - PARAMETERS.most_clipped, method="lower")))
    low, high = middle.copy(), middle.copy()
    for index in range(max(0, len(logs) - CLIP_REACH), len(logs)):
        following = np.median(logs[index + 1 :]) if index + 1 < len(logs) else logs[-2]
        low[index], high[index] = min(low[index], following), max(high[index], following)
    return np.clip(logs, low - reach, high + reach)


def superiority(before: Floats, after: Floats) -> float:
    """Probability that a value of one side exceeds one of the other; ties count half. 0.5 for equal sides, 1 for
    separate ones."""
    rises = float(np.sign(after[:, None] - before[None, :]).mean())
    return (1 + abs(rises)) / 2


@dataclass(frozen=True, slots=True)
class _Sides:
    """A candidate with its two segments: start <= before < since <= at <= after < end."""

    start: int
    since: int
    """Equal to `at` for a step; the runs between them are those of a ramp."""
    at: int
    end: int
    reach: int
    """Runs on either side that are nearby."""

    def near(self, values: Floats) -> tuple[Floats, Floats]:
        """The nearby values before it and after it."""
        start, end = max(self.start, self.since - self.reach), min(self.end, self.at + self.reach)
        return values[start : self.since], values[self.at : end]


def _logarithms(values: Sequence[float]) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if not (np.isfinite(array) & (array >= 0)).all():
        raise ValueError("the values of a history must be finite and not negative")
    if not array.all():
        array = np.where(array > 0, array, NEARLY_NONE * array.min(where=array > 0, initial=array.max() or 1.0))
    return np.log(array)


def _detected_sides(logs: Floats, times: Times) -> dict[_Sides, float]:
    """The changes in order, each with its p-value."""
    count = len(logs)
    of_sittings = sittings(times) if len(times) else None
    if count < 2 * PARAMETERS.points_beside:
        return {}
    clipped = winsorised(logs)
    stepped = jumps(clipped, PARAMETERS.window, PARAMETERS.jump_p_value)
    candidates = set(stepped)
    last = max(0, count - PARAMETERS.window)
    for start in (*range(0, last, PARAMETERS.window // 2), last):  # windows that overlap by half
        candidates.update(_split(clipped, start, min(count, start + PARAMETERS.window)))

    # Drop the weakest candidate, merging its segments, until all remaining ones pass.
    bounds = [0, *sorted(candidates), count]
    tested: dict[_Sides, tuple[bool, float]] = {}
    while True:
        segments = []
        for start, at, end in zip(bounds, bounds[1:], bounds[2:], strict=False):
            start, end = max(start, at - PARAMETERS.window), min(end, at + PARAMETERS.window)
            sides = _Sides(start, at, at, end, PARAMETERS.near_jump if at in stepped else PARAMETERS.near)
            segments.append(sides)
            if sides not in tested:
                p_value = _p_value(clipped[start:at], clipped[at:end], are_neighbours_alike=True)
                p_value = min(p_value, stepped.get(at, 1.0))
                if of_sittings is not None and p_value <= PARAMETERS.p_value:
                    reach, shift = PARAMETERS.window, PARAMETERS.shift
                    p_value = max(p_value, p_between(clipped, of_sittings, start, at, end, reach, shift))
                tested[sides] = _is_no_change(sides, logs, clipped, p_value), p_value
        weakest = max(segments, key=tested.__getitem__, default=None)
        if weakest is None or not tested[weakest][0]:
            dropped = candidates.difference(bounds)
            return _with_ramps(logs, clipped, {sides: tested[sides][1] for sides in segments}, stepped, dropped)
        bounds.remove(weakest.at)


def _is_no_change(sides: _Sides, logs: Floats, clipped: Floats, p_value: float) -> bool:
    before, after = sides.near(logs)
    return bool(
        p_value > PARAMETERS.p_value
        or min(len(before), len(after)) < PARAMETERS.points_beside
        or abs(np.expm1(np.median(after) - np.median(before))) < PARAMETERS.least_change
        or superiority(*sides.near(clipped)) < PARAMETERS.superiority
    )


def _split(clipped: Floats, start: int, end: int) -> list[int]:
    """Candidates between start and end, in order: the best place, if it passes the test, and those on both sides.

    A rise and a following fall hide each other, since no single step fits well. So if the best place fails, both of its
    sides are searched with a stricter test, and then the ranges between the candidates found.
    """
    index, p_value = _best_split(clipped, start, end)
    if p_value <= PARAMETERS.split_p_value:
        return [*_split(clipped, start, index), index, *_split(clipped, index, end)]
    hidden = [*_hidden(clipped, start, index), *_hidden(clipped, index, end)]
    between = [_hidden(clipped, *bounds) for bounds in pairwise((start, *hidden, end))] if hidden else []
    return sorted([*hidden, *chain.from_iterable(between)])


def _hidden(clipped: Floats, start: int, end: int) -> list[int]:
    """Candidates by the stricter test, in order."""
    index, p_value = _best_split(clipped, start, end)
    if p_value > PARAMETERS.hidden_p_value:
        return []
    return [*_hidden(clipped, start, index), index, *_hidden(clipped, index, end)]


def _best_split(clipped: Floats, start: int, end: int) -> tuple[int, float]:
    """The place where the sum of squares between the two sides, n m / (n + m) (mean before - mean after)^2, is largest;
    and its p."""
    count = end - start
    if count < 2 * PARAMETERS.points_beside:
        return start, 1.0
    values = clipped[start:end]
    before = np.arange(1, count)
    sums = np.cumsum(values - values.mean())[:-1]
    # The sums before and after a place are opposite, so the difference of means is sum * count / (before * after).
    offset = 1 + int(np.argmax(sums**2 / (before * (count - before))))
    return start + offset, _p_value(values[:offset], values[offset:])


def _p_value(before: Floats, after: Floats, *, are_neighbours_alike: bool = False) -> float:
    """Of Student's t test with a common variance, since a side may have only two points.

    Optionally, the correlation of neighbouring residuals counts: corrected for its bias in short series, and reduced by
    one standard error, so that independent values hardly ever count as correlated.
    """
    n, m = len(before), len(after)
    difference = float(after.mean() - before.mean())
    residuals = np.concatenate((before - before.mean(), after - after.mean()))
    squares = float(residuals @ residuals)
    if squares == 0:
        return 1.0 if difference == 0 else 0.0
    inflation, count = 1.0, n + m
    if are_neighbours_alike and count >= LEAST_FOR_CORRELATION:
        inflation = neighbour_inflation(residuals, error=1 / math.sqrt(count))
    degrees = max(1.0, count / inflation - 2)
    t = difference / (squares / (count - 2) * (1 / n + 1 / m) * inflation) ** 0.5
    return 2 * cumulative(-abs(t), degrees)


def _with_ramps(
    logs: Floats,
    clipped: Floats,
    found: dict[_Sides, float],
    stepped: Mapping[int, float],
    dropped: Collection[int],
) -> dict[_Sides, float]:
    """The changes, with one ramp in place of neighbours of one direction that a ramp between two levels explains better
    than their steps, by the Bayesian information criterion: of several such groups the longest goes first. A ramp that
    goes on is a trend and no change. Where candidates were dropped, since no step fits well, a ramp may.

    Jumps stay, since they are clear beside any slope; the others are judged on the history without them.
    """
    kept = sorted(found, key=lambda sides: sides.at)
    levelled, runs = clipped.copy(), np.arange(len(clipped))
    for sides in kept:
        if sides.at in stepped or sides.since < sides.at:
            before, after = sides.near(clipped)
            share = np.clip((runs + 0.5 - sides.since) / max(sides.at - sides.since, 1e-9), 0.0, 1.0)
            levelled -= share * (np.median(after) - np.median(before))
    slow = [sides for sides in kept if sides.at not in stepped and sides.since == sides.at]
    bounds = [0, *(sides.at for sides in slow), len(levelled)]
    levels = [float(levelled[start:end].mean()) for start, end in pairwise(bounds)]
    rises = [after > before for before, after in pairwise(levels)]
    groups = [
        bounds[first : first + length + 2]
        for length in range(len(slow), 0, -1)
        for first in range(len(slow) - length + 1)
        if len(set(rises[first : first + length])) == 1
    ]
    for start, end in pairwise(bounds):
        if any(start < at < end for at in dropped):
            groups.append([start, _best_split(levelled, start, end)[0], end])
    for start, *steps, end in groups:
        start, end = max(start, steps[0] - PARAMETERS.window), min(end, steps[-1] + PARAMETERS.window)
        values, count = levelled[start:end], end - start
        if count < 2 * PARAMETERS.ramp:
            continue
        sides_of_steps = np.split(values, [at - start for at in steps])
        by_steps = sum(float(((side - side.mean()) ** 2).sum()) for side in sides_of_steps)
        least = 1e-9 * float(((values - values.mean()) ** 2).sum())
        left, going_on, since, at = _best_ramp(values)
        gain = count * np.log((by_steps + least) / (left + least))
        if gain + (2 * len(steps) + 1 - PARAMETERS_OF_A_RAMP) * np.log(count) <= 0:
            continue
        since, at = max(since, PARAMETERS.points_beside), min(at, count - PARAMETERS.points_beside)
        ramp = _Sides(start, start + since, start + at, end, PARAMETERS.near)
        p_value = _p_value(values[:since], values[at:], are_neighbours_alike=True)
        has_ended = count * np.log((going_on + least) / (left + least)) > ENDED * np.log(count)
        is_sure = has_ended and p_value <= PARAMETERS.ramp_p_value
        replaced = [sides for sides in slow if sides.at in steps]
        rest = {sides: found[sides] for sides in kept if sides not in replaced}
        # What is left of a ramp beside its levels would be one more in its place.
        is_known = any(one.at == ramp.at or max(one.since, ramp.since) < min(one.at, ramp.at) for one in rest)
        is_change = is_sure and not is_known and not _is_no_change(ramp, logs, clipped, p_value)
        if not replaced and not is_change:
            continue
        if is_change:
            rest[ramp] = p_value
        further = [at for at in dropped if not start <= at < end]
        return _with_ramps(logs, clipped, rest, stepped, further)
    return {sides: found[sides] for sides in kept}


def _best_ramp(values: Floats) -> tuple[float, float, int, int]:
    """The sum of squares that the best ramp leaves, and the best of those that go on to the end; the first run of the
    former, and the first one after it."""
    count = len(values)
    grid = np.unique(np.linspace(0, count, min(count, MOST_ENDS) + 1).round())
    starts, ends = (each.ravel() for each in np.meshgrid(grid, grid, indexing="ij"))
    is_long = ends - starts >= PARAMETERS.ramp
    starts, ends = starts[is_long, None], ends[is_long, None]
    ramps = np.clip((np.arange(count) + 0.5 - starts) / (ends - starts), 0.0, 1.0)
    ramps -= ramps.mean(axis=1, keepdims=True)
    centred = values - values.mean()
    explained = (ramps @ centred) ** 2 / np.maximum((ramps**2).sum(axis=1), 1e-12)
    left, best = np.maximum(float(centred @ centred) - explained, 0.0), int(explained.argmax())
    return float(left[best]), float(left[ends[:, 0] == count].min()), int(starts[best, 0]), int(ends[best, 0])


TREND_WINDOWS = (60, 40, 30, 20)
"""Numbers of newest runs to look at: a trend may have begun recently. With fewer runs than the last there is none."""
MAX_TREND_P = 0.0001
LEAST_DEGREES = 8.0
"""With fewer independent pieces of evidence, a walk looks like a trend (docs/judging.md has how often it does)."""
RAMP_WINDOW, LEAST_RAMP = 30, 6
"""Newest runs that the beginning of a movement is fitted to, and runs that it takes at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """A steady movement."""

    per_run: float
    """Relative change from one run to the next: 0.002 is 0.2 % more each time."""
    runs: int
    """Runs of the window."""
    change: float
    """Relative change over the window."""
    p_value: float


def find_trend(values: Sequence[float]) -> Trend | None:
    """The trend of the newest runs, given oldest first; None without one. The longest window counts."""
    logs = _logarithms(values)
    for n in dict.fromkeys(min(window, len(logs)) for window in TREND_WINDOWS):
        if n < TREND_WINDOWS[-1]:
            break
        x, places = logs[-n:], np.arange(n) - (n - 1) / 2
        slope = float(places @ x / (places @ places))
        change = math.expm1(min(slope * (n - 1), MOST_LOG))
        if abs(change) < MIN_CHANGE:
            continue
        residuals = x - x.mean() - slope * places
        squares = float(residuals @ residuals)
        if squares <= 1e-18 * n:
            return Trend(per_run=math.expm1(slope), runs=n, change=change, p_value=0.0)
        inflation = neighbour_inflation(residuals, error=-1 / math.sqrt(n))  # a line flattens what wanders
        degrees = n / inflation - 2
        before, sums = np.arange(1, n), np.cumsum(x - x.mean())[:-1]
        explained = float((sums**2 * n / (before * (n - before))).max())  # by the best single step
        if degrees < LEAST_DEGREES or squares >= float(((x - x.mean()) ** 2).sum()) - explained:
            continue
        halves = (x[: n // 2], x[n // 2 :])
        if any(float((np.arange(len(half)) - (len(half) - 1) / 2) @ half) * slope <= 0 for half in halves):
            continue
        error = math.sqrt(squares / (n - 2) / float(places @ places) * inflation)
        p_value = 2 * cumulative(-abs(slope) / error, degrees)
        if p_value <= MAX_TREND_P:
            return Trend(per_run=math.expm1(slope), runs=n, change=change, p_value=p_value)
    return None


def has_begun_to_move(values: Sequence[float], newest: int) -> tuple[float, float, float]:
    """How clearly the values rose before the newest ones (negative: fell), in standard errors: the best fit of a level
    followed by a ramp, which begins at any run but the last few. Then what the ramp lets expect of the newest value, if
    it goes on, and its standard error. The values are in units of their standard deviation.

    What is already on its way up when it crosses a limit is a trend: the run that crossed it is not to blame, unless it
    is far beyond the ramp.
    """
    x = np.asarray(values, dtype=np.float64)[: len(values) - newest][-RAMP_WINDOW:]
    n = len(x)
    if n < RAMP_WINDOW // 2:
        return 0.0, 0.0, math.inf
    ramps = np.maximum(0, np.arange(n)[None, :] - np.arange(n - LEAST_RAMP)[:, None]).astype(np.float64)
    means = ramps.mean(axis=1, keepdims=True)
    ramps -= means
    lengths = np.sqrt((ramps**2).sum(axis=1))
    errors = ramps @ x / lengths
    best = int(np.argmax(np.abs(errors)))
    ahead = (n - 1 + newest - best - float(means[best, 0])) / float(lengths[best])  # of the newest value, in errors
    return float(errors[best]), float(x.mean() + ahead * errors[best]), math.sqrt(1 + 1 / n + ahead**2)
