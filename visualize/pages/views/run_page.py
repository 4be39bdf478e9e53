"""The page of a run: results and doubts, samples of one result, environment, and the command to measure again."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import THROUGHPUT_AT_MEDIAN, custom_metric, metric_by_ending
from benchmarking.core.quality import quality_lines
from benchmarking.core.records import dumps
from benchmarking.core.text import duration, visible
from db.analysis.selection import Selection
from db.run_records import qualities, stored_runs
from visualize.drawing import words
from visualize.drawing.loads import is_load
from visualize.drawing.rows import Row, charts
from visualize.drawing.rows import Selection as Selected
from visualize.pages import vega
from visualize.pages.elements import (
    Cell,
    Chart,
    Grid,
    Heading,
    Link,
    commit_text,
    facts,
    grid,
    number_cell,
    number_text,
    point_text,
    settings_text,
    started_text,
    text_cell,
    time_text,
)
from visualize.pages.result_rows import OTHERS, RATE_NOTE, has_star, noted_doubts, own_metrics, result_table, value_text
from visualize.pages.site import Download, File, NotFoundError, View
from visualize.pages.views.profiles_page import ProfileParameters

if TYPE_CHECKING:
    from visualize.pages.snapshot import Data

RUN = """
SELECT run.*, hardware.device_name, hardware.cpu_model, hardware.simulated AS is_simulated_hardware
FROM benchmark_runs run JOIN hardware_info hardware USING (hardware_id) WHERE run_id = $run
"""
FIND = """
SELECT run_id FROM benchmark_runs WHERE run_id = $run OR (length($run) >= $least AND starts_with(run_id, $run))
ORDER BY run_id <> $run LIMIT 2
"""
LEAST_PREFIX = 8
RESULTS = """
SELECT r.*, run.origin_format FROM benchmark_results r JOIN benchmark_runs run USING (run_id) WHERE run_id = $run
ORDER BY
    sequence_length, new_tokens, json_keys(axes), map_values(axes::JSON::MAP(VARCHAR, DOUBLE)), concurrency, batch_size,
    result_id
"""
METRIC = "latency_wall"
SAMPLED = """
SELECT metric, min(unit) AS unit FROM raw_benchmark_data
WHERE result_id = $result AND phase = 'measure' GROUP BY metric ORDER BY metric <> $first, metric
"""
WITH_SAMPLES = """
SELECT DISTINCT result_id FROM raw_benchmark_data
WHERE result_id IN (SELECT result_id FROM benchmark_results WHERE run_id = $run) AND phase = 'measure'
"""
PROFILED = """
SELECT * FROM profiles
WHERE model_id = $model AND weights = $weights AND hardware_id = $hardware AND runtime = $runtime
ORDER BY started_at DESC, profile_id DESC LIMIT $most
"""
MOST_PROFILES = 4
MOST_OWN = 5
"""Metrics without a column of their own that fit beside the others, as of a load test; a table below has the rest."""
STAGES = ("load_spawn_s", "load_import_s", "load_device_init_s", "load_weights_read_s", "load_to_device_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParameters:
    """The run, and the result and raw metric to draw."""

    run_id: str
    """Run id, or a prefix of at least 8 characters."""
    result: str | None = None
    """Id of the result; None for the first measured one."""
    metric: str | None = None
    """Raw metric; None for the wall time of calls, else the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFile:
    """Parameters of a download: the run."""

    run_id: str


def run_link(run_id: str, result_id: str | None = None) -> Link:
    """The page of a run, which draws the samples of the result."""
    return Link(view="run", parameters=RunParameters(run_id=run_id, result=result_id))


def page(data: Data, parameters: RunParameters) -> SimpleNamespace:
    """The page. Raises NotFoundError."""
    from visualize.pages.views.loads_page import LoadParameters  # loads imports this module

    run = find_run(data, parameters.run_id)
    run_id, is_import = run["run_id"], run["origin_format"] is not None
    rows = data.warehouse.query(RESULTS, {"run": run_id}).dicts()
    sampled, metrics, drawn, samples = _samples(data, rows, parameters)
    with_samples = {row["result_id"] for row in data.warehouse.query(WITH_SAMPLES, {"run": run_id}).dicts()}

    def point_cell(row: Row) -> Cell:
        if row["status"] != "ok" or row["result_id"] not in with_samples:
            return text_cell(point_text(row))
        hint = "its samples are drawn below" if row is sampled else "draw its samples"
        return text_cell(point_text(row), link=run_link(run_id, row["result_id"]), hint=hint)

    def metric_link(metric: str) -> Link:
        own = None if metric == METRIC else metric
        result = None if sampled is None else sampled["result_id"]
        return Link(view="run", parameters=RunParameters(run_id=run_id, result=result, metric=own))

    stated = own_metrics(data)
    names = dict.fromkeys(name for row in rows for name in row[OTHERS] if name != THROUGHPUT_AT_MEDIAN)
    own = {name: stated.get(name) or metric_by_ending(name) or custom_metric(name, "", None) for name in names}
    first = dict(islice(own.items(), MOST_OWN if len(rows) > 1 else None))  # one row is a list, which is never cut off
    headings, cells = result_table(rows, first)
    further = {
        metric.words: lambda row, name=name: number_cell(row[OTHERS].get(name))
        for name, metric in own.items()
        if name not in first
    }
    # The quality of the model, where it was measured, and why it lacks values.
    lines = (line for one in qualities(data.warehouse, [run_id]).values() for line in quality_lines(one))
    quality = [("quality", visible(line.removeprefix("quality: "))) for line in lines]
    columns = {"model": "model_id", "weights": "weights", "hardware": "hardware_id", "runtime": "runtime"}
    alike = {**{name: run[of] for name, of in columns.items()}, "most": MOST_PROFILES}
    state, device = json.loads(run["environment"]), run["device_name"] or run["device"]
    environment = {
        "Software": run["versions"],
        "State of the machine at the start": state.get("values", {}),
        "Could not be read": state.get("missing", {}),
        "Device": json.loads(run["device_details"]),
        "Host": json.loads(run["host_details"]),
        "Settings": json.loads(run["settings"]),
    }
    return SimpleNamespace(
        title=run["model_id"] + (f" on {device}" if device != words.UNKNOWN else ""),
        run_id=run_id,
        status=run["status"],
        error=run["error"],
        is_simulated=bool(run["is_simulated"]),
        is_import=is_import,
        facts=(*_facts(run, rows), *quality),
        results=Grid(
            headings=(Heading(text="point"), *headings),
            rows=tuple((point_cell(row), *line) for row, line in zip(rows, cells, strict=True)),
            caption="Results of the run",
        ),
        further=grid({"point": point_cell, **further}, rows, "Further metrics of the run", further)
        if further
        else None,
        rate_note=RATE_NOTE if any(map(has_star, rows)) else None,
        doubts=noted_doubts(rows, is_import=is_import),
        is_measured=any(row["status"] == "ok" for row in rows),
        failures=[(point_text(row), str(row["error"])) for row in rows if row["status"] != "ok" and row["error"]],
        command=run["command"],
        sampled=None if sampled is None else point_text(sampled),
        samples=samples,
        metrics=[(name, metric_link(name), name == drawn) for name in metrics],
        load=Link(view="load", parameters=LoadParameters(run_id=run_id)) if is_load(run) else None,
        profiles=[  # of the same model, runtime and device
            (
                f"{time_text(row['started_at'])} UTC, {point_text(row)}",
                Link(view="profile", parameters=ProfileParameters(profile_id=row["profile_id"])),
            )
            for row in data.warehouse.query(PROFILED, alike).dicts()
        ],
        environment=[
            (title, [(visible(str(name)), visible(value_text(value))) for name, value in found.items()])
            for title, found in environment.items()
            if found
        ],
        json_file=Link(view="run_json", parameters=RunFile(run_id=run_id)),
        csv_file=Link(view="run_csv", parameters=RunFile(run_id=run_id)),
    )


def _samples(
    data: Data, rows: Sequence[Row], parameters: RunParameters
) -> tuple[Row | None, list[str], str | None, tuple[Chart, ...]]:
    """The result whose samples are drawn, its raw metrics, the drawn one of these, and its charts. Raises
    NotFoundError."""
    sampled = next((row for row in rows if row["status"] == "ok"), None)
    if parameters.result is not None:
        sampled = next((row for row in rows if row["result_id"] == parameters.result), None)
        if sampled is None:
            raise NotFoundError(f"no result {parameters.result!r} in this run")
    metrics: list[str] = []
    if sampled is not None:
        values = {"result": sampled["result_id"], "first": METRIC}
        metrics = [row["metric"] for row in data.warehouse.query(SAMPLED, values).dicts()]
        if parameters.metric is not None and parameters.metric not in metrics:
            raise NotFoundError(f"no samples of {parameters.metric!r}: there are {', '.join(metrics) or 'none'}")
    drawn = parameters.metric or next(iter(metrics), None)
    samples: tuple[Chart, ...] = ()
    if sampled is not None and drawn is not None:
        chart = charts()["sample_distribution"]
        selection = Selected(results=(sampled["result_id"],), samples=drawn)
        samples = vega.charts(chart.draw(chart.rows(data.warehouse, selection)))
    return sampled, metrics, drawn, samples


def find_run(data: Data, run_id: str) -> dict[str, Any]:
    """A run by its id or a unique prefix. Raises NotFoundError."""
    found = data.warehouse.query(FIND, {"run": run_id, "least": LEAST_PREFIX}).dicts()
    if len(found) != 1 and not (found and found[0]["run_id"] == run_id):
        which = "several run ids start" if found else "no run id starts"
        raise NotFoundError(f"{which} with {run_id!r}: see the pages Overview (latest runs) and Results (all)")
    (row,) = data.warehouse.query(RUN, {"run": found[0]["run_id"]}).dicts()
    return row


def _facts(run: Row, results: Sequence[Row]) -> tuple[tuple[str, str], ...]:
    seconds = None if run["finished_at"] is None else (run["finished_at"] - run["started_at"]).total_seconds()
    took = "end not stated" if seconds is None else f"took {duration(seconds) if seconds >= 1 else 'less than 1 s'}"
    stages = ", ".join(
        f"{name.removeprefix('load_').removesuffix('_s').replace('_', ' ')} {number_text(run[name])}"
        for name in STAGES
        if run[name]
    )
    return known_facts(
        run,
        {
            "model": run["model_id"],
            "family": run["architecture_type"],
            "task": run["task"],
            "weights": None  # those of the server or caller
            if run["weights"] == "given"
            else run["weights"] + (f" ({run['weights_reason']})" if run["weights_reason"] else ""),
            "device": f"{run['device']} ({run['device_name']})" if run["device_name"] else run["device"],
            "runtime": run["runtime"] + settings_text(run["runtime_mode"]),
            "precision": words.precision(run),
            "threads": run["num_threads"],
            "profile": json.loads(run["settings"]).get("profile"),
            "started": run_started_text(run, results) + f", {took}",
            "load": None
            if run["load_time_s"] is None
            else f"{number_text(run['load_time_s'])} s" + (f" ({stages})" if stages else ""),
            "commit": commit_text(run),
            "host": run["host"],
            "description": run["description"],
            "tags": ", ".join(f"{name}={value}" for name, value in run["tags"].items()),
            "program": f"benchhouse {run['tool_version']}" if run["origin_format"] is None else run["origin_format"],
        },
    )


def run_started_text(run: Row, results: Sequence[Row]) -> str:
    """When a run started: "2026-01-02 03:04 UTC", or "file of 2026-01-02"."""
    doubts = {kind for row in results for kind in row["doubts"] or ()}
    return started_text(run["started_at"], doubts) + ("" if "undated" in doubts else " UTC")


def known_facts(run: Row, given: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """The facts about a run, without those that the file of an import does not state."""
    no_fact = () if run["origin_format"] is None else (words.UNKNOWN, words.NOT_STATED)
    return facts({name: value for name, value in given.items() if value not in no_fact})


def json_file(data: Data, parameters: RunFile) -> File:
    """The run as a run file for `setup_benchmark_db --ingest`."""
    run_id = str(find_run(data, parameters.run_id)["run_id"])

    def parts() -> Iterator[str]:
        for stored in stored_runs(data.warehouse, [run_id]):
            yield f"{dumps(stored.run)}\n"

    return File(name=f"run-{run_id}.json", media_type="application/json", parts=parts())


def csv_file(data: Data, parameters: RunFile) -> File:
    """Results of the run with every column."""
    run_id = str(find_run(data, parameters.run_id)["run_id"])
    if not data.warehouse.query(RESULTS, {"run": run_id}).dicts():
        raise NotFoundError("the run has no results")
    return results_csv(data, Selection.parse(f"run={run_id}"), f"run-{run_id}.csv")


def results_csv(data: Data, selection: Selection, name: str) -> File:
    """Selected results in the format of `benchhouse export`."""
    from db.exporters.files import CsvExporter
    from db.exporters.support.exporting import ExportRequest

    def parts() -> Iterator[str]:
        with tempfile.TemporaryDirectory(prefix="benchhouse-") as folder:
            output = Path(folder) / "results.csv"
            request = ExportRequest(selection=selection, output=output, notify=lambda line: None)
            CsvExporter().export(data.warehouse, request)
            with output.open(encoding="utf-8", newline="") as stream:
                while part := stream.read(1 << 16):
                    yield part

    return File(name=name, media_type="text/csv; charset=utf-8", parts=parts())


VIEWS = (
    View(
        name="run",
        path="/runs/{run_id}",
        title="Run",
        parameters=RunParameters,
        page=page,
        is_in_navigation=False,
        has_charts=True,
        in_files=lambda parameters: RunParameters(run_id=parameters.run_id),
    ),
)
DOWNLOADS = (
    Download(name="run_json", path="/runs/{run_id}.json", parameters=RunFile, file=json_file),
    Download(name="run_csv", path="/runs/{run_id}.csv", parameters=RunFile, file=csv_file),
)
