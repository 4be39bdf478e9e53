"""Times of day in foreign files that say no zone."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarking.records import Doubt


def without_zone(stated: Iterable[str | None]) -> tuple[Doubt, ...]:
    """A doubt for a file that has times by a local clock and does not say of which zone: they are read as UTC.

    `stated` are the times as the file has them; nothing is doubted when it has none.
    """
    first = next((text for text in stated if text), None)
    if first is None:
        return ()
    return (Doubt(kind="time_zone_unknown", severity="info", evidence={"stated": first, "read_as": "UTC"}),)
