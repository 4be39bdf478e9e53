"""Reads an untrusted graph file in a process of its own, this module's `main`, which gets the path on stdin and answers
in JSON: format, inputs, outputs, weights and files of an `.onnx` or an OpenVINO `.xml` file; or the arrays of a file of
inputs.

Weights in other files are read only from the same folder; links, paths with folders, and operators of unknown domains
are rejected, and operator libraries are never loaded. Protobuf itself reads at most 2 GB and 100 levels.
"""

from __future__ import annotations

import hashlib
import json
import stat
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

from benchmarking.core.errors import BenchhouseError, first_line
from benchmarking.core.lazy_modules import onnx
from benchmarking.core.records import PRECISIONS, Json
from benchmarking.core.untrusted.input_files import lfs_pointer, open_regular
from benchmarking.graphs.bundle import ORIGIN, WEIGHT_NAMES, origin_of, weights_precision

MODULE = "benchmarking.workloads.support.graph_contents"
TIME_LIMIT_S = 300.0
SUFFIXES = {".onnx": "onnx", ".xml": "openvino"}
"""Formats by suffix. The weights of the second are in a .bin file of the same name."""
MAX_BYTES = {"onnx": 2_000_000_000, "openvino": 200_000_000}
"""Size limits of the file itself: Protobuf's own limit, and less for XML, which takes ten times as much memory and
more."""
MAX_ARRAY_BYTES = 2_000_000_000
"""Size limit of the arrays in a file of inputs, unpacked."""
MAX_TENSORS = 1000
"""Limit of inputs and of outputs; decoders with a cache have a few hundred."""
DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc"})
"""Operator domains that runtimes support without additional libraries."""
EMBEDDED_ENGINE = "EPContext"
"""The operator that refers to a vendor's compiled engine in a file."""
ARRAYS = ".npz"
"""Suffix of a file of inputs."""
PRECISION, WEIGHTS = "precision", "weight_dtypes"
"""Keys of the description of a file whose weights are not float32: their precision, and numbers of values by type."""
ACTIVATIONS, INT8, FLOAT = "activations", "int8", "float"
"""Key of the description of an ONNX file with products of quantized weights (MatMulNBits): the type to which the CPU's
kernels quantize the activations, or that they leave them in floating point. As `accuracy_level` of these nodes says."""
ACCURACY_OF_INT8 = 4
PARAMETERS = "parameters"
"""Key of the number of a file's parameters. It is no part of the model's identity, in which `parameter_count` is the
number of all stored values, as in the first versions."""
PACKED: Mapping[str, tuple[tuple[int, ...], tuple[int, ...], str]] = {
    "MatMulNBits": ((1,), (2, 3), "bits"),
    "GatherBlockQuantized": ((0,), (2, 3), "bits"),
    "QMoE": ((2, 5, 8), (3, 6, 9), "expert_weight_bits"),
}
"""For each operator with packed weights: the inputs with weights, the inputs with scales and zero points, and the
attribute with the bits."""
DEFAULT_BITS = 4
SCALES: Mapping[str, tuple[int, ...]] = {
    **{operator: others for operator, (_, others, _) in PACKED.items()},
    **dict.fromkeys(("DequantizeLinear", "QuantizeLinear"), (1, 2)),
    **dict.fromkeys(("MatMulInteger", "ConvInteger", "DynamicQuantizeMatMul"), (2, 3)),
    **dict.fromkeys(("QLinearMatMul", "QLinearConv"), (1, 2, 4, 5, 6, 7)),
    "MatMulIntegerToFloat": (2, 3, 4, 5),
    "QGemm": (1, 2, 4, 5, 7, 8),
    "QAttention": (3, 4, 6, 7),
    "DynamicQuantizeLSTM": (8, 9, 10, 11),
}
"""The inputs of ONNX operators that are scales and zero points."""
INTEGER_BIASES: Mapping[str, int] = {"DequantizeLinear": 0, "QLinearConv": 8, "QGemm": 6}
"""The input of ONNX operators that may be a bias in integers."""
INDICES = frozenset({"i16", "i32", "i64", "u16", "u32", "u64", "boolean", "string"})
"""OpenVINO's types of constants that are indices, shapes and axes."""


def main() -> int:
    """Describe the file named on stdin, on stdout; each of several files, without hashes; or the arrays of a file of
    inputs."""
    try:
        request = json.load(sys.stdin)
        if isinstance(request, list):
            answer: Any = [contents(Path(path)) for path in request]
        else:
            answer = describe_arrays(Path(request)) if Path(request).suffix == ARRAYS else describe(Path(request))
        print(json.dumps(answer))
    except BenchhouseError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def describe(path: Path) -> dict[str, Json]:
    """The description of a graph file: its `contents` and the hash of its files. Raises BenchhouseError for a rejected
    file."""
    description = contents(path)
    if description.get(PRECISION) == "int4" and description.get(ACTIVATIONS) == FLOAT:
        del description[ACTIVATIONS]  # as every description of such a file was
    digest = hashlib.sha256()
    for name in description["files"]:
        hash_into(digest, path.parent / name)
    return {**description, "sha256": digest.hexdigest()}


def describe_arrays(path: Path) -> dict[str, Json]:
    """Dtypes, shapes and the hash of the arrays in a .npz file, of which only the headers are read. Raises
    BenchhouseError for anything else."""
    from numpy.lib import format as npy

    arrays: dict[str, Json] = {}
    try:
        with open_regular(path) as opened, zipfile.ZipFile(opened) as archive:
            if sum(member.file_size for member in archive.infolist()) > MAX_ARRAY_BYTES:
                raise BenchhouseError(f"{path.name}: its arrays exceed the limit of {MAX_ARRAY_BYTES / 1e6:g} MB")
            for member in archive.infolist()[: MAX_TENSORS + 1]:
                with archive.open(member) as array:
                    is_oldest = npy.read_magic(array) == (1, 0)
                    header = npy.read_array_header_1_0(array) if is_oldest else npy.read_array_header_2_0(array)
                    shape, _, dtype = header
                if dtype.kind not in "biuf" or prod(shape) * dtype.itemsize > MAX_ARRAY_BYTES:
                    raise BenchhouseError(f"{path.name}: array {member.filename!r} is {dtype}: expected numbers")
                arrays[member.filename.removesuffix(".npy")] = {"dtype": dtype.name, "shape": list(shape)}
    except (zipfile.BadZipFile, ValueError, NotImplementedError, RuntimeError, OSError) as error:
        raise BenchhouseError(f"{path.name} is not a .npz file of arrays (numpy.savez): {first_line(error)}") from error
    digest = hashlib.sha256()
    hash_into(digest, path)
    return {"arrays": arrays, "sha256": digest.hexdigest()}


def contents(path: Path) -> dict[str, Any]:
    """Format, inputs, outputs, files and the number of parameters. Raises BenchhouseError for a rejected file."""
    kind = SUFFIXES[path.suffix]
    check_same_folder(path, path.name)
    if (pointer := lfs_pointer(path)) is not None:
        raise BenchhouseError(pointer)
    if path.stat().st_size > MAX_BYTES[kind]:
        raise BenchhouseError(f"{path.name} is larger than the limit of {MAX_BYTES[kind] / 1e6:g} MB")
    description = _read_onnx(path) if kind == "onnx" else _read_openvino(path)
    for tensors in ("inputs", "outputs"):
        if not 0 < len(description[tensors]) <= MAX_TENSORS:
            raise BenchhouseError(f"{path.name} has {len(description[tensors])} {tensors}: expected 1 to {MAX_TENSORS}")
    counts: Mapping[str, int] = description.pop(WEIGHTS)
    precision = weights_precision(counts)
    if precision in PRECISIONS and precision != "float32":
        description |= {PRECISION: precision, WEIGHTS: dict(counts)}
    return {"format": kind, **description}


def hash_into(digest: Any, path: Path) -> None:
    """Add a file to a hash."""
    with path.open("rb") as opened:
        hashlib.file_digest(opened, lambda: digest)


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
    from google.protobuf.message import DecodeError

    from benchmarking.graphs.export.onnx_files import weights as stored_weights

    try:
        model = onnx.load(str(path), load_external_data=False)
    except DecodeError as error:
        raise BenchhouseError(f"{path.name} is not an ONNX file: {first_line(error)}") from error
    defined_here = {function.domain for function in model.functions}
    nodes = [*all_nodes(model.graph), *(node for function in model.functions for node in all_nodes(function))]
    unknown = sorted({f"{node.domain}.{node.op_type}" for node in nodes if node.domain not in DOMAINS | defined_here})
    if unknown:
        examples = ", ".join(unknown[:3])
        raise BenchhouseError(f"{path.name} uses custom operators ({examples}), whose libraries are never loaded")
    if any(node.op_type == EMBEDDED_ENGINE for node in nodes):
        raise BenchhouseError(
            f"{path.name} contains a vendor's compiled engine ({EMBEDDED_ENGINE}), which is never loaded"
        )
    fewest = {"Gather": 2, **dict.fromkeys(VALUE_PRESERVING, 1)}
    if damaged := [node for node in nodes if not node.output or len(node.input) < fewest.get(node.op_type, 0)]:
        raise BenchhouseError(f"{path.name} is damaged: a node {damaged[0].op_type} has too few inputs or outputs")
    tensors = list(_weights(model.graph))
    for attribute in (attribute for node in nodes for attribute in node.attribute):
        tensors += (attribute.t, *attribute.tensors)
        for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
            tensors += (sparse.values, sparse.indices)
        tensors += (tensor for inner in (attribute.g, *attribute.graphs) for tensor in _weights(inner))
    outside: list[str] = []  # the files of tensors whose values lie outside this one
    for tensor in tensors:
        if tensor.data_location == tensor.EXTERNAL:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            location = str(entries.get("location", ""))
            check_same_folder(path, location)
            begin, length = (int(entries.get(key) or 0) for key in ("offset", "length"))
            if (pointer := lfs_pointer(path.parent / location)) is not None:
                raise BenchhouseError(pointer)
            if begin < 0 or length < 0 or begin + length > (path.parent / location).stat().st_size:
                raise BenchhouseError(
                    f"{location!r} is shorter than {path.name} requires: it is truncated, or belongs to another model"
                )
            outside.append(location)
    files = dict.fromkeys((path.name, *outside))
    for name in files:
        check_same_folder(path, name)
    levels = {
        next((attribute.i for attribute in node.attribute if attribute.name == "accuracy_level"), 0)
        for node in nodes
        if node.op_type == "MatMulNBits"
    }
    weights = {tensor.name for tensor in model.graph.initializer}
    origin = {value.name: value.name for value in model.graph.input}
    sizes = {tensor.name: tensor.dims[0] for tensor in model.graph.initializer if tensor.dims}
    # Rows of the smallest table that an input indexes (Gather of a weight), by input.
    tables: dict[str, int] = {}
    for node in model.graph.node:
        if node.op_type in VALUE_PRESERVING and node.input[0] in origin:
            origin |= dict.fromkeys(node.output, origin[node.input[0]])
        if node.op_type == "Gather" and node.input[0] in sizes and node.input[1] in origin:
            name, rows = origin[node.input[1]], sizes[node.input[0]]
            tables[name] = min(rows, tables.get(name, rows))
    return {
        "opset": max((used.version for used in model.opset_import if used.domain in ("", "ai.onnx")), default=0),
        "inputs": [
            {**_tensor(value), "rows": tables.get(value.name)}
            for value in model.graph.input
            if value.name not in weights
        ],
        "outputs": [_tensor(value) for value in model.graph.output],
        "parameter_count": sum(prod(tensor.dims) for tensor in model.graph.initializer),
        PARAMETERS: _parameters(model.graph, nodes),
        WEIGHTS: dict(stored_weights([path]).values_by_dtype),
        **({ACTIVATIONS: INT8 if ACCURACY_OF_INT8 in levels else FLOAT} if levels else {}),
        **origin_of({entry.key: entry.value for entry in model.metadata_props}.get(ORIGIN)),
        "files": list(files),
    }


def _parameters(graph: Any, nodes: Sequence[Any]) -> int:
    """Number of values in the weights of an ONNX graph: initializers and larger constants, without scales, zero points,
    indices, shapes, and single numbers."""
    stored = [(tensor.name, tensor) for tensor in graph.initializer if tensor.dims]
    packed, products = dict[str, int](), dict[str, int]()  # bits of a value, where a byte holds several; all values
    biases, scales = set[str](), set[str]()
    sums = {node.output[0] for node in nodes if node.op_type in ("MatMulInteger", "ConvInteger")}
    sums |= {node.output[0] for node in nodes if node.op_type == "Cast" and node.input[0] in sums}
    for node in reversed(nodes):  # each after those that use its outputs
        given = dict(enumerate(node.input))
        numbers = {attribute.name: attribute.i for attribute in node.attribute}
        scales |= {given[index] for index in SCALES.get(node.op_type, ()) if index in given}
        if node.op_type == "Mul" and (sums & set(node.input) or node.output[0] in scales):
            scales |= set(node.input) - sums
        biases.add(given.get(INTEGER_BIASES.get(node.op_type, -1), ""))
        weights, _, bits = PACKED.get(node.op_type, ((), (), ""))
        packed |= {given[index]: max(numbers.get(bits, DEFAULT_BITS), 1) for index in weights if index in given}
        if node.op_type == "MatMulNBits" and 1 in given:  # its last block may be filled up
            products[given[1]] = numbers.get("K", 0) * numbers.get("N", 0)
        for attribute in node.attribute:
            stored += [(tensor.name, tensor) for tensor in attribute.g.initializer if tensor.dims]
            if node.op_type == "Constant" and prod(attribute.t.dims) > 1:
                stored.append((node.output[0], attribute.t))
    count = 0
    for name, tensor in stored:
        kind = onnx.TensorProto.DataType.Name(tensor.data_type)
        is_quantized = kind.endswith(("INT8", "INT4", "INT2")) and len(tensor.dims) > 1
        if name not in scales and (is_quantized or "FLOAT" in kind or kind == "DOUBLE" or name in biases):
            values = prod(tensor.dims) * 8 // packed.get(name, 8) if kind.endswith("INT8") else prod(tensor.dims)
            count += products.get(name) or values
    return count


def all_nodes(graph: Any) -> Iterator[Any]:
    """All nodes, including those of subgraphs."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from all_nodes(inner)


def _weights(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for tensor in graph.sparse_initializer:
        yield from (tensor.values, tensor.indices)


def _tensor(value: Any) -> dict[str, Json]:
    kind = value.type.tensor_type
    if not value.type.HasField("tensor_type"):
        raise BenchhouseError(f"{value.name!r} is not a tensor: only tensors are supported")
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type).name
    if dtype == "object":
        raise BenchhouseError(f"{value.name!r} takes text, for which no input can be made")
    sizes: list[Json] = []
    for axis, size in enumerate(kind.shape.dim):
        # One without a name, or with a mark such as "?" that several share, is named after its tensor and axis.
        has_name = any(character.isalpha() for character in size.dim_param)
        free = size.dim_param if has_name else f"{value.name}_{axis}"
        sizes.append(size.dim_value if size.dim_value > 0 else free)
    return {"name": value.name, "dtype": dtype, "shape": sizes}


VALUE_PRESERVING = ("Cast", "Identity", "Unsqueeze", "Squeeze", "Reshape", "Flatten")
"""Operators that pass on the values of their first input."""


def _read_openvino(path: Path) -> dict[str, Any]:
    import openvino

    from benchmarking.devices.openvino import last_line

    check_entities(path)
    weights = path.with_suffix(".bin").name
    check_same_folder(path, weights)
    if (pointer := lfs_pointer(path.with_suffix(".bin"))) is not None:
        raise BenchhouseError(pointer)
    try:
        model = openvino.Core().read_model(str(path))
    except RuntimeError as error:  # OpenVINO raises it for every failure
        raise BenchhouseError(f"OpenVINO cannot read {path.name}: {last_line(error)}") from error
    constants = [operator for operator in model.get_ops() if operator.get_type_name() == "Constant"]
    sizes = [prod(int(size) for size in constant.shape) for constant in constants]
    place, counts = ["framework", ORIGIN], dict[str, int]()
    for constant, size in zip(constants, sizes, strict=True):
        if (name := WEIGHT_NAMES.get(constant.get_element_type().get_type_name())) is not None:
            counts[name] = counts.get(name, 0) + size
    return {
        "inputs": [_port(port, index) for index, port in enumerate(model.inputs)],
        "outputs": [_port(port, index) for index, port in enumerate(model.outputs)],
        "parameter_count": sum(sizes),
        PARAMETERS: sum(size for constant, size in zip(constants, sizes, strict=True) if _is_parameter(constant)),
        WEIGHTS: counts,
        **origin_of(model.get_rt_info(place).value if model.has_rt_info(place) else None),
        "files": [path.name, weights],
    }


def _is_parameter(constant: Any) -> bool:
    """Whether an OpenVINO constant holds weights: not indices or shapes, a single number, or scales and zero points."""
    if constant.get_element_type().get_type_name() in INDICES or prod(map(int, constant.shape)) <= 1:
        return False
    users = list(constant.output(0).get_target_inputs())
    for user in users:
        node = user.get_node()
        if node.get_type_name() == "Convert":
            users += node.output(0).get_target_inputs()
        elif node.get_type_name() == "FakeQuantize" and user.get_index() > 0:
            return False
        elif node.get_type_name() in ("Subtract", "Multiply") and user.get_index() == 1:
            scaled = node.input_value(0).get_node()
            while scaled.get_type_name() in ("Convert", "Subtract"):
                scaled = scaled.input_value(0).get_node()
            if scaled.get_type_name() == "Constant":
                return False
    return True


def _port(port: Any, index: int) -> dict[str, Json]:
    """An input or output of an OpenVINO model."""
    names: Sequence[str] = sorted(port.get_names())
    name = names[0] if names else f"tensor_{index}"
    sizes = [
        int(size.get_length()) if size.is_static else f"{name}_{axis}"
        for axis, size in enumerate(port.get_partial_shape())
    ]
    return {"name": name, "dtype": port.get_element_type().to_dtype().name, "shape": list[Json](sizes)}


if __name__ == "__main__":
    sys.exit(main())
