"""A torch model ready to run: the session and operations shared by the runtimes on torch, and those for a module that
is passed to the Python API with its inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarking.builds.store import BuildKey
from benchmarking.core.contracts import FamilyOperation, Mark, Operation, Session
from benchmarking.core.errors import BenchhouseError, UsageError, is_out_of_memory, memory_errors, out_of_memory
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import np, torch
from benchmarking.core.metrics import CustomMetric
from benchmarking.core.model_contracts import WorkloadFamily
from benchmarking.core.profiles import CallProfiler
from benchmarking.core.records import COUNTS_CALLS, Cell, Json, Point, Readings, Workload, canonical_hash
from benchmarking.devices.support.torch_gpu import is_gpu_in_use
from benchmarking.runtimes.support.torch import torch_settings
from benchmarking.runtimes.support.torch.counting import cached_count, count_by_shapes, count_key, has_failed
from benchmarking.runtimes.support.torch.model_loading import channels_last, describe, parameter_count, weights_bytes
from benchmarking.runtimes.support.torch.torch_settings import (
    AT_THE_END,
    CHANNELS_LAST,
    MEMORY_FORMAT,
    TOKEN_SYNC,
    attention_of,
    effective_arithmetic,
    effective_threads,
)
from benchmarking.workloads.support.families import families, plugin_of
from benchmarking.workloads.support.generation import host_array, main_tensor, non_finite
from benchmarking.workloads.support.processing import Prepared, Processing
from benchmarking.workloads.support.script_runs import CallArguments
from benchmarking.workloads.support.shown_batch import batch_of, copy_to_call


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A verified model on its device, with everything else that a session needs."""

    model: Any
    parameter_count: int
    """Number of parameters as loaded; quantization unties shared ones."""
    cell: Cell
    torch_name: str
    verified: Mapping[str, Json]
    cleanup: ExitStack
    """Restores torch's settings."""
    processing: Processing
    """Makes the inputs."""


class TorchOperation(Operation):
    """A family's operation in inference mode; torch's failed allocations raise OutOfMemoryError."""

    is_compiled = False
    """Whether a compiler may have turned attention into its own code."""

    def __init__(
        self,
        inner: FamilyOperation,
        label: str,
        preparation: Callable[[], Readings] = lambda: Readings(),
        attention: str | None = None,
    ) -> None:
        """`preparation` returns the time to make the inputs (`tokenize`), with the other readings; `attention` is the
        requested attention."""
        self.count_like(inner)
        self.inner = inner
        self._label = label
        self._preparation = preparation
        self._attention = attention
        self.count_key: BuildKey | None = None
        """Key of the call's counts; None if unknown, as for a user's module."""
        self.model: Any = None
        """The module that the call runs, for profiles; None without a torch module."""
        self._inference_mode = torch.inference_mode
        self._kernels: torch_settings.KernelCounts | None = None
        """The attention kernels in the counted call; None if they were not observed."""

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

    def metrics(self) -> Sequence[CustomMetric]:
        with self._inference_mode():
            return self.inner.metrics()

    def next_token_logits(self, text: np.ndarray) -> np.ndarray:
        with self._inference_mode():
            return self.inner.next_token_logits(text)

    def count(self) -> Readings:
        if self.count_key is None:
            return self._count_work()
        return cached_count(self.count_key, self._count_work)

    def _count_work(self) -> Readings:
        """Counts of the call. The counted call also shows its attention kernels, so `verified` needs no call of its
        own, except for a compiled model, which is counted uncompiled, and on a GPU, whose kernels have other names."""
        self.reset()
        dispatched: list[str] = []
        readings = count_by_shapes(self._run_unmarked, self.reset, dispatched.append)
        if dispatched and not has_failed(readings) and self._shows_kernels:
            self._kernels = torch_settings.kernel_counts(dispatched, ())
        return readings

    @property
    def _shows_kernels(self) -> bool:
        return not self.is_compiled and not is_gpu_in_use()

    def _run_unmarked(self) -> Any:
        return self.run(lambda name: None)

    def arrays(self, output: Any) -> Mapping[str, Any]:
        return self.inner.arrays(output)

    def profiler(self, folder: Path, synchronize: Callable[[], None]) -> CallProfiler | None:
        from benchmarking.runtimes.support.torch.torch_profiling import TorchProfiler

        return None if self.model is None else TorchProfiler(self, self.model, folder, synchronize)

    def verified(self) -> Mapping[str, Json]:
        """`attention_kernels`: the attention kernels of a call with their counts; and whether a different kernel ran
        than requested."""
        if self._kernels is None and self._shows_kernels:
            self._count_work()  # counting by shapes takes a quarter of a call, a profile a whole one
        kernels = self._kernels
        if kernels is None:
            self.reset()
            kernels = torch_settings.kernels_run(self._run_unmarked)
        checked = torch_settings.verdict(
            self._attention, kernels, is_compiled=self.is_compiled, is_replayed=self.is_replayed
        )
        return {"attention_kernels": dict[str, Json](kernels.counts), **checked}


class TorchSession(Session):
    """A workload's model on a device."""

    def __init__(self, loaded: Loaded) -> None:
        self.model: Any = loaded.model
        self.verified: Mapping[str, Json] = loaded.verified
        self.weights_bytes: int | None = weights_bytes(loaded.model)
        self.parameter_count: int | None = loaded.parameter_count
        self.attention = attention_of(loaded.cell.runtime_mode)
        self._cell = loaded.cell
        self._torch_name = loaded.torch_name
        self._cleanup = loaded.cleanup
        self._processing = loaded.processing

    def operation(self, point: Point) -> TorchOperation:
        plugin, prepared = self.prepared(point)
        inner = self.family_operation(plugin, self.model, point, prepared.arrays, self._torch_name)
        operation = self.wrapped(inner, point, prepared.readings)
        operation.count_key = count_key(self._cell, point, prepared.arrays)
        operation.model = self.model
        return operation

    def family_operation(
        self, plugin: WorkloadFamily, model: Any, point: Point, arrays: Mapping[str, Any], torch_name: str
    ) -> FamilyOperation:
        """The family's call of a model, with the inputs on its device, in the requested layout and token mode."""
        mode = self._cell.runtime_mode
        with memory_errors(f"placing the inputs of {point.label} on {torch_name}"):
            inputs = {name: torch.from_numpy(array).to(torch_name) for name, array in arrays.items()}
            if mode.get(MEMORY_FORMAT.name) == CHANNELS_LAST:
                inputs = {name: channels_last(tensor) for name, tensor in inputs.items()}
            operation = plugin.torch_operation(model, self._cell.workload, point, inputs, mode)
        operation.streams = mode.get(TOKEN_SYNC.name) != AT_THE_END
        return operation

    def prepared(self, point: Point) -> tuple[WorkloadFamily, Prepared]:
        """The workload's family, and the inputs of a point on the host. Raises UsageError if the model cannot run the
        point."""
        workload = self._cell.workload
        return plugin_of(workload), self._processing.checked_inputs(workload, point)

    def wrapped(self, inner: FamilyOperation, point: Point, preparation: Callable[[], Readings]) -> TorchOperation:
        """The operation of a point around its family's."""
        return TorchOperation(inner, point.label, preparation, self.attention)

    def close(self) -> None:
        self.model = None
        self._cleanup.close()


class ModuleOperation(FamilyOperation):
    """`module(*inputs)` or `module(**inputs)`, each time with arguments as they were given. The module's own state
    between calls is left alone."""

    def __init__(self, module: Any, positional: tuple[Any, ...], named: Mapping[str, Any], items: int) -> None:
        self.items_per_call = items
        self._module = module
        self._arguments = CallArguments(module, positional, named)
        self.keeps_state = self._arguments.has_state
        self._restore()

    def reset(self) -> None:
        if self.keeps_state:  # else it would only take time between queued calls
            self._restore()

    def _restore(self) -> None:
        self._positional, self._named = self._arguments.with_tensors(self._arguments.tensors, lambda tensor: tensor)

    def run(self, mark: Mark) -> Any:
        return self._module(*self._positional, **self._named)

    def problem(self, output: Any) -> str | None:
        output_tensor = _output_tensor(output)
        return None if output_tensor is None else non_finite(*output_tensor)

    def arrays(self, output: Any) -> dict[str, Any]:
        """The output's main tensor as a float32 numpy array; empty if it has none."""
        output_tensor = _output_tensor(output)
        return {} if output_tensor is None else {output_tensor[0]: host_array(output_tensor[1])}


class ModuleSession(Session):
    """A user's module on its device, in eval mode until `close`."""

    def __init__(self, module: Any, inputs: Any) -> None:
        """Raises BenchhouseError if the module is on several devices."""
        self.weights_bytes: int | None = weights_bytes(module)
        self.parameter_count: int | None = parameter_count(module)
        self._module = module
        # A frozen part of TorchScript has no mode.
        self._was_training = {part: part.training for part in module.modules() if hasattr(part, "training")}
        self._positional, self._named = arguments_of(inputs)
        devices = {parameter.device for parameter in module.parameters()}
        if len(devices) > 1:
            raise BenchhouseError(f"the module is spread over {', '.join(sorted(map(str, devices)))}")
        for device in devices:
            self._positional = tuple(_to_device(value, device) for value in self._positional)
            self._named = {key: _to_device(value, device) for key, value in self._named.items()}
        module.eval()
        self._batch = batch_size(module, self._positional, self._named)
        self.verified: Mapping[str, Json] = {**describe(module), **effective_threads(), **effective_arithmetic()}

    def has_batch_in_outputs(self) -> bool:
        """Whether the outputs have the batch of the inputs, which is none otherwise. To be asked after the measurement,
        whose first call is the module's first."""
        before, self._batch = self._batch, batch_size(self._module, self._positional, self._named, is_called=True)
        return self._batch == before

    def operation(self, point: Point) -> Operation:
        """The call on the given inputs. Raises UsageError if the point has a different batch size."""
        operation = ModuleOperation(self._module, self._positional, self._named, self._batch or 1)
        if point.batch_size != operation.items_per_call:
            raise UsageError(f"the inputs have batch size {operation.items_per_call}, the point {point.batch_size}")
        called = TorchOperation(operation, point.label)
        called.model = self._module
        return called

    def point(self) -> Point:
        """The point of the inputs: the batch that they show, else 1; the second dimension of token ids is the
        sequence."""
        tensors = [t for t in (*self._positional, *self._named.values()) if isinstance(t, torch.Tensor)]
        sequences = [t for t in tensors if t.dim() == 2 and not t.is_floating_point()]
        known = sequences if self._batch is not None else []
        return Point(batch_size=self._batch or 1, sequence_length=int(known[0].shape[1]) if known else None)

    def workload(self, name: str | None = None) -> Workload:
        """The workload record of the module (`module_workload`), marked if a call is the only item that it shows."""
        workload = module_workload(self._module, name)
        if self._batch is not None:
            return workload
        config = {**workload.config, COUNTS_CALLS: True}
        return replace(workload, config=config, config_hash=canonical_hash(config))

    def close(self) -> None:
        self._module.train(self._was_training.get(self._module, False))
        for part, was_training in self._was_training.items():  # a part may have been in another mode than the module
            part.training = was_training


def module_workload(module: Any, name: str | None = None) -> Workload:
    """The workload record of a user's module: its class and configuration.

    The family comes from its transformers configuration; None without one, or if the family is not supported.
    """
    model_id = name or type(module).__name__
    own_config: Any = getattr(module, "config", None)
    config: dict[str, Json] = own_config.to_diff_dict() if hasattr(own_config, "to_diff_dict") else {}
    config = {"module_class": f"{type(module).__module__}.{type(module).__qualname__}", **config}
    return Workload(
        model_id=model_id,
        family=next((plugin.name for plugin in families() if config.get("model_type") in plugin.model_types), None),
        task="feature-extraction",
        source="module",
        config=config,
        config_hash=canonical_hash(config),
        weights="given",
        parameter_count=parameter_count(module),
    )


def batch_size(
    module: Any, positional: Sequence[Any], named: Mapping[str, Any], *, is_called: bool = False
) -> int | None:
    """The batch that the inputs show, and the outputs of calls of copies if `is_called`; None if they do not. Raises
    UsageError if there is no tensor."""
    values = {**{f"input_{index}": value for index, value in enumerate(positional)}, **named}
    tensors = {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}
    if not tensors:
        raise UsageError("the inputs contain no tensor")

    def call(others: Mapping[str, Any]) -> Any:
        copy, given = copy_to_call(module, {**values, **others})
        rest = {name: given[name] for name in named}
        return copy(*[given[f"input_{index}"] for index in range(len(positional))], **rest)

    return batch_of(module, tensors, call if is_called else None)


def arguments_of(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Inputs as positional and named arguments: a mapping is named, a tuple or list positional, a tensor the only
    argument."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,), {}


def _to_device(value: Any, device: Any) -> Any:
    return value.to(device) if hasattr(value, "to") else value


def _output_tensor(output: Any) -> tuple[str, Any] | None:
    """The main tensor of an output; None if it has no checkable tensor."""
    name, tensor = main_tensor(output)
    return (name, tensor) if isinstance(tensor, torch.Tensor) else None
