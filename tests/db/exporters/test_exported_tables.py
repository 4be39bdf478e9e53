"""CSV, Parquet and Markdown, read back by other libraries."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from datetime import datetime

import duckdb
import pyarrow.parquet
import pytest

from benchmarking.core.axes import AXES
from benchmarking.core.quality import Quality, QualityValue
from db.commands import series
from db.exporters import files
from db.warehouse import Warehouse
from tests.helpers.load import make_load
from tests.helpers.records import make_profile


def table(path):
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_csv_has_every_result_and_every_digit(export, asked_warehouse, hostile_text, tmp_path):
    export("csv", tmp_path / "out.csv")
    rows = {row["result_id"]: row for row in table(tmp_path / "out.csv")}
    stored = asked_warehouse.query("SELECT * FROM all_results").dicts()
    assert len(rows) == len(stored) == 11
    for one in stored:
        row = rows[one["result_id"]]
        for name in ("latency_median_ms", "throughput_samples_per_sec", "load_time_s"):
            assert (float(row[name]) if row[name] else None) == one[name]
        assert datetime.fromisoformat(row["started_at"]) == one["started_at"]
        assert json.loads(row["tags"]) == one["tags"]
        assert json.loads(row["doubts"]) == one["doubts"]
        assert row["description"] == (one["description"] or "")
    assert hostile_text in {row["description"] for row in rows.values()}


def test_wide_rows_are_written_in_small_parts(export, monkeypatch, tmp_path):
    export("csv", tmp_path / "whole.csv")
    converted = []
    original = files._csv_text
    monkeypatch.setattr(files, "PART_BYTES", 1)
    monkeypatch.setitem(files.ROWS_AT_ONCE, "all_results", 2)
    monkeypatch.setattr(
        files, "_csv_text", lambda rows, **others: converted.append(len(rows)) or original(rows, **others)
    )
    export("csv", tmp_path / "parts.csv")
    assert (tmp_path / "parts.csv").read_text() == (tmp_path / "whole.csv").read_text()
    assert max(converted) == 2
    assert sum(converted) == 11


def test_no_exported_cell_is_executed_by_a_spreadsheet(export, empty_database, make_run, tmp_path):
    texts = ["=cmd|'/C calc'!A0", "@SUM(1)", "-2+3", "\t=1", "-2.5"]
    path = shutil.copy2(empty_database, tmp_path / "formulas.duckdb")
    with Warehouse.open(path) as warehouse:
        for text in texts:
            run = make_run(model_id=text, with_doubtful=False)
            warehouse.ingest(replace(run, provenance=replace(run.provenance, description=text)))
        export("csv", tmp_path / "out.csv", warehouse=warehouse)
    rows = table(tmp_path / "out.csv")
    expected = ["-2.5", "'-2+3", "'=cmd|'/C calc'!A0", "'@SUM(1)", "'\t=1"]
    assert sorted({row["description"] for row in rows}) == sorted(expected)
    assert sorted({row["model_id"] for row in rows}) == sorted(expected)


def test_only_the_selection_is_exported(export, tmp_path, capsys):
    export("csv", selection="runtime=onnxruntime")
    (row,) = csv.DictReader(capsys.readouterr().out.splitlines())
    assert (row["model_id"], row["runtime"]) == ("gpt2", "onnxruntime")


def test_csv_with_samples_is_a_folder(export, asked_warehouse, tmp_path):
    export("csv", tmp_path / "out", "model=gpt2,runtime=eager", tables="all")
    assert len(table(tmp_path / "out" / "results.csv")) == 1
    samples = table(tmp_path / "out" / "samples.csv")
    wall = [row for row in samples if row["metric"] == "latency_wall"]
    assert [(row["launch"], row["sample_index"], row["value"], row["unit"]) for row in wall] == [
        ("0", "0", "10", "ms"),
        ("0", "1", "20", "ms"),
        ("1", "0", "10", "ms"),
        ("1", "1", "20", "ms"),
    ]


def test_parquet_has_the_tables_by_month_without_loss(export, asked_warehouse, empty_database, table_keys, tmp_path):
    export("parquet", tmp_path / "out")
    found = {path.name: sorted(file.name for file in path.iterdir()) for path in (tmp_path / "out").iterdir()}
    months = ["2026-01.parquet", "2026-02.parquet", "2026-03.parquet"]
    assert {name: found[name] for name in table_keys} == {
        "hardware_info": ["all.parquet"],
        "series": ["all.parquet"],
        "benchmark_runs": months,
        "benchmark_results": months,
        "raw_benchmark_data": months,
    }
    path = shutil.copy2(empty_database, tmp_path / "again.duckdb")
    with duckdb.connect(path) as connection:  # not through the warehouse, which reaches no other file
        for name in table_keys:
            connection.execute(f"INSERT INTO {name} BY NAME SELECT * FROM '{tmp_path}/out/{name}/*.parquet'")
    with Warehouse.open(path) as again:
        for name, key in table_keys.items():
            sql = f"SELECT * FROM {name} ORDER BY {key}"
            assert again.query(sql).dicts() == asked_warehouse.query(sql).dicts(), name


def test_parquet_columns_carry_type_meaning_and_unit(export, tmp_path):
    export("parquet", tmp_path / "out", "latest", tables="results")
    assert not (tmp_path / "out" / "raw_benchmark_data").exists()
    (path,) = (tmp_path / "out" / "benchmark_results").iterdir()
    schema = pyarrow.parquet.read_schema(path)
    assert schema.field("latency_median_ms").metadata == {
        b"meaning": (
            b"Latency of a call in ms: median inside a launch (of the blocks' means where calls are timed in blocks), "
            b"median over launches."
        ),
        b"unit": b"ms",
        b"duckdb_type": b"DOUBLE",
    }
    assert str(schema.field("other_metrics").type).startswith("map<string, double")
    assert str(schema.field("doubts").type).startswith("list<")


def test_parquet_of_a_selection_has_its_related_rows(export, tmp_path):
    export("parquet", tmp_path / "out", "runtime=onnxruntime")

    def read(name):
        return pyarrow.parquet.read_table(tmp_path / "out" / name).to_pylist()

    (result,) = read("benchmark_results")
    assert [row["run_id"] for row in read("benchmark_runs")] == [result["run_id"]]
    assert [row["series_id"] for row in read("series")] == [result["series_id"]]
    assert {row["result_id"] for row in read("raw_benchmark_data")} == {result["result_id"]}
    assert len(read("hardware_info")) == 1


def test_markdown_has_a_row_per_result_and_a_reason_where_there_are_no_numbers(export, capsys):
    export("markdown", selection="model=bert-base-uncased")
    headings, rule, *lines = [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in capsys.readouterr().out.splitlines()
    ]
    assert headings[:6] == ["model", "device", "runtime", "precision", "batch", "sequence"]
    assert rule[4:6] == ["---:", "---:"]
    assert "new tokens" not in headings
    by_point = {(line[4], line[5]): dict(zip(headings, line, strict=True)) for line in lines}
    assert by_point["1", "32"]["median ms"] == "8"
    assert by_point["1", "32"]["95 % interval"] == "7.7 .. 8.3"
    assert by_point["1", "32"]["doubts"] == "-"
    assert by_point["2", "128"]["doubts"] == "noisy: cpu\\_pressure"
    assert by_point["64", "512"]["doubts"] == "failed: OutOfMemoryError: 64 GB asked, 16 GB there"


def test_markdown_tells_runs_with_different_settings_apart(export, empty_database, make_run, tmp_path, capsys):
    path = shutil.copy2(empty_database, tmp_path / "settings.duckdb")
    modes = ({"attention": "sdpa"}, {"attention": "eager"}, {"attention": "sdpa", "threads": 1})
    with Warehouse.open(path) as warehouse:
        runs = [make_run(batch_sizes=(1,), sequence_lengths=(32,)) for _ in modes]
        warehouse.ingest_all(
            [replace(run, cell=replace(run.cell, runtime_mode=mode)) for run, mode in zip(runs, modes, strict=True)]
        )
        export("markdown", warehouse=warehouse)
    headings, _, *lines = (line.strip("|").split(" | ") for line in capsys.readouterr().out.splitlines())
    place = headings.index("settings")
    assert {line[place] for line in lines} == {"attention sdpa", "attention eager", "attention sdpa, threads 1"}


def test_own_benchmarks_with_different_settings_are_told_apart(export, empty_database, make_run, tmp_path, capsys):
    path = shutil.copy2(empty_database, tmp_path / "benches.duckdb")
    with Warehouse.open(path) as warehouse:
        for rows in (8, 9):
            run = make_run(batch_sizes=(1,), sequence_lengths=(32,), runtime="bench")
            config = {**run.cell.workload.config, "options": {"rows": rows}}
            own = replace(run.cell.workload, source="bench", config=config, config_hash=f"{rows}" * 16)
            warehouse.ingest(replace(run, cell=replace(run.cell, workload=own)))
        export("markdown", warehouse=warehouse)
    exported = capsys.readouterr().out
    assert series.main(["list", "--db-path", str(path)]) == 0
    listed = capsys.readouterr().out
    for out in (exported, listed):
        assert [out.count(f"rows {number}") for number in (8, 9)] == [1, 1]


def test_quality_is_exported_where_it_is_known(export, empty_database, make_run, tmp_path, capsys):
    known = Quality(inputs="i", values={"kl_divergence": QualityValue(value=0.012)}, how={"windows": 16})
    path = shutil.copy2(empty_database, tmp_path / "quality.duckdb")
    with Warehouse.open(path) as warehouse:
        runs = [make_run(batch_sizes=(1,), precision=precision) for precision in ("float32", "int8")]
        warehouse.ingest_all([runs[0], replace(runs[1], quality=known)])
        export("markdown", warehouse=warehouse)
        export("csv", tmp_path / "out.csv", warehouse=warehouse)
    headings, _, *lines = (line.strip("|").split(" | ") for line in capsys.readouterr().out.splitlines())
    cells = {line[headings.index("precision")]: line[headings.index("KL (nats)")] for line in lines}
    assert cells == {"float32": "-", "int8": "0.012"}
    assert {row["precision"]: row["kl_divergence"] for row in table(tmp_path / "out.csv")} == {
        "float32": "",
        "int8": "0.012",
    }


def test_markdown_has_a_column_for_the_rate_of_a_load(export, empty_database, tmp_path, capsys):
    path = shutil.copy2(empty_database, tmp_path / "load.duckdb")
    with Warehouse.open(path) as warehouse:
        warehouse.ingest(make_load(rates=(0.5, 20.0)))
        export("markdown", warehouse=warehouse)
    headings, _, *lines = (line.strip("|").split(" | ") for line in capsys.readouterr().out.splitlines())
    place = headings.index("request rate")
    assert {line[place] for line in lines} == {"0.5", "20"}


def test_markdown_calls_an_axis_as_all_tables_do(export, empty_database, make_run, tmp_path, capsys):
    path = shutil.copy2(empty_database, tmp_path / "vision.duckdb")
    with Warehouse.open(path) as warehouse:
        warehouse.ingest(make_run(family="vision", axes={"image_size": (224,)}))
        export("markdown", warehouse=warehouse)
    headings = capsys.readouterr().out.splitlines()[0].strip("|").split(" | ")
    assert AXES["image_size"].heading in headings
    assert "image size" not in headings


@pytest.mark.parametrize("text", ["it's|\"; DROP TABLE series; -- <b>\x1b[31m\n*", "| a |", "a\n\nb"])
def test_no_text_breaks_out_of_a_cell(text):
    from benchmarking.core.text import markdown_table as markdown

    lines = markdown(["x", "y"], [[text, "1"]]).splitlines()
    assert len(lines) == 3
    assert lines[2].replace("\\|", "").count("|") == 3
    assert "<" not in lines[2]


def test_parquet_has_the_profiles_and_run_files_say_that_they_do_not(export, warehouse, make_run, tmp_path):
    warehouse.ingest(make_run(batch_sizes=(1,), sequence_lengths=(4,), iterations=3))
    profile, other = make_profile(), make_profile(run=replace(make_run(model_id="vit", launches=1), results=()))
    for one in (profile, other):
        warehouse.ingest_profile(one)

    def rows(folder, name):
        path = folder / name / "all.parquet"
        return pyarrow.parquet.read_table(path).to_pylist() if path.is_file() else []

    assert export("parquet", tmp_path / "all", warehouse=warehouse) == []
    for name, count in (("profiles", 2), ("profile_modules", 6), ("profile_ops", 4)):
        assert len(rows(tmp_path / "all", name)) == count
        stored = warehouse.query(f"SELECT * FROM {name} ORDER BY ALL").dicts()
        assert len(stored) == count
    model = profile.run.cell.workload.model_id
    export("parquet", tmp_path / "one", f"model={model}", warehouse=warehouse)
    assert [row["profile_id"] for row in rows(tmp_path / "one", "profiles")] == [profile.profile_id]
    assert {row["profile_id"] for row in rows(tmp_path / "one", "profile_ops")} == {profile.profile_id}
    hardware = {row["hardware_id"] for row in rows(tmp_path / "one", "hardware_info")}
    assert profile.run.hardware.hardware_id in hardware
    (note,) = export("json", tmp_path / "runs", warehouse=warehouse)
    assert note == "left out: 2 profiles: a run file has no field for them (Parquet does)"


def test_the_newest_session_of_results_has_no_profile_of_another_session(export, warehouse, make_run, tmp_path):
    warehouse.ingest(make_run(batch_sizes=(1,), sequence_lengths=(4,), iterations=3))
    warehouse.ingest_profile(make_profile())
    assert export("json", tmp_path / "runs", "latest", warehouse=warehouse) == []
    assert export("parquet", tmp_path / "tables", "latest", warehouse=warehouse) == []
    assert not (tmp_path / "tables/profiles").exists()
    assert (tmp_path / "tables/benchmark_runs").exists()
