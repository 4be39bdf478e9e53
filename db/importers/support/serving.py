"""Results of serving benchmarks: a server under a load of requests to one model.

A call is one request: batch size 1, latency from its start to its end. The maximum of requests in flight is the point's
concurrency; if the tool does not limit them, it is stored as 1 with a doubt. A request rate is an axis.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeGuard, TypeVar
from urllib.parse import urlsplit

from benchmarking.core.doubts import doubt, failed_requests, validity
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.load_doubts import (
    correlation,
    drawn_shortfall,
    late_generator,
    lateness,
    over_saturated,
    over_saturated_by_statistics,
    rate_not_achieved,
    sent_per_s,
)
from benchmarking.core.metrics import LATENCY, MS_PER_S, SERVICE_TIMES
from benchmarking.core.records import LOOP, REQUEST_RATE, SERVER, Doubt, Point, Requests, Result, Scalar
from benchmarking.core.sample_statistics import TAIL_MIN_SAMPLES, percentile_intervals, quantile
from benchmarking.core.untrusted.redaction import without_secrets
from db.importers.support.measures import foreign_result, latency_metrics
from db.importers.support.reading import INT32_MAX, Fields, storable

Value = TypeVar("Value")
Columns = Mapping[tuple[str, str], str]
"""Metric and statistic in the tool's words -> column with the same meaning."""
STATISTICS = ("mean", "median", "min", "p25", "p75", "p90", "p95", "p99", "max")
"""Statistics with a latency column. A tool's standard deviation is of the population and keeps the tool's name."""


def latency_columns(metric: str, words: Mapping[str, str] | None = None) -> Columns:
    """The columns of the request latency, which the tool calls `metric`; `words` maps statistics to its words."""
    return {(metric, (words or {}).get(name, name)): f"latency_{name}_ms" for name in STATISTICS}


def token_columns(first: str, each: str, median: str = "median") -> Columns:
    """The columns of the time to first token and per token after it, which the tool calls `first` and `each`."""
    return {
        (name, statistic): f"{column}{suffix}_ms"
        for name, column in ((first, "time_to_first_token"), (each, "time_per_output_token"))
        for statistic, suffix in ((median, ""), ("p90", "_p90"), ("p95", "_p95"), ("p99", "_p99"))
    }


INPUT_REQUESTED, OUTPUT_REQUESTED = "input_tokens_requested", "output_tokens_requested"
UNLIMITED = doubt("concurrency_unlimited", "info", concurrency_stored=1)
NOT_STATED = doubt("concurrency_not_stated", "info", concurrency_stored=1)


def load_result(
    *,
    concurrency: int | None,
    unlimited: Doubt = UNLIMITED,
    request_rate: float | None = None,
    prompt_tokens: int | None = None,
    prompt_tokens_mean: float | None = None,
    prompt_tokens_requested: float | None = None,
    new_tokens: int | None = None,
    new_tokens_requested: float | None = None,
    requests: float | None = None,
    failed: float | None = None,
    sent: int | None = None,
    achieved_per_s: float | None = None,
    lateness_p95_ms: float | None = None,
    variation: float = 1.0,
    counts_from_schedule: bool = False,
    axes: Mapping[str, int | float] | None = None,
    doubts: Sequence[Doubt] = (),
    **arguments: Any,
) -> Result:
    """The result of one load; `arguments` are those of `foreign_result`. What the file does not state is None.

    `concurrency` is None if it is not limited, or for the reason in `unlimited`. `request_rate` is in requests per
    second, None for as many as the concurrency allows. `prompt_tokens` and `new_tokens` are None if requests differ;
    then the length that was requested is an axis. Their mean varies by itself: that of the prompts is an axis, rounded,
    only where no length was requested. `requests` is the number that succeeded, and no metric includes the `failed`
    ones.

    For a load at a rate, `achieved_per_s` is the rate at which requests were sent and `lateness_p95_ms` how much later
    than intended, each None if the file does not state it. `variation` is the coefficient of variation of the gaps
    between arrivals, 0 for constant gaps. `counts_from_schedule`: the tool counts latencies from the scheduled start.
    """
    point_axes = dict(axes or {})
    request_rate = request_rate or None  # 0 is written for loads that are not sent at a rate
    if prompt_tokens is None and prompt_tokens_requested:
        point_axes[INPUT_REQUESTED] = round(prompt_tokens_requested)
    elif prompt_tokens is None and prompt_tokens_mean:
        point_axes["input_tokens_mean"] = round(prompt_tokens_mean)
    if new_tokens is None and new_tokens_requested:
        point_axes[OUTPUT_REQUESTED] = round(new_tokens_requested)
    if request_rate is not None:
        point_axes[REQUEST_RATE] = request_rate
    load_doubts = list(doubts)
    if concurrency is None:
        load_doubts.append(unlimited)
    if failed:
        share = 1.0 if requests is None else failed / (failed + requests)
        load_doubts.append(failed_requests(share, failed_requests=failed))
    outcome: dict[str, Any] = {}
    if requests == 0:
        outcome = {
            "status": "failed",
            "error": f"none of {sent} requests succeeded" if sent else "no request succeeded",
            # A failed result has no doubts, but its loop is that of the others.
            "kept": {**(arguments.get("kept") or {}), **({} if concurrency else {unlimited.kind: True})},
        }
    point = Point(
        batch_size=1,
        sequence_length=prompt_tokens,
        new_tokens=new_tokens,
        concurrency=concurrency or 1,
        axes=point_axes,
    )
    result = foreign_result(point, iterations=requests, doubts=load_doubts, is_load=True, **{**arguments, **outcome})
    result = _with_doubts(result, _of_numbers(result))
    if request_rate is None or result.status != "ok":
        return result
    doubts = _of_statistics(result, failed or 0, achieved_per_s, lateness_p95_ms, variation)
    return _with_doubts(result if counts_from_schedule else _from_sending(result), doubts)


FROM_SENDING = "not_stated: the tool counts from sending: see service_time_p50_ms"
FIRST_TOKEN = {"time_to_first_token_ms": 0.5, "time_to_first_token_p90_ms": 0.9, "time_to_first_token_p99_ms": 0.99}
INTERVAL = ("latency_ci_low_ms", "latency_ci_high_ms")


def _from_sending(result: Result) -> Result:
    """The result of a load at a rate, with the tool's latencies as service times: it counts from sending, so they lack
    the delay of requests that were sent late. Its time to first token lacks it, too, which is a doubt."""
    moved = {column: name for column, name in SERVICE_TIMES.items() if column in result.metrics}
    if not moved and "time_to_first_token_ms" not in result.metrics:
        return result
    metrics = {moved.get(name, name): value for name, value in result.metrics.items() if name not in INTERVAL}
    missing = {SERVICE_TIMES.get(name, name): why for name, why in result.missing.items() if name not in INTERVAL}
    if "latency_median_ms" in moved:
        missing["latency_median_ms"] = FROM_SENDING
    else:
        missing["latency_median_ms"] = missing.pop("service_time_p50_ms")
    sent = replace(
        result,
        metrics=metrics,
        missing=missing,
        pooled_quantiles=tuple(column for column in result.pooled_quantiles if column not in moved),
        ci_scope=None,
    )
    return _with_doubts(sent, [doubt("latency_from_sending")])


def _from_schedule(result: Result, requests: Requests) -> Result:
    """The result with times from the intended starts, if the file has a schedule and every time."""
    rows = zip(requests.intended_ms, requests.first_token_ms, requests.end_ms, requests.error, strict=True)
    done = [(at, first, end) for at, first, end, error in rows if error is None and end is not None]
    if all(sent in (None, at) for at, sent in zip(requests.intended_ms, requests.sent_ms, strict=True)) or not done:
        return result
    latencies = [end - at for at, _, end in done]
    values = latency_metrics([latencies]).values
    metrics = {column: values[name] for column, name in LATENCY.items() if name in values}
    interval = percentile_intervals(latencies, (0.5,), correlation(requests))[0.5]
    metrics |= dict(zip(INTERVAL, interval or (), strict=False))
    firsts = [first - at for at, first, _ in done if first is not None]
    for name, share in FIRST_TOKEN.items():
        if name in result.metrics and len(firsts) >= TAIL_MIN_SAMPLES.get(share, 1):
            metrics[name] = quantile(firsts, share)
    doubts = tuple(one for one in result.doubts if one.kind != "latency_from_sending")
    return replace(
        result,
        metrics={**result.metrics, **metrics},
        missing={name: why for name, why in result.missing.items() if name not in metrics},
        doubts=doubts,
        validity=validity(doubts),
        ci_scope=None if interval is None else "within",
    )


def _of_numbers(result: Result) -> Iterator[Doubt]:
    """The doubts about numbers that cannot be true together."""
    metrics = result.metrics
    peak, mean = metrics.get("max_output_tokens_per_sec"), metrics.get("throughput_tokens_per_sec")
    # The peak is the most tokens of a second, and the load does not fill its last one.
    lasted_s = metrics.get("duration_s")
    filled = 1.0 if lasted_s is None else lasted_s / (math.floor(lasted_s) + 1)
    if peak is not None and mean is not None and peak < ROUNDING * filled * mean:
        yield doubt("peak_below_mean", "noisy", peak_tokens_per_sec=peak, mean_tokens_per_sec=mean)
    counted, again = (metrics.get(name) for name in ("total_output_tokens", "total_output_tokens_retokenized"))
    if counted is not None and again is not None and abs(counted - again) > MAX_MISCOUNTED * max(counted, again):
        # No text at all is a text that the client did not collect, such as reasoning.
        counts = {"total_output_tokens": counted, "retokenized": again}
        yield doubt("tokens_miscounted", "invalid" if again else "noisy", **counts)
    first, each = (metrics.get(name) for name in ("time_to_first_token_ms", "time_per_output_token_ms"))
    if each and not first and result.missing.get("time_to_first_token_ms") == FIRST_NOT_SEEN:
        yield doubt("first_token_not_counted", "noisy", time_per_output_token_ms=each, time_to_first_token_ms=0)
    least, most = (metrics.get(name) for name in ("latency_median_ms", "latency_p99_ms"))
    if least is not None and most is not None and least > most / ROUNDING:
        yield doubt("percentiles_disordered", "noisy", latency_median_ms=least, latency_p99_ms=most)


FIRST_NOT_SEEN = "left_out: 0 in the file, although tokens followed: not streamed, or the first ones were not counted"
ROUNDING = 0.99
MAX_MISCOUNTED = 0.5
"""Maximum relative difference of two counts of the same tokens; tokenizers of the server and the client differ less."""


def _of_statistics(
    result: Result, failed: float, achieved_per_s: float | None, lateness_p95_ms: float | None, variation: float
) -> Sequence[Doubt]:
    """The doubts about a load at a rate that follow from its statistics."""
    metrics, rate = result.metrics, float(result.point.axes[REQUEST_RATE])
    succeeded = result.iterations or 0  # 0, too few for any doubt about a rate, if the file does not state them
    requests = round(succeeded + failed)
    by_chance = drawn_shortfall(requests, variation)
    first_ms = metrics.get("time_to_first_token_ms", metrics.get("latency_median_ms"))
    completed, most_ms = (metrics.get(one) for one in ("throughput_samples_per_sec", "latency_max_ms"))
    doubts: list[Doubt] = []
    if lateness_p95_ms is not None and first_ms is not None:
        doubts += late_generator(lateness_p95_ms, first_ms)
    sent = achieved_per_s
    if sent is None and not failed and completed and most_ms is not None:
        # The highest possible rate: the last request was sent no earlier than the longest latency before the end.
        sending_s = succeeded / completed - most_ms / MS_PER_S
        sent = succeeded / sending_s if sending_s > 0 else None
    if sent is not None and rate > 0:
        doubts += rate_not_achieved(rate, sent / rate, by_chance=by_chance)
    if not completed:
        return doubts
    least = completed * (1 - by_chance) * (1 - 1 / max(requests, 1))  # n have n - 1 gaps
    if 0 < rate < least * ROUNDING:
        doubts.append(doubt("rate_exceeded", "noisy", request_rate=rate, completed_per_sec=completed))
    if result.point.concurrency > 1:
        # A limit of requests in flight may have kept the client from its rate: then it completed far fewer requests
        # than one that sends at the rate and waits for its last answer.
        longest_ms = next((one for name in LONGEST if (one := metrics.get(name)) is not None), None)
        if not doubts and sent is None and longest_ms is not None and rate > 0 and succeeded:
            expected_per_s = succeeded / (succeeded / rate + longest_ms / MS_PER_S)
            by_chance = drawn_shortfall(succeeded, variation)
            return rate_not_achieved(rate, completed / expected_per_s, by_chance=by_chance)
        return doubts
    doubts += over_saturated_by_statistics(
        succeeded,
        rate,
        completed,
        peak=metrics.get("max_concurrent_requests"),
        latency_ms=metrics.get("latency_median_ms", metrics.get("latency_mean_ms")),
        first_token_ms=metrics.get("time_to_first_token_ms"),
        variation=variation,
    )
    return doubts


LONGEST = ("latency_max_ms", "latency_p99_ms", "stated_latency_p99_ms", "latency_p95_ms", "latency_p90_ms")
"""Latencies that the last request of a load hardly exceeds, the surest first."""


def with_requests(result: Result, requests: tuple[Requests, ...], *, variation: float = 1.0) -> Result:
    """The result with its requests and, for a load at a rate, the doubts that follow from them; unchanged if it failed.

    Without a schedule, the intended start of a request is the actual one. Then the rate is judged by the times of
    sending, allowing for the randomness of arrivals with this `variation`.
    """
    if result.status != "ok":
        return result
    updated = replace(result, requests=requests)
    rate = float(result.point.axes.get(REQUEST_RATE, 0))
    if not requests or rate <= 0:
        return updated
    (measured_requests,) = requests
    updated = _from_schedule(updated, measured_requests)
    first_ms = result.metrics.get("time_to_first_token_ms", result.metrics.get("service_time_p50_ms"))
    doubts: list[Doubt] = []
    if first_ms is not None and (late := lateness(measured_requests)):
        doubts += late_generator(quantile(late, 0.95), first_ms)
    if (sent := sent_per_s(measured_requests)) is not None:
        doubts += rate_not_achieved(rate, sent / rate, by_chance=drawn_shortfall(len(measured_requests), variation))
    return _with_doubts(updated, [*doubts, *over_saturated(measured_requests, rate)])


def _with_doubts(result: Result, found: Iterable[Doubt]) -> Result:
    """The result with doubts of kinds that it does not have yet; unchanged if it failed."""
    known = {one.kind for one in result.doubts}
    doubts = (*result.doubts, *(one for one in found if one.kind not in known))
    return result if result.status != "ok" else replace(result, doubts=doubts, validity=validity(doubts))


RAMP = ("ramp_up_strategy", "ramp_up_start_rps", "ramp_up_end_rps")
"""How vLLM's client raised the rate during a load; its request_rate is then "inf"."""


def ramp_of(fields: Fields) -> str | None:
    """The rising rate of a load in words; None if it did not rise."""
    strategy, start, end = (fields.unread_copy().any(name) for name in RAMP)
    return None if strategy in (None, "None") else f"{strategy} from {start} to {end} requests/s"


def of_ramp(ramp: str | None) -> tuple[Doubt, ...]:
    """The doubt about the figures of a load whose rate rose: they are means over all its rates."""
    return () if ramp is None else (doubt("varying_rate", arrivals=ramp),)


RISES = re.compile(r"^(?!warmup_)(?:.*_)?(?:ramp|rampup|startup|adaptive|rate_series|phases)(?:_|$)")


IN_BODY = re.compile(r"(?:^|\.)extra(?:_inputs)?\.")


def settings_by_path(parts: Mapping[str, Fields], less: re.Pattern[str], plain: re.Pattern[str]) -> dict[str, Scalar]:
    """What the parts of a configuration and the objects in them set, by its path ("data.turns.mean"): but for what is
    off or 0 (in the body of a request 0 may not be the default), what is of a machine or a single run, the paths in
    `less`, and the defaults in `plain`, as PATH=VALUE. Prompts of a file have its name as PART.prompts_of."""
    found: dict[str, Scalar] = {}
    for part, fields in parts.items():
        found_in = dict(leaves({name: fields.peek(name) for name in fields}, f"{part}." if part else ""))
        if part:
            found_in[f"{part}.prompts_of"] = fields.peek("file") or fields.peek("path")
        own = {
            path: value
            for path, value in found_in.items()
            if (value or IN_BODY.search(path)) and not less.fullmatch(path) and not plain.fullmatch(f"{path}={value}")
        }
        found |= Fields(fields.file, own).other_settings()
    return found


def leaves(values: Mapping[str, Any], prefix: str = "", separator: str = ".") -> Iterator[tuple[str, Any]]:
    """Path and value, as it can be stored, of each field that is no object."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{name}{separator}", separator)
        else:
            yield f"{prefix}{name}", storable(value)


def rising(settings: Mapping[str, Scalar]) -> tuple[Doubt, ...]:
    """The doubt that follows from the settings of a load by which its rate or its requests in flight changed."""
    return of_ramp(", ".join(f"{name} {value}" for name, value in settings.items() if RISES.search(name)) or None)


def limit_unless_unread(limit: Doubt, *sizes: tuple[Any, float | None]) -> Doubt:
    """What is known of the requests in flight without a limit: nothing if a rate or a limit that the file states could
    not be read. `sizes` are what it states, and what was read of it."""
    return NOT_STATED if any(stated not in (None, "") and read is None for stated, read in sizes) else limit


def load_mode(result: Result, arrivals: str | None = None) -> dict[str, Scalar]:
    """What tells the run of a load apart: its loop if it is stated, closed if the requests in flight are limited and no
    rate is given; the arrivals of an open loop, if the tool states them; and that the server drafted tokens, if the
    tool counted the accepted ones."""
    kept = result.extra.get("kept")
    kinds = {doubt.kind for doubt in result.doubts} | (kept.keys() if isinstance(kept, dict) else set())
    is_closed = UNLIMITED.kind not in kinds and REQUEST_RATE not in result.point.axes
    is_stated = NOT_STATED.kind not in kinds or REQUEST_RATE in result.point.axes
    mode: dict[str, Scalar] = {LOOP: ("closed" if is_closed else "open") if is_stated else "not stated"}
    if arrivals and mode[LOOP] == "open":
        mode["arrivals"] = arrivals
    if ACCEPTED.intersection(result.metrics):
        mode["speculation"] = True
    return mode


ACCEPTED = frozenset(("spec_decode_acceptance_length", "spec_decode_acceptance_percent"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A request in another tool's file, with times in s of the tool's own clock."""

    intended_s: float
    sent_s: float
    first_s: float | None
    """Time of the first output; None without output."""
    tokens_s: Sequence[float] = ()
    """Times of all output."""
    end_s: float | None
    tokens_in: int | None = None
    tokens_out: int | None = None
    error: str | None = None
    """Kind of error."""
    detail: str | None = None


MOST_ARRIVALS = 1_000_000
"""Maximum outputs in a load; beyond it, only the first output of each request is kept."""
MOST_DETAIL = 200


def _last(detail: str) -> str:
    """The end of a detail, of which secrets are found first: a part of one could not be recognised."""
    return detail if len(detail) <= MOST_DETAIL else without_secrets(detail)[-MOST_DETAIL:]


def requests_record(sent: Sequence[Sent]) -> tuple[Requests, ...]:
    """The requests in the form of the table requests; empty for none."""
    if not sent:
        return ()
    ordered = sorted(sent, key=lambda one: (one.intended_s, one.sent_s))
    for place, request in enumerate(ordered):
        # Outputs and end are unknown if any is before the start.
        times = (request.first_s, request.end_s, *request.tokens_s[:1])
        if any(at is not None and at < request.sent_s - CLOCK_S for at in times):
            ordered[place] = replace(request, first_s=None, tokens_s=(), end_s=None)
    zero = ordered[0].intended_s
    keeps_all = sum(len(request.tokens_s) for request in ordered) <= MOST_ARRIVALS

    def ms(value_s: float | None) -> float | None:
        return None if value_s is None else (value_s - zero) * MS_PER_S

    absent = (None,) * len(ordered)
    requests = Requests(
        launch=0,
        phase="measure",
        started_at="",
        intended_ms=tuple((request.intended_s - zero) * MS_PER_S for request in ordered),
        sent_ms=tuple(ms(request.sent_s) for request in ordered),
        first_token_ms=tuple(ms(request.first_s) for request in ordered),
        token_ms=tuple(
            tuple((value - zero) * MS_PER_S for value in request.tokens_s) if keeps_all else () for request in ordered
        ),
        end_ms=tuple(ms(request.end_s) for request in ordered),
        tokens_in=tuple(request.tokens_in for request in ordered),
        tokens_out=tuple(request.tokens_out for request in ordered),
        cached_tokens=absent,
        error=tuple(request.error for request in ordered),
        detail=tuple(request.detail and _last(request.detail) for request in ordered),
        meets_limits=absent,
        conversation=absent,
        turn=absent,
    )
    return (requests,)


CLOCK_S = 1e-6
"""Rounding of times in files."""


def common_length(
    total: float | None, requests: int | None, *, lengths: Iterable[float] = (), requested: float | None = None
) -> int | None:
    """Tokens per request if all have as many, otherwise None: by the `lengths` of the requests where the file lists
    them, else if the total is a multiple of the number of requests. Since different lengths can add up to one by
    chance, that has to be the `requested` length where it is known."""
    listed = set(lengths)
    if listed:
        each = listed.pop() if len(listed) == 1 else None
    else:
        each = total / requests if total and requests else None
        each = each if requested in (None, each) else None
    return int(each) if _is_length(each) else None


def same_length(least: float | None, most: float | None) -> int | None:
    """Tokens per request, if the shortest and the longest request have the same whole number; otherwise None."""
    return int(least) if least == most and _is_length(least) else None


def _is_length(tokens: float | None) -> TypeGuard[float]:
    return tokens is not None and 1 <= tokens <= INT32_MAX and float(tokens).is_integer()


def named_statistics(
    metric: str, values: Mapping[str, float | None], columns: Columns, factor: float = 1.0
) -> dict[str, float]:
    """The statistics of a time in ms, under their column, or as METRIC_STATISTIC_ms."""
    return {
        columns.get((metric, statistic), f"{metric}_{statistic}_ms"): value * factor
        for statistic, value in values.items()
        if value is not None
    }


ENGINES = ("vllm", "sglang", "tgi", "tensorrt", "lmdeploy", "scalellm", "deepspeed", "tensorrtllm")


def engine_name(tool: str | None) -> str:
    """The server's runtime, from the name of an engine; "server" if it is none that is known."""
    first = (tool or "").partition("-")[0].lower()
    return first if first in ENGINES else SERVER


def engine_not_stated(backend: str | None) -> tuple[Doubt, ...]:
    """A doubt about a file that only names the client's request function: it sends requests to any server."""
    meaning = "the client's request function, not the server"
    return (doubt("engine_not_stated", "info", backend=backend, meaning=meaning),)


def server_host(target: Any) -> str | None:
    """Host and port of the server that a load was sent to, from its URL, without credentials; None for anything
    else."""
    text = target[0] if isinstance(target, list) and target else target
    if not isinstance(text, str) or not text.strip():
        return None
    try:
        parts = urlsplit(text if "//" in text else f"//{text}")
        return f"{parts.hostname}:{parts.port}" if parts.hostname and parts.port else parts.hostname
    except ValueError:
        return None


PARALLELISM = {
    **dict.fromkeys(("tp", "tp_size", "tensor_parallel", "tensor_parallel_size"), "tp_size"),
    **dict.fromkeys(("pp", "pp_size", "pipeline_parallel", "pipeline_parallel_size"), "pp_size"),
    **dict.fromkeys(("dp", "dp_size", "data_parallel", "data_parallel_size"), "dp_size"),
    **dict.fromkeys(("ep", "ep_size", "expert_parallel", "expert_parallel_size"), "ep_size"),
    **dict.fromkeys(("dcp_size", "decode_context_parallel_size", "attn_cp_size"), "context"),
    **dict.fromkeys(("pcp_size", "prefill_context_parallel_size"), "pcp_size"),
    **dict.fromkeys(("nnodes", "num_nodes", "number_of_nodes"), "nodes"),
}
"""Field of a tool, and so setting of a run -> what it is a degree of."""
SHARED_RANKS = "enable_dp_attention"
"""SGLang's setting by which the replicas of data parallelism are among the GPUs of tensor parallelism."""
GPU_COUNTS = ("num_gpus", "gpu_count", "n_gpus", "ngpus", "num_gpu", "world_size")


def parallel_mode(fields: Fields) -> dict[str, Scalar]:
    """The degrees of parallelism that the object states, as settings of a run; a degree of 1 is none."""
    mode: dict[str, Scalar] = {}
    for name in PARALLELISM:
        degree = _stated_count(fields, name)
        if degree is not None and degree > 1:
            mode[name] = degree
    return mode | ({SHARED_RANKS: True} if str(fields.peek(SHARED_RANKS)) == "True" else {})


def device_count(fields: Fields) -> int | None:
    """The number of devices that the object states, or else the product of its degrees of parallelism but of those that
    use the same devices: of experts, of attention alone, and of the context while decoding."""
    stated = next((count for name in GPU_COUNTS if (count := _stated_count(fields, name))), None)
    mode = parallel_mode(fields)
    degrees = {PARALLELISM[name]: int(degree) for name, degree in mode.items() if name in PARALLELISM}
    parts = ("tp_size", "pp_size", "pcp_size", *(() if SHARED_RANKS in mode else ("dp_size",)))
    product = math.prod(degrees.get(name, 1) for name in parts)
    return stated or (product if product > 1 else None)


def _stated_count(fields: Fields, name: str) -> int | None:
    value = fields.peek(name)
    text = value if isinstance(value, str) else str(value) if type(value) is int else ""
    return int(text) if re.fullmatch(r"[1-9]\d{0,4}", text) else None
