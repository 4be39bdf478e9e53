"""`benchhouse check --confirm`, for real: what is flagged is measured again by a process of its own."""

from __future__ import annotations

import json
import math
import uuid
from dataclasses import replace

import pytest

from benchmarking import run_hardware_benchmark
from benchmarking.core.records import run_from_json
from db.commands import check
from db.warehouse import Warehouse

pytestmark = pytest.mark.forked_children

SPREAD = (1.0, 1.02, 0.99, 1.01, 0.98)


@pytest.fixture
def playing(null_script):
    """A function that makes calls take about so many milliseconds from now on."""
    return lambda milliseconds: null_script(latency_ms={"*": [milliseconds * factor for factor in SPREAD]})


def at_level(run, level, hour):
    """The run as another one, at another level and time."""
    results = tuple(
        replace(
            result,
            result_id=str(uuid.uuid4()),
            metrics={**result.metrics, "latency_median_ms": level},
            samples=(),
            launches=0,
        )
        for result in run.results
    )
    ids = {"run_id": str(uuid.uuid4()), "session_id": str(uuid.uuid4())}
    commit = replace(run.provenance, git_commit=None, git_commit_time=None)
    return replace(run, **ids, started_at=f"2026-01-01T{hour:02}:00:00Z", results=results, provenance=commit)


@pytest.mark.slow
def test_a_regression_counts_only_if_a_fresh_session_shows_it_too(playing, database, tmp_path, capfd):
    playing(11.2)
    kept = ("--save", "--db-path", str(tmp_path / "other.duckdb"), "--output-dir", str(tmp_path / "runs"))
    point = ("--batch-sizes", "1", "--sequence-lengths", "32", "--profile", "quick", "--iterations", "30")
    assert run_hardware_benchmark.main(("--model-id", "tiny-bert", "--device", "null", *point, *kept)) == 0
    run = run_from_json(json.loads(next((tmp_path / "runs").glob("*.json")).read_text()), "run")
    mark = tmp_path / "mark"
    stored_command = ("run_hardware_benchmark", "bash", "-c", f"touch {mark}")  # it came with the file: never executed
    run = replace(run, provenance=replace(run.provenance, command=stored_command))
    with Warehouse.open(database) as warehouse:
        warehouse.ingest(run)
        for hour in range(12):
            warehouse.ingest(at_level(run, 10 * math.exp(0.01 * (-1) ** hour), hour))
    capfd.readouterr()
    ask = (
        "--run",
        run.run_id,
        "--confirm",
        "--json",
        "--db-path",
        str(database),
        "--output-dir",
        str(tmp_path / "runs"),
    )

    playing(10.0)
    assert check.main(ask) == 0
    finding = json.loads(capfd.readouterr().out)["findings"][0]
    assert finding["verdict"] == "not confirmed"
    assert finding["judgement"]["value"] == pytest.approx(11.2, rel=0.01)
    assert finding["again"]["value"] == pytest.approx(10.0, rel=0.01)
    assert finding["again"]["n"] == 12

    playing(11.2)
    assert check.main(ask) == 1
    finding = json.loads(capfd.readouterr().out)["findings"][0]
    assert finding["verdict"] == "regressed"
    assert finding["again"]["value"] == pytest.approx(11.2, rel=0.01)
    with Warehouse.open(database, read_only=True) as warehouse:
        alerts = warehouse.query("SELECT confirmed_by FROM alerts").dicts()
    assert alerts == [{"confirmed_by": finding["again_result_id"]}]
    assert not mark.exists()
