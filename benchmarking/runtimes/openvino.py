"""OpenVINO: graphs exported from the model, on its CPU, GPU and NPU plugins, and on device cpu.

2026-11-21: cpu and openvino:CPU are the same processor and plugin, but two devices, since a hardware id names the
requested one. Results on cpu are compared with other runtimes, results on openvino with OpenVINO's other devices.

2026-11-22: requests are kept in flight. Earlier, a call started all requests and lasted until the last one ended; the
setting in_flight separates the two kinds of series.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from benchmarking.builds.store import BuildStore
from benchmarking.core.contracts import Option, Runtime, Session, Stage, build_path_lines
from benchmarking.core.device_contracts import DeviceHandle
from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.plugins import has, how_to_install, is_installed, is_processor, why_not_on
from benchmarking.core.records import Cell, Device, Json, Point, Precision, Rebuild, Scalar, Workload
from benchmarking.devices.openvino import OpenVinoHandle, device_name, import_openvino
from benchmarking.devices.support.binding import binding_lines
from benchmarking.graphs.bundle import read_bundle
from benchmarking.workloads.support.exported_folder import export_facts, is_export
from benchmarking.workloads.support.families import plugin_of

PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16", "float16", "int8", "int4")
SIXTEEN_BITS: tuple[Precision, ...] = ("bfloat16", "float16")
QUANTIZED: tuple[Precision, ...] = ("int8", "int4")
LATENCY, THROUGHPUT = "latency", "throughput"
HINT = Option(
    "hint",
    "performance hint; throughput keeps --concurrency requests in flight",
    values=(LATENCY, THROUGHPUT),
    tried=(THROUGHPUT,),
)
DYNAMIC = Option(
    "dynamic",
    "dynamic shapes in the compiled code",
    values=("true", "false"),
    default="true, false on an NPU",
    tried=("false",),
)
"""Graphs compiled once for all shapes, or for each point's shapes."""
QUANTIZATION = Option(
    "quantization", "quantization method", values=("weight-only", "dynamic"), is_filled_in=False, tried=("dynamic",)
)
"""nncf quantizes weights beforehand; with dynamic, activations are also quantized, in groups, during a call."""
FORMATS = ("onnx", "openvino")
"""Graph file formats that OpenVINO reads."""
LOOPS = frozenset({"new_tokens", "steps"})
"""Axes of tasks whose calls are several passes through a model, each depending on the previous one."""
CACHE = Option("cache", "key-value cache for text generation", values=("dynamic",))


class OpenVino(Runtime):
    """The runtime `openvino`. Its options: the hint (latency: one request; throughput: the point's number in flight),
    whether shapes are dynamic, the quantization, and the cache of generation."""

    name = "openvino"
    other_words = ("ov",)
    profiler = "OpenVINO"
    profiler_traces = False
    export_format = "openvino"
    prepares = True
    packages: tuple[str, ...] = ("openvino", "nncf", "onnx")
    needs_no_torch = True
    concurrency_flag = f"{HINT.flag} {THROUGHPUT}"
    declared_options = (HINT, DYNAMIC, QUANTIZATION, CACHE)

    def missing(self) -> str | None:
        from benchmarking.graphs.exported_model import missing

        if not is_installed("openvino"):
            return f"not installed: openvino: {how_to_install()}"
        return missing()

    def why_not_on(self, device: Device) -> str | None:
        return why_not_on(self.name, device.type, lambda kind: kind.runs_openvino)

    def supports(self, device: Device, workload: Workload, precision: Precision) -> str | None:
        from benchmarking.graphs.exported_model import why_not
        from benchmarking.runtimes.support.openvino.compile import missing_for

        if (wrong_device := self.why_not_on(device)) is not None:
            return wrong_device
        if precision not in PRECISIONS:
            return f"runtime openvino supports {', '.join(PRECISIONS)}, not {precision}"
        # If the CPU's precisions are unknown, OpenVINO is queried when the model is loaded.
        native = device.facts.values.get("native_precisions") if is_processor(device.type) else None
        if precision in SIXTEEN_BITS and isinstance(native, list) and precision not in native:
            return f"OpenVINO runs float32 instead of {precision} on this CPU, which does not compute at it"
        if (reason := missing_for(precision)) is not None:
            return reason
        if _is_npu(device) and _generates(workload):
            return "OpenVINO's NPU plugin requires fixed shapes, but the cache grows with every generated token"
        if is_export(workload) and (exported := export_facts(workload)["precision"]) in QUANTIZED:
            return (
                f"{workload.model_id} was exported at {exported} with operators of ONNX Runtime: use --runtime "
                "onnxruntime"
            )
        return why_not(workload, precision, FORMATS, PRECISIONS)

    def options(self, workload: Workload, device: Device | None = None) -> tuple[Option, ...]:
        on_npu = device is not None and _is_npu(device)
        dynamic = replace(DYNAMIC, values=("false", "true")) if on_npu else DYNAMIC
        return (HINT, dynamic, QUANTIZATION, *((CACHE,) if _generates(workload) else ()))

    def mode(self, device: Device, workload: Workload, options: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        from benchmarking.runtimes.support.openvino.compile import check_dot_products

        mode = super().mode(device, workload, options)
        if "quantization" in mode:
            check_dot_products(device, mode["quantization"])
        if _is_npu(device) and mode["dynamic"] == "true":
            raise UnsupportedError("OpenVINO's NPU plugin requires fixed shapes: omit --dynamic")
        if mode["hint"] == THROUGHPUT and LOOPS & set(plugin_of(workload).axes(workload)):
            raise UnsupportedError(
                f"--hint throughput keeps single passes through a model in flight, but task {workload.task} is a loop "
                "of passes: use --hint latency, with larger --batch-sizes for throughput"
            )
        if _generates(workload) and mode["dynamic"] == "false":
            raise UnsupportedError("--dynamic false: the cache grows with every generated token: omit --dynamic")
        return {**mode, "in_flight": "kept"} if mode["hint"] == THROUGHPUT else mode

    def mode_at(self, precision: Precision, mode: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        if precision in QUANTIZED:
            return {**mode, "quantization": mode.get("quantization", QUANTIZATION.values[0])}
        if "quantization" in mode:
            raise UsageError(
                f"quantization {mode['quantization']}: {precision} is not quantized: use --precision int8 or int4"
            )
        return mode

    def runs_at_once(self, mode: Mapping[str, Scalar]) -> bool:
        return mode["hint"] == THROUGHPUT

    def prepare(self, cell: Cell, points: Sequence[Point], store: BuildStore, rebuild: Rebuild) -> Mapping[str, Json]:
        from benchmarking.runtimes.support.openvino.compile import ensure_builds, ensure_caches

        facts = ensure_builds(cell, points, store, rebuild)
        return {**facts, **ensure_caches(cell, points, store, rebuild)}

    def deployment(self, cell: Cell, point: Point) -> str | None:
        from benchmarking.graphs.exported_model import example_inputs
        from benchmarking.runtimes.support.openvino.compile import (
            find_build,
            graph_file,
            is_concurrent,
            is_fixed,
            properties,
        )

        if cell.workload.source == "file":
            return None
        folder = find_build(cell, point)
        bundle = read_bundle(folder)
        graph = bundle.forward_graph
        if graph is None:
            return None
        (name,) = bundle.graphs
        requested = properties(cell, point, has_states=False)
        shapes = "model.reshape({name: list(value.shape) for name, value in inputs.items()})"
        one = ["outputs = compiled(inputs)"]
        several = [
            "queue = openvino.AsyncInferQueue(compiled)  # keeps several requests in flight",
            "queue.start_async(inputs)",
            "queue.wait_all()",
        ]
        lines = [
            *binding_lines(cell.cpu_list),
            "import numpy as np",
            "import openvino",
            "",
            *build_path_lines(folder / graph_file(name)),
            "model = openvino.Core().read_model(path)",
            *example_inputs(cell, point, bundle, graph),
            *([shapes] if is_fixed(cell) else []),
            f"compiled = openvino.compile_model(model, {device_name(cell.device)!r}, {requested!r})",
            *(several if is_concurrent(cell) else one),
        ]
        return "\n".join(lines)

    def import_libraries(self) -> None:
        import_openvino()

    def open(self, cell: Cell, handle: DeviceHandle, stage: Stage, points: Sequence[Point]) -> Session:
        from benchmarking.runtimes.support.openvino.compile import check_capabilities
        from benchmarking.runtimes.support.openvino.openvino_session import OpenVinoSession
        from benchmarking.workloads.support.processing import open_processing

        # The device's core, or a new one for the processor as device cpu.
        core = handle.core if isinstance(handle, OpenVinoHandle) else import_openvino().Core()
        check_capabilities(core, device_name(cell.device), cell.precision)
        processing = open_processing(cell.workload, stage)
        return OpenVinoSession(cell, core, stage, points[0], processing)


def _is_npu(device: Device) -> bool:
    return has(device.type, lambda kind: kind.is_npu(device))


def _generates(workload: Workload) -> bool:
    return "new_tokens" in plugin_of(workload).axes(workload)


PLUGIN = OpenVino()
