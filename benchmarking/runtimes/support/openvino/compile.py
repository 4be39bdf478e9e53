"""Builds for OpenVINO: a bundle of graphs as its files, compiled for a device, for all shapes or for those of one
point; and OpenVINO's model cache.

2026-11-21: OpenVINO silently accepts an INFERENCE_PRECISION_HINT that the device does not support, and computes in
another precision. It keeps the key-value cache in 8 bits by default, whatever the hint. So both are set for every cell,
and all settings are read back from the compiled model; a mismatch is an error.

The build "openvino-compiled" is the folder that OpenVINO gets as CACHE_DIR. Filling it is the cold compilation;
launches compile warm, which is verified too (LOADED_FROM_CACHE).

A bundle is converted once, with weights compressed at int8 and int4. An "openvino" build holds an `.xml` and a `.bin`
for each graph of an "onnx" bundle, and the bundle's manifest. States become model variables that live in the infer
request, so a call passes only tokens.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from math import prod
from pathlib import Path
from typing import Any

from benchmarking.builds.store import BuildKey, BuildStore, combined_facts
from benchmarking.core.errors import BenchhouseError, OutOfMemoryError, UnsupportedError, is_out_of_memory
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import np
from benchmarking.core.plugins import is_installed, is_processor
from benchmarking.core.records import Cell, Device, Json, Point, Precision, Rebuild, Scalar
from benchmarking.devices.cpu import native_precisions
from benchmarking.devices.openvino import device_name, import_openvino, last_line, plain
from benchmarking.devices.support.host import host_facts
from benchmarking.graphs.bundle import (
    MANIFEST,
    QUANTIZED_TYPES,
    WEIGHT_NAMES,
    Bundle,
    read_bundle,
    weights_precision,
)
from benchmarking.graphs.exported_model import bundle_key, ensure_bundle, find_bundle
from benchmarking.workloads.support.families import plugin_of

BUILD_KIND = "openvino"

CONVERSION_VERSION = 1
"""Incremented when the same bundle converts to different files, so that older builds are no longer found."""

SOURCE_PRECISION: Precision = "float32"
"""The bundle's precision for each precision of the cell: OpenVINO makes lower ones from float32 graphs."""

COMPRESSION: Mapping[Precision, str] = {"int8": "INT8_ASYM", "int4": "INT4_SYM"}
"""nncf's modes of weight compression. Where 4 bits are not possible (embeddings, the last layer, rows too short for a
group) nncf uses 8 bits; the number of values of each type is read from the files."""

GROUP_SIZE = 128
"""Number of 4-bit weights that share a scale, the usual size for language models. Halved down to `MIN_GROUP_SIZE` if a
row is not a multiple of it."""

MIN_GROUP_SIZE = 32

STORED_TYPES: Mapping[Precision, tuple[str, ...]] = {
    "float16": ("float16",),
    "int8": ("int8", "uint8"),
    "int4": ("int4", "uint4"),
}
"""Types of which at least one must occur among the weights of a precision."""


def build_key(cell: Cell, point: Point) -> BuildKey:
    """The inputs of a point's build. Imports neither torch nor openvino."""
    packages = ("openvino", "nncf") if cell.precision in COMPRESSION else ("openvino",)
    parts: dict[str, Json] = {
        "model_id": cell.workload.model_id,
        "bundle": bundle_key(cell, point, SOURCE_PRECISION).digest,
        "weights_in": _weights_in(cell.precision),
        "conversion_version": CONVERSION_VERSION,
        "versions": {name: version(name) for name in packages},
    }
    return BuildKey(kind=BUILD_KIND, parts=parts)


def missing_for(precision: Precision) -> str | None:
    """None, or what must be installed to build a precision."""
    if precision in COMPRESSION and not is_installed("nncf"):
        return f"{precision} on openvino needs nncf to compress the weights: pip install nncf"
    return None


def ensure_builds(cell: Cell, points: Sequence[Point], store: BuildStore, rebuild: Rebuild) -> Mapping[str, Json]:
    """Make the builds of these points that are missing in the store, one per key. Returns their facts, with those of
    the bundles under `source`. Raises BenchhouseError if a graph cannot be converted."""
    source = ensure_bundle(cell, points, store, rebuild, SOURCE_PRECISION)

    def convert_at(point: Point, folder: Path) -> Mapping[str, Json]:
        found = find_bundle(cell, point, SOURCE_PRECISION, store)
        return convert(found, folder, cell.precision, cell.workload.model_id)

    builds = ((build_key(cell, point), partial(convert_at, point)) for point in points)
    return {**combined_facts(BUILD_KIND, store.get_all(builds, rebuild)), "source": dict(source)}


def find_build(cell: Cell, point: Point, store: BuildStore | None = None) -> Path:
    """The folder of a point's build. Raises BenchhouseError if it is not in the store."""
    key = build_key(cell, point)
    return (store or BuildStore()).require(key, f"{cell.workload.model_id} at {point.label}")[0]


def graph_file(graph: str) -> str:
    return f"{graph}.xml"


def weights_of(models: Iterable[Any]) -> tuple[dict[str, int], int]:
    """Number of values by type and total bytes of all constants in openvino.Models, read from the models."""
    values: Counter[str] = Counter()
    size_bytes = 0
    for operation in (operation for model in models for operation in model.get_ops()):
        if operation.get_type_name() != "Constant":
            continue
        name = WEIGHT_NAMES.get(operation.get_element_type().get_type_name())
        size_bytes += operation.get_byte_size()
        if name is not None:
            values[name] += prod(int(size) for size in operation.shape)
    return dict(sorted(values.items())), size_bytes


def check_weights(dtypes: Mapping[str, int], precision: Precision, model_id: str) -> None:
    """Raise UnsupportedError if no weight has the precision's type or, at float32, if some have 16 bits."""
    counts = ", ".join(f"{count} {name}" for name, count in dtypes.items()) or "none"
    required = STORED_TYPES.get(precision)
    if required is not None and not any(dtypes.get(name) for name in required):
        raise UnsupportedError(f"{model_id} has no weights that can become {precision}; its weights are {counts}")
    if precision == "float32" and any(dtypes.get(name) for name in ("float16", "bfloat16")):
        raise UnsupportedError(f"requested float32, but the weights of {model_id} are {counts}")


def convert(source: Path, folder: Path, precision: Precision, model_id: str) -> Mapping[str, Json]:
    """Convert the bundle in `source` into `folder`: every graph is read, its states become variables, and its weights
    are compressed. Returns the facts of the build."""
    openvino = import_openvino()
    from openvino._offline_transformations import apply_make_stateful_transformation, apply_moc_transformations

    bundle, core, saved = read_bundle(source), openvino.Core(), []
    # A user's file, which stays as it is.
    is_quantized = weights_precision(bundle.weight_dtypes) in QUANTIZED_TYPES
    for name, graph in bundle.graphs.items():
        try:
            model = core.read_model(str(source / graph.file))
        except RuntimeError as error:  # OpenVINO raises it for every failure
            raise BenchhouseError(f"OpenVINO cannot convert {graph.file}: {last_line(error)}") from error
        # As `openvino.convert_model` simplifies; then states become variables, which would hide some simplifications.
        apply_moc_transformations(model, cf=False)
        if graph.states:
            apply_make_stateful_transformation(model, {state.input: state.output for state in graph.states})
        if precision in COMPRESSION and not is_quantized:
            import nncf
            from nncf.quantization.advanced_parameters import GroupSizeFallbackMode

            groups: dict[str, Any] = {}
            if precision != "int8":
                parameters = nncf.AdvancedCompressionParameters(
                    group_size_fallback_mode=GroupSizeFallbackMode.ADJUST, min_adjusted_group_size=MIN_GROUP_SIZE
                )
                groups = {"group_size": GROUP_SIZE, "advanced_parameters": parameters}
            model = nncf.compress_weights(model, mode=nncf.CompressWeightsMode[COMPRESSION[precision]], **groups)
        target, is_half = str(folder / graph_file(name)), precision == "float16" and not is_quantized
        openvino.save_model(model, target, compress_to_fp16=is_half)
        saved.append(core.read_model(target))
    dtypes, weights_bytes = weights_of(saved)
    check_weights(dtypes, precision, model_id)
    shutil.copyfile(source / MANIFEST, folder / MANIFEST)
    return {
        "exporter": bundle.exporter,
        "graphs": list(bundle.graphs),
        "weights_in": _weights_in(precision),
        "weight_dtypes": dict[str, Json](dtypes),
        "weights_bytes": weights_bytes,
    }


def _weights_in(precision: Precision) -> str:
    """The storage of weights: 16 bits for float16, nncf's mode for integers, float32 otherwise."""
    return "FLOAT16" if precision == "float16" else COMPRESSION.get(precision, "FLOAT32")


AUTO = "AUTO"

CAPABILITIES: Mapping[Precision, str] = {
    "float32": "FP32",
    "bfloat16": "BF16",
    "float16": "FP16",
    "int8": "INT8",
    "int4": "INT8",
}
"""Entries required in OPTIMIZATION_CAPABILITIES. There is none for int4, whose weights run wherever int8 does."""

HINTS: Mapping[Precision, str] = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}

ACTIVATIONS: Mapping[str, str] = {"CPU": "f32", "GPU": "f16", "NPU": "f16"}
"""INFERENCE_PRECISION_HINT with 8-bit and 4-bit weights: the default of each kind of device. AUTO chooses, and its
choice is read back."""

DEVICES_WITH_DEFAULT_PRECISIONS = ("CPU", "GPU")
"""Kinds of device that choose the precision of the key-value cache and of activations unless it is set."""

GROUP_SIZES: Mapping[str, int] = {"weight-only": 0, "dynamic": 32}
"""DYNAMIC_QUANTIZATION_GROUP_SIZE by quantization method: 0 leaves activations alone; 32 is OpenVINO's default, which
has no effect on a CPU without 8-bit dot products."""

HINTED_REQUESTS = "PERFORMANCE_HINT_NUM_REQUESTS"
"""The number of requests in flight, for which the device creates the same number of streams."""

READ_BACK: Mapping[str, str] = {
    "execution_devices": "EXECUTION_DEVICES",
    "inference_precision": "INFERENCE_PRECISION_HINT",
    "execution_mode": "EXECUTION_MODE_HINT",
    "performance_hint": "PERFORMANCE_HINT",
    "hinted_requests": HINTED_REQUESTS,
    "num_streams": "NUM_STREAMS",
    "num_threads": "INFERENCE_NUM_THREADS",
    "optimal_requests": "OPTIMAL_NUMBER_OF_INFER_REQUESTS",
    "kv_cache_precision": "KV_CACHE_PRECISION",
    "dynamic_quantization_group_size": "DYNAMIC_QUANTIZATION_GROUP_SIZE",
    "is_pinned": "ENABLE_CPU_PINNING",
    "is_from_cache": "LOADED_FROM_CACHE",
}
"""OpenVINO's properties of a compiled model by stored name; a device may lack some."""

ONLY_IF_SET = ("hinted_requests", "kv_cache_precision", "dynamic_quantization_group_size")
"""Properties that are read only if they were set, since models without a cache or quantization have them too."""

NOT_READ_BACK = ("ENABLE_STARTUP_FALLBACK", "ENABLE_RUNTIME_FALLBACK")
"""Properties of AUTO that a compiled model does not report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    model: Any
    """openvino.CompiledModel."""
    requested: Mapping[str, Scalar]
    """The properties that it was compiled with."""
    facts: Mapping[str, Json]
    """The properties in `READ_BACK`."""
    compile_s: float
    """Seconds of the compilation, including one from a cache."""


def kind_of(name: str) -> str:
    """The kind of an OpenVINO device: "GPU" for "GPU.1"."""
    return name.partition(".")[0]


def is_fixed(cell: Cell) -> bool:
    """Whether every point is compiled for its own shapes."""
    return cell.runtime_mode["dynamic"] == "false"


def is_concurrent(cell: Cell) -> bool:
    """Whether a call runs the point's number of requests at once."""
    return cell.runtime_mode["hint"] == "throughput"


def is_compiled_alone(cell: Cell) -> bool:
    """Whether every point is compiled separately, for its shapes or its number of requests."""
    return is_fixed(cell) or is_concurrent(cell)


def check_capabilities(core: Any, name: str, precision: Precision) -> None:
    """Raise UnsupportedError for a precision that the device would silently replace."""
    listed = plain(core.get_property(name, "OPTIMIZATION_CAPABILITIES"))
    capabilities = [str(capability) for capability in listed] if isinstance(listed, list) else []
    if CAPABILITIES[precision] not in capabilities:
        raise UnsupportedError(
            f"OpenVINO's {name} does not support {precision} and would silently run another precision: it lists "
            f"{', '.join(capabilities) or 'nothing'}"
        )


def leaves_activations(device: Device) -> bool:
    """Whether the device is a CPU without 8-bit dot products: OpenVINO accepts and reports a group size there, but
    computes with float32 activations. A CPU's own facts tell, which may be those of another machine."""
    facts = device.facts if is_processor(device.type) else host_facts()
    capabilities = facts.values.get("cpu_capabilities")
    is_cpu = kind_of(device_name(device)) == "CPU"
    return is_cpu and bool(capabilities) and "int8" not in native_precisions(capabilities)


def check_dot_products(device: Device, method: Scalar | None) -> None:
    """Raise UnsupportedError for quantized activations on a device that leaves them alone."""
    if method == "dynamic" and leaves_activations(device):
        raise UnsupportedError(
            "--quantization dynamic: this CPU has no 8-bit dot products (VNNI, AMX, dotprod), so OpenVINO would "
            "leave activations in float32: use --quantization weight-only"
        )


def properties(cell: Cell, point: Point, *, has_states: bool) -> dict[str, Scalar]:
    """The properties with which a model is compiled for a cell and a point."""
    name = device_name(cell.device)
    kind = kind_of(name)
    hint = HINTS.get(cell.precision, ACTIVATIONS.get(kind))
    requested: dict[str, Scalar] = {"PERFORMANCE_HINT": str(cell.runtime_mode["hint"]).upper()}
    if is_concurrent(cell):
        requested[HINTED_REQUESTS] = point.concurrency
    if hint is not None:
        requested["INFERENCE_PRECISION_HINT"] = hint
    if hint is not None and has_states and kind in DEVICES_WITH_DEFAULT_PRECISIONS:
        requested["KV_CACHE_PRECISION"] = hint
    if (method := cell.runtime_mode.get("quantization")) is not None and kind in DEVICES_WITH_DEFAULT_PRECISIONS:
        requested["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = GROUP_SIZES[str(method)]
    if cell.num_threads is not None:
        if kind not in ("CPU", AUTO):
            raise UnsupportedError(f"--num-threads is for CPUs only, not for OpenVINO's {name}: omit the flag")
        requested["INFERENCE_NUM_THREADS"] = cell.num_threads
    if kind == AUTO:  # else the CPU computes until the chosen device is ready, and if that device fails
        requested |= dict.fromkeys(NOT_READ_BACK, False)
    return requested


def compile_graph(
    core: Any,
    model: Any,
    cell: Cell,
    point: Point,
    *,
    has_states: bool,
    cache: Path | None = None,
    is_profiled: bool = False,
) -> Compiled:
    """The model compiled for the cell's device. `cache` is OpenVINO's folder of compiled models; `is_profiled` turns on
    performance counters, which slow the model down.

    Raises BenchhouseError if it fails to compile, UnsupportedError if its properties differ from the requested ones.
    """
    name = device_name(cell.device)
    requested = properties(cell, point, has_states=has_states)
    values: dict[str, Any] = dict(requested)
    if cache is not None:
        values["CACHE_DIR"] = str(cache)
    if is_profiled:
        values["PERF_COUNT"] = True
    if name == AUTO and "INFERENCE_NUM_THREADS" in values:  # AUTO passes CPU properties on to the CPU
        values["DEVICE_PROPERTIES"] = {"CPU": {"INFERENCE_NUM_THREADS": values.pop("INFERENCE_NUM_THREADS")}}
    started_ns = time.perf_counter_ns()
    try:
        compiled = core.compile_model(model, name, values)
    except (RuntimeError, MemoryError) as error:  # OpenVINO raises RuntimeError for every failure
        if is_out_of_memory(error):
            raise OutOfMemoryError(f"out of memory while compiling for {name}: {last_line(error)}") from error
        raise BenchhouseError(f"OpenVINO cannot compile {cell.subject} for {name}: {last_line(error)}") from error
    compile_s = (time.perf_counter_ns() - started_ns) / 1e9
    facts = read_back(compiled, requested)
    check(facts, requested, name)
    return Compiled(model=compiled, requested=requested, facts=facts, compile_s=compile_s)


def read_back(compiled: Any, requested: Mapping[str, Scalar]) -> dict[str, Json]:
    """The compiled model's properties. With AUTO, the chosen device's are under DEVICE_PROPERTIES."""
    nested = _property(compiled, "DEVICE_PROPERTIES")
    inner = next(iter(nested.values()), None) if isinstance(nested, dict) and nested else None
    facts: dict[str, Json] = {}
    for stored_name, property_name in READ_BACK.items():
        value = _property(compiled, property_name)
        if value is None and isinstance(inner, dict):
            value = inner.get(property_name)
        if value is not None and (property_name in requested or stored_name not in ONLY_IF_SET):
            # Some numbers are reported as text, such as the number of requests.
            facts[stored_name] = int(value) if isinstance(value, str) and value.isdecimal() else value
    return facts


def check(facts: Mapping[str, Json], requested: Mapping[str, Scalar], name: str) -> None:
    """Raise UnsupportedError if a compiled model's properties differ from the requested ones."""
    check_devices(facts.get("execution_devices"), name)
    names = {property_name: stored_name for stored_name, property_name in READ_BACK.items()}
    for property_name, value in requested.items():
        if property_name in NOT_READ_BACK:
            continue
        actual = facts.get(names[property_name])
        if actual != value:
            difference = "does not report it" if actual is None else f"has {actual}"
            raise UnsupportedError(
                f"requested {property_name} {value} on OpenVINO's {name}, but the compiled model {difference}"
            )


def check_devices(execution_devices: Json, name: str) -> None:
    """Raise UnsupportedError if a model runs on another device than requested. AUTO may choose any device."""
    listed = execution_devices if isinstance(execution_devices, list) else [execution_devices]
    devices = [str(device) for device in listed if device]  # the NPU's plugin returns a text in place of a list
    elsewhere = [device for device in devices if kind_of(device.strip("()")) != kind_of(name)]
    if name != AUTO and (elsewhere or not devices):
        raise UnsupportedError(f"requested OpenVINO's {name}, but the model runs on {', '.join(devices) or 'nothing'}")


def _property(compiled: Any, name: str) -> Json:
    """A property; None if the device lacks it (OpenVINO raises RuntimeError)."""
    try:
        return plain(compiled.get_property(name))
    except (RuntimeError, TypeError):
        return None


CACHE_KIND = "openvino-compiled"

COLD = "compile_cold_s"


def cache_key(cell: Cell, core: Any, point: Point) -> BuildKey:
    """The inputs of compiled models: the build, the device, its driver, the properties and, with fixed shapes, the
    point."""
    name = device_name(cell.device)
    parts: dict[str, Json] = {
        "model_id": cell.workload.model_id,
        "build": build_key(cell, point).digest,
        "device": name,
        "device_name": str(plain(core.get_property(name, "FULL_DEVICE_NAME"))),
        "driver": cell.device.driver,
        "properties": dict(properties(cell, point, has_states=True)),
        "point": point.label if is_fixed(cell) else None,
        "versions": {"openvino": version("openvino")},
    }
    return BuildKey(kind=CACHE_KIND, parts=parts)


def find_cache(cell: Cell, core: Any, point: Point) -> tuple[Path, float] | None:
    """The point's cache and the seconds it took to fill; None without a cache, as for AUTO, which chooses a device each
    time."""
    if device_name(cell.device) == AUTO:
        return None
    store, key = BuildStore(), cache_key(cell, core, point)
    build = store.find(key)
    return None if build is None else (store.folder(key), float(str(build.facts[COLD])))


def ensure_caches(cell: Cell, points: Sequence[Point], store: BuildStore, rebuild: Rebuild) -> dict[str, Json]:
    """Compile for every point what is missing in the store. Returns the total seconds of the cold compilations, and the
    builds."""
    if device_name(cell.device) == AUTO:
        return {}
    core = import_openvino().Core()
    check_capabilities(core, device_name(cell.device), cell.precision)

    def fill(point: Point, folder: Path) -> Mapping[str, Json]:
        compiled = compile_for(cell, core, read(core, find_build(cell, point, store)), point, folder)
        return {COLD: sum(each.compile_s for each in compiled.values())}

    caches = ((cache_key(cell, core, point), partial(fill, point)) for point in points)
    builds = [build for build, _ in store.get_all(caches, rebuild)]
    return {
        COLD: sum(float(str(build.facts[COLD])) for build in builds),
        "compiled": [build.digest for build in builds],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A build in memory."""

    folder: Path
    bundle: Bundle
    models: Mapping[str, Any]
    """openvino.Model by graph."""


def read(core: Any, folder: Path) -> Loaded:
    """Load the build in a folder. Raises BenchhouseError if there is none."""
    bundle = read_bundle(folder)
    models = {name: core.read_model(str(folder / graph_file(name))) for name in bundle.graphs}
    return Loaded(folder=folder, bundle=bundle, models=models)


def compile_for(
    cell: Cell, core: Any, loaded: Loaded, point: Point, cache: Path | None = None, *, is_profiled: bool = False
) -> dict[str, Compiled]:
    """Every graph compiled for the cell's device, for any shape or for the point's. Raises BenchhouseError as
    `compile_graph` does, and if a graph's shapes at the point are unknown."""
    models = loaded.models
    if is_fixed(cell):
        arrays = plugin_of(cell.workload).inputs(cell.workload, point, cell.workload.seed)
        models = {name: model.clone() for name, model in models.items()}
        for name, model in models.items():
            model.reshape(shapes_at(loaded.bundle, name, point, arrays))
    return {
        name: compile_graph(
            core,
            model,
            cell,
            point,
            has_states=bool(loaded.bundle.graphs[name].states),
            cache=cache,
            is_profiled=is_profiled,
        )
        for name, model in models.items()
    }


def shapes_at(bundle: Bundle, name: str, point: Point, arrays: Mapping[str, np.ndarray]) -> dict[str, list[int]]:
    """The shapes of a graph's inputs at a point with these arrays as the family's inputs. Raises BenchhouseError if one
    is unknown."""
    graph, shapes = bundle.graphs[name], dict[str, list[int]]()
    for tensor in graph.inputs:
        source = graph.feeds.get(tensor.name, "")
        if source == "timestep":
            shapes[tensor.name] = [point.batch_size]
            continue
        array = str(bundle.facts.get("latents")) if source == "latents" else source.removeprefix("inputs.")
        if array not in arrays:
            raise BenchhouseError(
                f"the shape of {tensor.name} ({source or 'without a source'}) at {point.label} is unknown"
            )
        shapes[tensor.name] = list(arrays[array].shape)
    return shapes


def weights(loaded: Loaded, cell: Cell) -> tuple[dict[str, Json], int]:
    """The types of all graphs' weights, for `verified`, and their bytes, read from the models. Raises UnsupportedError
    for weights that are not in the cell's precision."""
    dtypes, weights_bytes = weights_of(loaded.models.values())
    check_weights(dtypes, cell.precision, cell.workload.model_id)
    return {"parameter_dtypes": list(dtypes), "parameters_by_dtype": dict[str, Json](dtypes)}, weights_bytes
