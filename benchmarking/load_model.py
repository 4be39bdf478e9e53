"""The part of `benchhouse load` for a model in an engine of this machine: its flags, and what they ask for."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarking.core.command_line import positive_int
from benchmarking.core.errors import StorageError, UsageError
from benchmarking.core.plugins import check_installed, check_measuring
from benchmarking.core.provenance import uuid7
from benchmarking.core.records import MOST_REQUESTS, PRECISIONS, Json
from benchmarking.load.generator import Level
from benchmarking.load.traffic import Lengths
from benchmarking.measure.loadgen import SCENARIOS, ScenarioSettings
from benchmarking.measure.settings import settings
from benchmarking.sweep.plan import flags
from benchmarking.sweep.plan.options import add_runtime_options, options_in, runtime_help
from benchmarking.sweep.plan.request import DEFAULT_TIMEOUT_S, Request, plan_cell

if TYPE_CHECKING:
    from benchmarking.core.command_line import Parser
    from benchmarking.load.scenarios import ScenarioLoad

NEEDS_SERVER = {
    "concurrency": None,
    "trace": None,
    "sharegpt": None,
    "turns": 1,
    "shared_prefix": 0.0,
    "prompt_ids": None,
    "arrivals": "poisson",
    "variation": 1.0,
    "burst": 8,
    "model": None,
    "endpoint": "completions",
    "engine": "server",
    "hardware": None,
    "ca_file": None,
    "http2": False,
}
"""What only the load on a server has, with its default: loadgen draws arrivals of its own, and every sample is one
prepared input."""
NEEDS_MODEL = {
    "runtime": None,
    "device": "auto",
    "samples_per_query": 8,
    "batch_size": 1,
    "loadgen_logs": None,
    "task": None,
    "weights": "auto",
    "num_threads": None,
}
"""What only a model on this machine has, with its default."""
LIMITS = ({"e2e"}, {"ttft", "tpot"})
"""What loadgen can hold a server to."""


def add_flags(parser: Parser) -> None:
    """The flags of a model on this machine."""
    group = parser.add_argument_group("model on this machine, under MLPerf's scenarios")
    group.add_argument(
        "model_id",
        nargs="?",
        metavar="MODEL",
        help="model to load in an engine of this machine, in place of --url: as in run_hardware_benchmark",
    )
    group.add_argument("--scenario", choices=SCENARIOS, help="MLPerf's, by its own loadgen")
    group.add_argument(
        "--samples-per-query", type=positive_int, default=8, metavar="N", help="of multi-stream (default: %(default)s)"
    )
    group.add_argument(
        "--batch-size", type=positive_int, default=1, metavar="N", help="most samples of a call (default: %(default)s)"
    )
    group.add_argument("--loadgen-logs", metavar="DIR", help="folder that keeps loadgen's logs (default: none)")
    flags.add_model(group)
    flags.add_device(group)
    group.add_argument("--runtime", metavar="R", help=runtime_help(several="one"))
    group.add_argument(
        "--num-threads", type=positive_int, metavar="N", help="threads inside an operator (default: the runtime's)"
    )
    flags.add_cache_dir(group)
    flags.add_rebuild(group)
    add_runtime_options(parser)


def check(arguments: argparse.Namespace, limits: Mapping[str, float]) -> None:
    """Raise UsageError for what a model on this machine cannot be asked for."""
    scenario, listed = arguments.scenario, ", ".join(SCENARIOS)
    if scenario is None:
        raise UsageError(
            f"{arguments.model_id} takes --scenario ({listed}): the loops of --concurrency and --request-rate alone "
            "speak to a server: start one that has the model and give its --url"
        )
    for name, default in NEEDS_SERVER.items():
        if getattr(arguments, name) != default:
            raise UsageError(f"--{name.replace('_', '-')} takes --url: MLPerf's scenarios have queries of their own")
    if (arguments.request_rate is not None) != (scenario == "server"):
        raise UsageError(
            "--scenario server takes --request-rate: queries per second"
            if scenario == "server"
            else f"--request-rate takes --scenario server: {scenario} has no rate"
        )
    if scenario == "server" and set(limits) not in LIMITS:
        raise UsageError("--scenario server takes --slo with e2e, such as e2e:100ms, or with ttft and tpot")
    if scenario == "offline" and arguments.num_requests is None:
        raise UsageError("--scenario offline takes --num-requests: samples that are sent at once (24576 by MLPerf)")
    if None in (Lengths(arguments.input_length).fixed, Lengths(arguments.output_length).fixed):
        raise UsageError("--scenario takes fixed --input-length and --output-length, such as 128")
    if arguments.precision not in (None, *PRECISIONS):
        raise UsageError(f"--precision {arguments.precision} takes --url: a model here has {', '.join(PRECISIONS)}")
    samples = (arguments.num_requests or 0) * (arguments.samples_per_query if scenario == "multi-stream" else 1)
    if samples > MOST_REQUESTS:
        raise UsageError(f"{samples} samples are more than the {MOST_REQUESTS} of a repetition: use more --repetitions")


def check_server(arguments: argparse.Namespace) -> None:
    """Raise UsageError for what a server cannot be asked for."""
    given = [name for name, default in NEEDS_MODEL.items() if getattr(arguments, name) != default]
    for name in (*given, *options_in(vars(arguments))):
        hint = ": --engine names what the server runs" if name == "runtime" else ": the server has settings of its own"
        raise UsageError(f"--{name.replace('_', '-')} takes MODEL in place of --url{hint}")


def levels(arguments: argparse.Namespace) -> list[Level]:
    """A level for each rate of a server; one for the other scenarios."""
    number, duration_s = arguments.num_requests, arguments.duration
    if arguments.scenario == "server":
        return [Level(rate=float(rate), number=number, duration_s=duration_s) for rate in arguments.request_rate]
    return [Level(concurrency=1, number=number, duration_s=duration_s)]


def load_of(
    arguments: argparse.Namespace,
    limits: Mapping[str, float],
    command: tuple[str, ...],
    say: Callable[[str], None],
) -> ScenarioLoad:
    """What is to be measured. Raises UsageError for what the engine does not support, or where loadgen is missing."""
    from benchmarking.load.scenarios import ScenarioLoad

    check_measuring("measuring a model")
    where = 'pip install "benchhouse[load]" (for Python up to 3.13, and not for Linux on ARM)'
    check_installed("MLPerf's scenarios", ("mlperf_loadgen", "numpy"), where)
    if arguments.loadgen_logs is not None:
        _check_folder(arguments.loadgen_logs)
    flags.use_cache_dir(arguments.cache_dir)
    plan = plan_cell(_request(arguments, command), uuid7())
    if plan.cell.workload.weights_reason is not None:
        say(f"{plan.cell.workload.model_id}: random weights: {plan.cell.workload.weights_reason}")
    wanted = ScenarioSettings(
        scenario=arguments.scenario,
        folder=arguments.loadgen_logs or "",
        latency_ms=limits.get("e2e"),
        first_token_ms=limits.get("ttft"),
        per_token_ms=limits.get("tpot"),
        samples_per_query=arguments.samples_per_query,
        number=arguments.num_requests,
        duration_s=arguments.duration,
        warmup=arguments.warmup_requests,
        seed=arguments.seed,
    )
    is_server = arguments.scenario == "server"
    return ScenarioLoad(
        plan=replace(plan.anonymous() if arguments.anonymous else plan, points=plan.points[:1]),
        settings=wanted if is_server else replace(wanted, first_token_ms=None, per_token_ms=None),
        limits=limits,
        repetitions=arguments.repetitions,
        timeout_s=DEFAULT_TIMEOUT_S + arguments.duration + arguments.timeout * (arguments.num_requests or 1),
        device_wait_s=arguments.lock_timeout,
        say=say,
    )


def _check_folder(folder: str) -> None:
    """Make the folder of loadgen's logs, and a file in it, before anything runs. Raises StorageError."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise StorageError(f"--loadgen-logs {folder} cannot be written: {error.strerror}: choose another") from error


def settings_of(arguments: argparse.Namespace) -> dict[str, Json]:
    """The settings that are stored with the run."""
    return {
        "duration_s": None if arguments.num_requests else arguments.duration,
        "num_requests": arguments.num_requests,
        "repetitions": arguments.repetitions,
        "warmup_requests": arguments.warmup_requests,
        "seed": arguments.seed,
    }


def _request(arguments: argparse.Namespace, command: tuple[str, ...]) -> Request:
    length_in, length_out = Lengths(arguments.input_length).fixed, Lengths(arguments.output_length).fixed
    return Request(
        model_id=arguments.model_id,
        device=arguments.device,
        runtime=arguments.runtime,
        precision=arguments.precision or "float32",
        task=arguments.task,
        weights=arguments.weights,
        batch_sizes=(arguments.batch_size,),
        sequence_lengths=None if length_in is None else (length_in,),
        new_tokens=None if length_out is None else (length_out,),
        shared_axes=frozenset({"sequence_length", "new_tokens"}),
        num_threads=arguments.num_threads,
        cpu_list=arguments.cpu_list,
        options=options_in(vars(arguments)),
        rebuild=arguments.rebuild,
        settings=settings("quick"),
        command=command,
        tags=dict(arguments.tag),
        description=arguments.description,
    )
