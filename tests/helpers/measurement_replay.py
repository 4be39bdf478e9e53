"""Simulated call durations, and the doubts, stops and intervals that measuring derives from them.

Durations are relative to a level of 1. Each launch draws its own effect; the calls in it vary around that.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchmarking.core.metrics import LATENCY_WALL
from benchmarking.core.records import Measurement, Point, Result, Samples
from benchmarking.measure import doubt_rules
from benchmarking.measure.aggregate import summarise
from benchmarking.measure.context import MIN_CALLS, Settings
from benchmarking.measure.timing import StoppingRule
from tests.helpers.verdict_replay import normal, skewed, t3, two_levels

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Calls = Callable[[np.random.Generator, int], Floats]
    """So many successive durations of a launch."""
    Effects = Callable[[np.random.Generator, int], Floats]
    """Logarithms of the effects of so many launches."""

MAX_CALLS = 5_000
LAUNCH_SD = 0.005
AT = "2026-01-02T03:04:06.000Z"
POINT = Point(batch_size=1, sequence_length=8)


def independent(cv: float) -> Calls:
    """Log-normal, without memory."""
    return lambda rng, count: _exp(rng.normal(0.0, cv, count))


def correlated(cv: float, rho: float) -> Calls:
    """A first-order autoregressive process of the logarithms."""

    def calls(rng: np.random.Generator, count: int) -> Floats:
        from scipy.signal import lfilter

        steps = rng.normal(0.0, cv * math.sqrt(1 - rho * rho), count)
        steps[0] = rng.normal(0.0, cv)
        return _exp(lfilter([1.0], [1.0, -rho], steps))

    return calls


def healthy(cv: float) -> Calls:
    """A machine without neighbours: a little memory, and one call in 200 interrupted."""
    return interrupted(correlated(cv, 0.3), 0.005, 1.1, 1.6)


def interrupted(calls: Calls, share: float, least: float, most: float) -> Calls:
    """A share of the calls is longer by a factor between two."""

    def interrupted_calls(rng: np.random.Generator, count: int) -> Floats:
        values = calls(rng, count)
        hit = rng.random(count) < share
        values[hit] *= rng.uniform(least, most, int(hit.sum()))
        return values

    return interrupted_calls


def phases(calls: Calls, factor: float, fast_calls: float, slow_calls: float) -> Calls:
    """Fast and slow phases in turns, of so many calls each on average, the slow ones longer by a factor."""

    def phased_calls(rng: np.random.Generator, count: int) -> Floats:
        import numpy as np

        is_slow = bool(rng.random() < slow_calls / (fast_calls + slow_calls))
        state: list[bool] = []
        while len(state) < count:
            state += [is_slow] * int(rng.geometric(1 / (slow_calls if is_slow else fast_calls)))
            is_slow = not is_slow
        values: Floats = calls(rng, count) * np.where(state[:count], factor, 1.0)
        return values

    return phased_calls


def heating(calls: Calls, rise: float, time_constant_calls: float, warm_calls: int = 0) -> Calls:
    """Slower by a share in the end, exponentially; `warm_calls` came before."""

    def heating_calls(rng: np.random.Generator, count: int) -> Floats:
        import numpy as np

        done = np.arange(warm_calls, warm_calls + count) / time_constant_calls
        values: Floats = calls(rng, count) * (1 + rise * (1 - np.exp(-done)))
        return values

    return heating_calls


def ticking(calls: Calls, step: float) -> Calls:
    """The same read from a clock that advances in steps."""

    def ticking_calls(rng: np.random.Generator, count: int) -> Floats:
        import numpy as np

        values: Floats = np.floor((rng.random(count) * step + calls(rng, count)) / step) * step
        return values

    return ticking_calls


def read_by(calls: Calls, step_ms: float, call_ms: float) -> Calls:
    """The same in milliseconds, as a clock reads them that advances in such steps."""
    ticks = ticking(calls, step_ms / call_ms)
    return lambda rng, count: (call_ms * ticks(rng, count)).round(6)


def _exp(logs: Floats) -> Floats:
    import numpy as np

    values: Floats = np.exp(logs)
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A kind of noise, with what its launches have in truth."""

    calls: Calls
    launches: Effects
    typical_effect: float = 0.0
    """Median of the launches' effects."""
    settled: float | None = None
    """The level that calls reach in the end; None for the median of many."""
    call_ms: float = 20.0
    is_accelerator: bool = False


MACHINES: Mapping[str, Machine] = {
    "independent, cv 3 %": Machine(calls=independent(0.03), launches=normal(0.01)),
    "independent, cv 15 %": Machine(calls=independent(0.15), launches=normal(0.01)),
    "AR(.7), cv 5 %": Machine(calls=correlated(0.05, 0.7), launches=normal(0.01)),
    "AR(.95), cv 5 %": Machine(calls=correlated(0.05, 0.95), launches=normal(0.01)),
    "AR(.7), equal launches": Machine(calls=correlated(0.05, 0.7), launches=normal(0.0)),
    "launches t3 of 1.5 %": Machine(calls=independent(0.03), launches=t3(0.015)),
    "a quarter of launches +10 %": Machine(calls=independent(0.03), launches=two_levels(0.25, 0.10, 0.0)),
    "launches skewed, mean 3 %": Machine(
        calls=independent(0.03), launches=skewed(0.03), typical_effect=0.03 * math.log(2)
    ),
    "2 % of calls x1.5-6": Machine(calls=interrupted(independent(0.02), 0.02, 1.5, 6.0), launches=normal(0.01)),
    "bursts x1.3, 10 % of time": Machine(calls=phases(independent(0.03), 1.3, 270, 30), launches=normal(0.01)),
    "two states, +8 %": Machine(calls=phases(independent(0.02), 1.08, 100, 100), launches=normal(0.01)),
    "heating +8 % in 15 s": Machine(
        calls=heating(independent(0.02), 0.08, 750, warm_calls=50),
        launches=normal(0.01),
        settled=1.08,
        is_accelerator=True,
    ),
    "clock of 0.1 ms, call 1.37 ms": Machine(
        calls=ticking(independent(0.02), 0.1 / 1.37), launches=normal(0.01), call_ms=1.37, settled=1.0
    ),
}
"""Noises that measuring knows nothing of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyPass:
    """The samples of a launch, and how they ended."""

    values_ms: Sequence[float]
    reason: str = "target"
    half_width: float | None = None
    is_accelerator: bool = False

    @property
    def doubts(self) -> doubt_rules.Doubts:
        return doubt_rules.about_samples(self.values_ms, is_accelerator=self.is_accelerator)


def timed(
    calls: Calls, settings: Settings, rng: np.random.Generator, call_ms: float, *, is_accelerator: bool = False
) -> LatencyPass:
    """A latency pass without a clock."""
    import numpy as np

    rule = StoppingRule(settings, is_accelerator=is_accelerator)
    drawn = call_ms * calls(rng, MAX_CALLS)
    stream, spent_s = drawn.tolist(), np.cumsum(drawn) / 1e3
    count, reason = 0, None
    while reason is None:
        wanted = rule.next_count(count)
        count = min(wanted, max(MIN_CALLS, int(np.searchsorted(spent_s, rule.limit_s)) + 1), MAX_CALLS)
        reason = rule.look(stream[:count], float(spent_s[count - 1]))
    values_ms, width = stream[:count], rule.relative_half_width
    return LatencyPass(values_ms=values_ms, reason=reason, half_width=width, is_accelerator=is_accelerator)


def result_of(launches: Sequence[LatencyPass], settings: Settings) -> Result:
    """The result of launches, with their doubts."""
    target = settings.target_relative_half_width
    return summarise("replay", POINT, [_measurement(number, one, target) for number, one in enumerate(launches)], [])


def _measurement(launch: int, one: LatencyPass, target: float) -> Measurement:
    samples = Samples(
        launch=launch, phase="measure", metric=LATENCY_WALL, unit="ms", started_at=AT, values=tuple(one.values_ms)
    )
    found = (*one.doubts, *doubt_rules.about_stop(one.reason, one.half_width, target))
    return Measurement(
        point=POINT, launch=launch, status="ok", started_at=AT, finished_at=AT, samples=(samples,), doubts=found
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Heating:
    """What passes of an accelerator give that heats up: calls of 20 ms, after a second of warm-up."""

    measured_s: float
    """Median of the passes."""
    off: float
    """Median of their latencies, over the settled level, minus 1."""
    doubts: Counter[str]
    """Passes by kind and severity of their doubts."""


def of_heating(
    cv: float, rise: float, time_constant_s: float, settings: Settings, *, replays: int, seed: int
) -> Heating:
    """Passes of calls that become slower by a share in the end, exponentially."""
    import numpy as np

    rng, call_ms = np.random.default_rng(seed), 20.0
    calls = heating(correlated(cv, 0.3), rise, time_constant_s / call_ms * 1e3, warm_calls=50)
    passes = [timed(calls, settings, rng, call_ms, is_accelerator=True) for _ in range(replays)]
    return Heating(
        measured_s=float(np.median([sum(one.values_ms) for one in passes])) / 1e3,
        off=float(np.median([np.median(one.values_ms) for one in passes])) / call_ms / (1 + rise) - 1,
        doubts=Counter(f"{found.kind} ({found.severity})" for one in passes for found in one.doubts),
    )


DISTURBANCES: Mapping[str, tuple[Calls, frozenset[str]]] = {
    "bursts x1.3, 10 % of time": (
        phases(independent(0.03), 1.3, 270, 30),
        frozenset({"correlated", "severe_outliers", "noisy"}),
    ),
    "two states, +8 %": (phases(independent(0.02), 1.08, 100, 100), frozenset({"correlated", "drift"})),
    "a neighbour in 40 % of calls": (
        interrupted(independent(0.03), 0.4, 1.2, 2.0),
        frozenset({"noisy", "very_noisy"}),
    ),
    "12 % of calls x1.5-3": (interrupted(independent(0.03), 0.12, 1.5, 3.0), frozenset({"severe_outliers"})),
    "heating +8 % in 300 calls": (heating(independent(0.02), 0.08, 300), frozenset({"drift", "correlated"})),
    "clock of 0.1 ms, call 1.37 ms": (ticking(independent(0.02), 0.1 / 1.37), frozenset({"coarse_clock"})),
}
"""What should be found, and the kinds of doubt that find it."""

TWO_SPEEDS: Mapping[str, Calls] = {
    "cv 0.02 %, 8 % of calls 0.2 % slower": interrupted(independent(0.0002), 0.08, 1.002, 1.002),
    "cv 0.1 %, 10 % of calls 1 % slower": interrupted(independent(0.001), 0.1, 1.01, 1.01),
    "cv 0.5 %, 10 % of calls 4 % slower": interrupted(independent(0.005), 0.1, 1.04, 1.04),
}
"""Steady calls, of which some are slower by what disturbs nothing: no doubt should be raised."""


def count_doubts(calls: Calls, count: int, *, replays: int, seed: int) -> Counter[str]:
    """In how many launches of so many calls each kind of doubt above "info" is raised."""
    import numpy as np

    rng = np.random.default_rng([seed, count])
    launches = (doubt_rules.about_samples(calls(rng, count).tolist()) for _ in range(replays))
    return Counter(one.kind for found in launches for one in found if one.severity != "info")


def count_marks(calls: Calls, count: int, launches: int, *, replays: int, seed: int) -> Counter[str]:
    """The same of results of several launches, and how many are not valid ("marked")."""
    import numpy as np

    rng = np.random.default_rng([seed, count, launches])

    def one_pass(level: float) -> LatencyPass:
        return LatencyPass(values_ms=(level * calls(rng, count)).tolist())

    return _marks(rng, one_pass, replace(Settings(), launches=launches), replays)


def count_marks_of_passes(calls: Calls, settings: Settings, call_ms: float, *, replays: int, seed: int) -> Counter[str]:
    """The same for results whose launches end by the stopping rule of the settings."""
    import numpy as np

    rng = np.random.default_rng([seed, round(call_ms)])
    return _marks(rng, lambda level: timed(calls, settings, rng, call_ms * level), settings, replays)


def _marks(
    rng: np.random.Generator, one_pass: Callable[[float], LatencyPass], settings: Settings, replays: int
) -> Counter[str]:
    import numpy as np

    found: Counter[str] = Counter()
    for _ in range(replays):
        levels = np.exp(normal(LAUNCH_SD)(rng, settings.launches))
        result = result_of([one_pass(float(level)) for level in levels], settings)
        found.update(one.kind for one in result.doubts if one.severity != "info")
        found["marked"] += result.validity != "valid"
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How intervals of the median do; shares of the results from 0 to 1."""

    own: float
    """The level of the (first) launch lies inside."""
    all_launches: float
    """The median level of all launches lies inside."""
    half_width: float
    """Median of the relative half-widths."""
    marked: float
    """Results that are not valid."""
    samples: int
    """Median per launch."""
    stops: Counter[str]


def coverage(machine: Machine, settings: Settings, *, results: int, seed: int) -> Coverage:
    """What results of `settings.launches` launches of a machine cover."""
    import numpy as np

    rng = np.random.default_rng(seed)
    level = machine.settled or float(np.median(machine.calls(np.random.default_rng(7), 400_000)))
    own, everywhere, marked, widths, samples, stops = 0, 0, 0, [], [], Counter[str]()
    for _ in range(results):
        effects = np.exp(machine.launches(rng, settings.launches))
        passes = [
            timed(machine.calls, settings, rng, machine.call_ms * float(effect), is_accelerator=machine.is_accelerator)
            for effect in effects
        ]
        result = result_of(passes, settings)
        low, high = (
            result.metrics[name] / machine.call_ms / level for name in ("latency_ci_low_ms", "latency_ci_high_ms")
        )
        own += low <= effects[0] <= high
        everywhere += low <= math.exp(machine.typical_effect) <= high
        marked += result.validity != "valid"
        widths.append((high - low) / 2)
        samples += [len(one.values_ms) for one in passes]
        stops.update(one.reason for one in passes)
    return Coverage(
        own=own / results,
        all_launches=everywhere / results,
        marked=marked / results,
        half_width=float(np.median(widths)),
        samples=round(float(np.median(samples))),
        stops=stops,
    )
