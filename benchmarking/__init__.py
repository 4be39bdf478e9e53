"""Measures transformer inference: devices, runtimes, workloads, and the sweep over them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarking.api import benchmark_model

__version__ = "0.1.0"
__all__ = ["__version__", "benchmark_model"]


def __getattr__(name: str) -> Any:
    """`benchmark_model`, loaded when it is asked for: commands start without it."""
    if name == "benchmark_model":
        from benchmarking.api import benchmark_model

        return benchmark_model
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
