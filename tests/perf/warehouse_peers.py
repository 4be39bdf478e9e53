"""The same results in other stores, for the warehouse to be timed beside: MLflow on SQLite, and a folder of JSON.

Each answers three questions, as its interface has them answered: the newest result of every point and place of a model;
all results of one series, oldest first; and which series regressed, by a rule of thumb, since neither knows a better
one. An answer is the number of results, or of series, in it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from benchmarking.records import Run, dumps

MOST_METRICS = 1000
"""In one request to MLflow's store."""
MOST_RUNS = 50_000
"""In one answer of it."""
PLACE = ("hardware_id", "runtime", "batch_size", "sequence_length")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What the questions are about."""

    model_id: str
    series: Mapping[str, str]
    """PLACE, with values."""
    since: str
    """A date."""


Questions = dict[str, Callable[[], int]]
METRIC = "latency_median_ms"


def regressed(results: Iterable[tuple[tuple[str, ...], str, float]]) -> int:
    """How many series' last result is 5 % above their median; from place, time and value of each result."""
    series: dict[tuple[str, ...], list[tuple[str, float]]] = {}
    for place, time, value in results:
        series.setdefault(place, []).append((time, value))
    return sum(max(own)[1] > 1.05 * median(value for _, value in own) for own in series.values())


def folder_peer(folder: Path, runs: Iterable[Run], wanted: Wanted) -> Questions:
    """Writes the runs as files; reading them is how it is asked."""
    files = folder / "peer_files"
    files.mkdir()
    for run in runs:
        (files / f"{run.run_id}.json").write_text(dumps(run), encoding="utf-8")

    def results(*, is_any_model: bool = False) -> Iterator[tuple[str, dict[str, str], Any]]:
        for path in files.iterdir():
            run = json.loads(path.read_text(encoding="utf-8"))
            model_id = run["cell"]["workload"]["model_id"]
            for result in run["results"] if is_any_model or model_id == wanted.model_id else ():
                batch_size, length = result["point"]["batch_size"], result["point"]["sequence_length"]
                place = _place(run["hardware"]["hardware_id"], run["cell"]["runtime"], batch_size, length)
                yield run["started_at"], place | ({"model_id": model_id} if is_any_model else {}), result["metrics"]

    def newest() -> int:
        found: dict[tuple[str, ...], tuple[str, Any]] = {}
        for started_at, place, metrics in results():
            key = tuple(place.values())
            found[key] = max(found.get(key, ("", None)), (started_at, metrics), key=lambda one: one[0])
        return len(found)

    def series() -> int:
        return len(sorted(started_at for started_at, place, _ in results() if place == wanted.series))

    def worse() -> int:
        return regressed(
            (tuple(place.values()), started_at, metrics[METRIC])
            for started_at, place, metrics in results(is_any_model=True)
            if started_at >= wanted.since
        )

    return {"newest": newest, "series": series, "regressed": worse}


def _place(hardware_id: str, runtime: str, batch_size: int, sequence_length: int | None) -> dict[str, str]:
    return dict(zip(PLACE, map(str, (hardware_id, runtime, batch_size, sequence_length)), strict=True))


def mlflow_peer(folder: Path, runs: Iterable[Run], wanted: Wanted) -> Questions:
    """Logs each result as a run of MLflow, its samples as a metric's history; searching its runs is how it is asked."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")
    experiment = client.create_experiment("benchmarks", artifact_location=(folder / "mlflow").as_uri())
    for run in runs:
        _log(client, experiment, run)

    def found(condition: str, order: str) -> list[Any]:
        return list(client.search_runs([experiment], condition, order_by=[order], max_results=MOST_RUNS))

    def newest() -> int:
        places = {}
        for one in found(f"params.model_id = '{wanted.model_id}'", "start_time DESC"):
            places.setdefault(tuple(one.data.params[name] for name in PLACE), one.data.metrics)
        return len(places)

    def series() -> int:
        named = {"model_id": wanted.model_id, **wanted.series}
        condition = " AND ".join(f"params.{name} = '{value}'" for name, value in named.items())
        return len([one.data.metrics for one in found(condition, "start_time ASC")])

    def worse() -> int:
        since_ms = int(datetime.fromisoformat(wanted.since).replace(tzinfo=UTC).timestamp() * 1000)
        return regressed(
            (
                tuple(one.data.params[name] for name in ("model_id", *PLACE)),
                f"{one.info.start_time:020}",
                one.data.metrics[METRIC],
            )
            for one in found(f"attributes.start_time >= {since_ms}", "start_time ASC")
        )

    return {"newest": newest, "series": series, "regressed": worse}


def _log(client: Any, experiment: str, run: Run) -> None:
    from mlflow.entities import Metric, Param

    started_ms = int(datetime.fromisoformat(run.started_at).timestamp() * 1000)
    for result in run.results:
        made = client.create_run(experiment, start_time=started_ms)
        point = result.point
        place = _place(run.hardware.hardware_id, run.cell.runtime, point.batch_size, point.sequence_length)
        parameters = {"model_id": run.cell.workload.model_id, "precision": run.cell.precision, **place}
        metrics = [Metric(name, value, started_ms, 0) for name, value in result.metrics.items()]
        values = [value for one in result.samples for value in one.values]
        metrics += [Metric("latency_wall", value, started_ms, step) for step, value in enumerate(values)]
        client.log_batch(
            made.info.run_id, metrics[:MOST_METRICS], [Param(name, value) for name, value in parameters.items()]
        )
        client.set_terminated(made.info.run_id)
