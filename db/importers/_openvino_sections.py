"""The three sections of OpenVINO's benchmark report, from JSON or CSV, under one set of names.

The Python tool and the C++ tool write the same things under other names.
"""

from __future__ import annotations

import csv
import io
import re
from typing import Any

from db.importers import ForeignFile
from db.importers._reading import Fields

OPTIONS, SETUP, RESULTS = "cmd_options", "configuration_setup", "execution_results"
TITLES = {
    "command line parameters": OPTIONS,
    "configuration setup": SETUP,
    "execution results": RESULTS,
}
"""First line of a section in CSV, in lower case."""
NAMES = {
    "target device": "target_device",
    "api": "api",
    "benchmark mode": "benchmark_mode",
    "batch size": "batch_size",
    "number of iterations": "iterations_num",
    "number of parallel infer requests": "nireq",
    "duration (ms)": "duration",
    "read model time (ms)": "read_model_time",
    "reshape model time (ms)": "reshape_model_time",
    "import model time (ms)": "import_model_time",
    "compile model time (ms)": "compile_model_time",
    "load model time (ms)": "compile_model_time",
    "load_model_time": "compile_model_time",
    "first inference time (ms)": "first_inference_time",
    "total execution time (ms)": "execution_time",
    "total number of iterations": "iterations_num",
    "latency (ms)": "latency_median",
    "median latency (ms)": "latency_median",
    "percentile boundary": "percentile_boundary",
    "avg latency": "latency_avg",
    "average latency (ms)": "latency_avg",
    "min latency": "latency_min",
    "min latency (ms)": "latency_min",
    "max latency": "latency_max",
    "max latency (ms)": "latency_max",
}
"""Name in lower case -> the C++ JSON's, and what it does not have under names like it."""
PERCENTILE = re.compile(r"latency \((\d{1,3}) percentile\) \(ms\)")
STREAMS = re.compile(r"(?:number of (\w+) streams|(\w+)_streams_num)", re.IGNORECASE)


def is_report(file: ForeignFile) -> bool:
    """Whether the file is a benchmark report."""
    data = file.json
    if isinstance(data, dict):
        return isinstance(data.get(SETUP), dict) and isinstance(data.get(RESULTS), dict)
    titles = {line.strip().rstrip(";").lower() for line in (file.text or "")[:100_000].splitlines()}
    return {"configuration setup", "execution results"} <= titles


def sections(file: ForeignFile) -> dict[str, Fields]:
    """Options, setup and results. Raises FormatError for a file that has no setup and results."""
    data: Any = file.json if isinstance(file.json, dict) else _from_csv(file)
    for name in (SETUP, RESULTS):
        if not isinstance(data.get(name), dict):
            file.refuse(f"{name}: expected an object: the report is cut off, or none of benchmark_app's")
    top = {name: data.get(name) or {} for name in (OPTIONS, SETUP, RESULTS)}
    others = {name: value for name, value in data.items() if name not in top}
    fields = {
        name: Fields(file, _renamed(values) if isinstance(values, dict) else {}, name, numbers_are_text=True)
        for name, values in top.items()
    }
    return {**fields, "others": Fields(file, others)}


def _renamed(values: dict[str, Any]) -> dict[str, Any]:
    renamed: dict[str, Any] = {}
    for name, value in values.items():
        percentile = PERCENTILE.fullmatch(name.lower())
        if percentile is not None:
            renamed |= {"percentile_boundary": percentile[1], "latency_median": value}
        else:
            renamed[NAMES.get(name.lower(), name)] = value
    return renamed


def _from_csv(file: ForeignFile) -> dict[str, dict[str, Any]]:
    """Sections of "name;value" lines under their titles. What comes again under one name, or is longer, is a list."""
    found: dict[str, dict[str, Any]] = {}
    section: dict[str, Any] | None = None
    reader = csv.reader(io.StringIO(file.text or "", newline=""), delimiter=";")
    try:
        for cells in reader:
            title = TITLES.get((cells[0] if cells else "").strip().lower()) if len(cells) < 3 else None
            if title is not None and not any(cells[1:]):
                section = found.setdefault(title, {})
            elif cells and section is not None:
                value = cells[1] if len(cells) == 2 else cells[1:]
                section[cells[0]] = [section[cells[0]], value] if cells[0] in section else value
            elif cells:
                file.refuse(f"line {reader.line_num}: belongs to no section: expected a title first")
    except csv.Error as error:
        file.refuse(f"line {reader.line_num}: not CSV: {error}")
    return found
