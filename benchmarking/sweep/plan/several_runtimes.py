"""One request for several runtimes: their plans, all on one device.

2026-11-21: `--device auto` is resolved for the baseline and applies to all runtimes. If each runtime chose its own
device, the comparison would be between devices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace

from benchmarking.core import plugins
from benchmarking.core.command_line import choice
from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import Json, Run, Workload, to_json
from benchmarking.core.terminal import Page
from benchmarking.runtimes.support.lookup import default_runtime
from benchmarking.sweep.plan.measuring_settings import check_shared_options
from benchmarking.sweep.plan.plan import CellPlan, Machine
from benchmarking.sweep.plan.request import Request, plan_cell, workload_of
from benchmarking.sweep.run.command_session import Show

ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimePlans:
    """The plans for several runtimes."""

    plans: tuple[CellPlan, ...]
    refused: Mapping[str, str] = field(default_factory=dict)
    """Runtime -> why it is left out; only for runtimes that were not named."""

    def report_refused(self, say: Callable[[str], None]) -> None:
        """Report the runtimes that are left out, one line each."""
        for runtime, why in self.refused.items():
            say(f"left out: {runtime}: {why}")


def plan_runtimes(
    request: Request,
    names: Sequence[str],
    session_id: str,
    *,
    may_refuse: bool = False,
    workload: Workload | None = None,
    machine: Machine | None = None,
) -> RuntimePlans:
    """The plans of a request with each of these runtimes; `("all",)` is every runtime that is compared with eager.

    Runtimes that were not named (all, or `may_refuse`) and cannot run here are left out, with the reason.
    `workload` and `machine` are looked up by default. Raises UsageError with all reasons if a named runtime cannot run,
    unless the request skips unsupported points; and if no runtime is left.
    """
    may_refuse = may_refuse or tuple(names) == (ALL,)
    runtimes = _runtimes(names)
    workload = workload_of(request) if workload is None else workload
    machine = Machine() if machine is None else machine
    device, default = request.device, default_runtime()
    plans: dict[str, CellPlan] = {}
    refused: dict[str, UnsupportedError] = {}
    for name in sorted(runtimes, key=lambda name: name != default):  # the first plan determines the device
        shared = replace(request, shared_options=frozenset(request.options), runtime=name, device=device)
        try:
            plan = plan_cell(shared, session_id, workload=workload, machine=machine)
        except UnsupportedError as error:
            refused[name] = error
            continue
        device = plan.cell.device.selector if plan.cell.device.found else device
        plans[name] = replace(plan, cell=replace(plan.cell, requested_device=request.device))
    if refused and (not may_refuse or not plans):
        by_reason: dict[str, list[str]] = {}
        for name, why in refused.items():
            by_reason.setdefault(str(why), []).append(name)
        reasons = "; ".join(f"{', '.join(same)}: {reason}" for reason, same in by_reason.items())
        how = "" if may_refuse else "; use --skip-unsupported to skip them and measure the others"
        raise UnsupportedError(
            f"nothing measured: {len(refused)} of {len(runtimes)} runtimes are unsupported: {reasons}{how}"
        )
    check_shared_options(frozenset(request.options), [plan.cell for plan in plans.values()])
    return RuntimePlans(
        plans=tuple(plans[name] for name in runtimes if name in plans),
        refused={name: str(error) for name, error in refused.items()},
    )


def show_runtimes(show: Show, refused: Mapping[str, str]) -> Show:
    """How to show a table per run, then the comparison of the runtimes."""
    from benchmarking.sweep.show.compared_runtimes import compare, comparison_text
    from benchmarking.sweep.show.report import table

    def text(runs: Sequence[Run], page: Page) -> str:
        return "\n\n".join([*(table(run, page) for run in runs), comparison_text(compare(runs, refused), page)])

    def document(runs: Sequence[Run]) -> Json:
        comparison = to_json(compare(runs, refused)) if runs else None
        return {"runs": [to_json(run) for run in runs], "comparison": comparison}

    return replace(show, text=text, document=document)


def _runtimes(names: Sequence[str]) -> tuple[str, ...]:
    """The names of existing runtimes. Raises UsageError for an unknown or duplicate name."""
    known = plugins.names(plugins.RUNTIMES)
    if ALL in names:
        if len(names) > 1:
            raise UsageError(f"--runtime {','.join(names)}: all already includes the others: remove their names")
        return tuple(name for name in known if plugins.runtime(name).is_compared)
    for name in names:
        choice(name, (*known, ALL), "runtime")
        if names.count(name) > 1:
            raise UsageError(f"runtime {name} is given twice: remove one")
    return tuple(names)
