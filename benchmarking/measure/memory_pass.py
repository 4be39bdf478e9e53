"""The memory pass: some calls of their own, with the peaks of the process and of the device started anew before.

What a device only tells as it stands is sampled on a thread: nothing is timed in this pass, runtimes let the
interpreter's lock go while they compute, and only the handle knows which process it is in a container's eyes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarking.devices._several import by_device
from benchmarking.measure import memory
from benchmarking.measure.bench import Bench
from benchmarking.measure.sampling import PeakSampler, Reading
from benchmarking.records import NOT_APPLICABLE, NOT_SUPPORTED, Json, Readings

DEVICE_INTERVAL_S = 0.020
PEAKS = ("device_allocated_peak_bytes", "device_reserved_peak_bytes")
GLOBAL_DELTA = "device_global_delta_bytes"
IN_USE = ("device_process_bytes", "device_used_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class PassResult:
    """What a pass adds to a measurement."""

    metrics: Mapping[str, float] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Json] = field(default_factory=dict)


def memory_pass(bench: Bench) -> PassResult:
    """Peaks over `settings.memory_calls` calls, by metric: of resident memory, of the device's allocator, in use."""
    bench.live("memory")
    handle, operation = bench.handle, bench.operation
    handle.synchronize()
    at_rest = handle.memory_in_use()
    handle.reset_peak_memory()
    elsewhere = None
    if operation.resident_bytes() is not None:
        elsewhere = memory.SampledPeak(lambda: operation.resident_bytes() or 0)
    method = memory.reset_peak_rss(elsewhere)
    sampler = PeakSampler(lambda: _in_use(bench), DEVICE_INTERVAL_S) if _is_counted(at_rest) else None
    _call(bench)
    resident = memory.peak_rss_bytes(elsewhere)
    in_use = sampler.stop() if sampler else {}
    peaks = handle.peak_memory()
    parts = (_resident(resident), _of_device(peaks), _sampled(at_rest, in_use, handle.state()))
    extra: dict[str, Json] = {"memory_calls": bench.settings.memory_calls, **method.values}
    if of_each := by_device(peaks):
        extra["device_memory_peaks_by_device"] = dict(of_each)
    if sampler is not None:
        extra |= {"device_memory_interval_s": DEVICE_INTERVAL_S, "device_memory_readings": sampler.readings}
    together = parts[0] | parts[1] | parts[2]
    metrics = {name: float(value) for name, value in together.values.items() if isinstance(value, int | float)}
    return PassResult(metrics=metrics, missing=dict(together.missing), extra=extra)


def _call(bench: Bench) -> None:
    for _ in range(bench.settings.memory_calls):
        bench.operation.reset()
        bench.operation.run(_no_mark)
    bench.handle.synchronize()


def _no_mark(name: str) -> None:
    """Nothing is timed here."""


def _in_use(bench: Bench) -> Reading:
    values = bench.handle.memory_in_use().values
    return {name: value for name in IN_USE if isinstance(value := values.get(name), int)}


def _is_counted(at_rest: Readings) -> bool:
    return any(name in at_rest.values for name in IN_USE)


def _resident(peak: Readings) -> Readings:
    return _value("peak_rss_infer_bytes", peak.values.get(memory.PEAK), peak.missing.get(memory.PEAK, NOT_SUPPORTED))


def _of_device(peaks: Readings) -> Readings:
    """The allocator's peaks; a device that names neither value nor reason has none."""
    values = {name: peaks.values[name] for name in PEAKS if name in peaks.values}
    missing = {name: peaks.missing.get(name, NOT_SUPPORTED) for name in PEAKS if name not in values}
    return Readings(values=values, missing=missing)


def _sampled(at_rest: Readings, peaks: Reading, state: Readings) -> Readings:
    """`device_process_peak_bytes`, and `device_global_delta_bytes`: the peak of all use, less what is not this process.

    What others use is read at rest, so a stranger on the device, whose use may change, leaves no difference to tell.
    """
    own, used = (peaks.get(name) for name in IN_USE)
    process = _value("device_process_peak_bytes", own, at_rest.missing.get(IN_USE[0], NOT_SUPPORTED))
    if state.values.get("foreign_pids"):
        return process | _value(GLOBAL_DELTA, None, f"{NOT_APPLICABLE}: a foreign process is on the device")
    resting_own, resting_used = (at_rest.values.get(name) for name in IN_USE)
    if used is None or not isinstance(resting_own, int) or not isinstance(resting_used, int):
        why = next((at_rest.missing[name] for name in IN_USE if name in at_rest.missing), NOT_SUPPORTED)
        return process | _value(GLOBAL_DELTA, None, why)
    return process | _value(GLOBAL_DELTA, used - (resting_used - resting_own), "")


def _value(name: str, value: Json, why_not: str) -> Readings:
    return Readings(missing={name: why_not}) if value is None else Readings(values={name: value})
