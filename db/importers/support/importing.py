"""Imports other tools' result files: whatever goes wrong with a file concerns that file alone.

Files are read one by one and stored in groups, since a transaction takes longer than reading a small file.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import field, replace
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import Literal

from benchmarking.core import plugins
from benchmarking.core.command_line import shows_tracebacks
from benchmarking.core.command_names import as_typed
from benchmarking.core.errors import (
    FormatError,
    LockedError,
    StorageError,
    UnreadableError,
    first_line,
    out_of_memory_line,
)
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import JUDGED, SERVICE_TIMES
from benchmarking.core.provenance import naive_utc
from benchmarking.core.records import FORMAT, Json, Precision, Result, Run, canonical_hash
from benchmarking.core.run_file import large_samples
from benchmarking.core.text import first_few
from benchmarking.core.untrusted.redaction import cut_to, known_secrets, readable, redacted_record, without_secrets
from db.importers.support.building import content_id, foreign_hardware, is_unnamed, iso, with_model_of
from db.importers.support.files import PACKAGE, STDIN, NoResultsError, importers_for, read_file, recognising
from db.ingestion import FileRuns


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenValues:
    """Values from the user for imported runs. The file's own is kept in `origin.kept["replaced"]`."""

    model_id: str | None = None
    device: str | None = None
    """Value of `--device`: cpu, cuda, cuda:1, ..."""
    device_name: str | None = None
    """The vendor's name of the model."""
    precision: Precision | None = None
    runtime: str | None = None
    """Engine or runtime that ran the model."""
    started_at: datetime | None = None
    """Naive UTC."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Added to the tags of the file. The id of a run does not depend on tags."""

    def applied_to(self, run: Run) -> Run:
        """The run with these values, on which its ids and hardware_id then depend."""
        tagged = replace(run, provenance=replace(run.provenance, tags={**run.provenance.tags, **self.tags}))
        cell, hardware, origin = tagged.cell, tagged.hardware, tagged.origin
        stated: dict[str, tuple[Json, Json]] = {  # the given value, and that of the run
            "model_id": (self.model_id, cell.workload.model_id),
            "device": (self.device, cell.device.selector),
            "device_name": (self.device_name, cell.device.name),
            "precision": (self.precision, cell.precision),
            "runtime": (self.runtime, cell.runtime),
            "started_at": (None if self.started_at is None else iso(self.started_at), tagged.started_at),
        }
        values = {name: given for name, (given, _) in stated.items() if given is not None}
        if not values:
            return tagged
        selector = self.device or cell.device.selector
        device = replace(
            cell.device,
            type=cell.device.type if self.device is None else selector.partition(":")[0],
            selector=selector,
            name=self.device_name or cell.device.name,
        )
        mode = dict(cell.runtime_mode)
        if origin is not None:  # of a run that was labelled before, the file's values are those kept then
            before = kept if isinstance(kept := origin.kept.get("replaced"), Mapping) else {}
            of_file = {name: before.get(name, current) for name, (_, current) in stated.items()}
            replaced = {name: of_file[name] for name in stated if values.get(name, stated[name][1]) != of_file[name]}
            importer, named = plugins.by_name(PACKAGE).get(origin.format), str(of_file["model_id"])
            if self.model_id and importer is not None and importer.names_benchmarks and not is_unnamed(named):
                mode = {"benchmark": named, **mode}  # the benchmarks of a file are not one, whatever their model is
                mode = {key: value for key, value in mode.items() if (key, value) != ("benchmark", self.model_id)}
            others = {name: value for name, value in origin.kept.items() if name != "replaced"}
            origin = replace(origin, kept={**others, "replaced": replaced} if replaced else others)
        changed = replace(
            tagged,
            cell=replace(
                cell,
                workload=replace(cell.workload, model_id=self.model_id or cell.workload.model_id),
                device=device,
                requested_device=device.selector,
                precision=self.precision or cell.precision,
                runtime=self.runtime or cell.runtime,
                runtime_mode=mode,
            ),
            hardware=foreign_hardware(
                device, hardware.cpu_model, hardware.cpu_cores, hardware.cpu_threads, hardware.memory_bytes
            ),
            origin=origin,
        )
        dated = changed if self.started_at is None else _at(changed, self.started_at)
        # The results without doubts that say that the file does not state a value that the user gave.
        settled = {"engine_not_stated"} if self.runtime is not None else set()
        settled |= {"undated", "time_zone_unknown"} if self.started_at is not None else set()
        words = canonical_hash(values)
        results = tuple(
            replace(
                result,
                result_id=content_id(result.result_id, words),
                doubts=tuple(doubt for doubt in result.doubts if doubt.kind not in settled),
            )
            for result in dated.results
        )
        return replace(dated, run_id=content_id(dated.run_id, words), results=results)

    def made_alike(self, runs: Sequence[Run]) -> tuple[str, ...]:
        """What a file states differently of its runs, which have one of these values now: the flag, and what it was."""
        found: list[str] = []
        for name in ("model_id", "runtime", "precision", "device"):
            if (given := getattr(self, name)) is None:
                continue
            kept = [
                run.origin.kept.get("replaced")
                for run in runs
                if run.origin is not None
                and not (
                    name == "model_id" and "benchmark" in run.cell.runtime_mode  # which still tells them apart
                )
            ]
            words = [str(one.get(name, given)) if isinstance(one, Mapping) else given for one in kept]
            stated = sorted({word for word in words if not is_unnamed(word)})
            if len(stated) > 1:
                found.append(f"--{name.replace('_', '-')} {given} replaces {first_few(stated, SHOWN_VALUES)}")
        return tuple(found)


def _at(run: Run, time: datetime) -> Run:
    """The run moved to that time, with the same duration."""
    shift = time - naive_utc(datetime.fromisoformat(run.started_at))

    def moved(at: str) -> str:
        try:
            return iso(naive_utc(datetime.fromisoformat(at)) + shift)
        except OverflowError as error:
            raise FormatError(
                f"a run from {run.started_at} to {at} cannot start at {iso(time)}: choose another date"
            ) from error

    results = tuple(
        replace(
            result,
            samples=tuple(replace(sample, started_at=moved(sample.started_at)) for sample in result.samples),
            requests=tuple(replace(asked, started_at=moved(asked.started_at)) for asked in result.requests),
        )
        for result in run.results
    )
    finished_at = None if run.finished_at is None else moved(run.finished_at)
    return replace(run, started_at=iso(time), finished_at=finished_at, results=results)


def since_earlier(
    file: FileRuns, digests: Set[str], format_name: str | None, given: GivenValues
) -> tuple[FileRuns, bool] | None:
    """The file without the results of an earlier content, with one of these digests, to which others were appended, and
    whether all of them are still what they were; None if it does not begin with such a content. A model that it does
    not name keeps the name that it had there."""
    try:
        whole = read_file(Path(file.source or ""))
    except (UnreadableError, FormatError):  # it has changed since it was read
        return None
    digest, first_digest, size, earlier_size = hashlib.sha256(), "", 0, 0
    for line in BytesIO(whole.content):
        cut_off = digest.copy()
        cut_off.update(line.rstrip(b"\n"))
        digest.update(line)
        size += len(line)
        if found := digests & {cut_off.hexdigest(), digest.hexdigest()}:
            first_digest, earlier_size = first_digest or min(found), size
    if not 0 < earlier_size < len(whole.content):
        return None

    def content(run: Run, result: Result) -> bytes:
        # Without what is kept: text that was appended may be kept with the result before it.
        return hashlib.sha256(repr((run.cell, replace(result, result_id="", extra={}))).encode()).digest()

    def results_in(part: bytes) -> list[tuple[Run, Result]] | None:
        of_part = replace(whole, content=part)  # with the digest of the whole: it names models
        try:
            runs = [run for importer in importers_for(of_part, format_name) for run in importer.runs(of_part)]
            given_runs = [run_without_secrets(given.applied_to(run)) for run in runs]
        except Exception:  # noqa: BLE001  whatever an importer makes of a part, the whole was read
            return None
        return [(run, result) for run in given_runs for result in run.results]

    earlier, appended = (results_in(part) for part in (whole.content[:earlier_size], whole.content[earlier_size:]))
    if earlier is None:
        return None
    known = Counter(content(run, result) for run, result in earlier)
    before, after = (
        {repr((run.cell, result.point)): result for run, result in part} for part in (earlier, appended or ())
    )

    def added(run: Run, result: Result) -> Result:
        """What was appended, where a tool's result has all calls of its file."""
        place = repr((run.cell, result.point))
        if (old := before.get(place)) is None or (new := after.get(place)) is None:
            return result
        sizes = [(one.launches, one.iterations or 0) for one in (old, new)]
        if (result.launches, result.iterations) != (*map(sum, zip(*sizes, strict=True)),):
            return result
        known[content(run, old)] -= 1
        return new

    runs: list[Run] = []
    for run in file.runs:
        results: list[Result] = []
        for result in run.results:
            if known[name := content(run, result)]:
                known[name] -= 1
            else:
                results.append(added(run, result))
        if results and results != [*run.results]:  # another run than that of the whole file, which may be merged
            earlier_id = str(earlier_size)
            own = tuple(replace(result, result_id=content_id(result.result_id, earlier_id)) for result in results)
            runs.append(replace(run, run_id=content_id(run.run_id, earlier_id), results=own))
        elif results or not run.results:
            runs.append(run)
    named = [with_model_of(run, whole.sha256, first_digest) for run in runs]
    return replace(file, runs=named), not any(known.values())


def statement_of(run: Run) -> str | None:
    """What a run says, whichever of the tool's files it is from: all but its ids, its file and its tags, and the time
    only if the file states it. None for a run of a tool whose files do not state results of earlier ones again."""
    origin = run.origin
    importer = None if origin is None else plugins.by_name(PACKAGE).get(origin.format)
    if origin is None or importer is None or not importer.restates:
        return None
    is_dated = not any(doubt.kind == "undated" for result in run.results for doubt in result.doubts)
    results = sorted(
        repr(replace(result, result_id="", doubts=tuple(one for one in result.doubts if one.kind != "undated")))
        for result in run.results
    )
    started_at = naive_utc(datetime.fromisoformat(run.started_at)) if is_dated else None
    return repr((run.cell, canonical_hash(origin.kept), started_at, results))


State = Literal["imported", "present", "nothing", "unknown", "unread", "refused"]
Store = Callable[[Sequence[FileRuns]], Sequence[int]]
"""Stores the runs of several files in one transaction; returns how many of each file are new."""
SHOWN_VALUES = 3
GROUP_FILES = 200
GROUP_SAMPLES = 200_000
GROUP_S = 2.0
"""Limits of a group of files that is stored at once: the last one keeps people informed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The outcome for one file."""

    path: Path
    state: State
    """imported; present: already stored; nothing: recognized, but without numbers of its own; unknown: no importer
    recognizes it; unread: a pipe, a link to nothing or something else in a folder that is not a file; refused: damaged,
    unreadable, or not of the given format."""
    format: str | None = None
    reason: str | None = None
    """Why it was not imported."""
    runs: int = 0
    new_runs: int = 0
    results: int = 0
    samples: int = 0
    left_out: tuple[str, ...] = ()
    """Values, rows and lines of the file that are not stored, each with its place and reason."""
    doubts: Mapping[str, int] = field(default_factory=dict)
    """Kind of doubt -> number of results that have it."""
    models: tuple[str, ...] = ()
    compacted: bool = False
    """Whether statistics and quantiles were stored instead of too many samples."""
    nameless: int = 0
    """Runs without the name of a device or processor."""
    unnamed_models: int = 0
    """Runs without the name of a model."""
    made_alike: tuple[str, ...] = ()
    """Flags whose value took the place of several that the file states."""
    metrics: tuple[str, ...] = ()
    """The metrics by which its results can be judged."""


def has_metric(result: Result, name: str) -> bool:
    """Whether the result has the metric, or its time from sending in its place."""
    return name in result.metrics or SERVICE_TIMES.get(name) in result.metrics


def files_in(places: Sequence[Path]) -> Iterator[tuple[Path, bool]]:
    """The given files (True), and everything below the given folders (False) except hidden files and what hidden
    folders have.

    What is not read is among it, so that it is named: pipes, sockets, devices, links to folders or to nothing, and
    folders that cannot be read.
    """
    for place in places:
        if not place.is_dir():
            yield place, True
            continue
        errors: list[OSError] = []
        for folder, folders, names in os.walk(place, onerror=errors.append):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            names += [name for name in folders if Path(folder, name).is_symlink()]
            yield from ((Path(folder, name), False) for name in sorted(names) if not name.startswith("."))
        yield from ((path := Path(error.filename), path == place) for error in errors)


Read = tuple[Imported, FileRuns | None]
"""A file that was read: its outcome, and its runs if it has any; then the outcome is that of new runs."""


def import_files(
    files: Iterable[tuple[Path, bool]], format_name: str | None, given: GivenValues, store: Store
) -> Iterator[Imported]:
    """Import files, and tell the outcome of each as soon as it is stored, in their order.

    A file that is named (True) and not recognized is refused; one from a folder is only reported. `store` is called
    with groups of files; if it raises FormatError or StorageError for a group, its files are stored one by one, and the
    one it is raised for is refused. Raises LockedError.
    """
    group: list[Read] = []
    samples, started_s = 0, time.monotonic()
    for path, is_named in files:
        group.append(_read(path, is_named, format_name, given))
        samples += group[-1][0].samples
        if len(group) >= GROUP_FILES or samples >= GROUP_SAMPLES or time.monotonic() - started_s >= GROUP_S:
            yield from _stored(group, store)
            group, samples, started_s = [], 0, time.monotonic()
    yield from _stored(group, store)


def _stored(group: Sequence[Read], store: Store) -> Iterator[Imported]:
    """The outcomes of a group, in order, after storing it."""
    runs = [of_file for _, of_file in group if of_file is not None]
    refusal: str | None = None
    counts: Iterator[int] = iter(())
    try:
        counts = iter(store(runs) if runs else ())
    except LockedError:
        raise
    except StorageError as error:
        if len(runs) > 1:
            for read in group:
                yield from _stored([read], store)
            return
        refusal = str(error)
    for outcome, of_file in group:
        path = outcome.path
        if of_file is None:
            yield outcome
        elif refusal is not None:
            reason = refusal if refusal.startswith(str(path)) else f"{path}: {refusal}"
            yield Imported(path=path, state="refused", format=outcome.format, reason=reason)
        else:
            new_runs = next(counts)
            yield replace(outcome, new_runs=new_runs, state="imported" if new_runs else "present")


def _read(path: Path, is_named: bool, format_name: str | None, given: GivenValues) -> Read:
    """The file's runs, or why it has none. Whatever an importer raises is the outcome of the file."""
    try:
        return _understood(path, is_named, format_name, given)
    except FormatError as error:
        return Imported(path=path, state="refused" if is_named else "unknown", reason=str(error)), None
    except UnreadableError as error:
        # A pipe, a socket, a device, or a link to a folder or to nothing, and not a file or folder without permission.
        is_link = os.path.islink(path) and (os.path.isdir(path) or not os.path.exists(path))
        is_device = os.path.exists(path) and not os.path.isdir(path) and not os.path.isfile(path)
        is_no_file = not is_named and (is_link or is_device)
        return Imported(path=path, state="unread" if is_no_file else "refused", reason=str(error)), None
    except Exception as error:  # noqa: BLE001  a stranger's file must not end the import of the others
        if shows_tracebacks():
            traceback.print_exc(file=sys.stderr)
        what = cut_to(f"{type(error).__name__}: {first_line(error)}", 300)
        reason = f"{path}: not understood: {what} (a fault of this program: please report it with the file)"
        if (line := out_of_memory_line(error)) is not None:
            reason = f"{path}: {line}"
        return Imported(path=path, state="refused", reason=reason), None


def run_without_secrets(run: Run) -> Run:
    """The run of another tool without secrets. Its ids are kept, but its hardware has the id of what is left of it."""
    known = known_secrets()
    bare = replace(run, results=tuple(replace(result, samples=(), requests=()) for result in run.results))
    clean = redacted_record(bare)
    results = tuple(
        replace(
            one,
            samples=given.samples,
            requests=tuple(
                replace(asked, detail=tuple(text and without_secrets(text, known) for text in asked.detail))
                for asked in given.requests
            ),
        )
        for one, given in zip(clean.results, run.results, strict=True)
    )
    hardware, found = run.hardware, clean.hardware
    if (clean.cell.device, found.cpu_model) != (run.cell.device, hardware.cpu_model):
        hardware = foreign_hardware(
            clean.cell.device, found.cpu_model, found.cpu_cores, found.cpu_threads, found.memory_bytes
        )
    return replace(clean, hardware=hardware, results=results)


def _understood(path: Path, is_named: bool, format_name: str | None, given: GivenValues) -> Read:
    if os.path.isdir(path):
        try:
            os.scandir(path).close()
        except OSError as error:
            raise UnreadableError(f"{path}: a folder that cannot be read: {error.strerror}") from error
        raise UnreadableError(f"{path}: a link to a folder, which is not followed: give the folder itself")
    file = read_file(path)
    if isinstance(file.json, dict) and file.json.get("format") == FORMAT:
        reason = f"{path}: a run file of this program: load it with {as_typed('setup')} --ingest"
        return Imported(path=path, state="refused" if is_named else "unknown", reason=reason), None
    if format_name is None and not is_named and not recognising(file):
        is_broken = file.json_problem is not None and file.called.suffix == ".json"
        reason = file.json_problem or file.description
        return Imported(path=path, state="refused" if is_broken else "unknown", reason=reason), None
    found = importers_for(file, format_name)
    runs: list[Run] = []
    errors: dict[str, FormatError] = {}
    for importer in found:
        try:
            runs += [run_without_secrets(given.applied_to(run)) for run in importer.runs(file)]
        except FormatError as error:
            errors[importer.name] = error
    names = " and ".join(importer.name for importer in found)
    if not runs:
        first = min(errors.values(), key=lambda one: isinstance(one, NoResultsError))  # a fault before an empty file
        state: State = "nothing" if isinstance(first, NoResultsError) else "refused"
        return Imported(path=path, state=state, format=names, reason=str(first)), None
    for name, problem in errors.items():
        file.leave_out(name, str(problem).removeprefix(f"{path}: "))
    source = STDIN if path == Path("-") else readable(str(path.resolve()))
    results = [result for run in runs for result in run.results]
    outcome = Imported(
        path=file.path,
        state="imported",
        format=names,
        runs=len(runs),
        results=len(results),
        samples=sum(len(samples.values) for result in results for samples in result.samples),
        left_out=tuple(left_out.text for left_out in file.left_out),
        doubts=dict(Counter(doubt.kind for result in results for doubt in result.doubts)),
        compacted=any(large_sample.quantiles is not None for large_sample in large_samples(runs)),
        nameless=sum(run.hardware.device.name is None and run.hardware.cpu_model is None for run in runs),
        unnamed_models=sum(is_unnamed(run.cell.workload.model_id) for run in runs),
        made_alike=given.made_alike(runs),
        metrics=tuple(name for name in JUDGED if any(has_metric(result, name) for result in results)),
        models=tuple(dict.fromkeys(run.cell.workload.model_id for run in runs)),
    )
    return outcome, FileRuns(runs=runs, source=source, source_sha256=file.sha256)
