"""ONNX Runtime Web on WebNN: a model's exported graphs as the browser's own neural networks, if it supports them.

2026-11-21: the kind of device is only a hint to WebNN, which silently falls back to the CPU. So a context for a GPU
counts only if the browser reports it as accelerated and the page's GPU is from the device's vendor. A page cannot
detect an NPU, so NPUs are not supported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarking.core.contracts import Session, Stage
from benchmarking.core.device_contracts import DeviceHandle
from benchmarking.core.errors import BenchhouseError, UnsupportedError
from benchmarking.core.plugins import are_all_assumed, has, is_processor
from benchmarking.core.records import Cell, Device, Json, Point, Precision, Workload
from benchmarking.graphs.exported_model import why_not_forward
from benchmarking.runtimes.support.browser.browser import WEBNN_FLAGS, webgpu_flags
from benchmarking.runtimes.support.browser.browser_runtime import (
    Adapter,
    BrowserRuntime,
    check_adapter,
    open_session,
    query_browser,
    why_not_gpu,
)

SCRIPT = "ort.webgpu.bundle.min.mjs"
"""The bundle, which includes WebNN's provider."""
PROCESSOR, GPU = "cpu", "gpu"
"""WebNN's kinds of device."""
PRECISIONS: Mapping[str, tuple[Precision, ...]] = {PROCESSOR: ("float32",), GPU: ("float32", "float16")}
"""On the CPU, WebNN accepts float16 but computes in float32."""
NAMES = {PROCESSOR: "the CPU", GPU: "GPUs"}


class WebNn(BrowserRuntime):
    """The runtime `webnn`. It has no options."""

    name = "webnn"
    script = SCRIPT
    profiled_as = "WebNNExecutionProvider"

    def supports(self, device: Device, workload: Workload, precision: Precision) -> str | None:
        if has(device.type, lambda kind: kind.is_npu(device)):
            return (
                f"runtime webnn runs on CPUs and GPUs, not on {device.type}: a page cannot tell whether WebNN uses the "
                "NPU"
            )
        if (why_not := why_not_gpu(device)) is not None:
            return why_not.replace("WebGPU", "WebNN")
        kind = device_kind(device)
        if precision not in PRECISIONS[kind]:
            return f"runtime webnn supports {', '.join(PRECISIONS[kind])} on {NAMES[kind]}, not {precision}"
        if (why_not := why_not_forward(self.name, workload, precision)) is not None or are_all_assumed():
            return why_not
        try:  # whether this machine's browser has a context for the device
            check_context(query_browser(kind), device)
        except BenchhouseError as error:
            return str(error)
        return None

    def open(self, cell: Cell, handle: DeviceHandle, stage: Stage, points: Sequence[Point]) -> Session:
        from benchmarking.runtimes.support.browser.page import ModelPage

        if cell.num_threads is not None:
            raise UnsupportedError("--num-threads: the browser chooses the number of threads for WebNN: omit the flag")
        kind = device_kind(cell.device)
        flags = (*WEBNN_FLAGS, *(webgpu_flags(software=False) if kind == GPU else ()))
        settings = self.page_settings(cell, flags=flags, is_fixed=True, provider={"deviceType": kind})
        verified: dict[str, Json] = {"webnn_device_type": kind}

        def check(page: ModelPage) -> None:
            verified["webnn_accelerated"] = check_context(page.browser.call("contextReport"), cell.device)
            if kind == GPU:
                adapter: Mapping[str, Any] | None = page.browser.call("adapter")
                page_adapter = None if adapter is None else Adapter.from_page(adapter)
                verified.update(check_adapter(page_adapter, cell.device).verified())

        session = open_session(cell, stage, points, settings, check)
        session.verified = {**session.verified, **verified}
        return session


def device_kind(device: Device) -> str:
    """WebNN's name for a kind of device."""
    return PROCESSOR if is_processor(device.type) else GPU


def check_context(context: Mapping[str, Any], device: Device) -> bool | None:
    """Whether the browser reports its context as accelerated; None if it does not report it. Raises BenchhouseError
    without a context, or if it belongs to another device."""
    if (why_not := context.get("whyNot")) is not None:
        raise BenchhouseError(f"the browser runs no neural networks on {device.selector}: {why_not}")
    accelerated: bool | None = context["accelerated"]
    if device_kind(device) == PROCESSOR and accelerated:
        raise UnsupportedError("requested WebNN on the CPU, but the browser's context is accelerated")
    if device_kind(device) == GPU and not accelerated:
        says = "does not report whether" if accelerated is None else "denies that"
        raise UnsupportedError(
            f"requested WebNN on {device.selector}, but the browser {says} its context is accelerated: "
            "it may run on the CPU"
        )
    return accelerated


PLUGIN = WebNn()
