"""PyTorch with torch.compile (TorchInductor), which compiles the called modules in place.

Every point has its own process, because one shape changes what is compiled for the next. It also has its own folder of
compiled code: the first launch compiles from an empty folder (cold), later launches reuse it (warm).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from benchmarking.core.contracts import Option, Session
from benchmarking.core.errors import UnsupportedError
from benchmarking.core.plugins import has
from benchmarking.core.records import Cell, Device, Point, Scalar, Workload
from benchmarking.runtimes.support.torch.compiling import CompileCache, CompiledSession, CompileLog, CompileSettings
from benchmarking.runtimes.support.torch.model_loading import QUANTIZATION
from benchmarking.runtimes.support.torch.torch_runtime import SHARED_OPTIONS, TorchRuntime
from benchmarking.runtimes.support.torch.torch_session import Loaded

DEFAULT, REDUCE_OVERHEAD, MAX_AUTOTUNE = "default", "reduce-overhead", "max-autotune"
MODES = (DEFAULT, REDUCE_OVERHEAD, MAX_AUTOTUNE)
DYNAMIC: Mapping[str, bool | None] = {"auto": None, "true": True, "false": False}
"""Shapes in the compiled code: fixed until one changes, dynamic from the start, or always fixed."""
GRAPH_MODES = (REDUCE_OVERHEAD, MAX_AUTOTUNE)
"""Modes that record CUDA graphs, on devices that have them."""


class Compiled(TorchRuntime):
    name = "compiled"
    aliases = ("torch-compiled", "pytorch2")
    other_words = ("compile", "inductor", "torch.compile", "torch-compile", "dynamo")
    libraries: tuple[str, ...] = (*TorchRuntime.libraries, "torch._inductor.compile_fx")
    point_per_process = True
    compiles = True
    declared_options = (
        *SHARED_OPTIONS,
        Option("compile_mode", "torch.compile mode", values=MODES, tried=(REDUCE_OVERHEAD, MAX_AUTOTUNE)),
        Option("dynamic", "dynamic shapes in the compiled code", values=tuple(DYNAMIC)),
        QUANTIZATION,
    )

    def mode(self, device: Device, workload: Workload, options: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        mode = super().mode(device, workload, options)
        uses_cuda_graphs = _uses_cuda_graphs(device, mode)
        if mode["compile_mode"] == REDUCE_OVERHEAD and not uses_cuda_graphs:
            raise UnsupportedError(
                f"compile mode {REDUCE_OVERHEAD} uses CUDA graphs, which {device.type} does not have: use "
                f"--compile-mode {DEFAULT}, which does the same there"
            )
        if uses_cuda_graphs and mode.get("cache") == "dynamic":
            raise UnsupportedError(
                f"compile mode {mode['compile_mode']} records CUDA graphs, which need a cache at a fixed address: "
                "use --cache static"
            )
        return mode

    def deployed_changes(self, cell: Cell) -> list[str]:
        mode, dynamic = cell.runtime_mode["compile_mode"], DYNAMIC[str(cell.runtime_mode["dynamic"])]
        return [f"model.compile(mode={mode!r}, dynamic={dynamic!r})"]

    def prepare_process(self, cell: Cell, points: Sequence[Point], cleanup: ExitStack) -> Any:
        mode = cell.runtime_mode
        settings = CompileSettings(
            mode=str(mode["compile_mode"]),
            dynamic=DYNAMIC[str(mode["dynamic"])],
            uses_cuda_graphs=_uses_cuda_graphs(cell.device, mode),
            cache=CompileCache.open(cell, points[0], cleanup) if points else None,
        )
        return CompileLog.begin(cleanup), settings

    def session(self, loaded: Loaded, prepared: Any) -> Session:
        return CompiledSession(loaded, *prepared)


def _uses_cuda_graphs(device: Device, mode: Mapping[str, Scalar]) -> bool:
    return mode["compile_mode"] in GRAPH_MODES and has(device.type, lambda kind: kind.has_cuda_graphs)


PLUGIN = Compiled()
