"""The load curve: its knee, and the search for the highest rate within the limits."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from benchmarking.core.errors import EXIT_FAILED, EXIT_NOT_ENOUGH_DATA, EXIT_OK
from benchmarking.core.load_doubts import (
    AT_TOP,
    HIGHEST_RATE,
    INVALID,
    LEAST_GOOD,
    NOT_MET,
    RATE_HIGH,
    RATE_LOW,
    REQUIRED,
    SEARCHED,
    disturbing,
    least_to_tell,
    pooled_shares,
    required_share,
    share_holds,
)
from benchmarking.core.metrics import CUSTOM_METRICS
from benchmarking.core.provenance import uuid7
from benchmarking.core.records import FAILED, NOT_SUPPORTED, REQUEST_RATE, Json, Point, Result
from benchmarking.core.text import counted
from benchmarking.core.verdicts.words import FLAG, Outcome
from benchmarking.load.connections import NO_SOCKET
from benchmarking.load.generator import Level
from benchmarking.load.load_statistics import Look, Posterior, look_of

KNEE_SLOPE, KNEE_ERROR, KNEE_PEAK = 0.25, 0.5, 0.85
CLOSE = 1.25
"""Bisection ends when a rate that meets the limits and one that does not differ by this factor."""
NEAR_DURATIONS = 2
"""Length of a level near the answer, in durations."""
LEAST_DURATIONS, MOST_DURATIONS = 24, 60
STEPS = (0.0, 1.5, -0.5)
"""Levels near the answer are at these distances from its median in turn, in units of the logit of the share outside the
limits, which shows the slope."""
FARTHEST = 1.5
"""Greatest factor between such a level and the median."""
MOST_ABOVE = 1.05
PRECISE = 0.032
"""Standard deviation of the answer's logarithm, including the model's error."""
LEAST_CLUSTERS = 10.0
"""Independent requests outside the limits that a search needs to end early: with fewer, a lucky look at a high rate
makes the answer look certain."""
CERTAIN = 0.99
MOST_INVALID = 8
"""Invalid levels after which a search ends."""
WIDEST = 4.0
"""Ratio of the ends of the interval above which levels say too little, or contradict one another, to deploy by."""
LEAST_REQUESTS = 20
"""Requests of which none met the limits, with which a search ends."""
NEAR_THE_TOP, TOP_LEVELS = 0.97, 2
"""Share of the upper bound above which a level counts as one at the bound, and how many of them end a search."""
OF_EVERY_LEVEL = ("url", "server", REQUIRED)
"""Facts that all levels of a search have in common."""


def facts_of(result: Result) -> Mapping[str, Json]:
    """Facts about the load of a level, other than its metrics."""
    facts = result.extra.get("load")
    return facts if isinstance(facts, dict) else {}


def required(result: Result) -> float:
    """The share of its requests that must meet the limits."""
    return required_share(facts_of(result))


def offered(result: Result) -> float:
    """The offered load of a level: requests per second of an open loop, or requests in flight."""
    rate = result.point.axes.get(REQUEST_RATE)
    return float(result.point.concurrency if rate is None else rate)


def is_search(result: Result) -> bool:
    """Whether the result belongs to a search rather than a level."""
    return SEARCHED in facts_of(result)


def with_knee(results: Sequence[Result]) -> list[Result]:
    """The levels in order, with the knee of the curve marked."""
    ordered = sorted(results, key=offered)
    ok = [result for result in ordered if result.status == "ok"]
    place = knee([offered(result) for result in ok], [result.metrics["throughput_samples_per_sec"] for result in ok])
    if place is None:
        return ordered
    at_knee = ok[place]
    marked = replace(at_knee, extra={**at_knee.extra, "load": {**facts_of(at_knee), "is_knee": True}})
    return [marked if result is at_knee else result for result in ordered]


def knee(loads: Sequence[float], achieved: Sequence[float]) -> int | None:
    """The index of the last level before throughput nearly stops growing with load; None if it grows to the end.

    It is the interior level of the sorted curve at which two lines fit best, provided that they halve the squared error
    of one line, the second rises at most a quarter as fast as the first, and the level reaches 85 % of the peak
    (GuideLLM).
    """
    best: tuple[float, int] | None = None
    if len(loads) < 4:
        return None
    whole = _fit(loads, achieved)[1]
    for place in range(1, len(loads) - 1):
        rise, first = _fit(loads[: place + 1], achieved[: place + 1])
        tail, second = _fit(loads[place:], achieved[place:])
        fits = rise > 0 and tail <= KNEE_SLOPE * rise and first + second <= KNEE_ERROR * whole
        if fits and achieved[place] >= KNEE_PEAK * max(achieved) and (best is None or first + second < best[0]):
            best = first + second, place
    return None if best is None else best[1]


def _fit(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Slope of the regression line, and its squared error."""
    mean_x, mean_y = fmean(x), fmean(y)
    spread = sum((a - mean_x) ** 2 for a in x)
    slope = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread if spread > 0 else 0.0
    return slope, sum((b - mean_y - slope * (a - mean_x)) ** 2 for a, b in zip(x, y, strict=True))


def meets(result: Result) -> bool | None:
    """Whether a rate meets the limits: the required share of its requests do, the server kept up, and MLPerf's loadgen,
    if used, considers the test valid. None if that depends on requests of which it is unknown."""
    if any(doubt.kind in NOT_MET for doubt in result.doubts):
        return False
    share = result.metrics.get("goodput_share")
    if share is not None:
        return share >= required(result)
    met = [one for requests in result.requests for one in requests.meets_limits]
    return share_holds(met.count(True), met.count(None), len(met), required(result))


def holds(result: Result) -> bool | None:
    """Whether a level holds the limits: it was measured and `meets` them. None if that is unknown, if something else
    than the server disturbed it, or if no request was sent, as to a server that did not start."""
    if result.status != "ok":
        sent = (error for requests in result.requests for error in requests.error if error != NO_SOCKET)
        return None if next(sent, NO_SOCKET) == NO_SOCKET else False
    return None if disturbances(result) else meets(result)


def requests_of(level: Result) -> int:
    """The number of its requests in all repetitions; the metric, which earlier versions have of one, if they are not
    stored."""
    return max(sum(map(len, level.requests)), int(level.metrics.get("requests_sent", 0)))


def surely_hold(levels: Sequence[Result]) -> list[bool | None]:
    """Whether each level holds the limits, as `holds`, and has enough requests to tell, by itself or together with
    higher ones of its curve (`pooled`)."""
    together = pooled(levels)
    return [together[place] is not None or _surely_holds(level) for place, level in enumerate(levels)]


def _surely_holds(level: Result) -> bool | None:
    is_held, share, count = holds(level), level.metrics.get("goodput_share"), requests_of(level)
    if is_held is None or not _is_share(level) or share is None or count >= least_to_tell(required(level)):
        return is_held
    return share_holds(round(share * count), 0, count, required(level))


def _is_share(level: Result) -> bool:
    """Whether the share of its requests within the limits decides of a level."""
    has_other_reason = level.status != "ok" or any(one.kind in NOT_MET for one in level.doubts)
    return "goodput_share" in level.metrics and requests_of(level) > 0 and not has_other_reason


def pooled(levels: Sequence[Result]) -> list[float | None]:
    """The share of each level that misses the limits by itself, but holds them together with higher rates of its curve:
    see `pooled_shares`."""
    found: list[float | None] = [None] * len(levels)
    curves: dict[tuple[object, ...], list[int]] = {}
    for place, level in enumerate(levels):
        if REQUEST_RATE in level.point.axes and holds(level) is not None and _is_share(level):
            axes = {**level.point.axes, REQUEST_RATE: 0.0}
            own = (replace(level.point, axes=axes).label, facts_of(level).get("server"), required(level))
            curves.setdefault(own, []).append(place)
    for places in curves.values():
        of_curve = [
            (
                offered(levels[at]),
                levels[at].metrics["goodput_share"] * requests_of(levels[at]),
                requests_of(levels[at]),
            )
            for at in places
        ]
        for place, share in zip(places, pooled_shares(of_curve, required(levels[places[0]])), strict=True):
            found[place] = share
    return found


def limits_outcome(levels: Sequence[Result], asked: str) -> Outcome:
    """What --fail-on makes of the levels of a command: "missed" fails if one misses the limits, "all-missed" if every
    one does. What is not known of a level is neither, as of one with fewer requests than tell the required share."""
    if not levels:
        return Outcome(exit_code=EXIT_NOT_ENOUGH_DATA, text=f"{FLAG} {asked}: not known: no level was measured")
    held = surely_hold(levels)
    few = [
        requests_of(level) for level, is_held in zip(levels, held, strict=True) if is_held is None is not holds(level)
    ]
    missed, unknown, words, of_all = held.count(False), held.count(None), f"{FLAG} {asked}", counted(len(held), "level")
    if missed == len(held) or (missed and asked == "missed"):
        return Outcome(exit_code=EXIT_FAILED, text=f"{words}: failed: the limits were missed at {missed} of {of_all}")
    if unknown and (asked == "missed" or True not in held):
        known = [kind for level in levels if holds(level) is None for kind in disturbances(level)]
        share = required(levels[0])
        tells = f"cannot tell {100 * share:g}%: use {least_to_tell(share)} or more"
        known += [f"{counted(min(few), 'request')} {tells}"] if few else []
        why = f": {'; '.join(dict.fromkeys(known))}" if known else ""
        return Outcome(exit_code=EXIT_NOT_ENOUGH_DATA, text=f"{words}: not known at {unknown} of {of_all}{why}")
    return Outcome(exit_code=EXIT_OK, text=f"{words}: passed: the limits held at {held.count(True)} of {of_all}")


class SearchInterrupted(KeyboardInterrupt):
    """Ctrl-C during a search."""

    def __init__(self, so_far: str, outcome: Result | None) -> None:
        super().__init__()
        self.so_far = so_far
        """What the levels so far say about the answer, in a sentence."""
        self.outcome = outcome
        """The answer by these levels; None without one."""


def disturbances(result: Result) -> list[str]:
    """The doubts that make a level invalid although the server may have kept up, so that it shows nothing of it."""
    invalid = (doubt.kind for doubt in result.doubts if doubt.severity == "invalid")
    return sorted(disturbing(invalid, facts_of(result), is_met=meets(result) is True))


def search(
    measured: Callable[[Level], Result],
    lowest: Level,
    highest: float,
    say: Callable[[str], None],
    share: float = LEAST_GOOD,
) -> list[Result]:
    """Search for the highest rate at which this share of the requests meets the limits. Returns the measured levels,
    then the outcome.

    Bisection brackets the answer. Then levels of twice the duration near it are added until the posterior of all looks
    (`load_statistics`) is narrow, or the levels took `MOST_DURATIONS` times the duration. Every level has fresh
    arrivals. The answer is the median of the posterior, or less if it could otherwise be more than 5 % too high with a
    probability above 10 %. A search that holds at its upper bound ends there, and so does one that fails at its lower,
    or whose levels have no request at all within the limits. Raises SearchInterrupted.
    """
    found = _Search(measured, lowest, highest, 1 - share)
    low, high = found.ends
    rate = math.sqrt(low * high)
    first = replace(lowest, rate=rate)
    if first.requests < (needed := least_to_tell(share)):
        flag = f"--duration {math.ceil(needed / rate)}" if first.number is None else f"--num-requests {needed}"
        say(
            f"a level near {rate:.4g} requests/s has {counted(first.requests, 'request')}, and {100 * share:g}% "
            f"can be told with {needed} or more: the answer will be less sure, or none, so use {flag} or more"
        )
    try:
        while high / low > CLOSE or not found.levels:
            middle = math.sqrt(low * high)
            low, high = (middle, high) if found.look(middle, 1) else (low, middle)
            if found.unknown is not None:
                return [*found.levels, found.failed(f"not found: {found.unknown}")]
        if found.none_met():
            found.look(found.ends[0], 1)
            if found.none_met():
                return [*found.levels, found.outcome()]
        while found.spent < MOST_DURATIONS and found.looks and not found.is_settled():
            middle, step = found.posterior.quantile(0.5), STEPS[len(found.levels) % len(STEPS)]
            rate = found.allowed(middle * min(max(1 + step / found.posterior.slope, 1 / FARTHEST), FARTHEST))
            durations = NEAR_DURATIONS * (2 if found.has_met(rate) else 1)
            number, duration_s = lowest.number, lowest.duration_s * durations
            size = f"for {duration_s:g} s" if number is None else f"with {number * durations} requests"
            held_down = rate < middle / FARTHEST and any(value > rate for value in found.invalid)
            why = f", {'above' if step > 0 else 'below'} it, which shows how fast more requests fail" if step else ""
            why = f", since higher levels were invalid ({found.whys()})" if held_down else why
            say(
                f"the highest rate is looked for near {middle:.4g} requests/s: measuring about {rate:.4g}/s {size}{why}"
            )
            if found.look(rate, durations) is None and len(found.levels) - len(found.looks) > MOST_INVALID:
                break
        if found.looks and found.is_below_the_measured():
            found.look(found.ends[0], NEAR_DURATIONS)
    except KeyboardInterrupt:
        raise found.interrupted() from None
    return [*found.levels, found.outcome()]


class _Search:
    """The levels of a search, and what follows from them."""

    def __init__(self, measured: Callable[[Level], Result], lowest: Level, highest: float, allowed: float) -> None:
        assert lowest.rate is not None
        self.ends = (float(lowest.rate), highest)
        self.levels: list[Result] = []
        self.looks: list[Look] = []
        self.used: list[Result] = []
        """The level of each look."""
        self.invalid: dict[float, str] = {}
        """Rate -> the doubts of an invalid level."""
        self.unknown: str | None = None
        """Why it is unknown whether requests meet the limits."""
        self.spent = 0.0
        self._posterior: Posterior | None = None
        self._measured, self._lowest, self._allowed = measured, lowest, allowed

    @property
    def posterior(self) -> Posterior:
        """The distribution of the answer, given the looks so far."""
        if self._posterior is None:
            self._posterior = Posterior(self.looks, *self.ends, self._allowed)
        return self._posterior

    def allowed(self, rate: float) -> float:
        """The nearest rate that can be measured: between the ends, and below the invalid levels, unless a higher one
        was valid, since then something else disturbed them."""
        least, most = self.ends
        valid = max(map(offered, self.used), default=0.0)
        return min(max(rate, least), most, *(0.98 * value for value in self.invalid if value > valid))

    def look(self, rate: float, durations: int) -> bool | None:
        """Measure a rate for so many durations; returns whether it met the limits, None if the level was invalid."""
        rate = self._new(self.allowed(rate))
        number = self._lowest.number
        level = replace(
            self._lowest,
            rate=rate,
            number=None if number is None else number * durations,
            duration_s=self._lowest.duration_s * durations,
        )
        started_s = time.monotonic()
        self.levels.append(result := self._measured(level))
        # A server that is behind answers long after the last request was sent, which is time of the search too.
        length_s = self._lowest.duration_s * max(1, len(result.requests))
        took = (time.monotonic() - started_s) / length_s if number is None else 0.0
        self.spent += max(durations, took)
        wrong = disturbances(result)
        is_met = meets(result)
        is_unstable = any(doubt.kind in NOT_MET for doubt in result.doubts)
        if result.status == "ok" and not is_unstable and "goodput_share" not in result.metrics:
            why = result.missing.get("goodput_share", "it is unknown how many requests met the limits")
            self.unknown = why.removeprefix(f"{NOT_SUPPORTED}: ")
            return None
        if result.status != "ok" or wrong:
            self.invalid[rate] = ", ".join(wrong) or str(result.error)
            return None
        self.looks.append(look_of(result.requests, rate, self._allowed, is_unstable=is_unstable))
        self.used.append(result)
        self._posterior = None
        return is_met

    def _new(self, rate: float) -> float:
        """The nearest rate that no level has, in four digits: a run has a point once."""
        taken, (least, most) = {offered(level) for level in self.levels}, self.ends
        step = min(0.01, math.log(most / least) / MOST_DURATIONS)
        for place in range(MOST_DURATIONS):
            for value in (rate * (1 - place * step), rate * (1 + place * step)):
                new = min(max(float(f"{value:.4g}"), least), most)
                if new not in taken:
                    return new
        return float(f"{rate * 0.999:.6g}")

    def has_met(self, rate: float) -> bool:
        return any(offered(result) == rate and meets(result) is True for result in self.used)

    def is_settled(self) -> bool:
        """Whether the answer is known well enough, or lies outside the searched rates."""
        posterior, least = self.posterior, self.ends[0]
        if posterior.above(least) < (0.5 if any(offered(result) == least for result in self.used) else 1 - CERTAIN):
            return True
        if self.holds_at_the_top():
            return True
        if self.spent < LEAST_DURATIONS or posterior.clusters < LEAST_CLUSTERS:
            return False
        middle, low, high = (posterior.quantile(share) for share in (0.5, 0.16, 0.84))
        return self._most_likely() >= middle and math.log(high / low) / 2 < PRECISE

    def none_met(self) -> bool:
        """Whether no request met the limits at any rate, of `LEAST_REQUESTS` or more."""
        requests = sum(look.requests for look in self.looks)
        return requests >= LEAST_REQUESTS and requests == sum(look.outside for look in self.looks)

    def holds_at_the_top(self) -> bool:
        """Whether the highest rate met the limits, and hardly any rate up to it can fail: by the posterior, or since a
        second, longer level near it met them too and none failed."""
        _, most = self.ends
        if not self.has_met(most):
            return False
        near = [result for result in self.used if offered(result) >= NEAR_THE_TOP * most]
        is_all_met = all(meets(result) for result in self.used)
        return self._most_likely() >= most or (is_all_met and len(near) >= TOP_LEVELS)

    def _most_likely(self) -> float:
        """The rate above which the answer lies by the posterior, or less than 5 % below, with a probability of 90 %."""
        return self.posterior.quantile(0.1) * MOST_ABOVE

    def is_below_the_measured(self) -> bool:
        """Whether the answer would be below all measured rates though it may lie above the lowest one."""
        least, _ = self.ends
        measured = any(offered(level) == least for level in self.levels)
        return not measured and self.posterior.above(least) >= 0.5 and self._most_likely() < least

    def interrupted(self) -> SearchInterrupted:
        """The end by Ctrl-C, with what the levels so far say about the answer."""
        outcome = self.outcome() if self.looks else None
        if outcome is not None and outcome.status == "ok":
            return SearchInterrupted("so far: the answer is that of the levels until now, so it is less sure", outcome)
        of_levels = [(offered(level), held) for level, held in zip(self.used, surely_hold(self.used), strict=True)]
        met, missed = ([rate for rate, held in of_levels if held is wanted] for wanted in (True, False))
        parts = [f"levels met the limits at up to {max(met):g}/s" if met else "no level is known to meet the limits"]
        parts += [f"one missed them at {min(missed):g}/s"] if missed else []
        few = len(of_levels) - len(met) - len(missed)
        parts += [f"{counted(few, 'level')} had too few requests to tell"] if few else []
        return SearchInterrupted(f"so far: {', '.join(parts)}", None)

    def outcome(self) -> Result:
        """The result of the search, at a point without a rate, so that repeated searches are one series: the level
        nearest to the answer, with the answer and its interval as metrics. Failed if no valid level met the limits."""
        if not self.looks:
            return self.failed(f"not found: no level was valid ({self.whys()})")
        (least, most), posterior = self.ends, self.posterior
        if self.none_met():
            lowest = min(map(offered, self.used))
            return self.failed(
                f"not found: no request met the limits, at {lowest:g} requests/s or more{self._refused()}: "
                f"{self._advice('search lower, or change the limits')}"
            )
        if posterior.above(least) < 0.5:
            problem = f"no rate of {least:g} requests/s or more met the limits{self._refused()}"
            return self.failed(f"{problem}: {self._advice('search lower')}")
        measured = [look.rate for look in self.looks]
        is_at_top = self.holds_at_the_top()
        answer = most if is_at_top else min(posterior.quantile(0.5), self._most_likely(), max(measured), most)
        if answer < least:
            if not self.has_met(least):
                return self.failed(
                    f"not found: rates below {least:g} requests/s may be the highest within the limits"
                    f"{self._refused()}: "
                    f"{self._advice('search lower, or with a longer --duration or more --num-requests')}"
                )
            answer = least
        low, high = (posterior.quantile(share) for share in (0.025, 0.975))
        is_open = is_at_top or any(rate > max(map(offered, self.used)) for rate in self.invalid)
        if high > WIDEST * low and not is_open:
            disturbed = f" (other levels were invalid: {whys})" if (whys := self.whys()) else ""
            return self.failed(
                f"not found: by all levels it may be anything from {low:.3g} to {high:.3g} requests/s: they are too "
                f"few, or disagree{disturbed}; search again with a longer --duration or more --num-requests, when "
                "nothing disturbs the server"
            )
        metrics = {HIGHEST_RATE: float(f"{answer:.4g}"), RATE_LOW: low, **({} if is_open else {RATE_HIGH: high})}
        valid = [result for result in self.used if result.validity != "invalid"] or self.used
        nearest = min(valid, key=lambda one: abs(math.log(offered(one) / answer)))
        return _found(nearest, metrics, {**self._facts(), AT_TOP: is_at_top})

    def _refused(self) -> str:
        """How the requests failed, if most of those outside the limits did: no lower rate may help then."""
        kinds = Counter(
            kind for result in self.used for request in result.requests for kind in request.error if kind is not None
        )
        if not kinds or 2 * kinds.total() < sum(look.outside for look in self.looks):
            return ""
        return f" (most requests outside them failed: {', '.join(f'{n} {kind}' for kind, n in kinds.most_common(3))})"

    def _advice(self, otherwise: str) -> str:
        """What to do where no rate was found: nothing is known of rates below the valid levels if theirs were not."""
        lowest = min(map(offered, self.used))
        if not (whys := self.whys(below=lowest)):
            return otherwise
        return (
            f"all levels below {lowest:g} requests/s were invalid ({whys}), so nothing is known of these rates: mend "
            "what disturbed them, as their doubts say, and search again"
        )

    def whys(self, below: float = math.inf) -> str:
        """The doubts of the invalid levels, of those below a rate."""
        return ", ".join(dict.fromkeys(why for rate, why in self.invalid.items() if rate < below))

    def failed(self, error: str) -> Result:
        of_server = facts_of(self.levels[0])
        return Result(
            result_id=uuid7(),
            point=_without_rate(self.levels[0].point),
            status="failed",
            error=error,
            missing={"latency_median_ms": f"{FAILED}: {error}"},
            extra={"load": {name: of_server[name] for name in OF_EVERY_LEVEL if name in of_server} | self._facts()},
        )

    def _facts(self) -> dict[str, Json]:
        least, most = self.ends
        not_met = [offered(result) for result in self.used if meets(result) is False]
        return {
            SEARCHED: [least, most],
            "lowest_rate_not_met_per_s": min(not_met, default=None),
            "looks": [
                {"rate_per_s": look.rate, "requests": look.requests, "outside_limits": look.outside}
                for look in self.looks
            ],
            INVALID: {f"{rate:g}": why for rate, why in self.invalid.items()},
        }


def _without_rate(point: Point) -> Point:
    return replace(point, axes={name: value for name, value in point.axes.items() if name != REQUEST_RATE})


def _found(level: Result, found: Mapping[str, float], facts: Mapping[str, Json]) -> Result:
    custom, launches = level.extra.get(CUSTOM_METRICS), level.extra.get("launches")
    assert isinstance(custom, dict)
    assert isinstance(launches, list)
    measured = [
        {**launch, "metrics": {**metrics, **found}}
        if isinstance(launch, dict) and isinstance(metrics := launch.get("metrics"), dict)
        else launch
        for launch in launches
    ]
    units = {name: {"unit": "requests/s", "better": "higher" if name == HIGHEST_RATE else None} for name in found}
    return replace(
        level,
        result_id=uuid7(),
        point=_without_rate(level.point),
        metrics={**level.metrics, **found},
        extra={
            **level.extra,
            CUSTOM_METRICS: {**custom, **units},
            "launches": measured,
            "load": {**facts_of(level), **facts},
        },
    )
