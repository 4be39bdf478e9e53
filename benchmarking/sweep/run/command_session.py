"""The session of a measuring command: plan, measure, write run files, store and show. Each run is stored right after
its last launch.

Commands import it with their flags, so it imports what measures when it measures. It uses the warehouse through
separate processes of `db.service`, so that the command itself stays small. Without duckdb, run files are kept and can
be loaded elsewhere.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from benchmarking.core import child_process
from benchmarking.core.command_line import default_database, flag_words, note
from benchmarking.core.command_names import as_typed
from benchmarking.core.errors import (
    EXIT_FAILED,
    EXIT_NOT_ENOUGH_DATA,
    EXIT_OK,
    EXIT_USAGE,
    BenchhouseError,
    LockedError,
    StorageError,
    UsageError,
    WorkersLostError,
)
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.provenance import MeasuredRun, utc_now
from benchmarking.core.quality import Quality
from benchmarking.core.records import Json, Run, from_json, to_json
from benchmarking.core.run_file import read_run
from benchmarking.core.shared_settings import DATABASE_WAIT_S
from benchmarking.core.storage_paths import check_database, check_folder, database_exists
from benchmarking.core.temporary import temporary_folder
from benchmarking.core.terminal import PLAIN, Page, stdout_page
from benchmarking.core.text import counted, wrapped
from benchmarking.core.untrusted.redaction import redacted, redacted_folder, redacted_record
from benchmarking.core.verdicts.words import EXIT_GATE_FAILED
from benchmarking.sweep.plan.plan import CellPlan, check_loaded_plan, code_flags, points_by_reason
from benchmarking.sweep.run import spool
from benchmarking.sweep.run.spool import PartialRun
from benchmarking.workloads.support.families import chosen_texts

if TYPE_CHECKING:
    from benchmarking.sweep.run.supervisor import Sweep, Track


@dataclass(frozen=True, slots=True, kw_only=True)
class Show:
    """How results are printed."""

    json: bool = False
    quiet: bool = False
    text: Callable[[Sequence[Run], Page], str] | None = None
    """The text of the finished runs; None for `tables`."""
    document: Callable[[Sequence[Run]], Json] | None = None
    """The JSON document of the finished runs; None for a list of them."""
    is_last: bool = True
    """False for runs whose document the caller prints with those of later ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    """Where plans are measured."""

    sweep: Sweep
    is_cluster: bool = False
    flags: tuple[str, ...] = ()
    """The flags with which another command measures there too."""


def local_executor() -> Executor:
    """Measures on this machine."""
    from benchmarking.sweep.run.supervisor import sweep

    return Executor(sweep=sweep)


def saving(arguments: argparse.Namespace) -> tuple[Path | None, Ingest | None]:
    """The folder of the run files, which is made, and what stores them, by a command's flags; both None without --save.
    Raises StorageError for a place that cannot be written to, before anything is measured."""
    if not arguments.save:
        return None, None
    check_folder(folder := Path(arguments.output_dir))
    ingest = database(arguments.db_path, arguments.lock_timeout, quiet=arguments.quiet)
    spool.prepare(folder)  # once the database is known to be one
    return folder, ingest


def check_saving(arguments: argparse.Namespace) -> None:
    """For a dry run: raise StorageError if its runs could not be saved."""
    if arguments.save:
        check_folder(Path(arguments.output_dir))
        check_database(arguments.db_path or default_database())


def run_plans(
    plans: Sequence[CellPlan],
    output_dir: Path | None,
    ingest: Ingest | None,
    show: Show,
    *,
    device_wait_s: float | None = None,
    finished: Callable[[Run], None] = lambda run: None,
    interrupted: Callable[[Sequence[Run]], None] = lambda runs: None,
    executor: Executor | None = None,
) -> int:
    """Measure plans and return the exit code, waiting for devices in use like `sweep`. Without an output folder nothing
    is saved. `finished` is called with each stored run, `interrupted` after an interruption with what was measured of
    all runs."""
    from benchmarking.sweep.run.supervisor import Track

    with spool.opened_folder(output_dir) as folder:
        note_choices(plans)
        tracks = [Track(plan, folder) for plan in plans]
        return _measure(
            tracks, output_dir is not None, ingest, show, device_wait_s, (), finished, interrupted, executor
        )


def measure_plans(plans: Sequence[CellPlan], executor: Executor | None = None) -> tuple[Run, ...]:
    """The runs of plans that are measured together; nothing is saved or printed."""
    from benchmarking.sweep.run.supervisor import Track
    from benchmarking.sweep.show.progress import observed

    with spool.opened_folder(None) as folder:
        tracks = [Track(plan, folder) for plan in plans]
        with observed(tracks, quiet=True) as observer:
            (executor or local_executor()).sweep(tracks, observer, lambda track: None)
        return tuple(track.run(utc_now()) for track in tracks)


def measure_qualities(
    plans: Sequence[CellPlan],
    done: Callable[[CellPlan, Quality], None],
    *,
    quiet: bool,
    device_wait_s: float | None = None,
) -> None:
    """The quality of each plan, whose points are only what the model is loaded for; `done` is called with each,
    without secrets. Raises as `sweep` does."""
    from benchmarking.sweep.run.supervisor import Track, measure_quality
    from benchmarking.sweep.show.progress import observed

    with spool.opened_folder(None) as folder:
        tracks = [Track(plan, folder) for plan in plans]
        with observed(tracks, quiet=quiet) as observer:
            for track in tracks:
                track.begin()
                found = measure_quality(track, observer, device_wait_s)
                observer.close()
                done(track.plan, redacted_record(found, anonymous=track.plan.is_anonymous))


@contextmanager
def unfinished(
    output_dir: Path, model_id: str | None, arguments: Mapping[str, object], *, on_cluster: bool
) -> Iterator[Sequence[PartialRun]]:
    """The unfinished runs of a folder, of all models or one, locked inside. Raises UsageError if there are none, or if
    one must be resumed elsewhere; LockedError if another process continues one; and for a file that cannot be read, and
    one that runs code that the command's arguments do not name, at the end, when the others are finished."""
    from benchmarking.sweep.run.supervisor import check_location

    errors: list[BenchhouseError] = []
    of_model = None if model_id is None else redacted_folder(model_id)
    files = [
        file
        for file, plan in spool.readable(spool.unfinished(output_dir), errors.append)
        if of_model in (None, redacted_folder(plan.cell.workload.model_id))  # which is read with the home folder
    ]
    with spool.held(files) as left:
        if errors and not left:
            raise errors[0]
        if not left:
            of_model = "" if model_id is None else f" of {model_id}"
            raise UsageError(f"--resume: no unfinished run{of_model} in {output_dir}")
        trusted = []
        for file in left:
            if not file.final_path.exists():
                plan = file.read().plan
                try:
                    check_loaded_plan(plan, arguments, str(file.path))
                except UsageError as error:
                    errors.append(error)
                    continue
                check_location(plan, str(file.path), on_cluster=on_cluster)
            trusted.append(file)
        if not trusted:
            raise errors[0]
        yield trusted
    if errors:
        raise errors[0]


def resume(
    files: Sequence[PartialRun],
    ingest: Ingest | None,
    show: Show,
    *,
    arguments: Mapping[str, object] | None = None,
    device_wait_s: float | None = None,
    executor: Executor | None = None,
) -> int:
    """Finish the unfinished runs of a folder, and return the exit code.

    A run that already has its run file is stored unchanged. `arguments` are those of the command: see `Track.resume`.
    """
    from benchmarking.sweep.run.supervisor import Track

    spool.prepare(files[0].path.parent)
    completed = [file for file in files if file.run_file() is not None]
    executor = executor or local_executor()
    tracks = [Track.resume(file, arguments, on_cluster=executor.is_cluster) for file in files if file not in completed]
    tracks.sort(key=lambda track: track.plan.run_id)  # as they were planned
    return _measure(tracks, True, ingest, show, device_wait_s, completed, executor=executor)


def show_plans(plans: Sequence[CellPlan], show: Show) -> int:
    """Print plans and measure nothing."""
    if show.json:
        print(json.dumps([redacted(to_json(plan), anonymous=plan.is_anonymous) for plan in plans], indent=1))
        return EXIT_OK
    texts: list[str] = []
    for plan in plans:
        cell, settings = plan.cell, plan.settings
        mode = ", ".join(f"{name}={value}" for name, value in sorted(cell.runtime_mode.items()))
        workload = cell.workload
        kind = workload.family or workload.source
        lines = [
            f"model      {workload.model_id} ({kind}, {workload.task}, {workload.weights} weights)",
            f"device     {cell.device.selector}: {cell.device.name or 'not found'}",
            f"runtime    {cell.runtime}" + (f" ({mode})" if mode else ""),
            f"precision  {cell.precision}",
            f"profile    {settings.profile}, {counted(settings.launches, 'launch')}"
            + (f", {settings.fixed_iterations} iterations" if settings.fixed_iterations else ""),
        ]
        lines += [] if cell.num_threads is None else [f"threads    {cell.num_threads}"]
        lines += [] if cell.cpu_list is None else [f"processors {cell.cpu_list}"]
        lines += [] if plan.rebuild == "if_needed" else [f"rebuild    {plan.rebuild}"]
        lines += [f"points     {len(plan.runnable)}"]
        lines += [f"  {point.label}" for point in plan.runnable]
        lines += [f"skipped    {', '.join(labels)}: {why}" for why, labels in points_by_reason(plan).items()]
        texts.append("\n".join(lines))
    print("\n\n".join(texts))
    return EXIT_OK


def _measure(
    tracks: Sequence[Track],
    saves: bool,
    ingest: Ingest | None,
    show: Show,
    device_wait_s: float | None,
    completed: Sequence[PartialRun] = (),
    finished: Callable[[Run], None] = lambda run: None,
    interrupted: Callable[[Sequence[Run]], None] = lambda runs: None,
    executor: Executor | None = None,
) -> int:
    """Sweep the tracks; each run is finished and stored right after its last launch. First, completed runs whose
    partial files were left behind are stored.

    After an interruption the partial files of the other runs hold everything that was measured.
    """
    from benchmarking.sweep.show.progress import observed

    executor, finished_runs, codes = executor or local_executor(), list[Finished](), [EXIT_OK]
    places = {track.plan.run_id: place for place, track in enumerate(tracks)}

    def as_planned(runs: Iterable[Run]) -> list[Run]:
        """After those that were complete before; launches in turns end in any order."""
        return sorted(runs, key=lambda run: places.get(run.run_id, -1))

    def keep(saved: Finished) -> None:
        finished_runs.append(saved)
        if saves and not show.quiet:
            note(f"run file: {saved.path}")
        problem = store_run(saved.path, ingest)
        if problem is not None:
            note(f"not stored: {problem}")
        codes.append(EXIT_OK if problem is None and not saved.has_failures else EXIT_FAILED)
        finished(saved.run)

    for file in completed:
        recover_finished(file, keep)
    with observed(tracks, quiet=show.quiet) as observer:

        def done(track: Track) -> None:
            observer.close()
            finish_run(track, keep)

        try:
            executor.sweep(tracks, observer, done, device_wait_s=device_wait_s)
        except (KeyboardInterrupt, LockedError, WorkersLostError):
            observer.close()
            completed_ids = {saved.run.run_id for saved in finished_runs}
            started = [track for track in tracks if track.measurements and track.plan.run_id not in completed_ids]
            done_runs = [saved.run for saved in finished_runs]
            runs = as_planned([*done_runs, *(track.run(utc_now()) for track in started)])
            measured = sum(track.points_finished for track in tracks)
            total = sum(track.points_total for track in tracks)
            of_code = code_flags((track.plan.cell for track in tracks), {})
            flags = ("--resume", *flag_words("--output-dir", str(tracks[0].folder)), *of_code, *executor.flags)
            again = shlex.join([*as_typed("run").split(" "), *flags])
            outcome = f"saved; continue with {again}" if saves else "not saved, since --save was not given"
            note(f"{measured} of {total} points measured: {outcome}")
            if saves and ingest is not None and measured < total:
                note(f"the database has a run when all of it is measured; {storing_unfinished(tracks[0].folder)}")
            if not saves or not show.json:  # else they are on disk only: the document of a part looks like the whole
                _print(runs, show)
            interrupted(runs)
            raise
    _print(as_planned(saved.run for saved in finished_runs), show)
    return max(codes)


def _print(runs: Sequence[Run], show: Show) -> None:
    if show.json and show.is_last:
        document = [to_json(run) for run in runs] if show.document is None else show.document(runs)
        print(json.dumps(document, indent=1))
    elif runs and not show.json:
        print((tables if show.text is None else show.text)(runs, stdout_page()))


def tables(runs: Sequence[Run], page: Page = PLAIN) -> str:
    """A table for each run, a comparison for each model that several runtimes ran, and the scaling over threads."""
    from benchmarking.sweep.show.compared_runtimes import comparison_text, comparisons
    from benchmarking.sweep.show.report import scaling_text, scalings, table

    texts = [table(run, page) for run in runs]
    texts += [comparison_text(comparison, page) for comparison in comparisons(runs)]
    return "\n\n".join([*texts, *(scaling_text(scaling, page) for scaling in scalings(runs))])


def show_runtimes(show: Show, refused: Mapping[str, str]) -> Show:
    """How to show a table per run, then the comparison of the runtimes."""
    from benchmarking.sweep.show.compared_runtimes import compare, comparison_text
    from benchmarking.sweep.show.report import table

    def text(runs: Sequence[Run], page: Page) -> str:
        texts = [*(table(run, page) for run in runs), comparison_text(compare(runs), page)]
        left_out = f"left out (why is on stderr): {', '.join(refused)}"
        return "\n\n".join(texts) + (f"\n{wrapped(left_out, page.text_width)}" if refused else "")

    def document(runs: Sequence[Run]) -> Json:
        comparison = to_json(compare(runs, refused)) if runs else None
        return {"runs": [to_json(run) for run in runs], "comparison": comparison}

    return replace(show, text=text, document=document)


def note_choices(plans: Iterable[CellPlan]) -> None:
    """Print what was chosen for the models without being requested, and what was requested and does not apply, once per
    model."""
    texts = list[str]()
    for plan in plans:
        texts += chosen_texts(plan.cell.workload)
        if plan.settings.quality is not None:
            from benchmarking.sweep.run.quality_pass import remark

            texts += filter(None, (remark(plan.cell.workload, plan.settings.quality),))
    for text in dict.fromkeys(texts):
        note(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A finished run and its file."""

    run: Run
    path: Path
    has_failures: bool
    """Whether any measurement failed, in any launch."""


def finish_run(track: Track, keep: Callable[[Finished], None] = lambda saved: None) -> Finished:
    """Write the run file, and delete the partial file after `keep`: a run whose storing is interrupted or killed is
    stored by --resume. Raises StorageError; the partial file then still holds everything."""
    from benchmarking.sweep.run.supervisor import has_failed

    run = track.run(utc_now())
    saved = Finished(run=run, path=track.file.write(run), has_failures=any(map(has_failed, track.measurements)))
    keep(saved)
    track.file.remove()
    track.release()
    return saved


def storing_unfinished(folder: Path) -> str:
    """How what is measured of the unfinished runs in a folder is stored, with less to judge by."""
    command, file = f"{as_typed('setup')} --ingest FILE", f"its *{spool.PARTIAL_SUFFIX} in {folder}"
    return f"to end one instead, and store what there is of it: {command}, where FILE is {file}"


def end_early(path: Path) -> tuple[Path, str]:
    """End an unfinished run with what was measured of it, in as many launches as there were: the run file, in place of
    the partial one, and how much that is. Raises UsageError if it is nothing, LockedError if another process continues
    it, StorageError."""
    from benchmarking.sweep.run.supervisor import Track

    with spool.held([PartialRun(path)]) as left:
        for file in left:
            if file.run_file() is not None:
                return recover_finished(file).path, "complete"
            progress = file.read()
            if not progress.measurements:
                raise UsageError(f"{path}: nothing was measured: continue it with {as_typed('run')} --resume")
            file.take_over(progress)
            planned = progress.plan.settings.launches
            launches = 1 + max(measured.launch for measured in progress.measurements)
            plan = replace(progress.plan, settings=replace(progress.plan.settings, launches=launches))
            track = Track(plan, path.parent, file, *progress.records)
            points = f"{len(track.measurements)} of {planned * len(plan.runnable)} points measured"
            return finish_run(track).path, points
    raise StorageError(f"{path} was finished by another process in the meantime")


def recover_finished(file: PartialRun, keep: Callable[[Finished], None] = lambda saved: None) -> Finished:
    """A run whose process ended between writing the run file and deleting the partial file, which is held, and is
    deleted after `keep`. Writing the run file again would change the ids of its results."""
    from benchmarking.sweep.run.supervisor import has_failed

    path = file.final_path
    saved = Finished(run=read_run(path).run, path=path, has_failures=any(map(has_failed, file.read().measurements)))
    keep(saved)
    file.remove()
    return saved


def store_run(path: Path, ingest: Ingest | None) -> str | None:
    """Store a run file in the database, if there is one; None, or why that failed. The file stays."""
    if ingest is None:
        return None
    try:
        ingest(path)
    except StorageError as error:
        return str(error)
    return None


SERVICE = "db.service"
WITHOUT_DUCKDB = (
    "duckdb is not installed, so only the run file was written: load it on a machine with duckdb, with "
    "benchhouse setup --ingest"
)


class Ingest(Protocol):
    """Stores run files whose runs are not stored already. Raises StorageError; the files are kept."""

    def __call__(self, *paths: Path) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredComparison:
    text: str
    """As text or JSON, as requested."""
    exit_code: int
    """0, or 3 if nothing could be compared; with `--fail-on`, 1 if that failed and 3 if it is not known."""

    @property
    def document(self) -> Json:
        """The comparison, if it was requested as JSON."""
        found: Json = json.loads(self.text)
        return found


def database(db_path: str, lock_timeout_s: float | None, *, quiet: bool) -> Ingest:
    """The function that stores run files in the database, which is opened now rather than after an hour of measuring.

    It is created if missing. A `lock_timeout_s` of None means the default. Raises StorageError for a file that is not a
    warehouse.
    """
    if importlib.util.find_spec("duckdb") is None:
        note(WITHOUT_DUCKDB)

        def refuse(*paths: Path) -> None:
            raise StorageError(WITHOUT_DUCKDB)

        return refuse
    wait_s = DATABASE_WAIT_S if lock_timeout_s is None else lock_timeout_s
    _ask("prepare", "--lock-timeout", f"{wait_s:g}", "--", db_path)

    def ingest(*paths: Path) -> None:
        _ask("store", "--lock-timeout", f"{wait_s:g}", "--", db_path, *map(str, paths))
        if not quiet:
            note(f"stored in {db_path}")

    return ingest


def compare_stored(before: str, after: str, db_path: str, *flags: str) -> StoredComparison:
    """The comparison of two selections, like `benchhouse compare`; all but the point may differ. Raises
    StorageError."""
    accepted = (EXIT_OK, EXIT_NOT_ENOUGH_DATA, EXIT_GATE_FAILED)
    done = _ask("compare", *flags, "--", db_path, before, after, accepted=accepted)
    code = EXIT_FAILED if done.exit_code == EXIT_GATE_FAILED else done.exit_code or EXIT_OK
    return StoredComparison(text=done.stdout.rstrip("\n"), exit_code=code)


def measured_peaks(hardware_id: str, db_path: str) -> dict[str, float]:
    """The measured peak rates of a device: FLOP/s by precision, and copy_bytes_per_sec; empty if it was never
    calibrated, or without duckdb. Raises StorageError."""
    if importlib.util.find_spec("duckdb") is None or not database_exists(db_path):
        return {}
    found: dict[str, float] = json.loads(_ask("peaks", "--", db_path, hardware_id).stdout)
    return found


def selection_of(run_ids: Sequence[str]) -> str:
    """The selection expression of these runs."""
    return f"run={'|'.join(run_ids)}"


def stored_runs(selection: str, db_path: str) -> list[MeasuredRun]:
    """The runs with results in a selection, oldest first. Raises StorageError."""
    return [from_json(MeasuredRun, run) for run in json.loads(_ask("runs", "--", db_path, selection).stdout)]


def store_quality(found: Mapping[str, Quality], db_path: str, lock_timeout_s: float | None) -> None:
    """Store the quality of stored runs, by run id. Raises StorageError."""
    wait_s = DATABASE_WAIT_S if lock_timeout_s is None else lock_timeout_s
    with temporary_folder("benchhouse-quality") as folder:
        file = folder / "quality.json"
        file.write_text(json.dumps(to_json(found)), encoding="utf-8")
        _ask("quality", "--lock-timeout", f"{wait_s:g}", "--", db_path, str(file))


def _ask(task: str, *arguments: str, accepted: Sequence[int] = (EXIT_OK,)) -> child_process.Finished:
    """Run a task of the service, whose notes the user sees. Raises StorageError with the reason if it fails, UsageError
    for a wrong selection."""
    done = child_process.run_program(child_process.module_command(SERVICE, task, *arguments), show_stderr=True)
    if done.exit_code in accepted:
        return done
    reason = "".join(done.stdout.strip().splitlines()[-1:])
    if done.exit_code == EXIT_USAGE and reason:
        raise UsageError(reason)
    raise StorageError(reason or f"{SERVICE} {task} ended with exit code {done.exit_code}")
