"""NVIDIA's TensorRT through ONNX Runtime's provider, with an engine per shape, built beforehand and cached."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarking.builds.store import BuildStore
from benchmarking.core import plugins
from benchmarking.core.contracts import Session, Stage
from benchmarking.core.device_contracts import DeviceHandle
from benchmarking.core.errors import BenchhouseError, UnsupportedError
from benchmarking.core.plugins import has, names_with
from benchmarking.core.records import Cell, Device, Json, Point, Precision, Rebuild, Workload
from benchmarking.devices.support.ort_providers import OrtProvider
from benchmarking.graphs import exported_model as graphs
from benchmarking.graphs.bundle import Bundle
from benchmarking.runtimes.support.onnxruntime import ort_runtime as shared
from benchmarking.runtimes.support.torch.torch_settings import TF32_OVERRIDE

if TYPE_CHECKING:
    from benchmarking.runtimes.support.onnxruntime.ort_session import GraphSource

KIND = "tensorrt"
PROVIDER = "TensorrtExecutionProvider"
PRECISIONS: tuple[Precision, ...] = ("float32", "tf32", "float16")
"""Int8 engines need calibration data, which dynamically quantized graphs do not have."""
TENSORRT_PACKAGES = ("tensorrt", "tensorrt-cu13", "tensorrt-cu12")
ENGINE = "*.engine"
TIMINGS = "tensorrt-timings"
ENGINES = "engines"
"""The fact with the number of engines in a build."""
CACHE_PATH = "trt_engine_cache_path"
TIMING_CACHE_PATH = "trt_timing_cache_path"
LIBRARY = "tensorrt"
TRUE = "True"
"""The provider accepts only "True" and "False", while other providers accept "1"."""


class TensorRt(shared.OrtRuntime):
    """The runtime `tensorrt`. Its option io_mode works as in the runtime onnxruntime on a GPU."""

    name = "tensorrt"
    aliases = ("trt",)
    device_aliases = ("nvidia",)
    packages: tuple[str, ...] = ("onnxruntime-gpu", *TENSORRT_PACKAGES)
    declared_options = (shared.IO_MODE,)

    def missing(self) -> str | None:
        if (absent := super().missing()) is not None:
            return absent
        if shared.provider_library(KIND) is None:
            return f"the installed ONNX Runtime is built without TensorRT: pip install {shared.CUDA_PACKAGES}"
        return _why_not_installed(_tensorrt_version(), shared.linked(KIND))

    def why_not_on(self, device: Device) -> str | None:
        if has(device.type, lambda kind: kind.runs_tensorrt):
            return None
        devices = ", ".join(names_with(lambda kind: kind.runs_tensorrt))
        return f"runtime tensorrt runs on NVIDIA GPUs ({devices}), not on {device.type}"

    def supports(self, device: Device, workload: Workload, precision: Precision) -> str | None:
        if (why_not := self.why_not_on(device)) is not None:
            return why_not
        if precision not in PRECISIONS:
            return f"runtime tensorrt supports {', '.join(PRECISIONS)}, not {precision}"
        return graphs.why_not_forward(self.name, workload, precision)

    def prepare(self, cell: Cell, points: Sequence[Point], store: BuildStore, rebuild: Rebuild) -> Mapping[str, Json]:
        def compile_into(point_graphs: graphs.PointGraphs, out: Path) -> Mapping[str, Json]:
            settings = engine_settings(cell, point_graphs.sizes, out)
            return build_engines(point_graphs.folder, point_graphs.bundle, settings, out)

        load_tensorrt(cell.precision)
        handle = plugins.device_kind(cell.device.type).watch(cell.device)
        try:
            return engines(cell).ensure(points, store, rebuild, compile_into)
        finally:
            handle.close()

    def open(self, cell: Cell, handle: DeviceHandle, stage: Stage, points: Sequence[Point]) -> Session:
        from benchmarking.runtimes.support.onnxruntime.ort_session import GraphSource, OrtSession

        with stage("import"):
            load_tensorrt(cell.precision)
        prepared: dict[str, Json] = {}

        def locate(point: Point) -> GraphSource:
            point_graphs = graphs.PointGraphs.find(cell, point)
            folder, build = engines(cell).find(point, point_graphs.sizes)
            prepared[str(folder)] = build.facts[ENGINES]
            settings = engine_settings(cell, point_graphs.sizes, folder)
            return GraphSource(folder=point_graphs.folder, bundle=point_graphs.bundle, settings=settings)

        def check(source: GraphSource) -> None:
            folder = source.settings.provider_options[CACHE_PATH]
            check_engines_were_used(Path(folder), prepared[folder])

        session = OrtSession(cell, points, locate, stage, check)
        session.verified = {**session.verified, "tensorrt": _tensorrt_version()}
        return session


def engine_settings(cell: Cell, sizes: Mapping[str, int], cache: Path) -> shared.SessionSettings:
    timing_cache(cache).mkdir(parents=True, exist_ok=True)
    device_provider = shared.providers_of(cell.device)[0]
    provider = OrtProvider(
        name=PROVIDER,
        install=f"{shared.CUDA_PACKAGES} {shared.linked(KIND).tensorrt_package}",
        precisions=PRECISIONS,
        options={
            "device_id": "0",  # of the only visible GPU
            "trt_engine_cache_enable": TRUE,
            CACHE_PATH: str(cache),
            "trt_timing_cache_enable": TRUE,  # reuses TensorRT's kernel timings
            TIMING_CACHE_PATH: str(timing_cache(cache)),
        },
        precision_options={"float16": {"trt_fp16_enable": TRUE}},
        memory=device_provider.memory,
    )
    return shared.SessionSettings(
        provider=provider,
        precision=cell.precision,
        num_threads=shared.num_threads(cell),
        fallbacks=(device_provider.name,),
        dimensions=dict(sizes),
    )


def build_engines(folder: Path, bundle: Bundle, settings: shared.SessionSettings, out: Path) -> dict[str, Json]:
    """Build the engines of all graphs into `out`. Raises BenchhouseError if none were built."""
    nodes: dict[str, Json] = {}
    printed = shared.StderrCapture()
    for name, graph in bundle.graphs.items():
        session = shared.open_graph(folder / graph.file, settings)  # builds the engines, since the shapes are fixed
        nodes[name] = dict[str, Json](shared.assigned_nodes(session) or {})
    if not (count := len(list(out.glob(ENGINE)))):
        why = shared.reason_in(printed.text()) or "it printed no error"
        raise BenchhouseError(f"TensorRT built no engine for {', '.join(bundle.graphs)}: {why}")
    return {ENGINES: count, "assigned_nodes": nodes, "dimensions": dict(settings.dimensions)}


def timing_cache(engines: Path) -> Path:
    """The folder of kernel timings, shared by all engines: TensorRT separates GPUs and versions itself."""
    return engines.parent.parent / TIMINGS


def check_engines_were_used(folder: Path, prepared: Json) -> None:
    """Raise BenchhouseError if loading rebuilt engines: they are then not the prepared ones, and the load time includes
    a build."""
    if (count := len(list(folder.glob(ENGINE)))) != prepared:
        raise BenchhouseError(
            f"TensorRT rebuilt engines instead of loading those in {folder} (expected {prepared}, found {count}): "
            "use --rebuild always to prepare them for this version"
        )


def load_tensorrt(precision: Precision) -> None:
    """Load TensorRT's libraries, which ONNX Runtime's provider then finds in the process.

    TensorRT rounds float32 products to TF32 by default, and the provider has no option for it. NVIDIA's libraries read
    an environment variable when they are loaded. Raises UnsupportedError if it had another value then."""
    override = "1" if precision == "tf32" else "0"
    if LIBRARY in sys.modules and os.environ.get(TF32_OVERRIDE) != override:
        raise UnsupportedError(
            f"TensorRT is already loaded in this process: start the process with {TF32_OVERRIDE}={override}"
        )
    os.environ[TF32_OVERRIDE] = override
    importlib.import_module(LIBRARY)


def engines(cell: Cell) -> graphs.FixedShapes:
    """The engines, which depend on the GPU model, its driver, and the version of TensorRT."""
    depends_on: dict[str, Json] = {
        "device": cell.device.name,
        "compute_capability": cell.device.facts.values.get("compute_capability"),
        "driver": cell.device.driver,
        "tensorrt": _tensorrt_version(),
        "tf32": cell.precision == "tf32",
    }
    return graphs.FixedShapes(kind=KIND, cell=cell, depends_on=depends_on)


def _tensorrt_version() -> str | None:
    return shared.installed_version(TENSORRT_PACKAGES)


def _why_not_installed(version: str | None, needed: shared.Linked) -> str | None:
    """None, or why the installed TensorRT does not match the one that the provider links."""
    if version is not None and needed.tensorrt in (None, int(version.partition(".")[0])):
        return None
    installed = "not installed" if version is None else f"found TensorRT {version}"
    major = "" if needed.tensorrt is None else f" {needed.tensorrt}"
    return (
        f"{installed}, but ONNX Runtime's provider needs TensorRT{major}: on a machine with an NVIDIA GPU, "
        f"pip install {needed.tensorrt_package}"
    )


PLUGIN = TensorRt()
