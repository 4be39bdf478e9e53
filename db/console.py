"""What the SQL prompt does with what is typed: runs statements, and obeys words that begin with a dot."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

from benchmarking.cli_support import choice, one_line, positive_int, positive_seconds
from benchmarking.core.terminal import page_of
from benchmarking.errors import EXIT_INTERRUPTED, EXIT_OK, BenchhouseError, UsageError
from db import answers, dictionary
from db.examples import EXAMPLES
from db.questions import asked
from db.statements import is_blank, split

if TYPE_CHECKING:
    from db.warehouse import Warehouse

HELP = """\
a statement ends with ; and may have several lines; Ctrl-C stops it, Ctrl-D leaves
.tables            what tables and views there are (also \\d)
.views             the views: answers to common questions
.schema [NAME]     the columns of a table or view: type, unit, meaning (also \\d NAME)
.examples [N]      questions people ask; with a number, the answer to one
.mode [FORMAT]     how answers are shown: table, vertical, markdown, csv, json
.rows [N]          how many rows table and vertical show
.timeout [S]       seconds that an answer may take
.help              this
.quit              leave (also .exit, \\q)"""
QUIT = (".quit", ".exit", "\\q", "quit", "exit")
ALIASES = {"\\d": ".schema", "\\dt": ".tables", "\\dv": ".views", "\\?": ".help", "help": ".help", "?": ".help"}


@dataclass(slots=True, kw_only=True)
class Console:
    """A session at the prompt, or a script's."""

    opened: Callable[[], Warehouse]
    """Opens the warehouse: for each question anew, since nobody can store a run while it is open."""
    timeout_s: float
    mode: str = "table"
    rows: int = answers.DEFAULT_ROWS
    out: TextIO = field(default_factory=lambda: sys.stdout)
    err: TextIO = field(default_factory=lambda: sys.stderr)
    exit_code: int = EXIT_OK
    """That of the last thing that went wrong."""
    is_over: bool = False

    def take(self, text: str) -> str:
        """Do what the text says; gives what of it is no whole statement yet, to be put before what comes next."""
        if is_word(text):
            self._guarded(lambda: self._obey(text.strip().rstrip(";")))
            return ""
        statements, rest = split(text)
        for statement in statements:
            if not is_blank(statement):
                self._guarded(lambda sql=statement: self._ask(sql))  # type: ignore[misc]
        return "" if is_blank(rest) else rest

    def run(self, lines: Iterable[str]) -> int:
        """Take a script line by line; the last statement needs no semicolon. Gives the exit code."""
        left = ""
        for line in lines:
            left = self.take(left + line)
            if self.is_over:
                return self.exit_code
        if left:
            self.take(f"{left}\n;")  # its last line may be a comment
        return self.exit_code

    def _guarded(self, do: Callable[[], None]) -> None:
        """Trouble is told in a line, and the session goes on."""
        try:
            do()
        except BenchhouseError as error:
            self.out.flush()
            print(f"error: {one_line(str(error))}", file=self.err)
            self.exit_code = error.exit_code
        except KeyboardInterrupt:
            self.out.flush()
            print("interrupted", file=self.err)
            self.exit_code = EXIT_INTERRUPTED

    def _ask(self, sql: str) -> None:
        with self.opened() as warehouse, asked(warehouse, sql, timeout_s=self.timeout_s) as answer:
            answers.write(answer, self.mode, out=self.out, rows=self.rows)

    def _obey(self, line: str) -> None:
        """Raises UsageError for a word that is none."""
        word, _, rest = line.partition(" ")
        if line in QUIT:
            self.is_over = True
            return
        does: dict[str, Callable[[str], None]] = {
            ".tables": lambda _: self._list("table", "view"),
            ".views": lambda _: self._list("view"),
            ".schema": self._schema,
            ".examples": self._examples,
            ".mode": self._set_mode,
            ".rows": self._set_rows,
            ".timeout": self._set_timeout,
            ".help": lambda _: self._say(HELP),
        }
        name = choice(ALIASES.get(word, word), (*does, ".quit"), "command")
        does[name](rest.strip())

    def _say(self, text: str) -> None:
        print(text, file=self.out)

    def _list(self, *kinds: str) -> None:
        with self.opened() as warehouse:
            found = [entry for entry in dictionary.entries(warehouse) if entry.kind in kinds]
        self._say(dictionary.listing(found, width=self._width()))

    def _schema(self, name: str) -> None:
        with self.opened() as warehouse:
            self._say(dictionary.text(warehouse, name or None, width=self._width()))

    def _examples(self, number: str) -> None:
        if not number:
            for place, example in enumerate(EXAMPLES, start=1):
                self._say(f"{place}  {example.question}")
            return
        if not number.isascii() or not number.isdigit() or not 1 <= int(number) <= len(EXAMPLES):
            raise UsageError(f".examples {number}: give a number from 1 to {len(EXAMPLES)}")
        example = EXAMPLES[int(number) - 1]
        self._say(f"{example.sql};")
        self._ask(example.sql)

    def _set_mode(self, name: str) -> None:
        if name:
            self.mode = choice(name, answers.FORMATS, "format")
        self._say(f"mode {self.mode}")

    def _set_rows(self, text: str) -> None:
        if text:
            self.rows = int(_read(positive_int, ".rows", text))
        self._say(f"rows {self.rows}")

    def _set_timeout(self, text: str) -> None:
        if text:
            self.timeout_s = _read(positive_seconds, ".timeout", text)
        self._say(f"timeout {self.timeout_s:g} s")

    def _width(self) -> int:
        return page_of(self.out).width or dictionary.WIDTH


def is_word(text: str) -> bool:
    """Whether it is a word to the prompt, and no SQL."""
    line = text.strip().rstrip(";")
    return line.startswith((".", "\\", "?")) or line in (*QUIT, *ALIASES)


def _read(parse: Callable[[str], float], word: str, text: str) -> float:
    from argparse import ArgumentTypeError

    try:
        return parse(text)
    except ArgumentTypeError as error:
        raise UsageError(f"{word}: {error}") from error
