"""The newest result of each series, and its trend."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from benchmarking import cli
from benchmarking.core.errors import EXIT_NOT_ENOUGH_DATA, EXIT_OK, EXIT_USAGE
from db.commands import delete, series
from db.commands.show import age, main
from db.warehouse import Warehouse
from tests.helpers.run_changes import Alter


@pytest.fixture
def show(capsys):
    """A function that runs the command: its exit code, stdout and stderr."""

    def run(database, *arguments):
        code = main([f"--db-path={database}", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_each_series_is_a_row_the_newest_first(show, asked_database):
    code, out, err = show(asked_database, "--json")
    assert (code, err) == (EXIT_OK, "")
    assert [row["model_id"] for row in json.loads(out)] == [*["vit"] * 4, "gpt2", "gpt2", *["bert-base-uncased"] * 5]


def test_numbers_come_from_the_newest_result(show, asked_database):
    _, out, _ = show(asked_database, "--json")
    rows = {row["result_id"]: row for row in json.loads(out)}
    columns = ("latency_median_ms", "throughput_samples_per_sec", "validity", "status", "model_id")
    with Warehouse.open(asked_database, read_only=True) as warehouse:
        expected = warehouse.query(f"SELECT result_id, {', '.join(columns)} FROM latest_results").dicts()
    assert {key: tuple(row[name] for name in columns) for key, row in rows.items()} == {
        row["result_id"]: tuple(row[name] for name in columns) for row in expected
    }


def test_failures_and_doubts_are_shown_with_what_to_do(show, asked_database):
    _, out, _ = show(asked_database, "model=bert-base-uncased")
    head, table, notes = out.strip().split("\n\n")
    assert head.startswith("model bert-base-uncased, ")
    assert sorted(line.split()[-1] for line in table.splitlines()[2:]) == ["failed", "noisy", "ok", "ok", "ok"]
    launches, error, doubt = re.split(r"\n(?=b64 s512: |cpu_pressure )", notes)
    assert launches.endswith("3 launches are too few to predict the next one (--launches 5)")
    assert error == "b64 s512: failed: OutOfMemoryError: 64 GB asked, 16 GB there"
    assert "close them and measure again" in " ".join(doubt.split())


@pytest.mark.parametrize(
    "command", [("show",), ("history",), ("series", "list"), ("check", "--json"), ("export", "--format", "markdown")]
)
def test_simulated_results_are_called_so(command, tmp_path, empty_database, make_run, capsys):
    path = shutil.copy2(empty_database, tmp_path / "a.duckdb")
    real = make_run(batch_sizes=(1,), sequence_lengths=(32,))
    with Warehouse.open(path) as warehouse:
        warehouse.ingest(real)
        emulated = make_run(batch_sizes=(2,), sequence_lengths=(32,), started_at="2026-02-03T00:00:00Z")
        warehouse.ingest(Alter.on_device(emulated, "An emulator", simulated=True))
    cli.main([*command, "--db-path", str(path)])
    lines = capsys.readouterr().out
    assert lines.count("simulated") >= 1
    assert "simulated" not in "".join(line for line in lines.splitlines() if "Test CPU" in line)


def test_the_trend_is_that_of_the_fit_results_in_order(show, tmp_path, empty_database, write_history):
    path = shutil.copy2(empty_database, tmp_path / "a.duckdb")
    values = [10.0, 11.0, 9.0, 14.0]
    with Warehouse.open(path) as warehouse:
        write_history(warehouse, values)
    _, out, _ = show(path, "--json")
    (row,) = json.loads(out)
    assert row["trend"] == pytest.approx(values)
    assert row["latency_median_ms"] == pytest.approx(values[-1])
    assert "▂▄▁█" in show(path)[1]
    _, out, _ = show(path, "until=2026-01-03", "--json")
    (row,) = json.loads(out)
    assert row["trend"] == pytest.approx(values[:3]), "no later run belongs to the trend up to an earlier result"
    assert row["latency_median_ms"] == pytest.approx(values[2])


def test_a_quantization_stands_for_the_precision_that_it_has_no_word_for(
    show, tmp_path, empty_database, make_run, capsys
):
    path = shutil.copy2(empty_database, tmp_path / "a.duckdb")
    run = make_run(precision="other", batch_sizes=(1,), sequence_lengths=(32,), with_failed=True)
    with Warehouse.open(path) as warehouse:
        for name in ("Q8_0", "IQ3_S"):
            warehouse.ingest(Alter.mode(Alter.renewed(run), quantization=name))
    _, out, _ = show(path)
    rows = out.split("\n\n")[1].splitlines()[2:]
    assert sorted({row.split()[0] for row in rows}) == ["IQ3_S", "Q8_0"]
    failed = re.findall(r"^(\S+) .*b64 s512: failed", out, re.MULTILINE)
    assert sorted(failed) == ["IQ3_S", "Q8_0"], "the notes name the rows as the table does"
    series.main(["list", "--db-path", str(path)])
    delete.main(["model=bert-base-uncased", "--dry-run", "--db-path", str(path)])
    listed = capsys.readouterr().out
    assert [listed.count(f" {name} ") for name in ("IQ3_S", "Q8_0", "other")] == [3, 3, 0]


def test_a_selection_and_a_limit_narrow_it(show, asked_database):
    code, out, err = show(asked_database, "model=gpt2|vit", "--rows", "5", "--json")
    assert code == EXIT_OK
    assert [row["model_id"] for row in json.loads(out)] == [*["vit"] * 4, "gpt2"]
    assert "5 of 6 series: narrow the selection, or raise --rows" in err


def test_an_empty_selection_is_reported(show, asked_database):
    code, out, err = show(asked_database, "model=none")
    assert (code, out) == (EXIT_NOT_ENOUGH_DATA, "")
    assert "no results in model=none" in err


@pytest.mark.parametrize(
    "words",
    [
        *("show model=gtp2", "history model=gtp2", "check model=gtp2", "series list model=gtp2"),
        *("compare model=gtp2 model=vit", "delete model=gtp2", "export model=gtp2 --format csv"),
        *("publish site model=vit|gtp2,batch=77", "charts model=gtp2", "charts --model-id vit gtp2"),
    ],
)
def test_a_mistyped_model_in_a_selection_is_answered_with_the_nearest_stored_one(
    capsys, asked_database, tmp_path, monkeypatch, words
):
    monkeypatch.chdir(tmp_path)
    assert cli.main([*words.split(), f"--db-path={asked_database}"]) in (EXIT_OK, EXIT_USAGE, EXIT_NOT_ENOUGH_DATA)
    err = capsys.readouterr().err
    assert "no model 'gtp2' " in err
    assert "did you mean gpt2" in err
    assert "'vit'" not in err


@pytest.mark.parametrize("arguments", [("nosuch=1",), ("--metric", "latency"), ("--rows", "0")])
def test_wrong_arguments_are_usage_errors(show, asked_database, arguments):
    try:
        code = show(asked_database, *arguments)[0]
    except SystemExit as stop:
        code = stop.code
    assert code == EXIT_USAGE


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "now"), (59, "now"), (60, "1 min"), (3600, "1 h"), (86_399, "23 h"), (864_000, "10 d")]
)
def test_ages_have_one_unit(seconds, text):
    assert age(seconds) == text
