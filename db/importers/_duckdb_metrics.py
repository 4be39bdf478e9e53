"""Numbers of the older DuckDB files by the names of their columns: which metric, in which unit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from benchmarking.records import Json, Phase
from db.importers._reading import Fields
from db.importers._values import short

TO_MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3, "sec": 1e3, "seconds": 1e3}
STATISTICS = {
    **dict.fromkeys(("mean", "avg", "average"), "mean"),
    **dict.fromkeys(("median", "p50"), "median"),
    **dict.fromkeys(("std", "stddev", "std_dev"), "std"),
    **{name: name for name in ("min", "max", "p25", "p75", "p90", "p95", "p99")},
}
"""How a statistic is called -> how our columns call it."""
WORDS = "|".join(sorted(STATISTICS, key=len, reverse=True))
LATENCY = re.compile(
    rf"(?:({WORDS})_)?(?:inference_)?(?:latency|time)(?:_({WORDS}))?_({'|'.join(TO_MS)})",
)
SYNONYMS = {
    "samples_per_sec": "throughput_samples_per_sec",
    "samples_per_second": "throughput_samples_per_sec",
    "throughput_samples_per_second": "throughput_samples_per_sec",
    "tokens_per_sec": "throughput_tokens_per_sec",
    "tokens_per_second": "throughput_tokens_per_sec",
    "throughput_tokens_per_second": "throughput_tokens_per_sec",
    "ttft_ms": "time_to_first_token_ms",
    "tpot_ms": "time_per_output_token_ms",
    "first_token_latency_ms": "time_to_first_token_ms",
}
UNITED = re.compile(
    r".+_(ns|us|ms|s|sec|seconds|mb|mib|gb|gib|kb|bytes|per_sec|per_second|percent|pct|w|j|flops|tokens)"
)
LONG = (("metric_name", "metric"), ("metric_value", "value"), ("metric_unit", "unit"))
"""Columns of a table with one metric a row: its name, value and unit."""
RAW_LISTS = ("samples", "values")
RAW_VALUE = re.compile(rf"(?:latency|inference_time|duration|elapsed|time|value)(?:_({'|'.join(TO_MS)}))?")
RAW_METRICS = {**dict.fromkeys(("latency", "inference_latency", "inference_time", "latency_ms"), "latency_wall")}
RAW_ORDER = ("iteration", "iteration_index", "sample_index", "sample")
RAW_LAUNCH = ("launch", "launch_index", "process")
PHASES: tuple[Phase, ...] = get_args(Phase)


@dataclass(frozen=True, kw_only=True)
class RawValues:
    """The values in one row of raw data, in ms where they are times."""

    launch: int
    phase: Phase
    metric: str
    unit: str
    order: float
    values: tuple[float, ...]
    kept: Mapping[str, Json]
    """What of the row has no place elsewhere."""


def first(fields: Fields, names: Sequence[str]) -> str | None:
    """The first of the columns that has a value in this row."""
    return next((name for name in names if name in fields), None)


def metrics_of(fields: Fields) -> dict[str, float]:
    """The metrics in a row of results: a column each, or the one that the row is of."""
    name, value, unit = (first(fields, names) for names in LONG)
    if name is not None and value is not None:
        stated = fields.text(unit) if unit else None
        number, called = fields.number(value), fields.text(name) or name
        told = called if stated is None or called.endswith(f"_{stated}") else f"{called}_{stated}"
        return {} if number is None else _metric(told.lower(), number)
    found: dict[str, float] = {}
    for column in list(fields):
        if column in SYNONYMS or LATENCY.fullmatch(column) or UNITED.fullmatch(column):
            number = fields.number(column)
            found |= {} if number is None else _metric(column, number)
    return found


def _metric(name: str, number: float) -> dict[str, float]:
    latency = LATENCY.fullmatch(name)
    statistic = latency and (latency[1] or latency[2])
    if latency and statistic:
        return {f"latency_{STATISTICS[statistic]}_ms": number * TO_MS[latency[3]]}
    return {SYNONYMS.get(name, name): number}


def raw_values(fields: Fields) -> RawValues | None:
    """The values in a row of raw data; None for a row without any. Raises FormatError for times without a unit."""
    listed = first(fields, RAW_LISTS)
    single = next((name for name in fields if RAW_VALUE.fullmatch(name) and name in fields), None)
    column = listed or single
    if column is None:
        return None
    named, unit = first(fields, ("metric", "metric_name")), first(fields, ("unit", "metric_unit"))
    metric = (fields.text(named) if named else None) or "latency_wall"
    of_name = RAW_VALUE.fullmatch(column)
    stated = (of_name and of_name[1]) or (fields.text(unit) if unit else None)
    if stated is None:
        fields.refuse(column, "has no unit: none in its name, and no column unit beside it")
    values = fields.numbers(column) if listed else (fields.must(fields.number, column),)
    order, launch = first(fields, RAW_ORDER), first(fields, RAW_LAUNCH)
    launched, ordered, phase = launch and fields.whole(launch), order and fields.number(order), _phase(fields)
    return RawValues(
        launch=launched or 0,
        phase=phase,
        metric=RAW_METRICS.get(metric.lower(), metric),
        unit="ms" if stated in TO_MS else stated,
        order=ordered or 0.0,
        values=tuple(value * TO_MS.get(stated, 1.0) for value in values or ()),
        kept=fields.rest(),
    )


def _phase(fields: Fields) -> Phase:
    if fields.flag("is_warmup") or fields.flag("warmup"):
        return "warmup"
    told = (fields.text("phase") or "measure").lower()
    found = next((phase for phase in PHASES if told.startswith(phase)), None)
    if found is None:
        fields.refuse("phase", f"expected {' or '.join(PHASES)}, found {short(told)}")
    return found


def in_order(rows: Sequence[RawValues]) -> Iterator[tuple[tuple[int, Phase, str, str], tuple[float, ...]]]:
    """(launch, phase, metric, unit) and its values in the order they were taken."""
    groups: dict[tuple[int, Phase, str, str], list[RawValues]] = {}
    for row in rows:
        groups.setdefault((row.launch, row.phase, row.metric, row.unit), []).append(row)
    for key, own in groups.items():
        yield key, tuple(value for row in sorted(own, key=lambda row: row.order) for value in row.values)


def key_of(row: Fields, *names: str) -> str | None:
    """The row's id as text; None without one."""
    name = first(row, names)
    return None if name is None else str(row.any(name))


def text_of(row: Fields, *names: str) -> str | None:
    """The text in the first of the columns that has a value."""
    name = first(row, names)
    return None if name is None else row.text(name)


def count_of(row: Fields, *names: str) -> int | None:
    """The whole number from 1 in the first of the columns that has a value."""
    name = first(row, names)
    return None if name is None else row.count(name)
