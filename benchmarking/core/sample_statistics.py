"""Statistics of the samples of a launch, and across launches, in the samples' own unit.

`percentile_intervals` are those of percentiles of values that are correlated in time, such as the latencies of requests
that share a queue.

The share of values above a percentile is a mean of zeros and ones, whose error comes from batch means: ten stretches of
the series. An interval of that share (on the logit scale, with Student's t) is an interval of the percentile's rank. It
holds only if the series is many times longer than its correlation, which a short series hides: there, it is not given.
Coverage on queues with known percentiles is in docs/load.md (tests/perf/load_statistics.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from statistics import median
from typing import Literal

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import Floats, np
from benchmarking.core.student_t import quantile as t_quantile

MIN_SAMPLES_FOR_INTERVAL = 6
"""With 5 samples even the whole range covers the median less than 95 % of the time (1 - 2 / 2^5 = 0.9375)."""
INTERVAL_REACH = 0.98
"""Half of 1.96: the sd of the number of samples below the median is sqrt(n) / 2."""


def tail_min_samples(q: float) -> int:
    """Smallest n of independent values whose largest exceeds the quantile with 95 % probability, or for q < 0.5 whose
    smallest lies below it: n >= log(0.05) / log(q). With fewer values, the extreme value often falls short of the
    percentile."""
    return math.ceil(math.log(0.05) / math.log(max(q, 1 - q)))


TAIL_MIN_SAMPLES: Mapping[float, int] = {q: tail_min_samples(q) for q in (0.90, 0.95, 0.99)}
PERCENTILES: Mapping[str, float] = {"p90": 0.90, "p95": 0.95, "p99": 0.99}
"""Quantiles by field of `Statistics`."""

MIN_LAUNCHES_FOR_BETWEEN = 3
"""With 2, the t interval has one degree of freedom and is 12.7 standard errors wide on either side."""

MOST_LOG = 700.0
"""Logarithm up to which a number is a float."""
SIGMA_PER_MAD = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""
MEDIAN_ERROR = 1.2533
"""sqrt(pi / 2): the standard error of a normal median over that of the mean."""
IQR_ERROR = 1.17
"""The standard error of a normal sample's interquartile range, over the range, times sqrt(n)."""
MIN_SAMPLES_FOR_CLOCK_STEP = 6
OF_FLOATS_MS = 3e-4
"""Rounding of the difference of two float seconds since 1970, whose last bit is 2.4e-7 s."""
MOST_DECIMALS = 8
"""Values that need more have no last digit: they are quotients, not readings."""

EXTREME_IQR = 3.0
"""Interquartile ranges beyond the quartiles (Tukey's outer fences), within which values are ordinary."""
EXTREME_OFF = 0.05
"""Distance from the median, over it: steady calls have small ranges, and a second speed within 5 % disturbs nothing."""
EXTREME_STEPS = 1.5
"""Distance from the median in steps of the clock: ordinary calls are read a step too long or too short."""

SLOW_CALLS_TIME = 0.05
"""Share of the time that extremely slow calls take beyond a median call. The throughput is lower by as much, whatever
their number."""
ONE_INTERRUPT = 2.0
"""Time, in calls, that an ordinary interrupt adds to a single call; among few calls that is more than 5 %."""

BLOCK = 1 << 20
"""Values of a series that are transformed at once, using 48 MB of memory. Longer series are processed in blocks."""
MAX_LAG = 1 << 16
"""Largest lag of a correlation in a series longer than BLOCK, in samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Statistics of the samples of one launch, in their unit. None: too few samples."""

    n: int
    mean: float
    sd: float | None
    """With n - 1; None for a single sample."""
    min: float
    p25: float
    median: float
    p75: float
    p90: float | None
    p95: float | None
    p99: float | None
    max: float
    mad: float
    """Median of |x - median|, not scaled."""
    tau: float
    """Integrated autocorrelation time of the ranks, in samples; 1 for independent ones."""
    ci_low: float | None
    """95 % confidence interval of the median, widened by tau; None below 6 samples."""
    ci_high: float | None
    first: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowCalls:
    """The calls of a launch that are extremely slow: above `ordinary`."""

    time_share: float
    """The time that they take beyond a median call, as a share of all calls' time."""
    calls: int
    threshold: float
    """Share above which the throughput no longer follows from the median; higher for a single interrupted call."""

    @property
    def is_much(self) -> bool:
        return self.time_share > self.threshold


def ordinary(values: Sequence[float] | Floats) -> tuple[float, float]:
    """The range of a launch's values that are not extreme: far beyond the quartiles, and by more than is immaterial or
    the step of the clock."""
    p25, middle, p75 = (float(each) for each in np.quantile(values, (0.25, 0.5, 0.75)))
    fence = EXTREME_IQR * (p75 - p25)
    least = max(EXTREME_OFF * middle, EXTREME_STEPS * (clock_step(values) or 0.0))
    return min(p25 - fence, middle - least), max(p75 + fence, middle + least)


def slow_calls(values: Sequence[float]) -> SlowCalls:
    """The extremely slow calls of a launch, which neither the median nor the number of outliers shows."""
    x = np.asarray(values, dtype=np.float64)
    slow = x[x > ordinary(x)[1]]
    total = float(x.sum())
    share = float((slow - np.median(x)).sum()) / total if total > 0 else 0.0
    threshold = SLOW_CALLS_TIME + (ONE_INTERRUPT / len(x) if len(slow) == 1 else 0.0)
    return SlowCalls(time_share=share, calls=len(slow), threshold=threshold)


def describe(values: Sequence[float]) -> Statistics:
    """All statistics of one launch's values, which are in measured order. Raises ValueError without values.

    Needs about 9 bytes of memory per value in addition to the values (of an array; a list is first copied into one).
    """
    if len(values) == 0:
        raise ValueError("no samples to describe")
    x = np.asarray(values, dtype=np.float64)
    mean, sd = float(x.mean()), float(x.std(ddof=1)) if len(x) > 1 else None
    ordered = np.sort(x)
    p25, median, p75 = (quantile_of_sorted(ordered, q) for q in (0.25, 0.5, 0.75))
    p90, p95, p99 = (
        quantile_of_sorted(ordered, q) if len(x) >= least else None for q, least in TAIL_MIN_SAMPLES.items()
    )
    middles = ((len(x) + 1) // 2, len(x) // 2 + 1)
    mad = math.fsum(_least_deviation(ordered, median, k) for k in middles) / 2
    tau = _autocorrelation_time(x, ordered)
    interval = _median_interval(ordered, tau)
    return Statistics(
        n=len(x),
        mean=mean,
        sd=sd,
        min=float(ordered[0]),
        p25=p25,
        median=median,
        p75=p75,
        p90=p90,
        p95=p95,
        p99=p99,
        max=float(ordered[-1]),
        mad=mad,
        tau=tau,
        ci_low=interval[0] if interval else None,
        ci_high=interval[1] if interval else None,
        first=float(x[0]),
    )


def quantile(values: Sequence[float], q: float) -> float:
    """The quantile of unsorted values by linear interpolation, whatever their number."""
    return quantile_of_sorted(sorted(values), q)


def quantile_of_sorted(ordered: Floats | Sequence[float], q: float) -> float:
    """The quantile of sorted values by linear interpolation, bit-identical to numpy.quantile, which copies its
    input. All quantiles of samples are these, except those of compacted samples, which are stored and compared exactly
    (`run_file`)."""
    position = (len(ordered) - 1) * q
    low = math.floor(position)
    below, above = float(ordered[low]), float(ordered[min(low + 1, len(ordered) - 1)])
    share = position - low
    return above - (above - below) * (1 - share) if share >= 0.5 else below + (above - below) * share


def _least_deviation(ordered: Floats, centre: float, k: int) -> float:
    """The k-th smallest |x - centre|: the k values nearest to the centre are neighbours among sorted ones."""
    low, high = 0, len(ordered) - k
    while low < high:
        middle = (low + high) // 2
        if centre - ordered[middle] > ordered[middle + k] - centre:
            low = middle + 1
        else:
            high = middle
    return float(max(abs(ordered[low] - centre), abs(ordered[low + k - 1] - centre)))


def tail_quantile(values: Floats | Sequence[float], q: float) -> float | None:
    """The quantile by linear interpolation; None when n is below `TAIL_MIN_SAMPLES`."""
    if len(values) < TAIL_MIN_SAMPLES[q]:
        return None
    return float(np.quantile(np.asarray(values, dtype=np.float64), q))


def autocorrelation_time(values: Sequence[float]) -> float:
    """Integrated autocorrelation time of the rank-transformed series, in samples, at least 1.

    tau = -1 + 2 * sum of rho(2m) + rho(2m + 1) while that pair is positive (Geyer's initial positive sequence). Ranks,
    so that one outlier cannot hide the correlation. A constant or very short series (n < 4) gives 1. Of more than BLOCK
    values the sum ends at lag MAX_LAG.
    """
    x = np.asarray(values, dtype=np.float64)
    return _autocorrelation_time(x, np.sort(x) if len(x) > BLOCK else x)


def _autocorrelation_time(x: Floats, ordered: Floats) -> float:
    """`ordered` are the sorted values, which only long series need."""
    n = len(x)
    if n < 4:
        return 1.0
    if n > BLOCK:
        covariance = _long_covariance(x, ordered)
    else:
        # n times the autocovariance at lags 0, 1, ..., by the Wiener-Khinchin theorem; padded so that it does not wrap,
        # to a power of two: other lengths take up to four times the memory.
        ranks = _ranks(x)
        spectrum = np.fft.rfft(ranks - ranks.mean(), 1 << (2 * n - 1).bit_length())
        covariance = np.fft.irfft(spectrum * spectrum.conj())[:n]
    if not covariance[0] > 0:
        return 1.0
    rho = covariance / covariance[0]
    pairs = rho[: len(rho) - len(rho) % 2].reshape(-1, 2).sum(axis=1)
    negative = np.flatnonzero(pairs <= 0)
    end = int(negative[0]) if len(negative) else len(pairs)
    return max(1.0, float(2 * pairs[:end].sum() - 1))


def _ranks(x: Floats) -> Floats:
    """Ranks from 1, equal values sharing their mean rank. (scipy.stats has it too, and takes a second to import.)"""
    _, places, counts = np.unique(x, return_inverse=True, return_counts=True)
    shared: Floats = np.cumsum(counts) - (counts - 1) / 2
    return shared[places]


def _long_covariance(x: Floats, ordered: Floats) -> Floats:
    """n times the autocovariance of the values' ranks at lags up to MAX_LAG, block by block: each is multiplied with
    itself and the MAX_LAG values behind it. The ranks, too, are found when they are needed."""
    total = np.zeros(MAX_LAG)
    size = 1 << (BLOCK + MAX_LAG - 1).bit_length()
    for start in range(0, len(x), BLOCK):
        part = x[start : start + BLOCK + MAX_LAG]
        order = np.argsort(part)  # searching sorted values takes a tenth of the time
        sought, centred = part[order], np.empty(len(part))
        below, up_to = np.searchsorted(ordered, sought, "left"), np.searchsorted(ordered, sought, "right")
        centred[order] = (below + up_to + 1) / 2 - (len(x) + 1) / 2
        product = np.fft.rfft(centred[:BLOCK], size).conj() * np.fft.rfft(centred, size)
        total += np.fft.irfft(product)[:MAX_LAG]
    return total


def neighbour_inflation(offs: Floats, *, error: float = 0.0, most: float = 0.99) -> float:
    """By how much neighbours that resemble each other increase the variance of a mean: (1 + r) / (1 - r), as of a
    first-order process; 1 for r below 0. `offs` are more than 4 deviations from the mean. Their correlation r is
    corrected for its bias in short series, reduced by `error` (raised by a negative one), and limited to `most`."""
    count, squares = len(offs), float(offs @ offs)
    if squares == 0:
        return 1.0
    correlation = (float(offs[1:] @ offs[:-1]) / squares + 2 / count) / (1 - 4 / count) - error
    correlation = min(most, max(0.0, correlation))
    return (1 + correlation) / (1 - correlation)


def median_interval(values: Sequence[float], tau: float) -> tuple[float, float] | None:
    """95 % interval of the median from sorted ranks floor(n/2 - d) and ceil(n/2 + d) + 1, d = 0.98 sqrt(n tau).

    Ranks count from 1 and are kept within 1..n. None below 6 samples.
    """
    return _median_interval(np.sort(np.asarray(values, dtype=np.float64)), tau)


def _median_interval(ordered: Floats, tau: float) -> tuple[float, float] | None:
    n = len(ordered)
    if n < MIN_SAMPLES_FOR_INTERVAL:
        return None
    reach = INTERVAL_REACH * math.sqrt(n * tau)
    low = max(1, math.floor(n / 2 - reach))
    high = min(n, math.ceil(n / 2 + reach) + 1)
    return float(ordered[low - 1]), float(ordered[high - 1])


def relative_half_width(values: Sequence[float]) -> float | None:
    """Half the width of the median's 95 % interval (`median_interval`) over the median.

    None below 6 samples or for a median that is not positive.
    """
    interval = median_interval(values, autocorrelation_time(values))
    centre = float(np.median(np.asarray(values, dtype=np.float64))) if interval else 0.0
    return (interval[1] - interval[0]) / 2 / centre if interval and centre > 0 else None


def median_error(statistics: Statistics) -> float:
    """Standard error of a launch's median over that median, as of a normal distribution with this MAD.

    0 for a median that is not positive.
    """
    if statistics.median <= 0:
        return 0.0
    few = max(1.0, statistics.n / max(1.0, statistics.n - 1.2))  # corrects the bias of the MAD of few values
    sigma = SIGMA_PER_MAD * few * statistics.mad / statistics.median
    return MEDIAN_ERROR * sigma * math.sqrt(statistics.tau / statistics.n)


def between_launches_interval(medians: Sequence[float]) -> tuple[float, float]:
    """95 % t interval on the logarithms of at least two launches' positive medians. It contains the median of the
    launches, which is off their mean where they lie on two levels."""
    logs = np.log(np.asarray(medians, dtype=np.float64))
    half = t_quantile(0.975, len(logs) - 1) * float(logs.std(ddof=1)) / math.sqrt(len(logs))
    centre, middle = float(logs.mean()), median(medians)
    return min(math.exp(centre - half), middle), max(math.exp(min(centre + half, MOST_LOG)), middle)


IntervalScope = Literal["between", "within"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchStatistics:
    """The statistics of a metric over launches, in its unit."""

    values: Mapping[str, float]
    """By field of `Statistics`, without those for which there are too few samples: the median over the launches, of
    minimum and maximum the extreme."""
    pooled: frozenset[str]
    """The percentiles computed from the pooled samples of all launches."""
    scope: IntervalScope | None
    """Whether ci_low and ci_high cover the variation between launches, or only that of calls within launches."""


def over_launches(launches: Sequence[Sequence[float]], described: Sequence[Statistics]) -> LaunchStatistics:
    """The statistics of a result from the samples of its launches; `described` are those of each launch, in order.

    If a launch has too few samples for a percentile, the percentile is computed from the pooled samples of all
    launches. Where launches differ, it then includes their spread, and exceeds the median of their own percentiles.
    """
    names = ("mean", "sd", "mad", "p25", "median", "p75", *PERCENTILES)
    by_launch = {
        name: [value for statistics in described if (value := getattr(statistics, name)) is not None] for name in names
    }
    values = {name: median(each) for name, each in by_launch.items() if each}
    pooled = set()
    for name, q in PERCENTILES.items():
        if len(by_launch[name]) < len(described) and len(described) > 1:
            values.pop(name, None)
            samples = np.concatenate([np.asarray(launch, dtype=np.float64) for launch in launches])
            if (pooled_value := tail_quantile(samples, q)) is not None:
                values[name] = pooled_value
                pooled.add(name)
    scope: IntervalScope | None = None
    medians = [statistics.median for statistics in described]
    lows = [statistics.ci_low for statistics in described if statistics.ci_low is not None]
    highs = [statistics.ci_high for statistics in described if statistics.ci_high is not None]
    if len(medians) >= MIN_LAUNCHES_FOR_BETWEEN and min(medians) > 0:
        values["ci_low"], values["ci_high"] = between_launches_interval(medians)
        scope = "between"
    elif len(lows) == len(highs) == len(described):  # the hull of their own intervals
        values |= {"ci_low": min(lows), "ci_high": max(highs)}
        scope = "within"
    values |= {
        "min": min(statistics.min for statistics in described),
        "max": max(statistics.max for statistics in described),
    }
    return LaunchStatistics(values=values, pooled=frozenset(pooled), scope=scope)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """The change from the first third of a series to the last."""

    relative_change: float
    """Of the median."""
    z: float
    """Of the rank-sum test between the thirds, whose error allows for correlation inside a third."""


TREND_PARTS = 6
"""Equal parts of a series with a trend, of which each has a higher median than the one before, or each a lower one:
by chance one in 360 of independent values."""


def _without_trend(values: Floats) -> Floats:
    """The differences from the straight line of the least squares."""
    at = np.arange(len(values)) - (len(values) - 1) / 2
    rest: Floats = values - values.mean() - at * (at @ values) / (at @ at)
    return rest


def drift(values: Sequence[float], *, finds_trends: bool = False) -> Drift | None:
    """The drift of a series. None below 9 samples, or if the median of the first third is 0. A steady trend is the
    longest correlation inside the thirds, and hardly drifts beyond that, unless `finds_trends`."""
    third = len(values) // 3
    if third < 3:
        return None
    x = np.asarray(values, dtype=np.float64)
    parts = (x[:third], x[third:-third], x[-third:])
    first, _, last = (float(np.median(part)) for part in parts)
    if first <= 0:
        return None
    tau = max(autocorrelation_time(values[:third]), autocorrelation_time(values[-third:]))
    steps = np.diff([np.median(part) for part in np.array_split(x, TREND_PARTS)])
    if finds_trends and (np.all(steps > 0) or np.all(steps < 0)):
        tau = min(tau, max(autocorrelation_time(_without_trend(part).tolist()) for part in (parts[0], parts[2])))
    ranks = _ranks(np.concatenate((parts[0], parts[2])))
    surplus = float(ranks[third:].sum()) - third * (2 * third + 1) / 2
    error = third * math.sqrt((2 * third + 1) / 12 * tau)
    return Drift(relative_change=last / first - 1, z=surplus / error)


def decimals(values: Sequence[float]) -> int | None:
    """The number of decimals with which all values are written, at most `MOST_DECIMALS`; None if one needs more."""
    longest: float | None = 0.0  # which mostly has more decimals too: the others are looked at once it has not
    for count in range(MOST_DECIMALS + 1):
        if _is_whole(longest * 10**count):
            longest = next((value for value in values if not _is_whole(value * 10**count)), None)
            if longest is None:
                return count
    return None


def _is_whole(value: float) -> bool:
    return math.isfinite(value) and abs(value - round(value)) < 1e-9 * max(1.0, abs(value))


def clock_step(values: Sequence[float] | Floats) -> float | None:
    """The smallest step between times in ms that mostly repeat, like those of a coarse clock; None if they do not
    repeat.

    A nanosecond clock rarely returns the same duration twice. Differences of float seconds since 1970 are ticks up to
    their rounding: all are nearly multiples of the step.
    """
    distinct, most = np.unique(np.asarray(values, dtype=np.float64)), len(values) / 2
    if len(values) < MIN_SAMPLES_FOR_CLOCK_STEP:
        return None
    begins = np.diff(distinct, prepend=-math.inf) > OF_FLOATS_MS
    ticks = distinct[begins]
    if len(ticks) < len(distinct) and 2 <= len(ticks) <= most:
        rounding = float((distinct - ticks[np.cumsum(begins) - 1]).max())
        counts = np.round(distinct / np.diff(ticks).min())
        step = float(counts @ distinct / (counts @ counts))
        if np.abs(distinct - counts * step).max() <= 3 * rounding <= 6 * OF_FLOATS_MS < step / 20:
            return step
    return float(np.diff(distinct).min()) if 2 <= len(distinct) <= most else None


def binomial_tail(count: int, n: int, share: float) -> float:
    """The probability of `count` or more of `n` independent events that each have the probability `share`."""
    if count <= 0:
        return 1.0
    logs = (math.log(share), math.log1p(-share))
    log_factorial = math.lgamma(n + 1)
    return math.fsum(
        math.exp(log_factorial - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * logs[0] + (n - k) * logs[1])
        for k in range(count, n + 1)
    )


@cache
def exact_share_interval(hits: int, count: int) -> tuple[float, float]:
    """The 95 % interval of Clopper and Pearson for a share of `count` independent trials: the shares at which `hits` or
    more, and `hits` or fewer, have a probability of 2.5 %."""
    tail = 0.025

    def share_at(is_below: Callable[[float], bool]) -> float:
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if is_below(middle) else (low, middle)
        return (low + high) / 2

    low = 0.0 if hits == 0 else share_at(lambda share: binomial_tail(hits, count, share) < tail)
    high = 1.0 if hits == count else share_at(lambda share: 1 - binomial_tail(hits + 1, count, share) > tail)
    return low, high


BATCHES = 10
"""Stretches of a series in the order of time, whose means give the error of a percentile's rank."""
FEWEST = 30.0
"""Independent values that must lie above the percentile, and below it: n min(q, 1 - q) / tau."""
FEWEST_BY_LOAD = 30.0
"""The same by the load of the queue, whichever is stricter."""
WIDER = 60.0
"""The standard error is larger by this number over that of the independent values: a series that barely has enough may
be shown only because its correlation happens to look short."""


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the mean of two or more independent values: at each end the wider of Student's t and of its
    transform for skewed values (Hall 1992), which a few of them rarely show. docs/measuring.md has the true coverage.
    """
    count, mean = len(values), math.fsum(values) / len(values)
    off = np.asarray(values, dtype=float) - mean
    largest = float(np.abs(off).max())
    if largest == 0 or not math.isfinite(largest):
        return mean, mean + largest
    off = off / largest  # whose cubes are numbers
    deviation = largest * float(off.std(ddof=1))
    t = t_quantile(0.975, count - 1) / math.sqrt(count)
    skew = float((off**3).mean() / off.std() ** 3)
    reach = [t, t]
    if abs(skew) > 1e-6:
        for side, of_t in enumerate((t, -t)):
            transformed = 3 / skew * (np.cbrt(1 + skew * (of_t - skew / (6 * count))) - 1)
            reach[side] = max(t, float(transformed) * (-1) ** side)
    return mean - reach[0] * deviation, mean + reach[1] * deviation


def percentile_intervals(
    values: Sequence[float], shares: Sequence[float], correlation: float | None = None
) -> dict[float, tuple[float, float] | None]:
    """By share (0.5 is the median), the 95 % interval of that percentile of values in the order of time; None where the
    series is too short for one. `correlation` is the number of values that the load of their queue makes worth one
    independent value: a series whose queue happened to stay short does not show it."""
    x = np.asarray(values, dtype=np.float64)
    n, intervals = len(x), dict[float, tuple[float, float] | None](dict.fromkeys(shares))
    if n < 2 * FEWEST or not len(shares):
        return intervals
    ordered = np.sort(x)
    tau = autocorrelation_time(values)
    least = max(FEWEST, 0.0 if correlation is None else FEWEST_BY_LOAD * correlation)
    size = n // BATCHES
    for share in shares:
        if n * min(share, 1 - share) < least:
            continue
        above = (x > np.quantile(ordered, share)).astype(np.float64)
        means = above[: size * BATCHES].reshape(BATCHES, size).mean(axis=1)
        inefficiency = max(1.0, float(means.var(ddof=1)) * size / (share * (1 - share)))
        longest = max(tau, inefficiency, autocorrelation_time(above.tolist()))
        independent = n * min(share, 1 - share) / longest
        if independent < FEWEST:
            continue
        error = (1 + WIDER / independent) * math.sqrt(inefficiency / (share * (1 - share) * n))  # of the logit
        reach, centre = t_quantile(0.975, BATCHES - 1) * error, math.log(share / (1 - share))
        low, high = (1 / (1 + math.exp(-end)) for end in (centre - reach, centre + reach))
        first, last = math.floor(n * low), math.ceil(n * high)
        if first >= 1 and last <= n:
            intervals[share] = (float(ordered[first - 1]), float(ordered[last - 1]))
    return intervals


def between_repetitions_interval(repetitions: Sequence[Sequence[float]], share: float) -> tuple[float, float] | None:
    """The 95 % interval of a percentile of the values of all repetitions; None if it reaches beyond them. Its error is
    that of the repetitions' shares above it, whatever the correlation of the values in each."""
    ordered, count = (
        np.sort(np.concatenate([np.asarray(one, dtype=np.float64) for one in repetitions])),
        len(repetitions),
    )
    at, n = np.quantile(ordered, share), len(ordered)
    # Of equal values half are above: else repetitions that differ in nothing but how many reach the largest look alike.
    above = [float((np.asarray(one) > at).mean() + (np.asarray(one) >= at).mean()) / 2 for one in repetitions]
    variance = max(float(np.var(above, ddof=1)) / count, share * (1 - share) / n)  # equal shares are chance
    reach = t_quantile(0.975, count - 1) * math.sqrt(variance) / (share * (1 - share))  # of the logit
    low, high = (1 / (1 + math.exp(-(math.log(share / (1 - share)) + end))) for end in (-reach, reach))
    first, last = math.floor(n * low), math.ceil(n * high)
    return (float(ordered[first - 1]), float(ordered[last - 1])) if first >= 1 and last <= n else None
