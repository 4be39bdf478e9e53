"""`benchhouse delete`, and corrections by `import --replace` and `annotate label`, through their own mains."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
from pathlib import Path

import duckdb
import pytest

from benchmarking.core.errors import StorageError
from benchmarking.core.records import dumps
from db.analysis.annotations import annotate as note
from db.commands import alert, annotate, check, delete, import_results
from db.importers.support.files import read_file
from db.importers.support.importing import GivenValues
from db.ingestion import FileRuns
from db.setup_benchmark_db import main as setup
from db.upkeep.verify import verify
from db.warehouse import Warehouse
from tests.helpers.imported_files import importer_for
from tests.helpers.paths import FIXTURES

pytestmark = pytest.mark.forked_children

IMPORTS = FIXTURES / "imports"
LOAD = IMPORTS / "vllm_bench_serve/server_of_vllm.json"
OTHER = IMPORTS / "vllm_bench_serve/over_saturated.json"


def run(command, database, *arguments):
    return command.main([*map(str, arguments), "--db-path", str(database)])


def rows(database, sql="SELECT model_id, runtime, precision FROM benchmark_runs ORDER BY ALL", *, is_verified=True):
    with Warehouse.open(database, read_only=True) as warehouse:
        assert not is_verified or list(verify(warehouse)) == []
        return [tuple(row.values()) for row in warehouse.query(sql).dicts()]


def test_a_file_is_read_again_with_other_flags_in_place_of_what_was_stored(database, capsys):
    assert run(import_results, database, LOAD, OTHER) == 0
    assert run(import_results, database, LOAD, "--replace", "--precision", "bfloat16", "--runtime", "sglang") == 0
    assert rows(database) == [("base", "sglang", "bfloat16"), ("m", "server", "unknown")]
    assert run(import_results, database, LOAD, "--replace", "--precision", "bfloat16", "--runtime", "sglang") == 0
    assert len(rows(database)) == 2
    doubted = "SELECT count(*) AS n FROM benchmark_results WHERE list_contains(doubts, 'engine_not_stated')"
    assert rows(database, doubted) == [(1,)]  # of the other file: the user named the engine of this one
    assert "new: 1 run" in capsys.readouterr().out


NOTED = """
SELECT target_kind, note, model_id FROM annotations
JOIN benchmark_results ON target_id IN (run_id, result_id) JOIN benchmark_runs USING (run_id) ORDER BY ALL
"""


def runs_of(path, **values):
    file = read_file(path)
    runs = [GivenValues(**values).applied_to(one) for one in importer_for(file).runs(file)]
    return FileRuns(runs=runs, source=str(path), source_sha256=file.sha256)


def test_notes_stay_with_the_runs_and_results_that_replace_those_they_are_about(file_or_lake):
    old, new = runs_of(OTHER), runs_of(OTHER, model_id="n")
    with Warehouse.open(file_or_lake) as warehouse:
        warehouse.ingest_files([runs_of(LOAD), old])
        (replaced,) = old.runs
        note(warehouse, replaced.run_id, "new driver")
        note(warehouse, replaced.results[0].result_id, "odd level")
        warehouse.replace_runs(lambda: ([replaced.run_id], [new]))
        found = [tuple(row.values()) for row in warehouse.query(NOTED).dicts()]
        assert found == [("result", "odd level", "n"), ("run", "new driver", "n")]
        assert list(verify(warehouse)) == []
        warehouse.remove_runs([new.runs[0].run_id])
        assert warehouse.query(NOTED).dicts() == []


def test_notes_are_named_before_they_are_deleted_and_survive_a_label(database, capsys):
    assert run(import_results, database, LOAD) == 0
    with Warehouse.open(database) as warehouse:
        note(warehouse, warehouse.query("SELECT run_id FROM benchmark_runs").dicts()[0]["run_id"], "new driver", "kim")
    assert annotate.main(["label", "model=base", "--model-id", "n", "--db-path", str(database)]) == 0
    assert run(delete, database, "model=n", "--dry-run") == 0
    assert re.search(r"run \S+ +kim +new driver", capsys.readouterr().out)
    assert run(delete, database, "model=n", "--yes") == 0
    assert "deleted 1 run with 1 note" in capsys.readouterr().out


def test_what_was_stored_stays_if_its_replacement_cannot_be_stored(database, monkeypatch):
    assert run(import_results, database, LOAD) == 0

    def full(*_, **__):
        raise StorageError("the disk is full")

    monkeypatch.setattr("db.ingestion.ingest_files", full)
    assert run(import_results, database, LOAD, "--replace") == 1
    assert rows(database) == [("base", "server", "unknown")]


def test_the_runs_of_a_selection_are_shown_and_deleted_after_a_yes(database, capsys, monkeypatch):
    run(import_results, database, LOAD, OTHER)
    assert run(delete, database, "model=base", "--dry-run") == 0
    assert "would delete 1 run" in capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert run(delete, database, "model=base") == 2
    assert len(rows(database)) == 2
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert run(delete, database, "model=base") == 0
    said = capsys.readouterr().out
    assert ("base" in said, "deleted 1 run" in said) == (True, True)
    assert rows(database) == [("m", "server", "unknown")]
    assert LOAD.is_file()


def test_the_file_of_a_measured_run_goes_to_the_trash_and_can_be_loaded_again(database, tmp_path, make_run, capsys):
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / "one.json").write_text(dumps(make_run()))
    setup(["--ingest", str(folder), "--db-path", str(database)])
    assert run(delete, database, "sql:TRUE", "--yes", "--json") == 0
    told = json.loads(capsys.readouterr().out.partition("{")[2].join(("{", "")))
    assert told["files"][0]["trash"] == str(folder / ".trash/one.json")
    assert rows(database) == []
    setup(["--ingest", str(folder), "--db-path", str(database)])
    assert rows(database) == []
    setup(["--ingest", str(folder / ".trash"), "--db-path", str(database)])
    assert len(rows(database)) == 1
    assert run(delete, database, "sql:TRUE", "--yes") == 0
    assert [path.name for path in (folder / ".trash").iterdir()] == ["one.json"], "it stays there"


def test_another_file_that_a_strangers_database_names_stays_in_place(database, tmp_path, make_run, capsys):
    (tmp_path / "one.json").write_text(dumps(make_run()))
    setup(["--ingest", str(tmp_path / "one.json"), "--db-path", str(database)])
    mine = tmp_path / ".bashrc"
    mine.write_text("alias ll='ls -l'\n")
    change = "UPDATE benchmark_runs SET source = ?, source_sha256 = ?"
    with contextlib.closing(duckdb.connect(str(database))) as connection:
        connection.execute(change, [str(mine), hashlib.sha256(mine.read_bytes()).hexdigest()])
    assert run(delete, database, "sql:TRUE", "--yes") == 1
    assert "it is not a file of the deleted run: left in place" in capsys.readouterr().err
    assert mine.is_file()
    assert not (tmp_path / ".trash").exists()


def test_a_file_at_a_place_that_cannot_be_looked_at_is_gone(database, tmp_path, make_run, capsys):
    """Such as in another user's home folder, or with a name that is too long here."""
    (tmp_path / "one.json").write_text(dumps(make_run()))
    setup(["--ingest", str(tmp_path / "one.json"), "--db-path", str(database)])
    with contextlib.closing(duckdb.connect(str(database))) as connection:
        connection.execute("UPDATE benchmark_runs SET source = ?", [f"/data/{'x' * 300}/one.json"])
    (tmp_path / "one.json").unlink()
    assert run(delete, database, "sql:TRUE", "--yes") == 0
    assert "deleted 1 run" in capsys.readouterr().out
    assert rows(database) == []


@pytest.mark.parametrize(
    ("command", "name", "runs"),
    [
        *(("copytree", "b.duckdb", runs) for runs in ("runs", "results/raw", ".")),
        ("move", "b.duckdb", "results/raw"),
        ("copytree", "ducklake:b.ducklake", "results/raw"),
    ],
)
def test_the_database_of_a_copied_or_moved_folder_deletes_its_own_files(
    tmp_path, make_run, monkeypatch, command, name, runs
):
    if name.startswith("ducklake:"):
        pytest.importorskip("duckdb_extension_ducklake")
    first, second = tmp_path / "first", tmp_path / "second"
    (first / runs).mkdir(parents=True)
    (first / runs / "one.json").write_text(dumps(make_run()))
    monkeypatch.chdir(first)
    setup(["--ingest", runs, "--db-path", name])
    getattr(shutil, command)(first, second)
    monkeypatch.chdir(second)
    assert run(delete, name, "sql:TRUE", "--yes") == 0
    assert (second / runs / ".trash/one.json").is_file()
    assert first.exists() == (command == "copytree") == (first / runs / "one.json").is_file()
    setup(["--ingest", runs, "--db-path", name])
    assert rows(name) == []


@pytest.mark.parametrize("state", ["gone", "changed"])
def test_a_copied_database_never_moves_or_checks_the_files_of_the_one_it_was_copied_from(
    tmp_path, make_run, monkeypatch, state, capsys
):
    first, second = tmp_path / "first", tmp_path / "second"
    (first / "runs").mkdir(parents=True)
    (first / "runs/one.json").write_text(dumps(make_run()))
    monkeypatch.chdir(first)
    setup(["--ingest", "runs", "--db-path", "b.duckdb"])
    shutil.copytree(first, second)
    own = second / "runs/one.json"
    own.unlink()
    if state == "changed":
        own.write_text("{}")
    monkeypatch.chdir(second)
    assert setup(["--verify", "--db-path", "b.duckdb"]) == (1 if state == "changed" else 0)
    assert (f"its file {own} was changed" in capsys.readouterr().out) == (state == "changed")
    assert run(delete, "b.duckdb", "sql:TRUE", "--yes") == (1 if state == "changed" else 0)
    assert (first / "runs/one.json").is_file()
    assert own.is_file() == (state == "changed")


@pytest.mark.parametrize("arguments", [[], [" "]])
def test_nothing_is_deleted_without_a_selection(database, arguments, capsys):
    run(import_results, database, LOAD)
    assert run(delete, database, *arguments) == 2
    assert "no selection" in capsys.readouterr().err
    assert len(rows(database)) == 1


def test_labels_of_imported_runs_are_set_afterwards(database, capsys):
    run(import_results, database, LOAD, OTHER)
    assert (
        annotate.main(["label", "model=base", "--runtime", "sglang", "--hardware", "H100", "--db-path", str(database)])
        == 0
    )
    sql = "SELECT run.runtime, device_name FROM benchmark_runs run JOIN hardware_info USING (hardware_id) ORDER BY ALL"
    assert rows(database, sql) == [("server", None), ("sglang", "H100")]
    (kept,) = rows(
        database, "SELECT origin->'kept'->'replaced'->>'runtime' FROM benchmark_runs WHERE runtime = 'sglang'"
    )
    assert kept == ("server",)
    assert run(import_results, database, LOAD, "--replace") == 0
    assert [row[1] for row in rows(database)] == ["server", "server"]
    assert annotate.main(["label", "model=base", "--db-path", str(database)]) == 2
    label = ["label", "model=base", "--hardware", "H100 API_TOKEN=abcdef0123456789", "--db-path", str(database)]
    assert annotate.main(label) == 0
    assert "abcdef0123456789" not in str(rows(database, sql)), "secrets are not stored"


@pytest.fixture
def meanwhile(monkeypatch):
    """A function that has another one change the warehouse just before its next transaction begins, as another machine
    may change a lake."""

    def call(other):
        change = Warehouse.change

        def changed(warehouse, work):
            monkeypatch.setattr(Warehouse, "change", change)
            other(warehouse, [row["run_id"] for row in warehouse.query("SELECT run_id FROM benchmark_runs").dicts()])
            return change(warehouse, work)

        monkeypatch.setattr(Warehouse, "change", changed)

    return call


def labelled(warehouse, ids):
    warehouse.replace_runs(lambda: (ids, [runs_of(LOAD, model_id="n")]))


LABELS = "SELECT model_id, precision FROM benchmark_runs"


@pytest.mark.parametrize(
    ("command", "arguments", "left"),
    [
        (annotate, ("label", "format=vllm_bench_serve", "--precision", "int4"), ("n", "int4")),
        (import_results, (LOAD, "--replace", "--precision", "int4"), ("base", "int4")),
        (import_results, (LOAD,), ("n", "unknown")),
    ],
)
def test_a_command_goes_on_from_what_another_one_has_just_stored(database, meanwhile, command, arguments, left):
    """Otherwise both stay, and the measurement is there twice."""
    if arguments != (LOAD,):
        assert run(import_results, database, LOAD) == 0
    meanwhile(labelled)
    assert run(command, database, *arguments) == 0
    assert rows(database, LABELS) == [left]


def test_a_run_that_was_labelled_since_it_was_shown_is_not_deleted(database, meanwhile, capsys):
    assert run(import_results, database, LOAD) == 0
    meanwhile(labelled)
    assert run(delete, database, "format=vllm_bench_serve", "--yes") == 1
    out, err = capsys.readouterr()
    assert "deleted" not in out
    assert "was changed or deleted by another command: run this one again" in err
    assert rows(database, LABELS) == [("n", "unknown")]


def test_a_run_that_was_deleted_just_before_is_neither_labelled_nor_noted(database, meanwhile, capsys):
    for arguments, code in ((("label", "model=base", "--model-id", "n"), 0), (("add", "latest", "a new fan"), 2)):
        assert run(import_results, database, LOAD) == 0
        meanwhile(Warehouse.remove_runs)
        assert run(annotate, database, *arguments) == code
        assert rows(database, LABELS) == rows(database, "SELECT note FROM annotations") == []
    out, err = capsys.readouterr()
    assert "0 runs labelled" in out
    assert "no run, result, series, machine or alert has an id that begins with" in err


def test_the_trash_replaces_no_file_of_a_command_at_the_same_time(database, tmp_path, make_run, monkeypatch):
    folder = tmp_path / "runs"
    (folder / ".trash").mkdir(parents=True)
    (folder / "one.json").write_text(dumps(make_run()))
    setup(["--ingest", str(folder), "--db-path", str(database)])
    (folder / ".trash" / "one.json").write_text("of another command")
    # It came after the look.
    monkeypatch.setattr(Path, "exists", lambda path: ".trash" not in path.parts and os.path.lexists(path))
    assert run(delete, database, "model=bert-base-uncased", "--yes") == 0
    assert (folder / ".trash" / "one.json").read_text() == "of another command"
    assert {path.name for path in (folder / ".trash").iterdir()} == {"one.json", "one.1.json"}
    assert not os.path.lexists(folder / "one.json")


def test_a_question_that_nobody_answers_names_the_flag_that_skips_it(database, capsys, monkeypatch):
    assert run(import_results, database, LOAD, OTHER) == 0
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert run(delete, database, "latest") == 2
    out, err = capsys.readouterr()
    assert "was left unchanged: there is nobody to answer: --yes skips the question" in err
    ids = [run_id for (run_id,) in rows(database, "SELECT run_id FROM benchmark_runs")]
    shown = [line.split()[0] for line in out.splitlines() if any(run_id.startswith(line[:8]) for run_id in ids)]
    assert shown
    assert all(sum(run_id.startswith(one) for run_id in ids) == 1 for one in shown)  # whole in its line


def llama_bench_files(folder, slowdowns):
    """A file of each day with two tests of the fixture, their times times a factor."""
    for day, factor in enumerate(slowdowns):
        tests = json.loads((IMPORTS / "llama_bench/33_columns.json").read_text())[:2]
        for test in tests:
            test["test_time"] = f"2026-02-{day + 1:02}T00:00:00Z"
            test["avg_ns"] = round(test["avg_ns"] * factor)
            test["samples_ns"] = [round(one * factor) for one in test["samples_ns"]]
            test["avg_ts"] /= factor
            test["samples_ts"] = [one / factor for one in test["samples_ts"]]
        path = folder / f"r{day:02}.json"
        path.write_text(json.dumps(tests))
        yield path


ALERTED = """
SELECT alert_id, triage, alerts.note, target_kind, annotations.note AS written, model_id,
    alerts.series_id = result.series_id, group_id = session_id,
    (alerts.parameters->>'$.last_good') IN (SELECT result_id FROM benchmark_results)
FROM alerts JOIN annotations ON target_id = alert_id JOIN benchmark_results result USING (result_id)
JOIN benchmark_runs USING (run_id) ORDER BY ALL
"""


def test_alerts_with_their_triage_stay_with_the_results_that_replace_theirs(file_or_lake, tmp_path, capsys):
    database = file_or_lake
    *earlier, newest = llama_bench_files(tmp_path, [1 + 0.003 * (day * 7 % 5) for day in range(13)] + [1.5])
    assert run(import_results, database, *earlier, newest) == 0
    assert run(check, database, "--metric", "latency_median_ms") == 1
    with Warehouse.open(database) as warehouse:
        ids = [row["alert_id"] for row in warehouse.query("SELECT alert_id FROM alerts").dicts()]
        for alert_id in ids:
            note(warehouse, alert_id, "about the alert", None)
    assert run(alert, database, "set", *ids, "regression", "--note", "the fan was broken") == 0
    before = rows(database, ALERTED, is_verified=False)  # it takes a lake four seconds, and is done after the label
    assert len(before) == len(ids) > 0
    assert run(import_results, database, newest, "--replace") == 0
    assert rows(database, ALERTED, is_verified=False) == before
    assert run(annotate, database, "label", "format=llama_bench", "--model-id", "other") == 0
    labelled = [(*row[:5], "other", *row[6:]) for row in before]
    assert rows(database, ALERTED) == labelled
    assert all(all(row[6:]) for row in labelled)
    capsys.readouterr()
    assert run(check, database, "--metric", "latency_median_ms") == 1
    assert f"alerts: 0 new, {len(ids)} already known" in capsys.readouterr().err
    # Of another content, and deleted: told.
    tests = json.loads(newest.read_text())
    for test in tests:
        test["samples_ns"] = [2 * one for one in test["samples_ns"]]
    newest.write_text(json.dumps(tests))
    if database.endswith(".duckdb"):  # the same alerts as in the text, which takes a lake five seconds
        assert run(delete, database, "sql:started_at >= '2026-02-14'", "--dry-run", "--json") == 0
        assert sorted(one["alert_id"] for one in json.loads(capsys.readouterr().out)["alerts"]) == sorted(ids)
    assert run(delete, database, "sql:started_at >= '2026-02-14'", "--dry-run") == 0
    assert capsys.readouterr().out.count("the fan was broken") == len(ids)
    assert run(import_results, database, newest, "--replace", "--dry-run") == 0
    assert capsys.readouterr().err.count("the fan was broken) would be deleted, unless") == len(ids)
    assert run(import_results, database, newest, "--replace") == 0
    assert capsys.readouterr().err.count("regression: the fan was broken) is deleted: no result has the values") == len(
        ids
    )
    assert rows(database, "SELECT * FROM alerts") == []
