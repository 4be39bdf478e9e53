"""`benchhouse query` through its command."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest

from benchmarking.cli import main

pytestmark = pytest.mark.forked_children

LATE = "SELECT CASE WHEN range = 15_000 THEN error('too late') ELSE range END AS x FROM range(20_000)"
"""Fails after its first rows."""


@pytest.fixture
def command(asked_database, capsys, monkeypatch):
    """A function that runs a command of the front door; gives (exit code, stdout, stderr)."""
    monkeypatch.setenv("BENCHMARK_DB_PATH", str(asked_database))

    def run(*arguments, stdin=""):
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        code = main(list(map(str, arguments)))
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_a_question_is_answered_as_a_table(command):
    code, out, err = command("query", "SELECT runtime, count(*) AS runs FROM benchmark_runs GROUP BY ALL ORDER BY ALL")
    assert (code, err) == (0, "")
    assert out == "runtime      runs\n─────────────────\neager           3\nonnxruntime     1\n"


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("vit", "stored results are shown by benchhouse show model=vit"),
        ("model=vit", "stored results are shown by benchhouse show model=vit"),
        ("all_results", 'write "SELECT * FROM all_results", or --describe all_results'),
        ("latency_median_ms", 'write "SELECT run_id, model_id, latency_median_ms FROM all_results"'),
    ],
)
def test_a_word_in_place_of_a_statement_is_answered_with_what_to_type(command, word, answer):
    code, _, err = command("query", word)
    assert (code, err.count("\n")) == (2, 1)
    assert f"'{word}' is no statement: " in err
    assert answer in err


def test_a_statement_of_one_word_that_is_refused_is_not_called_no_statement(command):
    code, _, err = command("query", "COMMIT")
    assert (code, "is not read-only" in err) == (2, True)


def test_a_label_that_is_named_as_in_a_selection_is_answered_with_sql(command):
    code, _, err = command("query", 'SELECT "tag.suite" FROM benchmark_runs')
    assert (code, "a label is tags['suite'] in SQL" in err) == (2, True)


def test_parameters_and_formats(command):
    sql = "SELECT model_id, tags FROM benchmark_runs WHERE model_id = $m"
    code, out, _ = command("query", sql, "--param", "m=vit", "--format", "json")
    assert (code, json.loads(out)) == (0, [{"model_id": "vit", "tags": {"suite": "test"}}])
    assert (
        command("query", sql, "--param", "m=vit", "--format", "csv")[1] == 'model_id,tags\nvit,"{""suite"":""test""}"\n'
    )


def test_the_statement_may_come_from_stdin_or_a_file(command, tmp_path):
    (tmp_path / "ask.sql").write_text("SELECT 'é' AS x;\n", encoding="utf-8")
    assert command("query", "--file", tmp_path / "ask.sql", "--format", "csv")[:2] == (0, "x\né\n")
    assert command("query", "-", "--format", "csv", stdin="SELECT 2 AS x")[:2] == (0, "x\n2\n")


def test_a_file_without_a_statement_is_refused(command, tmp_path):
    path = tmp_path / "large.sql"
    with path.open("wb") as opened:
        opened.truncate(2_000_000_000)
    assert command("query", "--file", path)[::2] == (2, f"benchhouse query: error: --file {path}: larger than 1 MB\n")
    path.write_bytes(b"SELECT '\xff'")
    assert command("query", "--file", path)[::2] == (
        2,
        f"benchhouse query: error: --file {path}: not a text file (UTF-8)\n",
    )
    assert command("query", "-", stdin="x" * 1_000_001)[0] == 2


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["SELEC 1"], 2, 'benchhouse query: error: line 1, column 1: syntax error at or near "SELEC"\n'),
        (["DROP TABLE series"], 2, "DROP is not read-only"),
        (["SELECT 'x'::INTEGER"], 1, "Could not convert string 'x' to INT32"),
        ([LATE, "--format", "json"], 2, "too late"),
        ([LATE, "--format", "csv"], 2, "too late"),
        (["SELECT count(*) FROM range(1_000_000_000_000)", "--timeout", "0.2"], 124, "no answer within 0.2 s"),
        ([], 2, "expected one statement"),
        (["SELECT 1", "--file", "x.sql"], 2, "expected one statement"),
        (["--file", "there_is_no_such.sql"], 2, "--file there_is_no_such.sql does not exist"),
        (["SELECT 1", "--describe", "series"], 2, "--describe takes no statement"),
        (["--describe", "serie"], 2, "did you mean series"),
        (["SELECT $x"], 2, "Values were not provided"),
        (["SELECT 1", "--param", "x"], 2, "takes key=value"),
        (["SELECT $x", "--param", "x=\udcff"], 2, "an argument contains bytes that are not UTF-8"),
        (["SELECT 1", "--db-path", "there_is_no_such.duckdb"], 1, "no database at there_is_no_such.duckdb"),
    ],
)
def test_errors_are_one_line_and_an_exit_code(command, arguments, code, words):
    found, out, err = command("query", *arguments)
    assert (found, out) == (code, "")
    assert words in err
    assert err.count("\n") == 1


def test_the_dictionary_is_printed(command):
    assert "hardware_comparison  (view)" in command("query", "--describe")[1]
    out = command("query", "--describe", "series", "--format", "json")[1]
    assert json.loads(out)[0] == {
        "name": "series_id",
        "type": "VARCHAR",
        "unit": "",
        "meaning": "First 16 hex digits of the SHA-256 of hashed_keys.",
    }


def test_a_closed_pipe_ends_the_command(asked_database):
    ask = [sys.executable, "-m", "db.commands.query", "SELECT * FROM range(2_000_000)", "--format", "csv"]
    with subprocess.Popen(
        [*ask, "--db-path", asked_database], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"range\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 1
