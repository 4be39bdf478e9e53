"""Sweeps on several machines, over Dask: the worker of a machine, and the coordinator that gives cells to workers."""
