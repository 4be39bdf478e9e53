"""llama.cpp's llama-bench: its JSON, JSON lines, CSV, SQL and Markdown, of the versions with 33, 38 and 41 columns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import median
from typing import Any

from benchmarking.core.records import NOT_SUPPORTED, Doubt, Family, Json, Point, Precision, Result, Run, Scalar
from benchmarking.core.units import NS_PER_MS, bytes_to_mb
from db.importers.support.building import foreign_result, foreign_run, undated
from db.importers.support.files import ForeignFile
from db.importers.support.llama_rows import looks_like_rows, rows
from db.importers.support.measures import MS_PER_S, block, measured, timed_result
from db.importers.support.names import family_of, precision_of
from db.importers.support.reading import Fields

DEFINITION = "llama-bench"
DEFINITIONS = {
    "latency_*": "one repetition: the prompt's tokens, or the generated ones, or both, without sampling or text",
    "throughput_tokens_per_sec": "with raw values tokens over the median repetition; else the tool's avg_ts, the mean "
    "of each repetition's tokens per second; of a prompt and generation together the generated tokens alone",
    "prefill_tokens_per_sec": "a prompt's tokens per second (pp)",
    "decode_tokens_per_sec": "generated tokens per second from an empty or filled cache (tg)",
    "time_per_output_token_ms": "a repetition of tg over its tokens",
}
DEFAULTS: dict[str, tuple[str, ...]] = {
    "n_batch": ("2048",),
    "n_ubatch": ("512",),
    "cpu_mask": ("0x0",),
    "cpu_strict": ("0",),
    "poll": ("50",),
    "type_k": ("f16",),
    "type_v": ("f16",),
    "n_gpu_layers": (),
    "n_cpu_moe": ("0",),
    "split_mode": ("layer",),
    "main_gpu": ("0",),
    "no_kv_offload": ("0",),
    "flash_attn": (),
    "devices": ("auto",),
    "tensor_split": ("0.00", "0"),
    "tensor_buft_overrides": ("none",),
    "use_mmap": ("1",),
    "use_direct_io": ("0",),
    "embeddings": ("0",),
    "no_op_offload": ("0",),
    "no_host": ("0",),
}
"""Settings that make a different series, and their defaults: a column that a later version adds changes no series."""
BACKENDS = {"CUDA": "cuda", "ROCm": "rocm", "HIP": "rocm", "Metal": "mps", "MTL": "mps", "CPU": "cpu", "BLAS": "cpu"}
QUANTIZED = re.compile(r"(?:all )?((?:B?F\d{2}|I?Q\d\S*|TQ\d\S*|MXFP4\S*)(?: - [\w .]+)?(?: \w+)?)$")
"""The end of a model's type: "qwen2 7B Q4_K - Medium", "llama 8B BF16"."""
EXPERTS = re.compile(r"moe\b|mixtral|\b\d+x\d+(\.\d+)?B\b|\bA\d+(\.\d+)?B\b")
NO_RAW = f"{NOT_SUPPORTED}: this output has means alone"
AUTO_COLUMNS = "fit_target"
"""A column of the versions in which flash attention may be left to the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Test:
    """One row, read."""

    cell: tuple[tuple[str, str], ...]
    """What makes it another run: everything but the sizes and the numbers."""
    setup: dict[str, Any]
    result: Result
    started_at: datetime


class LlamaBench:
    """Reads what llama-bench prints."""

    name = "llama_bench"
    summary = "llama.cpp's llama-bench: -o json, jsonl, csv, sql and md"

    def recognises(self, file: ForeignFile) -> bool:
        """Rows with its columns, or its table."""
        return looks_like_rows(file)

    def runs(self, file: ForeignFile) -> Iterator[Run]:
        """A run for each model, build and setting; a test that was run again belongs to another run."""
        groups: dict[tuple[object, int], list[_Test]] = {}
        seen: Counter[tuple[object, str]] = Counter()
        for test in (_test(file, row) for row in rows(file)):
            place = (test.cell, test.result.point.label)
            groups.setdefault((test.cell, seen[place]), []).append(test)
            seen[place] += 1
        if not groups:
            file.refuse("holds no tests")
        for number, tests in enumerate(groups.values()):
            yield _run(file, str(number), tests)


def _run(file: ForeignFile, key: str, tests: list[_Test]) -> Run:
    first = tests[0]
    starts = [test.started_at for test in tests]
    return foreign_run(
        file,
        key,
        format_name=LlamaBench.name,
        definition=DEFINITION,
        definitions=DEFINITIONS,
        task="text-generation",
        results=[test.result for test in tests],
        started_at=min(starts),
        finished_at=max(starts),
        **first.setup,
    )


def _test(file: ForeignFile, row: Fields) -> _Test:
    setup = _setup(row)
    stated = row.time("test_time")
    started_at = stated or file.modified_at
    size = row.whole("model_size")
    result = _result(file, row, started_at)
    if size is not None:
        result = replace(result, metrics={**result.metrics, "model_size_mb": bytes_to_mb(size)})
    doubts = [*_doubts(row, result), *([] if stated else [undated(file)])]
    made = foreign_result(
        result.point,
        metrics=result.metrics,
        samples=result.samples,
        iterations=result.iterations,
        doubts=doubts,
        missing=result.missing,
        kept=row.rest(),
    )
    cell = tuple(sorted((name, repr(value)) for name, value in setup.items()))
    return _Test(cell=cell, setup=setup, result=replace(made, ci_scope=result.ci_scope), started_at=started_at)


def _setup(row: Fields) -> dict[str, Any]:
    """Arguments of `foreign_run` about model, device and settings."""
    model_type, filename = row.text("model_type"), row.text("model_filename")
    precision, words = _precision(model_type)
    mode = _mode(row)
    commit, number = row.text("build_commit"), row.any("build_number")
    version = str(number) if isinstance(number, int | str) else None
    return {
        "model_id": _model_id(filename) or model_type or "unknown",
        "family": _family(model_type),
        "model_config": {"model_type": model_type} if model_type else None,
        "parameter_count": row.whole("model_n_params"),
        **_device(row),
        "cpu_model": (row.text("cpu_info") or "").strip() or None,
        "runtime": "llama.cpp",
        "runtime_mode": mode | ({"quantization": words} if words else {}),
        "precision": precision,
        "num_threads": row.count("n_threads"),
        "tool_version": version,
        "versions": {"llama.cpp": f"b{version}"} if version else {},
        "git_commit": commit,
    }


def _model_id(filename: str | None) -> str | None:
    name = re.split(r"[/\\]", filename or "")[-1]
    return name.removesuffix(".gguf") or None


def _family(model_type: str | None) -> Family | None:
    if model_type is None:
        return None
    word = model_type.partition(" ")[0]
    return "mixture-of-experts" if EXPERTS.search(model_type) else family_of(word)


def _precision(model_type: str | None) -> tuple[Precision, str | None]:
    """The weights' precision, and the file's words for it where there is no name here."""
    found = QUANTIZED.search(model_type or "")
    if found is None:
        return "unknown", None
    precision = precision_of(found[1].lower())
    return precision, found[1] if precision == "other" else None


def _mode(row: Fields) -> dict[str, Scalar]:
    """The settings that are not as the tool has them when nothing is said, true and false as 1 and 0."""
    mode: dict[str, Scalar] = {}
    for name, defaults in DEFAULTS.items():
        value = row.any(name)
        text = str(int(value)) if isinstance(value, bool) else str(value)
        if isinstance(value, str | int | float) and text not in (*defaults, ""):
            mode[name] = text
    return mode


def _device(row: Fields) -> dict[str, Any]:
    backends = [name.strip() for name in (row.text("backends") or "").split(",") if name.strip()]
    gpus = [name.strip() for name in (row.text("gpu_info") or "").split(",") if name.strip()]
    types = [BACKENDS.get(name, name.lower()) for name in backends if name not in ("RPC",)]
    device = next((one for one in types if one != "cpu"), types[0] if types else "unknown")
    if device == "cpu":
        cpu = (row.text("cpu_info") or "").strip()
        return {"device_type": "cpu", "device_name": cpu or None}
    alike = len(set(gpus)) == 1
    return {
        "device_type": device,
        "device_name": (gpus[0] if alike else ", ".join(gpus)) or None,
        "device_count": len(gpus) if alike else 1,
    }


def _result(file: ForeignFile, row: Fields, started_at: datetime) -> Result:
    """The numbers of a row: from its raw values where the output has them."""
    prompt, generated = row.whole("n_prompt") or 0, row.whole("n_gen") or 0
    depth = row.whole("n_depth") or 0
    if not prompt and not generated:
        row.refuse("n_prompt", "neither a prompt nor tokens to generate")
    point = Point(
        batch_size=1,
        sequence_length=prompt or None,
        new_tokens=generated or None,
        axes={"depth": depth} if depth else {},
    )
    values = [value / NS_PER_MS for value in row.numbers("samples_ns", low=0) or ()] if "samples_ns" in row else []
    if not values:
        return foreign_result(point, metrics=_stated(row, point), missing={"latency_median_ms": NO_RAW})
    samples = [block(0, values, started_at)]
    made = timed_result(file, point, samples, metrics=_speeds(point, median(values)))
    if prompt:
        return made
    per_token = [value / generated for value in values]
    metrics = {**made.metrics, "time_per_output_token_ms": median(per_token)}
    return replace(
        made, metrics=metrics, samples=(*made.samples, measured("time_per_output_token", per_token, started_at))
    )


def _stated(row: Fields, point: Point) -> dict[str, float]:
    """The tool's own means. Of a prompt and generation together its speed counts both, and is no speed here."""
    mean_ns, std_ns = row.number("avg_ns", low=0), row.number("stddev_ns", low=0)
    speed = row.number("avg_ts", low=0) if not (point.sequence_length and point.new_tokens) else None
    metrics = {} if mean_ns is None else {"latency_mean_ms": mean_ns / NS_PER_MS}
    metrics |= {} if std_ns is None else {"latency_std_ms": std_ns / NS_PER_MS}
    if speed is None:
        return metrics
    phase = "decode_tokens_per_sec" if point.new_tokens else "prefill_tokens_per_sec"
    return metrics | {"throughput_tokens_per_sec": speed, phase: speed}


def _speeds(point: Point, middle_ms: float) -> dict[str, float]:
    if middle_ms <= 0:
        return {}
    tokens = point.new_tokens or point.sequence_length or 0
    speed = tokens / middle_ms * MS_PER_S
    metrics = {"throughput_samples_per_sec": MS_PER_S / middle_ms, "throughput_tokens_per_sec": speed}
    if point.new_tokens and point.sequence_length:
        return metrics
    return metrics | {"decode_tokens_per_sec" if point.new_tokens else "prefill_tokens_per_sec": speed}


def _doubts(row: Fields, result: Result) -> list[Doubt]:
    found: list[Doubt] = []
    if not result.samples and "throughput_tokens_per_sec" in result.metrics:
        found.append(Doubt(kind="mean_of_ratios", severity="info", evidence={"field": "avg_ts"}))
    flash: Json = row.any("flash_attn")
    if AUTO_COLUMNS in row and flash is True:
        found.append(Doubt(kind="flash_attention_maybe_auto", severity="info", evidence={"flash_attn": True}))
    return found


PLUGIN = LlamaBench()
