"""The contents of the build cache (builds, broken builds, leftovers, links), and their selection and deletion.

Symbolic links are never followed and never count as builds, since they may point anywhere.

A process that makes a build holds its lock, and nothing with a held lock is deleted.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarking.builds.store import DIGEST_LENGTH, MADE_VARIABLE, RECORD, Build, BuildStore, lock_of, read_record
from benchmarking.core.child_process import environment_variable
from benchmarking.core.command_names import as_typed
from benchmarking.core.errors import StorageError, UsageError, storage_errors
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.temporary import temporary_folder
from benchmarking.core.text import size_text

NAME = re.compile(rf"[0-9a-f]{{{DIGEST_LENGTH}}}|\.[0-9a-f]{{{DIGEST_LENGTH}}}[.-].+")
"""Names of a build's folder, its lock, and its temporary folder, which had a hyphen in older versions. Other files do
not belong to the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedBuild:
    build: Build
    folder: Path
    last_used_s: float
    """Time when it was made or last used, in seconds since the epoch."""
    size_bytes: int
    """Current size of everything in its folder."""

    @property
    def model_id(self) -> str | None:
        """The model it was made from; None if its record has none."""
        return _text(self.build.parts.get("model_id"))

    @property
    def precision(self) -> str | None:
        """The precision of its content; None if its record has none."""
        return _text(self.build.parts.get("precision"))


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenBuild:
    """A folder of a build without a valid record."""

    folder: Path
    why: str
    last_used_s: float
    """Time when its folder was last written to, in seconds since the epoch."""
    size_bytes: int
    model_id: None = None
    """Unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """The temporary folder of a build, or a lock file; useless unless a process is currently making the build."""

    path: Path
    lock: Path
    """The lock held by the process that makes the build."""
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """Everything in a build cache, by kind and digest."""

    builds: tuple[CachedBuild, ...]
    broken: tuple[BrokenBuild, ...]
    leftovers: tuple[Leftover, ...]
    links: tuple[Path, ...]
    """Symbolic links, which are never deleted."""


def read_contents(root: Path) -> Contents:
    """The content of `<cache folder>/builds`. Raises StorageError when it cannot be read."""
    entries = []
    with storage_errors(f"cannot read the build cache {root}"):
        kinds = sorted(root.iterdir()) if root.is_dir() else []
        found = [kind for kind in kinds if kind.is_symlink()]
        for kind in (kind for kind in kinds if kind.is_dir() and not kind.is_symlink()):
            found += (entry for entry in sorted(kind.iterdir()) if NAME.fullmatch(entry.name) or entry.is_symlink())
        for entry in found:
            with suppress(FileNotFoundError):  # deleted by another process in the meantime
                entries.append(_classify(entry))
    return Contents(
        builds=tuple(entry for entry in entries if isinstance(entry, CachedBuild)),
        broken=tuple(entry for entry in entries if isinstance(entry, BrokenBuild)),
        leftovers=tuple(entry for entry in entries if isinstance(entry, Leftover)),
        links=tuple(entry for entry in entries if isinstance(entry, Path)),
    )


def folder_bytes(path: Path) -> int:
    """Total size of all files under a folder, or of a file. A link counts as itself; a file that disappears counts as
    0."""
    files = [Path(parent) / name for parent, _, names in os.walk(path) for name in names] if path.is_dir() else [path]
    size_bytes = 0
    for file in files:
        with suppress(FileNotFoundError):
            size_bytes += file.lstat().st_size
    return size_bytes


def _classify(entry: Path) -> CachedBuild | BrokenBuild | Leftover | Path:
    if entry.is_symlink():
        return entry
    if entry.name.startswith("."):
        digest = entry.name[1 : 1 + DIGEST_LENGTH]
        return Leftover(path=entry, lock=lock_of(entry.with_name(digest)), size_bytes=folder_bytes(entry))
    record = entry / RECORD
    try:
        build = read_record(record)
        if (build.kind, build.digest) != (entry.parent.name, entry.name):
            raise ValueError(f"its record belongs to {build.kind}/{build.digest}")
        last_used_s = record.stat().st_mtime
    except (OSError, ValueError, StorageError) as error:
        return BrokenBuild(
            folder=entry,
            why=" ".join(str(error).split()) if os.path.lexists(record) else f"no {RECORD}",
            last_used_s=entry.lstat().st_mtime,
            size_bytes=folder_bytes(entry),
        )
    return CachedBuild(build=build, folder=entry, last_used_s=last_used_s, size_bytes=folder_bytes(entry))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


SECONDS_PER_DAY = 86_400.0

Candidate = CachedBuild | BrokenBuild


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSelection:
    """Which builds to select: those that meet every condition given."""

    digests: tuple[str, ...] = ()
    """Digests or unique prefixes; a build must have one of them."""
    kind: str | None = None
    model: str | None = None
    older_than_days: float | None = None
    """Minimum days since its last use; for a broken build, since its folder was last written to."""
    everything: bool = False


def select_builds(contents: Contents, selection: BuildSelection, *, confirmed: bool) -> tuple[Path, ...]:
    """The folders of the selected builds, broken ones included.

    Raises UsageError for an empty choice, for an unknown or ambiguous digest, for a kind or model without builds, and
    for `everything` without `confirmed`.
    """
    narrowed = (selection.kind, selection.model, selection.older_than_days)
    if not selection.digests and not selection.everything and all(condition is None for condition in narrowed):
        raise UsageError("no builds selected: give digests, --kind, --model, --older-than DAYS, or --all --yes")
    candidates: tuple[Candidate, ...] = (*contents.builds, *contents.broken)
    by_digest: set[Path] = set()
    for digest in selection.digests:
        folders = [build.folder for build in candidates if digest and build.folder.name.startswith(digest)]
        if not folders:
            raise UsageError(f"no build has a digest that begins with {digest!r}: see {as_typed('cache')} list")
        if len(folders) > 1:
            names = ", ".join(f"{folder.parent.name}/{folder.name}" for folder in folders[:4])
            raise UsageError(
                f"{len(folders)} builds have digests that begin with {digest!r}: {names}: give more digits"
            )
        by_digest |= set(folders)
    kinds = sorted({build.folder.parent.name for build in candidates})
    models = sorted({build.model_id for build in candidates if build.model_id is not None})
    for flag, word, known in (("--kind", selection.kind, kinds), ("--model", selection.model, models)):
        if word is not None and word not in known:  # a typo must not silently delete nothing
            raise UsageError(f"{flag} {word}: no such build; found {', '.join(known) or 'no builds'}")
    now_s = time.time()
    least_age_s = None if selection.older_than_days is None else selection.older_than_days * SECONDS_PER_DAY
    selected = [
        build
        for build in candidates
        if (not selection.digests or build.folder in by_digest)
        and selection.kind in (None, build.folder.parent.name)
        and selection.model in (None, build.model_id)
        and (least_age_s is None or now_s - build.last_used_s >= least_age_s)
    ]
    if selection.everything and not confirmed:
        size = size_text(sum(build.size_bytes for build in selected))
        raise UsageError(f"--all would delete {len(selected)} builds, {size}: add --yes to confirm")
    return tuple(build.folder for build in selected)


@dataclass(frozen=True, slots=True, kw_only=True)
class Freed:
    count: int
    size_bytes: int
    in_use: tuple[Path, ...] = ()
    """Folders locked by another process, which were kept."""


def delete_folders(root: Path, folders: Sequence[Path]) -> Freed:
    """Delete folders of builds, each `root`/kind/digest. Raises StorageError."""
    count = size_bytes = 0
    in_use: list[Path] = []
    for folder in folders:
        _check_path(root, folder)
        with storage_errors(f"cannot delete {folder}"), _locked(lock_of(folder)) as is_held:
            if not is_held:
                in_use.append(folder)
                continue
            if not folder.exists():  # meanwhile deleted by another process
                continue
            freed_bytes = folder_bytes(folder)
            _remove(folder)
        count, size_bytes = count + 1, size_bytes + freed_bytes
    return Freed(count=count, size_bytes=size_bytes, in_use=tuple(in_use))


def sweep_leftovers(root: Path, contents: Contents) -> Freed:
    """Delete incomplete builds and lock files that no process holds. Raises StorageError."""
    folders = [one for one in contents.leftovers if one.path != one.lock]
    locks = [one for one in contents.leftovers if one.path == one.lock]
    count = size_bytes = 0
    for leftover in (*folders, *locks):  # locking a folder creates its lock file: locks last
        _check_path(root, leftover.path)
        with storage_errors(f"cannot delete {leftover.path}"), _locked(leftover.lock) as is_held:
            if not is_held or not leftover.path.exists():  # in use, or meanwhile a complete build
                continue
            if leftover.path != leftover.lock:
                _remove(leftover.path)
        count, size_bytes = count + 1, size_bytes + leftover.size_bytes
    return Freed(count=count, size_bytes=size_bytes)


def _remove(path: Path) -> None:
    """Delete a build, starting with its record, so that an incomplete build is never found."""
    if not path.is_dir():
        path.unlink()
        return
    (path / RECORD).unlink(missing_ok=True)
    shutil.rmtree(path)


def _check_path(root: Path, path: Path) -> None:
    """Raise StorageError unless the path is two levels below the root, with no link on the way."""
    if path.parent.parent != root or ".." in path.parts or path.is_symlink() or path.parent.is_symlink():
        raise StorageError(f"{path} is not a build in the cache {root}: not deleted")


@contextmanager
def _locked(lock: Path) -> Iterator[bool]:
    """Yields whether a lock is free. If so, it is held inside, and its file is deleted at the end; a process waiting
    for it creates a new one."""
    from filelock import FileLock, Timeout

    try:
        with FileLock(lock, timeout=0):
            yield True
            with suppress(PermissionError):  # Windows deletes an open file when it is closed
                lock.unlink(missing_ok=True)
    except Timeout:
        yield False


@contextmanager
def lean_cache(*, is_lean: bool, say: Callable[[str], None]) -> Iterator[None]:
    """At the end, also after an error, delete the builds that this process and its workers made inside.

    Older builds and those of other commands are kept. `say` is called with a line about the freed space.
    """
    if not is_lean:
        yield
        return
    with temporary_folder("benchhouse-builds") as folder:
        list_file = folder / "made"
        try:
            with environment_variable(MADE_VARIABLE, str(list_file)):
                yield
        finally:
            root = BuildStore().root
            lines = list_file.read_text(encoding="utf-8").split() if list_file.exists() else []
            folders = [root.joinpath(*line.split("/")) for line in dict.fromkeys(lines)]
            freed = delete_folders(root, [folder for folder in folders if folder.exists()])
            kept = f"; {len(freed.in_use)} in use elsewhere, kept" if freed.in_use else ""
            builds = "build" if freed.count == 1 else "builds"
            say(f"lean cache: {freed.count} {builds} deleted, {size_text(freed.size_bytes)} freed{kept}")
