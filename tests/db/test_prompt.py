"""The SQL prompt in a terminal: keys typed into it, and what becomes of them."""

from __future__ import annotations

import io

import pytest

from db.console import Console
from db.prompt import _completer, columns_of, completions, converse
from db.warehouse import Warehouse

prompt_toolkit = pytest.importorskip("prompt_toolkit")
ENTER, CTRL_C, CTRL_D, UP = "\r", "\x03", "\x04", "\x1b[A"


@pytest.fixture
def type_in(asked_database, tmp_path):
    """A function that types keys and gives (exit code, stdout of the answers)."""
    from prompt_toolkit.input import create_pipe_input
    from prompt_toolkit.output import DummyOutput

    def typed(keys):
        console = Console(
            opened=lambda: Warehouse.open(asked_database, for_questions=True),
            timeout_s=20.0,
            mode="csv",
            out=io.StringIO(),
            err=io.StringIO(),
        )
        with create_pipe_input() as keyboard:
            keyboard.send_text(keys)
            code = converse(console, tmp_path / "history", input=keyboard, output=DummyOutput())
        return code, console.out.getvalue()

    return typed


def test_enter_goes_on_until_the_semicolon(type_in):
    assert type_in(f"SELECT 1 AS a,{ENTER}2 AS b;{ENTER}{CTRL_D}") == (0, "a,b\n1,2\n")


def test_ctrl_c_gives_up_a_line_and_ctrl_d_leaves(type_in):
    assert type_in(f"SELECT broken{CTRL_C}SELECT 2 AS a;{ENTER}{CTRL_D}") == (0, "a\n2\n")


def test_a_mistake_does_not_make_the_session_fail(type_in):
    assert type_in(f"SELEC;{ENTER}.quit{ENTER}") == (0, "")


def test_what_was_typed_is_there_the_next_time_as_a_whole(type_in):
    type_in(f"SELECT 4 AS a,{ENTER}5 AS b;{ENTER}{CTRL_D}")
    assert type_in(f"{UP}{UP}{ENTER}{CTRL_D}")[1] == "a,b\n4,5\n"


def test_tab_completes_a_column(asked_database):
    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

    completer = _completer(lambda: Warehouse.open(asked_database, for_questions=True))
    (found,) = completer.get_completions(Document("SELECT count(latency_med"), CompleteEvent())
    assert (found.text, found.start_position) == ("latency_median_ms", -len("latency_med"))


COLUMNS = {"series": ("series_id", "model_id"), "benchmark_runs": ("run_id", "model_id")}


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("ser", [("series", 3), ("series_id", 3)]),
        ("sel", [("SELECT", 3)]),
        ("series.m", [("model_id", 1)]),
        ("count(run", [("run_id", 3)]),
        ("a,benchmark_runs.", [("run_id", 0), ("model_id", 0)]),
        (".sc", [(".schema", 3)]),
        ("zzz", []),
    ],
)
def test_names_are_completed(word, expected):
    assert list(completions(word, COLUMNS)) == expected


def test_the_names_are_the_dictionary_s(asked_database):
    with Warehouse.open(asked_database, for_questions=True) as warehouse:
        names = columns_of(warehouse)
    assert "latency_median_ms" in names["all_results"]
    assert names["series"][0] == "series_id"
