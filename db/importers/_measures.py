"""Metrics and samples from the raw values in a foreign file, by the statistics that our own measuring uses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime

from benchmarking.core.metrics import LATENCY
from benchmarking.estimates import describe
from benchmarking.records import TOO_FEW_SAMPLES, Doubt, Json, Samples
from db.importers import ForeignFile
from db.importers._building import iso

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
