"""What every pass over a point works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarking.devices import DeviceHandle
from benchmarking.measure.live import Reporter
from benchmarking.measure.settings import Settings
from benchmarking.runtimes import Operation

CompileCount = Callable[[], int | None]
"""How many graphs or kernels the runtime has compiled so far in this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """One operation on one device, and how to measure it."""

    operation: Operation
    handle: DeviceHandle
    settings: Settings
    live: Reporter = field(default_factory=lambda: Reporter(None))
    compile_count: CompileCount | None = None
    """None for a runtime that compiles nothing."""

    def compiles(self) -> int:
        """Compilations so far; always the same where nothing compiles."""
        return 0 if self.compile_count is None else self.compile_count() or 0

    def sleep(self, duration_s: float) -> None:
        """Wait, by the handle's clock."""
        self.handle.sleep(duration_s)
