"""User-written benchmarks: subclasses of `ModelBenchmark` in a folder of files, measured like models.

`discovery` finds them, `runner` turns them into plans of runs; `examples/` has one to copy.
"""

from __future__ import annotations

from benchmarking.benches.model_benchmark import BenchmarkConfig, ModelBenchmark, create_config_variants
from benchmarking.core.metrics import CustomMetric

__all__ = ["BenchmarkConfig", "CustomMetric", "ModelBenchmark", "create_config_variants"]
