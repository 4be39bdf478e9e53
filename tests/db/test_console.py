"""The SQL prompt without a terminal: what is done with lines, and what is said."""

from __future__ import annotations

import io

import pytest

from benchmarking.errors import EXIT_TIME_LIMIT, EXIT_USAGE
from db.answers import FORMATS
from db.console import Console, is_word
from db.examples import EXAMPLES
from db.warehouse import Warehouse


@pytest.fixture
def say(asked_database):
    """A function that runs a script and gives (exit code, stdout, stderr)."""

    def run(script):
        console = Console(
            opened=lambda: Warehouse.open(asked_database, for_questions=True),
            timeout_s=20.0,
            mode="csv",
            out=io.StringIO(),
            err=io.StringIO(),
        )
        code = console.run(io.StringIO(script))
        return code, console.out.getvalue(), console.err.getvalue()

    return run


def test_statements_may_have_several_lines_and_several_may_stand_in_one(say):
    assert say("SELECT 1 AS a,\n  ';' AS b; SELECT 2\nAS c\n;") == (0, "a,b\n1,;\nc\n2\n", "")


def test_the_last_statement_needs_no_semicolon(say):
    assert say("SELECT 3 AS a") == (0, "a\n3\n", "")
    assert say("SELECT 3 AS a -- that is it") == (0, "a\n3\n", "")
    assert say("SELECT 3 AS a;\n-- that is it\n/* yes */;") == (0, "a\n3\n", "")


def test_a_mistake_is_told_and_the_script_goes_on(say):
    code, out, err = say("SELEC 1;\nSELECT 2 AS a;\nDELETE FROM series;\nSELECT 3 AS a;")
    assert (code, out) == (EXIT_USAGE, "a\n2\na\n3\n")
    assert err.splitlines()[0] == 'error: line 1, column 1: syntax error at or near "SELEC"'
    assert "DELETE is not a question" in err.splitlines()[1]


def test_words_set_how_answers_are_shown(say):
    code, out, _ = say(".mode json\n.mode\nSELECT 1 AS a;\n.rows 1\n.mode table\nSELECT * FROM range(3) t(n);")
    assert code == 0
    assert out.startswith('mode json\nmode json\n[\n{"a": 1}\n]\nrows 1\nmode table\nn\n')
    assert out.endswith("the first 1 rows; there are more\n")


def test_a_time_limit_that_is_set_holds(say):
    code, _, err = say(".timeout 0.2\nSELECT count(*) FROM range(1_000_000_000_000);")
    assert (code, err) == (EXIT_TIME_LIMIT, "error: no answer within 0.2 s: ask for less, or give it more time\n")


@pytest.mark.parametrize(
    ("word", "words"),
    [
        (".tables", "benchmark_runs  (table)"),
        ("\\d", "hardware_comparison  (view)"),
        (".views", "history  (view)"),
        (".schema raw_samples", "sample_index  BIGINT"),
        ("\\d series;", "series_id  VARCHAR"),
        (".help", ".schema [NAME]"),
        (".examples", f"1  {EXAMPLES[0].question}"),
        (".examples 6", "started_at,model_id,device"),
    ],
)
def test_words_are_answered(say, word, words):
    code, out, err = say(word)
    assert (code, err) == (0, "")
    assert words in out


def test_views_are_no_tables(say):
    assert "(table)" not in say(".views")[1]


@pytest.mark.parametrize(
    ("word", "words"),
    [
        (".tabels", "unknown command '.tabels': did you mean .tables"),
        (".schema nothing", "unknown table or view 'nothing'"),
        (".mode xml", f"known: {', '.join(FORMATS)}"),
        (".examples 99", "give a number from 1 to"),
        (".rows none", ".rows: takes whole numbers"),
        (".timeout 0", ".timeout: takes seconds above 0"),
    ],
)
def test_a_wrong_word_says_what_would_be_right(say, word, words):
    code, _, err = say(word)
    assert code == EXIT_USAGE
    assert words in err


@pytest.mark.parametrize("word", [".quit", ".exit", "\\q", "quit", "exit;"])
def test_leaving_ends_the_script(say, word):
    assert say(f"{word}\nSELECT 1;") == (0, "", "")


def test_ctrl_c_stops_the_statement_and_not_the_session(asked_database, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    console = Console(opened=lambda: Warehouse.open(asked_database, for_questions=True), timeout_s=9.0, mode="csv")
    console.out, console.err = io.StringIO(), io.StringIO()
    with monkeypatch.context() as patched:
        patched.setattr("db.console.asked", stopped)
        assert console.take("SELECT 1;") == ""
    console.take("SELECT 2 AS a;")
    assert (console.err.getvalue(), console.out.getvalue()) == ("interrupted\n", "a\n2\n")


def test_nothing_is_held_open_between_questions(asked_database, tmp_path):
    opened = []

    def opens():
        opened.append(Warehouse.open(asked_database, for_questions=True))
        return opened[-1]

    console = Console(opened=opens, timeout_s=9.0, out=io.StringIO(), err=io.StringIO())
    console.run(io.StringIO("SELECT 1;\nSELECT 2;\n"))
    assert len(opened) == 2
    for warehouse in opened:
        with pytest.raises(Exception, match="closed"):
            warehouse.query("SELECT 1")


def test_words_are_told_from_sql():
    assert is_word(" .tables ")
    assert is_word("\\d x;")
    assert not is_word("SELECT '.tables';")
    assert not is_word("")
