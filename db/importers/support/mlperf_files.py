"""MLPerf's submissions: models, systems and accelerators, the place of a file in a submission, and the logs of one
test, all read under the names of mlperf_log_detail.txt, with their metrics.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarking.core.doubts import doubt
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import ns_to_ms
from benchmarking.core.records import NOT_APPLICABLE, Doubt, Family
from db.importers.support.files import ForeignFile, beside, called_like, stored
from db.importers.support.reading import Fields, has_keys, printed_lines, shortened

MODELS: dict[str, tuple[Family | None, str]] = {
    "bert": ("encoder-only", "question-answering"),
    "gptj": ("decoder-only", "text-generation"),
    "llama": ("decoder-only", "text-generation"),
    "mixtral": ("mixture-of-experts", "text-generation"),
    "deepseek": ("mixture-of-experts", "text-generation"),
    "gpt-oss": ("mixture-of-experts", "text-generation"),
    "qwen3-vl": ("multimodal", "image-text-to-text"),
    "whisper": ("speech", "automatic-speech-recognition"),
    "rnnt": ("speech", "automatic-speech-recognition"),
    "stable-diffusion": ("diffusion", "text-to-image"),
    "resnet": ("vision", "image-classification"),
    "mobilenet": ("vision", "image-classification"),
    "retinanet": ("vision", "object-detection"),
    "ssd": ("vision", "object-detection"),
    "3d-unet": ("vision", "image-segmentation"),
}
"""Prefix of a benchmark's name -> family and task."""
ACCELERATORS = {
    "cuda": ("nvidia", "geforce", "rtx", "quadro", "tesla"),
    "rocm": ("amd instinct", "radeon", "instinct mi"),
    "tpu": ("tpu",),
    "gaudi": ("gaudi",),
    "qnn": ("qualcomm", "cloud ai"),
}
"""Device type -> words in the names of such devices."""
COUNT = re.compile(r"(?<!\s)\s*\(x(\d{1,5})\)\s*$")
CAPACITY = re.compile(r"\s*([0-9.]+)\s*(GB|GiB|TB|TiB|MB|MiB)\b.*")
BYTES = {"MB": 1e6, "GB": 1e9, "TB": 1e12, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
SOFTWARE = re.compile(r"([A-Za-z][\w .-]*?)[ =:]v?(\d[\w.+-]*)")
AUDITS = ("compliance", "audit")
"""Folders beside results that hold the compliance tests of a round; round 0.5 says audit."""
AUDIT = re.compile(r"TEST\d\d(-\w+)?", re.IGNORECASE)
"""The folder of a compliance test, which later rounds have inside results."""
SYSTEM = {"system_name", "accelerator_model_name", "host_processor_model_name"}
MEASUREMENT = {"weight_data_types", "input_data_types"}
ENDPOINTS = {"n_samples_issued", "n_samples_completed", "duration_ns"}
"""Fields of a system's description, of how a test was measured, and of result_summary.json of an endpoints test."""
TOKENS_SINCE = {"llama2": 4.0, "mixtral": 4.1, "gptj": 4.1, "llama3": 5.0, "deepseek": 5.1, "gpt-oss": 6.0}
"""Prefix of a model -> round since which its throughput is in tokens, although tables of some rounds state samples or
queries."""
DIVISIONS = ("closed", "open", "network")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place of a file in a submission; all None outside of a submission."""

    division: str | None = None
    submitter: str | None = None
    system: str | None = None
    model: str | None = None
    scenario: str | None = None
    root: Path | None = None
    """The folder that contains the divisions."""
    inside: str = ""
    """The path of the file's folder from the root: identical logs of two models, or of two runs, are two results."""
    is_audit: bool = False
    """Whether it is in a folder of compliance tests."""

    def system_file(self, platform: str | None = None) -> Path | None:
        """The path of the system's description; None without one."""
        name = platform or self.system
        if self.root is None or self.division is None or self.submitter is None or name is None or "/" in name:
            return None
        path = self.root / self.division / self.submitter / "systems" / f"{name}.json"
        return path if stored(path) else None


def place_of(path: Path) -> Place:
    """The place, from the folders DIVISION/SUBMITTER/results/SYSTEM/MODEL/SCENARIO/..., or one of AUDITS instead of
    results."""
    parts = path.parts
    for at, part in enumerate(parts):
        if part in DIVISIONS and len(parts) > at + 5 and parts[at + 2] in ("results", *AUDITS):
            submitter, kind, system, model, scenario = parts[at + 1 : at + 6]
            return Place(
                division=part,
                submitter=submitter,
                system=system,
                model=model,
                scenario=scenario if scenario != path.name else None,
                root=Path(*parts[:at]) if at else Path(),
                inside="/".join(parts[at:-1]),
                is_audit=kind in AUDITS or any(AUDIT.fullmatch(folder) for folder in parts[at + 6 : -1]),
            )
    return Place()


def measurement_fields(file: ForeignFile, place: Place) -> Fields:
    """The description of a test's measurement, in its own folders or under measurements/; empty without one."""
    if place.root is None or place.model is None or place.scenario is None:
        return Fields(file, {}, "measurements")
    own = place.root / str(place.division) / str(place.submitter)
    inside = (str(place.system), place.model, place.scenario)
    folders = [own.joinpath(kind, *inside) for kind in ("results", "measurements")]
    paths = [path for folder in folders for path in called_like(file, "*.json", folder=folder)]
    described = (one for path in paths if (one := beside(file, path, place.root)) is not None)
    found = (one.json for one in described if has_keys(one.json, MEASUREMENT))
    return Fields(file, next(found, {}), "measurements", numbers_are_text=True)


def system_fields(file: ForeignFile, path: Path | None, root: Path | None) -> Fields:
    """The description of a system, in the folder of the submission; empty without one."""
    described = None if path is None else beside(file, path, root)
    if described is None:
        return Fields(file, {}, "system")
    if not isinstance(described.json, dict):
        file.leave_out(described.path.name, described.json_problem or "not one JSON object")
        return Fields(file, {}, "system")
    return Fields(file, described.json, described.path.name, numbers_are_text=True)


def counts_tokens(model: str, number: float) -> bool:
    """Whether the throughput of a model is in tokens in that round."""
    return any(model.lower().startswith(start) and number >= since for start, since in TOKENS_SINCE.items())


def hardware(described: Mapping[str, str | None]) -> dict[str, Any]:
    """Fields of the run about the machine, from a description's fields."""
    accelerator = COUNT.sub("", described.get("accelerator_model_name") or "").strip()
    has_accelerator = accelerator.lower() not in ("", "n/a", "none", "-")
    cpu = (described.get("host_processor_model_name") or "").strip() or None
    nodes = _count(described.get("number_of_nodes")) or 1
    counted = COUNT.search(described.get("accelerator_model_name") or "")
    per_node = _count(described.get("accelerators_per_node")) or 1
    total = _count(described.get("total_accelerators")) or (int(counted[1]) if counted else None) or per_node * nodes
    sockets = _count(described.get("host_processors_per_node")) or 1
    words = (accelerator or "").lower()
    kind = next((one for one, known in ACCELERATORS.items() if any(word in words for word in known)), "accelerator")
    return {
        "device_type": kind if has_accelerator else "cpu" if cpu else "unknown",
        "device_name": accelerator if has_accelerator else cpu,
        "device_count": total if has_accelerator else sockets * nodes,
        "device_memory_bytes": _bytes(described.get("accelerator_memory_capacity")) if has_accelerator else None,
        "cpu_model": cpu,
        "cpu_cores": (_count(described.get("host_processor_core_count")) or 0) * sockets or None,
        "memory_bytes": _bytes(described.get("host_memory_capacity")),
    }


def software(framework: str | None) -> tuple[str, dict[str, str]]:
    """The runtime (the first name) and all versions in text such as "PyTorch 2.9.1, ROCm 7.0.0"."""
    text = (framework or "").strip()
    first = re.split(r"[,\s=:]", text, maxsplit=1)[0].lower()
    versions = {
        found[1].strip().lower(): found[2] for part in text.split(",") if (found := SOFTWARE.match(part.strip()))
    }
    return first or "unknown", versions


def _count(text: str | None) -> int | None:
    word = (text or "").strip().removesuffix(".0")
    return int(word) if re.fullmatch(r"[1-9][0-9]{0,8}", word) else None


def _bytes(text: str | None) -> int | None:
    found = CAPACITY.fullmatch(text or "")
    try:
        return round(float(found[1]) * BYTES[found[2]]) if found else None
    except (ValueError, OverflowError):
        return None


MARK = ":::MLLOG "
BEGINNING = "loadgen_version"
"""Key of the first event of a test."""
TITLE = "MLPerf Results Summary"
FIRST_LABELS = ("SUT name : ", "Scenario : ", "Result is : ")
PARAMETERS = "Test Parameters Used"
LINE = re.compile(r"(\S.{0,200}?)\s{0,200}:\s+(.*\S)")
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
LABEL_PATTERNS = {
    r"(Min|Max|Mean) latency \(ns\)": "result_{}_latency_ns",
    r"(Min|Max|Mean) First Token latency \(ns\)": "result_first_token_{}_latency_ns",
    r"(?i:(Min|Max|Mean) Time (?:to|per) Output Token \(ns\))": "result_time_to_output_token_{}",
    r"([0-9.]+)(?:th)? percentile latency \(ns\)": "result_{}_percentile_latency_ns",
    r"(?i:([0-9.]+) percentile first token latency \(ns\))": "result_first_token_{}_percentile_latency_ns",
    r"(?i:([0-9.]+) percentile time (?:to|per) output token \(ns\))": "result_time_per_output_token_{}_percentile_ns",
}
"""Label -> the key of a statistic, which has the first group: in lower case, or with two digits."""
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
OF_TOKENS = re.compile(r"(TTFT|TPOT) Early Stopping Result:")
"""The title of estimates for the times of tokens. The detailed log writes these under the keys of the queries' too."""
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
NOT_REPORTED = "left_out: 0 in the file: the system under test did not report it"
ALL_AT_ONCE = f"{NOT_APPLICABLE}: offline all samples are sent at once, and a latency is a place in the queue"


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


def of_detail(file: ForeignFile) -> list[dict[str, Any]]:
    """The events of each detailed log in a text by key; the last event of each key."""
    events: dict[str, Any] = {}
    logs = [events]
    for number, line in enumerate(printed_lines(file.text or ""), 1):
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
        if event["key"] == BEGINNING in events:
            events = {}
            logs.append(events)
        events[event["key"]] = event.get("value")
    return logs


def of_summary(file: ForeignFile) -> list[dict[str, Any]]:
    """The lines of each summary in a text by the detailed log's keys; other lines by their labels."""
    events: dict[str, Any] = {}
    summaries = [events]
    is_parameter = is_per_sample = is_of_tokens = False
    for line in (file.text or "").splitlines():
        if "sut_name" in events and line.strip().startswith((TITLE, FIRST_LABELS[0].strip())):
            events, is_parameter, is_per_sample, is_of_tokens = {}, False, False, False
            summaries.append(events)
        is_parameter = is_parameter or line.strip() == PARAMETERS
        is_per_sample = not is_parameter and (is_per_sample or line.strip() == PER_SAMPLE)
        is_of_tokens = is_of_tokens or OF_TOKENS.fullmatch(line.strip()) is not None
        found = LINE.fullmatch(line.strip())
        if found is not None:
            label, value = found.groups()
            if is_parameter:  # "min_duration (ms)" is min_duration_ms in the detailed log
                key = "effective_" + re.sub(r"[ (]+(\w+)\)", r"_\1", label)
            elif is_per_sample:
                key = f"{PER_SAMPLE} {label}"
            elif (estimate := ESTIMATE.fullmatch(label)) and not is_of_tokens:
                key = OF_PERCENTILE[estimate[1]]
            else:
                named = (
                    name.format(_two_digits(match[1].lower()))
                    for pattern, name in LABEL_PATTERNS.items()
                    if (match := re.fullmatch(pattern, label))
                )
                key = LABELS.get(label) or next(named, label)
            events.setdefault(key, value)
    return summaries


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
    """Metrics of one test, and the reasons for missing ones: latencies in Offline, and times of 0, which LoadGen prints
    for what the system under test did not report."""
    metrics: dict[str, float] = {}
    for column, keys in SPEEDS.items():
        speeds = [value for key in keys if (value := events.number(key, low=0)) is not None]
        metrics |= {column: speeds[0]} if speeds else {}
    for key, column in TOKEN_TIMES.items():
        metrics |= _ms(events, column, key)
    missing: dict[str, str] = {}
    if scenario == "offline":
        missing = dict.fromkeys(("latency_median_ms", "latency_mean_ms", "latency_p99_ms"), ALL_AT_ONCE)
    else:
        for statistic in STATISTICS.values():
            keys = f"result_{statistic}_query_latency_ns", f"result_{statistic}_latency_ns"
            metrics |= _ms(events, f"latency_{statistic}_ms", *keys)
        for place, name in PERCENTILES.items():
            keys = f"result_{place}_percentile_per_query_latency_ns", f"result_{place}_percentile_latency_ns"
            metrics |= _ms(events, f"latency_{name}_ms", *keys)
        if scenario in ESTIMATES and events.peek("early_stopping_ttft_result") is None:
            key, column = ESTIMATES[scenario]
            metrics |= _ms(events, column, key)
    unseen = {column for column, value in metrics.items() if value == 0 and column.endswith("_ms")}
    missing |= dict.fromkeys(sorted(unseen), NOT_REPORTED)
    return {column: value for column, value in metrics.items() if column not in unseen}, missing


def log_doubts(events: Fields) -> tuple[Doubt, ...]:
    """Doubts from the log: an invalid test, failed requests."""
    found: list[Doubt] = []
    validity = events.text("result_validity")
    if validity is not None and validity.upper() != "VALID":
        found.append(doubt("mlperf_invalid", result_validity=validity, reason=events.any("result_invalid_reason")))
    if (errors := events.integer("num_errors")) is not None and errors > 0:
        found.append(doubt("request_errors", "noisy", errors=errors))
    return tuple(found)


def _ms(events: Fields, column: str, *keys: str) -> dict[str, float]:
    """The first of these times that the log has, in ms."""
    for key in keys:
        if (value := events.number(key, low=0)) is not None:
            return {column: ns_to_ms(value)}
    return {}


def _two_digits(percentile: str) -> str:
    try:
        return f"{float(percentile):.2f}"
    except ValueError:
        return percentile
