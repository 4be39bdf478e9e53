"""MLPerf inference: tables of a round's results, logs of a test, and descriptions of systems.

The tables are the submission checker's summary.csv and the published *_results.json.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarking.core.doubts import doubt
from benchmarking.core.errors import StorageError
from benchmarking.core.metrics import MS_PER_S
from benchmarking.core.records import LOADED_SCENARIOS, NOT_SUPPORTED, Doubt, Point
from db.importers.support import mlperf_files
from db.importers.support.building import ForeignRun, Format, precision_of
from db.importers.support.files import ForeignFile, NoResultsError, read_file, stored
from db.importers.support.measures import BATCH_NOT_STATED, foreign_result
from db.importers.support.reading import (
    Fields,
    csv_header,
    csv_table_rows,
    has_columns,
    has_keys,
    json_objects,
    understood,
)

DEFINITIONS = {
    "throughput_samples_per_sec": "samples (queries) per second under the scenario's rules: in Server and Interactive "
    "those completed within the latency limits' test, in Offline all",
    "throughput_tokens_per_sec": "generated tokens per second, likewise",
    "latency_*": "of a query in SingleStream, MultiStream and Server, as observed",
    "latency_p90_early_stopping_ms": "SingleStream's result: early stopping's estimate of the 90th percentile, "
    "which is not below the observed one",
    "latency_p99_early_stopping_ms": "MultiStream's result: early stopping's estimate of the 99th percentile",
    "time_to_first_token_ms": "median time to the first token",
    "time_per_output_token_ms": "median over queries of the mean time per token after the first",
    "system_power_w": "of the whole system",
}
ACCURACY, SEARCH = "AccuracyOnly", "FindPeakPerformance"
"""Modes of a test: without results, and with those at the highest rate that it found, which only the summary states."""
ACCURACY_LOG = "mlperf_log_accuracy.json"
DETAIL, LESS_DETAILED = "mlperf_log_detail.txt", ("mlperf_log_summary.txt", "result_summary.json")
"""Files of one test in a folder; the result is read from the most detailed one."""
MACHINE = (
    *("accelerator_model_name", "accelerators_per_node", "accelerator_memory_capacity", "total_accelerators"),
    *("host_processor_model_name", "host_processors_per_node", "host_processor_core_count", "host_memory_capacity"),
    "number_of_nodes",
)
PERCENTILES = {"singlestream": "latency_p90_ms", "multistream": "latency_p99_ms"}
"""Scenario -> percentile of the latency in a table."""
ESTIMATES = {"singlestream": "latency_p90_early_stopping_ms", "multistream": "latency_p99_early_stopping_ms"}
EARLY_STOPPING_SINCE = 2.0
"""Since this round that latency is the estimate of early stopping: an upper bound of the percentile with 99 %
confidence, not the observed percentile."""
OBSERVED = ("llama3.1-8b-edge",)
"""Models whose result in SingleStream is the observed percentile in every round: early stopping estimates their times
of tokens."""
SAMPLES, TOKENS = "throughput_samples_per_sec", "throughput_tokens_per_sec"
PERCENTILE_ONLY = f"{NOT_SUPPORTED}: the table has one percentile"
MILLI = 1e-3
UNITS: dict[str, tuple[str | None, float]] = {
    "tokens/s": (TOKENS, 1.0),
    "samples/s": (SAMPLES, 1.0),
    "queries/s": (SAMPLES, 1.0),
    "latency (ms)": (None, 1.0),
    "milliseconds": (None, 1.0),
    "ms": (None, 1.0),
    "latency (ns)": (None, 1e-6),
    "latency (us)": (None, 1e-3),
    **dict.fromkeys(("latency (s)", "seconds", "s"), (None, MS_PER_S)),
}
"""Unit in lower case -> column (None: the scenario's percentile) and the factor to our unit."""
POWER = {
    "watts": ("system_power_w", 1.0),
    "watt": ("system_power_w", 1.0),
    "joules": ("system_energy_j_per_query", 1.0),
    "millijoules": ("system_energy_j_per_query", MILLI),
    "millijoule": ("system_energy_j_per_query", MILLI),
}
MULTISTREAM_SAMPLES = 8
"""Samples in a query of MultiStream, by MLPerf's rules."""
PUBLISHED = {
    "Submitter": "Organization",
    "Category": "Division",
    "Suite": "SystemType",
    "System": "SystemName",
    "UsedModel": "Model",
    "Model": "MlperfModel",
    "Nodes": "number_of_nodes",
    "Processor": "host_processor_model_name",
    "Accelerator": "accelerator_model_name",
    "a#": "accelerators_per_node",
    "Total Accelerators": "total_accelerators",
    "Software": "framework",
    "Notes": "notes",
    "Performance_Result": "Result",
    "Performance_Units": "Units",
}
"""Name in *_results.json -> name in summary.csv; other names are equal."""
NEEDED = {"Scenario", "Result", "Units"}
IS_HEADER = has_columns("Organization", "Division", "Scenario", "Result")
UNITS_BEFORE = {"singlestream": "ms", "multistream": "ms", "offline": "samples/s", "server": "queries/s"}
"""Scenario -> unit in summary.csv before round 2.0, which has no column of units."""
STREAMS_BEFORE = 1.1
"""Before this round the result of MultiStream is a number of streams."""
SAME_RESULT = (
    *("Organization", "Division", "SystemName", "Platform", "Model", "MlperfModel", "Scenario", "Location", "version"),
)
"""Columns that the row of a result shares with the row of its power."""


Row = tuple[Fields, tuple[float, str] | None]
"""A result, and its power if it was measured: value and unit."""


def recognises(file: ForeignFile) -> bool:
    """Whether the file is a table, a log, or a description of a system."""
    return _reader(file) is not None


def read(file: ForeignFile) -> Iterator[ForeignRun]:
    """A run for each row of a table, or for a test. Raises NoResultsError for a description, an accuracy log, an audit
    log, and for a file whose test has a more detailed one in the same folder."""
    reader = _reader(file)
    if reader is None:
        file.refuse("not a file of MLPerf inference")
    yield from reader(file)


def _reader(file: ForeignFile) -> Callable[[ForeignFile], Iterator[ForeignRun]] | None:
    data = file.json
    if has_keys(data, mlperf_files.SYSTEM):
        return lambda opened: opened.without_results("description of a system: it is read with its results")
    if has_keys(data, mlperf_files.MEASUREMENT):
        return lambda opened: opened.without_results("description of a test: it is read with the test's result")
    is_empty = data == [] and file.called.name == ACCURACY_LOG  # of a test of the performance alone
    if is_empty or mlperf_files.ACCURACY.match(file.head[:1000]):  # which is large and often truncated for a submission
        return lambda opened: opened.without_results("accuracy log: answers of the model, without times")
    if mlperf_files.is_detail(file):
        return lambda opened: _of_log(opened, mlperf_files.of_detail)
    if mlperf_files.is_summary(file):
        return lambda opened: _of_log(opened, mlperf_files.of_summary)
    if has_keys(data, mlperf_files.ENDPOINTS):
        return lambda opened: _of_log(opened, lambda log: [mlperf_files.of_endpoints(log)])
    # One of the tables, in which a damaged row may lack the needed columns.
    if isinstance(data, list):
        is_table = any(isinstance(row, dict) and {PUBLISHED.get(name, name) for name in row} >= NEEDED for row in data)
    else:
        is_table = data is None and bool(csv_header(file, IS_HEADER))
    return _of_table if is_table else None


def _of_log(file: ForeignFile, read: Callable[[ForeignFile], Sequence[Mapping[str, Any]]]) -> Iterator[ForeignRun]:
    if file.called.name in LESS_DETAILED and (detail := stored(file.called.with_name(DETAIL))) is not None:
        is_whole = False
        with suppress(StorageError):
            is_whole = mlperf_files.is_detail(read_file(detail))
        if is_whole:  # those of the first rounds have another format
            file.without_results(f"all its numbers are in {DETAIL}")
    tests = read(file)
    if len(tests) == 1:
        yield _of_test(file, tests[0], 0)
        return

    def of_one(numbered: tuple[int, Mapping[str, Any]]) -> ForeignRun | None:
        try:
            return _of_test(file, numbered[1], numbered[0])
        except NoResultsError as error:
            file.leave_out(f"test {numbered[0] + 1}", f"{error}".removeprefix(f"{file.path}: "))
            return None

    yield from filter(None, understood(file, enumerate(tests), of_one))


def _of_test(file: ForeignFile, stated: Mapping[str, Any], number: int) -> ForeignRun:
    """The run of the test that is the one of this number in its file."""
    events = Fields(file, stated, numbers_are_text=True)
    place = mlperf_files.place_of(file.path.resolve())
    test_mode = events.text("effective_test_mode")
    if test_mode == ACCURACY:
        file.without_results("accuracy test: its times are not results")
    if place.is_audit or mlperf_files.is_audit(events):
        file.without_results("compliance test: a repetition under changed conditions, whose times are not results")
    scenario = (place.scenario or events.text("effective_scenario") or "unknown").lower().replace(" ", "")
    system = mlperf_files.system_fields(file, place.system_file(), place.root)
    queries = events.integer("result_query_count")
    samples = None if scenario == "offline" else events.count("effective_samples_per_query")
    metrics, missing = mlperf_files.log_metrics(events, scenario)
    if not metrics:
        file.refuse("no results: the test was interrupted, or its log is truncated")
    result = foreign_result(
        _point(scenario, samples, None if test_mode == SEARCH else events.number("effective_target_qps", low=0)),
        stated=metrics,
        missing=missing,
        iterations=queries,
        doubts=[*mlperf_files.log_doubts(events), *_batch_doubts(scenario)],
    )
    weights = _word(mlperf_files.measurement_fields(file, place), "weight_data_types")
    cell = _cell(
        place.model or "unknown",
        scenario,
        (place.division, place.submitter, place.system),
        weights or _word(system, "weight_data_types"),
        _words(system),
        _word(system, "framework"),
    )
    if test_mode == SEARCH:
        cell["runtime_mode"]["test_mode"] = SEARCH
    return ForeignRun(
        key=f"{place.inside} {number}" if number else place.inside,
        results=[result],
        started_at=events.time("test_datetime"),
        tool_version=events.text("loadgen_version") or _word(events, "endpoints_version"),
        **cell,
        tags={"submitter": place.submitter},
        kept={
            **events.rest(),
            **({"system": system.rest()} if system.rest() else {}),
            **({"place": place.inside} if place.inside else {}),
        },
    )


def _of_table(file: ForeignFile) -> Iterator[ForeignRun]:
    described: dict[Path | None, Fields] = {}

    def run_of(row: Row) -> ForeignRun:
        fields, measured_power = row
        division, submitter = _word(fields, "Division"), _word(fields, "Organization")
        place = mlperf_files.Place(division=division, submitter=submitter, root=file.path.parent)
        path = place.system_file(_word(fields, "Platform"))
        if path not in described:
            described[path] = mlperf_files.system_fields(file, path, place.root)
        system = described[path].unread_copy()
        scenario = fields.required(fields.text, "Scenario").lower().replace(" ", "")
        machine = {**_words(system), **{name: word for name, word in _words(fields).items() if word}}
        # The metric depends on the unit, and on model and round if the stated unit is known to be wrong.
        value, units = fields.required(fields.number, "Result"), _stated_units(fields, scenario)
        if units.strip().lower() not in UNITS:
            names = ("Organization", "SystemName", "Model", "Scenario")  # as people name the row
            row_name = " ".join(word for name in names if (word := _word(fields, name)))
            fields.refuse("Units", f"{row_name}: expected {', '.join(UNITS)}, found {units[:60]!r}")
        column, factor = UNITS[units.strip().lower()]
        doubts: list[Doubt] = []
        if (errors := fields.integer("errors")) is not None and errors > 0:
            doubts.append(doubt("checker_errors", "invalid", errors=errors))
        if (_word(fields, "inferred") or _word(fields, "infered")) in ("1", "True", "true"):
            doubts.append(doubt("inferred_scenario", "info", inferred=True))
        doubts += _batch_doubts(scenario)
        if column == SAMPLES and mlperf_files.counts_tokens(_word(fields, "Model") or "", _round(fields)):
            doubts.append(doubt("mislabelled_throughput", "info", value=value, stated_unit=units, unit="tokens/s"))
            column = TOKENS
        if column is None:
            is_estimate = _round(fields) >= EARLY_STOPPING_SINCE and _word(fields, "Model") not in OBSERVED
            column = (ESTIMATES if is_estimate else PERCENTILES).get(scenario, "latency_stated_ms")
        metrics = {column: value * factor}
        if measured_power is not None:
            power, power_units = measured_power
            power_name, power_factor = POWER.get(power_units.lower(), (f"power ({power_units})", 1.0))
            metrics[power_name] = power * power_factor
        is_latency = column.startswith("latency_")
        return ForeignRun(
            key=fields.path,
            results=[
                foreign_result(
                    _point(scenario, None, None),
                    metrics=metrics,
                    missing={"latency_median_ms": PERCENTILE_ONLY} if is_latency else {},
                    doubts=doubts,
                )
            ],
            tool_version=_word(fields, "version"),
            **_cell(
                _word(fields, "Model") or _word(fields, "MlperfModel") or "unknown",
                scenario,
                (division, submitter, _word(fields, "Platform") or _word(fields, "SystemName")),
                _word(fields, "weight_data_types") or _word(system, "weight_data_types"),
                machine,
                _word(fields, "framework") or _word(system, "framework"),
            ),
            tags={"submitter": submitter},
            kept={**fields.rest(), **({"system": system.rest()} if system.rest() else {})},
        )

    yield from understood(file, _results_in(file), run_of)


def _stated_units(fields: Fields, scenario: str) -> str:
    """The unit of a row's result, which follows from the scenario in a table of a round without units."""
    if "Units" in fields or _round(fields) >= EARLY_STOPPING_SINCE:
        return fields.required(fields.text, "Units")
    if scenario == "multistream" and _round(fields) < STREAMS_BEFORE:
        fields.refuse("Result", f"a number of streams before round {STREAMS_BEFORE}, which is no time of a query")
    return UNITS_BEFORE.get(scenario) or fields.refuse("Units", "is missing")


def _round(fields: Fields) -> float:
    """The number of the round, such as 4.1 for "v4.1"; 0 if not stated."""
    found = re.match(r"v?(\d{1,3}\.\d{1,3})", _word(fields, "version") or "")
    return float(found[1]) if found else 0.0


def _batch_doubts(scenario: str) -> tuple[Doubt, ...]:
    """In Offline all samples are one query, which the system splits into batches of unstated size."""
    return (BATCH_NOT_STATED,) if scenario == "offline" else ()


def _point(scenario: str, samples: int | None, target_qps: float | None) -> Point:
    """The batch size is the number of samples in a query. The load of a server is an axis, since latency depends on
    it."""
    default = MULTISTREAM_SAMPLES if scenario == "multistream" else 1
    axes = {"target_qps": target_qps} if scenario in LOADED_SCENARIOS and target_qps is not None else {}
    return Point(batch_size=samples or default, axes=axes)


def _cell(
    model: str,
    scenario: str,
    submission: tuple[str | None, str | None, str | None],
    weights: str | None,
    machine: Mapping[str, str | None],
    framework: str | None,
) -> dict[str, Any]:
    """Fields of the run about model, runtime and machine. A submission is its division, submitter and system: two
    of the same hardware differ in their software and its tuning."""
    division, submitter, system = submission
    known = (about for start, about in mlperf_files.MODELS.items() if model.lower().startswith(start))
    family, task = next(known, (None, "benchmark"))
    precision = precision_of(weights)
    runtime, versions = mlperf_files.software(framework)
    nodes = machine.get("number_of_nodes")
    return {
        "model_id": model,
        "family": family,
        "task": task,
        "runtime": runtime,
        "runtime_mode": {
            "scenario": scenario,
            "division": division,
            "submitter": submitter,
            "system": system,
            "weight_data_types": weights if precision == "other" else None,
            "nodes": nodes if nodes not in ("1", "1.0") else None,
        },
        "precision": precision,
        "versions": versions,
        **mlperf_files.hardware(machine),
    }


def _words(fields: Fields) -> dict[str, str | None]:
    return {name: _word(fields, name) for name in MACHINE}


def _word(fields: Fields, name: str) -> str | None:
    """Text, or a number as text: tables differ in this."""
    value = fields.any(name)
    if value is None or isinstance(value, list | dict):
        return None
    return str(value).strip() or None


def _results_in(file: ForeignFile) -> Iterator[Row]:
    """The results in the file's tables, each with its power. Raises FormatError for power without a result."""
    found: list[tuple[int, Fields]] = []
    if isinstance(file.json, list):
        for table, rows in enumerate(file.json_lists):
            for row in json_objects(file, rows, "row", 0):
                named = {PUBLISHED.get(name, name): row.peek(name) for name in row}
                found.append((table, Fields(file, named, row.path, numbers_are_text=True)))
    else:
        found.extend(csv_table_rows(file, IS_HEADER))
    keys = [(table, *(str(row.peek(name)).lower() for name in SAME_RESULT)) for table, row in found]
    powers = {key: row for key, (_, row) in zip(keys, found, strict=True) if _units(row).lower() in POWER}
    for key, (_, row) in zip(keys, found, strict=True):
        if _units(row).lower() in POWER:
            continue
        power = powers.pop(key, None)
        value, units = row.number("Power_Result", low=0), row.text("Power_Units")
        stated = None if value is None or units is None else (value, units)
        yield row, stated if power is None else (power.required(power.number, "Result"), _units(power))
    for row in powers.values():
        file.leave_out(row.place("Units"), "the file has no result for this power measurement")


def _units(row: Fields) -> str:
    return row.text("Units") or ""


PLUGIN = Format(
    name="mlperf",
    summary="MLPerf inference: summary.csv, *_results.json, mlperf_log_summary.txt, mlperf_log_detail.txt, "
    "result_summary.json; systems/*.json are joined",
    definition="mlperf-inference",
    definitions=DEFINITIONS,
    recognises=recognises,
    read=read,
)
