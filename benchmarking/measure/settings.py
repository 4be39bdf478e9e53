"""How long and how often to measure: the three profiles and what the flags change about them.

Imports nothing heavy, since the supervisor uses it too. Quick is for a look, standard for a comparison, reference for a
number that is published.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from benchmarking.core.errors import UsageError

ProfileName = Literal["quick", "standard", "reference"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that governs the measuring of a point in one launch; `launches` governs the sweep."""

    profile: ProfileName = "standard"
    launches: int = 3
    target_relative_half_width: float = 0.02
    """Of the 95 % confidence interval of the mean, from batch means."""
    min_samples: int = 30
    max_samples: int = 960
    min_time_s: float = 1.0
    max_time_s: float = 20.0
    """Of measured time per point and launch."""
    fixed_iterations: int | None = None
    """Exactly this many timed calls, whatever the noise (stop_reason fixed)."""
    fixed_warmup_iterations: int | None = None
    """Exactly this many warm-up calls instead of waiting for the steady state."""
    warmup_max_calls: int = 300
    warmup_max_time_s: float = 30.0
    memory_calls: int = 5
    energy_window_s: float = 5.0
    energy_windows: int = 3
    cooldown_s: float = 15.0
    """Pause before the one more try that a latency pass gets when heat or power throttled it."""
    point_per_process: bool = False
    """A fresh worker for every point: reference profile (memory), torch.compile."""
    seed: int = 0


PROFILES: dict[ProfileName, Settings] = {
    "quick": Settings(
        profile="quick",
        launches=1,
        target_relative_half_width=0.05,
        min_samples=10,
        max_samples=200,
        min_time_s=0.5,
        max_time_s=5.0,
        warmup_max_time_s=5.0,
        energy_windows=1,
    ),
    "standard": Settings(),
    "reference": Settings(
        profile="reference",
        launches=5,
        target_relative_half_width=0.01,
        min_samples=60,
        max_samples=4800,
        min_time_s=3.0,
        max_time_s=60.0,
        point_per_process=True,
    ),
}


def settings(
    profile: ProfileName,
    *,
    iterations: int | None = None,
    warmup_iterations: int | None = None,
    launches: int | None = None,
    seed: int = 0,
) -> Settings:
    """The profile with the flags applied. Raises UsageError for counts that cannot be."""
    if iterations is not None and iterations < 1:
        raise UsageError(f"--iterations takes a number from 1: got {iterations}")
    if warmup_iterations is not None and warmup_iterations < 0:
        raise UsageError(f"--warmup-iterations takes a number from 0: got {warmup_iterations}")
    if launches is not None and launches < 1:
        raise UsageError(f"--launches takes a number from 1: got {launches}")
    if profile not in PROFILES:
        raise UsageError(f"unknown profile {profile!r}: known: {', '.join(PROFILES)}")
    base = PROFILES[profile]
    return replace(
        base,
        fixed_iterations=iterations,
        fixed_warmup_iterations=warmup_iterations,
        launches=base.launches if launches is None else launches,
        seed=seed,
    )
