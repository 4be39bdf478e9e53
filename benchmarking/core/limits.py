"""Limits in one grammar for all commands: "ttft:500ms,tpot:50ms,e2e:2s,latency_p95:50ms,memory:2GB"."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from types import MappingProxyType

from benchmarking.core.errors import UsageError
from benchmarking.core.suggestions import unknown_name

PART = re.compile(r"([a-z0-9_]+)\s*:\s*(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([A-Za-z/%]*)")
TIMES: Mapping[str, float] = MappingProxyType({"us": 0.001, "ms": 1.0, "s": 1000.0, "min": 60_000.0})
"""Units of times, in ms."""
SIZES: Mapping[str, float] = MappingProxyType({"MB": 1.0, "GB": 1000.0, "TB": 1_000_000.0})
"""Units of memory, in MB of 10^6 bytes."""
UNITS: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        **dict.fromkeys(("ttft", "tpot", "e2e", "latency", "latency_p90", "latency_p95", "latency_p99"), TIMES),
        "memory": SIZES,
        "energy": {"J": 1.0, "kJ": 1000.0},
        "throughput": {"/s": 1.0, "": 1.0},
        "kl": {"nats": 1.0, "": 1.0},
        "agreement": {"%": 0.01, "": 1.0},
        "perplexity_increase": {"%": 1.0, "": 1.0},
    }
)
"""What can be limited -> its units, in the one that values are returned in."""

COMPARISON = re.compile(r"\s*[=<>]+\s*")
PERCENTILE = re.compile(r"(latency_?)?p\d+")
OTHER_NAMES: Mapping[str, str] = MappingProxyType(
    {"itl": "tpot", "tbt": "tpot", "p50": "latency", "e2e": "latency", "rss": "memory"}
)
"""Names in other tools -> ours. Those of percentiles lack only the word latency."""


def parse_limits(text: str, names: Collection[str]) -> dict[str, float]:
    """The limits by name, in ms, MB, J or per second; of quality in nats, as a share, and in %. `names` are those that
    the command knows. Raises UsageError."""
    found: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = PART.fullmatch(part)
        if match is None:
            colon = COMPARISON.sub(":", part, count=1)
            hint = f": write {colon}" if PART.fullmatch(colon) else ""
            raise UsageError(f"--limit takes limits such as {_example(names)}: got {part!r}{hint}")
        name, value, unit = match.groups()
        if name not in names:
            ours = OTHER_NAMES.get(name, f"latency_{name}")
            if ours not in names and (PERCENTILE.fullmatch(name) or name == "latency"):
                ours = "e2e"  # of a load, where 99 % of the requests must hold it
            hint = f"did you mean {ours}? " if ours in names else ""
            raise UsageError(f"--limit {part}: {hint}{unknown_name(name, tuple(names), 'limit')}")
        if name in found:
            raise UsageError(f"--limit: {name} is limited twice: remove one")
        if unit not in UNITS[name]:
            raise UsageError(f"--limit {part}: {name} takes a unit of {', '.join(filter(None, UNITS[name]))}")
        if not float(value) > 0:
            raise UsageError(f"--limit {part}: takes a number above 0")
        found[name] = float(value) * UNITS[name][unit]
    if not found:
        raise UsageError(f"--limit takes limits such as {_example(names)}: got nothing")
    return found


def _example(names: Collection[str]) -> str:
    examples = {"ttft": "500ms", "tpot": "50ms", "e2e": "2s", "latency": "20ms", "latency_p95": "50ms", "memory": "2GB"}
    return ",".join(f"{name}:{value}" for name, value in examples.items() if name in names)
