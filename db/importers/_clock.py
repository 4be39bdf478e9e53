"""Times of day in foreign files."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from benchmarking.records import Doubt
from db.importers import ForeignFile


def without_zone(stated: Iterable[str | None]) -> tuple[Doubt, ...]:
    """A doubt for a file that has times by a local clock and does not say of which zone: they are read as UTC.

    `stated` are the times as the file has them; nothing is doubted when it has none, or each with its zone.
    """
    first = next((text for text in stated if text and not _has_zone(text)), None)
    if first is None:
        return ()
    return (Doubt(kind="time_zone_unknown", severity="info", evidence={"stated": first, "read_as": "UTC"}),)


def _has_zone(text: str) -> bool:
    try:
        return datetime.fromisoformat(text.strip()).tzinfo is not None
    except ValueError:
        return False


def shifted(file: ForeignFile, time: datetime, seconds: float) -> datetime:
    """The time so many seconds later, or earlier. Raises FormatError where that is no date."""
    try:
        return time + timedelta(seconds=seconds)
    except OverflowError:
        file.refuse(f"{seconds:g} s from {time} is no date")
