"""Messages between a coordinator and its workers: offers, orders and reports, each a JSON text.

Dask transports these texts. It pickles its own messages, which is why a cluster needs TLS. Everything that benchhouse
sends is text, parsed here by the same readers as untrusted files.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from benchmarking import __version__
from benchmarking.core.errors import FormatError, UnsupportedError
from benchmarking.core.quality import Quality
from benchmarking.core.records import (
    Device,
    Hardware,
    LaunchLoad,
    Measurement,
    Point,
    Preparation,
    Provenance,
    Readings,
    canonical_hash,
    from_json,
    to_json,
)
from benchmarking.core.untrusted.redaction import expanded, redacted
from benchmarking.measure.context import Live
from benchmarking.sweep.plan.plan import CellPlan

ORDER, OFFER = "order", "offer"


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedDevice:
    """A device offered by a worker, and its machine as described in run files."""

    device: Device
    hardware: Hardware
    free: Readings
    """Its free memory, as needed for planning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The offer of a worker."""

    worker: str
    """Its name in the cluster."""
    provenance: Provenance
    """Its program version, host, commit and versions, without a command."""
    environment: Readings
    """The state of its machine."""
    devices: tuple[OfferedDevice, ...]

    def of(self, selector: str) -> OfferedDevice | None:
        """The offered device with this selector."""
        return next((one for one in self.devices if one.device.selector == selector), None)

    @property
    def software(self) -> dict[str, str]:
        """Versions of its packages, and its commit."""
        return {**self.provenance.versions, "commit": self.provenance.git_commit or "none"}

    def identity(self, selector: str) -> str | None:
        """Equal for workers whose launches may be part of the same run: same hardware, same software. None without the
        device."""
        found = self.of(selector)
        return None if found is None else canonical_hash([found.hardware.hardware_id, self.software])


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The work of one task: launches of one cell on one device of one worker."""

    attempt: str
    """Unique id of the task, repeated in its reports."""
    topic: str
    plan: CellPlan
    launches: tuple[int, ...]
    finished: tuple[Measurement, ...] = ()
    """The results of the cell that the coordinator already has, without samples."""
    kept: tuple[str, ...] = ()
    """Ids of runs that the coordinator has saved, whose copies the worker may delete."""
    device_wait_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressMessage:
    """The progress of a worker in its order."""

    kind: Literal["preparing", "launch", "live", "waiting"]
    launch: int = 0
    text: str = ""
    point: Point | None = None
    live: Live | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A message about an attempt: a record to save, or progress. Records go unchanged to the run file, which is
    redacted when it is written."""

    attempt: str
    kept: Preparation | LaunchLoad | Measurement | Quality | None = None
    progress: ProgressMessage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """The result of a task."""

    records: int
    """Number of records sent."""
    error: str | None = None
    """Why the order was refused or not finished; None if it was finished."""
    is_refused: bool = False
    """Whether nothing was started, so that another worker may be able to execute the order."""
    is_cancelled: bool = False
    """Whether it was stopped, because the worker is leaving or the result is no longer needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """The offset of a worker's clock from the coordinator's."""

    offset_s: float
    """Seconds by which the worker's clock is ahead; negative if behind."""
    error_s: float
    """Half the round-trip time of the query, which is the uncertainty of the offset."""

    def readings(self) -> Mapping[str, float]:
        """The values stored in the run's environment."""
        return {"cluster_clock_offset_s": self.offset_s, "cluster_clock_error_s": self.error_s}


def message_text(kind: str, content: Any) -> str:
    """The text of an offer or order, which starts with the program's version."""
    return json.dumps({"benchhouse": __version__, kind: redacted(to_json(content))}, allow_nan=False)


def version_in(text: str) -> str:
    """The version of the program that wrote an offer or order. Raises FormatError for another text."""
    version = _object(text).get("benchhouse")
    if not isinstance(version, str):
        raise FormatError("not a message of a benchhouse cluster")
    return version


def read_offer(text: str) -> Offer:
    """The offer in a text of the same program version. Raises FormatError."""
    return from_json(Offer, expanded(_object(text).get(OFFER)), "the offer of a worker")


def read_order(text: str) -> Order:
    """The order in a text. Raises FormatError, and UnsupportedError for one of another program version."""
    if (version := version_in(text)) != __version__:
        raise UnsupportedError(
            f"the order is from benchhouse {version}, this worker is benchhouse {__version__}: install the same version"
        )
    return from_json(Order, expanded(_object(text).get(ORDER)), "the order")


def read_report(text: str) -> Report:
    """The report in a text. Raises FormatError."""
    return from_json(Report, _object(text), "the report of a worker")


def read_done(text: str) -> TaskResult:
    """The result in a text. Raises FormatError."""
    return from_json(TaskResult, _object(text), "the result of a worker")


def outcomes(measurements: Sequence[Measurement]) -> tuple[Measurement, ...]:
    """The measurements reduced to what an order needs: which points are finished, and with which status."""
    return tuple(
        dataclasses.replace(measurement, samples=(), window={}, extra={}, doubts=(), metrics={})
        for measurement in measurements
    )


def _object(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError, TypeError) as error:
        raise FormatError(f"not JSON: {error}") from error
    if not isinstance(data, dict):
        raise FormatError("not a JSON object")
    return data
