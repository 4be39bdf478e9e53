"""Empties the caches of the machine's processors between calls.

Memory of twice the last level's size is read and written, by a thread on each processor that the process may use: so
the private caches of all of them are emptied too, and every part of a last-level cache that only some of them share.
Plain stores of a large block (memset) would bypass the caches and leave them as they are.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from benchmarking.core.device_contracts import ColdCache
from benchmarking.core.metrics import BYTES_PER_MIB
from benchmarking.devices.support.gauges import usable_processors

FACTOR = 2
"""Of the caches' size: they do not replace strictly in the order of use."""
UNKNOWN_CACHE_BYTES = 256 * BYTES_PER_MIB
"""Where the system does not tell the size: more than the last-level cache of any desktop processor."""
LEAST_SHARE_BYTES = 8 * BYTES_PER_MIB
"""For each processor: more than twice any private cache."""


@contextmanager
def cold_processor_caches(cache_bytes: int | None, processors: Sequence[int]) -> Iterator[ColdCache]:
    """`cache_bytes` is the size of the last-level caches together; `processors` those that calls may run on, by number,
    empty on systems without affinity."""
    wanted = FACTOR * (cache_bytes or UNKNOWN_CACHE_BYTES)
    # More threads than a quota has processors for would use it up, and the timed call would wait for the next period.
    count = max(1, min(len(processors) or os.cpu_count() or 1, math.floor(usable_processors(os.getpid()))))
    share = max(LEAST_SHARE_BYTES, math.ceil(wanted / count))
    crew = Crew([(share, processors[index] if processors else None) for index in range(count)])
    try:
        yield ColdCache(flush=crew.flush, size_bytes=share * count)
    finally:
        crew.end()


class Crew:
    """Threads that sleep until a flush, and then go through their memory."""

    def __init__(self, shares: Sequence[tuple[int, int | None]]) -> None:
        """For each thread the bytes to go through, and the processor to run on."""
        self._start = threading.Barrier(len(shares) + 1)
        self._done = threading.Barrier(len(shares) + 1)
        self._is_over = False
        self._threads = [
            threading.Thread(target=self._work, args=share, daemon=True, name="cold-cache") for share in shares
        ]
        for thread in self._threads:
            thread.start()

    def flush(self) -> None:
        """Go through all of the memory once; returns when it is done."""
        self._start.wait()
        self._done.wait()

    def end(self) -> None:
        """End the threads and release their memory."""
        self._is_over = True
        self._start.wait()
        for thread in self._threads:
            thread.join()

    def _work(self, size_bytes: int, processor: int | None) -> None:
        import numpy as np

        if processor is not None and hasattr(os, "sched_setaffinity"):
            with suppress(OSError):  # taken offline meanwhile: any other does, too
                os.sched_setaffinity(0, {processor})  # of this thread only
        memory: Any = np.zeros(size_bytes // 8, dtype=np.uint64)
        while True:
            self._start.wait()
            if self._is_over:
                return
            np.add(memory, 1, out=memory)
            self._done.wait()
