"""llama.cpp's llama-bench.

It writes JSON, JSON lines, CSV, SQL and Markdown, in versions with 33, 38 and 41 columns. The rows of all five outputs
are read under their JSON names. Our own exports in SQL have further columns: device, runtime, its settings, precision
and batch size.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from statistics import fmean
from typing import Any, get_args

from benchmarking.core.doubts import doubt
from benchmarking.core.metrics import MS_PER_S, NS_PER_MS, bytes_to_mb
from benchmarking.core.records import (
    NOT_SUPPORTED,
    Doubt,
    Family,
    Json,
    Point,
    Precision,
    Result,
    Scalar,
)
from db.importers.support.building import (
    CONVERTED,
    ForeignRun,
    Format,
    exported_axes,
    exported_model,
    family_of,
    iso,
    model_of_gguf,
    precision_of,
    runs_of,
)
from db.importers.support.files import ForeignFile
from db.importers.support.llama_tables import BACKENDS, SPEED, gpus_in, has_table, model_above, printer_of, tables
from db.importers.support.measures import SAME_RATE, as_exported, block, foreign_result, measured, median_of
from db.importers.support.reading import (
    OF_ONE_RUN,
    Fields,
    csv_header,
    csv_rows,
    has_columns,
    has_keys,
    json_objects,
    of_any_machine,
    printed_lines,
    understood,
)

DEFINITIONS = {
    "latency_*": "one repetition: the prompt's tokens, or the generated ones, or both, without sampling or text",
    "throughput_tokens_per_sec": "the tool's avg_ts, the mean of each repetition's tokens per second; of a prompt and "
    "generation together the generated tokens over the mean repetition",
    "throughput_samples_per_sec": "repetitions over their total time, from raw values",
    "total_tokens_per_sec": "avg_ts of a prompt and generation together: the tokens of both",
    "prefill_tokens_per_sec": "a prompt's tokens per second (pp)",
    "decode_tokens_per_sec": "generated tokens per second from an empty or filled cache (tg)",
    "time_per_output_token_ms": "a repetition of tg over its tokens",
}
DEFAULTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("cpu_strict", "no_kv_offload", "use_direct_io", "embeddings", "no_op_offload", "no_host"), ("0",)),
    **dict.fromkeys(("n_cpu_moe", "main_gpu", "low_vram"), ("0",)),
    **dict.fromkeys(("use_mmap", "f16_kv", "mul_mat_q", "repack"), ("1",)),
    **dict.fromkeys(("type_k", "type_v"), ("f16",)),
    **dict.fromkeys(("devices", "lazy_mode"), ("auto",)),
    "load_mode": ("auto", "mmap"),  # of the versions since it began, which loads as before
    **dict.fromkeys(("n_gpu_layers", "flash_attn"), ()),
    "n_batch": ("2048",),
    "n_ubatch": ("512",),
    "cpu_mask": ("0x0",),
    "poll": ("50",),
    "split_mode": ("layer",),
    "tensor_split": ("0.00", "0"),
    "tensor_buft_overrides": ("none",),
    **dict.fromkeys(("fit_target", "fit_min_ctx"), ("0",)),
}
"""Settings that distinguish series, and their defaults, so that a column added in a later version changes no series."""
OLDER_WORDS = {("load_mode", "none"): ("use_mmap", "0"), ("load_mode", "dio"): ("use_direct_io", "1")}
"""Setting and value -> the columns that stated the same before."""
UNSET = ("0", "0.00", "none", "auto")
"""The same of a column that is not known here, and tells runs apart with any other value."""
FLAGS = {"cuda": "CUDA", "hipblas": "ROCm", "metal": "Metal", "opencl": "OpenCL", "vulkan": "Vulkan", "sycl": "SYCL"}
"""Flags of the first versions, true for the backend they were built with."""
EXPORTED: tuple[Precision, ...] = get_args(Precision)
IDENTITY = ("build_number", "gpu_info", "model_filename", "model_type")
"""Fields of a whole run that an export writes unchanged."""
NO_COLUMN_OF_SETTINGS = {
    *(*IDENTITY, *FLAGS, "kompute", "gpu_blas", "blas", "backends", "build_commit", "cpu_info", "n_threads"),
    *("model_size", "model_n_params", "model_above", "test", "n_prompt", "n_gen", "n_depth", "test_time"),
    *("avg_ns", "stddev_ns", "avg_ts", "stddev_ts", "samples_ns", "samples_ts"),
}
"""Columns of the model, the device, the test and its results; a fraction is a result under any name."""
OF_FORK = ("mla_attn", "mla")
"""Columns that only ik_llama.cpp has, which has kernels of its own: in its JSON always, in a table if it was set."""
FRACTION = re.compile(r"\W*\d+\.\d+(?![\d.,;/])")
QUANTIZED = re.compile(
    r"(?:^|\s)(?:all )?((?:B?F\d{2}|[IT]?Q\d\w*|(?:MX|NV)?FP\d+\w*|(?:MX)?INT\d+\w*)(?: mix| MoE)?(?: - [\w .]+)?)"
    r"(?: \(guessed\))?$"
)
"""The end of a model's type: "qwen2 7B Q4_K - Medium", "llama 8B BF16"."""
AFTER_SIZE = re.compile(r"\s(?:\?B|E?\d[\dx.]*[KMBT](?:\.A[\d.]+B)?)\s+(\S.*)$")
"""What follows a model's size in its type: a quantization of a newer version."""
EXPERTS = re.compile(r"moe\b|mixtral|\b\d+x\d+(\.\d+)?B\b|\bA\d+(\.\d+)?B\b")
NO_RAW = f"{NOT_SUPPORTED}: this output has means alone"
AUTO_COLUMNS = "fit_target"
"""A column of the versions with automatic flash attention."""
NEEDED = {"build_commit", "model_filename", "n_prompt", "n_gen", "avg_ts"}
"""Columns of every version."""
IS_HEADER = has_columns(*NEEDED)
INSERT = re.compile(r"INSERT INTO (?:test|llama_bench) \(([^)]*)\) VALUES \('(.*)'\);")
ESCAPED = re.compile(r"'((?:[^']|'')*)'(?:\|\|char\((0|10|13)\)\|\||, |$)")
"""A part of a value in an INSERT of ours, with the character that joins it to the next part of the same value."""
MARKDOWN_NAMES = {
    "model": "model_type",
    "backend": "backends",
    "ngl": "n_gpu_layers",
    "ncmoe": "n_cpu_moe",
    "threads": "n_threads",
    "sm": "split_mode",
    "mg": "main_gpu",
    "nkvo": "no_kv_offload",
    "fa": "flash_attn",
    "dev": "devices",
    "ts": "tensor_split",
    "ot": "tensor_buft_overrides",
    "mmap": "use_mmap",
    "dio": "use_direct_io",
    "embd": "embeddings",
    "nopo": "no_op_offload",
    "noh": "no_host",
    "rpk": "repack",
    "lm": "load_mode",
    "fitt": "fit_target",
    "fitc": "fit_min_ctx",
}
"""Column of the table -> field; other columns are named like the field."""
AFTER_PROMPT = "@pp"
"""In a test of ik_llama.cpp: a prompt that is not timed, so that the generation after it is at its depth."""
TEST = re.compile(rf"(?:pp ?(\d{{1,9}}))?\+?(?:tg ?(\d{{1,9}}))?(?:(?: @ d ?|{AFTER_PROMPT})(\d{{1,9}}))?")
"""A test: pp512, tg128, pp512+tg128, each optionally at a depth; "pp 512" in the first versions."""
BUILD = re.compile(r"^build: (\S+) \((\d{1,9})\)", re.MULTILINE)
DEVICE = re.compile(r"(?:^|[/,;])\s*((?!auto|none)[A-Za-z]+)(?=\d|\[)")
"""The backend of a device that was chosen: ROCm0, CUDA0/CUDA1, RPC0."""
NUMBERED = re.compile(r"(?<![A-Za-z])([A-Za-z]+)(\d{1,3})\b")
"""A chosen device with its number among those of its backend."""
TEST_COLUMNS = {"model", "test", "t/s"}
TOOL = "llama-bench"
"""What is named above a table that somebody shortened."""
OF_A_CLIENT = {"ttfr (ms)", "est_ppt (ms)", "e2e_ttft (ms)"}
"""Columns of llama-benchy, which sends requests to a server of any engine and prints a similar table."""
GROUP_OF_THREE = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
BINARY = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


Test = tuple[Mapping[str, Any], Result, datetime | None]
"""A row: the fields of its run about model, device and settings, its result, and its start."""


def read_llama_bench(file: ForeignFile) -> Iterator[ForeignRun]:
    """A run for each model, build and setting."""
    groups = runs_of(
        (tuple(sorted((name, repr(value)) for name, value in test[0].items() if name != "kept")), test[1].point, test)
        for test in understood(file, _rows(file), _test)
    )
    if not groups and not file.left_out:
        file.refuse("contains no tests")
    sizes: dict[str, set[int]] = {}
    for (setup, *_), *_ in groups.values():
        sizes.setdefault(setup["model_id"], set()).update(filter(None, (setup["parameter_count"],)))
    for number, tests in enumerate(groups.values()):
        starts = [started_at for _, _, started_at in tests if started_at is not None]
        setup = tests[0][0]
        is_vague = len(sizes[setup["model_id"]]) > 1 or CONVERTED.fullmatch(setup["model_id"])
        if is_vague and setup["parameter_count"]:  # two models may have the name
            setup = {**setup, "model_id": f"{setup['model_id']} ({setup['parameter_count']} parameters)"}
        yield ForeignRun(
            key=str(number),
            results=[result for _, result, _ in tests],
            started_at=min(starts) if len(starts) == len(tests) else None,
            **setup,
        )


def _setup(row: Fields) -> dict[str, Any]:
    """Fields of the run about model, device and settings."""
    model_type, filename = row.text("model_type"), row.text("model_filename")
    family: Family | None = None
    if model_type is not None:
        is_moe = EXPERTS.search(model_type)
        family = "mixture-of-experts" if is_moe else family_of(model_type.partition(" ")[0])
    # The precision of the weights, and the file's word for it if we have none.
    precision: Precision = "unknown"
    quantization = None
    found = QUANTIZED.search(model_type or "") or AFTER_SIZE.search(model_type or "")
    if found is not None and not found[1].startswith("unknown"):
        precision = precision_of(found[1].lower())
        quantization = found[1] if precision == "other" else None
    model_id = row.text("model_above") or model_of_gguf(filename) or model_type
    if (stated := row.text("precision")) in EXPORTED:  # in an export of ours, which names some models so
        precision, quantization = stated, quantization if stated == "other" else None
        if model_type and model_type.endswith(f" {stated}"):
            model_id = model_type.removesuffix(f" {stated}")
        model_id = row.text("model_id") or model_id
    # The settings that differ from the tool's defaults, with true and false as 1 and 0; an export has them all.
    exported = _own_json(row, "runtime_mode")
    settings = exported.items() if isinstance(exported, dict) else ()
    mode: dict[str, Scalar] = {name: value for name, value in settings if isinstance(value, bool | int | float | str)}
    for name in DEFAULTS if isinstance(exported, dict) else dict.fromkeys((*DEFAULTS, *_unknown_settings(row))):
        value = of_any_machine(row.any(name))
        text = str(int(value)) if isinstance(value, bool) else str(value)
        if isinstance(value, str | int | float) and text not in (*DEFAULTS.get(name, UNSET), ""):
            name, text = OLDER_WORDS.get((name, text), (name, text))
            mode[name] = text
    if mode.get("use_direct_io") == "1":
        mode.pop("use_mmap", None)  # which it turns off
    backends = _backends(row)
    if "RPC" in (names := [name.strip() for name in backends.split(",")]):
        mode["backends"] = ",".join(names)  # other machines take part, which the devices of this one do not show
    number = row.any("build_number")
    version = str(number) if isinstance(number, int | str) and str(number) != "0" else None  # 0: not of a repository
    engine = "ik_llama.cpp" if any(name in row for name in OF_FORK) else "llama.cpp"
    return {
        "model_id": model_id or "unknown",
        "family": family,
        "task": "text-generation",
        **exported_model(row),
        "model_config": {"model_type": model_type} if model_type else {},
        "parameter_count": row.integer("model_n_params"),
        **_device(row),
        "cpu_model": (row.text("cpu_info") or "").strip() or None,
        "runtime": row.text("runtime") or engine,
        "runtime_mode": mode | ({"quantization": quantization} if quantization else {}),
        "precision": precision,
        "num_threads": row.count("n_threads"),
        "is_simulated": row.flag("simulated") is True,
        "tool_version": version,
        "versions": {engine: f"b{version}"} if version else {},
        "git_commit": row.text("build_commit"),
        "kept": {"backends": backends, **{name: row.any(name) for name in IDENTITY if name in row}},
    }


def _unknown_settings(row: Fields) -> Iterator[str]:
    for name in row:
        is_other = name in NO_COLUMN_OF_SETTINGS or OF_ONE_RUN.search(name) or FRACTION.match(str(row.peek(name)))
        if not is_other and isinstance(row.peek(name), str | int):
            yield name


def _backends(row: Fields) -> str:
    """The backends of the build; for the first versions the one with a set flag, or the CPU without any."""
    stated = row.text("backends")
    if stated is not None or not any(flag in row for flag in FLAGS):
        return stated or ""
    return next((name for flag, name in FLAGS.items() if row.flag(flag)), "CPU")


def _device(row: Fields) -> dict[str, Any]:
    backends = [name.strip() for name in _backends(row).split(",") if name.strip()]
    gpus = [name.strip() for name in (row.text("gpu_info") or "").split(",") if name.strip()]
    chosen = DEVICE.findall(row.text("devices") or "")
    backends = chosen or backends
    types = [BACKENDS.get(name, name.lower()) for name in backends if name not in ("RPC",)]
    device = row.text("device") or next((one for one in types if one != "cpu"), types[0] if types else "unknown")
    if device == "cpu":
        cpu = (row.text("cpu_info") or "").strip()
        return {"device_type": "cpu", "device_name": cpu or None}
    used = _used(row, gpus)
    alike, is_one = len(set(used)) == 1, row.peek("split_mode") == "none"
    return {
        "device_type": device.partition(":")[0],
        "device_selector": device,
        "device_name": (used[0] if alike else ", ".join(used)) or None,
        "device_count": 1 if is_one else len(chosen) or (len(used) if alike else 1),
    }


def _used(row: Fields, gpus: Sequence[str]) -> Sequence[str]:
    """Those of the machine's GPUs that the test ran on: the chosen ones, and of these the main one if the model was not
    split. All of them if their places are not known: numbers of devices are those of one backend."""
    builds = {name.strip() for name in _backends(row).split(",")}
    if len([name for name in builds if name and name != "RPC" and BACKENDS.get(name) != "cpu"]) > 1:
        return gpus
    places = [int(place) for _, place in NUMBERED.findall(row.text("devices") or "")]
    if 0 < len(places) < len(gpus) and max(places) < len(gpus):
        gpus = [gpus[place] for place in places]
    main = row.integer("main_gpu") or 0
    return gpus[main : main + 1] if row.peek("split_mode") == "none" and 0 <= main < len(gpus) else gpus


def _test(row: Fields) -> Test:
    """A row, with its numbers from its raw values if the output has them."""
    setup, started_at = _setup(row), row.time("test_time")
    prompt, generated, depth = (row.sure(row.integer, name) or 0 for name in ("n_prompt", "n_gen", "n_depth"))
    if AFTER_PROMPT in str(row.peek("test")):
        prompt, depth = 0, depth + prompt
    size = row.integer("model_size")
    if not prompt and not generated:
        row.refuse("n_prompt", "neither a prompt nor tokens to generate")
    point = Point(
        batch_size=row.count("batch_size") or 1,
        sequence_length=prompt or None,
        new_tokens=generated or None,
        axes=({"depth": depth} if depth else {}) | exported_axes(_own_json(row, "axes")),
    )
    values = array("d", (value / NS_PER_MS for value in row.numbers("samples_ns", low=0) or ()))
    if "samples_ns" not in row:  # scripts that shorten the output keep the speeds
        speeds = row.numbers("samples_ts", low=0) or ()
        values = array("d", ((prompt + generated) / speed * MS_PER_S for speed in speeds if speed))
    metrics: dict[str, float | None] = {"model_size_mb": None if size is None else bytes_to_mb(size)}
    samples = [block(0, values)]
    if values and not prompt:
        per_token = array("d", (value / generated for value in values))
        metrics["time_per_output_token_ms"] = median_of(per_token)
        samples.append(measured("time_per_output_token", per_token))
    rates: dict[str, float] = {}
    mean_ms = fmean(values) if values else 0.0
    if mean_ms > 0:
        rates["throughput_samples_per_sec"] = point.batch_size * MS_PER_S / mean_ms
    if not values:
        stated = {"latency_mean_ms": row.number("avg_ns", low=0), "latency_std_ms": row.number("stddev_ns", low=0)}
        rates |= {name: value / NS_PER_MS for name, value in stated.items() if value is not None}
    is_both = bool(point.sequence_length and point.new_tokens)
    speed = (row.unread_copy() if is_both else row).number("avg_ts", low=0)  # an export writes the one that is kept
    if is_both:
        rates |= {} if speed is None else {"total_tokens_per_sec": speed}
        speed = None
    if speed is None and (call_ms := mean_ms or rates.get("latency_mean_ms", 0.0)) > 0:
        speed = point.batch_size * (point.new_tokens or point.sequence_length or 0) / call_ms * MS_PER_S
    if speed is not None:
        rates["throughput_tokens_per_sec"] = speed
        if not is_both:
            rates["decode_tokens_per_sec" if point.new_tokens else "prefill_tokens_per_sec"] = speed
    metrics |= rates
    doubts: list[Doubt] = []
    compared = metrics.get("total_tokens_per_sec", metrics.get("throughput_tokens_per_sec"))
    of_mean = (prompt + generated) / mean_ms * MS_PER_S if mean_ms > 0 else None
    # With raw values, the mean of ratios is a doubt where it differs from the ratio of the totals.
    if compared is not None and "avg_ts" in row and (of_mean is None or abs(compared / of_mean - 1) > SAME_RATE):
        rate = {} if of_mean is None else {"tokens_over_time": of_mean}
        doubts.append(doubt("mean_of_ratios", "info", field="avg_ts", **rate))
    flash: Json = row.any("flash_attn")
    if AUTO_COLUMNS in row and flash is True:
        doubts.append(doubt("flash_attention_maybe_auto", "info", flash_attn=True))
    result = foreign_result(
        point,
        metrics=metrics,
        samples=[replace(sample, started_at=iso(started_at)) if started_at else sample for sample in samples],
        doubts=doubts,
        missing={} if values else {"latency_median_ms": NO_RAW},
        kept=row.rest(),
    )
    kinds = (row.text("doubts") or "").split(",")  # in an export of ours
    return setup, as_exported(result, kinds, row.text("validity")), started_at


def is_llama_bench(file: ForeignFile) -> bool:
    """Whether the file is one of the five outputs."""
    if data := _json_rows(file):
        return any(has_keys(row, NEEDED) for row in data)
    text = file.text or ""
    return bool(csv_header(file, IS_HEADER)) or _inserts(text) != [] or has_table(text, TEST_COLUMNS)


def _json_rows(file: ForeignFile) -> Sequence[Any]:
    return file.json if isinstance(file.json, list) else file.json_values


def _rows(file: ForeignFile) -> Iterator[Fields]:
    """The rows. Raises FormatError for any other file."""
    text = file.text or ""
    if data := _json_rows(file):
        yield from json_objects(file, data, "row", 0)
    elif csv_header(file, IS_HEADER):
        yield from csv_rows(file, IS_HEADER)
    elif _inserts(text):
        # llama-bench quotes values without escaping: one that contains quote, comma, space, quote is split wrongly.
        for number, found in enumerate(_inserts(text), 1):
            names = [name.strip() for name in found[1].split(",")]
            values = _escaped_values(found[2]) if "result_id" in names else found[2].split("', '")
            if len(names) == len(values):
                row = dict(zip(names, values, strict=True))
                yield Fields(file, row, f"INSERT {number}", numbers_are_text=True)
            else:
                file.leave_out(f"INSERT {number}", f"{len(values)} values for {len(names)} columns")
    elif has_table(text, TEST_COLUMNS):
        # Devices are printed above a table of tests, the build below it.
        for above, below, rows in tables(file, printed_lines(text), TEST_COLUMNS):
            gpus = gpus_in(above)
            build = BUILD.search(below) or BUILD.search(text)
            shared = {"build_commit": build[1], "build_number": build[2]} if build else {}
            own = list(rows)
            if own and not OF_A_CLIENT.isdisjoint(own[0][1]):
                file.leave_out(f"line {own[0][0]}", "a table of llama-benchy, a client of any server: it is not read")
                continue
            if own and "backend" not in own[0][1] and TOOL not in above and not BUILD.search(below):
                file.leave_out(f"line {own[0][0]}", f"a table without backend, which {TOOL} prints: of another engine")
                continue
            models = {tuple(cells.get(name) for name in ("model", "size", "params")) for _, cells in own}
            if len(models) == 1 and (model := model_above(above)):
                shared["model_above"] = model
            yield from understood(file, own, partial(_of_table, file, shared, gpus))
    else:
        file.refuse("not an output of llama-bench: expected JSON, JSON lines, CSV, SQL or a Markdown table")


def _inserts(text: str) -> list[re.Match[str]]:
    return [found for line in text.split("\n") if (found := INSERT.fullmatch(line.strip()))]


def _escaped_values(text: str) -> list[str]:
    """The values of an INSERT of ours, which escapes quotes and line ends, from between its outer quotes."""
    values, value, quoted, at = [], "", f"'{text}'", 0
    while found := ESCAPED.match(quoted, at):  # from the start of another quote the rest would be searched again
        (part, character), at = found.groups(), found.end()
        value += part.replace("''", "'") + (chr(int(character)) if character else "")
        if not character:
            values.append(value)
            value = ""
    return values


def _own_json(row: Fields, name: str) -> object:
    """What a column of an export of ours has as JSON; None for anything else."""
    try:
        return json.loads(row.text(name) or "null")
    except (ValueError, RecursionError):
        return None


def _of_table(
    file: ForeignFile,
    shared: Mapping[str, str],
    printed: Sequence[tuple[str, str]],
    numbered: tuple[int, Mapping[str, str]],
) -> Fields:
    """The JSON's fields from the table's test, speed, size and parameters, and those that are printed around it."""
    number, cells = numbered
    row = {MARKDOWN_NAMES.get(name, name): cell for name, cell in cells.items()}
    test, speed = TEST.fullmatch(row["test"]), SPEED.fullmatch(row["t/s"])
    if test is None or speed is None:
        file.refuse(f"line {number}: expected a test such as pp512 and a speed such as 7263.61 ± 90.94")
    sizes = dict(zip(("n_prompt", "n_gen", "n_depth"), (int(found or 0) for found in test.groups()), strict=True))
    # The printed names of the devices that the row's column names, or of all.
    chosen: list[str] = []
    for backend, index in NUMBERED.findall(row.get("devices", "")):
        own = [name for printer, name in printed if printer == printer_of(backend)]
        chosen += own[int(index) :][:1]
    names = chosen or [name for _, name in printed]
    fields = {
        **shared,
        **({"gpu_info": ", ".join(names)} if names else {}),
        **{name: cell for name, cell in row.items() if name not in ("test", "t/s", "size", "params")},
        **sizes,
        "avg_ts": speed[1],
        "stddev_ts": speed[2],
        "model_size": _scaled(row.get("size"), BINARY),
        "model_n_params": _scaled(row.get("params"), GROUP_OF_THREE),
    }
    return Fields(file, fields, f"line {number}", numbers_are_text=True)


def _scaled(cell: str | None, factors: dict[str, float] | dict[str, int]) -> int | None:
    """The number in "4.36 GiB" or "7.62 B", exact to three digits."""
    value, _, unit = (cell or "").partition(" ")
    try:
        return round(float(value) * factors[unit])
    except (KeyError, ValueError, OverflowError):
        return None


PLUGIN = Format(
    name="llama_bench",
    summary="llama.cpp's llama-bench: -o json, jsonl, csv, sql and md",
    definitions=DEFINITIONS,
    recognises=is_llama_bench,
    read=read_llama_bench,
)
