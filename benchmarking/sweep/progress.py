"""Progress on stderr: one line that is rewritten on a terminal, one plain line a point elsewhere.

It is written only when a worker has something to say, so the supervisor sleeps in between.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from collections.abc import Sequence
from typing import TextIO

from benchmarking.measure.live import Live
from benchmarking.records import Cell, Measurement, Point
from benchmarking.sweep.track import Track

REDRAW_S = 0.2


class Progress:
    """An observer of a sweep that shows point k/n, the live median with its interval, and the time left."""

    def __init__(self, tracks: Sequence[Track], stream: TextIO | None = None) -> None:
        self._tracks = tracks
        self._stream = sys.stderr if stream is None else stream
        self._on_terminal = self._stream.isatty()
        self._point_began_s = self._drawn_s = time.monotonic()
        self._durations_s: dict[str, list[float]] = {}
        self._left_s: float | None = None

    def preparing(self, track: Track, what: str) -> None:
        self._show(f"preparing {cell_name(track.plan.cell)}: {what}", lasting=False)

    def launch(self, track: Track, launch: int) -> None:
        count = track.plan.settings.launches
        self._show(f"loading {cell_name(track.plan.cell)}, launch {launch + 1}/{count}", lasting=False)

    def live(self, track: Track, launch: int, point: Point, live: Live | None) -> None:
        now_s = time.monotonic()
        if live is None:
            self._point_began_s = now_s
        elif now_s - self._drawn_s < REDRAW_S or not self._on_terminal:
            return
        self._show(self._live_text(track, launch, point, live), lasting=False)

    def measured(self, track: Track, measurement: Measurement) -> None:
        self._durations_s.setdefault(_key(track, measurement.point), []).append(time.monotonic() - self._point_began_s)
        self._left_s = self._estimate_left_s()
        self._show(self._measured_text(track, measurement), lasting=True)

    def waiting(self, message: str) -> None:
        self._show(message, lasting=True)

    def close(self) -> None:
        """Leave a clean line behind."""
        if self._on_terminal:
            self._stream.write("\r\033[K")
            self._stream.flush()

    def _live_text(self, track: Track, launch: int, point: Point, live: Live | None) -> str:
        parts = [self._head(1), *self._cell(track), point.label, f"launch {launch + 1}/{track.plan.settings.launches}"]
        if live is not None:
            parts.append(f"{live.phase} {live.calls} calls")
            if live.median_ms is not None:
                parts.append(_interval(live.median_ms, live.low_ms, live.high_ms))
        return "  ".join(parts + self._left())

    def _measured_text(self, track: Track, measurement: Measurement) -> str:
        name = self._cell(track) or [track.plan.cell.workload.model_id]
        parts = [self._head(0), *name, measurement.point.label]
        parts.append(f"launch {measurement.launch + 1}/{track.plan.settings.launches}")
        if measurement.status != "ok":
            return "  ".join([*parts, f"{measurement.status.replace('_', ' ')}: {measurement.error}"])
        values = [v for s in measurement.samples if _is_latency(s.metric, s.phase) for v in s.values]
        parts.append(f"{len(values)} calls  median {statistics.median(values):.4g} ms" if values else "no samples")
        doubts = ", ".join(doubt.kind for doubt in measurement.doubts if doubt.severity != "info")
        parts += [f"[{doubts}]"] if doubts else []
        return "  ".join(parts + self._left())

    def _cell(self, track: Track) -> list[str]:
        """Which cell it is, where there are several."""
        return [cell_name(track.plan.cell)] if len(self._tracks) > 1 else []

    def _left(self) -> list[str]:
        return [f"about {duration_text(self._left_s)} left"] if self._left_s else []

    def _head(self, ahead: int) -> str:
        settled = sum(track.points_settled for track in self._tracks)
        total = sum(track.points_total for track in self._tracks)
        return f"point {min(settled + ahead, total)}/{total}"

    def _estimate_left_s(self) -> float | None:
        """What the open points will take: as long as in earlier launches, else as long as the longest so far."""
        if not self._durations_s:
            return None
        longest_s = max(max(durations) for durations in self._durations_s.values())
        left_s = 0.0
        for track in self._tracks:
            for point in track.open_points():
                known = self._durations_s.get(_key(track, point))
                left_s += statistics.fmean(known) if known else longest_s
        return left_s

    def _show(self, text: str, *, lasting: bool) -> None:
        self._drawn_s = time.monotonic()
        if self._on_terminal:
            width = shutil.get_terminal_size().columns - 1
            self._stream.write(f"\r\033[K{text[:width]}" + ("\n" if lasting else ""))
        elif lasting:
            self._stream.write(text + "\n")
        self._stream.flush()


def cell_name(cell: Cell) -> str:
    """A cell in a line: "gpt2 on cuda:0 (eager, float16)"."""
    return f"{cell.subject} on {cell.device.selector} ({cell.runtime}, {cell.precision})"


class Silence:
    """An observer that shows nothing."""

    def preparing(self, track: Track, what: str) -> None:
        return None

    def launch(self, track: Track, launch: int) -> None:
        return None

    def live(self, track: Track, launch: int, point: Point, live: Live | None) -> None:
        return None

    def measured(self, track: Track, measurement: Measurement) -> None:
        return None

    def waiting(self, message: str) -> None:
        return None

    def close(self) -> None:
        return None


def _key(track: Track, point: Point) -> str:
    return f"{track.plan.run_id} {point.label}"


def _is_latency(metric: str, phase: str) -> bool:
    return metric == "latency_wall" and phase == "measure"


def _interval(median_ms: float, low_ms: float | None, high_ms: float | None) -> str:
    if low_ms is None or high_ms is None:
        return f"median {median_ms:.4g} ms"
    return f"median {median_ms:.4g} ms [{low_ms:.4g}, {high_ms:.4g}]"


def duration_text(seconds: float) -> str:
    """A duration as a person says it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
