"""What a stream can show: its width, and whether it takes colours and a line that is rewritten."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TextIO

RULE = "\N{BOX DRAWINGS LIGHT HORIZONTAL}"
DEFAULT_WIDTH = 80
"""Columns of a terminal that does not know how many it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Where text is going to be read."""

    width: int | None = None
    """Columns of text; None without a limit: a file, a pipe."""
    has_styles: bool = False
    """Whether it shows bold and colours."""
    is_ascii: bool = False
    """Whether its encoding has no line-drawing characters."""

    @property
    def rule(self) -> str:
        """A character of a horizontal line."""
        return "-" if self.is_ascii else RULE


PLAIN = Page()
"""A file or a pipe."""


def page_of(stream: TextIO) -> Page:
    """What the stream can show. Styles need a terminal that is not dumb, and that `NO_COLOR` is not set."""
    is_ascii = not _can_encode(stream)
    if not stream.isatty():
        return Page(is_ascii=is_ascii)
    has_styles = can_rewrite(stream) and not os.environ.get("NO_COLOR")
    return Page(width=width_of(stream), has_styles=has_styles, is_ascii=is_ascii)


def can_rewrite(stream: TextIO) -> bool:
    """Whether a line on the stream can be rewritten: on a terminal that obeys control sequences."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")


def width_of(stream: TextIO) -> int:
    """Columns of a terminal: `$COLUMNS`, else what the terminal says, else 80."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    try:
        return os.get_terminal_size(stream.fileno()).columns or DEFAULT_WIDTH
    except (OSError, ValueError):  # no file behind it, or none that has a size
        return DEFAULT_WIDTH


def _can_encode(stream: TextIO) -> bool:
    """Whether the stream can hold a rule; one without an encoding holds any text."""
    encoding = getattr(stream, "encoding", None)
    if encoding is None:
        return True
    try:
        RULE.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def stdout_page() -> Page:
    """What stdout can show."""
    return page_of(sys.stdout)
