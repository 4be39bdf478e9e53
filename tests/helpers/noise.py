"""Simulated noise of benchmark histories, for which error rates are stated.

Each function returns n values around 1, one per run, without a true change; times a level, they are a history.
`cv` is the standard deviation of the logarithms, which is the coefficient of variation where it is small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Noise = Callable[[int, np.random.Generator, float], Floats]

CV = 0.02
"""What the stated rates are for: a step of 5 % is 2.5 standard deviations."""
OUTLIER_SHARE = 0.05
OUTLIER_RISE = (0.05, 0.30)
"""An outlier is slower by a share between these: something else ran on the machine."""
SLOW_SHARE = 0.3
MODES_APART = 2.0
"""Standard deviations of the whole between the two modes of the bimodal noise."""
CORRELATION = 0.5
BURN_IN = 50
"""Values dropped until an autoregressive process has forgotten where it started: 0.5 ** 50 is nothing."""


def normal(n: int, rng: np.random.Generator, cv: float = CV) -> Floats:
    """Log-normal, independent."""
    return _values(rng.normal(0.0, cv, n))


def heavy_tail(n: int, rng: np.random.Generator, cv: float = CV) -> Floats:
    """Student's t with 3 degrees of freedom, whose standard deviation is sqrt(3), scaled to `cv`."""
    return _values(cv / 3**0.5 * rng.standard_t(3, n))


def outliers(n: int, rng: np.random.Generator, cv: float = CV) -> Floats:
    """Log-normal, and 1 value in 20 slower by 5 to 30 %; `cv` is that of the others."""
    import numpy as np

    rise = np.where(rng.random(n) < OUTLIER_SHARE, np.log1p(rng.uniform(*OUTLIER_RISE, n)), 0.0)
    return _values(rng.normal(0.0, cv, n) + rise)


def bimodal(n: int, rng: np.random.Generator, cv: float = CV) -> Floats:
    """Two modes, the slow one for 3 runs in 10, each run by itself; centred, `cv` is that of the whole."""
    import numpy as np

    apart = MODES_APART * cv
    inside = (cv**2 - SLOW_SHARE * (1 - SLOW_SHARE) * apart**2) ** 0.5
    slow = np.where(rng.random(n) < SLOW_SHARE, apart, 0.0)
    return _values(slow - SLOW_SHARE * apart + rng.normal(0.0, inside, n))


def autocorrelated(n: int, rng: np.random.Generator, cv: float = CV) -> Floats:
    """A first-order autoregressive process with a correlation of 0.5 between runs; `cv` is that of the whole."""
    from scipy.signal import lfilter

    shocks = rng.normal(0.0, cv * (1 - CORRELATION**2) ** 0.5, n + BURN_IN)
    return _values(lfilter([1.0], [1.0, -CORRELATION], shocks)[BURN_IN:])


NOISES: Mapping[str, Noise] = {
    "normal": normal,
    "heavy tail (t3)": heavy_tail,
    "5 % outliers": outliers,
    "bimodal": bimodal,
    "AR(.5)": autocorrelated,
}
"""By the name the tables have for it."""


def _values(logarithms: Floats) -> Floats:
    import numpy as np

    values: Floats = np.exp(logarithms)
    return values
