"""What ruff's security rules are switched off for: every value in SQL is a name of ours, and asserts check no input."""

from __future__ import annotations

import ast
import re

import pytest

from benchmarking.core.argument_types import database_file, folder_to_write
from benchmarking.core.command_line import parser_of
from tests.helpers.paths import ROOT

PACKAGES = ("benchmarking", "db", "visualize")
STATEMENT = re.compile(
    r"\b(SELECT\b.*\bFROM|INSERT INTO|UPDATE\b.*\bSET|DELETE FROM|CREATE|DROP|ALTER|ATTACH|DETACH|COPY|COMMENT ON"
    r"|DESCRIBE|SET |PRAGMA)\b",
    re.DOTALL,
)
MAKERS = ("quoted", "literal")
"""The functions that make a name, or a text, safe in SQL."""
OWN_NAMES = {
    "analysis/recommend/measured_options.py": {
        "cases": "conditions and numbers of ours",
        "selection.condition": "columns of ours with marks, or the user's own SQL, asked on a confined connection",
    },
    "analysis/selection.py": {
        "by_id": "columns of ours",
        "runs": "conditions on columns of ours",
        "self.sql": "the user's own condition, asked on a confined connection",
    },
    "commands/query.py": {"word": "a table or metric of ours, in a message"},
    "connection.py": {"options": "constants and `quoted`", "schema": "part of a message"},
    "conflicts.py": {
        **dict.fromkeys(("columns", "key", "part_key", "json_columns"), "columns of CONTENTS"),
        **dict.fromkeys(("', '.join(content.key)", "', '.join(tests)", "', '.join(texts)"), "columns of CONTENTS"),
        "', '.join((f'mine.{name}' for name in content.key))": "columns of CONTENTS",
        **dict.fromkeys(
            ("relation", "mine", "theirs", "mine(whole)", "theirs(whole)", "relation(part)"), "tables of CONTENTS"
        ),
        **dict.fromkeys(("my_parts", "their_parts", "shared"), "queries made of these"),
    },
    "exporters/files.py": {
        "view": "of CSV_ORDER",
        "cells": "columns of our views",
        "chosen": "a constant",
        "table": "of OF_RUNS and SHARED",
        "where": "their conditions",
    },
    "exporters/benchmark_formats.py": {
        **dict.fromkeys(("definitions", "', '.join(known)"), "of LLAMA_COLUMNS"),
        "', '.join(known.values())": "quoted as llama-bench does",
    },
    "exporters/support/exporting.py": {"source": "WHOLE, or ALL_RESULTS with the selection"},
    "importers/benchmark_duckdb.py": {
        "table": "of the tables that the importer knows",
        "selected": "quoted one by one",
    },
    "lake.py": {
        **dict.fromkeys(("source", "copy"), "`quoted`"),
        "kind": "of the migrations' tables",
        "options": "constants and `literal`, or columns with `quoted` names",
    },
    "migrate.py": {"relation": "`quoted`"},
    "run_records.py": {"table": "of TABLES"},
    "query/questions.py": {
        "kind": "DuckDB's name for the kind of a statement, in a message",
        "sql": "the user's own statement",
    },
    "upkeep/merging.py": {
        **dict.fromkeys(("table", "key", "self._new(table)"), "of CONTENTS"),
        "column": "of REFERENCES",
        **dict.fromkeys(("what", "condition", "columns"), "made of `quoted` columns, > or <, and SQL of MERGE_RULES"),
        **dict.fromkeys(("self.theirs(table)", "relation('series_alias')", "of_table"), "`quoted`"),
        "finer": "FINER, with names of ours",
    },
    "upkeep/verify.py": {
        **dict.fromkeys(("table", "key", "column", "other", "other_column", "which", "kind"), "of KEYS, REFERENCES"),
        **dict.fromkeys(("columns", "key.split(',')[0]"), "of these, or `quoted`"),
        "marks": "question marks",
        "suspect[kind].replace('?', quoted(name))": "a condition of this module",
    },
    "ingestion.py": dict.fromkeys(("key", "table"), "of our own tables"),
}
"""What else stands in SQL, by module of db, and why it is not from a file or a user."""
TEMPLATE_NAMES = {
    "condition": "a selection's: columns of ours with marks, or the user's own SQL, asked on a confined connection",
    "selected": "the same",
    "dates": "conditions on columns of ours",
    "metric": "a column of core/metrics.py",
    "value": "an expression of core/metrics.py",
    "of_metric(metric)": "the same, and a comparison",
    **dict.fromkeys(("column", "key"), "a column of ours"),
    "columns": "columns of ours",
    "newest": "columns of ours",
    "table": "a table of ours",
    "source": "a query of ours",
    "runs": "marks, or a query of ours",
    "which": "a condition of ours",
    "reach": "a number of ours",
    "mine": "a table of ours",
    "theirs": "a table of ours in an attached file, quoted",
    "side": "mine, theirs",
}
"""What templates of SQL are filled with."""


def trees(package, word=""):
    """(module, tree) of each module with the word in its text."""
    for path in sorted((ROOT / package).rglob("*.py")):
        if word in (text := path.read_text(encoding="utf-8")):
            yield path.relative_to(ROOT / package).as_posix(), ast.parse(text)


def nodes(kind, word):
    """(place, node) of each node of a kind, which is written with the word, in the packages."""
    for package in PACKAGES:
        for module, tree in trees(package, word):
            for node in ast.walk(tree):
                if isinstance(node, kind):
                    yield f"{package}/{module}:{node.lineno}", node


def is_own(value):
    """Whether the expression is a constant, made by `quoted` or `literal`, or joined from these."""
    match value:
        case ast.Constant():
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.isupper()
        case ast.Subscript(value=inner) | ast.Starred(value=inner):
            return is_own(inner)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return all(map(is_own, parts))
        case ast.JoinedStr():
            return all(is_own(part.value) for part in value.values if isinstance(part, ast.FormattedValue))
        case ast.Call(func=ast.Name(id=name)) if name in MAKERS:
            return True
        case ast.Call(func=ast.Name(id="map"), args=[ast.Name(id=name), _]):
            return name in MAKERS
        case ast.Call(func=ast.Name(id="sorted" | "list")) | ast.Call(func=ast.Attribute(attr="join")):
            return all(map(is_own, value.args))
        case ast.GeneratorExp(elt=made, generators=loops):
            return is_own(made) or (all(is_own(loop.iter) for loop in loops) and made_of(made, loops))
    return False


def made_of(made, loops):
    """Whether the text is made of the loops' own names."""
    names = {node.id for loop in loops for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
    parts = made.values if isinstance(made, ast.JoinedStr) else [made]
    values = [part.value if isinstance(part, ast.FormattedValue) else part for part in parts]
    return all(is_own(value) or (isinstance(value, ast.Name) and value.id in names) for value in values)


def statements(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
            if STATEMENT.search(text):
                yield [part.value for part in node.values if isinstance(part, ast.FormattedValue)]


def foreign_names():
    """The values in statements that are not evidently of ours, as (module, expression)."""
    return {
        (module, ast.unparse(value))
        for module, tree in trees("db")
        for values in statements(tree)
        for value in values
        if not is_own(value)
    }


def test_every_value_in_a_statement_is_quoted_or_a_name_of_ours():
    reviewed = {(module, name) for module, names in OWN_NAMES.items() for name in names}
    assert foreign_names() == reviewed


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ('f"SELECT a FROM {TABLE}"', True),
        ('f"SELECT {quoted(name)} FROM t"', True),
        ("f\"SELECT {', '.join(map(quoted, names))} FROM t\"", True),
        ("f\"SELECT {', '.join(f'min({x})' for x in COLUMNS)} FROM t\"", True),
        ('f"SELECT a FROM {name}"', False),
        ('f"SELECT \\"{name}\\" FROM t"', False),
        ("f\"SELECT {', '.join(names)} FROM t\"", False),
        ("f\"SELECT {', '.join(f'min({x})' for x in names)} FROM t\"", False),
        ('f"COMMENT ON VIEW {view} IS {literal(text)}"', False),
    ],
)
def test_a_name_that_may_be_foreign_is_found(code, expected):
    (values,) = statements(ast.parse(code))
    assert all(map(is_own, values)) is expected


def test_templates_of_statements_are_filled_with_names_of_ours():
    filled = {
        keyword.arg or ast.unparse(keyword.value)
        for _, tree in trees("db", ".format(")
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "format"
        if is_own(call.func.value)
        for keyword in call.keywords
    }
    assert filled == set(TEMPLATE_NAMES)


def test_asserts_only_narrow_types():
    """Python may run without asserts (-O): none may check what comes from a user, a file or another program."""
    found = nodes(ast.Assert, "assert")
    assert [f"{place}: {ast.unparse(node)}" for place, node in found if not narrows(node.test)] == []


def narrows(test):
    match test:
        case ast.Compare(ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
            return True
        case ast.Call(func=ast.Name(id="isinstance")):
            return True
    return False


def test_a_path_after_the_name_of_an_unknown_user_is_no_crash():
    """`Path.expanduser` raises RuntimeError for `~somebody/x`; `os.path.expanduser` leaves it as it is."""
    found = nodes(ast.Attribute, "expanduser")
    used = [(place, ast.unparse(node)) for place, node in found if node.attr == "expanduser"]
    assert [use for use in used if use[1] != "os.path.expanduser"] == []
    assert folder_to_write("~no-such-user/x") == database_file("~no-such-user/x") == "~no-such-user/x"
    words = ["m", "--db-path=~no-such-user/x"]
    assert parser_of("run").parse_args(words).db_path == "~no-such-user/x"
