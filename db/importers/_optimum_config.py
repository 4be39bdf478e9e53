"""What optimum-benchmark's configuration says of model, device, runtime and machine, in the words of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from benchmarking.records import Doubt, Json, Precision, Scalar
from db.importers._families import family_of
from db.importers._precisions import precision_of
from db.importers._reading import Fields

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


def about(config: Fields) -> dict[str, Any]:
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
