"""Intervals of percentiles of values that are correlated in time, such as the latencies of requests that share a queue.

The share of values above a percentile is a mean of zeros and ones, whose error comes from batch means: ten stretches of
the series. An interval of that share (on the logit scale, with Student's t) is an interval of the percentile's rank. It
holds only if the series is many times longer than its correlation, which a short series hides: there, it is not given.
Coverage on queues with known percentiles is in docs/load.md (tests/perf/load_statistics.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarking.core.sample_statistics import autocorrelation_time
from benchmarking.core.student_t import quantile

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

BATCHES = 10
FEWEST = 30.0
"""Independent values that must lie above the percentile, and below it: n min(q, 1 - q) / tau."""
FEWEST_BY_LOAD = 30.0
"""The same by the load of the queue, whichever is stricter."""
WIDER = 60.0
"""The standard error is larger by this number over that of the independent values: a series that barely has enough may
be shown only because its correlation happens to look short."""


def percentile_intervals(
    values: Sequence[float], shares: Sequence[float], correlation: float | None = None
) -> dict[float, tuple[float, float] | None]:
    """By share (0.5 is the median), the 95 % interval of that percentile of values in the order of time; None where the
    series is too short for one. `correlation` is the number of values that the load of their queue makes worth one
    independent value: a series whose queue happened to stay short does not show it."""
    import numpy as np

    x = np.asarray(values, dtype=np.float64)
    if len(x) < 2 * FEWEST or not len(shares):
        return dict.fromkeys(shares)
    ordered = np.sort(x)
    tau = autocorrelation_time(values)
    least = 0.0 if correlation is None else FEWEST_BY_LOAD * correlation
    return {
        share: _interval(x, ordered, share, tau) if len(x) * min(share, 1 - share) >= least else None
        for share in shares
    }


def _interval(x: NDArray[float64], ordered: NDArray[float64], share: float, tau: float) -> tuple[float, float] | None:
    import numpy as np

    n, above = len(x), (x > np.quantile(ordered, share)).astype(np.float64)
    if n * min(share, 1 - share) < FEWEST:
        return None
    size = n // BATCHES
    means = above[: size * BATCHES].reshape(BATCHES, size).mean(axis=1)
    inefficiency = max(1.0, float(means.var(ddof=1)) * size / (share * (1 - share)))
    longest = max(tau, inefficiency, autocorrelation_time(above.tolist()))
    independent = n * min(share, 1 - share) / longest
    if independent < FEWEST:
        return None
    error = (1 + WIDER / independent) * math.sqrt(inefficiency / (share * (1 - share) * n))  # of the logit
    reach, centre = quantile(0.975, BATCHES - 1) * error, math.log(share / (1 - share))
    low, high = (1 / (1 + math.exp(-one)) for one in (centre - reach, centre + reach))
    first, last = math.floor(n * low), math.ceil(n * high)
    return (float(ordered[first - 1]), float(ordered[last - 1])) if first >= 1 and last <= n else None
