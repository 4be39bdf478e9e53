"""The shapes that optimum-benchmark's results have had, each brought to today's: {"config": ..., "report": ...}."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from db.importers import ForeignFile, read_file
from db.importers._reading import Fields, csv_rows

MEASURED = ("memory", "latency", "throughput", "energy", "efficiency")
TARGETS = (
    *("load_model", "first_forward", "forward", "first_call", "call", "per_step"),
    *("first_generate", "generate", "prefill", "decode", "per_token"),
    *("overall", "warmup", "train"),
)
OLD_FLAT = re.compile(r"(forward|generate|decode)\.(latency\(s\)|throughput\((samples|tokens)/s\))")
"""A column of `inference_results.csv`, as the first versions wrote it."""
OLD_SIZES = {"batch_size": "batch_size", "sequence_length": "sequence_length"}
OLD_NEW_TOKENS = "num_new_tokens"


def is_config(data: Any) -> bool:
    """Whether it is a benchmark's configuration."""
    return isinstance(data, dict) and {"backend", "scenario", "launcher"} <= data.keys()


def is_report(data: Any) -> bool:
    """Whether it is a benchmark's report: targets with measurements in them."""
    return (
        isinstance(data, dict)
        and any(name in TARGETS for name in data)
        and any(isinstance(one, dict) and any(name in MEASURED for name in one) for one in data.values())
    )


def is_whole(data: Any) -> bool:
    """Whether it is both."""
    return isinstance(data, dict) and is_config(data.get("config")) and is_report(data.get("report"))


def csv_header(file: ForeignFile) -> list[str]:
    """The cells of the first line; empty when it is none of CSV."""
    try:
        return next(csv.reader(io.StringIO((file.text or "")[:100_000])), [])
    except csv.Error:
        return []


def is_flat(header: list[str]) -> bool:
    """Whether the columns are those of a flat file: today's, a report's alone, or of the first versions."""
    return any(
        name.startswith(("report.", "config.backend."))
        or OLD_FLAT.fullmatch(name)
        or (name.split(".")[0] in TARGETS and name.endswith((".latency.values", ".latency.mean")))
        for name in header
    )


def whole(file: ForeignFile) -> Iterator[tuple[str, Fields]]:
    """Every benchmark in the file, with a key: an object with config and report, either of which may be missing."""
    if isinstance(file.json, dict):
        yield "", Fields(file, _of_json(file.json))
        return
    for row in csv_rows(file):
        cells = {name: cell for name in row if (cell := row.text(name)) is not None}
        yield row.path, Fields(file, _of_flat(file, cells), row.path, numbers_are_text=True)


def config_beside(file: ForeignFile) -> Mapping[str, Any] | None:
    """The configuration that a report's own file has beside it."""
    beside = file.path.with_name(f"{file.path.stem.removesuffix('report')}config.json")
    data = _json_of(beside) if file.path.stem.endswith("report") else None
    return data if is_config(data) else None


def told_beside(file: ForeignFile, report: Fields) -> bool:
    """Whether a file beside this one holds the same latencies and more: the whole benchmark's, or the JSON of a CSV."""
    stem = file.path.stem
    names = {f"{stem.removesuffix('_report')}.json", f"{stem}.json"} - {file.path.name}
    mine = _latencies(report.rest())
    return bool(mine) and any(_latencies(_report_of(_json_of(file.path.with_name(name)))) == mine for name in names)


def _report_of(data: Any) -> Any:
    return data["report"] if is_whole(data) else data if is_report(data) else None


def _latencies(report: Any) -> dict[str, list[float]]:
    """Target -> its latencies, of those that have a list of numbers."""
    found = {}
    for target, measured in report.items() if isinstance(report, dict) else ():
        latency = measured.get("latency") if isinstance(measured, dict) else None
        values = latency.get("values") if isinstance(latency, dict) else None
        if isinstance(values, list) and all(isinstance(value, float | int) for value in values):
            found[target] = values
    return found


def _json_of(path: Path) -> Any:
    return read_file(path).json if path.is_file() else None


def _of_json(data: Mapping[str, Any]) -> Mapping[str, Any]:
    if is_whole(data):
        return data
    if is_config(data):
        return {"config": data}
    return _of_old(data) if "batch_size" in data else {"report": data}


def _of_old(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """A report that has its sizes beside the targets, and units in the names: "list[s]", "mean(s)"."""
    shapes = {name: data[old] for name, old in OLD_SIZES.items() if old in data}
    generate = {"max_new_tokens": data[OLD_NEW_TOKENS]} if OLD_NEW_TOKENS in data else {}
    targets = {name: _of_old_target(value) for name, value in data.items() if isinstance(value, dict)}
    others = {name: value for name, value in data.items() if name not in (*shapes, *targets, OLD_NEW_TOKENS)}
    return {
        "config": {"scenario": {"input_shapes": shapes, "generate_kwargs": generate}},
        "report": targets,
        **others,
    }


def _of_old_target(target: Mapping[str, Any]) -> dict[str, Any]:
    latency = target.get("latency")
    if not isinstance(latency, dict) or "list[s]" not in latency:
        return dict(target)
    others = {name: value for name, value in latency.items() if name != "list[s]"}
    return {**target, "latency": {"unit": "s", "values": latency["list[s]"], **others}}


def _of_flat(file: ForeignFile, cells: Mapping[str, str]) -> dict[str, Any]:
    """Nested objects from dotted names; a report's alone is put under "report"."""
    nested: dict[str, Any] = {}
    is_old = any(OLD_FLAT.fullmatch(name) for name in cells)
    is_part = not is_old and not any(name.startswith(("report.", "config.")) for name in cells)
    for name, cell in cells.items():
        is_plain = not is_old or name.startswith("config.")
        path = [*(["report"] * is_part), *name.split(".")] if is_plain else ["report", *_old_path(name)]
        _put(file, nested, path, _list_or_text(cell))
    return nested


def _old_path(name: str) -> list[str]:
    """The path that today's files have for a column of the first versions; its own name where they have none."""
    target, _, what = name.partition(".")
    if what == "latency(s)":
        return [target, "latency", "mean"]
    if what.startswith("throughput("):
        return [target, "throughput", "value"]
    return [name]


def _put(file: ForeignFile, nested: dict[str, Any], path: list[str], value: Any) -> None:
    for name in path[:-1]:
        nested = nested.setdefault(name, {})
        if not isinstance(nested, dict):
            file.refuse(f"{'.'.join(path)}: {name} has a value and fields at once")
    nested[path[-1]] = value


def _list_or_text(cell: str) -> Any:
    if not cell.startswith("["):
        return cell
    try:
        return json.loads(cell)
    except (ValueError, RecursionError):
        return cell
