"""Rules that make an open-loop load invalid, for our own loads and imported ones.

Imported files contain less than our own records: some have no request times, most have no schedule. A rule is applied
only where its data exist. Sources: MLPerf's inference rules, GuideLLM (lateness), inference-perf (achieved rate).
Over-saturation is judged by the queue: see `queue_growth`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from benchmarking.core.doubts import doubt
from benchmarking.core.queue_growth import Queue, queue_of
from benchmarking.core.records import Doubt, Json, Requests

MAX_LATENESS_SHARE = 0.01
"""Maximum p95 of the lateness, as a share of the median time to first token."""
MIN_ACHIEVED_SHARE = 0.98
MAX_CACHED_SHARE = 0.01
SIGNIFICANT_T = 3.09
"""One-sided p = 0.001, since successive requests are not independent and a curve has many levels."""
MIN_REQUESTS_FOR_TREND = 10
MS_PER_S = 1000.0


def late_generator(lateness_p95_ms: float, first_token_ms: float) -> Sequence[Doubt]:
    """The doubt about requests that were sent late, by p95 of their lateness and the median time to first token (or to
    the end, where nothing is streamed)."""
    if lateness_p95_ms <= MAX_LATENESS_SHARE * first_token_ms:
        return ()
    return (doubt("late_generator", lateness_p95_ms=lateness_p95_ms, time_to_first_token_ms=first_token_ms),)


def rate_not_achieved(requested_per_s: float, achieved_share: float, *, by_chance: float = 0.0) -> Sequence[Doubt]:
    """The doubt about requests that were sent at a share of the rate; `by_chance` as in `drawn_shortfall`."""
    if achieved_share >= MIN_ACHIEVED_SHARE - by_chance:
        return ()
    return (doubt("rate_not_achieved", requested_per_s=requested_per_s, achieved_share=achieved_share),)


def drawn_shortfall(requests: int, variation: float = 1.0) -> float:
    """The relative shortfall of the mean rate of this many random arrivals that can occur by chance (one-sided
    p = 0.001). `variation` is the coefficient of variation of the gaps: 1 for Poisson arrivals, 0 for constant ones."""
    return SIGNIFICANT_T * variation / math.sqrt(max(requests, 1))


def prefix_cache_hit(cached_tokens: float, prompt_tokens: float) -> Sequence[Doubt]:
    """The doubt about prompts without a common prefix that the server took from its prefix cache."""
    share = cached_tokens / prompt_tokens if prompt_tokens else 0.0
    return (doubt("prefix_cache_hit", cached_share=share),) if share >= MAX_CACHED_SHARE else ()


def over_saturated(requests: Requests, rate_per_s: float | None = None) -> Sequence[Doubt]:
    """The doubt about a server whose queue kept growing at this rate (None: the rate of the schedule), or the
    information that the level was too short to tell, with the duration that would be enough."""
    queue = _queue(requests, rate_per_s)
    if queue.growth == "growing":
        return (doubt("over_saturated", **_evidence(queue)),)
    return (doubt("saturation_unknown", needed_duration_s=queue.needed_s),) if queue.growth == "unknown" else ()


def over_saturation(requests: Requests, rate_per_s: float | None = None) -> dict[str, Json] | None:
    """The evidence that the server's queue kept growing; None if it did not, or if the level was too short to tell."""
    queue = _queue(requests, rate_per_s)
    return _evidence(queue) if queue.growth == "growing" else None


def correlation(requests: Requests, rate_per_s: float | None = None) -> float | None:
    """The number of successive requests that are worth one independent request; None if no queue is seen."""
    found = _queue(requests, rate_per_s).correlation
    return None if found is None else found * len(requests) / max(sum(not turn for turn in requests.turn), 1)


def _queue(requests: Requests, rate_per_s: float | None) -> Queue:
    """The queue of the requests, or of the conversations: only their first turns have a schedule, and a server that
    falls behind delays the others."""
    starts: dict[object, float] = {}
    ends: dict[object, float] = {}
    rows = zip(requests.conversation, requests.intended_ms, requests.end_ms, strict=True)
    for place, (conversation, start, end) in enumerate(rows):
        key = ("alone", place) if conversation is None else conversation
        starts[key] = min(start, starts.get(key, start))
        if end is not None:
            ends[key] = max(end, ends.get(key, end))
    return queue_of(list(starts.values()), list(ends.values()), rate_per_s)


def _evidence(queue: Queue) -> dict[str, Json]:
    return {"load": queue.load, "relative_error": queue.load_error}


def over_saturated_by_statistics(
    requests: float,
    offered_per_s: float,
    completed_per_s: float,
    *,
    peak: float | None = None,
    latency_ms: float | None = None,
    first_token_ms: float | None = None,
    variation: float = 1.0,
) -> Sequence[Doubt]:
    """The doubt about a server whose queue kept growing, for a load of which only statistics are known: medians, and
    the highest number of requests in flight.

    Requests complete at less than the offered rate also because the last ones take their time after sending has ended.
    So a low rate alone is no doubt: besides, nearly all requests were in flight at once, or requests took as long as
    the whole load was sent, or waited for their first token for a large part of the time after the last was sent.
    """
    if requests < MIN_REQUESTS_FOR_TREND or offered_per_s <= 0 or completed_per_s <= 0:
        return ()
    share = completed_per_s / offered_per_s
    if share >= MIN_COMPLETED_SHARE - drawn_shortfall(round(requests), variation):
        return ()
    sending_s = requests / offered_per_s
    rest_s = requests / completed_per_s - sending_s
    signs = {
        "in_flight_share": None if peak is None else peak / requests,
        "latency_share_of_sending": None if latency_ms is None else latency_ms / MS_PER_S / sending_s,
        "first_token_share_of_rest": None if first_token_ms is None else first_token_ms / MS_PER_S / rest_s,
    }
    found = {name: value for name, value in signs.items() if value is not None and value >= MIN_SIGN[name]}
    if not found:
        return ()
    return (doubt("over_saturated", offered_per_s=offered_per_s, completed_share=share, **found),)


MIN_COMPLETED_SHARE = 0.9
MIN_SIGN = {"in_flight_share": 0.8, "latency_share_of_sending": 0.5, "first_token_share_of_rest": 0.25}
"""Minimum of each sign. Of a queue that grows at a constant pace, the median wait is half of the last one."""


def lateness(requests: Requests) -> list[float]:
    """The delay of each request behind its schedule, in ms."""
    return [sent - at for at, sent in zip(requests.intended_ms, requests.sent_ms, strict=True) if sent is not None]


def achieved_share(requests: Requests) -> float | None:
    """The achieved rate as a share of the scheduled rate; None for fewer than 2 distinct times."""
    sent = [one for one in requests.sent_ms if one is not None]
    scheduled_ms = max(requests.intended_ms) - min(requests.intended_ms)
    if len(sent) < 2 or scheduled_ms <= 0:
        return None
    took = max(sent) - min(sent)
    return len(sent) / len(requests) * scheduled_ms / took if took > 0 else None


def sent_per_s(requests: Requests) -> float | None:
    """The mean rate at which requests were sent; None for fewer than 2 distinct times."""
    sent = [one for one in requests.sent_ms if one is not None]
    took_s = (max(sent) - min(sent)) / MS_PER_S if sent else 0.0
    return (len(sent) - 1) / took_s if took_s > 0 else None
