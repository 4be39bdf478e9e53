"""One pass through a model: what encoders do, and decoders asked for features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarking.records import Point
from benchmarking.runtimes import Mark
from benchmarking.workloads import FamilyOperation

OUTPUT_NAMES = ("logits", "last_hidden_state")
"""The tensor that an output is about, by the field's name in transformers' outputs."""


class ForwardPass(FamilyOperation):
    """`model(**inputs)`.

    No attention mask is passed, because nothing is padded. With scaled-dot-product attention transformers then takes
    the same kernel as for a mask of ones, which it drops after having looked at its values: on a GPU that look waits
    for the device. With eager attention a mask of ones may be turned into a bias that is added in every layer.
    """

    def __init__(self, model: Any, point: Point, inputs: Mapping[str, Any]) -> None:
        self.items_per_call = point.batch_size
        self.tokens_per_call: int | None = point.batch_size * (point.sequence_length or 0) or None
        self._model = model
        self._inputs = dict(inputs)

    def run(self, mark: Mark) -> Any:
        return self._model(**self._inputs)

    def problem(self, output: Any) -> str | None:
        name, tensor = main_tensor(output)
        return non_finite(name, tensor)

    def arrays(self, output: Any) -> dict[str, Any]:
        """The output on the host, as float32 numpy arrays by name: to compare with another runtime's."""
        name, tensor = main_tensor(output)
        return {name: host_array(tensor)}


def floats_as(model: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs, those of floating point in the dtype of the model's parameters."""
    dtype = next(parameter.dtype for parameter in model.parameters() if parameter.is_floating_point())
    return {name: value.to(dtype) if value.is_floating_point() else value for name, value in inputs.items()}


def main_tensor(output: Any) -> tuple[str, Any]:
    """The name and tensor an output is about: logits, else hidden states."""
    for name in OUTPUT_NAMES:
        if getattr(output, name, None) is not None:
            return name, getattr(output, name)
    return "output", output[0] if isinstance(output, tuple | list) else output


def non_finite(name: str, tensor: Any) -> str | None:
    """None, or how much of a tensor is NaN or infinite."""
    finite = tensor.isfinite()
    if finite.all():
        return None
    return f"NaN or Inf in {name}: {tensor.numel() - int(finite.sum())} of {tensor.numel()} values"


def host_array(tensor: Any) -> Any:
    """A floating-point tensor as a float32 numpy array."""
    return tensor.detach().float().cpu().numpy()
