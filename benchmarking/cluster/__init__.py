"""Sweeps on several machines over Dask: a worker per machine, and a coordinator that assigns cells to workers."""
