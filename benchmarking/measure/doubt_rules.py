"""Raises doubts about results: pure functions of the measurements, with thresholds and evidence.

`core.doubts` defines the meaning and severity of each kind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import mean, median
from typing import Any

from benchmarking.core.codec import is_number
from benchmarking.core.contracts import NOT_AS_REQUESTED, NOT_VERIFIED
from benchmarking.core.doubts import SEVERITIES, doubt, of_slow_calls
from benchmarking.core.metrics import MS_PER_S
from benchmarking.core.plugins import kind_of
from benchmarking.core.records import Device, Doubt, Json, Point, Readings, Severity, Workload
from benchmarking.core.sample_statistics import (
    IQR_ERROR,
    MIN_SAMPLES_FOR_CLOCK_STEP,
    Statistics,
    binomial_tail,
    clock_step,
    decimals,
    describe,
    drift,
    median_error,
    ordinary,
    slow_calls,
)
from benchmarking.core.text import grouped
from benchmarking.devices.support.handles import CLOCK_BELOW_MAXIMUM, CLOCKS_SETTING
from benchmarking.workloads.support.families import family_named

MISCOUNTED = 0.01
"""Relative difference of the tokens that calls state from those requested: a rate and a time that are rounded for
printing differ by less, and one token of a hundred is no other work."""
LEVEL = 0.01
"""False-positive rate of doubts about samples on a healthy machine; each threshold is widened by what that number of
samples can show by chance."""
Z_LEVEL = 2.3263
"""The one-sided normal quantile of `LEVEL`."""
NOISY_IQR = 0.10
"""Interquartile range over median. Idle machines stay below 2-3 %; at 10 % a difference of 5 % between two results is
noise."""
VERY_NOISY_IQR = 0.25
CORRELATED_TAU = 5.0
"""Correlation time in samples. Above it slow and fast phases alternate, and even the widened interval covers less than
95 %."""
MATERIAL_IQR = 0.02
"""Spread over median. Below it the phases are too similar to change the outcome of a comparison."""
LAUNCH_SPREAD = 0.10
"""(Largest - smallest) / median of the launch medians: more than memory layout and the choice of cores can explain."""
SPREAD_OF = 5
"""The number of launches whose spread is judged. That of more grows with their number, whatever the machine does."""
LAUNCH_SPREAD_ERRORS = 4.6
"""Spread in standard errors of a median that five equal launches exceed in 1 of 100 cases."""
CPU_PRESSURE = 0.10
"""Share of the 10 s before the pass in which some task waited for a CPU, which shows that other programs are busy."""
RUN_QUEUE_WAIT_SINGLE = 0.02
"""Share of wall time with a single busy thread, which has a core to itself unless another program takes it."""
RUN_QUEUE_WAIT_EACH = 0.025
"""The same per thread with several threads, which delay each other a little at every barrier."""
RUN_QUEUE_WAIT_MIN_S = 0.010
"""Minimum total wait. A scheduler time slice is 3-4 ms; a single one in a short window is not competition."""
STEAL = 0.01
"""Share of all CPU time that the hypervisor gave to another virtual machine."""
SEVERE_OUTLIERS = 0.05
"""Share of the samples that are beyond the ordinary range: more than occasional interrupts can explain."""
PROFILER_OVERHEAD = 0.5
"""Share of a call that a profiler may add: above it, shares of the profiled time are those of the profiler too."""
DRIFT = 0.03
"""Difference between the medians of the first and last third: the device was still warming up or heating up."""
DRIFT_Z = 3.3
"""Above it the thirds differ by more than chance. It is the normal quantile of 0.1 %, as the correlation is estimated
too."""
HEATING_S = 30.0
"""Time in which an accelerator heats up, of which a short pass shows the beginning: a change that would exceed `DRIFT`
in it is told, though the pass itself is not disturbed."""
COARSE_CLOCK = 0.01
"""Clock step over median. The median can be off by half a step."""
FEW_SAMPLES = 20
"""With fewer samples the interval is nearly the whole range, and there is no 90th percentile."""
PAGES_READ_PER_S = 10.0
"""Pages that the process reads from disk, at 0.1-1 ms each: below this rate they take less than 1 % of the time."""
CLOCKS_APART_S = 1.0
"""Difference between two clocks over a pass. Synchronizing shifts the system clock by less in half an hour (500 ppm),
and a delay between two readings is shorter."""
PAGES_SWAPPED_PER_S = 100.0
"""Pages swapped in on the whole machine, most of them by other programs."""
REMOTE_MEMORY = 0.05
"""Share of the process's memory. Pages of libraries that another process loaded first may be on any node."""
LOW_CLOCK = 0.75
"""Share of the default clock. A busy accelerator below it is throttled, unless its power limit explains the clock."""
CLAIM_OFF = 3.0
"""Ratio between a time that a benchmark reports and the wall time of the call, either way: its own code around the
timed part takes less than twice as long as that part."""
WRONG_UNIT = 100.0
"""Seconds taken for milliseconds are off by 1000; preparations of a call are rarely 99 times as long as the call."""
SHORT_CALL_MS = 0.1
"""Below it, calling the benchmark's method takes a large part of the wall time."""
MIN_SAMPLES_FOR_ZERO_SPREAD = 3
"""Two readings may be equal by chance."""
FINE_CLOCK = 1e-5
"""Last digit over median: calls vary by more than a finer clock's step, so that it explains no equal readings."""

THERMAL_WORDS = ("thermal", "power_brake", "hardware_slowdown", "hw_slowdown")
"""Substrings of throttle reasons for heat and power brake; a software power cap is not throttling."""
POWER_CAP_WORDS = ("power_cap", "power_limit")

FREE_LEVEL = "auto"
"""The performance level of an AMD GPU whose clocks are not set."""

BY_MAJORITY: frozenset[Severity] = frozenset({"noisy", "throttled"})
"""Severities that count for the result only if half of the launches have the doubt."""

Doubts = tuple[Doubt, ...]


def about_samples(
    values_ms: Sequence[float], in_flight: int = 1, *, inner_loops: int = 1, is_accelerator: bool = False
) -> Doubts:
    """Doubts about one launch's wall times, given in measured order. Thresholds allow for chance. With requests in
    flight, the throughput does not follow from the median latency anyway. Each is the mean of `inner_loops`."""
    statistics = describe(values_ms)
    n, middle = statistics.n, statistics.median
    few = doubt("few_samples", n=n, threshold=FEW_SAMPLES) if n < FEW_SAMPLES else None
    if n >= MIN_SAMPLES_FOR_ZERO_SPREAD and statistics.max == statistics.min:
        return _present(*_about_equal(n, middle), few)
    iqr = (statistics.p75 - statistics.p25) / middle if middle > 0 else None
    chance = math.exp(Z_LEVEL * IQR_ERROR * math.sqrt(statistics.tau / n))
    noisy = _above("very_noisy", VERY_NOISY_IQR * chance, iqr_over_median=iqr)
    noisy = noisy or _above("noisy", NOISY_IQR * chance, iqr_over_median=iqr)
    correlated = None
    if iqr and iqr > MATERIAL_IQR:  # else the phases are too similar to matter
        limit = CORRELATED_TAU * math.exp(Z_LEVEL / math.sqrt(n))
        correlated = _above("correlated", limit, tau_samples=statistics.tau)
    low, high = ordinary(values_ms)
    severe = sum(not low <= value <= high for value in values_ms)
    outliers = _above("severe_outliers", SEVERE_OUTLIERS, severe_share=severe / n)
    if outliers and binomial_tail(severe, n, SEVERE_OUTLIERS) >= LEVEL:
        outliers = None
    slow = of_slow_calls(slow_calls(values_ms), n) if in_flight == 1 else None
    change, drifts = drift(values_ms, finds_trends=is_accelerator), None
    if change is not None and abs(change.z) > DRIFT_Z:
        drifted = doubt("drift", relative_change=change.relative_change, threshold=DRIFT, z=change.z)
        # Between the middles of the first and the last third.
        apart_s = 2 / 3 * sum(values_ms) * inner_loops / MS_PER_S / in_flight
        in_time = change.relative_change * HEATING_S / apart_s
        if abs(change.relative_change) > DRIFT:
            drifts = drifted
        elif is_accelerator and abs(in_time) > DRIFT:
            evidence = {**drifted.evidence, "apart_s": apart_s, "change_in_half_a_minute": in_time}
            drifts = replace(drifted, severity="info", evidence=evidence)
    step_ms = clock_step(values_ms)
    step = step_ms / middle if step_ms and middle > 0 else None
    coarse = _above("coarse_clock", COARSE_CLOCK, clock_step_over_median=step)
    return _present(noisy, correlated, outliers, slow, drifts, coarse, few)


def _about_equal(n: int, every_ms: float) -> Doubts:
    """Doubts about samples that are all equal. A coarse clock explains them if they have few digits and are not many:
    even calls that do not vary are read as two values in turns, unless their length is near a multiple of the step. By
    chance it is near enough for n equal readings with a probability of 2 / (n + 1)."""
    digits = decimals([every_ms])
    step = 10**-digits / every_ms if digits is not None and every_ms > 0 else 0.0
    is_by_clock = step > FINE_CLOCK and 2 / (n + 1) >= LEVEL
    can_tell = is_by_clock and n >= MIN_SAMPLES_FOR_CLOCK_STEP
    equal = doubt("zero_spread", n=n, every_sample_ms=every_ms)
    return _present(
        replace(equal, severity="info") if is_by_clock else equal,
        _above("coarse_clock", COARSE_CLOCK, clock_step_over_median=step) if can_tell else None,
    )


def about_stop(stop_reason: str, relative_half_width: float | None, target: float) -> Doubts:
    """`target_missed` if the interval is wider than the target.

    A fixed number of calls that is too small for an interval only raises `few_samples`.
    """
    met = relative_half_width is not None and relative_half_width <= target
    unknown_by_choice = stop_reason == "fixed" and relative_half_width is None
    if stop_reason == "target" or met or unknown_by_choice:
        return ()
    return (doubt("target_missed", stop_reason=stop_reason, relative_half_width=relative_half_width, target=target),)


def about_warm_up(steady: bool | None, calls: int) -> Doubts:
    """`not_steady` if the warm-up reached its limit first."""
    return (doubt("not_steady", warmup_calls=calls),) if steady is False else ()


def about_output(problem: str | None) -> Doubts:
    """`wrong_output` for NaN, Inf or any other problem that the operation finds."""
    return () if problem is None else (doubt("wrong_output", problem=problem),)


def about_claims(calls_ms: Mapping[str, Sequence[tuple[float, float]]]) -> Doubts:
    """Doubts about times that a benchmark reports, from pairs of reported and wall milliseconds by method: impossible
    ones or a thousandth (`claimed_time`), or a small part of the call (`partly_timed`), which may also prepare it."""
    raised: list[Doubt] = []
    for method, pairs in calls_ms.items():
        claimed_ms, wall_ms = (median(values) for values in zip(*pairs, strict=True))
        ratio = claimed_ms / wall_ms if wall_ms > 0 else math.inf
        evidence: dict[str, Json] = {
            "method": method,
            "claimed_ms": claimed_ms,
            "wall_ms": wall_ms,
            "unit_check": f"{method} reported {claimed_ms:.4g} ms ({claimed_ms / MS_PER_S:.4g} s) for calls that took "
            f"{wall_ms:.4g} ms ({wall_ms / MS_PER_S:.4g} s)",
        }
        if ratio > CLAIM_OFF or (ratio < 1 / WRONG_UNIT and wall_ms >= SHORT_CALL_MS):
            raised.append(doubt("claimed_time", **evidence))
        elif ratio < 1 / CLAIM_OFF:
            raised.append(doubt("partly_timed", **evidence))
    return tuple(raised)


def about_tokens(point: Point, asked: float | None, stated: float | None) -> Doubts:
    """`other_output_length` where calls state to have generated other numbers of tokens than they were asked for."""
    if point.new_tokens is None or not asked or not stated or math.isclose(asked, stated, rel_tol=MISCOUNTED):
        return ()
    return (doubt("other_output_length", asked=asked, tokens=stated),)


def about_clock(*, timed_by_itself: bool) -> Doubts:
    """`timed_by_itself` for a call that measures its own time, as it is unknown what that includes."""
    return (doubt("timed_by_itself"),) if timed_by_itself else ()


def about_profiler(plain_ms: Sequence[float], profiled_ms: Sequence[float]) -> Doubts:
    """`profiler_overhead`: the profiler slows calls so much that shares of their time may not hold without it."""
    plain, profiled = median(plain_ms), median(profiled_ms)
    share = profiled / plain - 1 if plain > 0 else None
    return _present(_above("profiler_overhead", PROFILER_OVERHEAD, overhead_share=share))


def about_window(window: Mapping[str, Any], *, is_accelerator: bool) -> Doubts:
    """Doubts about the machine and the device during the latency pass. Names are as in `machine_state.Window`."""
    foreign = None
    if pids := window.get("foreign_pids"):  # other processes that used the device
        use = window.get("foreign_use")
        foreign = doubt("foreign_process", foreign_pids=pids, **({"foreign_use": use} if use else {}))
    escaped = window.get("escaped_threads")  # threads outside the processors that the process was bound to
    elapsed_s, waited, threads = (window.get(name) for name in ("elapsed_s", "run_queue_wait_share", "busy_threads"))
    # The threshold of the total wait is per thread; a single time slice does not count.
    limit = RUN_QUEUE_WAIT_EACH * threads if threads is not None and threads > 1 else RUN_QUEUE_WAIT_SINGLE
    wait = _above("run_queue_wait", limit, run_queue_wait_share=waited)
    if wait is not None and waited is not None:
        is_slice = elapsed_s is not None and waited * elapsed_s < RUN_QUEUE_WAIT_MIN_S
        wait = None if is_slice else replace(wait, evidence={**wait.evidence, "busy_threads": threads})
    # The few ticks of a short window may reach the threshold by chance.
    share, ticks = window.get("steal_share"), window.get("cpu_ticks")
    steal = _above("steal", STEAL, steal_share=share)
    if steal and share is not None and ticks and binomial_tail(round(share * ticks), ticks, STEAL) >= LEVEL:
        steal = None
    step_s = window.get("clock_step_s", 0.0)
    return _present(
        foreign,
        _above("suspended", CLOCKS_APART_S, suspended_s=window.get("suspended_s")),
        doubt("clock_jumped", clock_step_s=step_s) if abs(step_s) > CLOCKS_APART_S else None,
        doubt("affinity_escaped", threads=dict(escaped)) if escaped else None,
        _above("compiled_in_window", 0, compiles=window.get("compiles")),
        _pages("swapped_in", "swapped_in_pages", window, PAGES_SWAPPED_PER_S),
        _pages("major_faults", "major_faults", window, PAGES_READ_PER_S),
        *_throttling(window, is_accelerator),
        _above("cpu_pressure", CPU_PRESSURE, cpu_pressure_before=window.get("cpu_pressure_before")),
        wait,
        steal,
    )


def _pages(kind: str, name: str, window: Mapping[str, Any], per_s: float) -> Doubt | None:
    """A doubt if there are more pages than `per_s` per second; shorter windows count as one second."""
    return _above(kind, per_s * max(1.0, window.get("elapsed_s", 0.0)), **{name: window.get(name)})


def _throttling(window: Mapping[str, Any], is_accelerator: bool) -> list[Doubt | None]:
    reasons = [str(reason).lower() for reason in window.get("throttle_reasons", ())]
    thermal = [reason for reason in reasons if any(word in reason for word in THERMAL_WORDS)]
    capped = [reason for reason in reasons if any(word in reason for word in POWER_CAP_WORDS)]
    unexplained = () if thermal or capped else (CLOCK_BELOW_MAXIMUM,)
    held = [reason for reason in reasons if reason in (CLOCKS_SETTING, *unexplained)]
    clock, default = window.get("clock_hz_median"), window.get("clock_default_hz") or window.get("clock_highest_hz")
    measured = {} if clock is None else {"clock_hz": clock}
    clocks = {**measured, "default_hz": default} if measured and default else {}
    is_explained = bool(capped or held)
    is_low = is_accelerator and not is_explained and clock is not None and default and clock < LOW_CLOCK * default
    return [
        doubt("throttle_reason", throttle_reasons=thermal) if thermal else None,
        _above("violation_time", 0, violation_ns=window.get("violation_ns")),
        doubt("low_clock", clock_hz=clock, default_hz=default, threshold=LOW_CLOCK) if is_low else None,
        _above("quota_throttled", 0, throttled_periods=window.get("throttled_periods")),
        doubt("power_capped", throttle_reasons=capped, **clocks) if capped else None,
        doubt("application_clock", throttle_reasons=held, **measured) if held else None,
    ]


def about_device_memory(peak_bytes: float | None, weights_bytes: int | None) -> Doubts:
    """`peak_below_weights`: not all weights can have been on the device."""
    if peak_bytes is None or weights_bytes is None or peak_bytes >= weights_bytes:
        return ()
    return (doubt("peak_below_weights", device_peak_bytes=peak_bytes, weights_bytes=weights_bytes),)


def about_calls(verified: Mapping[str, Json]) -> Doubts:
    """Doubts about what calls actually ran on, as verified by a session or operation: part of the model ran on the CPU
    although another device was requested; weights of a precision were converted before computing, so another one was
    measured; something else ran, or what ran could not be verified."""
    fallen, nodes, raised = verified.get("nodes_on_cpu_unasked"), verified.get("nodes"), list[Doubt]()
    if isinstance(fallen, int) and fallen != 0:
        nodes = nodes if isinstance(nodes, int) else None
        raised.append(doubt("cpu_fallback", nodes_on_cpu_unasked=fallen, nodes=nodes))
    if precision := verified.get("emulated_precision"):
        types = verified.get("compute_types")
        raised.append(doubt("emulated_precision", precision=precision, compute_types=types))
    if (other := verified.get(NOT_AS_REQUESTED)) is not None:
        raised.append(doubt("not_as_requested", why=other))
    if (unknown := verified.get(NOT_VERIFIED)) is not None:
        raised.append(doubt("not_verified", why=unknown))
    return tuple(raised)


def about_load(verified: Mapping[str, Json]) -> Doubts:
    """Doubts about a loaded model and its process, as verified by the session: those about its calls; more threads than
    available processors, or than the CPU quota; memory on another NUMA node than the processors; a GPU of a browser or
    an engine that is a software renderer; a quantized checkpoint whose weights are floating point in memory."""
    raised = list(about_calls(verified))
    threads, allowed, quota = (
        _count(verified.get(name)) for name in ("num_threads", "cpus_allowed", "cpu_quota_cores")
    )
    limit = min((count for count in (allowed, quota) if count is not None), default=None)
    if threads is not None and limit is not None and threads > limit:
        raised.append(doubt("oversubscribed", num_threads=threads, cpus_allowed=allowed, cpu_quota_cores=quota))
    by_node, node = verified.get("memory_bytes_by_numa_node"), verified.get("numa_node")
    if isinstance(by_node, dict) and node is not None:
        known = {name: count for name, value in by_node.items() if (count := _count(value)) is not None}
        total = sum(known.values()) if len(known) == len(by_node) else 0
        away = total - known.get(str(node), 0)  # a node without memory is not listed
        raised += _present(_above("remote_memory", REMOTE_MEMORY, remote_share=away / total) if total else None)
    adapter = verified.get("adapter")
    if verified.get("is_simulated") is True and isinstance(adapter, dict):
        about = {name: adapter.get(name) for name in ("vendor", "architecture")}
        raised.append(doubt("software_adapter", **about))
    if (dtype := verified.get("weights_dequantized_to")) is not None:
        raised.append(doubt("dequantized", dtype=dtype, method=verified.get("quantization_method")))
    return tuple(raised)


def about_launches(launches: Sequence[Statistics], failures: Mapping[int, str]) -> Doubts:
    """Doubts across launches: medians that differ too much and by more than their own errors, or failed launches
    (errors by number). Of more than five launches, the spread is the mean of any five of them."""
    medians = sorted(launch.median for launch in launches)
    count, of = len(medians), min(len(medians), SPREAD_OF)
    centre = medians[count // 2] if medians else 0.0
    # The i-th smallest is the largest of comb(i, of - 1) choices, and the smallest of comb(count - 1 - i, of - 1).
    total = sum(x * (math.comb(i, of - 1) - math.comb(count - 1 - i, of - 1)) for i, x in enumerate(medians))
    spread = total / math.comb(count, of) / centre if count > 1 and centre > 0 else None
    error = mean(map(median_error, launches)) if launches else 0.0
    errors = {str(launch): error for launch, error in failures.items()}
    failed = doubt("launch_failed", errors=errors) if failures and medians else None
    return _present(
        _above("launch_spread", LAUNCH_SPREAD + LAUNCH_SPREAD_ERRORS * error, relative_spread=spread), failed
    )


def about_environment(environment: Readings, device: Device | None = None) -> Doubts:
    """Doubts about the machine, equal for all results of a run."""
    values, facts = environment.values, {} if device is None else device.facts.values
    governor, cap, default_cap = values.get("cpu_governor"), facts.get("power_cap_w"), facts.get("power_cap_default_w")
    on_battery = values.get("power_source") == "battery"
    clock, default_clock = facts.get("clock_application_hz"), facts.get("clock_default_hz")
    changed_cap = cap is not None and default_cap is not None and cap != default_cap
    changed_clock = clock is not None and default_clock is not None and clock != default_clock
    set_clocks = {name: facts[name] for name in ("performance_level", "is_clock_locked") if name in facts}
    are_set = set_clocks.get("performance_level", FREE_LEVEL) != FREE_LEVEL or set_clocks.get("is_clock_locked")
    emulates = False  # whether an emulator replaces the hardware; the null device has none to emulate
    if device is not None and device.simulated:
        kind = kind_of(device.type)
        emulates = kind is None or kind.is_hardware
    return _present(
        doubt("on_battery") if on_battery else None,
        doubt("governor", cpu_governor=governor) if governor not in (None, "performance") else None,
        doubt("vm", virtual_machine=values.get("virtual_machine")) if values.get("is_virtual_machine") else None,
        doubt("container", container=values.get("container")) if values.get("is_container") else None,
        doubt("mig") if facts.get("is_mig_enabled") else None,
        doubt("simulator", device_name=device.name) if device is not None and emulates else None,
        doubt("power_cap", power_cap_w=cap, power_cap_default_w=default_cap) if changed_cap else None,
        doubt("application_clock", clock_application_hz=clock, clock_default_hz=default_clock)
        if changed_clock
        else None,
        doubt("application_clock", **set_clocks) if are_set else None,
        doubt("display") if facts.get("is_display_active") else None,
    )


def about_end(*times: tuple[str, str]) -> tuple[Doubt, ...]:
    """`clock_set_back`: something ended before it started, or before what preceded it. `times` are pairs of UTC times
    from `utc_now`, the earlier one first."""
    for earlier, later in times:
        if later < earlier:
            return (doubt("clock_set_back", earlier=earlier, later=later),)
    return ()


def about_workload(workload: Workload) -> Doubts:
    """`random_routing`: with random weights the experts' load differs from the trained model's."""
    plugin = family_named(workload.family)
    if plugin is None or not plugin.has_routed_experts or workload.weights != "random":
        return ()
    return (doubt("random_routing", weights=workload.weights),)


def merge(by_launch: Sequence[tuple[int, Sequence[Doubt]]], launches: int) -> Doubts:
    """One doubt of each kind over all `launches`: the most severe one, with the numbers of the launches that have it.

    A disturbance of fewer than half of the launches barely moves their median, so it is kept as information. A doubt
    that makes one launch invalid makes the result invalid.
    """
    kinds = grouped((raised.kind, (launch, raised)) for launch, doubts in by_launch for raised in doubts)
    merged = []
    for of_kind in kinds.values():
        launch, worst = max(of_kind, key=lambda item: SEVERITIES.index(item[1].severity))
        numbers = sorted({number for number, _ in of_kind})
        is_minor = worst.severity in BY_MAJORITY and 2 * len(numbers) < launches
        evidence: dict[str, Json] = {**worst.evidence, "launch": launch, "launches": list(numbers), "of": launches}
        merged.append(replace(worst, severity="info" if is_minor else worst.severity, evidence=evidence))
    return tuple(merged)


def _above(kind: str, threshold: float, **number: float | None) -> Doubt | None:
    """A doubt if the number is known and above the threshold."""
    ((name, value),) = number.items()
    if value is None or value <= threshold:
        return None
    return doubt(kind, **{name: value, "threshold": threshold})


def _count(value: Json) -> float | None:
    return value if is_number(value) else None


def _present(*doubts: Doubt | None) -> Doubts:
    return tuple(doubt for doubt in doubts if doubt is not None)
