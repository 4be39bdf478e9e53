"""What is in a file or an argument is shown to people, and steers no terminal: escapes for every control character."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import shutil
import sys
import unicodedata
from dataclasses import replace

import pytest

from benchmarking import cli
from benchmarking.core.command_line import run_command
from benchmarking.core.records import dumps
from benchmarking.core.tables import Table, table_text
from benchmarking.core.terminal import Page, data_stream, guarded_streams
from db.warehouse import Warehouse

pytestmark = pytest.mark.forked_children

HOSTILE = "\x1b[31mred\x1b[0m\x1b]0;title\x07\x9b2J\x85\u202eevil\u2066\u2028\x7f\r[red]x[/red]"
"""Colours, the title of the window, a bell, C1 controls, changes of direction, line ends, and markup of rich."""
STEERS = ("Cc", "Cf", "Cs", "Zl", "Zp")


def steering(text):
    """The characters of a text that a terminal obeys."""
    return sorted({character for character in text if unicodedata.category(character) in STEERS} - {"\n", "\t"})


def is_shown(text):
    return "\\x1b" in text or "\\u001b" in text


_made: dict[str, str] = {}


@pytest.fixture
def hostile_database(empty_database, make_run, tmp_path_factory):
    """Path of a database full of hostile texts; nothing is written to it."""
    if "path" in _made:
        return _made["path"]
    _made["path"] = path = str(shutil.copy2(empty_database, tmp_path_factory.mktemp("hostile") / "hostile.duckdb"))
    with Warehouse.open(path) as warehouse:
        for day in range(1, 4):
            run = make_run(model_id=HOSTILE, with_failed=True, started_at=f"2026-01-0{day}T00:00:00Z")
            named = replace(run.provenance, description=HOSTILE, tags={HOSTILE: HOSTILE}, git_branch=HOSTILE)
            warehouse.ingest(replace(run, provenance=named, error=HOSTILE))
    return path


def run(argv, capsys):
    """The output of a command, which must not steer a terminal."""
    cli.main([str(argument) for argument in argv])
    out, err = capsys.readouterr()
    assert steering(out) == []
    assert steering(err) == []
    return out + err


@pytest.mark.parametrize(
    "argv",
    [
        ["query", "SELECT model_id, description, tags FROM all_results"],
        ["query", "SELECT model_id, description, tags FROM all_results", "--format", "vertical"],
        ["query", "SELECT model_id, description, tags FROM all_results", "--format", "markdown"],
        ["query", "SELECT model_id, description, tags FROM all_results", "--format", "json"],
        ["history"],
        ["history", "--json"],
        ["series", "list"],
        ["recommend", HOSTILE],
        ["compare", "until=2026-01-01", "since=2026-01-02"],
        ["compare", "until=2026-01-01", "since=2026-01-02", "--json"],
        ["export", "--format", "markdown"],
    ],
    ids=lambda argv: "-".join(word for word in argv if word != HOSTILE)[:40],
)
def test_what_a_database_holds_is_shown_and_not_sent(argv, hostile_database, capsys):
    assert is_shown(run([*argv, "--db-path", hostile_database], capsys))


@pytest.mark.parametrize(
    "argv",
    [
        ["query", HOSTILE],
        ["history", f"model={HOSTILE}"],
        ["compare", f"model={HOSTILE}", f"sql:{HOSTILE}"],
        ["regressions", f"{HOSTILE}=1"],
        ["series", "list", HOSTILE],
        ["recommend", HOSTILE],
        ["export", f"model={HOSTILE}x", "--format", "csv"],
        ["check", HOSTILE],
        ["alert", "set", "1", HOSTILE],
        ["merge", HOSTILE],
        ["import", HOSTILE],
        ["sql", HOSTILE],
        ["visualize_benchmarks", "--chart", HOSTILE],
        ["visualize_benchmarks", HOSTILE],
    ],
    ids=lambda argv: argv[0],
)
def test_what_an_argument_holds_is_shown_and_not_sent(argv, hostile_database, capsys):
    assert is_shown(run([*argv, "--db-path", hostile_database], capsys))


@pytest.mark.parametrize(
    "argv",
    [
        [HOSTILE],
        ["run_hardware_benchmark", "--model-id", HOSTILE, "--device", "null"],
        ["run_hardware_benchmark", "--model-id", "tiny-bert", "--device", HOSTILE],
        ["run_hardware_benchmark", "--model-id", "tiny-bert", "--runtime", HOSTILE],
        ["run_hardware_benchmark", "--model-id", "tiny-bert", "--task", HOSTILE, "--device", "null"],
        ["run_hardware_benchmark", "--model-id", "tiny-bert", "--batch-sizes", HOSTILE],
        ["run_hardware_benchmark", "--tag", HOSTILE],
        ["run_hardware_benchmark", f"--{HOSTILE}"],
        ["run_hardware_benchmark", "--resume", "--output-dir", HOSTILE],
        ["batch_benchmark", "--models", HOSTILE, "--devices", "null", "--dry-run"],
        ["batch_benchmark", "--model-list", HOSTILE],
        ["batch_benchmark", "--benches", HOSTILE],
        ["batch_benchmark", "--resume", "--output-dir", HOSTILE],
        ["compare-runtimes", HOSTILE],
        ["export", HOSTILE, "--format", "onnx", "--output-dir", "out"],
        ["ab", HOSTILE, HOSTILE],
        ["cache", HOSTILE],
        ["setup_benchmark_db", "--ingest", HOSTILE],
        ["setup_benchmark_db", "--db-path", f"{HOSTILE}/x", "--verify"],
    ],
    ids=lambda argv: "-".join(word.strip("-") for word in argv if HOSTILE not in word)[:40],
)
def test_what_a_measuring_command_is_given_is_shown_and_not_sent(argv, tmp_path, monkeypatch, capsys):
    if argv[0] == "export":
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert is_shown(run(argv, capsys))


def test_run_files_and_their_names_are_shown_and_not_sent(make_run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs"
    folder.mkdir()
    name = HOSTILE.replace("/", "_")
    (folder / f"{name}.json").write_text('{"format": "benchhouse-run"}')
    data = json.loads(dumps(make_run()))
    (folder / "status.json").write_text(json.dumps({**data, "status": HOSTILE}))
    (folder / "field.json").write_text(json.dumps({**data, HOSTILE: 1}))
    (folder / f"{name}.partial.jsonl").write_text("{}\n")
    assert is_shown(run(["setup_benchmark_db", "--db-path", "new.duckdb", "--ingest", folder], capsys))
    assert is_shown(run(["import", folder, "--db-path", "new.duckdb"], capsys))
    assert is_shown(run(["run_hardware_benchmark", "--resume", "--output-dir", folder], capsys))


def test_a_model_folder_s_contents_are_shown_and_not_sent(tmp_path, capsys):
    folder = tmp_path / HOSTILE.replace("/", "_")
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": HOSTILE}))
    assert is_shown(run(["run_hardware_benchmark", "--model-id", folder, "--device", "null"], capsys))


@contextlib.contextmanager
def streams():
    """stdout and stderr as streams of text."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        yield out, err


def test_logs_and_prints_of_libraries_are_shown_and_not_sent():
    def command(argv):
        logging.getLogger("library").addHandler(handler := logging.StreamHandler())
        logging.getLogger("library").warning(HOSTILE)
        logging.getLogger("library").removeHandler(handler)
        print(HOSTILE)
        print(HOSTILE, file=sys.stderr)
        sys.stdout.writelines([HOSTILE, "\n"])
        with contextlib.redirect_stdout(sys.stderr):
            print(HOSTILE)
        return 0

    with streams() as both:
        assert run_command("command", command, []) == 0
    for stream, count in zip(both, (2, 3), strict=True):
        assert stream.getvalue().count("[31mred") == count
        assert steering(stream.getvalue()) == []


def test_a_traceback_is_shown_and_has_no_secrets():
    def command(argv):
        raise RuntimeError(f"{HOSTILE} token=abcd1234")

    with streams() as (_, err):
        with pytest.raises(RuntimeError) as raised:
            run_command("command", command, [])
        sys.excepthook(raised.type, raised.value, raised.tb)
    assert "Traceback" in err.getvalue()
    assert is_shown(err.getvalue())
    assert steering(err.getvalue()) == []
    assert "RuntimeError: " in err.getvalue()
    assert "abcd1234" not in err.getvalue().rpartition("RuntimeError: ")[2]


def test_stderr_has_no_secrets():
    def command(argv):
        print("cannot open https://user:pw@host/x?sig=1 with hf_" + "a1B2" * 8, file=sys.stderr)
        return 0

    with streams() as (_, err):
        run_command("command", command, [])
    assert err.getvalue() == "cannot open https://host/x?*** with ***\n"


def test_own_colours_of_tables_are_sent_and_those_of_contents_are_not():
    page = Page(width=60, has_styles=True)
    table = Table(headings=("model", "state"), rows=((HOSTILE, "failed"),), states=(1,))
    with streams() as (out, _), guarded_streams():
        print(table_text(table, page))
        print("\x1b[31mfailed\x1b[0m")
    text = out.getvalue()
    assert "\x1b[31mfailed" in text
    assert "\x1b[31mred" not in text
    assert text.endswith("\\x1b[31mfailed\\x1b[0m\n")


def test_json_is_the_same_document_when_it_is_shown():
    with streams() as (out, _), guarded_streams():
        print(json.dumps({"text": HOSTILE}, ensure_ascii=False))
    assert steering(out.getvalue()) == []
    assert json.loads(out.getvalue()) == {"text": HOSTILE}


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_a_stream_of_any_encoding_takes_every_character_and_data_is_utf_8(monkeypatch, encoding):
    content = io.BytesIO()
    stream = io.TextIOWrapper(content, encoding=encoding, newline="")
    monkeypatch.setattr(sys, "stdout", stream)
    document = {"model": "模型/café 🚀"}
    with guarded_streams():
        print(json.dumps(document, ensure_ascii=False))
        data_stream().write("模型/café 🚀")
    shown, _, data = content.getvalue().partition(b"\n")
    assert json.loads(shown.decode(encoding)) == document
    assert data.decode() == "模型/café 🚀"
    assert (stream.encoding, stream.errors) == (encoding, "strict")


def test_lines_of_data_are_searched_for_secrets_and_written_up_to_an_error():
    def lines():
        yield from (f"{number},hf_aBcD3fGh1JkLmN0pQrStUvWxYz12345678\r\n" for number in range(3000))
        raise ValueError("the rest is lost")

    with streams() as (out, _), guarded_streams(), pytest.raises(ValueError, match="the rest is lost"):
        data_stream().writelines(lines())
    assert out.getvalue() == "".join(f"{number},***\r\n" for number in range(3000))


def test_data_for_programs_is_exact_and_shown_on_a_terminal(monkeypatch):
    with streams() as (out, _), guarded_streams():
        data_stream().write(HOSTILE)
        assert out.getvalue() == HOSTILE
        monkeypatch.setattr(out, "isatty", lambda: True)
        data_stream().write(HOSTILE)
    assert steering(out.getvalue().removeprefix(HOSTILE)) == []
    assert is_shown(out.getvalue())
