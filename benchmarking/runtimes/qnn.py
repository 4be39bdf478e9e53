"""Qualcomm's QNN through ONNX Runtime's plugin: graphs compiled for the tensor processor, its GPU or the CPU.

2026-11-21: on x86 the tensor processor is emulated. An emulator shows whether a graph compiles and computes correctly.
Its times are marked as simulated and never ranked with those of the device. The same applies to the backend `cpu`,
QNN's slow reference implementation.
"""

from __future__ import annotations

import importlib.util
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarking.builds.store import BuildStore
from benchmarking.core import plugins
from benchmarking.core.contracts import Option, Session, Stage
from benchmarking.core.device_contracts import DeviceHandle
from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.plugins import version_of
from benchmarking.core.records import Cell, Device, Json, Point, Precision, Rebuild, Scalar, Workload
from benchmarking.devices.qnn import BACKENDS, REFERENCE, QnnHandle
from benchmarking.devices.qnn import PRECISIONS as PRECISIONS_OF
from benchmarking.devices.support.ort_providers import OrtProvider
from benchmarking.graphs import exported_model as graphs
from benchmarking.graphs.bundle import Bundle
from benchmarking.runtimes.support.onnxruntime import ort_runtime as shared

KIND = "qnn"
HTP = "htp"
"""The tensor processor: the only backend with reusable compiled contexts and adjustable clocks."""
NO_FALLBACK: Mapping[str, str] = {"session.disable_cpu_ep_fallback": "1"}
PERFORMANCE_MODES = (
    *("burst", "balanced", "default", "extreme_power_saver", "high_performance"),
    *("high_power_saver", "low_balanced", "low_power_saver", "power_saver", "sustained_high_performance"),
)
"""Modes of the tensor processor, the default first. For any other word QNN only warns and chooses a mode itself."""


class Qnn(shared.OrtRuntime):
    """The runtime `qnn`. Its options: qnn_backend, and performance_mode for the backend htp."""

    name = "qnn"
    packages: tuple[str, ...] = ("onnxruntime", "onnxruntime-gpu", "onnxruntime-qnn")
    declared_options = (
        Option(
            "qnn_backend", "QNN backend; cpu is QNN's reference implementation", values=BACKENDS, is_filled_in=False
        ),
        Option(
            "performance_mode", "clock mode of the tensor processor (htp)", values=PERFORMANCE_MODES, is_filled_in=False
        ),
    )

    def missing(self) -> str | None:
        if (absent := super().missing()) is not None:
            return absent
        if importlib.util.find_spec("onnxruntime_qnn") is None:
            return "not installed: onnxruntime-qnn: pip install --no-deps onnxruntime-qnn"
        return None

    def why_not_on(self, device: Device) -> str | None:
        return None if device.type == "qnn" else f"runtime qnn runs on device qnn, not on {device.type}"

    def supports(self, device: Device, workload: Workload, precision: Precision) -> str | None:
        if (why_not := self.why_not_on(device)) is not None:
            return why_not
        if precision == "int8":
            return "int8 on the tensor processor needs calibration data, which the int8 graphs here do not have"
        if precision not in ("float32", "float16"):
            return f"runtime qnn supports float16, and float32 on some backends, not {precision}"
        return graphs.why_not_forward(self.name, workload, precision)

    def mode(self, device: Device, workload: Workload, options: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        mode = super().mode(device, workload, options)
        listed = device.facts.values.get("backends")
        installed = [str(backend) for backend in listed] if isinstance(listed, list) else list(BACKENDS)
        backend = str(mode.get("qnn_backend", installed[0]))
        if backend not in installed:
            raise UnsupportedError(
                f"qnn_backend {backend!r}: onnxruntime-qnn has {', '.join(installed)} on this machine"
            )
        if backend == HTP:
            return {"performance_mode": PERFORMANCE_MODES[0], **mode, "qnn_backend": backend}
        if "performance_mode" in mode:
            raise UsageError(
                f"performance_mode is for the tensor processor (htp): omit it with --qnn-backend {backend}"
            )
        return {"qnn_backend": backend}

    def mode_at(self, precision: Precision, mode: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        supported = PRECISIONS_OF[str(mode["qnn_backend"])]
        if precision not in supported:
            others = [backend for backend in BACKENDS if precision in PRECISIONS_OF[backend]]
            raise UnsupportedError(
                f"QNN's {mode['qnn_backend']} supports {', '.join(supported)}, not {precision}: "
                f"use --qnn-backend {' or '.join(others) or 'another'}, or another precision"
            )
        return mode

    def prepare(self, cell: Cell, points: Sequence[Point], store: BuildStore, rebuild: Rebuild) -> Mapping[str, Json]:
        if cell.runtime_mode["qnn_backend"] != HTP:
            return graphs.ensure_bundle(cell, points, store, rebuild)
        handle: QnnHandle = plugins.load(plugins.DEVICES, "qnn").open(cell.device)
        settings = _settings(cell, handle)

        def compile_into(point_graphs: graphs.PointGraphs, out: Path) -> Mapping[str, Json]:
            at_sizes = replace(settings, dimensions=point_graphs.sizes)
            return compile_contexts(point_graphs.folder, point_graphs.bundle, at_sizes, out)

        return _contexts(cell).ensure(points, store, rebuild, compile_into)

    def open(self, cell: Cell, handle: DeviceHandle, stage: Stage, points: Sequence[Point]) -> Session:
        from benchmarking.runtimes.support.onnxruntime.ort_session import GraphSource, OrtSession

        qnn: Any = handle
        settings = _settings(cell, qnn)

        def locate(point: Point) -> GraphSource:
            """Compiled contexts for the tensor processor, else exported graphs at the point's sizes, which the backend
            compiles on loading."""
            point_graphs = graphs.PointGraphs.find(cell, point)
            if cell.runtime_mode["qnn_backend"] == HTP:
                folder, _ = _contexts(cell).find(point, point_graphs.sizes)
                return GraphSource(folder=folder, bundle=point_graphs.bundle, settings=settings)
            fixed_sizes = replace(settings, dimensions=point_graphs.sizes, entries=NO_FALLBACK)
            return GraphSource(folder=point_graphs.folder, bundle=point_graphs.bundle, settings=fixed_sizes)

        session = OrtSession(cell, points, locate, stage)
        backend = str(cell.runtime_mode["qnn_backend"])
        check_backend(session.verified["provider_options"], qnn.backends[backend])
        verified: dict[str, Json] = {
            "backend": backend,
            "is_reference_backend": backend == REFERENCE,
            "is_simulated": cell.device.simulated or backend == REFERENCE,
            "context_cache": backend == HTP,
        }
        session.verified = {**session.verified, **verified}
        return session


def check_backend(options: Json, wanted: str) -> None:
    """Raise UnsupportedError if a session's provider reports a different library than requested."""
    used = options.get("backend_path") if isinstance(options, dict) else None
    if used != wanted:
        raise UnsupportedError(f"requested QNN backend {wanted}, but the session uses {used or 'none'}")


def compile_contexts(folder: Path, bundle: Bundle, settings: shared.SessionSettings, out: Path) -> dict[str, Json]:
    """Compile every graph of a bundle into a context that the backend can load, in files of the same names in `out`.
    Raises UnsupportedError if the backend leaves nodes to the CPU, BenchhouseError if it fails."""
    nodes: dict[str, Json] = {}
    for name, graph in bundle.graphs.items():
        entries = {
            "ep.context_enable": "1",
            "ep.context_file_path": str(out / graph.file),
            "ep.context_embed_mode": "0",  # in a separate file: inside the graph a context is limited to 2 GB
            **NO_FALLBACK,
        }
        session = shared.open_graph(folder / graph.file, replace(settings, entries=entries))
        nodes[name] = dict[str, Json](shared.assigned_nodes(session) or {})
        if not (out / graph.file).exists():
            raise UnsupportedError(f"QNN made no context for graph {name!r}: it compiled no node")
    return {"assigned_nodes": nodes, "dimensions": dict(settings.dimensions)}


def _settings(cell: Cell, handle: QnnHandle) -> shared.SessionSettings:
    backend = str(cell.runtime_mode["qnn_backend"])
    if backend not in handle.backends:
        raise UnsupportedError(f"QNN backend {backend} is no longer installed: found {', '.join(handle.backends)}")
    htp = {"htp_performance_mode": str(cell.runtime_mode["performance_mode"])} if backend == HTP else {}
    provider = OrtProvider(
        name=handle.provider,
        install="onnxruntime-qnn",
        precisions=cell.device.precisions,
        options={"backend_path": handle.backends[backend], **htp},
    )
    return shared.SessionSettings(
        provider=provider,
        precision=cell.precision,
        num_threads=shared.num_threads(cell),
        plugin_devices=tuple(handle.provider_devices()),
    )


def _contexts(cell: Cell) -> graphs.FixedShapes:
    """The compiled contexts, which depend on the processor, the backend and the version of QNN."""
    depends_on: dict[str, Json] = {
        "device": cell.device.name,
        "machine": platform.machine(),
        "backend": cell.runtime_mode["qnn_backend"],
        "versions": {"onnxruntime-qnn": version_of("onnxruntime-qnn")},
    }
    return graphs.FixedShapes(kind=KIND, cell=cell, depends_on=depends_on)


PLUGIN = Qnn()
