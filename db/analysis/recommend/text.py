"""Recommendations for a terminal: what to take and why, then all that was measured, best first."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial

from benchmarking.core.axes import AXES
from benchmarking.core.metrics import METRICS
from benchmarking.core.tables import Column, table_of, table_text
from benchmarking.core.terminal import PLAIN, Page
from benchmarking.core.text import number, relative_error, visible_lines
from db.analysis.recommend.options import Workload
from db.analysis.recommend.recommendation import UNITS, Aim, Miss, Option, Quantity, Rated, Recommendation

MAX_KINDS = 2
WORDS: Mapping[Quantity, str] = {
    "latency": "latency",
    "latency_p99": "p99 latency",
    "ttft": "time to first token",
    "memory": "peak memory",
    "energy": "energy an item",
    "throughput": "throughput",
    "cost": "cost",
}
AIMS: Mapping[Aim, str] = {
    "latency": "the lowest latency",
    "throughput": "the highest throughput",
    "memory": "the least memory",
    "energy": "the least energy an item",
    "cost": "the lowest cost",
}
HELD = (
    "a limit on latency is held against the upper end of the median's 95 % interval (up to), one on throughput against "
    "the rate at that latency; p99, memory, energy and time to first token have no interval and count as measured"
)


def recommendation_text(
    workload: Workload,
    found: Recommendation,
    limits: Mapping[Quantity, float],
    currency: str | None,
    page: Page = PLAIN,
) -> str:
    """What to take for a workload and why, and the table of its options."""
    unit = "tokens/s" if workload.has_tokens else "items/s"
    table = table_of(_columns(found, unit, currency), found.rated)
    above = [_title(workload, found, limits, unit), *_advice(found, unit, currency, limits)]
    below = [f"front: no other one is as good in {_listed(found.axes)} and better in one of them"]
    below += [HELD] if limits else []
    texts = (visible_lines("\n".join(above)), table_text(table, page), visible_lines("\n".join(below)))
    return "\n\n".join(texts)


def _title(workload: Workload, found: Recommendation, limits: Mapping[Quantity, float], unit: str) -> str:
    fitting = sum(one.fits for one in found.rated)
    total = len(found.rated)
    asked = ", ".join(_limit(quantity, limit, unit) for quantity, limit in limits.items())
    met = f"{fitting} of {total} meet {asked}" if limits else f"{total} measured, no limits"
    return f"{workload.text}: {met}"


def _limit(quantity: Quantity, limit: float, unit: str) -> str:
    """ "latency <= 20 ms" """
    sign, shown = (">=", unit) if quantity == "throughput" else ("<=", UNITS[quantity])
    return f"{WORDS[quantity]} {sign} {number(limit)} {shown}".rstrip()


def _advice(found: Recommendation, unit: str, currency: str | None, limits: Mapping[Quantity, float]) -> list[str]:
    """The recommendation with its reason, or what comes nearest."""
    first = found.rated[0]
    name = _name(first, found)
    if found.best is None:
        missed = "; ".join(_missed(miss, unit) for miss in first.misses)
        return [f"nothing fits; the nearest: {name}: {missed}"]
    among = "of those that fit" if limits else "of all"
    figures = _figure(first.option, found.aim, unit, currency)
    doubts = f"; {_doubts(first)}" if first.option.validity != "valid" else ""
    return [f"recommended: {name}: {AIMS[found.aim]} {among}, {figures}{doubts}"]


def _figure(option: Option, aim: Aim, unit: str, currency: str | None) -> str:
    throughput = f"{number(option.throughput)} {unit} at {number(option.latency_ms)} ms"
    if aim == "cost" and option.cost is not None:
        return f"{number(option.cost)} {currency} a million {unit.removesuffix('/s')}, {throughput}"
    if aim == "memory" and option.memory_mb is not None:
        return f"{number(option.memory_mb)} MB, {throughput}"
    if aim == "energy" and option.energy_j is not None:
        return f"{number(option.energy_j)} J an item, {throughput}"
    return throughput


def _missed(miss: Miss, unit: str) -> str:
    """ "latency 25 ms, 25 % over 20 ms" """
    shown = unit if miss.quantity == "throughput" else UNITS[miss.quantity]
    if miss.value is None:
        return f"{WORDS[miss.quantity]} is not known ({miss.why})"
    side = "below" if miss.quantity == "throughput" else "over"
    off = abs(miss.value / miss.limit - 1) if miss.limit else None
    share = "" if off is None else f"{off:.1%} "
    return f"{WORDS[miss.quantity]} {number(miss.value)} {shown}, {share}{side} {number(miss.limit)} {shown}"


def _name(rated: Rated, found: Recommendation) -> str:
    option = rated.option
    words = [_device(option, found), _runtime(option, found), option.precision, f"batch {option.point.batch_size}"]
    words += [f"{option.point.concurrency} in flight"] if option.point.concurrency > 1 else []
    return ", ".join(words)


def _columns(found: Recommendation, unit: str, currency: str | None) -> list[Column[Rated]]:
    several = any(one.option.point.concurrency > 1 for one in found.rated)
    words, numbers = Column[Rated], partial(Column[Rated], is_number=True)
    return [
        words(heading="device", text=lambda one: _device(one.option, found), is_key=True),
        words(heading="runtime", text=lambda one: _runtime(one.option, found), is_key=True),
        words(heading="precision", text=lambda one: one.option.precision),
        numbers(heading=AXES["batch_size"].heading, text=lambda one: str(one.option.point.batch_size)),
        numbers(
            heading=AXES["concurrency"].heading,
            text=lambda one: str(one.option.point.concurrency) if several else None,
        ),
        numbers(heading=METRICS["latency_median_ms"].heading, text=lambda one: number(one.option.latency_ms)),
        numbers(heading="up to", text=lambda one: _number(one.option.latency_high_ms)),
        numbers(heading=METRICS["latency_p99_ms"].heading, text=lambda one: _number(one.option.latency_p99_ms)),
        numbers(heading=METRICS["time_to_first_token_ms"].heading, text=lambda one: _number(one.option.ttft_ms)),
        numbers(heading=unit, text=lambda one: number(one.option.throughput)),
        numbers(heading="peak MB", text=lambda one: _number(one.option.memory_mb)),
        numbers(heading="J/item", text=lambda one: _number(one.option.energy_j)),
        words(heading="energy of", text=lambda one: one.option.energy_of),
        numbers(heading=f"{currency}/M {unit.removesuffix('/s')}", text=lambda one: _number(one.option.cost)),
        numbers(heading=METRICS["output_error"].heading, text=lambda one: _error(one.option.output_error)),
        words(heading="front", text=lambda one: "yes" if one.is_on_front else None),
        words(heading="misses", text=lambda one: ", ".join(WORDS[miss.quantity] for miss in one.misses) or None),
        words(heading="doubts", text=_doubts, is_state=True),
    ]


def _device(option: Option, found: Recommendation) -> str:
    """The device's name, with what tells it from another machine's device of that name."""
    name = option.device_name or option.device
    same = {one.option.hardware_id for one in found.rated if (one.option.device_name or one.option.device) == name}
    return name if len(same) == 1 else f"{name} ({option.hardware_id[:8]})"


def _runtime(option: Option, found: Recommendation) -> str:
    """The runtime, with those of its settings in which it is there more than once."""
    modes = [one.option.runtime_mode for one in found.rated if one.option.runtime == option.runtime]
    names = {name for mode in modes for name in mode}
    told = [name for name in sorted(names) if len({json.dumps(mode.get(name)) for mode in modes}) > 1]
    said = ", ".join(f"{name} {option.runtime_mode[name]}" for name in told if name in option.runtime_mode)
    return f"{option.runtime} ({said})" if said else option.runtime


def _doubts(one: Rated) -> str | None:
    kinds = one.option.doubts
    more = f" +{len(kinds) - MAX_KINDS}" if len(kinds) > MAX_KINDS else ""
    named = ", ".join(kinds[:MAX_KINDS]) + more
    noisy = "noisy: " if one.option.validity != "valid" else ""
    return f"{noisy}{named}" or None


def _number(value: float | None) -> str | None:
    return None if value is None else number(value)


def _error(value: float | None) -> str | None:
    return None if value is None else relative_error(value)


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
