"""llama.cpp's llama-batched-bench, and ik_llama.cpp's llama-sweep-bench.

They print a Markdown table, or JSON lines (--output-format jsonl). A row of llama-batched-bench is one call for a batch
of sequences, measured once: the prompts, then the new tokens step by step. A row of llama-sweep-bench is two
measurements of one sequence with N_KV tokens in the cache: a prompt, and new tokens. The table names neither the model
nor the device; what the program printed, or somebody wrote, above it may.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarking.core.doubts import doubt
from benchmarking.core.metrics import MS_PER_S
from benchmarking.core.records import NOT_APPLICABLE, Point, Result, Scalar
from db.importers.llama_bench import DEFAULTS as OF_LLAMA_BENCH
from db.importers.support.building import UNNAMED, ForeignRun, Format, runs_of
from db.importers.support.files import ForeignFile
from db.importers.support.llama_tables import gpus_in, has_table, model_above, tables
from db.importers.support.measures import block, foreign_result
from db.importers.support.reading import (
    Fields,
    agreed,
    commands_of,
    has_keys,
    json_objects,
    parsed_number,
    printed_lines,
    resolved,
    understood,
    words_of,
)

NEEDED = {"pp", "tg", "t_pp", "speed_pp", "t_tg", "speed_tg"}
SIZES = {"pl", "n_kv"}
"""A row has the number of sequences, or in llama-sweep-bench, which times no whole call, the tokens in the cache."""
COLUMNS = {
    "PP": "pp",
    "TG": "tg",
    **dict.fromkeys(("B", "PL"), "pl"),
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
SETTING = re.compile(
    r"\b(n_kv_max|n_batch|n_ubatch|flash_attn|is_pp_shared|is_tg_separate|n_gpu_layers|n_threads(?:_batch)?) = (-?\d+)"
)
"""A setting in the line above the table."""
NO_SETTING = (
    *("pp", "tg", "pl", "n_kv", "t_pp", "speed_pp", "t_tg", "speed_tg", "t", "speed"),
    *("model", "n_kv_max", "n_threads", "hf_repo", "hf", "hfr", "hff"),
    *("hft", "mu", "s", "v", "lv", "offline", "o", "output_format"),
    *("npp", "ntg", "npl", "prompt", "p", "n_prompt", "n_gen", "predict", "n", "columns"),
)
"""Fields and flags that do not distinguish series, are axes, or results; the context is as large as the calls need."""
FLAGS_OF_SETTINGS = {
    **dict.fromkeys(("c", "ctx_size"), "n_kv_max"),
    **dict.fromkeys(("b", "batch_size"), "n_batch"),
    **dict.fromkeys(("ub", "ubatch_size"), "n_ubatch"),
    **dict.fromkeys(("ngl", "gpu_layers"), "n_gpu_layers"),
    **dict.fromkeys(("t", "threads"), "n_threads"),
    **dict.fromkeys(("tb", "threads_batch"), "n_threads_batch"),
    **dict.fromkeys(("ctk", "cache_type_k"), "type_k"),
    **dict.fromkeys(("ctv", "cache_type_v"), "type_v"),
    **dict.fromkeys(("ot", "override_tensor"), "tensor_buft_overrides"),
    **dict.fromkeys(("dev", "device"), "devices"),
    "fa": "flash_attn",
    "pps": "is_pp_shared",
    "tgs": "is_tg_separate",
    "ncmoe": "n_cpu_moe",
    "sm": "split_mode",
    "mg": "main_gpu",
    "ts": "tensor_split",
    "nkvo": "no_kv_offload",
}
"""Flag of the command above a table -> the field's name."""
ADDED = ("tensor_buft_overrides", "override_kv", "lora", "lora_scaled", "control_vector", "control_vector_scaled")
"""Settings to which each flag adds, of which the first that fits counts; of the others the last flag counts."""
STANDARD = {
    "is_tg_separate": ("0",),
    **{name: OF_LLAMA_BENCH[name] for name in ("type_k", "type_v", "split_mode", "main_gpu", "n_cpu_moe")},
}
DEFINITIONS = {
    "latency": "t: the prompts of all sequences of the batch, then all their new tokens; one call, measured once",
    "time_to_first_token_ms": "t_pp: processing the prompts of all sequences",
    "time_per_output_token_ms": "t_tg / tg: a step, which gives each sequence a token; t_tg / (tg * pl) with -tgs",
    "prefill_tokens_per_sec": "speed_pp: prompt tokens of the batch (of one sequence if they share it) over t_pp",
    "decode_tokens_per_sec": "speed_tg: new tokens of all sequences over t_tg",
    "total_tokens_per_sec": "speed: all of these tokens over t",
}
TWO_CALLS = f"{NOT_APPLICABLE}: the prompt and the new tokens are measured one by one"
ONE_CALL = doubt("few_samples", calls=1)


def recognises(file: ForeignFile) -> bool:
    if values := file.json_values:
        return any(has_keys(one, NEEDED) and not SIZES.isdisjoint(one) for one in values)
    text = file.text or ""
    return "T_PP s" in text and has_table(text, HEADINGS)


def read(file: ForeignFile) -> Iterator[ForeignRun]:
    text = file.text or ""
    rows = list(json_objects(file, file.json_values, "line") if file.json_values else _table_rows(file, text))
    if not rows and not file.left_out:
        file.without_results("a table without rows: the program ended before its first result")
    groups = runs_of((f"{test[0]}", test[1].point, test) for test in understood(file, rows, _row))
    gpus = [name for _, name in gpus_in(text)]
    for (setup, number), own in groups.items():
        yield ForeignRun(
            key=f"{setup} {number}" if number else f"{setup}",
            task="text-generation",
            results=[result for _, result in own],
            device_name=", ".join(dict.fromkeys(gpus)) or None,
            device_count=max(len(gpus), 1) if len(set(gpus)) == 1 else 1,
            runtime="llama.cpp",
            **own[0][0],
        )


def _table_rows(file: ForeignFile, text: str) -> Iterator[Fields]:
    """The rows of all tables, with the settings and the model that are printed above them."""
    model: str | None = None
    given: dict[str, str] = {}
    for place, (above, _, rows) in enumerate(tables(file, printed_lines(text), HEADINGS), 1):
        commands = commands_of(r"(?:llama-)?(?:batched|sweep)-bench", above)
        if (stated := model_above(above)) is not None:
            model = stated
        if commands or stated is not None:
            given = resolved(agreed([_flags_of(one) for one in commands]))
        settings = given | dict(SETTING.findall(above))
        settings |= {"model": model} if model else {"table": str(place)} if place > 1 else {}
        listed = list(rows)
        if any(_shares_prompt(cells) for _, cells in listed):
            settings = {"is_pp_shared": "1"} | settings
        for number, cells in listed:
            row = {COLUMNS[name]: cell for name, cell in cells.items() if name in COLUMNS}
            others = {name: cell for name, cell in cells.items() if name not in COLUMNS}
            fields = {**settings, **row} | ({"columns": others} if others else {})
            yield Fields(file, fields, f"line {number}", numbers_are_text=True)


def _shares_prompt(cells: Mapping[str, str]) -> bool:
    """Whether the cache of a row of several sequences held one prompt for all of them."""
    counts = {COLUMNS[name]: parsed_number(cell) for name, cell in cells.items() if name in COLUMNS}
    prompt, new, batch, cached = (
        one if isinstance(one := counts.get(name), int) else 0 for name in ("pp", "tg", "pl", "n_kv")
    )
    return batch > 1 and prompt > 0 and cached == prompt + batch * new


def _flags_of(command: str) -> dict[str, str]:
    """The flags of a command but the model's, by the names of the fields, with their values; "1" for none and on."""
    words = words_of(command)
    found: dict[str, str] = {}
    for flag, following in zip(words, [*words[1:], "-"], strict=True):
        if re.match(r"--?[A-Za-z]", flag) and flag not in ("-m", "--model"):
            name, is_joined, value = flag.lstrip("-").partition("=")
            name = name.replace("-", "_")
            value = value if is_joined else "1" if re.match(r"-(?!\d)", following) else following
            name, value = FLAGS_OF_SETTINGS.get(name, name), {"on": "1", "off": "0"}.get(value, value)
            found[name] = f"{found[name]},{value}" if name in ADDED and name in found else value
    return found


def _row(row: Fields) -> tuple[Mapping[str, Any], Result]:
    prompt, new, batch = (row.sure(row.integer, name) for name in ("pp", "tg", "pl"))
    is_sweep = "pl" not in row and "n_kv" in row and "speed" not in row
    batch = 1 if is_sweep else batch
    if not batch or not (prompt or new):
        row.refuse("pl", "expected a batch of prompts or new tokens")
    total_s, first_s, others_s = (row.number(name, low=0) for name in ("t", "t_pp", "t_tg"))
    depth = row.sure(row.integer, "n_kv") if is_sweep else None
    parts = [took for count, took in ((prompt, first_s), (new, others_s)) if count]
    if total_s is None and None not in parts:
        total_s = sum(filter(None, parts)) or None
    total_s = None if is_sweep else total_s
    settings = row.other_settings(NO_SETTING, STANDARD)
    mode: dict[str, Scalar] = {name: str(one) for name, one in settings.items() if not isinstance(one, float)}
    if mode.get("n_threads_batch") == str(row.peek("n_threads")):
        del mode["n_threads_batch"]
    at_once = 1 if mode.get("is_tg_separate") else batch  # sequences that get a token in a step
    setup = {"model_id": row.text("model") or UNNAMED, "runtime_mode": mode, "num_threads": row.count("n_threads")}
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
            "time_per_output_token_ms": others_s * MS_PER_S * at_once / (batch * new) if others_s and new else None,
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
    definitions=DEFINITIONS,
    recognises=recognises,
    read=read,
)
