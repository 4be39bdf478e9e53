"""Runs of loads on a server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarking.core.records import LOOP, REQUEST_RATE, Device, Point, Requests, Run
from tests.helpers.records import make_result, make_run


def make_requests(**fields: Any) -> Requests:
    """A request of two tokens that succeeded, and the next turn of its conversation, which was refused."""
    defaults: dict[str, Any] = {
        "launch": 0,
        "phase": "measure",
        "started_at": "2026-01-02T03:04:05.500000Z",
        "intended_ms": (0.0, 12.5),
        "sent_ms": (0.125, None),
        "first_token_ms": (3.5, None),
        "token_ms": ((3.5, 4.25), ()),
        "end_ms": (4.5, 30.0),
        "tokens_in": (7, None),
        "tokens_out": (2, None),
        "cached_tokens": (0, None),
        "error": (None, "refused"),
        "detail": (None, "connection refused"),
        "meets_limits": (True, False),
        "conversation": (0, 0),
        "turn": (0, 1),
    }
    return Requests(**{**defaults, **fields})


def make_load(
    *,
    rates: tuple[float, ...] = (1.0, 2.0),
    concurrency: tuple[int, ...] = (),
    engine: str = "some-engine",
    metrics: dict[str, float] | None = None,
    **fields: Any,
) -> Run:
    """A load of an open loop at some rates, or of a closed one: a level is 2 ms of latency slower than the last."""
    base = make_run(family="decoder-only", **fields)
    shared: dict[str, Any] = {"batch_size": 1, "sequence_length": 32, "new_tokens": 2}
    points = [Point(**shared, concurrency=one) for one in concurrency] or [
        Point(**shared, axes={REQUEST_RATE: rate}) for rate in rates
    ]
    made = [make_result(point, 10.0 + 2 * place, launches=1, iterations=1) for place, point in enumerate(points)]
    own = {"goodput_requests_per_sec": 0.5, "goodput_share": 0.5, "requests_sent": 2.0, **(metrics or {})}
    results = [
        replace(
            one, requests=(make_requests(),), metrics={**one.metrics, **own}, extra={"load": {"is_knee": place == 0}}
        )
        for place, one in enumerate(made)
    ]
    arrivals = {LOOP: "closed"} if concurrency else {LOOP: "open", "arrivals": "poisson"}
    server = Device(type="server", selector="server", found=True)
    cell = replace(
        base.cell,
        device=server,
        runtime=engine,
        runtime_mode={**arrivals, "slo": "ttft:500ms"},
        workload=replace(base.cell.workload, source="server"),
    )
    return replace(base, cell=cell, results=tuple(results))
