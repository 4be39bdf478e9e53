"""The CI gate and its alerts."""
