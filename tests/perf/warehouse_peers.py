"""The same results in other stores, for the warehouse to be timed beside: MLflow on SQLite, and a folder of JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarking.records import Result, Run, dumps

MOST_METRICS = 1000
"""In one request to MLflow's store."""


def folder_peer(folder: Path, runs: Sequence[Run], model_id: str) -> Callable[[], int]:
    """Writes the runs as files; gives what finds the newest result of each point and place by reading them."""
    files = folder / "peer_files"
    files.mkdir()
    for run in runs:
        (files / f"{run.run_id}.json").write_text(dumps(run), encoding="utf-8")

    def ask() -> int:
        found = {}
        for path in sorted(files.iterdir()):
            run = json.loads(path.read_text(encoding="utf-8"))
            if run["cell"]["workload"]["model_id"] != model_id:
                continue
            for result in run["results"]:
                where = (run["hardware"]["hardware_id"], run["cell"]["runtime"], json.dumps(result["point"]))
                found[where] = result["metrics"]
        return len(found)

    return ask


def mlflow_peer(folder: Path, runs: Sequence[Run], model_id: str) -> Callable[[], int]:
    """Logs each result as a run of MLflow, samples as a metric's history; gives what searches the model's runs."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")
    experiment = client.create_experiment("benchmarks", artifact_location=(folder / "mlflow").as_uri())
    for run in runs:
        for result in run.results:
            _log(client, experiment, run, result)

    def ask() -> int:
        found: dict[tuple[str, ...], object] = {}
        token = None
        while True:
            page = client.search_runs(
                [experiment], f"params.model_id = '{model_id}'", max_results=1000, page_token=token
            )
            for one in page:
                parameters = one.data.params
                where = tuple(parameters[name] for name in ("hardware_id", "runtime", "batch_size", "sequence_length"))
                found[where] = one.data.metrics
            token = page.token
            if not token:
                return len(found)

    return ask


def _log(client: object, experiment: str, run: Run, result: Result) -> None:
    from mlflow.entities import Metric, Param

    started = client.create_run(experiment)  # type: ignore[attr-defined]
    point = result.point
    parameters = {
        "model_id": run.cell.workload.model_id,
        "hardware_id": run.hardware.hardware_id,
        "runtime": run.cell.runtime,
        "precision": run.cell.precision,
        "batch_size": str(point.batch_size),
        "sequence_length": str(point.sequence_length),
    }
    metrics = [Metric(name, value, 0, 0) for name, value in result.metrics.items()]
    values = [value for one in result.samples for value in one.values]
    metrics += [Metric("latency_wall", value, 0, step) for step, value in enumerate(values)]
    client.log_batch(  # type: ignore[attr-defined]
        started.info.run_id, metrics[:MOST_METRICS], [Param(name, value) for name, value in parameters.items()]
    )
    client.set_terminated(started.info.run_id)  # type: ignore[attr-defined]
