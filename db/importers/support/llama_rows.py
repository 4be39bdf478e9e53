"""The rows of llama-bench's outputs: JSON, JSON lines, CSV, SQL and the Markdown table, under the names of its JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from db.importers.support.files import ForeignFile
from db.importers.support.reading import Fields, csv_rows

NEEDED = {"build_commit", "model_filename", "n_prompt", "n_gen", "avg_ts"}
"""Columns that every version has."""
INSERT = re.compile(r"INSERT INTO (?:test|llama_bench) \(([^)]*)\) VALUES \('(.*)'\);")
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
}
"""Name of a column of the table -> that of the field. Others are called the same."""
TEST = re.compile(r"(?:pp(\d{1,9}))?\+?(?:tg(\d{1,9}))?(?: @ d(\d{1,9}))?")
"""What was run: pp512, tg128, pp512+tg128, each perhaps at a depth."""
BUILD = re.compile(r"^build: (\S+) \((\d{1,9})\)", re.MULTILINE)
GPU = re.compile(r"^\s*Device \d+: ([^,\n]+),", re.MULTILINE)
SPEED = re.compile(r"([0-9.]+) ± ([0-9.]+)")
SEPARATOR = re.compile(r"[|\s:-]+")
GROUP_OF_THREE = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
BINARY = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def looks_like_rows(file: ForeignFile) -> bool:
    """Whether the file is one of the outputs."""
    data = file.json
    if data is not None:
        rows = data if isinstance(data, list) else [data]
        return bool(rows) and all(isinstance(row, dict) and row.keys() >= NEEDED for row in rows)
    if file.json_lines:
        return all(isinstance(row, dict) and row.keys() >= NEEDED for row in file.json_lines)
    text = file.text or ""
    return _is_csv(text) or _inserts(text) != [] or _header(text.splitlines()) is not None


def rows(file: ForeignFile) -> Iterator[Fields]:
    """Every row. Raises FormatError for text that is none of the outputs."""
    text = file.text or ""
    if isinstance(file.json, list | dict) or file.json_lines:
        yield from _json_rows(file)
    elif _is_csv(text):
        yield from csv_rows(file)
    elif _inserts(text):
        yield from _sql_rows(file, text)
    elif _header(text.splitlines()) is not None:
        yield from _markdown_rows(file, text)
    else:
        file.refuse("none of llama-bench's outputs: JSON, JSON lines, CSV, SQL or a Markdown table")


def _is_csv(text: str) -> bool:
    head = text[:10_000].split("\n", 1)[0]
    return {name.strip().strip('"') for name in head.split(",")} >= NEEDED


def _json_rows(file: ForeignFile) -> Iterator[Fields]:
    data: list[Any] = list(file.json_lines) if file.json is None else file.json
    for index, row in enumerate(data if isinstance(data, list) else [data]):
        if not isinstance(row, dict):
            file.refuse(f"row {index}: expected an object")
        yield Fields(file, row, f"row {index}")


def _inserts(text: str) -> list[re.Match[str]]:
    return [found for line in text.splitlines() if (found := INSERT.fullmatch(line.strip()))]


def _sql_rows(file: ForeignFile, text: str) -> Iterator[Fields]:
    """Every value stands between quotes, and none is escaped: one with a quote and a comma in it cannot be told."""
    for number, found in enumerate(_inserts(text), 1):
        names, values = [name.strip() for name in found[1].split(",")], found[2].split("', '")
        if len(names) != len(values):
            file.refuse(f"INSERT {number}: {len(values)} values for {len(names)} columns")
        yield Fields(file, dict(zip(names, values, strict=True)), f"INSERT {number}", numbers_are_text=True)


def _header(lines: list[str]) -> int | None:
    """The place of the Markdown table's heading."""
    for place, line in enumerate(lines[:-1]):
        names = _cells(line)
        if {"model", "test", "t/s"} <= set(names) and SEPARATOR.fullmatch(lines[place + 1]):
            return place
    return None


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")] if line.lstrip().startswith("|") else []


def _markdown_rows(file: ForeignFile, text: str) -> Iterator[Fields]:
    lines = text.splitlines()
    start = _header(lines) or 0
    names = _cells(lines[start])
    build, gpus = BUILD.search(text), GPU.findall(text)
    shared = {"build_commit": build[1], "build_number": build[2]} if build else {}
    shared |= {"gpu_info": ", ".join(gpus)} if gpus else {}
    for number, line in enumerate(lines[start + 2 :], start + 3):
        cells = _cells(line)
        if cells and len(cells) != len(names):
            file.refuse(f"line {number}: {len(cells)} cells under {len(names)} headings")
        if cells:
            row = {MARKDOWN_NAMES.get(name, name): cell for name, cell in zip(names, cells, strict=True)}
            yield Fields(file, shared | _of_table(file, number, row), f"line {number}", numbers_are_text=True)


def _of_table(file: ForeignFile, number: int, row: dict[str, str]) -> dict[str, Any]:
    """The table's test, speed, size and parameters as the fields that they are made of."""
    test, speed = TEST.fullmatch(row["test"]), SPEED.fullmatch(row["t/s"])
    if test is None or speed is None:
        file.refuse(f"line {number}: expected a test such as pp512 and a speed such as 7263.61 ± 90.94")
    prompt, generated, depth = (int(found or 0) for found in test.groups())
    others = {name: cell for name, cell in row.items() if name not in ("test", "t/s", "size", "params")}
    return {
        **others,
        "n_prompt": prompt,
        "n_gen": generated,
        "n_depth": depth,
        "avg_ts": speed[1],
        "stddev_ts": speed[2],
        "model_size": _scaled(row.get("size"), BINARY),
        "model_n_params": _scaled(row.get("params"), GROUP_OF_THREE),
    }


def _scaled(cell: str | None, factors: dict[str, float] | dict[str, int]) -> int | None:
    """Of "4.36 GiB" or "7.62 B" the number, which is as exact as three digits are."""
    value, _, unit = (cell or "").partition(" ")
    try:
        return round(float(value) * factors[unit])
    except (KeyError, ValueError, OverflowError):
        return None
