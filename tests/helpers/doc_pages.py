"""The code blocks of the documentation, each with the marks in the HTML comments above it.

A page is a script: its blocks are run from the first to the last in one folder. Blocks of `sh`, `python` and `sql` are
run; every other block needs a mark that classifies it:

    <!-- main-command -->, <!-- test-command -->   an installation, which .ci/run does
    <!-- file: NAME -->                            content of a file that later blocks of the page use
    <!-- output -->                                what the block above prints; tests/docs/regenerate.py rewrites it
    <!-- output: exact -->                         the same, and equal on every machine
    <!-- drawing -->                               a drawing in text; tests/docs/test_architecture.py reads it
    <!-- generated -->                             part of docs/cli.md, which tests/docs/cli_page.py writes

    <!-- in the test: OLD => NEW -->               above a block that is run: the test replaces OLD by NEW, to be quick
    <!-- picture: PATH -->                         above an image: tests/docs/regenerate.py copies it
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from benchmarking.core.doubts import KINDS
from tests.helpers.paths import ROOT

PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
INSTALLATIONS = ("main-command", "test-command")
INSTALL = 'pip install -c constraints.txt -e ".[measure]" && '
IN_THE_TEST = "in the test: "
FILE = "file: "
FENCE = re.compile(r"```(\w*)")
DOUBT = re.compile(r"\| `(\w+)` \| (?:info|noisy|throttled|invalid) \|")
MARK = re.compile(r"<!-- (.+) -->")

Kind = Literal[
    "installation", "file", "output", "exact output", "generated", "drawing", "sh", "python", "sql", "unknown"
]
LANGUAGES: Mapping[str, Kind] = {"sh": "sh", "python": "python", "sql": "sql"}
"""Of blocks that are run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    """Of the opening fence, from 1."""
    language: str
    text: str
    marks: tuple[str, ...]

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def kind(self) -> Kind:
        """How the block is checked; unknown if it would not be checked."""
        if any(mark in INSTALLATIONS for mark in self.marks):
            return "installation"
        if any(mark.startswith(FILE) for mark in self.marks):
            return "file"
        if "output: exact" in self.marks:
            return "exact output"
        if "output" in self.marks:
            return "output"
        if "generated" in self.marks:
            return "generated"
        if "drawing" in self.marks:
            return "drawing"
        return LANGUAGES.get(self.language, "unknown")

    @property
    def file_name(self) -> str:
        """Of a file."""
        (name,) = (mark.removeprefix(FILE) for mark in self.marks if mark.startswith(FILE))
        return name

    def in_the_test(self) -> Block:
        """The block with what the test replaces. Raises ValueError for what is not in it."""
        text = self.text
        for mark in self.marks:
            if not mark.startswith(IN_THE_TEST):
                continue
            old, _, new = mark.removeprefix(IN_THE_TEST).partition(" => ")
            if old not in text:
                raise ValueError(f"{self.place}: no {old!r} in this block")
            text = text.replace(old, new)
        return replace(self, text=text)


def blocks(page: Path) -> tuple[Block, ...]:
    """The fenced blocks of a page, in order."""
    return tuple(_blocks(page))


def _blocks(page: Path) -> Iterator[Block]:
    lines = iter(enumerate(page.read_text(encoding="utf-8").splitlines(), start=1))
    marks: list[str] = []
    for number, line in lines:
        if fence := FENCE.fullmatch(line):
            text = []
            for _, inside in lines:
                if inside == "```":
                    break
                text.append(inside)
            yield Block(page=page, line=number, language=fence[1], text="\n".join(text) + "\n", marks=tuple(marks))
            marks = []
        elif mark := MARK.fullmatch(line):
            marks.append(mark[1])
        elif line.strip():
            marks = []


def with_outputs(page: Path, outputs: dict[int, str]) -> str:
    """The text of the page with new content of blocks, by the lines of their opening fences."""
    lines = page.read_text(encoding="utf-8").splitlines()
    for block in reversed(blocks(page)):
        if block.line in outputs:
            lines[block.line : block.line + block.text.count("\n")] = outputs[block.line].splitlines()
    return "\n".join(lines) + "\n"


def with_doubts(text: str) -> str:
    """The text of a page, with its rows about doubts replaced by those of the program."""
    return "\n".join(_doubt_row(line) for line in text.splitlines()) + "\n"


def _doubt_row(line: str) -> str:
    found = DOUBT.match(line)
    if found is None or found[1] not in KINDS:
        return line
    kind = KINDS[found[1]]
    cells = (
        f"`{kind.name}`",
        kind.severity,
        *(f"{text[0].upper()}{text[1:]}." for text in (kind.meaning, kind.advice)),
    )
    return f"| {' | '.join(cells)} |"
