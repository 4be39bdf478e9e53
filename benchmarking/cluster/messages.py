"""Messages between a coordinator and its workers: offers, orders and reports, each a JSON text.

Dask transports these texts. It pickles its own messages, which is why a cluster needs TLS. Everything that benchhouse
sends is text, parsed here by the same readers as untrusted files.
"""

from __future__ import annotations

import json
from typing import Any, Literal, TypeVar

from benchmarking import __version__
from benchmarking.core.errors import FormatError, UnsupportedError
from benchmarking.core.lazy_dataclass import dataclass
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
    dumps,
    from_json,
    to_json,
)
from benchmarking.core.untrusted.redaction import expanded, redacted
from benchmarking.measure.context import Live
from benchmarking.sweep.plan.plan import CellPlan


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
        return next((offered for offered in self.devices if offered.device.selector == selector), None)

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
    """The work of one attempt: launches of one cell on one device of one worker."""

    plan: CellPlan
    launches: tuple[int, ...]
    finished: tuple[Measurement, ...] = ()
    """The results of the cell that the coordinator already has, without samples."""
    kept: tuple[str, ...] = ()
    """Ids of runs that the coordinator has saved, whose copies the worker may delete."""
    device_wait_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A message about an attempt, in the order in which they were sent. The last one is how it ended, unless its worker
    is leaving, or the attempt was cancelled."""

    attempt: str
    kind: Literal["record", "preparing", "launch", "live", "waiting", "done", "failed", "refused"]
    """refused: nothing was started, so that another worker may be able to."""
    kept: Preparation | LaunchLoad | Measurement | Quality | None = None
    """Of a record, which goes unchanged to the run file; that is redacted when it is written."""
    text: str = ""
    """What is prepared or waited for, or why it failed or was refused."""
    launch: int = 0
    point: Point | None = None
    live: Live | None = None


Message = TypeVar("Message", Offer, Order, Report)
NAMES = {Offer: "the offer of a worker", Order: "the order", Report: "the report of a worker"}
OTHER_VERSION = {
    Offer: "expected benchhouse {here}, found {there}: install the same version",
    Order: "the order is from benchhouse {there}, this worker is benchhouse {here}: install the same version",
}


def message_text(message: Offer | Order | Report) -> str:
    """The text of a message. Offers and orders begin with the program's version, and have no names of home folders."""
    if isinstance(message, Report):
        return dumps(message)
    return json.dumps({"benchhouse": __version__, "content": redacted(to_json(message))}, allow_nan=False)


def read_message(kind: type[Message], text: str) -> Message:
    """The message in a text. Raises FormatError, and UnsupportedError for the offer or order of another version of the
    program."""
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError, TypeError) as error:
        raise FormatError(f"not JSON: {error}") from error
    if kind is Report:
        return from_json(kind, data, NAMES[kind])
    if not isinstance(data, dict) or not isinstance(version := data.get("benchhouse"), str):
        raise FormatError("not a message of a benchhouse cluster")
    if version != __version__:
        raise UnsupportedError(OTHER_VERSION[kind].format(here=__version__, there=version))
    return from_json(kind, expanded(data.get("content")), NAMES[kind])
