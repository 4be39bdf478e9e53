"""A torch module that somebody hands in with its inputs, as a session: for measuring what has no name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarking.errors import BenchhouseError, UsageError
from benchmarking.records import Family, Json, Point, Workload, canonical_hash
from benchmarking.runtimes import Mark, Operation, Session
from benchmarking.runtimes._torch import threads_in_force
from benchmarking.runtimes._torch_model import describe, parameter_count, weights_bytes
from benchmarking.runtimes._torch_session import TorchOperation
from benchmarking.workloads import FamilyOperation
from benchmarking.workloads._forward import host_array, main_tensor, non_finite


class ModuleOperation(FamilyOperation):
    """`module(*inputs)` or `module(**inputs)`. What a module keeps between calls is its own."""

    def __init__(self, module: Any, positional: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        self.items_per_call = batch_size(positional, named)
        self._module = module
        self._positional = positional
        self._named = dict(named)

    def run(self, mark: Mark) -> Any:
        return self._module(*self._positional, **self._named)

    def problem(self, output: Any) -> str | None:
        found = _output_tensor(output)
        return None if found is None else non_finite(*found)

    def arrays(self, output: Any) -> dict[str, Any]:
        """The output's main tensor as a float32 numpy array; empty when it has none."""
        found = _output_tensor(output)
        return {} if found is None else {found[0]: host_array(found[1])}


class ModuleSession(Session):
    """A user's module where it is, in eval mode until `close`."""

    def __init__(self, module: Any, inputs: Any) -> None:
        self.weights_bytes: int | None = weights_bytes(module)
        self.parameter_count: int | None = parameter_count(module)
        self._module = module
        self._was_training: bool = module.training
        self._positional, self._named = _placed(*_arguments(inputs), module)
        module.eval()
        self.verified: Mapping[str, Json] = {**describe(module), **threads_in_force()}

    def operation(self, point: Point) -> Operation:
        """The call on the inputs that were handed in. Raises UsageError for a point of another batch size."""
        operation = ModuleOperation(self._module, self._positional, self._named)
        if point.batch_size != operation.items_per_call:
            raise UsageError(f"the inputs have batch size {operation.items_per_call}, the point {point.batch_size}")
        return TorchOperation(operation, point.label)

    def point(self) -> Point:
        """The point the inputs make: their first dimension is the batch, the second of token ids the sequence."""
        sequences = [t for t in (*self._positional, *self._named.values()) if _is_token_ids(t)]
        batch = batch_size(self._positional, self._named)
        return Point(batch_size=batch, sequence_length=int(sequences[0].shape[1]) if sequences else None)

    def close(self) -> None:
        self._module.train(self._was_training)


def module_workload(module: Any, name: str | None = None) -> Workload:
    """The workload record of a user's module: its class and configuration, its weights as they are.

    The family is that of the transformers configuration it carries; None without one, or with one of no family here.
    """
    model_id = name or type(module).__name__
    carried: Any = getattr(module, "config", None)
    config: dict[str, Json] = carried.to_diff_dict() if hasattr(carried, "to_diff_dict") else {}
    config = {"module_class": f"{type(module).__module__}.{type(module).__qualname__}", **config}
    return Workload(
        model_id=model_id,
        family=_family(config),
        task="feature-extraction",
        source="module",
        config=config,
        config_hash=canonical_hash(config),
        weights="given",
        parameter_count=parameter_count(module),
    )


def _family(config: Mapping[str, Json]) -> Family | None:
    """The family that has the configuration's model type."""
    from benchmarking.workloads._families import families

    return next((plugin.name for plugin in families() if config.get("model_type") in plugin.model_types), None)


def batch_size(positional: Sequence[Any], named: Mapping[str, Any]) -> int:
    """The first dimension of the first tensor. Raises UsageError when there is none."""
    import torch

    for value in (*positional, *named.values()):
        if isinstance(value, torch.Tensor) and value.dim() > 0:
            return int(value.shape[0])
    raise UsageError("the inputs hold no tensor with a batch dimension")


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Inputs as positional and named arguments: a mapping is named, a tuple or list positional, a tensor alone."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,), {}


def _placed(positional: tuple[Any, ...], named: dict[str, Any], module: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The tensors among the inputs on the module's device. Raises BenchhouseError for a module spread over several."""
    devices = {parameter.device for parameter in module.parameters()}
    if len(devices) > 1:
        raise BenchhouseError(f"the module is spread over {', '.join(sorted(map(str, devices)))}")
    for device in devices:
        positional = tuple(_moved(value, device) for value in positional)
        named = {key: _moved(value, device) for key, value in named.items()}
    return positional, named


def _moved(value: Any, device: Any) -> Any:
    return value.to(device) if hasattr(value, "to") else value


def _is_token_ids(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and value.dim() == 2 and not value.is_floating_point()


def _output_tensor(output: Any) -> tuple[str, Any] | None:
    """The tensor an output is about, or None when it holds none that can be checked."""
    import torch

    name, tensor = main_tensor(output)
    return (name, tensor) if isinstance(tensor, torch.Tensor) else None
