"""A GPU's kernels as recorded by torch's profiler (Kineto, on CUPTI or roctracer).

The profiler records device activities only. They are read from the trace that it exports in Chrome's format, because
its objects in memory differ between versions of torch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarking.core.device_contracts import KernelTracer, Span
from benchmarking.core.errors import BenchhouseError
from benchmarking.core.temporary import temporary_folder

WORK = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
"""Categories of work on the device. Its other events are waits (cuda_sync) and user ranges (gpu_user_annotation), which
include idle time."""
NS_PER_US = 1_000


class TorchTracer(KernelTracer):
    """Traces one GPU; `index` is torch's number for it."""

    def __init__(self, torch: Any, index: int) -> None:
        self._torch = torch
        self._index = index

    def spans(self, work: Callable[[], None]) -> Sequence[Span]:
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            work()
        with temporary_folder("benchhouse-trace") as folder:
            path = folder / "trace.json"
            profiler.export_chrome_trace(str(path))
            spans = device_spans(json.loads(path.read_text()), self._index)
        if not spans:
            raise BenchhouseError(
                "torch's profiler recorded no kernel: its library (CUPTI, roctracer) is missing, or in use by another "
                "profiler"
            )
        return spans


def device_spans(trace: Mapping[str, Any], index: int) -> list[Span]:
    """Times of kernels, copies and fills on the GPU with this number, in ns of the trace's clock.

    Traces hold microseconds with three decimals.
    """
    return [
        (event["ts"] * NS_PER_US, (event["ts"] + event["dur"]) * NS_PER_US)
        for event in trace["traceEvents"]
        if event.get("ph") == "X" and event.get("cat") in WORK and event["args"].get("device") == index
    ]
