"""Converts a run into rows of the warehouse, rows into Arrow tables with the types of its columns, and the Arrow tables
of answers into rows.

Rows are dictionaries by column name, without NULLs; maps are lists of pairs, as Arrow expects them. Nothing of the run
is dropped.

Results with the same `series_id` measure the same thing. Software versions and the git commit are not part of a series:
they are what it tracks. Host name and device selector are not part of it either: identical machines, and identical
devices in one machine, are comparable.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from benchmarking.core.axes import FURTHER, POINT_FIELDS
from benchmarking.core.command_names import as_typed
from benchmarking.core.errors import FormatError
from benchmarking.core.load_doubts import SLO_SHARE
from benchmarking.core.provenance import naive_utc
from benchmarking.core.quality import QUALITY_METRICS, Quality, source_of
from benchmarking.core.records import (
    INT32_MOST,
    REQUEST_RATE,
    Json,
    Point,
    Requests,
    Result,
    Run,
    Samples,
    canonical_hash,
    json_text,
    to_json,
)
from benchmarking.core.run_file import LargeSamples
from benchmarking.core.sample_statistics import tail_quantile
from benchmarking.core.text import numbered, visible
from benchmarking.core.untrusted.input_files import MAX_DIGITS, parse_json

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]

NEVER_NEGATIVE = ("latency_", "throughput_", "time_", "inter_token_", "prefill_", "decode_", "memory_weights_mb")
"""Prefixes of metrics that cannot be negative. Differences, and metrics of other tools or users, can be."""

LOAD_STAGES = ("spawn", "import", "device_init", "weights_read", "to_device")

OBJECTS: Mapping[str, tuple[str, ...]] = {
    "benchmark_runs": (
        "run_id",
        "config",
        "runtime_mode",
        "settings",
        "environment",
        "device_details",
        "host_details",
    ),
    "benchmark_results": ("result_id", "axes", "extra"),
    "series": ("series_id", "axes", "runtime_mode", "hashed_keys"),
    "hardware_info": ("hardware_id", "details", "hashed_keys"),
    "profiles": ("profile_id", "axes", "runtime_mode", "details"),
    "quality_results": ("run_id", "how"),
    "alerts": ("alert_id", "parameters"),
    "change_points": ("change_point_id", "parameters"),
}
"""Table -> its key, and its columns of JSON that hold an object: of numbers and texts in axes, with the list of doubts
in extra."""
NUMBERS_IN: Mapping[str, tuple[str, ...]] = {"axes": (REQUEST_RATE,), "runtime_mode": (SLO_SHARE,)}
"""Column of JSON -> the keys whose values are numbers, with which the readers compute."""

Columns = Mapping[str, str]
"""Column -> field of a record that it stores unchanged; `db.run_records` reads with the same tables."""


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


RUN_COLUMNS: Columns = _same("run_id", "session_id", "status", "error", "format_version")
HARDWARE_COLUMNS: Columns = {
    **_same("hardware_id", "hash_version", "cpu_model", "cpu_cores", "cpu_threads"),
    "system_memory_bytes": "memory_bytes",
}
WORKLOAD_COLUMNS: Columns = {
    **_same("model_id", "task", "config_hash", "weights", "weights_reason", "parameter_count", "max_sequence_length"),
    **_same("vocab_size"),
    "model_source": "source",
    "model_revision": "revision",
    "model_path": "path",
    "weights_seed": "seed",
    "architecture_type": "family",
}
CELL_COLUMNS: Columns = _same("requested_device", "runtime", "precision", "num_threads", "cpu_list")
PROVENANCE_COLUMNS: Columns = _same("git_commit", "git_branch", "git_dirty", "description", "host", "tool_version")
RESULT_COLUMNS: Columns = {
    **_same("result_id", "status", "error", "validity", "launches", "iterations", "warmup_iterations", "stop_reason"),
    **_same("ci_scope"),
}
SAMPLES_COLUMNS: Columns = _same("launch", "phase", "metric", "unit", "inner_loops")
QUALITY_COLUMNS: Columns = _same("value", "low", "high")
REQUEST_COLUMNS = (
    *("intended_ms", "sent_ms", "first_token_ms", "token_ms", "end_ms", "tokens_in", "tokens_out", "cached_tokens"),
    *("error", "detail", "meets_limits", "conversation", "turn", "last_token_ms", "closed_ms", "tokens_counted_by"),
)
"""Columns of requests that are fields of `Requests`, with one value per request."""


def run_rows(
    run: Run, *, metric_columns: Collection[str], source: str | None, source_sha256: str | None, ingested_at: datetime
) -> dict[str, list[Row]]:
    """The rows of every table that a run is stored in.

    `metric_columns` are the metric columns of benchmark_results; other metrics go to other_metrics. Raises FormatError
    for NaN, infinity and times that are not ISO 8601.
    """
    runs = _run_row(run) | {"source": source, "source_sha256": source_sha256, "ingested_at": ingested_at}
    series = [series_row(run, result.point) for result in run.results]
    return {
        "hardware_info": [hardware_row(run)],
        "benchmark_runs": [runs],
        "series": list({row["series_id"]: row for row in series}.values()),
        "benchmark_results": [
            {**_result_row(result, metric_columns), "run_id": run.run_id, "series_id": of_point["series_id"]}
            for result, of_point in zip(run.results, series, strict=True)
        ],
        # Neighbouring samples of similar magnitude compress better; this is an order, so a missing median may be 0.
        "raw_benchmark_data": sorted(
            (_raw_row(result, samples, ingested_at) for result in run.results for samples in result.samples),
            key=lambda row: (row["metric"], row.get("median") or 0.0),
        ),
        "quality_results": [] if run.quality is None else quality_rows(run.run_id, run.quality),
        "requests": [
            row for result in run.results for requests in result.requests for row in _request_rows(result, requests)
        ],
    }


def _runtime_mode(run: Run) -> str:
    """The run's settings of the runtime as JSON. Raises FormatError for one of `NUMBERS_IN` that is no number: every
    reader of the database would stop at it. (The record of a point has numbers only.)"""
    for name in NUMBERS_IN["runtime_mode"]:
        if isinstance(value := run.cell.runtime_mode.get(name, 0), bool) or not isinstance(value, int | float):
            found = visible(repr(value)[:MOST_SHOWN])
            raise FormatError(f"run {run.run_id}: runtime_mode.{name}: expected a number, found {found}")
    return json_text(run.cell.runtime_mode)


def utc(text: str, where: str) -> datetime:
    """A naive UTC time from ISO 8601; a time without a zone is taken as UTC. Raises FormatError."""
    try:
        return naive_utc(datetime.fromisoformat(text))
    except (ValueError, OverflowError) as error:
        raise FormatError(f"{where}: expected a time in ISO 8601, found {text!r}") from error


def record_columns(record: object, columns: Columns) -> Row:
    """The columns that store fields of a record unchanged."""
    return {column: getattr(record, field) for column, field in columns.items()}


def hardware_row(run: Run) -> Row:
    """The row of hardware_info."""
    hardware, device = run.hardware, run.hardware.device
    return {
        **record_columns(hardware, HARDWARE_COLUMNS),
        "device_type": device.type,
        "device_name": device.name,
        "vendor": device.vendor,
        "device_count": device.count,
        "memory_bytes": device.memory_bytes,
        "simulated": device.simulated,
        "details": json_text(device),
        "hashed_keys": json_text(hardware.hashed_keys),
        "first_seen_at": utc(run.started_at, f"run {run.run_id}: started_at"),
    }


def _run_row(run: Run) -> Row:
    cell, workload, device, provenance = run.cell, run.cell.workload, run.cell.device, run.provenance
    where, commit_time = f"run {run.run_id}", run.provenance.git_commit_time
    # Properties that the launches read back from the loaded model.
    verified = run.loads[0].verified if run.loads else {}
    dtypes = verified.get("weight_dtypes", verified.get("parameters_by_dtype"))
    names = verified.get("parameter_dtypes")
    if dtypes is None and isinstance(names, list):
        dtypes = {str(name): None for name in names}
    row: Row = {
        **record_columns(run, RUN_COLUMNS),
        "hardware_id": run.hardware.hardware_id,
        "started_at": utc(run.started_at, f"{where}: started_at"),
        "finished_at": None if run.finished_at is None else utc(run.finished_at, f"{where}: finished_at"),
        "settings": json_text(run.settings),
        "environment": json_text(run.environment),
        "loads": json_text(run.loads),
        "load_time_s": run.load_time_s,
        **record_columns(workload, WORKLOAD_COLUMNS),
        "config": json_text(workload.config),
        **record_columns(cell, CELL_COLUMNS),
        "device": device.selector,
        "driver": device.driver,
        "device_details": json_text(device),
        "host_details": json_text(run.hardware.host),
        "runtime_mode": _runtime_mode(run),
        "is_simulated": run.is_simulated,
        "weight_dtypes": None if dtypes is None else json_text(dtypes),
        **record_columns(provenance, PROVENANCE_COLUMNS),
        "git_commit_time": utc(commit_time, f"{where}: git_commit_time") if commit_time else None,
        "versions": list(provenance.versions.items()),
        "tags": list(provenance.tags.items()),
        "command": shlex.join(provenance.command),
    }
    for stage in LOAD_STAGES:  # medians over the launches, in seconds; NULL for a stage without values
        seconds = [load.stages_s[stage] for load in run.loads if stage in load.stages_s]
        row[f"load_{stage}_s"] = median(seconds) if seconds else None
    if run.preparation is not None:  # the build as JSON, and in columns if the runtime has values of their types
        build = run.preparation.build
        row |= {
            "preparation": json_text(run.preparation),
            "exporter": _typed(build.get("exporter"), str),
            "build_kind": _typed(build.get("kind"), str),
            "build_digest": _typed(build.get("digest"), str),
            "build_s": _typed(build.get("build_s"), float),
            "build_is_new": _typed(build.get("is_new"), bool),
        }
    if (origin := run.origin) is not None:
        row |= {"origin_format": origin.format, "origin_definition": origin.definition, "origin": json_text(origin)}
    return row


def _typed(value: Any, kind: type) -> Any:
    """The value if it has the type (an int is a float too), otherwise None."""
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value if isinstance(value, kind) else None


def series_row(run: Run, point: Point) -> Row:
    """The row of series."""
    keys = series_keys(run, point)
    return {
        **keys,
        "series_id": series_id(keys),
        "axes": json_text(point.axes),
        "runtime_mode": _runtime_mode(run),
        "hashed_keys": json_text(keys),
        "hash_version": SERIES_HASH_VERSION,
        "first_seen_at": utc(run.started_at, f"run {run.run_id}: started_at"),
    }


def _result_row(result: Result, metric_columns: Collection[str]) -> Row:
    """The row of benchmark_results, without its run and series."""
    point, metrics = result.point, {name: _checked(value, result, name) for name, value in result.metrics.items()}
    if "doubts" in result.extra:
        raise FormatError(f'result {result.result_id}: extra has the reserved key "doubts"')
    axes = {name: point.axes.get(name) for name in FURTHER}
    for name, value in axes.items():  # there is no half pixel, step or document
        is_whole = value is None or (abs(value) <= INT32_MOST and float(value).is_integer())
        if FURTHER[name].kind is int and not is_whole:
            raise FormatError(f"point {point.label}: {name} is {value}, expected a whole number up to {INT32_MOST}")
    return {
        **record_columns(result, RESULT_COLUMNS),
        **{name: getattr(point, name) for name in POINT_FIELDS},
        "axes": json_text(point.axes),
        **axes,
        "doubts": [doubt.kind for doubt in result.doubts],
        "pooled_quantiles": list(result.pooled_quantiles),
        **{name: value for name, value in metrics.items() if name in metric_columns},
        "other_metrics": [(name, value) for name, value in metrics.items() if name not in metric_columns],
        "missing": list(result.missing.items()),
        "extra": json_text({**result.extra, "doubts": result.doubts}),
    }


def _raw_row(result: Result, samples: Samples, now: datetime) -> Row:
    """The samples of a launch with their statistics, which are kept when the samples are compacted; quantiles instead
    of samples for a run with too many. Blocks of calls have no tail percentiles, since the mean of a block hides its
    slowest call."""
    row: Row = {
        "result_id": result.result_id,
        **record_columns(samples, SAMPLES_COLUMNS),
        "started_at": utc(samples.started_at, f"result {result.result_id}: started_at"),
        "samples": [],
        "sample_count": len(samples.values),
    }
    values: Any = samples.values
    is_large = isinstance(values, LargeSamples)
    for value in (values.least,) if is_large else values:
        _checked(value, result, samples.metric)
    if not values:
        return row
    if not is_large:
        try:
            row |= {"samples": list(values), "mean": fmean(values), "median": median(values)}
        except OverflowError as error:
            label = f"result {result.result_id} ({result.point.label})"
            raise FormatError(f"{label}: {samples.metric} has values that are too large for a mean") from error
        return row | {"p99": tail_quantile(values, 0.99) if samples.inner_loops == 1 else None}
    row |= {"mean": values.mean, "median": values.median, "p99": values.p99 if samples.inner_loops == 1 else None}
    if values.quantiles is None:
        return row | {"samples": values.numbers}
    return row | {"sketch": list(values.quantiles), "compacted_at": now}


def _request_rows(result: Result, requests: Requests) -> list[Row]:
    where = f"result {result.result_id}, requests of launch {requests.launch}"
    shared = {
        "result_id": result.result_id,
        "launch": requests.launch,
        "phase": requests.phase,
        "started_at": utc(requests.started_at, f"{where}: started_at"),
    }
    columns = [getattr(requests, name) for name in REQUEST_COLUMNS]
    if len(set(map(len, columns))) != 1:
        lengths = ", ".join(f"{name} {len(values)}" for name, values in zip(REQUEST_COLUMNS, columns, strict=True))
        raise FormatError(f"{where}: expected one value per request in every field, found {lengths}")
    return [
        {**shared, "ordinal": i, **dict(zip(REQUEST_COLUMNS, values, strict=True))}
        for i, values in enumerate(zip(*columns, strict=True))
    ]


def quality_rows(run_id: str, quality: Quality) -> list[Row]:
    """The rows of quality_results of a run."""
    shared, rows = {"run_id": run_id, "how": json_text(quality.how)}, list[Row]()
    for metric in (*quality.values, *(name for name in quality.missing if name not in quality.values)):
        found, known = quality.values.get(metric), QUALITY_METRICS.get(metric)
        windows = quality.how_of(source_of(metric)).get("windows")
        if found is not None and found.by_window:
            windows = len(found.by_window)
        row: Row = {
            "metric": metric,
            "unit": "" if known is None else known.unit,  # of a later version
            "inputs": quality.inputs if found is None or found.inputs is None else found.inputs,
            "windows": windows if isinstance(windows, int) and windows > 0 else None,
        }
        if found is None:
            row |= {"by_window": [], "missing": quality.missing[metric]}
        else:
            row |= {**record_columns(found, QUALITY_COLUMNS), "by_window": list(found.by_window)}
        rows.append({**shared, **row})
    return rows


def _checked(value: float, result: Result, metric: str) -> float:
    """The value, if it is possible for a measurement. Raises FormatError."""
    if math.isfinite(value) and not (value < 0 and metric.startswith(NEVER_NEGATIVE)):
        return value
    what = "cannot be negative" if math.isfinite(value) else "is not a finite number"
    raise FormatError(f"result {result.result_id} ({result.point.label}): {metric} is {value}, which {what}")


def arrow_table(rows: Sequence[Mapping[str, Any]], column_types: Mapping[str, str]) -> Any:
    """A `pyarrow.Table` of the rows.

    `column_types` are DuckDB's type names by column. A column missing in a row is NULL. A value for an unknown column
    is a bug and raises KeyError, so that nothing is dropped. Raises FormatError for a number too large for its column
    and for text that is not Unicode.
    """
    import pyarrow as pa

    unknown = {name for row in rows for name in row} - column_types.keys()
    if unknown:
        raise KeyError(f"unknown column: {', '.join(sorted(unknown))}")
    types = {
        "VARCHAR": pa.string(),
        "JSON": pa.string(),
        "BOOLEAN": pa.bool_(),
        "INTEGER": pa.int32(),
        "BIGINT": pa.int64(),
        "DOUBLE": pa.float64(),
        "TIMESTAMP": pa.timestamp("us"),
        "VARCHAR[]": pa.list_(pa.string()),
        "DOUBLE[]": pa.list_(pa.float64()),
        "MAP(VARCHAR, VARCHAR)": pa.map_(pa.string(), pa.string()),
        "MAP(VARCHAR, DOUBLE)": pa.map_(pa.string(), pa.float64()),
    }
    schema = pa.schema([(name, types[kind]) for name, kind in column_types.items()])
    try:
        if not any(type(row.get("samples")) not in (list, type(None)) for row in rows):
            return pa.Table.from_pylist(list(rows), schema=schema)
        table = pa.Table.from_pylist([{**row, "samples": None} for row in rows], schema=schema)
        lists = []
        for row in rows:
            values = pa.array(row["samples"], pa.float64())  # a numpy array is not copied
            lists.append(pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values))
        column = pa.chunked_array(lists, types["DOUBLE[]"])
        return table.set_column(schema.get_field_index("samples"), "samples", column)
    except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError) as error:
        raise FormatError(f"a value cannot be stored: {error}") from error


SERIES_HASH_VERSION = 1
"""Incremented whenever `series_keys` changes; histories then restart, or are joined in `series_alias`."""

METRIC_DEFINITION = 1
"""Version of the metric definitions, for runs without it in their settings (`metric_definition`)."""


def series_keys(run: Run, point: Point) -> dict[str, Json]:
    """The keys that the id of the point's series is a hash of."""
    cell, workload = run.cell, run.cell.workload
    keys: dict[str, Any] = {
        "model_id": workload.model_id,
        "model_revision": workload.revision,
        "weights": workload.weights,
        "config_hash": workload.config_hash,
        "architecture_type": workload.family,
        "task": workload.task,
        **{name: getattr(point, name) for name in POINT_FIELDS},
        "axes": to_json(point.axes),
        "runtime": cell.runtime,
        "runtime_mode": to_json(cell.runtime_mode),
        "precision": cell.precision,
        "num_threads": cell.num_threads,
        "hardware_id": run.hardware.hardware_id,
        "metric_definition": metric_definition(run),
    }
    if cell.cpu_list is not None:  # added only if set, so that ids of earlier runs stay the same
        keys["cpu_list"] = cell.cpu_list
    if run.origin is not None:
        keys["definition"] = run.origin.definition
    return keys


def series_id(keys: dict[str, Json]) -> str:
    """First 16 hex digits of the SHA-256 of the keys' canonical JSON."""
    return canonical_hash(keys)[:16]


def metric_definition(run: Run) -> int:
    """Version of the run's metric definitions."""
    stated = run.settings.get("metric_definition")
    return stated if isinstance(stated, int) else METRIC_DEFINITION


OBJECT_COLUMNS = frozenset(column for columns in OBJECTS.values() for column in columns[1:])
LIST_COLUMN = "loads"
"""One that holds a list."""
MOST_SHOWN = 60
MOST_OPENED = 250
"""Brackets in JSON that is not parsed to see how deep it is. A result has about 7 a launch, and commands read as many
levels; --verify counts them."""
NOT_OURS = rf"(?i)\d{{{MAX_DIGITS + 1}}}|,\s*[\]}}]|(?:^|[:\[,])\s*-?(?:nan|inf|[\d.]+e\+?\d{{3}})"
"""Occurs in JSON that DuckDB accepts and a run file may not have: long or infinite numbers, a comma before the end. It
may also be in a text."""


def json_problem(text: str) -> str:
    """Why a stored JSON text is not one of this program, whose limits are those of run files; empty for one that is."""
    try:
        to_json(parse_json(text.encode(), "JSON"))
    except FormatError as error:
        return str(error).removeprefix("JSON: ")
    return ""


def is_command_line(text: str) -> bool:
    """Whether a shell could read it."""
    try:
        shlex.split(text)
    except ValueError:
        return False
    return True


class Table:
    """The complete answer to a query."""

    def __init__(self, arrow: Any, path: str = "", json_columns: Sequence[int] = ()) -> None:
        """Wraps a `pyarrow.Table`; `path` is the warehouse's name in messages."""
        self._arrow, self._path, self._json_columns = arrow, path, json_columns

    def arrow(self) -> Any:
        """As a `pyarrow.Table`."""
        return self._arrow

    def df(self) -> pd.DataFrame:
        """As a `pandas.DataFrame`; maps are dictionaries, JSON is text."""
        frame: pd.DataFrame = self._arrow.to_pandas(maps_as_pydicts="strict")
        return frame

    def _check_json(self, name: str, column: Any) -> None:
        """Of the texts that do not look as ours at once, each is parsed."""
        import pyarrow.compute as pc

        is_deep = pc.greater(pc.count_substring_regex(column, r"[\[{]"), MOST_OPENED)
        for text in column.filter(pc.or_(is_deep, pc.match_substring_regex(column, NOT_OURS))).to_pylist():
            if problem := json_problem(text):
                raise self._not_ours(f"{name}: found {visible(text[:MOST_SHOWN])} ({problem})")
        if name not in OBJECT_COLUMNS and name != LIST_COLUMN:
            return
        kind, beginning = (list, "[") if name == LIST_COLUMN else (dict, "{")
        begins = pc.starts_with(column, beginning)
        if name == "axes":
            begins = pc.and_(begins, pc.equal(pc.count_substring_regex(column, r"[{\[]"), 1))
        elif name == "extra":
            begins = pc.and_(begins, pc.match_substring(column, '"doubts":['))
        numbers = NUMBERS_IN.get(name, ())
        if numbers:
            is_other = pc.match_substring_regex(column, rf'"({"|".join(numbers)})":\s*[^-\d\s]')
            begins = pc.and_(begins, pc.invert(is_other))
        for text in column.filter(pc.invert(begins)).to_pylist():  # without those that are NULL
            value: Any = json.loads(text)
            is_ours = isinstance(value, kind)
            if is_ours and name == "axes":
                is_ours = all(isinstance(one, str | int | float) for one in value.values())
            elif is_ours and name == "extra":
                is_ours = isinstance(value.get("doubts"), list)
            if not is_ours or not all(isinstance(value.get(key, 0), int | float) for key in numbers):
                raise self._not_ours(f"{name}: found {visible(text[:MOST_SHOWN])}")

    def _check_texts(self, name: str, column: Any) -> None:
        """Command lines are a shell's, and lists of doubts have no gaps."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if name == "doubts" and column.null_count < len(column) and hasattr(column.type, "value_type"):
            if pc.list_flatten(column).null_count:
                raise self._not_ours(f"{name}: found a list with NULL")
        elif (
            name == "command"
            and pa.types.is_string(column.type)
            and pc.any(pc.match_substring_regex(column, r"['\"\\]")).as_py()
        ):
            for text in column.unique().drop_null().to_pylist():
                if not is_command_line(text):
                    raise self._not_ours(f"{name}: found {visible(text[:MOST_SHOWN])}")

    def _not_ours(self, found: str) -> FormatError:
        return FormatError(
            f"{self._path}: {found}, which is not of this program: another one changed the file: "
            f"{as_typed('setup')} --verify lists what is damaged"
        )

    def dicts(self) -> list[dict[str, Any]]:
        """One dictionary per row; maps are dictionaries, JSON is text. Of columns with one name, all but the first have
        a number.

        Raises FormatError for a column of ours with other values than ours: another program has written into the file.
        """
        import pyarrow as pa

        for place in self._json_columns:
            self._check_json(self._arrow.column_names[place], self._arrow.column(place))
        for name in {"command", "doubts"}.intersection(self._arrow.column_names):
            self._check_texts(name, self._arrow.column(name))
        try:
            named = self._arrow.rename_columns(numbered(self._arrow.column_names))
            rows: list[dict[str, Any]] = named.to_pylist()
        except (OverflowError, ValueError) as error:
            raise FormatError(
                f"{self._path}: found a time outside of the years 1 to 9999: cast one of your own to VARCHAR; in a "
                f"column of ours, another program changed the file: {as_typed('setup')} --verify lists what is damaged"
            ) from error
        for name in (field.name for field in named.schema if pa.types.is_map(field.type)):
            for row in rows:
                row[name] = None if row[name] is None else dict(row[name])
        return rows
