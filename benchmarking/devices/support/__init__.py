"""Helpers shared by device kinds."""
