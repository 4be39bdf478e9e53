"""The runtimes wasm and webgpu without a browser: what they require and support."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from benchmarking.core.errors import BenchhouseError, UnsupportedError, UsageError
from benchmarking.core.records import Device, Workload
from benchmarking.graphs.bundle import Bundle, check_weights
from benchmarking.runtimes import wasm, webgpu
from benchmarking.runtimes.support.browser import browser_runtime as browser

CPU = Device(type="cpu", selector="cpu", found=True, name="a CPU")
CUDA = Device(type="cuda", selector="cuda:0", found=True, name="a GPU")
BOTH = pytest.mark.parametrize("plugin", [wasm.PLUGIN, webgpu.PLUGIN], ids=["wasm", "webgpu"])


@pytest.fixture(scope="module")
def bert() -> Workload:
    from benchmarking.workloads.support.resolve import resolve

    return resolve("tiny-bert")


@BOTH
def test_importing_a_browser_runtime_imports_nothing_heavy(plugin):
    heavy = ("torch", "transformers", "numpy", "onnx", "playwright", "psutil")
    code = f"import sys, benchmarking.runtimes.{plugin.name} as m; m.PLUGIN.missing(); "
    code += f"print(*[name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@BOTH
def test_browser_runtimes_prepare_builds_and_need_no_torch(plugin):
    assert plugin.prepares
    assert plugin.needs_no_torch
    assert plugin.needs_no_torch
    assert plugin.is_compared


@BOTH
def test_without_playwright_the_reason_is_its_install_command(plugin, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "playwright" else found(name))
    assert plugin.missing() == "not installed: playwright: pip install benchhouse[browser]"


@BOTH
def test_without_a_browser_the_reason_is_what_to_install(plugin, monkeypatch, tmp_path):
    if importlib.util.find_spec("playwright") is None:
        pytest.skip("playwright is not installed, which is said first")
    monkeypatch.setenv("BENCHHOUSE_BROWSER", str(tmp_path / "absent"))
    assert plugin.missing() == f"BENCHHOUSE_BROWSER names {tmp_path / 'absent'}, which is not a file"


def test_wasm_runs_on_the_cpu_only(bert):
    assert wasm.PLUGIN.supports(CPU, bert, "float32") is None
    assert wasm.PLUGIN.supports(CUDA, bert, "float32") == (
        "runtime wasm runs on cpu, not on cuda: use runtime webgpu for a GPU"
    )


def test_webgpu_runs_on_gpus_and_in_software(bert):
    assert webgpu.PLUGIN.supports(CPU, bert, "float32") is None
    assert webgpu.PLUGIN.supports(CUDA, bert, "float16") is None
    qnn = Device(type="qnn", selector="qnn", found=True)
    assert "not on qnn" in webgpu.PLUGIN.supports(qnn, bert, "float32")


@pytest.mark.parametrize(
    ("plugin", "precision", "why"),
    [
        (wasm.PLUGIN, "float16", "WebAssembly has no float16 arithmetic"),
        (wasm.PLUGIN, "bfloat16", "WebAssembly has no bfloat16 arithmetic"),
        (wasm.PLUGIN, "tf32", "tf32 is a mode of NVIDIA's tensor cores"),
        (webgpu.PLUGIN, "int8", "they would run on the CPU"),
        (webgpu.PLUGIN, "bfloat16", "shaders have no bfloat16"),
        (webgpu.PLUGIN, "tf32", "tf32 is a mode of NVIDIA's tensor cores"),
    ],
)
def test_precisions_that_would_be_emulated_are_refused(bert, plugin, precision, why):
    assert why in plugin.supports(CPU, bert, precision)


def test_a_workload_without_graphs_is_refused(bert):
    from dataclasses import replace

    module = replace(bert, source="module")
    for plugin in (wasm.PLUGIN, webgpu.PLUGIN):
        assert "not a module" in plugin.supports(CPU, module, "float32")


def test_browser_runtimes_have_only_their_own_options(bert):
    assert wasm.PLUGIN.mode(CPU, bert, {}) == {}
    assert webgpu.PLUGIN.mode(CPU, bert, {}) == {"io_mode": "device"}
    assert webgpu.PLUGIN.mode(CPU, bert, {"io_mode": "host"}) == {"io_mode": "host"}
    with pytest.raises(UsageError, match="io_mode 'gpu': runtime webgpu has device, host"):
        webgpu.PLUGIN.mode(CPU, bert, {"io_mode": "gpu"})
    with pytest.raises(UsageError, match="runtime wasm has no option 'attention'; it has none"):
        wasm.PLUGIN.mode(CPU, bert, {"attention": "sdpa"})
    with pytest.raises(UsageError, match="runtime webgpu has no option 'cache'; it has io_mode"):
        webgpu.PLUGIN.mode(CPU, bert, {"cache": "static"})


def test_fewer_threads_than_requested_are_refused():
    browser.check_threads(2, {"num_threads": 2, "cross_origin_isolated": True})
    browser.check_threads(1, {"num_threads": 1, "cross_origin_isolated": False})
    with pytest.raises(BenchhouseError, match="requested 4 threads, but ONNX Runtime Web uses 1"):
        browser.check_threads(4, {"num_threads": 1, "cross_origin_isolated": True})
    with pytest.raises(UnsupportedError, match="does not isolate the page"):
        browser.check_threads(2, {"num_threads": 1, "cross_origin_isolated": False})


def test_weights_of_another_precision_are_refused():
    def bundle(**dtypes):
        return Bundle(kind="forward", graphs={}, exporter="by hand", weight_dtypes=dtypes)

    check_weights(bundle(int8=10, float32=3), "int8")
    with pytest.raises(UnsupportedError, match="requested int8, but the graphs' weights are 13 x float32"):
        check_weights(bundle(float32=13, int8=0), "int8")
