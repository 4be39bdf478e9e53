"""A call in a trace of torch's profiler (Kineto), in Chrome's format: time and memory by module and operator.

The trace is read from the file that the profiler exports, because its objects in memory differ between versions of
torch. Every module's forward is a range in it (see `TorchProfiler`). Host events in a call are nested: a range, the
operators in it, the operators in those, the driver calls that launch kernels. Time is exclusive to the innermost event,
so each part of it counts once and the sum is the call. A kernel belongs to where it was launched.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from itertools import pairwise
from typing import Any

from benchmarking.core.errors import FormatError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import NS_PER_US, ns_to_ms
from benchmarking.core.profiles import OUTSIDE
from benchmarking.devices.support.torch_gpu import WORK

CALL = "benchhouse call"
"""Name of the range around a profiled call."""
MARK = "mark: "
"""Prefix of the names of the empty ranges with which a call marks the ends of its phases."""
DRIVER = frozenset({"cuda_runtime", "cuda_driver", "xpu_runtime", "xpu_driver"})
HOST = DRIVER | {"cpu_op", "user_annotation"}
MEMORY_EVENT = "[memory]"
COMPILED_CALL = re.compile(r"^(?:## Call )?(CompiledFxGraph|Torch-Compiled Region)(?: \w+ ##|: \d+/\d+)$")
"""The name of a compiled graph's call contains a hash of its code, which differs between versions of the compiler; a
region's name contains its number among the compilations."""
HOST_MEMORY = 0
"""torch's number for the CPU among its device types."""


@dataclass(slots=True)
class Totals:
    """Time (ns of the trace) and bytes of a module, or of an operator in a module, in one call."""

    calls: int = 0
    inclusive_ns: float = 0.0
    exclusive_ns: float = 0.0
    outside_ns: float = 0.0
    """The part of a module's exclusive time outside operators."""
    device_inclusive_ns: float = 0.0
    device_exclusive_ns: float = 0.0
    allocations: int = 0
    allocated_bytes: int = 0
    peak_bytes: int = 0


@dataclass(slots=True)
class CallTrace:
    duration_ns: float
    modules: defaultdict[str, Totals] = field(default_factory=lambda: defaultdict(Totals))
    operators: defaultdict[tuple[str, str], Totals] = field(default_factory=lambda: defaultdict(Totals))
    """Time and bytes by (module, operator)."""
    phases: list[tuple[str, float]] = field(default_factory=list)
    """The call's marks, with ns since its start."""
    operator_calls: int = 0
    """Number of calls of operators that called no other."""
    kernels: list[tuple[float, float]] = field(default_factory=list)
    """Start and end of everything that ran on an accelerator, in ns since the start of the call."""
    peak_bytes: int = 0
    phase_peaks: list[int] = field(default_factory=list)
    """Peak bytes of each phase, and of the rest after the last phase."""

    @property
    def busy_ns(self) -> float:
        """The time in which an accelerator was busy."""
        return sum(end - begin for begin, end in merge_spans(self.kernels))

    @property
    def largest_gap_ns(self) -> float:
        """The longest time between two kernels."""
        spans = merge_spans(self.kernels)
        return max((after[0] - before[1] for before, after in pairwise(spans)), default=0.0)


@dataclass(slots=True)
class _OpenEvent:
    """A host event that has started."""

    name: str
    module: str
    is_range: bool
    begin: float
    end: float
    exclusive: float
    is_outermost: bool
    """Whether it is not nested in another event with its name."""
    bytes_at_start: int
    """Bytes in use at its start."""
    peak: int
    has_children: bool = False


def read_call(trace: Mapping[str, Any], ranges: Mapping[str, str]) -> CallTrace:
    """The call in a trace; `ranges` maps the names of modules' ranges to their paths. Raises FormatError without
    one."""
    events = trace["traceEvents"]
    root = next((event for event in events if event.get("name") == CALL and event.get("cat") in HOST), None)
    if root is None:
        raise FormatError("the profiler's trace has no call: torch recorded nothing on the host")
    begin, end = _span(root)
    thread = root["pid"], root["tid"]
    host = [event for event in events if event.get("ph") == "X" and event.get("cat") in HOST]
    call_events = [
        event for event in host if (event["pid"], event["tid"]) == thread and begin <= event["ts"] * NS_PER_US < end
    ]
    memory = [event for event in events if event.get("name") == MEMORY_EVENT and (event["pid"], event["tid"]) == thread]
    sweep = _Sweep(ranges, begin, CallTrace(duration_ns=end - begin))
    sweep.run(call_events, [event for event in memory if begin <= event["ts"] * NS_PER_US < end])
    sweep.launch(event for event in events if event.get("ph") == "X" and event.get("cat") in WORK)
    return sweep.call


class _Sweep:
    """Processes the events of a call in order of time, with a stack of open events."""

    def __init__(self, ranges: Mapping[str, str], begin: float, call: CallTrace) -> None:
        self.call = call
        self._ranges = ranges
        self._begin = begin
        self._open: list[_OpenEvent] = []
        self._open_names: set[tuple[str, str]] = set()
        """Module and name of each open event."""
        self._in_use = 0
        self._launches: dict[Any, tuple[_OpenEvent, ...]] = {}
        """The events around a launch, by the correlation id of a driver call."""
        self._operators: dict[Any, tuple[_OpenEvent, ...]] = {}
        """The same by an operator's "External id": not every launch has its driver call in the trace."""

    def run(self, host: Sequence[Mapping[str, Any]], memory: Sequence[Mapping[str, Any]]) -> None:
        # Of two events that start together, the longer one encloses the other.
        steps = [((_span(one)[0], 0, -one["dur"]), one) for one in host]
        steps += [((one["ts"] * NS_PER_US, 1, 0), one) for one in memory]
        self.call.phase_peaks.append(0)
        device = {one["args"].get("Device Type", HOST_MEMORY) for one in memory}
        kind = max(device, default=HOST_MEMORY)
        for (at, *_), one in sorted(steps, key=lambda step: step[0]):
            self._close_before(at)
            if one.get("name") != MEMORY_EVENT:
                self._enter(one)
                continue
            if one["args"].get("Device Type", HOST_MEMORY) != kind:
                continue
            size = int(one["args"]["Bytes"])  # an allocation, or a release if it is negative
            self._in_use += size
            self.call.peak_bytes = max(self.call.peak_bytes, self._in_use)
            self.call.phase_peaks[-1] = max(self.call.phase_peaks[-1], self._in_use)
            if not self._open:
                continue
            self._open[-1].peak = max(self._open[-1].peak, self._in_use)
            if size > 0:
                totals = self.call.modules[self._open[-1].module]
                totals.allocations += 1
                totals.allocated_bytes += size
        self._close_before(float("inf"))

    def launch(self, kernels: Iterable[Mapping[str, Any]]) -> None:
        """Assign the kernels to the modules and operators that launched them."""
        for kernel in kernels:
            arguments = kernel.get("args", {})
            around = self._launches.get(arguments.get("correlation"), self._operators.get(arguments.get("External id")))
            if around is None:
                continue  # from another call, or from the profiler itself
            modules = [one.module for one in around if one.is_range] or [OUTSIDE]
            operators = [(one.module, one.name) for one in around if not one.is_range]  # the innermost last
            begin, end = _span(kernel)
            self.call.kernels.append((begin - self._begin, end - self._begin))
            for module in set(modules):
                self.call.modules[module].device_inclusive_ns += end - begin
            self.call.modules[modules[-1]].device_exclusive_ns += end - begin
            for operator in set(operators):
                self.call.operators[operator].device_inclusive_ns += end - begin
            if operators:
                self.call.operators[operators[-1]].device_exclusive_ns += end - begin

    def _enter(self, event: Mapping[str, Any]) -> None:
        begin, end = _span(event)
        name, parent = COMPILED_CALL.sub(r"\1", str(event["name"])), self._open[-1] if self._open else None
        if name.startswith(MARK):
            self.call.phases.append((name.removeprefix(MARK), begin - self._begin))
            self.call.phase_peaks.append(self._in_use)
            return
        path = OUTSIDE if name == CALL else self._ranges.get(name)
        module = path if path is not None else OUTSIDE if parent is None else parent.module
        key = module if path is not None else name
        if parent is not None:
            parent.exclusive -= min(end, parent.end) - begin
            parent.has_children = True
        self._open.append(
            _OpenEvent(
                name=key,
                module=module,
                is_range=path is not None,
                begin=begin,
                end=end,
                exclusive=end - begin,
                is_outermost=(module, key) not in self._open_names,
                bytes_at_start=self._in_use,
                peak=self._in_use,
            )
        )
        self._open_names.add((module, key))
        arguments = event.get("args", {})
        if event["cat"] in DRIVER:
            self._launches[arguments.get("correlation")] = tuple(self._open[:-1])
        elif "External id" in arguments:
            self._operators[arguments["External id"]] = tuple(self._open)

    def _close_before(self, at: float) -> None:
        """Close events that ended before a time. A child may end a rounding error after its parent."""
        while self._open and self._open[-1].end <= at:
            event = self._open.pop()
            if event.is_outermost:
                self._open_names.remove((event.module, event.name))
            totals = self.call.modules[event.module]
            totals.exclusive_ns += max(event.exclusive, 0.0)
            if self._open:
                self._open[-1].peak = max(self._open[-1].peak, event.peak)
            if event.is_range:
                totals.calls += 1
                totals.outside_ns += max(event.exclusive, 0.0)
                totals.inclusive_ns += event.end - event.begin if event.is_outermost else 0.0
                totals.peak_bytes = max(totals.peak_bytes, event.peak - event.bytes_at_start)
                continue
            self.call.operator_calls += not event.has_children
            operator = self.call.operators[event.module, event.name]
            operator.calls += 1
            operator.exclusive_ns += max(event.exclusive, 0.0)
            operator.inclusive_ns += event.end - event.begin if event.is_outermost else 0.0


def merge_spans(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The spans in order, with overlapping ones merged."""
    merged: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def mean_totals(calls: Sequence[Mapping[Any, Totals]]) -> dict[Any, dict[str, float]]:
    """Means over calls by module or operator; times in ms."""
    sums: dict[Any, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for call in calls:
        for key, totals in call.items():
            for name in Totals.__slots__:
                sums[key][name] += getattr(totals, name) / len(calls)
    return {
        key: {
            name.replace("_ns", "_ms"): ns_to_ms(value) if name.endswith("_ns") else value
            for name, value in values.items()
        }
        for key, values in sums.items()
    }


def _span(event: Mapping[str, Any]) -> tuple[float, float]:
    """Start and end in ns. Traces hold microseconds with three decimals."""
    return event["ts"] * NS_PER_US, (event["ts"] + event.get("dur", 0)) * NS_PER_US
