"""The gate's own error rates: histories without a true change, and with one, judged as `benchhouse check` does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarking.core.metrics import DEFAULT_METRIC, JUDGED
from db.analysis.gate.gate import judge
from tests.helpers import noise

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tests.helpers.noise import Noise

    Floats = NDArray[np.float64]

HISTORY = 20
"""Runs in the segment: what the stated rates are for."""
FAR_APART = 6.0
"""Standard deviations between the modes of `far_modes`."""
SLOW_SHARE = 0.2
LARGE = (0.10, 0.50)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Shares of the checks, from 0 to 1."""

    flagged: float
    """Called worse by the newest run."""
    confirmed: float
    """Called worse by it and by one more run of a fresh session."""


def either_way(n: int, rng: np.random.Generator, cv: float = noise.CV) -> Floats:
    """Log-normal, and 1 value in 20 slower or faster by 10 to 50 %."""
    import numpy as np

    size = np.log1p(rng.uniform(*LARGE, n)) * rng.choice((-1.0, 1.0), n)
    return noise.normal(n, rng, cv) * np.exp(np.where(rng.random(n) < noise.OUTLIER_SHARE, size, 0.0))


def far_modes(n: int, rng: np.random.Generator, cv: float = noise.CV) -> Floats:
    """Log-normal, and 2 values in 10 in a mode that is 6 standard deviations slower: a machine with two states."""
    import numpy as np

    return noise.normal(n, rng, cv) * np.exp(np.where(rng.random(n) < SLOW_SHARE, FAR_APART * cv, 0.0))


def contaminated(n: int, rng: np.random.Generator, cv: float = noise.CV) -> Floats:
    """Log-normal with half of `cv`, and 1 run in 10 slower by 5 to 30 %: another user on the machine."""
    import numpy as np

    rise = np.where(rng.random(n) < 0.10, rng.uniform(*noise.OUTLIER_RISE, n), 0.0)
    return noise.normal(n, rng, cv / 2) * np.exp(rise)


STATED: Mapping[str, tuple[Noise, Rates]] = {
    "normal": (noise.normal, Rates(flagged=0.010, confirmed=0.0004)),
    "AR(.5)": (noise.autocorrelated, Rates(flagged=0.013, confirmed=0.0027)),
    "5 % outliers, either way": (either_way, Rates(flagged=0.029, confirmed=0.0009)),
    "bimodal, far apart": (far_modes, Rates(flagged=0.10, confirmed=0.019)),
    "1 run in 10 disturbed": (contaminated, Rates(flagged=0.095, confirmed=0.01)),
}
"""The false alarms a check may have, by noise."""
UNSTATED: Mapping[str, Noise] = {
    "heavy tail (t3)": noise.heavy_tail,
    "5 % outliers, all slower": noise.outliers,
    "bimodal, near": noise.bimodal,
}
"""Further kinds of noise, shown for comparison."""
POWER: Mapping[float, Rates] = {
    0.10: Rates(flagged=0.98, confirmed=0.95),
    0.05: Rates(flagged=0.41, confirmed=0.21),
}
"""How often a true shift is found in normal noise of 2 %, by its size."""


def replay(kind: Noise, *, replays: int, seed: int, step: float = 0.0, history: int = HISTORY) -> Rates:
    """The rates over so many histories of the noise, each followed by two runs at a level `step` higher."""
    import numpy as np

    rng = np.random.default_rng(seed)
    metric = JUDGED[DEFAULT_METRIC]
    flagged = confirmed = 0
    for _ in range(replays):
        values = kind(history + 2, rng, noise.CV)
        before, (newest, again) = values[:history].tolist(), ((1 + step) * values[history:]).tolist()
        if judge(before, newest, metric).outcome == "worse":
            flagged += 1
            confirmed += judge(before, again, metric).outcome == "worse"
    return Rates(flagged=flagged / replays, confirmed=confirmed / replays)
