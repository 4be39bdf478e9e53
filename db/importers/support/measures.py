"""Metrics and samples from the raw values in a foreign file, by the statistics that our own measuring uses.

Results of tools that time a block of calls at once, in one process or several: their latency columns from the raw
values, by the statistics that our own measuring uses.

Percentiles that a tool states although it has too few values for them.

Times of single tokens in foreign files: [iteration][request][token], in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
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
from db.importers.support.reading import Fields, short

MS_PER_S = 1e3


def latency_metrics(file: ForeignFile, values_ms: Sequence[float]) -> tuple[dict[str, float], dict[str, str]]:
    """The latency columns of one launch's raw latencies, and the reason for each column that they are too few for.

    Raises FormatError for values so large that their statistics are beyond double precision.
    """
    import numpy as np

    with np.errstate(over="ignore", invalid="ignore"):
        statistics = describe(values_ms)
    found = {column: getattr(statistics, name) for column, name in LATENCY.items()}
    metrics = {column: value for column, value in found.items() if value is not None}
    if not all(math.isfinite(value) for value in metrics.values()):
        file.refuse(f"latencies up to {max(values_ms):g} ms are too large to describe")
    return metrics, {column: TOO_FEW_SAMPLES for column, value in found.items() if value is None}


def measured(metric: str, values_ms: Sequence[float], started_at: datetime, *, launch: int = 0) -> Samples:
    """Raw times of one launch in ms, in the order they were taken."""
    return Samples(
        launch=launch, phase="measure", metric=metric, unit="ms", started_at=iso(started_at), values=tuple(values_ms)
    )


def negative_times(metric: str, values_ms: Sequence[float]) -> tuple[Doubt, ...]:
    """A doubt when times are below zero, which none can be: what was subtracted was not part of what it came from."""
    below = [value for value in values_ms if value < 0]
    if not below:
        return ()
    evidence: dict[str, Json] = {"metric": metric, "n": len(below), "of": len(values_ms), "min_ms": min(below)}
    return (Doubt(kind="negative_time", severity="invalid", evidence=evidence),)


MIN_LAUNCHES_FOR_BETWEEN = 3
INTERVAL = ("latency_ci_low_ms", "latency_ci_high_ms")
SHARED = {column: name for column, name in LATENCY.items() if column not in INTERVAL}
HIDDEN_TAIL = f"{NOT_APPLICABLE}: the mean of a block of calls hides its slowest"
RANK: tuple[Status, ...] = ("ok", "skipped", "timed_out", "failed")


def block(
    launch: int,
    values_ms: Sequence[float],
    started_at: datetime,
    *,
    phase: Phase = "measure",
    inner_loops: int = 1,
) -> Samples:
    """A launch's raw latencies in ms, each the mean of `inner_loops` calls."""
    return Samples(
        launch=launch,
        phase=phase,
        metric="latency_wall",
        unit="ms",
        started_at=iso(started_at),
        values=tuple(values_ms),
        inner_loops=inner_loops,
    )


def timed_result(
    file: ForeignFile, point: Point, samples: Sequence[Samples], *, metrics: Mapping[str, float], **others: Any
) -> Result:
    """The result of a point whose latency columns come from its samples of latency_wall, at least one value each.

    `metrics` are what else is known of it and go before what is computed; `others` are those of `foreign_result`.
    """
    measured = [one for one in samples if one.phase == "measure" and one.metric == "latency_wall"]
    computed, missing, scope = _latency(file, measured)
    result = foreign_result(
        point,
        metrics={**computed, **metrics},
        samples=samples,
        launches=len(measured),
        missing={column: why for column, why in missing.items() if column not in metrics},
        **others,
    )
    return replace(result, ci_scope=scope)


def worst_status(results: Sequence[Result]) -> Status:
    """What a run is that has these results: ok when all of them are."""
    return max((result.status for result in results), key=RANK.index, default="ok")


def _latency(
    file: ForeignFile, measured: Sequence[Samples]
) -> tuple[dict[str, float], dict[str, str], Literal["between", "within"] | None]:
    """The latency columns over all launches (their medians, the lowest, the highest), the reasons for those that are
    not there, and what the interval speaks of."""
    import numpy as np

    with np.errstate(over="ignore", invalid="ignore"):
        statistics = [describe(one.values) for one in measured]
    metrics = {column: value for column, name in SHARED.items() if (value := _median(statistics, name)) is not None}
    metrics["latency_min_ms"] = min(each.min for each in statistics)
    metrics["latency_max_ms"] = max(each.max for each in statistics)
    low, high, scope = _interval(statistics)
    if low is not None and high is not None:
        metrics |= dict(zip(INTERVAL, (low, high), strict=True))
    if not all(math.isfinite(value) for value in metrics.values()):
        file.refuse(f"latencies up to {metrics['latency_max_ms']:g} ms are too large to describe")
    missing = {column: TOO_FEW_SAMPLES for column in LATENCY if column not in metrics}
    if any(one.inner_loops > 1 for one in measured):
        metrics = {column: value for column, value in metrics.items() if column not in TAILS}
        missing |= dict.fromkeys(TAILS, HIDDEN_TAIL)
    return metrics, missing, scope


def _median(statistics: Sequence[Statistics], name: str) -> float | None:
    values = [value for each in statistics if (value := getattr(each, name)) is not None]
    return median(values) if values else None


def _interval(
    statistics: Sequence[Statistics],
) -> tuple[float | None, float | None, Literal["between", "within"] | None]:
    """The 95 % interval of the median latency: between launches where there are 3 or more, else within them."""
    medians = [each.median for each in statistics]
    if len(medians) >= MIN_LAUNCHES_FOR_BETWEEN and min(medians) > 0:
        return *between_launches_interval(medians), "between"
    lows = [each.ci_low for each in statistics if each.ci_low is not None]
    highs = [each.ci_high for each in statistics if each.ci_high is not None]
    return (min(lows), max(highs), "within") if lows and highs else (None, None, None)


TAIL_COLUMNS = {f"latency_p{round(100 * q)}_ms": least for q, least in TAIL_MIN_SAMPLES.items()}
"""Column -> the least number of values behind it."""


def supported_tails(metrics: Mapping[str, float], values: float | None) -> tuple[dict[str, float], dict[str, str]]:
    """The metrics, their tails of too few values under stated_COLUMN instead, and the reasons for the columns.

    `values` is how many there were, None where the file does not say: then the tails stay.
    """
    few = {
        column for column, least in TAIL_COLUMNS.items() if column in metrics and values is not None and values < least
    }
    kept = {f"stated_{name}" if name in few else name: value for name, value in metrics.items()}
    return kept, dict.fromkeys(few, TOO_FEW_SAMPLES)


Times = tuple[tuple[float, ...], ...]
"""The times of each request's tokens, in seconds."""


def token_times(fields: Fields, name: str) -> tuple[Times, ...]:
    """The times of every iteration; empty when the field is absent. Raises FormatError for what is no such list."""
    iterations = fields.any(name)
    if iterations is None:
        return ()
    if not isinstance(iterations, list):
        fields.refuse(name, f"expected a list of iterations, found {short(iterations)}")
    return tuple(_requests(fields, f"{name}[{index}]", one) for index, one in enumerate(iterations) if one is not None)


def token_gaps_ms(times: Times) -> list[float]:
    """Gaps between successive tokens of each request in ms. Requests of one batch that share their times count once."""
    return [(after - before) * MS_PER_S for request in dict.fromkeys(times) for before, after in pairwise(request)]


def _requests(fields: Fields, place: str, requests: object) -> Times:
    if not isinstance(requests, list):
        fields.refuse(place, f"expected a list of requests, found {short(requests)}")
    return tuple(_tokens(fields, f"{place}[{index}]", one) for index, one in enumerate(requests))


def _tokens(fields: Fields, place: str, times: object) -> tuple[float, ...]:
    return Fields(fields.file, {"times": times}, place).numbers("times") or ()
