"""Tells this process's entry in a driver's list of processes from the others'."""

from __future__ import annotations

import os
from collections.abc import Mapping

from benchmarking.devices._reading import UnreadableError
from benchmarking.records import NOT_SUPPORTED


class Owners:
    """Which of the pids that use a device are foreign.

    In a container the driver lists the host's pids, and ours is not among them under the number we know. So the pids
    that were there `before` this process touched the device are remembered: a single one that comes later is ours.
    With nothing remembered, because this process was on the device already, a single one at all is ours.
    """

    def __init__(self, before: frozenset[int], own: int | None = None) -> None:
        self._before = before
        self._own = own or os.getpid()
        self._alias: int | None = None

    def own_pid(self, pids: frozenset[int]) -> int | None:
        """The number under which this process is among `pids`; None while it is not. Raises UnreadableError."""
        if self._own in pids:
            return self._own
        if self._alias in pids:
            return self._alias
        newcomers = pids - self._before
        if len(newcomers) > 1:
            listed = ", ".join(map(str, sorted(newcomers)))
            raise UnreadableError(
                f"{NOT_SUPPORTED}: the driver's pids ({listed}) are of another namespace than ours ({self._own})"
            )
        self._alias = next(iter(newcomers), None)
        return self._alias

    def own_bytes(self, processes: Mapping[int, int | None]) -> int:
        """Memory of this process, by what the driver tells of each pid. Raises UnreadableError; nothing is guessed."""
        own = self.own_pid(frozenset(processes))
        if own is None:
            raise UnreadableError(f"{NOT_SUPPORTED}: the driver does not list this process (or it holds nothing yet)")
        used = processes[own]
        if used is None:
            raise UnreadableError(f"{NOT_SUPPORTED}: this driver does not tell memory by process")
        return used

    def foreign(self, pids: frozenset[int]) -> list[int]:
        """The others. Raises UnreadableError."""
        return sorted(pids - {self.own_pid(pids)})
