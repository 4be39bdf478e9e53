"""What is asked of each cell of a batch: models x devices x runtimes x precisions, each with its grids."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarking.batch import setting_keys
from benchmarking.batch.model_list import Entry
from benchmarking.batch.setting_keys import BUILT_IN, FAMILY_AXES, Values
from benchmarking.core.axes import BY_KEY
from benchmarking.measure.settings import settings
from benchmarking.sweep.request import OPTIONS, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One cell that is asked for."""

    where: str
    """What asked for it: "models.yaml:3", or a flag."""
    requests: tuple[Request, ...]
    """They differ in their grids only, whose points are measured together."""
    own_options: frozenset[str] = frozenset()
    """Options of runtimes that are asked of this model alone."""

    @property
    def name(self) -> str:
        """The cell as it was asked for, and where: "gpt2 on cuda (eager, float16) [models.yaml:3]"."""
        first = self.requests[0]
        how = ", ".join(part for part in (first.runtime, first.precision) if part)
        return f"{first.model_id} on {first.device} ({how}) [{self.where}]"


def asks(entries: Sequence[Entry], flags: Values, command: tuple[str, ...]) -> tuple[Ask, ...]:
    """The cells of all entries. `flags` are the settings that were given on the command line: they win."""
    return tuple(ask for entry in entries for ask in _of_entry(entry, flags, command))


def _of_entry(entry: Entry, flags: Values, command: tuple[str, ...]) -> Iterator[Ask]:
    said = BUILT_IN
    for nearer in (entry.shared, entry.own, flags):
        said = setting_keys.merged(said, nearer)
    shared = frozenset(axis.name for key, axis in FAMILY_AXES.items() if key in flags or key not in _keys(entry.own))
    common = _common(entry.model_id, said, shared, command)
    own_options = frozenset(set(OPTIONS) & entry.own.keys() - flags.keys())
    for device, runtime, precision in itertools.product(said["devices"], said["runtimes"], said["precisions"]):
        cell = {**common, "device": device, "runtime": runtime, "precision": precision}
        requests = tuple(Request(**cell, **_grid({**said, **grid})) for grid in said["grids"])
        yield Ask(where=entry.where, requests=requests, own_options=own_options)


def _keys(own: Values) -> set[str]:
    """The keys a model's own settings have, those in its grids included."""
    return {*own, *(key for grid in own.get("grids", ()) for key in grid)}


def _common(model_id: str, said: Values, shared: frozenset[str], command: tuple[str, ...]) -> dict[str, Any]:
    """The fields of a request that all cells of a model have in common."""
    return {
        "model_id": model_id,
        "task": said.get("task"),
        "weights": said["weights"],
        "shared_axes": shared,
        "num_threads": said.get("num_threads"),
        "cpu_list": said.get("cpu_list"),
        "options": {name: said[name] for name in OPTIONS if name in said},
        "shared_options": frozenset(name for name in OPTIONS if name in said),
        "rebuild": said["rebuild"],
        "settings": settings(
            said["profile"],
            iterations=said.get("iterations"),
            warmup_iterations=said.get("warmup_iterations"),
            launches=said.get("launches"),
        ),
        "timeout_s": said["timeout"],
        "skip_unsupported": said["skip_unsupported"],
        "command": command,
        "tags": said["tags"],
        "description": said.get("description"),
    }


def _grid(said: Values) -> dict[str, Any]:
    """The fields of a request that make its grid."""
    own = {key: said[key] for key, axis in BY_KEY.items() if axis.is_field and key in said}
    return {**own, "axes": {axis.name: said[key] for key, axis in BY_KEY.items() if not axis.is_field and key in said}}
