"""The plan of a sweep: cells and their points, validated before anything runs; the machine is probed once.

Unfinished runs and batches, and stored runs, may come from anyone, so their plans are restricted to code that the
command itself names (`check_loaded_plan`). Some of their settings name code (the file of a
benchmark, a folder of kernels); each runtime declares which (`Runtime.foreign_code`).
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarking.core import plugins
from benchmarking.core.axes import AXES, POINT_FIELDS, is_fractional
from benchmarking.core.codec import is_number
from benchmarking.core.command_line import flag_words
from benchmarking.core.contracts import ForeignCode
from benchmarking.core.errors import FormatError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.provenance import provenance, uuid7
from benchmarking.core.records import INT32_MOST, Cell, Device, Hardware, Point, Provenance, Readings, Rebuild
from benchmarking.core.text import grouped
from benchmarking.measure.context import Settings

Check = Callable[[Point], str | None]

CLUSTER = "cluster"
"""Key in a plan's environment for the name of the cluster that measures it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellPlan:
    """One cell with everything needed for its run record except results."""

    run_id: str = field(default_factory=uuid7)
    session_id: str
    started_at: str
    """UTC, ISO 8601."""
    cell: Cell
    hardware: Hardware
    provenance: Provenance
    environment: Readings = field(default_factory=Readings)
    settings: Settings
    timeout_s: float | None
    """Time limit for loading, and for each point of a launch; None for no limit."""
    rebuild: Rebuild = "if_needed"
    """When to rebuild cached artifacts."""
    points: tuple[Point, ...]
    """In ascending order of work."""
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Point label -> reason, for unsupported points under --skip-unsupported."""

    @property
    def is_anonymous(self) -> bool:
        """Whether its records omit the names of host and user."""
        return not self.provenance.host

    def anonymous(self) -> CellPlan:
        return dataclasses.replace(self, provenance=dataclasses.replace(self.provenance, host=""))

    @property
    def cluster(self) -> str | None:
        """The cluster that measures it; None for this machine."""
        found = self.environment.values.get(CLUSTER)
        return found if isinstance(found, str) else None

    @property
    def runnable(self) -> tuple[Point, ...]:
        if not self.skipped:  # fast path, since the display calls this at every event
            return self.points
        return tuple(point for point in self.points if point.label not in self.skipped)


def points_by_reason(plan: CellPlan) -> dict[str, list[str]]:
    """The labels of the skipped points by reason; "all N points" if that is every point."""
    labels = (point.label for point in plan.points)
    by_reason = grouped((plan.skipped[label], label) for label in labels if label in plan.skipped)
    total = len(plan.points)
    return {why: [f"all {total} points"] if len(labels) == total > 1 else labels for why, labels in by_reason.items()}


def grid(axes: Mapping[str, tuple[Any, ...]]) -> tuple[Point, ...]:
    """Every combination of the values of axes (fields of Point, or names of `Point.axes`), the least work first.

    Raises UsageError for values other than whole numbers from 1, on a fractional axis numbers above 0.
    """
    for name, values in axes.items():
        for value in values:
            if not is_number(value):
                raise UsageError(f"{name} takes numbers: got {value!r}")
            if is_fractional(name):
                if not 0 < value < float("inf"):
                    raise UsageError(f"{name} takes numbers above 0: got {value!r}")
            elif not (1 <= value <= INT32_MOST and value == int(value)):
                raise UsageError(f"{name} takes whole numbers from 1 to {INT32_MOST}: got {value!r}")
    points = []
    for combination in itertools.product(*axes.values()):
        by_axis = dict(zip(axes, combination, strict=True))
        fields = {name: by_axis.pop(name) for name in POINT_FIELDS if name in by_axis}
        points.append(Point(**fields, axes=by_axis))
    return ascending(points)


def ascending(points: Iterable[Point]) -> tuple[Point, ...]:
    """The points, the least work first."""

    def size(point: Point) -> tuple[float, int, int, tuple[tuple[str, float], ...]]:
        return (work(point), point.batch_size, point.sequence_length or 0, tuple(sorted(point.axes.items())))

    return tuple(sorted(points, key=size))


def check_points(points: tuple[Point, ...], check: Check, *, skip_unsupported: bool | None) -> Mapping[str, str]:
    """The unsupported points, label -> reason. Raises UsageError for the first, unless they may be skipped; the flag
    for that is named if the command has it (not None)."""
    reasons = {point.label: why for point in points if (why := check(point)) is not None}
    if reasons and not skip_unsupported:
        label, why = next(iter(reasons.items()))
        more = f" (and {len(reasons) - 1} more such points)" if len(reasons) > 1 else ""
        how = "" if skip_unsupported is None else "; use --skip-unsupported to skip such points"
        raise UsageError(f"point {label}: {why}{more}{how}")
    if len(reasons) == len(points):
        raise UsageError(f"no supported point to measure: {next(iter(reasons.values()))}")
    return reasons


def work(point: Point) -> float:
    """Roughly the cost of a call, above 0 and without a unit: tokens times the values of the other axes. A user-written
    benchmark's own axis may have values of 0 and below, which say nothing about it."""
    product: float = point.concurrency * point.batch_size * ((point.sequence_length or 1) + (point.new_tokens or 0))
    for name, value in point.axes.items():
        product *= value ** (AXES[name].work_exponent if name in AXES else 1) if value > 0 else 1
    return product


class Machine:
    """Facts about this machine, each looked up at most once, for the plans of one command."""

    is_here = True
    """Whether its devices are those of this machine."""

    def __init__(self) -> None:
        self.devices: dict[str, tuple[Device, ...]] = {}
        """The probed devices by kind; filled by `select`."""

    @cached_property
    def host(self) -> Readings:
        from benchmarking.devices.support.host import host_facts

        return host_facts()

    @cached_property
    def environment(self) -> Readings:
        from benchmarking.measure.machine_state import capture

        return capture()

    def hardware(self, device: Device) -> Hardware:
        from benchmarking.devices.support.host import hardware

        return hardware(device, self.host)

    def free_memory(self, device: Device) -> Readings:
        from benchmarking.devices.support.host import free_memory

        return free_memory(device)

    def provenance(self, command: Sequence[str], tags: Mapping[str, str], description: str | None) -> Provenance:
        return dataclasses.replace(self._provenance, command=tuple(command), tags=dict(tags), description=description)

    @cached_property
    def _provenance(self) -> Provenance:
        return provenance((), {}, None)


def foreign_codes(cell: Cell) -> tuple[ForeignCode, ...]:
    """The user's own code that a cell runs: a script, a benchmark, a folder of kernels."""
    of_runtime = plugins.runtime(cell.runtime).foreign_code(cell.runtime_mode, cell.workload.path)
    is_script = cell.workload.source == "module"
    script = ForeignCode(path=cell.workload.path or "", flag="--scripts") if is_script else None
    return tuple(code for code in (script, of_runtime) if code is not None)


def code_flags(cells: Iterable[Cell], arguments: Mapping[str, object]) -> list[str]:
    """The flags with which --resume goes on with cells that run the user's own code: those of the command, or else the
    file or the folder of all; the first where that would be a whole file system."""
    paths = dict[tuple[str, str], set[str]]()
    for code in (code for cell in cells for code in foreign_codes(cell)):
        paths.setdefault((code.flag, code.key), set()).add(code.path)
    words = list[str]()
    for (flag, key), of_flag in sorted(paths.items()):
        roots = {Path(path).anchor for path in of_flag}
        common = os.path.commonpath(of_flag) if len(roots) == 1 else ""
        place = min(of_flag) if common in ("", *roots) else common
        words += flag_words(flag, str(arguments.get(key) or place))
    return words


def check_loaded_plan(plan: CellPlan, arguments: Mapping[str, object], where: str) -> None:
    """Check a plan that was read from the file `where`, before it runs.

    `arguments` are those of the command by key. Raises FormatError for an unknown runtime or device, UsageError for
    code that none of the arguments names.
    """
    cell = plan.cell
    for package, name in ((plugins.RUNTIMES, cell.runtime), (plugins.DEVICES, cell.device.type)):
        if name not in plugins.names(package):
            raise FormatError(f"{where}: {name!r} is none of {', '.join(plugins.names(package))}")
    for code in foreign_codes(cell):
        if not _is_named(code.key, code.path, arguments):
            raise UsageError(
                f"{where} would run the code in {code.path!r}, so it was not started: if you trust the code, add "
                f"{code.flag} with its folder"
            )


def _is_named(key: str, code: str | None, arguments: Mapping[str, object]) -> bool:
    """Whether an argument is the code's file or folder, or a folder above it."""
    folder = arguments.get(key)
    if not isinstance(folder, str) or not code:
        return False
    path = Path(code)
    # The file itself may be a link made by the owner of the folder; ".." and linked folders above it are resolved.
    place = path.resolve() if path.name == ".." else path.parent.resolve() / path.name
    return place.is_relative_to(Path(os.path.expanduser(folder)).resolve())
