"""Prints what the harness costs per call: on a call that does nothing, against a bare perf_counter_ns loop.

Two figures, interleaved round by round: inside the timed region (what every latency is too long by), and of the whole
loop (what a call costs in measuring time beyond itself). Run it with `python tests/perf/overhead.py`.
"""

from __future__ import annotations

import gc
import time
from statistics import median

from benchmarking.core.contracts import Mark, Operation
from benchmarking.core.records import Readings
from benchmarking.devices.cpu import CpuHandle
from benchmarking.measure.timing import Stopwatch, quiet_gc

ROUNDS = 21
CALLS = 10_000


class NoOperation(Operation):
    """The call that does nothing."""

    items_per_call = 1

    def reset(self) -> None:
        return None

    def run(self, mark: Mark) -> None:
        return None

    def problem(self, output: object) -> str | None:
        return None

    def count(self) -> Readings:
        return Readings()


def bare(operation: NoOperation) -> tuple[float, float]:
    """Median ns of a call's sample, and ns per turn of the loop, in the shortest possible loop."""
    now, run, samples = time.perf_counter_ns, operation.run, []
    start_ns = now()
    for _ in range(CALLS):
        t0 = now()
        run(print)
        samples.append(now() - t0)
    return median(samples), (now() - start_ns) / CALLS


def harness(operation: NoOperation) -> tuple[float, float]:
    """The same two figures of the harness's loop."""
    watch = Stopwatch(operation, CpuHandle())
    start_ns = time.perf_counter_ns()
    watch.run(CALLS)
    return median(watch.block_ns), (time.perf_counter_ns() - start_ns) / CALLS


def main() -> None:
    """Print the medians over rounds."""
    operation = NoOperation()
    rounds = []
    for _ in range(ROUNDS):
        gc.collect()
        with quiet_gc():
            rounds.append((*bare(operation), *harness(operation)))
    in_bare, bare_turn, in_harness, harness_turn = (median(column) for column in zip(*rounds, strict=True))
    print(f"{ROUNDS} interleaved rounds of {CALLS} calls that do nothing, medians")
    print(f"sample of a call:   bare {in_bare / 1e3:.3f} us, harness {in_harness / 1e3:.3f} us")
    print(f"turn of the loop:   bare {bare_turn / 1e3:.3f} us, harness {harness_turn / 1e3:.3f} us")
    print(f"overhead per call:  {(in_harness - in_bare) / 1e3:.3f} us inside the timed region")
    print(f"                    {(harness_turn - bare_turn) / 1e3:.3f} us of the whole loop (at most 3 wanted)")


if __name__ == "__main__":
    main()
