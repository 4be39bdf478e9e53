"""OpenVINO's benchmark_app: benchmark_report.json and benchmark_report.csv, and what it prints.

The Python and C++ tools use different names for the same values; both are read under the names of the C++ JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarking.core.doubts import doubt
from benchmarking.core.metrics import MS_PER_S
from benchmarking.core.records import NOT_SUPPORTED, Doubt, Point, Scalar, Severity
from db.importers.support.building import ForeignRun, Format, precision_of, shaped
from db.importers.support.files import ForeignFile
from db.importers.support.measures import BATCH_NOT_STATED, foreign_result
from db.importers.support.reading import (
    INT32_MAX,
    Fields,
    MetricTable,
    csv_lines,
    parsed_number,
    printed_lines,
    understood,
)
from db.importers.support.serving import NOT_STATED

DEFINITIONS = {
    "latency_*": "one infer request, several of which run beside each other where concurrency is above 1; in full mode "
    "with the filling of its inputs; rounded to 0.01 ms, printed ones below 1 ms to 0.01 us",
    "throughput_samples_per_sec": "batch size times iterations over the whole time, as the tool sees the batch size",
    "first_call_ms": "the first inference after compiling",
    "compile_s": "compiling (loading) the model on the device",
}
PERCENTILES = {"25": "p25", "75": "p75", "90": "p90", "95": "p95", "99": "p99"}
"""Percentiles with a column."""
LATENCIES = {"latency_avg": "latency_mean_ms", "latency_min": "latency_min_ms", "latency_max": "latency_max_ms"}
TIMES: MetricTable = {
    "read_model_time": ("read_model_s", 1 / MS_PER_S),
    "reshape_model_time": ("reshape_model_s", 1 / MS_PER_S),
    "import_model_time": ("import_model_s", 1 / MS_PER_S),
    "compile_model_time": ("compile_s", 1 / MS_PER_S),
    "first_inference_time": "first_call_ms",
    "throughput": "throughput_samples_per_sec",
}
"""Number -> metric, and the factor to it where it is not in the file's ms or samples per second."""
ROUNDED_TO_MS = 0.01
US_PER_MS = 1e3
INEXACT, TOO_INEXACT = 0.005, 0.02
"""Rounding relative to the latency: above the first it is a doubt, above the second it can hide a change of 2 %."""
NAMELESS = re.compile(r"(Model\d*|main_graph|torch[-_]jit.*|tf2onnx|)", re.IGNORECASE)
"""Names that converters give to an unnamed model."""
SHAPES = re.compile(r"(?<![\w.:/\]-])([\w.:/-]*)((?:\[\d{1,12}(?:,\d{1,12})*\])+)(?!\[)")
"""The shapes of an input, through which the calls go in turn."""
NO_SETTING = (
    *("m", "path_to_model", "d", "target_device", "i", "paths_to_input", "b", "batch_size", "shape", "data_shape"),
    *("hint", "perf_hint", "api", "api_type", "infer_precision", "nireq", "number_infer_requests", "nstreams"),
    *("number_streams", "nthreads", "number_threads", "niter", "number_iterations", "t", "time", "inference_only"),
    *("latency_percentile", "json_stats", "dump_config", "load_from_file", "lff", "h", "help", "pcsort"),
)
"""Options that do not distinguish series, or by other names."""
STANDARD = {"report_type": ("no_counters",), "pin": ("", "YES")}
MODEL_FILES = ("model", "openvino_model", "saved_model")
"""File names that do not name the model; their folder does."""


def read(file: ForeignFile) -> Iterator[ForeignRun]:
    if file.json is not None or not (parts := _printed_parts(file.text or "")):
        reports = enumerate([file.json] if isinstance(file.json, dict) else _from_csv(file))
        yield from understood(file, reports, lambda one: _of_report(file, *one))
        return

    def printed(numbered: tuple[int, tuple[int, list[str]]]) -> ForeignRun:
        number, (at, lines) = numbered
        version = next((found[1] for line in lines if (found := BUILD.search(line))), None)
        averages = (found[1] for line in lines if (found := PRINTED[RESULTS]["latency_avg"].search(line)))
        is_in_us = next(averages, "").endswith(" us")
        fields = _fields(file, _from_printed(lines), f"line {at}: ")
        return _run(fields, str(number), version, ROUNDED_TO_MS / US_PER_MS if is_in_us else ROUNDED_TO_MS)

    yield from understood(file, enumerate(parts), printed)


def _of_report(file: ForeignFile, index: int, data: Mapping[str, Any]) -> ForeignRun:
    place = f"report {index + 1}: " if index else ""
    for name in (SETUP, RESULTS):
        if not isinstance(data.get(name), dict) and not (name == SETUP and _has_failed_early(data)):
            file.refuse(f"{place}{name}: expected an object: the report is truncated, or not benchmark_app's")
    return _run(_fields(file, data, place), str(index or ""))


def _run(
    found: Mapping[str, Fields], key: str, version: str | None = None, rounded_to_ms: float = ROUNDED_TO_MS
) -> ForeignRun:
    options, setup, results = found[OPTIONS], found[SETUP], found[RESULTS]
    point, doubts, shapes = _point(options, setup, setup.count("nireq") or 1)
    cell = _cell(options, setup)
    cell["runtime_mode"]["shapes"] = shapes or None
    if setup.peek("api") == "async" and "nireq" not in setup:  # in a log that was cut
        doubts = (*doubts, NOT_STATED)
    error = results.text("error")
    metrics = results.metrics(LATENCIES) | results.metrics(TIMES, low=0)
    # The tool states a percentile in the place of the median, if one was asked for.
    boundary, middle = results.integer("percentile_boundary", high=100), results.number("latency_median")
    missing = {}
    if middle is not None and boundary in (None, 50):
        metrics["latency_median_ms"] = middle
    elif middle is not None:
        metrics[f"latency_{PERCENTILES.get(str(boundary), f'p{boundary}')}_ms"] = middle
        missing["latency_median_ms"] = f"{NOT_SUPPORTED}: percentile {boundary} was asked for in its place"
    # A doubt if half of the last digit is a large part of the latency.
    typical = metrics.get("latency_median_ms", metrics.get("latency_mean_ms"))
    share = rounded_to_ms / 2 / typical if typical else 1.0
    if typical is not None and share >= INEXACT:
        severity: Severity = "noisy" if share >= TOO_INEXACT else "info"
        doubts = (*doubts, doubt("rounded", severity, latency_ms=typical, rounded_to_ms=rounded_to_ms, share=share))
    result = foreign_result(
        point,
        stated=metrics,
        iterations=results.integer("iterations_num"),
        doubts=doubts,
        missing=missing,
        status="failed" if error else "ok",
        error=error,
    )
    words = ["benchmark_app"]
    for name in options:
        given = options.any(name)
        for one in given if isinstance(given, list) else [given]:  # a repeated option has a list of values
            words += [name if name.startswith("-") else f"-{name}", *([one] if isinstance(one, str) and one else [])]
    return ForeignRun(
        key=key,
        tool_version=version,
        versions={"openvino": version} if version else {},
        results=[result],
        **cell,
        command=words,
        settings={"iterations": setup.integer("iterations_num"), "duration_ms": setup.number("duration")},
        kept={name: rest for name in (SETUP, RESULTS, "others") if (rest := found[name].rest())},
        error=error,
    )


def _option(options: Fields, name: str) -> str | None:
    """The option's value; the C++ tool writes options without their dash."""
    found = (options.any(spelt) for spelt in (f"-{name}", f"--{name}", name))
    return next((value for value in found if isinstance(value, str) and value.strip()), None)


def _cell(options: Fields, setup: Fields) -> dict[str, Any]:
    # The name of the topology, or else of the model's file or folder.
    path = _option(options, "m") or _option(options, "path_to_model") or ""
    parts = [part for part in re.split(r"[/\\]", path) if part]
    model_id = parts[-1].rpartition(".")[0] or parts[-1] if parts else ""
    if model_id in MODEL_FILES and len(parts) > 1:
        model_id = parts[-2]
    topology = setup.text("topology") or ""
    model_id = (model_id or topology or "unknown") if NAMELESS.fullmatch(topology) else topology
    target = (setup.text("target_device") or _option(options, "d") or "unknown").strip()
    requested = _option(options, "infer_precision") or setup.text("precision")
    words = {part.rpartition(":")[2] for part in (requested or "").split(",")}  # of each device
    word = words.pop() if len(words) == 1 else requested
    precision = precision_of(word)
    # How requests are made, which distinguishes series.
    stated = setup.text("benchmark_mode")
    only = setup.flag("inference_only") if stated is None else "only" in stated.lower()
    given = {name.lstrip("-"): True if (value := options.peek(name)) == "" else value for name in options}
    mode: dict[str, Scalar | None] = {
        "api": setup.text("api") or None,
        "inference_only": only,
        "hint": _option(options, "hint") or (setup.text("hint") or "").lower() or None,
        "ip": setup.text("ip"),
        "pin": "NO" if setup.text("pin") else None,
        **Fields(options.file, given, options.path).other_settings(NO_SETTING, STANDARD),
        **{
            f"{(stream[1] or stream[2]).lower()}_streams": setup.text(name) or None
            for name in setup
            if (stream := STREAMS.fullmatch(name))
        },
    }
    mode["infer_precision"] = word if precision == "other" else None
    threads = _option(options, "nthreads") or setup.text("nthreads") or ""
    return {
        "model_id": model_id,
        "device_type": "openvino",
        "device_selector": f"openvino:{target}",
        "runtime": "openvino",
        "runtime_mode": mode,
        "precision": precision,
        "num_threads": int(threads) if re.fullmatch(r"[1-9]\d{0,4}", threads) else None,
    }


def _point(options: Fields, setup: Fields, concurrency: int) -> tuple[Point, tuple[Doubt, ...], str]:
    """The point, with the shapes on the command line; a doubt if these imply another batch size; and the shapes, if
    they are several, or no sequence and no square image."""
    stated = setup.count("batch_size")
    batch_size, doubts = stated or 1, () if stated else (BATCH_NOT_STATED,)
    # The static shapes of each input, of which the main one is input_ids, or the only one.
    text = _option(options, "data_shape") or _option(options, "shape") or ""
    given: dict[str, list[tuple[int, ...]]] = {}
    for name, shapes in SHAPES.findall(text):
        given.setdefault(name, []).extend(tuple(map(int, one.split(","))) for one in shapes[1:-1].split("]["))
    point = Point(batch_size=batch_size, concurrency=concurrency)
    if any(len(shapes) > 1 for shapes in given.values()):
        # Calls of several sizes, which the latencies are over.
        main = [one for one in given.get("input_ids") or next(iter(given.values())) if len(one) > 1]
        others = ", ".join(dict.fromkeys("/".join("x".join(map(str, one)) for one in own) for own in given.values()))
    else:
        of_one = {name: shapes[0] for name, shapes in given.items() if len(shapes[0]) > 1}
        main = [of_one["input_ids"]] if "input_ids" in of_one else list(dict.fromkeys(of_one.values()))
        main = main if len(main) == 1 else []
        point, others = shaped(point, of_one)
    other = next(
        (shape for shape in main if shape[0] != batch_size and all(0 < size <= INT32_MAX for size in shape)), ()
    )
    if stated is None or not other:
        return point, doubts, others
    return point, (doubt("batch_size_differs", "noisy", batch_size=batch_size, shape=list(other)),), others


OPTIONS, SETUP, RESULTS = "cmd_options", "configuration_setup", "execution_results"
TITLES = {"command line parameters": OPTIONS, "configuration setup": SETUP, "execution results": RESULTS}
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
"""Name in lower case -> the C++ JSON's name, or one in its style."""
PERCENTILE = re.compile(r"latency \((\d{1,3}) percentile\) \(ms\)")
STREAMS = re.compile(r"(?:number of (\w+) streams|(\w+)_streams_num)", re.IGNORECASE)


def recognises(file: ForeignFile) -> bool:
    """Whether the file is a benchmark report."""
    data = file.json
    if isinstance(data, dict):
        return (isinstance(data.get(SETUP), dict) and isinstance(data.get(RESULTS), dict)) or _has_failed_early(data)
    titles = {TITLES.get(line.strip().rstrip(";").lower()) for line in file.head.splitlines()}
    return ({SETUP, RESULTS} <= titles or ({OPTIONS, RESULTS} <= titles and "\nerror;" in file.head)) or bool(
        _printed_parts(file.text or "")
    )


def _has_failed_early(data: Mapping[str, Any]) -> bool:
    """Whether it is the report of a run that had an error before its configuration was known."""
    results = data.get(RESULTS)
    return (
        SETUP not in data and isinstance(data.get(OPTIONS), dict) and isinstance(results, dict) and "error" in results
    )


def _fields(file: ForeignFile, data: Mapping[str, Any], place: str = "") -> dict[str, Fields]:
    top = {name: data.get(name) or {} for name in (OPTIONS, SETUP, RESULTS)}
    others = {name: value for name, value in data.items() if name not in top}
    fields = {}
    for section, values in top.items():
        stated: dict[str, Any] = values if isinstance(values, dict) else {}
        renamed: dict[str, Any] = {}
        for name, value in stated.items():
            percentile = PERCENTILE.fullmatch(name.lower())
            if percentile is not None:
                renamed |= {"percentile_boundary": percentile[1], "latency_median": value}
            elif value != "None":  # the Python tool's word for an unset option, such as a number of iterations
                renamed[NAMES.get(name.lower(), name)] = value
        fields[section] = Fields(file, renamed, f"{place}{section}", numbers_are_text=True)
    return {**fields, "others": Fields(file, others)}


def _from_csv(file: ForeignFile) -> list[dict[str, dict[str, Any]]]:
    """Sections of "name;value" lines by their titles, of each report: a title for the second time, or that of the
    command, begins another one. A repeated name, or a longer line, has a list. The names below a group of inputs are
    those of all calls again, of the group's own."""
    reports: list[dict[str, dict[str, list[Any]]]] = []
    section: dict[str, list[Any]] | None = None
    group = ""
    for number, cells in csv_lines(file, delimiter=";"):
        title = TITLES.get(cells[0].strip().lower()) if len(cells) < 3 else None
        if title is not None and not any(cells[1:]):
            if not reports or title in reports[-1] or title == OPTIONS:
                reports.append({})
            section, group = reports[-1].setdefault(title, {}), ""
        elif section is not None:
            group = f"group{cells[1]}: " if cells[0] == "group" and len(cells) == 2 else group
            name = f"{group}{cells[0]}" if cells[0] in section else cells[0]
            section.setdefault(name, []).append(cells[1] if len(cells) == 2 else cells[1:])
        else:
            file.leave_out(f"line {number}", f"above the first section: {file.beginning(';'.join(cells))!r}")
    return [
        {
            title: {name: values[0] if len(values) == 1 else values for name, values in section.items()}
            for title, section in found.items()
        }
        for found in reports
    ]


PRINTED: dict[str, dict[str, re.Pattern[str]]] = {
    RESULTS: {
        "iterations_num": re.compile(r"Count:\s+(\d+) iterations"),
        "execution_time": re.compile(r"Duration:\s+(\S+) ms"),
        "latency_median": re.compile(r"(?:Median|Latency|\d{1,3} percentile):\s+(\S+ [mu]s)"),
        "percentile_boundary": re.compile(r"(\d{1,3}) percentile:\s+\S+ [mu]s"),
        "latency_avg": re.compile(r"(?:Average|AVG|Avg):\s+(\S+ [mu]s)"),
        "latency_min": re.compile(r"(?:Min|MIN):\s+(\S+ [mu]s)"),
        "latency_max": re.compile(r"(?:Max|MAX):\s+(\S+ [mu]s)"),
        "throughput": re.compile(r"Throughput:\s+(\S+) FPS"),
        "first_inference_time": re.compile(r"First inference took (\S+) ms"),
        "compile_model_time": re.compile(r"(?:Compile|Load) (?:model|network) took (\S+) ms"),
        "read_model_time": re.compile(r"Read (?:model|network) took (\S+) ms"),
        "reshape_model_time": re.compile(r"Reshape (?:model|network) took (\S+) ms"),
        "import_model_time": re.compile(r"Import (?:model|network) took (\S+) ms"),
    },
    SETUP: {
        "topology": re.compile(r"NETWORK_NAME: (\S+)"),
        "batch_size": re.compile(r"(?:Model|Network) batch size:\s*(\S+)"),
        "benchmark_mode": re.compile(r"Benchmarking in (full|inference only) mode"),
        "api": re.compile(r"Start inference (a?sync)hronously"),
        "nireq": re.compile(r"Start inference asynchronously[^\n]{0,200}?(\d+) inference requests"),
        "precision": re.compile(r"INFERENCE_PRECISION_HINT: (?:<Type: ')?(\w+)"),
        "streams": re.compile(r"NUM_STREAMS: (\d+)"),
        "executed_on": re.compile(r"(?:Execution Devices:|EXECUTION_DEVICES:|\[ INFO \] DEVICE:) ?(\[[^\]\n]*\]|\S+)"),
    },
}
"""Section and name -> the printed line."""
PRINTED_OPTIONS = {
    "hint": re.compile(r"PERFORMANCE_HINT: (?:PerformanceMode\.)?(\w+)"),
    "nthreads": re.compile(r"INFERENCE_NUM_THREADS: (\d+)"),
    "pin": re.compile(r"ENABLE_CPU_PINNING: (False|NO)"),
}
"""Option -> the line with its value, for a log without the command."""
VIRTUAL_DEVICE = re.compile(r"^\[ INFO \] (AUTO|MULTI|HETERO|BATCH)\s*$", re.MULTILINE)
"""What shares its work among the devices, named with the versions."""
INPUT_TYPE = re.compile(r"\(node: [^)\n]{0,200}\) : (\w+) /")
TIMED = re.compile(r"([A-Z][\w %-]{0,100}?):?\s+(-?[\d.]+ (?:[mu]s|FPS))\s*$")
"""A line with another time or rate."""
FLAG = re.compile(r"\s(--?[a-z]\w*)(?:[= ](?!-)(\"[^\"]*\"|'[^']*'|\S+))?")
COMMAND = re.compile(r"benchmark_app(?:\.py|\.exe)?((?:\s+-.*)|$)")
BUILD = re.compile(r"\bBuild\s*\.+:?\s*(\d{4}\.\d+\.\d+\S*)")


def _printed_parts(text: str) -> list[tuple[int, list[str]]]:
    """The lines of each benchmark in a log, and the number of the first: up to its throughput, which stands at its end
    below the number of iterations."""
    parts: list[tuple[int, list[str]]] = []
    if "Throughput:" not in text or " FPS" not in text:
        return parts
    lines, begin, is_counted, has_command = printed_lines(text), 0, False, False
    for at, line in enumerate(lines):
        has_command |= bool(COMMAND.search(line))
        if line.lstrip().startswith("[Step 1/11]") and not has_command:
            begin = at
        is_counted |= bool(PRINTED[RESULTS]["iterations_num"].search(line))
        if is_counted and PRINTED[RESULTS]["throughput"].search(line):
            parts.append((begin + 1, lines[begin : at + 1]))
            begin, is_counted, has_command = at + 1, False, False
    return parts


def _from_printed(lines: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The sections of a report, from the lines of a log."""
    text = "\n".join(lines)
    command = [found[1] for line in lines if (found := COMMAND.search(line))]
    options = {name: value.strip("\"'") for name, value in FLAG.findall(command[-1])} if command else {}
    sections: dict[str, dict[str, Any]] = {
        section: {name: match[1] for name, pattern in names.items() if (match := pattern.search(text))}
        for section, names in PRINTED.items()
    }
    for name, value in sections[RESULTS].items():
        number, _, unit = value.partition(" ")
        in_us = parsed_number(number) if unit == "us" else number
        sections[RESULTS][name] = in_us if isinstance(in_us, str) else in_us / US_PER_MS
    setup = sections[SETUP]
    devices = re.findall(r"[\w.]+", setup.pop("executed_on", ""))
    if not command:
        setup |= {name: found[1] for name, pattern in PRINTED_OPTIONS.items() if (found := pattern.search(text))}
        given = INPUT_TYPE.findall(text.partition("[Step 6/11]")[2].partition("outputs:")[0])
        setup["ip"] = ",".join(dict.fromkeys(given)) or None
    shared_by = [f"{found[1]}:" for found in VIRTUAL_DEVICE.finditer(text)]
    executed = "".join([*shared_by[:1], ",".join(devices)])
    setup["target_device"] = options.get("-d") or options.get("--target_device") or executed or None
    setup.setdefault("api", options.get("-api"))
    if streams := setup.pop("streams", None):
        setup[f"number of {(devices or ['CPU'])[0].partition('.')[0]} streams"] = streams
    known = [pattern for names in PRINTED.values() for pattern in names.values()]
    timed = (TIMED.search(line) for line in lines if not any(one.search(line) for one in known))
    others = {found[1]: found[2] for found in timed if found}
    return {OPTIONS: options, **sections, **({"printed": others} if others else {})}


PLUGIN = Format(
    name="openvino_benchmark_app",
    summary="OpenVINO's benchmark_app (-report_type ...): benchmark_report.json and benchmark_report.csv, and what it "
    "prints",
    definitions=DEFINITIONS,
    recognises=recognises,
    read=read,
)
