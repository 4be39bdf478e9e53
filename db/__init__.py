"""Stores and judges: the warehouse, its migrations, and what is read out of it."""
