"""Benchmarks to copy. `batch_benchmark --benches` on this folder runs them, given --enable-mock."""
