"""Finds the servers that sustain a request rate within limits, and their price, from measured load tests.

A rate holds if the required share of its requests (by default 99 %, as in MLPerf's Server scenario) succeeded and met
every limit. Requests are counted one by one if they are stored, and must be enough to tell that share: a level of
fewer, as of a try-out, shows at most that the share is missed, else it is left out beside a rate that holds or a lower
one that fails. A level that misses it is pooled with higher ones that did better, as after a disturbance. For imported
load tests without requests, each limited percentile that covers the share must be within its limit. The rate of a
server is the highest measured rate that holds together with all lower ones: nothing is assumed between or beyond
measured rates. Where `benchhouse load --find-rate` searched with the same limits, for 99 % of the requests, its answer
is the rate; for a lower share it holds, too, and higher levels may. If the newest search found none, the levels of
searches tell nothing one by one. A higher rate needs several machines that share the requests evenly.

Only open loops count: in a closed loop each request waits for an earlier response, so the server sets the rate. Only
valid and noisy load tests count: an overloaded server makes one invalid. A late generator does too, but latencies count
from the schedule: requests that met the limits although they were sent late did meet them, and those that missed them
by more than the longest delay missed them; what lies between is unknown.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from benchmarking.core.axes import POINT_COLUMNS
from benchmarking.core.doubts import FAILED, FIT, SOME_FAILED
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.load_doubts import (
    HIGHEST_RATE,
    LATE,
    LEAST_GOOD,
    NOT_MET,
    SEARCHED,
    SLO_SHARE,
    HighestRate,
    least_to_tell,
    pooled_shares,
    share_holds,
)
from benchmarking.core.metrics import SERVICE_TIMES
from benchmarking.core.records import LOOP, REQUEST_RATE, SCENARIO, Scalar
from benchmarking.core.text import counted, number
from db.analysis.gate.candidates import doubt_kinds
from db.analysis.recommend.measured_options import (
    DEVICES,
    IS_MLPERF_LOAD,
    Computed,
    binding,
    newer_doubtful,
    stated_mode,
    stated_value,
    unusable_words,
    workload_config,
)
from db.analysis.recommend.recommendation import MILLION, SECONDS_PER_HOUR, Newer, Prices
from db.analysis.selection import Selection
from db.connection import literal
from db.values import OF_REQUESTS, arrivals_words

if TYPE_CHECKING:
    from db.warehouse import Warehouse

Row = Mapping[str, Any]
Limit = Literal["ttft", "tpot", "latency"]
COLUMN_OF: Mapping[Limit, str] = {"ttft": "time_to_first_token", "tpot": "time_per_output_token", "latency": "latency"}
"""Limit -> prefix of the columns of its percentiles."""
PERCENTILES = (90, 95, 99)
LOOP_TYPE = f"(runtime_mode->>{literal(LOOP)})"
COLUMNS = (
    *("result_id", "run_id", "series_id", "model_id", "hardware_id", "device", "device_name", "device_type", "runtime"),
    *("runtime_mode", "precision", "num_threads", "cpu_list", "validity", "extra", "model_revision", "task", "weights"),
    *("config_hash", "origin_definition", *POINT_COLUMNS),
    *("throughput_samples_per_sec", "throughput_tokens_per_sec", "other_metrics"),
    *("time_to_first_token_p90_ms", "time_to_first_token_p99_ms", "time_per_output_token_p90_ms"),
    *("time_per_output_token_p99_ms", "latency_p90_ms", "latency_p95_ms", "latency_p99_ms"),
    "iterations",
    DEVICES,
)
INVALID_KINDS = """(
    SELECT list(one.kind)
    FROM unnest(from_json(extra->'$.doubts', '[{{"kind":"VARCHAR","severity":"VARCHAR"}}]')) AS doubts(one)
    WHERE one.severity = 'invalid'
)"""
USABLE = f"""status = 'ok' AND NOT coalesce(simulated, FALSE) AND (
    validity IN {FIT} OR (validity = 'invalid' AND {INVALID_KINDS} = [{literal(LATE)}])
)"""
MOST_TESTS = 11
"""Load tests of a series that are judged: the one that is shown, and the newest of the others."""
LEVELS = f"""
SELECT {", ".join(COLUMNS)}, row_number() OVER (
    PARTITION BY series_id
    ORDER BY validity = 'valid' DESC, validity <> 'invalid' DESC, started_at DESC, result_id DESC
) AS place
FROM (SELECT * FROM all_results WHERE model_id IN (SELECT unnest(?::VARCHAR[])) AND {{condition}}) measured
WHERE status = 'ok' AND validity IN {(*FIT, "invalid")} AND NOT coalesce(simulated, FALSE)
    AND {LOOP_TYPE} = 'open' AND TRY_CAST(axes->>{literal(REQUEST_RATE)} AS DOUBLE) > 0
QUALIFY place = 1 OR row_number() OVER (PARTITION BY series_id ORDER BY started_at DESC, result_id DESC) < {MOST_TESTS}
ORDER BY result_id
"""
"""Of each series the newest result, in `place` 1: a valid one, else a noisy one, else an invalid one, which is no
level; and the newest of all."""
SEARCHED_SHARE = f"TRY_CAST(coalesce(runtime_mode->>{literal(SLO_SHARE)}, '{LEAST_GOOD}') AS DOUBLE)"
SEARCHES = f"""
SELECT {", ".join(COLUMNS)}, {SEARCHED_SHARE} AS share, error,
    TRY_CAST(extra->>'$.load.{SEARCHED}[0]' AS DOUBLE) AS searched_from
FROM (SELECT * FROM all_results WHERE model_id IN (SELECT unnest(?::VARCHAR[])) AND {{condition}}) measured
WHERE (runtime_mode->>'slo') = ? AND ({USABLE}
    AND other_metrics[{literal(HIGHEST_RATE)}] IS NOT NULL AND share >= ?
    OR status = 'failed' AND NOT coalesce(simulated, FALSE) AND searched_from > 0 AND share = ?
)
ORDER BY share, started_at DESC, result_id DESC
"""
"""Searches for the highest rate within exactly these limits, for the demanded share of the requests before those for
larger ones, the newest first; of those that found none, only those for that share."""
NO_SERVERS = {
    "coalesce(simulated, FALSE)": "simulated",
    f"{LOOP_TYPE} IS NULL AND {IS_MLPERF_LOAD}": "of MLPerf, of which no file states what share met a limit",
    f"{LOOP_TYPE} IS NULL": "from calls",
    f"{LOOP_TYPE} = 'closed'": "from closed loops, which have no request rate",
    f"{LOOP_TYPE} = 'not stated'": "from loads whose file states no request rate",
    "status <> 'ok'": "failed or skipped",
    "validity IN ('invalid', 'throttled')": "invalid or throttled",
}
"""A condition on `all_results` -> what a result that is no usable load test because of it is."""
SHARES = """
WITH timed AS (
    SELECT *, $earlier * coalesce(max(lateness_ms) OVER (PARTITION BY result_id, launch), 0) AS earlier_ms,
        count(*) FILTER (WHERE tokens_out > 1) OVER (PARTITION BY result_id) > 0 AS has_gaps
    FROM request_times WHERE phase = 'measure' AND result_id IN (SELECT unnest($ids::VARCHAR[]))
), judged AS (
    SELECT * REPLACE (
        time_to_first_token_ms - earlier_ms AS time_to_first_token_ms, latency_ms - earlier_ms AS latency_ms
    ) FROM timed
), limited AS (
    SELECT result_id, earlier_ms, error IS NULL
        AND CASE
            WHEN $ttft IS NULL OR time_to_first_token_ms <= $ttft OR latency_ms <= $ttft THEN TRUE
            WHEN time_to_first_token_ms > $ttft THEN FALSE
        END
        AND CASE
            WHEN $tpot IS NULL THEN TRUE
            WHEN tokens_out <= 1 THEN CASE WHEN has_gaps AND tokens_counted_by IS DISTINCT FROM 'chunks' THEN TRUE END
            WHEN time_per_output_token_ms <= $tpot THEN TRUE
            WHEN tokens_counted_by = 'hidden' THEN NULL
            WHEN coalesce(time_per_output_token_ms, service_time_ms / (tokens_out - 1)) <= $tpot THEN TRUE
            WHEN time_per_output_token_ms > $tpot AND tokens_counted_by IS DISTINCT FROM 'chunks' THEN FALSE
        END
        AND ($latency IS NULL OR latency_ms <= $latency) AS is_met
    FROM judged
)
SELECT result_id, count(*) AS n, count(is_met) FILTER (WHERE is_met) AS met, count(*) - count(is_met) AS unknown,
    max(earlier_ms) AS earlier_ms
FROM limited GROUP BY result_id
"""
"""A limit on an unknown time is unknown, as for `--limit`: see `benchmarking.load.traffic`. With `$earlier` 1,
latencies are shorter by the longest delay of their repetition, as in `traffic.share_in_time`; with 0, as measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic(Computed):
    """The kind of requests and their arrivals. Servers under the same traffic can be compared."""

    arrivals: str | None
    kind: tuple[tuple[str, Scalar], ...] = ()
    """Further settings of the requests: a scenario, length distributions, a shared prefix, turns, ..."""

    @property
    def text(self) -> str:
        """ "text-generation, s128 n64, poisson arrivals, shared_prefix 0.5, random weights" """
        arrivals = arrivals_words(self.arrivals) if self.arrivals else ""
        kind = (f"{name} {value}" for name, value in self.kind)
        parts = (self.task, self.sizes, arrivals, *kind, f"{self.weights} weights", self.origin)
        return ", ".join(filter(None, parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A load test at one rate."""

    result_id: str
    request_rate: float
    """Offered requests per second."""
    requests_per_sec: float | None
    tokens_per_sec: float | None
    ttft_p99_ms: float | None
    tpot_p99_ms: float | None
    latency_p99_ms: float | None
    validity: str
    doubts: tuple[str, ...]
    share: float | None
    """Share of its requests that met every limit; None if unknown or if the requests are not stored."""
    holds: bool | None
    """Whether the required share met every limit, by itself or pooled; None if unknown."""
    requests: int = 0
    """Number of its requests, if they are stored."""
    pooled: float | None = None
    """The share of its requests and those of higher rates together, by which it holds although its own is too low."""
    why_unknown: str | None = None
    """Why `holds` is unknown."""
    newer: Newer | None = None
    """The newest load test of its series, where this is an older one because that is not valid."""
    others: tuple[bool, ...] = ()
    """Whether each further load test of the same settings at this rate met them, of those of which it is known."""
    is_try_out: bool = False
    """Whether it has too few requests to tell: it counts only where nothing holds, and nothing else is known of it."""

    @property
    def doubted(self) -> str | None:
        """What to say of its validity; None of a valid one. Of the invalid ones, only those of late requests count."""
        return {"valid": None, "invalid": "sent late"}.get(self.validity, self.validity)

    @property
    def contradicted(self) -> str | None:
        """What to say of a rate that holds, of which other load tests have shown the opposite."""
        missed = self.others.count(False)
        if not self.holds or not missed:
            return None
        tests = counted(len(self.others), "other load test")
        return f"{missed} of {tests} at {number(self.request_rate)}/s missed the limits"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """An engine on a machine, with the levels that were measured."""

    hardware_id: str
    device: str
    device_name: str | None
    device_type: str
    runtime: str
    runtime_mode: Mapping[str, object]
    """Its settings, number of threads and bound processors, without the settings of the load."""
    precision: str
    levels: tuple[Level, ...]
    """By rate."""
    devices: int = 1
    """Number of devices that it used."""
    price_per_hour: float | None = None
    """Of all these devices."""
    unjudged: tuple[float, ...] = ()
    """Rates below all levels of which only an invalid load test tells, in which something else than the server was at
    fault, so that they may hold."""
    searched: HighestRate | None = None
    """The answer of a search with the same limits, which is then the only level."""

    @property
    def best(self) -> Level | None:
        """The highest rate that holds together with all lower ones; None if the lowest does not hold."""
        best = None
        for level in self.levels:
            if not level.holds:
                break
            best = level
        return best

    @property
    def first_failing(self) -> Level | None:
        """The lowest rate that does not hold, or of which that is unknown; None if all hold."""
        return next((level for level in self.levels if not level.holds), None)

    @property
    def is_unknown(self) -> bool:
        """Whether it is unknown if any rate holds."""
        return self.best is None and (self.levels[0].holds is None or bool(self.unjudged))

    def machines(self, request_rate: float) -> int | None:
        """Number of machines that serve the rate; None if no rate holds."""
        return None if self.best is None else math.ceil(request_rate / self.best.request_rate - 1e-9)

    def cost_per_hour(self, request_rate: float) -> float | None:
        """The price per hour of these machines; None without a price or machines."""
        count = self.machines(request_rate)
        return None if count is None or self.price_per_hour is None else count * self.price_per_hour

    def cost_per_million(self, request_rate: float) -> float | None:
        """The price of a million requests at the rate."""
        per_hour = self.cost_per_hour(request_rate)
        return None if per_hour is None else per_hour / SECONDS_PER_HOUR / request_rate * MILLION


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The requests of a load that met every limit, and those of which that is unknown."""

    n: int
    met: int
    unknown: int
    late: int = 0
    """Those of the unknown ones that missed a limit by less than requests were sent late."""

    def holds(self, share: float) -> bool | None:
        """Whether this share of the requests met the limits; None if that depends on unknown ones, or on those that
        are lacking to tell it."""
        return share_holds(self.met, self.unknown, self.n, share)

    def tells_little(self, share: float) -> bool:
        """Whether there are too few requests to tell whether this share of them meets a limit, as of a try-out, and not
        so many of them missed it that more would not help."""
        return self.n < least_to_tell(share) and self.holds(share) is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The required rate and limits."""

    request_rate: float
    limits: Mapping[Limit, float]
    """In ms."""
    share: float


def servers_by_traffic(
    warehouse: Warehouse, models: Sequence[str], selection: Selection, demand: Demand, prices: Prices | None
) -> dict[Traffic, tuple[Server, ...]]:
    """The servers of a model with open-loop load tests, best first: those that sustain a rate before those that do not,
    then by cost if all have a price, by number of machines, and by the rate they sustain. `models` are as in
    `options_by_workload`."""
    rows = warehouse.query(LEVELS.format(condition=selection.condition), (list(models), *selection.values)).dicts()
    # By result_id, the share of the requests that met every limit.
    limits: dict[str, object] = {name: demand.limits.get(name) for name in COLUMN_OF}
    ids = [row["result_id"] for row in rows]
    newer = newer_doubtful(warehouse, [row["result_id"] for row in rows if row["place"] == 1])
    shares = {
        row["result_id"]: Share(**{name: row[name] for name in ("n", "met", "unknown")})
        for row in warehouse.query(SHARES, {"ids": ids, "earlier": 0, **limits}).dicts()
    }
    late, judged = [row["result_id"] for row in rows if _invalid_kinds(row) == {LATE}], set[str]()
    for in_time in warehouse.query(SHARES, {"ids": late, "earlier": 1, **limits}).dicts() if late else ():
        if in_time["earlier_ms"] > 0:  # else the schedule is not stored
            own = shares[in_time["result_id"]]
            missed_late = in_time["met"] + in_time["unknown"] - own.met - own.unknown
            shares[in_time["result_id"]] = replace(own, unknown=own.unknown + missed_late, late=missed_late)
            judged.add(in_time["result_id"])
    by_traffic: dict[Traffic, dict[tuple[Any, ...], list[tuple[Row, Level]]]] = {}
    unjudged: dict[tuple[Traffic, tuple[Any, ...]], list[float]] = {}
    others: dict[str, list[bool]] = {}
    for row in sorted(rows, key=lambda row: -row["place"]):
        share, of_series = shares.get(row["result_id"]), others.setdefault(row["series_id"], [])
        rate, is_shown = float(json.loads(row["axes"])[REQUEST_RATE]), row["place"] == 1
        if row["validity"] == "invalid" and row["result_id"] not in judged:
            is_overloaded = bool(NOT_MET & {*doubt_kinds(row["extra"])})
            if is_overloaded:
                of_series.append(False)
            elif is_shown:
                unjudged.setdefault((_traffic(row), _server_key(row)), []).append(rate)
            continue
        holds = _percentiles_hold(row, demand) if share is None else share.holds(demand.share)
        if not is_shown:
            of_series += [] if holds is None else [holds]
            continue
        why = _why_unknown(row, share, demand) if holds is None else None
        is_try_out = share is not None and share.tells_little(demand.share)
        level = _level_at(row, rate, share, holds=holds, why_unknown=why)
        level = replace(level, is_try_out=is_try_out, newer=newer.get(row["result_id"]), others=tuple(of_series))
        by_traffic.setdefault(_traffic(row), {}).setdefault(_server_key(row), []).append((row, level))
    # By traffic and server, the newest search for exactly the demanded limits, whose share is the demanded one or more.
    searched: dict[tuple[Traffic, tuple[Any, ...]], tuple[Row, HighestRate | None]] = {}
    searches: set[str] = set()
    if demand.limits:
        values = (list(models), *selection.values, _limits_as_stored(demand), demand.share, demand.share)
        for row in warehouse.query(SEARCHES.format(condition=selection.condition), values).dicts():
            answer = HighestRate.of(row["other_metrics"], json.loads(row["extra"]).get("load") or {})
            searched.setdefault((_traffic(row), _server_key(row)), (row, answer))
            searches.add(row["run_id"])
    return {
        traffic: _ranked(
            [
                _server(
                    levels, demand, prices, searched.get((traffic, key)), unjudged.get((traffic, key), ()), searches
                )
                for key, levels in by_server.items()
            ],
            demand,
        )
        for traffic, by_server in sorted(by_traffic.items(), key=lambda item: item[0].text)
    }


def _limits_as_stored(demand: Demand) -> str:
    names = {"latency": "e2e"}
    return ",".join(sorted(f"{names.get(name, name)}:{value:g}ms" for name, value in demand.limits.items()))


def smaller_shares(warehouse: Warehouse, models: Sequence[str], selection: Selection, demand: Demand) -> list[float]:
    """The shares below the demanded one for which a search with exactly these limits found a rate, largest first."""
    values = (list(models), *selection.values, _limits_as_stored(demand), 0.0, 0.0)
    rows = warehouse.query(SEARCHES.format(condition=selection.condition), values).dicts()
    return sorted({row["share"] for row in rows if row["share"] < demand.share}, reverse=True)


def _invalid_kinds(row: Row) -> set[str]:
    """The doubts that make a result invalid."""
    return {one["kind"] for one in json.loads(row["extra"])["doubts"] if one["severity"] == "invalid"}


def why_no_servers(warehouse: Warehouse, models: Sequence[str], selection: Selection) -> str:
    """Counts of the selected results of a model, and why they are not usable load tests."""
    return unusable_words(warehouse, models, selection, NO_SERVERS)


def _level_at(
    row: Row, rate: float, share: Share | None, *, holds: bool | None, why_unknown: str | None = None
) -> Level:
    return Level(
        result_id=row["result_id"],
        request_rate=rate,
        requests_per_sec=row["throughput_samples_per_sec"],
        tokens_per_sec=row["throughput_tokens_per_sec"],
        ttft_p99_ms=stated_value(row, "time_to_first_token_p99_ms"),
        tpot_p99_ms=stated_value(row, "time_per_output_token_p99_ms"),
        latency_p99_ms=_percentile(row, "latency_p99_ms"),
        validity=row["validity"],
        doubts=doubt_kinds(row["extra"]),
        share=None if share is None or share.unknown else share.met / share.n,
        holds=holds,
        requests=0 if share is None else share.n,
        why_unknown=why_unknown,
    )


def _why_unknown(row: Row, share: Share | None, demand: Demand) -> str:
    if share is None:
        is_few, count = _is_of_few(row, demand), row["iterations"]
    else:
        is_few, count = not share.unknown or share.met / share.n >= demand.share, share.n
    if is_few:
        few, needed = counted(count, "request"), least_to_tell(demand.share)
        return f"{few} cannot tell {100 * demand.share:.4g} %: measure {needed} or more (--num-requests)"
    if share is not None and share.late:
        return f"{share.late} of {share.n} requests may have missed a limit only because they were sent late"
    if share is not None:
        return f"of {share.unknown} of {share.n} requests a limited time is unknown"
    if _has_failures(row):
        return "requests failed, and the stored percentiles do not include them"
    return "a percentile that covers the share is not stored"


def _percentiles_hold(row: Row, demand: Demand) -> bool | None:
    """Whether the lowest percentile that covers the share is within its limit, for every limit. None if one is unknown,
    of too few requests, or if requests failed, which percentiles do not include."""
    percentile = next((one for one in PERCENTILES if one >= 100 * demand.share - 1e-9), None)
    if percentile is None or _has_failures(row) or _is_of_few(row, demand):
        return None
    names = [(f"{COLUMN_OF[name]}_p{percentile}_ms", limit) for name, limit in demand.limits.items()]
    values = [(_percentile(row, name), limit) for name, limit in names]
    known = [(value, limit) for value, limit in values if value is not None]
    return None if len(known) < len(values) else all(value <= limit for value, limit in known)


def _is_of_few(row: Row, demand: Demand) -> bool:
    """Whether an imported load, whose iterations are its requests, had too few of them to tell."""
    count = None if row["origin_definition"] is None else row["iterations"]
    return count is not None and count < least_to_tell(demand.share)


def _percentile(row: Row, name: str) -> float | None:
    """The percentile, which an imported load has from sending, as its time to first token."""
    found = stated_value(row, name)
    return stated_value(row, SERVICE_TIMES[name]) if found is None and name in SERVICE_TIMES else found


def _has_failures(row: Row) -> bool:
    return any(load["kind"] in (FAILED, SOME_FAILED) for load in json.loads(row["extra"])["doubts"])


def _traffic(row: Row) -> Traffic:
    axes = {name: value for name, value in json.loads(row["axes"]).items() if name != REQUEST_RATE}
    columns = ("task", "weights", "model_revision", "sequence_length", "new_tokens")
    mode = json.loads(row["runtime_mode"])
    fixed = [name for name, axis in LENGTH_AXES.items() if row[axis] is not None]
    return Traffic(
        **{name: row[name] for name in columns},
        config_hash=workload_config(row),
        definition=row["origin_definition"],
        axes=tuple(sorted(axes.items())),
        arrivals=mode.get("arrivals"),
        kind=tuple((name, mode[name]) for name in _of_requests(mode) if name not in fixed),
    )


LENGTH_AXES = {"lengths_in": "sequence_length", "lengths_out": "new_tokens"}
"""Setting -> the axis that has it if it is one number."""
REQUEST_SETTINGS = (
    SCENARIO,
    *LENGTH_AXES,
    *("variation", "burst", "traffic_file", "traffic_digest", "shared_prefix", "prompts", "samples_per_query"),
    *("turns", "think_time", "tool_calls", "tool_pause"),
)
"""Settings of the requests: servers are not compared across them. Those of imported loads have many names."""
LOAD_SETTINGS = (LOOP, "arrivals", *REQUEST_SETTINGS, "slo", SLO_SHARE)
"""Settings that are not the server's. The limits of the load test do not matter: the requested ones are applied."""


def _of_requests(mode: Mapping[str, object]) -> list[str]:
    """The names of the settings of the requests in a mode."""
    own = [name for name in REQUEST_SETTINGS if name in mode]
    imported = [name for name in mode if OF_REQUESTS.fullmatch(name)]
    endpoint = ["endpoint"] if ENDPOINT.match(str(mode.get("endpoint"))) else []
    return [*own, *sorted({*imported} - {*own}), *endpoint]


ENDPOINT = re.compile(r"/|chat|completions|responses|embeddings|rankings|generate")
"""The endpoint in an imported load, which is of its requests. (vLLM's and SGLang's clients name the engine here.)"""


def _mode(row: Row) -> dict[str, object]:
    stated = stated_mode(row)
    others = {*LOAD_SETTINGS, *_of_requests(stated)}
    mode = {name: value for name, value in stated.items() if name not in others}
    batch = {"batch_size": row["batch_size"]} if row["batch_size"] > 1 else {}
    return {**mode, **binding(row["num_threads"], row["cpu_list"]), **batch}


def _server_key(row: Row) -> tuple[Any, ...]:
    columns = ("hardware_id", "device", "runtime", "precision")
    return (*(row[name] for name in columns), json.dumps(_mode(row), sort_keys=True))


def _server(
    rows_and_levels: Sequence[tuple[Row, Level]],
    demand: Demand,
    prices: Prices | None,
    searched: tuple[Row, HighestRate | None] | None,
    unjudged: Sequence[float],
    searches: Collection[str],
) -> Server:
    row, levels = rows_and_levels[0][0], list[Level]()
    search, found = (None, None) if searched is None else searched
    if search is not None and found is not None:
        levels = [_level_at(search, found.rate, None, holds=True)]
    elif search is not None:  # the levels of a search are too short to tell anything one by one
        rows_and_levels = [one for one in rows_and_levels if one[0]["run_id"] not in searches]
        if not rows_and_levels:
            why = str(search["error"])
            levels = [_level_at(search, search["searched_from"], None, holds=None, why_unknown=why)]
    full = _pooled([level for _, level in rows_and_levels if not level.is_try_out], demand.share)
    rates = {level.request_rate for level in full}
    fails_from = min((level.request_rate for level in full if level.holds is False), default=math.inf)
    holds_at_all = any(level.holds for level in full)

    def is_needed(level: Level) -> bool:
        """Whether a try-out is all that is known of its rate, which may be the highest that holds."""
        return not holds_at_all and level.request_rate not in rates and level.request_rate < fails_from

    is_answer = search is not None and found is not None and demand.share == search["share"]
    if not is_answer:
        # One level per rate, by rate. Load tests with other limits repeat rates; the one in which the fewest requests
        # met the limits counts, and an unknown one before all others.
        worst_first = sorted(
            (*full, *(level for _, level in rows_and_levels if level.is_try_out and is_needed(level))),
            key=lambda one: (one.holds is True, -1.0 if one.share is None else one.share),
        )
        worst = {level.request_rate: level for level in reversed(worst_first)}
        levels += [worst[rate] for rate in sorted(worst) if not levels or rate > levels[0].request_rate]
    names = ("hardware_id", "device", "device_name", "device_type", "devices", "runtime", "precision")
    server = Server(
        **{name: row[name] for name in names},
        runtime_mode=_mode(row),
        levels=tuple(levels),
        unjudged=tuple(sorted({rate for rate in unjudged if rate < levels[0].request_rate})),
        searched=found if is_answer else None,
    )
    if prices is None:
        return server
    price = prices.lookup(server.hardware_id, server.device_name, server.device_type, server.devices)
    return replace(server, price_per_hour=price)


def _pooled(levels: Sequence[Level], share: float) -> list[Level]:
    """The levels, of which those that miss the limits hold where they do together with higher ones: see
    `pooled_shares`."""
    known = [level for level in levels if level.share is not None and level.requests]
    counts = [(level.request_rate, (level.share or 0.0) * level.requests, level.requests) for level in known]
    together = {level.result_id: one for level, one in zip(known, pooled_shares(counts, share), strict=True)}
    return [
        level if (one := together.get(level.result_id)) is None else replace(level, holds=True, pooled=one)
        for level in levels
    ]


def _ranked(servers: Sequence[Server], demand: Demand) -> tuple[Server, ...]:
    rate = demand.request_rate
    holding = [server for server in servers if server.best is not None]
    by_cost = all(server.price_per_hour is not None for server in holding)

    def key(one: Server) -> tuple[Any, ...]:
        if one.best is None:
            lowest = one.levels[0]
            return (1, 0.0, 0, 1.0 if lowest.share is None else -lowest.share)
        cost = one.cost_per_hour(rate) if by_cost else None
        return (0, cost or 0.0, one.machines(rate), -one.best.request_rate)

    return tuple(sorted(servers, key=key))
