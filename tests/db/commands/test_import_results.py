"""`benchhouse import`, through its own main."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from benchmarking.core.records import dumps
from db.analysis.annotations import annotate
from db.commands import import_results
from db.ingestion import FileRuns
from db.upkeep.verify import verify
from db.warehouse import Warehouse
from tests.helpers.paths import FIXTURES

IMPORTS = FIXTURES / "imports"
REPORT = IMPORTS / "openvino_benchmark_app/benchmark_report.json"
MOVED = r"UPDATE benchmark_runs SET source = 'C:\ci\sg.jsonl'"
RUNS = "SELECT model_id, origin_format, tags FROM benchmark_runs ORDER BY model_id, origin_format"


@pytest.fixture
def folder(tmp_path):
    """A folder with a result file, one further down, one that is broken, one of no format, and a hidden one."""
    folder = tmp_path / "results"
    (folder / "deep").mkdir(parents=True)
    shutil.copy(REPORT, folder)
    shutil.copy(IMPORTS / "llama_bench/33_columns.json", folder / "deep/llama.json")
    (folder / "deep/broken.json").write_text(REPORT.read_text()[:200])
    partly = REPORT.read_text().replace('"5.08"', '"fast"')
    (folder / "deep/partly.json").write_text(partly)
    (folder / "notes.txt").write_text("nothing")
    shutil.copy(REPORT, folder / ".hidden.json")
    return folder


def run(database, *arguments):
    return import_results.main([*map(str, arguments), "--db-path", str(database)])


def rows(database):
    with Warehouse.open(database, read_only=True) as warehouse:
        return warehouse.query(RUNS).dicts()


def test_the_files_of_a_folder_are_imported_and_the_bad_one_is_named(database, folder, capsys):
    assert run(database, folder) == 1
    said = capsys.readouterr()
    formats = ["llama_bench", "openvino_benchmark_app", "openvino_benchmark_app"]
    assert sorted(row["origin_format"] for row in rows(database)) == formats
    assert "files: 3 imported, 1 unknown format, 1 refused; new: 3 runs; left out: 1" in said.out
    assert f"unknown format {folder / 'notes.txt'}" in said.out
    assert "broken.json: not JSON, or truncated" in said.err
    assert "partly.json: left out execution_results.latency_avg: expected a number, found 'fast'" in said.err
    assert "hidden" not in said.out


def test_a_folder_without_a_known_format_fails_with_what_would_help(database, tmp_path, capsys):
    empty = tmp_path / "empty"
    empty.mkdir()
    assert run(database, empty) == 1
    assert "no file has a known format: --list-formats lists them" in capsys.readouterr().err
    (empty / "notes.txt").write_text("nothing measured")
    assert run(database, empty) == 1
    said = capsys.readouterr()
    assert "unknown format" in said.out
    assert "setup --ingest" in said.err


def test_a_tag_that_is_not_set_since_the_file_is_stored_is_named(database, capsys):
    said = "1 file imported before without these tags, which are not set"
    run(database, REPORT, "--tag", "rig=a")
    assert said not in capsys.readouterr().err
    for words, is_said in (
        (["--tag", "rig=b"], True),
        (["--tag", "rig=a"], False),
        (["--tag", "rig=b", "--replace"], False),
    ):
        assert run(database, REPORT, *words) == 0
        assert (said in capsys.readouterr().err) == is_said


@pytest.mark.parametrize("name", ["results.json", "table.md"])
def test_a_pointer_of_git_lfs_in_place_of_a_file_says_what_to_do(database, tmp_path, capsys, name):
    (tmp_path / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 132735\n")
    for place in (tmp_path / name, tmp_path):
        assert run(database, place) == 1
        said = capsys.readouterr()
        assert "a git-lfs pointer to the file: run `git lfs pull`" in said.out + said.err


def test_importing_again_adds_nothing_even_from_a_copy(database, tmp_path, capsys):
    assert run(database, REPORT) == 0
    assert run(database, REPORT, shutil.copyfile(REPORT, tmp_path / "copy.json")) == 0
    assert "files: 0 imported, 2 already stored; new: 0 runs" in capsys.readouterr().out
    assert len(rows(database)) == 1


def test_every_format_is_stored_and_verifies(database):
    folders = [folder for folder in IMPORTS.iterdir() if folder.is_dir()]
    largest = [max(folder.glob("*.*"), key=lambda path: path.stat().st_size) for folder in folders]
    assert run(database, *largest) == 0
    with Warehouse.open(database, read_only=True) as warehouse:
        assert list(verify(warehouse)) == []


def test_values_of_the_user_are_stored(database, capsys):
    said = ("--model-id", "bert", "--device-name", "Xeon", "--date", "2025-01-02", "--tag", "lab=b", "--json")
    assert run(database, REPORT, *said) == 0
    (file,) = json.loads(capsys.readouterr().out)["files"]
    assert (file["state"], file["models"], file["doubts"]) == ("imported", ["bert"], {})
    assert rows(database) == [
        {"model_id": "bert", "origin_format": "openvino_benchmark_app", "tags": {"lab": "b"}},
    ]


def test_doubts_are_counted_in_json(database, capsys):
    assert run(database, REPORT, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["files"][0]["doubts"] == {"undated": 1}
    assert told["counts"] == {"imported": 1, "present": 0, "nothing": 0, "unknown": 0, "unread": 0, "refused": 0}


def test_a_warehouse_is_refused_with_a_hint_to_merge(database, tmp_path, capsys):
    assert run(tmp_path / "other.duckdb", database) == 1
    assert "use benchhouse merge" in capsys.readouterr().err


def test_unnamed_hardware_is_reported(database, capsys):
    run(database, REPORT)
    assert "1 run on unnamed hardware" in capsys.readouterr().err


def test_results_without_a_date_are_reported_until_they_are_given_one(database, capsys):
    run(database, REPORT)
    said = capsys.readouterr().err
    assert "1 result without a date in the file, stored at the file's modification time" in said
    assert "date with --date TIME" in said
    run(database, REPORT, "--replace", "--date", "2026-01-31T02:00")
    assert "without a date" not in capsys.readouterr().err


def test_a_dry_run_stores_nothing_and_makes_no_database(tmp_path, capsys):
    assert run(tmp_path / "new.duckdb", REPORT, "--dry-run") == 0
    assert "would import" in capsys.readouterr().out
    assert not (tmp_path / "new.duckdb").exists()


def test_a_run_file_is_refused_with_a_hint_to_ingest(database, tmp_path, make_run, capsys):
    (tmp_path / "run.json").write_text(dumps(make_run()))
    assert run(database, tmp_path / "run.json") == 1
    assert "load it with benchhouse setup --ingest" in capsys.readouterr().err


def test_the_database_in_a_folder_is_not_read(database, capsys):
    shutil.copy(REPORT, database.parent)
    assert run(database, database.parent) == 0
    assert "files: 1 imported; new: 1 run" in capsys.readouterr().out


def test_formats_are_listed_with_a_summary(capsys):
    assert import_results.main(["--list-formats"]) == 0
    assert "llama.cpp's llama-bench: -o json, jsonl, csv, sql and md" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no files: give result files, or folders of them"),
        (["missing.json"], "missing.json does not exist"),
        ([str(REPORT), "--format", "llama"], "unknown format 'llama': did you mean llama_bench?"),
        ([str(REPORT), "--model-id", ""], "argument --model-id: takes ID: got ''"),
        ([str(REPORT), "--runtime", " "], "argument --runtime: takes NAME: got ' '"),
        ([str(REPORT), "--date", "yesterday"], "in ISO 8601, such as 2026-01-31 or 2026-01-31T02:00: got 'yesterday'"),
        ([str(REPORT), "--date", "2026-11-1T02:00"], "such as 2026-01-31 or 2026-01-31T02:00: got '2026-11-1T02:00'"),
    ],
)
def test_usage_errors_are_one_line(arguments, message, capsys):
    assert import_results.main(arguments) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_a_file_of_another_format_than_named_is_refused(database, capsys):
    assert run(database, REPORT, "--format", "llama_bench") == 1
    assert f"{REPORT}: not a file of format llama_bench (llama.cpp's llama-bench" in capsys.readouterr().err


def test_a_truncated_file_is_refused_with_the_position(database, tmp_path, capsys):
    (tmp_path / "cut.json").write_text(REPORT.read_text()[:40])
    assert run(database, tmp_path / "cut.json") == 1
    assert "cut.json: not JSON, or truncated:" in capsys.readouterr().err
    assert run(database, tmp_path) == 1
    assert f"refused {tmp_path / 'cut.json'}: not JSON, or truncated:" in capsys.readouterr().err


def test_text_that_looks_like_sql_is_stored_unchanged(database, tmp_path):
    hostile = "x'); DROP TABLE benchmark_runs; --\n\"<b>"
    data = json.loads(REPORT.read_text())
    data["configuration_setup"]["topology"] = hostile
    (tmp_path / "r.json").write_text(json.dumps(data))
    assert run(database, tmp_path / "r.json") == 0
    assert rows(database)[0]["model_id"] == hostile


def test_other_labels_beside_an_earlier_import_are_named(database, tmp_path, capsys):
    file = shutil.copy(REPORT, tmp_path / "report.json")
    assert run(database, file) == run(database, file, "--precision", "int8") == 0
    assert "1 file imported before" in (said := capsys.readouterr().err)
    assert "--replace" in said
    assert run(database, file, "--precision", "int8", "--replace") == 0
    assert "imported before" not in capsys.readouterr().err
    assert len(rows(database)) == 1


def test_an_edited_file_takes_the_place_of_its_earlier_content_with_its_notes(database, tmp_path):
    lines = (IMPORTS / "llama_bench/41_columns.jsonl").read_text().splitlines(keepends=True)
    other, file = tmp_path / "other.json", tmp_path / "bench.jsonl"
    shutil.copy(REPORT, other)
    file.write_text("".join(lines[:1]))
    assert run(database, other, file) == 0
    with Warehouse.open(database) as warehouse:
        ids = "SELECT run_id FROM benchmark_runs WHERE origin_format = 'llama_bench'"
        (first,) = warehouse.query(ids).dicts()
        annotate(warehouse, first["run_id"], "the fan was replaced")
    file.write_text("".join(lines))
    assert run(database, "--replace", other, file) == 0
    with Warehouse.open(database, read_only=True) as warehouse:
        now = [row["run_id"] for row in warehouse.query(ids).dicts()]
        (kept,) = warehouse.query("SELECT * FROM annotations").dicts()
        (results,) = warehouse.query("SELECT count(*) AS n FROM all_results WHERE source LIKE '%bench.jsonl'").dicts()
    assert kept["note"] == "the fan was replaced"
    assert kept["target_id"] in now
    assert results["n"] == len(lines)


@pytest.mark.parametrize("moves", [False, True])
def test_of_a_file_that_has_grown_only_what_was_added_is_new(database, tmp_path, capsys, moves):
    """Also where its folder was moved, or is another checkout."""
    lines = (IMPORTS / "sglang_bench_serving/appended.jsonl").read_text().splitlines(keepends=True)
    for count in range(1, len(lines) + 1):
        folder = tmp_path / f"checkout{count if moves else ''}"
        folder.mkdir(exist_ok=True)
        file = folder / "sg.jsonl"
        file.write_text("".join(lines[:count]))
        assert run(database, file) == 0
        assert len(rows(database)) == count
        assert ("1 file grown since an earlier import" in capsys.readouterr().err) == (count > 1)
    assert run(database, file, shutil.copy(file, tmp_path / "copy.jsonl")) == 0
    assert len(rows(database)) == len(lines)


@pytest.mark.parametrize("order", ["together", "one by one", "newest first"])
@pytest.mark.parametrize("report", ["report.csv", "old_report.csv"])
def test_of_reports_on_the_same_builds_each_result_is_stored_once(database, tmp_path, capsys, report, order):
    """Also where it states no time: then the file's is taken."""
    header, *lines = (IMPORTS / "mlagility" / report).read_text().splitlines(keepends=True)
    monday, tuesday = tmp_path / "monday.csv", tmp_path / "tuesday.csv"
    monday.write_text("".join((header, *lines[:1])))
    os.utime(monday, (0, 0))
    tuesday.write_text("".join((header, *lines)))
    assert run(tmp_path / "other.duckdb", tuesday) == 0
    expected = rows(tmp_path / "other.duckdb")
    assert run(tmp_path / "none.duckdb", monday, tuesday, "--dry-run") == 0
    assert f"new: {len(expected)} runs (dry run" in capsys.readouterr().out
    orders = {"one by one": [(monday,), (tuesday,)], "newest first": [(tuesday,), (monday, tuesday)]}
    for files in orders.get(order, [(monday, tuesday)]):
        assert run(database, *files) == 0
    assert "1 file with results that another file of the tool has stated" in capsys.readouterr().err
    assert rows(database) == expected
    assert run(database, tuesday, "--replace") == 0
    assert rows(database) == expected


def test_of_documents_that_a_shell_appends_to_a_file_only_the_last_is_new(database, tmp_path, capsys):
    """As by `bench --benchmark_format=json >> all.json`, of a tool that has one document in a file."""
    text = (IMPORTS / "hyperfine/failing.json").read_text()
    for count, mean in enumerate(("0.0017", "0.0018", "0.0019"), 1):
        with (tmp_path / "all.json").open("a") as file:
            file.write(text.replace("0.0011239280000000002", mean))
        assert run(database, tmp_path / "all.json") == 0
        assert len(rows(database)) == count
        assert ("1 file grown since an earlier import" in capsys.readouterr().err) == (count > 1)


def test_a_result_that_reads_otherwise_since_its_file_has_grown_is_told(database, tmp_path, capsys):
    """Such as one that was being printed."""
    lines = (IMPORTS / "vllm_printed/serving.log").read_text().splitlines(keepends=True)
    file = tmp_path / "serving.log"
    for flags, end in (((), 26), ((), len(lines)), (("--replace",), len(lines))):
        file.write_text("".join(lines[:end]))
        assert run(database, *flags, file) == 0
    assert "imported before, whose runs of then stay beside the new ones" in capsys.readouterr().err
    assert len(rows(database)) == 2


def test_calls_that_a_tool_appended_to_its_file_are_a_result_without_the_earlier_ones(database, tmp_path):
    file = tmp_path / "perf.csv"
    for times_ms in ((10, 10, 10), (20, 20, 20), (40, 40)):
        with file.open("a") as opened:
            opened.writelines(f"bert,0.0{ms},1000000,50,{call}\n" for call, ms in enumerate(times_ms))
        assert run(database, file) == 0
    assert run(database, file) == 0
    with Warehouse.open(database, read_only=True) as warehouse:
        numbers = "SELECT latency_median_ms, launches, iterations FROM all_results ORDER BY ALL"
        found = [tuple(row.values()) for row in warehouse.query(numbers).dicts()]
    assert found == [(10.0, 1, 3), (20.0, 1, 3), (40.0, 1, 2)]


def test_the_unnamed_model_of_a_file_that_grows_is_one(database, tmp_path):
    text = (IMPORTS / "sglang_bench_serving/appended.jsonl").read_text()
    unnamed = next(line for line in map(json.loads, text.splitlines()) if "Llama" not in json.dumps(line))
    for rate in (1.0, 2.0, 3.0):
        with (tmp_path / "sg.jsonl").open("a") as file:
            file.write(json.dumps({**unnamed, "request_rate": rate}) + "\n")
        assert run(database, tmp_path / "sg.jsonl") == 0
    assert len(rows(database)) == 3
    assert len({row["model_id"] for row in rows(database)}) == 1


def test_a_stored_file_of_another_system_is_known_by_its_name(database, tmp_path):
    lines = (IMPORTS / "sglang_bench_serving/appended.jsonl").read_text().splitlines(keepends=True)
    file = tmp_path / "sg.jsonl"
    for count in (1, 2):
        file.write_text("".join(lines[:count]))
        assert run(database, file) == 0
        with Warehouse.open(database) as warehouse:
            warehouse.change(lambda connection: connection.execute(MOVED))
        assert len(rows(database)) == count


def test_files_of_one_name_do_not_ask_for_each_others_runs(database, tmp_path):
    """A tree has thousands of them, each of which would be compared with all before it."""
    for number, form in enumerate(("33_columns", "first_version")):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert run(database, shutil.copy(IMPORTS / f"llama_bench/{form}.json", folder / "results.json")) == 0
    new = FileRuns(runs=[], source=str(tmp_path / "2/results.json"), source_sha256="0" * 64)
    with Warehouse.open(database, read_only=True) as warehouse:
        assert import_results._known(warehouse, [new]) == []


def test_a_file_that_has_grown_inside_a_group_of_tests_has_no_test_twice(database, tmp_path):
    lines = (IMPORTS / "llama_bench/41_columns.jsonl").read_text().splitlines(keepends=True)
    file = tmp_path / "bench.jsonl"
    for content in (lines[:1], lines, [*lines, lines[0]]):
        file.write_text("".join(content))
        assert run(database, file) == 0
        with Warehouse.open(database, read_only=True) as warehouse:
            (results,) = warehouse.query("SELECT count(*) AS n FROM benchmark_results").dicts()
        assert results["n"] == len(content)


def test_other_content_at_the_same_path_is_new_and_named(database, tmp_path, capsys):
    file = shutil.copy(REPORT, tmp_path / "report.json")
    assert run(database, file) == 0
    shutil.copy(IMPORTS / "llama_bench/33_columns.json", file)
    assert run(database, file) == 0
    assert "1 file imported before with other content" in capsys.readouterr().err
    assert len(rows(database)) == 2


def test_an_edited_file_of_a_copied_or_moved_project_is_the_earlier_one_or_named(empty_database, tmp_path, capsys):
    """In a copy, the original's database is still where the file was; of a moved folder there is nothing left."""
    (original := tmp_path / "original").mkdir()
    shutil.copy2(empty_database, original / "w.duckdb")
    shutil.copy(REPORT, original / "report.json")
    assert run(original / "w.duckdb", original / "report.json") == 0
    for name, count in (("copy", 1), ("moved", 2)):
        folder = shutil.copytree(original, tmp_path / name)
        if name == "moved":
            shutil.rmtree(original)
        assert run(folder / "w.duckdb", folder / "report.json", "--replace", "--dry-run") == 0
        assert "from a folder that is gone" not in capsys.readouterr().err, "the same content is replaced"
        shutil.copy(IMPORTS / "llama_bench/33_columns.json", folder / "report.json")
        capsys.readouterr()
        assert run(folder / "w.duckdb", folder / "report.json", "--dry-run") == 0
        assert "1 file imported before with other content" in capsys.readouterr().err
        assert run(folder / "w.duckdb", folder / "report.json", "--replace") == 0
        assert ("from a folder that is gone" in capsys.readouterr().err) == (name == "moved")
        assert len(rows(folder / "w.duckdb")) == count


def test_another_projects_file_of_the_same_name_is_not_replaced(empty_database, tmp_path):
    """Its own database is where the file is, too, but has not stored it."""
    for name, source in (("one", REPORT), ("two", IMPORTS / "llama_bench/33_columns.json")):
        (tmp_path / name).mkdir()
        shutil.copy2(empty_database, tmp_path / name / "w.duckdb")
        shutil.copy(source, tmp_path / name / "report.json")
    for name in ("two", "one"):
        assert run(tmp_path / "one/w.duckdb", tmp_path / name / "report.json", "--replace") == 0
    assert len(rows(tmp_path / "one/w.duckdb")) == 2


def test_identical_logs_at_two_places_of_a_submission_are_two_results_in_two_imports(database, tmp_path, capsys):
    shutil.copytree(IMPORTS / "mlperf/closed/MLCommons", tmp_path / "closed/MLCommons")
    (system,) = (tmp_path / "closed/MLCommons/results").iterdir()
    low, high = system / "3d-unet-99/singlestream/performance", system / "3d-unet-99.9/singlestream/performance"
    shutil.copytree(low / "run_1", low / "run_2")
    for folder in (low / "run_1", low / "run_2", high, high):
        assert run(database, folder) == 0
    assert "imported before" not in capsys.readouterr().err
    models = ["3d-unet-99", "3d-unet-99", "3d-unet-99.9"]
    assert sorted(row["model_id"] for row in rows(database)) == models
    assert run(database, high, "--replace", "--precision", "int4") == run(database, high) == 0
    assert "imported before with other labels" in capsys.readouterr().err
    assert run(database, high, "--replace") == 0
    assert sorted(row["model_id"] for row in rows(database)) == models
    with Warehouse.open(database) as warehouse:  # as earlier versions stored them
        warehouse.change(
            lambda connection: connection.execute(
                'UPDATE benchmark_runs SET origin = json_merge_patch(origin, \'{"kept": {"place": null}}\')'
            )
        )
    assert run(database, low / "run_1", "--replace") == 0
    assert sorted(row["model_id"] for row in rows(database)) == [models[0], models[2]]
