"""Analyses stored results: comparison of selections, change points in histories, the CI gate, recommendations."""
