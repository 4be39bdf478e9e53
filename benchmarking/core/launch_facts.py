"""What else is known of a point in one launch: the work of a call, how each pass measured, and why it failed.

These facts are stored as the `launches` of a result, without those of a failed launch. A fact that was not established
is absent, so that unknown differs from none.
"""

from __future__ import annotations

from typing import Any, TypedDict


class LaunchFacts(TypedDict, total=False):
    """The facts of a measurement, by the names under which they are stored."""

    # The work of a call, from which rates are computed; None for none.
    items_per_call: int | None
    tokens_per_call: int | None
    prompt_tokens_per_call: int | None
    new_tokens: int | None
    requests_in_flight: int
    """Only if there are several at a time."""
    requests_wall_ms: float
    """Wall time of all timed requests in flight, the denominator of their throughput."""

    # The latency pass and its warm-up.
    calibration_ms: list[float]
    """Single calls before those in blocks."""
    warmup_samples_counted: int
    """Steady samples of the warm-up that count as timed ones."""
    cold_cache_bytes: int
    """Flushed before each timed call."""
    throttled_try: dict[str, Any]
    """A pass that heat or power throttled, and that was repeated."""
    budget: dict[str, Any]
    """The time budget, and the settings that it changed."""

    # The other passes.
    pipelined_calls: int
    pipelined_rounds_s: list[float]
    memory_calls: int
    peak_rss_method: str
    """high_water_mark, sampled_10ms or process_lifetime."""
    device_memory_peaks_by_device: dict[str, Any]
    device_memory_interval_s: float
    device_memory_readings: int
    monitored_calls: int
    monitored_s: float
    monitor_interval_s: float
    usage: dict[str, float]
    """Mean and maximum of each reading of the device and the processors."""
    traced_calls: int
    kernel_ms_per_call: float
    kernels_per_call: float
    energy_method: Any
    energy_method_by_domain: dict[str, Any]
    energy_j_by_window: dict[str, Any]
    energy_j_per_call_by_window: dict[str, Any]
    energy_idle_w_by_domain: dict[str, Any]
    power_mean_w_by_domain: dict[str, Any]
    energy_calls: list[int]
    energy_calls_per_s: list[float]
    energy_gpu_j_per_call_by_device: dict[str, Any]
    energy_counter_dropped: Any
    """A counter whose reading fell."""
    compile_method: str
    """counter, or upper_bound: the first call less a steady one."""
    verified: dict[str, Any]
    """What the calls actually ran on."""
    output_errors: dict[str, Any]
    """The errors of each output, if a call has several."""
    flops_source: str
    """reference, if the runtime does not count them."""
    custom_metrics: dict[str, Any]
    """Unit and direction of each metric of the operation's own."""

    # A failure.
    traceback: str | None
    """Of a bug; None for an expected error."""
    out_of_memory: bool
    device_lost: bool
