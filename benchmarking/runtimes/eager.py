"""PyTorch as it is: every operator run as it is reached, on a CPU, an NVIDIA or AMD GPU, or an Apple GPU."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from benchmarking.records import Cell, Point
from benchmarking.runtimes import Session
from benchmarking.runtimes._attention import FLEX
from benchmarking.runtimes._torch_runtime import TorchRuntime

if TYPE_CHECKING:
    from benchmarking.runtimes._torch_session import Loaded


class Eager(TorchRuntime):
    """The runtime `eager`."""

    name = "eager"

    def prepare_process(self, cell: Cell, torch_name: str, points: Sequence[Point], cleanup: ExitStack) -> Any:
        """flex_attention is compiled, here too: without that it would hold every score in memory."""
        if cell.runtime_mode.get("attention") != FLEX:
            return None
        from benchmarking.runtimes._compile_log import CompileLog

        return CompileLog.begin(cleanup)

    def session(self, loaded: Loaded, prepared: Any) -> Session:
        from benchmarking.runtimes._compiling import CompilingSession

        return super().session(loaded, None) if prepared is None else CompilingSession(loaded, prepared)


PLUGIN = Eager()
