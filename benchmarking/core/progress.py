"""The progress display: a bar with the time left and what is going on below it on a terminal, plain lines elsewhere.

2026-11-22: nothing is drawn on a timer. rich's own refreshing is a thread that wakes ten times a second, also while
something is being measured on this machine; here a caller draws when it has news, so that the process sleeps meanwhile.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from benchmarking.core.terminal import can_rewrite
from benchmarking.core.text import duration, visible, visible_lines

if TYPE_CHECKING:
    from rich.live import Live
    from rich.progress import Progress

REDRAW_S = 0.2
"""People read no faster, and each drawing takes a millisecond of a processor."""
BAR_WIDTH = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """How far it is."""

    done: int
    total: int
    unit: str
    """What is counted: "points"."""
    text: str
    """What is going on now, in one line or two; what a line is too long for is cut."""
    left_s: float | None = None
    """Seconds that are left; None while nobody knows."""


class Display:
    """Progress on a stream, stderr unless another one is given."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self.is_drawn = can_rewrite(self._stream)
        self._drawn_s = -REDRAW_S
        self._bar: _Bar | None = None

    def show(self, state: State, *, is_news: bool = True) -> None:
        """Draw the state; what is no news is drawn five times a second at most. Nothing off a terminal."""
        now_s = time.monotonic()
        if not self.is_drawn or (not is_news and now_s - self._drawn_s < REDRAW_S):
            return
        self._drawn_s = now_s
        if self._bar is None:
            self._bar = _Bar(self._stream)
        self._bar.draw(state)

    def say(self, line: str) -> None:
        """Write a line that stays, above the bar where there is one."""
        if self._bar is not None:
            self._bar.print_above(visible(line))
            return
        self._stream.write(visible(line) + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Take the bar away; the next state draws another one."""
        if self._bar is not None:
            self._bar.remove()
            self._bar = None


class _Bar:
    """The bar and the text below it, drawn by rich and only when asked to."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console, Group
        from rich.live import Live
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.text import Text

        self._console = Console(file=stream, force_terminal=True, highlight=False, markup=False, emoji=False)
        self._progress: Progress = Progress(
            BarColumn(bar_width=BAR_WIDTH),
            TextColumn("{task.description}", markup=False),
            console=self._console,
            auto_refresh=False,
        )
        self._task = self._progress.add_task("")
        self._lines = ""
        self._live: Live = Live(
            get_renderable=lambda: Group(
                self._progress.get_renderable(), Text(self._lines, no_wrap=True, overflow="ellipsis")
            ),
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()
        self._console.show_cursor(True)  # a process that is killed leaves no terminal without its cursor behind

    def draw(self, state: State) -> None:
        left = "" if not state.left_s else f"  about {duration(state.left_s)} left"
        words = f"{state.done}/{state.total} {state.unit}{left}"
        self._lines = visible_lines(state.text)
        self._progress.update(self._task, completed=state.done, total=state.total, description=words)
        self._live.refresh()

    def print_above(self, line: str) -> None:
        from rich.text import Text

        self._console.print(Text(line, overflow="fold"))

    def remove(self) -> None:
        self._live.stop()
