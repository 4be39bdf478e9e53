"""ONNX Runtime Web on WebAssembly: a model's exported graphs on the CPU, inside a real browser."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarking.core.plugins import is_processor, processor
from benchmarking.core.records import Device, Precision, Workload
from benchmarking.graphs import exported_model as graphs
from benchmarking.runtimes.support.browser.browser_runtime import BrowserRuntime

PRECISIONS: tuple[Precision, ...] = ("float32", "int8", "int4")
NOT_NATIVE: Mapping[Precision, str] = {
    "float16": "WebAssembly has no float16 arithmetic: ONNX Runtime would convert to float32 and back",
    "bfloat16": "WebAssembly has no bfloat16 arithmetic",
    "tf32": "tf32 is a mode of NVIDIA's tensor cores",
}


class Wasm(BrowserRuntime):
    """The runtime `wasm`. It has no options; `--num-threads` sets its threads."""

    name = "wasm"
    script = "ort.wasm.bundle.min.mjs"
    profiled_as = "CPUExecutionProvider"

    def supports(self, device: Device, workload: Workload, precision: Precision) -> str | None:
        if not is_processor(device.type):
            return f"runtime wasm runs on {processor().name}, not on {device.type}: use runtime webgpu for a GPU"
        if precision not in PRECISIONS:
            return NOT_NATIVE.get(precision, f"runtime wasm supports {', '.join(PRECISIONS)}, not {precision}")
        return graphs.why_not(workload, precision)


PLUGIN = Wasm()
