"""The warehouse: a DuckDB file or DuckLake that stores runs and answers queries as Arrow, pandas or dictionaries."""

from __future__ import annotations

import os
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from benchmarking.core import plugins
from benchmarking.core.command_names import as_typed
from benchmarking.core.errors import LockedError, StorageError, UsageError, storage_errors
from benchmarking.core.profiles import Profile
from benchmarking.core.provenance import naive_now
from benchmarking.core.records import Run
from benchmarking.core.run_file import read_file
from benchmarking.core.storage_paths import DATA_PATH, FILE_ENDING, LAKE, LakePlace, is_lake
from benchmarking.core.temporary import remove_leftovers, temporary_folder
from db import ingestion, lake, migrate, run_records
from db.connection import (
    ARROW_ROWS,
    FILE_FORMAT,
    LOG_ENDINGS,
    MEMORY,
    QUESTIONS,
    WRITER,
    Config,
    InvalidatedError,
    attached,
    connect,
    file_id,
    import_driver,
    lock,
    missing_database,
    new_database,
    quoted,
    translate_errors,
)
from db.file_copy import (
    copy_unlocked,
    errors_naming,
    keep_old,
    keep_unread_log,
    make_folder,
    publish,
    remove_temporary_files,
    share_as,
    temporary_sibling,
    turn,
)
from db.ingestion import FileRuns, Replaced, ingest_files, insert_profiles, store
from db.rows import Row, Table

if TYPE_CHECKING:
    from db.connection import DuckDB

REPLACED_PAUSE_S = 0.2
"""Time that a replaced file stays locked, in seconds: a process that has opened it but not locked it yet then
retries."""

COPY_FOLDER = "benchhouse-copy"
KEPT_BYTES = 50_000_000
"""Of the answers that `Warehouse.keep_answers` keeps."""
BYTES_BESIDE = 1000
"""What an answer takes beside its values and its statement, and again for each of its columns, about."""
READER_WAIT_S = 0.2
"""Time that a reader waits for a file that is being written, in seconds: longer than storing a run takes. After it,
the reader gets a copy."""
RESTART_S = 10.0
"""Time that readers of a lake wait for its server to come back, in seconds."""

T = TypeVar("T")
Parameters = Sequence[object] | Mapping[str, object]


class OutdatedError(StorageError):
    """A database of another version that is not to be upgraded, such as one that is opened read-only."""

    def __init__(self, path: str, version: int) -> None:
        super().__init__(
            f"{path} was written by another version of this program (schema {version}), and is opened read-only: "
            f"upgrade it with {as_typed('setup')} --db-path {shlex.quote(path)}, or a copy of it if it cannot be "
            "written"
        )
        self.version = version


class Warehouse:
    """An open warehouse; close it, or use it in a `with` statement. Usable by several threads, not after a fork."""

    def __init__(
        self,
        connection: DuckDB,
        path: str,
        *,
        read_only: bool,
        of_lake: lake.Lake | None = None,
        file: str | None = None,
    ) -> None:
        """Takes ownership of an open connection; use `Warehouse.open`."""
        self._connection = connection
        self._lake = of_lake
        self._kept = ExitStack()
        self._pid = os.getpid()
        self._answers: Answers | None = None
        self.has_own_views = True
        """Whether the file's views are used; otherwise each cursor creates its own."""
        self.path = path
        """Its name in messages."""
        self.file = path if file is None else file
        """Path for another connection to open: the file, or its copy."""
        self.read_only = read_only
        self.file_version: int | None = None
        """The schema version of the file that this is an upgraded copy of; None if it is the file itself."""

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        read_only: bool = False,
        for_questions: bool = False,
        lock_timeout_s: float = 30.0,
        create: bool = True,
        keeps_old: bool = True,
    ) -> Warehouse:
        """The warehouse in the file `path` (":memory:" for a temporary one, or a DuckLake), upgraded to this version.

        Before an upgrade, a copy of the old file is kept beside it, unless `keeps_old` is False, for a temporary file.
        `for_questions` is for the user's SQL (`db.query.questions`): read-only, without access to other files. A
        missing file is created, unless `create` is False or it is opened read-only. One writer or several readers may
        have a file open. A writer waits up to `lock_timeout_s`, then raises LockedError. A reader waits a moment, then
        gets a snapshot (`open_copy`). Raises FormatError for a file that is not a warehouse or too new, StorageError
        for a file that cannot be opened.
        """
        name = str(path)
        if read_only or for_questions:
            place = LakePlace.parse(name) if is_lake(name) else None
            if place is not None and (place.is_postgres or for_questions):
                return cls.open_copy(name) if for_questions else cls._of_lake(place, lock_timeout_s)
            wait_s = min(lock_timeout_s, READER_WAIT_S)
            try:
                if place is not None:
                    return cls._of_lake(place, wait_s)
                return cls._of_file(name, name, QUESTIONS if for_questions else FILE_FORMAT, lock_timeout_s=wait_s)
            except LockedError:
                return cls.open_copy(name, for_questions=for_questions)
        if is_lake(name):
            of_lake = lake.Lake(place=LakePlace.parse(name), lock_timeout_s=lock_timeout_s)
            return of_lake.repeated(lambda: cls._prepared(of_lake, read_only=False, create=create), is_opening=True)
        if name == MEMORY:
            return cls._of_file(name, name, WRITER, lock_timeout_s=lock_timeout_s)
        if os.name != "nt" and "?" in (file := os.path.abspath(name)):  # it puts ".wal" before it
            raise UsageError(f"{file}: DuckDB cannot write a file with ? in its path: choose another path, or move it")
        import_driver()
        import pyarrow  # noqa: F401 - before the turn: imports take longer than storing a run

        with ExitStack() as stack:
            left_s = stack.enter_context(turn(name, lock_timeout_s))
            if create and not os.path.exists(name):
                _create(Path(name))
            keep_unread_log(name, lock_timeout_s=left_s)
            waited_s = lock_timeout_s - left_s
            try:
                warehouse = cls._of_file(name, name, WRITER, lock_timeout_s=left_s, waited_s=waited_s)
            except OutdatedError as error:
                if keeps_old:
                    keep_old(Path(name).resolve(), error.version, lock_timeout_s=left_s)
                warehouse = cls._of_file(name, name, WRITER, lock_timeout_s=left_s, waited_s=waited_s, upgrades=True)
            remove_leftovers(Path(name).resolve().parent)
            remove_temporary_files(name)
            warehouse._kept = stack.pop_all()
        return warehouse

    @classmethod
    def open_copy(cls, path: str | Path, *, for_questions: bool = True) -> Warehouse:
        """A snapshot of the warehouse, read-only and temporary; it neither blocks writers nor waits for them.
        `for_questions` is as in `open`. Raises StorageError."""
        name = str(path)
        with ExitStack() as stack:
            try:
                folder = stack.enter_context(temporary_folder(COPY_FOLDER))
            except OSError as error:
                raise StorageError(f"no folder for a copy of {name}: {error.strerror}: {error.filename}") from error
            if is_lake(name):
                warehouse = cls._copy_of_lake(LakePlace.parse(name), folder, for_questions=for_questions)
            else:
                copy = copy_unlocked(Path(name), folder)
                config = QUESTIONS if for_questions else FILE_FORMAT
                warehouse = cls._of_file(str(copy), name, config, lock_timeout_s=0.0)
            warehouse._kept = stack.pop_all()
        return warehouse

    @classmethod
    def _copy_of_lake(cls, place: LakePlace, folder: Path, *, for_questions: bool) -> Warehouse:
        """The lake, read through a copy of its catalog if that is a file; for the user's SQL, a copy of its tables."""
        source = place
        if not place.is_postgres:
            catalog_copy = copy_unlocked(Path(place.catalog), folder, FILE_ENDING)
            data = f"{DATA_PATH}{place.data_path}" if place.data_path else ""
            source = LakePlace.parse(f"{LAKE}{catalog_copy}{data}")
        with errors_naming(place.name, source.name):
            opened = cls._of_lake(source, RESTART_S)
            opened.path = place.name
            if not for_questions:
                return opened
            copy = folder / "copy.duckdb"
            with opened:
                opened._copied(lake.copy_for_questions, copy)
        connection = connect(str(copy), QUESTIONS, read_only=True, lock_timeout_s=0.0)
        return cls(connection, place.name, read_only=True, file=str(copy))

    @classmethod
    def _of_lake(cls, place: LakePlace, lock_timeout_s: float) -> Warehouse:
        """The lake, for reading. Waits a moment for a server that is restarting."""
        of_lake = lake.Lake(place=place, lock_timeout_s=min(lock_timeout_s, RESTART_S))
        return of_lake.repeated(lambda: cls._prepared(of_lake, read_only=True, create=False), is_opening=True)

    @classmethod
    def _of_file(
        cls,
        file: str,
        name: str,
        config: Config,
        *,
        lock_timeout_s: float,
        waited_s: float = 0.0,
        upgrades: bool = False,
    ) -> Warehouse:
        """The warehouse in a file that messages call `name`; read-only unless `config` is for a writer. An older schema
        raises OutdatedError, unless the file is to be upgraded."""
        read_only = config is not WRITER
        if file != MEMORY and not os.path.exists(file):
            if os.path.islink(file):
                raise StorageError(f"{name} is a link that leads to no file: remove it, or choose another path")
            raise missing_database(name)
        with errors_naming(name, file):
            connection = connect(
                file, config, read_only=read_only, lock_timeout_s=lock_timeout_s, locked=False, waited_s=waited_s
            )
        return cls(connection, name, read_only=read_only, file=file)._prepare(upgrades=upgrades)

    @classmethod
    def _prepared(cls, of_lake: lake.Lake, *, read_only: bool, create: bool) -> Warehouse:
        connection = lake.connect(of_lake, read_only=read_only, create=create)
        return cls(connection, of_lake.place.name, read_only=read_only, of_lake=of_lake)._prepare()

    @classmethod
    def overwrite(cls, path: str | Path, *, lock_timeout_s: float = 30.0) -> Warehouse:
        """An empty warehouse in the file; a warehouse of any version in it is deleted.

        The file is emptied under its lock instead of replaced, so no other process can be writing to it. Raises like
        `open`; a file that is not a warehouse is left unchanged.
        """
        name = str(path)
        if is_lake(name):
            of_lake = lake.Lake(place=LakePlace.parse(name), lock_timeout_s=lock_timeout_s)

            def clear() -> None:
                with translate_errors(name), lake.connect(of_lake, read_only=False, create=True) as connection:
                    migrate.refuse_foreign(connection, name, is_lake=True, is_overwritten=True)
                    with of_lake.transaction(connection):
                        migrate.drop_everything(connection)
                of_lake.end_watch()

            of_lake.repeated(clear)
        elif os.path.exists(name):
            with (
                translate_errors(name),
                turn(name, lock_timeout_s) as left_s,
                connect(name, WRITER, read_only=False, lock_timeout_s=left_s, locked=False) as connection,
            ):
                migrate.refuse_foreign(connection, name, is_overwritten=True)
                migrate.clear(connection)
        return cls.open(name, lock_timeout_s=lock_timeout_s)

    @classmethod
    def compact(cls, path: str | Path, *, lock_timeout_s: float = 30.0) -> tuple[int, int]:
        """Rewrite the file without the free blocks that storing leaves in it, about half of its size; returns its size
        in bytes before and after. In a lake, small files are joined, and data that only snapshots older than a day need
        is deleted.

        A copy is made under the lock and replaces the file in one step, so a kill leaves the old file or the new one.
        Raises like `open`; the file must exist. Raises StorageError on Windows, where an open file cannot be replaced.
        """
        if is_lake(path):
            with cls.open(path, lock_timeout_s=lock_timeout_s, create=False) as opened:
                return opened.repeated(opened._compact_lake)
        if os.name == "nt":
            raise StorageError(
                f"{path}: Windows cannot replace a locked file: make a compact copy with {as_typed('setup')} --backup"
            )
        file = Path(path).resolve() if os.path.exists(path) else Path(path)
        with turn(file, lock_timeout_s) as left_s:  # from here on, no other process compacts it
            before = file.stat().st_size if file.exists() else 0
            cls.open(file, lock_timeout_s=left_s, create=False).close()  # writes its log into it
            with (
                cls._of_file(str(file), str(file), FILE_FORMAT, lock_timeout_s=left_s) as reader,
                temporary_sibling(file) as part,
            ):
                if any(os.path.exists(f"{file}{ending}") for ending in LOG_ENDINGS):
                    raise StorageError(f"{file}: its log was left by a process that was just killed: try again")
                file_before = file_id(str(file))
                reader._copy_to(part)
                if file_id(str(file)) != file_before:
                    raise StorageError(f"{file} was replaced by another process: try again")
                with storage_errors(f"{file} cannot be replaced"):
                    share_as(file, part)
                    part.replace(file)
                time.sleep(REPLACED_PAUSE_S)
            return before, file.stat().st_size

    def __enter__(self) -> Warehouse:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; every ingested run is in it."""
        with translate_errors(self.path), self._kept:
            if self._lake is None:
                self._connection.close()
            else:
                self._lake.close(self._connection)

    @property
    def is_lake(self) -> bool:
        """Whether the warehouse is a DuckLake, which has no keys."""
        return self._lake is not None

    def lake_snapshot(self) -> int:
        """The number of the lake's newest snapshot; each change creates one."""
        return int(self.query(lake.SNAPSHOT).dicts()[0]["snapshot"])

    def ingest(self, run: Run, *, source: str | None = None, source_sha256: str | None = None) -> bool:
        """Store a run, completely or not at all; False if it, or its file (`source_sha256`), is already stored.

        Raises FormatError for NaN and infinity, for an unknown family or precision, and for a run with the id of a
        different one; StorageError if the file cannot be written; UsageError for what is no run.
        """
        if not isinstance(run, Run):
            raise UsageError(f"ingest takes a Run, as benchmark_model returns it: found {type(run).__name__}")
        return bool(self.ingest_all([run], source=source, source_sha256=source_sha256))

    def ingest_all(self, runs: Sequence[Run], *, source: str | None = None, source_sha256: str | None = None) -> int:
        """Store the runs of one file together, completely or not at all, like `ingest`; returns how many were new.

        The values of `LargeSamples` are released as soon as they are in the transaction.
        """
        return self.ingest_files([FileRuns(runs=runs, source=source, source_sha256=source_sha256)])[0]

    def ingest_files(self, files: Sequence[FileRuns]) -> list[int]:
        """Store the runs of several files in one transaction, all or none, like `ingest_all`; returns how many of each
        file were new."""
        return self.change(lambda connection: ingest_files(connection, files, releases_samples=not self.is_lake))

    def replace_runs(self, choose: Callable[[], tuple[Sequence[str], Sequence[FileRuns]]]) -> Replaced:
        """Store the runs of files in place of stored ones, and keep the notes and alerts about those.

        `choose` gives the ids of the stored ones, and the files. It is called in the transaction, so that no other
        machine changes in between what it reads. Raises like `ingest_files`, and then the stored ones are as before.
        """

        def replace(connection: DuckDB) -> Replaced:
            run_ids, files = choose()
            return ingestion.replace_runs(connection, run_ids, files, releases_samples=not self.is_lake)

        return self.change(replace)

    def remove_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the runs, with everything that refers to them. Raises StorageError, also for a run that is not stored
        any more, and then all are as before."""
        sql = "SELECT run_id FROM benchmark_runs WHERE run_id IN (SELECT unnest($runs))"
        tries: list[DuckDB] = []

        def remove(connection: DuckDB) -> None:
            stored = {run_id for (run_id,) in connection.execute(sql, {"runs": list(run_ids)}).fetchall()}
            gone = [run_id for run_id in run_ids if run_id not in stored]
            if gone and not tries:  # a later try may follow a commit whose answer was lost
                raise StorageError(f"run {gone[0]} was changed or deleted by another command: run this one again")
            tries.append(connection)
            ingestion.remove_runs(connection, run_ids)

        self.change(remove)

    def notes_about(self, run_ids: Sequence[str]) -> list[dict[str, Any]]:
        """The notes that `remove_runs` would delete with the runs: rows of the table annotations, in their order."""
        return self.query(ingestion.NOTES, {"runs": list(run_ids)}).dicts() if run_ids else []

    def alerts_about(self, run_ids: Sequence[str]) -> list[dict[str, Any]]:
        """The alerts that `remove_runs` would delete with the runs: rows of the table alerts, oldest first."""
        return self.query(ingestion.DELETED_ALERTS, {"runs": list(run_ids)}).dicts() if run_ids else []

    def ingest_profile(self, profile: Profile, *, source: str | None = None, source_sha256: str | None = None) -> bool:
        """Store a profile, completely or not at all; False if it, or its file (`source_sha256`), is already stored.

        Raises FormatError for an unknown family and for a different profile with the same id; StorageError.
        """
        plugins.check_family(profile.run.cell.workload.family, f"profile {profile.profile_id}")

        def store_new(connection: DuckDB) -> bool:
            if run_records.is_stored(connection, profile, source_sha256):
                return False
            now = naive_now()
            rows = run_records.profile_rows(profile, source=source, source_sha256=source_sha256, now=now)
            insert_profiles(connection, rows)
            return True

        return self.change(store_new)

    def take_profiles(self, rows: Mapping[str, Sequence[Row]]) -> None:
        """Store rows of another warehouse's profiles, by table, including their machines and series."""
        self.change(lambda connection: insert_profiles(connection, rows))

    def ingest_file(self, path: str | Path) -> bool:
        """Store the run or profile of a file, like `ingest`; raises FormatError for a bad file too."""
        return store(self, read_file(Path(path)))

    def query(self, sql: str, params: Parameters | None = None) -> Table:
        """The answer to a statement, or to the last of several, with `params` bound to its `?` or `$name`. One that
        changes something does, unless the warehouse is open for reading. Raises StorageError.

        On a lake that is open for reading, it is repeated while errors are temporary, as changes are.
        """

        def answer() -> Table:
            return self.repeated(lambda: self._query(sql, params)) if self.read_only else self._query(sql, params)

        return answer() if self._answers is None else self._answers.of((sql, repr(params)), answer)

    def keep_answers(self) -> None:
        """From now on, answer a statement that was asked before from memory: for a copy that nobody changes."""
        self._answers = Answers()

    def _query(self, sql: str, params: Parameters | None) -> Table:
        import pyarrow as pa

        with self.cursor() as cursor:
            # The relation of a statement with values holds its rows as constants, which take ten times as long to read.
            answer = cursor.execute(sql, params) if params else cursor.sql(sql)
            columns = () if answer is None else answer.description
            json_columns = [place for place, (_, kind, *_) in enumerate(columns) if kind == "JSON"]
            table = pa.table({}) if answer is None else answer.to_arrow_table(ARROW_ROWS)
            return Table(table, self.path, json_columns)

    @contextmanager
    def cursor(self) -> Iterator[DuckDB]:
        """A DuckDB cursor, for answers read in parts. Raises StorageError like `query`."""
        open_lake = self._lake
        with (
            self._using() as connection,
            connection.cursor() if open_lake is None else open_lake.cursor(connection) as cursor,
        ):
            if open_lake is not None:
                cursor.execute(f"USE {lake.NAME}")
            if not self.has_own_views:
                cursor.execute(migrate.temporary_views())
            yield cursor

    @contextmanager
    def transaction(self) -> Iterator[DuckDB]:
        """A connection inside a transaction, rolled back if anything raises. Writers of a lake wait for its lock."""
        begin = migrate.transaction if self._lake is None or self.read_only else self._lake.transaction
        with self._using() as connection, begin(connection):
            yield connection

    def change(self, work: Callable[[DuckDB], T]) -> T:
        """The result of `work` inside a transaction, which is repeated as a whole: see `repeated`."""

        def attempt() -> T:
            with self.transaction() as connection:
                return work(connection)

        return self.repeated(attempt)

    def repeated(self, change: Callable[[], T]) -> T:
        """The result of `change`, which is repeated for a lake while its errors are temporary.

        The answer to a commit may be lost, so a change must first check what it would add. Raises the last error, with
        the attempts made.
        """
        of_lake = self._lake
        if of_lake is None:
            return change()

        def attempt() -> T:
            try:
                return change()
            except InvalidatedError:
                other = self._prepared(of_lake, read_only=self.read_only, create=False)
                self._connection, self.has_own_views = other._connection, other.has_own_views
                raise

        return of_lake.repeated(attempt)

    @contextmanager
    def attached(self, path: str | Path, *, lock_timeout_s: float = 30.0) -> Iterator[str]:
        """Attach a warehouse of any version read-only; yields its name in SQL, to be quoted.

        Not inside a transaction. Waits and raises like `open`.
        """
        with self._using() as connection, attached(connection, str(path), lock_timeout_s=lock_timeout_s) as name:
            migrate.refuse_foreign(connection, str(path), name)
            yield name

    def backup(self, target: str | Path) -> None:
        """Copy everything into a new file, which appears only when complete. Raises StorageError."""
        target = Path(target)
        conflict = StorageError(f"{target} already exists: choose another path")
        if os.path.exists(target):
            raise conflict
        with temporary_sibling(target) as part:
            self._copy_to(part)
            if os.path.isfile(self.path):
                share_as(Path(self.path), part)
            if not publish(part, target):
                raise conflict

    def _copy_to(self, path: Path) -> None:
        if self._lake is not None:
            self._copied(lake.copy_to_file, path)
            return
        with self._using() as connection, new_database(connection, path) as copy:
            connection.execute(f"COPY FROM DATABASE {quoted(migrate.current_database(connection))} TO {quoted(copy)}")

    def _copied(self, copy: Callable[[DuckDB, Path], None], path: Path) -> None:
        """Copy a lake into a file, from the beginning if its server goes away meanwhile."""

        def attempt() -> None:
            with self._using() as connection:
                copy(connection, path)

        self.repeated(attempt)

    def _compact_lake(self) -> tuple[int, int]:
        assert self._lake is not None
        with self._using() as connection:
            return lake.compact(connection, self._lake)

    def _prepare(self, *, upgrades: bool = False) -> Warehouse:
        """This warehouse, after checking the file's objects, creating or upgrading the schema, and locking the
        settings; closed if anything raises."""
        with ExitStack() as if_refused, self._using() as connection:
            if_refused.callback(self.close)
            views = migrate.refuse_foreign(connection, self.path, is_lake=self.is_lake)
            is_fresh = False
            if self._lake is not None and not self.read_only:
                lake.prepare(connection, self._lake)
                views = migrate.stored_views(connection, migrate.current_database(connection))
            else:
                version = migrate.version_of(connection, self.path)
                if version < migrate.latest_version() and (self.read_only or (version and not upgrades)):
                    raise OutdatedError(self.path, version)
                is_fresh = not self.read_only and migrate.migrate(connection, self.path, before=version)
            lock(connection)
            self.has_own_views = is_fresh or migrate.are_own_views(views)
            if not self.has_own_views:  # views in the file that are not ours, such as those of an earlier release
                connection.execute(migrate.temporary_views())
            if_refused.pop_all()
        return self

    @contextmanager
    def _using(self) -> Iterator[DuckDB]:
        if os.getpid() != self._pid:
            # Writes by a forked child through its parent's connection seem to succeed but are lost.
            raise StorageError(f"{self.path}: opened in another process: open it again after the fork")
        with translate_errors(self.path):
            yield self._connection


class Answers:
    """The newest answers of an unchanging warehouse, by statement and values. Thread-safe."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], Table] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def of(self, asked: tuple[str, str], answer: Callable[[], Table]) -> Table:
        """The kept answer, or a new one."""
        if (table := self._kept.get(asked)) is None:
            table = answer()
            with self._lock:
                if self._kept.setdefault(asked, table) is table:
                    self._bytes += self._size(asked, table)
                while self._bytes > KEPT_BYTES:
                    oldest = next(iter(self._kept))
                    self._bytes -= self._size(oldest, self._kept.pop(oldest))
        return table

    @staticmethod
    def _size(asked: tuple[str, str], table: Table) -> int:
        """Bytes that an answer takes: many have hardly a value, but a statement of thousands of characters."""
        arrow = table.arrow()
        size: int = sum(map(len, asked)) + arrow.nbytes + BYTES_BESIDE * (1 + arrow.num_columns)
        return size


def _create(path: Path) -> None:
    """Create an empty warehouse at `path`, which appears only when complete.

    Otherwise two processes that open a missing file at once could leave an empty file, which DuckDB refuses. The second
    process discards its own file.
    """
    make_folder(path.parent)
    with temporary_sibling(path) as part:
        with (
            errors_naming(str(path), str(part)),
            translate_errors(str(path)),
            connect(str(part), WRITER, read_only=False, lock_timeout_s=0.0, locked=False) as connection,
        ):
            migrate.migrate(connection, str(path))
        publish(part, path)
