"""Plans all cells of a batch (models x devices x runtimes x precisions), and reports all problems at once; with the
command line that requests them: the flags of a batch, and a list of models.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarking.batch import model_list
from benchmarking.batch.model_list import BUILT_IN, FAMILY_AXES, Entry, SettingValues, readers
from benchmarking.cluster.target import add_cluster, resolve_target
from benchmarking.core.argument_types import names
from benchmarking.core.axes import AXES
from benchmarking.core.command_line import Parser, add_aliases, note
from benchmarking.core.errors import EXIT_FAILED, EXIT_USAGE, BenchhouseError, UsageError
from benchmarking.core.help_texts import few_need
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import Workload, canonical_hash, to_json
from benchmarking.core.settings import Values, add_flags, add_settings
from benchmarking.core.shared_settings import COMMON, SHARED
from benchmarking.core.text import counted, first_few, flag_of, grouped
from benchmarking.sweep.plan import flags
from benchmarking.sweep.plan.measuring_settings import (
    MEASURING,
    add_runtime_options,
    check_shared_options,
    measured_by,
    options_in,
    runtime_options,
)
from benchmarking.sweep.plan.plan import CellPlan, Machine, ascending
from benchmarking.sweep.plan.request import ALL, Request, plan_cell, plan_runtimes, request_fields, workload_of
from benchmarking.sweep.show.progress import cell_name
from benchmarking.workloads.support.families import axes_of

MAX_CONCURRENT_LOOKUPS = 16
"""Number of concurrent lookups of models. One without an answer of the hub takes up to 20 s, and each is a process."""

MAX_NAMES = 4


class PlanError(BenchhouseError):
    """Some cells cannot be measured. `reasons` has a line per reason, with its cells."""

    def __init__(self, errors: Sequence[tuple[str, BenchhouseError]], total: int) -> None:
        by_reason = grouped((str(error), name) for name, error in errors)
        self.reasons = tuple(f"{first_few(cells, MAX_NAMES)}: {reason}" for reason, cells in by_reason.items())
        is_usage = any(isinstance(error, UsageError) for _, error in errors)
        self.exit_code = EXIT_USAGE if is_usage else EXIT_FAILED
        super().__init__(f"nothing measured: {len(errors)} of {total} cells are unsupported or invalid")


def plan_all(
    requested: Sequence[CellRequest], session_id: str, machine: Machine, say: Callable[[str], None] = lambda line: None
) -> tuple[CellPlan, ...]:
    """The plans of all cells, in the order of the requests. `say` is called with a message for each runtime of `all`
    that is left out. Raises PlanError if any cell cannot be measured, UsageError for an axis or an option that is set
    for the whole batch and that none of it has."""
    by_key = {_lookup_key(cell_request): cell_request.requests[0] for cell_request in requested}
    with ThreadPoolExecutor(max_workers=MAX_CONCURRENT_LOOKUPS) as threads:  # most of the time is the hub's
        workloads = {key: threads.submit(workload_of, request) for key, request in by_key.items()}
    plans: list[tuple[CellRequest, CellPlan]] = []
    errors: list[tuple[str, BenchhouseError]] = []
    for cell_request in requested:
        try:
            workload = workloads[_lookup_key(cell_request)].result()
            cells = _plans(cell_request, session_id, workload, machine, say)
        except BenchhouseError as error:
            errors.append((cell_request.name, error))
        else:
            plans += [(cell_request, plan) for plan in cells]
    # Cells may turn out to be identical, such as device auto and the device that it selects.
    seen: dict[str, CellRequest] = {}
    for cell_request, plan in plans:
        cell, workload = plan.cell, plan.cell.workload
        model = (workload.config_hash, workload.path, workload.task, workload.weights)
        device = (cell.device.selector, cell.runtime, cell.precision, cell.num_threads, cell.cpu_list)
        first = seen.setdefault(canonical_hash(to_json([*model, *device, cell.runtime_mode])), cell_request)
        if first is not cell_request:
            same = f"the same cell ({cell_name(cell)}) as {first.name}"
            errors.append((cell_request.name, UsageError(f"is {same}: remove one of them")))
    if errors:
        raise PlanError(errors, len(requested))
    known_axes = {axis for _, plan in plans for point in plan.points for axis in axes_of(point)}
    for axis in (
        axis for cell_request in requested for request in cell_request.requests for axis in request.family_axes
    ):
        if axis not in known_axes:
            raise UsageError(f"no model of the batch has the axis {axis} ({AXES[axis].noun}): remove it")
    # An option of the batch needs a runtime of the batch that has it, an option of one model one of that model's.
    options = {name for cell_request, _ in plans for name in cell_request.requests[0].options}
    check_shared_options(frozenset(options), [plan.cell for _, plan in plans])
    of_one_model = {(one.requests[0].model_id, name) for one, _ in plans for name in one.model_options}
    for model_id, name in sorted(of_one_model):
        of_model = [plan.cell for cell_request, plan in plans if cell_request.requests[0].model_id == model_id]
        check_shared_options(frozenset({name}), of_model)
    return tuple(plan for _, plan in plans)


def _lookup_key(cell_request: CellRequest) -> tuple[Any, ...]:
    """All fields that the workload depends on; cells with the same key share it."""
    first = cell_request.requests[0]
    return (first.model_id, first.task, first.weights, first.settings.seed)


def _plans(
    cell_request: CellRequest, session_id: str, workload: Workload, machine: Machine, say: Callable[[str], None]
) -> tuple[CellPlan, ...]:
    """The plan of a cell, or one for each runtime if all are requested."""
    if cell_request.requests[0].runtime != ALL:
        plans = [
            plan_cell(request, session_id, workload=workload, machine=machine) for request in cell_request.requests
        ]
        return (_merge_grids(plans),)
    grids = [
        plan_runtimes(request, (ALL,), session_id, workload=workload, machine=machine)
        for request in cell_request.requests
    ]
    for runtime, why in grids[0].refused.items():
        say(f"left out: {cell_request.name}: {runtime}: {why}")
    by_runtime = grouped((plan.cell.runtime, plan) for grid in grids for plan in grid.plans)
    return tuple(map(_merge_grids, by_runtime.values()))


def _merge_grids(plans: Sequence[CellPlan]) -> CellPlan:
    """One plan with the points of all grids of a cell."""
    points = {point.label: point for plan in plans for point in plan.points}
    skipped = {label: why for plan in plans for label, why in plan.skipped.items()}
    return dataclasses.replace(plans[0], points=ascending(points.values()), skipped=skipped)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRequest:
    location: str
    """The place of the request: "models.yaml:3", or a flag."""
    requests: tuple[Request, ...]
    """One request per grid, otherwise equal; their points are measured together."""
    model_options: frozenset[str] = frozenset()
    """Runtime options that are set for this model only."""

    @property
    def name(self) -> str:
        """The cell as requested, and where: "gpt2 on cuda (eager, float16) [models.yaml:3]"."""
        first = self.requests[0]
        threads = None if first.num_threads is None else counted(first.num_threads, "thread")
        how = ", ".join(part for part in (first.runtime, first.precision, threads) if part)
        return f"{first.model_id} on {first.device} ({how}) [{self.location}]"


def cell_requests(entries: Sequence[Entry], flags: SettingValues, command: tuple[str, ...]) -> tuple[CellRequest, ...]:
    """The cells of all entries. `flags` are the settings from the command line, which take precedence."""
    requested = []
    for entry in entries:
        merged = BUILT_IN
        for override in (entry.shared_settings, entry.model_settings, flags):
            merged = model_list.merged_settings(merged, override)
        of_model = {*entry.model_settings, *(key for grid in entry.model_settings.get("grids", ()) for key in grid)}
        shared_axes = (axis.name for key, axis in FAMILY_AXES.items() if key in flags or key not in of_model)
        options = options_in(merged)
        of_all_cells: dict[str, Any] = {
            "model_id": entry.model_id,
            "shared_axes": frozenset(shared_axes),
            "options": options,
            "shared_options": frozenset(options),
            "settings": measured_by(merged),
            "command": command,
        }
        cells = ("device", "runtime", "precision", "num_threads")
        grids = [request_fields({**merged, **grid}, without=cells) for grid in merged["grids"]]
        lists = (merged["devices"], merged["runtimes"], merged["precisions"], merged.get("num_threads") or (None,))
        for combination in itertools.product(*lists):
            cell = dict(zip(cells, combination, strict=True))
            requested.append(
                CellRequest(
                    location=entry.location,
                    requests=tuple(Request(**of_all_cells, **cell, **grid) for grid in grids),
                    model_options=frozenset(runtime_options().keys() & entry.model_settings.keys() - flags.keys()),
                )
            )
    return tuple(requested)


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
        source.add_argument("--models", action=Values, type=names, metavar="M,M", help=argparse.SUPPRESS),
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
    resume = "continue the newest unfinished batch in --output-dir, or the one with these models"
    report = COMMON["report"].here(help="report of the batch to write: FILE.html or FILE.md")
    add_flags(output, report, COMMON["resume"].here(help=resume))
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
    of_runtimes = {name: flag_of(name) for name in runtime_options()}
    for key, flag in {**FLAGS_OF_MODELS, **of_runtimes}.items():
        if (chosen := getattr(arguments, key, None)) is not None:
            raise UsageError(f"{flag} applies to models only: {_of_benchmarks(key, chosen)}")


def _of_benchmarks(key: str, chosen: Any) -> str:
    """Where a benchmark has what this setting of models was given for, with the first value as an example."""
    first = next(iter(chosen), None) if isinstance(chosen, Sequence) and not isinstance(chosen, str) else chosen
    value = f'"{first}"' if isinstance(first, str) else first
    axis = next((one for one in AXES.values() if one.key == key and one.implied is None), None)
    if axis is not None:
        field = f"{axis.name}={value}" if axis.is_field else f'axes={{"{axis.name}": {value}}}'
    elif key == "compile_mode":
        field = f"compile_mode={value}"
    elif key in runtime_options():
        field = f'options={{"{key}": {value}}}'
    elif key == "runtimes":
        return "benchmarks have no runtime, since their own code calls what it measures, in PyTorch or another library"
    elif key == "num_threads":
        return f"the code of your benchmarks sets it, as in torch.set_num_threads({value}) in setup_model()"
    else:
        return "benchmarks have no such setting: remove it"
    return f"set it in the configurations of your benchmarks, as in BenchmarkConfig(name=..., {field})"


def plans(
    arguments: argparse.Namespace, command: tuple[str, ...], session_id: str, machine: Machine
) -> tuple[CellPlan, ...]:
    """The plans of everything requested. Raises PlanError with the reasons if anything cannot run."""
    entries: tuple[model_list.Entry, ...] = ()
    if arguments.models:
        entries = model_list.entries_from_names(arguments.models)
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
    if arguments.benches is None:
        return ()
    from benchmarking.benches.discovery import discover
    from benchmarking.benches.runner import BenchPlanning, plan_benches, replaced_configs

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
