"""What the files of serving benchmarks have in common: a server under a load of requests of one model.

A call is one request: batch size 1, latency from its start to its end. Requests in flight are the point's concurrency
where the tool limits them, and a rate that they are sent at is an axis. Where nothing limits them, 1 stands for it, and
a doubt says so.
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarking.records import Doubt, Point

LATENCY_COLUMNS = {
    "mean": "latency_mean_ms",
    "median": "latency_median_ms",
    "min": "latency_min_ms",
    "p25": "latency_p25_ms",
    "p75": "latency_p75_ms",
    "p90": "latency_p90_ms",
    "p95": "latency_p95_ms",
    "p99": "latency_p99_ms",
    "max": "latency_max_ms",
}
"""Statistic -> column. A tool's standard deviation, which is of the population, goes by the tool's name."""
ENGINES = ("vllm", "sglang", "tgi", "tensorrt", "lmdeploy", "scalellm", "deepspeed", "tensorrtllm")


def load_point(
    *,
    max_concurrency: int | None,
    request_rate: float | None,
    sequence_length: int | None,
    new_tokens: int | None,
    axes: Mapping[str, int | float],
) -> Point:
    """The point of a load. `request_rate` is in requests a second, None for as many as the concurrency allows."""
    rate = {} if request_rate is None else {"request_rate": request_rate}
    return Point(
        batch_size=1,
        sequence_length=sequence_length,
        new_tokens=new_tokens,
        concurrency=max_concurrency or 1,
        axes={**axes, **rate},
    )


def load_doubts(*, max_concurrency: int | None, failed_requests: float | None) -> tuple[Doubt, ...]:
    """What is doubtful about any load: no limit of concurrency, requests that failed and are in no number."""
    doubts = []
    if max_concurrency is None:
        doubts.append(Doubt(kind="concurrency_unlimited", severity="info", evidence={"concurrency_stored": 1}))
    if failed_requests:
        doubts.append(Doubt(kind="failed_requests", severity="noisy", evidence={"failed_requests": failed_requests}))
    return tuple(doubts)


def common_length(total: float | None, requests: int | None) -> int | None:
    """Tokens of each request where the total is a whole number of them a request; None where they differ."""
    if not total or not requests or total % requests:
        return None
    return int(total // requests)


def length_axes(total: float | None, requests: int | None, name: str) -> dict[str, int | float]:
    """The mean, rounded, as an axis where requests have no common length, so that other lengths are another series."""
    if not total or not requests or common_length(total, requests) is not None:
        return {}
    return {name: round(total / requests)}


def engine(backend: str | None) -> str:
    """The server's runtime, where the client's name for the interface tells it."""
    first = (backend or "").partition("-")[0].lower()
    return first if first in ENGINES else "unknown"
