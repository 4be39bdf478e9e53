"""The commands that measure, one module each: parse, call, print. `benchmarking.cli` names them."""
