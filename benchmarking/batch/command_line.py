"""The command line of a batch: its flags, and the plans that they and a list of models request."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Collection
from pathlib import Path
from typing import Any

from benchmarking.batch import model_list
from benchmarking.batch.model_list import BUILT_IN, readers
from benchmarking.cluster.target import add_cluster, resolve_target
from benchmarking.core.command_line import Parser, add_aliases, names, note
from benchmarking.core.errors import UsageError
from benchmarking.core.help_texts import few_need
from benchmarking.core.settings import add_settings
from benchmarking.core.shared_settings import COMMON, SHARED
from benchmarking.sweep.plan import flags
from benchmarking.sweep.plan.measuring_settings import MEASURING, measured_by
from benchmarking.sweep.plan.options import add_runtime_options, runtime_options
from benchmarking.sweep.plan.plan import CellPlan, Machine

EXAMPLES = """\
examples:
  benchhouse batch bert-base-uncased gpt2 --devices cpu,cuda
  benchhouse batch --model-list models.yaml --report report.html
  benchhouse batch --resume
"""
USAGE = "%(prog)s (MODEL ... | --model-list FILE | --benches DIR) [flags]"
DEFAULT_BENCHES = "benches"
FLAGS_OF_MODELS = {row.key: row.list_flag for row in MEASURING.values() if row.applies and "bench" not in row.applies}
"""Setting that benchmarks do not take, since their configurations have it -> its flag."""


def parser(
    name: str, description: str | None, usage: str = USAGE, examples: str = EXAMPLES, rare: Collection[str] = ()
) -> Parser:
    """The flags of the command; a setting that is not given is None. `rare` are settings that only --help-all shows."""
    about, _, more = (description or "").partition("\n\n")
    parser = Parser(
        prog=name,
        usage=usage,
        description=about,
        epilog=examples,
        details=f"{more}\n{model_list.help_text()}",
    )
    models = parser.add_argument_group("models")
    models.add_argument("model_ids", nargs="*", metavar="MODEL", help="models to measure; also --models M,M")
    source = models.add_mutually_exclusive_group()
    add_aliases(
        source,
        source.add_argument("--models", type=names, metavar="M,M", help=argparse.SUPPRESS),
        *("--model-ids", "--model"),
    )
    source.add_argument(
        "--model-list", metavar="FILE", help="file of models: text, or YAML with settings; see --help-all"
    )
    models.add_argument(
        "--benches",
        nargs="?",
        const=DEFAULT_BENCHES,
        metavar="DIR",
        help=f"your own: a folder of files, or one (default: ./{DEFAULT_BENCHES}, if nothing else is given)",
    )
    what = "model for the benchmarks to load (default: the model_id of their configs)"
    few_need(models.add_argument("--model-id", metavar="MODEL", help=what))
    pattern = "models, or benches, that match; repeatable"
    models.add_argument("--include", action="append", default=[], metavar="PATTERN", help=f"measure only {pattern}")
    models.add_argument("--exclude", action="append", default=[], metavar="PATTERN", help=f"skip {pattern}")
    few_need(models.add_argument("--enable-mock", action="store_true", help="also run benchmarks marked as mocks"))
    add_settings(models, MEASURING, "weights")
    hardware = parser.add_argument_group("devices and runtimes")
    add_settings(hardware, MEASURING, "device", lists=("device",))
    flags.add_runtime(hardware, "several, or all that run on a device", several=True)
    add_settings(hardware, MEASURING, "precision", lists=("precision",))
    flags.add_threads(hardware, several=True)
    add_runtime_options(parser)
    flags.add_grid(parser)
    flags.add_measuring(parser)
    flags.add_builds(parser)
    add_cluster(parser)
    output = parser.add_argument_group("output")
    flags.add_saved(output)
    flags.add_keeping(output)
    helps = {
        "report": "report of the batch to write: FILE.html or FILE.md",
        "resume": "continue the newest unfinished batch in --output-dir, or the one with these models",
    }
    add_settings(output, COMMON, *helps, helps=helps)
    flags.add_turn(output)
    flags.add_output_format(output)
    add_settings(output, SHARED, "log_level")
    add_settings(output, SHARED, "dry_run")
    few_need(*(action for action in parser._actions if action.dest in rare))
    parser.set_defaults(db_path=None, **dict.fromkeys(BUILT_IN))  # None: the model list decides
    return parser


def check(arguments: argparse.Namespace) -> None:
    """Check the combination of flags, and default to ./benches if nothing else is given. Raises UsageError.

    Models given as arguments and by flags become one list; --model-id is the benchmarks' where --benches is given.
    """
    names_models = arguments.model_ids or arguments.models or arguments.model_list
    if not names_models and not arguments.resume and arguments.benches is None and Path(DEFAULT_BENCHES).is_dir():
        arguments.benches = DEFAULT_BENCHES
        note(f"benchmarks: ./{DEFAULT_BENCHES}")
    of_flag = (arguments.model_id,) if arguments.model_id is not None and not arguments.benches else ()
    listed = (*arguments.model_ids, *(arguments.models or ()), *of_flag)
    if listed and arguments.model_list is not None:
        raise UsageError(f"MODEL {listed[0]} and --model-list {arguments.model_list} exclude each other: remove one")
    arguments.models = listed or None
    models = arguments.models or arguments.model_list
    if arguments.resume and (not arguments.save or arguments.dry_run):
        raise UsageError("--resume continues a saved batch: remove --no-save and --dry-run")
    if arguments.turn is not None:  # which runs on this machine, and its caller stores the results
        given = {"resume": arguments.resume, "cluster": arguments.cluster, "report": arguments.report}
        for flag in (name for name, value in {**given, "no-save": not arguments.save}.items() if value):
            raise UsageError(f"--turn only measures one launch into its folder: remove --{flag}")
    if not models and not arguments.benches and not arguments.resume:
        raise UsageError("nothing to measure: give MODEL ..., --model-list FILE or --benches DIR")
    resolve_target(arguments)
    if arguments.cluster is None and (arguments.spread or arguments.require_same_versions):
        raise UsageError("--spread and --require-same-versions require --cluster")
    if arguments.cluster is not None and arguments.benches:
        raise UsageError("--benches works on this machine only: cluster workers do not run your code")
    if models or arguments.resume:
        return
    of_runtimes = {name: f"--{name.replace('_', '-')}" for name in runtime_options()}
    for key, flag in {**FLAGS_OF_MODELS, **of_runtimes}.items():
        if getattr(arguments, key, None) is not None:
            raise UsageError(f"{flag} applies to models only: set it in the configurations of your benchmarks")


def plans(
    arguments: argparse.Namespace, command: tuple[str, ...], session_id: str, machine: Machine
) -> tuple[CellPlan, ...]:
    """The plans of everything requested. Raises PlanError with the reasons if anything cannot run."""
    from benchmarking.batch.cell_plans import PlanError, cell_requests, plan_all

    entries: tuple[model_list.Entry, ...] = ()
    if arguments.models:
        entries = model_list.entries_from_names(arguments.models, "--models")
    elif arguments.model_list:
        entries = model_list.entries_from_file(Path(arguments.model_list))
    if entries and not arguments.benches:  # with --benches the patterns select benchmarks
        entries = model_list.select_entries(entries, arguments.include, arguments.exclude, "the command")
    try:
        requested = cell_requests(entries, _given_settings(arguments), command)
        models = plan_all(requested, session_id, machine, note)
    except PlanError as error:
        for reason in error.reasons:
            note(reason)
        raise
    return flags.named_plans(arguments, (*models, *_bench_plans(arguments, command, session_id, machine)))


def _given_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """The settings given on the command line, by their keys in a list of models."""
    given = {key: getattr(arguments, key, None) for key in readers()}
    given["tags"] = dict(arguments.tag) or None
    return {key: value for key, value in given.items() if value is not None}


def _bench_plans(
    arguments: argparse.Namespace, command: tuple[str, ...], session_id: str, machine: Machine
) -> tuple[CellPlan, ...]:
    """The plans of user-written benchmarks."""
    if arguments.benches is None:
        return ()
    from benchmarking.benches.discovery import discover
    from benchmarking.benches.planning import BenchPlanning, plan_benches, replaced_configs

    (new_tokens, *others) = arguments.new_tokens or (None,)
    to_drivers = {  # the values for functions that request benchmarks, under the names of benchmark_v2
        "model_id": arguments.model_id,
        "warmup_iterations": arguments.warmup_iterations,
        "measurement_iterations": arguments.iterations,
        "num_tokens_to_generate": None if others else new_tokens,
    }
    discovered = discover(
        Path(arguments.benches),
        include=arguments.include,
        exclude=arguments.exclude,
        enable_mock=arguments.enable_mock,
        given={name: value for name, value in to_drivers.items() if value is not None},
    )
    for label, why in discovered.left_out.items():
        note(f"left out: {label}: {why}")
    chosen = {**BUILT_IN, **_given_settings(arguments)}
    planned: tuple[CellPlan, ...] = ()
    for device, precision in itertools.product(arguments.devices or (None,), arguments.precisions or (None,)):
        planning = BenchPlanning(
            session_id=session_id,
            settings=measured_by(chosen),
            device=device,
            precision=precision,
            timeout_s=chosen["timeout"],
            skip_unsupported=chosen["skip_unsupported"],
            model_id=arguments.model_id,
            new_tokens=arguments.new_tokens,
            command=command,
            tags=chosen["tags"],
            description=chosen.get("description"),
        )
        is_shared = bool(arguments.models or arguments.model_list)
        benches = replaced_configs(discovered.benches, planning, is_shared=is_shared)
        planned += plan_benches(benches, planning, machine)
    return planned
