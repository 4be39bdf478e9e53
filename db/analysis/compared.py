"""What a comparison comes to: frozen records, which go to JSON as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from db.analysis.judging import Judgement


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A result in a comparison."""

    result_id: str
    run_id: str
    started_at: str
    """Of the run, UTC, ISO 8601."""
    results: int
    """How many of the point were selected; the newest that may be compared is this one."""
    launches: int
    """With a value of their own."""
    value: float | None
    """Of the whole result, in the metric's unit."""
    validity: str | None
    doubts: tuple[str, ...]
    """Kinds, those that are only good to know left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A point on both sides, and what is to be said of it."""

    point: str
    """Label of the point; of both, where they differ."""
    subject: Mapping[str, tuple[str | None, str | None]]
    """Model, device, runtime, ... of both sides."""
    differs: Mapping[str, tuple[object, object]]
    """Keys of what makes a series in which the sides differ, with both values."""
    is_simulated: bool
    """Whether a script or an emulator ran: the numbers are then nothing that a device is fast or slow by."""
    before: Side
    after: Side
    judgement: Judgement


@dataclass(frozen=True, slots=True, kw_only=True)
class Single:
    """A point that only one side has."""

    point: str
    subject: Mapping[str, str | None]
    result_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two sides, worst first."""

    before: str
    """In the user's words."""
    after: str
    metric: str
    unit: str
    findings: tuple[Finding, ...] = ()
    only_before: tuple[Single, ...] = ()
    only_after: tuple[Single, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    """Verdict -> how many."""
    provenance: Mapping[str, tuple[object, object]] = field(default_factory=dict)
    """Commit, host, versions: what differs in the same way between all that were compared."""
    moved_together: str | None = None
    """That nearly everything moved one way, in words: the machine has changed sooner than the code. None where not."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing could be compared."""
        return all(one.judgement.verdict == "not comparable" for one in self.findings)
