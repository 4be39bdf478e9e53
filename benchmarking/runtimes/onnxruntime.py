"""ONNX Runtime: a model's exported graphs on the provider of each device, in a process without torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from benchmarking.builds.store import BuildStore
from benchmarking.core.contracts import Option, Session, Stage
from benchmarking.core.device_contracts import DeviceHandle
from benchmarking.core.errors import UsageError
from benchmarking.core.records import Cell, Device, Json, Point, Precision, Rebuild, Scalar, Workload
from benchmarking.graphs import session as graphs
from benchmarking.graphs.bundle import read_bundle
from benchmarking.runtimes.support.onnxruntime import runtime as shared
from benchmarking.workloads.support.families import plugin_of

QUANTIZATIONS: Mapping[Precision, str] = {"int8": "dynamic", "int4": "weight-only"}
"""How the graphs of a precision are quantized: weights and, during the call, activations; or the weights alone."""
CACHE = Option(name="cache", help="key-value cache of models that generate", values=("dynamic",))
"""The graphs' states grow by a token a step; there is no other cache."""


class OnnxRuntime(shared.OrtRuntime):
    """The runtime `onnxruntime`. Its settings: io_mode (whether inputs and outputs are in the host's or the device's
    memory), provider where it is not the device's default, quantization, and cache in generation."""

    name = "onnxruntime"
    export_format = "onnx"
    concurrency_flag = ""
    packages: tuple[str, ...] = ("onnxruntime", "onnxruntime-gpu", "onnx")
    declared_options = (
        Option(
            name="provider",
            help="execution provider of ONNX Runtime, such as directml on Windows",
            default="the device's own",
        ),
        replace(shared.IO_MODE, default="device where it has memory of its own, else host", is_filled_in=False),
        Option(
            name="quantization",
            help="quantization method of int8 and int4",
            values=tuple(QUANTIZATIONS.values()),
            default="dynamic at int8, weight-only at int4",
            is_filled_in=False,
        ),
        CACHE,
    )

    def supports(self, device: Device, workload: Workload, precision: Precision) -> str | None:
        known = shared.providers_of(device)
        if not known:
            return f"ONNX Runtime has no provider for {device.type}"
        if (why_not := graphs.why_not(workload)) is not None:
            return why_not
        provider = shared.possible_provider(device, known)
        return provider if isinstance(provider, str) else shared.why_not_precision(device, provider, precision)

    def options(self, workload: Workload, device: Device | None = None) -> tuple[Option, ...]:
        generates = workload.task in plugin_of(workload).generative_tasks
        return tuple(option for option in self.declared_options if option is not CACHE or generates)

    def mode(self, device: Device, workload: Workload, options: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        """io_mode is device by default where the device has its own memory, else host."""
        mode = dict(super().mode(device, workload, options))
        provider = shared.provider_of(device, mode.pop("provider", None))
        mode.setdefault("io_mode", "device" if provider.has_own_memory else "host")
        if mode["io_mode"] == "device" and provider.memory is None:
            raise UsageError(f"io_mode 'device': {provider.name} binds nothing to the memory of {device.selector} here")
        if provider.name != shared.providers_of(device)[0].name:
            mode["provider"] = provider.word
        return mode

    def runs_at_once(self, mode: Mapping[str, Scalar]) -> bool:
        return True

    def mode_at(self, precision: Precision, mode: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        shared.check_named_precision(mode.get("provider"), precision)
        method = QUANTIZATIONS.get(precision)
        asked = mode.get("quantization", method)
        if asked != method:
            has = f"is quantized {method} here" if method else "is not quantized; int8 and int4 are"
            raise UsageError(f"quantization {asked!r}: in runtime onnxruntime {precision} {has}")
        return mode if method is None else {**mode, "quantization": method}

    def prepare(self, cell: Cell, points: Sequence[Point], store: BuildStore, rebuild: Rebuild) -> Mapping[str, Json]:
        return graphs.ensure_bundle(cell, points, store, rebuild)

    def open(self, cell: Cell, handle: DeviceHandle, stage: Stage, points: Sequence[Point]) -> Session:
        from benchmarking.runtimes.support.onnxruntime.session import GraphSource, OrtSession

        provider = shared.provider_of(cell.device, cell.runtime_mode.get("provider"))
        settings = shared.SessionSettings(
            provider=provider,
            precision=cell.precision,
            num_threads=shared.num_threads(cell),
            plugin_devices=() if provider.entries is None else provider.entries(cell.device),
        )

        def locate(point: Point) -> GraphSource:
            folder = graphs.find_bundle(cell, point)
            return GraphSource(folder=folder, bundle=read_bundle(folder), settings=settings)

        return OrtSession(cell, points, locate, stage)


PLUGIN = OnnxRuntime()
