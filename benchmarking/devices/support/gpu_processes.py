"""The processes on a GPU: which is this process, and which foreign processes use the GPU.

A process that only holds a GPU open (a desktop, an idle notebook, a neighbour in another MIG instance) does not disturb
a measurement; a process that computes on the GPU does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import NOT_SUPPORTED, Json, Readings
from benchmarking.devices.support.system_values import UnreadableError, gather

BUSY_PERCENT = 5
"""Share of time with kernels of another process above which it counts as use; a desktop that redraws stays below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A process on a GPU, as the driver lists it."""

    memory_bytes: int | None = None
    """None if the driver does not report it (Windows)."""
    busy_percent: int | None = None
    """Share of time in which its kernels ran since the last reading; None if the driver does not count it."""
    is_graphics: bool = False
    """Whether it draws; it may also compute ("C+G" in nvidia-smi)."""
    computes: bool = True
    instance: int | None = None
    """Its MIG instance, if the GPU is split."""


Clients = Mapping[int, Client]
"""The processes on a GPU by pid."""


class ProcessOwners:
    """Which process on a device is this one, and which foreign processes use it.

    In a container the driver lists the host's pids, where this process has another number. So the pids from `before`
    this process used the device are remembered: if exactly one pid is new later, it is ours. If none were remembered,
    because this process already used the device, a single pid is ours.
    """

    def __init__(self, before: frozenset[int], own: int | None = None) -> None:
        self._before = before
        self._own = own or os.getpid()
        self._alias: int | None = None
        self._memory: dict[int, int | None] | None = None
        """Bytes by pid at the last reading of `use`; None before the first."""

    @classmethod
    def at_start(cls, clients: Callable[[], Clients], own: int | None, *, is_in_use: bool) -> ProcessOwners:
        """Remembers the processes now on the device, or none if this process already uses it (`is_in_use`)."""
        try:
            return cls(frozenset() if is_in_use else computing(clients()), own)
        except UnreadableError:  # every state() reports the reason
            return cls(frozenset(), own)

    def own_pid(self, pids: frozenset[int]) -> int | None:
        """This process's pid among `pids`; None while it is not listed. Raises UnreadableError if it is ambiguous."""
        if self._own in pids:
            return self._own
        if self._alias in pids:
            return self._alias
        newcomers = pids - self._before
        if len(newcomers) > 1:
            listed = ", ".join(map(str, sorted(newcomers)))
            raise UnreadableError(
                f"{NOT_SUPPORTED}: the driver lists pids of another namespace ({listed}; ours is {self._own})"
            )
        self._alias = next(iter(newcomers), None)
        return self._alias

    def own_bytes(self, clients: Clients) -> int:
        """Memory of this process, from the driver's list by pid. Raises UnreadableError rather than guess."""
        own = self.own_pid(computing(clients))
        if own is None:
            raise UnreadableError(
                f"{NOT_SUPPORTED}: the driver does not list this process (it may not hold any memory yet)"
            )
        used = clients[own].memory_bytes
        if used is None:
            raise UnreadableError(f"{NOT_SUPPORTED}: the driver does not report memory per process")
        return used

    def use(self, clients: Callable[[], Clients]) -> Readings:
        """`foreign_pids`: the other processes that use the device; `foreign_use`: the evidence, one entry for each."""

        def listed() -> list[Json]:
            return self.foreign(clients())

        readings = gather({"foreign_use": listed})
        if "foreign_use" in readings.missing:
            return readings | Readings(missing={"foreign_pids": readings.missing["foreign_use"]})
        entries: list[Json] = readings.values["foreign_use"]  # type: ignore[assignment]
        pids: list[Json] = [entry["pid"] for entry in entries if isinstance(entry, dict)]
        return readings | Readings(values={"foreign_pids": pids})

    def foreign(self, clients: Clients) -> list[Json]:
        """The other processes that use the device, by pid. Raises UnreadableError.

        Ancestors, descendants and processes in other MIG instances do not count as foreign.
        """
        own = self.own_pid(computing(clients))
        others = {pid: client for pid, client in clients.items() if pid != own}
        own_instance = None if own is None else clients[own].instance
        is_split = any(client.instance is not None for client in clients.values())
        family = frozenset[int]()
        if others and own in (None, self._own):
            import psutil

            with suppress(psutil.Error):
                process = psutil.Process(self._own)
                family = frozenset(one.pid for one in (*process.parents(), *process.children(recursive=True)))
        memory = {pid: client.memory_bytes for pid, client in clients.items()}
        memory_before, self._memory = memory if self._memory is None else self._memory, memory
        return [
            {"pid": pid, "busy_percent": client.busy_percent, "memory_bytes": client.memory_bytes}
            for pid, client in sorted(others.items())
            if pid not in family and not (is_split and client.instance != own_instance)
            if _is_in_use(client, memory_before.get(pid, 0))
        ]


def computing(clients: Clients) -> frozenset[int]:
    """The pids that the driver lists as computing, which includes every process that uses the GPU by CUDA or HIP."""
    return frozenset(pid for pid, client in clients.items() if client.computes)


def _is_in_use(client: Client, memory_before: int | None) -> bool:
    """Whether a process computes, or allocates or frees memory. If the driver does not count computing, only memory
    counts, and not for processes that draw."""
    if client.busy_percent is not None and client.busy_percent >= BUSY_PERCENT:
        return True
    if client.is_graphics:
        return False
    if client.memory_bytes is None or memory_before is None:
        return False
    return client.memory_bytes != memory_before or (client.busy_percent is None and client.memory_bytes > 0)
