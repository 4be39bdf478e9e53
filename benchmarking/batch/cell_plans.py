"""Plans all cells of a batch (models x devices x runtimes x precisions), and reports all problems at once."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarking.batch import model_list
from benchmarking.batch.model_list import BUILT_IN, FAMILY_AXES, Entry, SettingValues
from benchmarking.core.axes import AXES, BY_KEY
from benchmarking.core.errors import EXIT_FAILED, EXIT_USAGE, BenchhouseError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import Workload, canonical_hash, to_json
from benchmarking.sweep.plan.measuring_settings import measured_by
from benchmarking.sweep.plan.options import check_shared_options, options_in, runtime_options
from benchmarking.sweep.plan.plan import CellPlan, Machine, ascending
from benchmarking.sweep.plan.request import Request, plan_cell, workload_of
from benchmarking.sweep.plan.several_runtimes import ALL, plan_runtimes
from benchmarking.sweep.show.progress import cell_name
from benchmarking.workloads.support.families import axes_of

MAX_CONCURRENT_LOOKUPS = 16
"""Number of concurrent lookups of models. One without an answer of the hub takes up to 20 s, and each is a process."""

MAX_NAMES = 4


WorkloadOrError = Workload | BenchhouseError


class PlanError(BenchhouseError):
    """Some cells cannot be measured. `reasons` has a line per reason, with its cells."""

    def __init__(self, errors: Sequence[tuple[str, BenchhouseError]], total: int) -> None:
        by_reason: dict[str, list[str]] = {}
        for name, error in errors:
            by_reason.setdefault(str(error), []).append(name)
        reasons = []
        for reason, names in by_reason.items():
            more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
            reasons.append(f"{', '.join(names[:MAX_NAMES])}{more}: {reason}")
        self.reasons = tuple(reasons)
        is_usage = any(isinstance(error, UsageError) for _, error in errors)
        self.exit_code = EXIT_USAGE if is_usage else EXIT_FAILED
        super().__init__(f"nothing measured: {len(errors)} of {total} cells are unsupported or invalid")


def plan_all(
    requested: Sequence[CellRequest], session_id: str, machine: Machine, say: Callable[[str], None] = lambda line: None
) -> tuple[CellPlan, ...]:
    """The plans of all cells, in the order of the requests. `say` is called with a message for each runtime of `all`
    that is left out. Raises PlanError if any cell cannot be measured, UsageError for an axis or an option that is set
    for the whole batch and that none of it has."""
    by_key = {_lookup_key(cell_request): cell_request for cell_request in requested}
    with ThreadPoolExecutor(max_workers=MAX_CONCURRENT_LOOKUPS) as threads:
        workloads = dict(zip(by_key, threads.map(_workload, by_key.values()), strict=True))
    plans: list[tuple[CellRequest, CellPlan]] = []
    errors: list[tuple[str, BenchhouseError]] = []
    for cell_request in requested:
        try:
            cells = _plans(cell_request, session_id, workloads[_lookup_key(cell_request)], machine, say)
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


def _workload(cell_request: CellRequest) -> WorkloadOrError:
    """The workload of a cell, or why there is none: most of the time is spent waiting for the hub."""
    try:
        return workload_of(cell_request.requests[0])
    except BenchhouseError as error:
        return error


def _plans(
    cell_request: CellRequest, session_id: str, workload: WorkloadOrError, machine: Machine, say: Callable[[str], None]
) -> tuple[CellPlan, ...]:
    """The plan of a cell, or one for each runtime if all are requested."""
    if isinstance(workload, BenchhouseError):
        raise workload
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
    by_runtime: dict[str, list[CellPlan]] = {}
    for plan in (plan for grid in grids for plan in grid.plans):
        by_runtime.setdefault(plan.cell.runtime, []).append(plan)
    return tuple(map(_merge_grids, by_runtime.values()))


def _merge_grids(plans: Sequence[CellPlan]) -> CellPlan:
    """One plan with the points of all grids of a cell."""
    points = {point.label: point for plan in plans for point in plan.points}
    skipped = {label: why for plan in plans for label, why in plan.skipped.items()}
    return dataclasses.replace(plans[0], points=ascending(points.values()), skipped=skipped)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRequest:
    """One requested cell."""

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
        threads = None if first.num_threads is None else f"{first.num_threads} threads"
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
        of_all_cells = {
            "model_id": entry.model_id,
            "task": merged.get("task"),
            "weights": merged["weights"],
            "shared_axes": frozenset(shared_axes),
            "cpu_list": merged.get("cpu_list"),
            "options": options,
            "shared_options": frozenset(options),
            "rebuild": merged["rebuild"],
            "settings": measured_by(merged),
            "timeout_s": merged["timeout"],
            "skip_unsupported": merged["skip_unsupported"],
            "command": command,
            "tags": merged["tags"],
            "description": merged.get("description"),
        }
        grids = []
        for grid in merged["grids"]:
            given = {**merged, **grid}
            fields = {key: given[key] for key, axis in BY_KEY.items() if axis.is_field and key in given}
            axes = {axis.name: given[key] for key, axis in BY_KEY.items() if not axis.is_field and key in given}
            grids.append({**fields, "axes": axes})
        lists = (merged["devices"], merged["runtimes"], merged["precisions"], merged.get("num_threads") or (None,))
        for combination in itertools.product(*lists):
            cell = dict(zip(("device", "runtime", "precision", "num_threads"), combination, strict=True))
            requested.append(
                CellRequest(
                    location=entry.location,
                    requests=tuple(Request(**of_all_cells, **cell, **grid) for grid in grids),
                    model_options=frozenset(runtime_options().keys() & entry.model_settings.keys() - flags.keys()),
                )
            )
    return tuple(requested)
