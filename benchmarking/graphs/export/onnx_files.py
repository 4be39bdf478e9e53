"""The ONNX file of a graph: exported from a torch module and example inputs, cleaned up, checked, and inspected without
reading the weights.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import io
import logging
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarking.core.errors import BenchhouseError, first_line
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import onnx, torch
from benchmarking.core.model_contracts import TORCH_EXPORTER, TRANSFORMERS_EXPORTER
from benchmarking.graphs.bundle import Tensor
from benchmarking.graphs.profiling import KEPT_METADATA

if TYPE_CHECKING:
    from benchmarking.graphs.export.graph_plans import Traced


log = logging.getLogger(__name__)

Axes = Mapping[str, Mapping[int, str]]
"""Names of free axes, by input and axis number."""
OLDEST_OPSET = 17
"""The oldest version of operators that the exporters write or convert to: older ones have no LayerNormalization."""
ATTENTION_OPSET = 14
"""The oldest version to which torch's older exporter writes torch's attention (`sdpa`); eager attention has older
ones."""
SYMBOL = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """The initializers of several files together."""

    size_bytes: int
    values_by_dtype: Mapping[str, int]


def installed_exporter(wanted: str) -> str:
    """The exporter, or torch's if transformers is too old to have one. The bundle records which."""
    if wanted == TRANSFORMERS_EXPORTER and importlib.util.find_spec(TRANSFORMERS_EXPORTER) is None:
        return TORCH_EXPORTER
    return wanted


def export_graph_file(traced: Traced, path: Path, exporter: str, opset: int) -> None:
    """Trace and convert a graph, with weights in `<file>.data`; to old operators by torch's older exporter. Raises
    BenchhouseError with the exporter's error."""
    convert = _export_by_transformers if exporter == TRANSFORMERS_EXPORTER else _export_by_torch
    if opset < OLDEST_OPSET:
        convert, exporter = _export_by_torchscript, "torch's TorchScript exporter"
    printed = io.StringIO()
    try:
        with quiet(printed):
            convert(traced, path, opset)
    except Exception as error:
        log.debug("%s", printed.getvalue())
        why: BaseException = error
        while why.__cause__ is not None:  # torch.onnx's own error only states that exporting failed, with advice
            why = why.__cause__
        newer = f"; operators from version {OLDEST_OPSET} have another exporter" if opset < OLDEST_OPSET else ""
        raise BenchhouseError(
            f"{exporter} cannot export the graph {path.stem!r}: {type(why).__name__}: {first_line(why)}{newer}"
        ) from error


@contextlib.contextmanager
def quiet(printed: io.StringIO) -> Iterator[None]:
    """Redirects what exporters print (progress, version warnings) to a buffer."""
    previous = logging.root.manager.disable
    sys.stdout.flush()
    stdout = os.dup(1)
    logging.disable(logging.WARNING)
    with tempfile.TemporaryFile() as native:
        os.dup2(native.fileno(), 1)  # what compiled code prints: torch's older exporter prints the graph when it fails
        try:
            with (
                contextlib.redirect_stdout(printed),
                contextlib.redirect_stderr(printed),
                warnings.catch_warnings(),
            ):
                warnings.simplefilter("ignore")
                yield
        finally:
            os.dup2(stdout, 1)
            os.close(stdout)
            logging.disable(previous)
            native.seek(0)
            printed.write(native.read().decode(errors="replace"))


def _export_by_transformers(traced: Traced, path: Path, opset: int) -> None:
    from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter

    config = OnnxConfig(dynamic=True, dynamic_shapes=_dynamic_shapes(traced), opset_version=opset)
    program, _ = OnnxExporter().export_program(traced.module, dict(traced.inputs), config)
    OnnxExporter.save_program(program, path)


def _export_by_torch(traced: Traced, path: Path, opset: int) -> None:
    module = traced.module
    forward = module.forward

    def with_named_parameters(**inputs: Any) -> Any:
        return forward(**inputs)

    # The exporter expects the keywords in the signature.
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in traced.inputs]
    with_named_parameters.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with torch.no_grad():
        outputs = list(module(**traced.inputs))
        module.forward = with_named_parameters
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


def _export_by_torchscript(traced: Traced, path: Path, opset: int) -> None:

    class InOrder(torch.nn.Module):
        """The module with its inputs and outputs in order, as tracing expects."""

        def __init__(self) -> None:
            super().__init__()
            self.module = traced.module

        def forward(self, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(self.module(**dict(zip(traced.inputs, values, strict=True))).values())

    if opset < ATTENTION_OPSET:
        part: Any
        for part in traced.module.modules():
            if hasattr(part, "set_attn_implementation"):
                part.set_attn_implementation("eager")
    with torch.no_grad():
        outputs = list(traced.module(**traced.inputs))
        torch.onnx.export(
            InOrder().eval(),  # the exporter restores the mode of all modules to that of the outermost
            tuple(traced.inputs.values()),
            str(path),
            input_names=list(traced.inputs),
            output_names=outputs,
            dynamic_axes={name: dict(axes) for name, axes in traced.axes.items()},
            opset_version=opset,
            dynamo=False,
        )
    model = onnx.load(str(path))
    onnx.save(model, str(path), save_as_external_data=True, location=f"{path.name}.data", size_threshold=0)


def _dynamic_shapes(traced: Traced) -> dict[str, dict[int, Any]]:
    """The free axes in torch's form. torch derives their relations, and `name_free_axes` checks that none was fixed."""
    from torch.export import Dim

    return {name: dict.fromkeys(traced.axes.get(name, {}), Dim.AUTO) for name in traced.inputs}


def check_opset(path: Path, opset: int, exporter: str) -> None:
    """Raise BenchhouseError if a file's operators have another version: exporters that cannot convert keep their own
    version and only warn."""
    model = onnx.load(str(path), load_external_data=False)
    written = max(
        (imported.version for imported in model.opset_import if imported.domain in ("", "ai.onnx")), default=None
    )
    if written != opset:
        raise BenchhouseError(
            f"{exporter} cannot convert {path.stem!r} to operators of version {opset}, it wrote version {written}: "
            f"use --opset {written}"
        )


def name_free_axes(path: Path, axes: Axes) -> None:
    """Name the free dimensions and remove the source lines of nodes; their modules stay, for profiles.

    Raises BenchhouseError if the exporter fixed an axis that should be free."""
    model = onnx.load(str(path), load_external_data=False)
    names: dict[str, str] = {}  # by the exporter's symbol ("s56")
    for value in model.graph.input:
        dimensions = value.type.tensor_type.shape.dim
        for axis, name in axes.get(value.name, {}).items():
            symbol = dimensions[axis].dim_param
            if not SYMBOL.match(symbol):  # no symbol, or a symbol that is really a number
                raise BenchhouseError(
                    f"the exporter fixed axis {axis} ({name}) of {value.name} in {path.name} at "
                    f"{symbol or dimensions[axis].dim_value}: the graph would be correct at that size only"
                )
            names.setdefault(symbol, name)
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.HasField("dim_param"):
                dimension.dim_param = SYMBOL.sub(lambda match: names.get(match[0], match[0]), dimension.dim_param)
    for node in (*model.graph.node, *(node for function in model.functions for node in function.node)):
        kept = [entry for entry in node.metadata_props if entry.key in KEPT_METADATA]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
        node.doc_string = ""
    onnx.save(model, str(path))


def add_metadata(path: Path, key: str, value: str) -> None:
    """Add an entry to a file's metadata; weights in other files stay as they are."""
    model = onnx.load(str(path), load_external_data=False)
    model.metadata_props.add(key=key, value=value)
    onnx.save(model, str(path))


def check(path: Path) -> None:
    """Raise BenchhouseError if ONNX's checker rejects a file."""
    try:
        onnx.checker.check_model(str(path))
    except onnx.checker.ValidationError as error:
        raise BenchhouseError(f"the exported {path.name} is not valid ONNX: {first_line(error)}") from error


def tensors(path: Path) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """The inputs and outputs of a file's graph."""
    graph = onnx.load(str(path), load_external_data=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    return _tensors(value for value in graph.input if value.name not in weights), _tensors(graph.output)


def weights(paths: Sequence[Path]) -> Weights:
    """Bytes and numbers of the initializers and of larger constants, including those of subgraphs. A byte with two
    packed 4-bit weights (MatMulNBits) counts as two."""
    size_bytes = 0
    counts: dict[str, int] = {}
    for path in paths:
        graph = onnx.load(str(path), load_external_data=False).graph
        packed = {
            node.input[1]
            for node in graph.node
            if node.op_type == "MatMulNBits"
            and next((attribute.i for attribute in node.attribute if attribute.name == "bits"), 4) == 4
        }
        for tensor in _stored_tensors(graph):
            values = prod(tensor.dims)
            if onnx.TensorProto.DataType.Name(tensor.data_type) in ("INT4", "UINT4", "FLOAT4E2M1"):
                size_bytes += (values + 1) // 2  # two values share a byte
            else:
                size_bytes += values * int(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
            name, values = ("int4", 2 * values) if tensor.name in packed else (_dtype(tensor.data_type), values)
            counts[name] = counts.get(name, 0) + values
    return Weights(size_bytes=size_bytes, values_by_dtype=dict(sorted(counts.items())))


def _stored_tensors(graph: Any) -> Iterator[Any]:
    """The initializers of a graph and of its subgraphs, and constants of more than one value: some exporters write all
    weights as constants."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value" and prod(attribute.t.dims) > 1:
                yield attribute.t
            for inner in (attribute.g, *attribute.graphs):
                yield from _stored_tensors(inner)


def weight_files(path: Path) -> tuple[Path, ...]:
    """The files that hold a graph's weights. Raises BenchhouseError for one outside the graph's folder."""
    tensors = onnx.load(str(path), load_external_data=False).graph.initializer
    names = {entry.value for tensor in tensors for entry in tensor.external_data if entry.key == "location"}
    if outside := sorted(name for name in names if Path(name).name != name):
        raise BenchhouseError(f"{path} has weights outside its folder ({outside[0]}), which are never read")
    return tuple(path.parent / name for name in sorted(names))


def _tensors(values: Iterable[Any]) -> tuple[Tensor, ...]:
    return tuple(
        Tensor(
            name=value.name,
            dtype=_dtype(value.type.tensor_type.elem_type),
            shape=tuple(
                dimension.dim_value
                if dimension.HasField("dim_value")
                else dimension.dim_param or f"{value.name}.{axis}"
                for axis, dimension in enumerate(value.type.tensor_type.shape.dim)
            ),
        )
        for value in values
    )


def _dtype(number: int) -> str:
    """numpy's name for ONNX's type, or ONNX's own name if numpy lacks the type ("bfloat16", "int4")."""
    name: str = onnx.TensorProto.DataType.Name(number).lower()
    return {"float": "float32", "double": "float64"}.get(name, name)
