"""The runtime openvino: what it supports, and a tiny model measured by the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.records import Device, Readings, Workload
from benchmarking.runtimes.openvino import PLUGIN
from benchmarking.runtimes.support.openvino import compile as compiling
from benchmarking.workloads.support.resolve import resolve

pytestmark = pytest.mark.forked_children

NPU = Device(type="openvino", selector="openvino:NPU", found=True)


def processor(native=("float32",)):
    facts = Readings(values={"native_precisions": list(native)}) if native else Readings()
    return Device(type="cpu", selector="cpu", found=True, facts=facts)


@pytest.fixture(scope="module")
def bert() -> Workload:
    return resolve("tiny-bert", weights="random")


@pytest.fixture(scope="module")
def gpt2() -> Workload:
    return resolve("tiny-gpt2", weights="random")


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_16_bit_precision_the_cpu_would_replace_is_refused_in_the_plan(bert, precision):
    assert PLUGIN.supports(processor(), bert, precision) == (
        f"OpenVINO runs float32 instead of {precision} on this CPU, which does not compute at it"
    )
    assert PLUGIN.supports(processor(("float32", precision)), bert, precision) is None
    assert PLUGIN.supports(processor(()), bert, precision) is None  # it is asked when the model is loaded


def test_devices_precisions_and_families_it_does_not_have_are_refused_with_the_reason(bert, gpt2):
    cuda = Device(type="cuda", selector="cuda:0", found=True)
    assert PLUGIN.supports(cuda, bert, "float32") == "runtime openvino runs on cpu, openvino, not on cuda"
    assert "not tf32" in PLUGIN.supports(processor(), bert, "tf32")
    assert PLUGIN.supports(NPU, bert, "float16") is None
    assert "grows with every generated token" in PLUGIN.supports(NPU, gpt2, "float16")


def test_modes_are_complete_and_shapes_fixed_if_required(bert, gpt2):
    assert PLUGIN.mode(processor(), bert, {}) == {"hint": "latency", "dynamic": "true"}
    assert PLUGIN.mode(processor(), gpt2, {}) == {"hint": "latency", "dynamic": "true", "cache": "dynamic"}
    kept = {"hint": "throughput", "dynamic": "false", "in_flight": "kept"}
    assert PLUGIN.mode(NPU, bert, {"hint": "throughput"}) == kept
    with pytest.raises(UnsupportedError, match="NPU plugin requires fixed shapes"):
        PLUGIN.mode(NPU, bert, {"dynamic": "true"})


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"hint": "fast"}, "hint 'fast': runtime openvino has latency, throughput"),
        (
            {"attention": "sdpa"},
            "runtime openvino has no option 'attention'; it has hint, dynamic, quantization, cache",
        ),
        ({"cache": "static"}, "cache 'static': runtime openvino has dynamic"),
        ({"hint": "throughput"}, "task text-generation is a loop of passes: use --hint latency"),
        ({"dynamic": "false"}, "the cache grows with every generated token"),
    ],
)
def test_unsupported_options_are_refused(gpt2, options, problem):
    with pytest.raises(UsageError, match=problem):
        PLUGIN.mode(processor(), gpt2, options)


def test_only_quantized_precisions_have_a_method_of_quantization():
    assert PLUGIN.mode_at("int8", {"hint": "latency"})["quantization"] == "weight-only"
    assert PLUGIN.mode_at("float32", {"hint": "latency"}) == {"hint": "latency"}
    with pytest.raises(UsageError, match="float32 is not quantized"):
        PLUGIN.mode_at("float32", {"quantization": "dynamic"})


def test_capabilities_are_checked_again_at_load(bert):
    core = SimpleNamespace(get_property=lambda device, name: ["FP32", "INT8"])
    with pytest.raises(
        UnsupportedError,
        match="CPU does not support bfloat16 and would silently run another precision: it lists FP32, INT8",
    ):
        compiling.check_capabilities(core, "CPU", "bfloat16")


def test_planning_imports_nothing_heavy():
    code = """
import sys
from benchmarking.core.records import Device
from benchmarking.runtimes.openvino import PLUGIN
from benchmarking.workloads.support.resolve import resolve
device, workload = Device(type="cpu", selector="cpu", found=True), resolve("tiny-gpt2", weights="random")
assert PLUGIN.supports(device, workload, "float32") is None
PLUGIN.mode(device, workload, {})
print([name for name in ("torch", "transformers", "openvino", "numpy") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def run(home: Path, build_cache: Path) -> Callable[..., Any]:
    """A function that measures tiny-bert by the command and returns the run's record. Builds are shared."""
    pytest.importorskip("openvino")
    pytest.importorskip("onnxscript")
    environment = {**os.environ, "BENCHHOUSE_CACHE_DIR": str(build_cache), "HOME": str(home)}

    def measure(*arguments):
        command = [sys.executable, "-m", "benchmarking.run_hardware_benchmark", "--model-id", "tiny-bert"]
        command += ["--runtime", "openvino", "--weights", "random", "--sequence-lengths", "8", "--launches", "1"]
        command += ["--iterations", "12", "--warmup-iterations", "2", "--json", "--quiet", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)[0]

    return measure


@pytest.fixture(scope="module")
def latency(run: Callable[..., Any]) -> dict[str, Any]:
    return run("--device", "cpu", "--batch-sizes", "2")


@pytest.mark.slow
def test_outputs_equal_eagers_and_the_facts_are_stored(latency):
    (result,) = latency["results"]
    assert result["status"] == "ok"
    assert "output_differs" not in [doubt["kind"] for doubt in result["doubts"]]
    assert result["metrics"]["output_error"] < 1e-5
    (load,) = latency["loads"]
    assert load["verified"]["execution_devices"] == ["CPU"]
    assert load["verified"]["inference_precision"] == "f32"
    assert load["verified"]["parameter_dtypes"] == ["float32"]
    assert load["memory_bytes"]["weights_bytes"] >= 4 * 200_000
    verified = result["extra"]["launches"][0]["verified"]
    assert set(verified["matrix_nodes_by_precision"]) == {"f32"}
    assert verified["requests"] == 1


def test_the_time_of_openvinos_clock_is_kept_in_addition_to_the_wall_time(latency):
    (result,) = latency["results"]
    series = {(one["phase"], one["metric"]): one["values"] for one in result["samples"]}
    own, wall = series["measure", "latency_request"], series["measure", "latency_wall"]
    assert len(own) == len(wall) == 12
    assert all(0 < inside <= outside for inside, outside in zip(own, wall, strict=True))


def test_launches_load_the_compiled_model_and_both_compile_times_are_kept(latency):
    assert latency["preparation"]["build"]["kind"] == "openvino"
    assert latency["preparation"]["build"]["source"]["kind"] == "onnx"
    verified = latency["loads"][0]["verified"]
    assert verified["is_from_cache"] is True
    assert verified["compile_cold_s"] == latency["preparation"]["build"]["compile_cold_s"] > 0
    assert 0 < verified["compile_warm_s"] != verified["compile_cold_s"]


def test_the_point_has_the_number_of_requests_and_throughput_counts_all_of_them(run):
    record = run("--device", "openvino:CPU", "--batch-sizes", "2", "--hint", "throughput", "--concurrency", "1,3")
    assert record["cell"]["runtime_mode"]["hint"] == "throughput"
    assert record["cell"]["runtime_mode"]["in_flight"] == "kept"  # a series apart from that of whole rounds
    by_concurrency = {result["point"]["concurrency"]: result for result in record["results"]}
    assert sorted(by_concurrency) == [1, 3]
    for requests, result in by_concurrency.items():
        launch = result["extra"]["launches"][0]
        assert launch["verified"]["requests"] == launch["verified"]["hinted_requests"] == requests
        assert launch["verified"]["requests_agree"] is True
        assert (launch["items_per_call"], launch["tokens_per_call"]) == (2, 2 * 8)
        measured = {one["metric"]: one["values"] for one in result["samples"] if one["phase"] == "measure"}
        assert len(measured["latency_wall"]) == len(measured["latency_request"]) == 12
        wall_ms = launch["requests_wall_ms"] if requests > 1 else sum(measured["latency_wall"])
        assert result["metrics"]["throughput_samples_per_sec"] == pytest.approx(2 * 12 * 1e3 / wall_ms)
        assert result["metrics"]["latency_request_median_ms"] == pytest.approx(median(measured["latency_request"]))
        assert result["metrics"]["output_error"] < 1e-5
    alone, together = by_concurrency[1]["metrics"], by_concurrency[3]["metrics"]
    assert together["flops"] == alone["flops"]
    assert together["achieved_flops_per_sec"] == pytest.approx(
        together["flops"] * together["throughput_samples_per_sec"] / 2
    )
    digests = record["preparation"]["references"]
    assert digests["b2 s8"] == digests["b2 s8 c3"]  # the same inputs, whatever else is in flight


def test_measuring_process_has_no_torch_and_no_telemetry(latency, home, build_cache):
    code = """
import sys
from benchmarking.devices.cpu import PLUGIN as CPU
from benchmarking.core.records import Cell, Point
from benchmarking.runtimes.openvino import PLUGIN
from benchmarking.workloads.support.resolve import resolve
from contextlib import nullcontext
(device,), workload = CPU.probe(), resolve("tiny-bert", weights="random")
mode = PLUGIN.mode(device, workload, {})
cell = Cell(workload=workload, device=device, requested_device="cpu", runtime="openvino", runtime_mode=mode)
point = Point(batch_size=1, sequence_length=16)
PLUGIN.import_libraries()
session = PLUGIN.open(cell, CPU.open(device), lambda name: nullcontext(), (point,))
operation = session.operation(point)
output = operation.run(lambda name: None)
assert operation.problem(output) is None
operation.verified()
session.close()
print([name for name in ("torch", "transformers", "onnx", "nncf") if name in sys.modules])
"""
    environment = {**os.environ, "BENCHHOUSE_CACHE_DIR": str(build_cache), "HOME": str(home)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.stdout.strip() == "[]", done.stderr
    assert not (home / "intel").exists()  # where the telemetry package keeps its identity
