"""Exports of the smallest models, shared by all tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarking.builds.store import BuildStore
from benchmarking.core.records import Cell, Device, Point, Precision
from benchmarking.graphs.bundle import Bundle, read_bundle
from benchmarking.graphs.exported_model import bundle_key, ensure_bundle
from benchmarking.workloads.support.families import plugin_of
from benchmarking.workloads.support.resolve import resolve

CPU = Device(type="cpu", selector="cpu", found=True, name="Test CPU", precisions=("float32",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A bundle in the tests' store, and its source."""

    cell: Cell
    point: Point
    store: BuildStore
    folder: Path
    bundle: Bundle
    facts: dict[str, Any]


@pytest.fixture(scope="session")
def exported(build_cache: Path) -> Callable[..., Exported]:
    """A function that exports a tiny model or finds its earlier export."""

    def make(model_id: str, precision: Precision = "float32") -> Exported:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HF_HUB_OFFLINE", "1")
            cell = cell_of(model_id, precision)
        axes = {name: values[0] for name, values in plugin_of(cell.workload).axes(cell.workload).items()}
        point = Point(
            batch_size=1,
            sequence_length=8 if "sequence_length" in axes else None,
            new_tokens=3 if "new_tokens" in axes else None,
        )
        store = BuildStore(build_cache)
        facts = dict(ensure_bundle(cell, (point,), store, "if_needed"))
        folder = store.folder(bundle_key(cell, point))
        return Exported(cell=cell, point=point, store=store, folder=folder, bundle=read_bundle(folder), facts=facts)

    return make


def cell_of(model_id: str, precision: Precision = "float32") -> Cell:
    return Cell(
        workload=resolve(model_id, weights="random"),
        device=CPU,
        requested_device="cpu",
        runtime="onnxruntime",
        precision=precision,
    )
