"""A cache that is no larger after a command than before: what the command made new is deleted at its end."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarking.builds.cleaning import Freed, delete_folders
from benchmarking.builds.sizes import size_text
from benchmarking.builds.store import MADE_VARIABLE, BuildStore


@contextmanager
def lean_cache(*, is_lean: bool, say: Callable[[str], None]) -> Iterator[None]:
    """Inside, builds that this process and its workers make are listed; at the end, however that comes, they go.

    Builds that were there before stay, as does what other commands make meanwhile. `say` is told what was freed.
    """
    if not is_lean:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="benchhouse-") as folder:
        made = Path(folder) / "made"
        before = os.environ.get(MADE_VARIABLE)
        os.environ[MADE_VARIABLE] = str(made)
        try:
            yield
        finally:
            _put_back(before)
            say(_words(_delete(made)))


def _delete(made: Path) -> Freed:
    """Delete what is listed in the file, as far as it is still there."""
    root = BuildStore().root
    lines = made.read_text(encoding="utf-8").split() if made.exists() else []
    folders = [root.joinpath(*line.split("/")) for line in dict.fromkeys(lines)]
    return delete_folders(root, [folder for folder in folders if folder.exists()])


def _words(freed: Freed) -> str:
    kept = f"; {len(freed.in_use)} in use elsewhere stay" if freed.in_use else ""
    builds = "build" if freed.count == 1 else "builds"
    return f"lean cache: {freed.count} {builds} deleted, {size_text(freed.size_bytes)} freed{kept}"


def _put_back(before: str | None) -> None:
    if before is None:
        del os.environ[MADE_VARIABLE]
    else:
        os.environ[MADE_VARIABLE] = before
