"""ONNX Runtime: a model's exported graphs on each device's provider, in a process without torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from benchmarking.builds.store import BuildStore
from benchmarking.core.contracts import Option, Session, Stage, build_path_lines
from benchmarking.core.device_contracts import DeviceHandle
from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.records import Cell, Device, Json, Point, Precision, Rebuild, Scalar, Workload
from benchmarking.devices.support.binding import binding_lines
from benchmarking.devices.support.ort_providers import DIRECTML
from benchmarking.graphs import exported_model as graphs
from benchmarking.graphs.bundle import read_bundle
from benchmarking.graphs.ort_graphs import PRECISIONS as FUSED_PRECISIONS
from benchmarking.graphs.ort_graphs import ensure_fused, ensure_next_token, find_fused, find_next_token, why_not_fused
from benchmarking.runtimes.support.onnxruntime import ort_runtime as shared
from benchmarking.runtimes.support.torch.torch_settings import AT_THE_END, TOKEN_SYNC
from benchmarking.workloads.support.families import plugin_of
from benchmarking.workloads.support.graph_contents import ACTIVATIONS, FLOAT, INT8

DYNAMIC, WEIGHT_ONLY = "dynamic", "weight-only"
QUANTIZATIONS: Mapping[Precision, str] = {"int8": DYNAMIC, "int4": WEIGHT_ONLY}
"""Quantization of the graphs at a precision: weights and, during the call, activations; or weights only."""
CACHE = Option("cache", "key-value cache for text generation", values=("dynamic",))
"""The graphs' states grow by one token per step; there is no other cache."""
FUSION = Option(
    "fusion",
    "operator fusion before ONNX Runtime loads and optimizes the graphs",
    values=("none", "transformers"),
    is_filled_in=False,
    tried=("transformers",),
)
"""onnxruntime.transformers' optimizer."""
CUDA_GRAPH = Option(
    "cuda_graph",
    "replay of a call's kernels as one captured CUDA graph",
    values=("off", "on"),
    is_filled_in=False,
    tried=("on",),
)


class OnnxRuntime(shared.OrtRuntime):
    """The runtime `onnxruntime`. Its settings: io_mode (inputs and outputs in host or device memory), provider if it is
    not the device's default, quantization, cache in generation, and fusion and cuda_graph if requested."""

    name = "onnxruntime"
    aliases = ("ort",)
    other_words = ("onnx", "onnx-runtime", "ort-cpu", "ort-cuda", "ort-trt")
    device_aliases = ("x86",)
    profiler = "ONNX Runtime"
    export_format = "onnx"
    concurrency_flag = ""
    packages: tuple[str, ...] = ("onnxruntime", "onnxruntime-gpu", "onnx")
    declared_options = (
        shared.PROVIDER,
        replace(shared.IO_MODE, default="device if it has its own memory, else host", is_filled_in=False),
        Option(
            "quantization",
            "quantization method",
            values=tuple(QUANTIZATIONS.values()),
            default="dynamic at int8, weight-only at int4",
            is_filled_in=False,
        ),
        CACHE,
        FUSION,
        CUDA_GRAPH,
    )

    def why_not_on(self, device: Device) -> str | None:
        return None if shared.providers_of(device) else f"ONNX Runtime has no provider for {device.type}"

    def supports(self, device: Device, workload: Workload, precision: Precision) -> str | None:
        if (why_not := self.why_not_on(device) or graphs.why_not(workload, precision)) is not None:
            return why_not
        provider = shared.possible_provider(device, shared.providers_of(device))
        return provider if isinstance(provider, str) else shared.why_not_precision(device, provider, precision)

    def options(self, workload: Workload, device: Device | None = None) -> tuple[Option, ...]:
        generates = workload.task in plugin_of(workload).generative_tasks
        return tuple(option for option in self.declared_options if option is not CACHE or generates)

    def mode(self, device: Device, workload: Workload, options: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        """io_mode is device by default if the device has its own memory, else host."""
        if options.get(TOKEN_SYNC.name) == AT_THE_END:
            raise UsageError(
                "token_sync 'end': ONNX Runtime waits for the device after every graph call: use a torch runtime"
            )
        mode = dict(super().mode(device, workload, options))
        provider = shared.provider_of(device, mode.pop("provider", None))
        mode.setdefault("io_mode", "device" if provider.has_own_memory else "host")
        if mode["io_mode"] == "device" and provider.memory is None:
            raise UsageError(f"io_mode 'device': {provider.name} cannot bind to the memory of {device.selector}")
        if provider.name != shared.providers_of(device)[0].name:
            mode["provider"] = provider.word
        if is_fused(mode) and (why_not := why_not_fused(workload)) is not None:
            raise UsageError(f"fusion 'transformers': {why_not}")
        if is_replayed(mode):
            why_not = graphs.why_not_forward(f"{self.name} with cuda_graph", workload)
            if provider.replay_option is None:
                why_not = f"{provider.name} cannot capture CUDA graphs"
            elif mode["io_mode"] != "device":
                why_not = "a captured graph has fixed addresses in device memory: use --io-mode device"
            if why_not is not None:
                raise UsageError(f"cuda_graph 'on': {why_not}")
        if workload.source == "file" and (activations := workload.config.get(ACTIVATIONS)) is not None:
            mode[ACTIVATIONS] = INT8 if activations == INT8 and provider.name == shared.CPU else FLOAT
        defaults = {option.name: option.values[0] for option in (FUSION, CUDA_GRAPH)}
        return {name: value for name, value in mode.items() if defaults.get(name) != value}

    def runs_at_once(self, mode: Mapping[str, Scalar]) -> bool:
        """Not with captured graphs, which have one set of inputs and outputs."""
        return not is_replayed(mode)

    def mode_at(self, precision: Precision, mode: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        named = DIRECTML  # must be named, so that `supports` has not checked its precisions
        if mode.get("provider") == named.word and precision not in named.precisions:
            raise UnsupportedError(f"provider {named.word} supports {', '.join(named.precisions)}, not {precision}")
        if is_fused(mode) and precision not in FUSED_PRECISIONS:
            raise UsageError(f"fusion 'transformers': fused graphs are float32 or float16, not {precision}")
        method = QUANTIZATIONS.get(precision)
        if method is not None and ACTIVATIONS in mode:  # a given file's own
            method = DYNAMIC if mode[ACTIVATIONS] == INT8 else WEIGHT_ONLY
        mode = {name: value for name, value in mode.items() if name != ACTIVATIONS}
        requested = mode.get("quantization", method)
        if requested != method:
            expected = f"uses {method} quantization" if method else "is not quantized: use int8 or int4"
            raise UsageError(f"quantization {requested!r}: in runtime onnxruntime {precision} {expected}")
        return mode if method is None else {**mode, "quantization": method}

    def prepare(self, cell: Cell, points: Sequence[Point], store: BuildStore, rebuild: Rebuild) -> Mapping[str, Json]:
        ensure = ensure_fused if is_fused(cell.runtime_mode) else graphs.ensure_bundle
        facts = ensure(cell, points, store, rebuild)
        if cell.runtime_mode["io_mode"] == "device":
            for point in points:
                ensure_next_token(read_bundle(store.folder(graphs.bundle_key(cell, point))), store, rebuild)
        return facts

    def deployment(self, cell: Cell, point: Point) -> str | None:
        folder = (find_fused if is_fused(cell.runtime_mode) else graphs.find_bundle)(cell, point)
        bundle = read_bundle(folder)
        graph = bundle.forward_graph
        if graph is None or is_replayed(cell.runtime_mode):
            return None
        provider = shared.provider_of(cell.device, cell.runtime_mode.get("provider"))
        settings = shared.SessionSettings(
            provider=provider, precision=cell.precision, num_threads=shared.num_threads(cell)
        )
        lines = [
            *binding_lines(cell.cpu_list),
            "import numpy as np",
            "import onnxruntime",
            "",
            *build_path_lines(folder / graph.file),
            "options = onnxruntime.SessionOptions()",
            f"options.intra_op_num_threads = {settings.num_threads}",
            f"providers = [({provider.name!r}, {settings.provider_options!r})]",
            "session = onnxruntime.InferenceSession(path, options, providers=providers)",
            *graphs.example_inputs(cell, point, bundle, graph),
            "outputs = session.run(None, inputs)",
        ]
        return "\n".join(lines)

    def open(self, cell: Cell, handle: DeviceHandle, stage: Stage, points: Sequence[Point]) -> Session:
        from benchmarking.runtimes.support.onnxruntime.ort_session import GraphSource, OrtSession

        provider = shared.provider_of(cell.device, cell.runtime_mode.get("provider"))
        settings = shared.SessionSettings(
            provider=provider,
            precision=cell.precision,
            num_threads=shared.num_threads(cell),
            plugin_devices=() if provider.entries is None else provider.entries(cell.device),
            is_replayed=is_replayed(cell.runtime_mode),
            quantizes_activations=cell.runtime_mode.get("quantization") == DYNAMIC,
        )

        def locate(point: Point) -> GraphSource:
            folder = (find_fused if is_fused(cell.runtime_mode) else graphs.find_bundle)(cell, point)
            bundle = read_bundle(folder)
            return GraphSource(
                folder=folder,
                bundle=bundle,
                settings=at_sizes(settings, graphs.sizes_at(cell, point, bundle)) if settings.is_replayed else settings,
                next_token=find_next_token(bundle) if cell.runtime_mode["io_mode"] == "device" else None,
            )

        return OrtSession(cell, points, locate, stage)


def is_fused(mode: Mapping[str, Scalar]) -> bool:
    """Whether the settings request graphs from onnxruntime.transformers' optimizer."""
    return mode.get(FUSION.name) == "transformers"


def is_replayed(mode: Mapping[str, Scalar]) -> bool:
    return mode.get(CUDA_GRAPH.name) == "on"


def at_sizes(settings: shared.SessionSettings, sizes: Mapping[str, int]) -> shared.SessionSettings:
    """Session settings at fixed sizes: with free dimensions, nodes that compute shapes stay on the CPU, and a graph
    cannot capture them."""
    return replace(settings, dimensions=dict(sizes))


PLUGIN = OnnxRuntime()
