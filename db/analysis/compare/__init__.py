"""Compares one selection of results with another."""
