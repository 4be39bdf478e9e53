"""A torch model ready to run: sessions and operations that every runtime on torch shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from benchmarking.errors import UsageError
from benchmarking.records import Cell, Json, Point, Readings
from benchmarking.runtimes import Mark, Operation
from benchmarking.runtimes._torch import is_out_of_memory, memory_errors, out_of_memory
from benchmarking.runtimes._torch_model import parameter_count, weights_bytes
from benchmarking.workloads import FamilyOperation
from benchmarking.workloads._families import plugin_of
from benchmarking.workloads._processing import Processing


class TorchOperation:
    """A family's operation, run as inference, with torch's failed allocations told apart from other errors."""

    def __init__(
        self, inner: FamilyOperation, label: str, preparation: Callable[[], Readings] = lambda: Readings()
    ) -> None:
        """`preparation` tells what making the inputs took (`tokenize_ms`); it is asked with the other readings."""
        import torch

        self.items_per_call = inner.items_per_call
        self.tokens_per_call = inner.tokens_per_call
        self.prompt_tokens_per_call = inner.prompt_tokens_per_call
        self.new_tokens = inner.new_tokens
        self.inner = inner
        self._label = label
        self._preparation = preparation
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


class TorchSession:
    """A workload's model on a device, with what makes its inputs. `cleanup` puts torch's settings back at the end."""

    def __init__(
        self,
        model: Any,
        cell: Cell,
        torch_name: str,
        verified: Mapping[str, Json],
        cleanup: ExitStack,
        processing: Processing,
    ) -> None:
        self.model: Any = model
        self.verified: Mapping[str, Json] = verified
        self.weights_bytes: int | None = weights_bytes(model)
        self.parameter_count: int | None = parameter_count(model)
        self._cell = cell
        self._torch_name = torch_name
        self._cleanup = cleanup
        self._processing = processing

    def operation(self, point: Point) -> Operation:
        import torch

        workload = self._cell.workload
        plugin = plugin_of(workload)
        if (why_not := plugin.check(workload, point)) is not None:
            raise UsageError(why_not)
        prepared = self._processing.inputs(plugin, workload, point)
        with memory_errors(f"placing the inputs of {point.label}"):
            inputs = {name: torch.from_numpy(array).to(self._torch_name) for name, array in prepared.arrays.items()}
            inner = plugin.torch_operation(self.model, workload, point, inputs, self._cell.runtime_mode)
        return TorchOperation(inner, point.label, prepared.readings)

    def close(self) -> None:
        self.model = None
        self._cleanup.close()
