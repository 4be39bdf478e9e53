"""What the marks inside a call tell: time to first token, per token and between tokens, time of named phases."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import pairwise

from benchmarking.core.contracts import TOKEN
from benchmarking.core.errors import BenchhouseError
from benchmarking.core.metrics import METRICS
from benchmarking.core.records import NOT_APPLICABLE
from benchmarking.core.units import ns_to_ms
from benchmarking.measure.timing import Stopwatch

TIME_TO_FIRST_TOKEN = "time_to_first_token"
TIME_PER_OUTPUT_TOKEN = "time_per_output_token"
INTER_TOKEN_LATENCY = "inter_token_latency"
PREFILL = "phase_prefill"
DECODE = "phase_decode"
STEP = "phase_step"
PHASES = tuple(metric.of for metric in METRICS.values() if metric.of.startswith("phase_"))
"""The phases that have a column; a family may mark others, which are stored without one."""

Series = Mapping[str, tuple[float, ...]]


def check_tokens(watch: Stopwatch, new_tokens: int | None) -> None:
    """Raises BenchhouseError for a call that did not mark each of its new tokens once: its time is not of that work."""
    if new_tokens is None:
        return
    for index, (_, marks) in enumerate(watch.call_marks()):
        count = sum(name == TOKEN for name, _ in marks)
        if count != new_tokens:
            raise BenchhouseError(
                f"call {index} generated {count} tokens where {new_tokens} were asked: the sample is invalid"
            )


def token_series(watch: Stopwatch, new_tokens: int | None) -> Series:
    """Milliseconds by metric: one value a call for ttft and tpot, all gaps of all calls in order for itl.

    tpot = (end to end - ttft) / (N - 1) per call. Empty without generation; tpot and itl are absent for one token.
    """
    if new_tokens is None or not len(watch):
        return {}
    first: list[float] = []
    per_token: list[float] = []
    gaps: list[float] = []
    for (started_ns, marks), wall_ns in zip(watch.call_marks(), watch.block_ns, strict=True):
        arrivals = [at_ns for name, at_ns in marks if name == TOKEN]
        ttft_ns = arrivals[0] - started_ns
        first.append(ns_to_ms(ttft_ns))
        if new_tokens > 1:
            per_token.append(ns_to_ms(wall_ns - ttft_ns) / (new_tokens - 1))
            gaps.extend(ns_to_ms(later - earlier) for earlier, later in pairwise(arrivals))
    series = {TIME_TO_FIRST_TOKEN: first, TIME_PER_OUTPUT_TOKEN: per_token, INTER_TOKEN_LATENCY: gaps}
    return {name: tuple(values) for name, values in series.items() if values}


def token_reasons(new_tokens: int | None) -> dict[str, str]:
    """Why token metrics are absent, by raw metric."""
    if new_tokens is None:
        why = f"{NOT_APPLICABLE}: nothing is generated"
        return dict.fromkeys((TIME_TO_FIRST_TOKEN, TIME_PER_OUTPUT_TOKEN, INTER_TOKEN_LATENCY), why)
    if new_tokens == 1:
        why = f"{NOT_APPLICABLE}: a single token has none after it"
        return dict.fromkeys((TIME_PER_OUTPUT_TOKEN, INTER_TOKEN_LATENCY), why)
    return {}


def phase_series(watch: Stopwatch) -> Series:
    """Milliseconds by `phase_<name>`: each phase since the mark before it, or since the start of the call.

    A call with tokens has the phases prefill, up to its first token, and decode, from there to its last. A mark that
    comes several times in a call ("step") gives that many values a call.
    """
    phases: dict[str, list[float]] = {}
    for started_ns, marks in watch.call_marks():
        since_ns, first_ns, last_ns = started_ns, 0, 0
        for name, at_ns in marks:
            if name != TOKEN:
                phases.setdefault(f"phase_{name}", []).append(ns_to_ms(at_ns - since_ns))
            elif not first_ns:
                phases.setdefault(PREFILL, []).append(ns_to_ms(at_ns - since_ns))
                first_ns = at_ns
            else:
                last_ns = at_ns
            since_ns = at_ns
        if last_ns:
            phases.setdefault(DECODE, []).append(ns_to_ms(last_ns - first_ns))
    return {name: tuple(values) for name, values in phases.items()}


def phase_reasons(found: Collection[str]) -> dict[str, str]:
    """Why phases are absent, by raw metric: those that a call of this workload does not have."""
    return {name: f"{NOT_APPLICABLE}: the call has no such phase" for name in PHASES if name not in found}


def own_series(watch: Stopwatch) -> Series:
    """Milliseconds by raw metric of what calls that time themselves say beside their wall time."""
    return {name: tuple(map(ns_to_ms, values)) for name, values in watch.own_ns.items()}


def own_reasons(watch: Stopwatch) -> dict[str, str]:
    """Why the finer times of calls that time themselves are absent, by raw metric."""
    why = f"{NOT_APPLICABLE}: the call times itself and does not say"
    finer = ("latency_device", TIME_TO_FIRST_TOKEN, TIME_PER_OUTPUT_TOKEN, INTER_TOKEN_LATENCY)
    return {name: why for name in finer if name not in watch.own_ns}
