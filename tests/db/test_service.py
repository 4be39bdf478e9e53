"""The door for commands that measure: prepare, store, runs, compare."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys

import pytest

from benchmarking.core.errors import StorageError
from benchmarking.core.provenance import MeasuredRun
from benchmarking.core.records import dumps, from_json
from benchmarking.sweep.run import command_session
from db.service import main
from db.warehouse import Warehouse


def test_a_missing_database_is_created(tmp_path):
    path = tmp_path / "new.duckdb"
    assert main(["prepare", str(path)]) == 0
    with Warehouse.open(path, create=False) as warehouse:
        assert warehouse.query("select count(*) as n from benchmark_runs").df().n[0] == 0


@pytest.mark.parametrize("content", [b"text, not a database " * 300, b""])
def test_what_is_no_database_is_named(tmp_path, capsys, content):
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    assert main(["prepare", str(path)]) == 1
    assert str(path) in capsys.readouterr().out
    assert capsys.readouterr().out == ""


@pytest.fixture
def run_file(tmp_path, make_run):
    path = tmp_path / "run.json"
    path.write_text(dumps(make_run()))
    return path


def test_a_run_file_is_stored_once(tmp_path, run_file):
    path = tmp_path / "new.duckdb"
    for _ in range(2):
        assert main(["store", str(path), str(run_file), "--lock-timeout", "1"]) == 0
    with Warehouse.open(path, create=False) as warehouse:
        assert warehouse.query("select count(*) as n from benchmark_runs").df().n[0] == 1


def test_tasks_and_query_commands_import_no_pandas(tmp_path, run_file):
    """DuckDB imports it for the first value that is bound, which takes longer than the task."""
    path = tmp_path / "new.duckdb"
    for command in (
        ("db.service", "store", path, run_file),
        ("benchmarking.cli", "show", "--db-path", path),
    ):
        watched = (sys.executable, "-X", "importtime", "-m", *map(str, command))
        done = subprocess.run(watched, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-500:]
        assert "| pandas.core" not in re.sub(" +", " ", done.stderr), command
        assert "_duckdb" in done.stderr, command
    assert "bert" in done.stdout


def test_non_run_files_are_refused_with_the_reason(tmp_path, capsys):
    path = tmp_path / "run.json"
    path.write_text("{")
    assert main(["store", str(tmp_path / "new.duckdb"), str(path)]) == 1
    assert capsys.readouterr().out.startswith(f"refused {path}: not JSON, or truncated")


def test_selected_runs_come_with_their_settings(tmp_path, run_file, make_run, capsys):
    path = tmp_path / "new.duckdb"
    assert main(["store", str(path), str(run_file)]) == 0
    assert main(["runs", str(path), "latest"]) == 0
    (run,) = [from_json(MeasuredRun, one) for one in json.loads(capsys.readouterr().out)]
    expected = json.loads(run_file.read_text())
    assert (run.run_id, run.model_id) == (expected["run_id"], expected["cell"]["workload"]["model_id"])
    assert run.hashed_keys == expected["hardware"]["hashed_keys"]
    assert run.settings == expected["settings"]
    assert {point.label for point in run.points} == {result.point.label for result in make_run().results}
    assert len(run.points) == len(expected["results"])
    assert main(["runs", str(path), "model=none-such"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_two_selections_are_compared_though_all_but_the_point_differs(tmp_path, make_run, capsys):
    path = tmp_path / "new.duckdb"
    runs = (make_run(), make_run(precision="bfloat16"))
    for number, run in enumerate(runs):  # not in turns
        text = dumps(run).replace("2026-01-02T03:", f"2026-01-02T0{3 + number}:")
        (tmp_path / f"{number}.json").write_text(text)
        assert main(["store", str(path), str(tmp_path / f"{number}.json")]) == 0
    before, after = (f"run={run.run_id}" for run in runs)
    assert main(["compare", str(path), before, after, "--json"]) == 3
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert [one["judgement"]["verdict"] for one in findings] == ["not judged"] * len(runs[0].results)
    assert main(["compare", str(path), before, "model=none-such"]) == 3
    assert main(["compare", str(path), before, after, "--metric", "none-such"]) == 2
    assert "unknown metric 'none-such'" in capsys.readouterr().out


def test_what_is_said_meanwhile_reaches_the_user_and_the_error_is_one_line(tmp_path, empty_database, capfd):
    path = shutil.copy2(empty_database, tmp_path / "a.duckdb")
    (tmp_path / "a.duckdb.wal").write_bytes(b"no log" * 100)
    command_session.database(str(path), 1.0, quiet=True)
    assert f"{path}: its log cannot be read" in capfd.readouterr().err
    (tmp_path / "b.duckdb").write_text("no database")
    with pytest.raises(StorageError, match=r"^[^\n]*b\.duckdb: not a DuckDB database: choose another path$"):
        command_session.database(str(tmp_path / "b.duckdb"), 1.0, quiet=True)
    assert capfd.readouterr().err == ""
