"""The end of a run: its file written, and stored, as soon as its last launch is done."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarking.clock import utc_now
from benchmarking.errors import StorageError
from benchmarking.records import Run
from benchmarking.storing import Ingest
from benchmarking.sweep.track import Track


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A run that is over, and its file."""

    run: Run
    path: Path
    has_failures: bool
    """True when anything that was tried did not work, in any launch."""


def finish(track: Track) -> Finished:
    """Write the run's file. Raises StorageError; what was measured is then in the partial file."""
    run = track.run(utc_now())
    path = track.file.finish(run)
    track.release()
    return Finished(run=run, path=path, has_failures=track.has_failures)


def why_not_stored(path: Path, ingest: Ingest | None) -> str | None:
    """Store a run file, if there is anything to store it in; None, or why that did not work. The file stays."""
    if ingest is None:
        return None
    try:
        ingest(path)
    except StorageError as error:
        return str(error)
    return None
