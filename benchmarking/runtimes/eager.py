"""PyTorch as it is: every operator run as it is reached, on a CPU, an NVIDIA or AMD GPU, or an Apple GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from benchmarking.devices._several import SEPARATOR
from benchmarking.records import Cell, Device, Json, Point, Precision, Scalar, Workload
from benchmarking.runtimes import Session, Stage, _placement
from benchmarking.runtimes._attention import FLEX
from benchmarking.runtimes._torch_runtime import TorchRuntime

if TYPE_CHECKING:
    from benchmarking.runtimes._torch_session import Loaded


class Eager(TorchRuntime):
    """The runtime `eager`; of several devices it takes `placement`."""

    name = "eager"
    is_default = True
    runs_on_several = True

    def supports(self, device: Device, workload: Workload, precision: Precision) -> str | None:
        return super().supports(device, workload, precision) or _placement.why_not(device, workload, precision)

    def options(self, workload: Workload) -> tuple[str, ...]:
        return (*super().options(workload), _placement.OPTION)

    def own_options(self, device: Device, workload: Workload) -> Mapping[str, tuple[str, ...]]:
        placements = _placement.placements(device)
        return {_placement.OPTION: placements} if placements else {}

    def mode(self, device: Device, workload: Workload, options: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        mode = super().mode(device, workload, options)
        _placement.check(mode.get(_placement.OPTION), workload)
        return mode

    def prepare_process(self, cell: Cell, torch_name: str, points: Sequence[Point], cleanup: ExitStack) -> Any:
        """flex_attention is compiled, here too: without that it would hold every score in memory."""
        if cell.runtime_mode.get("attention") != FLEX:
            return None
        from benchmarking.runtimes._compile_log import CompileLog

        return CompileLog.begin(cleanup)

    def _load(self, cell: Cell, torch_name: str, stage: Stage) -> tuple[Any, int, dict[str, Json]]:
        if SEPARATOR not in torch_name:
            return super()._load(cell, torch_name, stage)
        from benchmarking.runtimes import _multi_device

        return _multi_device.load(cell, torch_name, stage)

    def session(self, loaded: Loaded, prepared: Any) -> Session:
        if SEPARATOR in loaded.torch_name:
            from benchmarking.runtimes import _multi_device

            return _multi_device.session(loaded)
        from benchmarking.runtimes._compiling import CompilingSession

        return super().session(loaded, None) if prepared is None else CompilingSession(loaded, prepared)


PLUGIN = Eager()
