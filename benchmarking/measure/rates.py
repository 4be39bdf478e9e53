"""Rates and token times of a point: per launch from its raw samples, then the median over launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from benchmarking.estimates import tail_quantile
from benchmarking.measure.streaming import INTER_TOKEN_LATENCY, TIME_PER_OUTPUT_TOKEN, TIME_TO_FIRST_TOKEN
from benchmarking.measure.timing import LATENCY_REQUEST
from benchmarking.records import Measurement

MS_PER_S = 1000.0

Series = Mapping[str, tuple[float, ...]]


def metrics(measured: Sequence[Measurement]) -> dict[str, float]:
    """Every rate and token time that can be had from these launches, by column."""
    by_launch = [_of_launch(one) for one in measured]
    names = {name for values in by_launch for name in values}
    return {name: median(values[name] for values in by_launch if name in values) for name in sorted(names)}


def derived(values: Mapping[str, float]) -> dict[str, float]:
    """What follows from a point's median latency and its readings.

    real-time factor = median latency / seconds of audio in a call: below 1 is faster than it was spoken.
    achieved FLOP/s = FLOPs of a call / median latency.
    """
    latency_s = values["latency_median_ms"] / MS_PER_S
    audio_s, flops = values.get("audio_seconds_per_call"), values.get("flops")
    found: dict[str, float] = {}
    if audio_s:
        found["real_time_factor"] = latency_s / audio_s
    if flops is not None and latency_s > 0:
        found["achieved_flops_per_sec"] = flops / latency_s
    return found


def _of_launch(measurement: Measurement) -> dict[str, float]:
    series = {one.metric: one.values for one in measurement.samples if one.phase == "measure" and one.values}

    def count(name: str) -> int | None:
        value = measurement.extra.get(name)
        return value if isinstance(value, int) and value > 0 else None

    return {
        **_throughput(series, count),
        **_device(series),
        **_request(series),
        **_tokens(series, count),
        **_phases(series),
    }


def _throughput(series: Series, count: Callable[[str], int | None]) -> dict[str, float]:
    """Sequential: items (tokens) of a call x calls / sum of their wall times."""
    wall_ms = series["latency_wall"]
    calls_per_s = len(wall_ms) * MS_PER_S / sum(wall_ms) if sum(wall_ms) > 0 else None
    counts = {
        "throughput_samples_per_sec": count("items_per_call"),
        "throughput_tokens_per_sec": count("tokens_per_call"),
    }
    return {name: each * calls_per_s for name, each in counts.items() if each is not None and calls_per_s is not None}


def _device(series: Series) -> dict[str, float]:
    """The device's own time, and the host's gap around it: the median of the paired differences."""
    device_ms = series.get("latency_device")
    if device_ms is None:
        return {}
    gaps = [wall - device for wall, device in zip(series["latency_wall"], device_ms, strict=True)]
    return {"latency_device_median_ms": median(device_ms), "host_gap_ms": median(gaps)}


def _request(series: Series) -> dict[str, float]:
    """What one request takes by the runtime's own clock, where it has one; a call may be several at once."""
    request_ms = series.get(LATENCY_REQUEST)
    return {} if request_ms is None else {"latency_request_median_ms": median(request_ms)}


def _phases(series: Series) -> dict[str, float]:
    """The median of each phase; of a step, over all steps of all calls."""
    return {
        f"{name.removeprefix('phase_')}_ms": median(values)
        for name, values in series.items()
        if name.startswith("phase_")
    }


def _tokens(series: Series, count: Callable[[str], int | None]) -> dict[str, float]:
    """ttft, tpot, itl; prefill = prompt tokens / ttft and decode = B (N - 1) / (e2e - ttft) = B / tpot, as medians."""
    values: dict[str, float] = {}
    if TIME_TO_FIRST_TOKEN in series:
        first_ms = series[TIME_TO_FIRST_TOKEN]
        values["time_to_first_token_ms"] = median(first_ms)
        prompt_tokens = count("prompt_tokens_per_call")
        if prompt_tokens is not None and min(first_ms) > 0:
            values["prefill_tokens_per_sec"] = median(prompt_tokens * MS_PER_S / each for each in first_ms)
    if TIME_PER_OUTPUT_TOKEN in series:
        per_token_ms = series[TIME_PER_OUTPUT_TOKEN]
        values["time_per_output_token_ms"] = median(per_token_ms)
        tokens, new_tokens = count("tokens_per_call"), count("new_tokens")
        if tokens is not None and new_tokens is not None and min(per_token_ms) > 0:
            values["decode_tokens_per_sec"] = median(tokens / new_tokens * MS_PER_S / each for each in per_token_ms)
    if INTER_TOKEN_LATENCY in series:
        gaps_ms = series[INTER_TOKEN_LATENCY]
        values["inter_token_latency_p50_ms"] = median(gaps_ms)
        p99 = tail_quantile(gaps_ms, 0.99)
        values |= {} if p99 is None else {"inter_token_latency_p99_ms": p99}
    return values
