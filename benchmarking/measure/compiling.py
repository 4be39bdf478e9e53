"""What compiling cost: by the runtime's own clock where it has one, else as far as it can be told from outside."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from benchmarking.measure.bench import Bench
from benchmarking.measure.latency import LatencyPass
from benchmarking.measure.memory_pass import PassResult
from benchmarking.records import NOT_APPLICABLE, Json
from benchmarking.units import ns_to_s

SECONDS, STATE = "compile_s", "compile_cache"
"""What an operation tells with `verified`: seconds by its own clock, and whether its cache was cold or warm."""


def compile_pass(
    bench: Bench, first_call_ns: int, first_compiles: int, latency: LatencyPass, verified: Mapping[str, Json]
) -> PassResult:
    """`compile_s`, and as the same number `compile_cold_s` or `compile_warm_s` beside what was `verified`.

    Without a clock of the runtime's it is the first call less a steady one: an upper bound, marked as such.
    """
    if bench.compile_count is None:
        return _without("nothing is compiled", verified)
    own = verified.get(SECONDS)
    if isinstance(own, int | float):
        seconds, method = float(own), "counter"
    else:
        steady_ns = median(latency.watch.block_ns) / latency.watch.inner_loops
        seconds, method = ns_to_s(first_call_ns - steady_ns) if first_compiles else 0.0, "upper_bound"
    if seconds <= 0:
        return _without("the first call compiled nothing", verified)
    state = verified.get(STATE)
    told = {**verified, **({f"compile_{state}_s": seconds} if state is not None else {})}
    return PassResult(metrics={SECONDS: seconds}, extra={"compile_method": method, **_kept(told)})


def _without(why: str, verified: Mapping[str, Json]) -> PassResult:
    return PassResult(missing={SECONDS: f"{NOT_APPLICABLE}: {why}"}, extra=_kept(verified))


def _kept(verified: Mapping[str, Json]) -> dict[str, Json]:
    return {"verified": dict(verified)} if verified else {}
