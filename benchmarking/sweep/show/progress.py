"""The progress of a sweep: on stderr (on a terminal a bar with the time left, elsewhere a line per finished point), and
in its live status.

Every command shows its progress through `observed`. The display is drawn only when a worker sends a message; the
supervisor sleeps in between. Like it, the status file is rewritten only then, never on a timer, and at most once a
second while a point is measured. Nothing samples the devices for it: how busy they were, and what disturbed a point,
comes with its result.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TextIO

from benchmarking.core.errors import BenchhouseError, StorageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.live_status import MACHINES, CellProgress, CurrentPoint, MachineProgress, PointResult, StatusFile
from benchmarking.core.metrics import LATENCY_WALL
from benchmarking.core.provenance import this_process
from benchmarking.core.records import Cell, Measurement, Point, to_json
from benchmarking.core.tables import table_of, table_text
from benchmarking.core.temporary import FOLDER
from benchmarking.core.terminal import Display
from benchmarking.core.text import counted, duration, listed, number
from benchmarking.core.untrusted.redaction import cut_to, redacted
from benchmarking.measure.context import Live, Settings
from benchmarking.sweep.plan.plan import work
from benchmarking.sweep.run.budget import MIN_POINT_CALLS, UNTIMED_CALLS, Overhead, fewest_calls, timed_calls
from benchmarking.sweep.run.supervisor import Observer, Track, has_failed

MANY_CELLS = 20
"""Number of cells from which work that scans every cell is done less often."""
SCAN_INTERVAL_FACTOR = 20
"""Minimum time between such scans, as a multiple of the time that one takes."""
BUDGET_TOLERANCE = 0.2
"""Ratio to the budget below which exceeding it is not worth a warning."""
REWRITE_S = 1.0
"""Minimum seconds between two rewrites while a point is measured; each takes a fraction of a millisecond."""
MAX_RESULTS = 12
MAX_CELLS = 40
MAX_MACHINES = 40
MAX_DEVICES = 4
MAX_TEXT = 500
MAX_LISTED = 3
"""Maximum number of names listed in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointTime:
    """The time that a measured point took in a launch."""

    track: str
    """Run id."""
    model: str
    label: str
    work: float
    seconds: float
    calls: int
    """Warm-up and timed calls."""
    calls_s: float
    """Seconds of these calls."""

    def scaled_s(self, point: Point, settings: Settings) -> float:
        """Estimated seconds of another point: the time of a call is proportional to the work, within the settings'
        limits."""
        calls_s = self.calls_s * work(point) / self.work
        if settings.fixed_iterations is None:
            longest_s = settings.warmup_max_time_s + settings.max_time_s
            calls_s = max(min(calls_s, longest_s), (1 + settings.min_calls) * self.call_s(point))
        return calls_s + self.overhead_s(point)

    def call_s(self, point: Point) -> float:
        """Estimated seconds of a call at another point."""
        return self.calls_s / self.calls * work(point) / self.work

    def overhead_s(self, point: Point) -> float:
        """Estimated seconds of another point apart from its calls."""
        overhead = Overhead.of(self.seconds - self.calls_s, self.calls_s / self.calls)
        return overhead.seconds(self.call_s(point))


class Progress(Observer):
    """Shows the finished points, the current cell, its live median with its interval, and the time left; and keeps the
    live status, if there is one."""

    status: LiveStatus | None = None

    def __init__(
        self, tracks: Sequence[Track], stream: TextIO | None = None, *, quiet: bool = False, is_turn: bool = False
    ) -> None:
        self.tracks = list(tracks)
        self._is_turn = is_turn
        self._display = Display(stream, quiet=quiet)
        self._point_began_s = time.monotonic()
        self._timed: list[PointTime] = []
        self._launched_s = self._point_began_s
        """When the current worker started."""
        self._is_loading = False
        self._loads_s: list[float] = []
        self._machines = ""
        """The table of a cluster, which is shown instead of the current point."""
        self.left_s: float | None = None
        """Estimated seconds left; None before the first point is finished, or the first after a wait."""
        self._next_estimate_s = 0.0
        self._began_s = self._point_began_s
        """When the sweep began; later by as long as it waited for its device."""
        self._waiting_since_s: float | None = None
        self._measured_s = 0.0
        """Seconds of all timed calls, excluding warm-ups."""
        self._warm_up_began_s: float | None = None
        """When the first warm-up call of the current point began; None after the next one."""
        self._has_warned = self._has_summarised = False

    def preparing(self, track: Track, what: str) -> None:
        self._end_wait()
        text = f"preparing {cell_name(track.plan.cell)}: {what}"
        self._show(text)
        self._now(text)

    def launch(self, track: Track, launch: int) -> None:
        self._end_wait()
        self._launched_s, self._is_loading = time.monotonic(), True
        text = f"loading {cell_name(track.plan.cell)}, launch {launch + 1}"
        if not self._display.is_drawn and not launch and 1 < len(self.tracks) < MANY_CELLS:
            self._display.say(f"{self._finished()} of {self._total()} done  {text}")  # it may take minutes
        self._show(f"{text}/{track.plan.settings.launches}")
        self._now(f"{text} of {track.plan.settings.launches}")

    def live(self, track: Track, launch: int, point: Point, live: Live | None) -> None:
        self._end_wait()
        if live is None:
            self._point_began_s = time.monotonic()
            if self._is_loading:
                self._loads_s.append(self._point_began_s - self._launched_s)
                self._is_loading = False
        text = "  ".join([cell_name(track.plan.cell), point.label, _launch(track, launch)])
        if live is not None:  # its numbers are in a second line
            self._estimate_from_warm_up(track, point, live)
            text += f"\n{live.phase} {live.calls} calls"
            text += "" if live.median_ms is None else f"  median {number(live.median_ms)} ms"
            if live.median_ms is not None and live.low_ms is not None and live.high_ms is not None:
                text += f" [{number(live.low_ms)}, {number(live.high_ms)}]"
        self._show(text, immediate=live is None)
        if self.status is not None and (live is None or self.status.is_due):
            names = () if live is None else ("phase", "calls", "median_ms", "low_ms", "high_ms")
            current = CurrentPoint(
                cell=cell_name(track.plan.cell),
                point=point.label,
                launch=launch + 1,
                launches=track.plan.settings.launches,
                **{"phase": "", **{name: getattr(live, name) for name in names}},
            )
            self._now("measuring", current)

    def measured(self, track: Track, measurement: Measurement) -> None:
        began_s, cell = time.monotonic(), track.plan.cell
        seconds = began_s - self._point_began_s
        calls, calls_s = timed_calls(measurement)
        wall = [row for row in measurement.samples if row.metric == LATENCY_WALL and row.phase == "measure"]
        if calls:
            timed = PointTime(
                track=track.plan.run_id,
                model=cell.workload.model_id,
                label=measurement.point.label,
                work=work(measurement.point),
                seconds=seconds,
                calls=calls,
                calls_s=min(seconds, calls_s),
            )
            self._timed.append(timed)
            self._measured_s += min(timed.calls_s, sum(sum(row.values) * row.inner_loops for row in wall) / 1e3)
        if began_s >= self._next_estimate_s or self._finished() == self._total():
            load_s = statistics.fmean(self._loads_s) if self._loads_s else 0.0
            left_s = (load_s * other.launches_left + self._points_left_s(other) for other in self.tracks)
            self.left_s = sum(left_s) if self._timed and not self._is_turn else None
            self._next_estimate_s = next_scan_s(began_s, len(self.tracks))
        if self._timed and track.open_points():
            self._warn_if_over_budget(track, self._points_left_s(track))
        self._show(f"{cell_name(cell)}  {measurement.point.label}")
        name = cell_name(cell) if len(self.tracks) > 1 else cell.workload.model_id
        head = f"{self._finished()} of {self._total()} done"
        parts = [head, name, measurement.point.label, _launch(track, measurement.launch)]
        values = [value for row in wall for value in row.values]
        count = sum(len(row.values) * row.inner_loops for row in wall)  # short calls are timed in blocks
        doubts = [doubt.kind for doubt in measurement.doubts if doubt.severity != "info"]
        if measurement.status == "ok":
            median = f"{counted(count, 'call')}  median {number(statistics.median(values))} ms" if values else ""
            left = f"about {duration(self.left_s)} left" if self.left_s else ""
            parts += filter(None, (median or "no samples", f"[{', '.join(doubts)}]" if doubts else "", left))
        else:
            parts.append(f"{measurement.status.replace('_', ' ')}: {measurement.error}")
        self._display.say("  ".join(parts))
        if self.status is not None:
            use = measurement.extra.get("usage")
            used = use.items() if isinstance(use, dict) else ()
            result = PointResult(
                cell=cell_name(cell),
                point=measurement.point.label,
                launch=measurement.launch + 1,
                status=measurement.status,
                at_s=time.time(),
                calls=count,
                median_ms=statistics.median(values) if values else None,
                error=None if measurement.error is None else cut_to(measurement.error, MAX_TEXT),
                doubts=tuple(dict.fromkeys(doubts)),
                use={name: float(value) for name, value in used if isinstance(value, int | float)},
            )
            self.status.results.appendleft(result)
            self.status.failed[track.plan.run_id] += has_failed(measurement)
            self._now("measuring" if any(track.open_points() for track in self.tracks) else "storing the results")

    def added(self, track: Track) -> None:
        self.tracks.append(track)

    def waiting(self, message: str) -> None:
        self._display.say(message)
        self.left_s, self._next_estimate_s = None, 0.0  # how long it waits is not known
        if self._waiting_since_s is None and not self._is_cluster:  # of which other machines go on
            self._waiting_since_s = time.monotonic()
        self._now(message)

    def _end_wait(self) -> None:
        if self._waiting_since_s is not None:
            self._began_s += time.monotonic() - self._waiting_since_s
            self._waiting_since_s = None

    @property
    def _is_cluster(self) -> bool:
        return any(track.plan.cluster is not None for track in self.tracks)

    def machines(self, machines: Sequence[MachineProgress]) -> None:
        if self._display.is_drawn:
            self._machines = machines_text(machines)
            self._show("", immediate=False)
        if self.status is not None:
            self.status.machines = tuple(machines)[:MAX_MACHINES]
            if self.status.is_due:
                self.status.write()

    def close(self) -> None:
        """Clear the line; after the last point, print the share of timed calls in the total time."""
        if self._measured_s and not self._has_summarised and self._finished() == self._total():
            self._has_summarised = True
            wall_s = max(0.0, time.monotonic() - self._began_s)
            share = f", {self._measured_s / wall_s:.0%} of it timed calls" if wall_s > 0 else ""
            if self._is_cluster:
                share = ""  # several machines measured at the same time
            points, times = len({(timed.track, timed.label) for timed in self._timed}), len(self._timed)
            each = f", measured {times} times," if times > points else ""
            self._display.say(f"{counted(points, 'point')}{each} in {duration(wall_s)}{share}")
        self._display.close()

    def _estimate_from_warm_up(self, track: Track, point: Point, live: Live) -> None:
        """Estimate the time left from a single warm-up call of the first point, if it is too slow for more calls."""
        if self._timed or track.plan.settings.fixed_warmup_iterations is not None:
            return
        if live.phase == "warmup":
            self._warm_up_began_s = None if live.calls else time.monotonic()
        elif live.phase == "measure" and self._warm_up_began_s is not None:
            call_s, self._warm_up_began_s = time.monotonic() - self._warm_up_began_s, None
            relative_work = sum(map(work, track.open_points())) / work(point)
            if self._warn_if_over_budget(track, (1 + UNTIMED_CALLS) * call_s * relative_work):
                self.left_s = None if self._is_turn else (1 + UNTIMED_CALLS) * call_s * relative_work

    def _warn_if_over_budget(self, track: Track, left_s: float) -> bool:
        """Warn once if even the minimum of calls exceeds the budget."""
        settings = track.plan.settings
        if settings.budget_s is None or settings.fixed_iterations is not None or self._has_warned:
            return False
        launches = len(track.open_launches())
        room_s = launches * settings.budget_s - (time.monotonic() - self._launched_s)
        self._has_warned = left_s > max(0.0, room_s) + BUDGET_TOLERANCE * launches * settings.budget_s
        if self._has_warned:
            points = track.open_points()
            smaller = " (--batch-sizes 1)" if max(point.batch_size for point in points) > 1 else ""
            self._display.say(
                f"slow: what remains, {counted(len(points), 'point')}, takes about {duration(left_s)} even with the "
                f"minimum of calls, and {duration(max(0.0, room_s))} are left of the time budget of "
                f"{round(settings.budget_s, 1):g} s: measure fewer or smaller points{smaller}; those that do not fit "
                "twice the budget are skipped"
            )
        return self._has_warned

    def _now(self, activity: str, current: CurrentPoint | None = None) -> None:
        if self.status is not None:
            self.status.activity, self.status.current = activity, current
            self.status.write()

    def _show(self, text: str, *, immediate: bool = True) -> None:
        counts: dict[str, Any] = {"done": self._finished(), "total": self._total(), "unit": "points"}
        self._display.show(self._machines or text, **counts, left_s=self.left_s, immediate=immediate)

    def _finished(self) -> int:
        return sum(track.points_finished for track in self.tracks)

    def _total(self) -> int:
        return sum(track.points_total for track in self.tracks)

    def _points_left_s(self, track: Track) -> float:
        """The estimated time of a track's open points, from earlier launches or scaled from the point of its model with
        the nearest work. The work of another model says nothing: without a point of its own, each takes the mean time.
        """
        similar = [timed for timed in self._timed if timed.track == track.plan.run_id]
        similar = similar or [timed for timed in self._timed if timed.model == track.plan.cell.workload.model_id]
        settings, left_s, call_s, overhead_s = track.plan.settings, 0.0, 0.0, 0.0
        if not similar:
            return statistics.fmean(timed.seconds for timed in self._timed) * len(track.open_points())
        for point in track.open_points():
            same = [timed.seconds for timed in similar if timed.label == point.label]
            nearest = min(similar, key=lambda timed: abs(math.log(timed.work / work(point))))
            left_s += statistics.fmean(same) if same else nearest.scaled_s(point, settings)
            call_s += nearest.call_s(point)
            overhead_s += nearest.overhead_s(point)
        if settings.budget_s is None or settings.fixed_iterations is not None or not call_s:
            return left_s
        budget_s = len(track.open_launches()) * settings.budget_s - (time.monotonic() - self._launched_s)
        if MIN_POINT_CALLS * call_s + overhead_s <= budget_s:
            return min(left_s, budget_s)
        return min(left_s, overhead_s + fewest_calls(budget_s - overhead_s, call_s) * call_s)


def next_scan_s(began_s: float, cells: int) -> float:
    """When work that scans every cell of a sweep, and has just ended, may be done again (clock `time.monotonic`).

    A sweep of thousands of cells would otherwise scan all of them after each of thousands of points.
    """
    now_s = time.monotonic()
    return now_s + (SCAN_INTERVAL_FACTOR * (now_s - began_s) if cells > MANY_CELLS else 0.0)


def cell_name(cell: Cell) -> str:
    """A cell in one line: "gpt2 on cuda:0 (eager, float16)"."""
    threads = "" if cell.num_threads is None else f", {counted(cell.num_threads, 'thread')}"
    return f"{cell.subject} on {cell.device.selector} ({cell.runtime}, {cell.precision}{threads})"


def machines_text(machines: Sequence[MachineProgress]) -> str:
    """The table of the devices of a cluster; empty without one."""
    return table_text(table_of(MACHINES, machines)) if machines else ""


def _launch(track: Track, launch: int) -> str:
    return f"launch {launch + 1}/{track.plan.settings.launches}"


@contextmanager
def observed(
    tracks: Sequence[Track], *, quiet: bool, is_turn: bool = False, shown_by: type[Progress] = Progress
) -> Iterator[Observer]:
    """The observer that shows the progress of a sweep: on stderr unless quiet, and in its live status. At the end,
    the status records how the sweep ended, and the tracks are closed. In a turn of a comparison, nothing is said of the
    time left, of which the other side takes a part."""
    with ExitStack() as closed:
        for track in reversed(tracks):
            closed.callback(track.close)
        progress = shown_by(tracks, quiet=quiet, is_turn=is_turn)
        closed.callback(progress.close)
        try:
            progress.status = LiveStatus(progress)
            progress.status.write()
        except StorageError as error:
            progress.waiting(f"no live status: {error}")
        state, how = "finished", "finished"
        try:
            yield progress
        except BaseException as error:
            state = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
            how = state if state == "interrupted" else f"ended by {type(error).__name__}"
            how = str(error) if isinstance(error, BenchhouseError) else how
            raise
        finally:
            if progress.status is not None:
                progress.status.activity, progress.status.current = how, None
                progress.status.write(state)


class LiveStatus:
    """The file in which other commands watch a sweep."""

    def __init__(self, progress: Progress) -> None:
        """Raises StorageError."""
        self._progress, tracks = progress, progress.tracks
        self._started_s = time.time()
        self._written_s = self._next_write_s = 0.0
        self.activity = "starting"
        self.current: CurrentPoint | None = None
        self.machines: tuple[MachineProgress, ...] = ()
        self.failed = Counter({track.plan.run_id: sum(map(has_failed, track.measurements)) for track in tracks})
        self.results: deque[PointResult] = deque(maxlen=MAX_RESULTS)
        self._is_anonymous = any(track.plan.is_anonymous for track in tracks)
        # Devices of other machines are not sampled.
        local_devices = [track.plan.cell.device for track in tracks if track.plan.cluster is None]
        devices = {device.selector: device for device in local_devices}
        folder = tracks[0].folder if tracks else None
        is_saved = folder is not None and FOLDER.fullmatch(folder.name) is None
        constant = {
            "words": cut_to(_sweep_words(tracks), MAX_TEXT),
            "command": list(tracks[0].plan.provenance.command) if tracks else [],
            "folder": str(folder.absolute()) if folder is not None and is_saved else None,
            "devices": to_json(tuple(devices.values())[:MAX_DEVICES]),
        }
        cleaned = redacted(constant, anonymous=self._is_anonymous)
        self._constant_fields = {**cleaned, "owner": to_json(this_process())}
        self._file = StatusFile()

    @property
    def is_due(self) -> bool:
        """Whether it may be rewritten while a point is measured."""
        return time.monotonic() - self._written_s >= REWRITE_S

    def write(self, state: str = "running") -> None:
        """Write the file again, unless it takes too long a share of the time of a running sweep. If that fails, the
        sweep continues without it."""
        began_s = time.monotonic()
        if state == "running" and began_s < self._next_write_s:
            return
        self._written_s = began_s
        cells = [
            CellProgress(
                name=cell_name(track.plan.cell),
                total=track.points_total,
                done=track.points_finished,
                failed=self.failed[track.plan.run_id],
            )
            for track in self._progress.tracks
        ]
        changing = {
            "activity": cut_to(self.activity, MAX_TEXT),
            "current": to_json(self.current),
            "cells": to_json(cells[:MAX_CELLS]),
            "machines": to_json(self.machines),
            "results": to_json(tuple(self.results)),
        }
        try:
            self._file.write(
                {
                    **self._constant_fields,
                    **redacted(changing, anonymous=self._is_anonymous),
                    "state": state,
                    "started_s": self._started_s,
                    "updated_s": time.time(),
                    "total": sum(cell.total for cell in cells),
                    "done": sum(cell.done for cell in cells),
                    "failed": sum(cell.failed for cell in cells),
                    "left_s": self._progress.left_s if state == "running" else None,
                    "cells_left_out": max(0, len(cells) - MAX_CELLS),
                }
            )
        except StorageError as error:
            self._progress.status = None
            self._progress.waiting(f"no live status: {error}")
        self._next_write_s = next_scan_s(began_s, len(cells))


def _sweep_words(tracks: Sequence[Track]) -> str:
    """A description of a sweep: "gpt2 on cpu (eager, float32): 8 points in each of 3 launches, 24 in all, profile
    standard"."""
    if not tracks:
        return "nothing"
    cells = [track.plan.cell for track in tracks]
    points = sum(len(track.plan.runnable) for track in tracks)
    first = tracks[0].plan.settings
    total = sum(track.points_total for track in tracks)
    launches = f" in each of {first.launches} launches, {total} in all" if first.launches > 1 else ""
    end = f"{counted(points, 'point')}{launches}, profile {first.profile}"
    if len(cells) == 1:
        return f"{cell_name(cells[0])}: {end}"
    models, devices, runtimes = (
        listed(list(dict.fromkeys(names)), MAX_LISTED)
        for names in (
            [cell.subject for cell in cells],
            [cell.device.selector for cell in cells],
            [cell.runtime for cell in cells],
        )
    )
    return f"{models} on {devices} with {runtimes}: {len(cells)} runs, {end}"
