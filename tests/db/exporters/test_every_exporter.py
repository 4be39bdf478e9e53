"""The contract of every exporter."""

from __future__ import annotations

import pytest

from benchmarking.core.errors import StorageError, UsageError
from db.exporters.support.exporting import exporters

NAMES = tuple(exporter.name for exporter in exporters())
WITHOUT_PACKAGES = tuple(name for name in NAMES if name != "mlflow")


def test_the_exporters_are_those_promised():
    promised = {"csv", "parquet", "json", "markdown", "transformers_benchmark_v2", "llama_bench_sql", "mlflow"}
    assert promised | {"openmetrics"} <= set(NAMES)
    assert list(NAMES) == sorted(NAMES)


@pytest.mark.parametrize("name", WITHOUT_PACKAGES)
def test_an_empty_selection_creates_nothing(export, tmp_path, name):
    with pytest.raises(UsageError, match="'model=none' selects nothing: nothing to export"):
        export(name, tmp_path / "out", "model=none")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", WITHOUT_PACKAGES)
def test_an_existing_output_is_never_overwritten(export, tmp_path, name):
    output = tmp_path / "out"
    output.write_text("mine")
    with pytest.raises(UsageError, match="already exists: choose another path"):
        export(name, output)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("name", WITHOUT_PACKAGES)
def test_an_export_that_fails_midway_leaves_nothing(export, tmp_path, name, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("db.exporters.support.exporting.Path.rename", full)
    monkeypatch.setattr("db.file_copy.os.link", full)
    with pytest.raises(StorageError, match="No space left on device"):
        export(name, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_parent_folder_is_reported(export, tmp_path):
    with pytest.raises(UsageError, match=r": the folder .* does not exist: create it"):
        export("csv", tmp_path / "none" / "out.csv")


def test_several_files_need_a_folder_which_may_be_empty(export, tmp_path):
    with pytest.raises(UsageError, match="give a folder with --output"):
        export("parquet")
    folder = tmp_path / "out"
    folder.mkdir()
    export("parquet", folder)
    assert (folder / "series").is_dir()
    with pytest.raises(UsageError, match="already exists: choose another path"):
        export("parquet", folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="is a folder, but the format writes one file"):
        export("csv", tmp_path / "empty")


def test_an_invalid_sql_condition_is_a_usage_error(export):
    with pytest.raises(UsageError, match="no column nothing: benchhouse query --describe all_results"):
        export("csv", selection="sql:nothing = 1")
