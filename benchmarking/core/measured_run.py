"""What a stored run was measured with, from its stored fields: enough to measure it again.

The warehouse gives it, the sweep makes a request of it. The stored command line is no part of it: it is never executed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from benchmarking.core.records import Json, Point, Precision, Scalar, WeightsKind

NOT_REPEATABLE = MappingProxyType(
    {
        "module": "a torch module was handed over in Python: call benchmark_model again",
        "bench": "it is a user's own benchmark: run its file again",
        "import": "another tool measured it: run that tool again",
    }
)
"""By source of the model: why no command of ours measures it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """A stored run."""

    run_id: str
    model_id: str
    model_source: str
    task: str
    weights: WeightsKind
    device: str
    """What ran, not what was requested: a device that "auto" picked."""
    runtime: str
    runtime_mode: Mapping[str, Scalar]
    """The runtime's options by name."""
    precision: Precision
    num_threads: int | None
    cpu_list: str | None
    settings: Mapping[str, Json]
    tags: Mapping[str, str]
    origin_format: str | None
    """The format it was imported from; None for a run of ours."""
    hashed_keys: Mapping[str, Json]
    """What the id of its hardware is made of."""
    points: tuple[Point, ...]
    has_skipped_points: bool

    @property
    def why_not_repeatable(self) -> str | None:
        """Why no command measures it again, None where one does."""
        return NOT_REPEATABLE.get("import" if self.origin_format is not None else self.model_source)
