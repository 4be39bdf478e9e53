"""The state of the machine at the start of a run: settings that affect speed and stay constant while it measures.

Imports nothing heavy, because the supervisor uses it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from benchmarking.core.records import NOT_APPLICABLE, NOT_SUPPORTED, Json, Readings
from benchmarking.core.untrusted.secret_texts import without_secrets
from benchmarking.devices.support.binding import allowed_cpus, cpu_list_text
from benchmarking.devices.support.host import host_facts
from benchmarking.devices.support.system_values import UnreadableError, gather, read_int, read_text

ROOT = Path("/")

HOST_FACTS = ("is_virtual_machine", "virtual_machine", "is_container", "container", "cgroup_cpu_quota_cores")
"""Names copied from the machine's facts."""

VARIABLE_PREFIXES = (
    "OMP_",
    "MKL_",
    "KMP_",
    "GOMP_",
    "OPENBLAS_",
    "TORCH",
    "PYTORCH_",
    "CUDA_",
    "CUBLAS_",
    "CUDNN_",
    "NVIDIA_",
    "HIP_",
    "HSA_",
    "ROCR_",
    "MIOPEN_",
    "HF_",
    "TRANSFORMERS_",
    "ORT_",
    "OV_",
    "MALLOC_",
)
VARIABLE_NAMES = ("LD_PRELOAD", "DYLD_INSERT_LIBRARIES", "PYTHONMALLOC", "PYTHONHASHSEED", "NUMEXPR_NUM_THREADS")
PRELOADS = ("LD_PRELOAD", "DYLD_INSERT_LIBRARIES")
"""Variables stored as file names only: folders do not affect speed and may reveal people's names."""

SECRET = re.compile(r"TOKEN|SECRET|PASS|KEY|CREDENTIAL|AUTH|COOKIE|HEADER", re.IGNORECASE)
"""Variables with a matching name are not stored."""


def capture(root: Path = ROOT, variables: Mapping[str, str] | None = None) -> Readings:
    """Everything in the environment that a result may depend on. Takes a few milliseconds."""
    from_files = gather(
        {
            "cpu_governor": lambda: _cpufreq(root, "scaling_governor"),
            "cpu_scaling_driver": lambda: _cpufreq(root, "scaling_driver"),
            "is_turbo_on": lambda: _is_turbo_on(root),
            "cpu_affinity": lambda: cpu_list_text(allowed_cpus()),
            "load_average_1m": _load_average,
            "cpu_pressure_avg10_percent": lambda: _pressure_percent(root),
            "power_source": lambda: _power_source(root),
            "address_space_randomization": lambda: read_int(root / "proc/sys/kernel/randomize_va_space"),
            "transparent_hugepages": lambda: _transparent_hugepages(root),
            "swappiness": lambda: read_int(root / "proc/sys/vm/swappiness"),
        }
    )
    chosen: Json = dict(relevant_variables(os.environ if variables is None else variables))
    facts = host_facts()
    of_host = Readings(
        values={name: facts.values[name] for name in HOST_FACTS if name in facts.values},
        missing={name: facts.missing[name] for name in HOST_FACTS if name in facts.missing},
    )
    return of_host | from_files | Readings(values={"environment_variables": chosen})


def relevant_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that affect the speed of libraries, sorted, without secrets and without logins or parameters in
    URLs."""
    relevant = {}
    for name, value in sorted(variables.items()):
        if (name in VARIABLE_NAMES or name.startswith(VARIABLE_PREFIXES)) and not SECRET.search(name):
            relevant[name] = without_secrets(value)
            if name in PRELOADS:
                relevant[name] = ":".join(re.split(r"[/\\]", path)[-1] for path in re.split(r"[:\s]+", value) if path)
    return relevant


def _cpufreq(root: Path, name: str) -> str:
    """The value that all CPUs share, or the distinct values joined by commas."""
    paths = list(root.glob(f"sys/devices/system/cpu/cpu[0-9]*/cpufreq/{name}"))
    if not paths:
        raise UnreadableError(f"{NOT_SUPPORTED}: no {root / 'sys/devices/system/cpu/cpu0/cpufreq' / name}")
    return ",".join(sorted({read_text(path) for path in paths}))


def _is_turbo_on(root: Path) -> bool:
    """Whether clocks may exceed the base clock: 1 forbids it in intel_pstate and allows it in other drivers."""
    cpu = root / "sys/devices/system/cpu"
    if (cpu / "intel_pstate/no_turbo").exists():
        return read_int(cpu / "intel_pstate/no_turbo") == 0
    return read_int(cpu / "cpufreq/boost") == 1


def _load_average() -> float:
    if not hasattr(os, "getloadavg"):
        raise UnreadableError(f"{NOT_SUPPORTED}: no load average on this system")
    return os.getloadavg()[0]


def _pressure_percent(root: Path) -> float:
    found = re.search(r"^some avg10=([\d.]+)", read_text(root / "proc/pressure/cpu"))
    if found is None:
        raise UnreadableError(f"{NOT_SUPPORTED}: no 'some avg10' in {root / 'proc/pressure/cpu'}")
    return float(found[1])


def _power_source(root: Path) -> str:
    """ "mains" or "battery". On Linux an online mains supply wins, else a discharging battery (sysfs-class-power)."""
    supplies = root / "sys/class/power_supply"
    if not supplies.is_dir():
        import psutil

        battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
        if battery is None or battery.power_plugged is None:
            raise UnreadableError(f"{NOT_APPLICABLE}: no battery")
        return "mains" if battery.power_plugged else "battery"
    online = [read_int(path) for path in supplies.glob("*/online") if read_text(path.with_name("type")) != "Battery"]
    if any(online):
        return "mains"
    states = []
    for path in supplies.glob("*/status"):
        scope = path.with_name("scope")
        if not scope.exists() or read_text(scope) != "Device":  # a mouse's battery
            states.append(read_text(path))
    if not states and not online:
        raise UnreadableError(f"{NOT_APPLICABLE}: no power supply is listed in {supplies}")
    return "battery" if "Discharging" in states or (online and states) else "mains"


def _transparent_hugepages(root: Path) -> str:
    """The word in brackets: always, madvise or never."""
    path = root / "sys/kernel/mm/transparent_hugepage/enabled"
    found = re.search(r"\[(\w+)\]", read_text(path))
    if found is None:
        raise UnreadableError(f"{NOT_SUPPORTED}: no choice is marked in {path}")
    return found[1]
