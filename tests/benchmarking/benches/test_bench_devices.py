"""Devices of benchmarks: the choice of `auto`, and the recorded device."""

from __future__ import annotations

import pytest

from benchmarking.core.errors import UnsupportedError
from benchmarking.devices.support.select import probe_all
from benchmarking.measure.context import settings
from benchmarking.sweep.plan.request import Request, plan_cell

pytestmark = pytest.mark.forked_children

TORCH_BENCH = """
import torch
class Product(ModelBenchmark):
    configs = [BenchmarkConfig(name="product")]
{declared}
    def setup_model(self):
        self.matrix = torch.ones(64, 64, device=self.torch_device)
    def run(self):
        return self.matrix @ self.matrix
"""
DECLARES_OPENVINO = "    devices = ('openvino',)"
STATES_WORK = "    devices = ('openvino',)\n    def work(self): return {'flops': 1e6}"


@pytest.fixture(scope="module")
def openvino_cpu():
    """OpenVINO's device on this machine's processor, as a cell names it."""
    found = [device.selector for device in probe_all(("openvino",))["openvino"] if device.found]
    assert "openvino:CPU" in found
    return "openvino:CPU"


def test_device_auto_of_a_benchmark_is_a_torch_device(write, measure, openvino_cpu):
    write("one.py", TORCH_BENCH.format(declared=""))
    (run,) = measure(device="auto")
    assert (run.status, run.cell.requested_device, run.cell.device.selector) == ("ok", "auto", "cpu")
    assert run.hardware.device.type == "cpu"
    assert run.loads[0].verified["torch_device"] == "cpu"


def test_a_benchmark_can_declare_openvino(write, plan, openvino_cpu):
    write("one.py", TORCH_BENCH.format(declared=STATES_WORK))
    assert plan(device="auto")[0].cell.device.selector == openvino_cpu


def test_a_benchmark_must_declare_devices_that_torch_cannot_use(write, plan, openvino_cpu):
    write("one.py", TORCH_BENCH.format(declared=""))
    with pytest.raises(UnsupportedError, match=r"Product does not declare openvino: without `devices` "):
        plan(device=openvino_cpu)


def test_torch_calls_on_another_device_fail_the_point(write, measure, openvino_cpu):
    write("one.py", TORCH_BENCH.format(declared=DECLARES_OPENVINO))
    (run,) = measure(device="auto")
    (result,) = run.results
    assert result.status == "failed"
    assert result.error.startswith("Product should run on openvino:CPU, but its calls compute in torch on cpu: put ")


def test_a_benchmark_with_stated_flops_may_use_torch(write, measure, openvino_cpu):
    write("one.py", TORCH_BENCH.format(declared=STATES_WORK))
    (run,) = measure(device="auto")
    assert (run.status, run.cell.device.selector) == ("ok", openvino_cpu)


@pytest.mark.parametrize(
    ("options", "device", "runtime"),
    [({"attention": "eager"}, "cpu", "eager"), ({"hint": "latency"}, "openvino:CPU", "openvino")],
)
def test_auto_selects_a_device_whose_runtime_has_the_requested_options(openvino_cpu, options, device, runtime):
    request = Request(
        model_id="tiny-bert", weights="random", batch_sizes=(1,), options=options, settings=settings("quick")
    )
    cell = plan_cell(request, "session").cell
    assert (cell.device.selector, cell.runtime, cell.runtime_mode | options) == (device, runtime, cell.runtime_mode)
