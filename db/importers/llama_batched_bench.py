"""llama.cpp's llama-batched-bench: its Markdown table and its JSON lines (--output-format jsonl); and those of
ik_llama.cpp's llama-sweep-bench.

A row is one call for a batch of sequences, measured once: the prompts, then the new tokens step by step. A row of
llama-sweep-bench is two measurements of one sequence with N_KV tokens in the cache: a prompt, and new tokens. The table
names neither the model nor the device; what the program printed, or somebody wrote, above it may.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarking.core.metrics import MS_PER_S
from benchmarking.core.records import NOT_APPLICABLE, Doubt, Point, Result, Scalar
from db.importers.support.building import UNNAMED, ForeignRun, Format
from db.importers.support.files import ForeignFile
from db.importers.support.measures import block, foreign_result
from db.importers.support.names import GPU, cells_of, end_of_table, is_heading, model_name
from db.importers.support.reading import Fields, json_objects, mostly, understood

NEEDED = {"pp", "tg", "t_pp", "speed_pp", "t_tg", "speed_tg"}
SIZES = {"pl", "n_kv"}
"""A row has the number of sequences, or in llama-sweep-bench the tokens in the cache alone."""
COLUMNS = {
    "PP": "pp",
    "TG": "tg",
    "B": "pl",
    "N_KV": "n_kv",
    "T_PP s": "t_pp",
    "S_PP t/s": "speed_pp",
    "T_TG s": "t_tg",
    "S_TG t/s": "speed_tg",
    "T s": "t",
    "S t/s": "speed",
}
"""Heading -> field of the JSON lines."""
HEADINGS = {"PP", "TG", "T_PP s", "T_TG s"}
SETTING = re.compile(r"\b(n_kv_max|n_batch|n_ubatch|flash_attn|is_pp_shared|n_gpu_layers|n_threads) = (-?\d+)")
"""A setting in the line above the table."""
MODE = ("n_batch", "n_ubatch", "flash_attn", "is_pp_shared", "n_gpu_layers", "n_threads_batch", "table")
"""Fields that distinguish series; one of several tables of unnamed models has its number."""
LOADED = re.compile(
    r"loaded meta data with .* from (?P<log>\S+) \(version|"
    r"(?:batched|sweep)-bench\b[^\n`]*? (?:(?:-m|--model)[ =](?P<command>[^\s`]+)|"
    r"(?:-hfr?|--hf-repo)[ =](?P<repo>[^\s`]+))|"
    r"\bbatched-bench(?:\.exe)? (?P<first>[^\s`-][^\s`]*\.gguf)|"
    r"^#+ (?P<heading>[\w.-]+/(?=[^\s/]*\d)[\w.-]+)[ \t]*$|"
    r"^Model: *https://huggingface\.co/(?P<page>[\w.-]+/[\w.-]+)",
    re.MULTILINE,
)
"""The model's file in the log of loading it or in the command, or the model in a report with tables of several."""
DEFINITIONS = {
    "latency": "t: the prompts of all sequences of the batch, then all their new tokens; one call, measured once",
    "time_to_first_token_ms": "t_pp: processing the prompts of all sequences",
    "time_per_output_token_ms": "t_tg / tg: a step, which gives each sequence a token",
    "prefill_tokens_per_sec": "speed_pp: prompt tokens of the batch (of one sequence if they share it) over t_pp",
    "decode_tokens_per_sec": "speed_tg: new tokens of all sequences over t_tg",
    "total_tokens_per_sec": "speed: all of these tokens over t",
}
TWO_CALLS = f"{NOT_APPLICABLE}: the prompt and the new tokens are measured one by one"
ONE_CALL = Doubt(kind="few_samples", severity="info", evidence={"calls": 1})


def _header(lines: Sequence[str]) -> Iterator[int]:
    """The numbers of the first lines under the headings of tables."""
    for place in range(len(lines)):
        if is_heading(lines, place, HEADINGS):
            yield place + 2


def recognises(file: ForeignFile) -> bool:
    if file.json_lines or isinstance(file.json, dict):
        return mostly(
            _objects(file),
            lambda one: isinstance(one, dict) and one.keys() >= NEEDED and not SIZES.isdisjoint(one),
        )
    text = file.text or ""
    return "T_PP s" in text and next(_header(text.splitlines()), None) is not None


def _objects(file: ForeignFile) -> Sequence[Any]:
    return file.json_lines or (file.json,)


def read(file: ForeignFile) -> Iterator[ForeignRun]:
    text = file.text or ""
    if file.json_lines or isinstance(file.json, dict):
        rows = list(json_objects(file, _objects(file), "line"))
    else:
        rows = list(_table_rows(file, text.splitlines()))
    if not rows and not file.left_out:
        file.without_results("a table without rows: the program ended before its first result")
    groups: dict[str, list[tuple[Mapping[str, Any], Result]]] = {}
    seen: Counter[tuple[str, str]] = Counter()
    for setup, result in understood(file, rows, _row):
        place = (f"{setup}", result.point.label)
        # A repeated row, as of another build, belongs to another run.
        key = f"{setup} {seen[place]}" if seen[place] else f"{setup}"
        groups.setdefault(key, []).append((setup, result))
        seen[place] += 1
    gpus = [name for found in GPU.finditer(text) for name in found.groups() if name]
    for key, own in groups.items():
        yield ForeignRun(
            key=key,
            task="text-generation",
            results=[result for _, result in own],
            device_name=", ".join(dict.fromkeys(name.strip() for name in gpus)) or None,
            device_count=max(len(gpus), 1) if len(set(gpus)) == 1 else 1,
            runtime="llama.cpp",
            **own[0][0],
        )


def _table_rows(file: ForeignFile, lines: Sequence[str]) -> Iterator[Fields]:
    """The rows of all tables, across lines that were printed in between."""
    starts = list(_header(lines))
    before, model = 0, None
    ends = [*(start - 2 for start in starts[1:]), len(lines)]
    for place, (start, following) in enumerate(zip(starts, ends, strict=False), 1):
        following = end_of_table(lines, start, following)
        names = [COLUMNS.get(name, name) for name in cells_of(lines[start - 2])]
        above = "\n".join(lines[before:start])
        settings = dict(SETTING.findall(above))
        for found in LOADED.finditer(above):
            named = next(filter(None, found.group("heading", "page", "repo")), None)
            model = named or model_name(found["log"] or found["command"] or found["first"])
        settings |= {"model": model} if model else {"table": str(place)} if place > 1 else {}
        own = [number for number in range(start, following) if len(cells_of(lines[number])) == len(names)]
        before = own[-1] + 1 if own else start
        for number in range(start, following):
            cells = cells_of(lines[number])
            if number in own:
                row = {**settings, **dict(zip(names, cells, strict=True))}
                yield Fields(file, row, f"line {number + 1}", numbers_are_text=True)
            elif cells or (number < before and lines[number].strip()):
                file.leave_out(f"line {number + 1}", f"not a row of the table: {lines[number].strip()[:60]!r}")


def _row(row: Fields) -> tuple[Mapping[str, Any], Result]:
    prompt, new, batch = (row.sure(row.integer, name) for name in ("pp", "tg", "pl"))
    is_sweep = "pl" not in row and "n_kv" in row
    batch = 1 if is_sweep else batch
    if not batch or not (prompt or new):
        row.refuse("pl", "expected a batch of prompts or new tokens")
    total_s, first_s, others_s = (row.number(name, low=0) for name in ("t", "t_pp", "t_tg"))
    depth = row.sure(row.integer, "n_kv") if is_sweep else None
    parts = [took for count, took in ((prompt, first_s), (new, others_s)) if count]
    if total_s is None and None not in parts:
        total_s = sum(filter(None, parts)) or None
    total_s = None if is_sweep else total_s
    mode: dict[str, Scalar] = {name: str(value) for name in MODE if (value := row.any(name)) is not None}
    setup = {
        "model_id": row.text("model") or UNNAMED,
        "runtime_mode": mode,
        "num_threads": row.count("n_threads"),
    }
    result = foreign_result(
        Point(
            batch_size=batch,
            sequence_length=prompt or None,
            new_tokens=new or None,
            axes={"depth": depth} if depth else {},
        ),
        samples=[block(0, (total_s * MS_PER_S,))] if total_s else [],
        metrics={
            "time_to_first_token_ms": first_s * MS_PER_S if first_s and prompt else None,
            "time_per_output_token_ms": others_s * MS_PER_S / new if others_s and new else None,
            "prefill_tokens_per_sec": row.number("speed_pp", low=0) if prompt else None,
            "decode_tokens_per_sec": row.number("speed_tg", low=0) if new else None,
            "total_tokens_per_sec": row.number("speed", low=0),
            "throughput_tokens_per_sec": batch * new / total_s if total_s and new else None,
            "throughput_samples_per_sec": batch / total_s if total_s else None,
        },
        doubts=(ONE_CALL,),
        missing={"latency_median_ms": TWO_CALLS} if is_sweep else {},
        kept=row.rest(),
    )
    return setup, result


PLUGIN = Format(
    name="llama_batched_bench",
    summary="llama.cpp's llama-batched-bench: its table (md, or a log with it) and --output-format jsonl; "
    "ik_llama.cpp's llama-sweep-bench: its table and its JSON lines",
    definition="llama-batched-bench",
    definitions=DEFINITIONS,
    recognises=recognises,
    read=read,
)
