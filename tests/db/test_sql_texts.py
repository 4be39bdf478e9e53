"""The SQL that db builds: names that come from elsewhere get into it by one function."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import db

ROOT = Path(db.__file__).parent
STATEMENT = re.compile(
    r"\b(SELECT|INSERT INTO|UPDATE|DELETE FROM|CREATE|DROP|ALTER|ATTACH|DETACH|COPY|COMMENT ON|DESCRIBE|SET|PRAGMA)\b"
)
QUOTED = re.compile(r"""["']\{""")
MAKERS = ("quoted", "literal")
"""The functions that make a name, or a text, safe in SQL; `join` of what they made is as safe."""


def sql_texts():
    """Every f-string in db that is SQL, with its module."""
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr) and path.name != "benchmark_formats.py":  # SQL for another program
                text = "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
                if STATEMENT.search(text):
                    yield path.relative_to(ROOT).as_posix(), text, node


ONE_TRY = {
    "db/warehouse.py",  # its own `change`, and what it repeats as a whole
    "db/upkeep/merging.py",  # repeated with what is attached; a rebuild's is of files only
    "visualize/pages/public_copy.py",  # of a file that is made anew
}


def test_writers_repeat_their_transaction_after_temporary_errors_of_a_lake():
    """`Warehouse.change` repeats; a plain `transaction` is for the modules above."""
    asked = re.compile(r"\.transaction\(\)")
    found = {
        path.relative_to(ROOT.parent).as_posix()
        for top in (ROOT, ROOT.parent / "visualize", ROOT.parent / "benchmarking")
        for path in top.rglob("*.py")
        if asked.search(path.read_text(encoding="utf-8"))
    }
    assert found == ONE_TRY


def test_no_statement_puts_quotes_around_a_value_itself():
    """A quote in front of a value means that whoever wrote it quoted by hand; `quoted` and `literal` do it right."""
    found = {(path, text) for path, text, _ in sql_texts() if QUOTED.search(text)}
    assert {path for path, _ in found} == HAND_QUOTED, found


HAND_QUOTED = {
    "upkeep/verify.py",  # tables of its own REFERENCES and KEYS, in messages
}
"""Modules whose values are constants of their own."""


def test_no_view_takes_a_text_from_a_part_of_json_in_a_chain():
    """DuckDB 2.0.0 stores a -> b ->> c as a -> (b ->> c), which 2.0.1 runs: "Malformed JSON"."""
    views = [*(ROOT.parent / "schema" / "views").glob("*.sql")]
    assert len(views) > 10
    assert [path.name for path in views if re.search(r"->\s*[^\s()>]+\s*->>", path.read_text(encoding="utf-8"))] == []


def test_statements_that_change_objects_name_them_by_the_one_function():
    """A COMMENT, DROP, ATTACH, DETACH or COPY takes its names from `quoted`, its texts from `literal`."""
    verbs = re.compile(r"^\s*(COMMENT ON|DROP|ATTACH|DETACH|COPY FROM|CREATE|ALTER)\b")
    checked = 0
    for path, text, node in sql_texts():
        if verbs.match(text):
            for part in node.values:
                if isinstance(part, ast.FormattedValue) and path not in HAND_QUOTED:
                    assert is_safe(part.value), f"{path}: {text}: {ast.unparse(part.value)}"
                    checked += 1
    assert checked >= 6


def is_safe(value):
    """Whether the expression is a call of `quoted` or `literal`, or a constant of the module."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        return value.func.id in MAKERS
    return isinstance(value, ast.Name) and (value.id.isupper() or value.id in ASSEMBLED)


ASSEMBLED = {"options", "finer", "kind"}
"""Names of texts that were assembled from constants and the functions above, in the same function; `kind` is a column's
type, as DuckDB names it in our own schema."""


def test_only_the_connection_defines_how_names_are_quoted():
    by_hand = re.compile(r"""replace\((['"])(["'])\1, \1\2\2\1\)""")
    found = {path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py") if by_hand.search(path.read_text())}
    assert found <= {"connection.py"}, found
