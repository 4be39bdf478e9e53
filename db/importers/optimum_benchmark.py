"""optimum-benchmark: benchmark.json, its two parts (benchmark_report.json, benchmark_config.json), their flat CSV, and
the report in Markdown, as text, or in a log.

Files of its first versions, with other keys, are read too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from statistics import fmean
from typing import Any

from benchmarking.core.doubts import doubt
from benchmarking.core.metrics import MS_PER_S
from benchmarking.core.records import Point, Precision, Scalar
from db.importers.support import optimum
from db.importers.support.building import ForeignRun, Format, family_of, is_amd, precision_of
from db.importers.support.files import ForeignFile
from db.importers.support.reading import INT32_MAX, Fields, csv_header, parsed_number, understood
from db.importers.support.serving import GPU_COUNTS, PARALLELISM, device_count, parallel_mode

DEFINITIONS = {
    "latency_*": "a call of forward, generate or the pipeline, warmed up; statistics of the raw values, computed here",
    "throughput_*": "samples or new tokens of a call over the mean call, as the tool computes it; the same for "
    "prefill_tokens_per_sec over the mean prefill and decode_tokens_per_sec over the mean decode",
    "time_to_first_token_ms": "prefill: from the start of generate to its first logits",
    "time_per_output_token_ms": "decode, which is generate without the prefill, over the new tokens but the first",
    "first_call_ms": "the first forward after loading",
    "load_model_s": "loading the model in a process that has imported the framework",
    "memory_peak_rss_infer_mb": "highest resident memory of the process at readings every 10 ms or so",
    "energy_*": "codecarbon's estimate for one call",
}
TRAINING = ("overall", "warmup", "train")
NEW_TOKENS = 100
"""Default of the tool."""
TEXT_GENERATION = ("text-generation", "text2text-generation", "image-to-text", "conversational")
DIFFUSION = ("text-to-image", "image-to-image", "inpainting", "stable-diffusion", "stable-diffusion-xl")
DIFFUSION_STEPS = 30
WITHOUT_TOKENS = ("vision", "speech", "diffusion")
CHOICES = "multiple-choice"
IN_THE_POINT = ("batch_size", "sequence_length", "height", "width", "vocab_size", "type_vocab_size")
USUAL = {"num_channels": 3}
OF_AUDIO = re.compile(r"audio_|nb_max_frames|feature_size")
NO_SETTING = (
    *("_target_", "library", "processor", "hub_kwargs", "gpus", "devices", "environment", "volumes", "shm_size"),
    *("export", "delete_cache", "low_cpu_mem_usage", "disable_grad", "use_inference_session"),
    *(
        "initial_isolation_check",
        "continous_isolation_check",
        "max_new_tokens",
        "min_new_tokens",
        "num_inference_steps",
    ),
    *(*PARALLELISM, *GPU_COUNTS),
)
"""Fields of backends and calls that do not distinguish series, or by other names."""
STANDARD = {"eval_mode": ("True", "true"), "serving_mode": ("offline",)}
"""The tool's default of a setting, which its files state."""
STANDARD_OF_CALLS = {
    **dict.fromkeys(("num_beams", "num_return_sequences", "num_images_per_prompt"), ("1",)),
    "use_cache": ("True", "true"),
}
"""Its defaults of arguments of calls: only its launcher `inline` writes them."""
LEAST_BYTES = 100_000_000
"""`gpu_vram_mb` is in bytes in some versions: no GPU has fewer bytes than this, or as many MB."""
FLOAT32_BEFORE = 5
"""Major version of transformers since which the default dtype is the checkpoint's; before, it was float32."""


def recognises(file: ForeignFile) -> bool:
    """Whether the file has a configuration, a report, both, or their flat columns."""
    data = file.json
    if data is not None:
        return optimum.is_complete(data) or optimum.is_config(data) or optimum.is_report(data)
    return bool(csv_header(file, optimum.is_flat)) or optimum.is_printed(file)


def read(file: ForeignFile) -> Iterator[ForeignRun]:
    """A run for each benchmark. Raises NoResultsError for a configuration alone, or if another file contains it too."""
    found = False

    def run_of(entry: tuple[str, Fields]) -> ForeignRun | None:
        key, benchmark = entry
        report = benchmark.fields("report")
        is_own = report is not None and not optimum.is_in_sibling_file(file, report)
        return _run(file, key, benchmark, report) if is_own and report is not None else None

    for run in understood(file, optimum.read_benchmarks(file), run_of):
        if run is not None:
            found = True
            yield run
    if not found and not file.left_out:
        file.without_results("only a configuration, or all its numbers are in another file of the folder")


def _run(file: ForeignFile, key: str, benchmark: Fields, report: Fields) -> ForeignRun:
    for name in TRAINING:
        if name in report:
            report.refuse(name, "training is not supported: only inference is imported")
    config = benchmark.fields("config")
    sibling = optimum.sibling_config(file) if config is None else None
    config = Fields(file, sibling or {}, "config") if config is None else config
    setup = _setup(config)
    scenario = config.section("scenario")
    # Doubts about the method of measurement.
    launcher = config.fields("launcher")
    processes = launcher.count("nproc_per_node") if launcher is not None and "nproc_per_node" in launcher else None
    if launcher is not None and str(launcher.peek("numactl")).lower() == "true":
        setup["runtime_mode"] |= launcher.settings(("numactl", "numactl_kwargs"))
    doubts = []
    if processes is not None and processes > 1:
        doubts.append(doubt("processes_pooled", "info", processes=processes))
    if setup["runtime"] in ("eager", "compiled") and setup["device_type"] in ("cuda", "rocm"):
        doubts.append(doubt("device_clock", "info", timer="CUDA events"))
    task = setup["task"]
    inputs = scenario.section("input_shapes")
    generate = scenario.section("generate_kwargs")
    batch_size = inputs.count("batch_size")
    new_tokens = generate.count("max_new_tokens") or scenario.count("new_tokens")
    if batch_size is None:
        forward, prefill, decode = (_volume(report, name) for name in ("forward", "prefill", "decode"))
        batch_size = forward or prefill
        if batch_size and decode and not decode % batch_size:
            new_tokens = new_tokens or decode // batch_size + 1
    if batch_size is None:
        report.file.refuse(
            f"{report.path}: no batch size: add the benchmark's configuration to its folder, or import benchmark.json"
        )
    if task in TEXT_GENERATION:
        new_tokens = new_tokens or NEW_TOKENS
    axes: dict[str, int | float] = {}
    height, width = inputs.count("height"), inputs.count("width")
    if height is not None and height == width:
        axes["image_size"] = height
    elif height is not None and width is not None:
        axes |= {"image_height": height, "image_width": width}
    called = scenario.section("call_kwargs")
    if task in DIFFUSION:
        axes["steps"] = called.count("num_inference_steps") or DIFFUSION_STEPS
    for passed in (scenario.section("forward_kwargs"), generate, called):
        setup["runtime_mode"] |= passed.other_settings(NO_SETTING, STANDARD_OF_CALLS)
    has_tokens = setup["family"] not in WITHOUT_TOKENS and task not in DIFFUSION
    axes |= _other_sizes(inputs, task, is_speech=setup["family"] == "speech")
    point = Point(
        batch_size=batch_size,
        sequence_length=inputs.count("sequence_length") if has_tokens else None,
        new_tokens=new_tokens,
        axes=axes,
    )
    result = optimum.result(
        report,
        point,
        batch_size * (generate.count("num_beams") or 1),
        is_rocm=setup["device_type"] == "rocm",
        warmup_calls=scenario.integer("warmup_runs"),
        doubts=doubts,
    )
    return ForeignRun(
        key=key,
        results=[result],
        error=result.error,
        started_at=benchmark.time("printed_at"),
        stated_times=(benchmark.peek("printed_at"),),
        settings={"iterations": scenario.integer("iterations"), "duration_s": scenario.number("duration", low=0)},
        kept={**benchmark.rest(), **({"config": config.rest()} if sibling is not None else {})},
        **setup,
    )


def _other_sizes(inputs: Fields, task: str, *, is_speech: bool) -> dict[str, int]:
    """The sizes of inputs that have no place in the point: frames of audio, channels, choices of a question, ... Older
    versions state those of every kind of input."""
    found: dict[str, int] = {}
    for name in inputs:
        size = parsed_number(str(inputs.peek(name)))
        is_of_others = (OF_AUDIO.match(name) and not is_speech) or (name == "num_choices" and task != CHOICES)
        if name in IN_THE_POINT or is_of_others or size == USUAL.get(name):
            continue
        if isinstance(size, int) and 0 < size <= INT32_MAX:
            found[name] = size
    if is_speech and "audio_sequence_length" not in inputs and (samples := inputs.count("sequence_length")):
        found["audio_samples"] = samples
    return found


def _volume(report: Fields, name: str) -> int | None:
    """Samples or tokens of a call of the target: throughput times mean latency, if only one whole number is possible
    within the rounding of both; otherwise None."""
    target = report.unread_copy().section(name)
    value = target.section("throughput").number("value", low=0)
    values_ms = optimum.latencies_ms(target)
    mean_s = fmean(values_ms) / MS_PER_S if values_ms else target.section("latency").number("mean", low=0)
    if not value or not mean_s:
        return None
    least, most = ((value + sign * _half_digit(value)) * (mean_s + sign * _half_digit(mean_s)) for sign in (-1, 1))
    first, last = math.ceil(least * (1 - SAME)), math.floor(most * (1 + SAME))
    return first if first == last and 0 < first < INT32_MAX else None


SAME = 1e-9
"""Relative tolerance: products of the same numbers in another order differ by less."""


def _half_digit(value: float) -> float:
    """Half of the last significant digit: the first versions rounded to three of them (2190.0 is 2185 to 2195)."""
    return 0.5 * 10.0 ** int(Decimal(repr(value)).normalize().as_tuple().exponent)


def _setup(config: Fields) -> dict[str, Any]:
    """Fields of the run from the configuration, which may be empty."""
    backend, environment = config.section("backend"), config.section("environment")
    name, backend_version = backend.text("name") or "unknown", backend.text("version")
    task, model_type = backend.text("task"), backend.text("model_type")
    versions = {
        field.removesuffix("_version"): version
        for field in environment
        if field.endswith("_version") and (version := environment.text(field)) is not None
    }
    if backend_version is not None:
        versions = {"torch" if name == "pytorch" else name: backend_version, **versions}
    engine = backend.unread_copy().section("engine_args")
    is_compiled, target = backend.flag("torch_compile") or False, backend.text("torch_compile_target")
    passed = {name: backend.unread_copy().section(f"{name}_kwargs") for name in ("model", "hub")}
    given = passed["model"].text("torch_dtype")
    dtype = backend.text("torch_dtype") or backend.text("dtype") or engine.text("dtype") or given
    is_autocast, autocast = backend.flag("autocast_enabled"), backend.text("autocast_dtype")
    found = {
        "model_id": backend.text("model") or "unknown",
        "model_revision": passed["model"].text("revision") or passed["hub"].text("revision"),
        "weights": "random" if backend.flag("no_weights") else "given",
        "num_threads": backend.count("intra_op_num_threads"),
        **_device(backend, environment, name, device_count(backend) or device_count(engine)),
    }
    other_threads = backend.count("inter_op_num_threads")
    mode: dict[str, Scalar] = {
        **({"torch_compile_target": target} if is_compiled and target is not None else {}),
        **({"inter_op_num_threads": other_threads} if other_threads else {}),
        **parallel_mode(backend),
        **backend.other_settings(NO_SETTING, STANDARD),
    }
    if is_autocast and not autocast:
        # torch's own: what the tool turns on is that of GPUs, and on another device changes nothing.
        autocast = "float16" if found["device_type"] in ("cuda", "rocm") else None
        mode |= {"autocast": True} if autocast is None else {}
    is_quantized = engine.text("quantization") is not None
    precision = "other" if is_quantized else _precision(dtype, autocast if is_autocast else None, name, versions, mode)
    if precision == "float32" and mode.get("allow_tf32") and found["device_type"] == "cuda":
        precision = "tf32"
    cpu, memory_mb = environment.text("cpu"), environment.number("cpu_ram_mb", low=0)
    return {
        **found,
        "family": family_of(model_type, task),
        "task": task or "benchmark",
        "model_config": {"model_type": model_type} if model_type else {},
        "runtime": ("compiled" if is_compiled else "eager") if name == "pytorch" else name,
        "runtime_mode": mode,
        "precision": precision,
        "tool_version": environment.text("optimum_benchmark_version"),
        "versions": versions,
        "cpu_model": cpu.strip() or None if cpu else None,
        "cpu_threads": environment.count("cpu_count"),
        "memory_bytes": None if memory_mb is None else round(memory_mb * 1e6),
    }


def _precision(
    dtype: str | None, autocast: str | None, name: str, versions: Mapping[str, str], mode: dict[str, Scalar]
) -> Precision:
    """The precision; the file's own word goes into `mode` if we have none for it."""
    if mode.get("load_in_4bit") or mode.get("load_in_8bit"):
        return "int4" if mode.get("load_in_4bit") else "int8"
    quantized = ("quantization_scheme", "quantization_strategy", "quantization", "auto_quantization", "quantize")
    if any(mode.get(name) for name in quantized):
        return "other"
    if autocast:
        mode["autocast"] = autocast
        return precision_of(autocast)
    if mode.get("half"):
        return "float16"
    major = re.match(r"(\d{1,4})(?:\.|$)", versions.get("transformers") or "", re.ASCII)
    if dtype is None and name == "pytorch" and major and int(major[1]) < FLOAT32_BEFORE:
        return "float32"
    if precision_of(dtype) == "other" and dtype is not None:
        mode["torch_dtype"] = dtype
    return precision_of(dtype)


def _device(backend: Fields, environment: Fields, name: str, used_count: int | None) -> dict[str, Any]:
    requested = (backend.text("device") or "unknown").partition(":")[0]
    if requested not in ("cuda", "gpu"):
        known = "openvino" if name == "openvino" else requested
        cpu = environment.text("cpu") if requested == "cpu" else None
        return {"device_type": known, "device_name": cpu.strip() or None if cpu else None}
    gpus, count = environment.any("gpu"), environment.count("gpu_count")
    names = [gpu for gpu in gpus if isinstance(gpu, str)] if isinstance(gpus, list) else []
    count = count or max(len(names), 1)
    # The environment lists all GPUs of the machine, and device_ids those that the benchmark could use.
    selected = [int(one) for one in re.findall(r"\d{1,4}", str(backend.any("device_ids") or ""))]
    used = [names[one] for one in selected if one < len(names)] or names
    stated = environment.number("gpu_vram_mb", low=0) if len(set(names)) < 2 else None
    memory = stated if stated is None or stated >= LEAST_BYTES else stated * 1e6  # of all GPUs together
    return {
        "device_type": "rocm" if any(map(is_amd, used)) else "cuda",
        "device_name": used[0] if used else None,
        "device_count": len(selected) or used_count or count,
        "device_memory_bytes": None if memory is None else round(memory / count),
    }


PLUGIN = Format(
    name="optimum_benchmark",
    summary="optimum-benchmark: benchmark.json, benchmark_report (json, md, txt, or printed in a log), "
    "benchmark_config.json, and the flat CSV",
    definitions=DEFINITIONS,
    recognises=recognises,
    read=read,
)
