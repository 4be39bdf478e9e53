"""Helpers shared by runtimes."""
