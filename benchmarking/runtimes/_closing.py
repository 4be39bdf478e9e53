"""Letting go of what a point held, however its measuring ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def always_after(close: Callable[[], object]) -> Iterator[None]:
    """`close` runs at the end. When both raise, the first error is the one that is told, and the second is its note."""
    try:
        yield
    except Exception as error:
        try:
            close()
        except Exception as second:  # noqa: BLE001 - the error before it is the reason; this one is kept with it
            error.add_note(f"and then, while cleaning up: {type(second).__name__}: {second}")
        raise
    close()
