"""The energy pass: joules per call from the device's counters, over windows of several seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import mean, stdev

from benchmarking.core.device_contracts import ENERGY_DOMAINS
from benchmarking.core.records import COUNTER_STALE, FAILED, NOT_APPLICABLE, NOT_RUN, NOT_SUPPORTED, Json, Readings
from benchmarking.core.units import NS_PER_S, ns_to_s
from benchmarking.devices.support.handles import by_device
from benchmarking.measure.bench import Bench
from benchmarking.measure.memory import PassResult, no_mark

IDLE_PREFERENCE = ("gpu", "soc", "cpu_pkg", "dram")
"""`energy_idle_w` is that of the first domain with a counter; the details have all of them."""
MIN_WINDOW_S = 5.0
"""In a shorter window, a counter that updates ten times a second is off by more than 2 % at the ends."""
MIN_CALLS = 10
"""Per window, in addition to its minimum time, so that its ends weigh little."""
MAX_CALLS = 10_000_000
"""Requests in flight in a window: their completions are kept until its end, at most some gigabytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyWindow:
    """Energy over a stretch of time. `calls` is 0 when it was idle."""

    calls: int
    seconds: float
    joules: dict[str, float]
    """By domain, if both readings had it."""
    gpu_joules: dict[str, float] = field(default_factory=dict)
    """By device, when several run one model."""


def energy_pass(bench: Bench) -> PassResult:
    """J per call by domain, gross and net of the idle power. Without a counter nothing runs and there are only
    reasons."""
    why_not = _why_not(bench)
    counted = [domain for domain in ENERGY_DOMAINS if domain in bench.handle.energy_j().values]
    if why_not is not None or not counted:
        return PassResult(missing=_reasons(bench.handle.energy_j(), why_not))
    bench.live("energy")
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
        per_call[domain] = list(gross)
        if domain in idle_w:
            net = [j - idle_w[domain] * window.seconds / window.calls for j, window in zip(gross, windows, strict=True)]
            metrics[f"energy_{domain}_net_j_per_call"] = mean(net)
        if len(gross) > 1:
            metrics[f"energy_{domain}_sd_j_per_call"] = stdev(gross)
    idle_domain = next((domain for domain in IDLE_PREFERENCE if _name(domain) in metrics and domain in idle_w), None)
    if idle_domain is None:
        missing["energy_idle_w"] = COUNTER_STALE
    else:
        metrics["energy_idle_w"] = idle_w[idle_domain]
    missing = {name: why for name, why in missing.items() if name not in metrics}
    extra: dict[str, Json] = {
        "energy_method": reading.values.get("method"),
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
    joules = {domain: _joules(after, domain) - _joules(before, domain) for domain in _both(before, after)}
    return EnergyWindow(calls=calls, seconds=seconds, joules=joules, gpu_joules=_differences(before, after))


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
    foreign = bench.handle.state().values.get("foreign_pids")
    return _foreign(foreign) if foreign else None


def _foreign(pids: Json) -> str:
    return f"{NOT_APPLICABLE}: other processes use the device too: {pids}"


def _reasons(reading: Readings, why_not: str | None) -> dict[str, str]:
    """A reason for every energy metric: the given one, else that of the counter."""
    reasons = {_name(domain): why_not or reading.missing.get(domain, NOT_SUPPORTED) for domain in ENERGY_DOMAINS}
    if why_not is not None or not any(domain in reading.values for domain in ENERGY_DOMAINS):
        reasons["energy_idle_w"] = why_not or reading.missing.get("method", NOT_SUPPORTED)
    return {name: why or FAILED for name, why in reasons.items()}


def _name(domain: str) -> str:
    return f"energy_{domain}_j_per_call"
