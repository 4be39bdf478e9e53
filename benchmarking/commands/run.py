"""Measures the speed, memory and quality of one model at every point of a grid."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from benchmarking.builds.inventory import lean_cache
from benchmarking.cluster.target import add_remote, device_kinds, open_target, resolve_target
from benchmarking.commands import ab, listings
from benchmarking.core.command_line import Parser, add_model_id, note, notes, run_command
from benchmarking.core.command_names import as_typed
from benchmarking.core.errors import EXIT_NOT_ENOUGH_DATA, EXIT_OK, UsageError
from benchmarking.core.plugins import check_measuring
from benchmarking.core.provenance import uuid7
from benchmarking.core.records import Run, to_json
from benchmarking.core.settings import DIR, SWITCH, Setting, add_flags, add_settings
from benchmarking.core.shared_settings import COMMON, SHARED
from benchmarking.core.text import flag_of
from benchmarking.core.verdicts.launches import ROUNDS_TO_PROVE
from benchmarking.sweep.plan import flags
from benchmarking.sweep.plan.measuring_settings import CALLS, MEASURING, add_runtime_options, measured_by
from benchmarking.sweep.plan.plan import CellPlan, Machine
from benchmarking.sweep.plan.request import ALL, default_sizes, plan_cell, plan_runtimes, requests_of, workload_of
from benchmarking.sweep.run import command_session
from benchmarking.sweep.run.command_session import database, show_runtimes
from benchmarking.sweep.run.command_turns import take_turn, without_turn_flag

NAME = "run_hardware_benchmark"
EXAMPLES = """\
examples:
  benchhouse run bert-base-uncased --device cpu --batch-sizes 1,8 --save
  benchhouse run gpt2 --runtimes eager,compiled --new-tokens 16
  benchhouse run gpt2 --compare-to latest --interleave --fail-on slower
"""
LISTINGS = ("list_devices", "list_runtimes", "list_models")
OF_DEVICES = frozenset(
    {
        *(
            *CALLS,
            "device",
            "timeout",
            "cache_dir",
            "lean_cache",
            "save",
            "output_dir",
            "db_path",
            "lock_timeout",
            "tag",
        ),
        *("description", "anonymous", "json", "quiet", "log_level", "dry_run", "calibrate_device"),
    }
)
"""What --calibrate-device takes."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command(NAME, run, argv)


def run(
    argv: Sequence[str],
    finished: Callable[[Run], None] = lambda run: None,
    *,
    name: str = NAME,
    sizes: Mapping[str, int] = MappingProxyType({}),
) -> int:
    """The command without its handling of errors, under a name in its messages. `finished` is called with each run that
    it measured by itself. `sizes` are those by default of axes that the model has."""
    arguments = _parser(name).parse_args(argv)
    resolve_target(arguments)
    flags.use_cache_dir(arguments.cache_dir)
    for flag in LISTINGS:
        if getattr(arguments, flag):
            return listings.show(flag, as_json=arguments.json)
    is_lean = arguments.lean_cache and not arguments.dry_run
    with lean_cache(is_lean=is_lean, say=note), flags.logging_to_stderr(arguments.log_level):
        check_measuring("measuring")
        show = command_session.Show(json=arguments.json, quiet=arguments.quiet)
        if arguments.resume:
            if arguments.dry_run:
                raise UsageError("--resume continues saved runs: remove --dry-run")
            folder, on_cluster = Path(arguments.output_dir), arguments.cluster is not None
            left = command_session.unfinished(folder, arguments.model_id, vars(arguments), on_cluster=on_cluster)
            with left as files, open_target(arguments, device_kinds(file.read().plan.cell for file in files)) as target:
                return command_session.resume(
                    files,
                    database(arguments.db_path, arguments.lock_timeout, quiet=arguments.quiet),
                    show,
                    arguments=vars(arguments),
                    device_wait_s=arguments.lock_timeout,
                    executor=target.executor,
                )
        for flag in ("interleave", "turn", "calibrate_device", "benches") if arguments.cluster is not None else ():
            if getattr(arguments, flag):
                words = f"{flag_of(flag)} works on this machine only"
                raise UsageError(f"{words}: run it there without --backend and --use-slurm")
        for flag, instead in (("benches", f"{as_typed('batch')} --benches"), ("scripts", as_typed("script"))):
            if getattr(arguments, flag) is not None:
                raise UsageError(f"--{flag} requires --resume: to measure {flag}, use {instead}")
        if arguments.calibrate_device:
            return _calibrate(arguments, argv, show)
        if arguments.model_id is None:
            raise UsageError("MODEL is missing: name a model on the hub, a folder, or a model from --list-models")
        for key, values in default_sizes(requests_of(arguments, arguments.model_id, ())[0], sizes, argv).items():
            setattr(arguments, key, values)
            argv = [flag_of(key), ",".join(map(str, values)), *argv]
        if arguments.turn is not None and not arguments.dry_run:
            return take_turn(
                arguments.turn,
                lambda: _plans(arguments, argv, show, Machine())[0],
                quiet=arguments.quiet,
                arguments=vars(arguments),
                device_wait_s=arguments.lock_timeout,
            )
        ab.check_comparison_flags(arguments)
        if arguments.interleave and not arguments.dry_run:  # the stored run and this command in alternating launches
            looks = ab.planned_looks(arguments.launches or ab.DEFAULT_ROUNDS, arguments.launches or ab.MAX_ROUNDS)
            options = ab.output_options(arguments, fail_on=arguments.fail_on)
            sides = ab.arms(arguments, argv)
            ab.check_commands(sides)
            return ab.run_comparison(sides, looks, options)
        several = len(arguments.precisions) > 1 or len(arguments.num_threads or ()) > 1
        several = several or arguments.compare_to is not None or _names_several(arguments.runtimes or ())
        is_repeated = several and arguments.launches is None
        if is_repeated:
            arguments.launches = ROUNDS_TO_PROVE  # rather many launches than long ones
        with open_target(arguments, (arguments.device,)) as target:
            plans, show = _plans(arguments, argv, show, target.machine)
            if arguments.dry_run:
                command_session.check_saving(arguments)
                return command_session.show_plans(plans, show)
            if is_repeated and not show.quiet:
                note(
                    f"each point is launched {ROUNDS_TO_PROVE} times, to tell small differences; --launches 1 is a look"
                )
            compared: list[int] = []
            if arguments.compare_to is not None:
                show = ab.show_comparison(show, arguments, [plan.run_id for plan in plans], compared)
            code = command_session.run_plans(
                *(plans, *command_session.saving(arguments), show),
                device_wait_s=arguments.lock_timeout,
                executor=target.executor,
                finished=finished,
            )
            return code or max(compared, default=EXIT_OK if arguments.compare_to is None else EXIT_NOT_ENOUGH_DATA)


def _plans(
    arguments: argparse.Namespace, argv: Sequence[str], show: command_session.Show, machine: Machine
) -> tuple[Sequence[CellPlan], command_session.Show]:
    """The plans, and how their runs are shown."""
    requests = requests_of(arguments, arguments.model_id, (NAME, *without_turn_flag(argv)))
    session_id, workload = uuid7(), workload_of(requests[0])
    if not _names_several(arguments.runtimes or ()):
        (runtime,) = arguments.runtimes or (None,)
        chosen = [replace(request, runtime=runtime) for request in requests]
        plans = [plan_cell(request, session_id, workload=workload, machine=machine) for request in chosen]
        return flags.named_plans(arguments, plans), show
    planned = [
        plan_runtimes(request, arguments.runtimes, session_id, workload=workload, machine=machine)
        for request in requests
    ]
    planned[0].report_refused(note)
    plans = [plan for runtime_plans in planned for plan in runtime_plans.plans]
    # With several precisions or numbers of threads there are several comparisons, which the session's tables show.
    show = show_runtimes(show, planned[0].refused) if len(planned) == 1 else show
    return flags.named_plans(arguments, plans), show


def _names_several(runtimes: Sequence[str]) -> bool:
    return len(runtimes) > 1 or ALL in runtimes


def _calibrate(arguments: argparse.Namespace, argv: Sequence[str], show: command_session.Show) -> int:
    """Measure the peak rates of the device. Raises UsageError for flags of models, which would not apply."""
    from benchmarking.benches.runner import BenchPlanning
    from benchmarking.calibration.calibration_plans import outline, peaks_table, plan_calibration

    defaults = vars(_parser().parse_args([]))
    chosen = vars(arguments)
    unused = [name for name, value in defaults.items() if name not in OF_DEVICES and chosen[name] != value]
    if unused:
        given = ", ".join(f"--{name.replace('_', '-')}" for name in unused)
        raise UsageError(f"--calibrate-device measures the device, not a model: leave {given} out")
    if arguments.dry_run:
        planned_outline = outline(arguments.device)
        print(json.dumps(to_json(planned_outline), indent=1) if show.json else planned_outline.text)
        return EXIT_OK
    planning = BenchPlanning(
        session_id=uuid7(),
        settings=measured_by(vars(arguments)),
        timeout_s=arguments.timeout,
        command=(NAME, *argv),
        tags=dict(arguments.tag),
        description=arguments.description,
    )
    wait_s = arguments.lock_timeout
    calibration = plan_calibration(planning, arguments.device, notes(quiet=arguments.quiet), device_wait_s=wait_s)
    plans = flags.named_plans(arguments, calibration.plans)
    show = replace(show, text=lambda runs, page: peaks_table(runs, calibration.remarks, page))
    return command_session.run_plans(plans, *command_session.saving(arguments), show, device_wait_s=wait_s)


def _parser(name: str = NAME) -> Parser:
    parser = Parser(prog=name, usage="%(prog)s MODEL [flags]", description=__doc__, epilog=EXAMPLES)
    model = parser.add_argument_group("model")
    what = "name on the Hugging Face hub, local folder, or a name from --list-models"
    add_model_id(model, what, is_needed=False)
    flags.add_model(model)
    flags.add_graph_inputs(model)
    hardware = parser.add_argument_group("device and runtime")
    flags.add_device(hardware)
    flags.add_runtime(hardware, "several, or all, to compare them", several=True)
    add_settings(hardware, MEASURING, "precision", lists=("precision",))
    flags.add_threads(hardware, several=True)
    add_runtime_options(parser)
    flags.add_grid(parser)
    flags.add_measuring(parser)
    flags.add_builds(parser)
    add_remote(parser)
    output = parser.add_argument_group("output")
    add_settings(output, SHARED, "save")
    flags.add_keeping(output)
    flags.add_output_format(output)
    resume = "finish and store the unfinished runs in --output-dir"
    benches = "with --resume: folder of your own benchmarks whose runs to finish"
    scripts = "with --resume: folder of your scripts, or one of them, whose runs to finish"
    add_flags(
        output,
        SHARED["log_level"],
        COMMON["resume"].here(help=resume),
        Setting("benches", DIR, benches, default_words="none", is_rare=True),
        Setting("scripts", DIR, scripts, default_words="none", is_rare=True),
    )
    ab.add_comparison_flags(output)
    flags.add_turn(output)
    instead = parser.add_argument_group("instead of measuring a model")
    add_flags(
        instead,
        SHARED["dry_run"],
        Setting("list_devices", SWITCH, "list all kinds of devices, and why any was not found"),
        Setting("list_runtimes", SWITCH, "list all runtimes, and which packages any lacks"),
        Setting("list_models", SWITCH, "list the models in the catalog and in the cache"),
        Setting("calibrate_device", SWITCH, "measure the device's peak FLOP/s and bandwidth"),
    )
    return parser
