"""The machine of a measurement: its state at the start of a run, and its activity during a pass.

The state are settings that affect speed and stay constant while a run measures. The activity are counters before and
after a pass, and their differences. All readings are taken between timed regions. They come from Linux (proc(5),
sched-stats and psi in the kernel's documentation) and getrusage(2); elsewhere each value has a reason. Imports nothing
heavy, because the supervisor uses it.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

from benchmarking.core.device_contracts import DeviceHandle
from benchmarking.core.metrics import HZ_PER_KHZ, HZ_PER_MHZ
from benchmarking.core.records import NOT_APPLICABLE, NOT_SUPPORTED, Json, Readings
from benchmarking.core.untrusted.redaction import without_secrets
from benchmarking.devices.support import system_values
from benchmarking.devices.support.binding import allowed_cpus, cpu_list_text, escaped_threads
from benchmarking.devices.support.handles import GPU_IDLE
from benchmarking.devices.support.host import host_facts
from benchmarking.devices.support.system_values import (
    UnreadableError,
    gather,
    matched,
    read_int,
    read_text,
    value_or_reason,
)

ROOT = Path("/")

BUSY_SHARE = 0.1
"""A thread is busy if it ran, or waited to run, for more than this share of the window."""
FREQUENCY_CPUS = 16
"""Number of CPUs whose clock is read. Each reading may interrupt its CPU, and large machines have hundreds."""


class Window:
    """Counters of the machine and the device over a pass."""

    def __init__(self, handle: DeviceHandle, root: Path = ROOT, processes: Sequence[int] = ()) -> None:
        """`processes` are others that do this process's work, such as a browser's."""
        self._handle = handle
        self._root = root
        self._processes = tuple(processes)
        self._states: list[Readings] = [handle.state()]
        self._before = self._counters()
        self._start_ns = time.perf_counter_ns()

    def sample(self) -> None:
        """Read the device's state. Must be called between timed regions."""
        self._states.append(self._handle.state())

    def close(self) -> dict[str, Json]:
        """The differences by name (with the unit in the name), the device's states, and the reasons under `missing`."""
        elapsed_s = (time.perf_counter_ns() - self._start_ns) / 1e9
        changed = differences(self._before, self._counters(), elapsed_s)
        device = summarise_states(self._states)
        missing = {**changed.missing, **device.missing}
        escaped: dict[str, Json] = {"escaped_threads": found} if (found := escaped_threads(self._root)) else {}
        return {"elapsed_s": elapsed_s, **changed.values, **device.values, **escaped, "missing": dict(missing)}

    def _counters(self) -> Readings:
        if self._handle.has_scripted_clock:
            return Readings(missing={"host": f"{NOT_APPLICABLE}: the device has a scripted clock"})
        return counters(self._root, self._processes)


def counters(root: Path = ROOT, processes: Sequence[int] = ()) -> Readings:
    """The current counters. Waits and major faults include this process and `processes`."""
    return gather(
        {
            "steal": lambda: _cpu_ticks(root),
            "cpu_pressure": lambda: dict(_pressure(root)),
            "run_queue": lambda: dict(_run_queue(root, processes)),
            "throttling": lambda: dict(system_values.throttling(root)),
            "usage": lambda: _usage(root, processes),
            "swapped_in_pages": lambda: int(matched(root / "proc/vmstat", r"^pswpin (\d+)", "no pswpin")),
            "cpu_frequency_hz": lambda: _frequency_hz(root),
            "temperatures_c": lambda: dict(_temperatures_c(root)),
            "clocks": lambda: dict(_clocks()),
        }
    )


def differences(before: Readings, after: Readings, elapsed_s: float) -> Readings:
    """The changes over `elapsed_s` seconds. Shares are 0..1; the run-queue wait is the sum over threads, per wall
    time."""
    values: dict[str, Json] = {}
    for name, start in before.values.items() if elapsed_s > 0 else ():
        if name not in after.values:
            continue
        old: Any = start
        new: Any = after.values[name]
        if name == "steal":
            ticks = new["total"] - old["total"]
            values |= {"steal_share": (new["steal"] - old["steal"]) / ticks, "cpu_ticks": ticks} if ticks > 0 else {}
        elif name == "cpu_pressure":
            share = (new["total_us"] - old["total_us"]) / 1e6 / elapsed_s
            values |= {"cpu_pressure_before": old["avg10_percent"] / 100, "cpu_pressure_share": share}
        elif name == "run_queue":
            # A thread that starts inside the window counts from 0; the wait of one that ends inside it is lost.
            total_wait_ns, busy = 0, 0
            for thread, (run_ns, wait_ns) in new.items():
                old_run_ns, old_wait_ns = old.get(thread, (0, 0))
                total_wait_ns += wait_ns - old_wait_ns
                busy += (run_ns - old_run_ns + wait_ns - old_wait_ns) / 1e9 > BUSY_SHARE * elapsed_s
            values |= {"run_queue_wait_share": total_wait_ns / 1e9 / elapsed_s, "busy_threads": busy}
        elif name == "throttling":
            lost_s = (new["ns"] - old["ns"]) / 1e9
            values |= {"throttled_periods": new["periods"] - old["periods"], "throttled_s": lost_s}
        elif name == "usage":
            values |= {counter: new[counter] - old[counter] for counter in new}
        elif name == "swapped_in_pages":
            values["swapped_in_pages"] = new - old
        elif name == "cpu_frequency_hz":
            values |= {"cpu_frequency_before_hz": old, "cpu_frequency_after_hz": new}
        elif name == "temperatures_c":
            values |= {"temperatures_before_c": old, "temperatures_after_c": new}
        elif name == "clocks":
            passed_s = {clock: new[clock] - old[clock] for clock in new}
            boot_s = passed_s.get("boot_s", passed_s["running_s"])
            values["clock_step_s"] = round(passed_s["wall_s"] - boot_s, 3)
            values["suspended_s"] = round(boot_s - passed_s["running_s"], 3)
    return Readings(values=values, missing={**before.missing, **after.missing})


def _clocks() -> dict[str, Json]:
    """Seconds by the system clock, which may be set; of running; and since boot, which alone count while the machine is
    suspended. Where the last is missing, that looks like a step of the system clock (macOS), or like nothing (Windows,
    where running goes on)."""
    found: dict[str, Json] = {"wall_s": time.time(), "running_s": time.monotonic()}
    if sys.platform == "linux":
        found["boot_s"] = time.clock_gettime(time.CLOCK_BOOTTIME)
    return found


def _cpu_ticks(root: Path) -> dict[str, Json]:
    """Ticks stolen by the hypervisor and total ticks since boot. user and nice already include guests' ticks."""
    fields = [int(word) for word in read_text(root / "proc/stat").split("\n", 1)[0].split()[1:9]]
    if len(fields) < 8:
        raise UnreadableError(f"{NOT_SUPPORTED}: /proc/stat has no steal field")
    return {"steal": fields[7], "total": sum(fields)}


def _pressure(root: Path) -> dict[str, float]:
    """Percentage of the last 10 s in which some task waited for a CPU, and the total wait in microseconds."""
    some = matched(root / "proc/pressure/cpu", "^some (avg10=.*)", "no 'some avg10'")
    fields = dict(word.split("=") for word in some.split())
    return {"avg10_percent": float(fields["avg10"]), "total_us": int(fields["total"])}


def _run_queue(root: Path, processes: Sequence[int]) -> dict[str, Json]:
    """Nanoseconds run and waited for a CPU, by thread."""
    threads: dict[str, Json] = {}
    for path in (path for process in ("self", *processes) for path in root.glob(f"proc/{process}/task/*/schedstat")):
        try:
            run_ns, waited = read_text(path).split()[:2]
        except UnreadableError:
            continue  # the thread ended after the listing
        threads[path.parent.name] = [int(run_ns), int(waited)]
    if not threads:
        raise UnreadableError(f"{NOT_SUPPORTED}: no {root / 'proc/self/task'}/*/schedstat")
    return threads


def _usage(root: Path, processes: Sequence[int]) -> dict[str, Json]:
    """Major faults of the processes, and context switches of all threads of this one. Raises UnreadableError without
    getrusage."""
    try:
        import resource
    except ImportError as error:
        raise UnreadableError(f"{NOT_SUPPORTED}: {sys.platform} has no getrusage") from error
    usage = resource.getrusage(resource.RUSAGE_SELF)
    major_faults = usage.ru_majflt
    for process in processes:
        with suppress(UnreadableError):  # it has ended
            stat = read_text(root / f"proc/{process}/stat")
            major_faults += int(stat[stat.rindex(")") + 2 :].split()[9])  # proc(5): stat 12
    return {
        "major_faults": major_faults,
        "voluntary_switches": usage.ru_nvcsw,
        "involuntary_switches": usage.ru_nivcsw,
    }


def _frequency_hz(root: Path) -> float:
    """Mean clock of the CPUs this process may use."""
    cpus = root / "sys/devices/system/cpu"
    paths = [cpus / f"cpu{cpu}/cpufreq/scaling_cur_freq" for cpu in allowed_cpus()[:FREQUENCY_CPUS]]
    readable = [path for path in paths if path.exists()]
    if readable:
        return sum(read_int(path) for path in readable) / len(readable) * HZ_PER_KHZ
    lines = read_text(root / "proc/cpuinfo").splitlines()
    megahertz = [float(line.split(":")[1]) for line in lines if line.startswith("cpu MHz")]
    if not megahertz:
        raise UnreadableError(f"{NOT_SUPPORTED}: neither cpufreq nor /proc/cpuinfo reports a clock")
    return sum(megahertz) / len(megahertz) * HZ_PER_MHZ


def _temperatures_c(root: Path) -> dict[str, Json]:
    """Degrees Celsius by sensor, from the thermal zones or else hwmon, without sensors that cannot be read: that of a
    radio that is switched off, for example."""
    trouble = UnreadableError(f"{NOT_SUPPORTED}: no temperature sensor")
    found: dict[str, Json] = {}
    for pattern, name in (("thermal/thermal_zone*/temp", "type"), ("hwmon/hwmon*/temp*_input", "name")):
        for path in () if found else root.glob(f"sys/class/{pattern}"):
            try:
                sensor = f"{path.parent.name} {read_text(path.with_name(name))}"
                found[sensor if name == "type" else f"{sensor} {path.name}"] = read_int(path) / 1000
            except UnreadableError as error:
                trouble = error
    if not found:
        raise trouble
    return found


def summarise_states(states: Sequence[Readings]) -> Readings:
    """The device's states before, during and after a pass, combined.

    `device_before` and `device_after` are the unchanged states. `clock_hz_median` comes with `clock_default_hz`.
    `throttle_reasons` are those whose counters grew from the first state to the last (`throttle_counters` has the
    growth), and those of any later state that have no counter: drivers count only some, each version others.
    `foreign_pids` and `foreign_use` are from all states but the first, which describes the time before.
    `clock_highest_hz` is the highest clock so far. `violation_ns` (heat) and `power_violation_ns` (the power cap, which
    alone is not throttling) are growth.
    """
    first, last = states[0].values, states[-1].values
    values: dict[str, Json] = {}
    if first or last:
        values |= {"device_before": dict(first), "device_after": dict(last)}
    clocks = [float(clock) for clock in _column(states, "clock_hz")]
    if clocks:
        values["clock_hz_median"] = median(clocks)
    for name in ("clock_default_hz", "clock_highest_hz"):
        if name in last:
            values[name] = last[name]
    for name in ("throttle_reasons", "foreign_pids"):
        if listed := _column(states[1:] or states, name):
            values[name] = sorted({entry for state in listed for entry in state})
    before, after = first.get("throttle_counters"), last.get("throttle_counters")
    grown: dict[str, Any] = {}
    if isinstance(before, dict) and isinstance(after, dict):
        grown = {reason: after[reason] - before[reason] for reason in after if reason in before}
    if grown:
        values["throttle_counters"] = dict[str, Json](grown)
        seen = {reason for state in _column(states[1:] or states, "throttle_reasons") for reason in state}
        uncounted = seen - set(grown) - {GPU_IDLE}  # states are read between calls, when the device may be idle
        values["throttle_reasons"] = sorted({*uncounted, *(reason for reason, by in grown.items() if by > 0)})
    if use := [entry for state in _column(states[1:] or states, "foreign_use") for entry in state]:
        values["foreign_use"] = use
    for name in ("violation_ns", "power_violation_ns"):
        if name in first and name in last:
            values[name] = _total(last[name]) - _total(first[name])
    return Readings(values=values, missing=dict(states[-1].missing))


def _column(states: Sequence[Readings], name: str) -> list[Any]:
    return [state.values[name] for state in states if name in state.values]


def _total(violation: Any) -> int:
    """Nanoseconds, summed if the device reports them by policy."""
    return sum(violation.values()) if isinstance(violation, dict) else int(violation)


HOST_FACTS = ("is_virtual_machine", "virtual_machine", "is_container", "container", "cgroup_cpu_quota_cores")
"""Names copied from the machine's facts."""

VARIABLE_PREFIXES = (
    *("OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_", "TORCH", "PYTORCH_", "CUDA_", "CUBLAS_", "CUDNN_"),
    *("NVIDIA_", "HIP_", "HSA_", "ROCR_", "MIOPEN_", "HF_", "TRANSFORMERS_", "ORT_", "OV_", "MALLOC_"),
    *("ZE_", "SYCL_", "GGML_", "CT2_", "MLX_"),
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
            "load_average_1m": lambda: value_or_reason(
                os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
                "no load average on this system",
                NOT_SUPPORTED,
            ),
            "cpu_pressure_avg10_percent": lambda: _pressure(root)["avg10_percent"],
            "power_source": lambda: _power_source(root),
            "address_space_randomization": lambda: read_int(root / "proc/sys/kernel/randomize_va_space"),
            "transparent_hugepages": lambda: matched(  # always, madvise or never
                root / "sys/kernel/mm/transparent_hugepage/enabled", r"\[(\w+)\]", "no choice is marked"
            ),
            "swappiness": lambda: read_int(root / "proc/sys/vm/swappiness"),
        }
    )
    chosen: Json = dict(relevant_variables(os.environ if variables is None else variables))
    return host_facts().only(HOST_FACTS) | from_files | Readings(values={"environment_variables": chosen})


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


def _power_source(root: Path) -> str:
    """ "mains" or "battery". On Linux an online mains supply wins, else a discharging battery (sysfs-class-power).
    A supply that cannot be read leaves it unknown only if the others do not tell."""
    supplies = root / "sys/class/power_supply"
    if not supplies.is_dir():
        import psutil

        try:
            battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
        except OSError as error:  # on Linux psutil reads the same folder
            raise UnreadableError(f"{NOT_APPLICABLE}: no {supplies}") from error
        if battery is None or battery.power_plugged is None:
            raise UnreadableError(f"{NOT_APPLICABLE}: no battery")
        return "mains" if battery.power_plugged else "battery"
    trouble: UnreadableError | None = None
    online, states = list[int](), list[str]()
    for path in (*supplies.glob("*/online"), *supplies.glob("*/status")):
        try:
            if path.name == "online":
                online += [read_int(path)] if read_text(path.with_name("type")) != "Battery" else []
            elif not (scope := path.with_name("scope")).exists() or read_text(scope) != "Device":  # a mouse's battery
                states.append(read_text(path))
        except UnreadableError as error:
            trouble = error
    if any(online):
        return "mains"
    if trouble is not None and "Discharging" not in states:
        raise trouble
    if not states and not online:
        raise UnreadableError(f"{NOT_APPLICABLE}: no power supply is listed in {supplies}")
    return "battery" if "Discharging" in states or (online and states) else "mains"
