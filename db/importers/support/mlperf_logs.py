"""MLPerf's logs of one test, all read under the names of mlperf_log_detail.txt, and their metrics."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from benchmarking.core.metrics import ns_to_ms
from benchmarking.core.records import NOT_APPLICABLE, Doubt, Json
from db.importers.support.files import ForeignFile
from db.importers.support.reading import Fields, shortened

MARK = ":::MLLOG "
TITLE = "MLPerf Results Summary"
FIRST_LABELS = ("SUT name : ", "Scenario : ", "Result is : ")
PARAMETERS = "Test Parameters Used"
LINE = re.compile(r"\s*(.+?)\s*:\s+(.*\S)\s*")
LABELS = {
    "SUT name": "sut_name",
    "Scenario": "effective_scenario",
    "Mode": "effective_test_mode",
    "Result is": "result_validity",
    "Completed samples per second": "result_completed_samples_per_sec",
    "Completed tokens per second": "result_completed_tokens_per_second",
    "Scheduled samples per second": "result_scheduled_samples_per_sec",
    "Samples per second": "result_samples_per_second",
    "Tokens per second": "result_tokens_per_second",
    "QPS w/ loadgen overhead": "result_qps_with_loadgen_overhead",
    "QPS w/o loadgen overhead": "result_qps_without_loadgen_overhead",
}
LABEL_PATTERNS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"(Min|Max|Mean) latency \(ns\)"), lambda found: f"result_{found[1].lower()}_latency_ns"),
    (
        re.compile(r"(Min|Max|Mean) First Token latency \(ns\)"),
        lambda found: f"result_first_token_{found[1].lower()}_latency_ns",
    ),
    (
        re.compile(r"(Min|Max|Mean) Time (?:to|per) Output Token \(ns\)", re.IGNORECASE),
        lambda found: f"result_time_to_output_token_{found[1].lower()}",
    ),
    (
        re.compile(r"([0-9.]+)(?:th)? percentile latency \(ns\)"),
        lambda found: f"result_{_two_digits(found[1])}_percentile_latency_ns",
    ),
    (
        re.compile(r"([0-9.]+) percentile first token latency \(ns\)", re.IGNORECASE),
        lambda found: f"result_first_token_{_two_digits(found[1])}_percentile_latency_ns",
    ),
    (
        re.compile(r"([0-9.]+) percentile time (?:to|per) output token \(ns\)", re.IGNORECASE),
        lambda found: f"result_time_per_output_token_{_two_digits(found[1])}_percentile_ns",
    ),
)
OF_ENDPOINTS = {
    "qps": "result_completed_samples_per_sec",
    "tps": "result_completed_tokens_per_second",
    "n_samples_completed": "result_query_count",
    "n_samples_failed": "num_errors",
}
ENDPOINT_SERIES = {
    "latency": "result_{}_latency_ns",
    "ttft": "result_first_token_{}_latency_ns",
    "tpot": "result_time_per_output_token_{}_ns",
}
ACCURACY = re.compile(r'\s*\[\s*\{\s*"seq_id"\s*:\s*\d+\s*,\s*"qsl_idx"\s*:')
ESTIMATES = {
    "singlestream": ("early_stopping_latency_ss", "latency_p90_early_stopping_ms"),
    "multistream": ("early_stopping_latency_ms", "latency_p99_early_stopping_ms"),
}
"""Scenario -> early stopping's estimate, its result, and its metric. (The suffixes ss and ms are the scenarios, not
units.)"""
ESTIMATE = re.compile(r"\* Early stopping (90|99)(?:\.0)?th percentile estimate")
OF_PERCENTILE = {"90": "early_stopping_latency_ss", "99": "early_stopping_latency_ms"}
"""Percentile of an estimate in a summary -> its key: the result of SingleStream, and of MultiStream."""
PER_SAMPLE = "Per-sample latency:"
"""Above the statistics of single samples in the first MultiStream, below those of its queries."""
STATISTICS = {"min": "min", "max": "max", "avg": "mean"}
PERCENTILES = {"50.00": "median", "90.00": "p90", "95.00": "p95", "97.00": "p97", "99.00": "p99", "99.90": "p99_9"}
SPEEDS = {
    "throughput_samples_per_sec": ("result_completed_samples_per_sec", "result_samples_per_second"),
    "throughput_tokens_per_sec": (
        "result_completed_tokens_per_second",
        "result_tokens_per_second",
        "result_inferred_completed_tokens_per_second",
        "result_inferred_tokens_per_second",
    ),
}
TOKEN_TIMES = {
    "result_first_token_50.00_percentile_latency_ns": "time_to_first_token_ms",
    "result_first_token_99.00_percentile_latency_ns": "time_to_first_token_p99_ms",
    "result_time_per_output_token_50.00_percentile_ns": "time_per_output_token_ms",
    "result_time_per_output_token_99.00_percentile_ns": "time_per_output_token_p99_ms",
}
ALL_AT_ONCE = f"{NOT_APPLICABLE}: offline all samples are sent at once, and a latency is a place in the queue"


def is_accuracy(file: ForeignFile) -> bool:
    """Whether it is mlperf_log_accuracy.json, which is large and often truncated for a submission."""
    return bool(ACCURACY.match(file.head[:1000]))


def is_audit(events: Fields) -> bool:
    """Whether the test belongs to the compliance suite: it logs answers while timing, or sends only one sample."""
    names = ("effective_accuracy_log_sampling_target", "effective_accuracy_log_probability")
    return any(events.number(name) for name in names) or bool(events.flag("effective_performance_issue_same"))


def is_detail(file: ForeignFile) -> bool:
    """Whether it is mlperf_log_detail.txt."""
    return file.head.startswith(MARK) or f"\n{MARK}" in file.head


def is_summary(file: ForeignFile) -> bool:
    """Whether it is mlperf_log_summary.txt, also without its title."""
    return TITLE in file.head[:2000] or all(f"\n{label}" in f"\n{file.head}" for label in FIRST_LABELS)


def is_endpoints(data: Any) -> bool:
    """Whether it is result_summary.json of an endpoints test."""
    return isinstance(data, dict) and {"n_samples_issued", "n_samples_completed", "duration_ns"} <= data.keys()


def of_detail(file: ForeignFile) -> dict[str, Any]:
    """The events of the detailed log by key; the last event of each key."""
    events: dict[str, Any] = {}
    for number, line in enumerate((file.text or "").splitlines(), 1):
        if not line.startswith(MARK):
            continue
        try:
            event = json.loads(line.removeprefix(MARK), parse_constant=lambda _: None)
        except (ValueError, RecursionError):
            file.leave_out(f"line {number}", f"not JSON after {MARK.strip()}, or cut off")
            continue
        if not isinstance(event, dict) or not isinstance(event.get("key"), str):
            file.leave_out(f"line {number}", 'expected an object with a "key"')
            continue
        events[event["key"]] = event.get("value")
    return events


def of_summary(file: ForeignFile) -> dict[str, Any]:
    """The lines of the summary by the detailed log's keys; other lines by their labels."""
    events: dict[str, Any] = {}
    is_parameter = is_per_sample = False
    for line in (file.text or "").splitlines():
        is_parameter = is_parameter or line.strip() == PARAMETERS
        is_per_sample = not is_parameter and (is_per_sample or line.strip() == PER_SAMPLE)
        found = LINE.fullmatch(line)
        if found is not None:
            label, value = found.groups()
            if is_parameter:  # "min_duration (ms)" is min_duration_ms in the detailed log
                key = "effective_" + re.sub(r"[ (]+(\w+)\)", r"_\1", label)
            elif is_per_sample:
                key = f"{PER_SAMPLE} {label}"
            elif estimate := ESTIMATE.fullmatch(label):
                key = OF_PERCENTILE[estimate[1]]
            else:
                named = (name(match) for pattern, name in LABEL_PATTERNS if (match := pattern.fullmatch(label)))
                key = LABELS.get(label) or next(named, label)
            events.setdefault(key, value)
    return events


def of_endpoints(file: ForeignFile) -> dict[str, Any]:
    """The numbers of an endpoints test by the detailed log's keys; others by their own."""
    events: dict[str, Any] = {OF_ENDPOINTS.get(name, name): value for name, value in file.json.items()}
    for name, pattern in ENDPOINT_SERIES.items():
        series = events.pop(name, None)
        if series is None:
            continue
        if not isinstance(series, dict):
            file.leave_out(name, f"expected an object, found {shortened(series)}")
            continue
        fields = Fields(file, series, name)
        for statistic, key in STATISTICS.items():
            events[pattern.format(key)] = fields.number(statistic)
        percentiles = fields.fields("percentiles")
        for place in percentiles or ():
            key = pattern.format(f"{_two_digits(place)}_percentile")
            events[key] = percentiles.number(place) if percentiles is not None else None
        if rest := fields.rest():
            events[name] = rest
    return events


def log_metrics(events: Fields, scenario: str | None) -> tuple[dict[str, float], dict[str, str]]:
    """Metrics of one test, and the reason for missing latencies in Offline."""
    metrics: dict[str, float] = {}
    for column, keys in SPEEDS.items():
        speeds = [value for key in keys if (value := events.number(key, low=0)) is not None]
        metrics |= {column: speeds[0]} if speeds else {}
    for key, column in TOKEN_TIMES.items():
        metrics |= _ms(events, key, column)
    if scenario == "offline":
        return metrics, dict.fromkeys(("latency_median_ms", "latency_mean_ms", "latency_p99_ms"), ALL_AT_ONCE)
    for statistic in STATISTICS.values():
        metrics |= _ms(events, f"result_{statistic}_query_latency_ns", f"latency_{statistic}_ms") or _ms(
            events, f"result_{statistic}_latency_ns", f"latency_{statistic}_ms"
        )
    for place, name in PERCENTILES.items():
        metrics |= _ms(events, f"result_{place}_percentile_per_query_latency_ns", f"latency_{name}_ms") or _ms(
            events, f"result_{place}_percentile_latency_ns", f"latency_{name}_ms"
        )
    key, column = ESTIMATES.get(scenario or "", ("", ""))
    return metrics | (_ms(events, key, column) if key else {}), {}


def log_doubts(events: Fields) -> tuple[Doubt, ...]:
    """Doubts from the log: an invalid test, failed requests."""
    found: list[Doubt] = []
    validity = events.text("result_validity")
    if validity is not None and validity.upper() != "VALID":
        evidence: dict[str, Json] = {"result_validity": validity, "reason": events.any("result_invalid_reason")}
        found.append(Doubt(kind="mlperf_invalid", severity="invalid", evidence=evidence))
    if (errors := events.integer("num_errors")) is not None and errors > 0:
        found.append(Doubt(kind="request_errors", severity="noisy", evidence={"errors": errors}))
    return tuple(found)


def _ms(events: Fields, key: str, column: str) -> dict[str, float]:
    value = events.number(key, low=0)
    return {} if value is None else {column: ns_to_ms(value)}


def _two_digits(percentile: str) -> str:
    try:
        return f"{float(percentile):.2f}"
    except ValueError:
        return percentile
