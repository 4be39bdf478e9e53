"""Watches the sweeps running on this machine: progress, time left, latest results, and what disturbed them.

On a terminal the display refreshes until Ctrl-C; elsewhere a line is printed for each change.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from benchmarking.core import live_status
from benchmarking.core.command_line import Parser, command, note
from benchmarking.core.errors import EXIT_NOT_ENOUGH_DATA, EXIT_OK, Interrupted
from benchmarking.core.live_status import LiveSnapshot, WatchedCommand, snapshot
from benchmarking.core.records import to_json
from benchmarking.core.settings import SECONDS, SWITCH, Setting, add_flags
from benchmarking.core.shared_settings import SHARED
from benchmarking.core.tables import Column, table_of, table_text
from benchmarking.core.terminal import Page, can_rewrite, stdout_page, unguarded
from benchmarking.core.text import time_text, visible, wrapped

Item = TypeVar("Item")

NAME = "benchhouse top"
EXAMPLES = """\
examples:
  benchhouse top
  benchhouse top --once
  benchhouse top --json

exit codes: 0 shown, or Ctrl-C; 1 unusable folder of live statuses; 2 usage;
3 no sweep is running (with --once or --json)
"""
INTERVAL_S = 1.0
BAR_WIDTH = 30
FULL, REST = "\N{BOX DRAWINGS HEAVY HORIZONTAL}", "\N{BOX DRAWINGS LIGHT HORIZONTAL}"
STYLES = {f"{FULL}+": "green", r"\d+ failed|failed: .*|crashed": "red", r"(?m)^\S.*: \d+ points?\b.*$": "bold"}
"""Regular expression -> style of the matching text on a terminal."""
MAX_RESULTS = 6
HOW_TO_START = (
    "No sweep of this user is running on this machine. Start one, for example in another terminal:\n"
    "  benchhouse run bert-base-uncased --save"
)


@command(NAME, only_prints=True)
def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    parser = Parser(prog=NAME, description=__doc__, epilog=EXAMPLES)
    add_flags(
        parser,
        Setting("interval", SECONDS, "seconds between two updates", default=INTERVAL_S, metavar="SECONDS"),
        Setting("once", SWITCH, "print the state once"),
        SHARED["json"].here(help="the state once, as JSON on stdout"),
    )
    arguments = parser.parse_args(argv)
    try:
        if arguments.once or arguments.json:
            live = snapshot()
            print(json.dumps(to_json(live), indent=1) if arguments.json else display_text(live, _plain_page()))
            return EXIT_OK if live.running else EXIT_NOT_ENOUGH_DATA
        if can_rewrite(sys.stdout):
            from rich.console import Console
            from rich.live import Live
            from rich.text import Text

            is_plain = not stdout_page().has_styles
            console = Console(file=unguarded(sys.stdout), force_terminal=True, no_color=is_plain, highlight=False)
            with Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as display:
                while True:
                    text = Text(display_text(snapshot(), _plain_page()), no_wrap=True, overflow="crop")
                    for pattern, style in STYLES.items():
                        text.highlight_regex(pattern, style)
                    display.update(text, refresh=True)
                    time.sleep(arguments.interval)
        else:
            printed: dict[str, str] = {}
            has_noted = False
            while True:
                live = snapshot()
                for watched in (*live.ended, *live.running):
                    status = watched.status
                    line = f"{time_text(status.updated_s)}  {visible(status.words)}  {_progress_words(watched)}"
                    is_old = watched.state != "running" and status.key not in printed
                    if not is_old and printed.get(status.key) != line:
                        print(line, flush=True)
                        printed[status.key] = line
                if not live.running and not has_noted:
                    note(f"{NAME}: {HOW_TO_START.splitlines()[0]}")
                has_noted = not live.running
                time.sleep(arguments.interval)
    except KeyboardInterrupt as stop:
        if isinstance(stop, Interrupted):
            raise
    return EXIT_OK


def display_text(live: LiveSnapshot, page: Page) -> str:
    """The whole display as text for this page. Text from files is escaped."""
    parts = [_sweep(watched, page, live.at_s) for watched in live.running] or [HOW_TO_START]
    ended = ["ended:"] if live.ended else []
    for watched in live.ended:
        status = watched.status
        words = f"{status.words}: {_progress_words(watched)}, {live_status.age(status.updated_s, live.at_s)} ago"
        if watched.state == "crashed":
            words += f": its process (PID {status.owner.pid}) has died"
            words += f"; {status.resume_command}" if status.resume_command else ""
        elif watched.state == "failed":
            words += f": {status.activity}"
        ended.append(wrapped(words, page.text_width))
    parts += ["\n".join(ended)] if ended else []
    parts += [wrapped(f"not shown: {line}", page.text_width) for line in live.ignored]
    return "\n\n".join(parts)


def _sweep(watched: WatchedCommand, page: Page, now_s: float) -> str:
    status = watched.status
    full, rest = ("#", "-") if page.is_ascii else (FULL, REST)
    filled = round((status.done / status.total if status.total else 0.0) * BAR_WIDTH)
    running, silent = (live_status.age(since_s, now_s) for since_s in (status.started_s, status.updated_s))
    activity = f"PID {status.owner.pid}: {status.activity}, running for {running}, last update {silent} ago"
    lines = [
        wrapped(status.words, page.text_width),
        f"{full * filled}{rest * (BAR_WIDTH - filled)}  {_progress_words(watched)}",
        wrapped(activity, page.text_width),
    ]
    if status.current is not None:
        facts = live_status.point_facts(status.current)
        words = [value if name in ("run", "point", "pass") else f"{name} {value}" for name, value in facts.items()]
        lines.append(wrapped("  ".join(words), page.text_width))
    tables = [
        _table(live_status.MACHINES, status.machines, page),
        _table(live_status.CELLS, status.cells, page) if len(status.cells) > 1 else "",
        _table(live_status.results(now_s), status.results[:MAX_RESULTS], page),
    ]
    return "\n\n".join(["\n".join(lines), *filter(None, tables)])


def _progress_words(watched: WatchedCommand) -> str:
    """ "3 of 8 points, 1 failed, about 2 min left" """
    ending = live_status.left(watched.status) if watched.state == "running" else watched.state
    return ", ".join(filter(None, (live_status.progress(watched.status), ending)))


def _table(columns: Sequence[Column[Item]], items: Sequence[Item], page: Page) -> str:
    """A table under a line with the values that all rows share; empty without rows."""
    if not items:
        return ""
    table = table_of(columns, items, page)
    head = wrapped(", ".join(table.shared), page.text_width)
    return "\n".join(filter(None, (head, table_text(table, page))))


def _plain_page() -> Page:
    return replace(stdout_page(), has_styles=False)
