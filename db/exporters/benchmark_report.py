"""llm-d's Benchmark Report 0.2: a YAML report for each result on text, with times in seconds.

A call is a batch of simultaneous requests, so the batch size is part of the report's concurrency. The requests of a
call have one latency: the number of calls, which supports its percentiles, is among our own settings. Results that were
imported from such a report are written unchanged. The user is notified of everything else that a report cannot hold.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarking.core.codec import canonical_hash, to_json
from benchmarking.core.doubts import FAILED, SOME_FAILED
from benchmarking.core.errors import UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import MS_PER_S
from benchmarking.core.records import LOOP, REQUEST_RATE, Requests, Result, Run
from benchmarking.core.sample_statistics import describe
from benchmarking.core.scenario_file import raw_values
from benchmarking.core.text import counted
from db.exporters.support.exporting import (
    NOT_MEASURED,
    ExportRequest,
    Scope,
    Tables,
    folder_output,
    supported_results,
    text_output,
)
from db.importers.inference_perf import INFINITY, REPORT_WORDS
from db.importers.support.serving import PARALLELISM

if TYPE_CHECKING:
    from db.warehouse import Warehouse


OF_SAMPLES = {"mean": "mean", "stddev": "sd", "min": "min", "p25": "p25", "p50": "median"} | {
    name: name for name in ("p75", "p90", "p95", "p99", "max")
}
"""Statistic of a report -> field of `Statistics`."""


@dataclass(frozen=True, slots=True)
class Time:
    """A latency of a report."""

    name: str
    unit: str
    columns: Mapping[str, str]
    """Its statistic -> our column."""
    called: tuple[str, ...]
    """The names that tools have for it."""
    samples: str | None = None
    """Our raw samples of it."""


LATENCY = Time(
    "request_latency",
    "s",
    {its: f"latency_{words[0]}_ms" for its, words in REPORT_WORDS.items()} | {"stddev": "latency_std_ms"},
    ("request_latency", "e2el", "e2e_latency", "latency"),
    "latency_wall",
)
FIRST, EACH = (
    Time(name, unit, {"p50": f"{name}_ms", "p90": f"{name}_p90_ms", "p99": f"{name}_p99_ms"}, (name, short), name)
    for name, unit, short in (("time_to_first_token", "s", "ttft"), ("time_per_output_token", "s/token", "tpot"))
)
FROM_SENDING = replace(LATENCY, columns={}, called=("service_time",))
"""The latency of an imported load whose tool counts from sending."""
GAP = Time("inter_token_latency", "s/token", {}, ("inter_token_latency", "itl"), "inter_token_latency")
NORMALIZED = Time("normalized_time_per_output_token", "s/token", {}, ("normalized_time_per_output_token",))


@dataclass(frozen=True, slots=True)
class Numbers:
    """The metrics of a result, and the names of those that were asked for and found."""

    result: Result
    means_ms: Mapping[str, float]
    """Mean of the raw samples by metric, where samples were compacted."""
    used: set[str] = field(default_factory=set)

    def first_of(self, names: Iterable[str]) -> float | None:
        """The value of the first metric that the result has."""
        for name in names:
            if (value := self.result.metrics.get(name)) is not None:
                self.used.add(name)
                return value
        return None


def latencies(numbers: Numbers) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The latencies of a report by name, and the names of those without a mean, which a report requires.

    Where a tool's inter-token latency is a request's mean gap between tokens, its median is our time per output token,
    so its other statistics belong there too.
    """
    metrics = numbers.result.metrics
    gap_is_each = (
        EACH.columns["p50"] in metrics
        and not metrics.keys().isdisjoint(_names(GAP, "mean"))
        and metrics.keys().isdisjoint([*_names(GAP, "p50"), *_names(replace(EACH, columns={}), "mean")])
    )
    between_tokens = (replace(EACH, called=(*EACH.called, *GAP.called)),) if gap_is_each else (EACH, GAP)
    times: dict[str, dict[str, Any]] = {}
    without_mean: list[str] = []
    is_from_sending = "service_time_p50_ms" in metrics and "latency_median_ms" not in metrics
    for time in (FIRST, *between_tokens, NORMALIZED, FROM_SENDING if is_from_sending else LATENCY):
        before = set(numbers.used)
        of_samples = _of_samples(numbers, time)
        stated = {its: numbers.first_of(_names(time, its)) for its in REPORT_WORDS}
        known = {its: of_samples.get(its) if value is None else value for its, value in stated.items()}
        seconds = {its: ms / MS_PER_S for its, ms in known.items() if ms is not None}
        if "mean" in seconds:
            times[time.name] = {"units": time.unit, **seconds}
        elif seconds:
            without_mean.append(time.name)
            numbers.used.intersection_update(before)
    return times, without_mean


def _names(time: Time, statistic: str) -> Iterator[str]:
    """The metrics that may have a statistic of a time: our column, then a tool's names."""
    known = [time.columns[statistic]] if statistic in time.columns else []
    for called in time.called:
        for word in REPORT_WORDS[statistic]:
            known += [f"{called}_{word}_ms", f"{word}_{called}_ms"]
    for name in known:
        yield from (name, f"stated_{name}")


def _of_samples(numbers: Numbers, time: Time) -> dict[str, float | None]:
    """The statistics of all launches together. Samples of blocks of calls, and compacted ones, have only a mean."""
    if time.samples is None:
        return {}
    if time.samples in numbers.means_ms:
        return {"mean": numbers.means_ms[time.samples]}
    raw = raw_values(numbers.result, time.samples)
    if not raw:
        return {}
    known = describe(raw)
    is_in_blocks = any(samples.inner_loops > 1 for samples in numbers.result.samples if samples.metric == time.samples)
    return {"mean": known.mean} if is_in_blocks else {its: getattr(known, of) for its, of in OF_SAMPLES.items()}


def lengths(numbers: Numbers, fixed: int | None, counts: Iterable[int | None], called: Iterable[str]) -> dict[str, Any]:
    """The statistics of a number of tokens; empty if it is unknown.

    `fixed` is the length of all requests, `counts` the length of each that succeeded, and `called` the names that
    tools have for it.
    """
    counts_known = list(counts)
    if counts_known and None not in counts_known:
        known = describe([float(count) for count in counts_known if count is not None])
        statistics = {its: getattr(known, name) for its, name in OF_SAMPLES.items()}
    elif fixed is not None:
        statistics = {"mean": float(fixed), "min": fixed, "max": fixed}
    else:
        names = list(called)
        statistics = {
            its: numbers.first_of(f"{name}_{word}{end}" for name in names for word in words for end in ("", "_tokens"))
            for its, words in REPORT_WORDS.items()
        }
    stated = {its: value for its, value in statistics.items() if value is not None}
    return {"units": "count", **stated} if "mean" in stated else {}


NAME = "benchmark_report"
VERSION = "0.2"
COMPONENT_VERSION = "0.0.1"
UNKNOWN_LENGTH = {"distribution": "other", "value": 0}
"""llm-d's own words for an input length that is not known, which a report has to state."""
UNIFORM, NORMAL = re.compile(r"uniform:(\d+)-(\d+)"), re.compile(r"normal:(\d+)\+-(\d+)")
"""Random lengths of our loads, as in the mode of their runs."""
INPUT_MEAN = "input_tokens_mean"
"""Axis of imported loads whose requests differ in length."""
INPUT_LENGTH = ("input_sequence_length", "prompt_token_count", "input_tokens")
OUTPUT_LENGTH = ("output_sequence_length", "output_token_count", "output_tokens")
"""The names that tools have for the lengths."""
RATES = {
    "input_token_rate": ("tokens/s", ("input_tokens_per_sec", "prompt_tokens_per_second_mean")),
    "output_token_rate": ("tokens/s", ("throughput_tokens_per_sec",)),
    "total_token_rate": ("tokens/s", ("total_tokens_per_sec", "tokens_per_second_mean")),
    "request_rate": ("queries/s", ("throughput_samples_per_sec",)),
}
"""Its rate -> its unit, and the metrics that may have its mean."""
MEANS = """
SELECT result_id, metric, sum(sample_count * mean) / sum(sample_count) AS mean
FROM raw_benchmark_data JOIN chosen USING (result_id) WHERE phase = 'measure' AND unit = 'ms'
GROUP BY ALL HAVING bool_or(compacted_at IS NOT NULL)
"""
"""The means of raw samples that were compacted."""
SHOWN = 3
"""Names in a note of what was left out."""


@dataclass(slots=True)
class _Lost:
    """What the reports do not contain, for the notes to the user."""

    without_mean: dict[str, int] = field(default_factory=dict)
    """Latency -> number of results."""
    without_total: int = 0
    """Results with statistics of their lengths, but no number of requests."""
    metrics: dict[str, None] = field(default_factory=dict)
    """Names of the metrics without a field, in order."""
    results: int = 0
    with_raw: int = 0
    """Results with raw samples or requests."""

    def add(self, numbers: Numbers) -> None:
        """Count the metrics of a result that are in no field, and its raw samples."""
        result = numbers.result
        self.metrics |= {name: None for name in result.metrics if name not in numbers.used}
        self.results += 1
        self.with_raw += bool(result.samples or result.requests)

    def lines(self) -> Iterator[str]:
        """The notes."""
        for name, count in self.without_mean.items():
            yield f"left out: {name} of {counted(count, 'result')}: no mean, which a report requires"
        if self.without_total:
            results = counted(self.without_total, "result")
            yield f"left out: statistics of the lengths of {results}: no number of requests, which a report requires"
        if names := list(self.metrics):
            shown = ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
            yield (
                f"left out: {counted(len(names), 'metric')} of {counted(self.results, 'result')}: a report has no "
                f"field for {'them' if len(names) > 1 else 'it'} ({shown})"
            )
        if self.with_raw:
            results = counted(self.with_raw, "result")
            yield f"left out: raw samples and single requests of {results}: a report has statistics"


class BenchmarkReportExporter:
    """One report on stdout or in a file, or several in a folder."""

    name = NAME
    endings = (".yaml", ".yml")
    summary = "llm-d's Benchmark Report 0.2 (yaml) for results on text: FILE.yaml for one, a folder for several"
    tables: tuple[Tables, ...] = ("results",)

    def export(self, warehouse: Warehouse, request: ExportRequest) -> tuple[Path, ...]:
        scope = Scope(warehouse, request.selection)
        means: dict[str, dict[str, float]] = {}
        for row in scope.read(MEANS).dicts():
            means.setdefault(row["result_id"], {})[row["metric"]] = row["mean"]
        lost = _Lost()
        reports = {
            result.result_id: _report(run, result, Numbers(result, means.get(result.result_id, {})), lost)
            for run, result in supported_results(scope, request, _why_not)
        }
        count = len(reports)
        reports = {result_id: report for result_id, report in reports.items() if _has_numbers(report)}
        if not reports:
            raise UsageError("the selection has no result with a number that a report has a field for")
        if empty := count - len(reports):
            request.notify(f"left out: {counted(empty, 'result')}: no number that a report has a field for")
        for line in lost.lines():
            request.notify(line)
        if len(reports) == 1:
            with text_output(request.file) as stream:
                stream.writelines(map(_yaml, reports.values()))
            return request.output_paths
        with folder_output(request.output) as folder:
            for result_id, report in reports.items():
                (folder / f"benchmark_report_v{VERSION}_{result_id}.yaml").write_text(_yaml(report), encoding="utf-8")
        return request.output_paths


def _has_numbers(report: Mapping[str, Any]) -> bool:
    """Whether a report has a latency or a throughput, without which it is none."""
    aggregate = _part(report, "results", "request_performance", "aggregate")
    return bool(aggregate.get("latency") or aggregate.get("throughput"))


def _part(report: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """An object in a report; empty if there is none: in an imported one, another value may be in the place of any."""
    part: Any = report
    for name in names:
        part = part.get(name) if isinstance(part, dict) else None
    return part if isinstance(part, dict) else {}


def _why_not(run: Run, result: Result) -> str | None:
    # The input has a length in tokens, or the result is a load of requests to a language model.
    is_load = LOOP in run.cell.runtime_mode and _is_foreign(run)
    is_text = bool(result.point.sequence_length) or INPUT_MEAN in result.point.axes or is_load
    if _kept(run) is not None or (result.status == "ok" and is_text):
        return None
    return NOT_MEASURED if result.status != "ok" else "without text input"


def _kept(run: Run) -> Mapping[str, Any] | None:
    """The report that the run was imported from."""
    if run.origin is None or run.origin.format != NAME:
        return None
    kept = run.origin.kept.get("report")
    return kept if isinstance(kept, Mapping) else None


def _yaml(report: Mapping[str, Any]) -> str:
    import yaml

    text: str = yaml.safe_dump(report, sort_keys=False, allow_unicode=True)
    return text


def _report(run: Run, result: Result, numbers: Numbers, lost: _Lost) -> dict[str, Any]:
    point = result.point
    if (kept := _kept(run)) is not None:
        report: dict[str, Any] = to_json(kept)
        settings = _part(report, "scenario", "load", "standardized")
        if settings.get("concurrency") == INFINITY:  # JSON cannot hold it
            settings["concurrency"] = math.inf
        return report
    start = datetime.fromisoformat(run.started_at)
    time = {"start": start.isoformat()}
    if run.finished_at is not None:
        end = datetime.fromisoformat(run.finished_at)
        time |= {"end": end.isoformat(), "duration": f"PT{(end - start).total_seconds()}S"}
    keywords = [f"{name}={value}" for name, value in run.provenance.tags.items()]
    requests = [group for group in result.requests if group.phase == "measure"]
    statistics = {
        "input_length": lengths(numbers, point.sequence_length, _counts(requests, "tokens_in"), INPUT_LENGTH),
        "output_length": lengths(numbers, point.new_tokens, _counts(requests, "tokens_out"), OUTPUT_LENGTH),
    }
    known_lengths = {name: statistic for name, statistic in statistics.items() if statistic}
    aggregate: dict[str, dict[str, Any]] = {"requests": {}}
    total, failures = _request_counts(result, requests, numbers)
    if total:
        aggregate["requests"] = {"total": total, "failures": failures, **known_lengths}
    else:
        lost.without_total += ("input_length" in known_lengths and not point.sequence_length) or (
            "output_length" in known_lengths and not point.new_tokens
        )
    aggregate["latency"], without_mean = latencies(numbers)
    for name in without_mean:
        lost.without_mean[name] = lost.without_mean.get(name, 0) + 1
    rates = {name: (unit, numbers.first_of(metrics)) for name, (unit, metrics) in RATES.items()}
    is_generated = point.new_tokens or "output_length" in known_lengths or LOOP in run.cell.runtime_mode
    if not is_generated and not rates["input_token_rate"][1]:
        rates["input_token_rate"] = rates.pop("output_token_rate")  # nothing is generated: the tokens are the input's
    aggregate["throughput"] = {
        name: {"units": unit, "mean": mean} for name, (unit, mean) in rates.items() if mean is not None
    }
    lost.add(numbers)
    return {
        "version": VERSION,
        "run": {
            "uid": result.result_id,
            "eid": run.session_id,
            "time": time,
            **({"description": run.provenance.description} if run.provenance.description else {}),
            **({"keywords": keywords} if keywords else {}),
        },
        "scenario": {"stack": [_engine(run)], "load": _load(run, result, known_lengths)},
        "results": {"request_performance": {"aggregate": {name: part for name, part in aggregate.items() if part}}},
    }


def _request_counts(result: Result, requests: list[Requests], numbers: Numbers) -> tuple[int, int]:
    """The number of requests and of failed ones; (0, 0), which the report leaves out, if a file does not state it."""
    if requests:
        numbers.used.update(("requests_sent", "requests_failed"))
        return sum(map(len, requests)), sum(error is not None for group in requests for error in group.error)
    timed = [samples for samples in result.samples if samples.metric == "latency_wall" and samples.phase == "measure"]
    calls = sum(len(samples.values) * samples.inner_loops for samples in timed) or result.iterations or 0
    stated = [doubt.evidence.get("failed_requests") for doubt in result.doubts if doubt.kind in (FAILED, SOME_FAILED)]
    failed = sum(int(count) for count in stated if isinstance(count, int | float))
    return (calls * result.point.batch_size + failed, failed) if calls else (0, 0)


def _engine(run: Run) -> dict[str, Any]:
    cell, versions = run.cell, run.provenance.versions
    own_version = None if _is_foreign(run) else f"benchhouse {run.provenance.tool_version}"
    own_processor = None if _is_foreign(run) else run.hardware.cpu_model
    degrees = {PARALLELISM[name]: size for name, size in cell.runtime_mode.items() if name in PARALLELISM}
    sizes = {name: degrees.get(f"{name}_size") for name in ("tp", "dp", "ep", "pp")}
    config = {
        "device": cell.device.selector,
        "precision": cell.precision,
        "num_threads": cell.num_threads,
        "weights": cell.workload.weights,
        "runtime_mode": dict(cell.runtime_mode),
    }
    return {
        "metadata": {
            "schema_version": COMPONENT_VERSION,
            "label": cell.runtime,
            "cfg_id": canonical_hash({"runtime": cell.runtime, "model": cell.workload.config_hash, **config}),
        },
        "standardized": {
            "kind": "inference_engine",
            "tool": cell.runtime,
            "tool_version": versions.get(cell.runtime) or own_version or "unknown",
            "role": "replica",
            "replicas": 1,
            "model": {"name": cell.workload.model_id},
            "accelerator": {
                "model": cell.device.name or own_processor or cell.device.type,
                "count": cell.device.count,
                "parallelism": {
                    name: size if isinstance(size, int) and size >= 1 else 1 for name, size in sizes.items()
                },
            },
        },
        "native": {
            "config": {
                **config,
                "family": cell.workload.family,
                "task": cell.workload.task,
                "versions": dict(versions),
            }
        },
    }


def _is_foreign(run: Run) -> bool:
    """Whether the engine did not run in our process: it was measured by another tool, or is a server."""
    return run.origin is not None or run.cell.device.type == "server"


def _load(run: Run, result: Result, known_lengths: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    point = result.point
    rate = point.axes.get(REQUEST_RATE)
    sizes = to_json(point)
    measured, mean = known_lengths.get("input_length"), point.axes.get(INPUT_MEAN)
    inputs = _length(run, "lengths_in", point.sequence_length, measured, mean)
    outputs = _length(run, "lengths_out", point.new_tokens, known_lengths.get("output_length"))
    doubts = {doubt.kind for doubt in result.doubts}
    is_own_open = run.origin is None and run.cell.runtime_mode.get(LOOP) == "open"
    concurrency: float | None = point.batch_size * (point.concurrency or 1)
    if "concurrency_not_stated" in doubts:
        concurrency = None  # in the file of another tool
    elif is_own_open or "concurrency_unlimited" in doubts:
        concurrency = math.inf
    source = "sampled" if "traffic_file" in run.cell.runtime_mode else "random"
    return {
        "metadata": {"schema_version": COMPONENT_VERSION, "cfg_id": canonical_hash(sizes)},
        "standardized": {
            "tool": "benchhouse" if run.origin is None else run.origin.format.replace("_", "-"),
            "tool_version": run.provenance.tool_version if run.origin is None else run.origin.tool_version or "",
            "source": "unknown" if run.origin is not None else source,
            "input_seq_len": inputs or UNKNOWN_LENGTH,
            **({"output_seq_len": outputs} if outputs else {}),
            **({"rate_qps": float(rate)} if rate else {}),
            **({} if concurrency is None else {"concurrency": concurrency}),
        },
        "native": {
            "config": {
                "point": sizes,
                "launches": result.launches,
                **({} if result.requests else {"iterations": result.iterations}),
                "simulated": run.is_simulated,
                "validity": result.validity,
                "doubts": [doubt.kind for doubt in result.doubts],
            }
        },
    }


def _length(
    run: Run, setting: str, fixed: int | None, measured: Mapping[str, Any] | None, mean: float | None = None
) -> dict[str, Any]:
    """The distribution of a length: as it was set, or as it was found; empty if it is unknown."""
    if fixed:
        return {"distribution": "fixed", "value": fixed}
    text = str(run.cell.runtime_mode.get(setting))
    if bounds := UNIFORM.fullmatch(text):
        low, high = map(int, bounds.groups())
        return {"distribution": "uniform", "value": (low + high) / 2, "min": low, "max": high}
    if normal := NORMAL.fullmatch(text):
        return {"distribution": "gaussian", "value": int(normal[1]), "std_dev": float(normal[2])}
    if measured is None:
        return {} if mean is None else {"distribution": "other", "value": mean}
    ends = {name: int(measured[name]) for name in ("min", "max") if name in measured}
    return {"distribution": "other", "value": measured["mean"], **ends}


def _counts(requests: list[Requests], name: str) -> Iterator[int | None]:
    """The tokens of the requests that succeeded, as the server counted them."""
    for group in requests:
        for count, error in zip(getattr(group, name), group.error, strict=True):
            if error is None:
                yield count


PLUGIN = BenchmarkReportExporter()
