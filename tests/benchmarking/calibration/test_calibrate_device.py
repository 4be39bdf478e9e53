"""`run_hardware_benchmark --calibrate-device`, and the two benchmarks it runs."""

from __future__ import annotations

import json

import pytest
import torch

from benchmarking.benches import BenchmarkConfig
from benchmarking.calibration.benches import Copy, MatrixProduct
from benchmarking.calibration.calibration_plans import Sizes, plan_calibration
from benchmarking.core.errors import BenchhouseError
from benchmarking.run_hardware_benchmark import main

pytestmark = pytest.mark.forked_children

SIZES = Sizes(
    matrices={"float32": (64, 128)},
    copies_bytes=(8192,),
    cache_bytes=1024,
    cache_known=False,
    missing={"float16": "not_supported: no kernel"},
)
ONCE = ["--calibrate-device", "--device", "cpu", "--profile", "quick", "--iterations", "3", "--warmup-iterations", "1"]


@pytest.fixture
def known_sizes(monkeypatch):
    monkeypatch.setattr("benchmarking.calibration.calibration_plans.find_sizes", lambda device, precisions: SIZES)


def opened(bench, config, torch_device="cpu"):
    made = bench(config)
    made.torch_device = torch_device
    made.setup_model()
    return made


def product(precision="float32", size=96):
    return opened(MatrixProduct, BenchmarkConfig(name="c", precision=precision, axes={"matrix_size": size}))


def copying(size_bytes, cache_bytes):
    return opened(
        Copy, BenchmarkConfig(name="c", axes={"copy_bytes": size_bytes}, options={"cache_bytes": cache_bytes})
    )


@pytest.mark.parametrize(("precision", "size_bytes"), [("float32", 4), ("bfloat16", 2), ("float16", 2)])
def test_matrix_products_are_correct_and_report_their_work(precision, size_bytes):
    bench = product(precision)
    assert bench.problem(bench.run()) is None
    assert bench.work() == {"flops": 2 * 96**3, "bytes_accessed": 3 * 96**2 * size_bytes}


def test_wrong_rounded_and_infinite_products_are_problems():
    bench = product()
    right = bench.run().clone()
    assert "the product has an error of" in bench.problem(torch.zeros_like(right))
    assert "the product has an error of" in bench.problem(
        bench._left.bfloat16().float() @ bench._right.bfloat16().float()
    )
    right[50, 50] = float("inf")
    assert bench.problem(right) == "NaN or Inf in the product"


def test_tf32_is_off_for_float32_and_restored_afterwards():
    torch.set_float32_matmul_precision("high")
    try:
        bench = product()
        assert torch.get_float32_matmul_precision() == "highest"
        bench.cleanup_model()
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_cleanup_works_without_setup():
    before = torch.get_float32_matmul_precision()
    MatrixProduct(BenchmarkConfig(name="c", axes={"matrix_size": 8})).cleanup_model()
    assert torch.get_float32_matmul_precision() == before


def test_copies_are_correct_and_count_bytes_read_and_written():
    bench = copying(4096, 1024)
    assert bench.problem(bench.run()) is None
    assert bench.work() == {"bytes_accessed": 8192}
    assert bench.problem(torch.zeros(1024)) == "the copy differs from the source"


def test_copies_that_fit_into_the_cache_are_errors():
    with pytest.raises(BenchhouseError, match="a copy of 4095 bytes would fit in the cache of 1024 bytes"):
        copying(4095, 1024)


@pytest.mark.usefixtures("known_sizes")
def test_each_precision_and_the_copy_have_a_run_with_one_peak(capsys, tmp_path):
    assert main([*ONCE, "--json", "--quiet"]) == 0
    in_any_order = json.loads(capsys.readouterr().out)
    runs = sorted(in_any_order, key=lambda run: len(run["results"]), reverse=True)
    assert [(run["cell"]["precision"], len(run["results"])) for run in runs] == [("float32", 2), ("float32", 1)]
    for run, peak in zip(runs, ("peak_flops_per_sec", "peak_copy_bytes_per_sec"), strict=True):
        assert run["cell"]["workload"]["task"] == run["cell"]["workload"]["model_id"] == "device-calibration"
        assert (run["cell"]["runtime"], run["settings"]["energy_windows"]) == ("bench", 0)
        peaks = [result["metrics"][peak] for result in run["results"] if peak in result["metrics"]]
        assert len(peaks) == 1
        assert peaks[0] > 0
    best = max(result["metrics"]["achieved_flops_per_sec"] for result in runs[0]["results"])
    assert best in [result["metrics"].get("peak_flops_per_sec") for result in runs[0]["results"]]


def test_a_dry_run_prints_device_and_precisions_without_using_the_device(monkeypatch, capsys):
    def ran(*_):
        raise AssertionError("a dry run measured")

    for started in ("find_sizes", "device_locks"):
        monkeypatch.setattr(f"benchmarking.calibration.calibration_plans.{started}", ran)
    for device in ("cpu", "auto"):  # torch, which calibrates, does not run on openvino:CPU
        assert main(["--calibrate-device", "--device", device, "--dry-run"]) == 0
        shown = capsys.readouterr()
        assert shown.out.startswith("device     cpu: ")
        assert shown.err == ""
        assert "products   float32" in shown.out
        assert "skipped    int8: not_supported: torch has no matrix product in this precision" in shown.out
    assert main(["--calibrate-device", "--device", "cpu", "--dry-run", "--json"]) == 0
    assert "float32" in json.loads(capsys.readouterr().out)["precisions"]


@pytest.mark.usefixtures("known_sizes")
def test_remarks_list_unmeasured_and_assumed_items():
    from benchmarking.benches.runner import BenchPlanning
    from benchmarking.measure.context import settings

    planning = BenchPlanning(session_id="s", settings=settings("quick"))
    remarks = plan_calibration(planning, "cpu", lambda text: None).remarks
    assert remarks["float16"] == "not_supported: no kernel"
    assert remarks["int8"] == "not_supported: torch has no matrix product in this precision"
    assert remarks["last-level cache"] == "size unknown: assuming 0 MB"


def test_a_device_without_measurable_precisions_is_an_error(monkeypatch, capsys):
    none = Sizes(matrices={}, copies_bytes=(), cache_bytes=1, cache_known=True, missing={"copy": "too small"})
    monkeypatch.setattr("benchmarking.calibration.calibration_plans.find_sizes", lambda device, precisions: none)
    assert main(ONCE) == 1
    assert "nothing can be measured on cpu" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--model-id", "tiny-bert"], "--calibrate-device measures the device, not a model: leave --model-id out"),
        (["--num-threads", "1", "--cpu-list", "0", "--dry-run"], "leave --num-threads, --cpu-list out"),
        (
            ["--runtime", "eager", "--precision", "int8", "--batch-sizes", "7"],
            "--runtimes, --precisions, --batch-sizes",
        ),
        (["--attention", "eager"], "leave --attention out"),
        (["--device", "null"], "calibration needs torch, which runs on cpu, cuda, rocm, mps"),
    ],
)
def test_devices_that_torch_cannot_use_and_flags_of_models_are_errors(capsys, arguments, why):
    assert main(["--calibrate-device", *arguments]) == 2
    assert why in capsys.readouterr().err
