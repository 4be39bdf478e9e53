"""The progress of a sweep on stderr: on a terminal a bar with the time left, elsewhere a line per finished point.

It is drawn only when a message of a worker arrives; the supervisor sleeps in between.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import TextIO

from benchmarking.core.records import Cell, Measurement, Point
from benchmarking.core.terminal import Display, State
from benchmarking.core.text import duration, number
from benchmarking.measure.bench import Live
from benchmarking.sweep.run.supervisor import Observer, Track


class Progress(Observer):
    """Shows the finished points, the current cell, its live median with its interval, and the time left."""

    def __init__(self, tracks: Sequence[Track], stream: TextIO | None = None) -> None:
        self._tracks = tracks
        self._display = Display(stream)
        self._point_began_s = time.monotonic()
        self._durations_s: dict[str, list[float]] = {}
        self._left_s: float | None = None

    def preparing(self, track: Track, what: str) -> None:
        self._show(f"preparing {cell_name(track.plan.cell)}: {what}")

    def launch(self, track: Track, launch: int) -> None:
        self._show(f"loading {cell_name(track.plan.cell)}, {_launch(track, launch)}")

    def live(self, track: Track, launch: int, point: Point, live: Live | None) -> None:
        if live is None:
            self._point_began_s = time.monotonic()
        self._show(_live_text(track, launch, point, live), is_news=live is None)

    def measured(self, track: Track, measurement: Measurement) -> None:
        self._durations_s.setdefault(_key(track, measurement.point), []).append(time.monotonic() - self._point_began_s)
        self._left_s = self._estimate_left_s()
        self._show(f"{cell_name(track.plan.cell)}  {measurement.point.label}")
        self._display.say(self._measured_text(track, measurement))

    def waiting(self, message: str) -> None:
        self._display.say(message)

    def close(self) -> None:
        """Leave a clean line behind."""
        self._display.close()

    def _show(self, text: str, *, is_news: bool = True) -> None:
        self._display.show(
            State(done=self._settled(), total=self._total(), unit="points", text=text, left_s=self._left_s),
            is_news=is_news,
        )

    def _settled(self) -> int:
        return sum(track.points_settled for track in self._tracks)

    def _total(self) -> int:
        return sum(track.points_total for track in self._tracks)

    def _measured_text(self, track: Track, measurement: Measurement) -> str:
        name = self._cell(track) or [track.plan.cell.workload.model_id]
        head = f"point {self._settled()}/{self._total()}"
        parts = [head, *name, measurement.point.label, _launch(track, measurement.launch)]
        if measurement.status != "ok":
            return "  ".join([*parts, f"{measurement.status.replace('_', ' ')}: {measurement.error}"])
        values = [v for s in measurement.samples if _is_latency(s.metric, s.phase) for v in s.values]
        parts.append(f"{len(values)} calls  median {number(statistics.median(values))} ms" if values else "no samples")
        doubts = ", ".join(doubt.kind for doubt in measurement.doubts if doubt.severity != "info")
        parts += [f"[{doubts}]"] if doubts else []
        return "  ".join(parts + self._left())

    def _cell(self, track: Track) -> list[str]:
        """The name of the cell, if there are several."""
        return [cell_name(track.plan.cell)] if len(self._tracks) > 1 else []

    def _left(self) -> list[str]:
        return [f"about {duration(self._left_s)} left"] if self._left_s else []

    def _estimate_left_s(self) -> float | None:
        """The time of the remaining points: as in earlier launches, else as long as the longest point so far."""
        if not self._durations_s:
            return None
        longest_s = max(max(durations) for durations in self._durations_s.values())
        left_s = 0.0
        for track in self._tracks:
            for point in track.open_points():
                known = self._durations_s.get(_key(track, point))
                left_s += statistics.fmean(known) if known else longest_s
        return left_s


def cell_name(cell: Cell) -> str:
    """A cell in one line: "gpt2 on cuda:0 (eager, float16)"."""
    return f"{cell.subject} on {cell.device.selector} ({cell.runtime}, {cell.precision})"


def _key(track: Track, point: Point) -> str:
    return f"{track.plan.run_id} {point.label}"


def _is_latency(metric: str, phase: str) -> bool:
    return metric == "latency_wall" and phase == "measure"


def _launch(track: Track, launch: int) -> str:
    return f"launch {launch + 1}/{track.plan.settings.launches}"


def _live_text(track: Track, launch: int, point: Point, live: Live | None) -> str:
    """The current point, and its live numbers in a second line."""
    where = "  ".join([cell_name(track.plan.cell), point.label, _launch(track, launch)])
    if live is None:
        return where
    median = "" if live.median_ms is None else f"  {_interval(live.median_ms, live.low_ms, live.high_ms)}"
    return f"{where}\n{live.phase} {live.calls} calls{median}"


def _interval(median_ms: float, low_ms: float | None, high_ms: float | None) -> str:
    """The median, with its interval if there is one."""
    if low_ms is None or high_ms is None:
        return f"median {number(median_ms)} ms"
    return f"median {number(median_ms)} ms [{number(low_ms)}, {number(high_ms)}]"
