"""The identity of the machine and device a run belongs to: what must be equal for numbers to be comparable."""

from __future__ import annotations

from benchmarking.core.records import Device, Hardware, Json, Readings, canonical_hash
from benchmarking.devices.support.host import host_facts, int_fact, text_fact
from benchmarking.devices.support.kinds import has

HASH_VERSION = 1
"""Raised whenever `hashed_keys` changes, since every id changes with it."""

OWN_FIELDS = ("cpu_model", "cpu_cores", "cpu_threads", "memory_bytes")
"""Host facts that have a field of their own in Hardware."""


def hardware(device: Device, host: Readings | None = None) -> Hardware:
    """The hardware of a device in this machine (or in the one whose facts are given)."""
    host = host_facts() if host is None else host
    keys = hashed_keys(device, host)
    return Hardware(
        hardware_id=canonical_hash(keys)[:16],
        hash_version=HASH_VERSION,
        hashed_keys=keys,
        device=device,
        cpu_model=text_fact(host, "cpu_model"),
        cpu_cores=int_fact(host, "cpu_cores"),
        cpu_threads=int_fact(host, "cpu_threads"),
        memory_bytes=int_fact(host, "memory_bytes"),
        host=Readings(
            values={name: value for name, value in host.values.items() if name not in OWN_FIELDS},
            missing=host.missing,
        ),
    )


def hashed_keys(device: Device, host: Readings) -> dict[str, Json]:
    """What the hardware id is made of. Nothing that changes without a screwdriver: no clocks, caps, drivers or names
    of hosts, no free memory; memory only as its class."""
    shares_memory = has(device.type, lambda kind: kind.memory != "own")  # or may: it counts once, as the machine's
    has_own_memory = not shares_memory and device.memory_bytes is not None
    memory_bytes = int_fact(host, "memory_bytes")
    return {
        "device_type": device.type,
        "device_name": device.name,
        "device_count": device.count,
        "device_memory_class_bytes": memory_class_bytes(device.memory_bytes or 0) if has_own_memory else None,
        "cpu_model": text_fact(host, "cpu_model"),
        "cpu_cores": int_fact(host, "cpu_cores"),
        "cpu_threads": int_fact(host, "cpu_threads"),
        "numa_nodes": int_fact(host, "numa_nodes"),
        "memory_class_bytes": None if memory_bytes is None else memory_class_bytes(memory_bytes),
    }


def memory_class_bytes(memory_bytes: int) -> int:
    """The least of 4, 5, 6 or 7 times a power of two that holds the memory: 23.5 GiB is of the 24 GiB class.

    Memory is sold in such sizes, and kernel, firmware and ECC only ever take some away, so rounding up is stable:
    at least an eighth may be missing, save from sizes between the classes (11 GiB is of the 12 GiB class).
    """
    step = 1 << max(memory_bytes.bit_length() - 3, 0)
    return -(-memory_bytes // step) * step
