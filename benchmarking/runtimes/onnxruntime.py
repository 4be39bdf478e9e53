"""ONNX Runtime: a model's exported graphs on the provider of each device, in a process without torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarking.builds.store import BuildStore
from benchmarking.core.contracts import Runtime, Session, Stage
from benchmarking.core.device_contracts import DeviceHandle
from benchmarking.core.errors import UsageError
from benchmarking.core.records import Cell, Device, Json, Point, Precision, Rebuild, Scalar, Workload
from benchmarking.graphs import session as graphs
from benchmarking.graphs.bundle import read_bundle
from benchmarking.runtimes.support.onnxruntime import runtime as shared
from benchmarking.workloads.support.families import plugin_of

IO_MODES = ("host", "device")
QUANTIZATIONS: Mapping[Precision, str] = {"int8": "dynamic", "int4": "weight-only"}
"""How the graphs of a precision are quantized: activations too as they come, or the weights alone."""
METHODS = tuple(QUANTIZATIONS.values())
CACHE = "dynamic"
"""The graphs' states grow by a token a step; ONNX Runtime has no other cache of theirs."""


class OnnxRuntime(Runtime):
    """The runtime `onnxruntime`. Mode io_mode: whether a call takes and gives the host's arrays, or the device's;
    provider, where it is not the device's first."""

    name = "onnxruntime"
    prepares = True
    needs_no_torch = True
    packages: tuple[str, ...] = ("onnxruntime", "onnxruntime-gpu", "onnx")

    def missing(self) -> str | None:
        return shared.installed()

    def supports(self, device: Device, workload: Workload, precision: Precision) -> str | None:
        known = shared.providers_of(device)
        if not known:
            return f"ONNX Runtime has no provider for {device.type}"
        if (why_not := graphs.why_not(workload)) is not None:
            return why_not
        provider = shared.possible_provider(device, known)
        return provider if isinstance(provider, str) else shared.why_not_precision(device, provider, precision)

    def options(self, workload: Workload) -> tuple[str, ...]:
        return ("provider", "io_mode", "quantization", *(("cache",) if _generates(workload) else ()))

    def mode(self, device: Device, workload: Workload, options: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        """Bound to the device where it has memory of its own, else `run`, as each is used there."""
        shared.has_no_option(self.name, options, self.options(workload))
        provider = shared.provider_of(device, options.get("provider"))
        memory = provider.memory
        default = "host" if memory in (None, "cpu") else "device"
        io_mode = shared.chosen(self.name, "io_mode", options.get("io_mode", default), IO_MODES)
        if io_mode == "device" and memory is None:
            raise UsageError(f"io_mode 'device': {provider.name} binds nothing to the memory of {device.selector} here")
        mode: dict[str, Scalar] = {"io_mode": io_mode}
        if provider.name != shared.providers_of(device)[0].name:
            mode["provider"] = provider.word
        if "quantization" in options:
            mode["quantization"] = shared.chosen(self.name, "quantization", options["quantization"], METHODS)
        if _generates(workload):
            mode["cache"] = shared.chosen(self.name, "cache", options.get("cache", CACHE), (CACHE,))
        return mode

    def mode_at(self, precision: Precision, mode: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        shared.check_named_precision(mode.get("provider"), precision)
        method = QUANTIZATIONS.get(precision)
        asked = mode.get("quantization", method)
        if asked != method:
            has = f"is quantized {method} here" if method else "is not quantized; int8 and int4 are"
            raise UsageError(f"quantization {asked!r}: in runtime onnxruntime {precision} {has}")
        return mode if method is None else {**mode, "quantization": method}

    def import_libraries(self) -> None:
        import onnxruntime  # noqa: F401

    def prepare(self, cell: Cell, points: Sequence[Point], store: BuildStore, rebuild: Rebuild) -> Mapping[str, Json]:
        return graphs.ensure_bundle(cell, points, store, rebuild)

    def open(self, cell: Cell, handle: DeviceHandle, stage: Stage, points: Sequence[Point]) -> Session:
        from benchmarking.runtimes.support.onnxruntime.options import SessionSettings, default_num_threads
        from benchmarking.runtimes.support.onnxruntime.session import GraphSource, OrtSession
        from benchmarking.workloads.support.processing import open_processing

        provider = shared.provider_of(cell.device, cell.runtime_mode.get("provider"))
        settings = SessionSettings(
            provider=provider,
            precision=cell.precision,
            num_threads=cell.num_threads or default_num_threads(),
            plugin_devices=() if provider.entries is None else provider.entries(cell.device),
        )

        def locate(point: Point) -> GraphSource:
            folder = graphs.find_bundle(cell, point)
            return GraphSource(folder=folder, bundle=read_bundle(folder), settings=settings)

        return OrtSession(cell, points, locate, open_processing(cell.workload, stage), stage)


def _generates(workload: Workload) -> bool:
    return workload.task in plugin_of(workload).generative_tasks


PLUGIN = OnnxRuntime()
