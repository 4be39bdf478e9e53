"""All cells of a batch planned, and every one that cannot be reported, before anything is measured.

What is asked of each cell of a batch: models x devices x runtimes x precisions, each with its grids.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from benchmarking.batch import model_list
from benchmarking.batch.model_list import BUILT_IN, FAMILY_AXES, Entry, Values
from benchmarking.core.axes import AXES, BY_KEY
from benchmarking.core.errors import EXIT_FAILED, EXIT_USAGE, BenchhouseError, UsageError
from benchmarking.core.records import Cell, Workload, canonical_hash, to_json
from benchmarking.measure.settings import settings
from benchmarking.sweep.plan.options import check_shared_options, options_in, runtime_options
from benchmarking.sweep.plan.plan import CellPlan, Machine, ascending
from benchmarking.sweep.plan.request import Request, plan_cell, workload_of
from benchmarking.sweep.plan.several_runtimes import ALL, plan_runtimes
from benchmarking.sweep.show.progress import cell_name
from benchmarking.workloads.support.families import axes_of

LOOK_UPS_AT_ONCE = 16

"""A name that no hub answers for costs up to 20 s of waiting; each look-up is a process, so not hundreds at once."""

MAX_NAMES = 4


Found = Workload | BenchhouseError


class PlanError(BenchhouseError):
    """Cells cannot be. `reasons` has a line for each reason, with the cells it is about."""

    def __init__(self, troubles: Sequence[tuple[str, BenchhouseError]], total: int) -> None:
        by_reason: dict[str, list[str]] = {}
        for name, error in troubles:
            by_reason.setdefault(str(error), []).append(name)
        self.reasons = tuple(f"{_listed(names)}: {reason}" for reason, names in by_reason.items())
        is_usage = any(isinstance(error, UsageError) for _, error in troubles)
        self.exit_code = EXIT_USAGE if is_usage else EXIT_FAILED
        super().__init__(f"{len(troubles)} of {total} cells cannot be measured, so nothing was")


def plan_all(
    asks: Sequence[CellRequest], session_id: str, machine: Machine, say: Callable[[str], None] = lambda line: None
) -> tuple[CellPlan, ...]:
    """The plans of all cells, in the order they were asked for. `say` is told of runtimes that nobody named and that
    are left out. Raises PlanError for cells that cannot be."""
    found = _look_up(asks)
    plans: list[tuple[CellRequest, CellPlan]] = []
    troubles: list[tuple[str, BenchhouseError]] = []
    for ask in asks:
        try:
            plans += [(ask, plan) for plan in _plans(ask, session_id, found[_question(ask)], machine, say)]
        except BenchhouseError as error:
            troubles.append((ask.name, error))
    troubles += _twice(plans)
    if troubles:
        raise PlanError(troubles, len(asks))
    _check_shared_axes(asks, [plan for _, plan in plans])
    _check_shared_options(plans)
    return tuple(plan for _, plan in plans)


def _question(ask: CellRequest) -> tuple[Any, ...]:
    """What the workload depends on: cells with the same answer share it."""
    first = ask.requests[0]
    return (first.model_id, first.task, first.weights, first.settings.seed)


def _look_up(asks: Sequence[CellRequest]) -> dict[tuple[Any, ...], Found]:
    """The workloads by question, asked for at the same time: most of it is waiting for the hub."""
    questions = {_question(ask): ask for ask in asks}
    with ThreadPoolExecutor(max_workers=LOOK_UPS_AT_ONCE) as threads:
        return dict(zip(questions, threads.map(_workload, questions.values()), strict=True))


def _workload(ask: CellRequest) -> Found:
    try:
        return workload_of(ask.requests[0])
    except BenchhouseError as error:
        return error


def _plans(
    ask: CellRequest, session_id: str, found: Found, machine: Machine, say: Callable[[str], None]
) -> tuple[CellPlan, ...]:
    """The plan of the cell that is asked for, or of one for each runtime when all are."""
    if isinstance(found, BenchhouseError):
        raise found
    if ask.requests[0].runtime != ALL:
        plans = [plan_cell(request, session_id, workload=found, machine=machine) for request in ask.requests]
        return (_joined(plans),)
    grids = [plan_runtimes(request, (ALL,), session_id, workload=found, machine=machine) for request in ask.requests]
    for runtime, why in grids[0].refused.items():
        say(f"left out: {ask.name}: {runtime}: {why}")
    by_runtime: dict[str, list[CellPlan]] = {}
    for plan in (plan for grid in grids for plan in grid.plans):
        by_runtime.setdefault(plan.cell.runtime, []).append(plan)
    return tuple(map(_joined, by_runtime.values()))


def _joined(plans: Sequence[CellPlan]) -> CellPlan:
    """One plan with the points of all grids of a cell."""
    points = {point.label: point for plan in plans for point in plan.points}
    skipped = {label: why for plan in plans for label, why in plan.skipped.items()}
    return dataclasses.replace(plans[0], points=ascending(points.values()), skipped=skipped)


def _twice(plans: Sequence[tuple[CellRequest, CellPlan]]) -> list[tuple[str, BenchhouseError]]:
    """Cells that turn out to be one and the same, such as device auto beside the device it means."""
    seen: dict[str, CellRequest] = {}
    troubles: list[tuple[str, BenchhouseError]] = []
    for ask, plan in plans:
        first = seen.setdefault(_identity(plan.cell), ask)
        if first is not ask:
            same = f"the same cell, {cell_name(plan.cell)}, as {first.name}"
            troubles.append((ask.name, UsageError(f"is {same}: leave one out")))
    return troubles


def _identity(cell: Cell) -> str:
    workload = cell.workload
    model = (workload.config_hash, workload.path, workload.task, workload.weights)
    device = (cell.device.selector, cell.runtime, cell.precision, cell.num_threads, cell.cpu_list)
    return canonical_hash(to_json([*model, *device, cell.runtime_mode]))


def _check_shared_axes(asks: Sequence[CellRequest], plans: Sequence[CellPlan]) -> None:
    """Raise UsageError for an axis that was asked of the batch and that no model of it has."""
    had = {axis for plan in plans for point in plan.points for axis in axes_of(point)}
    for ask in asks:
        for request in ask.requests:
            for axis in request.family_axes:
                if axis not in had:
                    raise UsageError(f"no model of the batch has an axis {axis} ({AXES[axis].noun}): leave it out")


def _check_shared_options(plans: Sequence[tuple[CellRequest, CellPlan]]) -> None:
    """Raise UsageError for an option that no runtime has: of those of a model, if it was asked of that model alone."""
    asked = {name for ask, _ in plans for name in ask.requests[0].options}
    own = {(ask.requests[0].model_id, name) for ask, _ in plans for name in ask.own_options}
    check_shared_options(frozenset(asked), [plan.cell for _, plan in plans])
    for model_id, name in sorted(own):
        cells = [plan.cell for ask, plan in plans if ask.requests[0].model_id == model_id]
        check_shared_options(frozenset({name}), cells)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRequest:
    """One cell that is asked for."""

    where: str
    """What asked for it: "models.yaml:3", or a flag."""
    requests: tuple[Request, ...]
    """They differ in their grids only, whose points are measured together."""
    own_options: frozenset[str] = frozenset()
    """Options of runtimes that are asked of this model alone."""

    @property
    def name(self) -> str:
        """The cell as it was asked for, and where: "gpt2 on cuda (eager, float16) [models.yaml:3]"."""
        first = self.requests[0]
        how = ", ".join(part for part in (first.runtime, first.precision) if part)
        return f"{first.model_id} on {first.device} ({how}) [{self.where}]"


def cell_requests(entries: Sequence[Entry], flags: Values, command: tuple[str, ...]) -> tuple[CellRequest, ...]:
    """The cells of all entries. `flags` are the settings that were given on the command line: they win."""
    return tuple(ask for entry in entries for ask in _of_entry(entry, flags, command))


def _of_entry(entry: Entry, flags: Values, command: tuple[str, ...]) -> Iterator[CellRequest]:
    said = BUILT_IN
    for nearer in (entry.shared, entry.own, flags):
        said = model_list.merged_settings(said, nearer)
    shared = frozenset(axis.name for key, axis in FAMILY_AXES.items() if key in flags or key not in _keys(entry.own))
    common = _common(entry.model_id, said, shared, command)
    own_options = frozenset(runtime_options().keys() & entry.own.keys() - flags.keys())
    for device, runtime, precision in itertools.product(said["devices"], said["runtimes"], said["precisions"]):
        cell = {**common, "device": device, "runtime": runtime, "precision": precision}
        requests = tuple(Request(**cell, **_grid({**said, **grid})) for grid in said["grids"])
        yield CellRequest(where=entry.where, requests=requests, own_options=own_options)


def _keys(own: Values) -> set[str]:
    """The keys a model's own settings have, those in its grids included."""
    return {*own, *(key for grid in own.get("grids", ()) for key in grid)}


def _common(model_id: str, said: Values, shared: frozenset[str], command: tuple[str, ...]) -> dict[str, Any]:
    """The fields of a request that all cells of a model have in common."""
    return {
        "model_id": model_id,
        "task": said.get("task"),
        "weights": said["weights"],
        "shared_axes": shared,
        "num_threads": said.get("num_threads"),
        "cpu_list": said.get("cpu_list"),
        "options": options_in(said),
        "shared_options": frozenset(options_in(said)),
        "rebuild": said["rebuild"],
        "settings": settings(
            said["profile"],
            iterations=said.get("iterations"),
            warmup_iterations=said.get("warmup_iterations"),
            launches=said.get("launches"),
        ),
        "timeout_s": said["timeout"],
        "skip_unsupported": said["skip_unsupported"],
        "command": command,
        "tags": said["tags"],
        "description": said.get("description"),
    }


def _grid(said: Values) -> dict[str, Any]:
    """The fields of a request that make its grid."""
    own = {key: said[key] for key, axis in BY_KEY.items() if axis.is_field and key in said}
    return {**own, "axes": {axis.name: said[key] for key, axis in BY_KEY.items() if not axis.is_field and key in said}}
