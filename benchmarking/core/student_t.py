"""Student's t distribution, for confidence intervals and verdicts.

Its tail is half an incomplete beta function, by the continued fraction of Abramowitz and Stegun (26.5.8, 26.7.1).
scipy agrees to ten digits, but would be a fifth of the installed size of the warehouse.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

EPSILON = 1e-15
"""Relative change at which the continued fraction has converged."""
CLOSE = 1e-7
"""Relative step of the quantile at which Newton's method ends, since the next step would be its square."""
TINY = 1e-300
MAX_TERMS = 100_000
"""The continued fraction needs about the square root of the degrees of freedom in steps."""
MAX_STEPS = 100
LARGE = 50.0
"""Half the degrees of freedom above which differences of log gamma lose digits, and its series is exact."""


def cumulative(t: float, degrees: float) -> float:
    """The probability of a value up to `t`. `degrees` of freedom are above 0 and may be fractional."""
    if math.isinf(t):
        return 0.0 if t < 0 else 1.0
    tail = _tail(abs(t), degrees)
    return tail if t < 0 else 1.0 - tail


@lru_cache(maxsize=4096)
def quantile(p: float, degrees: float) -> float:
    """The value that has the probability `p`, between 0 and 1, below it."""
    if not 0 < p < 1:
        raise ValueError(f"expected a probability between 0 and 1, got {p}")
    if p == 0.5:
        return 0.0
    tail = min(p, 1 - p)
    # The quantile from that of the normal distribution (Abramowitz and Stegun 26.7.5).
    z = -NormalDist().inv_cdf(tail)
    first = (z**2 + 1) / 4 / degrees
    second = (5 * z**4 + 16 * z**2 + 3) / 96 / degrees**2
    third = (3 * z**6 + 19 * z**4 + 17 * z**2 - 15) / 384 / degrees**3
    t = z * (1 + first + second + max(0.0, third))
    a = degrees / 2
    for _ in range(MAX_STEPS):  # Newton's method on the logarithms of both: the tail is nearly a power of t
        found = _tail(t, degrees)
        density = math.exp(_log_inverse_beta(a) - (a + 0.5) * math.log1p(t * t / degrees)) / math.sqrt(degrees)
        step = math.log(found / tail) * found / (density * t)
        t *= math.exp(step)
        if abs(step) < CLOSE:
            break
    return math.copysign(t, p - 0.5)


def _tail(t: float, degrees: float) -> float:
    """The probability of a value above `t`, which is not negative."""
    if t == 0:
        return 0.5
    ratio = t * t / degrees
    a, x = degrees / 2, 1 / (1 + ratio)
    front = math.exp(_log_inverse_beta(a) - a * math.log1p(ratio)) * math.sqrt(ratio / (1 + ratio))
    if x < (a + 1) / (a + 2.5):
        return front * _fraction(a, 0.5, x) / a / 2
    return 0.5 - front * _fraction(0.5, a, ratio / (1 + ratio))


def _log_inverse_beta(a: float) -> float:
    """The logarithm of 1 / B(a, 1/2)."""
    if a < LARGE:
        return math.lgamma(a + 0.5) - math.lgamma(a) - math.lgamma(0.5)
    return math.log(a / math.pi) / 2 - 1 / (8 * a) + 1 / (192 * a**3) - 1 / (640 * a**5) + 17 / (14336 * a**7)


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
    above, below = 1.0, 1 / _not_zero(1 - (a + b) * x / (a + 1))
    value = below
    for m in range(1, MAX_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            below = 1 / _not_zero(1 + term * below)
            above = _not_zero(1 + term / above)
            value *= above * below
        if abs(above * below - 1) < EPSILON:
            break
    return value


def _not_zero(value: float) -> float:
    return value if abs(value) > TINY else TINY
