"""Measuring the models of unmodified scripts."""
