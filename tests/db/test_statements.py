"""Where statements end."""

from __future__ import annotations

import pytest

from db.statements import is_complete, split


@pytest.mark.parametrize(
    ("text", "statements", "rest"),
    [
        ("SELECT 1; SELECT 2;", ["SELECT 1", " SELECT 2"], ""),
        ("SELECT ';', 'it''s;'; x", ["SELECT ';', 'it''s;'"], " x"),
        ('SELECT ";"; ', ['SELECT ";"'], " "),
        ("SELECT 1 -- no; end\n;", ["SELECT 1 -- no; end\n"], ""),
        ("/* ; */ SELECT 1;", ["/* ; */ SELECT 1"], ""),
        ("SELECT $$a;b$$, $t$c;$$;d$t$;", ["SELECT $$a;b$$, $t$c;$$;d$t$"], ""),
        ("SELECT 'open;", [], "SELECT 'open;"),
        ("/* open;", [], "/* open;"),
        ("", [], ""),
    ],
)
def test_a_semicolon_in_quotes_or_comments_ends_nothing(text, statements, rest):
    assert split(text) == (statements, rest)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("SELECT 1;", True), ("SELECT 1; -- done", True), ("SELECT 1", False), ("SELECT 1; SELECT", False), ("", False)],
)
def test_a_text_is_complete_with_its_last_semicolon(text, expected):
    assert is_complete(text) is expected
