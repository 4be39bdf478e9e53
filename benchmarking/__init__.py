"""Measures transformer inference: devices, runtimes, workloads, and the sweep over them."""

__version__ = "0.1.0"
