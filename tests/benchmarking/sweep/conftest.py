"""Runs on the null device with scripted numbers, for tests of preparation and comparison."""

from __future__ import annotations

import dataclasses
import json

import pytest

from benchmarking.core.records import Point
from benchmarking.devices import null
from benchmarking.measure.context import settings
from benchmarking.run_hardware_benchmark import main
from benchmarking.sweep.plan.plan import CellPlan
from benchmarking.sweep.run.supervisor import Track

SWEEP = ["--model-id", "tiny-bert", "--device", "null", "--batch-sizes", "1,2", "--sequence-lengths", "32"]
SWEEP += ["--weights", "random", "--precision", "int8", "--iterations", "3", "--warmup-iterations", "1", "--quiet"]
ABOUT_THE_MACHINE = {"vm", "container", "governor", "on_battery", "few_samples", "cpu_pressure"}


@pytest.fixture
def in_an_empty_folder(empty_working_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("BENCHHOUSE_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def sweep_arguments():
    """Two points of one launch, at int8."""
    return [*SWEEP, "--launches", "1"]


@pytest.fixture
def measured(capsys, sweep_arguments):
    """A function that runs the command and returns its exit code and run. The values of lists would add up, so the
    sweep's own give way to those of the arguments."""

    def measure(*arguments):
        kept = list(sweep_arguments)
        for flag in [word for word in kept if word.startswith("--") and word in arguments]:
            del kept[kept.index(flag) : kept.index(flag) + 2]
        code = main([*kept, "--json", *arguments])
        (run,) = json.loads(capsys.readouterr().out)
        return code, run

    return measure


@pytest.fixture
def doubts_of():
    """A function that returns kind and severity of a result's doubts, except those about the machine."""
    return lambda result: [(d["kind"], d["severity"]) for d in result["doubts"] if d["kind"] not in ABOUT_THE_MACHINE]


@pytest.fixture
def null_track(make_run, tmp_path):
    """A function that makes a track on the null device, with points of batch 1 and 2 in two launches."""
    (device,) = null.PLUGIN.probe()

    def make(precision="int8"):
        run = make_run()
        cell = dataclasses.replace(run.cell, device=device, runtime="null", runtime_mode={}, precision=precision)
        plan = CellPlan(
            session_id="s",
            started_at="2026-01-02T03:04:05Z",
            cell=cell,
            hardware=dataclasses.replace(run.hardware, device=device),
            provenance=run.provenance,
            settings=settings("quick", launches=2, iterations=3),
            timeout_s=60.0,
            points=tuple(Point(batch_size=size, sequence_length=32) for size in (1, 2)),
        )
        return Track(plan, tmp_path)

    return make
