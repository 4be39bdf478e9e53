"""Runtimes: one plugin per file."""
