"""Finds contradictions within one run file: the checks of `--verify` that need no other run.

A number out of its field's range is refused when the record is read; here, fields are compared with each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from benchmarking.core import plugins
from benchmarking.core.errors import FormatError
from benchmarking.core.records import Hardware, Result, Run, canonical_hash

TIMED = ("measure", "latency_wall")
"""Phase and metric of the samples that a result counts as its iterations."""


def check_run(run: Run, where: str) -> None:
    """Raise FormatError with the first fault, if there is one."""
    for problem in faults(run):
        raise FormatError(f"{where}: {problem}")


def faults(run: Run) -> Iterator[str]:
    """The faults, each prefixed with its field."""
    yield from _hardware_faults(run.hardware)
    yield from _repeated((result.result_id for result in run.results), "results: result_id {} occurs {} times")
    if run.origin is None and not run.is_load:  # runtimes of other tools and servers may have any name
        yield from _unknown("cell.runtime", run.cell.runtime, plugins.RUNTIMES)
        yield from _unknown("hardware.device.type", run.hardware.device.type, plugins.DEVICES)
    for index, result in enumerate(run.results):
        for problem in _result_faults(result, is_foreign=run.origin is not None):
            yield f"results[{index}]: {problem}"


def _hardware_faults(hardware: Hardware) -> Iterator[str]:
    expected = canonical_hash(hardware.hashed_keys)[:16]
    if hardware.hardware_id != expected:
        yield f"hardware.hardware_id: {hardware.hardware_id!r} is not the hash of its hashed_keys, {expected!r}"


def _unknown(field: str, name: str, package: str) -> Iterator[str]:
    names = plugins.names(package)
    if name not in names:
        yield f"{field}: {name!r} is unknown: expected one of {', '.join(names)}"


def _repeated(keys: Iterator[object], words: str) -> Iterator[str]:
    for key, count in Counter(keys).items():
        if count > 1:
            yield words.format(key, count)


def _result_faults(result: Result, *, is_foreign: bool) -> Iterator[str]:
    keys = (f"launch {one.launch}, {one.phase} {one.metric}" for one in result.samples)
    yield from _repeated(keys, "samples: {} occurs {} times")
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
    timed = {one.launch: len(one.values) for one in result.samples if (one.phase, one.metric) == TIMED}
    if timed or not is_foreign:  # other tools often keep no samples
        if result.iterations != sum(timed.values()):
            yield f"iterations: {result.iterations}, but {sum(timed.values())} samples of latency_wall"
        if is_ok and result.launches != len(timed):
            yield f"launches: {result.launches}, but samples of {len(timed)}"
