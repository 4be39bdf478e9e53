"""AMD GPUs: their facts and a monitor of an open one, from AMD's library amdsmi or, without it, the Linux kernel.

The kernel's trees are /sys/class/kfd, /sys/class/drm and hwmon.
"""

from __future__ import annotations

import contextlib
import importlib
import io
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarking.core.device_contracts import IN_USE_NAMES, STATE_NAMES
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import HZ_PER_MHZ
from benchmarking.core.records import FAILED, NO_PERMISSION, NOT_APPLICABLE, NOT_SUPPORTED, Json, Readings
from benchmarking.devices.support.handles import (
    HARDWARE_THERMAL,
    POWER_BRAKE,
    SOFTWARE_POWER_CAP,
    Client,
    ProcessOwners,
)
from benchmarking.devices.support.system_values import (
    UnreadableError,
    all_missing,
    first_of,
    gather,
    number_or_none,
    read_int,
    read_text,
    text_or_empty,
)
from benchmarking.devices.support.torch_gpu import pci_address

MILLI = 1_000
MICRO = 1_000_000
PARTITION_SHIFT = 28
"""Of a node's location_id: the kernel has the number of the partition in bits 31 to 28 where a GPU has several nodes
(drivers/gpu/drm/amd/amdkfd/kfd_topology.c, kfd_topology_add_device; older kernels in the bits of the PCI function),
amdsmi shows it as the PCI function."""
ABSENT = (0xFFFF, 0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF)
"""What amdsmi's structures hold where the GPU has no such value. Some versions of the package pass them on."""
PARTS = ("DPX", "TPX", "QPX", "CPX")
"""Compute partition modes in which a GPU is several devices. Its sensors of power and energy are of all together."""
NEEDS_AMDSMI = f"{NOT_SUPPORTED}: needs the package amdsmi"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A GPU in the kernel's compute topology."""

    address: str
    name: str
    gfx_target: str
    properties: dict[str, int]
    device: Path
    """Folder of its PCI device, reached through the render node."""
    function: int = 0
    """Its PCI function, which tells the partitions of one GPU apart: they share an address."""

    @property
    def place(self) -> str:
        """Its address with the function, as amdsmi writes it: "0000:c1:00.0"."""
        return f"{self.address}.{self.function:x}"


def nodes(sys: Path) -> list[Node]:
    """The GPUs in the topology's order, which HIP uses too. Raises UnreadableError if the driver is not loaded."""
    folder = sys / "class/kfd/kfd/topology/nodes"
    if not folder.is_dir():
        raise UnreadableError(f"{NOT_SUPPORTED}: no {folder}")
    found = []
    for path in sorted((path for path in folder.iterdir() if path.name.isdigit()), key=lambda path: int(path.name)):
        # Empty if this user may not read them, as for a GPU of another container.
        pairs = (line.split() for line in text_or_empty(path / "properties").splitlines())
        properties = {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}
        if properties.get("simd_count", 0) <= 0:
            continue
        location = properties.get("location_id", 0)  # PCI bus, slot and function in 16 bits; the partition on top
        found.append(
            Node(
                address=pci_address(properties.get("domain", 0), location >> 8 & 0xFF, location >> 3 & 0x1F),
                function=location >> PARTITION_SHIFT & 0xF or location & 0x7,
                name=text_or_empty(path / "name"),
                gfx_target=gfx_target(properties.get("gfx_target_version", 0)),
                properties=properties,
                device=sys / f"class/drm/renderD{properties.get('drm_render_minor', 0)}/device",
            )
        )
    return found


def gfx_target(version: int) -> str:
    """The compiler's name for a gfx_target_version: 90402 is gfx942, 90010 is gfx90a (minor and stepping in hex)."""
    return f"gfx{version // 10_000}{version // 100 % 100:x}{version % 100:x}"


def node_facts(node: Node) -> Readings:
    """Constant facts of a GPU, from the kernel."""
    return gather(
        {
            # The board's product name (on data-centre boards), else the chip's name and target.
            "name": lambda: (
                text_or_empty(node.device / "product_name") or f"AMD {node.name or 'GPU'} ({node.gfx_target})"
            ),
            "gfx_target": lambda: node.gfx_target,
            "compute_units": lambda: node.properties["simd_count"] // max(node.properties.get("simd_per_cu", 1), 1),
            # The id by which ROCm knows it (ROCR_VISIBLE_DEVICES). Its PCI device has the id of the board, which newer
            # drivers give to none of its partitions, not even to the only one (amdgpu_xcp.c).
            "unique_id": lambda: (
                f"{own:016x}" if (own := node.properties.get("unique_id")) else read_text(node.device / "unique_id")
            ),
            "memory_bytes": lambda: read_int(node.device / "mem_info_vram_total"),
            "power_cap_w": lambda: read_int(_sensor(node, "power1_cap")) / MICRO,
            "power_cap_default_w": lambda: read_int(_sensor(node, "power1_cap_default")) / MICRO,
            "clock_max_hz": lambda: node.properties["max_engine_clk_fcompute"] * HZ_PER_MHZ,
            "performance_level": lambda: read_text(node.device / "power_dpm_force_performance_level"),
            "compute_partition": lambda: read_text(node.device / "current_compute_partition"),
            "memory_partition": lambda: read_text(node.device / "current_memory_partition"),
            "pci_function": lambda: node.function,
            "pcie_width": lambda: read_int(node.device / "current_link_width"),
            "pcie_width_max": lambda: read_int(node.device / "max_link_width"),
        }
    )


def _sensor(node: Node, name: str) -> Path:
    paths = sorted(node.device.glob(f"hwmon/hwmon*/{name}"))
    if not paths:
        raise UnreadableError(f"{NOT_SUPPORTED}: no {node.device}/hwmon/*/{name}")
    return paths[0]


class SysfsMonitor:
    """Monitors one GPU through its hwmon folder."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def memory_in_use(self) -> Readings:
        used = gather({"device_used_bytes": lambda: read_int(self._node.device / "mem_info_vram_used")})
        return all_missing(NEEDS_AMDSMI, IN_USE_NAMES) | used

    def conditions(self) -> Readings:
        """The temperature is the junction's (temp2), on which the firmware throttles, else the edge's (temp1)."""
        return gather(
            {
                "clock_hz": lambda: self._read_sensor("freq1_input"),
                "memory_clock_hz": lambda: self._read_sensor("freq2_input"),
                "temperature_c": first_of(
                    lambda: self._read_sensor("temp2_input") / MILLI, lambda: self._read_sensor("temp1_input") / MILLI
                ),
            }
        )

    def state(self) -> Readings:
        """The power is the average; newer GPUs report the instantaneous power instead."""
        return all_missing(NEEDS_AMDSMI, STATE_NAMES) | self.conditions() | gather({"power_w": self._power_w()})

    def energy_j(self) -> Readings:
        return all_missing(NEEDS_AMDSMI, ("gpu",))

    def momentary_power_w(self) -> float | None:
        is_part = text_or_empty(self._node.device / "current_compute_partition") in PARTS
        return None if is_part else number_or_none(self._power_w())

    def utilization_percent(self) -> Json:
        return read_int(self._node.device / "gpu_busy_percent")

    def _power_w(self) -> Callable[[], Json]:
        return first_of(
            lambda: self._read_sensor("power1_average") / MICRO, lambda: self._read_sensor("power1_input") / MICRO
        )

    def close(self) -> None:
        """Nothing to release."""

    def _read_sensor(self, name: str) -> int:
        return read_int(_sensor(self._node, name))


UNSUPPORTED_CODES = (2, 3, 5, 40)
"""amdsmi_status_t: NOT_SUPPORTED, NOT_YET_IMPLEMENTED, FAIL_LOAD_SYMBOL, NO_DATA."""

NO_PERMISSION_CODE = 10

RESIDENCIES = {
    "prochot_residency_acc": POWER_BRAKE,
    "ppt_residency_acc": SOFTWARE_POWER_CAP,
    "socket_thm_residency_acc": HARDWARE_THERMAL,
    "vr_thm_residency_acc": HARDWARE_THERMAL,
    "hbm_thm_residency_acc": HARDWARE_THERMAL,
}
"""Counters of amdsmi_get_gpu_metrics_info (MI300 and newer). PROCHOT is the board's signal to throttle all chips.

The firmware updates them every 100 ms. amdsmi_get_violation_status has the same counters (src/amd_smi/amd_smi.cc), and
a current state, for which each of its calls waits 100 ms between two readings of them."""

PERFORMANCE_LEVEL = "AMDSMI_DEV_PERF_LEVEL_"
"""Prefix of amdsmi_dev_perf_level_t. At every level but AUTO the clocks are set or limited, as by
`amd-smi set --perf-determinism`."""


class AmdSmiError(Exception):
    """amdsmi cannot be used. The message gives the reason."""


class AmdSmi:
    """The initialized library. In tests, `module` is a recording of amdsmi."""

    def __init__(self, module: Any = None) -> None:
        self.module: Any = module or load_module()
        try:
            self.module.amdsmi_init()
        except self.module.AmdSmiException as error:
            raise AmdSmiError(f"amdsmi failed to start: {_one_line(error)}") from error

    def call(self, function: str, *arguments: Any) -> Any:
        """The result of an amdsmi function. Raises UnreadableError with the reason."""
        try:
            return getattr(self.module, function)(*arguments)
        except self.module.AmdSmiException as error:
            code = getattr(error, "err_code", None)
            reason = NOT_SUPPORTED if code in UNSUPPORTED_CODES else FAILED
            reason = NO_PERMISSION if code == NO_PERMISSION_CODE else reason
            raise UnreadableError(f"{reason}: {function}: {_one_line(error)}") from error
        except AttributeError as error:
            raise UnreadableError(f"{NOT_SUPPORTED}: the installed amdsmi has no {function}") from error
        except (KeyError, ValueError) as error:
            # The package's own: it decodes the names of all processes, which the kernel cuts after 15 bytes, as UTF-8,
            # and looks up numbers of newer libraries in its tables.
            raise UnreadableError(f"{FAILED}: {function}: {type(error).__name__}: {_one_line(error)}") from error

    def entry(self, function: str, key: str, *arguments: Any) -> Any:
        """One entry of the result. Raises UnreadableError, including for "N/A"."""
        return known(self.call(function, *arguments).get(key), f"{function} {key}")

    def handles(self) -> dict[str, Any]:
        """The GPUs' handles by PCI address with the function. Raises UnreadableError."""
        found = {}
        for handle in self.call("amdsmi_get_processor_handles"):
            address, _, function = self.call("amdsmi_get_gpu_device_bdf", handle).partition(".")
            domain, bus, slot = (int(part, 16) for part in address.split(":"))
            found[f"{pci_address(domain, bus, slot)}.{int(function or '0', 16):x}"] = handle
        return found

    def close(self) -> None:
        self.call("amdsmi_shut_down")


def load_module() -> Any:
    """The module `amdsmi`. Raises AmdSmiError. (Without its library the package prints a message and raises
    KeyError.)"""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return importlib.import_module("amdsmi")
    except ImportError as error:
        raise AmdSmiError(
            "package amdsmi is missing: pip install amdsmi in the version of the installed ROCm"
        ) from error
    except (KeyError, OSError, AttributeError) as error:
        raise AmdSmiError(f"amdsmi cannot find libamd_smi.so: install ROCm's amd-smi-lib ({error})") from error


def known(value: Any, what: str) -> Any:
    """The value. Raises UnreadableError for amdsmi's placeholders for missing values."""
    if value is None or value in ("N/A", "", *ABSENT):
        raise UnreadableError(f"{NOT_SUPPORTED}: amdsmi does not report {what}")
    return value


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def handle_facts(smi: AmdSmi, handle: Any) -> Readings:
    """Constant facts of a GPU. amdsmi gives power caps in microwatts and clocks in MHz.

    The target and the compute units are the kernel's: amdsmi's are of the whole GPU, and meaningless numbers where
    its library does not know them."""

    def of(function: str, key: str, *arguments: Any) -> Callable[[], Any]:
        return lambda: smi.entry(function, key, handle, *arguments)

    def watts(key: str) -> Callable[[], Json]:
        return lambda: smi.entry("amdsmi_get_power_cap_info", key, handle) / MICRO

    def performance_level() -> Json:
        level = str(smi.call("amdsmi_get_gpu_perf_level", handle)).removeprefix(PERFORMANCE_LEVEL).lower()
        return str(known("" if level == "unknown" else level, "performance level"))

    graphics = smi.module.AmdSmiClkType.GFX
    return gather(
        {
            "name": of("amdsmi_get_gpu_asic_info", "market_name"),
            "uuid": lambda: known(smi.call("amdsmi_get_gpu_device_uuid", handle), "uuid"),
            "driver": of("amdsmi_get_gpu_driver_info", "driver_version"),
            "memory_bytes": lambda: _vram(smi, handle, "total"),
            "power_cap_w": watts("power_cap"),
            "power_cap_default_w": watts("default_power_cap"),
            "clock_max_hz": lambda: smi.entry("amdsmi_get_clock_info", "max_clk", handle, graphics) * HZ_PER_MHZ,
            "performance_level": performance_level,
            "is_clock_locked": of("amdsmi_get_clock_info", "clk_locked", graphics),
            "compute_partition": lambda: known(smi.call("amdsmi_get_gpu_compute_partition", handle), "partition"),
            "memory_partition": lambda: known(smi.call("amdsmi_get_gpu_memory_partition", handle), "partition"),
            "pcie_width": lambda: _pcie(smi, handle, "pcie_metric", "pcie_width"),
            "pcie_width_max": lambda: _pcie(smi, handle, "pcie_static", "max_pcie_width"),
        }
    )


def _vram(smi: AmdSmi, handle: Any, what: str) -> int:
    """Bytes of video memory: "total", or "usage" by all processes."""
    return int(smi.call(f"amdsmi_get_gpu_memory_{what}", handle, smi.module.AmdSmiMemoryType.VRAM))


def _pcie(smi: AmdSmi, handle: Any, group: str, key: str) -> Any:
    return known(smi.entry("amdsmi_get_pcie_info", group, handle).get(key), key)


class AmdSmiMonitor:
    """Monitors one GPU by its PCI address; without a function in it, the first one. Created before this process uses
    the GPU, unless `is_in_use`."""

    def __init__(self, smi: AmdSmi, address: str, own_pid: int | None = None, is_in_use: bool = False) -> None:
        self._smi = smi
        handles = smi.handles()
        address = address if "." in address else f"{address}.0"
        if address not in handles:
            raise UnreadableError(f"{FAILED}: amdsmi lists no GPU at {address}")
        self._handle = handles[address]
        partition = gather({"mode": lambda: smi.call("amdsmi_get_gpu_compute_partition", self._handle)})
        self._is_part = partition.values.get("mode") in PARTS
        self._owners = ProcessOwners.at_start(self._clients, own_pid, is_in_use=is_in_use)

    def memory_in_use(self) -> Readings:
        used = gather({"device_used_bytes": lambda: _vram(self._smi, self._handle, "usage")})
        return used | gather({IN_USE_NAMES[0]: lambda: self._owners.own_bytes(self._clients())})

    def conditions(self) -> Readings:
        types = self._smi.module.AmdSmiClkType
        return gather(
            {
                "clock_hz": lambda: self._clock_hz(types.GFX),
                "memory_clock_hz": lambda: self._clock_hz(types.MEM),
                # The hottest spot, on which the firmware throttles; else the edge.
                "temperature_c": first_of(lambda: self._temperature_c("HOTSPOT"), lambda: self._temperature_c("EDGE")),
            }
        )

    def state(self) -> Readings:
        no_default = all_missing(f"{NOT_SUPPORTED}: AMD does not publish a default clock", ("clock_default_hz",))
        no_time = all_missing(f"{NOT_SUPPORTED}: amdsmi counts violations, not their duration", ("violation_ns",))
        read = gather({"power_w": self._power_w, "throttle_counters": self._throttle_counters})
        is_counted = f"{NOT_APPLICABLE}: amdsmi counts throttling (throttle_counters)"
        no_state = all_missing(read.missing.get("throttle_counters", is_counted), ("throttle_reasons",))
        return no_default | no_time | no_state | read | self.conditions() | self._owners.use(self._clients)

    def energy_j(self) -> Readings:
        return gather({"gpu": self._energy_j})

    def momentary_power_w(self) -> float | None:
        return None if self._is_part else number_or_none(self._power_w)

    def utilization_percent(self) -> Json:
        return int(self._smi.entry("amdsmi_get_gpu_activity", "gfx_activity", self._handle))

    def close(self) -> None:
        self._smi.close()

    def _throttle_counters(self) -> dict[str, Json]:
        """Number of the firmware's samples with throttling, by reason, since the driver was loaded. Raises
        UnreadableError if it counts none."""
        metrics = self._smi.call("amdsmi_get_gpu_metrics_info", self._handle)
        counters = Counter[str]()
        for key, reason in RESIDENCIES.items():
            if (count := metrics.get(key)) not in (None, "N/A", ABSENT[-1]):
                counters[reason] += int(count)
        if not counters:
            raise UnreadableError(f"{NOT_SUPPORTED}: amdsmi does not count throttling of this GPU")
        return dict(counters)

    def _clock_hz(self, kind: Any) -> int:
        return int(self._smi.entry("amdsmi_get_clock_info", "clk", self._handle, kind)) * HZ_PER_MHZ

    def _temperature_c(self, place: str) -> int:
        sensor = getattr(self._smi.module.AmdSmiTemperatureType, place)
        current = self._smi.module.AmdSmiTemperatureMetric.CURRENT
        return int(self._smi.call("amdsmi_get_temp_metric", self._handle, sensor, current))

    def _power_w(self) -> float:
        """Power in watts: what ROCm 7 chooses for the GPU, else current on MI300, average on older GPUs."""
        power = self._smi.call("amdsmi_get_power_info", self._handle)
        readings = (power.get(key) for key in ("socket_power", "current_socket_power", "average_socket_power"))
        watts = next((watts for watts in readings if watts not in (None, "N/A", *ABSENT)), None)
        return float(known(watts, "socket power"))

    def _energy_j(self) -> float:
        """amdsmi_get_energy_count: counts x microjoules per count. ROCm before 6.4 calls the counts "power"."""
        if self._is_part:
            raise UnreadableError(f"{NOT_SUPPORTED}: the counter covers all partitions of the GPU")
        energy = self._smi.call("amdsmi_get_energy_count", self._handle)
        counts = energy.get("energy_accumulator", energy.get("power"))
        if not isinstance(counts, int):  # any number may be a count
            raise UnreadableError(f"{NOT_SUPPORTED}: amdsmi does not report energy count")
        return float(counts * known(energy.get("counter_resolution"), "counter resolution") / MICRO)

    def _clients(self) -> dict[int, Client]:
        """The processes on the GPU. amdsmi counts time on the graphics engines only, not on compute."""
        listed = self._smi.call("amdsmi_get_gpu_process_list", self._handle)
        return {int(one["pid"]): Client(memory_bytes=int(one["memory_usage"]["vram_mem"])) for one in listed}
