"""The files of vLLM's and SGLang's clients: one object per load, STATISTIC_METRIC_ms, raw lists in s.

PyTorch's benchmark database has the same loads with one record for each metric.
"""

from __future__ import annotations

import itertools
import math
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import MS_PER_S
from benchmarking.core.records import NOT_APPLICABLE, Doubt, Json, Point, Result, Samples, Scalar
from db.importers.support.files import ForeignFile
from db.importers.support.measures import BATCH_NOT_STATED, foreign_result, in_ms, measured
from db.importers.support.reading import (
    INT32_MAX,
    OF_ONE_RUN,
    Fields,
    flags_of,
    of_any_machine,
    parsed_number,
    shortened,
)
from db.importers.support.serving import (
    FIRST_NOT_SEEN,
    PARALLELISM,
    UNLIMITED,
    Columns,
    common_length,
    latency_columns,
    limit_unless_unread,
    load_result,
    token_columns,
)
from db.values import OF_CLIENT, OF_DATA

Value = TypeVar("Value")

CLIENT_STATISTIC = re.compile(
    r"(mean|median|std|min|max|p[0-9.]+)_"
    r"(ttft|tpot|itl|e2el|e2e_latency|e2el_including_client_queue|client_queue_time)(_ms|_s|_us)?"
)
"""A statistic; forks of the client write it in s, without a unit in its name."""
CLIENT_UNITS = {"_ms": 1.0, "_s": 1e3, "_us": 1e-3, None: 1e3}
CLIENT_COLUMNS: Columns = {**token_columns("ttft", "tpot"), **latency_columns("e2el"), **latency_columns("e2e_latency")}
WHOLE = {"e2el", "e2e_latency"}
"""Metrics of a whole request."""
NO_RATE = ("inf", "trace", math.inf)
"""What a client writes for requests that are all sent at once, or at the times of a trace."""
ABSENT_AT_ZERO = ("ttft", "tpot", "itl")
NOT_STREAMED = f"{NOT_APPLICABLE}: 0 in the file, which has it for requests that were not streamed or had one token"
TOKEN_TIMES = ("ttft", "tpot")
IN_ONE_PIECE = "left_out: 0 in the file, although the mean is not: most answers came in one piece"
OF_NO_OUTPUT = re.compile(r"embed|pooling|rerank", re.IGNORECASE)
"""In the name of a request function: its answers are no text."""
NO_OUTPUT = f"{NOT_APPLICABLE}: 0 in the file, which has it for answers that are no text"
CLIENT_RAW = {"latencies": "latency_wall", "ttfts": "time_to_first_token"}
"""List -> metric of its samples."""
CLIENT_NUMBERS = {
    "duration": "duration_s",
    "total_input_tokens": "total_input_tokens",
    "total_output_tokens": "total_output_tokens",
    "request_throughput": "throughput_samples_per_sec",
    "output_throughput": "throughput_tokens_per_sec",
    "max_output_tokens_per_s": "max_output_tokens_per_sec",
    "max_concurrent_requests": "max_concurrent_requests",
}
"""Field -> metric; a metric without a column has the meaning of the field."""
PEAK_OF_PIECES = "left_out: {:g} in the file counts pieces of the stream, of several tokens where drafts are accepted"
"""vLLM's client; its acceptance is in percent."""
OUTPUT_RATES = ("throughput_tokens_per_sec", "max_output_tokens_per_sec")
CLIENT_DEFINITIONS = {
    "time_per_output_token_ms": "median tpot: (latency - ttft) / (output tokens - 1) of each request",
    "throughput_samples_per_sec": "requests that succeeded over the duration of the whole load",
    "throughput_tokens_per_sec": "output tokens of them over the duration of the whole load",
}

ENGINE = (
    *("quantization", "torchao_config", "kv_cache_dtype", "enforce_eager", "load_format", "max_model_len"),
    *("attention_backend", "linear_backend", "moe_backend", "moe_runner_backend", "moe_a2a_backend"),
    *("speculative_config", "speculative_model", "num_speculative_tokens", "speculative_algorithm"),
    *("speculative_draft_model_path", "speculative_num_steps", "speculative_eagle_topk"),
    *("speculative_num_draft_tokens", "max_num_seqs", "max_num_batched_tokens", "max_running_requests"),
    *("chunked_prefill_size", "gpu_memory_utilization", "cpu_offload_gb", "num_gpu_blocks_override"),
    *("kv_cache_memory_bytes", "kv_offloading_size", "num_scheduler_steps", "json_model_override_args"),
    *("model_impl", "hf_overrides", "rope_scaling", "compilation_config", "optimization_level", "block_size"),
    *("distributed_executor_backend", "all2all_backend", "mamba_cache_dtype", "scheduling_policy"),
    *("long_prefill_token_threshold", "performance_mode", "kv_transfer_config", "stream_interval"),
    *("num_continuous_decode_steps", "decode_attention_backend", "prefill_attention_backend", "mm_attention_backend"),
    *("nsa_prefill_backend", "nsa_decode_backend", "fp8_gemm_runner_backend", "sampling_backend", "mamba_ssm_dtype"),
    *("max_total_tokens", "max_prefill_tokens", "schedule_policy", "page_size", "moe_dense_tp_size"),
    *("ep_num_redundant_experts", "hicache_ratio", "hicache_size", "deepep_mode", "context_length"),
    *("offload_backend", "offload_group_size", "offload_num_in_group", "offload_prefetch_step", "quantization_config"),
    *("spec_method", "spec_model", "spec_tokens", "diffusion_config", "attention_config", "kernel_config"),
    *("additional_config", "ir_op_priority", "mamba_cache_mode", "mamba_ssm_cache_dtype", "kv_cache_dtype_skip_layers"),
    *("calculate_kv_scales", "kv_sharing_fast_prefill", "language_model_only", "mm_encoder_only", "mm_encoder_tp_mode"),
    *("mm_encoder_attn_backend", "mm_processor_kwargs", "video_pruning_rate", "gdn_prefill_backend"),
    *("kda_prefill_backend", "kda_decode_backend", "override_attention_dtype", "cudagraph_capture_sizes"),
    *("max_cudagraph_capture_size", "max_seq_len_to_capture", "max_num_partial_prefills", "max_num_scheduled_tokens"),
    *("max_num_active_seqs", "ubatch_size", "expert_placement_strategy", "lora_path", "lora_paths", "max_lora_rank"),
    "kt_num_gpu_experts",
)
"""Settings of vLLM's and SGLang's engines that change their numbers, beside the flags that are on. (Elsewhere, what is
not known tells runs apart; files of these tools have hundreds of defaults, which differ from version to version.)"""
NOT_OF_ENGINE = re.compile(
    r"device|base_gpu_id|gpu_id_step|weight_version|tool_call_parser|show_time_cost|collect_\w+|bucket_\w+|gc_\w+|ssl_\w+|"
    r"kv_events_config|reasoning_parser\w*|tool_parser_plugin|\w*chat_template\w*|response_role|allowed_\w+|max_logprobs|"
    r"middleware"
)
"""What the command of a server sets beside: a place, a label, or what it prints and records."""
ENGINE_SWITCH = r"(?:no_)?(?:enable|disable|use)_"
ENGINE_FLAG = re.compile(ENGINE_SWITCH + r"(?!.*(?:metrics|report|nvtx|nan_|docs|tool_|headers|tracking|v2_block))")
OFFLINE_ENGINE = (
    *(*ENGINE, "n", "prefix_len", "async_engine", "prequeue_requests"),
    *("hf_max_batch_size", "hf_enable_torch_compile"),
)
"""The same and those of an offline benchmark, which starts its engine itself."""
ON_UNLESS_OFF = ("enable_prefix_caching", "enable_chunked_prefill", "async_scheduling", "optimization_level")
"""What is null in vLLM's files unless it was given, but not off."""
OFF: Mapping[str, Scalar] = {"False": False, "0": 0}
ENGINE_PLAIN = {
    "gpu_memory_utilization": ("0.9", "0.92"),
    "num_scheduler_steps": ("1",),
    **dict.fromkeys(("n", "num_continuous_decode_steps", "stream_interval", "page_size"), ("1",)),
    **dict.fromkeys(("offload_num_in_group", "offload_prefetch_step", "max_num_partial_prefills"), ("1",)),
    "offload_group_size": ("-1",),
    "max_lora_rank": ("16",),
    "max_seq_len_to_capture": ("8192",),
    "mm_encoder_tp_mode": ("weights",),
    "expert_placement_strategy": ("linear",),
    "max_prefill_tokens": ("16384",),
    "block_size": ("16",),
    **dict.fromkeys(("schedule_policy", "scheduling_policy"), ("fcfs",)),
    "mamba_ssm_dtype": ("float32",),
    "hicache_ratio": ("2.0",),
    "nsa_prefill_backend": ("flashmla_sparse",),
    "nsa_decode_backend": ("fa3",),
    "optimization_level": ("2",),
    "performance_mode": ("balanced",),
    "all2all_backend": ("allgather_reducescatter",),
}
"""Defaults."""
PLAIN = (False, "False", "None", "none", "null", "auto", "", "{}", "0", "0.0")
"""Values by which a setting of an engine says nothing."""
OBJECT = "<"
"""The beginning of what a tool wrote of an object that it could not write."""

MOST_SHAPE = 1e6
"""Maximum burstiness of the gamma distribution of arrivals: above it they count as constant."""
PREFIXES = {
    "generated-shared-prefix": ("gsp",),
    "image": ("image", "random"),
    "random-mm": ("random_mm", "random"),
    "hf": ("hf", "asr", "bfcl", "blazedit"),
}
"""Kind of data -> beginnings of its arguments, if they are not its own name."""
NO_SETTING = re.compile(
    r"(?:served_)?model(?:_\w+)?|tokenizer(?:_\w+)?|backend|endpoint_type|label|tag|date|num_prompts|request_rate|"
    r"max_concurrency|[bB]urstiness.*|ramp_up_\w+|(?:\w+_)?(?:input|output)_len|(?:save|output|result|plot|timeline)_\w+|"
    r"append_result|metadata|goodput|\w*percentile\w*|print_requests|profile_\w+|request_id_prefix|insecure|headers?|"
    r"subparser|bench_type|command|dtype|" + "|".join(PARALLELISM)
)
"""Arguments of a client that are in the point or elsewhere in the run, or that change no number."""
RANGE = "random_range_ratio"
FLAGS = {
    *(*ENGINE, RANGE, "num_prompts", "max_concurrency", "request_rate", "dataset_name", "dataset_path", "batch_size"),
    *("random_input_len", "random_output_len", "random_prefix_len", "sharegpt_output_len"),
    *(name for name in PARALLELISM if not name.endswith("_parallel")),
}
"""Flags of these tools, which a command may shorten: `--random-input`, `--num-prompt`, `--tensor-parallel`."""
STANDARD = {
    "dataset_name": ("random", "random-ids", "sharegpt"),  # the defaults, and the data whose length is in the point
    **dict.fromkeys((RANGE, "gsp_range_ratio"), ("0", "0.0", "1", "1.0")),
    **dict.fromkeys(("random_prefix_len", "num_warmups", "probe_request_rate"), ("0", "0.0")),
    **dict.fromkeys(("best_of", "n", "random_batch_size", "warmup_requests", "gsp_num_turns"), ("1",)),
    "lora_assignment": ("random",),
    "lora_request_distribution": ("uniform",),
    "lora_zipf_alpha": ("1.5",),
    **dict.fromkeys(("blazedit_min_distance", "asr_min_audio_len_sec"), ("0.0",)),
    "blazedit_max_distance": ("1.0",),
    "asr_max_audio_len_sec": ("inf",),
}


def engine_settings(fields: Fields, names: Iterable[str] = ENGINE) -> dict[str, Scalar]:
    """The settings of an engine among the arguments: those of these names, and flags that are on."""
    flags = (name for name in fields if is_engine_flag(name) and str(fields.peek(name)) == "True")
    found = fields.settings((*flags, *names), PLAIN)
    off = {name: OFF[text] for name in ON_UNLESS_OFF if (text := str(fields.peek(name))) in OFF}
    stated = {name: one for name, one in found.items() if str(one) not in ENGINE_PLAIN.get(name, ())}
    return off | {name: of_any_machine(one) for name, one in stated.items() if not str(one).startswith(OBJECT)}


def launched_with(command: str) -> list[str]:
    """The names of the settings that the command of a server sets, by the names of their flags."""
    others = (NO_SETTING.fullmatch, NOT_OF_ENGINE.fullmatch, OF_ONE_RUN.search, re.compile(ENGINE_SWITCH).match)
    return [name for name in flags_of(command, {}, FLAGS) if not any(is_other(name) for is_other in others)]


def is_engine_flag(name: str) -> bool:
    """Whether an argument of this name is a flag that may change an engine's numbers."""
    return bool(ENGINE_FLAG.match(name)) and not OF_ONE_RUN.search(name)


def client_settings(arguments: Fields) -> dict[str, Scalar]:
    """What a client's arguments say of its requests: those of its data and all others that no getter has read, but for
    defaults and for what could only be written as <an object>."""
    own = _prefixes(arguments)
    less = [
        name
        for name in arguments
        if NO_SETTING.fullmatch(name)
        or (own and (found := OF_DATA.match(name)) and found[1] not in own)
        or str(arguments.peek(name)).startswith(OBJECT)
    ]
    return arguments.other_settings(less, STANDARD)


def settings_of_requests(fields: Fields) -> dict[str, Scalar]:
    """The `client_settings` among fields of other kinds."""
    return client_settings(
        Fields(fields.file, {name: fields.peek(name) for name in filter(OF_CLIENT.fullmatch, fields)})
    )


def _prefixes(arguments: Fields) -> tuple[str, ...]:
    """Beginnings of the arguments of the data that was sent; empty if it is not stated."""
    data = str(arguments.peek("dataset_name") or "")
    found = OF_DATA.match(f"{data.replace('-', '_')}_")
    return PREFIXES.get(data, (found[1],) if found else (data,) if data else ())


def length_requested(arguments: Fields, word: str) -> int | None:
    """The length of prompts ("input") or answers ("output") that a client's arguments ask for."""
    ends = (f"{word}_len", *(f"{one}_{word}_len" for one in _prefixes(arguments)))
    return first_length(arguments, ends if len(ends) > 1 else [name for name in arguments if name.endswith(ends)])


def first_length(fields: Fields, names: Iterable[str]) -> int | None:
    """The first of these fields that is a length."""
    lengths = (parsed_number(str(fields.peek(name))) for name in names)
    return next((one for one in lengths if isinstance(one, int) and 0 < one <= INT32_MAX), None)


def has_drawn_lengths(arguments: Fields, *, is_sglang: bool = False) -> bool:
    """Whether a client's arguments ask for random lengths, which add up to a multiple by chance: SGLang's from 1 to the
    requested one unless the ratio is 1, others where it is neither 0 nor 1."""
    if is_sglang:
        return str(arguments.peek("dataset_name")).startswith("random") and str(arguments.peek(RANGE)) not in (
            "1",
            "1.0",
        )
    return str(arguments.peek(RANGE) or "0") not in STANDARD[RANGE]


def arrivals_of(burstiness: Any) -> tuple[dict[str, Scalar], float]:
    """The arrivals at a rate as settings of the run, by the shape of the gamma distribution of the gaps between them,
    which vLLM's client calls burstiness; and the coefficient of variation of these gaps. Clients that do not state it
    had no other arrivals than Poisson's; a value that is no shape says nothing."""
    shape = 1 if burstiness is None else parsed_number(str(burstiness))
    if isinstance(shape, str) or not shape > 0:
        return {}, 1.0
    if shape > MOST_SHAPE:
        return {"arrivals": "constant"}, 0.0
    variation = shape**-0.5
    return {"arrivals": "poisson"} if shape == 1 else {"arrivals": "gamma", "variation": round(variation, 3)}, variation


def client_task(load: Fields) -> str:
    """The task of a load, by the client's request function."""
    backend = load.peek("backend") or load.peek("endpoint_type")
    is_other = "input_sequence_throughput" in load or OF_NO_OUTPUT.search(str(backend))
    return "feature-extraction" if is_other else "text-generation"


def client_result(
    load: Fields,
    *,
    sent: int | None,
    failed: float | None,
    numbers: Mapping[str, str],
    axes: Mapping[str, int | float],
    prompt_tokens_requested: float | None = None,
    new_tokens_requested: float | None = None,
    has_drawn_lengths: bool = False,
    variation: float = 1.0,
    unlimited: Doubt = UNLIMITED,
) -> Result:
    """The result of a load in the format of the vLLM and SGLang clients. `numbers` are the tool's numbers in addition
    to `CLIENT_NUMBERS`; `variation` and `unlimited` are as in `load_result`. With drawn lengths, prompts that are as
    long as requested are of one length (else they may be longer, by a prefix or a picture)."""
    completed, concurrency = load.integer("completed"), load.count("max_concurrency")
    stated_rate = None if load.peek("request_rate") in NO_RATE else load.peek("request_rate")
    rate = None if stated_rate is None else load.rate("request_rate")
    inputs, outputs = load.number("total_input_tokens", low=0), load.number("total_output_tokens", low=0)
    metrics = load.metrics({**CLIENT_NUMBERS, **numbers}, low=0)
    missing: dict[str, str] = {}
    if not outputs and client_task(load) != "text-generation":
        missing = {name: NO_OUTPUT for name in OUTPUT_RATES if metrics.pop(name, None) is not None}
    if metrics.get("spec_decode_acceptance_percent") and (peak := metrics.pop("max_output_tokens_per_sec", None)):
        missing["max_output_tokens_per_sec"] = PEAK_OF_PIECES.format(peak)
    # In ms, under our column if the meaning is the same, otherwise under the tool's own name.
    duration = load.peek("duration")
    duration_ms = duration * MS_PER_S if isinstance(duration, int | float) else 0.0
    has_each = bool(load.peek("mean_tpot_ms") or load.peek("median_tpot_ms"))
    for name in load:
        found = CLIENT_STATISTIC.fullmatch(name)
        if found is None:
            continue
        own, factor = load.peek(name), CLIENT_UNITS[found[3]]
        if found[3] is None and not (isinstance(own, int | float) and 0 <= own * factor <= duration_ms):
            continue  # not in s
        if (value := load.number(name, low=0)) is None:
            continue
        column = CLIENT_COLUMNS.get((found[2], found[1]), f"{found[1]}_{found[2]}_ms")
        if value == 0 and found[2] in ABSENT_AT_ZERO and not load.peek(f"mean_{found[2]}{found[3] or ''}"):
            missing[column] = FIRST_NOT_SEEN if found[2] in ("ttft", "itl") and has_each else NOT_STREAMED
        elif value == 0 and found[2] in TOKEN_TIMES and found[1] not in ("std", "min"):
            missing[column] = IN_ONE_PIECE  # also -0.0, as a difference of nearly 0 is printed
        else:
            metrics[column] = value * factor
    mean = inputs / completed if inputs and completed else None
    if mean and prompt_tokens_requested:
        metrics["input_tokens_mean"] = mean
    samples, kept = _client_samples(load, has_failures=bool(failed))
    return load_result(
        concurrency=concurrency,
        unlimited=limit_unless_unread(unlimited, (stated_rate, rate), (load.peek("max_concurrency"), concurrency)),
        request_rate=rate,
        prompt_tokens=common_length(
            inputs,
            completed,
            lengths=_lengths(load, "input_lens"),
            requested=prompt_tokens_requested if has_drawn_lengths else None,
        ),
        prompt_tokens_mean=mean,
        prompt_tokens_requested=prompt_tokens_requested,
        new_tokens=common_length(
            outputs, completed, lengths=_lengths(load, "output_lens"), requested=new_tokens_requested
        ),
        new_tokens_requested=new_tokens_requested,
        requests=completed,
        failed=failed,
        sent=sent,
        variation=variation,
        axes=axes,
        stated=metrics,
        missing=missing,
        samples=samples,
        kept={"stated": dict[str, Json](metrics)} if completed == 0 else kept,
    )


def batch_result(arguments: Fields, **numbers: Any) -> Result:
    """The result of `vllm bench latency` with these arguments; `numbers` are arguments of `foreign_result`."""
    batch, prompt, new = (arguments.count(name) for name in ("batch_size", "input_len", "output_len"))
    return foreign_result(
        Point(batch_size=batch or 1, sequence_length=prompt, new_tokens=new),
        warmup_iterations=arguments.integer("num_iters_warmup"),
        doubts=() if batch else (BATCH_NOT_STATED,),
        **numbers,
    )


def _lengths(load: Fields, name: str) -> Iterator[float]:
    """The listed lengths of the successful requests."""
    values, errors = load.peek(name), load.peek("errors")
    for value in (
        _succeeded(values, errors if isinstance(errors, list) else ()) if isinstance(values, list | array) else ()
    ):
        if isinstance(value, int | float) and value > 0:  # a failed request has 0
            yield value


def _client_samples(load: Fields, *, has_failures: bool) -> tuple[list[Samples], dict[str, Json]]:
    """The raw values of the successful requests in ms, and the parts of the lists to keep.

    A failed request has an error. If requests failed and the file has no errors, the lists are kept unread.
    """
    if has_failures and "errors" not in load:
        return [], {}
    errors = load.items("errors")
    kept: dict[str, Json] = {"errors": errors} if any(errors) else {}
    values_s: dict[str, Iterable[float]] = {
        metric: _succeeded(
            [value or 0.0 for value in load.column(name, low=0) or ()], errors
        )  # a bad one moves no other
        for name, metric in CLIENT_RAW.items()
    }
    if "itls" in load:
        lists = load.each("itls")
        gaps = [load.number_list(each, f"itls[{index}]", low=0) for index, each in enumerate(lists)]
        kept["gaps_per_request"] = [len(gap) for gap in gaps]
        values_s["inter_chunk_latency"] = itertools.chain.from_iterable(_succeeded(gaps, errors))
        firsts = load.column("ttfts") or ()
        metrics = [found[2] for name in load if (found := CLIENT_STATISTIC.fullmatch(name))]
        if "latencies" not in load and not WHOLE.intersection(metrics) and len(firsts) == len(gaps):
            # vLLM's client writes no latencies, but the first token's and the gaps after it, which add up to them.
            whole = [
                first + sum(after) if first and has_all(after, stated) else 0.0
                for first, after, stated in zip(firsts, gaps, lists, strict=True)
            ]
            values_s["latency_wall"] = _succeeded(whole, errors)
    timed = {metric: in_ms(value for value in values if value > 0) for metric, values in values_s.items()}
    return [measured(metric, values_ms) for metric, values_ms in timed.items()], kept


def has_all(gaps: Sequence[float], stated: Any) -> bool:
    """Whether no stated gap was left out: only all gaps of a request add up to its time."""
    return isinstance(stated, list | array) and len(gaps) == len(stated)


def _succeeded(values: Sequence[Value], errors: Sequence[Json]) -> Iterator[Value]:
    """The values of the requests without an error; all values if there is no list of errors."""
    return (value for value, error in itertools.zip_longest(values, errors[: len(values)]) if not error)


PYTORCH = "vLLM benchmark"
"""Name of the benchmark in the records of PyTorch's benchmark database, which have one metric each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """The metrics of one measurement."""

    model: Any
    arguments: Mapping[str, Any]
    """Arguments of the command."""
    information: Mapping[str, Any]
    """The other results."""
    values: dict[str, Sequence[Any]]
    """Metric -> its values."""


def measurements_in(file: ForeignFile) -> list[Records]:
    """The measurements of a file of such records, also of several measurements, in a list or one per line; none for any
    other file. Records of one measurement differ in nothing but their metric."""
    records = [one for value in file.json_values for one in (value if isinstance(value, list) else (value,))]
    if not any(map(_is_record, records)):
        return []
    found: list[Records] = []
    latest: dict[str, Records] = {}
    for number, record in enumerate(records, 1):
        if not _is_record(record):
            file.leave_out(f"record {number}", f"expected a metric of a {PYTORCH}, found {shortened(record)}")
            continue
        metric = record["metric"]
        name, values = str(metric.get("name")), metric["benchmark_values"]
        one = Records(
            model=_object(record.get("model")).get("name"),
            arguments=_object(_object(record["benchmark"].get("extra_info")).get("args")),
            information=_object(metric.get("extra_info")),
            values={name: values},
        )
        same = latest.get(key := repr((one.model, one.arguments, one.information)))
        if same is None or same.values.setdefault(name, values) != values:
            found.append(one)
            latest[key] = one
    return found


def _is_record(value: Any) -> bool:
    record = _object(value)
    values = _object(record.get("metric")).get("benchmark_values")
    return _object(record.get("benchmark")).get("name") == PYTORCH and isinstance(values, list | array)


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
