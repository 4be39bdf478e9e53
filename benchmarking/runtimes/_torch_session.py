"""A torch model ready to run: sessions and operations that every runtime on torch shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from benchmarking.errors import UsageError
from benchmarking.records import Cell, Json, Point, Readings
from benchmarking.runtimes import Mark, Operation, Session, _attention
from benchmarking.runtimes._torch import is_out_of_memory, memory_errors, out_of_memory
from benchmarking.runtimes._torch_model import weights_bytes
from benchmarking.workloads import FamilyOperation
from benchmarking.workloads._families import plugin_of
from benchmarking.workloads._processing import Processing


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A model on its device, verified, and everything that a session on it needs."""

    model: Any
    parameter_count: int
    """As it was loaded: quantizing unties what was shared."""
    cell: Cell
    torch_name: str
    verified: Mapping[str, Json]
    cleanup: ExitStack
    """Puts torch's settings back."""
    processing: Processing
    """Makes the inputs."""


class TorchOperation(Operation):
    """A family's operation, run as inference, with torch's failed allocations told apart from other errors."""

    is_compiled = False
    """Whether a compiler may have taken attention apart into code of its own."""

    def __init__(
        self,
        inner: FamilyOperation,
        label: str,
        preparation: Callable[[], Readings] = lambda: Readings(),
        attention: str | None = None,
    ) -> None:
        """`preparation` tells what making the inputs took (`tokenize_ms`); it is asked with the other readings.
        `attention` is what was asked for."""
        import torch

        self.items_per_call = inner.items_per_call
        self.tokens_per_call = inner.tokens_per_call
        self.prompt_tokens_per_call = inner.prompt_tokens_per_call
        self.new_tokens = inner.new_tokens
        self.inner = inner
        self._label = label
        self._preparation = preparation
        self._attention = attention
        self._inference_mode = torch.inference_mode

    def reset(self) -> None:
        self.inner.reset()

    def run(self, mark: Mark) -> Any:
        try:
            with self._inference_mode():
                return self.inner.run(mark)
        except (MemoryError, RuntimeError) as error:
            if is_out_of_memory(error):
                raise out_of_memory(f"running {self._label}", error) from error
            raise

    def problem(self, output: Any) -> str | None:
        with self._inference_mode():
            return self.inner.problem(output)

    def readings(self, output: Any) -> Readings:
        with self._inference_mode():
            return self._preparation() | self.inner.readings(output)

    def count(self) -> Readings:
        from benchmarking.runtimes._torch_count import counted

        self.reset()
        return counted(lambda: self.run(lambda name: None))

    def arrays(self, output: Any) -> dict[str, Any]:
        """The output as numpy arrays on the host by name, to compare with another runtime's."""
        arrays: dict[str, Any] = self.inner.arrays(output)
        return arrays

    def verified(self) -> Mapping[str, Json]:
        """`attention_kernels`: which of torch's kernels a call's attention runs on, with how often. Raises
        UnsupportedError when one was named and another one ran."""
        self.reset()
        ran = _attention.kernels_run(lambda: self.run(lambda name: None))
        _attention.check_run(self._attention, ran, is_compiled=self.is_compiled)
        return {"attention_kernels": dict[str, Json](ran)}


class TorchSession(Session):
    """A workload's model on a device, with what makes its inputs."""

    def __init__(self, loaded: Loaded) -> None:
        self.model: Any = loaded.model
        self.verified: Mapping[str, Json] = loaded.verified
        self.weights_bytes: int | None = weights_bytes(loaded.model)
        self.parameter_count: int | None = loaded.parameter_count
        self._cell = loaded.cell
        self._torch_name = loaded.torch_name
        self._cleanup = loaded.cleanup
        self._processing = loaded.processing

    def operation(self, point: Point) -> TorchOperation:
        import torch

        workload = self._cell.workload
        plugin = plugin_of(workload)
        if (why_not := plugin.check(workload, point)) is not None:
            raise UsageError(why_not)
        prepared = self._processing.inputs(plugin, workload, point)
        with memory_errors(f"placing the inputs of {point.label}"):
            inputs = {name: torch.from_numpy(array).to(self._torch_name) for name, array in prepared.arrays.items()}
            inner = plugin.torch_operation(self.model, workload, point, inputs, self._cell.runtime_mode)
        return self.wrapped(inner, point, prepared.readings)

    def wrapped(self, inner: FamilyOperation, point: Point, preparation: Callable[[], Readings]) -> TorchOperation:
        """The operation of a point, from its family's."""
        return TorchOperation(inner, point.label, preparation, self.attention)

    @property
    def attention(self) -> str | None:
        """What was asked for; None where there is no choice of it."""
        attention = self._cell.runtime_mode.get("attention")
        return None if attention is None else str(attention)

    def close(self) -> None:
        self.model = None
        self._cleanup.close()
