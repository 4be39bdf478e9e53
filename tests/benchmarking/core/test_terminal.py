"""The progress display (a bar on a terminal, plain lines elsewhere) and the capabilities of streams."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading

import pytest

from benchmarking.core import terminal
from benchmarking.core.terminal import Display, Page, page_of, width_of

STATE = {"done": 3, "total": 8, "unit": "points", "text": "gpt2 on cpu  b1 s32\nmeasure 12 calls", "left_s": 120.0}


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def settings(monkeypatch):
    """The environment of a terminal of 80 columns."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    return monkeypatch


def shown(stream, *states, line=None):
    display = Display(stream)
    for state in states:
        display.show(**state)
    if line is not None:
        display.say(line)
    display.close()
    return stream.getvalue()


def test_a_terminal_shows_a_bar_with_the_time_left_and_the_activity():
    text = shown(Terminal(), STATE)
    assert "━" in text
    assert "3/8 points  about 2 min left" in text
    assert "gpt2 on cpu  b1 s32" in text
    assert "measure 12 calls" in text


def test_permanent_lines_are_printed_above_the_bar():
    text = shown(Terminal(), STATE, line="point 3/8 done")
    assert text.index("point 3/8 done\n") < text.rindex("3/8 points")


def test_bars_are_at_most_as_wide_as_the_terminal(settings):
    settings.setenv("COLUMNS", "40")
    text = shown(Terminal(), {"done": 0, "total": 1, "unit": "points", "text": "x" * 100})
    assert "x" * 39 + "…" in text
    assert "x" * 40 not in text


def test_no_color_removes_colours_from_the_bar(settings):
    assert "\x1b[38" in shown(Terminal(), STATE)
    settings.setenv("NO_COLOR", "1")
    text = shown(Terminal(), STATE)
    assert "\x1b[38" not in text
    assert "\x1b[3" not in text
    assert "3/8 points" in text


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_pipes_and_dumb_terminals_get_plain_lines(settings, stream):
    settings.setenv("TERM", "dumb")
    assert shown(stream(), STATE, line="point 3/8  b1\x1b[2J") == "point 3/8  b1\\x1b[2J\n"


def test_a_killed_process_leaves_the_terminal_with_its_cursor():
    stream = Terminal()
    Display(stream).show(**STATE)
    assert stream.getvalue().rindex("\x1b[?25h") > stream.getvalue().rindex("\x1b[?25l")


def test_routine_states_are_drawn_at_most_five_times_a_second(settings):
    now_s = [100.0]
    settings.setattr(terminal.time, "monotonic", lambda: now_s[0])
    stream = Terminal()
    display = Display(stream)
    display.show(**STATE)
    drawn = [stream.getvalue()]
    for step_s in (0.05, 0.1, 0.1):
        now_s[0] += step_s
        display.show(**STATE, immediate=False)
        drawn.append(stream.getvalue())
    display.close()
    assert drawn[0] == drawn[1] == drawn[2]
    assert len(drawn[3]) > len(drawn[2])


def test_nothing_runs_between_redraws():
    before = threading.active_count()
    display = Display(Terminal())
    display.show(**STATE)
    assert threading.active_count() == before
    display.close()


def test_a_reopened_display_keeps_lines_printed_in_between():
    stream = Terminal()
    display = Display(stream)
    display.show(**STATE)
    display.close()
    stream.write("run file: x.json\n")
    at = len(stream.getvalue())
    display.show(**STATE)
    assert "\x1b[1A" not in stream.getvalue()[at:]
    display.close()


def test_a_page_is_as_wide_as_its_terminal(settings):
    assert page_of(Terminal()) == Page(width=80, is_terminal=True, has_styles=True)
    settings.setenv("NO_COLOR", "1")
    assert page_of(Terminal()) == Page(width=80, is_terminal=True)
    settings.delenv("NO_COLOR")
    settings.setenv("TERM", "dumb")
    assert page_of(Terminal()) == Page(width=80, is_terminal=True)
    assert page_of(io.StringIO()) == Page(width=100)


@pytest.mark.parametrize(("width", "text_width"), [(None, None), (80, 80), (100, 100), (240, 100)])
def test_tables_and_notes_are_at_most_100_columns_wide(width, text_width):
    assert Page(width=width).text_width == text_width


def test_encodings_without_line_drawing_are_detected():
    assert page_of(io.TextIOWrapper(io.BytesIO(), encoding="ascii")) == Page(width=100, is_ascii=True)
    assert page_of(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")) == Page(width=100)


@pytest.mark.skipif(os.name == "nt", reason="pseudo-terminals are a POSIX thing")
def test_columns_overrides_the_terminal_width(settings):
    import fcntl
    import pty
    import struct
    import termios

    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 63, 0, 0))
    with os.fdopen(follower, "w") as stream:
        assert width_of(stream) == 80
        settings.delenv("COLUMNS")
        assert width_of(stream) == 63
        assert page_of(stream) == Page(width=63, is_terminal=True, has_styles=True)
    os.close(leader)


@pytest.mark.skipif(os.name != "posix", reason="closes descriptors")
def test_a_traceback_that_cannot_be_searched_for_secrets_is_not_shown(monkeypatch, capsys):
    def fail(text):
        raise OSError(24, "Too many open files")  # the patterns are imported with the first text

    monkeypatch.setattr(terminal, "without_secrets", fail)
    terminal._print_traceback(ValueError, ValueError("tiny-password"), None)
    shown = capsys.readouterr().err
    assert "ValueError" in shown
    assert "tiny-password" not in shown


def test_closed_streams_do_not_write_into_the_next_opened_file(tmp_path):
    code = (
        "import sys; from benchmarking.core.command_line import run_command\n"
        "def command(argv):\n"
        "    file = open(argv[0], 'w'); print('to stdout', flush=True); print('to stderr', file=sys.stderr)\n"
        "    return file.fileno()\n"
        "sys.exit(run_command('x', command, sys.argv[1:]))"
    )
    path = tmp_path / "file"
    command = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command], check=False)
    assert done.returncode > 2
    assert path.read_text() == ""


@pytest.mark.skipif(os.name != "posix", reason="pipes")
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_command_that_stores_goes_on_without_its_reader(tmp_path, stream):
    code = (
        "import sys; from benchmarking.core.command_line import run_command\n"
        "def command(argv):\n"
        "    for _ in range(3): print('x' * 100_000, file=getattr(sys, argv[1]), flush=True)\n"
        "    open(argv[0], 'w').write('stored'); print('the last line', file=getattr(sys, argv[1]))\n"
        "    return 7\n"
        "sys.exit(run_command('x', command, sys.argv[1:]))"
    )
    path = tmp_path / "file"
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: closed}
        done = subprocess.run([sys.executable, "-c", code, str(path), stream], **streams, check=False)
    assert (done.returncode, path.read_text()) == (7, "stored")
    assert (done.stdout or b"") + (done.stderr or b"") == b""
