"""The live status of a sweep: a small file that its command rewrites for `benchhouse top` and the page Live.

The files are in a folder that only this user can write to. They are replaced atomically, without syncing to disk. A
file that belongs to another user, is a link, is too large or has invalid fields is not shown but reported. A status
whose process is gone belongs to a crashed command.

The words and tables at the end are what both say about a sweep.
"""

from __future__ import annotations

import os
import shlex
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from benchmarking.core.codec import dumps, from_json
from benchmarking.core.command_names import as_typed, words_as_typed
from benchmarking.core.errors import BenchhouseError, FormatError, StorageError, storage_errors
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.provenance import Owner, uuid7
from benchmarking.core.records import Count, Device, Number, Status
from benchmarking.core.tables import Column
from benchmarking.core.temporary import SHARED
from benchmarking.core.text import counted, duration, ends, number, visible
from benchmarking.core.untrusted.input_files import parse_json

FOLDER_VARIABLE = "BENCHHOUSE_LIVE_DIR"
OTHER_FOLDER = f"choose another folder with {FOLDER_VARIABLE}"
FORMAT, VERSION = "benchhouse-live", 1
SUFFIX = ".live.json"
OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
MAX_BYTES = 400_000
MAX_FILES = 64
"""Maximum number of files to read, newest first."""
KEPT_ENDED = 5
"""Number of finished commands whose status is kept."""
KEPT_S = 24 * 3600.0

State = Literal["running", "finished", "failed", "interrupted", "crashed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellProgress:
    """The progress of a model on a device with a runtime and a precision."""

    name: str
    total: Count
    """Points to measure, over all launches, as in the other counts."""
    done: Count
    """Finished or given up."""
    failed: Count


DeviceState = Literal["idle", "measuring", "lost", "left"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineProgress:
    """The progress of a device of a cluster worker."""

    worker: str
    host: str
    device: str
    state: DeviceState
    activity: str = ""
    """The cell and point being measured."""
    done: Count = 0
    """Points that it has finished or given up, over all launches and cells."""
    failed: Count = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentPoint:
    cell: str
    point: str
    launch: Count
    """From 1."""
    launches: Count
    phase: str
    """As in `Live.phase`; empty before the first call."""
    calls: Count = 0
    median_ms: Number | None = None
    low_ms: Number | None = None
    """95 % interval of the median."""
    high_ms: Number | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PointResult:
    """A finished point of a launch."""

    cell: str
    point: str
    launch: Count
    status: Status
    at_s: Number
    """When it was finished, in Unix seconds."""
    calls: Count = 0
    median_ms: Number | None = None
    error: str | None = None
    doubts: tuple[str, ...] = ()
    """Kinds of doubt above severity info."""
    use: Mapping[str, Number] = field(default_factory=dict)
    """Device use over the monitored calls (utilization_mean_percent, power_max_w, ...); empty if not monitored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveStatus:
    """The state of a measuring command at `updated_s`."""

    owner: Owner
    words: str
    """What it measures, in words."""
    command: tuple[str, ...]
    """The command line as typed, without secrets."""
    folder: str | None
    """The folder where its runs are saved; None if they are not saved."""
    state: Literal["running", "finished", "failed", "interrupted"] = "running"
    started_s: Number
    updated_s: Number
    """Unix seconds, like `started_s`."""
    activity: str = ""
    """What it is doing, or how it ended."""
    total: Count
    done: Count
    failed: Count
    left_s: Number | None = None
    current: CurrentPoint | None = None
    cells: tuple[CellProgress, ...] = ()
    cells_left_out: Count = 0
    machines: tuple[MachineProgress, ...] = ()
    """The devices of a sweep on a cluster; empty for a sweep on this machine."""
    results: tuple[PointResult, ...] = ()
    """The newest, the newest first."""
    devices: tuple[Device, ...] = ()
    """The devices it measures on; empty for a cluster."""

    @property
    def key(self) -> str:
        """Unique for each command, even for consecutive ones."""
        return f"{self.owner.pid}-{self.owner.created_s:.2f}-{self.started_s:.3f}"

    @property
    def resume_command(self) -> str | None:
        """The command that resumes it at the last finished point; None if it finished or saves nothing."""
        if self.folder is None or self.state_now() not in ("crashed", "interrupted"):
            return None
        if self.machines:  # the cluster is named in the command
            return shlex.join((*words_as_typed(self.command), *(() if "--resume" in self.command else ("--resume",))))
        home = "~/" if self.folder.startswith("~/") else ""  # a shell does not expand it inside quotes
        return f"{as_typed('run')} --resume --output-dir {home}{shlex.quote(self.folder.removeprefix(home))}"

    def state_now(self) -> State:
        """Its state, taking into account whether its process is still running."""
        return "crashed" if self.state == "running" and not self.owner.is_alive() else self.state


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedCommand:
    """A command, and whether it is still running."""

    status: LiveStatus
    state: State


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSnapshot:
    """The commands of this user on this machine."""

    at_s: float
    running: tuple[WatchedCommand, ...]
    ended: tuple[WatchedCommand, ...]
    """The newest, the newest first."""
    ignored: tuple[str, ...]
    """Why a file is not shown, one line per file."""


def snapshot() -> LiveSnapshot:
    """The current state of this user's commands. Raises StorageError if the folder of the statuses cannot be used."""
    folder = usable_folder(create=False)
    found: list[LiveStatus] = []
    ignored: list[str] = []
    for path in _newest_first(folder) if folder is not None else ():
        try:
            status = read(path)
        except FileNotFoundError:
            continue  # removed in the meantime
        except (BenchhouseError, OSError) as error:
            ignored.append(visible(str(error)))
            continue
        if status.owner.is_here():
            found.append(status)
    found.sort(key=lambda status: status.started_s, reverse=True)
    watched = [WatchedCommand(status=status, state=status.state_now()) for status in found]
    return LiveSnapshot(
        at_s=time.time(),
        running=tuple(command for command in watched if command.state == "running"),
        ended=tuple(command for command in watched if command.state != "running"),
        ignored=tuple(ignored),
    )


class StatusFile:
    """The file of a command. Raises StorageError where the folder cannot be used."""

    def __init__(self) -> None:
        folder = usable_folder(create=True)
        assert folder is not None
        remove_old(folder)
        self.path = folder / f"{uuid7()}{SUFFIX}"

    def write(self, status: Mapping[str, Any]) -> None:
        """Replace the content by a status, as `to_json` gives it. Raises StorageError."""
        draft = self.path.with_name(f".{self.path.name}.tmp")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
        with storage_errors(f"cannot write {self.path}", OTHER_FOLDER):
            with open(draft, "w", encoding="utf-8", opener=lambda name, _: os.open(name, flags, 0o600)) as file:
                file.write(dumps({"format": FORMAT, "version": VERSION, "status": status}))
            draft.replace(self.path)


def usable_folder(*, create: bool) -> Path | None:
    """The folder of this user's statuses; None where it is missing. Raises StorageError for a link, and for a folder
    that others can write to."""
    named = os.path.expanduser(os.environ.get(FOLDER_VARIABLE, ""))
    folder = Path(named) if named else SHARED / f"benchhouse-live-{os.geteuid() if os.name == 'posix' else 'files'}"
    try:
        if create:
            with suppress(FileExistsError):
                folder.mkdir(mode=0o700)
        found = os.stat(folder, follow_symlinks=False)
    except FileNotFoundError:
        if create:
            raise StorageError(f"cannot use {folder} for live statuses: no folder {folder.parent}: create it") from None
        return None
    except OSError as error:
        raise StorageError(f"cannot use {folder} for live statuses: {error.strerror}: {OTHER_FOLDER}") from error
    problem = None
    if not stat.S_ISDIR(found.st_mode):
        problem = "is not a folder"
    elif os.name == "posix" and found.st_uid != os.geteuid():
        problem = "belongs to another user"
    elif os.name == "posix" and found.st_mode & OTHERS_MAY_WRITE:
        problem = "is writable by other users"
    if problem is not None:
        raise StorageError(f"{folder}, the folder of live statuses, {problem}: {OTHER_FOLDER}")
    return folder


def read(path: Path) -> LiveStatus:
    """A status. Raises FormatError for a file with invalid fields, StorageError for one that is not this
    user's or no file, OSError."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StorageError(f"{path.name}: {error.strerror}") from error
    try:
        file_status = os.fstat(descriptor)
        if not stat.S_ISREG(file_status.st_mode):
            raise StorageError(f"{path.name}: not a regular file")
        if os.name == "posix" and file_status.st_uid != os.geteuid():
            raise StorageError(f"{path.name}: it belongs to another user")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(MAX_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(content) > MAX_BYTES:
        raise FormatError(f"{path.name}: larger than {MAX_BYTES // 1000} kB")
    data = parse_json(content, path.name)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise FormatError(f"{path.name}: not a live status")
    if data.get("version") != VERSION:
        raise FormatError(f"{path.name}: expected version {VERSION}, found {data.get('version')!r}")
    return from_json(LiveStatus, data.get("status"), path.name)


def remove_old(folder: Path) -> None:
    """Delete the files of finished commands, except the newest few of the last day, and drafts of killed commands."""
    now_s = time.time()
    ended = 0
    for path in _newest_first(folder, limit=None):
        with suppress(OSError, BenchhouseError):
            age_s = now_s - path.stat(follow_symlinks=False).st_mtime
            try:
                is_running = read(path).state_now() == "running"
            except FormatError:
                is_running = False
            ended += not is_running
            if not is_running and (ended > KEPT_ENDED or age_s > KEPT_S):
                path.unlink()
    for draft in folder.glob(f".*{SUFFIX}.tmp"):
        with suppress(OSError):
            if now_s - draft.stat(follow_symlinks=False).st_mtime > KEPT_S:
                draft.unlink()


def _newest_first(folder: Path, limit: int | None = MAX_FILES) -> Iterator[Path]:
    """The files of a folder whose names are those of statuses."""
    found: list[tuple[float, Path]] = []
    with suppress(OSError):
        for path in folder.glob(f"[!.]*{SUFFIX}"):
            with suppress(OSError):
                found.append((path.stat(follow_symlinks=False).st_mtime, path))
    yield from (path for _, path in sorted(found, reverse=True)[:limit])


def progress(status: LiveStatus) -> str:
    """ "3 of 8 points, 1 failed" """
    points = f"{status.done} of {counted(status.total, 'point')}"
    return points + (f", {status.failed} failed" if status.failed else "")


def left(status: LiveStatus) -> str:
    """ "about 2 min left"; empty if unknown."""
    return f"about {duration(status.left_s)} left" if status.left_s else ""


def age(then_s: float, now_s: float) -> str:
    """The time since then; never negative, since clocks differ."""
    return duration(max(0.0, now_s - then_s))


def point_facts(now: CurrentPoint) -> dict[str, str]:
    """Names and values of the point being measured."""
    phase = now.phase.replace("_", " ") or "first call"
    facts = {
        "run": now.cell,
        "point": now.point,
        "launch": f"{now.launch} of {now.launches}",
        "pass": f"{phase}, {now.calls} calls" if now.calls else phase,
    }
    if now.median_ms is not None:
        facts["median"] = f"{number(now.median_ms)} ms"
    if now.low_ms is not None and now.high_ms is not None:
        facts["95 % interval"] = f"{' to '.join(ends(now.low_ms, now.high_ms))} ms"
    return facts


CELLS = (
    Column[CellProgress]("run", lambda cell: cell.name, is_key=True),
    Column[CellProgress]("points", lambda cell: f"{cell.done}/{cell.total}", is_number=True),
    Column[CellProgress]("failed", lambda cell: str(cell.failed or "") or None, is_number=True),
)
MACHINES = (
    Column[MachineProgress]("worker", lambda row: row.worker, is_key=True),
    Column[MachineProgress]("host", lambda row: row.host, spare=1),
    Column[MachineProgress]("device", lambda row: row.device, is_key=True),
    Column[MachineProgress]("state", lambda row: row.state, is_state=True),
    Column[MachineProgress]("points", lambda row: str(row.done), is_number=True),
    Column[MachineProgress]("failed", lambda row: str(row.failed), is_number=True),
    Column[MachineProgress]("measures", lambda row: row.activity or None),
)
USES = {"utilization_mean_percent": "utilization %", "power_mean_w": "power W"}
"""Use of the device during the monitored calls of a point -> heading."""


def results(now_s: float) -> tuple[Column[PointResult], ...]:
    return (
        Column("run", lambda point: point.cell, is_key=True, spare=2),
        Column("point", lambda point: point.point, is_key=True),
        Column("launch", lambda point: str(point.launch), is_number=True, spare=3),
        Column("median ms", lambda point: _number(point.median_ms), is_number=True),
        Column("calls", lambda point: str(point.calls or "") or None, is_number=True, spare=4),
        *(Column(heading, partial(_use, name), is_number=True, spare=1) for name, heading in USES.items()),
        Column("state", _state, is_state=True),
        Column("ago", lambda point: age(point.at_s, now_s)),
    )


def _use(name: str, point: PointResult) -> str | None:
    return _number(point.use.get(name))


def _number(value: float | None) -> str | None:
    return None if value is None else number(value)


def _state(point: PointResult) -> str:
    if point.status != "ok":
        return f"{point.status.replace('_', ' ')}: {point.error or 'no reason'}"
    return ", ".join(kind.replace("_", " ") for kind in point.doubts) or "ok"
