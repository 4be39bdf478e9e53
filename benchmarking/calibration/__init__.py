"""What a device can do at most: large matrix products in each precision and a large copy, measured as all else is.

Each is somebody's benchmark (`benches.py`) in a run of its own, at sizes found by trying (`sizes.py`). The best point
of a run carries the peak (`peaks.py`), from where the warehouse takes it to the device's row.
"""

TASK = "device-calibration"
"""The task, and the model id, of calibration runs."""
PEAK_FLOPS = "peak_flops_per_sec"
PEAK_COPY = "peak_copy_bytes_per_sec"
MATRIX_AXIS = "matrix_size"
"""Rows, and columns, of the square matrices."""
COPY_AXIS = "copy_bytes"
"""Bytes that a copy reads; it writes as many."""
CACHE_MARGIN = 4
"""A copy is this many times the last-level cache at least: what stays in a cache then hardly counts."""
