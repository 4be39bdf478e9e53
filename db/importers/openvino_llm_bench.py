"""OpenVINO GenAI's llm_bench (tools/llm_bench/benchmark.py): its reports, --report_json and --report (csv).

An iteration is one call of generate on one prompt; iteration 0 is its warm-up. `generation_time` is in s, all other
times are in ms; `latency` is the time per token, not per call (of embeddings a time in s, which is only kept).
`input_size` and `output_size` count the tokens of the whole batch. In a chat (`chat_idx`) the first token's time is
divided by the tokens of the prompt. With speculative decoding, the times after the first token are those of steps, each
of several tokens. The tool's own averages exclude only the first iteration in the file, which is just one of several
warm-ups if there are several prompts, so statistics are computed from the iterations here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarking.core.doubts import doubt
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import BYTES_PER_MIB, MS_PER_S, bytes_to_mb
from benchmarking.core.records import Doubt, Json, Phase, Point, Result, Samples, Scalar
from benchmarking.core.text import grouped
from db.importers.support.building import ForeignRun, Format, precision_of
from db.importers.support.files import ForeignFile
from db.importers.support.measures import block, foreign_result, measured, median_of, medians
from db.importers.support.reading import Fields, csv_header, csv_table_rows, has_columns, top_fields, understood

CSV_FIELDS = {
    "generation_time(s)": "generation_time",
    "latency(ms)": "latency",
    "1st_latency(ms)": "first_latency",
    "2nd_avg_latency(ms)": "second_avg_latency",
    "1st_infer_latency(ms)": "first_infer_latency",
    "2nd_infer_avg_latency(ms)": "second_infer_avg_latency",
}
"""Column of the CSV -> field of the JSON."""
IS_HEADER = has_columns("iteration", "pretrain_time(s)", "infer_count", *CSV_FIELDS)
OF_ALL = ("model", "framework", "device", "precision", "num_beams", "batch_size")
"""Columns of the CSV that are metadata in the JSON."""
OF_FIRST, OF_OTHERS = "first_latency", "second_avg_latency"
ABSENT = ("", "NA", -1)
"""Value of a time that was not measured."""
TOKEN_TIMES = {OF_FIRST: "time_to_first_token", OF_OTHERS: "time_per_output_token"}
TIMES = {**TOKEN_TIMES, "tokenization_time": "tokenize"}
"""Field -> raw metric, in ms."""
FURTHER_TIMES = {
    "latency": "time_per_token_ms",
    "first_infer_latency": "first_infer_latency_ms",
    "second_infer_avg_latency": "second_infer_avg_latency_ms",
    "detokenization_time": "detokenize_ms",
}
"""Field -> metric: its median, in ms."""
OF_A_PROMPT_TOKEN = (OF_FIRST, "first_infer_latency")
"""Fields that are divided by the tokens of the prompt in a chat."""
PEAK_MEMORY = ("max_rss_mem", "max_rss_mem(MB)", "max_rss_mem(MiB)")
"""Names of an iteration's highest resident memory, in MiB in every version."""
RUNTIMES = {"ov": "openvino", "pt": "eager"}
LOAD_MEMORY = {"compile_max_rss_mem(MiB)": "memory_peak_rss_load_mb"}
MB_PER_MIB = bytes_to_mb(BYTES_PER_MIB)
DEFINITIONS = {
    "latency": "generation_time: one call of generate for the batch, without tokenization",
    "time_to_first_token_ms": "median of first_latency: the model's first token in a call, without tokenization",
    "time_per_output_token_ms": "median over the calls of second_avg_latency, the mean of a call's other tokens",
    "decode_tokens_per_sec": "median of second_token_throughput: batch size over second_avg_latency",
    "memory_peak_rss_infer_mb": "the highest max_rss_mem of the iterations that measured it, warm-ups too",
    "time_per_token_ms": "median of latency: generation_time over the tokens of one sequence",
    "tokenize_ms": "median of tokenization_time: encoding the prompts",
    "load_and_compile_s": "compile_time: reading and compiling the model",
}


ONLY_WARM = "only warm-ups were run (-n 0)"


def recognises(file: ForeignFile) -> bool:
    if isinstance(file.json, dict):
        data = file.json
        return (
            isinstance(data.get("metadata"), dict)
            and isinstance(data.get("perfdata"), dict)
            and {"compile_time", "results"} <= data["perfdata"].keys()
        )
    return bool(csv_header(file, IS_HEADER))


def read(file: ForeignFile) -> Iterator[ForeignRun]:
    if file.json is not None:
        yield from _runs(file, top_fields(file))
        return
    rows = (pair for pair in csv_table_rows(file, IS_HEADER) if (pair[1].peek("iteration") or "").isdecimal())
    tables = grouped(((table, *map(row.peek, OF_ALL)), row) for table, row in rows)  # joined files have several
    read_tables = [_of_table(file, own) for own in tables.values()]
    calls = set[float]().union(*(_generation_times(table.unread_copy()) for table in read_tables))
    file.give_way_to(  # a user names both, and may have given one name to the reports of two runs
        file.called.with_suffix(".json"),
        lambda other: recognises(other) and calls <= _generation_times(top_fields(other)),
    )
    for index, table in enumerate(read_tables):
        yield from _runs(file, table, index, is_alone=len(tables) == 1)


def _generation_times(top: Fields) -> set[float]:
    """The times of the calls, of five digits in both reports."""
    times = (call.peek("generation_time") for call in top.section("perfdata").objects("results") or ())
    return {time for time in times if isinstance(time, int | float)}


def _of_table(file: ForeignFile, rows: Sequence[Fields]) -> Fields:
    """The iterations of a CSV in the form of the JSON; its rows of averages and comments are none."""
    times = (row.number("pretrain_time(s)", low=0) for row in rows)
    compile_time = next((time for time in times if time is not None), None)
    others = [
        {CSV_FIELDS.get(name, name): row.peek(name) for name in row if name not in (*OF_ALL, "pretrain_time(s)")}
        for row in rows
    ]
    timed = {"compile_time": compile_time, "results": [_numbers(file, row) for row in others]}
    return Fields(file, {"metadata": _numbers(file, {name: rows[0].peek(name) for name in OF_ALL}), "perfdata": timed})


def _runs(file: ForeignFile, top: Fields, index: int = 0, *, is_alone: bool = True) -> Iterator[ForeignRun]:
    metadata, performance = top.section("metadata"), top.section("perfdata")
    entries = performance.required(performance.objects, "results")
    iterations = [one for one, *_ in understood(file, entries, lambda one: (one, _number(one), _call_ms(one)))]
    if iterations and not any(_number(iteration) for iteration in iterations):
        if is_alone:
            file.without_results(ONLY_WARM)
        file.leave_out(f"table {index + 1}", ONLY_WARM)
        return
    load = {"load_and_compile_s": performance.number("compile_time", low=0)}
    for name, metric in LOAD_MEMORY.items():
        load[metric] = None if performance.peek(name) in ABSENT else performance.scaled(name, MB_PER_MIB, low=0)
    batch_size = metadata.count("batch_size") or 1
    calls = [(_call(one.unread_copy()), one) for one in iterations]
    prompts = {call.prompt for call, _ in calls}
    calls = [(call if len(prompts) > 1 else replace(call, prompt=None), one) for call, one in calls]
    results = list(understood(file, grouped(calls).items(), lambda alike: _result(*alike, batch_size, load)))
    first, last = (_stated(entry) for entry in (iterations[0], iterations[-1])) if iterations else ({}, {})
    is_openvino = metadata.text("framework") == "ov"
    device, word, beams = metadata.text("device") or "unknown", metadata.text("precision"), metadata.count("num_beams")
    is_chat = any(isinstance(iteration.peek("chat_idx"), int | float) for iteration in iterations)
    is_speculative = any(doubt.kind == STEPS for result in results for doubt in result.doubts)
    mode: dict[str, Scalar | None] = {
        "engine": "llm_bench" if is_openvino else None,
        "num_beams": beams if beams and beams > 1 else None,
        "weights": word if word and precision_of(word) == "other" else None,
        "chat": is_chat or None,
        "speculative_decoding": is_speculative or None,
    }
    yield ForeignRun(
        key=str(index or ""),
        model_id=metadata.text("model") or "unknown",
        task="text-generation" if any(one.point.new_tokens for one in results) else "benchmark",
        results=results,
        started_at=first.get("start"),
        finished_at=last.get("end"),
        stated_times=(first.get("stated"),),
        runtime="openvino" if is_openvino else RUNTIMES.get(metadata.text("framework") or "", "unknown"),
        device_type="openvino" if is_openvino else device.lower(),
        device_selector=f"openvino:{device}" if is_openvino else None,
        precision=precision_of(word),
        runtime_mode=mode,
        kept=top.rest(),
    )


def _numbers(file: ForeignFile, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a row, as numbers wherever the JSON has numbers."""
    row = Fields(file, values, numbers_are_text=True)
    texts = ("model", "framework", "device", "precision", "result_md5", "start", "end")
    return {name: row.peek(name) if name in texts or row.peek(name) in ABSENT else row.number(name) for name in values}


def _number(iteration: Fields) -> int:
    """The number of an iteration; 0 is a warm-up."""
    return iteration.required(iteration.integer, "iteration")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What the calls of one point have in common."""

    tokens_in: int | None
    tokens_out: int | None
    """Tokens of the whole batch; None where they are not given."""
    steps: int | None
    """Denoising steps of a call that makes an image or a video."""
    prompt: int | None
    """The number of such a call's prompt, which has a size of image of its own."""


def _call(iteration: Fields) -> Call:
    tokens_in, tokens_out = _tokens(iteration, "input_size"), _tokens(iteration, "output_size")
    is_image = not tokens_out and iteration.peek("latency") in ABSENT  # embeddings have one
    steps, prompt = (_tokens(iteration, name) if is_image else None for name in ("infer_count", "prompt_idx"))
    return Call(tokens_in=tokens_in, tokens_out=tokens_out, steps=steps or None, prompt=prompt)


def _result(call: Call, iterations: Sequence[Fields], batch_size: int, load: Mapping[str, float | None]) -> Result:
    timed = [iteration for iteration in iterations if _number(iteration)]
    warm = [iteration for iteration in iterations if not _number(iteration)]
    # Tokens of one sequence of the batch; None for 0 tokens, or if the sequences differ.
    tokens_in, tokens_out = (
        total // batch_size if total and not total % batch_size else None for total in (call.tokens_in, call.tokens_out)
    )
    axes = {"steps": call.steps, "prompt": call.prompt}
    phases: tuple[tuple[Sequence[Fields], Phase], ...] = ((warm, "warmup"), (timed, "measure"))
    samples = [block(0, [_call_ms(entry) for entry in own], phase=phase) for own, phase in phases]
    found: list[Samples] = []
    per_token, doubts = _time_per_token(timed, tokens_out, batch_size)
    for name, metric in TIMES.items():
        values = per_token if name == OF_OTHERS else _times(timed, name)
        if len(values) == len(timed) and (tokens_out or name not in TOKEN_TIMES):
            found.append(measured(metric, values))
    metrics = medians(found)
    for name, metric in FURTHER_TIMES.items():
        if (tokens_out or name != "latency") and (values := _times(timed, name)):
            metrics[metric] = median_of(values)
    peaks = [
        iteration.number(name) for iteration in iterations for name in PEAK_MEMORY if iteration.peek(name) not in ABSENT
    ]
    if found_mib := [peak for peak in peaks if peak is not None and peak > 0]:
        metrics["memory_peak_rss_infer_mb"] = max(found_mib) * MB_PER_MIB
    rates = [rate for entry in timed if (rate := entry.number("second_token_throughput", low=0)) is not None]
    each_ms = metrics.get("time_per_output_token_ms")
    if doubts and each_ms:
        metrics["decode_tokens_per_sec"] = batch_size / each_ms * MS_PER_S
    elif rates and tokens_out:
        metrics["decode_tokens_per_sec"] = median_of(rates)
    return foreign_result(
        Point(
            batch_size=batch_size,
            sequence_length=tokens_in,
            new_tokens=tokens_out,
            axes={name: value for name, value in axes.items() if value is not None},
        ),
        metrics={**metrics, **load},
        samples=[*samples, *found],
        warmup_iterations=len(warm),
        doubts=doubts,
        status="ok" if timed else "skipped",
        error=None if timed else "only the warm-up had as many tokens",
    )


def _time_per_token(
    timed: Sequence[Fields], tokens: int | None, batch_size: int
) -> tuple[list[float], tuple[Doubt, ...]]:
    """The time per token after the first of each call, in ms.

    Since 2026.0 the tool divides it by the batch where GenAI generates, but a step of the batch gives each sequence one
    token; and it is that of a step where speculative decoding accepts several tokens in one. So it is checked against
    the time of a call, (total - first) / (tokens - 1), which is used with a doubt: if there were fewer inferences than
    tokens, or if the two differ by about the batch size.
    """
    stated = _times(timed, OF_OTHERS)
    unread = [entry.unread_copy() for entry in timed]
    firsts = _times(unread, OF_FIRST)
    if tokens is None or tokens < 2 or not stated or len(firsts) != len(timed):
        return stated, ()
    computed = [(_call_ms(one) - first_ms) / (tokens - 1) for one, first_ms in zip(unread, firsts, strict=True)]
    evidence: dict[str, Json] = {"stated_ms": median_of(stated), "computed_ms": median_of(computed)}
    steps = [count for entry in unread if (count := entry.integer("infer_count"))]
    # The last token needs no inference, so one step fewer is plain decoding.
    if len(steps) == len(timed) and max(steps) + 1 < tokens and median_of(computed) < ROUNDING * median_of(stated):
        evidence |= {"tokens": tokens, "steps": int(median_of(steps))}
        return computed, (doubt(STEPS, "info", **evidence),)
    if batch_size == 1 or median_of(computed) < (1 + batch_size) / 2 * median_of(stated):
        return stated, ()  # within the half of the way to a division by the batch
    inferred = _times(unread, "second_infer_avg_latency")
    divided = doubt("divided_by_batch", "info", **evidence, batch=batch_size)
    return (inferred if len(inferred) == len(timed) else computed), (divided,)


STEPS = "several_tokens_a_step"
ROUNDING = 0.98
"""A time per token below this share of the stated one is another time."""


def _call_ms(iteration: Fields) -> float:
    """The time of a call of generate."""
    return iteration.required(lambda name: iteration.scaled(name, MS_PER_S, low=0), "generation_time")


def _times(iterations: Sequence[Fields], name: str) -> list[float]:
    """The times in a field, in ms, of the iterations that have it; of a chat those of the whole prompt."""
    values = []
    for iteration in iterations:
        value = None if iteration.peek(name) in ABSENT else iteration.number(name, low=0)
        if value is not None:
            is_share = name in OF_A_PROMPT_TOKEN and isinstance(iteration.peek("chat_idx"), int | float)
            values.append(value * (_tokens(iteration.unread_copy(), "input_size") or 1) if is_share else value)
    return values


def _tokens(iteration: Fields, name: str) -> int | None:
    """Tokens of the whole batch; None where they are not given."""
    return None if iteration.peek(name) in ABSENT else iteration.integer(name)


def _stated(iteration: Fields) -> dict[str, Any]:
    """The start and end of an iteration, and the start as written; empty if it has none."""
    if iteration.peek("start") in (None, "") or iteration.peek("end") in (None, ""):
        return {}
    start, end = iteration.time("start"), iteration.time("end")
    return {"start": start, "end": end, "stated": iteration.text("start")}


PLUGIN = Format(
    name="openvino_llm_bench",
    summary="OpenVINO GenAI's llm_bench: --report_json (json) and --report (csv)",
    definitions=DEFINITIONS,
    recognises=recognises,
    read=read,
)
