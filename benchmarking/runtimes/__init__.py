"""Runtimes, one plugin a file."""
