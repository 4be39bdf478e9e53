"""Where the wall time of a sweep goes: share by phase, for a model with random weights. By default the sweep of
README's first command.

Phases of a point are separated by the worker's own progress reports; "timed" is the sum of the samples that are
stored as measured, "warm-up" that of the others; on a processor "memory" is that of use too, and "count" that of
read-back. The load is divided as the worker does. The wall time begins with this process, and ends when the run is
stored in a new database. Prints a line a phase, and the untimed seconds of each point in calls of its own.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import psutil

from benchmarking.core.provenance import uuid7
from benchmarking.core.records import LaunchLoad, Measurement, Point
from benchmarking.measure.context import Live, settings
from benchmarking.sweep.plan.request import Request, plan_cell
from benchmarking.sweep.run.command_session import database, finish_run
from benchmarking.sweep.run.supervisor import Observer, Track, sweep

TIMED = ("warmup", "measure")


class Phases(Observer):
    """Adds up the seconds of each phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.points: list[str] = []
        """A line a point."""
        self._point_began_s = 0.0
        self._phase, self._since_s = "start and plan", time.monotonic()

    def launch(self, track: Track, launch: int) -> None:
        self._enter("load")

    def live(self, track: Track, launch: int, point: Point, live: Live | None) -> None:
        if live is None:
            self._point_began_s = time.monotonic()
        self._enter("between points" if live is None else live.phase)

    def measured(self, track: Track, measurement: Measurement) -> None:
        self._enter("stopping" if track.points_finished == track.points_total else "after points")
        wall = [one for one in measurement.samples if one.metric == "latency_wall"]
        calls_s = {one.phase: sum(one.values) * one.inner_loops / 1e3 for one in wall}
        self.seconds["timed calls"] += calls_s.get("measure", 0.0)
        self.seconds["warm-up calls"] += calls_s.get("warmup", 0.0)
        counts = {one.phase: len(one.values) * one.inner_loops for one in wall}
        untimed_s = time.monotonic() - self._point_began_s - sum(calls_s.values())
        call_s = calls_s.get("measure", 0.0) / max(1, counts.get("measure", 0))
        self.points.append(
            f"{measurement.point.label}: {measurement.status}, {call_s * 1e3:.1f} ms, {measurement.stop_reason}, "
            f"warm-up {counts.get('warmup', 0)}, timed {counts.get('measure', 0)}, "
            f"others {untimed_s:.1f} s = {untimed_s / call_s if call_s else 0.0:.1f} calls"
        )

    def stop_worker(self) -> None:
        """The last worker has ended; what follows is the supervisor's."""
        self._enter("storing")

    def _enter(self, phase: str) -> None:
        now_s = time.monotonic()
        if self._phase not in TIMED:
            self.seconds[self._phase] += now_s - self._since_s
        self._phase, self._since_s = phase, now_s

    def end(self, loads: Sequence[LaunchLoad]) -> None:
        """End the last phase, and divide the load as far as the worker did."""
        self._enter("")
        for load in loads:
            for stage, seconds in load.stages_s.items():
                self.seconds[f"load: {stage}"] += seconds
                self.seconds["load"] -= seconds


def main() -> int:
    """Measure, then print seconds and share of each phase."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model-id", default="bert-base-uncased", metavar="MODEL")
    parser.add_argument("--batch-sizes", default="1,2,4,8", metavar="N,N")
    parser.add_argument("--sequence-lengths", default="128,512", metavar="N,N")
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
    phases = Phases()
    phases.seconds["start and plan"] = begun_s = time.time() - psutil.Process().create_time()
    start_s = time.monotonic() - begun_s
    with tempfile.TemporaryDirectory() as folder:
        track = Track(plan_cell(request, uuid7()), Path(folder))
        sweep([track], phases, lambda done: None)
        phases.stop_worker()
        database(str(Path(folder) / "new.db"), None, quiet=True)(finish_run(track).path)
        phases.end(track.loads)
        wall_s = time.monotonic() - start_s
    print("\n".join(phases.points))
    for name, seconds in sorted(phases.seconds.items(), key=lambda item: -item[1]):
        print(f"{name:15} {seconds:7.1f} s  {seconds / wall_s:6.1%}")
    print(f"{'wall':15} {wall_s:7.1f} s")
    return 0


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


if __name__ == "__main__":
    sys.exit(main())
