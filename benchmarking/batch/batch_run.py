"""Runs a batch: interleaves the launches of its cells, saves and stores each run when it is done, and logs every
step.

The manifest of a batch has its plans and which runs are stored, so that an interrupted batch can be resumed.
`batch_<session>.manifest.jsonl` exists while a batch is unfinished. Its first line contains all plans; which cells are
started or finished follows from the run ids of the partial files and run files in the same folder.
"""

from __future__ import annotations

import dataclasses
import logging
import shlex
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from benchmarking.batch import summary as summaries
from benchmarking.batch.summary import BatchInfo, BatchState, BatchSummary, CellSummary
from benchmarking.core.command_line import note
from benchmarking.core.errors import FormatError, StorageError, UsageError, WorkersLostError, storage_errors
from benchmarking.core.provenance import this_process, utc_now
from benchmarking.core.records import Cell, Measurement, Run, dumps, from_json, to_json
from benchmarking.core.run_file import read_run
from benchmarking.core.storage_paths import absolute_database, database_exists, is_lake
from benchmarking.core.untrusted.redaction import expanded, redacted
from benchmarking.sweep.plan.plan import CellPlan, Machine, check_loaded_plan
from benchmarking.sweep.run import journal, spool
from benchmarking.sweep.run.command_session import Ingest, finish_run, store_run
from benchmarking.sweep.run.supervisor import Observer, Sweep, Track, has_failed, sweep
from benchmarking.sweep.show.compared_runtimes import comparisons, condensed
from benchmarking.sweep.show.progress import Progress, cell_name, observed
from benchmarking.sweep.show.report import scalings

LOG = logging.getLogger(__name__)
WRITE_PAUSE = 20
"""Minimum interval between two summaries of a running batch, as a multiple of the time to write one. With a thousand
cells, half of the time would otherwise be spent on summaries."""


class Recorder(Progress):
    """Logs launches and finished points, too."""

    def preparing(self, track: Track, what: str) -> None:
        LOG.info("%s: preparing %s", cell_name(track.plan.cell), what)
        super().preparing(track, what)

    def launch(self, track: Track, launch: int) -> None:
        LOG.info("%s: launch %d of %d", cell_name(track.plan.cell), launch + 1, track.plan.settings.launches)
        super().launch(track, launch)

    def measured(self, track: Track, measurement: Measurement) -> None:
        where = f"{cell_name(track.plan.cell)}: {measurement.point.label}, launch {measurement.launch + 1}"
        level = logging.ERROR if has_failed(measurement) else logging.INFO
        why = "" if measurement.error is None else f": {measurement.error}"
        LOG.log(level, "%s: %s%s", where, measurement.status.replace("_", " "), why)
        super().measured(track, measurement)

    def waiting(self, message: str) -> None:
        LOG.info(message)
        super().waiting(message)


class Batch:
    """The cells of a manifest, measured by one sweep into run files and the database."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        ingest: Ingest | None,
        *,
        quiet: bool,
        device_wait_s: float | None = None,
        cluster: Sweep | None = None,
    ) -> None:
        self.folder = folder
        self.manifest = manifest
        self._ingest = ingest
        self._observer = Observer()
        self._quiet = quiet
        self._device_wait_s = device_wait_s
        self._on_cluster = cluster is not None
        self._sweep: Sweep = sweep if cluster is None else cluster
        self._cells = {plan.run_id: summaries.summary_without_results(plan) for plan in manifest.plans}
        self._condensed: list[Run] = []
        self._next_write_s = 0.0

    @property
    def cells(self) -> tuple[CellSummary, ...]:
        """The current state of every cell, in the order of the plan."""
        return tuple(self._cells.values())

    def start(self) -> BatchSummary:
        """Measure all cells. Raises KeyboardInterrupt after saving everything measured, and StorageError."""
        LOG.info("batch %s of %d cells started in %s", self.manifest.info.session_id, len(self._cells), self.folder)
        return self._measure([Track(plan, self.folder) for plan in self.manifest.plans])

    def resume(self, machine: Machine, arguments: Mapping[str, object] | None = None) -> BatchSummary:
        """Resume: store what was finished, finish what was started, start the rest. `arguments` are the command's
        arguments: see `check_loaded_plan`, which raises for a plan that may not be run."""
        for plan in self.manifest.plans:
            check_loaded_plan(plan, arguments or {}, str(self.manifest.path))
        self.manifest.claim()
        LOG.info("batch %s resumed", self.manifest.info.session_id)
        plans = {plan.run_id: plan for plan in self.manifest.plans}
        session_id = self.manifest.info.session_id
        unfinished_files = spool.readable(spool.unfinished(self.folder), lambda error: note(str(error)))
        own = [file for file, plan in unfinished_files if plan.run_id in plans or plan.session_id == session_id]
        with spool.held(own) as files:
            partial = {file.read().plan.run_id: file for file in files}
            # Read afterwards, to contain the runs that another process has just finished.
            finished = run_files(self.folder)
            # Runs of the batch that are not in the manifest continue points on other hardware.
            saved = {run_id for run_id, path in finished.items() if spool.ids_in(path) == (run_id, session_id)}
            tracks = []
            for run_id in (*plans, *sorted((saved | partial.keys()) - plans.keys())):
                file, path = partial.get(run_id), finished.get(run_id)
                if file is not None and path in (None, file.final_path):
                    path = file.run_file()
                if path is not None:
                    run = read_run(path).run
                    if run.run_id in self.manifest.stored or self._ingest is None:
                        stored = True if self._ingest else None
                        self._cells[run.run_id] = summaries.cell_summary(run, path, stored=stored)
                        self._condensed.append(condensed(run))
                    else:
                        self._store(run, path)
                    if file is not None:
                        file.remove()
                elif file is not None:
                    tracks.append(Track.resume(file, arguments, on_cluster=self._on_cluster))
                elif run_id in self.manifest.stored:
                    pending = summaries.summary_without_results(plans[run_id], "stored")
                    self._cells[run_id] = dataclasses.replace(pending, stored=True)
                else:  # with the current commit, versions and state of the machine
                    plan = plans[run_id]
                    old = plan.provenance
                    provenance = machine.provenance(old.command, old.tags, old.description)
                    now = dataclasses.replace(plan, provenance=provenance, environment=machine.environment)
                    tracks.append(Track(now.anonymous() if plan.is_anonymous else now, self.folder))
            return self._measure(tracks)

    def _measure(self, tracks: Sequence[Track]) -> BatchSummary:
        self._write("running")
        try:
            with observed(tracks, quiet=self._quiet, shown_by=Recorder) as self._observer:
                self._sweep(tracks, self._observer, self._finish, device_wait_s=self._device_wait_s)
        except (KeyboardInterrupt, StorageError, WorkersLostError) as error:
            LOG.warning(str(error) or "interrupted")
            with suppress(StorageError):  # of a disk that is full
                self._write("interrupted")
            raise
        if all(cell.stored is not False for cell in self.cells):
            self.manifest.close()
        written = self._write("finished")
        LOG.info("batch %s finished: %s", self.manifest.info.session_id, dict(written.cells_by_status))
        return written

    def _finish(self, track: Track) -> None:
        """Finish and store a run after its last launch."""
        self._observer.close()
        saved = finish_run(track)
        LOG.info("finished %s: %s: %s", cell_name(saved.run.cell), saved.run.status, saved.path.name)
        self._store(saved.run, saved.path)
        if time.monotonic() >= self._next_write_s:
            self._write("running")

    def _store(self, run: Run, path: Path) -> None:
        self._condensed.append(condensed(run))
        problem = store_run(path, self._ingest)
        stored = None if self._ingest is None else problem is None
        if problem is not None:
            LOG.error("not stored: %s: %s", path.name, problem)
        elif stored:
            self.manifest.note_stored(run.run_id)
            LOG.info("stored %s", path.name)
        self._cells[run.run_id] = summaries.cell_summary(run, path, stored=stored, why_not_stored=problem)

    def _write(self, status: BatchState) -> BatchSummary:
        began_s = time.monotonic()
        is_over = status != "running"
        info, runs = self.manifest.info, self._condensed if is_over else []
        written = BatchSummary(
            session_id=info.session_id,
            command=info.command,
            status=status,
            started_at=info.started_at,
            finished_at=utc_now() if is_over else None,
            database=info.db_path,
            cells_by_status=dict(Counter(cell.status for cell in self.cells)),
            cells=self.cells,
            comparisons=comparisons(runs),
            scalings=scalings(runs),
        )
        summaries.write(self.folder, written)
        ended_s = time.monotonic()
        self._next_write_s = ended_s + WRITE_PAUSE * (ended_s - began_s)
        return written


SUFFIX = ".manifest.jsonl"
FORMAT = "benchhouse-batch"
VERSION = 1


class Manifest:
    """The file of an unfinished batch."""

    def __init__(
        self, held: journal.Hold, info: BatchInfo, plans: tuple[CellPlan, ...], stored: frozenset[str], lines: int
    ) -> None:
        self.path = held.path
        self._held = held
        self._lines = lines
        self.info = info
        self.plans = plans
        self.stored = set(stored)
        """Run ids of the runs in the database."""

    @classmethod
    def create(cls, folder: Path, info: BatchInfo, plans: tuple[CellPlan, ...]) -> Manifest:
        """A new batch in `folder`. Raises StorageError."""
        is_anonymous = all(plan.is_anonymous for plan in plans)
        content = redacted({"about": to_json(info), "plans": to_json(plans)}, anonymous=is_anonymous)
        header = {"format": FORMAT, "version": VERSION, **content}
        path = folder / _name(info.session_id)
        return cls(journal.create([path], header, lambda path: True), info, plans, frozenset(), 0)

    @classmethod
    def open(cls, path: Path) -> Manifest | None:
        """The batch of a file, which is locked until `release`; None if another process has finished it. Raises
        LockedError while another process continues it, FormatError, StorageError."""
        held = journal.hold(path)
        if held is None:
            return None
        try:
            records = journal.read(path, FORMAT, VERSION, "an unfinished batch")
            info = from_json(BatchInfo, expanded(records[0].get("about")), f"{path}: about")
            if path.name != _name(info.session_id):  # the name of the log contains the id too
                raise FormatError(f"{path}: not the manifest of session {info.session_id!r}: restore its file name")
            noted = [record["Stored"] for record in records if "Stored" in record]
            plans = from_json(tuple[CellPlan, ...], expanded(records[0].get("plans")), f"{path}: plans")
            stored = frozenset(from_json(tuple[str, ...], noted, f"{path}: stored"))
            return cls(held, info, plans, stored, len(records))
        except BaseException:
            held.release()
            raise

    def release(self) -> None:
        """End the lock."""
        self._held.release()

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(plan.cell for plan in self.plans)

    def owns(self, path: str, also: str | None = None) -> bool:
        """Whether a path is in the folder of this file, following links, or is `also`. A DuckLake is not in any
        folder."""
        if is_lake(path):
            return also is not None and absolute_database(also) == path
        resolved = Path(path).resolve()
        return resolved.is_relative_to(self.path.parent.resolve()) or (
            also is not None and resolved == Path(also).resolve()
        )

    def own_path(self, path: str | None, flag: str, *, also: str | None = None) -> str | None:
        """A path from this file that a resumed batch may write to: in its folder, or `also`, the command's default.

        Raises UsageError for any other path, which must be given on the command line.
        """
        if path is None or self.owns(path, also):
            return path
        where, how = "outside its folder", f"to use it, repeat {flag} {shlex.quote(path)}"
        if also is not None and Path(also).name == Path(path).name and database_exists(also):  # moved or copied
            here = f"to use {also}, add {flag} {shlex.quote(also)}"
            is_copied = database_exists(path)  # else the old path would make another one
            where, how = (where, f"{here}; {how}") if is_copied else ("which is not there any more", here)
        raise UsageError(f"--resume: {self.path} refers to {path}, {where}: {how}")

    def claim(self) -> None:
        """Record this process as the owner of the batch. Raises StorageError."""
        if (copy := journal.repair(self.path, self._lines)) is not None:
            line = self._lines + 1
            note(f"{self.path}: repaired: it ends before line {line}, which is damaged; {copy.name} has all lines")
        self._append("Owner", this_process())

    def note_stored(self, run_id: str) -> None:
        """Record that a run is in the database. Raises StorageError."""
        self.stored.add(run_id)
        self._append("Stored", run_id)

    def close(self) -> None:
        """Delete the manifest of a complete batch. Raises StorageError."""
        with storage_errors(f"cannot remove {self.path}"):
            self.path.unlink()
        self.release()

    def _append(self, name: str, content: object) -> None:
        with storage_errors(f"cannot write to {self.path}"):
            journal.append(self.path, name, dumps(content))


def _name(session_id: str) -> str:
    return f"batch_{session_id}{SUFFIX}"


def unfinished(folder: Path) -> Sequence[Path]:
    """The manifests in a folder, newest first: their names contain the time."""
    return sorted(folder.glob(f"batch_*{SUFFIX}"), reverse=True)


def run_files(folder: Path) -> dict[str, Path]:
    """The finished runs in a folder by run id."""
    return {ids[0]: path for path in folder.glob("*.json") if (ids := spool.ids_in(path)) is not None}
