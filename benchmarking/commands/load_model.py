"""`benchhouse load` for a model on this machine: its flags, their checks, and the load that they request."""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarking.core.errors import UsageError, storage_errors
from benchmarking.core.plugins import check_installed, check_measuring
from benchmarking.core.provenance import uuid7
from benchmarking.core.records import MAX_REQUESTS, PRECISIONS, Json
from benchmarking.core.settings import add_settings
from benchmarking.load.generator import Level
from benchmarking.load.load_settings import LOAD
from benchmarking.load.traffic import Traffic
from benchmarking.measure.context import settings
from benchmarking.measure.request_loop import ScenarioSettings
from benchmarking.sweep.plan import flags
from benchmarking.sweep.plan.measuring_settings import DEFAULT_TIMEOUT_S, add_runtime_options, options_in
from benchmarking.sweep.plan.plan import Machine
from benchmarking.sweep.plan.request import Request, plan_points, request_fields, requested_points, workload_of

if TYPE_CHECKING:
    from benchmarking.core.command_line import Parser
    from benchmarking.load.model import ModelLoad
    from benchmarking.sweep.plan.plan import CellPlan

LIMITS = ({"e2e"}, {"ttft", "tpot"})
"""Combinations of limits that loadgen can enforce in its server scenario."""
MAX_SIZES = 256
"""Maximum different lengths of a load, since every one is prepared and called once before the timed calls."""


def add_flags(parser: Parser) -> None:
    group = parser.add_argument_group("model on this machine")
    add_settings(group, LOAD, "device")
    flags.add_runtime(group, "one")
    add_settings(
        group,
        LOAD,
        *("batch_size", "scenario", "samples_per_query", "loadgen_logs", "task", "weights", "num_threads"),
        *("cache_dir", "rebuild"),
    )
    add_runtime_options(parser)


def check(arguments: argparse.Namespace, limits: Mapping[str, float], traffics: Sequence[Traffic]) -> None:
    """Raise UsageError for values that a model on this machine cannot take."""
    if arguments.precision not in (None, *PRECISIONS):
        raise UsageError(f"--precision {arguments.precision} requires --url: use one of {', '.join(PRECISIONS)}")
    has_one_size = all(traffic.has_one_size for traffic in traffics)
    if arguments.scenario is not None:
        scenario = arguments.scenario
        if (arguments.request_rates is not None) != (scenario == "server"):
            raise UsageError(
                "--scenario server requires --request-rate (queries per second)"
                if scenario == "server"
                else f"--request-rate requires --scenario server: {scenario} has no rate"
            )
        if scenario == "server" and math.inf in arguments.request_rates:
            raise UsageError("--scenario server requires a rate such as --request-rate 2: inf is all queries at once")
        if scenario == "server" and set(limits) not in LIMITS:
            raise UsageError("--scenario server requires --limit with e2e, such as e2e:100ms, or with ttft and tpot")
        if scenario == "offline" and arguments.num_requests is None:
            raise UsageError("--scenario offline requires --num-requests: the samples sent at once (24576 in MLPerf)")
        samples = (arguments.num_requests or 0) * (arguments.samples_per_query if scenario == "multi-stream" else 1)
        if samples > MAX_REQUESTS:
            raise UsageError(
                f"{samples} samples exceed the limit of {MAX_REQUESTS} per repetition: use more --repetitions"
            )
        if not has_one_size:
            raise UsageError(
                "--scenario requires fixed lengths: set --input-length and --output-length to numbers such as 128"
            )
    elif arguments.request_rates is None and arguments.num_requests is None and not has_one_size:
        raise UsageError(
            "random lengths in a closed loop require --num-requests: every length is prepared before the load"
        )


def scenario_levels(arguments: argparse.Namespace) -> list[Level]:
    """A level for each rate of MLPerf's server scenario; a single level for the others."""
    number, duration_s = arguments.num_requests, arguments.duration
    if arguments.scenario == "server":
        return [Level(rate=float(rate), number=number, duration_s=duration_s) for rate in arguments.request_rates]
    return [Level(concurrency=1, number=number, duration_s=duration_s)]


def loads(
    arguments: argparse.Namespace,
    limits: Mapping[str, float],
    levels: Sequence[Level],
    traffics: Sequence[Traffic],
    command: tuple[str, ...],
    say: Callable[[str], None],
) -> list[ModelLoad]:
    """The load with each traffic, in one session. Raises UsageError if the runtime does not support it, or if loadgen
    is missing."""
    check_measuring("measuring a model")
    if arguments.scenario is not None:
        where = 'pip install "benchhouse[load]" (Python 3.13 or older, and not on ARM Linux)'
        check_installed("MLPerf's scenarios", ("mlperf_loadgen", "numpy"), where)
    if arguments.loadgen_logs is not None:
        with storage_errors(f"cannot write to --loadgen-logs {arguments.loadgen_logs}", "choose another path"):
            Path(arguments.loadgen_logs).mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=arguments.loadgen_logs):
                pass
    flags.use_cache_dir(arguments.cache_dir)
    from benchmarking.load.model import LoopLoad

    request = Request(
        model_id=arguments.model_id,
        shared_axes=frozenset({"sequence_length", "new_tokens"}),
        options=options_in(vars(arguments)),
        settings=settings("quick"),
        command=command,
        **request_fields(vars(arguments), without=("concurrency", "timeout")),  # of the levels and their requests
    )
    session_id = uuid7()
    found: list[ModelLoad] = []
    for traffic in traffics:
        plan = _plan(request, session_id, levels, traffic, arguments.repetitions)
        if plan.cell.workload.weights_reason is not None and not found:
            say(f"{plan.cell.workload.model_id}: random weights: {plan.cell.workload.weights_reason}")
        if arguments.anonymous:
            plan = plan.anonymous()
        if arguments.scenario is not None:
            found.append(_scenario_load(arguments, limits, plan, say))
            continue
        found.append(
            LoopLoad(
                plan=plan,
                limits=limits,
                repetitions=arguments.repetitions,
                timeout_s=DEFAULT_TIMEOUT_S + max(_longest_s(level, arguments.timeout) for level in levels),
                device_wait_s=arguments.lock_timeout,
                say=say,
                traffic=traffic,
                is_open=levels[0].is_open,
                warmup=arguments.warmup_requests,
                request_timeout_s=arguments.timeout,
            )
        )
    return found


def _longest_s(level: Level, timeout_s: float) -> float:
    """The longest time that a level can take: a request that exceeds its time limit is not started any more."""
    if level.is_at_once:
        return level.requests * timeout_s
    if level.rate is not None:
        return 2 * level.requests / level.rate + timeout_s
    return level.duration_s + timeout_s if level.number is None else level.number * timeout_s


def _plan(request: Request, session_id: str, levels: Sequence[Level], traffic: Traffic, repetitions: int) -> CellPlan:
    """The plan with every point of the requests, in their order. Raises UsageError for lengths that the model cannot
    take, or too many different ones."""
    from benchmarking.load.model import planned_requests, points_of
    from benchmarking.workloads.support.families import plugin_of

    workload = workload_of(request)
    family = plugin_of(workload)
    first = next(traffic.requests())
    sized = replace(request, sequence_lengths=(max(1, first.length),), new_tokens=(first.tokens_out,))
    template = requested_points(sized, workload, family)[0]
    longest = max(levels, key=lambda one: one.requests if one.is_open else one.number or 0)
    repeated = [replace(traffic, repetition=launch) for launch in range(repetitions)]
    requests = [one for each in repeated for one in planned_requests(each, longest)]
    points, _ = points_of(template, [first, *requests])
    if len(points) > MAX_SIZES:
        raise UsageError(
            f"{len(points)} different pairs of lengths exceed the limit of {MAX_SIZES}, since every one is prepared "
            "before the load: use fewer --num-requests or repetitions, or a fixed --input-length or --output-length"
        )
    for point in points:
        if (why := family.check(workload, point)) is not None:
            raise UsageError(f"{request.model_id} cannot run {point.label}: {why}")
    return plan_points(request, session_id, workload, points, skipped={}, machine=Machine())


def _scenario_load(
    arguments: argparse.Namespace, limits: Mapping[str, float], plan: CellPlan, say: Callable[[str], None]
) -> ModelLoad:
    from benchmarking.load.model import ScenarioLoad

    is_server = arguments.scenario == "server"
    return ScenarioLoad(
        plan=plan,
        settings=ScenarioSettings(
            scenario=arguments.scenario,
            folder=arguments.loadgen_logs or "",
            latency_ms=limits.get("e2e"),
            first_token_ms=limits.get("ttft") if is_server else None,
            per_token_ms=limits.get("tpot") if is_server else None,
            samples_per_query=arguments.samples_per_query,
            number=arguments.num_requests,
            duration_s=arguments.duration,
            warmup=arguments.warmup_requests,
            seed=arguments.seed,
        ),
        limits=limits,
        repetitions=arguments.repetitions,
        timeout_s=DEFAULT_TIMEOUT_S + arguments.duration + arguments.timeout * (arguments.num_requests or 1),
        device_wait_s=arguments.lock_timeout,
        say=say,
    )


def settings_of(arguments: argparse.Namespace) -> dict[str, Json]:
    """The settings that are stored with the run."""
    return {
        "duration_s": None if arguments.num_requests else arguments.duration,
        "num_requests": arguments.num_requests,
        "repetitions": arguments.repetitions,
        "warmup_requests": arguments.warmup_requests,
        **({"timeout_s": arguments.timeout} if arguments.scenario is None else {}),
        "seed": arguments.seed,
    }
