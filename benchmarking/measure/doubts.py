"""Raises doubts about results: pure functions of the measured numbers, with thresholds and evidence.

`core.doubts` has the meaning and severity of each kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarking.core.doubts import SEVERITIES, doubt
from benchmarking.core.records import Device, Doubt, Json, Readings, Workload
from benchmarking.core.sample_statistics import Statistics
from benchmarking.devices.support.kinds import kind_of
from benchmarking.workloads.support.families import family_named

NOISY_IQR = 0.10
"""Of the median. An idle machine stays below 2-3 %; at 10 % a difference of 5 % between two results is noise."""
VERY_NOISY_IQR = 0.25
CORRELATED_TAU = 5.0
"""Samples. Above it even the widened interval covers less than its nominal 95 %."""
LAUNCH_SPREAD = 0.10
"""(Largest - smallest) / median of the launch medians: more than memory layout and the choice of cores explain."""
CPU_PRESSURE = 0.10
"""Share of the 10 s before the pass in which some task waited for a CPU: other programs are busy."""
RUN_QUEUE_WAIT_SINGLE = 0.02
"""Of wall time, with one busy thread, which has a core to itself unless another program takes it."""
RUN_QUEUE_WAIT_SEVERAL = 0.05
"""The same summed over several threads, which delay each other a little at every barrier."""
STEAL = 0.01
"""Of all CPU time: the hypervisor gave it to another virtual machine."""
SEVERE_OUTLIERS = 0.05
"""Of the samples: more than occasional interrupts explain."""
DRIFT = 0.05
"""Between the medians of the first and the last third: the device was still warming up, or heating up."""
FEW_SAMPLES = 20
"""Below it there is neither a half-width at the stop nor a 90th percentile."""
REMOTE_MEMORY = 0.05
"""Of the process's memory: pages of libraries that another process loaded first may be on any node."""
LOW_CLOCK = 0.75
"""Of the default clock: a busy accelerator below it is throttled, unless its power limit explains the clock."""
MIN_SAMPLES_FOR_ZERO_SPREAD = 3
"""Two readings may be equal by chance when the clock is coarse."""

THERMAL_WORDS = ("thermal", "power_brake", "hardware_slowdown", "hw_slowdown")
"""Parts of the names of throttle reasons for heat and power brake; a software power cap is not throttling."""
POWER_CAP_WORDS = ("power_cap", "power_limit")

Doubts = tuple[Doubt, ...]


def about_samples(statistics: Statistics, drift: float | None) -> Doubts:
    """Doubts about one launch's wall times."""
    few = doubt("few_samples", n=statistics.n, threshold=FEW_SAMPLES) if statistics.n < FEW_SAMPLES else None
    if statistics.n >= MIN_SAMPLES_FOR_ZERO_SPREAD and statistics.max == statistics.min:
        zero = doubt("zero_spread", n=statistics.n, every_sample_ms=statistics.median)
        return _present(zero, few)
    outliers = (statistics.outliers.severe_low + statistics.outliers.severe_high) / statistics.n
    return _present(
        _spread(statistics),
        _above("correlated", CORRELATED_TAU, tau_samples=statistics.tau),
        _above("severe_outliers", SEVERE_OUTLIERS, severe_share=outliers),
        _away("drift", DRIFT, relative_change=drift),
        few,
    )


def _spread(statistics: Statistics) -> Doubt | None:
    if statistics.median <= 0:
        return None
    iqr = (statistics.p75 - statistics.p25) / statistics.median
    very = _above("very_noisy", VERY_NOISY_IQR, iqr_over_median=iqr)
    return very or _above("noisy", NOISY_IQR, iqr_over_median=iqr)


def about_stop(stop_reason: str, relative_half_width: float | None, target: float) -> Doubts:
    """`target_missed` when the interval is wider than the target.

    A fixed number of calls that is too small for an interval is only `few_samples`.
    """
    met = relative_half_width is not None and relative_half_width <= target
    unknown_by_choice = stop_reason == "fixed" and relative_half_width is None
    if stop_reason == "target" or met or unknown_by_choice:
        return ()
    return (doubt("target_missed", stop_reason=stop_reason, relative_half_width=relative_half_width, target=target),)


def about_warm_up(steady: bool | None, calls: int) -> Doubts:
    """`not_steady` when the warm-up reached its limit first."""
    return (doubt("not_steady", warmup_calls=calls),) if steady is False else ()


def about_output(problem: str | None) -> Doubts:
    """`wrong_output` for NaN, Inf or any other problem that the operation finds."""
    return () if problem is None else (doubt("wrong_output", problem=problem),)


def about_clock(*, timed_by_itself: bool) -> Doubts:
    """`timed_by_itself` for a call that measures its own time: what that includes is unknown here."""
    return (doubt("timed_by_itself"),) if timed_by_itself else ()


def about_window(window: Mapping[str, Any], *, is_accelerator: bool) -> Doubts:
    """Doubts about the machine and the device during the latency pass (names as in `noise.Window`)."""
    return _present(
        _foreign(window),
        _escaped(window.get("escaped_threads")),
        _above("compiled_in_window", 0, compiles=window.get("compiles")),
        _above("swapped_in", 0, swapped_in_pages=window.get("swapped_in_pages")),
        _above("major_faults", 0, major_faults=window.get("major_faults")),
        *_throttling(window, is_accelerator),
        _above("cpu_pressure", CPU_PRESSURE, cpu_pressure_before=window.get("cpu_pressure_before")),
        _run_queue_wait(window),
        _above("steal", STEAL, steal_share=window.get("steal_share")),
    )


def _foreign(window: Mapping[str, Any]) -> Doubt | None:
    """`foreign_process` for other processes that used the device, with what shows their use where it is known."""
    pids, use = window.get("foreign_pids"), window.get("foreign_use")
    evidence = {"foreign_pids": pids, "foreign_use": use} if use else {"foreign_pids": pids}
    return doubt("foreign_process", **evidence) if pids else None


def _escaped(threads: Mapping[str, Json] | None) -> Doubt | None:
    """`affinity_escaped` for threads outside the processors that the process was bound to."""
    return doubt("affinity_escaped", threads=dict(threads)) if threads else None


def _throttling(window: Mapping[str, Any], is_accelerator: bool) -> list[Doubt | None]:
    reasons = [str(reason).lower() for reason in window.get("throttle_reasons", ())]
    thermal = [reason for reason in reasons if any(word in reason for word in THERMAL_WORDS)]
    capped = [reason for reason in reasons if any(word in reason for word in POWER_CAP_WORDS)]
    clock, default = window.get("clock_hz_median"), window.get("clock_default_hz")
    clocks = {"clock_hz": clock, "default_hz": default} if clock is not None and default else {}
    is_low = is_accelerator and not capped and clock is not None and default and clock < LOW_CLOCK * default
    return [
        _any("throttle_reason", throttle_reasons=thermal),
        _above("violation_time", 0, violation_ns=window.get("violation_ns")),
        doubt("low_clock", clock_hz=clock, default_hz=default, threshold=LOW_CLOCK) if is_low else None,
        _above("quota_throttled", 0, throttled_periods=window.get("throttled_periods")),
        doubt("power_capped", throttle_reasons=capped, **clocks) if capped else None,
    ]


def _run_queue_wait(window: Mapping[str, Any]) -> Doubt | None:
    limit = RUN_QUEUE_WAIT_SEVERAL if window.get("busy_threads", 1) > 1 else RUN_QUEUE_WAIT_SINGLE
    found = _above("run_queue_wait", limit, run_queue_wait_share=window.get("run_queue_wait_share"))
    return found and replace(found, evidence={**found.evidence, "busy_threads": window.get("busy_threads")})


def about_device_memory(peak_bytes: float | None, weights_bytes: int | None) -> Doubts:
    """`peak_below_weights`: the weights cannot all have been on the device."""
    if peak_bytes is None or weights_bytes is None or peak_bytes >= weights_bytes:
        return ()
    return (doubt("peak_below_weights", device_peak_bytes=peak_bytes, weights_bytes=weights_bytes),)


def about_adapter(verified: Mapping[str, Json]) -> Doubts:
    """`software_adapter`: the browser's GPU is a software renderer on the CPU."""
    adapter = verified.get("adapter")
    if verified.get("is_simulated") is not True or not isinstance(adapter, dict):
        return ()
    return (doubt("software_adapter", **{name: adapter.get(name) for name in ("vendor", "architecture")}),)


def about_calls(verified: Mapping[str, Json]) -> Doubts:
    """Doubts about what calls really ran on, as a session or operation read it back."""
    return (*about_placement(verified), *about_emulation(verified))


def about_load(verified: Mapping[str, Json]) -> Doubts:
    """Doubts about a loaded model and its process, as the session read them back."""
    return (
        *about_calls(verified),
        *about_threads(verified),
        *about_memory_placement(verified),
        *about_adapter(verified),
    )


def about_placement(verified: Mapping[str, Json]) -> Doubts:
    """`cpu_fallback`: part of the model ran on the CPU although another device was requested."""
    fallen, nodes = verified.get("nodes_on_cpu_unasked"), verified.get("nodes")
    if not isinstance(fallen, int) or fallen == 0:
        return ()
    return (doubt("cpu_fallback", nodes_on_cpu_unasked=fallen, nodes=nodes if isinstance(nodes, int) else None),)


def about_threads(verified: Mapping[str, Json]) -> Doubts:
    """`oversubscribed`: more threads than available processors, or than the CPU quota."""
    threads, allowed, quota = (
        _count(verified.get(name)) for name in ("num_threads", "cpus_allowed", "cpu_quota_cores")
    )
    limit = min((each for each in (allowed, quota) if each is not None), default=None)
    if threads is None or limit is None or threads <= limit:
        return ()
    return (doubt("oversubscribed", num_threads=threads, cpus_allowed=allowed, cpu_quota_cores=quota),)


def about_memory_placement(verified: Mapping[str, Json]) -> Doubts:
    """`remote_memory`: part of the memory is on another NUMA node than the processors."""
    by_node, node = verified.get("memory_bytes_by_numa_node"), verified.get("numa_node")
    if not isinstance(by_node, dict) or node is None:
        return ()
    total = sum(_count(held) or 0 for held in by_node.values())
    away = total - (_count(by_node.get(str(node))) or 0)
    return _present(_above("remote_memory", REMOTE_MEMORY, remote_share=away / total) if total else None)


def about_emulation(verified: Mapping[str, Json]) -> Doubts:
    """`emulated_precision`: the weights have this precision but are converted before anything is computed, so another
    precision was measured under this name."""
    precision = verified.get("emulated_precision")
    if not precision:
        return ()
    return (doubt("emulated_precision", precision=precision, compute_types=verified.get("compute_types")),)


def about_launches(medians_ms: Sequence[float], failures: Mapping[int, str]) -> Doubts:
    """Doubts between launches: medians that differ too much, or failed launches (number -> error)."""
    centre = sorted(medians_ms)[len(medians_ms) // 2] if medians_ms else 0.0
    spread = (max(medians_ms) - min(medians_ms)) / centre if len(medians_ms) > 1 and centre > 0 else None
    errors = {str(launch): error for launch, error in failures.items()}
    failed = doubt("launch_failed", errors=errors) if failures and medians_ms else None
    return _present(_above("launch_spread", LAUNCH_SPREAD, relative_spread=spread), failed)


def about_environment(environment: Readings, device: Device | None = None) -> Doubts:
    """Doubts about the machine, which are the same for every result of a run."""
    values, facts = environment.values, {} if device is None else device.facts.values
    governor, cap, default_cap = values.get("cpu_governor"), facts.get("power_cap_w"), facts.get("power_cap_default_w")
    on_battery = values.get("power_source") == "battery"
    clock, default_clock = facts.get("clock_application_hz"), facts.get("clock_default_hz")
    changed_cap = cap is not None and default_cap is not None and cap != default_cap
    changed_clock = clock is not None and default_clock is not None and clock != default_clock
    return _present(
        doubt("on_battery") if on_battery else None,
        doubt("governor", cpu_governor=governor) if governor not in (None, "performance") else None,
        doubt("vm", virtual_machine=values.get("virtual_machine")) if values.get("is_virtual_machine") else None,
        doubt("container", container=values.get("container")) if values.get("is_container") else None,
        doubt("mig") if facts.get("is_mig_enabled") else None,
        doubt("simulator", device_name=device.name) if device is not None and _emulates(device) else None,
        doubt("power_cap", power_cap_w=cap, power_cap_default_w=default_cap) if changed_cap else None,
        doubt("application_clock", clock_application_hz=clock, clock_default_hz=default_clock)
        if changed_clock
        else None,
        doubt("display") if facts.get("is_display_active") else None,
    )


def _emulates(device: Device) -> bool:
    """Whether an emulator computes in place of hardware. A kind that is no hardware (a script) emulates nothing."""
    kind = kind_of(device.type)
    return device.simulated and (kind is None or kind.is_hardware)


def about_end(*times: tuple[str, str]) -> tuple[Doubt, ...]:
    """`clock_set_back`: something ended before it started; `times` are pairs in UTC, as `utc_now` gives them."""
    for started_at, finished_at in times:
        if finished_at < started_at:
            return (doubt("clock_set_back", started_at=started_at, finished_at=finished_at),)
    return ()


def about_workload(workload: Workload) -> Doubts:
    """`random_routing`: with random weights the load of the experts is not the trained model's."""
    plugin = family_named(workload.family)
    if plugin is None or not plugin.has_routed_experts or workload.weights != "random":
        return ()
    return (doubt("random_routing", weights=workload.weights),)


def merge(by_launch: Sequence[tuple[int, Sequence[Doubt]]]) -> Doubts:
    """One doubt of each kind over all launches: the most severe one, with the launches that have the kind."""
    kinds: dict[str, list[tuple[int, Doubt]]] = {}
    for launch, doubts in by_launch:
        for one in doubts:
            kinds.setdefault(one.kind, []).append((launch, one))
    return tuple(_worst(found) for found in kinds.values())


def _worst(found: Sequence[tuple[int, Doubt]]) -> Doubt:
    launch, worst = max(found, key=lambda one: SEVERITIES.index(one[1].severity))
    evidence: dict[str, Json] = {**worst.evidence, "launch": launch, "launches": [number for number, _ in found]}
    return replace(worst, evidence=evidence)


def _above(kind: str, threshold: float, **number: float | None) -> Doubt | None:
    """A doubt when the number is known and above the threshold."""
    ((name, value),) = number.items()
    if value is None or value <= threshold:
        return None
    return doubt(kind, **{name: value, "threshold": threshold})


def _away(kind: str, threshold: float, **number: float | None) -> Doubt | None:
    """A doubt when the number is known and its absolute value is above the threshold."""
    ((name, value),) = number.items()
    if value is None or abs(value) <= threshold:
        return None
    return doubt(kind, **{name: value, "threshold": threshold})


def _any(kind: str, **listed: Any) -> Doubt | None:
    """A doubt when the list is not empty."""
    ((name, values),) = listed.items()
    return doubt(kind, **{name: list(values)}) if values else None


def _count(value: Json) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _present(*doubts: Doubt | None) -> Doubts:
    return tuple(doubt for doubt in doubts if doubt is not None)
