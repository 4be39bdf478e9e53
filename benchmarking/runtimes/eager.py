"""PyTorch without compilation: every operator runs when it is called, on a CPU or an NVIDIA, AMD or Apple GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from benchmarking.core.contracts import Option, Session, Stage
from benchmarking.core.records import Cell, Device, Json, Point, Precision, Scalar, Workload
from benchmarking.devices.support.handles import SEPARATOR, parts
from benchmarking.runtimes.support.torch import several_devices
from benchmarking.runtimes.support.torch.compiling import CompileLog, CompilingSession
from benchmarking.runtimes.support.torch.model_loading import QUANTIZATION
from benchmarking.runtimes.support.torch.torch_runtime import SHARED_OPTIONS, TorchRuntime
from benchmarking.runtimes.support.torch.torch_session import Loaded, TorchSession
from benchmarking.runtimes.support.torch.torch_settings import FLEX


class Eager(TorchRuntime):
    """The runtime `eager`. On several devices it has the option several_devices."""

    name = "eager"
    aliases = ("pytorch", "torch", "pytorch1")
    other_words = ("hf", "transformers")
    is_default = True
    runs_on_several = True
    declared_options = (*SHARED_OPTIONS, several_devices.PLACEMENT, QUANTIZATION)

    def supports(self, device: Device, workload: Workload, precision: Precision) -> str | None:
        return several_devices.why_not(device, workload, precision) or super().supports(device, workload, precision)

    def options(self, workload: Workload, device: Device | None = None) -> tuple[Option, ...]:
        offered = super().options(workload, device)
        is_single = device is not None and len(parts(device)) < 2
        return tuple(option for option in offered if not (is_single and option.name == several_devices.OPTION))

    def mode(self, device: Device, workload: Workload, options: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        mode = super().mode(device, workload, options)
        several_devices.check(mode.get(several_devices.OPTION), workload)
        return mode

    def prepare_process(self, cell: Cell, points: Sequence[Point], cleanup: ExitStack) -> Any:
        """flex_attention is compiled here, too: uncompiled it would hold all scores in memory."""
        return CompileLog.begin(cleanup) if cell.runtime_mode.get("attention") == FLEX else None

    def _load(self, cell: Cell, torch_name: str, stage: Stage) -> tuple[Any, int, dict[str, Json]]:
        if SEPARATOR not in torch_name:
            return super()._load(cell, torch_name, stage)
        return several_devices.load(cell, torch_name, stage)

    def session(self, loaded: Loaded, prepared: Any) -> Session:
        if SEPARATOR in loaded.torch_name:
            if loaded.cell.runtime_mode[several_devices.OPTION] == several_devices.REPLICAS:
                return several_devices.ReplicaSession(loaded)
            return TorchSession(replace(loaded, torch_name=loaded.torch_name.split(SEPARATOR)[0]))
        return TorchSession(loaded) if prepared is None else CompilingSession(loaded, prepared)


PLUGIN = Eager()
