"""The prediction of a night (a session) of many series from the nights before it, and what lies beyond it. Pure.

For each series, the deviation of each night from its level is divided by its variation; T of a night is the largest
score of all series. The newest night is beyond the prediction if its T is among the largest `false_alarms` share of all
nights, itself included: of 39 nights and itself, if it is among the two largest (with a share of 5 %). Sessions that
are much closer in time than others, and alike, are one night. That is a conformal prediction (Vovk, Gammerman and
Shafer 2005; Lei et al. 2018). It needs no distribution of the noise, and no independence of the series: if the order of
the nights does not matter, the share of nights with a false alarm is the stated one, whatever modes, tails or
disturbances the nights have, since the past has had them, too. It is the share of nights, not of series, so many series
do not raise more alarms. Below 1 / `false_alarms` nights, the largest T of the past is extended, by the factor by which
normal scores would grow; the share is then up to 9 %.

The score of a series: the level is the one of four predictors that has predicted the series' past best, one night ahead
(mean; median; and exponential smoothing, where nights resemble their neighbours), with an addition for the weekday or
the hour if that has improved the prediction. Mean and median are taken over all nights, which keeps the order of the
nights irrelevant; smoothing uses the nights before. The variation of a series is that of its other nights, shrunk
towards that of all series (an empirical Bayes prior: Smyth 2004), since twenty nights alone tell little. If noisy
nights follow noisy nights, it is that of the nights before, of which recent ones count more: the first night of a noisy
week then stands out as much as those of earlier noisy weeks did. If all series become noisier over the nights,
deviations are divided by the variation that the series had in common just before. If nights resemble their neighbours
and many are missing before the newest one, it is judged as the past nights are by those as far before them, with a
higher limit; and a series whose last nights do not count, such as those of an alarm, is allowed to be as much further
off as its past nights are from the level of as many nights before. A night counts by itself and, to find smaller
changes, together with the one and the two before it. A series with a trend (`history.detector`) is predicted by its
line; if that is one for the better, which may have ended, it is worse only if it is also beyond its last nights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from statistics import NormalDist

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import Floats, np
from benchmarking.core.verdicts.judging import resolution
from benchmarking.core.verdicts.sessions import SITTING
from benchmarking.core.verdicts.words import MIN_CHANGE
from db.analysis.history.detector import Trend, find_trend, has_begun_to_move

TOGETHER = (1, 2, 3)
"""Numbers of newest nights that are judged as one."""
LEAST_SCALE = MIN_CHANGE / 10
"""Least variation of a series: smaller ones matter to nobody, and would make a coarse clock's last digit an outlier."""
SAME_WAVE = 1.6
"""Factor of the limit of a confirmation where nights resemble their neighbours: measured again, the machine is
still in the wave that raised the alarm, so the fresh session is hardly a second witness."""
MOST_A_SERIES = 1 / 2
"""Maximum share of the false alarms that a single series takes: few series do not need all of them."""
LEAST_OF_NORMAL = 0.6
"""Least limit, as a share of that of normal scores. On a machine that becomes quiet, all nights may have been better
than predicted; one that is no better any more is not beyond what the past lets expect."""
ENDED = 5
"""Newest nights by whose level a trend for the better may have ended."""
LARGEST = 700.0
"""Logarithm of nearly the largest number."""
BEGUN = 2.4
"""Standard errors from which a series counts as already on its way before the newest nights."""
SMOOTHING = (0.3, 0.7)
GAIN = 0.03
"""By how much a predictor with a parameter must improve on mean and median, as a logarithm of the error."""
FIRST = 4
"""Nights before the first one that is predicted, when predictors are compared."""
HOURS_ALIKE = 4.0
"""Hours of the day this far apart tell nothing about each other."""
LEAST_PAIRS = 10
NOISY_TIMES = 3.0
"""Standard errors of the correlation of neighbouring nights' sizes from which series have noisy times."""
RECENT = 0.8
"""Factor by which a night counts less than the one after it, where series have noisy times."""
RECENT_PRIOR = 1.0
"""Weight of the variation of all series there, in nights."""
LONG_GAP, MOST_OF_A_GAP, LONGEST_GAP = 4.0, 3, 2
"""Ratio of a step in time to the mean one from which nights are missing. The history shows how far series wander in up
to a third of its nights; beyond, as far as random walks do, up to twice the nights of the history: runs that were
measured within minutes do not show what a day does."""
SAME_NIGHT = 1 / 8
"""Ratio of a step in time to the mean one up to which two sessions may be of one night."""
ENOUGH_SERIES = 0.8
"""Share of the newest night's number of series from which the largest score of another night is one of as many."""
LEAST_NIGHTS = 2
"""Nights before the newest one without which sessions count one by one."""
LEAST_COURSE = 0.01
"""Least share of the usual variance that all series have in common on a night."""
MOST_PRIOR = 100.0
"""Maximum weight of the variation of all series, in nights."""
LEAST_SERIES = 5
"""Minimum series for a prior."""
FAR_OFF, LEAST_OTHERS = 5.0, 8
"""A night that is further off than this many times the variation of the rest is not part of it, if they are so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """What a session measured for a series."""

    session: str
    value: float
    """Above 0, in the metric's unit."""
    time: datetime | None = None
    """Start in UTC; None if it is unknown, then neither weekday nor hour are used."""
    launches: int | None = None
    """Launches that it measured, and timed calls of all of them; None if that is not known."""
    calls: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A series to be predicted."""

    past: tuple[Night, ...]
    """Oldest first."""
    newest: Night | None
    """None if it was not measured: the series then only contributes its past."""
    rise_is_worse: bool = True
    is_simulated: bool = False
    """Whether its values are exact, however few digits they have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """The newest night of a series against its prediction; values are in the metric's unit."""

    centre: float
    low: float
    """Ends of the prediction interval of one night, for all series of the night together."""
    high: float
    is_worse: bool = False
    """Whether the newest nights lie beyond it on the side that is worse, by themselves or together."""
    is_better: bool = False
    together: int = 1
    """Number of newest nights that lie beyond it together."""
    trend: Trend | None = None
    is_gradual: bool = False
    """Whether it got there gradually rather than by a step."""


def outlooks(
    series: Sequence[Series], false_alarms: float, together: Sequence[int] = TOGETHER, *, is_confirmation: bool = False
) -> list[Outlook | None]:
    """The outlook of each series; None for one without a newest night. Each series has at least two past nights.

    `false_alarms` is the share of nights on which any series is worse than predicted without a change; the same holds
    for better ones. For a confirmation, the newest night is a fresh session after an alarm.
    """
    if not series:
        return []
    signs = np.array([1.0 if one.rise_is_worse else -1.0 for one in series])
    values, times = _matrix(series)
    trends = [find_trend(np.exp(row[~np.isnan(row)]).tolist()) for row in values]
    values *= signs[:, None]  # from here on, higher is worse
    above = np.zeros(len(series))  # the line of a trend: how far its level is, if it has ended
    for row, trend in enumerate(trends):
        if trend is not None:
            nights_ago, per_night = np.arange(1 - values.shape[1], 1), signs[row] * math.log1p(trend.per_run)
            latest = values[row, :-1][~np.isnan(values[row, :-1])][-ENDED:]
            values[row] -= per_night * nights_ago
            if per_night < 0:
                above[row] = max(0.0, float(np.median(latest) - np.nanmedian(values[row, :-1])))
    measured = [[night.value for night in (*one.past, one.newest) if night is not None] for one in series]
    rounding = np.array(
        [
            [0.0 if one.is_simulated else resolution(each, each) / math.sqrt(12)]
            for one, each in zip(series, measured, strict=True)
        ]
    )
    rougher = np.array([_rougher(one) for one in series])
    name, levels, scores, scales = _scores(values, times, together, rounding, rougher)
    share = min(false_alarms, false_alarms * MOST_A_SERIES * len(series))
    nights_of = _nights_of(values, times)
    worst, best = np.fmax.reduce(scores), np.fmax.reduce([-score for score in scores])
    missing = min(_nights_missing(times)[-1], LONGEST_GAP * len(times)) if name in SMOOTHING_NAMES else 0
    same_wave = SAME_WAVE if name in SMOOTHING_NAMES and (is_confirmation or missing) else 1.0
    same_wave *= math.sqrt((1 + missing) / (1 + min(missing, len(times) // MOST_OF_A_GAP)))
    most = (
        same_wave * _limit(_of_nights(worst, nights_of), share, len(series)),
        same_wave * _limit(_of_nights(best, nights_of), share, len(series)),
    )
    found: list[Outlook | None] = []
    for row, one in enumerate(series):
        if one.newest is None:
            found.append(None)
            continue
        # The level of the scores includes the newest night itself, which moves it by a share of one night.
        nights = int((~np.isnan(values[row])).sum())
        reach = scales[0][row] * nights / (nights - 1)
        ends = signs[row] * (levels[row] + np.array([above[row] + reach * most[0], -reach * most[1]]))
        beyond = [
            (count, bool(each[row, -1] > most[0] + above[row] / scale[row]), bool(-each[row, -1] > most[1]))
            for count, each, scale in zip(together, scores, scales, strict=False)  # fewer after a long gap
        ]
        found.append(
            Outlook(
                centre=math.exp(signs[row] * (levels[row] + above[row])),
                low=math.exp(max(float(ends.min()), -LARGEST)),
                high=math.exp(min(float(ends.max()), LARGEST)),
                is_worse=any(is_worse for _, is_worse, _ in beyond),
                is_better=any(is_better for _, _, is_better in beyond),
                together=next((count for count, *sides in beyond if any(sides)), 1),
                trend=trends[row],
                is_gradual=name not in SMOOTHING_NAMES and _is_gradual(values[row], levels[row], scales[0][row], most),
            )
        )
    return found


def _rougher(series: Series) -> float:
    """By what factor the newest night may vary more than those before it, since it has fewer launches or calls than
    they had: by as much as if all of the variation were that of launches, or of calls. How much is, is not known."""
    ratios = [1.0]
    for name in ("launches", "calls"):
        newest = None if series.newest is None else getattr(series.newest, name)
        past = [1 / count for night in series.past if (count := getattr(night, name))]
        if newest and past:
            ratios.append(len(past) / newest / sum(past))
    return math.sqrt(max(ratios))


def _is_gradual(values: Floats, level: float, scale: float, most: tuple[float, float]) -> bool:
    """Whether the newest night is on the way of those before it, and no further along than it would lead, by the limits
    of the two sides."""
    known, newest = (values[~np.isnan(values)] - level) / scale, max(TOGETHER)
    is_far = np.abs(known) > FAR_OFF  # a night far off is no movement, and would look like one
    is_far[-newest:] = False
    begun, expected, error = has_begun_to_move(known[~is_far].tolist(), newest)
    is_on_its_way = abs(begun) > BEGUN and (begun > 0) == (known[-1] > 0)
    beyond = (known[-1] - expected) * math.copysign(1, begun)
    return is_on_its_way and bool(beyond <= most[0 if begun > 0 else 1] * error)


def _matrix(series: Sequence[Series]) -> tuple[Floats, list[datetime | None]]:
    """The logarithms, a row per series and a column per night, the newest last; NaN where a series was not measured.

    Sessions that measured different series are one night, as when each model has a command of its own.
    """
    order: dict[str, tuple[datetime, int]] = {}
    members: dict[str, set[int]] = {}
    for row, one in enumerate(series):
        for place, night in enumerate(one.past):
            when = night.time or datetime.min
            order[night.session] = min(order.get(night.session, (when, place)), (when, place))
            members.setdefault(night.session, set()).add(row)
    columns: dict[str, int] = {}
    times: list[datetime | None] = []
    measured: set[int] = set()
    for session in sorted(order, key=order.__getitem__):
        if not times or measured & members[session]:
            times.append(None if order[session][0] == datetime.min else order[session][0])
            measured = set()
        measured |= members[session]
        columns[session] = len(times) - 1
    values = np.full((len(series), len(times) + 1), np.nan)
    for row, one in enumerate(series):
        for night in one.past:
            values[row, columns[night.session]] = math.log(night.value)
        if one.newest is not None:
            values[row, -1] = math.log(one.newest.value)
    newest = [one.newest.time for one in series if one.newest is not None and one.newest.time is not None]
    return values, [*times, min(newest, default=None)]


def _scores(
    values: Floats, times: Sequence[datetime | None], together: Sequence[int], rounding: Floats, rougher: Floats
) -> tuple[str, Floats, list[Floats], list[Floats]]:
    """The predictor; the level of each series on the newest night; its score on each night, by itself and together with
    those before; and the scale of each: the deviation that has the score 1 on the newest night. `rounding` is the
    deviation that the steps of its clock give each series at least, and `rougher` the factor by which its newest night
    may vary more."""
    name, ahead, levels = _best_predictor(values, times)
    count = values.shape[1]
    scores, scales = [], []
    is_changing = is_moving = False
    is_smoothed = name in SMOOTHING_NAMES
    further = _further(values, ahead) if is_smoothed else np.ones(len(values))
    missing = _nights_missing(times) if is_smoothed else [0]
    if any(missing[-max(TOGETHER) :]):
        together = together[:1]
    if away := min(missing[-1], count // MOST_OF_A_GAP):
        # The newest night is predicted from further away than a night, so the past has to be, too.
        ahead = np.hstack((np.full_like(ahead[:, :away], np.nan), ahead[:, : -away - 1], ahead[:, -1:]))
    for nights in together:
        deviations = np.full_like(values, np.nan)
        if count > nights:
            latest = _together(values, nights)
            expected = ahead[:, : count - nights + 1] if is_smoothed else _together(levels, nights)
            deviations[:, nights - 1 :] = latest - expected
        factor = np.sqrt((rougher**2 + nights - 1) / nights)
        deviations[:, -1] /= factor  # then it is as exact as the others, whose variation it shares
        if nights == 1:
            is_moving = _become_noisier(deviations[:, :-1])
            is_changing = not is_moving and _has_noisy_times(deviations[:, :-1])
        if is_changing:
            scale = _recent_scale(deviations)
        else:
            course = _course(deviations) if is_moving else 1.0
            scale = _scale(deviations / course, not is_smoothed) * course
        # A clock that has always shown the same step will show another one some night.
        scale = np.maximum(scale, rounding / math.sqrt(nights))
        scale[:, -1] *= further
        scores.append(deviations / scale)
        scales.append(scale[:, -1] * factor)
    level: Floats = levels[:, -1]
    if not is_smoothed:  # predicted from the other nights alone
        centre = np.nanmean if name == "mean" else np.nanmedian
        level = level - centre(values, axis=1) + centre(values[:, :-1], axis=1)
    return name, level, scores, scales


def _nights_missing(times: Sequence[datetime | None]) -> list[int]:
    """How many nights are missing before each, if it is a long gap: else 0, and where times are unknown."""
    known = [time for time in times if time is not None]
    if len(known) < max(len(times), 2):
        return [0] * len(times)
    steps = [(after - before).total_seconds() for before, after in pairwise(known)]
    typical = max(sum(steps[:-1]) / max(len(steps) - 1, 1), 1.0)
    return [0, *(round(step / typical) - 1 if step >= LONG_GAP * typical else 0 for step in steps)]


def _further(values: Floats, ahead: Floats) -> Floats:
    """By what factor the newest night of each series may be further from its level than a night from the one before,
    since its last nights do not count, as after an alarm: by how much further the past nights are from the level of as
    many nights before. `ahead` are the predictions one night ahead."""
    count = values.shape[1]
    since = np.argmax(~np.isnan(values[:, -2::-1]), axis=1)
    longest, spreads, usual = max(count // MOST_OF_A_GAP, 1), list[float](), np.ones((len(values), 1))
    for nights in range(min(int(since.max()), longest) + 1):
        squares = (values[:, FIRST + nights : -1] - ahead[:, FIRST : count - 1 - nights]) ** 2
        known = ~np.isnan(squares)
        if not nights:
            usual = np.maximum(_mean(squares), LEAST_SCALE**2)[:, None]
        spreads.append(max((float((squares / usual)[known].mean()) if known.any() else 0.0, *spreads[-1:])))
    if not spreads[0]:
        return np.ones(len(values))
    growth = [spreads[min(one, longest)] * (1 + one) / (1 + min(one, longest)) for one in since.tolist()]
    factors: Floats = np.sqrt(np.array(growth) / spreads[0])
    return factors


def _together(values: Floats, nights: int) -> Floats:
    """The mean of so many neighbouring nights, for each night that has so many."""
    mean: Floats = np.lib.stride_tricks.sliding_window_view(values, nights, axis=1).mean(axis=2)
    return mean


SMOOTHING_NAMES = tuple(f"smoothing {share}" for share in SMOOTHING)


def _best_predictor(values: Floats, times: Sequence[datetime | None]) -> tuple[str, Floats, Floats]:
    """The predictor that has predicted the past best; its predictions one night ahead; and its level on each night."""
    alike = _alike(times)
    ahead: dict[str, Floats] = {"mean": _running_mean(values), "median": _running_median(values)}
    for name, weights in alike.items():
        ahead[f"median, {name}"] = ahead["median"] + _addition(values - ahead["median"], np.triu(weights, 1))
    ahead |= {name: _smoothed(values, share) for name, share in zip(SMOOTHING_NAMES, SMOOTHING, strict=True)}
    errors = {name: _error(values, predicted) for name, predicted in ahead.items()}
    best = min(errors, key=lambda name: errors[name] + (0.0 if name in ("mean", "median") else GAIN))
    if best in SMOOTHING_NAMES:
        return best, ahead[best], ahead[best]
    centre = (np.nanmean if best == "mean" else np.nanmedian)(values, axis=1, keepdims=True)
    levels = np.repeat(centre, values.shape[1], axis=1)
    _, _, of = best.partition(", ")
    if of:
        levels = levels + _addition(values - levels, alike[of])
    return best, ahead[best], levels


def _alike(times: Sequence[datetime | None]) -> Mapping[str, Floats]:
    """How much each night (row) tells about each night (column), from 0 to 1, by weekday and by hour of the day;
    without those in which the nights do not differ. Sessions of the same day, or the same sitting, tell nothing of
    either: they share what the day does."""
    known = [time for time in times if time is not None]
    if len(known) < len(times):
        return {}
    days = np.array([time.weekday() for time in known])
    hours = np.array([time.hour + time.minute / 60 for time in known])
    apart = np.abs(hours[:, None] - hours[None, :])
    by_hour = np.clip(1 - np.minimum(apart, 24 - apart) / HOURS_ALIKE, 0.0, 1.0)
    dates = np.array([time.toordinal() for time in known])
    starts = np.array([(time - known[0]).total_seconds() for time in known])
    by_weekday = (days[:, None] == days[None, :]) & (dates[:, None] != dates[None, :])
    is_apart = np.abs(starts[:, None] - starts[None, :]) > SITTING.total_seconds()
    found = {"weekday": by_weekday.astype(np.float64), "hour": by_hour * is_apart}
    differ = {"weekday": len(set(days.tolist())) > 1, "hour": bool((by_hour[0, 1:] < 1 / 2).any())}
    return {name: weights for name, weights in found.items() if differ[name]}


def _addition(deviations: Floats, weights: Floats) -> Floats:
    """The mean deviation of the nights that are like each night, shrunk as if one more had none."""
    known = ~np.isnan(deviations)
    total = known.astype(np.float64) @ weights
    addition: Floats = (np.where(known, deviations, 0.0) @ weights) / (total + 1)
    return addition


def _running_mean(values: Floats) -> Floats:
    """The mean of the nights before each night; NaN without any."""
    known = ~np.isnan(values)
    sums, counts = np.where(known, values, 0.0).cumsum(axis=1), known.cumsum(axis=1)
    ahead = np.full_like(values, np.nan)
    ahead[:, 1:] = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)[:, :-1]
    return ahead


def _running_median(values: Floats) -> Floats:
    """The median of the nights before each night; NaN without any."""
    ahead = np.full_like(values, np.nan)
    rows = np.arange(len(values))
    for night in range(1, values.shape[1]):
        ordered = np.sort(values[:, :night], axis=1)  # NaN comes last
        counts = night - np.isnan(ordered).sum(axis=1)
        low, high = np.maximum(counts - 1, 0) // 2, np.minimum(counts // 2, night - 1)
        ahead[:, night] = (ordered[rows, low] + ordered[rows, high]) / 2
    return ahead


def _smoothed(values: Floats, share: float) -> Floats:
    """Exponential smoothing: the level moves by a share of each night's deviation."""
    ahead = np.full_like(values, np.nan)
    level = values[:, 0].copy()
    for night in range(1, values.shape[1]):
        ahead[:, night] = level
        moved = level + share * (values[:, night] - level)
        level = np.where(np.isnan(values[:, night]), level, np.where(np.isnan(level), values[:, night], moved))
    return ahead


def _error(values: Floats, ahead: Floats) -> float:
    """The mean over the series of the logarithm of the mean absolute error, without the newest night."""
    return float(np.log(_mean(np.abs(values - ahead)[:, FIRST:-1]) + LEAST_SCALE / 10).mean())


def _mean(values: Floats) -> Floats:
    """The mean of each series over the nights on which it was measured; 0 without any."""
    known = ~np.isnan(values)
    mean: Floats = np.where(known, values, 0.0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    return mean


def _scale(deviations: Floats, is_symmetric: bool) -> Floats:
    """The standard deviation of each series' other nights for each night, shrunk towards that of all series; the newest
    night counts among the others only if the levels do not depend on the order of the nights.

    A single night far off is not among them: it is known from its own score, and the series does not vary so. As part
    of the variation, it would let a series be so far off for ever where the T of the nights comes from other series.
    """
    known = ~np.isnan(deviations)
    squares = np.where(known, deviations**2, 0.0)
    counted = squares if is_symmetric else squares[:, :-1]
    degrees = known[:, : counted.shape[1]].sum(axis=1).astype(np.float64)[:, None]
    others, counts = counted.sum(axis=1, keepdims=True) - squares, degrees - known
    second, largest = np.sort(counted, axis=1)[:, -2:].T if counted.shape[1] > 1 else np.zeros((2, len(squares)))
    furthest = np.where(squares == largest[:, None], second[:, None], largest[:, None])
    if not is_symmetric:
        others[:, -1], counts[:, -1], furthest[:, -1] = counted.sum(axis=1), degrees[:, 0], largest
    rest = np.maximum((others - furthest) / np.maximum(counts - 1, 1), LEAST_SCALE**2)
    is_far = (counts > LEAST_OTHERS) & (furthest > FAR_OFF**2 * rest)
    others, counts = np.where(is_far, others - furthest, others), counts - is_far
    weight, typical = _prior(others[:, -1] / np.maximum(counts[:, -1], 1), counts[:, -1])
    variances = (weight * typical + others) / np.maximum(weight + counts, 1)
    scale: Floats = np.sqrt(np.maximum(variances, LEAST_SCALE**2))
    return scale


def _ranks_by_size(deviations: Floats) -> Floats:
    """The centred rank of each night of a series by the size of its deviation; 0 where it was not measured."""
    sizes = np.abs(deviations)
    ranks = np.sign(sizes[:, :, None] - sizes[:, None, :])  # equal sizes share their rank
    ranked: Floats = np.where(np.isnan(sizes), 0.0, np.nansum(ranks, axis=2))
    return ranked


def _become_noisier(deviations: Floats) -> bool:
    """Whether the nights of all series become noisier, or quieter: the ranks by size follow the time beyond chance."""
    ranks = _ranks_by_size(deviations)
    since = np.arange(ranks.shape[1]) - (ranks.shape[1] - 1) / 2
    by_night = ranks.sum(axis=0)
    errors = (float(since**2 @ (ranks**2).sum(axis=0)) ** 0.5, float(by_night.std() * (since @ since) ** 0.5))
    return bool(abs(float(since @ by_night)) > NOISY_TIMES * max(errors))


def _course(deviations: Floats) -> Floats:
    """The variation that the series have in common on each night, as a factor, by the nights before it, of which recent
    ones count more."""
    squares = deviations**2
    relative = squares / np.maximum(_mean(squares), LEAST_SCALE**2)[:, None]
    known = np.isnan(relative).sum(axis=0) < len(relative)
    by_night = np.nanmean(np.where(known, relative, 0.0), axis=0)
    course, weight = np.empty(len(known)), 1.0
    total = float(by_night[known][:FIRST].mean()) if known.any() else 1.0
    for night, is_known in enumerate(known):
        course[night] = total / weight
        if is_known:
            weight, total = RECENT * weight + 1, RECENT * total + by_night[night]
    found: Floats = np.sqrt(np.maximum(course, LEAST_COURSE))
    return found


def _has_noisy_times(deviations: Floats) -> bool:
    """Whether noisy nights of a series follow noisy nights: the correlation of neighbouring nights' ranks by size, over
    all series, is above 0 beyond chance."""
    known = ~np.isnan(deviations)
    ranks = _ranks_by_size(deviations)
    products = ranks[:, 1:] * ranks[:, :-1]
    pairs = int((products != 0).sum())
    if pairs < LEAST_PAIRS:
        return False
    # Independent sizes correlate by -1 / n on average.
    products += np.where(
        products != 0, (ranks**2).mean(axis=1, keepdims=True) / np.maximum(known.sum(axis=1, keepdims=True), 1), 0.0
    )
    return _are_alike(products)


def _are_alike(products: Floats) -> bool:
    """Whether neighbouring nights are alike beyond chance, by the products of their sizes or what else is 0 on average
    if they are not, a row per series."""
    by_night = products.sum(axis=0)  # series share their nights, so nights are what is independent
    errors = (math.sqrt(float((products**2).sum())), float(by_night.std(ddof=1)) * math.sqrt(by_night.size))
    return float(by_night.sum()) > NOISY_TIMES * max(errors)


def _recent_scale(deviations: Floats) -> Floats:
    """The standard deviation of each series on each night from the nights before it, of which recent ones count more,
    shrunk towards that of all series."""
    squares = deviations**2
    typical = float(np.median(_mean(squares)))
    weights, totals = np.zeros(len(squares)), np.zeros(len(squares))
    variances = np.empty_like(squares)
    for night in range(squares.shape[1]):
        variances[:, night] = (RECENT_PRIOR * typical + totals) / (RECENT_PRIOR + weights)
        known = ~np.isnan(squares[:, night])
        weights = np.where(known, RECENT * weights + 1, weights)
        totals = np.where(known, RECENT * totals + squares[:, night], totals)
    found: Floats = np.sqrt(np.maximum(variances, LEAST_SCALE**2))
    return found


def _prior(variances: Floats, degrees: Floats) -> tuple[float, float]:
    """The weight and the value of the variance that all series share: moments of the logarithms of the series' own
    variances (Smyth 2004, "Linear models and empirical Bayes methods", section 6.2). No weight for few series."""
    usable = (variances > LEAST_SCALE**2) & (degrees > 2)
    if usable.sum() < LEAST_SERIES:
        return 0.0, 0.0
    halves = degrees[usable] / 2
    logs = np.log(variances[usable]) - np.array([_digamma(half) - math.log(half) for half in halves])
    excess = float(logs.var(ddof=1)) - float(np.mean([_trigamma(half) for half in halves]))
    if excess <= 0:
        return MOST_PRIOR, math.exp(float(logs.mean()))
    weight = min(MOST_PRIOR, 2 * _inverse_trigamma(excess))
    return weight, math.exp(float(logs.mean()) + _digamma(weight / 2) - math.log(weight / 2))


def _digamma(x: float) -> float:
    shift = 0.0
    while x < 6:
        shift -= 1 / x
        x += 1
    return shift + math.log(x) - 1 / (2 * x) - 1 / (12 * x**2) + 1 / (120 * x**4) - 1 / (252 * x**6)


def _trigamma(x: float) -> float:
    shift = 0.0
    while x < 6:
        shift += 1 / x**2
        x += 1
    return shift + 1 / x + 1 / (2 * x**2) + 1 / (6 * x**3) - 1 / (30 * x**5) + 1 / (42 * x**7)


def _inverse_trigamma(y: float) -> float:
    low, high = 1e-3, 1e6
    for _ in range(80):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _trigamma(middle) > y else (low, middle)
    return low


def _nights_of(values: Floats, times: Sequence[datetime | None]) -> list[int]:
    """The number of each session's night: sessions much closer in time than others are of one, if the steps between
    neighbours in a night are smaller than others beyond chance. Else, where times are unknown, and where fewer than two
    nights before the newest would remain, which say nothing of how much nights vary, each session is a night of its
    own."""
    known, alone = [time for time in times if time is not None], [*range(len(times))]
    if len(known) < len(times):
        return alone
    steps = np.array([(after - before).total_seconds() for before, after in pairwise(known)])
    is_same = steps <= SAME_NIGHT * steps[:-1].mean() if len(steps) > 1 else np.zeros(len(steps), bool)
    if is_same.all() or is_same[:-1].sum() < 2:
        return alone
    closeness = -_ranks_by_size(np.diff(values[:, :-1]))[:, is_same[:-1]]
    nights = [0, *np.cumsum(~is_same).tolist()]
    return nights if _are_alike(closeness) and nights[-1] >= LEAST_NIGHTS else alone


def _of_nights(scores: Floats, nights: Sequence[int]) -> list[float]:
    """T of each past night; of its sessions, the largest. Where fewer series were measured than on the newest night,
    neighbouring ones count as one until they have as many, since the largest of fewer scores is smaller."""
    known = ~np.isnan(scores)
    enough = ENOUGH_SERIES * known[:, -1].sum()
    tops: list[float] = []
    top, measured = -math.inf, 0
    for night in range(nights[-1]):
        own = [place for place, number in enumerate(nights[:-1]) if number == night]
        count = int(known[:, own].any(axis=1).sum())
        if not count:
            continue
        largest = float(np.nanmax(scores[:, own]))
        if count < enough:
            top, measured = max(top, largest), measured + count
            if measured < enough:
                continue
            largest, top, measured = top, -math.inf, 0
        tops.append(largest)
    return tops


def _limit(tops: Sequence[float], false_alarms: float, series: int) -> float:
    """The T above which a night is among the largest share of all nights, itself included."""
    if not tops:
        return math.inf
    ordered, normal = sorted(tops, reverse=True), NormalDist()
    rank = math.floor(false_alarms * (len(ordered) + 1))
    stated = normal.inv_cdf(1 - false_alarms / series)
    if rank >= 1:
        largest = ordered[rank - 1]
    else:
        seen = normal.inv_cdf(1 - 1 / (len(ordered) + 1) / series)
        largest = ordered[0] * max(1.0, stated / seen) if seen > 0 else math.inf  # a single night tells no variation
    return max(LEAST_OF_NORMAL * stated, largest)
