"""`benchhouse load` for a model on this machine: its flags, their checks, and the load that they request."""

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
from benchmarking.core.records import MAX_REQUESTS, PRECISIONS, Json
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
"""Flags of a load on a server only, with their defaults: loadgen draws its own arrivals, and every sample is the same
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
"""Flags of a model on this machine only, with their defaults."""
LIMITS = ({"e2e"}, {"ttft", "tpot"})
"""Combinations of limits that loadgen can enforce in its server scenario."""


def add_flags(parser: Parser) -> None:
    """Add the flags of a model on this machine."""
    group = parser.add_argument_group("model on this machine (MLPerf scenarios)")
    group.add_argument(
        "model_id",
        nargs="?",
        metavar="MODEL",
        help="model to test on this machine instead of --url, named as in run_hardware_benchmark",
    )
    group.add_argument("--scenario", choices=SCENARIOS, help="MLPerf scenario, driven by MLPerf's loadgen")
    group.add_argument(
        "--samples-per-query",
        type=positive_int,
        default=8,
        metavar="N",
        help="samples per query of multi-stream (default: %(default)s)",
    )
    group.add_argument(
        "--batch-size",
        type=positive_int,
        default=1,
        metavar="N",
        help="maximum samples per call (default: %(default)s)",
    )
    group.add_argument("--loadgen-logs", metavar="DIR", help="folder for loadgen's logs (default: not kept)")
    flags.add_model(group)
    flags.add_device(group)
    group.add_argument("--runtime", metavar="R", help=runtime_help(several="one"))
    group.add_argument(
        "--num-threads", type=positive_int, metavar="N", help="intra-op threads (default: the runtime's)"
    )
    flags.add_cache_dir(group)
    flags.add_rebuild(group)
    add_runtime_options(parser)


def check(arguments: argparse.Namespace, limits: Mapping[str, float]) -> None:
    """Raise UsageError for flags that do not apply to a model on this machine."""
    scenario, listed = arguments.scenario, ", ".join(SCENARIOS)
    if scenario is None:
        raise UsageError(
            f"{arguments.model_id} requires --scenario ({listed}); to use --concurrency or --request-rate, start a "
            "server with the model and pass its --url"
        )
    for name, default in NEEDS_SERVER.items():
        if getattr(arguments, name) != default:
            raise UsageError(f"--{name.replace('_', '-')} requires --url: MLPerf's scenarios define their own queries")
    if (arguments.request_rate is not None) != (scenario == "server"):
        raise UsageError(
            "--scenario server requires --request-rate (queries per second)"
            if scenario == "server"
            else f"--request-rate requires --scenario server: {scenario} has no rate"
        )
    if scenario == "server" and set(limits) not in LIMITS:
        raise UsageError("--scenario server requires --slo with e2e, such as e2e:100ms, or with ttft and tpot")
    if scenario == "offline" and arguments.num_requests is None:
        raise UsageError("--scenario offline requires --num-requests: the samples sent at once (24576 in MLPerf)")
    if None in (Lengths(arguments.input_length).fixed, Lengths(arguments.output_length).fixed):
        raise UsageError(
            "--scenario requires fixed lengths: set --input-length and --output-length to numbers such as 128"
        )
    if arguments.precision not in (None, *PRECISIONS):
        raise UsageError(f"--precision {arguments.precision} requires --url: use one of {', '.join(PRECISIONS)}")
    samples = (arguments.num_requests or 0) * (arguments.samples_per_query if scenario == "multi-stream" else 1)
    if samples > MAX_REQUESTS:
        raise UsageError(f"{samples} samples exceed the limit of {MAX_REQUESTS} per repetition: use more --repetitions")


def check_server(arguments: argparse.Namespace) -> None:
    """Raise UsageError for flags that do not apply to a server."""
    given = [name for name, default in NEEDS_MODEL.items() if getattr(arguments, name) != default]
    for name in (*given, *options_in(vars(arguments))):
        hint = ": use --engine for the server's" if name == "runtime" else ": the server has its own settings"
        raise UsageError(f"--{name.replace('_', '-')} requires MODEL instead of --url{hint}")


def levels(arguments: argparse.Namespace) -> list[Level]:
    """A level for each rate of the server scenario; a single level for the others."""
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
    """The load to measure. Raises UsageError if the runtime does not support it, or if loadgen is missing."""
    from benchmarking.load.scenarios import ScenarioLoad

    check_measuring("measuring a model")
    where = 'pip install "benchhouse[load]" (Python 3.13 or older, and not on ARM Linux)'
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
    """Create the folder of loadgen's logs and check that it is writable, before anything runs. Raises StorageError."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise StorageError(f"cannot write to --loadgen-logs {folder}: {error.strerror}: choose another path") from error


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
