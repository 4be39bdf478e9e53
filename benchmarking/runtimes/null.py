"""The null runtime: plays the null device's script instead of running a model. Only this runtime fakes time.

With scripted outputs, the runtime at float32 is its own reference. With a scripted build, a real but empty build is
prepared in the build cache and loaded from there.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarking.builds.store import BuildKey, BuildStore
from benchmarking.core.contracts import Mark, Operation, Runtime, Session, Stage
from benchmarking.core.device_contracts import DeviceHandle
from benchmarking.core.errors import BenchhouseError, OutOfMemoryError
from benchmarking.core.lazy_modules import np
from benchmarking.core.profiles import (
    OTHER,
    OUTSIDE,
    TRACE_FILE,
    Breakdown,
    CallProfiler,
    ModuleTime,
    ModuleTraits,
    classify_modules,
)
from benchmarking.core.records import NOT_APPLICABLE, Cell, Device, Json, Point, Precision, Readings, Rebuild, Workload
from benchmarking.devices.null import ABOUT, Fault, NullHandle, Script, read_script

MS_PER_TOKEN = 0.01
BUILD_BYTES = 1000
REFERENCE_PRECISION: Precision = "float32"
SPREAD = (1.00, 1.02, 0.99, 1.01, 0.98)
"""Factors of the default durations, which vary like real calls."""


class NullOperation(Operation):
    """A call with a scripted duration."""

    def __init__(self, handle: NullHandle, point: Point, fault: Fault | None, precision: Precision) -> None:
        outputs = handle.script.outputs
        tokens = point.batch_size * (point.sequence_length or 1)
        self.items_per_call = point.batch_size
        self.new_tokens = point.new_tokens
        self.tokens_per_call: int | None = tokens if self.new_tokens is None else point.batch_size * self.new_tokens
        self.prompt_tokens_per_call: int | None = None if self.new_tokens is None else tokens
        self._handle = handle
        self._fault = fault
        self._durations_ns = _durations_ns(handle.script, point, precision)
        self._outputs = outputs.get(precision, outputs.get(REFERENCE_PRECISION, {}))
        self._flops = handle.script.flops if precision == REFERENCE_PRECISION else None
        verified = handle.script.verified
        self._verified = verified.get(point.label, verified.get("*", {}))

    def run(self, mark: Mark) -> str:
        self._handle.is_lost |= self._fault == "lost"
        self._handle.synchronize()
        if self._fault is not None and self._fault not in ("nan", "tokens"):
            trigger_fault(self._fault)
        self._handle.compile()
        duration_ns = next(self._durations_ns)
        tokens = (self.new_tokens or 0) - (1 if self._fault == "tokens" else 0)
        if tokens < 1:
            self._handle.spend(duration_ns)
        # Half the duration is for the first token (the prefill), the rest is divided evenly among the others.
        decode_ns = duration_ns // 2 // (tokens - 1) if tokens > 1 else 0
        for number in range(tokens):
            self._handle.spend(decode_ns if number else duration_ns - decode_ns * (tokens - 1))
            mark("token")
        return "NaN" if self._fault == "nan" else "ok"

    def readings(self, output: Any) -> Readings:
        times: list[Json] = [*self._handle.script.tokenize_ms]
        if not times:
            return Readings(missing={"tokenize": f"{NOT_APPLICABLE}: nothing is tokenized"})
        return Readings(values={"tokenize": times})

    def arrays(self, output: Any) -> dict[str, Any]:
        return {
            name: np.array(values, dtype=np.int64 if name == "tokens" else np.float32)
            for name, values in self._outputs.items()
        }

    def verified(self) -> Mapping[str, Json]:
        return self._verified

    def count(self) -> Readings:
        if self._flops is not None:
            return Readings(values={"flops": self._flops}, missing={"bytes_accessed": NOT_APPLICABLE})
        return Readings(missing=dict.fromkeys(("flops", "bytes_accessed"), f"{NOT_APPLICABLE}: nothing is computed"))

    def profiler(self, folder: Path, synchronize: Callable[[], None]) -> CallProfiler | None:
        return NullProfiler(self, self._handle, folder)

    def problem(self, output: Any) -> str | None:
        return "NaN in the output" if output == "NaN" else None


class NullProfiler(CallProfiler):
    """Calls whose time the script divides among modules."""

    def __init__(self, operation: NullOperation, handle: NullHandle, folder: Path) -> None:
        self._operation = operation
        self._handle = handle
        self._folder = folder
        self._kept_ms: list[float] = []

    def run(self, *, is_kept: bool = True) -> int:
        begin_ns = self._handle.now_ns()
        self._operation.run(lambda name: None)
        self._handle.spend(round((self._handle.now_ns() - begin_ns) * self._handle.script.profiler_overhead))
        elapsed_ns = self._handle.now_ns() - begin_ns
        self._kept_ms += [elapsed_ns / 1e6] if is_kept else []
        return elapsed_ns

    def breakdown(self) -> Breakdown:
        mean_ms, shares = fmean(self._kept_ms), self._handle.script.modules
        traits = {path: ModuleTraits(class_name=path.rpartition(".")[2].title()) for path in shares}
        modules = [
            ModuleTime(
                module=path,
                class_name=info.class_name,
                kind=info.kind,
                layer=info.layer,
                calls=1.0,
                inclusive_ms=shares[path] * mean_ms,
                exclusive_ms=shares[path] * mean_ms,
                inclusive_samples_ms=tuple(shares[path] * ms for ms in self._kept_ms),
            )
            for path, info in classify_modules(traits).items()
        ]
        outside_ms = (1 - sum(shares.values())) * mean_ms
        outside = ModuleTime(module=OUTSIDE, kind=OTHER, calls=1.0, inclusive_ms=mean_ms, exclusive_ms=outside_ms)
        event = {"ph": "X", "name": "call", "pid": 1, "tid": 1, "ts": 0, "dur": mean_ms * 1e3}
        (self._folder / TRACE_FILE).write_text(json.dumps({"traceEvents": [event]}))
        return Breakdown(host_ms=mean_ms, modules=(*modules, outside))


class NullSession(Session):
    def __init__(self, handle: NullHandle, faults: Mapping[str, Fault], precision: Precision) -> None:
        self.verified = {"runtime": "null", **handle.script.verified.get("load", {})}
        self._handle = handle
        self._faults = faults
        self._precision = precision

    def operation(self, point: Point) -> Operation:
        is_reference = _is_reference(self._handle.script, self._precision)
        fault = self._faults.get(f"reference {point.label}" if is_reference else point.label)
        return NullOperation(self._handle, point, fault, self._precision)

    def compiles(self) -> int | None:
        return self._handle.compiles if self._handle.script.compiles else None


class NullRuntime(Runtime):
    """Runs any workload, on the null device only."""

    name = "null"
    runs_models = False
    about = ABOUT
    profiler = "null"
    reference = "null"
    prepares = True

    @property
    def is_compared(self) -> bool:
        return bool(read_script().outputs)

    def supports(self, device: Device, workload: Workload, precision: Precision) -> str | None:
        return None if device.type == "null" else f"runtime null runs on device null only, not on {device.selector}"

    def has_build(self, cell: Cell) -> bool:
        script = read_script()
        return bool(script.build) and not _is_reference(script, cell.precision)

    def prepare(self, cell: Cell, points: Sequence[Point], store: BuildStore, rebuild: Rebuild) -> Mapping[str, Json]:
        script = read_script()

        def make(folder: Path) -> Mapping[str, Json]:
            (folder / "build.bin").write_bytes(bytes(BUILD_BYTES))
            if "prepare" in script.faults:
                trigger_fault(script.faults["prepare"])
            return script.build

        build, is_new = store.get(_build_key(cell), make, rebuild)
        facts: dict[str, Json] = {"kind": build.kind, "digest": build.digest, "build_s": build.build_s}
        return {**facts, "size_bytes": build.size_bytes, "is_new": is_new, **build.facts}

    def open(self, cell: Cell, handle: DeviceHandle, stage: Stage, points: Sequence[Point]) -> Session:
        assert isinstance(handle, NullHandle)
        script = handle.script
        needs_build = script.build and not _is_reference(script, cell.precision)
        if needs_build and BuildStore().find(_build_key(cell)) is None:
            raise BenchhouseError("the build is missing from the cache")
        has_faults = not script.fault_launches or _launch() in script.fault_launches
        faults = script.faults if has_faults else {}
        for name, seconds in script.load_s.items():
            with stage(name):
                handle.spend(round(seconds * 1e9))
        if "load" in faults:
            trigger_fault(faults["load"])
        return NullSession(handle, faults, cell.precision)


def _is_reference(script: Script, precision: Precision) -> bool:
    """Whether a session is the reference of comparisons, which does not load a build."""
    return precision == REFERENCE_PRECISION and bool(script.outputs)


def _build_key(cell: Cell) -> BuildKey:
    parts: dict[str, Json] = {"model_id": cell.workload.model_id, "precision": cell.precision}
    return BuildKey(kind="null", parts=parts)


def trigger_fault(fault: Fault) -> None:
    """Cause a scripted fault in this process."""
    if fault == "oom":
        raise OutOfMemoryError("scripted: out of memory")
    if fault == "hang":
        while True:
            time.sleep(60)
    if fault == "exit":
        os._exit(3)
    if fault == "kill":
        os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
    raise RuntimeError("scripted: the call raised")


def _durations_ns(script: Script, point: Point, precision: Precision) -> Iterator[int]:
    labels = (f"{precision} {point.label}", point.label, "*")
    values = next((found for label in labels if (found := script.latency_ms.get(label))), None)
    if not values:
        tokens = point.batch_size * ((point.sequence_length or 1) + (point.new_tokens or 0))
        values = [tokens * MS_PER_TOKEN * factor for factor in SPREAD]
    factors = script.launch_factors or [1.0]
    factor = factors[_launch() % len(factors)]
    return itertools.cycle(round(value * factor * 1e6) for value in values)


def _launch() -> int:
    return int(os.environ.get("BENCHHOUSE_LAUNCH", "0"))


PLUGIN = NullRuntime()
