"""Histories of series, with their change points and regressions."""
