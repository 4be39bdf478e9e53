"""The latency pass: timed calls until the stopping rule is content, the machine's counters read before and after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarking.clock import utc_now
from benchmarking.measure import noise
from benchmarking.measure.bench import Bench
from benchmarking.measure.stopping import StoppingRule
from benchmarking.measure.streaming import check_tokens
from benchmarking.measure.timing import Stopwatch
from benchmarking.records import Json
from benchmarking.units import NS_PER_S, ns_to_s


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyPass:
    """The timed calls of a launch at a point, and what happened around them."""

    started_at: str
    watch: Stopwatch
    stop_reason: str
    relative_half_width: float | None
    window: Mapping[str, Json] = field(default_factory=dict)
    """See `noise.Window`; plus `compiles`, the number of compilations during the pass."""


def latency_pass(bench: Bench, inner_loops: int) -> LatencyPass:
    """Time calls in looks until the stopping rule ends it. Raises BenchhouseError when a call made too few tokens."""
    bench.live("measure")
    rule = StoppingRule(bench.settings)
    watch = Stopwatch(bench.operation, bench.handle, inner_loops)
    compiles, started_at = bench.compiles(), utc_now()
    window = noise.Window(bench.handle)
    reason = None
    while reason is None:
        watch.run(rule.next_count(len(watch)) - len(watch), rule.limit_s * NS_PER_S)
        window.look()
        reason = rule.look(watch.calls_ms, ns_to_s(watch.spent_ns))
        bench.live("measure", watch.calls_ms)
    check_tokens(watch, bench.operation.new_tokens)
    return LatencyPass(
        started_at=started_at,
        watch=watch,
        stop_reason=reason,
        relative_half_width=rule.relative_half_width,
        window={**window.close(), "compiles": bench.compiles() - compiles},
    )
