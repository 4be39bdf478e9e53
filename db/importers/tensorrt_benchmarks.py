"""The benchmarks of TensorRT and TensorRT-LLM.

trtexec has a log, and the times of every query (--exportTimes). A query is one call of the engine. Its latency covers
the copy to the device, the computation and the copy back, without waiting for other queries; all times are in ms. The
log contains whole runs, one per command.

trtllm-bench has --report_json of a throughput or latency benchmark, --request_json, and what it prints. The report has
statistics in ms; the list of requests has times in ns from a clock without a date. Neither states the rate or
concurrency of the requests. The printed sections have the report's numbers with four decimals.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import datetime
from typing import Any

from benchmarking.core.doubts import doubt
from benchmarking.core.metrics import BYTES_PER_GIB, BYTES_PER_MIB, MS_PER_S, NS_PER_MS, NS_PER_S
from benchmarking.core.records import NOT_APPLICABLE, Json, Point, Precision, Result, Samples, Scalar
from benchmarking.core.untrusted.redaction import cut_to
from db.importers.support.building import ForeignRun, Format, precision_of, shaped, unnamed
from db.importers.support.files import ForeignFile
from db.importers.support.measures import BATCH_NOT_STATED, foreign_result, measured, medians
from db.importers.support.reading import (
    Fields,
    agreed,
    commands_of,
    flags_of,
    has_keys,
    json_objects,
    parsed_number,
    printed_lines,
    resolved,
    top_fields,
    understood,
    words_of,
)
from db.importers.support.serving import (
    GPU_COUNTS,
    NOT_STATED,
    UNLIMITED,
    Sent,
    device_count,
    latency_columns,
    load_mode,
    load_result,
    named_statistics,
    requests_record,
    same_length,
    token_columns,
    with_requests,
)

TRTEXEC_COMMAND = re.compile(r"&&&& RUNNING TensorRT\.trtexec(?: \[TensorRT v(\d+)\])?.*? # (.*)$", re.MULTILINE)
TRTEXEC_SUMMARY = "=== Performance summary ==="
FAILED = doubt("command_failed", "invalid", n=1, of=1)
"""Of a log with times that ends in FAILED."""
SECTION = re.compile(r"\[I\] (Host Latency|GPU Compute|Enqueue Time)\s*$", re.MULTILINE)
"""Title of a section of TensorRT 7's log, whose statistics are one to a line."""
BEGINS = re.compile(
    rf"(&&&& RUNNING TensorRT\.trtexec)|(=== Model Options ===)|({TRTEXEC_SUMMARY})|(\[I\] Host Latency\s*$)",
    re.MULTILINE,
)
"""What a run begins with, in its order in a log: one that is not further on than the one before begins another run."""
SECTIONS = {"Host Latency": "latency", "GPU Compute": "gpu_compute", "Enqueue Time": "enqueue"}
OF_SECTION = re.compile(
    r"\[I\] (?:(min|max|mean|median): ([-+.\deE]+) ms|percentile: ([-+.\deE]+) ms at (\d+(?:\.\d+)?)%)"
    r"(?: \(end to end ([-+.\deE]+) ms(?: at [\d.]+%)?\))?"
)
TIME = re.compile(r"\[(\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d)\]")
STAGES = {
    "Latency": "latency",
    "End-to-End Host Latency": "end_to_end",
    "Enqueue Time": "enqueue",
    "H2D Latency": "h2d",
    "GPU Compute Time": "gpu_compute",
    "D2H Latency": "d2h",
}
LINE = re.compile(rf"\] ({'|'.join(STAGES)}): (min = .*)$", re.MULTILINE)
VALUE = re.compile(r"(min|max|mean|median|percentile\((\d+(?:\.\d+)?)%\)) = ([-+.\deE]+) ms")
THROUGHPUT = re.compile(r"\] [Tt]hroughput: ([-+.\deE]+) qps")
WALL = re.compile(r"\] (?:Total Host Walltime|walltime): ([-+.\deE]+) s")
QUERIES = re.compile(r"Timing trace has (\d{1,15}) queries")
WARM_UP = re.compile(r"Warmup completed (\d{1,15}) queries")
TRTEXEC_STATED = {
    "model": re.compile(r"\] Model: (\S(?:.*\S)?)\s*$", re.MULTILINE),
    "device": re.compile(r"\] Selected Device: (.*\S)\s*$", re.MULTILINE),
    "memory_mib": re.compile(r"\] Device Global Memory: (\d{1,9}) MiB"),
    "precision": re.compile(r"\] Precision: (.*\S)\s*$", re.MULTILINE),
    "version": re.compile(r"\] TensorRT version: (\S+)"),
    "implicit_batch": re.compile(r"\] Batch: (\d{1,9})\s*$", re.MULTILINE),
    "streams": re.compile(r"\] (?:Inference )?Streams: (\d{1,9})\s*$", re.MULTILINE),
}
HAS_TF32 = re.compile(r"\] (?:TF32 is enabled by default|Compute Capability: (\d{1,3})\.\d)")
"""What is printed on a GPU with TF32 alone, and of every GPU."""
INPUT_SHAPES = re.compile(r"\] Input inference shapes?\s*: ?(\S.*)$", re.MULTILINE)
SHAPE = re.compile(r"(?<![^,\s])([^,\s]*?)[:=](\d{1,9}(?:x\d{1,9})*)(?=[,\s]|$)")
BUILT_FOR = ("fp16", "bf16", "int8", "fp8", "int4")
"""Flags of the precisions beside FP32 that the builder may choose."""
FILES = ("onnx", "loadEngine", "uff", "model")
"""Flags of the model's file."""
NO_SETTING = (
    *FILES,
    *BUILT_FOR,
    *("deploy", "explicitBatch", "nvtxMode", "remoteAutoTuningConfig"),
    *("batch", "shapes", "streams", "infStreams", "input", "output", "device", "loadInputs"),
    *("iterations", "duration", "warmUp", "avgRuns", "percentile", "skipInference", "buildOnly", "separateProfileRun"),
    *("timeDeserialize", "timeRefit", "calib", "saveEngine", "timingCacheFile", "noBuilderCache", "asyncFileReader"),
    *("tempdir", "tempfileControls", "leanDLLPath", "monitorMemory", "profilingVerbosity", "verbose", "v"),
    *("consistency", "dumpProfile"),
    *("dumpRefit", "dumpOutput", "dumpRawBindingsToFile", "dumpLayerInfo", "dumpOptimizationProfile", "dumpKernelText"),
    *("exportTimes", "exportOutput", "exportProfile", "exportLayerInfo", "getPlanVersionOnly"),
)
"""Flags that change neither what a query does nor how its engine is built, and those that are read on their own. All
others distinguish series, also those that are not known here."""
PRINTED_SETTINGS = {
    "useDLACore": re.compile(r"\] DLACore: ?(\d+)(?:\(.*\))?\s*$", re.MULTILINE),
    "useCudaGraph": re.compile(r"\] CUDA Graph: Enabled"),
    "useSpinWait": re.compile(r"\] Spin-wait: Enabled"),
    "exposeDMA": re.compile(r"\] ExposeDMA: Enabled"),
    "noDataTransfers": re.compile(r"\] Data transfers: Disabled"),
}
"""The same in the options that the log repeats, for one without its command."""
DEFAULT_WARM_UP_MS = 200.0
FIELDS = {"latencyMs": "latency_wall", "computeMs": "latency_device", "h2dMs": "h2d", "d2hMs": "d2h"}
"""Field of --exportTimes -> metric of its samples; others keep their names."""
TRTEXEC_DEFINITIONS = {
    "precision": "FP32 is tf32 unless the command says --noTF32 or the GPU has no TF32",
    "latency": "H2D + GPU compute + D2H of a query, by the device's events; percentiles are nearest ranks",
    "latency_device": "GPU compute time of a query",
    "end_to_end": "from the start of a query's H2D to the end of its D2H, waiting included",
    "enqueue": "host time to enqueue a query",
    "queries_per_sec": "queries over the wall time of all of them; with an implicit batch samples over it",
    "throughput_samples_per_sec": "queries_per_sec times the batch size of a query's shapes",
    "warm-up": f"in --exportTimes, queries whose computation began in the first {DEFAULT_WARM_UP_MS:g} ms, the default",
}

PARTS = {"engine", "world_info", "request_info", "performance"}
REQUEST = {"num_input_tokens", "start_timestamp", "first_token_timestamp", "end_timestamp", "decode_iteration"}
OUTPUT_TOKENS = ("num_output_tokens", "num_total_output_tokens", "output_tokens")
STATISTICS = ("average", "minimum", "p50", "p90", "p95", "p99", "maximum")
WORDS = {"mean": "average", "median": "p50", "min": "minimum", "max": "maximum"}
TRTLLM_COLUMNS = {**latency_columns("request_latency", WORDS), **token_columns("ttft", "tpot", "p50")}
TRTLLM_RATES = {
    "request_throughput_req_s": "throughput_samples_per_sec",
    "system_output_throughput_tok_s": "throughput_tokens_per_sec",
    "system_total_throughput_tok_s": "total_tokens_per_sec",
    "output_throughput_per_user_tok_s": "output_tokens_per_sec_per_user",
    "output_throughput_per_gpu_tok_s": "output_tokens_per_sec_per_gpu",
}
ENERGY = {
    "total_energy_j": "energy_total_j",
    "average_gpu_power": "power_mean_w",
    "output_tps_per_w": "output_tokens_per_j",
}
PARALLEL = ("tp_size", "pp_size", "ep_size")
NO_LIMIT = (
    *("model", "version", "dtype", "backend", "quantization", "kv_cache_dtype"),
    *(*PARALLEL, *GPU_COUNTS, "issue_rate"),
)
"""Fields of the engine and its world that set no limit."""
NOT_STREAMED: Mapping[str, Scalar] = {"streaming": False}
DEFAULT_LIMITS = {"kv_cache_percentage": ("0.9",)}
TRTLLM_DEFINITIONS = {
    "latency": "request_latency: from submitting a request to its last token; a request may wait in the engine",
    "time_to_first_token_ms": "p50 of ttft: from submitting a request to its first token",
    "time_per_output_token_ms": "p50 of tpot: (end - first token) / (output tokens - 1) of each request",
    "p50, p90, p95, p99": "the value at position n * p of the n sorted ones: no interpolation",
    "throughput_samples_per_sec": "requests over the time from the first one's start to the last one's end",
    "throughput_tokens_per_sec": "output tokens over that time, the first of each request among them",
    "output_tokens_per_sec_per_user": "mean over the requests of output tokens over their latency",
}

TITLE = re.compile(r"^\W*= (ENGINE DETAILS|PYTORCH BACKEND|[\w -]*BACKEND|PERFORMANCE OVERVIEW|STATISTICS)\s*$", re.I)
OVERVIEW = ("PERFORMANCE OVERVIEW", "STATISTICS")
BENCH_COMMAND = re.compile(r"trtllm-bench .{0,200}?(?:--?\w|\\\s*$)")
"""The first line of a command."""
DATASET_ROW = re.compile(r"^\W*(MIN|MAX|AVG):\s+([\d.]+)\s+([\d.]+)\s+[\d.]+\s*$")
"""Lengths of the planned prompts and answers, below "DATASET DETAILS"."""
DECIMALS = 4
"""Of a printed number."""
DATASET_WORDS = {"MIN": "minimum", "MAX": "maximum", "AVG": "average"}
ENDS = re.compile(r"= ?(?:DATASET DETAILS|[\w ]{1,40} Benchmark Result) ?=*\s*$", re.I)
"""The last section, or the title of another tool's result."""
OF_OTHER_TOOLS = ("req/s", "tok/s")
"""Units of vLLM's and SGLang's labels, which are the same words."""
PRINTED = re.compile(r"^\W*([A-Z][A-Za-z/ -]*[A-Za-z])(?: \[[^\]]*\])?(?: \(([^)]*)\))?:\s+(\S(?:.*\S)?)\s*$")
PRINTED_STATISTIC = re.compile(
    r"^\W*\[(TPOT|TTFT|Latency)\] (MINIMUM|MAXIMUM|AVERAGE|P50|P90|P95|P99)\s*:\s*(\S+)\s*$", re.I
)
OF_COMMAND = {
    "model": ("engine", "model"),
    "backend": ("engine", "backend"),
    **{name: ("world_info", f"{name}_size") for name in ("tp", "pp", "ep")},
    "max_batch_size": ("world_info", "max_batch_size"),
    "max_num_tokens": ("world_info", "max_num_tokens"),
    "kv_cache_free_gpu_mem_fraction": ("world_info", "kv_cache_percentage"),
    "num_requests": ("request_info", "num_requests"),
}
"""Flag of the command -> section and field of the report, for a printed one without that section."""
OF_NO_EFFECT = (
    *(*OF_COMMAND, "concurrency", "streaming", "dataset", "workspace", "warmup", "no_skip_tokenizer_init"),
    *("tokenizer", "report_json", "output_json", "request_json"),
)
"""Flags of the command that are read on their own, or change no number. All others distinguish series."""
PRINTED_GPU = re.compile(r"^\W{0,100}([^,:]{1,100}), memory ([\d.]+) GB,")
"""The GPU below "MACHINE DETAILS"."""
LABELS: Mapping[str, tuple[str, str]] = {
    "model": ("engine", "model"),
    "tensorrt-llm version": ("engine", "version"),
    "tensorrt llm version": ("engine", "version"),
    "dtype": ("engine", "dtype"),
    "kv cache dtype": ("engine", "kv_cache_dtype"),
    "quantization": ("engine", "quantization"),
    "max input length": ("engine", "max_input_length"),
    "max sequence length": ("engine", "max_sequence_length"),
    **{f"{name} size": ("world_info", f"{name}_size") for name in ("tp", "pp", "ep")},
    "max runtime batch size": ("world_info", "max_batch_size"),
    "max runtime tokens": ("world_info", "max_num_tokens"),
    "scheduling policy": ("world_info", "scheduling_policy"),
    "kv memory percentage": ("world_info", "kv_cache_percentage"),
    "number of requests": ("request_info", "num_requests"),
    "number of concurrent requests": ("request_info", "avg_num_concurrent_requests"),
    "average input length": ("request_info", "avg_input_length"),
    "average output length": ("request_info", "avg_output_length"),
    "request throughput": ("performance", "request_throughput_req_s"),
    "token throughput": ("performance", "system_output_throughput_tok_s"),
    "total output throughput": ("performance", "system_output_throughput_tok_s"),
    "total token throughput": ("performance", "system_total_throughput_tok_s"),
    "per user output throughput": ("performance", "output_throughput_per_user_tok_s"),
    "per gpu output throughput": ("performance", "output_throughput_per_gpu_tok_s"),
    "total latency": ("performance", "total_latency_ms"),
}
"""Printed label -> section and field of the report."""
MOST_OTHERS = 40
"""Maximum other labels that are kept: a log goes on after its results."""
TIMES: Mapping[str, tuple[str, str]] = {
    "request_latency": ("performance", "request_latency_percentiles_ms"),
    "ttft": ("streaming_metrics", "ttft_percentiles"),
    "tpot": ("streaming_metrics", "tpot_percentiles"),
}
"""Metric -> section and field of its percentiles in the report; its average may be beside them as avg_METRIC_ms."""
AVERAGES = {
    "average request latency": "request_latency",
    "average time-to-first-token": "ttft",
    "average time-per-output-token": "tpot",
}


def is_trtexec(file: ForeignFile) -> bool:
    data = file.json
    if data is None:
        text = file.text or ""
        has_numbers = (TRTEXEC_SUMMARY in text and LINE.search(text)) or (
            SECTION.search(text) and OF_SECTION.search(text)
        )
        return bool(has_numbers or TRTEXEC_COMMAND.search(text))
    rows = data if isinstance(data, list) else []
    return any(has_keys(one, {"computeMs", "latencyMs"}) for one in rows)


def read_trtexec(file: ForeignFile) -> Iterator[ForeignRun]:
    if file.json is not None:
        for index, queries in enumerate(file.json_lists):
            yield _of_times(Fields(file, {"queries": queries}).objects("queries") or (), index)
        return
    for index, (part, above) in enumerate(_parts(file.text or "")):
        yield _of_log(file, part, above, index)


def _of_times(queries: Sequence[Fields], index: int) -> ForeignRun:
    # Only files of older versions contain the warm-up.
    begins = [query.number("startComputeMs") for query in queries]
    warm = sum(begin is not None and begin < DEFAULT_WARM_UP_MS for begin in begins)
    warm = warm if warm < len(queries) else 0
    samples: list[Samples] = []
    for name in dict.fromkeys(name for query in queries for name in query):
        if values := [value for query in queries if (value := query.number(name)) is not None]:
            metric = FIELDS.get(name, name)
            samples += [measured(metric, values[:warm], phase="warmup"), measured(metric, values[warm:])]
    result = foreign_result(Point(batch_size=1), samples=samples, warmup_iterations=warm, doubts=(BATCH_NOT_STATED,))
    key = str(index or "")
    return ForeignRun(key=key, model_id=unnamed(index), runtime="tensorrt", device_type="cuda", results=[result])


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """The part of each run in a text, and what stands above it since the result of the run before."""
    found = list(BEGINS.finditer(text))
    orders = [one.lastindex or 0 for one in found]
    begins = [0, *(at for at in range(1, len(found)) if orders[at] <= orders[at - 1])]
    starts = [found[at].start() for at in begins] if found else [len(text)]
    # A log that was cut out without its command begins anywhere.
    firsts = [starts[0] if found and orders[0] == 1 else 0, *starts[1:]]
    ends, above = [*starts[1:], len(text)], [0, *(found[at - 1].end() for at in begins[1:])]
    for first, start, end, since in zip(firsts, starts, ends, above, strict=True):
        yield text[first:end], text[since:start]


def _given(command: str) -> dict[str, str]:
    """The flags of a command with their values; "" for none."""
    words = (word.lstrip("-").partition("=") for word in words_of(command) if re.match(r"--?\w", word))
    return {flag: value.strip("\"'") for flag, _, value in words}


def _version(digits: str) -> str:
    """8601 as 8.6.1, and 100300 as 10.3.0: since version 10 the first two parts have two digits each."""
    major, rest = divmod(int(digits), 1000 if len(digits) == 4 else 10_000)
    return f"{major}.{rest // 100}.{rest % 100}"


def _model_name(path: str) -> str:
    folder, name = ["", *re.split(r"[/\\]", path)][-2:]
    name = name.rpartition(".")[0] or name
    return folder if name == "model" and folder not in ("", ".", "..", "models") else name  # an exporter's default name


def _of_log(file: ForeignFile, part: str, above: str, index: int) -> ForeignRun:
    """The run of one command, from its part of the log and what stands above that."""
    found = {name: match[1] if (match := pattern.search(part)) else None for name, pattern in TRTEXEC_STATED.items()}
    command, times = TRTEXEC_COMMAND.search(part), TIME.findall(part)
    # Without a logged command those that are written above, but one that built the engine of another.
    logged = [command[2]] if command else []
    typed = commands_of("trtexec", "\n".join(line for line in above.splitlines() if "&&&&" not in line))
    loaded = {_given(one).get("loadEngine", "") for one in typed}
    typed = [one for one in typed if _given(one) and _given(one).get("saveEngine", one) not in loaded]
    given = agreed([_given(one) for one in logged or typed])
    given = given if logged else resolved(given)
    path = next((value for flag, value in given.items() if flag in FILES), "")
    name = _model_name(found["model"] or path)
    if name != _model_name(path) and not command:
        typed, given = [], {}  # of another run
    others = [flag.upper() for flag in BUILT_FOR if flag in given]
    precision = found["precision"] or ("+".join(["FP32", *others]) if others else None)
    if "loadEngine" in given:  # then the stated precision does not describe a build
        precision = None
    streams = found["streams"] or given.get("infStreams") or given.get("streams")
    implicit = found["implicit_batch"]
    if implicit is None and "] Batch: " not in part and re.fullmatch(r"[1-9]\d{0,8}", given.get("batch", "")):
        implicit = given["batch"]
    # Without shapes of their own, queries have the best ones of the build.
    stated_shapes = (",".join(INPUT_SHAPES.findall(part)), given.get("shapes", ""), given.get("optShapes", ""))
    queried = _shapes(*stated_shapes)
    batch, point, shapes = _sizes(queried, implicit)
    options = Fields(file, {flag: value or True for flag, value in given.items()})
    best = given.get("optShapes", "")
    # An engine is tuned for its best shapes and built for its largest batch, which are the queries' unless given.
    standard = {
        "optShapes": [best] if _shapes(best) == queried else [],
        "maxBatch": [given.get("batch", implicit or "")],
        "useProfile": ["0"],
    }
    mode: dict[str, Scalar | None] = {**options.other_settings(NO_SETTING, standard)}
    if given.keys() & {"dumpProfile", "exportProfile"} and "separateProfileRun" not in given:
        mode["dumpProfile"] = True  # each layer of the measured queries is timed
    for setting, pattern in PRINTED_SETTINGS.items():
        if printed := pattern.search(part):
            mode.setdefault(setting, printed[1] if pattern.groups else True)
    core = mode.pop("useDLACore", None)
    mode |= {"precisions": precision or None, "shapes": shapes or None}
    mode |= {"streams": streams if streams not in ("", "1") else None}
    memory = found["memory_mib"]
    return ForeignRun(
        key=str(index),
        model_id=name or unnamed(index if logged or typed else 0),
        results=[_of_summary(file, part, batch, point, implicit)],
        started_at=_time(times[0]) if times else None,
        finished_at=_time(times[-1]) if times else None,
        stated_times=[time.isoformat() for one in times[:1] if (time := _time(one))],
        runtime="tensorrt",
        runtime_mode=mode,
        precision=_precision(precision, part, {"noTF32" in _given(one) for one in logged or typed}),
        device_type="cuda" if core is None else "dla",
        device_selector=None if core is None else f"dla:{core}",
        device_name=found["device"],
        device_memory_bytes=int(memory) * BYTES_PER_MIB if memory else None,
        tool_version=found["version"] or (_version(command[1]) if command and command[1] else None),
        versions={"tensorrt": found["version"]},
        command=words_of((logged or (typed if len(typed) == 1 else [""]))[0]),
    )


def _precision(stated: str | None, part: str, is_turned_off: Set[bool]) -> Precision:
    """The precision of an engine; several words are a choice, which the builder makes for each layer. FP32 is rounded
    to TF32 where the GPU has it (since compute capability 8.0), unless the command, if it is known, turns that off."""
    if stated != "FP32":
        return precision_of(stated)
    found = HAS_TF32.search(part)
    if is_turned_off == {True} or (found and found[1] and int(found[1]) < 8):
        return "float32"
    return "tf32" if found and is_turned_off == {False} else "unknown"


def _shapes(*stated: str) -> dict[str, str]:
    """The shapes by input, from the first text that has any."""
    shapes: dict[str, str] = {}
    for name, shape in next(filter(None, (SHAPE.findall(re.sub("[\"']", "", text)) for text in stated)), ()):
        shapes.setdefault(name, shape)
    return shapes


def _sizes(shapes: Mapping[str, str], implicit_batch: str | None) -> tuple[int, Point, str]:
    """The batch of a query, 0 if it is not stated; its point; and its shapes, if they are no sequence and no square
    image."""
    first = next((shape for shape in shapes.values() if "x" in shape), "0")
    batch = int(implicit_batch or first.partition("x")[0])
    sizes = {} if implicit_batch else {name: tuple(map(int, shape.split("x"))) for name, shape in shapes.items()}
    return batch, *shaped(Point(batch_size=batch or 1), sizes)


def _time(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, "%m/%d/%Y-%H:%M:%S")
    except ValueError:
        return None


def _of_summary(file: ForeignFile, text: str, batch: int, point: Point, implicit_batch: str | None) -> Result:
    stated: dict[str, float | None] = {}
    titles = list(SECTION.finditer(text))  # of a log of TensorRT 7; newer ones have none
    for title, following in zip(titles, [*(match.start() for match in titles[1:]), len(text)], strict=False):
        for statistic, value, at_percentile, percentile, end_to_end in OF_SECTION.findall(text, title.end(), following):
            word = statistic or f"p{percentile}".replace(".", "_")
            stated[f"{SECTIONS[title[1]]}_{word}_ms"] = _number(file, value or at_percentile)
            if end_to_end:
                stated[f"end_to_end_{word}_ms"] = _number(file, end_to_end)
    if TRTEXEC_SUMMARY not in text and not stated:
        error = re.search(r"\[E\] (.+)", text)
        failure = "the log has no performance summary: inference did not run to its end"
        if error is not None:
            failure = cut_to(error[1].strip(), 2000)
        return foreign_result(point, status="failed", error=failure)
    for stage, line in LINE.findall(text):
        for statistic, percentile, value in VALUE.findall(line):
            column = f"{STAGES[stage]}_{f'p{percentile}'.replace('.', '_') if percentile else statistic}_ms"
            stated[column] = _number(file, value)
    queries, warm_up = QUERIES.search(text), WARM_UP.search(text)
    rate, wall = THROUGHPUT.search(text), WALL.search(text)
    per_sec = _number(file, rate[1]) if rate else None
    missing = {}
    if per_sec == 0 and stated.get("latency_mean_ms"):
        per_sec, missing["queries_per_sec"] = None, "left_out: 0 qps in the log, although queries were timed"
    for copy in ("h2d", "d2h"):
        if stated.get(f"{copy}_max_ms") == 0:  # --noDataTransfers
            unmeasured = [name for name in stated if name.startswith(f"{copy}_")]
            missing |= dict.fromkeys(unmeasured, f"{NOT_APPLICABLE}: 0 ms in the log: nothing was copied")
            stated = {name: value for name, value in stated.items() if name not in unmeasured}
    each = int(implicit_batch or 1)
    kept: list[Json] = [line.strip() for line in text.partition(TRTEXEC_SUMMARY)[2].splitlines() if "[W]" in line]
    return foreign_result(
        point,
        metrics={
            "queries_per_sec": per_sec,
            "throughput_samples_per_sec": per_sec * (batch // each) if per_sec is not None and batch else None,
            "duration_s": _number(file, wall[1]) if wall else None,
        },
        stated=stated,
        iterations=int(queries[1]) // each or None if queries else None,
        warmup_iterations=int(warm_up[1]) // each if warm_up else None,
        doubts=[*(() if batch else (BATCH_NOT_STATED,)), *((FAILED,) if "&&&& FAILED" in text else ())],
        missing=missing,
        kept={"warnings": kept} if kept else {},
    )


def _number(file: ForeignFile, text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        file.leave_out("", f"expected a number, found {file.beginning(text)!r}")
        return None


def is_trtllm_bench(file: ForeignFile) -> bool:
    data = file.json
    if data is None and not file.json_lines:
        return "Request Throughput (req/sec):" in (file.text or "") and bool(_printed(file))
    if isinstance(data, dict):
        performance = data.get("performance")
        return data.keys() >= PARTS and isinstance(performance, dict) and "request_throughput_req_s" in performance
    return isinstance(data, list) and any(has_keys(one, REQUEST) for one in data)


def read_trtllm_bench(file: ForeignFile) -> Iterator[ForeignRun]:
    if isinstance(file.json, list):
        for index, listed in enumerate(file.json_lists):
            requests = list(json_objects(file, listed, "request"))
            result = _of_requests(requests)
            is_streamed = any(one.metric == "time_to_first_token" for one in result.samples)
            yield ForeignRun(
                key=str(index or ""),
                model_id=unnamed(index),
                task="text-generation",
                results=[result],
                runtime="tensorrt-llm",
                runtime_mode={**load_mode(result), **({} if is_streamed else NOT_STREAMED)},
                device_type="cuda",
                kept={"requests": [request.rest() for request in requests]},
            )
        return
    tops = [top_fields(file)] if file.json is not None else _printed(file)
    yield from understood(file, enumerate(tops), lambda one: _run_of_report(one[1], one[0]))


def _printed(file: ForeignFile) -> list[Fields]:
    """The printed results in the form of the report, each named by the line it begins in, with the settings of the
    command above it."""
    found: list[tuple[int, dict[str, dict[str, Any]]]] = []
    lines, is_open, command_at = printed_lines(file.text or ""), False, 0
    dataset: dict[str, Any] = {}
    for number, line in enumerate(lines, 1):
        command_at = number if BENCH_COMMAND.search(line) else command_at
        if title := TITLE.search(line):
            is_overview = title[1].upper() in OVERVIEW
            if not is_open or not is_overview or "performance" in found[-1][1]:
                found.append((number, {}))
            backend, is_backend, _ = title[1].upper().partition(" BACKEND")
            if is_backend:
                found[-1][1]["title"] = {"backend": backend.strip().capitalize()}
            is_open = True
            continue
        labelled = PRINTED.search(line)
        label, unit = (labelled[1].lower(), labelled[2] or "") if labelled else ("", "")
        if ENDS.search(line) or unit in OF_OTHER_TOOLS:
            is_open, label = False, ""
            dataset = found[-1][1].setdefault("dataset", {}) if found and "DATASET" in line.upper() else {}
        if lengths := DATASET_ROW.search(line):
            for section, length in zip(("isl_stats", "osl_stats"), lengths.groups()[1:], strict=True):
                dataset.setdefault(section, {}).setdefault(DATASET_WORDS[lengths[1]], length)
            continue
        section, name = LABELS.get(label, ("", ""))
        if section == "performance" and (not is_open or name in found[-1][1].get(section, {})):
            # Without its title it is a result if a command is above it, and otherwise somebody's own summary.
            is_open = command_at > (found[-1][0] if found else 0)
            found += [(number, {})] if is_open else []
        if not found:
            continue
        report = found[-1][1]
        if is_open and (one := PRINTED_STATISTIC.search(line)):
            section, name = TIMES[one[1].lower().replace("latency", "request_latency")]
            report.setdefault(section, {}).setdefault(name, {}).setdefault(one[2].lower(), one[3])
        elif is_open and (gpu := PRINTED_GPU.search(line)):
            report.setdefault("machine", {"name": gpu[1], "memory.total": gpu[2]})
        elif labelled:
            text = labelled[3].removesuffix("%")
            if label in AVERAGES and is_open:
                section, name = TIMES[AVERAGES[label]]
                report.setdefault(section, {}).setdefault(name, {}).setdefault("average", text)
            elif label in LABELS and is_open and text != "None":
                section, name = LABELS[label]
                value = parsed_number(text) if section == "world_info" else text
                if name == "kv_cache_percentage" and isinstance(value, int | float):
                    value = round(value / 100, 6)
                if label == "total latency" and unit == "seconds":
                    seconds = parsed_number(text)
                    value = text if isinstance(seconds, str) else seconds * MS_PER_S
                report.setdefault(section, {}).setdefault(name, value)
            elif len(others := report.setdefault("printed", {})) < MOST_OTHERS:
                others.setdefault(labelled[1], labelled[3])
    found = [one for one in found if "request_throughput_req_s" in one[1].get("performance", {})]
    for (number, report), since in zip(found, [0, *(number for number, _ in found)], strict=False):
        commands = commands_of("trtllm-bench", "\n".join(lines[since : number - 1]))
        several = [flags_of(one, {"m": "model"}) for one in commands]
        given = resolved(agreed(several)) | (
            {"streaming": "True"} if any("streaming" in one for one in several) else {}
        )
        stated = set(report)
        for name, (section, field) in OF_COMMAND.items():
            if name in given and (section not in stated or name == "num_requests"):
                report.setdefault(section, {}).setdefault(field, parsed_number(given[name]))
        for field, word in report.pop("title", {}).items():
            report.setdefault("engine", {}).setdefault(field, word)
        if given:
            report["above"] = given
    return [Fields(file, report, f"line {number}", numbers_are_text=True) for number, report in found]


def _run_of_report(top: Fields, place: int) -> ForeignRun:
    engine, machine, world, command = (top.section(name) for name in ("engine", "machine", "world_info", "above"))
    limit = str(command.peek("concurrency"))
    concurrency = int(limit) if re.fullmatch(r"[1-9]\d{0,8}", limit) else None
    memory_gib = machine.number("memory.total", low=0)
    decoding = top.section("decoding_stats").unread_copy()
    words = {name: engine.text(name) for name in ("backend", "quantization", "kv_cache_dtype")}
    mode: dict[str, Scalar | None] = {name: word or None for name, word in words.items()}
    mode |= {"speculation": decoding.text("mode")}
    for part in (engine, world):
        mode |= part.other_settings(NO_LIMIT, DEFAULT_LIMITS)
    mode |= command.other_settings(OF_NO_EFFECT)
    mode |= {name: size for name in PARALLEL if (size := world.integer(name)) is not None and size > 1}
    requests, performance, streaming = (
        top.section(name) for name in ("request_info", "performance", "streaming_metrics")
    )
    is_streamed = "streaming_metrics" in top or "streaming" in command
    dataset = top.section("dataset").unread_copy()
    total_ms = performance.number("total_latency_ms", low=0)
    stated: dict[str, float | None] = {
        "duration_s": None if total_ms is None else total_ms / MS_PER_S,
        "concurrency_mean": requests.number("avg_num_concurrent_requests", low=0),
        "output_tokens_mean": requests.number("avg_output_length", low=0),
        **performance.metrics(TRTLLM_RATES, low=0),
        **top.section("energy").unread_copy().metrics(ENERGY, low=0),
    }
    for metric, (section, name) in TIMES.items():
        fields = performance if section == "performance" else streaming
        times = fields.section(name)
        average = fields.unread_copy().number(f"avg_{metric}_ms", low=0)  # beside the percentiles, or among them
        stated |= named_statistics(metric, {"average": average}, TRTLLM_COLUMNS)
        stated |= named_statistics(metric, {one: times.number(one, low=0) for one in STATISTICS}, TRTLLM_COLUMNS)
    rate = decoding.section("draft_acceptance_rate_percentiles").number("average", low=0)
    of_draft = {
        "spec_decode_acceptance_percent": None if rate is None else 100 * rate,
        "spec_decode_acceptance_length": decoding.section("acceptance_length_percentiles").number("average", low=0),
    }
    # Lengths of the data are those of all requests if their mean is the same: answers may end early, prompts get more.
    means = requests.number("avg_input_length", low=0), stated["output_tokens_mean"]
    planned, lengths = [], []
    for word, mean in zip(("isl", "osl"), means, strict=True):  # older versions state the mean and the maximum
        ends, older = dataset.section(f"{word}_stats"), [dataset.number(f"{one}_{word}") for one in ("avg", "max")]
        planned.append(same_length(ends.number("minimum"), ends.number("maximum")) or same_length(*older))
        lengths.append(planned[-1] if mean is not None and round(mean, DECIMALS) == planned[-1] else None)
    # Of a printed overview alone the GPUs are in its throughput of one.
    all_gpus, one = (stated.get(name) for name in ("throughput_tokens_per_sec", "output_tokens_per_sec_per_gpu"))
    gpus = round(all_gpus / one) if all_gpus and one and "world_info" not in top else 1
    ends = dataset.section("osl_stats")
    mean_planned = dataset.number("avg_osl", low=0) or ends.number("average", low=0)  # of the data, not of the answers
    result = load_result(
        concurrency=concurrency,
        unlimited=UNLIMITED if limit == "-1" else NOT_STATED,
        axes=_load_axes(requests.integer("num_requests"), None if concurrency else stated["concurrency_mean"]),
        prompt_tokens=lengths[0],
        prompt_tokens_mean=means[0],
        prompt_tokens_requested=planned[0],
        new_tokens=lengths[1],
        new_tokens_requested=mean_planned,
        requests=requests.integer("num_requests"),
        stated={**stated, **of_draft},
    )
    return ForeignRun(
        key=str(place) if place else "",
        model_id=engine.text("model") or "unknown",
        task="text-generation",
        results=[result],
        device_type="cuda" if "name" in machine else "unknown",
        device_name=machine.text("name"),
        device_count=world.count("world_size") or device_count(world) or gpus,
        device_memory_bytes=None if memory_gib is None else round(memory_gib * BYTES_PER_GIB),
        runtime="tensorrt-llm",
        runtime_mode={**load_mode(result), **mode, **({} if is_streamed else NOT_STREAMED)},
        precision_word=engine.text("dtype"),
        versions={"tensorrt_llm": engine.text("version")},
        kept=top.rest(),
    )


def _load_axes(requests: int | None, in_flight: float | None) -> dict[str, int | float]:
    """What tells loads of trtllm-bench apart, which states no limit of requests in flight: their number, and the power
    of two next to the mean in flight, which varies by little."""
    axes: dict[str, int | float] = {"num_requests": requests} if requests else {}
    return axes | ({"in_flight_about": 2 ** round(math.log2(max(1.0, in_flight)))} if in_flight else {})


def _of_requests(requests: list[Fields]) -> Result:
    starts, ends, inputs = array("q"), array("q"), array("q")
    outputs: list[int | None] = []
    times: Mapping[str, array[float]] = {
        name: array("d") for name in ("latency_wall", "time_to_first_token", "time_per_output_token")
    }
    failed, sent = 0, []
    for one, start, first, end, tokens_in in understood(requests[0].file, requests, _times_of):
        counted_as = next((name for name in OUTPUT_TOKENS if name in one), OUTPUT_TOKENS[0])
        tokens_out = one.integer(counted_as)
        starts.append(start)
        is_failed = bool(one.integer("error_tokens")) or end < start
        sent.append(
            Sent(
                intended_s=start / NS_PER_S,
                sent_s=start / NS_PER_S,
                first_s=first / NS_PER_S if first >= start else None,
                end_s=end / NS_PER_S if end >= start else None,
                tokens_in=tokens_in,
                tokens_out=None if is_failed else tokens_out,
                error="failed" if is_failed else None,
            )
        )
        if is_failed:
            failed += 1
            continue
        ends.append(end)
        inputs.append(tokens_in)
        outputs.append(tokens_out)
        times["latency_wall"].append((end - start) / NS_PER_MS)
        if first >= start:  # -1 if nothing was streamed
            times["time_to_first_token"].append((first - start) / NS_PER_MS)
            if tokens_out is not None and tokens_out > 1:
                times["time_per_output_token"].append((end - first) / NS_PER_MS / (tokens_out - 1))
    seconds = (max(ends) - min(starts)) / NS_PER_S if ends else 0.0
    rates = {"throughput_samples_per_sec": len(ends)}
    counted = [output for output in outputs if output is not None]
    if len(counted) == len(outputs):
        rates["throughput_tokens_per_sec"] = sum(counted)
    samples = [measured(metric, values) for metric, values in times.items()]
    kept: dict[str, Json] = {"failed": failed} if failed else {}
    in_flight = sum(times["latency_wall"]) / MS_PER_S / seconds if seconds else None
    result = load_result(
        concurrency=None,
        unlimited=NOT_STATED,
        axes=_load_axes(len(requests), in_flight),
        prompt_tokens=inputs[0] if len(set(inputs)) == 1 and inputs[0] else None,
        prompt_tokens_mean=sum(inputs) / len(inputs) if inputs else None,
        new_tokens=outputs[0] if len(set(outputs)) == 1 and outputs[0] else None,
        requests=len(ends),
        failed=failed,
        sent=len(requests),
        metrics={
            **{name: count / seconds for name, count in rates.items() if seconds},
            **medians(one for one in samples if one.metric != "latency_wall"),
        },
        samples=samples,
        kept=kept,
    )
    return with_requests(result, requests_record(sent))


def _times_of(one: Fields) -> tuple[Fields, int, int, int, int]:
    """The request, its three times in ns, and its input tokens."""
    start, first, end = (
        one.required(lambda name: one.integer(name, low=-1), f"{name}_timestamp")
        for name in ("start", "first_token", "end")
    )
    return one, start, first, end, one.required(one.integer, "num_input_tokens")


TRTEXEC = Format(
    name="trtexec",
    summary="TensorRT's trtexec: its log, and --exportTimes (json)",
    definitions=TRTEXEC_DEFINITIONS,
    recognises=is_trtexec,
    read=read_trtexec,
)
TRTLLM_BENCH = Format(
    name="trtllm_bench",
    summary="TensorRT-LLM: trtllm-bench --report_json, --request_json with every request, and what it prints",
    definitions=TRTLLM_DEFINITIONS,
    recognises=is_trtllm_bench,
    read=read_trtllm_bench,
)

PLUGINS = (TRTEXEC, TRTLLM_BENCH)
