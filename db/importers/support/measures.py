"""Metrics and samples from the raw values in a foreign file, by the statistics that our own measuring uses.

A launch is a process of the other tool. A tool that times a block of calls at once has one value for it, the mean call.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from statistics import median
from typing import Any, Literal

from benchmarking.core.metrics import LATENCY, TAILS
from benchmarking.core.records import (
    NOT_APPLICABLE,
    TOO_FEW_SAMPLES,
    Doubt,
    Json,
    Phase,
    Point,
    Result,
    Samples,
    Status,
)
from benchmarking.core.sample_statistics import TAIL_MIN_SAMPLES, Statistics, between_launches_interval, describe
from db.importers.support.building import foreign_result, iso
from db.importers.support.files import ForeignFile

MS_PER_S = 1e3
MIN_LAUNCHES_FOR_BETWEEN = 3
INTERVAL = ("latency_ci_low_ms", "latency_ci_high_ms")
HIDDEN_TAIL = f"{NOT_APPLICABLE}: the mean of a block of calls hides its slowest"
RANK: tuple[Status, ...] = ("ok", "skipped", "timed_out", "failed")
TAIL_COLUMNS = {f"latency_p{round(100 * q)}_ms": least for q, least in TAIL_MIN_SAMPLES.items()}
"""Column -> the least number of values behind it."""

CiScope = Literal["between", "within"] | None
"""What an interval covers: the spread between launches, or that inside them; None without an interval."""


def timed_result(
    file: ForeignFile, point: Point, samples: Sequence[Samples], *, metrics: Mapping[str, float], **others: Any
) -> Result:
    """The result of a point whose latency columns come from its samples of latency_wall, at least one value each.

    `metrics` are its other numbers, which take precedence over computed ones; `others` are those of `foreign_result`.
    """
    launches = [one for one in samples if one.phase == "measure" and one.metric == "latency_wall"]
    computed, missing, scope = latency_metrics(file, [one.values for one in launches])
    if any(one.inner_loops > 1 for one in launches):
        computed = {column: value for column, value in computed.items() if column not in TAILS}
        missing |= dict.fromkeys(TAILS, HIDDEN_TAIL)
    result = foreign_result(
        point,
        metrics={**computed, **metrics},
        samples=samples,
        launches=len(launches),
        missing={column: why for column, why in missing.items() if column not in metrics},
        **others,
    )
    return replace(result, ci_scope=scope)


def latency_metrics(
    file: ForeignFile, launches: Sequence[Sequence[float]]
) -> tuple[dict[str, float], dict[str, str], CiScope]:
    """The latency columns of each launch's raw latencies in ms (medians over the launches, the lowest, the highest),
    the reason for each column that they are too few for, and what the interval covers.

    Raises FormatError for values so large that their statistics are beyond double precision.
    """
    import numpy as np

    with np.errstate(over="ignore", invalid="ignore"):
        statistics = [describe(values) for values in launches]
    medians = {name: _median(statistics, name) for column, name in LATENCY.items() if column not in INTERVAL}
    low, high, scope = _interval(statistics)
    found = {
        **{column: medians.get(name) for column, name in LATENCY.items()},
        "latency_min_ms": min(each.min for each in statistics),
        "latency_max_ms": max(each.max for each in statistics),
        **dict(zip(INTERVAL, (low, high), strict=True)),
    }
    metrics = {column: value for column, value in found.items() if value is not None}
    if not all(math.isfinite(value) for value in metrics.values()):
        file.refuse(f"latencies up to {metrics['latency_max_ms']:g} ms are too large to describe")
    return metrics, {column: TOO_FEW_SAMPLES for column in LATENCY if column not in metrics}, scope


def _median(statistics: Sequence[Statistics], name: str) -> float | None:
    values = [value for each in statistics if (value := getattr(each, name)) is not None]
    return median(values) if values else None


def _interval(statistics: Sequence[Statistics]) -> tuple[float | None, float | None, CiScope]:
    """The 95 % interval of the median latency: between launches where there are 3 or more, else within them."""
    medians = [each.median for each in statistics]
    if len(medians) >= MIN_LAUNCHES_FOR_BETWEEN and min(medians) > 0:
        return *between_launches_interval(medians), "between"
    lows = [each.ci_low for each in statistics if each.ci_low is not None]
    highs = [each.ci_high for each in statistics if each.ci_high is not None]
    return (min(lows), max(highs), "within") if lows and highs else (None, None, None)


def supported_tails(metrics: Mapping[str, float], values: float | None) -> tuple[dict[str, float], dict[str, str]]:
    """The metrics with tails of too few values renamed stated_COLUMN, and the reasons for the columns.

    `values` is how many there were, None where the file does not say: then the tails stay.
    """
    few = [
        column for column, least in TAIL_COLUMNS.items() if column in metrics and values is not None and values < least
    ]
    kept = {f"stated_{name}" if name in few else name: value for name, value in metrics.items()}
    return kept, dict.fromkeys(few, TOO_FEW_SAMPLES)


def block(
    launch: int, values_ms: Sequence[float], started_at: datetime, *, phase: Phase = "measure", inner_loops: int = 1
) -> Samples:
    """A launch's raw latencies in ms, each the mean of `inner_loops` calls."""
    one = measured("latency_wall", values_ms, started_at, launch=launch)
    return replace(one, phase=phase, inner_loops=inner_loops)


def measured(metric: str, values_ms: Sequence[float], started_at: datetime, *, launch: int = 0) -> Samples:
    """Raw times of one launch in ms, in the order they were taken."""
    return Samples(
        launch=launch, phase="measure", metric=metric, unit="ms", started_at=iso(started_at), values=tuple(values_ms)
    )


def negative_times(metric: str, values_ms: Sequence[float]) -> tuple[Doubt, ...]:
    """A doubt when times are below zero: the tool subtracted more than there was."""
    below = [value for value in values_ms if value < 0]
    if not below:
        return ()
    evidence: dict[str, Json] = {"metric": metric, "n": len(below), "of": len(values_ms), "min_ms": min(below)}
    return (Doubt(kind="negative_time", severity="invalid", evidence=evidence),)


def worst_status(results: Sequence[Result]) -> Status:
    """The status of a run with these results: ok when all of them are."""
    return max((result.status for result in results), key=RANK.index, default="ok")
