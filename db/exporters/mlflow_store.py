"""MLflow: one MLflow run per run, with parameters, metrics and tags, and with the run file and samples as artifacts.

With --output FOLDER the store is FOLDER/mlflow.db (SQLite), with the artifacts in FOLDER; otherwise it is the one at
MLFLOW_TRACKING_URI. Runs are added to an existing store: runs that it has are skipped, and a run left incomplete by an
interrupted export is written again. `mlflow ui --backend-store-uri sqlite:///FOLDER/mlflow.db` shows the store. A run
is exported as a whole, even if only some of its results are selected.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from benchmarking.core.errors import StorageError, UsageError, first_line
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import Result, Run, dumps
from benchmarking.core.temporary import temporary_folder
from benchmarking.core.text import counted
from db.exporters.support.exporting import ExportRequest, Scope, Tables, whole_runs
from db.file_copy import make_folder
from db.rows import utc

if TYPE_CHECKING:
    from db.warehouse import Warehouse

Value = TypeVar("Value")

RUN_ID = "benchhouse.run_id"
URI = "MLFLOW_TRACKING_URI"
STORE, ARTIFACTS = "mlflow.db", "artifacts"
AT_ONCE = 100
"""Maximum entries in one request to MLflow."""
LONGEST = 500
"""Maximum characters of a parameter or tag in any version of MLflow; longer ones are only in the run file."""
NOT_ACCEPTED = re.compile(r"[^\w\-. /]")
"""A character that is in no name of MLflow's."""
OF_SQLITE = ("sqlalchemy", "alembic")
"""Required packages that mlflow-skinny does not install."""
QUIET = ("mlflow", "alembic")
"""Loggers that report each table they create."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """An MLflow store, and the folder of its artifacts."""

    mlflow: Any
    """The package."""
    client: Any
    """An `mlflow.MlflowClient`."""
    artifacts: Path | None
    """None for the store's default."""


class MlflowExporter:
    """Runs in an MLflow store, whose experiments are the models."""

    name = "mlflow"
    summary = "MLflow runs in FOLDER/mlflow.db or at $MLFLOW_TRACKING_URI; with --tables results, without artifacts"
    tables: tuple[Tables, ...] = ("all", "results")

    def export(self, warehouse: Warehouse, request: ExportRequest) -> tuple[Path, ...]:
        scope = Scope(warehouse, request.selection)
        scope.months(whole=True)
        if request.output is None and not os.environ.get(URI):
            raise UsageError(f"the format mlflow writes to a store: give a folder with --output, or a server in ${URI}")
        mlflow, uri = _package("mlflow"), None
        for name in QUIET:
            logging.getLogger(name).setLevel(logging.WARNING)
        if request.output is not None:
            for name in OF_SQLITE:
                _package(name)
            if request.output.exists() and not request.output.is_dir():
                raise UsageError(
                    f"{request.output} is a file, but the format mlflow writes a folder: give the path of a folder"
                )
            make_folder(request.output)
            uri = f"sqlite:///{(request.output / STORE).absolute().as_posix()}"
        try:
            client = mlflow.MlflowClient(tracking_uri=uri)
        except (mlflow.exceptions.MlflowException, ImportError) as error:  # it imports what a store needs
            raise StorageError(f"MLflow cannot open {uri or os.environ[URI]}: {first_line(error)}") from error
        store = Store(
            mlflow=mlflow,
            client=client,
            artifacts=None if request.output is None else (request.output / ARTIFACTS).absolute(),
        )
        present = 0
        try:
            for stored in whole_runs(scope):
                present += not _add(store, stored.run, with_files=request.tables == "all")
        except store.mlflow.exceptions.MlflowException as error:
            raise StorageError(f"MLflow: {first_line(error)}") from error
        if present:
            request.notify(f"{counted(present, 'run')} already exported: skipped")
        return request.output_paths


def _package(name: str) -> Any:
    """The package. Raises UsageError if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(f"the format mlflow needs {name}: pip install 'benchhouse[mlflow]'") from error


def _add(store: Store, run: Run, *, with_files: bool) -> bool:
    """Add a run; False if the store has it."""
    client, entities, cell = store.client, store.mlflow.entities, run.cell
    if (experiment := client.get_experiment_by_name(cell.workload.model_id)) is not None:
        experiment_id = str(experiment.experiment_id)
    else:
        place = None if store.artifacts is None else store.artifacts.as_uri()
        experiment_id = str(client.create_experiment(cell.workload.model_id, artifact_location=place))
    # MLflow's filters have no escapes. All of our ids have only these characters.
    bare_id = "".join(letter for letter in run.run_id if letter.isalnum() or letter == "-")
    for present in client.search_runs([experiment_id], filter_string=f"tags.`{RUN_ID}` = '{bare_id}'"):
        if present.info.status != "RUNNING":
            return False
        client.delete_run(present.info.run_id)  # incomplete: the export was interrupted
    title = f"{cell.device.selector} {cell.runtime} {cell.precision} {run.started_at[:19]}"
    origin = run.provenance
    tags: dict[str, str | None] = {
        **{f"version.{name}": version for name, version in origin.versions.items()},
        **origin.tags,
        RUN_ID: run.run_id,
        "benchhouse.status": run.status,
        "benchhouse.error": run.error,
        "benchhouse.simulated": "true" if run.is_simulated else None,
        "benchhouse.host": origin.host,
        "benchhouse.tool_version": origin.tool_version,
        "mlflow.source.git.commit": origin.git_commit,
        "mlflow.source.git.branch": origin.git_branch,
        "mlflow.note.content": origin.description,
    }
    for result in run.results:
        tags[f"validity.{_label(result)}"] = result.validity
    started = client.create_run(
        experiment_id,
        start_time=_ms(run.started_at),
        run_name=title,
        tags=_by_key({name: value for name, value in tags.items() if value is not None and _fits(value)}),
    )
    # MLflow takes the present for an end that is not given.
    mlflow_id, end_ms = started.info.run_id, _ms(run.finished_at or run.started_at)
    for params in _batches([entities.Param(name, value) for name, value in params_of(run).items()]):
        client.log_batch(mlflow_id, params=params)
    for metrics in _batches([entities.Metric(name, value, end_ms, 0) for name, value in metrics_of(run).items()]):
        client.log_batch(mlflow_id, metrics=metrics)
    if with_files:
        with temporary_folder("benchhouse-export") as folder:
            for path in _files(run, folder):
                client.log_artifact(mlflow_id, str(path))
    client.set_terminated(mlflow_id, status="FINISHED" if run.status == "ok" else "FAILED", end_time=end_ms)
    return True


def params_of(run: Run) -> dict[str, str]:
    """The run's settings by name, without unknown ones."""
    cell, workload, hardware = run.cell, run.cell.workload, run.hardware
    values: dict[str, object] = {
        "model": workload.model_id,
        "model_revision": workload.revision,
        "weights": workload.weights,
        "architecture": workload.family,
        "task": workload.task,
        "parameter_count": workload.parameter_count,
        "device": cell.device.selector,
        "device_name": cell.device.name,
        "cpu_model": hardware.cpu_model,
        "hardware_id": hardware.hardware_id,
        "runtime": cell.runtime,
        **{f"runtime.{name}": value for name, value in cell.runtime_mode.items()},
        "precision": cell.precision,
        "num_threads": cell.num_threads,
        **{f"settings.{name}": value for name, value in run.settings.items()},
    }
    return _by_key({name: text for name, value in values.items() if value is not None and _fits(text := str(value))})


def metrics_of(run: Run) -> dict[str, float]:
    """Every number of every point: "latency_median_ms/b1_s128"."""
    found = {f"{name}/{_label(result)}": value for result in run.results for name, value in result.metrics.items()}
    return _by_key(found)


def _label(result: Result) -> str:
    return result.point.label.replace(" ", "_").replace("=", "_")


def _files(run: Run, folder: Path) -> Iterator[Path]:
    """The run file, and its samples as Parquet: one row per result, launch, phase and metric."""
    import pyarrow
    import pyarrow.parquet

    path = folder / "run.json"
    path.write_text(f"{dumps(run)}\n", encoding="utf-8")
    yield path
    rows = [
        {
            "result_id": result.result_id,
            "point": result.point.label,
            "launch": samples.launch,
            "phase": samples.phase,
            "metric": samples.metric,
            "unit": samples.unit,
            "started_at": utc(samples.started_at, "started_at"),
            "inner_loops": samples.inner_loops,
            "samples": list(samples.values),
        }
        for result in run.results
        for samples in result.samples
    ]
    if rows:
        path = folder / "samples.parquet"
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path, compression="zstd")
        yield path


def _batches(values: Sequence[Any]) -> Iterator[list[Any]]:
    left = iter(values)
    while batch := list(islice(left, AT_ONCE)):
        yield batch


def _by_key(values: Mapping[str, Value]) -> dict[str, Value]:
    """The values by names that MLflow accepts: other characters become "_", and a name that another one has become has
    a number."""
    found, numbers = dict[str, Value](), defaultdict[str, Iterator[int]](lambda: count(2))
    for name, value in sorted(values.items(), key=lambda one: NOT_ACCEPTED.search(one[0]) is not None):
        key = accepted = NOT_ACCEPTED.sub("_", name)
        while key in found:
            key = f"{accepted}_{next(numbers[accepted])}"
        found[key] = value
    return found


def _fits(text: str) -> bool:
    return len(text) <= LONGEST


def _ms(time: str) -> int:
    """Unix milliseconds of a time in ISO 8601."""
    moment: datetime = utc(time, "time").replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


PLUGIN = MlflowExporter()
