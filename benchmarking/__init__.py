"""Measures transformer inference: devices, runtimes, workloads, and the sweep over them."""

from __future__ import annotations

TYPE_CHECKING = False  # typing's, without importing it: nothing is imported before Ctrl-C is handled
if TYPE_CHECKING:
    from typing import Any

    from benchmarking.api import benchmark_model, benchmark_script, measure_file
    from benchmarking.benches import BenchmarkConfig, CustomMetric, ModelBenchmark, create_config_variants
    from benchmarking.benches.model_benchmark import TimingResult
    from benchmarking.benches.runner import BenchmarkRunner
    from benchmarking.commands.profile import MLRuntimeProfiler
    from benchmarking.measure.memory import flush_memory
    from benchmarking.measure.monitor import CPUMonitor, DeviceMonitor, GPUMonitor

__version__ = "0.2.0"
__all__ = [
    "BenchmarkConfig",
    "BenchmarkRunner",
    "CPUMonitor",
    "CustomMetric",
    "DeviceMonitor",
    "GPUMonitor",
    "MLRuntimeProfiler",
    "ModelBenchmark",
    "TimingResult",
    "__version__",
    "benchmark_model",
    "benchmark_script",
    "create_config_variants",
    "flush_memory",
    "measure_file",
]

HOMES = {
    name: module
    for module, names in {
        "benchmarking.benches": "BenchmarkConfig CustomMetric ModelBenchmark create_config_variants",
        "benchmarking.benches.runner": "BenchmarkRunner",
        "benchmarking.measure.monitor": "CPUMonitor DeviceMonitor GPUMonitor",
        "benchmarking.commands.profile": "MLRuntimeProfiler",
        "benchmarking.benches.model_benchmark": "TimingResult",
        "benchmarking.api": "benchmark_model benchmark_script measure_file",
        "benchmarking.measure.memory": "flush_memory",
    }.items()
    for name in names.split()
}
"""Public name -> its module."""


def __getattr__(name: str) -> Any:
    """The public names, imported on first use, so that commands start without them."""
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(HOMES[name]), name)
