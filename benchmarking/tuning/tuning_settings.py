"""The settings of `benchhouse tune`, beside those that it shares with other measuring commands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from benchmarking.core.settings import PATH, SECONDS, Setting, one_of, table
from benchmarking.core.shared_settings import COMMON
from benchmarking.sweep.plan.measuring_settings import MEASURING

OBJECTIVES = ("throughput", "latency", "energy", "cost")
DEFAULT_BUDGET_S = 600.0

TUNING: Mapping[str, Setting] = MappingProxyType(
    {**MEASURING}
    | table(
        replace(
            COMMON["limit"],
            metavar="LIMIT",
            default=(),
            help="such as latency_p95:50ms; repeatable: the most latency (median), latency_p90, latency_p95, "
            "latency_p99, ttft, memory, energy (per item), kl, perplexity_increase; the least throughput, agreement",
        ),
        Setting(
            name="objective",
            kind=one_of(OBJECTIVES, "objective"),
            help="what to optimize within the limits",
            default="throughput",
        ),
        Setting(
            name="budget",
            kind=SECONDS,
            metavar="TIME",
            help="time for the whole search, builds included",
            default=DEFAULT_BUDGET_S,
            default_words="10m",
        ),
        Setting(
            name="space",
            kind=PATH,
            help="YAML file that restricts or extends it (see --help-all)",
            default_words="none",
        ),
        replace(COMMON["price"], is_rare=True),
        replace(COMMON["resume"], help="go on with the interrupted search in --output-dir"),
    )
)
