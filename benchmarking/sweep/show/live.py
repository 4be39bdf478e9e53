"""Updates the live status of a running sweep.

Every command shows its progress through `observed`: on stderr and in the status file. Like the progress display, the
file is rewritten only when a worker sends a message, never on a timer, and at most once a second while a point is
measured. Nothing samples the devices for it: how busy they were, and what disturbed a point, comes with
its result.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from benchmarking.core.errors import BenchhouseError, StorageError
from benchmarking.core.live_status import CellProgress, CurrentPoint, MachineProgress, PointResult, StatusFile
from benchmarking.core.provenance import this_process
from benchmarking.core.records import Measurement, Point, to_json
from benchmarking.core.temporary import FOLDER
from benchmarking.core.text import counted, listed
from benchmarking.core.untrusted.redaction import redacted
from benchmarking.measure.context import Live
from benchmarking.measure.timing import LATENCY_WALL
from benchmarking.sweep.run.supervisor import Observer, Track
from benchmarking.sweep.show.progress import Progress, cell_name, next_scan_s

REWRITE_S = 1.0
"""Minimum seconds between two rewrites while a point is measured; each takes a fraction of a millisecond."""
MAX_RESULTS = 12
MAX_CELLS = 40
MAX_MACHINES = 40
MAX_DEVICES = 4
MAX_TEXT = 500
MAX_LISTED = 3
"""Maximum number of names listed in a sentence."""


@contextmanager
def observed(tracks: Sequence[Track], *, quiet: bool) -> Iterator[Observer]:
    """The observer that shows the progress of a sweep: on stderr unless quiet, and in its live status. At the end,
    the status records how the sweep ended."""
    progress = Progress(tracks, quiet=quiet)
    observer = LiveObserver(progress, tracks)
    try:
        yield observer
    except BaseException as error:
        state: Literal["interrupted", "failed"] = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        how = state if state == "interrupted" else f"ended by {type(error).__name__}"
        observer.end(state, str(error) if isinstance(error, BenchhouseError) else how)
        raise
    else:
        observer.end("finished", "finished")
    finally:
        progress.close()


class LiveObserver(Observer):
    """Writes the live status, and forwards all events to the progress display."""

    def __init__(self, progress: Progress, tracks: Sequence[Track]) -> None:
        self._progress = progress
        self._tracks = list(tracks)
        self._started_s = time.time()
        self._written_s = self._next_write_s = 0.0
        self._activity = "starting"
        self._current: CurrentPoint | None = None
        self._machines: tuple[MachineProgress, ...] = ()
        self._failed = {
            track.plan.run_id: sum(measured.status != "ok" for measured in track.measurements) for track in tracks
        }
        self._results: deque[PointResult] = deque(maxlen=MAX_RESULTS)
        self._is_anonymous = any(track.plan.is_anonymous for track in tracks)
        self._constant_fields = {**self._redacted(_constant_fields(tracks)), "owner": to_json(this_process())}
        self._file: StatusFile | None = None
        try:
            self._file = StatusFile()
        except StorageError as error:
            self._disable(error)
        self._write()

    def preparing(self, track: Track, what: str) -> None:
        self._progress.preparing(track, what)
        self._now(f"preparing {cell_name(track.plan.cell)}: {what}")

    def launch(self, track: Track, launch: int) -> None:
        self._progress.launch(track, launch)
        launch_text = f"launch {launch + 1} of {track.plan.settings.launches}"
        self._now(f"loading {cell_name(track.plan.cell)}, {launch_text}")

    def live(self, track: Track, launch: int, point: Point, live: Live | None) -> None:
        self._progress.live(track, launch, point, live)
        if live is not None and time.monotonic() - self._written_s < REWRITE_S:
            return
        self._current = CurrentPoint(
            cell=cell_name(track.plan.cell),
            point=point.label,
            launch=launch + 1,
            launches=track.plan.settings.launches,
            phase="" if live is None else live.phase,
            calls=0 if live is None else live.calls,
            median_ms=None if live is None else live.median_ms,
            low_ms=None if live is None else live.low_ms,
            high_ms=None if live is None else live.high_ms,
        )
        self._activity = "measuring"
        self._write()

    def measured(self, track: Track, measurement: Measurement) -> None:
        self._progress.measured(track, measurement)
        self._failed[track.plan.run_id] += measurement.status != "ok"
        wall = [row for row in measurement.samples if row.metric == LATENCY_WALL and row.phase == "measure"]
        values = [value for samples in wall for value in samples.values]
        use = measurement.extra.get("usage")
        self._results.appendleft(
            PointResult(
                cell=cell_name(track.plan.cell),
                point=measurement.point.label,
                launch=measurement.launch + 1,
                status=measurement.status,
                at_s=time.time(),
                calls=len(values),
                median_ms=statistics.median(values) if values else None,
                error=None if measurement.error is None else measurement.error[:MAX_TEXT],
                doubts=tuple(dict.fromkeys(doubt.kind for doubt in measurement.doubts if doubt.severity != "info")),
                use={name: float(value) for name, value in use.items() if isinstance(value, int | float)}
                if isinstance(use, dict)
                else {},
            )
        )
        self._now("measuring" if any(track.open_points() for track in self._tracks) else "storing the results")

    def added(self, track: Track) -> None:
        self._progress.added(track)
        self._tracks.append(track)
        self._failed[track.plan.run_id] = 0

    def waiting(self, message: str) -> None:
        self._progress.waiting(message)
        self._now(message)

    def machines(self, machines: Sequence[MachineProgress]) -> None:
        self._progress.machines(machines)
        self._machines = tuple(machines)[:MAX_MACHINES]
        if time.monotonic() - self._written_s >= REWRITE_S:
            self._write()

    def close(self) -> None:
        self._progress.close()

    def end(self, state: Literal["finished", "failed", "interrupted"], how: str) -> None:
        """Record how the sweep ended."""
        self._current, self._activity = None, how
        self._write(state)

    def _now(self, activity: str) -> None:
        self._current, self._activity = None, activity
        self._write()

    def _write(self, state: str = "running") -> None:
        began_s = time.monotonic()
        if self._file is None or (state == "running" and began_s < self._next_write_s):
            return
        self._written_s = began_s
        cells = [
            CellProgress(
                name=cell_name(track.plan.cell),
                total=track.points_total,
                done=track.points_finished,
                failed=self._failed[track.plan.run_id],
            )
            for track in self._tracks
        ]
        changing = {
            "activity": self._activity[:MAX_TEXT],
            "current": to_json(self._current),
            "cells": to_json(cells[:MAX_CELLS]),
            "machines": to_json(self._machines),
            "results": to_json(tuple(self._results)),
        }
        try:
            self._file.write(
                {
                    **self._constant_fields,
                    **self._redacted(changing),
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
            self._disable(error)
        self._next_write_s = next_scan_s(began_s, len(self._tracks))

    def _disable(self, error: StorageError) -> None:
        """Continue the sweep without a live status."""
        self._file = None
        self._progress.waiting(f"no live status: {error}")

    def _redacted(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """The content without secrets, and for an anonymous run without names of hosts and users."""
        cleaned: dict[str, Any] = redacted(content, anonymous=self._is_anonymous)
        return cleaned


def _constant_fields(tracks: Sequence[Track]) -> dict[str, Any]:
    """The fields that do not change during the sweep."""
    # Devices of other machines are not sampled.
    local_devices = [track.plan.cell.device for track in tracks if track.plan.cluster is None]
    devices = {device.selector: device for device in local_devices}
    folder = tracks[0].folder if tracks else None
    is_saved = folder is not None and FOLDER.fullmatch(folder.name) is None
    return {
        "words": words(tracks)[:MAX_TEXT],
        "command": list(tracks[0].plan.provenance.command) if tracks else [],
        "folder": str(folder.absolute()) if folder is not None and is_saved else None,
        "devices": to_json(tuple(devices.values())[:MAX_DEVICES]),
    }


def words(tracks: Sequence[Track]) -> str:
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
