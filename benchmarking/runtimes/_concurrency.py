"""Several requests in flight: which runtimes run them, and with which settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarking import plugins
from benchmarking.errors import UnsupportedError, UsageError
from benchmarking.records import Cell, Point, Scalar
from benchmarking.runtimes import Runtime

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
