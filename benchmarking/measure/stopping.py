"""When to stop: on the target, at a limit, or where more calls no longer help. It controls cost, never significance."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarking.estimates import relative_half_width
from benchmarking.measure.settings import Settings

PLATEAU_LOOKS = 3
PLATEAU_SHRINKAGE = 0.9
"""Over two doublings independent noise halves the interval; one that kept 90 % of its width will not reach the target
soon. Higher would hardly ever stop, lower would stop on the estimate's own noise (it has 9 degrees of freedom)."""


class StoppingRule:
    """Looks at the samples only at geometric counts (30, 60, 120, ...): looking every few samples until the interval
    happens to be narrow makes it cover far less than it claims."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._half_widths: list[float] = []
        self.relative_half_width: float | None = None
        """At the last look; None below 20 samples."""

    @property
    def limit_s(self) -> float:
        """Measured time after which the calls stop, if there are 3; infinite for a fixed number of calls."""
        return float("inf") if self._settings.fixed_iterations is not None else self._settings.max_time_s

    def next_count(self, count: int) -> int:
        """Samples there should be at the next look, when there are `count` now."""
        fixed = self._settings.fixed_iterations
        last = self._settings.max_samples if fixed is None else fixed
        return min(last, max(self._settings.min_samples, 2 * count))

    def look(self, values: Sequence[float], measured_s: float) -> str | None:
        """Why to stop now, or None to go on. `measured_s` is the time spent inside timed regions.

        A target that is met counts as such whatever ended the calls. The minimum time gives way to the maximum count.
        """
        settings = self._settings
        width = self.relative_half_width = relative_half_width(values)
        self._half_widths += [] if width is None else [width]
        if settings.fixed_iterations is not None:
            return "fixed" if len(values) >= settings.fixed_iterations else None
        at_limit = self._limit(len(values), measured_s)
        on_target = width is not None and width <= settings.target_relative_half_width
        if on_target and (at_limit is not None or measured_s >= settings.min_time_s):
            return "target"
        if at_limit is None and measured_s >= settings.min_time_s and self._is_plateau():
            return "plateau"
        return at_limit

    def _limit(self, count: int, measured_s: float) -> str | None:
        if count >= self._settings.max_samples:
            return "max_samples"
        return "max_time" if measured_s >= self._settings.max_time_s else None

    def _is_plateau(self) -> bool:
        recent = self._half_widths[-PLATEAU_LOOKS:]
        return len(recent) == PLATEAU_LOOKS and recent[-1] >= PLATEAU_SHRINKAGE * recent[0]
