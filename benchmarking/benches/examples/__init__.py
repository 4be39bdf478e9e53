"""Example benchmarks to copy. `batch_benchmark --benches FOLDER --enable-mock` runs them."""
