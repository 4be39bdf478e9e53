"""The runtime webnn: what it supports, and a graph on it if a browser has WebNN."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

from benchmarking.core.child_process import run_program
from benchmarking.core.errors import BenchhouseError, UnsupportedError, UsageError
from benchmarking.core.records import Cell, Device, Point, Workload
from benchmarking.graphs.bundle import Bundle, Graph, Tensor
from benchmarking.runtimes import webnn
from benchmarking.runtimes.support.browser import browser_runtime
from benchmarking.runtimes.support.browser.browser_session import profile_of
from benchmarking.runtimes.webnn import PLUGIN, check_context
from benchmarking.workloads.support.resolve import resolve

CPU = Device(type="cpu", selector="cpu", found=True, name="a CPU")
CUDA = Device(type="cuda", selector="cuda:0", found=True, name="a GPU")
NPU = Device(type="openvino", selector="openvino:NPU", found=True, name="an NPU")
WEIGHT = np.array([[1.0, -1.0], [2.0, 0.5], [0.0, 3.0]], dtype=np.float32)


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A function that sets the browser's answer; by default it has a context for the requested device."""

    def answers(report):
        monkeypatch.setattr(
            webnn, "query_browser", lambda kind: {"accelerated": kind == "gpu"} if report is None else report
        )

    answers(None)
    return answers


@pytest.fixture(scope="module")
def bert() -> Workload:
    return resolve("tiny-bert", weights="random")


def test_it_prepares_builds_without_torch_and_importing_it_imports_nothing_heavy():
    assert PLUGIN.prepares
    assert PLUGIN.needs_no_torch
    code = "import sys, benchmarking.runtimes.webnn as m; m.PLUGIN.missing(); "
    code += "print(*{'torch', 'numpy', 'onnx', 'playwright'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_without_playwright_the_reason_is_its_install_command(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert PLUGIN.missing() == "not installed: playwright: pip install benchhouse[browser]"


def test_cpu_and_gpus_are_supported_and_npus_are_not(bert, answer):
    assert PLUGIN.supports(CPU, bert, "float32") is None
    assert PLUGIN.supports(CUDA, bert, "float16") is None
    assert PLUGIN.supports(NPU, bert, "float32") == (
        "runtime webnn runs on CPUs and GPUs, not on openvino: a page cannot tell whether WebNN uses the NPU"
    )
    null = Device(type="null", selector="null", found=True)
    assert PLUGIN.supports(null, bert, "float32").startswith("browsers run WebNN on GPUs of ")


def test_emulated_precision_is_refused(bert, answer):
    assert PLUGIN.supports(CPU, bert, "float16") == "runtime webnn supports float32 on the CPU, not float16"
    assert PLUGIN.supports(CUDA, bert, "int8") == "runtime webnn supports float32, float16 on GPUs, not int8"


def test_shapes_that_grow_are_refused():
    why = PLUGIN.supports(CPU, resolve("tiny-gpt2", weights="random"), "float32")
    assert why.startswith(
        "runtime webnn compiles graphs for fixed shapes: it supports single forward passes, not text-generation"
    )


def test_an_unsuitable_browser_is_refused_before_planning(bert, answer):
    answer({"whyNot": "WebNN is not supported on this platform."})
    assert PLUGIN.supports(CPU, bert, "float32") == (
        "the browser runs no neural networks on cpu: WebNN is not supported on this platform."
    )
    answer({"accelerated": False})
    assert "denies that its context is accelerated" in PLUGIN.supports(CUDA, bert, "float32")


@pytest.mark.parametrize(
    ("program", "report"),
    [
        ("import sys; print('{}')", {}),
        ("import sys; sys.exit('first\\nlast')", {"whyNot": "last"}),
        ("import sys; sys.exit(3)", {"whyNot": "the browser query failed (exit code 3)"}),
        ("import time; time.sleep(9)", {"whyNot": "the browser did not answer within 0.2 s"}),
    ],
)
def test_unresponsive_browser_is_reported(monkeypatch, program, report):
    def run(module, kind, *, limit_s):
        return run_program([sys.executable, "-c", program], limit_s=limit_s)

    monkeypatch.setattr(browser_runtime, "run_module", run)
    monkeypatch.setattr(browser_runtime, "TIMEOUT_S", 0.2 if "sleep" in program else 60.0)
    assert browser_runtime.query_browser.__wrapped__("cpu") == report


def test_runtime_has_no_options(bert):
    assert PLUGIN.mode(CPU, bert, {}) == {}
    with pytest.raises(UsageError, match="runtime webnn has no option 'io_mode'; it has none"):
        PLUGIN.mode(CPU, bert, {"io_mode": "host"})
    cell = Cell(workload=bert, device=CPU, requested_device="cpu", runtime="webnn", num_threads=2)
    with pytest.raises(UnsupportedError, match="the browser chooses the number of threads for WebNN"):
        PLUGIN.open(cell, None, None, ())


def test_cpu_context_is_not_accepted_for_a_gpu():
    assert check_context({"accelerated": True}, CUDA) is True
    assert check_context({"accelerated": None}, CPU) is None
    assert check_context({"accelerated": False}, CPU) is False
    with pytest.raises(UnsupportedError, match="on cuda:0, but the browser denies that its context is accelerated"):
        check_context({"accelerated": False}, CUDA)
    with pytest.raises(
        UnsupportedError, match="on cuda:0, but the browser does not report whether its context is accel"
    ):
        check_context({"accelerated": None}, CUDA)
    with pytest.raises(UnsupportedError, match="the browser's context is accelerated"):
        check_context({"accelerated": True}, CPU)


def test_browser_without_webnn_is_refused_with_its_message():
    with pytest.raises(BenchhouseError, match=r"runs no neural networks on cpu: it has no navigator\.ml"):
        check_context({"whyNot": "it has no navigator.ml"}, CPU)


def forward(folder):
    """y = relu(x @ WEIGHT), x of n x 3."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size]) for name, size in (("x", 3), ("y", 2)))
    made = helper.make_graph(nodes, "by hand", [x], [y], [numpy_helper.from_array(WEIGHT, "w")])
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "m.onnx")
    tensors = [Tensor(name=name, dtype="float32", shape=("n", size)) for name, size in (("x", 3), ("y", 2))]
    graph = Graph(
        file="m.onnx", inputs=(tensors[0],), outputs=(tensors[1],), feeds={"x": "inputs.x"}, result="y", result_name="y"
    )
    return Bundle(kind="forward", exporter="by hand", graphs={"model": graph})


def test_page_runs_a_graph_on_webnn_or_has_a_reason(open_page, tmp_path):
    page = open_page("webnn")
    try:
        report = page.browser.call("contextReport")
        if "whyNot" in report:
            with pytest.raises(BenchhouseError, match="runs no neural networks on cpu"):
                check_context(report, CPU)
            return
        bundle = forward(tmp_path)
        page.fetch(tmp_path, bundle)
        page.open({"n": 2})
        x = np.array([[1.0, 1.0, 1.0], [0.0, 2.0, -1.0]], dtype=np.float32)
        page.prepare(bundle, Point(batch_size=2), {"model.x": x}, {})
        arrays, _ = page.output(page.call()["number"], ("y",))
        np.testing.assert_allclose(arrays["y"], np.maximum(x @ WEIGHT, 0), rtol=1e-6)
        where = profile_of(page)
        assert where["nodes_by_provider"] == {"WebNNExecutionProvider": 1}
        assert where["nodes_on_cpu_unasked"] == 0
    finally:
        page.close()
