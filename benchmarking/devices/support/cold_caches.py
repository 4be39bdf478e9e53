"""Empties the CPU's caches between calls.

A thread on each processor that the process may use reads and writes memory, in total twice the size of the last-level
caches. That also empties every private cache, and every part of a last-level cache that only some processors share.
Plain stores to a large block (memset) would bypass the caches and leave them as they are.
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
"""Multiple of the cache size: caches do not evict strictly in order of use."""
UNKNOWN_CACHE_BYTES = 256 * BYTES_PER_MIB
"""Used if the cache size is unknown: more than the last-level cache of any desktop CPU."""
LEAST_SHARE_BYTES = 8 * BYTES_PER_MIB
"""Minimum per processor: more than twice the size of any private cache."""


@contextmanager
def cold_processor_caches(cache_bytes: int | None, processors: Sequence[int]) -> Iterator[ColdCache]:
    """`cache_bytes` is the total size of the last-level caches; `processors` are the numbers of those that calls may
    run on, empty on systems without affinity."""
    wanted = FACTOR * (cache_bytes or UNKNOWN_CACHE_BYTES)
    # More threads than the CPU quota allows would exhaust it, and the timed call would wait for the next period.
    count = max(1, min(len(processors) or os.cpu_count() or 1, math.floor(usable_processors(os.getpid()))))
    share = max(LEAST_SHARE_BYTES, math.ceil(wanted / count))
    flushers = FlushThreads([(share, processors[index] if processors else None) for index in range(count)])
    try:
        yield ColdCache(flush=flushers.flush, size_bytes=share * count)
    finally:
        flushers.end()


class FlushThreads:
    """Threads that sleep until a flush and then walk through their memory."""

    def __init__(self, shares: Sequence[tuple[int, int | None]]) -> None:
        """For each thread: the number of bytes to walk through and the processor to run on."""
        self._start = threading.Barrier(len(shares) + 1)
        self._done = threading.Barrier(len(shares) + 1)
        self._is_over = False
        self._threads = [
            threading.Thread(target=self._work, args=share, daemon=True, name="cold-cache") for share in shares
        ]
        for thread in self._threads:
            thread.start()

    def flush(self) -> None:
        """Walk through all of the memory once; returns when done."""
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
            with suppress(OSError):  # the processor went offline: any other will do
                os.sched_setaffinity(0, {processor})  # this thread only
        memory: Any = np.zeros(size_bytes // 8, dtype=np.uint64)
        while True:
            self._start.wait()
            if self._is_over:
                return
            np.add(memory, 1, out=memory)
            self._done.wait()
