"""Reference outputs for comparison with other runtimes: those of the default runtime at float32.

They include the number of floating-point operations of a call, for runtimes that cannot count their own, since the same
model needs the same operations for the same inputs. Bytes moved are not taken from here, since they differ between
runtimes.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path

from benchmarking.builds.store import BuildKey, BuildStore, model_parts
from benchmarking.core import plugins
from benchmarking.core.contracts import Session
from benchmarking.core.device_contracts import DeviceHandle
from benchmarking.core.errors import BenchhouseError, OutOfMemoryError, UnsupportedError, always_after, is_device_lost
from benchmarking.core.lazy_modules import np
from benchmarking.core.metrics import ns_to_s
from benchmarking.core.plugins import default_runtime, has, processor, version_of
from benchmarking.core.quality import QualitySettings
from benchmarking.core.records import FAILED, Cell, Json, Point, Rebuild, StandIn
from benchmarking.devices.support.handles import parts
from benchmarking.sweep.run.quality_pass import LOGITS, kind_of, quality_point
from benchmarking.workloads.support.exported_folder import torch_workload
from benchmarking.workloads.support.families import is_given, plugin_of
from benchmarking.workloads.support.footprint import Fit, parameter_count
from benchmarking.workloads.support.given_modules import inputs_digest
from benchmarking.workloads.support.quality_inputs import text_windows

FILE = "outputs.npz"
KIND = "reference"
INPUTS_VERSION = 2
"""Incremented when a seed gives other inputs or weights than before, so that older references are not used."""
MAX_S = 120.0
"""Longest estimated time of a reference's call: a slower one would take longer than measuring the point."""
LEAST_FLOPS = 5e12
"""Work of a call below which its time is not estimated: half a minute on two cores, a second on a server."""
SMALL_SEQUENCE, SMALL_NEW_TOKENS = 128, 8
"""Limits of a smaller point: enough tokens that a processor is limited by its arithmetic, as at the point itself."""


def is_reference(cell: Cell) -> bool:
    if cell.runtime != _reference_runtime(cell) or cell.precision != "float32":
        return False
    if not _computes_references(cell):
        return False
    default = plugin_of(cell.workload).default_attention(cell.workload.config)
    if cell.runtime_mode.get("attention", default) != default:
        return False
    # Non-default settings (a memory format) run other code, whose output should be compared.
    return set(cell.runtime_mode) <= set(reference_cell(cell).runtime_mode)


def needs_reference(cell: Cell) -> bool:
    """Whether the outputs of a cell are compared with a reference."""
    return plugins.runtime(cell.runtime).is_compared and has_reference(cell) and not is_reference(cell)


def has_reference(cell: Cell) -> bool:
    """Whether there is a torch model to compare with. A file has none, except an export of seeded weights."""
    return torch_workload(cell.workload) is not None


def _reference_runtime(cell: Cell) -> str:
    return plugins.runtime(cell.runtime).reference or default_runtime()


def _computes_references(cell: Cell) -> bool:
    """Whether the reference is computed on the cell's device: the CPU, or one that is not hardware. An accelerator's
    own float32 result would only be compared with itself."""
    device = parts(cell.device)[0]
    is_hardware = has(device.type, lambda kind: kind.is_hardware)
    return len(parts(cell.device)) == 1 and (device.type == processor().name or not is_hardware)


def reference_cell(cell: Cell) -> Cell:
    """The float32 cell of the reference runtime, on the CPU."""
    name = _reference_runtime(cell)
    reference = plugins.runtime(name)
    device = parts(cell.device)[0]
    workload = torch_workload(cell.workload) or cell.workload
    if not _computes_references(cell) or reference.supports(device, workload, "float32") is not None:
        (device,) = processor().probe()
    return dataclasses.replace(
        cell,
        workload=workload,
        device=device,
        requested_device=device.selector,
        runtime=name,
        runtime_mode=reference.mode(device, workload, {}),
        precision="float32",
        num_threads=None,
    )


def reference_key(cell: Cell, point: Point) -> BuildKey:
    """Everything that the outputs of a reference depend on. `cell` is the reference's own; concurrency has no part in
    it."""
    parts: dict[str, Json] = {
        "point": dataclasses.replace(point, concurrency=1).label,
        "inputs_version": INPUTS_VERSION,
        **({"inputs": inputs_digest(cell.workload, point)} if is_given(cell.workload) else {}),
    }
    return _key(cell, parts)


def _key(cell: Cell, parts: Mapping[str, Json]) -> BuildKey:
    every: dict[str, Json] = {
        **model_parts(cell.workload),
        "device": cell.device.selector,
        "mode": dict(cell.runtime_mode),
        "versions": {name: version_of(name) for name in ("torch", "transformers")},
    }
    return BuildKey(kind=KIND, parts={**every, **parts})


def load_reference(store: BuildStore, digest: str) -> dict[str, np.ndarray]:
    """The arrays of a reference output by name. Raises OSError if it was deleted, ValueError if it is damaged."""
    with np.load(store.root / KIND / digest / FILE, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _tokens(point: Point) -> int:
    """The tokens of a call; its items for a model without tokens. A call's work is about proportional to them."""
    return point.batch_size * ((point.sequence_length or 1) + (point.new_tokens or 0))


class ReferenceMaker:
    """Builds the missing references of a cell, loading the model once."""

    def __init__(
        self,
        cell: Cell,
        store: BuildStore,
        rebuild: Rebuild = "if_needed",
        timeout_s: float | None = None,
        own_s: float | None = None,
    ) -> None:
        """`timeout_s` is the time limit of a reference; half of it is for loading the model. `own_s`: a point has its
        own reference only if that takes no longer."""
        self._cell = reference_cell(cell)
        self._store = store
        self._rebuild = rebuild
        limits_s = (MAX_S, own_s, None if timeout_s is None else timeout_s / 2)
        self._limit_s = min(value for value in limits_s if value is not None)
        self._session: Session | None = None
        self._handle: DeviceHandle | None = None

    def stand_in(self, point: Point) -> StandIn | None:
        """The smaller point whose reference stands for a point's own, where that would exceed the memory or, as the
        time of the smaller one shows, the time limit; None where the point's own exists or can be made. Raises what
        `digest` raises."""
        small = dataclasses.replace(
            point,
            batch_size=1,
            concurrency=1,
            sequence_length=point.sequence_length and min(point.sequence_length, SMALL_SEQUENCE),
            new_tokens=point.new_tokens and min(point.new_tokens, SMALL_NEW_TOKENS),
        )
        if small == dataclasses.replace(point, concurrency=1) or is_given(self._cell.workload):
            return None
        if self._rebuild != "always" and self._store.find(reference_key(self._cell, point)) is not None:
            return None
        if (why_not := self._fit_here.why_not(point)) is not None:
            is_of_use = self._fit_here.why_not(small) is None
            return StandIn(point=small, why=f"it does not fit into memory: {why_not}") if is_of_use else None
        if 2 * (parameter_count(self._cell.workload) or 0) * _tokens(point) < LEAST_FLOPS:
            return None
        build = self._store.find_digest(KIND, self.digest(small))
        small_s = None if build is None else build.facts.get("call_s")
        if not isinstance(small_s, int | float):  # a reference of an earlier version
            return None
        estimate_s = small_s * _tokens(point) / _tokens(small)
        if estimate_s <= self._limit_s:
            return None
        place, limit = self._cell.device.selector, f"{self._limit_s:.3g} s"
        return StandIn(point=small, why=f"it would take about {estimate_s:.0f} s on {place}, limited to {limit}")

    @cached_property
    def _fit_here(self) -> Fit:
        """The memory that was free before the model was loaded, into which each point must fit: a system that runs out
        of memory may kill any process."""
        return Fit.of(self._cell)

    def digest(self, point: Point) -> str:
        """The digest of the point's reference, which is built if missing. Raises what the model raises, and
        UnsupportedError if the model does not fit into memory at float32."""
        key = reference_key(self._cell, point)
        build, _ = self._store.get(key, lambda folder: self._make(point, folder), self._rebuild)
        return build.digest

    def quality_digest(self, quality: QualitySettings) -> str:
        """The digest of the reference of the quality, which is made if missing. Raises what the model raises, and
        UnsupportedError if it has none."""
        if kind_of(self._cell.workload) != "text":
            return self.digest(quality_point(self._cell.workload, quality))
        windows = text_windows(self._cell.workload, quality)

        def write_logits(folder: Path) -> Mapping[str, Json]:
            """Of all scored tokens, windows x scored x vocabulary; mapped into memory, since they may exceed it."""
            point = Point(batch_size=1, sequence_length=windows.context, new_tokens=windows.scored)
            operation = self._opened(point).operation(point)
            begin_s, file = time.perf_counter(), None
            with always_after(operation.close):
                for index, window in enumerate(windows.tokens):
                    logits = operation.next_token_logits(window)
                    if file is None:
                        shape = (len(windows.tokens), *logits.shape)
                        file = np.lib.format.open_memmap(folder / LOGITS, mode="w+", dtype=np.float32, shape=shape)
                    file[index] = logits
            assert file is not None
            file.flush()
            return {"call_s": time.perf_counter() - begin_s, "shapes": {"logits": list(file.shape)}}

        build, _ = self._store.get(_key(self._cell, {"windows": windows.digest}), write_logits, self._rebuild)
        return build.digest

    def has_lost_device(self, error: Exception) -> bool:
        """Whether, after this error, every further call of the process on the device would fail too."""
        return is_device_lost(error) or (self._handle is not None and not self._handle.answers())

    def close(self) -> None:
        if self._session is not None:
            self._session.close()

    def _opened(self, point: Point) -> Session:
        """The session, opened for the first point. Raises UnsupportedError if the model or the point does not fit into
        memory."""
        if (why_not := self._fit_here.why_not(point)) is not None:
            raise UnsupportedError(f"the {self._cell.runtime} float32 reference does not fit into memory: {why_not}")
        if self._session is None:
            runtime = plugins.runtime(self._cell.runtime)
            device = plugins.device_kind(self._cell.device.type)
            runtime.import_libraries()
            self._handle = device.open(self._cell.device)
            self._session = runtime.open(self._cell, self._handle, lambda name: nullcontext(), (point,))
        return self._session

    def _make(self, point: Point, folder: Path) -> Mapping[str, Json]:
        operation = self._opened(point).operation(point)
        assert self._handle is not None
        with always_after(operation.close):
            operation.reset()
            begin_ns = self._handle.now_ns()
            output = operation.run(lambda name: None)
            call: dict[str, Json] = {"call_s": ns_to_s(self._handle.now_ns() - begin_ns)}
            if (problem := operation.problem(output)) is not None:
                raise BenchhouseError(f"the output of the {self._cell.runtime} float32 reference is invalid: {problem}")
            if not (arrays := operation.arrays(output)):
                raise BenchhouseError(f"the {self._cell.runtime} float32 reference has no comparable output")
            np.savez(folder / FILE, allow_pickle=False, **arrays)
            call["shapes"] = {name: list(array.shape) for name, array in arrays.items()}
            try:
                counted = operation.count()
            except OutOfMemoryError as error:
                return {**call, "uncounted": {"flops": f"{FAILED}: {error}"}}
            return {**call, **counted.values, "uncounted": dict(counted.missing)}
