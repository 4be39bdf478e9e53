"""Shared base of runtimes on inference engines, which have their own generation loops and file formats."""
