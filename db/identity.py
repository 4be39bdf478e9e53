"""What makes a series: two results with the same `series_id` are the same thing, measured again.

Software versions and the git commit stay out of it: they are what a series tracks. So do the host's name and the
selector of the device, since two equal machines, or two equal devices in one, are comparable.
"""

from __future__ import annotations

from typing import Any

from benchmarking.core.axes import POINT_FIELDS
from benchmarking.records import Json, Point, Run, canonical_hash, to_json

SERIES_HASH_VERSION = 1
"""Raised when `series_keys` changes; the histories then start anew, or are joined in `series_alias`."""
METRIC_DEFINITION = 1
"""Version of what the metrics mean, for runs that do not say it in their settings (`metric_definition`)."""


def series_keys(run: Run, point: Point) -> dict[str, Json]:
    """What the id of the point's series is the hash of."""
    cell, workload = run.cell, run.cell.workload
    keys: dict[str, Any] = {
        "model_id": workload.model_id,
        "model_revision": workload.revision,
        "weights": workload.weights,
        "config_hash": workload.config_hash,
        "architecture_type": workload.family,
        "task": workload.task,
        **{name: getattr(point, name) for name in POINT_FIELDS},
        "axes": to_json(point.axes),
        "runtime": cell.runtime,
        "runtime_mode": to_json(cell.runtime_mode),
        "precision": cell.precision,
        "num_threads": cell.num_threads,
        "hardware_id": run.hardware.hardware_id,
        "metric_definition": metric_definition(run),
    }
    if cell.cpu_list is not None:  # only then, so that the ids of what was measured before are what they were
        keys["cpu_list"] = cell.cpu_list
    if run.origin is not None:
        keys["definition"] = run.origin.definition
    return keys


def series_id(keys: dict[str, Json]) -> str:
    """First 16 hex digits of the SHA-256 of the keys' canonical JSON."""
    return canonical_hash(keys)[:16]


def metric_definition(run: Run) -> int:
    """Version of the metrics' definitions the run was measured by."""
    stated = run.settings.get("metric_definition")
    return stated if isinstance(stated, int) else METRIC_DEFINITION
