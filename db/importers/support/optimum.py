"""What optimum-benchmark's configuration says of model, device, runtime and machine, in the words of a run.

The shapes that optimum-benchmark's results have had, each brought to today's: {"config": ..., "report": ...}.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarking.core.records import Doubt, Json, Precision, Scalar
from db.importers.support.files import ForeignFile, read_file
from db.importers.support.names import family_of, precision_of
from db.importers.support.reading import Fields, csv_rows

MODE = (
    *("attn_implementation", "cache_implementation", "to_bettertransformer", "allow_tf32", "device_map", "tp_plan"),
    *("torch_compile_config", "deepspeed_inference", "peft_type", "quantization_scheme", "quantization_config"),
    *("provider", "use_io_binding", "session_options", "provider_options", "auto_optimization", "auto_quantization"),
    *("auto_calibration", "optimization", "optimization_config", "quantization", "use_cache", "use_merged"),
    *("ov_config", "half", "load_in_8bit", "load_in_4bit", "reshape"),
)
"""Fields of a backend that make a different series where they are set."""
DEVICES = {"cuda": "cuda", "cpu": "cpu", "mps": "mps", "xpu": "xpu"}
AMD = ("amd", "radeon", "instinct")
LEAST_BYTES = 100_000_000
"""`gpu_vram_mb` is in bytes: no GPU has fewer than these, and none so many MB."""
FLOAT32_BEFORE = 5
"""Major version of transformers from which a model is loaded in its checkpoint's dtype when none is asked for."""


def config_arguments(config: Fields) -> dict[str, Any]:
    """Arguments of `foreign_run` from the configuration; of one that is not there, that nothing is known."""
    backend = config.fields("backend") or Fields(config.file, {})
    environment = config.fields("environment") or Fields(config.file, {})
    name = backend.text("name") or "unknown"
    task, model_type = backend.text("task"), backend.text("model_type")
    versions = _versions(environment, name, backend.text("version"))
    return {
        "model_id": backend.text("model") or "unknown",
        "family": family_of(model_type, task),
        "task": task or "benchmark",
        "model_config": {"model_type": model_type} if model_type else None,
        "weights": "random" if backend.flag("no_weights") else "given",
        **_runtime(backend, name, versions),
        **_device(backend, environment, name),
        "num_threads": backend.count("intra_op_num_threads"),
        "tool_version": environment.text("optimum_benchmark_version"),
        "versions": versions,
        **_machine(environment),
    }


def is_rocm(setup: Mapping[str, Any]) -> bool:
    """Whether `about` found an AMD GPU, whose memory the tool sums up over its readings."""
    return setup.get("device_type") == "rocm"


def doubts(config: Fields, setup: Mapping[str, Any]) -> tuple[Doubt, ...]:
    """What the way of measuring leaves open."""
    launcher = config.fields("launcher")
    processes = launcher.count("nproc_per_node") if launcher is not None and "nproc_per_node" in launcher else None
    found = []
    if processes is not None and processes > 1:
        found.append(Doubt(kind="processes_pooled", severity="info", evidence={"processes": processes}))
    if setup.get("runtime") in ("eager", "compiled") and setup.get("device_type") in ("cuda", "rocm"):
        found.append(Doubt(kind="device_clock", severity="info", evidence={"timer": "CUDA events"}))
    return tuple(found)


def _runtime(backend: Fields, name: str, versions: Mapping[str, str]) -> dict[str, Any]:
    mode = _mode(backend)
    is_compiled = backend.flag("torch_compile") or False
    if is_compiled and (target := backend.text("torch_compile_target")) is not None:
        mode["torch_compile_target"] = target
    precision = _precision(backend, name, versions, mode)
    return {
        "runtime": ("compiled" if is_compiled else "eager") if name == "pytorch" else name,
        "runtime_mode": mode,
        "precision": precision,
    }


def _mode(backend: Fields) -> dict[str, Scalar]:
    mode: dict[str, Scalar] = {}
    for name in MODE:
        value: Json = backend.any(name)
        if isinstance(value, dict | list) and value:
            mode[name] = json.dumps(value, sort_keys=True, ensure_ascii=False)
        elif isinstance(value, str | int | float) and value not in (False, "False", ""):
            mode[name] = value
    return mode


def _precision(backend: Fields, name: str, versions: Mapping[str, str], mode: dict[str, Scalar]) -> Precision:
    """The precision, with the file's own words in the mode where ours have none."""
    dtype, autocast = backend.text("torch_dtype"), backend.text("autocast_dtype")
    if mode.get("load_in_4bit") or mode.get("load_in_8bit"):
        return "int4" if mode.get("load_in_4bit") else "int8"
    if "quantization_scheme" in mode or mode.get("quantization") or mode.get("auto_quantization"):
        return "other"
    if backend.flag("autocast_enabled") and autocast:
        mode["autocast"] = autocast
        return precision_of(autocast)
    if mode.get("half"):
        return "float16"
    if dtype is None and name == "pytorch" and _major(versions.get("transformers")) < FLOAT32_BEFORE:
        return "float32"
    if precision_of(dtype) == "other" and dtype is not None:
        mode["torch_dtype"] = dtype
    return precision_of(dtype)


def _major(version: str | None) -> int:
    """The first number of a version; beyond every threshold when there is none."""
    first = (version or "").partition(".")[0]
    return int(first) if first.isascii() and first.isdigit() and len(first) < 5 else FLOAT32_BEFORE


def _device(backend: Fields, environment: Fields, name: str) -> dict[str, Any]:
    asked = (backend.text("device") or "unknown").partition(":")[0]
    if asked not in ("cuda", "gpu"):
        known = "openvino" if name == "openvino" else DEVICES.get(asked, asked)
        cpu = environment.text("cpu") if asked == "cpu" else None
        return {"device_type": known, "device_name": cpu.strip() or None if cpu else None}
    gpus, count = environment.any("gpu"), environment.count("gpu_count")
    names = [gpu for gpu in gpus if isinstance(gpu, str)] if isinstance(gpus, list) else []
    is_amd = any(word in gpu.lower() for gpu in names for word in AMD)
    return {
        "device_type": "rocm" if is_amd else "cuda",
        "device_name": names[0] if names else None,
        "device_count": count or max(len(names), 1),
        "device_memory_bytes": _gpu_memory_bytes(environment, count or max(len(names), 1)),
    }


def _gpu_memory_bytes(environment: Fields, count: int) -> int | None:
    """Of one GPU, from the sum over all of them."""
    stated = environment.number("gpu_vram_mb", low=0)
    if stated is None:
        return None
    return round((stated if stated >= LEAST_BYTES else stated * 1e6) / count)


def _machine(environment: Fields) -> dict[str, Any]:
    cpu, memory_mb = environment.text("cpu"), environment.number("cpu_ram_mb", low=0)
    return {
        "cpu_model": cpu.strip() or None if cpu else None,
        "cpu_threads": environment.count("cpu_count"),
        "memory_bytes": None if memory_mb is None else round(memory_mb * 1e6),
    }


def _versions(environment: Fields, backend: str, backend_version: str | None) -> dict[str, str]:
    versions = {
        name.removesuffix("_version"): version
        for name in environment
        if name.endswith("_version") and (version := environment.text(name)) is not None
    }
    own = "torch" if backend == "pytorch" else backend
    return versions if backend_version is None else {own: backend_version, **versions}


MEASURED = ("memory", "latency", "throughput", "energy", "efficiency")
TARGETS = (
    *("load_model", "first_forward", "forward", "first_call", "call", "per_step"),
    *("first_generate", "generate", "prefill", "decode", "per_token"),
    *("overall", "warmup", "train"),
)
OLD_FLAT = re.compile(r"(forward|generate|decode)\.(latency\(s\)|throughput\((samples|tokens)/s\))")
"""A column of `inference_results.csv`, as the first versions wrote it."""
OLD_SIZES = {"batch_size": "batch_size", "sequence_length": "sequence_length"}
OLD_NEW_TOKENS = "num_new_tokens"


def is_config(data: Any) -> bool:
    """Whether it is a benchmark's configuration."""
    return isinstance(data, dict) and {"backend", "scenario", "launcher"} <= data.keys()


def is_report(data: Any) -> bool:
    """Whether it is a benchmark's report: targets with measurements in them."""
    return (
        isinstance(data, dict)
        and any(name in TARGETS for name in data)
        and any(isinstance(one, dict) and any(name in MEASURED for name in one) for one in data.values())
    )


def is_whole(data: Any) -> bool:
    """Whether it is both."""
    return isinstance(data, dict) and is_config(data.get("config")) and is_report(data.get("report"))


def csv_header(file: ForeignFile) -> list[str]:
    """The cells of the first line; empty when it is none of CSV."""
    try:
        return next(csv.reader(io.StringIO((file.text or "")[:100_000])), [])
    except csv.Error:
        return []


def is_flat(header: list[str]) -> bool:
    """Whether the columns are those of a flat file: today's, a report's alone, or of the first versions."""
    return any(
        name.startswith(("report.", "config.backend."))
        or OLD_FLAT.fullmatch(name)
        or (name.split(".")[0] in TARGETS and name.endswith((".latency.values", ".latency.mean")))
        for name in header
    )


def whole(file: ForeignFile) -> Iterator[tuple[str, Fields]]:
    """Every benchmark in the file, with a key: an object with config and report, either of which may be missing."""
    if isinstance(file.json, dict):
        yield "", Fields(file, _of_json(file.json))
        return
    for row in csv_rows(file):
        cells = {name: cell for name in row if (cell := row.text(name)) is not None}
        yield row.path, Fields(file, _of_flat(file, cells), row.path, numbers_are_text=True)


def sibling_config(file: ForeignFile) -> Mapping[str, Any] | None:
    """The configuration that a report's own file has beside it."""
    beside = file.path.with_name(f"{file.path.stem.removesuffix('report')}config.json")
    data = _json_of(beside) if file.path.stem.endswith("report") else None
    return data if is_config(data) else None


def is_in_sibling_file(file: ForeignFile, report: Fields) -> bool:
    """Whether a file beside this one holds the same latencies and more: the whole benchmark's, or the JSON of a CSV."""
    stem = file.path.stem
    names = {f"{stem.removesuffix('_report')}.json", f"{stem}.json"} - {file.path.name}
    mine = _latencies(report.rest())
    return bool(mine) and any(_latencies(_report_of(_json_of(file.path.with_name(name)))) == mine for name in names)


def _report_of(data: Any) -> Any:
    return data["report"] if is_whole(data) else data if is_report(data) else None


def _latencies(report: Any) -> dict[str, list[float]]:
    """Target -> its latencies, of those that have a list of numbers."""
    found = {}
    for target, measured in report.items() if isinstance(report, dict) else ():
        latency = measured.get("latency") if isinstance(measured, dict) else None
        values = latency.get("values") if isinstance(latency, dict) else None
        if isinstance(values, list) and all(isinstance(value, float | int) for value in values):
            found[target] = values
    return found


def _json_of(path: Path) -> Any:
    return read_file(path).json if path.is_file() else None


def _of_json(data: Mapping[str, Any]) -> Mapping[str, Any]:
    if is_whole(data):
        return data
    if is_config(data):
        return {"config": data}
    return _of_old(data) if "batch_size" in data else {"report": data}


def _of_old(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """A report that has its sizes beside the targets, and units in the names: "list[s]", "mean(s)"."""
    shapes = {name: data[old] for name, old in OLD_SIZES.items() if old in data}
    generate = {"max_new_tokens": data[OLD_NEW_TOKENS]} if OLD_NEW_TOKENS in data else {}
    targets = {name: _of_old_target(value) for name, value in data.items() if isinstance(value, dict)}
    others = {name: value for name, value in data.items() if name not in (*shapes, *targets, OLD_NEW_TOKENS)}
    return {
        "config": {"scenario": {"input_shapes": shapes, "generate_kwargs": generate}},
        "report": targets,
        **others,
    }


def _of_old_target(target: Mapping[str, Any]) -> dict[str, Any]:
    latency = target.get("latency")
    if not isinstance(latency, dict) or "list[s]" not in latency:
        return dict(target)
    others = {name: value for name, value in latency.items() if name != "list[s]"}
    return {**target, "latency": {"unit": "s", "values": latency["list[s]"], **others}}


def _of_flat(file: ForeignFile, cells: Mapping[str, str]) -> dict[str, Any]:
    """Nested objects from dotted names; a report's alone is put under "report"."""
    nested: dict[str, Any] = {}
    is_old = any(OLD_FLAT.fullmatch(name) for name in cells)
    is_part = not is_old and not any(name.startswith(("report.", "config.")) for name in cells)
    for name, cell in cells.items():
        is_plain = not is_old or name.startswith("config.")
        path = [*(["report"] * is_part), *name.split(".")] if is_plain else ["report", *_old_path(name)]
        _put(file, nested, path, _list_or_text(cell))
    return nested


def _old_path(name: str) -> list[str]:
    """The path that today's files have for a column of the first versions; its own name where they have none."""
    target, _, what = name.partition(".")
    if what == "latency(s)":
        return [target, "latency", "mean"]
    if what.startswith("throughput("):
        return [target, "throughput", "value"]
    return [name]


def _put(file: ForeignFile, nested: dict[str, Any], path: list[str], value: Any) -> None:
    for name in path[:-1]:
        nested = nested.setdefault(name, {})
        if not isinstance(nested, dict):
            file.refuse(f"{'.'.join(path)}: {name} has a value and fields at once")
    nested[path[-1]] = value


def _list_or_text(cell: str) -> Any:
    if not cell.startswith("["):
        return cell
    try:
        return json.loads(cell)
    except (ValueError, RecursionError):
        return cell
