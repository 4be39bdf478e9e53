"""Reads and checks the files of runs and profiles, as the warehouse stores them.

A number out of its field's range is refused when the record is read; `faults` compares fields with each other.

Files of any size are read in bounded memory: lists of samples are taken out of the text while it is streamed, and the
rest is parsed like any run file. Up to MAX_RAW samples of a file are kept. If a file has more, its launches keep only
their statistics and quantiles, as with `benchhouse compact`: DuckDB takes about 35 bytes of memory per sample in a
transaction, and reads the samples of up to 2048 launches at once.
"""

from __future__ import annotations

import hashlib
import json
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from io import BufferedReader
from pathlib import Path
from statistics import median
from typing import Any, NoReturn, overload

from benchmarking.core import plugins, profiles
from benchmarking.core.errors import FormatError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import np
from benchmarking.core.profiles import Profile
from benchmarking.core.records import NUMBER_RANGE, Result, Run, canonical_hash, run_from_json
from benchmarking.core.sample_statistics import TAIL_MIN_SAMPLES, tail_quantile
from benchmarking.core.untrusted.input_files import open_regular, parse_json

MAX_RAW = 8_000_000
"""Maximum samples of a file that are stored. Just below 2^23: for more values DuckDB commits a vector twice as long."""
MAX_LAUNCH = 50_000_000
"""Maximum samples of one launch and metric, which are sorted in memory, at 8 bytes each."""
MAX_REST_BYTES = 64_000_000
"""Maximum size of a run file without its samples."""
BLOCK_BYTES = 1 << 22
MAX_NUMBER_BYTES = 10_000

STEPS = 20
QUANTILES = tuple(step / STEPS for step in range(STEPS + 1))
"""The quantiles that are kept of compacted samples; `db.commands.compact` explains the choice."""
MIN_SAMPLES = 2 * len(QUANTILES)
"""Minimum samples for compaction."""

STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
LIST_OF_NUMBERS = re.compile(rb"\s*+:\s*+\[\s*+(?=[-0-9\]])")
KEY_AT_END = re.compile(rb"\s*+(?::\s*+(?:\[\s*+)?)?\Z")
"""A block that ends after the key of samples: only the next block shows whether a list of numbers follows."""
KEY = b'"values"'
PLACEHOLDER = b'"values":NaN'
NUMBER_BYTES = b"0123456789+-.eE, \t\r\n"


class LargeSamples(Sequence[float]):
    """The values of one launch and metric; once compacted, only their number, statistics and quantiles."""

    def __init__(self, values: array[float]) -> None:
        self._values = values
        self._count = len(values)
        self.quantiles: tuple[float, ...] | None = None
        """The values at QUANTILES; None until compacted."""
        ordered = _numbers(values)
        self.least = float(ordered.min()) if len(values) else 0.0
        self.mean = float(ordered.mean()) if len(values) else 0.0
        self._p99: float | None = None

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> float: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[float]: ...
    def __getitem__(self, place: int | slice) -> float | Sequence[float]:
        return self._values[place]

    def __iter__(self) -> Iterator[float]:
        return iter(self._values)

    @property
    def numbers(self) -> Any:
        """The values as a numpy array; empty once they are compacted or released."""
        return _numbers(self._values)

    @property
    def median(self) -> float:
        return self.quantiles[STEPS // 2] if self.quantiles is not None else float(np.median(self.numbers))

    @property
    def p99(self) -> float | None:
        """The 99th percentile; None for too few values."""
        return tail_quantile(self.numbers, 0.99) if self.quantiles is None else self._p99

    def release(self) -> None:
        """Drop the values once they are stored; their number, minimum and mean remain."""
        self._values = array("d")

    def compact(self) -> None:
        """Keep only the statistics and quantiles, unless there are few values."""
        if self.quantiles is None and self._count >= MIN_SAMPLES:
            ordered = self.numbers
            ordered.sort()
            self.quantiles = tuple(_quantile(ordered, q) for q in QUANTILES)
            self._p99 = _quantile(ordered, 0.99) if self._count >= TAIL_MIN_SAMPLES[0.99] else None
            del ordered
            self._values = array("d")


def large_samples(runs: Iterable[Run]) -> Iterator[LargeSamples]:
    """The `LargeSamples` in the runs."""
    for run in runs:
        for samples in (sample for result in run.results for sample in result.samples):
            values: Any = samples.values
            if isinstance(values, LargeSamples):
                yield values


def read_large(opened: BufferedReader, where: str) -> tuple[Run, str]:
    """The run in an open file, with `LargeSamples`, and the file's digest (SHA-256, hex).

    Raises FormatError like `benchmarking.core.run_file.read_file`.
    """
    stream = _Stream(opened, where)
    rest = stream.rest()
    lists = iter(stream.lists)

    def next_list(name: str) -> LargeSamples:
        values = next(lists, None) if name == "NaN" else None
        if values is None:
            raise ValueError(f"{name} is not a number")
        return values

    data = parse_json(rest, where, constant=next_list, objects=partial(_object, where))
    # The samples by the index of their result and that in it; in the data, an empty list takes their place.
    taken: dict[tuple[int, int], Any] = {}
    results = data.get("results") if isinstance(data, dict) else None
    for i, result in enumerate(results if isinstance(results, list) else ()):
        samples = result.get("samples") if isinstance(result, dict) else None
        for j, sample in enumerate(samples if isinstance(samples, list) else ()):
            if isinstance(sample, dict) and isinstance(sample.get("values"), LargeSamples):
                taken[i, j], sample["values"] = sample["values"], []
    run = run_from_json(_plain(data, stream), where)
    filled = []
    for i, result in enumerate(run.results):
        own = [replace(one, values=taken.get((i, j), one.values)) for j, one in enumerate(result.samples)]
        filled.append(replace(result, samples=tuple(own)))
    return replace(run, results=tuple(filled)), stream.sha256.hexdigest()


def _plain(value: Any, stream: _Stream) -> Any:
    """The value with lists instead of `LargeSamples`, for numbers under a key named like samples that are none."""
    if isinstance(value, LargeSamples):
        if value.quantiles is not None:
            stream.refuse(f"a list of {len(value)} values that are not samples")
        return list(value)
    if isinstance(value, dict):
        return {key: _plain(one, stream) for key, one in value.items()}
    return [_plain(one, stream) for one in value] if isinstance(value, list) else value


class _Stream:
    """A run file that is read block by block."""

    def __init__(self, opened: BufferedReader, where: str) -> None:
        self._opened = opened
        self._where = where
        self.sha256 = hashlib.sha256()
        self._block = b""
        """Text that was read but not yet taken, from `_place` on."""
        self._place = 0
        self._raw = 0
        self.lists: list[LargeSamples] = []
        """The lists of samples, in file order."""

    def refuse(self, problem: str) -> NoReturn:
        raise FormatError(f"{self._where}: {problem}")

    def rest(self) -> bytes:
        """The file's text with a placeholder for each list of samples."""
        rest = bytearray()
        while self._place < len(self._block) or self._more():
            quote = self._block.find(b'"', self._place)
            rest += self._take(quote if quote >= 0 else len(self._block))
            string = STRING.match(self._block, self._place)
            if string is None:
                if self._place < len(self._block) and not self._more():  # truncated in a string
                    rest += self._take(len(self._block))
            elif string.group() != KEY:
                rest += self._take(string.end())
            elif opening := LIST_OF_NUMBERS.match(self._block, string.end()):
                self._place = opening.end()
                # Beyond MAX_RAW in the file, compact the lists so far and all that follow.
                values = self._values()
                self.lists.append(LargeSamples(values))
                is_first = self._raw <= MAX_RAW
                self._raw += len(values)
                if self._raw > MAX_RAW:
                    for samples in self.lists if is_first else self.lists[-1:]:
                        samples.compact()
                rest += PLACEHOLDER
            elif not (KEY_AT_END.match(self._block, string.end()) and self._more()):
                rest += self._take(string.end())
            if len(rest) + len(self._block) > MAX_REST_BYTES + 2 * BLOCK_BYTES:
                self.refuse(f"more than {MAX_REST_BYTES / 1e6:g} MB without its samples")
        return bytes(rest)

    def _take(self, end: int) -> bytes:
        part = self._block[self._place : end]
        self._place = end
        return part

    def _more(self) -> bool:
        """Read a block; False at the end of the file."""
        block = self._opened.read(BLOCK_BYTES)
        self.sha256.update(block)
        self._block = self._block[self._place :] + block
        self._place = 0
        return bool(block)

    def _values(self) -> array[float]:
        """The numbers from here to the end of their list. Raises FormatError for anything else, and for numbers out of
        range."""
        values = array("d")
        while True:
            end = self._block.find(b"]", self._place)
            cut = end if end >= 0 else self._block.rfind(b",", self._place)
            if cut >= 0:
                text = self._take(cut)
                self._place += 1
                is_empty = end >= 0 and not values and not text.strip()
                try:
                    if text.translate(None, NUMBER_BYTES):
                        raise ValueError("more than numbers")
                    numbers = np.array(json.loads(b"[%b]" % text, parse_int=float), dtype=np.float64)
                    if not len(numbers) and not is_empty:
                        raise ValueError("nothing between two commas")
                except ValueError as error:
                    place = len(self.lists) + 1
                    self.refuse(f"samples: expected a list of numbers in number {place} of the file: {error}")
                if len(numbers) and not NUMBER_RANGE.holds(numbers.min(), numbers.max()):
                    worst = numbers[np.abs(numbers).argmax()]
                    self.refuse(f"samples: expected numbers {NUMBER_RANGE}, found {worst:g}")
                values.frombytes(numbers.tobytes())
                if len(values) > MAX_LAUNCH:
                    self.refuse(f"samples: more than {MAX_LAUNCH} of one launch and metric")
            if end >= 0:
                return values
            if len(self._block) - self._place > MAX_NUMBER_BYTES or not self._more():
                self.refuse("not JSON, or truncated: a list of samples has no end")


def _numbers(values: array[float]) -> Any:
    return np.frombuffer(values, dtype=np.float64) if len(values) else np.empty(0)


def _quantile(ordered: Any, q: float) -> float:
    """The quantile of sorted values by linear interpolation; never beyond its two neighbours by rounding, so that
    quantiles are in order. Its last bit may differ from `quantile_of_sorted`: stored quantiles are compared exactly."""
    position = q * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    value = float(ordered[low] + (ordered[high] - ordered[low]) * (position - low))
    return min(value, float(ordered[high]))


LARGE_BYTES = 16_000_000
"""Run files above this size are read block by block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFile:
    path: Path
    sha256: str
    """Hex digest of the file."""
    run: Run

    @property
    def is_compacted(self) -> bool:
        """Whether it has more samples than a warehouse stores, so that only their quantiles are stored."""
        values = (samples.values for result in self.run.results for samples in result.samples)
        return any(isinstance(value, LargeSamples) and value.quantiles is not None for value in values)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFile:
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
            data = parse_json(content, str(path), objects=partial(_object, str(path)))
            sha256 = hashlib.sha256(content).hexdigest()
            if isinstance(data, dict) and data.get("format") == profiles.FORMAT:
                return ProfileFile(path=path, sha256=sha256, profile=profiles.profile_from_json(data, str(path)))
            run = run_from_json(data, str(path))
        else:
            opened.seek(0)
            del content
            run, sha256 = read_large(opened, str(path))
    for problem in faults(run):
        raise FormatError(f"{path}: {problem}")
    results = tuple(replace(result, result_id=_plain_id(result.result_id)) for result in run.results)
    run = replace(run, run_id=_plain_id(run.run_id), session_id=_plain_id(run.session_id), results=results)
    return RunFile(path=path, sha256=sha256, run=run)


def _object(where: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The JSON object of these pairs. Raises FormatError for a repeated name, of whose values one would be dropped."""
    found = dict(pairs)
    if len(found) < len(pairs):
        problem = next(_duplicates((name for name, _ in pairs), "{!r} occurs {} times in one object"))
        raise FormatError(f"{where}: {problem}")
    return found


def _plain_id(given: str) -> str:
    """A UUID as this program writes it, in lower case, by which selections find it; other ids as they are."""
    return given.lower() if UUID.fullmatch(given) else given


UUID = re.compile("[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
TIMED_SAMPLES = ("measure", "latency_wall")
"""Phase and metric of the samples that a result counts as its iterations."""
ROUNDING = 1e-3
"""Share by which a median may differ from that of its samples."""


def faults(run: Run) -> Iterator[str]:
    """The faults, each prefixed with its field."""
    expected = canonical_hash(run.hardware.hashed_keys)[:16]
    if run.hardware.hardware_id != expected:
        yield f"hardware.hardware_id: {run.hardware.hardware_id!r} is not the hash of its hashed_keys, {expected!r}"
    yield from _duplicates((result.result_id for result in run.results), "results: result_id {} occurs {} times")
    if run.origin is None and not run.is_load:  # runtimes of other tools and servers may have any name
        yield from _unknown_name("cell.runtime", run.cell.runtime, plugins.RUNTIMES)
        yield from _unknown_name("hardware.device.type", run.hardware.device.type, plugins.DEVICES)
        measured = (result.point.label for result in run.results if result.status == "ok")
        yield from _duplicates(measured, "results: the point {!r} occurs {} times")
    if run.origin is None and run.finished_at is None:
        yield "finished_at: missing, although no other tool measured the run"
    for index, result in enumerate(run.results):
        for problem in (*_result_faults(result, is_foreign=run.origin is not None), *_contradictions(result, run)):
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
    if result.warmup_iterations is None and not is_foreign:
        yield "warmup_iterations: missing, although no other tool measured the result"
    if timed or not is_foreign:  # other tools often keep no samples
        if result.iterations != sum(timed.values()):
            yield f"iterations: {result.iterations}, but {sum(timed.values())} samples of latency_wall"
        if is_ok and result.launches != len(timed):
            yield f"launches: {result.launches}, but samples of {len(timed)}"


def _contradictions(result: Result, run: Run) -> Iterator[str]:
    """What `setup --verify` would find, once it is stored."""
    low, high = result.metrics.get("latency_ci_low_ms"), result.metrics.get("latency_ci_high_ms")
    if low is not None and high is not None and low > high:
        yield f"metrics: latency_ci_low_ms is {low:g}, above latency_ci_high_ms, {high:g}"
    stated = result.metrics.get("latency_median_ms")
    if stated is None or run.origin is not None or run.is_load:
        return
    medians = [
        samples.values.median if isinstance(samples.values, LargeSamples) else median(samples.values)
        for samples in result.samples
        if (samples.phase, samples.metric) == TIMED_SAMPLES and len(samples.values)
    ]
    if medians and not min(medians) * (1 - ROUNDING) <= stated <= max(medians) * (1 + ROUNDING):
        yield (
            f"metrics: latency_median_ms is {stated:.6g}, but the medians of its samples are {min(medians):.6g} to "
            f"{max(medians):.6g}"
        )
