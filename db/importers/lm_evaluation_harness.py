"""lm-evaluation-harness's results (results_TIME.json): the quality of a model, a metric for each task and measure. The
files of lighteval, which have the same form, are marked as its own.

It measures no speed: its metrics stand beside the speeds of the same model. What scores depend on beside the model (the
examples in the prompt, the samples, decoding, the longest context, the tasks' versions) is part of the series, and only
scores under the same conditions are compared.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from statistics import fmean
from typing import Any

from benchmarking.core.codec import is_number
from benchmarking.core.quality import Quality, QualityValue
from benchmarking.core.records import NOT_APPLICABLE, SERVER, Json, Point, Scalar, canonical_hash
from benchmarking.core.sample_statistics import exact_share_interval
from db.importers.support.building import UNNAMED, ForeignRun, Format, precision_of
from db.importers.support.files import ForeignFile
from db.importers.support.measures import BATCH_NOT_STATED, foreign_result
from db.importers.support.reading import OF_ONE_RUN, Fields, of_any_machine, storable, top_fields
from db.importers.support.serving import server_host

PAIR = re.compile(r"(?:^|,)(\w+)=([^,]+)")
"""An argument in a text of several."""
RUNTIMES = {
    **dict.fromkeys(("hf", "huggingface", "steered"), "eager"),
    **dict.fromkeys(("gguf", "ggml"), "llama.cpp"),
    "vllm": "vllm",
}
"""First word of a kind of model ("hf-multimodal", "vllm-vlm") -> the engine, if it is another word than the kind."""
ENGINES = {"model_parallel": "eager", "gpu_memory_utilization": "vllm", "mem_fraction_static": "sglang"}
"""lighteval writes all fields of a model's configuration: those that only one engine has."""
OF_THE_TOOL = {"versions", "n-shot", "n-samples", "lm_eval_version", "total_evaluation_time_seconds"}
CLIENT = re.compile(r".*completions?|(?:openai|anthropic)-\w+|sglang-generate|litellm.*|watsonx_llm|textsynth")
"""A kind of model that asks a server."""
FILE_DATE = re.compile(r"results_(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d)")
NAMES = ("alias", "name", "sample_len", "samples", "sample_count")
"""Fields of a task that are no scores."""
PLAIN = ("false", "none", "auto", "{}", "[]")
"""Values of an argument that say nothing, unless its default is another one."""
CHANGES = (
    *("quantization", "load_in_4bit", "load_in_8bit", "quantization_config", "autogptq", "gptqmodel", "gguf_file"),
    *("peft", "delta", "kv_cache_dtype", "adapter_weights", "delta_weights", "lora_local_path", "subfolder", "bits"),
    *("hf_overrides", "rope_scaling", "steer_path"),
)
"""Arguments of a model that make another one of it than its name and dtype say."""
CONDITIONS = {
    **dict.fromkeys(("tokenizer_path", "think_end_token", "add_bos_token"), PLAIN),
    **dict.fromkeys(("add_special_tokens", "skip_special_tokens", "enable_thinking", "interleave"), ("true",)),
}
"""Arguments of a model that its scores depend on and whose names say otherwise, or whose default is not one of `PLAIN`,
and what is their default."""
NO_CONDITION = re.compile(
    r"pretrained|model|model_name|dtype|device|device_map\w*|backend|parallelize|\w*parallel(?:_size|ism|_calls_count)?|"
    r"tp_plan|[tpde]p_size|(?:max_)?batch_size|max_(?:memory|cpu_memory)\w*|offload_\w+|low_cpu_mem_usage|swap_space|"
    r"gpu_memory_utilization|mem_fraction_static|max_num_\w+|chunked_prefill_size|max_lora_rank|enforce_eager|compile|"
    r"is_async|load_format|continuous_batching|\w*cache|enable_prefix_caching|attn_implementation|\w+_backend|"
    r"use_fast_tokenizer|tokenizer_mode|tokenized_requests|skip_tokenizer_init|num_concurrent|concurrent_requests|"
    r"\w*retr(?:y|ies)\w*|verify_certificate|header|\w*auth|org_to_bill|disable_log_\w+|generation_parameters"
)
"""Arguments of a model that are elsewhere in the run, or on which scores do not depend."""
OF_SAMPLING = ("temperature", "top_p", "top_k", "min_p")
"""What a task's own file may say of how its answers are drawn."""
REPEATS = ".repeats"
SEEDS = {"fewshot_seed": 1234, "num_fewshot_seeds": 1}
"""What the examples in the prompts are drawn with, and its default."""
CONTEXT = ("chat_template_sha", "system_instruction_sha", "fewshot_as_multiturn")
"""Fields of the prompts, on which scores depend."""
MOST_SHOWN = 500
"""Characters of a condition that are stored; beyond, a digest tells it from others."""
TOTAL = re.compile(r"all|.*:_average(?:\|.*)?")
"""A mean of other tasks in lighteval's results."""
SCORES = ("acc_norm", "acc", "exact_match", "em", "pass@1", "f1", "mc2")
"""The score that stands for a task in its model's quality: the first that it has."""
Z95 = 1.959964
"""97.5 % quantile of the normal distribution: the harness states standard errors."""
QUALITY = f"{NOT_APPLICABLE}: an evaluation of quality, not of speed"
DEFINITIONS = {
    "quality_TASK_MEASURE": "the task's score as the harness computes it; with another filter than none, the filter "
    "follows",
    "quality_TASK_MEASURE_stderr": "its standard error",
    "task_accuracy": "mean over the tasks of their first score of acc_norm, acc, exact_match, em, pass@1, f1, mc2, "
    "with the interval of the stated standard errors; a measure of quality, which stands beside the speeds of the same "
    "model, precision and engine",
    "evaluation_duration_s": "total_evaluation_time_seconds: the time of the whole evaluation",
}


def recognises(file: ForeignFile) -> bool:
    data = file.json
    if not isinstance(data, dict) or not isinstance(data.get("results"), dict) or not OF_THE_TOOL & data.keys():
        return False
    if not any(name in data for name in ("config", "config_general", "configs")):
        return False
    return any(isinstance(task, dict) and any(_is_score(name) for name in task) for task in data["results"].values())


def _is_score(name: str) -> bool:
    return name not in NAMES and not name.startswith("_")


def read(file: ForeignFile) -> Iterator[ForeignRun]:
    top = top_fields(file)
    config = top.fields("config") or top.section("config_general")
    arguments = storable(config.peek("model_config") or config.peek("model_args"))
    given = _pairs(arguments)
    word = config.text("model_dtype") or given.get("dtype")
    harness = "lighteval" if "lighteval_sha" in config else "lm-evaluation-harness"
    ended, ended_at = FILE_DATE.search(file.path.name), None
    if ended:
        with suppress(ValueError):
            ended_at = datetime.strptime(ended[1], "%Y-%m-%dT%H-%M-%S")
    kind = config.text("model") or next(
        (ENGINES[name] for name in (arguments if isinstance(arguments, dict) else ()) if name in ENGINES), ""
    )
    device = config.text("device") or given.get("device") or "unknown"
    conditions = _conditions(top, config, arguments)
    changes: dict[str, Scalar] = {
        name: of_any_machine(given[name]) for name in CHANGES if given.get(name, "none").lower() not in PLAIN
    }
    metrics: dict[str, float | None] = {}
    results = top.section("results")
    for task in results:
        scores = results.fields(task)
        for score in scores or ():
            if scores is None or not _is_score(score) or scores.peek(score) in ("N/A", " ", ""):
                continue
            measure, _, chosen = score.partition(",")
            metric = f"quality_{task}_{measure}" + (f"_{chosen}" if chosen not in ("", "none") else "")
            if is_number(scores.peek(score)):
                metrics[re.sub(r"[^\w]+", "_", metric)] = scores.number(score)
    seconds = top.any("total_evaluation_time_seconds") or config.any("total_evaluation_time_secondes")
    if isinstance(seconds, str | int | float) and re.fullmatch(r"\d+(\.\d+)?", str(seconds)):
        metrics["evaluation_duration_s"] = float(seconds)
    batch = config.any("batch_size") or given.get("batch_size")
    size = int(batch) if isinstance(batch, int | str) and re.fullmatch(r"[1-9]\d{0,6}", str(batch)) else None
    yield ForeignRun(
        quality=_quality(top, conditions, harness, _quantization(changes, word)),
        model_id=top.text("model_name")
        or given.get("pretrained")
        or given.get("model")
        or config.text("model_name")
        or UNNAMED,
        model_revision=config.text("model_sha") or config.text("model_revision") or given.get("revision"),
        parameter_count=config.integer("model_num_parameters"),
        task="evaluation",
        results=[
            foreign_result(
                Point(batch_size=size or 1),
                metrics=metrics,
                missing={"latency_median_ms": QUALITY},
                doubts=() if size else (BATCH_NOT_STATED,),
            )
        ],
        started_at=top.unix_time("date") if isinstance(top.peek("date"), int | float) else ended_at,
        stated_times=(ended[0] if ended and "date" not in top else None,),
        device_type=device.partition(":")[0],
        device_selector=device,
        runtime=SERVER if CLIENT.fullmatch(kind) else RUNTIMES.get(kind.partition("-")[0], kind or "unknown"),
        runtime_mode={**changes, **conditions, "harness": harness},
        host=server_host(given.get("base_url")),
        precision_word=word,
        tool_version=top.text("lm_eval_version"),
        versions={"transformers": top.text("transformers_version")},
        kept={"git_hash": top.any("git_hash"), **top.rest()},
    )


def _pairs(value: Json) -> dict[str, str]:
    """Arguments as text by name, of an object or of a text as on a command line; those that are null are left out."""
    pairs = value.items() if isinstance(value, dict) else PAIR.findall(value) if isinstance(value, str) else ()
    return {name: str(one) for name, one in pairs if one is not None and str(one) not in ("", "None")}


def _conditions(top: Fields, config: Fields, arguments: Json) -> dict[str, Scalar]:
    """What the scores depend on beside the model, without what is the default."""
    stated = arguments.get("generation_parameters") if isinstance(arguments, dict) else None
    generation = _pairs(config.any("generation_parameters") or stated)
    if generation.get("temperature") in ("0", "0.0"):  # lighteval writes its default
        del generation["temperature"]
    of_call = _pairs(config.any("gen_kwargs")) or generation
    of_call.pop("seed", None)  # answers drawn with another seed are repetitions
    decoding = of_call | {name: one for name, one in _sampling(top).items() if not of_call or name.endswith(REPEATS)}
    given = _pairs(arguments)
    found: dict[str, Any] = {
        "limit": config.any("limit") or config.any("max_samples"),
        "num_fewshot": _of_tasks(top.unread_copy().any("n-shot") or config.any("num_fewshot")),
        "task_versions": _of_tasks(top.unread_copy().any("versions")),
        "decoding": _listed(decoding),
        **{name: top.peek(name) for name in CONTEXT},
        **{name: config.peek(name) for name, default in SEEDS.items() if config.peek(name) != default},
    }
    own_name = given.get("pretrained") or given.get("model")  # a server's tokenizer is often given by it
    of_model: dict[str, Scalar] = {
        name: _short(text := of_any_machine(value), text)
        for name, value in given.items()
        if _is_condition(name) and value != own_name and value.lower() not in CONDITIONS.get(name, PLAIN)
    }
    counts = top.peek("n-samples")
    if not found["limit"] and isinstance(counts, dict):
        chosen = {
            task: f"{count.get('effective')} of {count.get('original')}"
            for task, count in counts.items()
            if isinstance(count, dict) and count.get("effective") != count.get("original")
        }
        found["samples"] = _listed(chosen)
    others = {name: _scalar(value) for name, value in found.items()}
    of_prompts = {
        name: one for name, one in others.items() if one is not None and str(one) not in ("", "None", "False")
    }
    return of_model | of_prompts


def _is_condition(name: str) -> bool:
    """Whether scores may depend on the argument of a model: they do on what is not known."""
    is_known = name in CHANGES or NO_CONDITION.fullmatch(name) or OF_ONE_RUN.search(name)
    return name in CONDITIONS or not is_known


def _sampling(top: Fields) -> dict[str, Json]:
    """How the tasks sample their answers, where their own files say it, and how many of each: by task."""
    found: dict[str, Json] = {}
    configs = top.peek("configs")
    for task, config in configs.items() if isinstance(configs, dict) else ():
        stated = config if isinstance(config, dict) else {}
        drawn = stated.get("generation_kwargs")
        drawn = drawn if isinstance(drawn, dict) and drawn.get("do_sample") is not False else {}
        if drawn.get("temperature"):
            found |= {f"{task}.{name}": storable(drawn[name]) for name in OF_SAMPLING if drawn.get(name) is not None}
        if stated.get("repeats") not in (None, 1):
            found[f"{task}{REPEATS}"] = storable(stated["repeats"])
    return found


def _listed(values: Mapping[str, Json]) -> str:
    return _short(", ".join(f"{name}={value}" for name, value in sorted(values.items())), values)


def _short(text: str, whole: Json | Mapping[str, Json]) -> str:
    """The text; of a long one the beginning and a digest of the whole."""
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}… {canonical_hash(whole)[:12]}"


def _quantization(changes: Mapping[str, Scalar], dtype: str | None) -> str | None:
    """What makes another model of the named one, in one text: a quantization by its name alone, as speeds have it."""
    stated = {name: str(value) for name, value in changes.items()}
    if precision_of(dtype) == "other" and dtype is not None:
        stated.setdefault("quantization", dtype.strip())
    if set(stated) == {"quantization"}:
        return stated["quantization"]
    return ", ".join(f"{name}={value}" for name, value in stated.items()) or None


def _quality(top: Fields, conditions: Mapping[str, Scalar], harness: str, quantization: str | None) -> Quality | None:
    """The mean score of the tasks, whose units are the tasks; None without a score between 0 and 1. Totals of groups
    are left out, since their tasks count. The errors of tasks are independent, so their squares add up."""
    results, groups, means = top.peek("results"), top.peek("group_subtasks"), top.peek("groups")
    counts = top.peek("n-samples")
    totals = {name for name, tasks in groups.items() if tasks} if isinstance(groups, dict) else set()
    totals |= set(means) if isinstance(means, dict) else set()
    found: dict[str, tuple[str, float, tuple[float, float] | None]] = {}
    for task, scores in sorted(results.items()) if isinstance(results, dict) else ():
        if task in totals or not isinstance(scores, dict) or (harness == "lighteval" and TOTAL.fullmatch(task)):
            continue
        for measure in SCORES:
            name = next((score for score in scores if score == measure or score.startswith(f"{measure},")), None)
            value = None if name is None else _share(scores[name])
            if name is not None and value is not None:
                error = _share(scores.get(name.replace(measure, f"{measure}_stderr", 1)))
                counted = counts.get(task) if isinstance(counts, dict) else None
                samples = counted.get("effective") if isinstance(counted, dict) else scores.get("sample_len")
                found[task] = (name, value, _errors(value, error, samples))
                break
    if not found:
        return None
    values, errors = [one[1] for one in found.values()], [one[2] for one in found.values()]
    mean, low, high = fmean(values), None, None
    if None not in errors:
        below, above = (math.hypot(*side) / len(values) for side in zip(*filter(None, errors), strict=True))
        low, high = max(0.0, mean - below), min(1.0, mean + above)
    accuracy = QualityValue(value=mean, low=low, high=high, by_window=tuple(values))
    scored: Json = {task: name for task, (name, _, _) in found.items()}
    alike: dict[str, Json] = {
        "scores": scored,
        **dict.fromkeys(("limit", "num_fewshot")),
        **{name: _scalar(top.peek(name)) for name in CONTEXT},
        **conditions,
    }
    inputs = canonical_hash(alike)
    how: dict[str, Json] = {"harness": harness, "windows": len(found), "tasks": scored, "quantization": quantization}
    return Quality(inputs=inputs, values={"task_accuracy": accuracy}, how={"evaluation": how})


def _errors(value: float, error: float | None, samples: object) -> tuple[float, float] | None:
    """How far the interval of a task's score goes below and above it; None if that is unknown. The standard error of
    samples that were all right, or all wrong, is 0, but a few of them leave the share uncertain: it has the interval of
    Clopper and Pearson."""
    if error is None or error > 0:
        return None if error is None else (Z95 * error, Z95 * error)
    if type(samples) is not int or samples < 1 or value not in (0.0, 1.0):  # the file may not state their number
        return None
    low, high = exact_share_interval(round(value * samples), samples)
    return value - low, high - value


def _share(value: object) -> float | None:
    return float(value) if is_number(value) and 0 <= value <= 1 else None


def _scalar(value: Any) -> Scalar | None:
    return value if isinstance(value, str | int | float | bool) else None


def _of_tasks(stated: Json) -> str | None:
    """What a file states of each task (older ones of all): one value if all have the same, otherwise by task."""
    if not isinstance(stated, dict):
        return None if _scalar(stated) is None else str(stated)
    distinct = {str(value) for value in stated.values()}
    return distinct.pop() if len(distinct) == 1 else _listed(stated)


PLUGIN = Format(
    name="lm_evaluation_harness",
    summary="lm-evaluation-harness, lighteval: results_TIME.json (quality by task)",
    definitions=DEFINITIONS,
    recognises=recognises,
    read=read,
)
