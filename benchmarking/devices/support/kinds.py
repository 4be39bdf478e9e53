"""Device kinds, looked up by name or trait, and a device's identity and free memory."""

from __future__ import annotations

from collections.abc import Callable

from benchmarking.core import plugins
from benchmarking.core.device_contracts import DeviceKind
from benchmarking.core.records import NOT_APPLICABLE, NOT_SUPPORTED, Device, Hardware, Json, Readings, canonical_hash
from benchmarking.devices.support.host import free_host_bytes, host_facts, int_fact, text_fact

LAST = (1000, "")
"""Rank of the kinds that `auto` never tries."""

HASH_VERSION = 1
"""Incremented whenever `hashed_keys` changes, which changes every id."""
HOST_FIELDS = ("cpu_model", "cpu_cores", "cpu_threads", "memory_bytes")
"""Host facts that are fields of Hardware; the others go into its `host`."""

WHOLE_COMPUTE, WHOLE_MEMORY = ("SPX", "N/A", ""), ("NPS1", "N/A", "")
"""Modes of an AMD GPU that is not partitioned."""

SOFTWARE_RENDERERS = ("swiftshader", "llvmpipe", "lavapipe", "warp", "microsoft basic render")
"""Words in the names of renderers that run on the CPU."""

FREE = "free_memory_bytes"
"""Name of the reading, and of the fact in which a probe may report it."""
TOTAL = "device_memory_bytes"


def kinds() -> tuple[DeviceKind, ...]:
    """Every kind: the CPU first, then in the order in which `auto` tries them, then the others."""
    all_kinds = map(plugins.device_kind, plugins.names(plugins.DEVICES))
    return tuple(sorted(all_kinds, key=lambda kind: (not kind.is_processor, min(kind.auto_ranks, default=LAST))))


def kind_of(device_type: str) -> DeviceKind | None:
    """The kind with this name; None if this version does not have it."""
    return plugins.device_kind(device_type) if device_type in plugins.names(plugins.DEVICES) else None


def has(device_type: str, trait: Callable[[DeviceKind], bool]) -> bool:
    """Whether a kind has a trait; False for a kind that this version does not have."""
    kind = kind_of(device_type)
    return kind is not None and trait(kind)


def is_processor(device_type: str) -> bool:
    """Whether a kind is the machine's processor; False for a kind that this version does not have."""
    return has(device_type, lambda kind: kind.is_processor)


def names_with(trait: Callable[[DeviceKind], bool]) -> tuple[str, ...]:
    """Names of the kinds that have a trait, in the order of `kinds`."""
    return tuple(kind.name for kind in kinds() if trait(kind))


def device_named(request: str) -> str:
    """A `--device` value with aliases replaced by the kind's name: "cuda:1" for "nvidia:1"."""
    name, colon, part = request.partition(":")
    kind_name = next((kind.name for kind in kinds() if name.lower() in kind.aliases), name)
    return f"{kind_name}{colon}{part}"


def processor() -> DeviceKind:
    """The CPU's kind, which every machine has."""
    return next(kind for kind in kinds() if kind.is_processor)


def is_software(name: str) -> bool:
    """Whether the name of a GPU is that of a renderer on the CPU."""
    return any(word in name.lower() for word in SOFTWARE_RENDERERS)


def hardware(device: Device, host: Readings | None = None) -> Hardware:
    """The hardware record of a device, in this machine or in the one with the given facts."""
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
            values={name: value for name, value in host.values.items() if name not in HOST_FIELDS},
            missing=host.missing,
        ),
    )


def hashed_keys(device: Device, host: Readings) -> dict[str, Json]:
    """The input of the hardware id's hash: what must be equal for numbers to be comparable.

    It holds only what takes a screwdriver to change: no clocks, power caps, drivers, host names or free memory. Memory
    is included as its size class.
    """
    # Memory that may belong to the host is counted once, as the host's.
    shares_memory = has(device.type, lambda kind: kind.memory != "own")
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
        **_partition(device),
    }


def _partition(device: Device) -> dict[str, Json]:
    """What part of a GPU the device is; empty for a whole one, whose ids are those from before parts were told apart.

    A MIG instance has its profile, memory and multiprocessors; a partition of an AMD GPU its modes, and the number of
    compute units, which all partitions of a GPU share.
    """
    facts = device.facts.values
    if (profile := facts.get("mig_profile")) is not None:
        return {"partition": [profile, device.memory_bytes, facts.get("multiprocessors")]}
    modes = [facts.get("compute_partition"), facts.get("memory_partition")]
    is_whole = modes[0] in (None, *WHOLE_COMPUTE) and modes[1] in (None, *WHOLE_MEMORY)
    return {} if is_whole else {"partition": [*modes, facts.get("compute_units")]}


def memory_class_bytes(memory_bytes: int) -> int:
    """The memory rounded up to 4, 5, 6 or 7 times a power of two: 23.5 GiB is in the 24 GiB class.

    Memory is sold in these sizes, and kernel, firmware and ECC can only reduce it, so rounding up is stable: up to an
    eighth may be missing, except for sizes between the classes (11 GiB is in the 12 GiB class).
    """
    step = 1 << max(memory_bytes.bit_length() - 3, 0)
    return -(-memory_bytes // step) * step


def free_memory(device: Device) -> Readings:
    """`free_memory_bytes` of the device, or why it is unknown along with its upper bound `device_memory_bytes`."""
    kind = kind_of(device.type)
    if kind is not None and kind.memory == "host":
        return Readings(values={FREE: free_host_bytes()})
    if kind is None or kind.memory != "own":
        return Readings(missing={FREE: f"{NOT_APPLICABLE}: it is unknown which memory {device.type} uses"})
    if isinstance(free := device.facts.values.get(FREE), int):
        return Readings(values={FREE: free})
    total = {} if device.memory_bytes is None else {TOTAL: device.memory_bytes}
    return Readings(values=total, missing={FREE: f"{NOT_SUPPORTED}: {device.selector} does not report it"})
