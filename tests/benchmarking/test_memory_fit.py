"""Models and points that cannot fit into memory, through the main command."""

from __future__ import annotations

import json

import pytest

from benchmarking.core.records import Readings
from benchmarking.run_hardware_benchmark import main
from benchmarking.sweep.plan.plan import Machine
from benchmarking.workloads.support import footprint
from db.warehouse import Warehouse

LARGE = ["--model-id", "microsoft/phi-2", "--device", "cpu", "--weights", "random", "--sequence-lengths", "128"]
QUICK = ["--profile", "quick", "--quiet"]
ONCE = ["--launches", "1", "--iterations", "2", "--warmup-iterations", "1", "--quiet"]


pytestmark = [pytest.mark.forked_children, pytest.mark.usefixtures("empty_working_folder")]


@pytest.fixture
def free(monkeypatch):
    """A function that sets the memory that is free, of the device and of the host."""

    def set_bytes(count):
        free = Readings(values={"free_memory_bytes": count})
        monkeypatch.setattr(Machine, "free_memory", lambda machine, device: free)
        monkeypatch.setattr(footprint, "free_host_bytes", lambda: count)

    return set_bytes


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_models_that_exceed_memory_are_errors_before_loading(capsys, free, more):
    free(8_000_000_000)
    code = main([*LARGE, "--batch-sizes", "1", *QUICK, *more])
    captured = capsys.readouterr()
    assert (code, captured.out) == (2, "")
    # 4 bytes x 2 779 683 840 parameters; 4 x (2 x 32 layers x 2560 x 143 tokens of cache + 51 200 logits)
    assert captured.err == (
        "run_hardware_benchmark: error: microsoft/phi-2 needs 11.1 GB for weights + 93.9 MB for b1 s128 n16 at "
        "float32, 8.0 GB free on cpu: use a lower precision, a smaller model or --skip-unsupported\n"
    )


def test_a_lower_precision_may_fit(capsys, free):
    free(8_000_000_000)
    assert main([*LARGE, "--batch-sizes", "1", "--precision", "bfloat16", "--dry-run"]) == 0
    assert "points     1" in capsys.readouterr().out


def test_models_that_exceed_memory_can_be_skipped(capsys, free):
    free(8_000_000_000)
    code = main([*LARGE, "--batch-sizes", "1,2", *QUICK, "--skip-unsupported", "--save"])
    assert code == 0
    assert "skipped" in capsys.readouterr().out
    with Warehouse.open("benchmark_db.duckdb") as warehouse:
        runs = warehouse.query("select status, environment from benchmark_runs").dicts()
        rows = warehouse.query("select batch_size, status, error from benchmark_results order by batch_size").dicts()
    assert [run["status"] for run in runs] == ["skipped"]
    values = json.loads(runs[0]["environment"])["values"]
    assert (values["weights_needed_bytes"], values["free_memory_bytes"]) == (11_118_735_360, 8_000_000_000)
    assert [(row["batch_size"], row["status"]) for row in rows] == [(1, "skipped"), (2, "skipped")]
    assert all("8.0 GB free on cpu" in row["error"] for row in rows)


def test_points_that_fit_are_measured_beside_larger_ones(capsys, free):
    # 202 688 parameters and, of each sequence, 16 x (64 + 256) values, x 4 bytes: 0.83 MB and 21.3 MB
    free(2_000_000)
    arguments = ["--model-id", "tiny-bert", "--device", "cpu", "--batch-sizes", "1,1000", "--sequence-lengths", "16"]
    code = main([*arguments, *ONCE, "--skip-unsupported", "--json"])
    (run,) = json.loads(capsys.readouterr().out)
    assert code == 0
    assert [result["status"] for result in run["results"]] == ["ok", "skipped"]
    assert "tiny-bert needs 0.8 MB for weights + 20.5 MB for b1000 s16" in run["results"][1]["error"]


def test_the_null_device_runs_models_of_any_size(capsys, free, monkeypatch):
    monkeypatch.undo()
    arguments = ["--model-id", "microsoft/phi-2", "--device", "null", "--weights", "random", "--batch-sizes", "1"]
    assert main([*arguments, "--sequence-lengths", "128", "--dry-run"]) == 0
    assert "points     1" in capsys.readouterr().out
