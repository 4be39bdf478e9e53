"""Calls under ONNX Runtime's own profiler: separate sessions on the same graphs, each of which writes a profile.

A profile does not mark calls, only successive runs of a graph; every call makes the same number of runs.
"""

from __future__ import annotations

import bisect
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarking.core.contracts import Operation
from benchmarking.core.errors import BenchhouseError
from benchmarking.core.metrics import ns_to_ms
from benchmarking.core.model_contracts import GraphRunner
from benchmarking.core.profiles import KERNEL_TIME, TRACE_FILE, Breakdown, CallProfiler
from benchmarking.core.records import NOT_SUPPORTED
from benchmarking.devices.support.ort_providers import HOST_MEMORY
from benchmarking.graphs.profiling import NodeTime, Origins, breakdown
from benchmarking.runtimes.support.onnxruntime.kernel_profile import GraphProfile, read_graph_profile
from benchmarking.runtimes.support.onnxruntime.ort_runtime import open_graph
from benchmarking.runtimes.support.onnxruntime.ort_session import GraphSource, IoMode, load_graphs, runner_of

US_PER_MS = 1000
MAX_WRITTEN_BYTES = 2_000_000_000
"""Limit of the weights that ONNX Runtime may write with its graph: a second's work, in a temporary folder."""


class OrtProfiler(CallProfiler):
    """A point's call on profiled sessions."""

    def __init__(
        self, source: GraphSource, io_mode: IoMode, operation_on: Callable[[GraphRunner], Operation], folder: Path
    ) -> None:
        self._source = source
        self._folder = folder
        self._loaded = load_graphs(source, folder)
        self._operation = operation_on(runner_of(self._loaded, io_mode))
        self._calls: list[tuple[int, bool]] = []
        """Nanoseconds of each call, and whether the call is kept."""

    def run(self, *, is_kept: bool = True) -> int:
        self._operation.reset()
        begin_ns = time.perf_counter_ns()
        self._operation.run(lambda name: None)
        elapsed_ns = time.perf_counter_ns() - begin_ns
        self._calls.append((elapsed_ns, is_kept))
        return elapsed_ns

    def breakdown(self) -> Breakdown:
        profile_files = {graph: Path(session.end_profiling()) for graph, session in self._loaded.sessions.items()}
        profiles = {graph: read_graph_profile(path, graph) for graph, path in profile_files.items()}
        calls = nodes_by_call(profiles, len(self._calls))
        kept = [index for index, (_, is_kept) in enumerate(self._calls) if is_kept]
        files = {name: self._source.folder / graph.file for name, graph in self._source.bundle.graphs.items()}
        origins = Origins.of(files)
        if origins.modules:
            origins = origins.optimised(optimised_graphs(self._source, self._folder))
        (self._folder / TRACE_FILE).write_text(json.dumps(merge_traces(profile_files)), encoding="utf-8")
        found = breakdown([calls[index] for index in kept], [ns_to_ms(self._calls[i][0]) for i in kept], origins)
        if (why_not := kernel_time_missing(self._source.settings.provider.memory, profiles)) is not None:
            found = replace(found, missing={**found.missing, KERNEL_TIME: why_not})
        return found


def kernel_time_missing(memory: str | None, profiles: Mapping[str, GraphProfile]) -> str | None:
    """None, or why nodes have no kernel time: on a GPU the profile of most builds has the times of launches only."""
    has_device = any(kernel.device_us is not None for profile in profiles.values() for kernel in profile.kernels)
    if memory in (None, HOST_MEMORY) or has_device:
        return None
    return (
        f"{NOT_SUPPORTED}: this build of ONNX Runtime has the times in which the host launched the kernels, not their "
        "own (a build with --enable_cuda_profiling has both)"
    )


def optimised_graphs(source: GraphSource, folder: Path) -> dict[str, Path]:
    """The graphs that sessions with the same settings run, by name, if ONNX Runtime can write them: not graphs compiled
    by a provider, nor those of a model whose weights would fill the disk."""
    paths: dict[str, Path] = {}
    if (source.bundle.weights_bytes or 0) > MAX_WRITTEN_BYTES:
        return paths
    for name, graph in source.bundle.graphs.items():
        path = folder / f"{name}.optimised.onnx"
        try:
            open_graph(source.folder / graph.file, source.settings, optimised=path)
        except BenchhouseError:
            continue
        path.with_name(f"{path.name}.data").unlink(missing_ok=True)  # the weights are not needed
        paths[name] = path
    return paths


def merge_traces(profiles: Mapping[str, Path]) -> list[Any]:
    """The events of all graphs as a list in Chrome's format, with one process per graph. Each graph has its session's
    clock."""
    events: list[Any] = []
    for number, (graph, path) in enumerate(profiles.items(), start=1):
        events.append({"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": {"name": graph}})
        events += [{**event, "pid": number} for event in json.loads(path.read_text(encoding="utf-8"))]
    return events


def nodes_by_call(profiles: Mapping[str, GraphProfile], calls: int) -> list[list[NodeTime]]:
    """The nodes of each call, over all graphs."""
    by_call: list[list[NodeTime]] = [[] for _ in range(calls)]
    for graph, profile in profiles.items():
        runs_a_call = max(len(profile.runs_us) // calls, 1)
        for kernel in profile.kernels:
            run = max(bisect.bisect_right(profile.runs_us, kernel.began_us) - 1, 0)
            by_call[min(run // runs_a_call, calls - 1)].append(
                NodeTime(
                    graph=graph,
                    name=kernel.node,
                    operator=kernel.operator,
                    placed=kernel.provider,
                    ms=(kernel.duration_us - kernel.inside_us) / US_PER_MS,
                    inside_ms=kernel.inside_us / US_PER_MS,
                    device_ms=None if kernel.device_us is None else sum(kernel.device_us) / US_PER_MS,
                    launches=len(kernel.device_us or ()),
                )
            )
    return by_call
