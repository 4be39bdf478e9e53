"""What a device's states say when they are taken together: clocks, throttling, strangers."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from benchmarking.records import Json, Readings


def summarise_states(states: Sequence[Readings]) -> Readings:
    """States read before, during and after a pass as one reading.

    `device_before`, `device_after`: the plain states; `clock_hz_median` with `clock_default_hz`; `throttle_reasons` and
    `foreign_pids` seen in any of them; `violation_ns` (heat) and `power_violation_ns` (the power cap, which is no
    throttling by itself) that grew from the first to the last.
    """
    first, last = states[0].values, states[-1].values
    values: dict[str, Json] = {}
    if first or last:
        values |= {"device_before": dict(first), "device_after": dict(last)}
    clocks = [float(clock) for clock in _column(states, "clock_hz")]
    if clocks:
        values["clock_hz_median"] = median(clocks)
    if "clock_default_hz" in last:
        values["clock_default_hz"] = last["clock_default_hz"]
    for name in ("throttle_reasons", "foreign_pids"):
        seen = _column(states, name)
        if seen:
            values[name] = sorted({one for state in seen for one in state})
    for name in ("violation_ns", "power_violation_ns"):
        if name in first and name in last:
            values[name] = _total(last[name]) - _total(first[name])
    return Readings(values=values, missing=dict(states[-1].missing))


def _column(states: Sequence[Readings], name: str) -> list[Any]:
    return [state.values[name] for state in states if name in state.values]


def _total(violation: Any) -> int:
    """Nanoseconds over all policies, where a device tells them apart."""
    return sum(violation.values()) if isinstance(violation, dict) else int(violation)
