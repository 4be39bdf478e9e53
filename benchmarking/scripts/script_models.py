"""Analyses, plans and builds of scripts, for the command and the Python API."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from pathlib import Path

from benchmarking.core.codec import is_whole
from benchmarking.core.command_names import SCRIPTS, as_typed
from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.plugins import default_runtime, device_named, runtime_of_device_alias
from benchmarking.core.records import PRECISIONS, Cell, Precision, Run, Workload
from benchmarking.core.text import counted, number, size_text
from benchmarking.devices.support.select import check_known, select
from benchmarking.scripts import states
from benchmarking.scripts.analysis import Analysis, ScriptRequest, analyse, choose
from benchmarking.sweep.plan.measuring_settings import AUTO
from benchmarking.sweep.plan.plan import CellPlan, Machine
from benchmarking.sweep.plan.request import Request, plan_points, runtime_named
from benchmarking.sweep.run.journal import endings
from benchmarking.workloads.support.given_modules import GivenModule

Say = Callable[[str], None]


OF_TARGETS = ("device", "runtime", "precision", "batch_size")
"""Settings that choose where a script's models are measured, or what their calls hold: not of the shared request."""


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
        new = [(analysis, module) for analysis in self.analyses[self._planned :] for module in analysis.selected]
        self._planned = len(self.analyses)
        for analysis, module in new:
            workload = analysis.workload(module)
            try:
                of_model = plan_model(workload, module, selection, request, session_id, machine, say)
            except UnsupportedError as error:
                self._refused.append(error)
                continue
            plans += of_model
            state, stale = states.opened(Path(analysis.request.path), workload.model_id, module)
            if stale is not None:
                say(stale)
            self._states |= {plan.run_id: state for plan in of_model}
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
        from benchmarking.sweep.run.preparation import NotBuiltError, prepare

        for plan in self.plans:
            name = f"{plan.cell.workload.model_id} for {plan.cell.runtime} on {plan.cell.device.selector}"
            try:
                preparation = prepare(plan, lambda what, name=name: say(f"{name}: preparing {what}"))  # type: ignore[misc]
            except NotBuiltError as error:
                self.failures.append(f"{name}: {error}")
            else:
                self._keep(states.with_build(self._state_of(plan), plan, preparation.build))
        return [engine for state in self._by_name.values() for engine in state.engines]

    def keep(self, run: Run) -> None:
        """Add a finished run to the saved state of its model. A cluster may continue points as a run of their own."""
        plan = next((one for one in self.plans if one.run_id == run.run_id), None)
        plan = plan or next(one for one in self.plans if _identity(one.cell) == _identity(run.cell))
        self._keep(states.with_run(self._state_of(plan), plan, run))

    def _state_of(self, plan: CellPlan) -> states.ScriptState:
        return self._by_name[self._states[plan.run_id].name]

    def _keep(self, state: states.ScriptState) -> None:
        self._by_name[state.name] = state
        states.write(state)


def _identity(cell: Cell) -> tuple[str | None, ...]:
    """What tells the cells of a command apart. Models of one class and with the same inputs differ in their revision
    only."""
    workload = cell.workload
    return workload.config_hash, workload.revision, cell.runtime, cell.device.selector, cell.precision


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
    if not is_whole(max_depth) or max_depth < 0:
        raise UsageError(f"max_depth takes a whole number from 0: got {max_depth!r}")
    stages = None if sequence is None else str(Path(os.path.expanduser(sequence)).resolve())
    if stages is not None and not Path(stages).is_file():
        raise UsageError(f"--sequence-file {sequence}: no such file: check the path")
    logs: list[str] = []  # those of scripts with one name in several folders are numbered
    for target in targets:
        say(f"running {target.path.name}")
        request = ScriptRequest(
            path=str(target.path),
            arguments=tuple(arguments),
            max_depth=max_depth,
            sequence=stages,
            batch_size=batch_size,
        )
        name = states.NOT_IN_NAMES.sub("_", target.path.stem)
        logs.append(next(log for ending in endings() if (log := f"{name}{ending}.log") not in logs))
        started_s = time.monotonic()
        analysis = analyse(request, states.states_folder() / logs[-1], limit_s)
        count = len(analysis.modules)
        say(f"{target.path.name}: {counted(count, 'model')} in {time.monotonic() - started_s:.1f} s")
        if analysis.error is not None:
            models.failures.append(f"{target.path.name}: {analysis.error}")
        if analysis.modules:
            analysis = replace(analysis, chosen=choose(analysis, target.hashes))
        models.analyses += (analysis,)
        yield analysis


HASHES = "::"
CACHE_ACTIONS = ("list", "stats", "print", "delete", "report")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A script to measure, and the hashes of its models to measure; empty for all."""

    path: Path
    hashes: tuple[str, ...] = ()


def targets(words: Sequence[str], search_dir: str | None, *, everything: bool) -> tuple[Target, ...]:
    """The scripts named by `example.py::HASH,HASH` and by names in a folder, each once, with all hashes given for it.

    Raises UsageError for a missing script.
    """
    folder = Path() if search_dir is None else Path(search_dir)
    if search_dir is not None and not folder.is_dir():
        raise UsageError(f"--search-dir {search_dir}: no such folder: check the path")
    named: dict[Path, tuple[str, ...]] = {}
    for word in words:
        name, separator, hashes = word.partition(HASHES)
        path = Path(os.path.expanduser(folder / name))
        if not path.exists() and name in CACHE_ACTIONS:
            typed = as_typed("script")
            cache = f"{typed} cache" if typed == SCRIPTS["script"] else as_typed("cache")
            raise UsageError(f"{name}: did you mean {cache} {name}? A script ends with .py")
        if separator and not hashes.strip(", "):
            raise UsageError(f"{word} names no hash: give one that --analyze-only shows, or the script alone")
        if not path.is_file():
            file, colon, model = name.partition(".py:")
            hint = f"a model of it is {file}.py{HASHES}{model}" if colon else "check the path or --search-dir"
            raise UsageError(f"{path}: no such script: {hint}")
        if path.suffix != ".py":
            raise UsageError(f"{path}: not a Python script (*.py)")
        prefixes = tuple(part.strip().lower() for part in hashes.split(",") if part.strip())
        before = named.setdefault(path.resolve(), prefixes)
        # Without a hash, all of its models are measured.
        named[path.resolve()] = tuple(dict.fromkeys((*before, *prefixes))) if before and prefixes else ()
    for path in sorted(folder.glob("*.py")) if everything else ():
        named.setdefault(path.resolve(), ())
    if not named:
        what = f"found none (*.py) in {folder}" if everything else "give a script, or --all for those in this folder"
        raise UsageError(f"no script to measure: {what}")
    return tuple(Target(path=path, hashes=hashes) for path, hashes in named.items())


def split_arguments(script_args: str | Sequence[str]) -> tuple[str, ...]:
    """The arguments of a list, or those in a text like that of --script-args: split like by a shell, but without
    running one; without spaces, at commas ("--width,64,--height,32"), except in quotes and in the value of
    --flag=VALUE. Raises UsageError for unbalanced quotes, and for what is no text."""
    if not isinstance(script_args, str):
        if not isinstance(script_args, Sequence) or not all(isinstance(word, str) for word in script_args):
            raise UsageError(f"script_args: expected a text or a list of texts, found {script_args!r}")
        return tuple(script_args)
    words: list[str] = []
    try:
        if re.search(r"\s", script_args):
            return tuple(shlex.split(script_args))
        for part in re.split(r",(?=--)", script_args):
            lexer = shlex.shlex(part, posix=True)
            lexer.commenters, lexer.whitespace_split = "", True
            lexer.whitespace += "" if re.match(r"--?[\w-]+=", part) else ","
            words += lexer
        return tuple(words)
    except ValueError as error:
        raise UsageError(f"--script-args {script_args!r}: {str(error).lower()}") from error


def plan_model(
    workload: Workload,
    module: GivenModule,
    selection: Selection,
    request: Request,
    session_id: str,
    machine: Machine,
    say: Say,
) -> tuple[CellPlan, ...]:
    """The plans of a model of a script on each device in each runtime.

    Unsupported combinations are left out, and reported through `say`, if any other is left. Raises UnsupportedError
    with the reasons if none is, UsageError for unknown names. Fields of `request` other than model, device, runtime and
    precision apply to all.
    """
    from benchmarking.sweep.run.preparation import has_build

    named: list[str | None] = [runtime_named(runtime) for runtime in selection.runtimes]
    # Without a device and anything that is of another runtime, PyTorch's, as `benchmark_model` measures a module.
    is_plain = not (request.options or request.build_only or module.sequence)
    places = [
        (device_named(device), runtime)
        for device in selection.devices
        for runtime in named or [default_runtime() if device == AUTO and is_plain else runtime_of_device_alias(device)]
    ]
    points = tuple(call.point for call in module.calls)
    precision = selection.precision or precision_of(module)
    planned: list[CellPlan] = []
    refused: dict[str, UnsupportedError] = {}
    for device, runtime in places:
        placed = replace(request, model_id=workload.model_id, precision=precision, device=device, runtime=runtime)
        try:
            plan = plan_points(placed, session_id, workload, points, skipped={}, machine=machine)
            if module.sequence is not None and not has_build(plan.cell):
                raise UnsupportedError(f"--sequence-file: runtime {plan.cell.runtime} uses no builds: remove the flag")
            planned.append(plan)
        except UnsupportedError as error:
            refused[f"{workload.model_id} on {device}" + (f" in {runtime}" if runtime else "")] = error
    if refused and not planned:
        raise UnsupportedError("; ".join(f"{where}: {why}" for where, why in refused.items()))
    for where, why in refused.items():
        say(f"left out: {where}: {why}")
    return tuple(planned)


def precision_of(module: GivenModule) -> Precision:
    """The precision that a module's sequence builds, else the one used by the script. Raises UnsupportedError for one
    that is not supported, and for several, of which a name must be chosen."""
    if module.sequence is not None and module.sequence.precision is not None:
        return module.sequence.precision
    for precision in PRECISIONS:
        if module.dtype in (precision, None) and "float" in precision:  # int8 is a way to quantize what has no int8 yet
            return precision
    main = next((name for name in str(module.dtype).split(", ") if "float" in name), None)
    what = f"the parameters of {module.class_name} ({module.short_hash}) are {module.dtype}"
    if main in PRECISIONS:
        raise UnsupportedError(f"{what}: use --precision {main}, which measures them as they are, or another one")
    raise UnsupportedError(f"{what}, which is not supported: use --precision {PRECISIONS[0]}")


def outlines(analyses: Sequence[Analysis]) -> Iterator[str]:
    """A block of lines for each script with its models and their calls."""
    for analysis in analyses:
        lines = [analysis.name]
        if analysis.error is not None:
            lines.append(f"  failed: {analysis.error}")
        if analysis.log is not None:
            lines.append(f"  output of the script: {analysis.log}")
        for module in analysis.modules:
            indent = "  " * (module.depth + 1)
            name = analysis.workload(module).model_id
            rows = [
                ("class", f"{module.module_class} ({module.kind})"),
                ("location", analysis.name if module.line is None else f"{analysis.name}, line {module.line}"),
                ("parameters", f"{module.parameter_count} ({size_text(module.weights_bytes)})"),
                ("hash", module.short_hash),
            ]
            for call in module.calls:
                inputs = ", ".join(f"{argument}: {what}" for argument, what in call.signature.items()) or "none"
                cast = "" if call.autocast is None else f", autocast {call.autocast}"
                rows.append(("inputs", f"{inputs} ({call.executions}x, {call.point.label}{cast})"))
            if module.further_executions:
                count = f"{module.further_executions} calls"
                rows.append(("more", f"{count} with other kinds of input, which are not measured"))
            lines.append(f"{indent}{name} (executed {module.executions}x, {number(module.seconds, 2)} s)")
            lines += [f"{indent}  {key:<10}  {text}" for key, text in rows]
        yield "\n".join(lines)
