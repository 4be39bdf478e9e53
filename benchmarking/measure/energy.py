"""The energy pass: joules per call and watts over windows of several seconds, from the device's energy counters.

The power of a GPU that counts no energy is sampled and integrated (`integrated_power`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import mean, stdev

from benchmarking.core.device_contracts import ENERGY_DOMAINS
from benchmarking.core.metrics import NS_PER_S, ns_to_s
from benchmarking.core.records import COUNTER_STALE, FAILED, NOT_APPLICABLE, NOT_RUN, NOT_SUPPORTED, Json, Readings
from benchmarking.devices.support.handles import by_device
from benchmarking.measure.bench import Bench
from benchmarking.measure.memory import PassResult, no_mark

IDLE_PREFERENCE = ("gpu", "soc", "cpu_pkg", "dram")
"""`energy_idle_w` and `power_mean_w` are those of the first domain with a counter; the details have all of them."""
MIN_WINDOW_S = 5.0
"""In a shorter window, a counter that updates ten times a second is off by more than 2 % at the ends."""
MIN_CALLS = 10
"""Per window, in addition to its minimum time, so that its ends weigh little."""
MAX_CALLS = 10_000_000
"""Requests in flight in a window: their completions are kept until its end, at most some gigabytes."""
SETTLE_S = 3.0
"""Pause before the idle window: after work, a GPU keeps its clocks up for a second or two."""
POWER_INTERVAL_S = 0.05
"""Between two samples of the power; drivers renew it every 25 to 100 ms."""
COUNTER, INTEGRATED_POWER = "counter", "integrated_power"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyWindow:
    """Energy over a stretch of time. `calls` is 0 when it was idle."""

    calls: int
    seconds: float
    joules: dict[str, float]
    """By domain, if both readings had it."""
    gpu_joules: dict[str, float] = field(default_factory=dict)
    """By device, when several run one model."""
    peak_w: float | None = None
    """The GPU's largest sampled power."""
    is_integrated: bool = False
    """Whether the GPU's energy is that of its sampled power, for want of a counter."""


def energy_pass(bench: Bench) -> PassResult:
    """J per call by domain, gross and net of the idle power, and mean and peak power. The idle power is that of a
    loaded model after a pause. Without a counter and a power nothing runs and there are only reasons."""
    why_not = _why_not(bench)
    counted = [domain for domain in ENERGY_DOMAINS if domain in bench.handle.energy_j().values]
    if why_not is not None or not (counted or bench.handle.momentary_power_w() is not None):
        return PassResult(missing=_reasons(bench.handle.energy_j(), why_not))
    bench.live("energy")
    bench.sleep(SETTLE_S)
    idle = _window(bench, busy=False)
    windows = _busy_windows(bench)
    foreign = bench.handle.state().values.get("foreign_pids")
    if foreign:
        return PassResult(missing=_reasons(bench.handle.energy_j(), _foreign(foreign)))
    return summarise_windows(idle, windows, bench.handle.energy_j())


def _busy_windows(bench: Bench) -> list[EnergyWindow]:
    """The windows that the settings ask for; fewer (at least one) when slow calls exceed the time limit."""
    windows: list[EnergyWindow] = []
    while not windows or (
        len(windows) < bench.settings.energy_windows
        and sum(window.seconds for window in windows) < bench.settings.max_time_s
    ):
        windows.append(_window(bench, busy=True))
        bench.live("energy")
    return windows


def summarise_windows(idle: EnergyWindow, windows: Sequence[EnergyWindow], reading: Readings) -> PassResult:
    """Means over the windows; net = gross - idle power x seconds per call. A counter that did not move is stale."""
    metrics: dict[str, float] = {}
    missing = _reasons(reading, None)
    per_call: dict[str, Json] = {}
    joules: dict[str, Json] = {}
    methods: dict[str, Json] = {}
    idle_w = {
        domain: joules / idle.seconds for domain, joules in idle.joules.items() if idle.seconds > 0 and joules > 0
    }
    for domain in ENERGY_DOMAINS:
        counted = [window for window in windows if domain in window.joules]
        if len(counted) < len(windows) or not windows:
            continue
        if any(window.joules[domain] <= 0 for window in windows):
            missing[_name(domain)] = f"{COUNTER_STALE}: it did not move during a window"
            continue
        gross = [window.joules[domain] / window.calls for window in windows]
        metrics[_name(domain)] = mean(gross)
        metrics[f"power_{domain}_mean_w"] = mean(window.joules[domain] / window.seconds for window in windows)
        per_call[domain] = list(gross)
        joules[domain] = [window.joules[domain] for window in windows]
        is_integrated = domain == "gpu" and any(window.is_integrated for window in windows)
        methods[domain] = INTEGRATED_POWER if is_integrated else COUNTER
        if domain in idle_w:
            net = [j - idle_w[domain] * window.seconds / window.calls for j, window in zip(gross, windows, strict=True)]
            metrics[f"energy_{domain}_net_j_per_call"] = mean(net)
        if len(gross) > 1:
            metrics[f"energy_{domain}_sd_j_per_call"] = stdev(gross)
    if peaks := [window.peak_w for window in windows if window.peak_w is not None]:
        metrics["power_gpu_peak_w"] = metrics["power_peak_w"] = max(peaks)
    else:
        missing["power_peak_w"] = f"{NOT_SUPPORTED}: no power sensor"
    means = [metrics[name] for domain in IDLE_PREFERENCE if (name := f"power_{domain}_mean_w") in metrics]
    metrics |= {"power_mean_w": means[0]} if means else {}
    idle_domain = next((domain for domain in IDLE_PREFERENCE if _name(domain) in metrics and domain in idle_w), None)
    if idle_domain is None:
        missing["energy_idle_w"] = COUNTER_STALE
    else:
        metrics["energy_idle_w"] = idle_w[idle_domain]
    missing = {name: why for name, why in missing.items() if name not in metrics}
    extra: dict[str, Json] = {
        "energy_method": methods.get("gpu", reading.values.get("method")),
        "energy_method_by_domain": methods,
        "energy_j_by_window": joules,
        "energy_j_per_call_by_window": per_call,
        "energy_idle_w_by_domain": dict(idle_w),
        "energy_calls": [window.calls for window in windows],
        "energy_calls_per_s": [window.calls / window.seconds for window in windows],
        **_by_device(windows),
    }
    return PassResult(metrics=metrics, missing=missing, extra=extra)


def _by_device(windows: Sequence[EnergyWindow]) -> dict[str, Json]:
    """Each device's share of `energy_gpu_j_per_call`, when several run one model."""
    shares: dict[str, Json] = {
        name: mean(window.gpu_joules[name] / window.calls for window in windows)
        for name in windows[0].gpu_joules
        if all(name in window.gpu_joules for window in windows)
    }
    return {"energy_gpu_j_per_call_by_device": shares} if shares else {}


def _window(bench: Bench, *, busy: bool) -> EnergyWindow:
    """One window; the device is synced before both readings."""
    handle, target_ns = bench.handle, bench.settings.energy_window_s * NS_PER_S
    handle.synchronize()
    power = PowerSamples(handle.momentary_power_w, handle.now_ns)
    before, start_ns, calls = handle.energy_j(), handle.now_ns(), 0
    if not busy:
        bench.sleep(bench.settings.energy_window_s)
    if busy and bench.operation.requests_in_flight > 1:
        calls = _calls_in_flight(bench, start_ns + target_ns)
    while busy and (calls < MIN_CALLS or handle.now_ns() - start_ns < target_ns):
        bench.operation.reset()
        bench.operation.run(no_mark)
        handle.synchronize()
        calls += 1
    after, seconds = handle.energy_j(), ns_to_s(handle.now_ns() - start_ns)
    power.stop()
    joules = {domain: _joules(after, domain) - _joules(before, domain) for domain in _both(before, after)}
    is_integrated = "gpu" not in joules and power.mean_w is not None
    return EnergyWindow(
        calls=calls,
        seconds=seconds,
        joules=joules | ({"gpu": power.mean_w * seconds} if is_integrated and power.mean_w is not None else {}),
        gpu_joules=_differences(before, after),
        peak_w=power.peak_w,
        is_integrated=is_integrated,
    )


class PowerSamples:
    """A device's power from the start to `stop`, sampled on a thread, first immediately and last at the end."""

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
        """End the samples; a device whose power cannot be read has none."""
        if self._thread is not None:
            self._stopping.set()
            self._thread.join()
            self._sample()

    @property
    def peak_w(self) -> float | None:
        """The largest sample."""
        return max((watts for _, watts in self._samples), default=None)

    @property
    def mean_w(self) -> float | None:
        """The mean over time, straight between two samples; None without two samples at different times."""
        steps = [(later - at, (watts + last) / 2) for (at, watts), (later, last) in pairwise(self._samples)]
        total_ns = sum(step for step, _ in steps)
        return sum(step * watts for step, watts in steps) / total_ns if total_ns > 0 else None

    def _sample_until_stopped(self) -> None:
        while not self._stopping.wait(POWER_INTERVAL_S):
            self._sample()

    def _sample(self) -> bool:
        """Take a sample; False where there is none."""
        watts = self._read()
        if watts is not None:
            self._samples.append((self._now_ns(), watts))
        return watts is not None


def _calls_in_flight(bench: Bench, until_ns: float) -> int:
    """Requests completed, several in flight, until the clock reaches `until_ns` and the last has ended."""
    least = max(MIN_CALLS, bench.operation.requests_in_flight)
    done = bench.operation.keep_in_flight(MAX_CALLS, bench.handle.now_ns, until_ns, least)
    bench.handle.synchronize()
    return len(done)


def _both(before: Readings, after: Readings) -> list[str]:
    return [domain for domain in ENERGY_DOMAINS if domain in before.values and domain in after.values]


def _differences(before: Readings, after: Readings) -> dict[str, float]:
    """Joules by device, when several run one model."""
    first, last = by_device(before), by_device(after)
    return {
        name: last[name]["gpu"] - start["gpu"]
        for name, start in first.items()
        if "gpu" in start and "gpu" in last[name]
    }


def _joules(reading: Readings, domain: str) -> float:
    value = reading.values[domain]
    assert isinstance(value, int | float)
    return float(value)


def _why_not(bench: Bench) -> str | None:
    if bench.settings.energy_windows < 1:
        return f"{NOT_RUN}: no energy window was requested"
    if bench.settings.energy_window_s < MIN_WINDOW_S:
        return f"{NOT_RUN}: windows of {bench.settings.energy_window_s:g} s, below {MIN_WINDOW_S:g} s"
    if bench.settings.cold_cache:
        return f"{NOT_APPLICABLE}: the flush between calls with a cold cache uses energy too"
    foreign = bench.handle.state().values.get("foreign_pids")
    return _foreign(foreign) if foreign else None


def _foreign(pids: Json) -> str:
    return f"{NOT_APPLICABLE}: other processes use the device too: {pids}"


def _reasons(reading: Readings, why_not: str | None) -> dict[str, str]:
    """A reason for every energy metric: the given one, else that of the counter."""
    reasons = {_name(domain): why_not or reading.missing.get(domain, NOT_SUPPORTED) for domain in ENERGY_DOMAINS}
    if why_not is not None or not any(domain in reading.values for domain in ENERGY_DOMAINS):
        of_all = why_not or reading.missing.get("method", NOT_SUPPORTED)
        reasons |= dict.fromkeys(("energy_idle_w", "power_mean_w", "power_peak_w"), of_all)
    return {name: why or FAILED for name, why in reasons.items()}


def _name(domain: str) -> str:
    return f"energy_{domain}_j_per_call"
