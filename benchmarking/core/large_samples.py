"""Reads run files of any size in bounded memory: lists of samples are taken out of the text while it is streamed.

The rest is parsed like any run file. Up to MAX_RAW samples of a file are kept. If a file has more, its launches keep
only their statistics and quantiles, as with `benchhouse compact`: DuckDB takes about 35 bytes of memory per sample in a
transaction, and reads the samples of up to 2048 launches at once.
"""

from __future__ import annotations

import hashlib
import json
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from io import BufferedReader
from typing import Any, NoReturn, overload

from benchmarking.core.errors import FormatError
from benchmarking.core.records import NUMBER_RANGE, Run, Samples, run_from_json
from benchmarking.core.sample_statistics import TAIL_MIN_SAMPLES
from benchmarking.core.untrusted.input_files import parse_json

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
        import numpy as np

        return self.quantiles[STEPS // 2] if self.quantiles is not None else float(np.median(self.numbers))

    @property
    def p99(self) -> float | None:
        """The 99th percentile; None for too few values."""
        import numpy as np

        if self._count < TAIL_MIN_SAMPLES[0.99] or self.quantiles is not None:
            return self._p99
        return float(np.quantile(self.numbers, 0.99))

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
        for samples in (one for result in run.results for one in result.samples):
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

    data = parse_json(rest, where, constant=next_list)
    samples = dict(_take_samples(data, stream))
    run = run_from_json(_plain(data, stream), where)
    return _with_samples(run, samples), stream.digest


def _take_samples(data: Any, stream: _Stream) -> Iterator[tuple[tuple[int, int], LargeSamples]]:
    """The samples, keyed by index of their result and index in it; an empty list replaces them in the data."""
    results = data.get("results") if isinstance(data, dict) else None
    for i, result in enumerate(results if isinstance(results, list) else ()):
        samples = result.get("samples") if isinstance(result, dict) else None
        for j, sample in enumerate(samples if isinstance(samples, list) else ()):
            if isinstance(sample, dict) and isinstance(sample.get("values"), LargeSamples):
                yield (i, j), sample["values"]
                sample["values"] = []


def _plain(value: Any, stream: _Stream) -> Any:
    """The value with lists instead of `LargeSamples`, for numbers under a key named like samples that are none."""
    if isinstance(value, LargeSamples):
        if value.quantiles is not None:
            stream.refuse(f"a list of {len(value)} values that are not samples")
        return list(value)
    if isinstance(value, dict):
        return {key: _plain(one, stream) for key, one in value.items()}
    return [_plain(one, stream) for one in value] if isinstance(value, list) else value


def _with_samples(run: Run, samples_by_index: dict[tuple[int, int], LargeSamples]) -> Run:
    def filled(samples: Samples, place: tuple[int, int]) -> Samples:
        values: Any = samples_by_index.get(place, samples.values)
        return replace(samples, values=values)

    results = (
        replace(result, samples=tuple(filled(one, (i, j)) for j, one in enumerate(result.samples)))
        for i, result in enumerate(run.results)
    )
    return replace(run, results=tuple(results))


class _Stream:
    """A run file that is read block by block."""

    def __init__(self, opened: BufferedReader, where: str) -> None:
        self._opened = opened
        self._where = where
        self._sha256 = hashlib.sha256()
        self._block = b""
        """Text that was read but not yet taken, from `_place` on."""
        self._place = 0
        self._raw = 0
        self.lists: list[LargeSamples] = []
        """The lists of samples, in file order."""

    @property
    def digest(self) -> str:
        return self._sha256.hexdigest()

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
                self._add(self._values())
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
        self._sha256.update(block)
        self._block = self._block[self._place :] + block
        self._place = 0
        return bool(block)

    def _values(self) -> array[float]:
        """The numbers from here to the end of their list."""
        values = array("d")
        while True:
            end = self._block.find(b"]", self._place)
            cut = end if end >= 0 else self._block.rfind(b",", self._place)
            if cut >= 0:
                self._extend(values, self._take(cut), is_end=end >= 0)
                self._place += 1
            if end >= 0:
                return values
            if len(self._block) - self._place > MAX_NUMBER_BYTES or not self._more():
                self.refuse("not JSON, or truncated: a list of samples has no end")

    def _extend(self, values: array[float], text: bytes, *, is_end: bool) -> None:
        """Add the numbers in a text. Raises FormatError for anything else, and for numbers out of range."""
        import numpy as np

        if is_end and not values and not text.strip():
            return
        try:
            if text.translate(None, NUMBER_BYTES):
                raise ValueError("more than numbers")
            numbers = np.array(json.loads(b"[%b]" % text, parse_int=float), dtype=np.float64)
            if not len(numbers):
                raise ValueError("nothing between two commas")
        except ValueError as error:
            self.refuse(f"samples: expected a list of numbers in number {len(self.lists) + 1} of the file: {error}")
        if not NUMBER_RANGE.holds(numbers.min(), numbers.max()):
            self.refuse(f"samples: expected numbers {NUMBER_RANGE}, found {numbers[np.abs(numbers).argmax()]:g}")
        values.frombytes(numbers.tobytes())
        if len(values) > MAX_LAUNCH:
            self.refuse(f"samples: more than {MAX_LAUNCH} of one launch and metric")

    def _add(self, values: array[float]) -> None:
        """Keep the values of a list. Beyond MAX_RAW in the file, compact the lists so far and all that follow."""
        self.lists.append(LargeSamples(values))
        is_first = self._raw <= MAX_RAW
        self._raw += len(values)
        if self._raw > MAX_RAW:
            for one in self.lists if is_first else self.lists[-1:]:
                one.compact()


def _numbers(values: array[float]) -> Any:
    import numpy as np

    return np.frombuffer(values, dtype=np.float64) if len(values) else np.empty(0)


def _quantile(ordered: Any, q: float) -> float:
    """The quantile of sorted values by linear interpolation; never beyond its two neighbours by rounding, so that
    quantiles are in order. Its last bit may differ from `quantile_of_sorted`: stored quantiles are compared exactly."""
    position = q * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    value = float(ordered[low] + (ordered[high] - ordered[low]) * (position - low))
    return min(value, float(ordered[high]))
