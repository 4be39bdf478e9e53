"""MLflow: parameters and metrics of a run, and, where MLflow is installed, a real store."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest

from benchmarking.core.errors import StorageError, UsageError
from db.exporters.mlflow_store import LONGEST, metrics_of, params_of


def test_a_missing_package_is_reported_with_its_install_command(export, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(UsageError, match=r"needs mlflow: pip install 'benchhouse\[mlflow\]'"):
        export("mlflow", tmp_path / "store")
    assert list(tmp_path.iterdir()) == []


def test_mlflow_requires_an_output_or_a_tracking_uri(export, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(UsageError, match=r"give a folder with --output, or a server in \$MLFLOW_TRACKING_URI"):
        export("mlflow")


def test_a_package_that_mlflow_cannot_use_is_one_line(export, tmp_path, monkeypatch):
    def broken(tracking_uri):
        raise ImportError("cannot import name 'Queue' from 'sqlalchemy.pool'")

    errors = SimpleNamespace(MlflowException=RuntimeError)
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(MlflowClient=broken, exceptions=errors))
    for name in ("sqlalchemy", "alembic"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace())
    with pytest.raises(StorageError, match=r"MLflow cannot open sqlite:.*: cannot import name 'Queue'"):
        export("mlflow", tmp_path / "store")


def test_parameters_are_short_texts_without_unknown_values(make_run):
    run = make_run(settings={"launches": 3, "limit": None, "long": "x" * (LONGEST + 1)})
    params = params_of(run)
    assert params["model"] == "bert-base-uncased"
    assert params["runtime.attention"] == "sdpa"
    assert params["settings.launches"] == "3"
    assert not {"model_revision", "settings.limit", "settings.long"} & params.keys()


def test_metrics_are_named_by_point(make_run):
    run = make_run(batch_sizes=(1,), sequence_lengths=(32,))
    metrics = metrics_of(run)
    assert metrics["latency_median_ms/b1_s32"] == 8.0
    assert len(metrics) == len(run.results[0].metrics)
    vision = make_run(family="vision", batch_sizes=(2,))
    assert "latency_median_ms/b2_image_size_224" in metrics_of(vision)


def test_names_that_mlflow_does_not_accept_hide_no_other(make_run):
    run = make_run(batch_sizes=(1,), sequence_lengths=(32,), settings={"a:b": 1, "a_b": 2, "a=b": 3})
    found = {name: value for name, value in params_of(run).items() if name.startswith("settings.a")}
    assert found == {"settings.a_b": "2", "settings.a_b_2": "1", "settings.a_b_3": "3"}


@pytest.mark.slow
def test_a_real_store_has_runs_with_parameters_metrics_tags_and_artifacts(export, tmp_path, hostile_text):
    mlflow = pytest.importorskip("mlflow", reason="needs MLflow: pip install 'benchhouse[mlflow]'")
    pytest.importorskip("alembic", reason="needs alembic, as MLflow's SQLite store does")
    store = tmp_path / "store"
    assert export("mlflow", store, "model=bert-base-uncased|gpt2") == []
    assert export("mlflow", store, "model=bert-base-uncased|gpt2") == ["3 runs already exported: skipped"]
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{store / 'mlflow.db'}")
    found = {
        name: client.search_runs([client.get_experiment_by_name(name).experiment_id])
        for name in ("bert-base-uncased", "gpt2")
    }
    (bert,) = found["bert-base-uncased"]
    assert bert.info.status == "FAILED"
    assert (bert.data.metrics["latency_median_ms/b1_s32"], bert.data.tags["label"]) == (8.0, hostile_text)
    assert {run.data.params["runtime"] for run in found["gpt2"]} == {"eager", "onnxruntime"}
    assert sorted(file.path for file in client.list_artifacts(bert.info.run_id)) == ["run.json", "samples.parquet"]
    run = json.loads((store / "artifacts" / bert.info.run_id / "artifacts" / "run.json").read_text())
    assert run["run_id"] == bert.data.tags["benchhouse.run_id"]


@pytest.mark.slow
def test_a_partly_exported_run_is_exported_again(export, tmp_path):
    mlflow = pytest.importorskip("mlflow", reason="needs MLflow: pip install 'benchhouse[mlflow]'")
    pytest.importorskip("alembic", reason="needs alembic, as MLflow's SQLite store does")
    store = tmp_path / "store"
    export("mlflow", store, "model=vit", tables="results")
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{store / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("vit").experiment_id
    (done,) = client.search_runs([experiment])
    client.update_run(done.info.run_id, status="RUNNING")
    assert export("mlflow", store, "model=vit", tables="results") == []
    (again,) = client.search_runs([experiment])
    assert again.info.run_id != done.info.run_id
    assert again.info.status == "FINISHED"
    assert client.list_artifacts(again.info.run_id) == []
