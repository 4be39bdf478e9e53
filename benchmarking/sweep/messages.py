"""What a supervisor and its worker say to each other: one JSON line each, the job down, the messages up."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarking.errors import FormatError
from benchmarking.measure.live import Live
from benchmarking.measure.settings import Settings
from benchmarking.records import Cell, Json, LaunchLoad, Measurement, Point, Preparation, Rebuild, dumps, from_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What one worker is to do."""

    cell: Cell
    launch: int
    points: tuple[Point, ...]
    settings: Settings
    spawned_at_ns: int
    """`time.monotonic_ns()` just before the process was started: the clock is the machine's, not the process's."""
    preparation: Preparation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparationJob:
    """What a preparing process is to do."""

    cell: Cell
    points: tuple[Point, ...]
    rebuild: Rebuild


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparing:
    """The preparing process turns to a part of its work."""

    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What the runtime loads is there."""

    build: Mapping[str, Json]
    """As `Preparation.build` has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Referenced:
    """What a point's output is compared with is there, or cannot be had. One of the two is None."""

    label: str
    digest: str | None = None
    """Of the build with the reference's outputs."""
    why_not: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The preparing process is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointStarted:
    """The worker turns to a point."""

    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFailed:
    """The model could not be loaded; no point can be measured."""

    error: str
    traceback: str | None = None
    """Of a bug; None for trouble that was foreseen."""


OfPreparation = Preparing | Built | Referenced | Prepared
Message = OfPreparation | PointStarted | Live | LoadFailed | LaunchLoad | Measurement
_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        *(Preparing, Built, Referenced, Prepared),
        *(PointStarted, Live, LoadFailed, LaunchLoad, Measurement),
    )
}


def encode(message: Message) -> str:
    """The message as one line."""
    return f'{{"{type(message).__name__}":{dumps(message)}}}\n'


def decode(line: str) -> Message:
    """The message of a line. Raises FormatError for a line that is none."""
    try:
        ((name, data),) = json.loads(line).items()
        kind = _KINDS[name]
    except (ValueError, KeyError, AttributeError) as error:
        raise FormatError(f"not a worker's message: {line[:80]!r}") from error
    message: Message = from_json(kind, data)
    return message
