"""People's own benchmarks: classes in files of a folder, run like everything else. `examples/` holds one to copy.

A file defines a `ModelBenchmark`; `discover` finds the files of a folder, `plan_benches` makes plans of them.
"""

from __future__ import annotations

from benchmarking.benches.model_benchmark import BenchmarkConfig, ModelBenchmark, create_config_variants

__all__ = ["BenchmarkConfig", "ModelBenchmark", "create_config_variants"]
