"""One graph: a torch module and example inputs in, an ONNX file out."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarking.core.contracts import TORCH_EXPORTER, TRANSFORMERS_EXPORTER
from benchmarking.core.errors import BenchhouseError, first_line
from benchmarking.graphs.bundle import State

log = logging.getLogger(__name__)

BATCH, SEQUENCE, PAST, ENCODED = "batch", "sequence", "past", "encoded"
"""Names of free dimensions."""

Axes = Mapping[str, Mapping[int, str]]
"""Input -> its free axes, by number, with what they are called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """A graph to be made. The module is called with the inputs as keywords and gives a dict of tensors; of these names
    the graph's inputs and outputs are."""

    module: Any
    inputs: Mapping[str, Any]
    axes: Axes
    feeds: Mapping[str, str]
    states: tuple[State, ...] = ()
    result: str | None = None
    result_name: str | None = None
    more_results: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The graphs of a bundle to be made, and what its manifest says besides."""

    graphs: Mapping[str, Traced]
    fields: Mapping[str, Any] = field(default_factory=dict)


def installed_exporter(wanted: str) -> str:
    """The exporter, or torch's own where transformers is too old to have one. Which it was is in the bundle."""
    if wanted == TRANSFORMERS_EXPORTER and importlib.util.find_spec(TRANSFORMERS_EXPORTER) is None:
        return TORCH_EXPORTER
    return wanted


def write(traced: Traced, path: Path, exporter: str, opset: int) -> None:
    """Trace and convert a graph, its weights in `<file>.data` beside it. Raises BenchhouseError with what the exporter
    said when it cannot."""
    convert = _by_transformers if exporter == TRANSFORMERS_EXPORTER else _by_torch
    with quiet() as said:
        try:
            convert(traced, path, opset)
        except Exception as error:
            log.debug("%s", said.getvalue())
            raise BenchhouseError(
                f"{exporter} cannot export the graph {path.stem!r}: {type(error).__name__}: {first_line(error)}"
            ) from error


@contextlib.contextmanager
def quiet() -> Iterator[io.StringIO]:
    """Exporters print their progress and warn of versions: that is kept from the terminal, and given to the caller."""
    said = io.StringIO()
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield said
    finally:
        logging.disable(before)


def _by_transformers(traced: Traced, path: Path, opset: int) -> None:
    from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter

    config = OnnxConfig(dynamic=True, dynamic_shapes=_dynamic_shapes(traced), opset_version=opset)
    program, _ = OnnxExporter().export_program(traced.module, dict(traced.inputs), config)
    OnnxExporter.save_program(program, path)


def _by_torch(traced: Traced, path: Path, opset: int) -> None:
    import torch

    module = traced.module
    with torch.no_grad():
        outputs = list(module(**traced.inputs))
        module.forward = _flat(module.forward, list(traced.inputs))
        program = torch.onnx.export(
            module,
            args=(),
            kwargs=dict(traced.inputs),
            input_names=list(traced.inputs),
            output_names=outputs,
            dynamic_shapes=_dynamic_shapes(traced),
            opset_version=opset,
            dynamo=True,
        )
    assert program is not None  # it is None only for the older exporter
    program.save(str(path), external_data=True)


def _flat(forward: Callable[..., Any], names: Sequence[str]) -> Callable[..., Any]:
    """The function with each keyword named in its signature, where the exporter looks for them."""

    def flat(**inputs: Any) -> Any:
        return forward(**inputs)

    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return flat


def _dynamic_shapes(traced: Traced) -> dict[str, dict[int, Any]]:
    """torch's own word for free axes: it works out their relations, and `files.tidy` sees that none was fixed."""
    from torch.export import Dim

    return {name: dict.fromkeys(traced.axes.get(name, {}), Dim.AUTO) for name in traced.inputs}
