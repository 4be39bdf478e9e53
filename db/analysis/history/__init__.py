"""Histories of series, their change points and regressions."""
