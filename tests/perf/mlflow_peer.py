"""The warehouse's results in MLflow's tracking store on SQLite, for comparison of times.

A result is a run of MLflow, its place in parameters: searching runs by parameters is what its interface has for the
questions. To be quick at a million results, only the first result goes through MLflow's client; the others are written
in its image, row by row the same, but for what no question reads: of the metrics' history there are only the samples of
the two compared runs. MLflow has less to carry than it would have.
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from warehouse_data import LAUNCHES
from warehouse_peers import CELL, METRIC, POINT, Place, Questions, Wanted, judged, regressed

from db.warehouse import Warehouse

MOST_RUNS = 50_000
"""In one answer of MLflow's store."""
AT_ONCE = 20_000
PLACE = (*CELL, *POINT)
RUN = "benchmark_run"
SAMPLES = "latency_wall"

MEASURED = "SELECT * FROM benchmark_results LIMIT 1"
RESULTS = f"""
SELECT epoch_ms(started_at) AS start_time, epoch_ms(finished_at) AS end_time, {{metrics}},
    run_id AS {RUN}, {", ".join(f"{name}::VARCHAR AS {name}" for name in PLACE)},
    CASE WHEN run_id IN ($before, $after) THEN result_id END AS sampled_id
FROM all_results ORDER BY started_at
"""
VALUES = f"""
SELECT result_id, flatten(list(samples ORDER BY launch)) AS samples
FROM raw_benchmark_data SEMI JOIN (
    SELECT result_id FROM benchmark_results WHERE run_id IN ($before, $after)
) USING (result_id)
WHERE metric = '{SAMPLES}' GROUP BY result_id
"""


def mlflow_peer(folder: Path, warehouse: Warehouse, wanted: Wanted) -> Questions:
    """Fills a store and returns the function that queries it. Raises ImportError without MLflow."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow.tracking import MlflowClient

    path = folder / "mlflow.db"
    client = MlflowClient(tracking_uri=f"sqlite:///{path}")
    experiment = client.create_experiment("benchmarks", artifact_location=(folder / "mlflow").as_uri())
    compared = {"before": wanted.before, "after": wanted.after}
    values = {row["result_id"]: row["samples"] for row in warehouse.query(VALUES, compared).dicts()}
    (measured,) = warehouse.query(MEASURED).dicts()
    metrics = [name for name, value in measured.items() if isinstance(value, float)]
    results = warehouse.query(RESULTS.format(metrics=", ".join(metrics)), compared).arrow()
    (first,) = results.slice(0, 1).to_pylist()
    first_id = _log(client, experiment, first, metrics)
    with sqlite3.connect(path) as connection:
        image = _Image(connection, first_id)
        for batch in results.slice(1).to_batches(max_chunksize=AT_ONCE):
            image.write(batch.to_pylist(), values)
    connection.close()
    return _questions(client, experiment, wanted)


def _log(client: Any, experiment: str, result: Mapping[str, Any], names: Sequence[str]) -> str:
    """Store the result through the client; returns the id of its run."""
    from mlflow.entities import Metric, Param

    made = client.create_run(experiment, start_time=result["start_time"])
    metrics = [Metric(name, result[name], result["start_time"], 0) for name in names]
    client.log_batch(made.info.run_id, metrics, [Param(name, result[name]) for name in (RUN, *PLACE)])
    client.set_terminated(made.info.run_id, end_time=result["end_time"])
    return str(made.info.run_id)


class _Image:
    """Writes results as the client wrote the first one: every row of it again, with what differs replaced."""

    def __init__(self, connection: sqlite3.Connection, first_id: str) -> None:
        connection.execute("PRAGMA synchronous = OFF")
        connection.row_factory = sqlite3.Row
        self._connection = connection
        self._first_id = first_id
        self._rows = {
            table: [dict(row) for row in connection.execute(f"SELECT * FROM {table} WHERE run_uuid = ?", [first_id])]
            for table in ("runs", "tags", "params", "latest_metrics")
        }

    def write(self, results: Sequence[Mapping[str, Any]], values: Mapping[str, Sequence[float]]) -> None:
        """Of so many results, in one transaction."""
        named = [(uuid.uuid4().hex, result) for result in results]
        for table, rows in self._rows.items():
            columns = ", ".join(f'"{name}"' for name in rows[0])
            marks = ", ".join(f":{name}" for name in rows[0])
            written = (self._of(row, run_id, result) for run_id, result in named for row in rows)
            self._connection.executemany(f"INSERT INTO {table} ({columns}) VALUES ({marks})", written)
        self._connection.executemany(
            "INSERT INTO metrics (key, value, timestamp, run_uuid, step) VALUES (?, ?, ?, ?, ?)",
            _samples(named, values),
        )
        self._connection.commit()

    def _of(self, row: Mapping[str, Any], run_id: str, result: Mapping[str, Any]) -> dict[str, Any]:
        changed = {"run_uuid": run_id}
        if "status" in row:
            artifacts = row["artifact_uri"].replace(self._first_id, run_id)
            changed |= {"artifact_uri": artifacts, "start_time": result["start_time"], "end_time": result["end_time"]}
        elif row["key"] in result:
            changed["value"] = result[row["key"]]
        if "timestamp" in row:
            changed["timestamp"] = result["start_time"]
        return {**row, **changed}


def _samples(
    named: Sequence[tuple[str, Mapping[str, Any]]], values: Mapping[str, Sequence[float]]
) -> Iterator[tuple[Any, ...]]:
    for run_id, result in named:
        for step, value in enumerate(values.get(result["sampled_id"], ())):
            yield SAMPLES, value, result["start_time"], run_id, step


def _questions(client: Any, experiment: str, wanted: Wanted) -> Questions:
    since_ms = int(datetime.fromisoformat(wanted.since).replace(tzinfo=UTC).timestamp() * 1000)
    is_since = f"attributes.start_time >= {since_ms}"

    def found(*conditions: str, newest_first: bool = False) -> Iterator[Any]:
        order = f"start_time {'DESC' if newest_first else 'ASC'}"
        return _pages(client, experiment, " AND ".join(conditions), order)

    def newest() -> int:
        places: dict[Place, Any] = {}
        for one in found(f"params.model_id = '{wanted.cell['model_id']}'", newest_first=True):
            places.setdefault(_place(one), one.data.metrics)
        return len(places)

    def series() -> int:
        return len([one.data.metrics for one in found(*_equal({**wanted.cell, **wanted.point}), is_since)])

    def worse() -> int:
        return regressed(
            (_place(one), f"{one.info.start_time:020}", one.data.metrics[METRIC]) for one in found(is_since)
        )

    def compared() -> int:
        history: dict[Place, list[float]] = defaultdict(list)
        sides: dict[str, dict[Place, list[float]]] = {wanted.before: {}, wanted.after: {}}
        for one in found(*_equal(wanted.cell)):
            history[_place(one)].append(one.data.metrics[METRIC])
            if (run_id := one.data.params[RUN]) in sides:
                samples = client.get_metric_history(one.info.run_id, SAMPLES)
                sides[run_id][_place(one)] = _launch_medians([sample.value for sample in samples])
        return judged(history, sides[wanted.before], sides[wanted.after])

    return {"newest": newest, "series": series, "regressed": worse, "compared": compared}


def _equal(parameters: Mapping[str, str]) -> list[str]:
    return [f"params.{name} = '{value}'" for name, value in parameters.items()]


def _pages(client: Any, experiment: str, condition: str, order: str) -> Iterator[Any]:
    token = None
    while True:
        page = client.search_runs([experiment], condition, order_by=[order], max_results=MOST_RUNS, page_token=token)
        yield from page
        if not (token := page.token):
            return


def _place(run: Any) -> Place:
    return tuple(run.data.params[name] for name in PLACE)


def _launch_medians(values: Sequence[float]) -> list[float]:
    size = len(values) // LAUNCHES
    return [median(values[start : start + size]) for start in range(0, len(values), size)]
