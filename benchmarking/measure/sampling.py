"""Peaks of values that can only be sampled. Runs in passes of its own, never beside the latency pass."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

Reading = Mapping[str, float]


class PeakSampler:
    """Reads values at an interval on a thread of its own, once at once and once at the end, and keeps the largest."""

    def __init__(self, read: Callable[[], Reading], interval_s: float) -> None:
        self.readings = 0
        self._read = read
        self._interval_s = interval_s
        self._peaks: dict[str, float] = {}
        self._trouble: Exception | None = None
        self._stopping = threading.Event()
        self._sample()
        self._thread = threading.Thread(target=self._sample_until_stopped, daemon=True, name="peak-sampler")
        self._thread.start()

    def stop(self) -> Reading:
        """The largest value of each name. Raises what a reading raised."""
        self._stopping.set()
        self._thread.join()
        if self._trouble is not None:
            raise self._trouble
        self._sample()
        return self._peaks

    def _sample_until_stopped(self) -> None:
        while not self._stopping.wait(self._interval_s):
            try:
                self._sample()
            except Exception as error:  # noqa: BLE001 - carried over to the thread that asks for the peaks
                self._trouble = error
                return

    def _sample(self) -> None:
        for name, value in self._read().items():
            self._peaks[name] = max(value, self._peaks.get(name, value))
        self.readings += 1
