"""The reference that outputs are compared with: the eager float32 model's, made once a point and kept as a build."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarking import plugins
from benchmarking.builds.store import BuildKey, BuildStore
from benchmarking.devices import DevicePlugin
from benchmarking.devices._several import parts
from benchmarking.records import Cell, Json, Point
from benchmarking.runtimes import Comparable, RuntimePlugin, Session
from benchmarking.workloads._families import plugin_of

if TYPE_CHECKING:
    import numpy as np

FILE = "outputs.npz"
REFERENCE_RUNTIME = "eager"
INPUTS_VERSION = 1
"""Grows when the same seed makes other inputs or weights than before: older references are then not found any more."""


def is_reference(cell: Cell) -> bool:
    """Whether a cell is the reference itself, so that there is nothing to compare it with."""
    if cell.runtime != REFERENCE_RUNTIME or cell.precision != "float32":
        return False
    if len(parts(cell.device)) > 1:
        return False
    default = plugin_of(cell.workload).default_attention(cell.workload.config)
    return cell.runtime_mode.get("attention", default) == default


def needs_reference(cell: Cell) -> bool:
    """Whether the outputs of a cell are to be compared."""
    runtime: RuntimePlugin = plugins.load("benchmarking.runtimes", cell.runtime)
    return runtime.is_compared and not is_reference(cell)


def reference_cell(cell: Cell) -> Cell:
    """The eager float32 cell of the same model: on the same device where eager runs there, else on the CPU."""
    eager: RuntimePlugin = plugins.load("benchmarking.runtimes", REFERENCE_RUNTIME)
    device = parts(cell.device)[0]
    if eager.supports(device, cell.workload, "float32") is not None:
        cpu: DevicePlugin = plugins.load("benchmarking.devices", "cpu")
        (device,) = cpu.probe()
    return dataclasses.replace(
        cell,
        device=device,
        requested_device=device.selector,
        runtime=REFERENCE_RUNTIME,
        runtime_mode=eager.mode(device, cell.workload, {}),
        precision="float32",
        num_threads=None,
    )


def reference_key(cell: Cell, point: Point) -> BuildKey:
    """What a reference's outputs depend on. `cell` is the reference's own."""
    workload = cell.workload
    parts: dict[str, Json] = {
        "model_id": workload.model_id,
        "config_hash": workload.config_hash,
        "task": workload.task,
        "weights": workload.weights,
        "revision": workload.revision,
        "seed": workload.seed,
        "point": point.label,
        "device": cell.device.selector,
        "mode": dict(cell.runtime_mode),
        "inputs_version": INPUTS_VERSION,
        "versions": {name: version(name) for name in ("torch", "transformers")},
    }
    return BuildKey(kind="reference", parts=parts)


def load_reference(store: BuildStore, digest: str) -> dict[str, np.ndarray]:
    """The reference's output by name. Raises OSError when it is not there any more."""
    import numpy as np

    with np.load(store.root / "reference" / digest / FILE, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


class ReferenceMaker:
    """Makes the references of a cell that are not there yet, with one load of the model."""

    def __init__(self, cell: Cell, store: BuildStore) -> None:
        self._cell = reference_cell(cell)
        self._store = store
        self._session: Session | None = None

    def digest(self, point: Point) -> str:
        """The digest of the point's reference, which is made if it is not there. Raises what the model raises."""
        build, _ = self._store.get(reference_key(self._cell, point), lambda folder: self._make(point, folder))
        return build.digest

    def close(self) -> None:
        """Let the model go."""
        if self._session is not None:
            self._session.close()

    def _make(self, point: Point, folder: Path) -> Mapping[str, Json]:
        import numpy as np

        operation = self._opened((point,)).operation(point)
        assert isinstance(operation, Comparable)
        operation.reset()
        output = operation.run(lambda name: None)
        arrays = operation.arrays(output)
        np.savez(folder / FILE, allow_pickle=False, **arrays)
        return {"shapes": {name: list(array.shape) for name, array in arrays.items()}}

    def _opened(self, points: tuple[Point, ...]) -> Session:
        if self._session is None:
            runtime: RuntimePlugin = plugins.load("benchmarking.runtimes", REFERENCE_RUNTIME)
            device: DevicePlugin = plugins.load("benchmarking.devices", self._cell.device.type)
            runtime.import_libraries()
            handle = device.open(self._cell.device)
            self._session = runtime.open(self._cell, handle, lambda name: nullcontext(), points)
        return self._session
