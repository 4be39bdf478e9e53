"""Plans for the models of scripts: each model on each supported device and runtime."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarking.core.command_line import note
from benchmarking.core.command_names import SCRIPTS, as_typed
from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import PRECISIONS, Precision
from benchmarking.devices.support.kinds import device_named
from benchmarking.runtimes.support.lookup import runtime_named, runtime_of_device_alias
from benchmarking.scripts.analysis import Analysis
from benchmarking.sweep.plan.plan import CellPlan, Machine
from benchmarking.sweep.plan.request import Request, plan_points
from benchmarking.workloads.support.given_modules import GivenModule

HASHES = "::"
CACHE_ACTIONS = ("list", "stats", "print", "delete", "report")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A script to measure, and the hashes of its models to measure; empty for all."""

    path: Path
    hashes: tuple[str, ...] = ()


def targets(words: Sequence[str], search_dir: str | None, *, everything: bool) -> tuple[Target, ...]:
    """The scripts named by `example.py::HASH,HASH` and by names in a folder, each once.

    Raises UsageError for a missing script.
    """
    folder = Path() if search_dir is None else Path(search_dir)
    if search_dir is not None and not folder.is_dir():
        raise UsageError(f"--search-dir {search_dir}: no such folder: check the path")
    named = [_target(word, folder) for word in words]
    if everything:
        named += [Target(path=path.resolve()) for path in sorted(folder.glob("*.py"))]
    if not named:
        what = f"found none (*.py) in {folder}" if everything else "give a script, or --all for those in this folder"
        raise UsageError(f"no script to measure: {what}")
    first: dict[Path, Target] = {}
    for target in named:
        first.setdefault(target.path, target)
    return tuple(first.values())


def _target(word: str, folder: Path) -> Target:
    name, separator, hashes = word.partition(HASHES)
    path = (folder / name).expanduser()
    if not path.exists() and name in CACHE_ACTIONS:
        typed = as_typed("script")
        cache = f"{typed} cache" if typed == SCRIPTS["script"] else as_typed("cache")
        raise UsageError(f"{name}: did you mean {cache} {name}? A script ends with .py")
    if separator and not hashes.strip(", "):
        raise UsageError(f"{word} names no hash: give one that --analyze-only shows, or the script alone")
    if not path.is_file():
        raise UsageError(f"{path}: no such script: check the path or --search-dir")
    if path.suffix != ".py":
        raise UsageError(f"{path}: not a Python script (*.py)")
    prefixes = tuple(part.strip().lower() for part in hashes.split(",") if part.strip())
    return Target(path=path.resolve(), hashes=prefixes)


def split_arguments(script_args: str) -> tuple[str, ...]:
    """The arguments in --script-args, split like by a shell, but without running one; without spaces, at commas before
    flags ("--width=64,--height=32"). Raises UsageError for unbalanced quotes."""
    if not re.search(r"\s", script_args):
        script_args = re.sub(r",(?=--)", " ", script_args)
    try:
        return tuple(shlex.split(script_args))
    except ValueError as error:
        raise UsageError(f"--script-args {script_args!r}: {str(error).lower()}") from error


def plan_models(
    analyses: Sequence[Analysis],
    devices: Sequence[str],
    runtimes: Sequence[str],
    request: Request,
    session_id: str,
    *,
    precision: Precision | None = None,
    machine: Machine | None = None,
    say: Callable[[str], None] = note,
) -> tuple[CellPlan, ...]:
    """The plans of the chosen models of all scripts on each device in each runtime.

    Unsupported combinations are left out, and reported through `say`, if any other is left for the model. Raises
    UnsupportedError with the reasons for a model without any, UsageError for unknown names. Fields of `request` other
    than model, device, runtime and precision apply to all.
    """
    from benchmarking.sweep.run.preparation import has_build

    machine = Machine() if machine is None else machine
    named: list[str | None] = [runtime_named(runtime) for runtime in runtimes]
    selection = [
        (device_named(device), runtime) for device in devices for runtime in named or [runtime_of_device_alias(device)]
    ]
    plans: list[CellPlan] = []
    for analysis in analyses:
        for module in analysis.selected:
            workload = analysis.workload(module)
            points = tuple(call.point for call in module.calls)
            module_request = replace(request, model_id=workload.model_id, precision=precision or precision_of(module))
            planned: list[CellPlan] = []
            refused: dict[str, UnsupportedError] = {}
            for device, runtime in selection:
                placed = replace(module_request, device=device, runtime=runtime)
                try:
                    plan = plan_points(placed, session_id, workload, points, skipped={}, machine=machine)
                    if module.sequence is not None and not has_build(plan.cell):
                        raise UnsupportedError(
                            f"--sequence-file: runtime {plan.cell.runtime} uses no builds: remove the flag"
                        )
                    planned.append(plan)
                except UnsupportedError as error:
                    refused[f"{workload.model_id} on {device}" + (f" in {runtime}" if runtime else "")] = error
            if refused and not planned:
                raise UnsupportedError("; ".join(f"{where}: {why}" for where, why in refused.items()))
            for where, why in refused.items():
                say(f"left out: {where}: {why}")
            plans += planned
    return tuple(plans)


def precision_of(module: GivenModule) -> Precision:
    """The precision that a module's sequence builds, else the one used by the script. Raises UsageError for an
    unsupported one."""
    if module.sequence is not None and module.sequence.precision is not None:
        return module.sequence.precision
    for precision in PRECISIONS:
        if module.dtype in (precision, None):
            return precision
    raise UsageError(
        f"the parameters of {module.class_name} ({module.short_hash}) are {module.dtype}, which is not supported: use "
        f"--precision {PRECISIONS[0]}"
    )


def outlines(analyses: Sequence[Analysis]) -> Iterator[str]:
    """A block of lines for each script with its models and their calls."""
    from benchmarking.core.text import number, size_text

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
                rows.append(("inputs", f"{inputs} ({call.executions}x, {call.point.label})"))
            if module.further_executions:
                count = f"{module.further_executions} calls"
                rows.append(("more", f"{count} with other kinds of input, which are not measured"))
            lines.append(f"{indent}{name} (executed {module.executions}x, {number(module.seconds, 2)} s)")
            lines += [f"{indent}  {key:<10}  {text}" for key, text in rows]
        yield "\n".join(lines)
