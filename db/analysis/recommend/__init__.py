"""Recommendation of a measured configuration that meets limits."""
