"""Folders of benchmarks written by tests, and their runs on real workers."""

from __future__ import annotations

import textwrap

import pytest

from benchmarking.benches.discovery import discover
from benchmarking.benches.runner import BenchPlanning, plan_benches
from benchmarking.core.provenance import utc_now
from benchmarking.measure.context import settings
from benchmarking.sweep.plan.plan import Machine
from benchmarking.sweep.run.supervisor import Observer, Track, sweep

HEAD = "from benchmarking import BenchmarkConfig, ModelBenchmark, create_config_variants\n"


@pytest.fixture
def folder(tmp_path):
    """An empty folder for benchmarks, in a path with a space in it."""
    path = tmp_path / "my benches"
    path.mkdir()
    return path


@pytest.fixture
def write(folder):
    """A function that writes a benchmark file, with the usual imports first, and returns its path."""

    def write_file(name, body, head=HEAD):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(head + textwrap.dedent(body))
        return path

    return write_file


@pytest.fixture
def plan(folder):
    """A function that plans the folder's benchmarks, or these, on the CPU, three calls each."""

    def plan_all(iterations=3, benches=None, **fields):
        chosen = settings("quick", iterations=iterations, warmup_iterations=1)
        planning = {"session_id": "s", "settings": chosen, "device": "cpu", **fields}
        return plan_benches(benches or discover(folder).benches, BenchPlanning(**planning), Machine())

    return plan_all


@pytest.fixture
def measure(plan, tmp_path):
    """A function that plans and sweeps, and returns the runs."""

    def measure_all(**fields):
        spool = tmp_path / "spool"
        spool.mkdir()
        tracks = [Track(one, spool) for one in plan(**fields)]
        sweep(tracks, Observer())
        return [track.run(utc_now()) for track in tracks]

    return measure_all
