"""Recommends a measured configuration that meets limits."""
