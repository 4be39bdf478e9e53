"""The answer of a search for the highest rate within limits (`benchhouse load --find-rate`), from its stored result:
the same for the command, `benchhouse recommend` and whoever else names it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarking.core.lazy_dataclass import dataclass

HIGHEST_RATE = "highest_request_rate_per_sec"
"""The metric of a search."""
RATE_LOW, RATE_HIGH = "highest_request_rate_ci_low_per_sec", "highest_request_rate_ci_high_per_sec"
"""Its 95 % interval."""
SEARCHED, INVALID, AT_TOP = "searched_per_s", "invalid_levels", "holds_at_upper_bound"
"""Facts of a search: the rates that it searched between, the invalid levels with their doubts, by rate, and whether the
highest of the rates held."""
LEAST_GOOD = 0.99
"""Share of requests within the limits that a rate needs to meet them, as in MLPerf's server scenario."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HighestRate:
    """The highest rate at which the required share of requests meets the limits, in requests per second."""

    rate: float
    low: float
    """The lower end of the 95 % interval."""
    high: float | None
    """Its upper end; None if the search saw no rate that is too high."""
    why_open: str | None
    """Why there is no upper end."""

    @classmethod
    def of(cls, metrics: Mapping[str, Any], facts: Mapping[str, Any]) -> HighestRate | None:
        """The answer in the metrics of a search's result and its facts about the load; None if it found none."""
        rate, low = metrics.get(HIGHEST_RATE), metrics.get(RATE_LOW)
        if rate is None or low is None:
            return None
        high, invalid = metrics.get(RATE_HIGH), facts.get(INVALID)
        why = None
        if high is None and isinstance(invalid, Mapping) and invalid and not facts.get(AT_TOP):
            why = f"higher levels were invalid: {', '.join(sorted(set(map(str, invalid.values()))))}"
        elif high is None:
            why = "it holds at the upper bound of the search; raise it to find the highest rate"
        return cls(rate=float(rate), low=float(low), high=None if high is None else float(high), why_open=why)

    @property
    def text(self) -> str:
        """ "17.46 requests/s (95 % interval 16.9 to 18.11)" """
        if self.high is not None:
            return f"{self.rate:.4g} requests/s (95 % interval {self.low:.4g} to {self.high:.4g})"
        return f"at least {self.rate:.4g} requests/s ({self.low:.4g} or more with 97.5 % confidence): {self.why_open}"
