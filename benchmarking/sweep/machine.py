"""What plans need to know of this machine, each question asked once however many cells there are."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cached_property

from benchmarking.records import Device, Hardware, Provenance, Readings


class Machine:
    """This machine as it was when it was first asked. For one plan: the next one is to look anew."""

    def __init__(self) -> None:
        self.devices: dict[str, tuple[Device, ...]] = {}
        """What each kind of device has answered, by kind; `select` fills it."""

    @cached_property
    def host(self) -> Readings:
        """The facts of the machine."""
        from benchmarking.devices._host import host_facts

        return host_facts()

    @cached_property
    def environment(self) -> Readings:
        """Its state."""
        from benchmarking.measure.environment import capture

        return capture()

    def hardware(self, device: Device) -> Hardware:
        """The identity of the machine with a device of it."""
        from benchmarking.devices._hardware import hardware

        return hardware(device, self.host)

    def provenance(self, command: Sequence[str], tags: Mapping[str, str], description: str | None) -> Provenance:
        """Where a run of this command comes from."""
        return dataclasses.replace(self._provenance, command=tuple(command), tags=dict(tags), description=description)

    @cached_property
    def _provenance(self) -> Provenance:
        from benchmarking.provenance import provenance

        return provenance((), {}, None)
