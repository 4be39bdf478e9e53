"""Latency limits of a load (`--limit`), and which requests meet them. A limit on an unknown time is never met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from benchmarking.core.records import Requests

WORDS = {"ttft": "time to first token", "tpot": "time per output token", "e2e": "latency"}


def limits_text(limits: Mapping[str, float]) -> str:
    """The limits in canonical form, as stored."""
    return ",".join(f"{name}:{limits[name]:g}ms" for name in sorted(limits))


def judged(requests: Requests, limits: Mapping[str, float]) -> Requests:
    """The requests, each with whether it succeeded within the limits (in ms from the scheduled start): None if a limit
    applies to a time that is unknown. Unchanged without limits.

    A time with a known upper bound meets a limit above the bound: the first token of a response that is not streamed
    comes no later than its end, and a response has no fewer tokens than chunks. A response of one token has no time per
    output token and is judged by the other limits, unless no response of the load has more.
    """
    if not limits:
        return requests
    has_gaps = any(one is not None and one > 1 for one in requests.tokens_out)
    met = tuple(_meets(requests, place, limits, has_gaps=has_gaps) for place in range(len(requests)))
    return replace(requests, meets_limits=met)


def why_unknown(requests: Sequence[Requests], limits: Mapping[str, float]) -> str | None:
    """Why it is unknown whether some of the requests meet the limits; None if all are known, or without limits."""
    unknown, total = sum(met is None for one in requests for met in one.meets_limits), sum(map(len, requests))
    if not unknown or (unknown == total and not limits):
        return None
    if not limits:
        return f"it is unknown whether {unknown} of {total} requests meet the limits"
    is_first_unknown = any(
        met is None and first is None
        for one in requests
        for met, first in zip(one.meets_limits, one.first_token_ms, strict=True)
    )
    known = {"e2e", *(() if is_first_unknown or "tpot" not in limits else ("ttft",))}
    times = " and ".join(WORDS[name] for name in limits if name not in known)
    why = f"the {times} of {unknown} of {total} requests is unknown, so it is unknown whether they meet the limits"
    if "tpot" not in limits:
        return why
    counts = [count for one in requests for count in one.tokens_out if count is not None]
    if counts and max(counts) <= 1:
        return f"{why}: no response has more than one token"
    return f"{why}: the server does not report their number of tokens (--tokenizer FOLDER counts them)"


def _meets(requests: Requests, place: int, limits: Mapping[str, float], *, has_gaps: bool) -> bool | None:
    end, at = requests.end_ms[place], requests.intended_ms[place]
    if requests.error[place] is not None or end is None:
        return False
    first, count = requests.first_token_ms[place], requests.tokens_out[place]
    last = requests.last_token_ms[place]
    if last is None:
        last = requests.token_ms[place][-1] if requests.token_ms[place] else end
    found: list[bool | None] = []
    for name, limit in limits.items():
        if name == "e2e":
            found.append(end - at <= limit)
        elif name == "ttft":
            found.append(first - at <= limit if first is not None else _within_bound(end - at, limit))
        elif count is None or first is None or not has_gaps:
            found.append(None)
        elif count <= 1:
            found.append(True)
        else:
            time_ms = (last - first) / (count - 1)
            is_bound = requests.tokens_counted_by[place] == "chunks"
            found.append(_within_bound(time_ms, limit) if is_bound else time_ms <= limit)
    return False if False in found else None if None in found else True


def _within_bound(bound_ms: float, limit: float) -> bool | None:
    """Whether a time with this upper bound meets the limit; None if that is open."""
    return True if bound_ms <= limit else None
