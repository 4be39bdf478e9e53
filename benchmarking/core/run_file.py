"""Reads and checks the files of runs and profiles, as the warehouse stores them.

A number out of its field's range is refused when the record is read; `faults` compares fields with each other.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from benchmarking.core import plugins, profiles
from benchmarking.core.errors import FormatError
from benchmarking.core.large_samples import LargeSamples, read_large
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.profiles import Profile
from benchmarking.core.records import Result, Run, canonical_hash, run_from_json
from benchmarking.core.untrusted.input_files import open_regular, parse_json

LARGE_BYTES = 16_000_000
"""Run files above this size are read block by block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFile:
    """A run and the file it was read from."""

    path: Path
    sha256: str
    """Hex digest of the file."""
    run: Run

    @property
    def is_compacted(self) -> bool:
        """Whether it has more samples than a warehouse stores, so that only their quantiles are stored."""
        values = (samples.values for result in self.run.results for samples in result.samples)
        return any(isinstance(one, LargeSamples) and one.quantiles is not None for one in values)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFile:
    """A profile and the file it was read from."""

    path: Path
    sha256: str
    profile: Profile


def read_run(path: Path) -> RunFile:
    """The run in a file. Raises FormatError, with the field, for a truncated, foreign or too new file and for values
    that the warehouse cannot store; UnreadableError."""
    file = read_file(path)
    if isinstance(file, ProfileFile):
        raise FormatError(f"{path}: a profile, not a run: it has no latency results")
    return file


def read_file(path: Path) -> RunFile | ProfileFile:
    """The run or profile in a file. Raises like `read_run`."""
    with open_regular(path) as opened:
        content = opened.read(LARGE_BYTES + 1)
        if len(content) <= LARGE_BYTES:
            data, sha256 = parse_json(content, str(path)), hashlib.sha256(content).hexdigest()
            if isinstance(data, dict) and data.get("format") == profiles.FORMAT:
                return ProfileFile(path=path, sha256=sha256, profile=profiles.profile_from_json(data, str(path)))
            run = run_from_json(data, str(path))
        else:
            opened.seek(0)
            del content
            run, sha256 = read_large(opened, str(path))
    check_run(run, str(path))
    return RunFile(path=path, sha256=sha256, run=run)


TIMED_SAMPLES = ("measure", "latency_wall")
"""Phase and metric of the samples that a result counts as its iterations."""


def check_run(run: Run, where: str) -> None:
    """Raise FormatError with the first fault, if there is one."""
    for problem in faults(run):
        raise FormatError(f"{where}: {problem}")


def faults(run: Run) -> Iterator[str]:
    """The faults, each prefixed with its field."""
    expected = canonical_hash(run.hardware.hashed_keys)[:16]
    if run.hardware.hardware_id != expected:
        yield f"hardware.hardware_id: {run.hardware.hardware_id!r} is not the hash of its hashed_keys, {expected!r}"
    yield from _duplicates((result.result_id for result in run.results), "results: result_id {} occurs {} times")
    if run.origin is None and not run.is_load:  # runtimes of other tools and servers may have any name
        yield from _unknown_name("cell.runtime", run.cell.runtime, plugins.RUNTIMES)
        yield from _unknown_name("hardware.device.type", run.hardware.device.type, plugins.DEVICES)
    for index, result in enumerate(run.results):
        for problem in _result_faults(result, is_foreign=run.origin is not None):
            yield f"results[{index}]: {problem}"


def _unknown_name(field: str, name: str, package: str) -> Iterator[str]:
    names = plugins.names(package)
    if name not in names:
        yield f"{field}: {name!r} is unknown: expected one of {', '.join(names)}"


def _duplicates(keys: Iterator[object], words: str) -> Iterator[str]:
    for key, count in Counter(keys).items():
        if count > 1:
            yield words.format(key, count)


def _result_faults(result: Result, *, is_foreign: bool) -> Iterator[str]:
    keys = (f"launch {samples.launch}, {samples.phase} {samples.metric}" for samples in result.samples)
    yield from _duplicates(keys, "samples: {} occurs {} times")
    is_ok = result.status == "ok"
    if is_ok and result.validity is None:
        yield "validity: missing, although the status is ok"
    if is_ok and result.launches == 0:
        yield "launches: 0, although the status is ok"
    if is_ok and "latency_median_ms" not in result.metrics and "latency_median_ms" not in result.missing:
        yield "metrics: latency_median_ms has neither a value nor a reason in missing, although the status is ok"
    if not is_ok and result.error is None:
        yield f"error: missing, although the status is {result.status}"
    if not is_ok and result.validity is not None:
        yield f"validity: {result.validity}, although the status is {result.status}"
    timed = {
        samples.launch: len(samples.values)
        for samples in result.samples
        if (samples.phase, samples.metric) == TIMED_SAMPLES
    }
    if timed or not is_foreign:  # other tools often keep no samples
        if result.iterations != sum(timed.values()):
            yield f"iterations: {result.iterations}, but {sum(timed.values())} samples of latency_wall"
        if is_ok and result.launches != len(timed):
            yield f"launches: {result.launches}, but samples of {len(timed)}"
