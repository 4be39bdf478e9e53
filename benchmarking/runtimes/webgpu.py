"""ONNX Runtime Web on WebGPU: a model's exported graphs on the GPU that a real browser offers its pages.

On device cpu the adapter is the browser's software renderer, and results are marked as simulated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarking.core.contracts import Session, Stage
from benchmarking.core.device_contracts import DeviceHandle
from benchmarking.core.errors import BenchhouseError, UnsupportedError
from benchmarking.core.plugins import is_processor
from benchmarking.core.records import Cell, Device, Point, Precision, Workload
from benchmarking.graphs import exported_model as graphs
from benchmarking.runtimes.support.browser.browser import webgpu_flags
from benchmarking.runtimes.support.browser.browser_runtime import (
    FLOAT16_FEATURE,
    Adapter,
    BrowserRuntime,
    check_adapter,
    open_session,
    why_not_gpu,
)
from benchmarking.runtimes.support.onnxruntime.ort_runtime import IO_MODE

SCRIPT = "ort.webgpu.bundle.min.mjs"
"""The native WebGPU provider, compiled to WebAssembly. The older one in ort.all.bundle silently computes wrong values
for models with free dimensions."""
PRECISIONS: tuple[Precision, ...] = ("float32", "float16", "int4")
UNSUPPORTED: Mapping[Precision, str] = {
    "int8": "the WebGPU provider has no kernels for dynamically quantized products: they would run on the CPU",
    "bfloat16": "WebGPU's shaders have no bfloat16",
    "tf32": "tf32 is a mode of NVIDIA's tensor cores, which WebGPU does not offer",
}


class WebGpu(BrowserRuntime):
    """The runtime `webgpu`. Its option io_mode: whether inputs, outputs and states stay on the GPU."""

    name = "webgpu"
    script = SCRIPT
    profiled_as = "WebGpuExecutionProvider"
    declared_options = (IO_MODE,)

    def emulated_on(self, device: Device) -> str | None:
        return f"on {device.type} browsers emulate a GPU in software" if is_processor(device.type) else None

    def supports(self, device: Device, workload: Workload, precision: Precision) -> str | None:
        if (why_not := why_not_gpu(device)) is not None:
            return why_not
        if precision not in PRECISIONS:
            return UNSUPPORTED.get(precision, f"runtime webgpu supports {', '.join(PRECISIONS)}, not {precision}")
        return graphs.why_not(workload, precision)

    def open(self, cell: Cell, handle: DeviceHandle, stage: Stage, points: Sequence[Point]) -> Session:
        from benchmarking.runtimes.support.browser.page import ModelPage

        settings = self.page_settings(
            cell, flags=webgpu_flags(software=is_processor(cell.device.type)), io_mode=str(cell.runtime_mode["io_mode"])
        )

        def check(page: ModelPage) -> None:
            _check_page_adapter(page.browser.call("adapter"), cell)

        session = open_session(cell, stage, points, settings, check)
        try:
            adapter = _check_page_adapter(session.opened["adapter"], cell)
        except BenchhouseError:
            session.close()
            raise
        session.verified = {**session.verified, **adapter.verified()}
        return session


def _check_page_adapter(info: Mapping[str, Any] | None, cell: Cell) -> Adapter:
    """The page's adapter, if it is the requested one. Checked for the page before the model is loaded, and for the GPU
    device that ONNX Runtime then opens."""
    adapter = check_adapter(None if info is None else Adapter.from_page(info), cell.device)
    if cell.precision == "float16" and FLOAT16_FEATURE not in adapter.features:
        raise UnsupportedError(f"requested float16, but {adapter.label} lacks {FLOAT16_FEATURE}")
    return adapter


PLUGIN = WebGpu()
