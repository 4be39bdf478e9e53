"""Verifying, merging, rebuilding and compacting warehouses."""
