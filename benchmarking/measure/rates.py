"""Numbers derived from a point's raw samples and its amount of work: rates, device time, phases, energy shares.

Each is computed per launch; the point's number is the median over launches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from benchmarking.core.metrics import THROUGHPUT_AT_MEDIAN
from benchmarking.core.records import Measurement
from benchmarking.measure.timing import (
    LATENCY_REQUEST,
    LATENCY_WALL,
    TIME_PER_OUTPUT_TOKEN,
    TIME_TO_FIRST_TOKEN,
    TOKENIZE,
    Series,
)

MS_PER_S = 1000.0
PER_CALL = "_j_per_call"
ENERGY_UNITS = {"item": "items_per_call", "token": "tokens_per_call"}
"""Units that a call's energy is divided by, and the key of their number in a call."""


def rate_metrics(measured: Sequence[Measurement]) -> dict[str, float]:
    """All rates, device times and phases of the launches, by column."""
    by_launch = [_of_launch(launch) for launch in measured]
    names = {name for values in by_launch for name in values}
    return {name: median(values[name] for values in by_launch if name in values) for name in sorted(names)}


def energy_shares(measured: Sequence[Measurement]) -> dict[str, float]:
    """Energy per item and per token, as medians over launches.

    `energy_<domain>_j_per_item` and `_j_per_token`; net of the idle power `energy_<domain>_net_j_per_call`, `_item` and
    `_token`; and the standard deviation between windows, `energy_<domain>_sd_j_per_call`.
    """
    names = sorted({name for launch in measured for name in launch.metrics if name.endswith(PER_CALL)})
    shares: dict[str, float] = {}
    for name in names:
        per_call = median(launch.metrics[name] for launch in measured if name in launch.metrics)
        if "_net_" in name or "_sd_" in name:
            shares[name] = per_call
        if "_sd_" not in name:
            shares |= {
                f"{name.removesuffix(PER_CALL)}_j_per_{unit}": per_call / count
                for unit, key in ENERGY_UNITS.items()
                if (count := _count(measured[0], key)) is not None
            }
    return shares


def derived(values: Mapping[str, float], in_flight: int = 1, items_per_call: int | None = None) -> dict[str, float]:
    """Numbers derived from a point's median latency and its other numbers.

    throughput at median = items of a call x requests in flight / median latency: what the throughput would be without
    slow calls.
    real-time factor = median latency / seconds of audio in a call: below 1 is faster than real time.
    achieved FLOP/s = FLOPs of a call x requests in flight / median latency.
    total = time to tokenize + median latency.
    """
    latency_s = values["latency_median_ms"] / MS_PER_S
    audio_s, flops = values.get("audio_seconds_per_call"), values.get("flops")
    numbers: dict[str, float] = {}
    if items_per_call is not None and latency_s > 0:
        numbers[THROUGHPUT_AT_MEDIAN] = items_per_call * in_flight / latency_s
    if audio_s:
        numbers["real_time_factor"] = latency_s / audio_s
    if flops is not None and latency_s > 0:
        numbers["achieved_flops_per_sec"] = flops * in_flight / latency_s
    if "tokenize_ms" in values:
        numbers["total_ms"] = values["tokenize_ms"] + values["latency_median_ms"]
    return numbers


def measured_series(measurement: Measurement) -> Series:
    """The timed samples of a launch by raw metric, in milliseconds, without metrics that have no value."""
    return {
        samples.metric: samples.values
        for samples in measurement.samples
        if samples.phase == "measure" and samples.values
    }


def _count(measurement: Measurement, key: str) -> int | None:
    """Number of items, tokens, ... in a call; None if it has none."""
    value = measurement.extra.get(key)
    return value if isinstance(value, int) and value > 0 else None


def items_per_call(measurement: Measurement) -> int | None:
    """Number of items in a call of a launch; None if it has none."""
    return _count(measurement, "items_per_call")


def _of_launch(measurement: Measurement) -> dict[str, float]:
    """The rates, device times and phases of a launch. A phase's median is over all its occurrences in all calls."""
    series = measured_series(measurement)
    values: dict[str, float] = {}
    # Items (tokens) per call x calls / wall time, where wall time is the sum over sequential calls, or the time from
    # the first start to the last end of requests in flight. It is thus a mean, not the rate at the median latency.
    wall_ms = measurement.extra.get("requests_wall_ms", sum(series[LATENCY_WALL]))
    items, tokens, prompt_tokens, new_tokens = (
        _count(measurement, key)
        for key in ("items_per_call", "tokens_per_call", "prompt_tokens_per_call", "new_tokens")
    )
    calls_per_s = len(series[LATENCY_WALL]) * MS_PER_S / wall_ms if wall_ms > 0 else None
    if items is not None and calls_per_s is not None:
        values["throughput_samples_per_sec"] = items * calls_per_s
    if tokens is not None and calls_per_s is not None:
        values["throughput_tokens_per_sec"] = tokens * calls_per_s
    medians = {
        "latency_device": "latency_device_median_ms",  # from a pair of events around the call
        LATENCY_REQUEST: "latency_request_median_ms",  # by the runtime's own clock; a call may run several at once
        TOKENIZE: "tokenize_ms",  # to make the inputs of a call
    }
    for name, times_ms in series.items():
        column = f"{name.removeprefix('phase_')}_ms" if name.startswith("phase_") else medians.get(name)
        if column is not None:
            values[column] = median(times_ms)
    # Prefill = prompt tokens / ttft; decode = B (N - 1) / (e2e - ttft) = B / tpot.
    first_ms, per_token_ms = series.get(TIME_TO_FIRST_TOKEN), series.get(TIME_PER_OUTPUT_TOKEN)
    if first_ms and prompt_tokens is not None and min(first_ms) > 0:
        values["prefill_tokens_per_sec"] = median(prompt_tokens * MS_PER_S / time_ms for time_ms in first_ms)
    if per_token_ms and tokens is not None and new_tokens is not None and min(per_token_ms) > 0:
        values["decode_tokens_per_sec"] = median(tokens / new_tokens * MS_PER_S / time_ms for time_ms in per_token_ms)
    return values
