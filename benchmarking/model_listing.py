"""The models there are: in the catalog, in the hub's cache, and as builds. `--list-models`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarking.builds.contents import KeptBuild, read_contents
from benchmarking.builds.sizes import size_text
from benchmarking.builds.store import BuildStore
from benchmarking.core.tables import Table, table_text
from benchmarking.core.terminal import PLAIN, Page
from benchmarking.records import Json
from benchmarking.workloads import _listing as catalog
from benchmarking.workloads._hub_cache import CachedModel, cached_models, hub_cache_dir

NOT_MODELS = ("reference",)
"""Kinds of builds that hold outputs, not models."""
CACHED_HEADINGS = ("model", "on disk", "safetensors", "commit")
EXPORTED_HEADINGS = ("model", "task", "format", "precision", "size", "digest")
SHORT = 12
"""Digits of a commit or digest that are shown."""


def listing_json() -> dict[str, Json]:
    """`catalog` (as the catalog's own listing gives it), `cached` and `exported`: a list of objects each."""
    return {
        "catalog": list(catalog.listing_json()),
        "cached": [_cached_row(model) for model in cached_models(hub_cache_dir())],
        "exported": [_exported_row(kept) for kept in _exported()],
    }


def listing_text(page: Page = PLAIN) -> str:
    """The three as tables."""
    cached, exported = cached_models(hub_cache_dir()), _exported()
    return "\n".join(
        [
            catalog.listing_text(page),
            "",
            f"Cached from the hub in {hub_cache_dir()}:",
            _section(CACHED_HEADINGS, [_cached_cells(model) for model in cached], (1, 2), page),
            "",
            f"Exported to {BuildStore().root}:",
            _section(EXPORTED_HEADINGS, [_exported_cells(kept) for kept in exported], (4,), page),
        ]
    )


def _section(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]], numbers: tuple[int, ...], page: Page) -> str:
    return table_text(Table(headings=headings, rows=tuple(rows), numbers=numbers), page) if rows else "none"


def _exported() -> list[KeptBuild]:
    """The builds that hold models, by model."""
    builds = [one for one in read_contents(BuildStore().root).builds if one.build.kind not in NOT_MODELS]
    return sorted(builds, key=lambda one: (one.model_id or "", one.build.kind, one.precision or ""))


def _cached_row(model: CachedModel) -> dict[str, Any]:
    return {
        "name": model.model_id,
        "size_bytes": model.size_bytes,
        "weights_bytes": model.weights_bytes,
        "revisions": list(model.revisions),
        "folder": str(model.folder),
    }


def _cached_cells(model: CachedModel) -> tuple[str, ...]:
    weights = size_text(model.weights_bytes) if model.weights_bytes else "none"
    return (model.model_id, size_text(model.size_bytes), weights, model.revisions[0][:SHORT])


def _exported_row(kept: KeptBuild) -> dict[str, Any]:
    return {
        "name": kept.model_id,
        "task": kept.build.parts.get("task"),
        "format": kept.build.kind,
        "precision": kept.precision,
        "size_bytes": kept.size_bytes,
        "digest": kept.build.digest,
        "made_at": kept.build.made_at,
        "folder": str(kept.folder),
    }


def _exported_cells(kept: KeptBuild) -> tuple[str, ...]:
    task = str(kept.build.parts.get("task") or "-")
    what = (kept.model_id or "-", task, kept.build.kind, kept.precision or "-")
    return (*what, size_text(kept.size_bytes), kept.build.digest[:SHORT])
