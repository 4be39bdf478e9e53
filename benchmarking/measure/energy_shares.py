"""Energy of an item and of a token, from the energy of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from benchmarking.records import Json, Measurement

PER_CALL = "_j_per_call"
UNITS = {"item": "items_per_call", "token": "tokens_per_call"}
"""What a call's energy is divided among, and how many of them a call has."""


def energy_shares(measured: Sequence[Measurement]) -> dict[str, float]:
    """By name, as medians over launches: `energy_<domain>_j_per_item` and `_j_per_token`, and of what is above the idle
    power `energy_<domain>_net_j_per_call`, `_item`, `_token`; the deviation between windows,
    `energy_<domain>_sd_j_per_call`, has no share."""
    names = sorted({name for one in measured for name in one.metrics if name.endswith(PER_CALL)})
    shares: dict[str, float] = {}
    for name in names:
        per_call = median(one.metrics[name] for one in measured if name in one.metrics)
        if "_net_" in name or "_sd_" in name:
            shares[name] = per_call
        if "_sd_" not in name:
            shares |= {
                f"{name.removesuffix(PER_CALL)}_j_per_{unit}": per_call / count
                for unit, key in UNITS.items()
                if (count := _count(measured[0].extra, key)) is not None
            }
    return shares


def _count(extra: Mapping[str, Json], key: str) -> int | None:
    value = extra.get(key)
    return value if isinstance(value, int) and value > 0 else None
