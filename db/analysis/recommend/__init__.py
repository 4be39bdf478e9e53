"""Recommendation of a measured configuration that meets limits."""

SHARE = 0.99
"""Share of the requests under load that must succeed within every limit, unless another is given."""
