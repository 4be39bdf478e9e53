"""Capabilities of a stream (width, colours, rewritable lines), escaping of its output, and the progress display.

Names, errors and other contents may contain control characters, which could control a terminal. While a command runs,
stdout and stderr escape them; only the progress display and the styles of tables are sent unescaped. They also escape
what their encoding does not have; data for programs is UTF-8 in every locale.

2026-11-22: progress is drawn only when there is something new. rich's own refresh thread wakes ten times a second, even
during measurements on this machine; this process sleeps instead.
"""

from __future__ import annotations

import codecs
import io
import json
import os
import stat
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO, cast

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.text import duration, terminal_text, visible
from benchmarking.core.untrusted.redaction import without_formatted_secrets, without_secrets

if TYPE_CHECKING:
    from rich.live import Live
    from rich.progress import Progress

ESCAPES = "benchhouse.escapes"
"""The error handler that writes characters beyond a stream's encoding as JSON has them, so that a document keeps its
meaning."""
RULE = "\N{BOX DRAWINGS LIGHT HORIZONTAL}"
DEFAULT_WIDTH = 80
"""Columns of a terminal that does not report its width."""
TEXT_WIDTH = 100
"""Maximum columns of notes, and of tables in a file or a pipe: wider ones cannot be read side by side with code, in a
mail or in a CI log."""
REDRAW_S = 0.2
"""Readers need no more, and each redraw takes a millisecond of CPU time."""
BAR_WIDTH = 30
BLOCK = 1 << 16
"""Characters of lines of data that are searched for secrets together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The capabilities of an output stream."""

    width: int | None = None
    """Columns of text; None without a limit."""
    is_terminal: bool = False
    """Whether a person is reading it; a file or a pipe may be read by a program."""
    has_styles: bool = False
    """Whether it shows bold and colours."""
    is_ascii: bool = False
    """Whether its encoding lacks line-drawing characters."""

    @property
    def text_width(self) -> int | None:
        """Columns for notes; None without a limit."""
        return None if self.width is None else min(self.width, TEXT_WIDTH)

    @property
    def table_width(self) -> int | None:
        """Columns for tables, all of those of a terminal; None without a limit."""
        return self.width if self.is_terminal else self.text_width

    @property
    def rule(self) -> str:
        """The character of a horizontal line."""
        return "-" if self.is_ascii else RULE


PLAIN = Page()
"""A stream of unlimited width."""


def page_of(stream: TextIO) -> Page:
    """What the stream can show. Styles need a terminal that is not dumb, and no `NO_COLOR`."""
    is_ascii = False
    if (encoding := getattr(stream, "encoding", None)) is not None:  # a stream without an encoding takes any text
        try:
            RULE.encode(encoding)
        except (UnicodeEncodeError, LookupError):
            is_ascii = True
    if not stream.isatty():
        return Page(width=TEXT_WIDTH, is_ascii=is_ascii)
    has_styles = can_rewrite(stream) and not os.environ.get("NO_COLOR")
    return Page(width=width_of(stream), is_terminal=True, has_styles=has_styles, is_ascii=is_ascii)


def stdout_page() -> Page:
    return page_of(sys.stdout)


def can_rewrite(stream: TextIO) -> bool:
    """Whether lines on the stream can be rewritten, as on a terminal that supports control sequences."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")


def width_of(stream: TextIO) -> int:
    """Columns of a terminal: `$COLUMNS`, else the terminal's own answer, else 80."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    try:
        return os.get_terminal_size(stream.fileno()).columns or DEFAULT_WIDTH
    except (OSError, ValueError):  # no file descriptor, or not one of a terminal
        return DEFAULT_WIDTH


_styled_lines: set[str] = set()
"""Lines styled by this program."""


def styled(text: str) -> str:
    """Returns the text; guarded streams will not escape its lines, so all contents in it must be escaped already."""
    _styled_lines.update(line for line in text.split("\n") if not line.isprintable())
    return text


class GuardedStream:
    """A text stream without secrets that escapes control characters, except line ends and tabs."""

    def __init__(self, stream: TextIO) -> None:
        self.unguarded = stream

    def write(self, text: str) -> int:
        safe = without_secrets(text)
        if not safe.isprintable():
            safe = "\n".join(line if line in _styled_lines else terminal_text(line) for line in safe.split("\n"))
        self.unguarded.write(safe)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unguarded, name)


def _escaped(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


codecs.register_error(ESCAPES, _escaped)


class _Pipe(io.FileIO):
    """A pipe whose reader may go, as `head` does: what is written then goes nowhere."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), self.fileno())
            return len(data)


def _outliving(stream: TextIO) -> TextIO:
    """The stream; if it is a pipe, another one into the same that goes on without its reader."""
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except (OSError, ValueError):  # it is no file
        return stream
    if not (isinstance(stream, io.TextIOWrapper) and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))):
        return stream
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Pipe(stream.fileno(), "w", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


@contextmanager
def guarded_streams(*, outlive_readers: bool = False) -> Iterator[None]:
    """Inside, stdout and stderr are guarded, including a final traceback, and take every character. With
    `outlive_readers`, a pipe that nobody reads any more raises no BrokenPipeError."""
    # Connect the streams that were closed when the program started ("COMMAND >&-") to nowhere: the next
    # file to be opened, such as the database, would take their place, and get what is printed.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)  # the lowest free one
            os.set_inheritable(descriptor, True)
            setattr(sys, name, open(descriptor, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    before = sys.stdout, sys.stderr
    given = [unguarded(stream) for stream in before]
    files = [stream for stream in given if isinstance(stream, io.TextIOWrapper)]
    settings = [(file.encoding, file.errors) for file in files]
    for file in files:
        file.reconfigure(errors=ESCAPES)
    streams = [_outliving(stream) for stream in given] if outlive_readers else given
    sys.stdout, sys.stderr = (cast(TextIO, GuardedStream(stream)) for stream in streams)
    sys.excepthook = _print_traceback
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream in streams:
            if stream not in given:
                stream.flush()
        for file, (encoding, errors) in zip(files, settings, strict=True):
            with suppress(OSError):  # of what cannot be written, which the command has said
                file.reconfigure(encoding=encoding, errors=errors)


def unguarded(stream: TextIO) -> TextIO:
    """The underlying stream, for code that escapes all contents itself."""
    return stream.unguarded if isinstance(stream, GuardedStream) else stream


class DataStream(GuardedStream):
    """A text stream without secrets of a known value or format; everything else is unmodified."""

    def write(self, text: str) -> int:
        self.unguarded.write(without_formatted_secrets(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """As `write`, many lines at once: searching each by itself takes several times as long. Where the lines end in
        an error, those before it are written."""
        block, size = list[str](), 0
        try:
            for line in lines:
                block.append(line)
                size += len(line)
                if size >= BLOCK:
                    whole, block, size = "".join(block), [], 0
                    self.write(whole)
        finally:
            if block:
                self.write("".join(block))


def data_stream() -> TextIO:
    """stdout for machine-readable output; guarded on a terminal, where a person reads it."""
    if sys.stdout.isatty():
        return sys.stdout
    stream = unguarded(sys.stdout)
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8")
    return cast(TextIO, DataStream(stream))


def _print_traceback(kind: type[BaseException], error: BaseException, place: TracebackType | None) -> None:
    try:
        lines = without_secrets("".join(traceback.format_exception(kind, error, place)))
    except Exception as problem:  # noqa: BLE001 - or Python would print both errors, with the secrets in them
        lines = (
            f"{kind.__name__}; its text cannot be searched for secrets, so it is not shown: {type(problem).__name__}\n"
        )
    sys.stderr.write("\n".join(terminal_text(line) for line in lines.split("\n")))


class Display:
    """Progress on a stream (stderr by default): on a terminal, a bar with the time left and the current activity below
    it; elsewhere, only the lines written with `say`; if it is quiet, nothing."""

    def __init__(self, stream: TextIO | None = None, *, quiet: bool = False) -> None:
        self._stream = unguarded(sys.stderr) if stream is None else stream
        self._is_quiet = quiet
        self.is_drawn = not quiet and can_rewrite(self._stream)
        self._drawn_s = -REDRAW_S
        self._lines = ""
        self._bar: tuple[Live, Progress] | None = None

    def show(
        self, text: str, *, done: int, total: int, unit: str, left_s: float | None = None, immediate: bool = True
    ) -> None:
        """Draw the current activity, one or two lines that are cut at the width of the terminal, and how many of the
        counted things ("points") are done; unless `immediate`, at most five times a second. Does nothing if not on a
        terminal."""
        now_s = time.monotonic()
        if not self.is_drawn or (not immediate and now_s - self._drawn_s < REDRAW_S):
            return
        self._drawn_s = now_s
        if self._bar is None:
            self._bar = self._begun()
        live, progress = self._bar
        left = f"  about {duration(left_s)} left" if left_s else ""
        self._lines = visible(text, kept="\n")
        words = f"{done}/{total} {unit}{left}"
        progress.update(progress.task_ids[0], completed=done, total=total, description=words)
        live.refresh()

    def _begun(self) -> tuple[Live, Progress]:
        """A bar and the text below it, drawn by rich on request."""
        from rich.console import Console, Group
        from rich.live import Live
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.text import Text

        console = Console(file=self._stream, force_terminal=True, highlight=False, markup=False, emoji=False)
        columns = (BarColumn(bar_width=BAR_WIDTH), TextColumn("{task.description}", markup=False))
        progress = Progress(*columns, console=console, auto_refresh=False)
        progress.add_task("")
        live = Live(
            get_renderable=lambda: Group(
                progress.get_renderable(), Text(self._lines, no_wrap=True, overflow="ellipsis")
            ),
            console=console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        live.start()
        console.show_cursor(True)  # a killed process must not leave the cursor hidden
        return live, progress

    def say(self, line: str) -> None:
        """Print a permanent line, above the bar if there is one."""
        if self._is_quiet:
            return
        text = visible(without_secrets(line))
        if self._bar is not None:
            from rich.text import Text

            self._bar[0].console.print(Text(text, overflow="fold"))
            return
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def close(self) -> None:
        """Remove the bar; the next state draws a new one."""
        if self._bar is not None:
            self._bar[0].stop()
            self._bar = None
