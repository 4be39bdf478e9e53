"""Output of `--dry-run` for unsupported points: no placeholder for absent devices, no repeated reasons."""

from __future__ import annotations

import pytest

from benchmarking import batch_benchmark, run_hardware_benchmark

GRID = [
    "--weights",
    "random",
    "--batch-sizes",
    "1,2",
    "--sequence-lengths",
    "8,1000",
    "--skip-unsupported",
    "--dry-run",
]


def test_absent_devices_have_no_name_and_a_single_reason(capsys):
    assert run_hardware_benchmark.main(["--model-id", "tiny-bert", "--device", "qnn", *GRID]) == 0
    out = capsys.readouterr().out
    assert "None" not in out
    assert "device     qnn: not found" in out
    assert "skipped    all 4 points: device 'qnn' is not available: " in out
    assert out.count("is not available") == 1


def test_a_reason_for_some_points_lists_them_once(capsys):
    assert run_hardware_benchmark.main(["--model-id", "tiny-bert", "--device", "cpu", *GRID]) == 0
    out = capsys.readouterr().out.splitlines()
    assert [line for line in out if line.startswith("  ")] == ["  b1 s8", "  b2 s8"]
    (skipped,) = [line for line in out if line.startswith("skipped")]
    assert skipped.startswith("skipped    b1 s1000, b2 s1000: ")


@pytest.mark.parametrize("runtimes", ["eager", "eager,compiled"])
def test_a_batch_prints_each_reason_once_for_all_its_cells(capsys, runtimes):
    arguments = ["--models", "tiny-bert", "--devices", "qnn,cpu", "--runtimes", runtimes, *GRID]
    assert batch_benchmark.main(arguments) == 0
    out = " ".join(capsys.readouterr().out.split())  # lines are wrapped
    assert "None" not in out
    assert out.count("is not available") == 1
    assert out.count("tiny-bert on qnn") == out.count("all 4 points") == len(runtimes.split(","))
