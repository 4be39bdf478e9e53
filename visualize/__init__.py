"""Draws: charts from the warehouse or from a spooled run."""
