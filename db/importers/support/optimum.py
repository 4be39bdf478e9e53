"""optimum-benchmark's files in their current form, {"config": ..., "report": ...}, and the result in a report.

A report is one point, with statistics from its raw latencies, or those that are stated without them. Numbers that the
tool is known to get wrong are left out.
"""

from __future__ import annotations

import ast
import json
import math
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarking.core.doubts import doubt
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import MS_PER_S
from benchmarking.core.records import NOT_SUPPORTED, Doubt, Point, Result, Samples
from db.importers.support.files import ForeignFile, beside, stored
from db.importers.support.measures import block, foreign_result, in_ms, measured, median_of, negative_times
from db.importers.support.reading import Fields, csv_rows, has_keys, parsed_number, put_at, understood, yaml_object

MEASURED = ("memory", "latency", "throughput", "energy", "efficiency")
TARGETS = (
    *("load_model", "first_forward", "forward", "first_call", "call", "per_step"),
    *("first_generate", "generate", "prefill", "decode", "per_token"),
    *("overall", "warmup", "train"),
)
FAILURE = "traceback"
PRINTED_TARGET = re.compile(rf"(?:^# |(?:^|- )\+ )({'|'.join(TARGETS)}):\s*$")
PRINTED_MEASURED = re.compile(rf"(?:^## |\s\+ )({'|'.join(MEASURED)}):\s*$")
PRINTED_VALUE = re.compile(r"\s\+ (\w+): (\S+)(?: \((\S+)\))?\s*$|^\|\s*(\w+)\s*\|\s*([^|\s]+)\s*\|\s*(\S+)\s*\|\s*$")
"""The lines of a printed report: benchmark_report.md, benchmark_report.txt, and the same lines in a log."""
PRINTED_DATE = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),\d{3}\]")
OLD_FLAT = re.compile(r"(forward|generate|decode)\.(latency\(s\)|throughput\((samples|tokens)/s\))")
"""A column of the first versions' `inference_results.csv`."""
OLD_SIZES = {"batch_size": "batch_size", "sequence_length": "sequence_length"}
OLD_NEW_TOKENS = "num_new_tokens"
OLD_CONFIG = "hydra_config.yaml"
OLD_CONFIG_PARTS = {"experiment_name", "backend", "benchmark", "environment", "model", "task", "device"}


def is_config(data: Any) -> bool:
    """Whether the data is a benchmark's configuration."""
    return has_keys(data, {"backend", "scenario", "launcher"})


def is_report(data: Any) -> bool:
    """Whether the data is a benchmark's report: targets with measurements."""
    return (
        isinstance(data, dict)
        and any(name in TARGETS for name in data)
        and any(isinstance(one, dict) and any(name in MEASURED for name in one) for one in data.values())
    )


def is_complete(data: Any) -> bool:
    """Whether the data has a configuration and a report, or the traceback of a benchmark that failed in its place."""
    if not isinstance(data, dict) or not is_config(data.get("config")):
        return False
    return is_report(report := data.get("report")) or has_keys(report, {FAILURE})


def is_flat(header: list[str]) -> bool:
    """Whether the columns are those of a flat file: of a whole benchmark, of a report, or of the first versions."""
    return any(
        name.startswith(("report.", "config.backend."))
        or OLD_FLAT.fullmatch(name)
        or (name.split(".")[0] in TARGETS and name.endswith((".latency.values", ".latency.mean")))
        for name in header
    )


def read_benchmarks(file: ForeignFile) -> Iterator[tuple[str, Fields]]:
    """Each benchmark in the file with a key: an object with config and report, either of which may be missing."""
    if isinstance(file.json, dict):
        yield "", Fields(file, _current_form(file.json))
        return
    if is_printed(file):
        reports: list[dict[str, Any]] = []
        target: dict[str, Any] | None = None
        values: dict[str, Any] | None = None
        for line in (file.text or "").splitlines():
            if found := PRINTED_TARGET.search(line):
                if not reports or found[1] in reports[-1]["report"]:
                    date = PRINTED_DATE.search(line)
                    reports.append({"report": {}, **({"printed_at": date[1]} if date else {})})
                target, values = reports[-1]["report"].setdefault(found[1], {}), None
            elif target is not None and (found := PRINTED_MEASURED.search(line)):
                values = target.setdefault(found[1], {})
            elif values is not None and (found := PRINTED_VALUE.search(line)) and found[4] != "metric":
                name, number, unit = found.groups()[:3] if found[1] else found.groups()[3:]
                is_one = name in ("throughput", "efficiency")  # the only value of what is measured
                values["value" if is_one else name] = parsed_number(number)
                if unit not in (None, "-", "%"):
                    values.setdefault("unit", unit)
        yield from ((str(index), Fields(file, one)) for index, one in enumerate(reports))
        return
    yield from understood(file, csv_rows(file, is_flat), lambda row: (row.path, _nested(row)))


def is_printed(file: ForeignFile) -> bool:
    """Whether the file has a printed report: a target, what was measured of it, and a value, below each other."""
    if file.is_json or not ("latency:" in (text := file.text or "") or "memory:" in text):
        return False
    parts = (PRINTED_TARGET, PRINTED_MEASURED, PRINTED_VALUE)
    found = "".join(
        str(next((at for at, part in enumerate(parts) if part.search(line)), "")) for line in text.splitlines()
    )
    return "012" in found


def sibling_config(file: ForeignFile) -> Mapping[str, Any] | None:
    """The configuration file in the folder of a report; hydra_config.yaml in the first versions."""
    hydra = beside(file, file.called.with_name(OLD_CONFIG)) if file.json is None else None
    if hydra is not None:
        return _old_config(yaml_object(hydra))
    is_report_file = file.called.stem.endswith("report")
    stem = file.called.stem.removesuffix("report") if is_report_file else f"{file.called.stem}_"
    data = _json_of(file, file.called.with_name(f"{stem}config.json")) if is_report_file or is_printed(file) else None
    return data if is_config(data) else None


def is_in_sibling_file(file: ForeignFile, report: Fields) -> bool:
    """Whether another file in the folder has the same latencies: the whole benchmark's, or the JSON of a CSV or of a
    printed report."""
    stem = file.called.stem.removesuffix("_report")
    names = {f"{stem}.json", f"{file.called.stem}.json"} - {file.called.name}
    names |= {f"{stem}_report.json"} if file.called.suffix != ".json" else set()
    siblings = [path for path in (file.called.with_name(name) for name in sorted(names)) if stored(path)]
    own = {name: report.peek(name) for name in report} if siblings else {}
    data = [_json_of(file, path) for path in siblings]
    others = [one["report"] if is_complete(one) else one if is_report(one) else None for one in data]
    if latencies := _latencies(own):
        return any(_latencies(other) == latencies for other in others)
    means = _means(own)
    return bool(means) and any(
        means.keys() == (same := _means(other)).keys()
        and all(abs(means[name] - same[name]) <= PRINTED_ROUNDING_S for name in means)
        for other in others
    )


def _of_targets(report: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The object of the latencies of each target that has one."""
    for name, measurements in report.items() if isinstance(report, dict) else ():
        if isinstance(measurements, dict) and isinstance(latency := measurements.get("latency"), dict):
            yield name, latency


def _latencies(report: Any) -> dict[str, array[float]]:
    """The latencies of each target that has a list of them."""
    return {
        name: array("d", values)
        for name, latency in _of_targets(report)
        if isinstance(values := latency.get("values"), list | array)
        and all(isinstance(value, float | int) for value in values)
    }


def _means(report: Any) -> dict[str, float]:
    """The stated mean latency of each target."""
    stated = {name: latency.get("mean") for name, latency in _of_targets(report)}
    return {name: float(mean) for name, mean in stated.items() if isinstance(mean, int | float)}


PRINTED_ROUNDING_S = 1e-6
"""Largest difference of a printed time from the exact one."""


def _json_of(file: ForeignFile, path: Path) -> Any:
    if (found := beside(file, path)) is None:
        return None
    if found.json_problem is not None:
        file.leave_out(path.name, found.json_problem)
    return found.json


def _current_form(data: Mapping[str, Any]) -> Mapping[str, Any]:
    if is_complete(data):
        return data
    if is_config(data):
        return {"config": data}
    if "batch_size" not in data:
        return {"report": data}
    # An older report has its sizes among the targets, and units in the names: "list[s]", "mean(s)".
    shapes = {name: data[old] for name, old in OLD_SIZES.items() if old in data}
    generate = {"max_new_tokens": data[OLD_NEW_TOKENS]} if OLD_NEW_TOKENS in data else {}
    targets = {name: dict(value) for name, value in data.items() if isinstance(value, dict)}
    for target in targets.values():
        if isinstance(latency := target.get("latency"), dict) and "list[s]" in latency:
            others = {name: value for name, value in latency.items() if name != "list[s]"}
            target["latency"] = {"unit": "s", "values": latency["list[s]"], **others}
    return {
        "config": {"scenario": {"input_shapes": shapes, "generate_kwargs": generate}},
        "report": targets,
        **{name: value for name, value in data.items() if name not in (*shapes, *targets, OLD_NEW_TOKENS)},
    }


def _nested(row: Fields) -> Fields:
    """The objects of a row whose columns are paths; a report without a configuration is put under "report"."""
    nested: dict[str, Any] = {}
    cells = {name: cell for name in row if (cell := row.text(name)) is not None}
    is_old = any(OLD_FLAT.fullmatch(name) for name in cells)
    is_part = not is_old and not any(name.startswith(("report.", "config.")) for name in cells)
    for name, cell in cells.items():
        target, _, what = name.partition(".")
        path = [*(["report"] * is_part), *name.split(".")]
        if is_old and target in TARGETS:
            is_rate = what.startswith("throughput(")
            known = [target, "throughput", "value"] if is_rate else [target, "latency", "mean"]
            path = ["report", *(known if is_rate or what == "latency(s)" else [name])]
        put_at(nested, path, _list_or_text(cell), row)
    if is_old and OLD_CONFIG_PARTS & nested.keys():
        config = _old_config({name: nested.pop(name) for name in OLD_CONFIG_PARTS & nested.keys()})
        nested = {**nested, "config": config}
    return Fields(row.file, nested, row.path, numbers_are_text=True)


def _list_or_text(cell: str) -> Any:
    """The list in a cell, which the first versions wrote in Python notation, or its text."""
    for notation in (json.loads, ast.literal_eval) if cell.startswith("[") else ():
        try:
            return notation(cell)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
    return cell


def _old_config(data: Mapping[str, Any]) -> dict[str, Any]:
    """The current form of a configuration of the first versions."""
    found = {name: value for name, value in data.items() if name not in ("backend", "benchmark", "environment")}
    backend, benchmark, environment = (
        one if isinstance(one := data.get(name), dict) else {} for name in ("backend", "benchmark", "environment")
    )
    own = {name: found.pop(name) for name in ("model", "task", "device") if name in found}
    gpus = environment.get("gpus")
    return {
        **found,
        "backend": {**backend, **own},
        "scenario": benchmark,
        "environment": {**environment, **({"gpu": gpus, "gpu_count": len(gpus)} if isinstance(gpus, list) else {})},
    }


J_PER_KWH = 3.6e6
MAIN = ("forward", "generate", "call")
"""Targets of whole calls, by kind of task."""
TIMED = (*MAIN, "prefill", "decode", "load_model", "first_forward", "first_call", "per_step")
"""Targets whose latencies become metrics; the latencies of others are kept."""
MEMORY = {
    "max_ram": "memory_peak_rss_infer_mb",
    "max_process_vram": "memory_device_process_peak_mb",
    "max_reserved": "memory_device_reserved_peak_mb",
    "max_allocated": "memory_device_allocated_peak_mb",
    "max_global_vram": "memory_device_global_peak_mb",
}
SUMMED_VRAM = f"{NOT_SUPPORTED}: on ROCm the tool sums the readings up"
PER_TOKEN = f"{NOT_SUPPORTED}: per_token.latency repeats intervals, and has the gaps between calls among them"
NOT_COLD = f"{NOT_SUPPORTED}: first_generate is the second call: the first is not timed"
PARTS = ("prefill", "decode")
"""What versions before 0.6 report of generate."""
ESTIMATED = doubt("estimated_energy", "info", method="codecarbon")
ENERGY = {
    "cpu": ("energy_cpu_pkg_j_per_call", J_PER_KWH),
    "gpu": ("energy_gpu_j_per_call", J_PER_KWH),
    "ram": ("energy_dram_j_per_call", J_PER_KWH),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """The latencies of a target in ms."""

    values: array[float]
    """Empty for a report with statistics alone."""
    mean: float
    median: float | None
    stated: Mapping[str, float]
    """The stated statistics, for a report without values: p90, p95, p99, std."""


def result(
    report: Fields, point: Point, sequences: int, *, is_rocm: bool, warmup_calls: int | None, doubts: Sequence[Doubt]
) -> Result:
    """The point's result; `sequences` are generated in a call: batch x beams. Raises FormatError for invalid values."""
    targets = {name: found for name in TARGETS if (found := report.fields(name)) is not None}
    times = {name: one for name in TIMED if name in targets and (one := _times(targets[name]))}
    if not targets and (lines := (report.text(FAILURE) or "").strip().splitlines()):
        return foreign_result(point, status="failed", error=lines[-1], doubts=doubts)
    ordered = MAIN if any(one.values for one in times.values()) else MAIN[::-1]
    main = next((name for name in ordered if name in times), None)
    samples, metrics, stated = _generation(times, point, sequences)
    # Peaks in MB are over whole calls (decode has those of a whole generate).
    names = [name for name in (*MAIN, "decode") if name in targets and "memory" in targets[name]]
    memory = targets[names[0]].fields("memory") if names else None
    peaks = {} if memory is None else _peaks(memory, MEMORY)
    reasons = {}
    for column in [MEMORY["max_process_vram"], MEMORY["max_global_vram"]] if is_rocm else []:
        if peaks.pop(column, None) is not None:
            reasons[column] = SUMMED_VRAM
    loading = targets["load_model"].fields("memory") if "load_model" in targets else None
    metrics |= peaks | ({} if loading is None else _peaks(loading, {"max_ram": "memory_peak_rss_load_mb"}))
    if load := times.get("load_model"):
        metrics["load_model_s"] = (load.values[0] if load.values else load.mean) / MS_PER_S
    if first := times.get("first_forward") or times.get("first_call"):
        metrics["first_call_ms"] = first.values[0] if first.values else first.mean
    if steps := times.get("per_step"):
        metrics["step_ms"] = steps.median
    metrics |= (energies := _energies(targets))
    whole = times[main] if main else None
    if whole is None and "decode" in times and "prefill" in times and "generate" not in targets:
        # Some versions stored decode as each call minus the mean prefill.
        prefill, decode = times["prefill"], times["decode"]
        values = array("d", (value + prefill.mean for value in decode.values))
        median = median_of(values) if values else None
        whole = Times(values=values, mean=decode.mean + prefill.mean, median=median, stated={})
        reasons |= {} if values else MEDIAN_OF_PARTS
    if whole is not None:
        metrics |= _rates(whole, targets.get(main or ""), point)
        if not whole.values:
            stated |= {f"latency_{name}_ms": value for name, value in whole.stated.items()}
            stated |= {"latency_mean_ms": whole.mean, "latency_median_ms": whole.median}
    if "per_token" in targets:
        reasons |= dict.fromkeys(("inter_token_latency_p50_ms", "inter_token_latency_p99_ms"), PER_TOKEN)
    if "first_generate" in targets:
        reasons["first_call_ms"] = NOT_COLD
    counted = [targets[name].unread_copy() for name in (*MAIN, "prefill", "decode") if name in targets]
    return foreign_result(
        point,
        samples=[block(0, whole.values if whole else ()), *samples],
        metrics=metrics,
        stated=stated,
        iterations=max(
            (count for entry in counted if (count := entry.section("latency").integer("count"))), default=None
        ),
        warmup_iterations=warmup_calls if whole is not None else None,
        doubts=[
            *doubts,
            *([ESTIMATED] if energies else []),
            *_doubts(targets, times),
            *negative_times("latency_wall", whole.values if whole else ()),
        ],
        missing=reasons,
    )


def _energies(targets: Mapping[str, Fields]) -> dict[str, float]:
    """The energies of a call, by their metric: those of its target, or else the sums of prefill and decode. (The tool
    stores decode as a call minus prefill: a sum of both is right, and decode alone may be below 0.)"""
    stated = {name: one for name in targets if name in (*MAIN, *PARTS) and (one := targets[name].fields("energy"))}
    names = [name for name in MAIN if name in stated][:1] or [name for name in PARTS if stated.keys() >= {*PARTS}]
    parts: list[dict[str, float]] = []
    for energy in (stated[name] for name in names):
        if (unit := energy.text("unit")) not in (None, "kWh"):
            energy.leave_out("unit", f"expected kWh, found {unit!r}")
            return {}
        parts.append(energy.metrics(ENERGY, low=0 if len(names) == 1 else -math.inf))
    sums = {column: sum(part[column] for part in parts) for column in set.intersection(*map(set, parts or [{}]))}
    return {column: value for column, value in sums.items() if value >= 0}


def _doubts(targets: Mapping[str, Fields], times: Mapping[str, Times]) -> Iterator[Doubt]:
    """The doubts about numbers that the tool gets wrong, or estimates."""
    for name in ("prefill", "decode"):
        yield from negative_times(name, times[name].values if name in times else ())
    generate = targets["generate"].fields("throughput") if "generate" in targets else None
    if generate is not None and generate.text("unit") == "samples/s":
        value = generate.number("value")
        yield doubt("mislabelled_throughput", "info", value=value, stated_unit="samples/s", unit="tokens/s")


MEDIAN_OF_PARTS = {"latency_median_ms": "not_stated: the report has the medians of prefill and decode"}


def latencies_ms(target: Fields) -> array[float]:
    """The raw latencies of a target; empty for versions without them."""
    latency = target.fields("latency")
    if latency is None:
        return array("d")
    if (unit := latency.text("unit")) not in (None, "s"):
        latency.leave_out("unit", f"expected s, found {unit!r}")
        return array("d")
    return in_ms(latency.numbers("values"))


def _times(target: Fields) -> Times | None:
    """The latencies of a target, or the statistics of them, if it has either."""
    if values := latencies_ms(target):
        return Times(values=values, mean=fmean(values), median=median_of(values), stated={})
    latency = target.fields("latency")
    if latency is None or latency.peek("unit") not in (None, "s") or (mean := latency.number("mean")) is None:
        return None
    found = latency.metrics(STATED)
    return Times(values=array("d"), mean=mean * MS_PER_S, median=found.pop("median", None), stated=found)


STATED = {
    name: (statistic, MS_PER_S)
    for name, statistic in {"p50": "median", "p90": "p90", "p95": "p95", "p99": "p99", "stdev": "std"}.items()
}
"""Name in a report -> the statistic, and the factor to ms."""


def _generation(
    times: Mapping[str, Times], point: Point, sequences: int
) -> tuple[list[Samples], dict[str, float | None], dict[str, float | None]]:
    """First token and decode, with their samples, metrics and stated statistics. A decode covers all new tokens except
    the first."""
    samples: list[Samples] = []
    metrics: dict[str, float | None] = {}
    stated: dict[str, float | None] = {}
    steps = (point.new_tokens or 1) - 1
    if prefill := times.get("prefill"):
        metrics |= {"time_to_first_token_ms": prefill.median, "prefill_ms": prefill.median}
        if prefill.values:
            samples.append(measured("time_to_first_token", prefill.values))
        else:
            stated |= {"time_to_first_token_mean_ms": prefill.mean}
            stated |= {f"time_to_first_token_{name}_ms": value for name, value in prefill.stated.items()}
        if point.sequence_length and prefill.mean > 0:
            tokens = point.batch_size * point.sequence_length
            metrics["prefill_tokens_per_sec"] = tokens / prefill.mean * MS_PER_S
    if decode := times.get("decode"):
        metrics["decode_ms"] = decode.median
        if steps:
            per_token = array("d", (value / steps for value in decode.values))
            if per_token:
                samples.append(measured("time_per_output_token", per_token))
            else:
                stated |= {"time_per_output_token_mean_ms": decode.mean / steps}
                stated |= {f"time_per_output_token_{name}_ms": value / steps for name, value in decode.stated.items()}
            metrics["time_per_output_token_ms"] = None if decode.median is None else decode.median / steps
            if decode.mean > 0:
                metrics["decode_tokens_per_sec"] = sequences * steps / decode.mean * MS_PER_S
    return samples, metrics, stated


def _rates(whole: Times, target: Fields | None, point: Point) -> dict[str, float]:
    """Throughput over all calls, as the tool computes it: of sequences, and of generated (or else input) tokens; for a
    report without values the stated one."""
    tokens = point.new_tokens or point.sequence_length
    throughput = None
    if not whole.values and target is not None:
        throughput = target.section("throughput").number("value", low=0)
        # That of generate counts tokens, whatever its unit says.
        if throughput and target.path.endswith("generate"):
            return {"throughput_tokens_per_sec": throughput}
    if whole.mean <= 0 and not throughput:
        return {}
    rates = {"throughput_samples_per_sec": throughput or point.batch_size / whole.mean * MS_PER_S}
    return rates | ({"throughput_tokens_per_sec": rates["throughput_samples_per_sec"] * tokens} if tokens else {})


def _peaks(memory: Fields, names: Mapping[str, str]) -> dict[str, float]:
    if (unit := memory.text("unit")) not in (None, "MB"):
        memory.leave_out("unit", f"expected MB, found {unit!r}")
        return {}
    return memory.metrics(names, low=0)
