"""The runtime that is taken when none is named, and that others are compared with."""

from __future__ import annotations

from benchmarking.core import plugins
from benchmarking.core.contracts import Runtime

PACKAGE = "benchmarking.runtimes"


def default_runtime() -> str:
    """Its name."""
    found: list[Runtime] = [plugins.load(PACKAGE, name) for name in plugins.names(PACKAGE)]
    return next(runtime.name for runtime in found if runtime.is_default)
