"""Kinds of device, one plugin a file."""
