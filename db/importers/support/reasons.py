"""Why an imported result lacks a metric: the file does not state it, or states it in a way that is not read.

"not_stated" is the reason only if no unread field of the file looks like the metric.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarking.core.doubts import validity
from benchmarking.core.records import Doubt, Json, Result, Run, Status
from benchmarking.core.text import listed
from db.importers.support.files import LeftOut
from db.importers.support.measures import MEDIAN_NOT_STATED

WORDS: Mapping[str, re.Pattern[str]] = {
    "latency_median_ms": re.compile(r"e2e|latenc|elapsed|duration_of_request"),
    "time_to_first_token_ms": re.compile(r"ttft|first_?token"),
    "time_per_output_token_ms": re.compile(r"tpot|per_?output_?token"),
    "inter_token_latency_p50_ms": re.compile(r"(^|[^a-z])itls?([^a-z]|$)|inter_?token"),
    "throughput_samples_per_sec": re.compile(r"request.*(throughput|per_sec|/s)|qps"),
    "throughput_tokens_per_sec": re.compile(r"throughput|tokens?_?(per_?|/)s|tok_?s\b|tps"),
}
"""Metric -> the names that tools give it."""
OTHER_METRICS: Mapping[str, re.Pattern[str]] = {
    "latency_median_ms": re.compile(
        r"ttft|first_?token|tpot|per_?output_?token|itl|inter_?token|queue|schedul|throughput"
    ),
    "throughput_tokens_per_sec": re.compile(r"request|sample|qps"),
}
"""Metric -> words of names that look like it, but mean another one."""
NOT_MEASURED = re.compile(
    r"(send_)?duration_m?s|(num|total|max|sent|probe|cached)_(?!\w*per_sec)\w+|\w+_(requests|sequences)|\w*(prompt|output)_tokens\w*"
    r"|model_size_mb|concurrency_mean|\w*_token_count\w*|prompt_len\w*|output_len\w*|request_concurrency\w*"
    r"|schedule_delay\w*|request_dispatch_delay\w*|achieved_rate_per_sec|run_number"
)
"""Metrics that describe a load but measure nothing."""
OURS = ("stated", "gaps_per_request", "errors", "aggregates", "left_out", "replaced", "entries", "warnings")
"""Keys of `kept` that hold what was read."""
MAX_FIELDS = 5
RANK: tuple[Status, ...] = ("ok", "skipped", "timed_out", "failed")


NO_NUMBER = "no latency, rate or throughput that is understood"


def without_numbers(run: Run) -> Run:
    """The run, in which each result that succeeded but has no measured number has failed, with the unread fields that
    look like one."""
    results = tuple(
        one
        if one.status != "ok" or one.samples or not all(map(NOT_MEASURED.fullmatch, one.metrics))
        else _failed(run, one)
        for one in run.results
    )
    if results == run.results:
        return run
    status = max((one.status for one in results), key=RANK.index)
    return replace(
        run, results=results, status=status, error=run.error or next(one.error for one in results if one.error)
    )


def _failed(run: Run, result: Result) -> Result:
    names = list(dict.fromkeys(name for pattern in WORDS.values() for name in _alike(pattern, run, result)))
    error = f"{NO_NUMBER}: the file has {listed(names, 8)}" if names else NO_NUMBER
    stated = result.extra.get("kept")
    kept = {**(stated if isinstance(stated, dict) else {}), **result.metrics}
    return replace(
        result,
        status="failed",
        error=error,
        validity=None,
        doubts=(),
        launches=0,
        metrics={},
        extra={**result.extra, "kept": kept},
    )


def with_reasons(run: Run, left_out: Sequence[LeftOut]) -> Run:
    """The run with the reasons for missing metrics, and with what was left out of the file while it was read."""
    results = tuple(_with_reasons(run, result, left_out) for result in run.results)
    if not left_out or run.origin is None:
        return replace(run, results=results)
    texts: list[Json] = [one.text for one in left_out]
    return replace(run, results=results, origin=replace(run.origin, kept={**run.origin.kept, "left_out": texts}))


def _with_reasons(run: Run, result: Result, left_out: Sequence[LeftOut]) -> Result:
    if result.status != "ok":
        return result
    missing = dict(result.missing)
    for column, pattern in WORDS.items():
        if column in result.metrics or missing.get(column, MEDIAN_NOT_STATED) != MEDIAN_NOT_STATED:
            continue
        wrong = next((one for one in left_out if _looks_like(pattern, column, one.place.rpartition(".")[2])), None)
        if wrong is not None:
            missing[column] = f"left_out: {wrong.text}"
        elif names := _alike(pattern, run, result):
            shown = ", ".join(names[:MAX_FIELDS])
            missing[column] = f"not_read: {shown} may be it, in a form or unit that is not known"
    sizes: dict[str, Json] = {one.place: one.problem for one in left_out if one.is_size}
    doubts = result.doubts
    if sizes:
        doubts = (*doubts, Doubt(kind="size_left_out", severity="noisy", evidence=sizes))
    return replace(result, missing=missing, doubts=doubts, validity=validity(doubts))


def _alike(pattern: re.Pattern[str], run: Run, result: Result) -> list[str]:
    """The unread fields with numbers that look like the metric."""
    kept: list[Any] = [result.extra.get("kept"), None if run.origin is None else run.origin.kept]
    column = next(name for name, one in WORDS.items() if one is pattern)
    found = (name for values in kept for name in _numeric(values) if _looks_like(pattern, column, name))
    return list(dict.fromkeys(found))


def _looks_like(pattern: re.Pattern[str], column: str, name: str) -> bool:
    word = name.lower().replace(" ", "_").replace("-", "_")
    another = OTHER_METRICS.get(column)
    return bool(pattern.search(word)) and not (another and another.search(word))


def _numeric(values: Any, depth: int = 0) -> Iterator[str]:
    """The names of fields that are numbers, or objects and lists of them."""
    if not isinstance(values, Mapping) or depth > 3:
        return
    for name, value in values.items():
        if depth == 0 and name in OURS:
            continue
        if isinstance(value, Mapping):
            if any(isinstance(one, int | float) and not isinstance(one, bool) for one in value.values()):
                yield name
            yield from _numeric(value, depth + 1)
        elif isinstance(value, list):
            if value and isinstance(value[0], int | float) and not isinstance(value[0], bool):
                yield name
            elif value and isinstance(value[0], Mapping):
                yield from _numeric(value[0], depth + 1)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield name
