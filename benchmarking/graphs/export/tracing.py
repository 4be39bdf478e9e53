"""The export of one graph: from a torch module and example inputs to an ONNX file."""

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

from benchmarking.core.errors import BenchhouseError, first_line
from benchmarking.core.graph_contracts import TORCH_EXPORTER, TRANSFORMERS_EXPORTER
from benchmarking.graphs.bundle import State

log = logging.getLogger(__name__)

BATCH, SEQUENCE, PAST, ENCODED = "batch", "sequence", "past", "encoded"
"""Names of free dimensions."""

Axes = Mapping[str, Mapping[int, str]]
"""Input -> number of a free axis -> its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """A graph to export. The module is called with the inputs as keywords and returns a dict of tensors; the graph's
    inputs and outputs have the same names."""

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
    """The graphs of a bundle to export, and further fields of its manifest."""

    graphs: Mapping[str, Traced]
    fields: Mapping[str, Any] = field(default_factory=dict)


def installed_exporter(wanted: str) -> str:
    """The exporter, or torch's where transformers is too old to have one. The bundle records which."""
    if wanted == TRANSFORMERS_EXPORTER and importlib.util.find_spec(TRANSFORMERS_EXPORTER) is None:
        return TORCH_EXPORTER
    return wanted


def write(traced: Traced, path: Path, exporter: str, opset: int) -> None:
    """Trace and convert a graph; its weights go to `<file>.data`. Raises BenchhouseError with the exporter's error."""
    convert = _by_transformers if exporter == TRANSFORMERS_EXPORTER else _by_torch
    with quiet() as printed:
        try:
            convert(traced, path, opset)
        except Exception as error:
            log.debug("%s", printed.getvalue())
            raise BenchhouseError(
                f"{exporter} cannot export the graph {path.stem!r}: {type(error).__name__}: {first_line(error)}"
            ) from error


@contextlib.contextmanager
def quiet() -> Iterator[io.StringIO]:
    """Inside, what exporters print (progress, warnings of versions) goes to a buffer instead of the terminal."""
    printed = io.StringIO()
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield printed
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
    assert program is not None  # None only from the older exporter
    program.save(str(path), external_data=True)


def _flat(forward: Callable[..., Any], names: Sequence[str]) -> Callable[..., Any]:
    """The function with its keywords named in its signature, where the exporter looks for them."""

    def flat(**inputs: Any) -> Any:
        return forward(**inputs)

    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return flat


def _dynamic_shapes(traced: Traced) -> dict[str, dict[int, Any]]:
    """The free axes in torch's terms: torch derives their relations, and `files.tidy` checks that none was fixed."""
    from torch.export import Dim

    return {name: dict.fromkeys(traced.axes.get(name, {}), Dim.AUTO) for name in traced.inputs}
