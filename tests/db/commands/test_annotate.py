"""`benchhouse annotate`, through its own main."""

from __future__ import annotations

import json
import shutil

import pytest

from db.commands import annotate, import_results, merge
from db.warehouse import Warehouse
from tests.helpers.paths import FIXTURES


@pytest.fixture
def noted(tmp_path, empty_database, make_run):
    """A warehouse with a run: its path, and the ids of what a note can be about."""
    path = shutil.copy2(empty_database, tmp_path / "noted.duckdb")
    with Warehouse.open(path) as warehouse:
        warehouse.ingest(make_run(sequence_lengths=(32,), batch_sizes=(1,), iterations=3))
        (ids,) = warehouse.query("SELECT run_id, result_id, series_id, hardware_id FROM all_results").dicts()
    return str(path), ids


def run(path, *arguments):
    return annotate.main([*arguments, "--db-path", path])


@pytest.mark.parametrize("kind", ["run", "result", "series", "hardware"])
def test_a_note_about_anything_is_stored_listed_and_removed(noted, kind, capsys):
    path, ids = noted
    assert run(path, "add", ids[f"{kind}_id"], " the fan was replaced ", "--author", "mira") == 0
    assert f"about {kind} {ids[f'{kind}_id']}" in capsys.readouterr().out
    assert run(path, "list", "--json") == 0
    (note,) = json.loads(capsys.readouterr().out)
    assert (note["target_kind"], note["note"], note["author"]) == (kind, "the fan was replaced", "mira")
    assert run(path, "list") == 0
    assert "mira" in capsys.readouterr().out
    assert run(path, "remove", note["annotation_id"]) == 0
    capsys.readouterr()
    assert run(path, "list") == 0
    assert capsys.readouterr().out == "no notes\n"


def test_a_prefix_is_enough_and_secrets_are_not_stored(noted, capsys):
    path, ids = noted
    secret = "API_TOKEN=abcdef0123456789"
    assert run(path, "add", ids["series_id"][:8], f"measured with {secret}", "--author", f"mira {secret}") == 0
    capsys.readouterr()
    assert run(path, "list", "--json") == 0
    (note,) = json.loads(capsys.readouterr().out)
    assert note["target_id"] == ids["series_id"]
    assert "abcdef0123456789" not in note["note"] + note["author"]
    assert note["author"].startswith("mira API_TOKEN=")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["add", "ffffffff-none", "a"], "no run, result, series, machine or alert has an id that begins with"),
        (["add", "short", "a"], "expected an id or at least its first 8 characters"),
        (["add", "ffffffff", " "], "expected a note of 1 to 2000 characters: got 0"),
        (["add", "ffffffff", "a" * 2001], "expected a note of 1 to 2000 characters: got 2001"),
        (["add", "ffffffff", "a", "--author", "a" * 201], "expected an author of 1 to 200 characters: got 201"),
        (["remove", "ffffffff"], "no note has an id that begins with 'ffffffff'"),
    ],
)
def test_an_invalid_note_is_one_line(noted, arguments, message, capsys):
    path, _ = noted
    assert run(path, *arguments) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1


def test_the_newest_run_is_called_latest(noted, capsys):
    path, ids = noted
    assert run(path, "add", "latest", "the fan was replaced") == 0
    assert f"about run {ids['run_id']}" in capsys.readouterr().out


def test_there_is_no_latest_run_of_an_empty_warehouse(tmp_path, empty_database, capsys):
    assert run(str(shutil.copy2(empty_database, tmp_path / "empty.duckdb")), "add", "latest", "x") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("latest: no run is stored yet: benchhouse run MODEL --save stores one")


def test_a_corrected_label_stays_when_the_unchanged_file_is_imported_again(tmp_path, capsys):
    file = shutil.copy(FIXTURES / "imports/llama_bench/nvfp4.json", tmp_path)
    path = str(tmp_path / "labelled.duckdb")
    assert import_results.main([str(file), "--db-path", path]) == 0
    assert run(path, "label", "format=llama_bench", "--model-id", "good", "--precision", "int4") == 0
    capsys.readouterr()
    assert import_results.main([str(file), "--db-path", path, "--dry-run"]) == 0
    assert import_results.main([str(file), "--db-path", path]) == 0
    said = capsys.readouterr()
    assert said.out.count("files: 0 imported, 1 already stored") == 2
    assert "imported before with other labels, which are kept" in said.err
    with Warehouse.open(path, read_only=True) as warehouse:
        assert {row["model_id"] for row in warehouse.query("SELECT model_id FROM benchmark_runs").dicts()} == {"good"}


def test_a_label_that_a_run_has_already_changes_nothing(tmp_path, capsys):
    path, labels = str(tmp_path / "labelled.duckdb"), ("format=llama_bench", "--model-id", "good", "--hardware", "L4")
    assert import_results.main([str(FIXTURES / "imports/llama_bench/nvfp4.json"), "--db-path", path]) == 0
    assert run(path, "label", *labels) == 0
    sql = "SELECT run_id, list(result_id) FROM benchmark_results GROUP BY ALL"
    with Warehouse.open(path) as warehouse:
        (row,) = stored = warehouse.query(sql).dicts()
        warehouse.query("UPDATE raw_benchmark_data SET compacted_at = now()")  # which cannot be labelled
    capsys.readouterr()
    assert run(path, "label", *labels, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"labelled": [], "unchanged": [row["run_id"]], "joined": []}
    assert run(path, "label", *labels[:3]) == 0
    assert capsys.readouterr().out == "0 runs labelled; 1 run already so\n"
    with Warehouse.open(path, read_only=True) as warehouse:
        assert warehouse.query(sql).dicts() == stored


def test_merging_a_database_with_the_old_labels_says_that_the_measurement_is_there_twice(tmp_path, capsys):
    file = FIXTURES / "imports/llama_bench/nvfp4.json"
    paths = [str(tmp_path / name) for name in ("labelled.duckdb", "old.duckdb")]
    for path in paths:
        assert import_results.main([str(file), "--db-path", path]) == 0
    assert run(paths[0], "label", "format=llama_bench", "--model-id", "good") == 0
    with Warehouse.open(paths[1], read_only=True) as warehouse:
        (old,) = warehouse.query("SELECT run_id FROM benchmark_runs").dicts()
    capsys.readouterr()
    assert merge.main([paths[1], "--db-path", paths[0]]) == 0
    said = capsys.readouterr()
    assert "added 1 run" in said.out
    assert (
        "1 run of imported files that are here under other labels, or in other runs of a file that grew, so their "
        "measurements are stored twice" in said.err
    )
    assert old["run_id"] in said.err
    assert merge.main([paths[1], "--db-path", paths[0]]) == 0
    said = capsys.readouterr()
    assert ("nothing new" in said.out, said.err) == (True, "")


@pytest.mark.parametrize(
    ("selection", "model", "said"), [("model=x", "y", "0 runs"), ("format=llama_bench", "z", "1 run")]
)
def test_a_run_that_gets_the_labels_of_its_other_copy_is_one_with_it(selection, model, said, tmp_path, capsys):
    file = FIXTURES / "imports/llama_bench/nvfp4.json"
    path, other = (str(tmp_path / f"{name}.duckdb") for name in ("x", "y"))
    for database, label in ((path, "x"), (other, "y")):
        assert import_results.main([str(file), "--db-path", database]) == 0
        assert run(database, "label", "format=llama_bench", "--model-id", label) == 0
        assert run(database, "add", "latest", f"of {label}") == 0
    assert merge.main([other, "--db-path", path]) == 0
    capsys.readouterr()
    assert run(path, "label", selection, "--model-id", model) == 0
    assert capsys.readouterr().out == f"{said} labelled; 1 run joined with the same measurement\n"
    with Warehouse.open(path, read_only=True) as warehouse:
        assert [row["model_id"] for row in warehouse.query("SELECT model_id FROM benchmark_runs").dicts()] == [model]
        notes = warehouse.query("SELECT note FROM annotations JOIN benchmark_runs ON run_id = target_id").dicts()
    assert {row["note"] for row in notes} == {"of x", "of y"}


def test_an_alert_of_a_run_that_was_labelled_stays_when_a_database_with_the_old_labels_is_merged(tmp_path, capsys):
    paths = [str(tmp_path / name) for name in ("labelled.duckdb", "old.duckdb")]
    assert import_results.main([str(FIXTURES / "imports/llama_bench/nvfp4.json"), "--db-path", paths[0]]) == 0
    with Warehouse.open(paths[0]) as warehouse:
        warehouse.query("""INSERT INTO alerts BY NAME SELECT 'one' AS alert_id, series_id, 'latency_mean_ms' AS metric,
            result_id, 'method' AS triage, now() AS created_at, now() AS updated_at, 'x' AS detector,
            '1' AS detector_version, '{}' AS parameters FROM benchmark_results""")
    shutil.copy2(paths[0], paths[1])
    assert run(paths[0], "label", "format=llama_bench", "--model-id", "good") == 0
    with Warehouse.open(paths[0], read_only=True) as warehouse:
        labelled = warehouse.query("FROM alerts").dicts()
    capsys.readouterr()
    assert merge.main([paths[1], "--db-path", paths[0]]) == 0
    said = capsys.readouterr()
    assert "added 1 run" in said.out
    assert "1 alert about runs labelled or read otherwise here: kept as stored here: one" in said.err
    with Warehouse.open(paths[0], read_only=True) as warehouse:
        assert warehouse.query("FROM alerts").dicts() == labelled


def test_merging_names_the_runs_of_a_file_that_one_side_imported_while_it_grew(tmp_path, capsys):
    """Their ids and contents differ, so they are added; both earlier and later results are then here twice."""
    lines = (FIXTURES / "imports/llama_bench/41_columns.jsonl").read_text().splitlines(keepends=True)
    file, one, two = tmp_path / "bench.jsonl", str(tmp_path / "one.duckdb"), str(tmp_path / "two.duckdb")
    for content in (lines[:1], lines):
        file.write_text("".join(content))
        assert import_results.main([str(file), "--db-path", one]) == 0
    assert import_results.main([str(file), "--db-path", two]) == 0
    with Warehouse.open(one, read_only=True) as warehouse:
        added = [row["run_id"] for row in warehouse.query("SELECT run_id FROM benchmark_runs").dicts()]
    capsys.readouterr()
    assert merge.main([one, "--db-path", two]) == 0
    said = capsys.readouterr().err
    assert "or in other runs of a file that grew" in said
    assert all(run_id in said for run_id in added)
