"""Analyses, plans and builds of scripts, for the command and the Python API."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import Precision, Run
from benchmarking.devices.support.kinds import device_named
from benchmarking.devices.support.select import check_known, select
from benchmarking.runtimes.support.lookup import runtime_named
from benchmarking.scripts import states
from benchmarking.scripts.analysis import Analysis, ScriptRequest, analyse, choose
from benchmarking.scripts.planning import Target, plan_models
from benchmarking.sweep.plan.measuring_settings import AUTO
from benchmarking.sweep.plan.plan import CellPlan, Machine
from benchmarking.sweep.plan.request import Request

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Where models are measured."""

    devices: tuple[str, ...] = ("auto",)
    runtimes: tuple[str, ...] = ()
    """Empty for the device's own runtime, or the default."""
    precision: Precision | None = None
    """None for the precision of the script."""

    def check(self, *, is_here: bool = True) -> None:
        """Raise UsageError for an unknown device or runtime, and UnsupportedError if the models are measured here and
        none of the devices is."""
        names = [device_named(device) for device in self.devices]
        for device in names:
            if device != AUTO:
                check_known(device)
        for runtime in self.runtimes:
            runtime_named(runtime)
        if not is_here or AUTO in names:
            return
        missing: list[UnsupportedError] = []
        for device in names:
            try:
                select(device, lambda found: None)
            except UnsupportedError as error:
                missing.append(error)
        if len(missing) == len(names):
            raise missing[0]


@dataclass(slots=True)
class Models:
    """The models of some scripts, and their saved state."""

    analyses: tuple[Analysis, ...] = ()
    plans: tuple[CellPlan, ...] = ()
    failures: list[str] = field(default_factory=list)
    """Failures of single scripts or models, which do not affect the others."""
    _planned: int = 0
    """Number of scripts that are planned."""
    _refused: list[UnsupportedError] = field(default_factory=list)
    _states: dict[str, states.ScriptState] = field(default_factory=dict)
    """By run id."""
    _by_name: dict[str, states.ScriptState] = field(default_factory=dict)

    def plan(
        self, selection: Selection, request: Request, session_id: str, say: Say, machine: Machine | None = None
    ) -> tuple[CellPlan, ...]:
        """Plan the chosen models of the scripts that are not planned yet; returns the new plans. Raises UsageError for
        unknown names."""
        machine = machine or Machine()
        plans: tuple[CellPlan, ...] = ()
        for analysis in self.analyses[self._planned :]:
            self._planned += 1
            try:
                new_plans = plan_models(
                    [analysis],
                    *(selection.devices, selection.runtimes, request, session_id),
                    precision=selection.precision,
                    machine=machine,
                    say=say,
                )
            except UnsupportedError as error:
                self._refused.append(error)
                continue
            plans += new_plans
            for module in analysis.selected:
                model_id = analysis.workload(module).model_id
                state, stale = states.opened(Path(analysis.request.path), model_id, module)
                if stale is not None:
                    say(stale)
                self._states |= {plan.run_id: state for plan in new_plans if plan.cell.workload.model_id == model_id}
                self._keep(state)
        self.plans += plans
        return plans

    def check_planned(self) -> None:
        """Count the models that cannot run as failures. Raises UnsupportedError if none of the models can."""
        if self._refused and not self.plans:
            raise self._refused[0]
        self.failures += [str(error) for error in self._refused]

    def build(self, say: Say) -> list[states.BuildRecord]:
        """Make the builds that the launches of all plans would load, and measure nothing."""
        from benchmarking.sweep.run.preparation import prepare
        from benchmarking.sweep.run.process import LoadFailed

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

    def _state_of(self, plan: CellPlan) -> states.ScriptState:
        return self._by_name[self._states[plan.run_id].name]

    def _keep(self, state: states.ScriptState) -> None:
        self._by_name[state.name] = state
        states.write(state)


def analyse_all(targets: Sequence[Target], arguments: Sequence[str], **choices: Any) -> Models:
    """The models of all scripts, as `analyse_each` finds them."""
    models = Models()
    for _ in analyse_each(models, targets, arguments, **choices):
        pass
    return models


def analyse_each(
    models: Models,
    targets: Sequence[Target],
    arguments: Sequence[str],
    *,
    max_depth: int,
    limit_s: float | None,
    sequence: str | None = None,
    batch_size: int | None = None,
    say: Say,
) -> Iterator[Analysis]:
    """Run each script once, and add its models. Scripts that fail are failures of `models` and do not stop the others.

    The next script runs when the next analysis is asked for, so that a caller can measure in between; nothing runs
    beside a measurement. `sequence` is a file with build stages. Raises UsageError for an invalid one, and for an
    unknown hash.
    """
    stages = None if sequence is None else str(Path(sequence).expanduser().resolve())
    if stages is not None and not Path(stages).is_file():
        raise UsageError(f"--sequence-file {sequence}: no such file: check the path")
    for target in targets:
        say(f"running {target.path.name}")
        request = ScriptRequest(
            path=str(target.path),
            arguments=tuple(arguments),
            max_depth=max_depth,
            sequence=stages,
            batch_size=batch_size,
        )
        log = states.states_folder() / f"{states.NOT_IN_NAMES.sub('_', target.path.stem)}.log"
        started_s = time.monotonic()
        analysis = analyse(request, log, limit_s)
        count = len(analysis.modules)
        say(f"{target.path.name}: {count} model{'' if count == 1 else 's'} in {time.monotonic() - started_s:.1f} s")
        if analysis.error is not None:
            models.failures.append(f"{target.path.name}: {analysis.error}")
        if analysis.modules:
            analysis = replace(analysis, chosen=choose(analysis, target.hashes))
        models.analyses += (analysis,)
        yield analysis
