"""The part of a level in which a server is in its steady state: throughput, goodput and requests in flight.

The rates of a whole level include the time in which it fills up and, after the last request was sent, drains: with
replies of 10 s and 30 s of load, a quarter of the time. The steady window of an open loop begins after the first wave
of completions and ends with the last scheduled start. In a closed loop it lies within the time in which the full number
is in flight.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from benchmarking.core.doubts import doubt
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import MS_PER_S
from benchmarking.core.records import Doubt, Requests
from benchmarking.core.sample_statistics import quantile
from benchmarking.load.generator import Level

FIRST_WAVE = 0.9
"""Share of the requests whose latency is at most as long as the first wave of completions."""
FEWEST_COMPLETIONS = 3
FEW_REPLIES = 3.0
"""Median replies that a window should last."""
LITTLE = 0.1
"""Relative difference from Little's law above which the server was not in a steady state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The steady state of a level."""

    seconds: float
    requests_per_sec: float
    """Successful requests that ended in the window."""
    good_per_sec: float | None
    """Those of them within the limits; None without limits, or if that is unknown for some."""
    tokens_out_per_sec: float | None
    tokens_in_per_sec: float | None
    good_tokens_per_sec: float | None
    in_flight: float
    """Mean over time of the requests that were sent and had not ended."""
    little: float | None
    """In flight over (rate of ends x mean time from sending to the end): 1 in a steady state (Little's law)."""
    reply_s: float
    """Median time from sending to the end."""


def window_of(requests: Requests, level: Level) -> Window | None:
    """The steady window; None if the requests start all at once, or if it has hardly any completions."""
    bounds = _bounds(requests, level)
    if bounds is None:
        return None
    start, end = bounds
    if start >= end:
        return None
    seconds = (end - start) / MS_PER_S
    times = tuple(zip(requests.sent_ms, requests.end_ms, strict=True))
    ended = [
        (place, at - sent)
        for place, (sent, at) in enumerate(times)
        if sent is not None and at is not None and start < at <= end
    ]
    done = [place for place, _ in ended if requests.error[place] is None]
    if len(done) < FEWEST_COMPLETIONS:
        return None
    met = [requests.meets_limits[place] for place in done]
    good = [place for place in done if requests.meets_limits[place]]
    overlaps = [min(at, end) - max(sent, start) for sent, at in times if sent is not None and at is not None]
    in_flight = sum(value for value in overlaps if value > 0)
    replies = [took for _, took in ended]
    throughput = len(ended) / (end - start)
    return Window(
        seconds=seconds,
        requests_per_sec=len(done) / seconds,
        good_per_sec=None if None in met else len(good) / seconds,
        tokens_out_per_sec=_per_s([requests.tokens_out[place] for place in done], seconds),
        tokens_in_per_sec=_per_s([requests.tokens_in[place] for place in done], seconds),
        good_tokens_per_sec=None if None in met else _per_s([requests.tokens_out[place] for place in good], seconds),
        in_flight=in_flight / (end - start),
        little=in_flight / (end - start) / (throughput * fmean(replies)) if fmean(replies) > 0 else None,
        reply_s=median(replies) / MS_PER_S,
    )


def about_window(window: Window | None, level: Level, *, is_growing: bool, is_varying: bool) -> Sequence[Doubt]:
    """The doubts about a level's steady window. A queue that grows, and a rate that varies, have doubts of their own
    and no steady state."""
    if window is None:
        return (doubt("no_steady_window"),)
    found = []
    if window.seconds < FEW_REPLIES * window.reply_s:
        needed_s = level.duration_s + FEW_REPLIES * window.reply_s - window.seconds
        found.append(doubt("short_window", window_s=window.seconds, reply_s=window.reply_s, needed_duration_s=needed_s))
        return found
    law, allowed = window.little, LITTLE + window.reply_s / window.seconds
    is_judged = level.is_open and not is_growing and not is_varying
    if is_judged and law is not None and abs(law - 1) > allowed:
        found.append(doubt("unsteady", in_flight_over_littles_law=law))
    return found


def _bounds(requests: Requests, level: Level) -> tuple[float, float] | None:
    """Start and end in ms; None if there is no such window."""
    ends = sorted(end for end in requests.end_ms if end is not None)
    if not ends:
        return None
    if not level.is_open:
        sent = [value for value in requests.sent_ms if value is not None]
        full = level.concurrency or 1
        last = max(sent, default=0.0)
        before = [end for end in ends if end <= last]
        if len(before) < max(2 * full, FEWEST_COMPLETIONS + 1):
            before = before if len(before) > full else []
            return (min(sent), last) if before else None
        return before[full - 1], last
    first_turns = [at for at, turn in zip(requests.intended_ms, requests.turn, strict=True) if not turn]
    start, last = min(first_turns), max(first_turns)
    latencies = [end - at for at, end in zip(requests.intended_ms, requests.end_ms, strict=True) if end is not None]
    wave = start + min(quantile(latencies, FIRST_WAVE), max(ends[0] - start, (last - start) / 2))
    return (wave, last) if wave < last else None


def _per_s(counts: Sequence[int | None], seconds: float) -> float | None:
    """The sum of the counts per second; None if one is unknown."""
    known = [count for count in counts if count is not None]
    return sum(known) / seconds if len(known) == len(counts) else None
