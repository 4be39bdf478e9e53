"""How one model is placed on several devices: the option `placement`, and where it is impossible. Imports no torch."""

from __future__ import annotations

import importlib.util

from benchmarking.core.contracts import Option
from benchmarking.core.errors import UnsupportedError
from benchmarking.core.records import Cell, Device, Point, Precision, Workload
from benchmarking.devices.support.handles import parts
from benchmarking.workloads.support.families import family_named

OPTION = "placement"

REPLICAS, SHARDED = "replicas", "sharded"

PLACEMENT = Option(
    name=OPTION,
    help="one model on several devices: copies that share the batch, or its layers spread over them",
    values=(REPLICAS, SHARDED),
)

PRECISIONS: tuple[Precision, ...] = ("float32", "tf32", "bfloat16", "float16")


def why_not(device: Device, workload: Workload, precision: Precision) -> str | None:
    """None, or why no placement on several devices runs a workload at a precision."""
    if len(parts(device)) < 2:
        return None
    if precision not in PRECISIONS:
        return f"several devices run {', '.join(PRECISIONS)}, not {precision}"
    return None if workload.family is not None else "a model of no known family is not placed on several devices"


def check(placement: object, workload: Workload) -> None:
    """Raise UnsupportedError for a placement that is not possible for a workload; None is no placement."""
    if placement == SHARDED and importlib.util.find_spec("accelerate") is None:
        raise UnsupportedError("placement sharded needs accelerate: pip install accelerate")
    family = family_named(workload.family)
    if placement == REPLICAS and (family is None or not family.can_split_batch):
        raise UnsupportedError(
            f"placement replicas splits the batch, and the rows of {workload.family} belong together: "
            "take --placement sharded, or one device"
        )


def why_not_point(cell: Cell, point: Point) -> str | None:
    """None, or why a point cannot be split."""
    count = len(parts(cell.device))
    if cell.runtime_mode.get(OPTION) != REPLICAS or point.batch_size >= count:
        return None
    return (
        f"a batch of {point.batch_size} cannot be split over {count} devices: "
        f"take --batch-sizes from {count}, or --placement sharded"
    )


def copies(cell: Cell) -> int:
    """How many times the weights are in the devices' memory."""
    return len(parts(cell.device)) if cell.runtime_mode.get(OPTION) == REPLICAS else 1


def shares(batch_size: int, count: int) -> list[int]:
    """The batch's rows for each of `count` devices, as even as possible, the larger shares first."""
    return [batch_size // count + (index < batch_size % count) for index in range(count)]
