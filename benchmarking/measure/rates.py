"""Numbers derived from a point's raw samples and its amount of work: rates, device time, phases, energy shares.

Each is computed per launch; the point's number is the median over launches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from benchmarking.core.records import Measurement
from benchmarking.measure.timing import (
    LATENCY_REQUEST,
    LATENCY_WALL,
    TIME_PER_OUTPUT_TOKEN,
    TIME_TO_FIRST_TOKEN,
    TOKENIZE,
    WALL_OF_REQUESTS,
    Series,
)

MS_PER_S = 1000.0
PER_CALL = "_j_per_call"
ENERGY_UNITS = {"item": "items_per_call", "token": "tokens_per_call"}
"""Units that a call's energy is divided by, and the key of their number in a call."""


def rate_metrics(measured: Sequence[Measurement]) -> dict[str, float]:
    """All rates, device times and phases of the launches, by column."""
    by_launch = [_of_launch(one) for one in measured]
    names = {name for values in by_launch for name in values}
    return {name: median(values[name] for values in by_launch if name in values) for name in sorted(names)}


def energy_shares(measured: Sequence[Measurement]) -> dict[str, float]:
    """Energy per item and per token, as medians over launches.

    `energy_<domain>_j_per_item` and `_j_per_token`; net of the idle power `energy_<domain>_net_j_per_call`, `_item` and
    `_token`; and the standard deviation between windows, `energy_<domain>_sd_j_per_call`.
    """
    names = sorted({name for one in measured for name in one.metrics if name.endswith(PER_CALL)})
    shares: dict[str, float] = {}
    for name in names:
        per_call = median(one.metrics[name] for one in measured if name in one.metrics)
        if "_net_" in name or "_sd_" in name:
            shares[name] = per_call
        if "_sd_" not in name:
            shares |= {
                f"{name.removesuffix(PER_CALL)}_j_per_{unit}": per_call / count
                for unit, key in ENERGY_UNITS.items()
                if (count := _count(measured[0], key)) is not None
            }
    return shares


def derived(values: Mapping[str, float], in_flight: int = 1) -> dict[str, float]:
    """Numbers derived from a point's median latency and its other numbers.

    real-time factor = median latency / seconds of audio in a call: below 1 is faster than real time.
    achieved FLOP/s = FLOPs of a call x requests in flight / median latency.
    total = time to tokenize + median latency.
    """
    latency_s = values["latency_median_ms"] / MS_PER_S
    audio_s, flops = values.get("audio_seconds_per_call"), values.get("flops")
    found: dict[str, float] = {}
    if audio_s:
        found["real_time_factor"] = latency_s / audio_s
    if flops is not None and latency_s > 0:
        found["achieved_flops_per_sec"] = flops * in_flight / latency_s
    if "tokenize_ms" in values:
        found["total_ms"] = values["tokenize_ms"] + values["latency_median_ms"]
    return found


def measured_series(measurement: Measurement) -> Series:
    """The timed samples of a launch by raw metric, in milliseconds, without metrics that have no value."""
    return {one.metric: one.values for one in measurement.samples if one.phase == "measure" and one.values}


def _count(measurement: Measurement, key: str) -> int | None:
    """Number of items, tokens, ... in a call; None if it has none."""
    value = measurement.extra.get(key)
    return value if isinstance(value, int) and value > 0 else None


def _of_launch(measurement: Measurement) -> dict[str, float]:
    series = measured_series(measurement)
    return {
        **_throughput(measurement, series),
        **_device(series),
        **_request(series),
        **_tokens(measurement, series),
        **_phases(series),
        **_inputs(series),
    }


def _throughput(measurement: Measurement, series: Series) -> dict[str, float]:
    """Items (tokens) per call x calls / wall time, where wall time is the sum over sequential calls, or the time from
    the first start to the last end of requests in flight. It is thus a mean, not the rate at the median latency."""
    calls, together_ms = series[LATENCY_WALL], measurement.extra.get(WALL_OF_REQUESTS)
    wall_ms = float(together_ms) if isinstance(together_ms, int | float) else sum(calls)
    if wall_ms <= 0:
        return {}
    calls_per_s = len(calls) * MS_PER_S / wall_ms
    keys = {"throughput_samples_per_sec": "items_per_call", "throughput_tokens_per_sec": "tokens_per_call"}
    counts = {name: _count(measurement, key) for name, key in keys.items()}
    return {name: count * calls_per_s for name, count in counts.items() if count is not None}


def _device(series: Series) -> dict[str, float]:
    """Device time, from a pair of events around the call."""
    device_ms = series.get("latency_device")
    return {} if device_ms is None else {"latency_device_median_ms": median(device_ms)}


def _request(series: Series) -> dict[str, float]:
    """The latency of one request by the runtime's own clock; a call may run several requests at once."""
    request_ms = series.get(LATENCY_REQUEST)
    return {} if request_ms is None else {"latency_request_median_ms": median(request_ms)}


def _phases(series: Series) -> dict[str, float]:
    """The median of each phase, over all its occurrences in all calls."""
    return {
        f"{name.removeprefix('phase_')}_ms": median(values)
        for name, values in series.items()
        if name.startswith("phase_")
    }


def _inputs(series: Series) -> dict[str, float]:
    """The median time to make the inputs of a call."""
    return {"tokenize_ms": median(series[TOKENIZE])} if TOKENIZE in series else {}


def _tokens(measurement: Measurement, series: Series) -> dict[str, float]:
    """Medians of prefill = prompt tokens / ttft and decode = B (N - 1) / (e2e - ttft) = B / tpot."""
    values: dict[str, float] = {}
    first_ms, per_token_ms = series.get(TIME_TO_FIRST_TOKEN), series.get(TIME_PER_OUTPUT_TOKEN)
    prompt_tokens = _count(measurement, "prompt_tokens_per_call")
    if first_ms and prompt_tokens is not None and min(first_ms) > 0:
        values["prefill_tokens_per_sec"] = median(prompt_tokens * MS_PER_S / each for each in first_ms)
    tokens, new_tokens = _count(measurement, "tokens_per_call"), _count(measurement, "new_tokens")
    if per_token_ms and tokens is not None and new_tokens is not None and min(per_token_ms) > 0:
        values["decode_tokens_per_sec"] = median(tokens / new_tokens * MS_PER_S / each for each in per_token_ms)
    return values
