"""Where compiled code is kept on disk: a folder of its own for each cell and point, so that cold means empty.

The first launch finds its folder emptied and compiles everything; later launches find what it left.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from benchmarking.builds.keys import model_parts
from benchmarking.builds.store import BuildKey, BuildStore
from benchmarking.records import NOT_RUN, Cell, Json, Point

KIND = "inductor"
FOLDERS = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
"""The variables that name torch's folders, and what they are called in a build."""
LAUNCH = "BENCHHOUSE_LAUNCH"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileCache:
    """The folder of one process."""

    store: BuildStore
    key: BuildKey
    state: Literal["cold", "warm"]
    begun_s: float
    """Monotonic clock."""

    @classmethod
    def open(cls, cell: Cell, point: Point, cleanup: ExitStack) -> CompileCache:
        """The folder of a point, named to torch until `cleanup`: emptied in the first launch, and when there is none
        of an earlier one. Raises StorageError when it cannot be made."""
        store, key = BuildStore(), cache_key(cell, point)
        is_warm = int(os.environ.get(LAUNCH, "0")) > 0 and store.find(key) is not None
        folder = store.folder(key) if is_warm else store.emptied(key)
        for variable, name in FOLDERS.items():
            _set(variable, folder / name, cleanup)
        return cls(store=store, key=key, state="warm" if is_warm else "cold", begun_s=time.monotonic())

    def keep(self, facts: dict[str, Json]) -> None:
        """Leave the folder to later launches."""
        self.store.keep(self.key, build_s=time.monotonic() - self.begun_s, facts=facts)

    def absent(self) -> dict[str, str]:
        """Why this launch has no reading of the other state."""
        if self.state == "cold":
            return {"compile_warm_s": f"{NOT_RUN}: second launch"}
        return {"compile_cold_s": f"{NOT_RUN}: the launch before left its compiled code"}


def cache_key(cell: Cell, point: Point) -> BuildKey:
    """What compiled code depends on; threads too, whose number is compiled in on a CPU."""
    parts: dict[str, Json] = {
        **model_parts(cell.workload),
        "point": point.label,
        "device": cell.device.selector,
        "device_name": cell.device.name,
        "runtime": cell.runtime,
        "mode": dict(cell.runtime_mode),
        "precision": cell.precision,
        "num_threads": cell.num_threads,
        "versions": {name: version(name) for name in ("torch", "transformers")},
    }
    return BuildKey(kind=KIND, parts=parts)


def _set(variable: str, folder: Path, cleanup: ExitStack) -> None:
    """Set an environment variable until `cleanup`."""
    before = os.environ.get(variable)
    os.environ[variable] = str(folder)
    cleanup.callback(_put_back, variable, before)


def _put_back(variable: str, before: str | None) -> None:
    if before is None:
        os.environ.pop(variable, None)
    else:
        os.environ[variable] = before
