"""Facts of machines from files, recordings and fakes; control groups and free memory."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from benchmarking.core.records import Readings
from benchmarking.devices.support import host
from benchmarking.devices.support.host import NAMES, free_host_bytes, host_facts, usable_memory_bytes
from benchmarking.devices.support.system_values import UnreadableError, free_in_groups, limits

XEON = "Intel(R) Xeon(R) Platinum 8480+"


@pytest.fixture
def xeon(plant: Callable[[dict[str, Any]], Path], recorded_text: Callable[[str], str]) -> Path:
    """A root with a Xeon of 2 cores and 4 threads on 2 NUMA nodes."""
    topology = {
        f"sys/devices/system/cpu/cpu{cpu}/topology/{name}": value
        for cpu in range(4)
        for name, value in (("physical_package_id", 0), ("core_id", cpu % 2))
    }
    return plant(
        {
            "proc/cpuinfo": recorded_text("cpuinfo_xeon_8480.txt"),
            "proc/meminfo": "MemTotal:       527988224 kB\nMemFree:        1000 kB",
            "proc/self/cgroup": "0::/",
            "proc/1/cgroup": "0::/init.scope",
            "sys/fs/cgroup/cgroup.controllers": "cpu memory",
            "sys/devices/system/cpu/smt/active": 1,
            "sys/devices/system/node/node0/x": "",
            "sys/devices/system/node/node1/x": "",
            "sys/class/dmi/id/sys_vendor": "Dell Inc.",
            "sys/class/dmi/id/product_name": "PowerEdge R760",
            "etc/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.2 LTS"',
            **topology,
        }
    )


def test_every_fact_has_a_value_or_a_reason_on_this_machine():
    facts = host_facts()
    assert set(NAMES) <= set(facts.values) | set(facts.missing)
    assert not set(facts.values) & set(facts.missing)


@pytest.mark.parametrize("system", ["Linux", "FreeBSD"])
def test_every_fact_has_a_value_or_a_reason_on_an_empty_machine(system, tmp_path):
    facts = host_facts(system, tmp_path)
    assert set(NAMES) == set(facts.values) | set(facts.missing)
    assert "cpu_model" in facts.missing


def test_linux_facts_are_read_from_proc_and_sys(xeon):
    facts = host_facts("Linux", xeon).values
    assert (facts["cpu_model"], facts["cpu_vendor"]) == (XEON, "Intel")
    assert (facts["cpu_cores"], facts["cpu_threads"], facts["cpu_sockets"]) == (2, 4, 1)
    assert facts["is_smt_active"] is True
    assert facts["numa_nodes"] == 2
    assert facts["memory_bytes"] == 527_988_224 * 1024
    assert facts["os_version"] == "Ubuntu 24.04.2 LTS"
    assert facts["cgroup_version"] == 2
    assert facts["is_virtual_machine"] is False
    assert facts["is_container"] is False


def test_capabilities_are_those_that_matter_for_arithmetic(xeon):
    capabilities = host_facts("Linux", xeon).values["cpu_capabilities"]
    assert {"avx2", "avx512_bf16", "amx_bf16", "fma", "f16c", "sse4_2"} <= set(capabilities)
    assert not {"fpu", "msr", "smep", "tsc"} & set(capabilities)


def test_no_virtual_machine_and_no_container_are_not_applicable(xeon):
    missing = host_facts("Linux", xeon).missing
    assert missing["virtual_machine"] == "not_applicable: no virtual machine"
    assert missing["container"] == "not_applicable: no container"


def test_arm_cores_are_named_by_their_part_number(plant, recorded_text):
    facts = host_facts("Linux", plant({"proc/cpuinfo": recorded_text("cpuinfo_graviton3.txt")})).values
    assert (facts["cpu_model"], facts["cpu_vendor"], facts["cpu_threads"]) == ("Arm Neoverse V1", "Arm", 2)
    assert facts["cpu_capabilities"] == [
        "asimd", "asimddp", "asimdhp", "asimdrdm", "bf16", "fphp", "i8mm", "sve",
    ]  # fmt: skip


def test_hypervisor_flag_makes_a_virtual_machine(plant):
    facts = host_facts("Linux", plant({"proc/cpuinfo": "processor : 0\nflags : fpu hypervisor avx"}))
    assert facts.values["is_virtual_machine"] is True
    assert facts.values["virtual_machine"] == "unknown hypervisor"


def test_virtual_machine_is_named_by_the_firmware(plant):
    root = plant({"sys/class/dmi/id/sys_vendor": "QEMU", "sys/class/dmi/id/product_name": "Standard PC"})
    assert host_facts("Linux", root).values["virtual_machine"] == "QEMU Standard PC"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"proc/cpuinfo": "processor : 0\nFeatures : fp asimd"}, None),
        ({"proc/cpuinfo": "processor : 0\nflags : fpu avx"}, False),
        ({"sys/class/dmi/id/sys_vendor": "Dell Inc."}, False),
        ({"proc/device-tree/model": "Raspberry Pi 5 Model B\0"}, False),
        ({"proc/device-tree/model": "linux,dummy-virt\0"}, True),
    ],
)
def test_whether_a_machine_is_virtual_is_unknown_without_a_sign_of_either(plant, files, expected):
    facts = host_facts("Linux", plant(files))
    assert facts.values.get("is_virtual_machine") is expected
    if expected is None:
        assert facts.missing["is_virtual_machine"].startswith("not_supported: no flags in /proc/cpuinfo, and no ")
        assert facts.missing["virtual_machine"] == facts.missing["is_virtual_machine"]


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({".dockerenv": ""}, "docker"),
        ({"run/.containerenv": ""}, "podman"),
        ({"run/systemd/container": "systemd-nspawn"}, "systemd-nspawn"),
        ({"proc/1/cgroup": "0::/kubepods/besteffort/pod1/abc"}, "kubernetes"),
        ({"proc/1/cgroup": "0::/", "var/run/secrets/kubernetes.io/serviceaccount/token": ""}, "kubernetes"),
        ({"proc/1/cgroup": "0::/init.scope", ".singularity.d/startscript": ""}, "apptainer"),
        (
            {
                "proc/1/cgroup": "0::/",
                "proc/self/mountinfo": "859 1 8:1 / /mnt rw - ext4 /dev/sda rw\n1032 859 0:303 / / rw,relatime "
                "master:300 - overlay overlay rw,lowerdir=/var/lib/containerd/io.containerd.snapshotter.v1/55/fs",
            },
            "containerd",
        ),
    ],
)
def test_containers_are_known_by_their_marks(plant, files, kind):
    assert host_facts("Linux", plant(files)).values["container"] == kind


@pytest.mark.parametrize("groups", [{}, {"proc/1/cgroup": "0::/"}, {"proc/1/cgroup": "1:cpu:/\n0::/"}])
def test_whether_this_is_a_container_is_unknown_where_its_control_groups_are_hidden(plant, groups):
    facts = host_facts("Linux", plant({"proc/cpuinfo": "processor : 0", **groups}))
    assert "is_container" not in facts.values
    assert facts.missing["container"] == facts.missing["is_container"]
    assert facts.missing["container"].startswith("not_supported: no mark of a container, and no group")


def test_usable_memory_is_the_cgroups_limit_where_that_is_lower():
    both = Readings(values={"memory_bytes": 64, "cgroup_memory_limit_bytes": 16})
    assert usable_memory_bytes(both) == 16
    assert usable_memory_bytes(Readings(values={"memory_bytes": 64})) == 64
    assert usable_memory_bytes(Readings()) is None


def test_macos_facts_are_read_from_sysctl(recorded_text):
    facts = host.macos_facts(lambda command: recorded_text("macos_m2_max_sysctl.txt"))
    values = facts.values
    assert (values["cpu_model"], values["cpu_vendor"]) == ("Apple M2 Max", "Apple")
    assert (values["cpu_cores"], values["cpu_threads"], values["is_smt_active"]) == (12, 12, False)
    assert values["memory_bytes"] == 34_359_738_368
    assert values["os_version"] == "macOS 15.6.1"
    assert values["is_virtual_machine"] is False
    assert {"bf16", "i8mm", "fphp", "asimddp"} <= set(values["cpu_capabilities"])
    assert "sme" not in values["cpu_capabilities"]
    assert facts.missing["virtual_machine"] == "not_applicable: no virtual machine"


def test_macos_without_sysctl_gives_the_reason():
    def refuse(command):
        raise UnreadableError("not_supported: no command /usr/sbin/sysctl")

    assert host.macos_facts(refuse).missing["cpu_model"] == "not_supported: no command /usr/sbin/sysctl"


class Kernel32:
    """kernel32 of a machine with AVX2 and two NUMA nodes."""

    def IsProcessorFeaturePresent(self, number):  # noqa: N802
        return number in (10, 38, 39, 40)

    def GetNumaHighestNodeNumber(self, pointer):  # noqa: N802
        pointer._obj.value = 1
        return 1


def windows_facts(registry):
    memory = SimpleNamespace(total=34_000_000_000)
    counts = {True: 16, False: 8}
    psutil = SimpleNamespace(cpu_count=lambda logical: counts[logical], virtual_memory=lambda: memory)

    def read(key, name):
        if name not in registry:
            raise UnreadableError(f"not_supported: registry {key}\\{name}")
        return registry[name]

    return host.windows_facts(read, Kernel32(), psutil)


def test_windows_facts_are_read_from_the_registry_and_psutil():
    facts = windows_facts(
        {
            "ProcessorNameString": "AMD Ryzen 7 7840U",
            "VendorIdentifier": "AuthenticAMD",
            "SystemManufacturer": "LENOVO",
            "SystemProductName": "21K5",
        }
    )
    values = facts.values
    assert (values["cpu_model"], values["cpu_vendor"]) == ("AMD Ryzen 7 7840U", "AMD")
    assert (values["cpu_cores"], values["cpu_threads"], values["is_smt_active"]) == (8, 16, True)
    assert (values["numa_nodes"], values["memory_bytes"]) == (2, 34_000_000_000)
    assert values["cpu_capabilities"] == ["avx", "avx2", "sse2", "sse4_2"]
    assert values["is_virtual_machine"] is False


def test_windows_virtual_machine_is_known_by_its_product():
    facts = windows_facts({"SystemManufacturer": "Microsoft Corporation", "SystemProductName": "Virtual Machine"})
    assert facts.values["virtual_machine"] == "Microsoft Corporation Virtual Machine"
    assert facts.missing["cpu_model"].startswith("not_supported: registry")


def test_other_systems_have_no_cgroups(monkeypatch):
    monkeypatch.setattr(host, "macos_facts", lambda: Readings(values={"cpu_model": "Apple M2"}))
    facts = host_facts("Darwin")
    assert facts.missing["cgroup_version"] == "not_applicable: no cgroups on Darwin"
    assert facts.values["cpu_model"] == "Apple M2"
    assert set(host.NAMES) == set(facts.values) | set(facts.missing)


def test_version_2_uses_the_lowest_limit_of_a_group_and_its_ancestors(plant):
    root = plant(
        {
            "proc/self/cgroup": "0::/pods/one",
            "sys/fs/cgroup/cgroup.controllers": "cpu memory",
            "sys/fs/cgroup/pods/cpu.max": "150000 100000",
            "sys/fs/cgroup/pods/memory.max": 8_000_000_000,
            "sys/fs/cgroup/pods/one/cpu.max": "400000 100000",
            "sys/fs/cgroup/pods/one/memory.max": "max",
        }
    )
    assert limits(root).values == {
        "cgroup_version": 2,
        "cgroup_cpu_quota_cores": 1.5,
        "cgroup_memory_limit_bytes": 8_000_000_000,
    }


def test_version_1_reads_each_controllers_own_group(plant):
    root = plant(
        {
            "proc/self/cgroup": "4:cpu,cpuacct:/a\n3:memory:/b\n0::/c",
            "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": 50_000,
            "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": 100_000,
            "sys/fs/cgroup/memory/b/memory.limit_in_bytes": 1_000_000_000,
        }
    )
    assert limits(root).values == {
        "cgroup_version": 1,
        "cgroup_cpu_quota_cores": 0.5,
        "cgroup_memory_limit_bytes": 1_000_000_000,
    }


def test_no_limit_is_not_applicable_in_both_versions(plant):
    root = plant(
        {
            "proc/self/cgroup": "2:cpu:/\n3:memory:/\n0::/",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": -1,
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": 100_000,
            "sys/fs/cgroup/memory/memory.limit_in_bytes": 9_223_372_036_854_771_712,
            "sys/fs/cgroup/cpu.max": "max 100000",
        }
    )
    assert limits(root).missing == {
        "cgroup_cpu_quota_cores": "not_applicable: no CPU quota",
        "cgroup_memory_limit_bytes": "not_applicable: no memory limit",
    }


def test_host_path_in_a_container_uses_the_mounted_root(plant):
    root = plant(
        {
            "proc/self/cgroup": "0::/../../system.slice/docker-abc.scope",
            "sys/fs/cgroup/cgroup.controllers": "cpu",
            "sys/fs/cgroup/cpu.max": "200000 100000",
        }
    )
    assert limits(root).values["cgroup_cpu_quota_cores"] == 2.0


V1_GROUPS = "4:cpu,cpuacct:/a\n3:memory:/b\n1:name=systemd:/\n0::/c"
UNSEEN = "not_supported: no control groups of "


@pytest.mark.parametrize(
    ("groups", "files", "version", "quota", "memory"),
    [
        ("0::/a", {}, "not_supported: no ", UNSEEN, UNSEEN),
        ("0::/a", {"cgroup.controllers": ""}, 2, "not_applicable: ", "not_applicable: "),
        (V1_GROUPS, {"cpu/x": "", "memory/x": ""}, 1, "not_applicable: ", "not_applicable: "),
        (V1_GROUPS, {"systemd/x": "", "unified/cgroup.controllers": ""}, 1, UNSEEN, UNSEEN),
        (V1_GROUPS, {"cpu,cpuacct/x": "", "unified/cgroup.controllers": ""}, 1, "not_applicable: ", UNSEEN),
        ("1:cpu:/\n0::/c", {"cpu/x": "", "unified/c/memory.max": 5}, 1, "not_applicable: ", UNSEEN),
        (
            "1:cpu:/\n0::/c",
            {"cpu/x": "", "unified/cgroup.controllers": "memory", "unified/c/memory.max": 5},
            *(1, "not_applicable: ", 5),
        ),
    ],
)
def test_limits_of_groups_that_are_not_mounted_are_unknown(plant, groups, files, version, quota, memory):
    root = plant({"proc/self/cgroup": groups, **{f"sys/fs/cgroup/{name}": text for name, text in files.items()}})
    found = limits(root)
    for name, expected in zip(host.CGROUP_NAMES, (version, quota, memory), strict=True):
        if isinstance(expected, str):
            assert found.missing[name].startswith(expected)
        else:
            assert found.values[name] == expected
    assert list(free_in_groups(root)) == []


def test_missing_proc_has_a_reason(tmp_path):
    missing = limits(tmp_path).missing
    assert missing["cgroup_cpu_quota_cores"] == f"not_supported: no {tmp_path}/proc/self/cgroup"
    assert missing["cgroup_version"] == f"not_supported: no {tmp_path}/sys/fs/cgroup"


GB = 1_000_000_000


def write(root, name, text):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def version_2(tmp_path: Path) -> Path:
    """A container's group with a limit of 8 GB, 5 GB in use, of which 2 GB are page cache."""
    write(tmp_path, "proc/self/cgroup", "0::/\n")
    write(tmp_path, "sys/fs/cgroup/cgroup.controllers", "cpu memory\n")
    write(tmp_path, "sys/fs/cgroup/memory.max", f"{8 * GB}\n")
    write(tmp_path, "sys/fs/cgroup/memory.current", f"{5 * GB}\n")
    stat = f"anon {3 * GB}\nfile {2 * GB}\ninactive_file {int(1.5 * GB)}\nactive_file {int(0.5 * GB)}\n"
    write(tmp_path, "sys/fs/cgroup/memory.stat", stat)
    return tmp_path


def test_cgroup_free_memory_is_limit_minus_use_without_page_cache(version_2):
    assert list(free_in_groups(version_2)) == [5 * GB]


def test_parent_cgroup_may_have_less_free_memory(version_2):
    write(version_2, "proc/self/cgroup", "0::/inner\n")
    for name, text in (("max", f"{6 * GB}"), ("current", f"{4 * GB}"), ("stat", "inactive_file 0\n")):
        write(version_2, f"sys/fs/cgroup/inner/memory.{name}", text)
    assert list(free_in_groups(version_2)) == [2 * GB, 5 * GB]


def test_version_1_counts_the_page_cache_of_all_groups_below_once(tmp_path):
    write(tmp_path, "proc/self/cgroup", "4:memory:/\n")
    write(tmp_path, "sys/fs/cgroup/memory/memory.limit_in_bytes", f"{8 * GB}")
    write(tmp_path, "sys/fs/cgroup/memory/memory.usage_in_bytes", f"{5 * GB}")
    stat = f"inactive_file {GB}\nactive_file 0\ntotal_inactive_file {2 * GB}\ntotal_active_file 0\n"
    write(tmp_path, "sys/fs/cgroup/memory/memory.stat", stat)
    assert list(free_in_groups(tmp_path)) == [5 * GB]


def test_cgroup_over_its_limit_has_no_free_memory(version_2):
    write(version_2, "sys/fs/cgroup/memory.current", f"{11 * GB}")
    assert list(free_in_groups(version_2)) == [0]


@pytest.mark.parametrize("unreadable", [None, "", "many"])
def test_a_group_with_an_unreadable_file_limits_nothing_and_the_others_do(version_2, unreadable):
    write(version_2, "proc/self/cgroup", "0::/inner\n")
    write(version_2, "sys/fs/cgroup/inner/memory.max", f"{GB}")
    if unreadable is not None:
        write(version_2, "sys/fs/cgroup/inner/memory.current", unreadable)
    assert list(free_in_groups(version_2)) == [5 * GB]


def test_groups_without_limit_or_files_limit_nothing(version_2, tmp_path_factory):
    write(version_2, "sys/fs/cgroup/memory.max", "max\n")
    assert list(free_in_groups(version_2)) == []
    assert list(free_in_groups(tmp_path_factory.mktemp("empty"))) == []


@pytest.mark.parametrize(("available", "free"), [(3 * GB, 3 * GB), (20 * GB, 5 * GB)])
def test_free_host_memory_is_the_lesser_of_machine_and_group(monkeypatch, version_2, available, free):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=available))
    assert free_host_bytes(version_2) == free


def test_other_systems_have_no_control_groups(monkeypatch, version_2):
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=20 * GB))
    assert free_host_bytes(version_2) == 20 * GB
