"""Writes the steps of a sweep to the log, beside whatever shows them to the user."""

from __future__ import annotations

import logging

from benchmarking.measure.live import Live
from benchmarking.records import Measurement, Point
from benchmarking.sweep.progress import Progress, Silence, cell_name
from benchmarking.sweep.track import Track

LOG = logging.getLogger(__name__)


class Recorder:
    """An observer that logs launches and settled points, and hands everything on."""

    def __init__(self, shown: Progress | Silence) -> None:
        self._shown = shown

    def preparing(self, track: Track, what: str) -> None:
        LOG.info("%s: preparing %s", cell_name(track.plan.cell), what)
        self._shown.preparing(track, what)

    def launch(self, track: Track, launch: int) -> None:
        LOG.info("%s: launch %d of %d", cell_name(track.plan.cell), launch + 1, track.plan.settings.launches)
        self._shown.launch(track, launch)

    def live(self, track: Track, launch: int, point: Point, live: Live | None) -> None:
        self._shown.live(track, launch, point, live)

    def measured(self, track: Track, measurement: Measurement) -> None:
        where = f"{cell_name(track.plan.cell)}: {measurement.point.label}, launch {measurement.launch + 1}"
        if measurement.status == "ok":
            LOG.info("%s: ok", where)
        else:
            LOG.error("%s: %s: %s", where, measurement.status.replace("_", " "), measurement.error)
        self._shown.measured(track, measurement)

    def waiting(self, message: str) -> None:
        LOG.info(message)
        self._shown.waiting(message)

    def close(self) -> None:
        """Leave a clean line behind."""
        self._shown.close()
