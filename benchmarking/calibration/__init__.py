"""Measures the peak rates of a device: matrix products and copies."""
