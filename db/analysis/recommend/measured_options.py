"""Reads the measured options for a model from a warehouse, by workload."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from benchmarking.core.axes import POINT_COLUMNS, POINT_FIELDS
from benchmarking.core.doubts import FIT
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import ENERGY, METRICS, PEAK_MEMORY, energy_per_item, peak_memory_column
from benchmarking.core.quality import QUALITY_METRICS, Quality
from benchmarking.core.records import (
    LOADED_SCENARIOS,
    LOOP,
    NOT_APPLICABLE,
    SCENARIO,
    Point,
    Result,
    Run,
    canonical_hash,
)
from benchmarking.core.sample_statistics import MIN_LAUNCHES_FOR_BETWEEN, between_launches_interval
from benchmarking.core.text import distinct_names, grouped, listed, visible
from db.analysis.compare.comparison import compare
from db.analysis.compare.matching import ALL, model_and_quantization
from db.analysis.compare.stored_results import launch_values
from db.analysis.gate.candidates import SEARCHES, doubt_kinds
from db.analysis.recommend.recommendation import (
    WITHOUT_INTERVAL,
    Newer,
    Option,
    Quantity,
    Recommendation,
    how_known,
    read_of,
    recommend_of_turns,
)
from db.analysis.selection import Selection, unstored
from db.run_records import qualities
from db.values import bench_settings_of, serious_kinds, shortened

if TYPE_CHECKING:
    from db.warehouse import Warehouse

Row = Mapping[str, Any]
PERCENTILES = ("latency_p90_ms", "latency_p95_ms", "latency_p99_ms")
AT_LEAST_MEDIAN = (*PERCENTILES, "latency_max_ms")
"""Statistics that are no lower than the median: a limit that one of them meets is met by the median, too."""
DEVICES = """CASE
    WHEN origin_format IS NULL OR contains(device, ':') THEN len(string_split(device, ','))
    ELSE (SELECT device_count FROM hardware_info hardware WHERE hardware.hardware_id = measured.hardware_id)
END AS devices"""
"""Number of devices that a result of `measured` used. The count of a device that has a number is of its machine."""
COLUMNS = (
    *("result_id", "run_id", "session_id", "model_id", "hardware_id", "device", "device_name", "device_type"),
    *("runtime", "runtime_mode", "precision", "num_threads", "cpu_list", "validity", "extra", "missing"),
    *("model_revision", "task", "weights", "config_hash", "origin_definition"),
    *POINT_COLUMNS,
    *("latency_median_ms", "latency_ci_low_ms", "latency_ci_high_ms", "ci_scope"),
    *("time_to_first_token_ms", "time_to_first_token_ci_high_ms"),
    *PERCENTILES,
    *("latency_max_ms", "other_metrics"),
    *("throughput_samples_per_sec", "throughput_tokens_per_sec", "output_error", *PEAK_MEMORY, *ENERGY),
    DEVICES,
)
IS_MLPERF_LOAD = f"coalesce(runtime_mode->>'{SCENARIO}', '') IN {LOADED_SCENARIOS}"
IS_CALL = f"((runtime_mode->>'{LOOP}') IS NULL AND NOT {IS_MLPERF_LOAD})"
"""Excludes levels of load tests: they are not options for calls."""
IS_OPTION = f"""status = 'ok' AND validity IN {FIT} AND NOT coalesce(simulated, FALSE)
    AND latency_median_ms > 0 AND throughput_samples_per_sec > 0 AND {IS_CALL}"""
"""A condition on `all_results` and `latest_results`."""
OPTIONS = f"""
SELECT {", ".join(COLUMNS)}
FROM (SELECT * FROM all_results WHERE model_id IN (SELECT unnest(?::VARCHAR[])) AND {{condition}}) measured
WHERE {IS_OPTION}
QUALIFY row_number() OVER (PARTITION BY series_id ORDER BY validity = 'valid' DESC, started_at DESC, result_id DESC) = 1
ORDER BY result_id
"""
NO_OPTIONS = {
    "coalesce(simulated, FALSE)": "simulated (which is never recommended)",
    f"(runtime_mode->>'{LOOP}') IS NULL AND {IS_MLPERF_LOAD}": "of MLPerf under load, which are no single calls",
    f"NOT ({IS_CALL})": (
        "from load tests (which sustain a rate: benchhouse recommend --request-rate, or the page Recommend)"
    ),
    "status <> 'ok'": "failed or skipped",
    "validity IN ('invalid', 'throttled')": "invalid or throttled",
    "throughput_samples_per_sec IS NULL": "without a throughput",
    "latency_median_ms IS NULL": "without a median latency",
}
"""A condition on `all_results` -> what a result that is no option because of it is; the first that holds."""
OF_WORKLOAD = ("task", "weights", "model_revision", "sequence_length", "new_tokens")
"""Columns of a workload, beside its configuration, definition and axes."""
STORED_OF = """
SELECT
    list(DISTINCT device) AS device, list(DISTINCT runtime) AS runtime, list(DISTINCT precision) AS precision,
    list(DISTINCT batch_size) AS batch, list(DISTINCT sequence_length) AS sequence
FROM all_results WHERE model_id IN (SELECT unnest(?::VARCHAR[]))
"""
MOST_STORED = 4
"""Stored values of a field that are listed where nothing is selected; the rest are counted."""
MODELS = "SELECT DISTINCT model_id FROM all_results ORDER BY model_id"
NEWER = """
SELECT
    shown.result_id AS shown_id, newer.result_id, newer.started_at, newer.status, newer.validity, newer.doubts,
    newer.latency_median_ms AS latency_ms
FROM benchmark_results shown
JOIN benchmark_runs run ON run.run_id = shown.run_id
LEFT JOIN series_alias alias ON alias.series_id = shown.series_id
JOIN latest_results newer ON newer.series_id = coalesce(alias.canonical_series_id, shown.series_id)
WHERE shown.result_id IN (SELECT unnest(?::VARCHAR[])) AND newer.started_at > run.started_at
    AND newer.status <> 'skipped' AND (newer.status <> 'ok' OR newer.validity <> 'valid')
"""
"""Results that are newer than a shown one, and were passed over because they are not valid."""


UNSTATED_CONFIG = canonical_hash({})
"""The hash of a configuration that is not known, as of a model behind an address."""
OF_ONE_SEARCH = f"""
SELECT count(*) AS runs, count(DISTINCT session_id) AS sessions FROM benchmark_runs
WHERE run_id IN (SELECT unnest(?::VARCHAR[])) AND {SEARCHES["a search by benchhouse tune"]}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """What was computed, by what can be compared."""

    task: str
    weights: str
    config_hash: str
    model_revision: str | None
    definition: str | None
    """Definition of imported numbers; None for our own."""
    sequence_length: int | None
    new_tokens: int | None
    axes: tuple[tuple[str, float], ...]

    @property
    def sizes(self) -> str:
        """ "s128 n64" """
        sizes = [f"s{self.sequence_length}"] if self.sequence_length is not None else []
        sizes += [f"n{self.new_tokens}"] if self.new_tokens is not None else []
        return " ".join([*sizes, *(f"{name}={value:.15g}" for name, value in self.axes)])

    @property
    def origin(self) -> str:
        """Whose definitions the numbers follow; empty for our own."""
        return "" if self.definition is None else f"definition of {self.definition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload(Computed):
    """The calls of a model. Options of one workload can be compared."""

    has_tokens: bool
    """Whether throughput counts tokens instead of items."""
    bench_settings: str = ""
    """Settings of a user-written benchmark, by which people know its configuration: "compile_mode default"."""

    @property
    def text(self) -> str:
        """ "feature-extraction, s128, random weights" """
        weights = "" if self.weights == "given" else f"{self.weights} weights"  # those of the file or caller
        return ", ".join(filter(None, (self.task, self.sizes, weights, self.origin)))


def workload_facts(workload: Workload) -> tuple[str, str, str, str]:
    """What tells workloads of the same text apart, in words, in this order."""
    return (
        "" if workload.model_revision is None else f"revision {shortened(workload.model_revision)}",
        visible(workload.bench_settings),
        f"configuration {workload.config_hash[:8]}",
        "in tokens" if workload.has_tokens else "in items",
    )


def workload_titles(workloads: Sequence[Workload]) -> list[str]:
    """Their texts, with the facts that tell those of the same text apart."""
    return distinct_names([visible(one.text) for one in workloads], list(map(workload_facts, workloads)), ", ")


def models_by_name(known: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The known models, in their order, by name. Quantizations of one model are together under what their names share,
    with the model itself; any other model is alone."""
    by_name = grouped((model_and_quantization(one)[0], one) for one in known)
    named: dict[str, tuple[str, ...]] = {}
    for name, found in by_name.items():  # a-F16 alone may also be what the names of its quantizations share
        key = name if len(found) > 1 else found[0]
        named[key] = (*named.get(key, ()), *found)
    return named


def to_choose(precisions: Sequence[tuple[object, bool]]) -> tuple[int, int, int]:
    """How much there is to choose from on one machine, of the precision or quantization of each option and whether its
    quality is measured: those with a quality, all of them, and the options."""
    return len({one for one, has in precisions if has}), len({one for one, _ in precisions}), len(precisions)


def found_name(by_name: Mapping[str, Sequence[str]], model_id: str) -> str | None:
    """The name (`models_by_name`) of a model, of one of its files, or of what a file's name begins with; None for an
    unknown model."""
    return next(
        (
            name
            for name, models in by_name.items()
            if model_id in (name, *models) or model_id == model_and_quantization(name)[0]
        ),
        None,
    )


def options_by_workload(
    warehouse: Warehouse, models: Sequence[str], selection: Selection
) -> dict[Workload, tuple[Option, ...]]:
    """The newest valid (or else noisy) result of each series of a model, by workload, without simulated ones. Several
    `models` are the quantizations of one (`models_by_name`)."""
    rows = warehouse.query(OPTIONS.format(condition=selection.condition), (list(models), *selection.values)).dicts()
    found = launch_values(warehouse, [row["result_id"] for row in rows], METRICS["throughput_samples_per_sec"])
    rates = {name: tuple(launches.values()) for name, launches in found.items()}
    known = qualities(warehouse, sorted({row["run_id"] for row in rows}))
    newer = newer_doubtful(warehouse, [row["result_id"] for row in rows])
    settings = bench_settings_of(warehouse, rows)
    by_workload: dict[Workload, list[Option]] = {}
    for row in rows:
        point = Point.from_columns(row)
        columns = (
            "result_id",
            "run_id",
            "session_id",
            "hardware_id",
            "device",
            "device_name",
            "device_type",
            "devices",
        )
        rate: float | None = row["throughput_tokens_per_sec"]
        tokens = rate if rate is not None and rate > 0 else None  # of a model without tokens, and of some imports, none
        option = Option(
            **{name: row[name] for name in (*columns, "runtime", "precision", "validity")},
            **_measured(row, row["missing"], point),
            latency_p90_ms=stated_value(row, "latency_p90_ms"),
            latency_p95_ms=stated_value(row, "latency_p95_ms"),
            latency_p99_ms=stated_value(row, "latency_p99_ms"),
            latency_stated_ms=next(filter(None, (stated_value(row, name) for name in AT_LEAST_MEDIAN)), None)
            if row["origin_definition"] is not None
            else None,
            runtime_mode={**stated_mode(row), **binding(row["num_threads"], row["cpu_list"])},
            doubts=doubt_kinds(row["extra"]),
            newer=newer.get(row["result_id"]),
            is_between=row["ci_scope"] == "between",
            throughput=row["throughput_samples_per_sec"] if tokens is None else tokens,
            throughput_half_width=_rate_half_width(rates.get(row["result_id"], ())),
        )
        axes = json.loads(row["axes"])
        own_settings = sorted(settings.get(row["run_id"], {}).items())
        workload = Workload(
            **{name: row[name] for name in OF_WORKLOAD},
            config_hash=workload_config(row),
            definition=row["origin_definition"],
            axes=tuple(sorted(axes.items())),
            has_tokens=tokens is not None,
            bench_settings=", ".join(f"{name} {value}" for name, value in own_settings),
        )
        by_workload.setdefault(workload, []).append(_with_quality(option, known.get(row["run_id"])))
    return {
        workload: tuple(options) for workload, options in sorted(by_workload.items(), key=lambda item: item[0].text)
    }


def judged(
    warehouse: Warehouse, found: Recommendation, limits: Mapping[Quantity, float], *, has_tokens: bool
) -> Recommendation:
    """The recommendation as launches in turns decide it, where all options that meet the limits are of one search by
    `benchhouse tune`; else with what the judge of `benchhouse compare` says of its best option and the next best."""
    fitting = [rated.option for rated in found.rated if rated.fits]
    if found.aim in WITHOUT_INTERVAL or len(fitting) < 2:
        return found
    rate = "throughput_tokens_per_sec" if has_tokens else "throughput_samples_per_sec"
    metric = METRICS["latency_median_ms" if found.aim == "latency" else rate]
    runs = {one.run_id for one in fitting}
    (row,) = warehouse.query(OF_ONE_SEARCH, (list(runs),)).dicts()
    if row["sessions"] == 1 and row["runs"] == len(runs):
        sign = 1 if metric.better == "lower" else -1
        launches = launch_values(warehouse, [one.result_id for one in fitting], metric)
        costs = {
            name: {number: value**sign for number, value in each.items() if value > 0}
            for name, each in launches.items()
        }
        return recommend_of_turns([rated.option for rated in found.rated], limits, found.aim, costs)
    best, following = fitting[:2]
    if found.equal or (found.aim == "cost" and best.price_per_hour != following.price_per_hour):
        return found  # the ratio of such costs is not that of their throughputs
    before, after = (
        Selection(
            text=one.result_id,
            words="result_id = ?",
            values=(one.result_id,),
            run_condition="run_id = ?",
            run_values=(one.run_id,),
        )
        for one in (best, following)
    )
    compared = compare(warehouse, before, after, metric, (ALL, *POINT_FIELDS))
    if not compared.findings:
        return found
    return replace(found, how=how_known(compared.findings[0].judgement))


def models(warehouse: Warehouse) -> tuple[str, ...]:
    """All stored models."""
    return tuple(row["model_id"] for row in warehouse.query(MODELS).dicts())


def why_no_options(warehouse: Warehouse, models: Sequence[str], selection: Selection) -> str:
    """Counts of the selected results of a model, and why they are not options."""
    return unusable_words(warehouse, models, selection, NO_OPTIONS)


def simulated_results(warehouse: Warehouse, models: Sequence[str], selection: Selection) -> int:
    """The number of selected results of a model that are left out because they are simulated."""
    sql = f"""
    SELECT count(*) AS n FROM all_results
    WHERE model_id IN (SELECT unnest(?::VARCHAR[])) AND {selection.condition} AND coalesce(simulated, FALSE)
    """
    (row,) = warehouse.query(sql, (list(models), *selection.values)).dicts()
    return int(row["n"])


def unusable_words(warehouse: Warehouse, models: Sequence[str], selection: Selection, kinds: Mapping[str, str]) -> str:
    """The number of selected results of a model, and how many are of each kind (a condition -> its words): each is
    counted once, as the first kind that it is."""
    cases = " ".join(f"WHEN {condition} THEN {place}" for place, condition in enumerate(kinds))
    rows = warehouse.query(
        f"SELECT CASE {cases} END AS kind, count(*) AS n FROM all_results "
        f"WHERE model_id IN (SELECT unnest(?::VARCHAR[])) AND {selection.condition} GROUP BY ALL ORDER BY kind",
        (list(models), *selection.values),
    ).dicts()
    total, words = sum(row["n"] for row in rows), list(kinds.values())
    unusable = [f"{row['n']} {words[row['kind']]}" for row in rows if row["kind"] is not None]
    selected = ", ".join([f"{total} result{' is' if total == 1 else 's are'} selected", *unusable])
    if total:
        return selected
    if why := unstored(warehouse, selection):
        return selected + why
    (row,) = warehouse.query(STORED_OF, (list(models),)).dicts()
    known = {name: sorted(value for value in values if value is not None) for name, values in row.items()}
    stored = [f"{name} {listed(list(map(str, values)), MOST_STORED)}" for name, values in known.items() if values]
    return f"{selected}; of it are stored {', '.join(stored)}"


def _with_quality(option: Option, quality: Quality | None) -> Option:
    """The option with the quality of its run."""
    if quality is None:
        return option
    bounds = {
        name: found.high if QUALITY_METRICS[name].better == "lower" else found.low
        for name, found in quality.values.items()
        if name in QUALITY_METRICS
    }
    return replace(
        option,
        quality={name: found.value for name, found in quality.values.items() if name in QUALITY_METRICS},
        quality_bounds={name: bound for name, bound in bounds.items() if bound is not None},
        missing={**option.missing, **{name: why for name, why in quality.missing.items() if name in QUALITY_METRICS}},
    )


def workload_of(run: Run, result: Result) -> Workload:
    """What a result of a run in memory computed."""
    workload, point = run.cell.workload, result.point
    return Workload(
        task=workload.task,
        weights=workload.weights,
        config_hash=workload.config_hash,
        model_revision=workload.revision,
        definition=None,
        sequence_length=point.sequence_length,
        new_tokens=point.new_tokens,
        axes=tuple(sorted(point.axes.items())),
        has_tokens=result.metrics.get("throughput_tokens_per_sec") is not None,
    )


def option_of(run: Run, result: Result, rates: Sequence[float]) -> Option | None:
    """The option that a result of a run in memory is, with the throughput of each of its launches, if there is more
    than one; None for a result that cannot be one. Whether the device is simulated is for the caller to say."""
    metrics, cell, point = result.metrics, run.cell, result.point
    throughput = metrics.get("throughput_tokens_per_sec") or metrics.get("throughput_samples_per_sec")
    if result.status != "ok" or result.validity not in FIT or not throughput:
        return None
    option = Option(
        result_id=result.result_id,
        run_id=run.run_id,
        session_id=run.session_id,
        hardware_id=run.hardware.hardware_id,
        device=cell.device.selector,
        device_name=cell.device.name,
        device_type=cell.device.type,
        devices=len(cell.device.selector.split(",")),
        runtime=cell.runtime,
        runtime_mode={**cell.runtime_mode, **binding(cell.num_threads, cell.cpu_list)},
        precision=cell.precision,
        validity=result.validity,
        doubts=tuple(dict.fromkeys(doubt.kind for doubt in result.doubts if doubt.severity != "info")),
        **_measured(metrics, result.missing, point),
        is_between=result.ci_scope == "between",
        latency_p90_ms=metrics.get("latency_p90_ms"),
        latency_p95_ms=metrics.get("latency_p95_ms"),
        latency_p99_ms=metrics.get("latency_p99_ms"),
        throughput=throughput,
        throughput_half_width=_rate_half_width(rates),
    )
    return _with_quality(option, run.quality)


def _measured(values: Mapping[str, Any], missing: Mapping[str, str], point: Point) -> dict[str, Any]:
    """The fields of an option that are metrics of its result, and the reasons for missing ones."""
    energy_j, energy_of = energy_per_item(values, point.batch_size * point.concurrency)
    peak = peak_memory_column(values)
    latency, low, high = (values.get(f"latency_{name}_ms") for name in ("median", "ci_low", "ci_high"))
    is_of_all = low is not None and high is not None and low <= latency <= high  # else of some launches: stored before
    return {
        "point": point,
        "latency_ms": latency,
        "latency_low_ms": low if is_of_all else None,
        "latency_high_ms": high if is_of_all else None,
        "ttft_ms": values.get("time_to_first_token_ms"),
        "ttft_high_ms": values.get("time_to_first_token_ci_high_ms"),
        "memory_mb": None if peak is None else values[peak],
        "memory_of": None if peak is None else read_of(peak),
        "energy_j": energy_j,
        "energy_of": energy_of,
        "output_error": values.get("output_error"),
        "missing": {**missing, "energy_per_item": why_no_energy(missing)},
    }


def _rate_half_width(rates: Sequence[float]) -> float | None:
    """Half of the 95 % interval of the typical launch's rate, as a logarithm; None below three launches."""
    if len(rates) < MIN_LAUNCHES_FOR_BETWEEN or min(rates) <= 0:
        return None
    low, high = between_launches_interval(rates)
    return math.log(high / low) / 2


def workload_config(row: Row) -> str:
    """The hash of a result's model, the same for all quantizations of one: what a GGUF file says of its model includes
    its own, and what a server does, nothing."""
    model, quantization = model_and_quantization(row["model_id"])
    is_own = quantization is None or row["config_hash"] == UNSTATED_CONFIG
    return str(row["config_hash"]) if is_own else canonical_hash({"model": model})


def stated_mode(row: Row) -> dict[str, Any]:
    """The settings of a result's runtime, with the quantization in its model's name if they state none."""
    mode: dict[str, Any] = json.loads(row["runtime_mode"])
    quantization = model_and_quantization(row["model_id"])[1]
    return mode if quantization is None else {"quantization": quantization, **mode}


def binding(num_threads: int | None, cpu_list: str | None) -> dict[str, int | str]:
    """Threads and processors where they are set, as further settings of a runtime: they distinguish series."""
    bound = {"threads": num_threads, "processors": cpu_list}
    return {name: value for name, value in bound.items() if value is not None}


def stated_value(row: Row, column: str) -> float | None:
    """The column's value; for an import with too few samples for it, the one that its file states."""
    value: float | None = row[column] if column in row else row["other_metrics"].get(column)
    return row["other_metrics"].get(f"stated_{column}") if value is None else value


def why_no_energy(missing: Mapping[str, str]) -> str:
    """The reason for a part that the machine has, or else for any part."""
    reasons = [missing[name] for name in ENERGY if name in missing]
    applicable = [reason for reason in reasons if not reason.startswith(NOT_APPLICABLE)]
    return next(iter((*applicable, *reasons)), "not measured")


def newer_doubtful(warehouse: Warehouse, shown: Collection[str]) -> Mapping[str, Newer]:
    """By the id of a shown result, the newest of its series, where that is newer and not valid.

    Comparisons show the newest valid result of a series. Where a newer one is noisy, wrong or failed, the machine or
    the program may have changed since, so whoever shows the older one says it in the words of `Newer`.
    """
    return {
        row["shown_id"]: Newer(
            result_id=row["result_id"],
            started_at=row["started_at"],
            state=f"is {row['validity']}" if row["status"] == "ok" else row["status"].replace("_", " "),
            doubts=serious_kinds(row["doubts"]),
            latency_ms=row["latency_ms"],
        )
        for row in warehouse.query(NEWER, (list(shown),)).dicts()
    }
