"""How one model is put on several devices: the option `placement`, and what it cannot do. Imports no torch.

Several requests in flight: which runtimes run them, and with which settings.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence

from benchmarking.core import plugins
from benchmarking.core.contracts import Runtime
from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.options import Option
from benchmarking.core.records import Cell, Device, Point, Precision, Scalar, Workload
from benchmarking.devices.support.handles import parts

OPTION = "placement"

REPLICAS, SHARDED = "replicas", "sharded"

PLACEMENT = Option(
    name=OPTION,
    help="one model on several devices: copies that share the batch, or its layers spread over them",
    values=(REPLICAS, SHARDED),
)

PRECISIONS: tuple[Precision, ...] = ("float32", "tf32", "bfloat16", "float16")


FAMILIES = frozenset(
    {
        "encoder-only",
        "decoder-only",
        "encoder-decoder",
        "vision",
        "speech",
        "multimodal",
        "mixture-of-experts",
        "state-space",
    }
)

"""Families whose rows do not depend on each other. Two towers score every image against every text of the batch, and
retrieval and denoising have inputs that the whole batch shares."""


def why_not(device: Device, workload: Workload, precision: Precision) -> str | None:
    """None, or why several devices cannot run a workload at a precision, whatever the placement."""
    if len(parts(device)) < 2:
        return None
    if precision not in PRECISIONS:
        return f"on several devices there is {', '.join(PRECISIONS)}, not {precision}"
    return None if workload.family is not None else "a model of no known family is not put on several devices"


def check(placement: object, workload: Workload) -> None:
    """Raise UnsupportedError for a placement that a workload cannot have; None is no placement."""
    if placement == SHARDED and importlib.util.find_spec("accelerate") is None:
        raise UnsupportedError("placement sharded needs accelerate: pip install accelerate")
    if placement == REPLICAS and workload.family not in FAMILIES:
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
    """The batch's rows for each of `count` devices, as even as can be, the larger shares first."""
    return [batch_size // count + (index < batch_size % count) for index in range(count)]


RUNTIMES = "benchmarking.runtimes"


def check_numbers(runtime: Runtime, mode: Mapping[str, Scalar], numbers: Sequence[int] | None) -> None:
    """Raise UnsupportedError where none of the numbers asked for can be, UsageError where one has to be and is not
    (None): it is part of what is measured, and nobody's to choose but the user's."""
    if not runtime.runs_at_once(mode):
        if numbers is not None and 1 not in numbers:
            raise UnsupportedError(_one_at_a_time(runtime))
    elif numbers is None:
        raise UsageError(
            f"runtime {runtime.name} runs several requests at once with these settings: say how many with "
            "--concurrency, such as 1,2,4"
        )


def why_not_requests(cell: Cell, point: Point) -> str | None:
    """None, or why a point cannot have as many requests in flight as it says."""
    if point.concurrency == 1:
        return None
    runtime: Runtime = plugins.load(RUNTIMES, cell.runtime)
    return None if runtime.runs_at_once(cell.runtime_mode) else _one_at_a_time(runtime)


def _one_at_a_time(runtime: Runtime) -> str:
    how = f": take {runtime.concurrency_flag} for more" if runtime.concurrency_flag else ""
    return f"runtime {runtime.name} runs one request at a time here{how}"
