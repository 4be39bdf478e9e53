"""Analyses, plans and builds of scripts, for the command and the Python API."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.records import Precision, Run
from benchmarking.devices.support.kinds import device_named
from benchmarking.devices.support.select import check_known
from benchmarking.runtimes.support.lookup import runtime_named
from benchmarking.scripts import states
from benchmarking.scripts.analysis import Analysis, ScriptRequest, analyse, choose
from benchmarking.scripts.planning import Target, plan_models
from benchmarking.sweep.plan.measuring_settings import AUTO
from benchmarking.sweep.plan.plan import CellPlan, Machine
from benchmarking.sweep.plan.request import Request
from benchmarking.sweep.run.preparation import prepare
from benchmarking.sweep.run.process import LoadFailed

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Where models are measured."""

    devices: tuple[str, ...] = ("auto",)
    runtimes: tuple[str, ...] = ()
    """Empty for the device's own runtime, or the default."""
    precision: Precision | None = None
    """None for the precision of the script."""

    def check(self) -> None:
        """Raise UsageError for an unknown device or runtime."""
        for device in map(device_named, self.devices):
            if device != AUTO:
                check_known(device)
        for runtime in self.runtimes:
            runtime_named(runtime)


@dataclass(slots=True)
class Models:
    """The models of some scripts, and their saved state."""

    analyses: tuple[Analysis, ...]
    plans: tuple[CellPlan, ...] = ()
    failures: list[str] = field(default_factory=list)
    """Failures of single scripts or models, which do not affect the others."""
    _states: dict[str, states.ScriptState] = field(default_factory=dict)
    """By run id."""
    _by_name: dict[str, states.ScriptState] = field(default_factory=dict)

    def plan(
        self, selection: Selection, request: Request, session_id: str, say: Say, machine: Machine | None = None
    ) -> None:
        """Plan the chosen models. Raises UsageError for unknown names, UnsupportedError if nothing can run."""
        machine = machine or Machine()
        errors: list[UnsupportedError] = []
        for analysis in self.analyses:
            try:
                found = plan_models(
                    [analysis],
                    *(selection.devices, selection.runtimes, request, session_id),
                    precision=selection.precision,
                    machine=machine,
                    say=say,
                )
            except UnsupportedError as error:
                errors.append(error)
                continue
            self.plans += found
            self._open_states(analysis, found, say)
        if errors and not self.plans:
            raise errors[0]
        self.failures += [str(error) for error in errors]

    def build(self, say: Say) -> list[states.BuildRecord]:
        """Make the builds that the launches of all plans would load, and measure nothing."""
        for plan in self.plans:
            name = f"{plan.cell.workload.model_id} for {plan.cell.runtime} on {plan.cell.device.selector}"
            preparation = prepare(plan, lambda what, name=name: say(f"{name}: preparing {what}"))  # type: ignore[misc]
            if isinstance(preparation, LoadFailed):
                self.failures.append(f"{name}: {preparation.error}")
            else:
                self._keep(states.with_preparation(self._state_of(plan), plan, preparation))
        return [engine for state in self._by_name.values() for engine in state.engines]

    def keep(self, run: Run) -> None:
        """Add a finished run to the saved state of its model."""
        plan = next(plan for plan in self.plans if plan.run_id == run.run_id)
        self._keep(states.with_run(self._state_of(plan), plan, run))

    def _open_states(self, analysis: Analysis, plans: Sequence[CellPlan], say: Say) -> None:
        path = Path(analysis.request.path)
        for module in analysis.selected:
            model_id = analysis.workload(module).model_id
            state, stale = states.opened(path, model_id, module)
            if stale is not None:
                say(stale)
            self._states |= {plan.run_id: state for plan in plans if plan.cell.workload.model_id == model_id}
            self._keep(state)

    def _state_of(self, plan: CellPlan) -> states.ScriptState:
        return self._by_name[self._states[plan.run_id].name]

    def _keep(self, state: states.ScriptState) -> None:
        self._by_name[state.name] = state
        states.write(state)


def analyse_all(
    targets: Sequence[Target],
    arguments: Sequence[str],
    *,
    max_depth: int,
    limit_s: float | None,
    sequence: str | None = None,
    say: Say,
) -> Models:
    """Run each script once, and find its models. Scripts that fail are reported as failures and do not stop the others.

    `sequence` is a file with build stages. Raises UsageError for an invalid one, and for an unknown hash.
    """
    analyses, failures = [], []
    stages = None if sequence is None else str(Path(sequence).expanduser().resolve())
    if stages is not None and not Path(stages).is_file():
        raise UsageError(f"--sequence-file {sequence}: no such file: check the path")
    for target in targets:
        say(f"running {target.path.name}")
        request = ScriptRequest(path=str(target.path), arguments=tuple(arguments), max_depth=max_depth, sequence=stages)
        log = states.states_folder() / f"{states.NOT_IN_NAMES.sub('_', target.path.stem)}.log"
        found = analyse(request, log, limit_s)
        if found.error is not None:
            failures.append(f"{target.path.name}: {found.error}")
        if found.modules:
            found = replace(found, chosen=choose(found, target.hashes))
        analyses.append(found)
    return Models(analyses=tuple(analyses), failures=failures)
