"""`benchhouse export`: results in all formats, and models as before."""

from __future__ import annotations

import json

import pytest

from benchmarking.cli import main
from db.commands.export_results import _is_model_export


@pytest.fixture
def command(asked_database, capsys, monkeypatch):
    monkeypatch.setenv("BENCHMARK_DB_PATH", str(asked_database))

    def run(*arguments):
        code = main(["export", *map(str, arguments)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_results_go_to_stdout_or_a_named_file(command, tmp_path):
    code, out, err = command("model=vit", "--format", "csv")
    assert (code, err, len(out.splitlines())) == (0, "", 5)
    path = tmp_path / "vit.csv"
    assert command("model=vit", "--format", "csv", "--output", path) == (0, f"{path}\n", "")
    assert path.read_text(encoding="utf-8") == out


def test_paths_are_printed_as_json_too(command, tmp_path):
    path = tmp_path / "out"
    out = command("--format", "parquet", "--output", path, "--json")[1]
    assert json.loads(out) == {"format": "parquet", "made": [str(path)]}


def test_skipped_results_are_listed_on_stderr(command):
    code, out, err = command("--format", "transformers_benchmark_v2")
    assert code == 0
    assert len(json.loads(out)) == 1
    assert "left out: 8 results: no text generated\n" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["model=none", "--format", "csv"], "'model=none' selects nothing"),
        (["modle=x", "--format", "csv"], "did you mean model"),
        (["--format", "xml"], "unknown value 'xml'"),
        (["--format", "parquet"], "give a folder with --output"),
        (["--format", "markdown", "--tables", "all"], "the format markdown supports only results"),
        ([], "--format"),
    ],
)
def test_invalid_requests_are_one_line_and_exit_2(command, arguments, words):
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1


def test_an_empty_warehouse_has_nothing_to_export(database, capsys):
    assert main(["export", "--format", "csv", "--db-path", str(database)]) == 2
    assert "nothing is stored: nothing to export" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "begins"), [("a.csv", '"result_id",'), ("a.MD", "| ")])
def test_the_ending_of_the_file_is_the_format(command, tmp_path, name, begins):
    assert command("--output", tmp_path / name)[0] == 0
    assert (tmp_path / name).read_text(encoding="utf-8").startswith(begins)
    code, _, err = command("--output", tmp_path / "a.foo")
    assert (code, "--format FORMAT is missing" in err) == (2, True)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["gpt2", "--format", "onnx", "--output-dir", "x"], True),
        (["gpt2", "--format=openvino", "--output-dir", "x"], True),
        (["gpt2", "--output-dir", "x"], True),
        (["--format", "onnx", "--help"], True),
        (["--format", "csv"], False),
        (["runtime=onnxruntime", "--format", "csv"], False),
        (["--output-dir", "x"], False),
        (["--output-dir", "x", "--db-path", "y.duckdb"], False),
        (["gpt2", "--output-dir", "x", "--tables", "all"], False),
        (["runtime=eager", "--output-dir", "x"], False),
        (["--format"], False),
        ([], False),
    ],
)
def test_an_export_of_a_model_is_recognized(argv, expected):
    assert _is_model_export(argv) is expected


def test_model_exports_are_forwarded_with_their_flags(command, monkeypatch):
    handed = []
    monkeypatch.setattr("benchmarking.commands.export_model.main", lambda argv: handed.append(argv) or 0)
    assert command("gpt2", "--format", "onnx", "--output-dir", "x", "--opset", "18")[0] == 0
    assert handed == [["gpt2", "--format", "onnx", "--output-dir", "x", "--opset", "18"]]


def test_help_explains_both(command):
    code, out, _ = command("--help")
    assert code == 0
    assert "--format onnx and openvino take the flags of export-model" in out
    assert "llama_bench_sql" in out
    assert command("--format", "onnx", "--help")[1].startswith("usage: benchhouse export MODEL [--output FILE")
