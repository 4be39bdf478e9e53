"""Hand-made rows, as returned by the query of a chart."""

from __future__ import annotations

from datetime import datetime
from typing import Any


def row(**columns: Any) -> dict[str, Any]:
    """A row as returned by the query of a chart."""
    base = {
        "model_id": "m",
        "device": "cpu",
        "device_name": "CPU",
        "simulated": False,
        "runtime": "eager",
        "runtime_mode": '{"attention":"sdpa"}',
        "precision": "float32",
        "batch_size": 4,
        "sequence_length": 128,
        "new_tokens": None,
        "concurrency": 1,
        "axes": "{}",
        "status": "ok",
        "validity": "valid",
        "doubts": [],
        "error": None,
        "launches": 3,
        "weights": "random",
        "ci_scope": "between",
        "low": 1.0,
        "started_at": datetime(2026, 1, 2),
    }
    return {**base, **columns}
