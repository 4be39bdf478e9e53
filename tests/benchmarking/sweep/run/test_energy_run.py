"""Energy and power through the command, on a device with an energy counter."""

from __future__ import annotations

import pytest

from benchmarking.run_hardware_benchmark import main
from db.warehouse import Warehouse

pytestmark = [pytest.mark.forked_children, pytest.mark.usefixtures("in_an_empty_folder")]


def test_power_columns_are_stored_and_idle_power_is_read_once(null_script, measured):
    """40 W all the time; calls of 100 ms take 4 J."""
    null_script(power_w=40.0, latency_ms={"*": [100.0]})
    code, run = measured("--launches", "2", "--batch-sizes", "1")
    assert code == 0
    (result,) = run["results"]
    metrics = result["metrics"]
    assert metrics["energy_gpu_j_per_call"] == pytest.approx(4.0)
    assert (metrics["power_mean_w"], metrics["power_peak_w"]) == (pytest.approx(40.0), pytest.approx(40.0))
    first, second = (load["verified"] for load in run["loads"])
    assert first["idle_power_before_load_w"] == {"gpu": pytest.approx(40.0)}
    assert "idle_power_before_load_w" not in second


def test_stored_powers_are_selected_by_their_columns(null_script, capsys, sweep_arguments):
    null_script(power_w=40.0, latency_ms={"*": [100.0]})
    assert main([*sweep_arguments, "--save"]) == 0
    with Warehouse.open("benchmark_db.duckdb") as warehouse:
        rows = warehouse.query("SELECT power_mean_w, power_peak_w, energy_idle_w FROM latest_results").dicts()
    for row in rows:
        assert list(row.values()) == [pytest.approx(40.0)] * 3


def test_a_device_without_a_counter_has_a_reason_for_each_power(null_script, measured):
    null_script()
    _, run = measured()
    for result in run["results"]:
        assert result["missing"]["power_mean_w"] == result["missing"]["power_peak_w"] == "not_supported"
    assert not [load for load in run["loads"] if "idle_power_before_load_w" in load["verified"]]
