"""A model that is a graph file: an `.onnx` file, an OpenVINO `.xml` file, or a folder with one that was exported by an
earlier version. Folders exported by this version name their model (`exported_folder`).

Only its graph is known, so inputs are made from the graph's shapes and types: the first free dimension is the batch,
dimensions named after height or width are the image's, those named after the past are 0, and any other free dimension
is the sequence. Integers stay below the number of rows in the table that they index.

The file may be untrusted. It is read by a separate process, this module's `main`, which gets its path on stdin and
answers in JSON. Weights in other files are read only from the same folder; links, paths with folders, and operators of
unknown domains are rejected, and operator libraries are never loaded. Protobuf itself reads at most 2 GB and 100
levels. The measured file is a copy in the build cache of the checked contents.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarking.core.child_process import ChildError, run_module_json
from benchmarking.core.contracts import FamilyOperation
from benchmarking.core.errors import BenchhouseError, UnsupportedError, UsageError, first_line
from benchmarking.core.model_contracts import Recipe, WorkloadFamily
from benchmarking.core.records import Json, Point, Scalar, Workload, canonical_hash
from benchmarking.core.untrusted.redaction import redacted_path
from benchmarking.devices.openvino import last_line

if TYPE_CHECKING:
    import numpy as np

MODULE = "benchmarking.workloads.support.graph_file"
TASK = "graph"
SUFFIXES = {".onnx": "onnx", ".xml": "openvino"}
"""Formats by suffix. The weights of the second are in a .bin file of the same name."""
MANIFEST = "bundle.json"
"""Names of manifest files in exported folders."""
MAX_BYTES = {"onnx": 2_000_000_000, "openvino": 200_000_000}
"""Size limits of the file itself: Protobuf's own limit, and less for XML, which takes ten times as much memory and
more."""
MAX_TENSORS = 1000
"""Limit of inputs and of outputs; decoders with a cache have a few hundred."""
TIME_LIMIT_S = 300.0
DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc"})
"""Operator domains that runtimes support without additional libraries."""
EMBEDDED_ENGINE = "EPContext"
"""The operator that refers to a vendor's compiled engine in a file."""
DEFAULT_SEQUENCE, DEFAULT_IMAGE = 128, 224
DEFAULT_ROWS = 100
"""Upper limit of integers whose use is unknown."""
IMAGE_SIDES = re.compile(r"height|width|(^|_)[hw]$", re.IGNORECASE)
SAMPLED = ("float16", "float32", "float64", "bfloat16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """An input of the graph."""

    name: str
    dtype: str
    """numpy's name."""
    shape: tuple[int | str, ...]
    rows: int | None = None
    """Rows of the table that it indexes; None if unknown."""


class GraphFileFamily(WorkloadFamily):
    """The family of graph files. It is not a plugin, since no configuration names it."""

    name = TASK
    model_types = frozenset()
    tasks = (TASK,)

    def axes(self, workload: Workload) -> Mapping[str, tuple[float, ...]]:
        kinds = {kind for graph_input in inputs_of(workload) for kind in _free_axes(graph_input)}
        defaults = {"sequence_length": (DEFAULT_SEQUENCE,), "image_size": (DEFAULT_IMAGE,)}
        return {name: values for name, values in defaults.items() if name in kinds}

    def only_batch_size(self, workload: Workload) -> int | None:
        if any(kind == "batch_size" for graph_input in inputs_of(workload) for kind in _free_axes(graph_input)):
            return None
        first = [graph_input.shape[0] for graph_input in inputs_of(workload) if graph_input.shape]
        return first[0] if first and isinstance(first[0], int) and first[0] > 0 else 1

    def check(self, workload: Workload, point: Point) -> str | None:
        only = self.only_batch_size(workload)
        if only is not None and point.batch_size != only:
            return f"{workload.model_id} has a fixed batch size: use --batch-sizes {only}"
        return None

    def inputs(self, workload: Workload, point: Point, seed: int) -> dict[str, np.ndarray]:
        import numpy as np

        random = np.random.default_rng(seed)
        return {one.name: _array(one, point, random) for one in inputs_of(workload)}

    def recipe(self, workload: Workload) -> Recipe | str:
        return Recipe(plan="forward", exporter="the file itself")

    def model_class(self, workload: Workload) -> Any:
        raise _no_torch_error(workload)

    def build(self, workload: Workload, *, dtype: Any, attention: str | None = None) -> Any:
        raise _no_torch_error(workload)

    def load(self, workload: Workload, *, dtype: Any, attention: str | None = None) -> tuple[Any, tuple[str, ...]]:
        raise _no_torch_error(workload)

    def torch_operation(
        self, model: Any, workload: Workload, point: Point, inputs: Mapping[str, Any], mode: Mapping[str, Scalar]
    ) -> FamilyOperation:
        raise _no_torch_error(workload)


FAMILY = GraphFileFamily()


def graph_file_of(model_id: str) -> Path | None:
    """The graph file named by a model id: the file itself, or the only graph of an exported folder; None for anything
    else.

    Raises UsageError for an export of several graphs that does not name their model.
    """
    path = Path(model_id).expanduser()
    if path.suffix in SUFFIXES and path.is_file():
        return path.absolute()
    if not (path / MANIFEST).is_file() or any(path.glob("*.safetensors")):
        return None
    graphs = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES and file.is_file())
    if len(graphs) != 1:
        raise UsageError(
            f"--model-id {model_id} is an export of {len(graphs)} graphs by an earlier version, whose {MANIFEST} does "
            "not name the model: export it again, or give a single graph file"
        )
    return graphs[0].absolute()


def graph_file_workload(model_id: str, path: Path, *, task: str | None, seed: int) -> Workload:
    """A graph file as a workload. Raises UsageError for a task and for a rejected file."""
    if task not in (None, TASK):
        raise UsageError(f"--task {task}: {model_id} is a graph file, whose task is unknown: omit --task")
    try:
        config: dict[str, Json] = run_module_json(MODULE, input_text=json.dumps(str(path)), limit_s=TIME_LIMIT_S)
    except ChildError as error:
        raise UsageError(f"--model-id {model_id}: {error}") from error
    count = config.get("parameter_count")
    return Workload(
        model_id=redacted_path(model_id),
        family=None,
        task=TASK,
        source="file",
        config=config,
        config_hash=canonical_hash(config),
        weights="given",
        seed=seed,
        path=str(path),
        parameter_count=count if isinstance(count, int) else None,
    )


def format_of(workload: Workload) -> str:
    """The format of a graph file."""
    return str(workload.config["format"])


def inputs_of(workload: Workload) -> tuple[Input, ...]:
    """The inputs of a graph file."""
    listed: Any = workload.config["inputs"]
    return tuple(Input(**{**one, "shape": tuple(one["shape"])}) for one in listed)


def copy_checked(workload: Workload, folder: Path) -> Path:
    """Copy a graph file and its weights into a folder and return the copy. Raises BenchhouseError if it differs from
    its description."""
    source, digest = Path(workload.path or ""), hashlib.sha256()
    names: Any = workload.config["files"]
    for name in names:
        check_same_folder(source, name)
        shutil.copyfile(source.parent / name, folder / name, follow_symlinks=False)
        _hash_into(digest, folder / name)
    if digest.hexdigest() != workload.config["sha256"]:
        raise BenchhouseError(f"{source} has changed since the start of the run: run again")
    return folder / source.name


def _no_torch_error(workload: Workload) -> UnsupportedError:
    return UnsupportedError(f"{workload.model_id} is a graph file, which has no torch model")


def _free_axes(graph_input: Input) -> Iterator[str]:
    """The axis of each free dimension, in order; "past" for a dimension that is empty before the first call."""
    for index, size in enumerate(graph_input.shape):
        if isinstance(size, str):
            yield _axis_of(size, index)


def _axis_of(name: str, index: int) -> str:
    if index == 0 or "batch" in name.lower():
        return "batch_size"
    if "past" in name.lower() and "+" not in name:
        return "past"
    return "image_size" if IMAGE_SIDES.search(name) else "sequence_length"


def _size_at(name: str, index: int, point: Point) -> int:
    """The size of a free dimension; for a sum such as "past_length + sequence_length", the sum of its parts."""
    if index and "+" in name:
        parts = [part.strip() for part in name.split("+")]
        return sum(int(part) if part.isdigit() else _size_at(part, index, point) for part in parts)
    kind = _axis_of(name, index)
    return 0 if kind == "past" else int(point.value(kind) or 1)


def _array(graph_input: Input, point: Point, random: np.random.Generator) -> np.ndarray:
    import numpy as np

    shape = tuple(
        size if isinstance(size, int) else _size_at(size, index, point) for index, size in enumerate(graph_input.shape)
    )
    name = graph_input.name.lower()
    if graph_input.dtype == "bool" or "mask" in name:
        return np.ones(shape, dtype=graph_input.dtype)
    if graph_input.dtype in SAMPLED:
        return random.standard_normal(shape).astype("float32" if graph_input.dtype == "bfloat16" else graph_input.dtype)
    if "position" in name and shape:
        return np.broadcast_to(np.arange(shape[-1]), shape).astype(graph_input.dtype)
    if "type" in name:
        return np.zeros(shape, dtype=graph_input.dtype)
    return random.integers(0, graph_input.rows or DEFAULT_ROWS, size=shape).astype(graph_input.dtype)


# In the process that reads the file.


def main() -> int:
    """Describe the file named on stdin, on stdout; or each of several files, without hashes."""
    try:
        request = json.load(sys.stdin)
        descriptions = [contents(Path(path)) for path in request] if isinstance(request, list) else None
        print(json.dumps(describe(Path(request)) if descriptions is None else descriptions))
    except BenchhouseError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def describe(path: Path) -> dict[str, Json]:
    """The description of a graph file: its `contents` and the hash of its files. Raises BenchhouseError for a rejected
    file."""
    description = contents(path)
    digest = hashlib.sha256()
    for name in description["files"]:
        _hash_into(digest, path.parent / name)
    return {**description, "sha256": digest.hexdigest()}


def contents(path: Path) -> dict[str, Any]:
    """Format, inputs, outputs, files and the number of parameters. Raises BenchhouseError for a rejected file."""
    kind = SUFFIXES[path.suffix]
    check_same_folder(path, path.name)
    if path.stat().st_size > MAX_BYTES[kind]:
        raise BenchhouseError(f"{path.name} is larger than the limit of {MAX_BYTES[kind] / 1e6:g} MB")
    description = _read_onnx(path) if kind == "onnx" else _read_openvino(path)
    for tensors in ("inputs", "outputs"):
        if not 0 < len(description[tensors]) <= MAX_TENSORS:
            raise BenchhouseError(f"{path.name} has {len(description[tensors])} {tensors}: expected 1 to {MAX_TENSORS}")
    return {"format": kind, **description}


def _hash_into(digest: Any, path: Path) -> None:
    with path.open("rb") as opened:
        while block := opened.read(1 << 20):
            digest.update(block)


def check_same_folder(path: Path, name: str) -> None:
    """Raise BenchhouseError unless the name is a plain file in the graph's folder."""
    if Path(name).name != name or name in ("", ".", ".."):
        raise BenchhouseError(f"{path.name} refers to {name!r}: only files in the same folder are read")
    try:
        status = (path.parent / name).lstat()
    except OSError as error:
        raise BenchhouseError(f"{path.name} needs {name!r} in the same folder: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        raise BenchhouseError(f"{name!r} is a link or not a plain file: replace it by a copy of the file")


def check_entities(path: Path) -> None:
    """Raise BenchhouseError for XML that is too large or defines entities, which may expand to any size."""
    if path.stat().st_size > MAX_BYTES["openvino"]:
        raise BenchhouseError(f"{path.name} is larger than the limit of {MAX_BYTES['openvino'] / 1e6:g} MB")
    content = path.read_bytes()
    if b"<!DOCTYPE" in content or b"<!ENTITY" in content:
        raise BenchhouseError(f"{path.name} defines XML entities, which OpenVINO models never do: it is rejected")


def _read_onnx(path: Path) -> dict[str, Any]:
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load(str(path), load_external_data=False)
    except DecodeError as error:
        raise BenchhouseError(f"{path.name} is not an ONNX file: {first_line(error)}") from error
    _check_operators(path, model)
    tensors = list(_tensors(model))
    files = dict.fromkeys((path.name, *(_location(path, one) for one in tensors if one.data_location == one.EXTERNAL)))
    for name in files:
        check_same_folder(path, name)
    weights = {one.name for one in model.graph.initializer}
    tables = _rows(model.graph)
    return {
        "opset": max((one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), default=0),
        "inputs": [
            {**_tensor(value), "rows": tables.get(value.name)}
            for value in model.graph.input
            if value.name not in weights
        ],
        "outputs": [_tensor(value) for value in model.graph.output],
        "parameter_count": sum(prod(one.dims) for one in model.graph.initializer),
        "files": list(files),
    }


def _nodes(graph: Any) -> Iterator[Any]:
    """All nodes, including those of subgraphs."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _nodes(inner)


def _tensors(model: Any) -> Iterator[Any]:
    """All tensors (weights and attribute values) in the graph, its subgraphs and functions."""
    yield from _weights(model.graph)
    for node in (*_nodes(model.graph), *(node for function in model.functions for node in _nodes(function))):
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for inner in (attribute.g, *attribute.graphs):
                yield from _weights(inner)


def _weights(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for one in graph.sparse_initializer:
        yield from (one.values, one.indices)


def _check_operators(path: Path, model: Any) -> None:
    """Raise BenchhouseError for operators that need a library, and for compiled engines in separate files."""
    defined_here = {function.domain for function in model.functions}
    nodes = [*_nodes(model.graph), *(node for function in model.functions for node in _nodes(function))]
    unknown = sorted({f"{node.domain}.{node.op_type}" for node in nodes if node.domain not in DOMAINS | defined_here})
    if unknown:
        examples = ", ".join(unknown[:3])
        raise BenchhouseError(f"{path.name} uses custom operators ({examples}), whose libraries are never loaded")
    if any(node.op_type == EMBEDDED_ENGINE for node in nodes):
        raise BenchhouseError(
            f"{path.name} contains a vendor's compiled engine ({EMBEDDED_ENGINE}), which is never loaded"
        )


def _location(path: Path, tensor: Any) -> str:
    """The file of a tensor's values. Raises BenchhouseError if the values lie outside the file."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    name = str(entries.get("location", ""))
    check_same_folder(path, name)
    begin, length = (int(entries.get(key) or 0) for key in ("offset", "length"))
    if begin < 0 or length < 0 or begin + length > (path.parent / name).stat().st_size:
        raise BenchhouseError(
            f"{name!r} is shorter than {path.name} requires: it is truncated, or belongs to another model"
        )
    return name


def _tensor(value: Any) -> dict[str, Json]:
    import onnx

    kind = value.type.tensor_type
    if not value.type.HasField("tensor_type"):
        raise BenchhouseError(f"{value.name!r} is not a tensor: only tensors are supported")
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type).name
    if dtype == "object":
        raise BenchhouseError(f"{value.name!r} takes text, for which no input can be made")
    sizes = [
        one.dim_value if one.HasField("dim_value") and one.dim_value > 0 else one.dim_param or f"{value.name}_{index}"
        for index, one in enumerate(kind.shape.dim)
    ]
    return {"name": value.name, "dtype": dtype, "shape": list[Json](sizes)}


VALUE_PRESERVING = ("Cast", "Identity", "Unsqueeze", "Squeeze", "Reshape", "Flatten")
"""Operators that pass on the values of their first input."""


def _rows(graph: Any) -> dict[str, int]:
    """Rows of the smallest table that an input indexes (Gather of a weight), by input."""
    origin = {value.name: value.name for value in graph.input}
    sizes = {one.name: one.dims[0] for one in graph.initializer if one.dims}
    rows_by_input: dict[str, int] = {}
    for node in graph.node:
        if node.op_type in VALUE_PRESERVING and node.input[0] in origin:
            origin |= dict.fromkeys(node.output, origin[node.input[0]])
        if node.op_type == "Gather" and node.input[0] in sizes and node.input[1] in origin:
            name, rows = origin[node.input[1]], sizes[node.input[0]]
            rows_by_input[name] = min(rows, rows_by_input.get(name, rows))
    return rows_by_input


def _read_openvino(path: Path) -> dict[str, Any]:
    import openvino

    check_entities(path)
    weights = path.with_suffix(".bin").name
    check_same_folder(path, weights)
    try:
        model = openvino.Core().read_model(str(path))
    except RuntimeError as error:  # OpenVINO raises it for every failure
        raise BenchhouseError(f"OpenVINO cannot read {path.name}: {last_line(error)}") from error
    constants = [one for one in model.get_ops() if one.get_type_name() == "Constant"]
    return {
        "inputs": [_port(port, index) for index, port in enumerate(model.inputs)],
        "outputs": [_port(port, index) for index, port in enumerate(model.outputs)],
        "parameter_count": sum(prod(int(size) for size in one.shape) for one in constants),
        "files": [path.name, weights],
    }


def _port(port: Any, index: int) -> dict[str, Json]:
    """An input or output of an OpenVINO model."""
    names: Sequence[str] = sorted(port.get_names())
    name = names[0] if names else f"tensor_{index}"
    sizes = [
        int(one.get_length()) if one.is_static else f"{name}_{axis}"
        for axis, one in enumerate(port.get_partial_shape())
    ]
    return {"name": name, "dtype": port.get_element_type().to_dtype().name, "shape": list[Json](sizes)}


if __name__ == "__main__":
    sys.exit(main())
