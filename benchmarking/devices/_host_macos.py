"""The machine's facts on macOS, from sysctl."""

from __future__ import annotations

from benchmarking.devices._reading import RunCommand, UnreadableError, gather, run_command
from benchmarking.records import NOT_APPLICABLE, NOT_SUPPORTED, Json, Readings

SYSCTL = ("/usr/sbin/sysctl", "hw", "machdep.cpu", "kern.osproductversion", "kern.hv_vmm_present")

CAPABILITY_NAMES = {
    "FEAT_BF16": "bf16",
    "FEAT_I8MM": "i8mm",
    "FEAT_FP16": "fphp",
    "FEAT_DotProd": "asimddp",
    "FEAT_SME": "sme",
}
"""Apple's names of Arm features, and Linux's for the same: one word per capability in the whole program."""


def facts(run: RunCommand = run_command) -> Readings:
    """The machine's facts; names as in `_host`."""
    try:
        values = sysctl_values(run)
    except UnreadableError as error:
        return Readings(missing={"cpu_model": str(error), "memory_bytes": str(error)})
    return _of_values(values)


def sysctl_values(run: RunCommand = run_command) -> dict[str, str]:
    """Everything `sysctl` tells about hardware, by key. Raises UnreadableError."""
    pairs = (line.partition(": ") for line in run(SYSCTL).splitlines())
    return {key: value.strip() for key, separator, value in pairs if separator}


def _of_values(values: dict[str, str]) -> Readings:
    def text(key: str) -> str:
        if not values.get(key):
            raise UnreadableError(f"{NOT_SUPPORTED}: sysctl {key}")
        return values[key]

    model = values.get("machdep.cpu.brand_string", "")
    return gather(
        {
            "cpu_model": lambda: text("machdep.cpu.brand_string"),
            "cpu_vendor": lambda: "Apple" if model.startswith("Apple") else "Intel",
            "cpu_capabilities": lambda: _capabilities(values),
            "cpu_cores": lambda: int(text("hw.physicalcpu")),
            "cpu_threads": lambda: int(text("hw.logicalcpu")),
            "cpu_sockets": lambda: int(text("hw.packages")),
            "is_smt_active": lambda: int(text("hw.logicalcpu")) > int(text("hw.physicalcpu")),
            "numa_nodes": lambda: 1,
            "memory_bytes": lambda: int(text("hw.memsize")),
            "os_version": lambda: f"macOS {text('kern.osproductversion')}",
            "is_virtual_machine": lambda: text("kern.hv_vmm_present") == "1",
            "virtual_machine": lambda: _virtual_machine(text("kern.hv_vmm_present"), values),
            "is_container": lambda: False,
        }
    )


def _capabilities(values: dict[str, str]) -> Json:
    """Features that are on: hw.optional.arm.FEAT_* on Apple silicon, machdep.cpu.*features on Intel."""
    prefix = "hw.optional.arm."
    arm = [key.removeprefix(prefix) for key, value in values.items() if key.startswith(prefix) and value == "1"]
    names = ("machdep.cpu.features", "machdep.cpu.leaf7_features")
    intel = [word.lower() for name in names for word in values.get(name, "").split()]
    return sorted([CAPABILITY_NAMES.get(name, name) for name in arm] + intel)


def _virtual_machine(is_present: str, values: dict[str, str]) -> Json:
    if is_present != "1":
        raise UnreadableError(f"{NOT_APPLICABLE}: no virtual machine")
    return values.get("hw.model", "Apple Virtualization")
