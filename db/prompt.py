"""The SQL prompt in a terminal: lines that can be edited, a history that is kept, names completed with Tab."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from db import dictionary
from db.console import HELP, Console, is_word
from db.statements import is_complete

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

    from db.warehouse import Warehouse

KEYWORDS = (
    *("SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "HAVING", "LIMIT", "JOIN", "USING", "AND", "OR", "NOT", "AS"),
    *("DESC", "DISTINCT", "IS NULL", "IN", "LIKE", "BETWEEN", "CASE", "WHEN", "THEN", "ELSE", "END", "WITH", "OVER"),
    *("count", "avg", "median", "min", "max", "quantile_cont", "unnest", "DESCRIBE", "SUMMARIZE", "EXPLAIN", "PIVOT"),
)
PROMPT, MORE = "sql> ", "...> "
DOTS = tuple(line.split()[0] for line in HELP.splitlines() if line.startswith("."))


def converse(console: Console, history: Path, **terminal: Any) -> int:
    """Read, do and print until Ctrl-D or .quit; gives the exit code, which no mistake on the way changes.

    `terminal` may name another input and output than the process's own.
    """
    session = _session(console.opened, history, **terminal)
    while not console.is_over:
        try:
            text = session.prompt()
        except KeyboardInterrupt:  # the line is given up, the session goes on
            continue
        except EOFError:
            break
        console.take(text)
    return 0


def _session(opened: Callable[[], Warehouse], history: Path, **terminal: Any) -> PromptSession[str]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import FileHistory
    from prompt_toolkit.lexers import PygmentsLexer
    from pygments.lexers.sql import SqlLexer  # type: ignore[import-untyped, unused-ignore]

    return PromptSession(
        PROMPT,
        multiline=True,
        prompt_continuation=MORE,
        key_bindings=_keys(),
        history=FileHistory(str(history)),
        completer=_completer(opened),
        complete_while_typing=False,
        lexer=PygmentsLexer(SqlLexer),
        **terminal,
    )


def _keys() -> Any:
    """Enter ends what is whole, and goes on to the next line in what is not."""
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    @keys.add("enter")
    def _(event: Any) -> None:
        buffer = event.current_buffer
        if is_word(buffer.text) or is_complete(buffer.text) or not buffer.text.strip():
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return keys


def _completer(opened: Callable[[], Warehouse]) -> Any:
    from prompt_toolkit.completion import Completer, Completion

    class NameCompleter(Completer):
        """Tables, views and columns; behind "table." the columns of that one."""

        def __init__(self) -> None:
            self._columns: Mapping[str, Sequence[str]] | None = None

        def get_completions(self, document: Any, complete_event: Any) -> Iterator[Completion]:
            if self._columns is None:
                with opened() as warehouse:
                    self._columns = columns_of(warehouse)
            word = document.get_word_before_cursor(pattern=None, WORD=True)
            for name, begun in completions(word, self._columns):
                yield Completion(name, start_position=-begun)

    return NameCompleter()


def columns_of(warehouse: Warehouse) -> dict[str, tuple[str, ...]]:
    """Names of the columns by table and view."""
    return {
        entry.name: tuple(field.name for field in dictionary.fields(warehouse, entry.name))
        for entry in dictionary.entries(warehouse)
    }


def completions(word: str, columns: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, int]]:
    """What the word before the cursor may become, and how many of its characters that replaces."""
    last = word.replace("(", " ").replace(",", " ").split(" ")[-1]
    table, dot, begun = last.rpartition(".")
    if dot and table in columns:
        names: Sequence[str] = columns[table]
    else:
        begun = last
        every = {name for fields in columns.values() for name in fields}
        names = (*DOTS, *KEYWORDS, *columns, *sorted(every - columns.keys()))
    for name in names:
        if name.lower().startswith(begun.lower()):
            yield name, len(begun)
