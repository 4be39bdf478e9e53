"""ONNX Runtime Web on WebAssembly: a model's exported graphs on the processor, inside a real browser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarking.core.contracts import Session, Stage
from benchmarking.core.device_contracts import DeviceHandle
from benchmarking.core.records import Cell, Device, Point, Precision, Workload
from benchmarking.devices.support.kinds import has, processor
from benchmarking.graphs import session as graphs
from benchmarking.runtimes.support.browser import runtime as browser

SCRIPT = "ort.wasm.bundle.min.mjs"
PRECISIONS: tuple[Precision, ...] = ("float32", "int8", "int4")
NOT_NATIVE: Mapping[Precision, str] = {
    "float16": "WebAssembly has no arithmetic in float16: ONNX Runtime would convert to float32 and back",
    "bfloat16": "WebAssembly has no arithmetic in bfloat16",
    "tf32": "tf32 is a mode of NVIDIA's tensor cores",
}


class Wasm(browser.BrowserRuntime):
    """The runtime `wasm`. It has no options; `--num-threads` sets its threads."""

    name = "wasm"
    script = SCRIPT
    profiled_as = "CPUExecutionProvider"

    def supports(self, device: Device, workload: Workload, precision: Precision) -> str | None:
        if not has(device.type, lambda kind: kind.is_processor):
            return f"runtime wasm runs on {processor().name}, not on {device.type}: a page's GPU is runtime webgpu's"
        if precision not in PRECISIONS:
            return NOT_NATIVE.get(precision, f"runtime wasm has {', '.join(PRECISIONS)}, not {precision}")
        return graphs.why_not(workload)

    def open(self, cell: Cell, handle: DeviceHandle, stage: Stage, points: Sequence[Point]) -> Session:
        from benchmarking.runtimes.support.browser.page import PageSettings

        settings = PageSettings(
            script=self.script,
            provider={"name": "wasm"},
            profiled_as=self.profiled_as,
            num_threads=browser.num_threads(cell),
            flags=(),
            io_mode="host",
        )
        return browser.open_session(cell, stage, points, settings)


PLUGIN = Wasm()
