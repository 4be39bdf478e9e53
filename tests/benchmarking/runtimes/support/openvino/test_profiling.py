"""Times and modules of the nodes that OpenVINO runs, from its own counters."""

from __future__ import annotations

import time
from datetime import timedelta
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarking.graphs.bundle import Graph, Tensor
from benchmarking.graphs.profiling import Origins
from benchmarking.runtimes.support.openvino.openvino_profiling import OpenVinoProfiler, tag_modules
from tests.helpers.traced_graphs import graph_in_modules

openvino = pytest.importorskip("openvino")
GRAPH = Graph(
    file="layer.onnx",
    inputs=(Tensor(name="x", shape=("rows", 64), dtype="float32"),),
    outputs=(Tensor(name="y", shape=("rows", 64), dtype="float32"),),
)


class Calls:
    """A call with several runs of the graph, each with its number of rows."""

    def __init__(self, runner, rows):
        self._runner, self._rows = runner, rows

    def reset(self):
        pass

    def run(self, mark):
        for count in self._rows:
            self._runner.call("model", {"x": openvino.Tensor(np.ones((count, 64), dtype=np.float32))})


class Engine:
    """A compiled model with given run times, and the counters of a device's plug-in."""

    def __init__(self, device, run_us):
        self.device, self.run_us, self.runs = device, run_us, 0
        self.told_us = 0.0

    def create_infer_request(self):
        return self

    def query_state(self):
        return []

    def set_tensor(self, name, tensor):
        self.now = self.run_us[len(tensor.data)]

    def infer(self, share_outputs):
        self.told_us = self.now if self.device == "GPU" else (self.told_us * self.runs + self.now) / (self.runs + 1)
        self.runs += 1

    def get_tensor(self, name):
        return None

    def get_property(self, name):
        return {"EXECUTION_DEVICES": [self.device]}[name]

    def get_runtime_model(self):
        raise RuntimeError("no execution graph")

    def get_profiling_info(self):
        executed = SimpleNamespace(EXECUTED="executed")
        real_time = timedelta(microseconds=self.told_us)
        return [
            SimpleNamespace(
                Status=executed, status=status, node_name=name, node_type=kind, exec_type="jit", real_time=real_time
            )
            for name, kind, status in (
                ("dense", "FullyConnected", "executed"),
                ("left out", "Relu", "not run"),
                ("x", "Parameter", "executed"),
            )
        ]


@pytest.mark.parametrize("device", ["CPU", "GPU"])
def test_run_times_add_up_for_both_kinds_of_counters(device, tmp_path):
    """A call of one long run and two short ones, after a warm-up that took longer."""
    engine = Engine(device, {8: 9000, 4: 3000, 1: 300})
    origins = Origins.of({"model": graph_in_modules(tmp_path)})
    marks = {"model": {"dense": "layer.0.dense"}}
    rows = [8, 8, 8]

    profiler = OpenVinoProfiler({"model": engine}, {"model": GRAPH}, marks, lambda runner: Calls(runner, rows), origins)
    profiler.run(is_kept=False)
    rows[:] = [4, 1, 1]
    for _ in range(5):
        profiler.run()
    found = profiler.breakdown()
    (operator,) = found.operators
    assert (operator.module, operator.operator, operator.calls) == ("layer.0.dense", "FullyConnected", 3.0)
    assert operator.exclusive_ms == pytest.approx(3.6, rel=1e-3)


def test_openvino_nodes_belong_to_the_modules_of_their_operations_and_fit_in_the_call(tmp_path):
    path = graph_in_modules(tmp_path)
    origins = Origins.of({"model": path})
    core = openvino.Core()
    model = core.read_model(str(path))
    marks = {"model": tag_modules(model, "model", origins)}
    # Compiled here: OpenVINO's counters are means over all runs of a compiled model.
    compiled = core.compile_model(model, "CPU", {"PERF_COUNT": True, "INFERENCE_NUM_THREADS": 1})
    calls = {"model": compiled}, {"model": GRAPH}, marks
    profiler = OpenVinoProfiler(*calls, lambda runner: Calls(runner, [2000, 2000]), origins)
    profiler.run(is_kept=False)
    began = time.perf_counter()
    for _ in range(3):
        profiler.run()
    elapsed_ms = 1e3 * (time.perf_counter() - began)
    found = profiler.breakdown()
    in_nodes = sum(one.exclusive_ms for one in found.operators)
    modules = {one.operator: one.module for one in found.operators}
    assert modules["MVN"] == "layer.0.norm"
    assert modules["FullyConnected"] == "layer.0.dense"
    assert {"layer.0.norm", "layer.0.dense"} <= set(modules.values()) <= {"layer.0", "layer.0.norm", "layer.0.dense"}
    assert found.details["matched_share"] == pytest.approx(1)
    products = sum(one.calls for one in found.operators if one.operator == "FullyConnected")
    assert products == 4
    # Beside other programs the call's time may be many times that of its nodes.
    assert 0 < in_nodes <= found.host_ms <= elapsed_ms / 3
    assert sum(one.exclusive_ms for one in found.modules) == pytest.approx(found.host_ms, rel=0.001)
