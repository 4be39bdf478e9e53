"""The energy pass: joules per call and watts over windows of several seconds, from the device's energy counters.

For a GPU without an energy counter, power is sampled and integrated (`integrated_power`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from itertools import pairwise
from statistics import mean, stdev
from typing import Self

from benchmarking.core.device_contracts import ENERGY_DOMAINS, DeviceHandle
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import NS_PER_S, LaunchFacts, ns_to_s
from benchmarking.core.records import COUNTER_STALE, FAILED, NOT_APPLICABLE, NOT_RUN, NOT_SUPPORTED, Json, Readings
from benchmarking.devices.support.handles import by_device
from benchmarking.measure.context import MeasureContext, Settings
from benchmarking.measure.memory import PassResult
from benchmarking.measure.timing import no_mark

PREFERENCE = ("gpu", "soc", "cpu_pkg", "dram")
"""`energy_idle_w`, `power_mean_w` and `power_peak_w` use the first of these domains with an energy; the details hold
all domains."""
POWERS = ("power_mean_w", "power_peak_w")
MIN_WINDOW_S = 5.0
"""In shorter windows, a counter that updates ten times a second is off by more than 2 % at the ends."""
MIN_CALLS = 10
"""Minimum per window in addition to its minimum time, to limit the weight of its ends; fewer where calls are so slow
that they would exceed the profile's time limit."""
MAX_COUNTER_ERROR = 0.2
"""Relative difference between a GPU's counter and its mean power above which the counter is wrong: sampling the power
twenty times a second is within 10 %."""
MAX_CALLS = 10_000_000
"""Limit of requests in a window: their completions are kept until its end, up to a few gigabytes."""
SETTLE_S = 3.0
"""Pause before the idle window: after work, a GPU keeps its clocks high for a second or two."""
POWER_INTERVAL_S = 0.05
"""Interval of power samples; drivers update the power every 25 to 100 ms."""
COUNTER_INTERVAL_S = 0.1
"""Interval of counter readings for the peak power. RAPL, which reports no power, updates its counters every
millisecond, so one hundredth of the interval is uncertain."""
COUNTER_READ_NS = 5_000_000
"""A reading that takes longer was interrupted, which makes its time and thus the power unknown."""
COUNTER, INTEGRATED_POWER = "counter", "integrated_power"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyWindow:
    """Energy over a period of time. `calls` is 0 for an idle period."""

    calls: int
    seconds: float
    joules: dict[str, float]
    """Energy by domain, for domains in both readings."""
    gpu_joules: dict[str, float] = field(default_factory=dict)
    """Energy by device, if several run one model."""
    peak_w: float | None = None
    """The largest sampled power of the first domain in `PREFERENCE`."""
    is_integrated: bool = False
    """Whether the GPU's energy is integrated from sampled power because there is no counter."""
    sampled_j: float | None = None
    """The GPU's energy integrated from sampled power; None without a power sensor."""

    @property
    def by_power(self) -> EnergyWindow:
        """The window with the GPU's energy by sampled power in place of the counter."""
        if self.sampled_j is None:
            return self
        return replace(self, joules={**self.joules, "gpu": self.sampled_j}, is_integrated=True)


def energy_pass(context: MeasureContext) -> PassResult:
    """J per call by domain, gross and net of the idle power, and mean and peak power. The idle power is measured with
    the model loaded, after a pause. Without a counter or power sensor nothing runs, and only reasons are returned."""
    why_not = _missing_reason(context.handle, context.settings)
    if why_not is not None or not _has_energy(context.handle):
        return PassResult(missing=_reasons(context.handle.energy_j(), why_not))
    context.live("energy")
    idle = _idle_window(context.handle, context.settings)
    windows: list[EnergyWindow] = []  # at least one, and no more than slow calls fit into the time limit
    while not windows or (
        len(windows) < context.settings.energy_windows
        and sum(window.seconds for window in windows) < context.settings.max_time_s
    ):
        # A window of completed calls.
        handle, target_ns, calls = context.handle, context.settings.energy_window_s * NS_PER_S, 0
        with WindowReading(handle) as reading:
            if context.operation.requests_in_flight > 1:
                least, until_ns = max(MIN_CALLS, context.operation.requests_in_flight), reading.start_ns + target_ns
                calls = len(context.operation.keep_in_flight(MAX_CALLS, handle.now_ns, until_ns, least))
                handle.synchronize()
            limit_ns = max(target_ns, context.settings.max_time_s * NS_PER_S)
            while (
                calls == 0
                or (elapsed_ns := handle.now_ns() - reading.start_ns) < target_ns
                or (calls < MIN_CALLS and elapsed_ns < limit_ns)
            ):
                context.operation.reset()
                context.operation.run(no_mark)
                handle.synchronize()
                calls += 1
            windows.append(reading.window(calls))
        context.live("energy")
    foreign = context.handle.state().values.get("foreign_pids")
    if foreign:
        return PassResult(missing=_reasons(context.handle.energy_j(), _foreign(foreign)))
    return summarise_windows(idle, windows, context.handle.energy_j())


def idle_power_w(handle: DeviceHandle, settings: Settings) -> dict[str, Json]:
    """Power in W by domain of an open device without a model, after a pause; empty if it cannot be measured. The
    difference from `energy_idle_w` is the cost of keeping a model loaded."""
    if _missing_reason(handle, settings) is not None or not _has_energy(handle):
        return {}
    return dict[str, Json](_power_w(_idle_window(handle, settings)))


def _has_energy(handle: DeviceHandle) -> bool:
    counted = [domain for domain in ENERGY_DOMAINS if domain in handle.energy_j().values]
    return bool(counted) or handle.momentary_power_w() is not None


def _power_w(window: EnergyWindow) -> dict[str, float]:
    """The mean power by domain, without domains whose counter did not advance."""
    return {domain: joules / window.seconds for domain, joules in window.joules.items() if window.seconds > 0 < joules}


def summarise_windows(idle: EnergyWindow, windows: Sequence[EnergyWindow], reading: Readings) -> PassResult:
    """Means over the windows; net = gross - idle power x seconds per call. A counter that did not advance is stale, and
    one that contradicts the GPU's power is replaced by it."""
    # The GPU's counter relative to its sampled power. Counters stall and run backward (NVML's after a reset of the
    # driver, amdsmi's when it wraps around).
    sampled = [window for window in windows if "gpu" in window.joules and not window.is_integrated]
    errors = [window.joules["gpu"] / by_power - 1 for window in sampled if (by_power := window.sampled_j or 0) > 0]
    worst, dropped = max(errors, key=abs, default=0.0), None
    if abs(worst) > MAX_COUNTER_ERROR:
        where = f"the energy counter differs by {worst:+.0%} from the mean power over a window"
        dropped = f"{where}: power was integrated instead"
        idle, windows = idle.by_power, [window.by_power for window in windows]
    metrics: dict[str, float] = {}
    missing = _reasons(reading, None)
    per_call: dict[str, Json] = {}
    joules: dict[str, Json] = {}
    methods: dict[str, Json] = {}
    idle_w = _power_w(idle)
    mean_w: dict[str, float] = {}
    for domain in ENERGY_DOMAINS:
        counted = [window for window in windows if domain in window.joules]
        if len(counted) < len(windows) or not windows:
            continue
        if any(window.joules[domain] <= 0 for window in windows):
            missing[_name(domain)] = f"{COUNTER_STALE}: it did not advance during a window"
            continue
        gross = [window.joules[domain] / window.calls for window in windows]
        metrics[_name(domain)] = mean(gross)
        mean_w[domain] = mean(window.joules[domain] / window.seconds for window in windows)
        per_call[domain] = list(gross)
        joules[domain] = [window.joules[domain] for window in windows]
        is_integrated = domain == "gpu" and any(window.is_integrated for window in windows)
        methods[domain] = INTEGRATED_POWER if is_integrated else COUNTER
        if domain in idle_w:
            net = [j - idle_w[domain] * window.seconds / window.calls for j, window in zip(gross, windows, strict=True)]
            metrics[f"energy_{domain}_net_j_per_call"] = mean(net)
        if len(gross) > 1:
            metrics[f"energy_{domain}_sd_j_per_call"] = stdev(gross)
    if (main := next((domain for domain in PREFERENCE if domain in mean_w), None)) is not None:
        metrics["power_mean_w"] = mean_w[main]
    else:
        missing["power_mean_w"] = COUNTER_STALE
    if peaks := [window.peak_w for window in windows if window.peak_w is not None]:
        metrics["power_peak_w"] = max(peaks)
    else:
        missing["power_peak_w"] = f"{NOT_SUPPORTED}: no power sensor"
    idle_domain = next((domain for domain in PREFERENCE if _name(domain) in metrics and domain in idle_w), None)
    if idle_domain is None:
        missing["energy_idle_w"] = COUNTER_STALE
    else:
        metrics["energy_idle_w"] = idle_w[idle_domain]
    missing = {name: why for name, why in missing.items() if name not in metrics}
    of_devices: dict[str, Json] = {  # shares of the devices, if several run one model
        name: mean(window.gpu_joules[name] / window.calls for window in windows)
        for name in windows[0].gpu_joules
        if dropped is None and all(name in window.gpu_joules for window in windows)
    }
    extra: LaunchFacts = {
        "energy_method": methods.get("gpu", reading.values.get("method")),
        "energy_method_by_domain": methods,
        "energy_j_by_window": joules,
        "energy_j_per_call_by_window": per_call,
        "energy_idle_w_by_domain": dict(idle_w),
        "power_mean_w_by_domain": dict(mean_w),
        "energy_calls": [window.calls for window in windows],
        "energy_calls_per_s": [window.calls / window.seconds for window in windows],
    }
    if of_devices:
        extra["energy_gpu_j_per_call_by_device"] = of_devices
    if dropped is not None:
        extra["energy_counter_dropped"] = dropped
    return PassResult(metrics=metrics, missing=missing, extra=extra)


def _idle_window(handle: DeviceHandle, settings: Settings) -> EnergyWindow:
    """A window without calls, after a pause."""
    handle.sleep(SETTLE_S)
    with WindowReading(handle) as reading:
        handle.sleep(settings.energy_window_s)
        return reading.window(calls=0)


class WindowReading:
    """The counters at the start of a window, and its power from then on. The device is idle or synchronized at both
    ends. As a context, it ends the sampling of a window in which a call failed."""

    def __init__(self, handle: DeviceHandle) -> None:
        handle.synchronize()
        self._handle = handle
        self._before = handle.energy_j()
        self.start_ns = handle.now_ns()
        # The device's instantaneous power, or its main counter if it has none.
        domain = next((domain for domain in PREFERENCE if domain in self._before.values), None)
        if domain is None or handle.momentary_power_w() is not None:
            self._power = PowerSamples(handle.momentary_power_w, handle.now_ns)
        else:
            self._power = CounterSamples(
                lambda: _joules(reading, domain) if domain in (reading := handle.energy_j()).values else None,
                handle.now_ns,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._power.end()

    def window(self, calls: int) -> EnergyWindow:
        self._power.stop()  # first: counters that wrap around must not be read by two threads at once
        before, after = self._before, self._handle.energy_j()
        seconds = ns_to_s(self._handle.now_ns() - self.start_ns)
        domains = [domain for domain in ENERGY_DOMAINS if domain in before.values and domain in after.values]
        joules = {domain: _joules(after, domain) - _joules(before, domain) for domain in domains}
        first, last = by_device(before), by_device(after)
        gpu_joules = {
            name: last[name]["gpu"] - start["gpu"]
            for name, start in first.items()
            if "gpu" in start and "gpu" in last[name]
        }
        mean_w = self._power.mean_w
        sampled_j = None if mean_w is None else mean_w * seconds
        is_integrated = "gpu" not in joules and sampled_j is not None
        return EnergyWindow(
            calls=calls,
            seconds=seconds,
            joules=joules | ({"gpu": sampled_j} if is_integrated and sampled_j is not None else {}),
            gpu_joules=gpu_joules,
            peak_w=self._power.peak_w,
            is_integrated=is_integrated,
            sampled_j=sampled_j,
        )


class PowerSamples:
    """A device's power until `stop`, sampled on a thread, immediately at first and once more at the end."""

    interval_s = POWER_INTERVAL_S

    def __init__(self, read: Callable[[], float | None], now_ns: Callable[[], int]) -> None:
        self._read = read
        self._now_ns = now_ns
        self._samples: list[tuple[int, float]] = []
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        if self._sample():
            self._thread = threading.Thread(target=self._sample_until_stopped, daemon=True, name="power-sampler")
            self._thread.start()

    def stop(self) -> None:
        """Stop sampling. A device whose power cannot be read has no samples."""
        if self._thread is not None:
            self.end()
            self._sample()

    def end(self) -> None:
        """End the thread, without a last sample."""
        if self._thread is not None:
            self._stopping.set()
            self._thread.join()

    @property
    def peak_w(self) -> float | None:
        return max((watts for _, watts in self._samples), default=None)

    @property
    def mean_w(self) -> float | None:
        """The mean over time, interpolated linearly; None without two samples at different times."""
        steps = [(later - at, (watts + last) / 2) for (at, watts), (later, last) in pairwise(self._samples)]
        total_ns = sum(step for step, _ in steps)
        return sum(step * watts for step, watts in steps) / total_ns if total_ns > 0 else None

    def _sample_until_stopped(self) -> None:
        while not self._stopping.wait(self.interval_s):
            self._sample()

    def _sample(self) -> bool:
        """Take a sample; False if there is none."""
        watts = self._read()
        if watts is not None:
            self._samples.append((self._now_ns(), watts))
        return watts is not None


class CounterSamples(PowerSamples):
    """The same for a counter in J, whose power is computed between two readings."""

    interval_s = COUNTER_INTERVAL_S

    @property
    def peak_w(self) -> float | None:
        least_ns = self.interval_s * NS_PER_S / 2
        steps = [(later - at, after - joules) for (at, joules), (later, after) in pairwise(self._samples)]
        return max((joules * NS_PER_S / step for step, joules in steps if step >= least_ns), default=None)

    @property
    def mean_w(self) -> None:
        """None: the counter itself gives the mean more exactly."""
        return None

    def _sample(self) -> bool:
        start_ns, joules = self._now_ns(), self._read()
        end_ns = self._now_ns()
        if joules is not None and end_ns - start_ns <= COUNTER_READ_NS:
            self._samples.append(((start_ns + end_ns) // 2, joules))
        return True


def _joules(reading: Readings, domain: str) -> float:
    value = reading.values[domain]
    assert isinstance(value, int | float)
    return float(value)


def _missing_reason(handle: DeviceHandle, settings: Settings) -> str | None:
    if settings.energy_windows < 1:
        return f"{NOT_RUN}: no energy window was requested"
    if settings.energy_window_s < MIN_WINDOW_S:
        return f"{NOT_RUN}: windows of {settings.energy_window_s:g} s, below {MIN_WINDOW_S:g} s"
    if settings.cold_cache:
        return f"{NOT_APPLICABLE}: with a cold cache the flush between calls also uses energy"
    foreign = handle.state().values.get("foreign_pids")
    return _foreign(foreign) if foreign else None


def _foreign(pids: Json) -> str:
    return f"{NOT_APPLICABLE}: other processes are using the device: {pids}"


def _reasons(reading: Readings, why_not: str | None) -> dict[str, str]:
    """A reason for every energy metric: the given one, else the counter's."""
    reasons = {_name(domain): why_not or reading.missing.get(domain, NOT_SUPPORTED) for domain in ENERGY_DOMAINS}
    if why_not is not None or not any(domain in reading.values for domain in ENERGY_DOMAINS):
        none = why_not or reading.missing.get("method", NOT_SUPPORTED)
        reasons |= dict.fromkeys(("energy_idle_w", *POWERS), none)
    return {name: why or FAILED for name, why in reasons.items()}


def _name(domain: str) -> str:
    return f"energy_{domain}_j_per_call"
