"""Where plugins of 0.2 find `has`."""

from benchmarking.core.plugins import has

__all__ = ["has"]
