"""`benchhouse sql`: the DuckDB shell on the warehouse, piped and in a terminal."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from benchmarking.core.errors import EXIT_TIME_LIMIT
from db.commands import sql as sql_command
from db.commands.sql import EXAMPLE_QUERIES
from db.warehouse import Warehouse
from tests.helpers.records import make_run

pytestmark = pytest.mark.forked_children

COMMAND = (sys.executable, "-m", "db.commands.sql")
LIMIT_S = 30.0


@pytest.fixture
def sql(asked_database, tmp_path):
    """A function that pipes a script into the command, in an empty folder; gives (exit code, stdout, stderr)."""
    folder = tmp_path / "here"
    folder.mkdir()

    def run(script, *arguments, database=asked_database, **environment):
        done = subprocess.run(
            [*COMMAND, "--db-path", str(database), "--format", "csv", *arguments],
            input=script,
            capture_output=True,
            text=True,
            cwd=folder,
            env={**os.environ, **environment},
            timeout=LIMIT_S,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    run.folder = folder
    return run


def test_a_script_is_answered_without_a_greeting(sql):
    assert sql("SELECT 1 AS a,\n  ';' AS b; SELECT 2\nAS c\n;") == (0, "a,b\n1,;\nc\n2\n", "")
    assert sql("SELECT 3 AS a -- the last needs no semicolon") == (0, "a\n3\n", "")


def test_an_error_is_reported_the_script_goes_on_and_the_exit_code_is_1(sql):
    code, out, err = sql("SELEC 1;\nSELECT 2 AS a;\n")
    assert (code, out) == (1, "a\n2\n")
    assert 'syntax error at or near "SELEC"' in err


@pytest.mark.parametrize(
    ("mode", "answer"),
    [
        ("csv", "a\n1\n"),
        ("json", '[{"a":1}]\n'),
        ("markdown", "| a |\n|--:|\n| 1 |\n"),
        ("vertical", "a = 1\n"),
        ("table", "│     1 │"),
    ],
)
def test_answers_have_the_requested_format(sql, mode, answer):
    code, out, _ = sql("SELECT 1 AS a;", "--format", mode)
    assert code == 0
    assert answer in out


def test_a_pipe_has_no_colours_and_csv_the_nulls_of_query(sql):
    code, out, _ = sql(".tables\nSELECT NULL AS a, 'NULL' AS b;")
    assert (code, "\x1b" in out) == (0, False)
    assert out.endswith("a,b\n,NULL\n")


def test_columns_come_with_their_meaning(sql):
    code, out, _ = sql("FROM columns_of('series_alias');")
    assert code == 0
    assert out.startswith("column_name,data_type,meaning\nseries_id,VARCHAR,The series that is read as another one.")


def test_every_example_is_answered(sql):
    _, script, _ = sql("", "--examples")
    assert script.count("-- ") == len(EXAMPLE_QUERIES)
    code, out, err = sql(script)
    assert (code, err) == (0, "")
    assert "started_at,model_id,device" in out


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("CREATE TABLE t (a INTEGER);", "read-only"),
        ("DELETE FROM series;", "read-only"),
        ("COPY series TO 'out.csv';", "file system operations are disabled"),
        ("SELECT * FROM read_csv('secret.csv');", "file system operations are disabled"),
        ("SELECT * FROM read_text('secret.csv');", "file system operations are disabled"),
        ("ATTACH 'other.duckdb';", "file system operations are disabled"),
        ("EXPORT DATABASE 'folder';", "file system operations are disabled"),
        ("SELECT getenv('HOME');", "disabled"),
        ("INSTALL httpfs;", "disabled"),
        ("LOAD httpfs;", "disabled"),
        ("SET enable_external_access = true;", "configuration has been locked"),
        ("SET lock_configuration = false;", "configuration has been locked"),
        ("SET threads = 1;", "configuration has been locked"),
        (".shell touch touched", "cannot be used in -safe mode"),
        (".system touch touched", "cannot be used in -safe mode"),
        (".read secret.csv", "cannot be used in -safe mode"),
        (".open other.duckdb", "cannot be used in -safe mode"),
        (".output out.csv", "cannot be used in -safe mode"),
        (".once out.csv", "cannot be used in -safe mode"),
        (".import secret.csv series", "cannot be used in -safe mode"),
        (".log out.csv", "cannot be used in -safe mode"),
        (".cd /", "cannot be used in -safe mode"),
    ],
)
def test_nothing_is_written_and_nothing_else_is_reached(sql, statement, words):
    secret = sql.folder / "secret.csv"
    secret.write_text("a\nSECRET\n")
    code, out, err = sql(statement)
    assert code == 1
    assert words in err
    assert "SECRET" not in out + err
    assert os.listdir(sql.folder) == ["secret.csv"]


def test_settings_are_locked_before_the_first_statement(sql):
    names = ("autoinstall_known_extensions", "autoload_known_extensions", "allow_community_extensions")
    _, out, _ = sql(
        "SELECT name, value FROM duckdb_settings() WHERE name IN "
        f"{(*names, 'enable_external_access', 'lock_configuration', 'access_mode')} ORDER BY name;"
    )
    assert out.splitlines()[1:] == [
        "access_mode,read_only",
        "allow_community_extensions,false",
        "autoinstall_known_extensions,false",
        "autoload_known_extensions,false",
        "enable_external_access,false",
        "lock_configuration,true",
    ]


def test_no_init_file_of_the_user_is_run(sql, tmp_path):
    (tmp_path / ".duckdbrc").write_text(".print from the init file\nCREATE TABLE t (a INTEGER);\n")
    assert sql("SELECT 1 AS a;", HOME=str(tmp_path), USERPROFILE=str(tmp_path)) == (0, "a\n1\n", "")


def test_a_time_limit_ends_the_script(sql):
    code, out, err = sql("SELECT count(*) FROM range(1_000_000_000_000) a, range(1_000) b;", "--timeout", "1")
    assert (code, out) == (EXIT_TIME_LIMIT, "")
    assert err == "benchhouse sql: error: not finished within 1 s: narrow the statements, or raise --timeout\n"


def test_a_bad_file_is_one_line(sql, tmp_path):
    (tmp_path / "text.duckdb").write_text("This is no database.\n" * 1000)
    for name, words in (("none.duckdb", "no database at"), ("text.duckdb", "not a DuckDB database")):
        code, out, err = sql("SELECT 1;", database=tmp_path / name)
        assert (code, out) == (1, "")
        assert words in err
        assert err.count("\n") == 1


def test_a_database_that_another_process_writes_is_read_from_a_copy(sql, empty_database, tmp_path):
    path = tmp_path / "own.duckdb"
    path.write_bytes(empty_database.read_bytes())
    with Warehouse.open(path) as warehouse:
        warehouse.ingest(make_run())
        code, out, err = sql("SELECT count(*) AS n FROM benchmark_runs;", database=path)
    assert (code, out.split(), err) == (0, ["n", "1"], "")


@pytest.fixture
def no_shell(monkeypatch, tmp_path):
    """No shell in any of the places where one is looked for."""
    monkeypatch.setattr(sql_command.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(sql_command.sysconfig, "get_path", lambda name: str(tmp_path / "scripts"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def _program(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_missing_shell_says_how_to_install_it(no_shell, asked_database, capsys):
    from benchmarking.cli import main

    assert main(["sql", "--db-path", str(asked_database)]) == 1
    err = capsys.readouterr().err
    assert "pip install duckdb-cli" in err
    assert err.count("\n") == 1


@pytest.mark.skipif(os.name == "nt", reason="programs have another mark there")
def test_the_interpreters_own_shell_is_preferred_to_one_on_the_path(no_shell, tmp_path):
    on_path = _program(tmp_path / "bin" / "duckdb", b"\x7fELF")
    assert sql_command.find_shell() == on_path
    beside = _program(tmp_path / "scripts" / "duckdb", b"\x7fELF")
    assert sql_command.find_shell() == beside
    _program(beside, b"#!/usr/bin/python3\n")
    assert sql_command.find_shell() == on_path


def test_the_working_folder_is_not_searched(no_shell, tmp_path, monkeypatch):
    _program(tmp_path / "here" / "duckdb", b"\x7fELF")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PATH", os.pathsep.join(["", "."]))
    with pytest.raises(sql_command.ShellMissingError, match="pip install duckdb-cli"):
        sql_command.find_shell()


@pytest.fixture
def terminal(asked_database, tmp_path):
    """A function that starts the command in a terminal, and gives (process id, read until words come, type)."""
    pty = pytest.importorskip("pty")
    started = []

    def start(*arguments):
        child, screen = pty.fork()
        if child == 0:
            os.environ |= {"TERM": "xterm", "HOME": str(tmp_path)}
            os.execv(sys.executable, [*COMMAND, "--db-path", str(asked_database), *arguments])
        started.append((child, screen))
        return child, lambda words: _read_until(screen, words), lambda keys: _type(screen, keys)

    yield start
    for child, screen in started:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(child, 0)
        os.close(screen)


class EndOfScreenError(AssertionError):
    """The program in the terminal has ended."""


def _type(screen, keys):
    time.sleep(0.3)  # keys that come while the shell asks where the cursor is are taken for the answer
    os.write(screen, keys.encode())


def _read_until(screen, words):
    """What the screen showed up to the words; answers what the shell asks of the terminal."""
    import select

    answers = {b"\x1b[c": b"\x1b[?1;0c", b"\x1b[6n": b"\x1b[1;10R"}
    seen, deadline = b"", time.monotonic() + LIMIT_S
    while words.encode() not in seen:
        assert time.monotonic() < deadline, seen[-2000:]
        if not select.select([screen], [], [], 0.2)[0]:
            continue
        try:
            part = os.read(screen, 65536)
        except OSError:  # how Linux says that the other end is closed
            raise EndOfScreenError(seen[-2000:]) from None
        if not part:  # and others
            raise EndOfScreenError(seen[-2000:])
        for question, answer in answers.items():
            if question in part:
                os.write(screen, answer)
        seen += part
    return seen.decode(errors="replace")


def test_a_terminal_is_greeted_by_the_dictionary_and_answered(terminal):
    _, read, type_in = terminal()
    greeting = read('Enter ".help"')
    assert "hardware_comparison  (view)" in greeting
    assert "benchmark_runs  (table)" in greeting
    assert "read-only. Columns: FROM columns_of('series')" in greeting
    read(" D ")
    type_in("SELECT 40 + 2 AS answer;\r")
    read("42")


def test_a_terminal_has_no_time_limit(terminal):
    _, read, _ = terminal("--timeout", "3")
    assert "stop a statement with Ctrl-C" in read("stop a statement with Ctrl-C")


def test_a_script_that_takes_all_memory_ends_at_the_memory_limit(sql):
    code, _, err = sql("SELECT len(range(3000000000));", "--timeout", "60")
    assert code == 1
    assert "Failed to allocate" in err or "Out of Memory" in err


def test_a_function_that_cannot_be_interrupted_ends_at_the_time_limit(sql):
    code, _, err = sql("SELECT levenshtein(repeat('a', 200000), repeat('b', 200000));", "--timeout", "1")
    assert code == 124
    assert "not finished within 1 s" in err


def test_times_are_utc(sql, monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    code, out, _ = sql("SELECT current_setting('TimeZone') AS zone;", "--format", "csv")
    assert (code, out) == (0, "zone\nUTC\n")


@pytest.mark.parametrize("statement", ["SELECT 1", "from hardware_comparison", "WITH a AS (FROM b) FROM a"])
def test_a_statement_as_an_argument_is_answered_with_the_command_that_runs_it(statement, capsys):
    assert sql_command.main([statement]) == 2
    assert "a statement is run by benchhouse query" in capsys.readouterr().err
