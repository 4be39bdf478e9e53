"""Example benchmarks to copy. `benchhouse benches --benches FOLDER --enable-mock` runs them."""
