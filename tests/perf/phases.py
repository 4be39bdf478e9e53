"""Where the wall time of a sweep goes: share by phase, for a model with random weights.

Phases of a point are separated by the worker's own progress reports; "timed" is the sum of the samples that are
stored as measured, "warm-up" that of the others. The rest of the wall time is the start and load of the worker, and
the supervisor. Prints a line a phase.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from benchmarking.core.provenance import uuid7
from benchmarking.core.records import Measurement, Point
from benchmarking.measure.bench import Live
from benchmarking.measure.settings import settings
from benchmarking.sweep.plan.request import Request, plan_cell
from benchmarking.sweep.run.supervisor import Observer, Track, sweep

TIMED = ("warmup", "measure")


class Phases(Observer):
    """Adds up the seconds of each phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._phase, self._since_s = "load", time.monotonic()

    def live(self, track: Track, launch: int, point: Point, live: Live | None) -> None:
        self._enter("between points" if live is None else live.phase)

    def measured(self, track: Track, measurement: Measurement) -> None:
        self._enter("after points")
        for samples in measurement.samples:
            if samples.metric == "latency_wall":
                name = "timed calls" if samples.phase == "measure" else "warm-up calls"
                self.seconds[name] += sum(samples.values) * samples.inner_loops / 1e3

    def _enter(self, phase: str) -> None:
        now_s = time.monotonic()
        if self._phase not in TIMED:
            self.seconds[self._phase] += now_s - self._since_s
        self._phase, self._since_s = phase, now_s


def main() -> int:
    """Measure, then print seconds and share of each phase."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model-id", default="tiny-bert", metavar="MODEL")
    parser.add_argument("--batch-sizes", default="1,4", metavar="N,N")
    parser.add_argument("--sequence-lengths", default="32,128", metavar="N,N")
    parser.add_argument("--profile", default="quick")
    parser.add_argument("--iterations", type=int, metavar="N")
    arguments = parser.parse_args()
    request = Request(
        model_id=arguments.model_id,
        device="cpu",
        weights="random",
        batch_sizes=_numbers(arguments.batch_sizes),
        sequence_lengths=_numbers(arguments.sequence_lengths),
        settings=settings(arguments.profile, iterations=arguments.iterations),
    )
    start_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        track, phases = Track.start(Path(folder), plan_cell(request, uuid7())), Phases()
        sweep([track], phases, lambda done: None)
    wall_s = time.monotonic() - start_s
    for one in track.measurements:
        counted = [len(samples.values) for samples in one.samples if samples.metric == "latency_wall"]
        print(f"{one.point.label}: {one.status}, steady {one.steady}, {one.stop_reason}, samples {counted}")
    for name, seconds in sorted(phases.seconds.items(), key=lambda item: -item[1]):
        print(f"{name:15} {seconds:7.1f} s  {seconds / wall_s:6.1%}")
    print(f"{'wall':15} {wall_s:7.1f} s")
    return 0


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


if __name__ == "__main__":
    sys.exit(main())
