"""Runs a command in a child process of its own folders and limits, and says what it did that no command may do.

A scratch folder has `work`, where the command runs and finds its input; `outside`, with the user's other files, of
which nothing may be written, run or read into an answer; `home`, `tmp`, `cache`, `locks` and `live`. The child is
forked from a process that has the modules loaded, and runs the command as `benchhouse` does.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import resource
import shutil
import signal
import stat
import sys
import time
import traceback
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

MEMORY_BYTES = 2 << 30
CODES = (0, 1, 2, 3, 124)
TOKEN = "c4n4ry-7f1e5b"
"""In each of the user's other files."""
CODE = "open('../outside/pwned', 'w').close()\nimport os; os.system('touch ../outside/pwned')\n"
"""What a file of code does when it is run."""
STEERS = ("Cc", "Cf", "Cs", "Zl", "Zp")
ERROR = re.compile(r"^[\w. -]+: error: ")
WATCH = Path(__file__).with_name("watch")
STREAMS = ("out", "err", "events")
FOLDERS = ("work", "outside", "home", "tmp", "cache", "locks", "live")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command line of benchhouse, in the working folder of its case."""

    words: tuple[str, ...]
    writes: tuple[str, ...] = ()
    """How the paths begin that it may make and change, below the scratch folder."""
    codes: tuple[int, ...] = CODES
    limit_s: float = 40.0
    lines: int = 3
    """Most lines of errors."""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What a command did that it may not."""

    words: tuple[str, ...]
    kind: str
    text: str


class Scratch:
    """The folders of one case."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.work = root / "work"
        for name in FOLDERS:
            (root / name).mkdir(parents=True)
        for place in (root / "outside" / "canary.txt", root / "home" / ".netrc"):
            place.write_text(f"machine {TOKEN}\n")

    def run(self, command: Command) -> list[Problem]:
        """Run the command; what it did that it may not."""
        before = self._tree()
        outcome = self._outcome(command)
        problems = [*self._wrong(command, outcome), *self._traces(command, before)]
        for name in STREAMS:
            (self.root / name).unlink(missing_ok=True)
        shutil.rmtree(self.root / "tmp")
        (self.root / "tmp").mkdir()
        return [Problem(words=command.words, kind=kind, text=text) for kind, text in problems]

    def _outcome(self, command: Command) -> tuple[int | None, float]:
        """Exit code, negative for a signal and None at the time limit, and peak memory in bytes."""
        child = os.fork()
        if child == 0:
            self._be(command)
        deadline = time.monotonic() + command.limit_s
        status = None
        while status is None and time.monotonic() < deadline:
            ended, ending, usage = os.wait4(child, os.WNOHANG)
            status = ending if ended else None
            time.sleep(0 if ended else 0.005)
        with_children = child
        if status is None:
            os.killpg(with_children, signal.SIGKILL)
            *_, usage = os.wait4(child, 0)
        return None if status is None else os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024

    def _be(self, command: Command) -> None:
        """Become the command, in the child."""
        code = 70
        try:
            self._enter(command)
            from benchmarking import cli

            code = cli.main(command.words)
        except BaseException:  # noqa: BLE001 - shown as Python would show it
            traceback.print_exc()
        finally:
            _end(code)

    def _enter(self, command: Command) -> None:
        os.setsid()
        atexit._clear()  # what this process does at its end is not the child's
        for number, name, flags in ((0, os.devnull, os.O_RDONLY), (1, "out", os.O_WRONLY), (2, "err", os.O_WRONLY)):
            os.dup2(os.open(self.root / name, flags | os.O_CREAT, 0o600) if number else os.open(name, flags), number)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - as long as the process
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.chdir(self.work)
        sys.argv = ["benchhouse", *command.words]
        os.environ.update(self._environment(command))
        import tempfile

        tempfile.tempdir = None
        limit = MEMORY_BYTES + int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (MEMORY_BYTES, MEMORY_BYTES))
        sys.path.insert(0, str(WATCH))
        sys.modules.pop("sitecustomize", None)  # Debian's Python has one of its own
        import sitecustomize

        sys.path.pop(0)
        sitecustomize.watch(str(self.root), str(self.root / "events"))

    def _environment(self, command: Command) -> dict[str, str]:
        return {
            "HOME": str(self.root / "home"),
            "TMPDIR": str(self.root / "tmp"),
            "XDG_CACHE_HOME": str(self.root / "home" / ".cache"),
            "XDG_CONFIG_HOME": str(self.root / "home" / ".config"),
            "HF_HOME": str(self.root / "cache" / "hub"),
            "HF_HUB_OFFLINE": "1",
            "MPLCONFIGDIR": str(self.root / "cache" / "matplotlib"),
            "BENCHHOUSE_CACHE_DIR": str(self.root / "cache" / "benchhouse"),
            "BENCHHOUSE_LOCK_DIR": str(self.root / "locks"),
            "BENCHHOUSE_LIVE_DIR": str(self.root / "live"),
            "BENCHHOUSE_FUZZ_EVENTS": str(self.root / "events"),
            "BENCHHOUSE_FUZZ_SCRATCH": str(self.root),
            "PYTHONPATH": str(WATCH),
            "OMP_WAIT_POLICY": "passive",
            **command.environment,
        }

    def _wrong(self, command: Command, outcome: tuple[int | None, float]) -> Iterator[tuple[str, str]]:
        """What is wrong with how it ended and with what it printed."""
        code, memory_bytes = outcome
        out, err = ((self.root / name).read_bytes() for name in ("out", "err"))
        said = err.decode("utf-8", "replace")
        if code is None:
            yield "hang", f"no end in {command.limit_s:g} s: {_ends(said)}"
            return
        if b"Traceback (most recent call last)" in err + out:
            yield "traceback", _ends(said)
        elif code not in command.codes:
            yield "exit code", f"{code}: {_ends(said + out.decode(errors='replace'))}"
        errors = [line for line in said.splitlines() if ERROR.match(line) or ": refused " in line]
        if len(errors) > command.lines:
            yield "lines", f"{len(errors)} lines of errors: {_ends(said)}"
        if code not in (0, 3, 124) and not said.strip() and "--quiet" not in command.words and not out:
            yield "silence", f"exit code {code} without a word"
        if max(map(len, said.splitlines()), default=0) > 20_000:
            yield "long line", f"{max(map(len, said.splitlines()))} characters: {said[:200]!r}"
        if memory_bytes > MEMORY_BYTES:
            yield "memory", f"{memory_bytes / 1e9:.2f} GB"
        yield from _steering(out, err)
        events = self.root / "events"
        if events.exists():
            yield from (("event", line) for line in sorted(set(events.read_text().splitlines())))

    def _traces(self, command: Command, before: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """What is wrong with the files that it left."""
        after = self._tree()
        for name in sorted(before.keys() | after.keys()):
            if before.get(name) != after.get(name) and not name.startswith(command.writes):
                change = "made" if name not in before else "removed" if name not in after else "changed"
                yield "file", f"{change}: {name}"
        token = TOKEN.encode()
        for name in sorted(name for name in after if before.get(name) != after[name]):
            path = self.root / name
            if stat.S_ISREG(path.lstat().st_mode) and token in path.read_bytes():
                yield "canary", f"the user's file is in {name}"

    def _tree(self) -> dict[str, str]:
        """Every file with its content, but of the caches, locks and live statuses, and the streams of a command."""
        found = {}
        for folder, names, files in os.walk(self.root):
            if folder == str(self.root):
                names[:] = [name for name in names if name not in ("cache", "locks", "live")]
                files = []
            for name in (*names, *files):
                path = Path(folder, name)
                found[path.relative_to(self.root).as_posix()] = _content(path)
        return found


def _content(path: Path) -> str:
    mode = path.lstat().st_mode
    if stat.S_ISREG(mode):
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return os.readlink(path) if stat.S_ISLNK(mode) else f"kind {stat.S_IFMT(mode)}"


def _steering(out: bytes, err: bytes) -> Iterator[tuple[str, str]]:
    for name, content in (("stdout", out), ("stderr", err)):
        try:
            text = content.decode()
        except UnicodeDecodeError as error:
            yield "bytes", f"{name} is not UTF-8: {error}"
            continue
        steering = {one for one in text.replace("\r\n", "\n") if unicodedata.category(one) in STEERS} - set("\n\t")
        if steering:
            yield "control", f"{name} has {sorted(map(ascii, steering))}"


def _ends(text: str) -> str:
    """The last lines of a text."""
    return "\n".join(text.strip().splitlines()[-12:])[-2000:]


def _end(code: object) -> None:
    """End the process as the interpreter would."""
    import threading

    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001 - nothing is left to show it
        os._exit(71)
    os._exit(code if isinstance(code, int) else 72)


def run_all(scratch: Scratch, commands: Sequence[Command]) -> list[Problem]:
    """Run the commands of a case one after another, up to the first with a problem."""
    for command in commands:
        if problems := scratch.run(command):
            return problems
    return []
