"""Comparison of two selections of results."""
