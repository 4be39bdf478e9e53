"""Helpers shared by architecture families."""
