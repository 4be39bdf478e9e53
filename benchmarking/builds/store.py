"""Builds on disk, each in a folder named by the hash of everything that it was made from.

    <cache folder>/builds/<kind>/<digest>/build.json and the build's files

A build is made in a temporary folder under a lock and renamed when it is complete, so a build found under its digest is
always complete. It never changes afterwards; other inputs have another digest.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import field
from pathlib import Path

from benchmarking.core.command_line import note
from benchmarking.core.errors import BenchhouseError, FormatError, StorageError, storage_errors
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.provenance import utc_now
from benchmarking.core.records import Json, Rebuild, Workload, canonical_hash, dumps, from_json
from benchmarking.core.temporary import temporary_folder
from benchmarking.core.untrusted.input_files import read_json

BUILDS = "builds"
"""The folder of all builds in a cache folder."""
RECORD = "build.json"

MAX_RECORD_BYTES = 16_000_000

CACHE_VARIABLE = "BENCHHOUSE_CACHE_DIR"
OTHER_CACHE = "choose another with --cache-dir"
"""What to do about a cache folder that cannot be used."""

MADE_VARIABLE = "BENCHHOUSE_MADE_BUILDS"
"""Environment variable with the path of a file that lists new builds, one kind/digest per line."""

DIGEST_LENGTH = 32
"""Hex digits of SHA-256 in a folder's name: 128 bits do not collide by chance, and paths stay short."""

SILENT_S = 2.0
"""Time to wait for another process before that is said."""

Make = Callable[[Path], Mapping[str, Json]]
"""Fills an empty folder and returns the build's facts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildKey:
    """Everything that a build depends on: equal keys are the same build."""

    kind: str
    """onnx, openvino, reference, ...: the folder above."""
    parts: Mapping[str, Json]
    """Model, weights, input signature, precision, exporter and versions, by readable name."""

    @property
    def digest(self) -> str:
        """The name of the build's folder."""
        return canonical_hash({"kind": self.kind, **self.parts})[:DIGEST_LENGTH]


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """A build in the cache: the content of its `build.json`."""

    kind: str
    digest: str
    parts: Mapping[str, Json]
    made_at: str
    """UTC, ISO 8601."""
    build_s: float
    """Seconds it took to make."""
    size_bytes: int
    """Of all its files."""
    facts: Mapping[str, Json] = field(default_factory=dict)
    """Facts returned by its maker: exporter, file names, ..."""


class BuildStore:
    """The builds of one cache folder. Constructing it reads and writes nothing."""

    def __init__(self, cache_dir: Path | None = None, *, say: Callable[[str], None] = note) -> None:
        """`say` is told of a build that another process makes, which is waited for."""
        self.root = (cache_dir or default_cache_dir()) / BUILDS
        self._say = say

    def folder(self, key: BuildKey) -> Path:
        """The folder of a build, whether or not it exists."""
        return self.root / key.kind / key.digest

    def find(self, key: BuildKey) -> Build | None:
        """The build of a key, or None. Updates its time of last use. Raises FormatError for an invalid record."""
        return self.find_digest(key.kind, key.digest)

    def find_digest(self, kind: str, digest: str) -> Build | None:
        """Like `find`, by digest. Also raises StorageError for a cache that cannot be read, as that of another user."""
        record = self.root / kind / digest / RECORD
        with storage_errors(f"cannot read the build cache {self.root}", OTHER_CACHE):
            if not record.exists():
                return None
        with suppress(OSError):  # the cache may be read-only
            os.utime(record)
        try:
            return read_record(record)
        except StorageError as error:
            if not record.exists():  # deleted by another process in the meantime
                return None
            raise FormatError(
                f"{record}: invalid record of a build ({error}): delete its folder, or use --rebuild always"
            ) from error

    def require(self, key: BuildKey, subject: str) -> tuple[Path, Build]:
        """The folder and record of a build that was prepared. Raises BenchhouseError when it is missing."""
        if (build := self.find(key)) is None:
            raise BenchhouseError(
                f"no {key.kind} build of {subject} ({key.digest}) in {self.root}: it was deleted during the run: run "
                "it again"
            )
        return self.folder(key), build

    def get(self, key: BuildKey, make: Make, rebuild: Rebuild = "if_needed") -> tuple[Build, bool]:
        """The build of a key, which is made if missing, and whether it was made now.

        `rebuild` "always" makes it again, "never" raises BenchhouseError when it is missing. Raises StorageError when
        it cannot be written; an error of `make` passes through and leaves nothing behind.
        """
        if rebuild != "always" and (build := self.find(key)) is not None:
            return build, False  # without the lock, which a read-only cache does not have
        with self._lock(key), ExitStack() as stack:
            if rebuild != "always" and (build := self.find(key)) is not None:
                return build, False
            if rebuild == "never":
                raise BenchhouseError(
                    f"no {key.kind} build of {key.parts.get('model_id', 'this')} ({key.digest}) in {self.root}, and "
                    "--rebuild never does not permit making one: remove --rebuild"
                )
            folder = self.folder(key)
            with self._storage_errors():
                temporary = stack.enter_context(temporary_folder(f".{key.digest}", folder.parent))
            started_s = time.monotonic()
            facts = make(temporary)
            with self._storage_errors():
                build = self._write_record(key, temporary, time.monotonic() - started_s, facts)
                temporary.chmod(0o755)
                existed = folder.exists()
                if existed:
                    (folder / RECORD).unlink(missing_ok=True)  # first, so that an incomplete build is never found
                    shutil.rmtree(folder)
                temporary.rename(folder)
                if not existed:
                    _note_made(key)
            return build, True

    def get_all(self, builds: Iterable[tuple[BuildKey, Make]], rebuild: Rebuild) -> list[tuple[Build, bool]]:
        """`get` for each of several keys; equal ones are one build."""
        by_digest = {key.digest: (key, make) for key, make in builds}
        return [self.get(key, make, rebuild) for key, make in by_digest.values()]

    def empty_folder(self, key: BuildKey) -> Path:
        """An empty folder in the place of a build, for a cache that is filled during use; `keep` turns it into a
        build."""
        folder = self.folder(key)
        with self._lock(key), self._storage_errors():
            is_new = not folder.exists()
            (folder / RECORD).unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True, exist_ok=True)
            if is_new:
                _note_made(key)
        return folder

    def keep(self, key: BuildKey, *, build_s: float, facts: Mapping[str, Json]) -> Build:
        """Turn the folder in a build's place into the build."""
        with self._lock(key), self._storage_errors():
            return self._write_record(key, self.folder(key), build_s, facts)

    def _write_record(self, key: BuildKey, folder: Path, build_s: float, facts: Mapping[str, Json]) -> Build:
        build = Build(
            kind=key.kind,
            digest=key.digest,
            parts=dict(key.parts),
            made_at=utc_now(),
            build_s=build_s,
            size_bytes=sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and file.name != RECORD),
            facts=dict(facts),
        )
        new_record = folder / f".{RECORD}.new"
        new_record.write_text(dumps(build), encoding="utf-8")
        new_record.replace(folder / RECORD)  # atomic: the record is never read half-written
        return build

    @contextmanager
    def _lock(self, key: BuildKey) -> Iterator[None]:
        """Lets one process at a time make a build, while others wait."""
        from filelock import FileLock, Timeout

        folder = self.folder(key)
        lock = FileLock(lock_of(folder))
        with self._storage_errors():
            folder.parent.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(timeout=SILENT_S)
            except Timeout:
                self._say(f"the {key.kind} build {key.digest}, which another process is making: waiting for it")
                lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def _storage_errors(self) -> AbstractContextManager[None]:
        return storage_errors(f"cannot write to the build cache {self.root}", OTHER_CACHE)


def lock_of(folder: Path) -> Path:
    """The lock of the build in a folder, held while it is made."""
    return folder.with_name(f".{folder.name}.lock")


def default_cache_dir() -> Path:
    """`$BENCHHOUSE_CACHE_DIR`, or the user's cache folder on this platform."""
    configured = os.environ.get(CACHE_VARIABLE)
    if configured:
        return Path(os.path.expanduser(configured))
    from platformdirs import user_cache_path

    return user_cache_path("benchhouse", appauthor=False)


def _note_made(key: BuildKey) -> None:
    """Add a new build to the list of new builds, if there is one. A line this short is written atomically."""
    path = os.environ.get(MADE_VARIABLE)
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{key.kind}/{key.digest}\n")


def read_record(record: Path) -> Build:
    """The content of a build's record. Raises StorageError, or its subclass FormatError."""
    return from_json(Build, read_json(record, MAX_RECORD_BYTES), str(record))


WEIGHT_FILES = "**/*.safetensors"


def model_parts(workload: Workload) -> dict[str, Json]:
    """The parts of a key that identify the model and its weights.

    For a local folder they include the sizes and modification times of its weight files, because its revision depends
    only on names and sizes, which do not change when a retrained model is saved over it.
    """
    parts: dict[str, Json] = {
        "model_id": workload.model_id,
        "config_hash": workload.config_hash,
        "task": workload.task,
        "weights": workload.weights,
        "revision": workload.revision,
        "seed": workload.seed,
    }
    if workload.source == "local" and workload.path is not None and workload.weights == "pretrained":
        folder = Path(workload.path)
        files = [(file.relative_to(folder).as_posix(), file.stat()) for file in sorted(folder.glob(WEIGHT_FILES))]
        parts["files"] = [[name, stat.st_size, stat.st_mtime_ns] for name, stat in files]
    return parts


def combined_facts(kind: str, made: Sequence[tuple[Build, bool]]) -> dict[str, Json]:
    """The combined facts of several builds, each given with whether it is new: those of the first and its `digest`, all
    `digests`, the sums `build_s` and `size_bytes`, and `is_new` if any is new; in the form of `Preparation.build`."""
    builds = [build for build, _ in made]
    facts: Mapping[str, Json] = builds[0].facts
    return {
        **facts,
        "kind": kind,
        "digest": builds[0].digest,
        "digests": [build.digest for build in builds],
        "build_s": sum(build.build_s for build in builds),
        "size_bytes": sum(build.size_bytes for build in builds),
        "is_new": any(is_new for _, is_new in made),
    }
