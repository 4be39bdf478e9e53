"""Maintenance of warehouses: verify, merge, rebuild."""
