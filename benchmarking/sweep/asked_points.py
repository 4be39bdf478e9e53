"""The grid of a request: what was asked for, and the defaults of the workload's family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from benchmarking.errors import UsageError
from benchmarking.records import Point, Workload
from benchmarking.sweep.plan import grid
from benchmarking.workloads import WorkloadFamily
from benchmarking.workloads._limits import no_axis

if TYPE_CHECKING:
    from benchmarking.sweep.request import Request


def asked_points(request: Request, workload: Workload, family: WorkloadFamily) -> tuple[Point, ...]:
    """The grid. Default sequence lengths of which no point can be are left out; nothing that was asked for is."""
    axes = {"batch_size": request.batch_sizes, **family.axes(workload), **_asked(request, workload, family)}
    axes |= {} if request.concurrency is None else {"concurrency": request.concurrency}
    points = grid(axes)
    if request.sequence_lengths is None and "sequence_length" in axes:
        possible = {point.sequence_length for point in points if family.check(workload, point) is None}
        points = tuple(point for point in points if point.sequence_length in possible) or _longest(axes, workload)
    return points


def _asked(request: Request, workload: Workload, family: WorkloadFamily) -> dict[str, tuple[float, ...]]:
    """The values that were asked for, by axis. Raises UsageError for an axis that only this workload was asked for and
    does not have."""
    has = family.axes(workload)
    elsewhere = request.shared_axes - set(has)
    given = {name: values for name, values in request.family_axes.items() if name not in elsewhere}
    for name in given:
        if name not in has:
            raise UsageError(no_axis(workload, name, has))
    return given


def _longest(axes: Mapping[str, tuple[float, ...]], workload: Workload) -> tuple[Point, ...]:
    """The grid of a model too short for every default: its own longest sequence, less the tokens to generate.

    Of a model that is long enough the grid as it is, so that what else is wrong with it is said.
    """
    new_tokens = int(max(axes.get("new_tokens", ()), default=0))
    limit = workload.max_sequence_length
    if limit is None or min(axes["sequence_length"]) + new_tokens <= limit:
        return grid(axes)
    longest = limit - new_tokens
    if longest < 1:
        raise UsageError(f"{workload.model_id} takes {limit} tokens: fewer than --new-tokens")
    return grid({**axes, "sequence_length": (longest,)})
