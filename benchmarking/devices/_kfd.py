"""AMD GPUs as the Linux kernel shows them, where amdsmi is not installed: /sys/class/kfd, /sys/class/drm and hwmon."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarking.devices import IN_USE_NAMES, STATE_NAMES
from benchmarking.devices._reading import UnreadableError, absent, gather, read_int, read_text
from benchmarking.devices._torch import pci_address
from benchmarking.records import NOT_SUPPORTED, Json, Readings

MILLI = 1_000
MICRO = 1_000_000
NEEDS_AMDSMI = f"{NOT_SUPPORTED}: needs the package amdsmi"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A GPU of the kernel's compute topology."""

    address: str
    name: str
    gfx_target: str
    properties: dict[str, int]
    device: Path
    """Its PCI device's folder, through the render node."""


def nodes(sys: Path) -> list[Node]:
    """The GPUs, in the topology's order, which is HIP's. Raises UnreadableError when the driver is not loaded."""
    folder = sys / "class/kfd/kfd/topology/nodes"
    if not folder.is_dir():
        raise UnreadableError(f"{NOT_SUPPORTED}: no {folder}")
    paths = sorted((path for path in folder.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    described = [(path, _properties(path)) for path in paths]
    return [_node(path, properties, sys) for path, properties in described if properties.get("simd_count", 0) > 0]


def _properties(path: Path) -> dict[str, int]:
    """The node's properties; empty for one this user may not read, as for a GPU another container owns."""
    try:
        lines = read_text(path / "properties").splitlines()
    except UnreadableError:
        return {}
    pairs = (line.split() for line in lines)
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _node(path: Path, properties: dict[str, int], sys: Path) -> Node:
    location = properties.get("location_id", 0)  # PCI bus, slot and function packed in 16 bits
    return Node(
        address=pci_address(properties.get("domain", 0), location >> 8, location >> 3 & 0x1F),
        name=_name(path),
        gfx_target=gfx_target(properties.get("gfx_target_version", 0)),
        properties=properties,
        device=sys / f"class/drm/renderD{properties.get('drm_render_minor', 0)}/device",
    )


def _name(path: Path) -> str:
    try:
        return read_text(path / "name")
    except UnreadableError:
        return ""


def gfx_target(version: int) -> str:
    """The compiler's name of a gfx_target_version: 90402 is gfx942, 90010 is gfx90a (minor and stepping in hex)."""
    return f"gfx{version // 10_000}{version // 100 % 100:x}{version % 100:x}"


def node_facts(node: Node) -> Readings:
    """What the kernel tells about a GPU that does not change while it runs."""
    return gather(
        {
            "name": lambda: product_name(node),
            "gfx_target": lambda: node.gfx_target,
            "compute_units": lambda: node.properties["simd_count"] // max(node.properties.get("simd_per_cu", 1), 1),
            "unique_id": lambda: read_text(node.device / "unique_id"),
            "memory_bytes": lambda: read_int(node.device / "mem_info_vram_total"),
            "power_cap_w": lambda: read_int(_sensor(node, "power1_cap")) / MICRO,
            "power_cap_default_w": lambda: read_int(_sensor(node, "power1_cap_default")) / MICRO,
            "clock_max_hz": lambda: node.properties["max_engine_clk_fcompute"] * MICRO,
            "compute_partition": lambda: read_text(node.device / "current_compute_partition"),
            "pcie_width": lambda: read_int(node.device / "current_link_width"),
            "pcie_width_max": lambda: read_int(node.device / "max_link_width"),
        }
    )


def product_name(node: Node) -> str:
    """The board's product name (told by data-centre boards), else the chip's name and target."""
    try:
        product = read_text(node.device / "product_name")
    except UnreadableError:
        product = ""
    return product or f"AMD {node.name or 'GPU'} ({node.gfx_target})"


def _sensor(node: Node, name: str) -> Path:
    found = sorted(node.device.glob(f"hwmon/hwmon*/{name}"))
    if not found:
        raise UnreadableError(f"{NOT_SUPPORTED}: no {node.device}/hwmon/*/{name}")
    return found[0]


class SysfsMonitor:
    """The watch on one GPU through its hwmon folder."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def memory_in_use(self) -> Readings:
        used = gather({"device_used_bytes": lambda: read_int(self._node.device / "mem_info_vram_used")})
        return absent(NEEDS_AMDSMI, IN_USE_NAMES) | used

    def state(self) -> Readings:
        read = gather(
            {
                "clock_hz": lambda: read_int(_sensor(self._node, "freq1_input")),
                "memory_clock_hz": lambda: read_int(_sensor(self._node, "freq2_input")),
                "temperature_c": self._temperature_c,
                "power_w": self._power_w,
            }
        )
        return absent(NEEDS_AMDSMI, STATE_NAMES) | read

    def energy_j(self) -> Readings:
        return absent(NEEDS_AMDSMI, ("gpu",))

    def close(self) -> None:
        """Nothing is held."""

    def _temperature_c(self) -> Json:
        """The junction (temp2), which is what the firmware throttles on; the edge (temp1) where it is not told."""
        try:
            return read_int(_sensor(self._node, "temp2_input")) / MILLI
        except UnreadableError:
            return read_int(_sensor(self._node, "temp1_input")) / MILLI

    def _power_w(self) -> Json:
        """Average power; newer GPUs tell the momentary one instead."""
        try:
            return read_int(_sensor(self._node, "power1_average")) / MICRO
        except UnreadableError:
            return read_int(_sensor(self._node, "power1_input")) / MICRO
