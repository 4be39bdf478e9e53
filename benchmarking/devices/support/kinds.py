"""The kinds of devices there are, looked up by what each says of itself."""

from __future__ import annotations

from collections.abc import Callable

from benchmarking.core import plugins
from benchmarking.core.device_contracts import DeviceKind

PACKAGE = "benchmarking.devices"
LAST = (1000, "")
"""Of kinds that `auto` never tries."""


def kinds() -> tuple[DeviceKind, ...]:
    """Every kind: the processor first, then in the order in which `auto` tries them, then the others."""
    found: list[DeviceKind] = [plugins.load(PACKAGE, name) for name in plugins.names(PACKAGE)]
    return tuple(sorted(found, key=lambda kind: (not kind.is_processor, min(kind.auto_ranks, default=LAST))))


def kind_of(device_type: str) -> DeviceKind | None:
    """The kind of that name; None for one that this version does not have."""
    kind: DeviceKind | None = None
    if device_type in plugins.names(PACKAGE):
        kind = plugins.load(PACKAGE, device_type)
    return kind


def has(device_type: str, trait: Callable[[DeviceKind], bool]) -> bool:
    """Whether a kind has a trait; False for one that this version does not have."""
    kind = kind_of(device_type)
    return kind is not None and trait(kind)


def names_with(trait: Callable[[DeviceKind], bool]) -> tuple[str, ...]:
    """Names of the kinds that have a trait, in the order of `kinds`."""
    return tuple(kind.name for kind in kinds() if trait(kind))


def processor() -> DeviceKind:
    """The kind that every machine has."""
    return next(kind for kind in kinds() if kind.is_processor)
