"""Where one statement of SQL ends and the next begins: at a semicolon outside of quotes and comments."""

from __future__ import annotations

import re

TOKEN = re.compile(
    r"""
    '(?:[^']|'')*(?:'|\Z)                       # text; what is not closed goes on to the end
    | "(?:[^"]|"")*(?:"|\Z)                     # a name
    | \$(?P<tag>\w*)\$.*?(?:\$(?P=tag)\$|\Z)    # text between $$ and $$, or $tag$ and $tag$
    | --[^\n]*                                  # a comment, to the end of the line
    | /\*.*?(?:\*/|\Z)                          # a comment
    | (?P<end>;)
    | .
    """,
    re.DOTALL | re.VERBOSE,
)

BLANK = re.compile(r"--[^\n]*|/\*.*?\*/|\s", re.DOTALL)


def split(text: str) -> tuple[list[str], str]:
    """The statements that are ended by a semicolon, without it, and what is behind the last of them."""
    found: list[str] = []
    start = 0
    for token in TOKEN.finditer(text):
        if token["end"]:
            found.append(text[start : token.start()])
            start = token.end()
    return found, text[start:]


def is_complete(text: str) -> bool:
    """Whether nothing but space and comments is left behind the last semicolon, and there is one."""
    statements, rest = split(text)
    return bool(statements) and is_blank(rest)


def is_blank(text: str) -> bool:
    """Whether there is nothing in it but space and comments."""
    return not BLANK.sub("", text)
