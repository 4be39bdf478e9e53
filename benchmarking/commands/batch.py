"""Measures many models on many devices in one command, and saves each run as soon as it is finished.

Each run becomes a run file in --output-dir and is stored in the database. The folder also gets benchmark_summary.json
and the log of the batch. An interrupted batch continues with --resume.
"""

from __future__ import annotations

import argparse
import json
import logging
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarking.batch import cell_plans, summary
from benchmarking.batch.summary import (
    BatchInfo,
    BatchSummary,
    Estimate,
    cells_table,
    earlier_points,
    estimate,
    plan_table,
)
from benchmarking.builds.inventory import lean_cache
from benchmarking.cluster.target import Target, device_kinds, open_target, target_flags
from benchmarking.core.command_line import default_database, flag_words, note, run_command
from benchmarking.core.command_names import as_typed
from benchmarking.core.errors import (
    EXIT_FAILED,
    EXIT_OK,
    LockedError,
    StorageError,
    UsageError,
    WorkersLostError,
    storage_errors,
)
from benchmarking.core.plugins import check_installed, check_measuring
from benchmarking.core.provenance import utc_now, uuid7
from benchmarking.core.records import to_json
from benchmarking.core.storage_paths import absolute_database, check_folder, database_exists
from benchmarking.core.terminal import stdout_page
from benchmarking.core.text import visible
from benchmarking.core.untrusted.redaction import from_home, redacted, without_secrets
from benchmarking.sweep.plan import flags
from benchmarking.sweep.plan.plan import CellPlan, Machine, code_flags
from benchmarking.sweep.run import command_session, journal, spool
from benchmarking.sweep.run.command_session import Ingest, database
from benchmarking.sweep.run.command_turns import take_turn, without_turn_flag

if TYPE_CHECKING:
    from benchmarking.batch.batch_run import Batch, Manifest

ESTIMATE_WAIT_S = 1.0
"""Time that an estimate waits for the database, in seconds: it is not worth more."""
NAME = "batch_benchmark"
Finished = Callable[[Path, BatchSummary], None]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command(NAME, lambda words: run(words, NAME, __doc__), argv)


def run(
    argv: Sequence[str],
    name: str,
    description: str | None,
    finished: Finished = lambda folder, batch: None,
    remark: str | None = None,
    **texts: Any,
) -> int:
    """The command under a name, without its handling of errors. `finished` is called with the folder and the summary of
    a saved batch; `remark` is printed once the arguments are right; `texts` are further arguments of the parser."""
    arguments = cell_plans.parser(name, description, **texts).parse_args(argv)
    cell_plans.check(arguments)
    _check_report(arguments.report)
    if remark is not None:
        note(remark)
    arguments.finished = finished
    with flags.logging_to_stderr(arguments.log_level):
        if arguments.models or arguments.model_list:  # user-written benchmarks may not need these packages
            check_measuring()
        flags.use_cache_dir(arguments.cache_dir)
        if arguments.turn is not None and not arguments.dry_run:  # for benchhouse ab, which stores the runs
            command = (NAME, *without_turn_flag(argv))
            return take_turn(
                arguments.turn,
                lambda: cell_plans.plans(arguments, command, uuid7(), Machine()),
                quiet=arguments.quiet,
                arguments=vars(arguments),
                device_wait_s=arguments.lock_timeout,
            )
        if arguments.resume:
            return _resume(arguments, argv)
        with open_target(arguments, arguments.devices) as target:
            return _start(target, arguments, argv)


def _start(target: Target, arguments: argparse.Namespace, argv: Sequence[str]) -> int:
    from benchmarking.batch.batch_run import Manifest

    session_id = uuid7()
    plans = cell_plans.plans(arguments, (NAME, *argv), session_id, target.machine)
    _check_report(arguments.report, plans)
    if arguments.dry_run:
        command_session.check_saving(arguments)
        time_s = _estimate(plans, arguments)
        if arguments.json:
            cells = [
                {
                    **redacted(to_json(plan), anonymous=plan.is_anonymous),
                    "estimate_s": time_s.cells_s.get(plan.run_id),
                }
                for plan in plans
            ]
            print(json.dumps({"cells": cells, "estimate": to_json(time_s)}, indent=1))
        else:
            print(plan_table(plans, time_s, stdout_page()))
        return EXIT_OK
    info = BatchInfo(
        session_id=session_id,
        command=(NAME, *argv),
        started_at=utc_now(),
        db_path=absolute_database(arguments.db_path or default_database()) if arguments.save else None,
        report=None if arguments.report is None else str(Path(arguments.report).absolute()),
    )
    output_dir = Path(arguments.output_dir) if arguments.save else None
    with spool.opened_folder(output_dir) as folder, lean_cache(is_lean=arguments.lean_cache, say=note):
        ingest = None
        if info.db_path is not None:
            ingest = database(info.db_path, arguments.lock_timeout, quiet=arguments.quiet)
        command_session.note_choices(plans)
        manifest = Manifest.create(folder, info, plans)
        try:
            return _measure_and_show(manifest, ingest, target, arguments)
        finally:
            manifest.release()


def _estimate(plans: Sequence[CellPlan], arguments: argparse.Namespace) -> Estimate:
    """The estimated time of the plans, from the database if there is one that answers soon."""
    path = arguments.db_path or default_database()
    if not database_exists(path):
        return estimate(plans, ())
    from db.warehouse import Warehouse

    try:
        with Warehouse.open(path, read_only=True, lock_timeout_s=ESTIMATE_WAIT_S) as warehouse:
            return estimate(plans, earlier_points(plans, lambda sql, values: warehouse.query(sql, values).dicts()))
    except StorageError as error:
        note(f"the estimate does not use earlier runs: {error}")
        return estimate(plans, ())


def _resume(arguments: argparse.Namespace, argv: Sequence[str]) -> int:
    """Continue the newest unfinished batch in the folder, or the one with this command's settings. A batch that may not
    be continued is refused before a cluster is started for it."""
    from benchmarking.batch.batch_run import Manifest, unfinished
    from benchmarking.sweep.run.supervisor import check_location

    folder = Path(arguments.output_dir)
    found = unfinished(folder)
    if not found:
        raise UsageError(f"--resume: no unfinished batch in {folder}")
    spool.prepare(folder)
    if arguments.models or arguments.model_list:
        manifest = _find_manifest(found, argv)
    else:
        if len(found) > 1:
            note(f"{len(found)} unfinished batches: continuing the newest; repeat --resume for the next one")
        newest = Manifest.open(found[0])
        if newest is None:
            raise StorageError(f"{found[0]} was finished by another process in the meantime")
        manifest = newest
    try:
        db_path = arguments.db_path or manifest.own_path(manifest.info.db_path, "--db-path", also=default_database())
        arguments.report = arguments.report or manifest.own_path(manifest.info.report, "--report")
        _check_report(arguments.report, manifest.plans)
        for plan in manifest.plans:
            check_location(plan, str(manifest.path), on_cluster=arguments.cluster is not None)
        ingest = None
        if db_path is not None:
            ingest = database(absolute_database(db_path), arguments.lock_timeout, quiet=arguments.quiet)
        devices = arguments.devices or device_kinds(manifest.cells)
        with open_target(arguments, devices) as target, lean_cache(is_lean=arguments.lean_cache, say=note):
            return _measure_and_show(manifest, ingest, target, arguments)
    finally:
        manifest.release()


def _find_manifest(paths: Sequence[Path], argv: Sequence[str]) -> Manifest:
    """The newest unfinished batch that this command started. Raises UsageError if there is none, LockedError if it may
    be one that another process continues."""
    from benchmarking.batch.batch_run import Manifest

    words = redacted([word for word in argv if word != "--resume"])
    in_use: LockedError | None = None
    for path in paths:
        try:
            manifest = Manifest.open(path)
        except LockedError as error:
            in_use = in_use or error
            continue
        if manifest is not None:
            if redacted(list(manifest.info.command[1:])) == words:
                return manifest
            manifest.release()
    if in_use is not None:
        raise in_use
    raise UsageError(
        f"--resume: no unfinished batch in {paths[0].parent} was started with these settings: remove all flags but "
        "--output-dir to continue the newest one, or remove --resume to start a new batch"
    )


def _measure_and_show(manifest: Manifest, ingest: Ingest | None, target: Target, arguments: argparse.Namespace) -> int:
    """Start or resume a batch, and show its results."""
    from benchmarking.batch.batch_run import Batch
    from benchmarking.sweep.show.compared_runtimes import comparison_text
    from benchmarking.sweep.show.report import scaling_text

    batch = Batch(
        *(manifest.path.parent, manifest, ingest),
        quiet=arguments.quiet,
        device_wait_s=arguments.lock_timeout,
        cluster=target.cluster,
    )
    with _logging(batch):
        try:
            summarised = batch.resume(target.machine, vars(arguments)) if arguments.resume else batch.start()
        except (KeyboardInterrupt, StorageError, WorkersLostError):
            _note_interrupted(batch, arguments)
            raise
    if target.cluster is not None and not arguments.quiet:
        from benchmarking.sweep.show.progress import machines_text

        for line in machines_text(target.cluster.machines).splitlines():
            note(line)
    page = stdout_page()
    tables = [
        cells_table(summarised.cells, page),
        *(comparison_text(comparison, page) for comparison in summarised.comparisons),
        *(scaling_text(scaling, page) for scaling in summarised.scalings),
    ]
    print(json.dumps(redacted(to_json(summarised)), indent=1) if arguments.json else "\n\n".join(tables))
    if arguments.save and not arguments.quiet:
        note(f"summary: {Path(arguments.output_dir) / summary.FILE_NAME}")
    if arguments.save:
        arguments.finished(batch.folder, summarised)
    if arguments.report is not None:  # from the run files, or from the database if some were removed after storing
        from visualize.report.report_file import write_session_report

        files = [str(batch.folder / cell.run_file) for cell in summarised.cells if cell.run_file is not None]
        stored_in = summarised.database if any(cell.status == "stored" for cell in summarised.cells) else None
        write_session_report(
            Path(arguments.report), summarised.session_id, files if stored_in is None else (), stored_in
        )
        note(f"report: {arguments.report}")
    failed = summary.failures(summarised.cells)
    for line in failed:
        note(f"failed: {line}")
    return EXIT_FAILED if failed else EXIT_OK


def _check_report(path: str | None, plans: Sequence[CellPlan] = ()) -> None:
    """Raise UsageError or StorageError for a report that could not be written afterwards, NotInstalledError if one of
    its packages is missing."""
    if path is None:
        return
    check_installed("--report", ("duckdb", "jinja2"), "pip install benchhouse")
    from visualize.report.report_file import check_request

    check_request(Path(path), sum(len(plan.points) for plan in plans))
    check_folder(Path(path).absolute().parent)


def _note_interrupted(batch: Batch, arguments: argparse.Namespace) -> None:
    """Say how far it came, and the command that continues it, with the arguments that --resume does not keep."""
    manifest = batch.manifest
    words = [*as_typed("batch").split(" "), "--resume", *flag_words("--output-dir", str(batch.folder))]
    of_flags = (("--db-path", manifest.info.db_path, default_database()), ("--report", manifest.info.report, None))
    for flag, path, also in of_flags:
        words += flag_words(flag, path) if path is not None and not manifest.owns(path, also) else []
    words += [*code_flags(manifest.cells, vars(arguments)), *target_flags(arguments)]
    finished = sum(cell.run_file is not None for cell in batch.cells)
    outcome = f"saved; continue with {shlex.join(words)}"
    note(f"{finished} of {len(batch.cells)} cells finished: {outcome if arguments.save else 'not saved (--no-save)'}")


class LogFormatter(logging.Formatter):
    """Messages without secrets, with control characters as escapes."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(from_home(without_secrets(super().format(record))), kept="\n")


@contextmanager
def _logging(batch: Batch) -> Iterator[None]:
    """Inside, log messages go to a file next to the runs, with times in UTC."""
    path = batch.folder / f"batch_{batch.manifest.info.session_id}.log"
    with storage_errors(f"cannot write {path}", "remove the file, or choose another --output-dir"):
        stream = journal.opened(path, "a")
    handler = logging.StreamHandler(stream)
    handler.handleError = lambda record: None  # type: ignore[method-assign]  # a full disk is told of by what ends it
    formatter = LogFormatter("%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    logger = logging.getLogger(flags.OWN_LOGGER)
    handler.setLevel(logging.INFO)
    before = logger.level
    logger.setLevel(min(before or logging.INFO, logging.INFO))
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
        handler.close()
        with suppress(OSError):
            stream.close()
