"""Binding a process to processors, threads that escape, and lists of processors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarking.core.errors import BenchhouseError, UnsupportedError, UsageError
from benchmarking.devices.support import binding, system_values
from benchmarking.devices.support.system_values import UnreadableError

needs_affinity = pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system has no CPU affinity")


def allow(monkeypatch, *cpus, existing=8):
    monkeypatch.setattr(binding, "allowed_cpus", lambda: list(cpus))
    monkeypatch.setattr(binding.os, "cpu_count", lambda: existing)


def thread(tid, mask, *, ran=7, cpu=0, name="python"):
    """proc(5): fields 3 to 39 of stat behind the name; 14 and 15 are its ticks, 39 its last processor."""
    fields = ["S"] + ["0"] * 10 + [str(ran), "0"] + ["0"] * 23 + [str(cpu)] + ["0"] * 13
    folder = f"proc/self/task/{tid}"
    return {
        f"{folder}/stat": f"{tid} ({name}) {' '.join(fields)}",
        f"{folder}/status": f"Name:\t{name}\nCpus_allowed:\tff\nCpus_allowed_list:\t{mask}\nMems_allowed_list:\t0",
    }


def test_an_allowed_list_is_given_in_canonical_form(monkeypatch):
    allow(monkeypatch, 0, 1, 2, 3)
    assert binding.checked_cpu_list("3,0-1,1") == "0-1,3"


def test_missing_processors_are_distinguished_from_forbidden_ones(monkeypatch):
    allow(monkeypatch, 0, 1, 2, 3, existing=8)
    with pytest.raises(UnsupportedError, match=r"--cpu-list 0,9: processors 9 do not exist; available: 0-3"):
        binding.checked_cpu_list("0,9")
    with pytest.raises(UnsupportedError, match=r"4-5 are outside the affinity or cpuset of this process; .* 0-3"):
        binding.checked_cpu_list("2-5")


@pytest.mark.parametrize(("platform", "words"), [("darwin", "macOS cannot bind"), ("sunos5", "sunos5 cannot bind")])
def test_system_without_affinity_refuses_a_binding(monkeypatch, platform, words):
    def refuse():
        raise UnreadableError("not_supported: no CPU affinity on this system")

    monkeypatch.setattr(binding, "allowed_cpus", refuse)
    monkeypatch.setattr(binding.sys, "platform", platform)
    with pytest.raises(UnsupportedError, match=words):
        binding.checked_cpu_list("0")


def test_a_refused_binding_is_an_error(monkeypatch):
    def refuse(task, cpus):
        raise OSError(22, "Invalid argument")

    allow(monkeypatch, 0, 1)
    monkeypatch.setattr(binding.os, "sched_setaffinity", refuse)
    with pytest.raises(BenchhouseError, match="cannot bind to processors 0: Invalid argument"):
        binding.bind("0")
    assert binding._BOUND is None


def test_a_thread_that_ends_meanwhile_does_not_fail_the_binding(monkeypatch):
    bound = []

    def set_affinity(task, cpus):
        if bound:
            raise ProcessLookupError(3, "No such process")
        bound.append(cpus)

    allow(monkeypatch, 0, 1)
    monkeypatch.setattr(binding, "_BOUND", None)
    monkeypatch.setattr(binding.os, "listdir", lambda folder: ["1", "2"])
    monkeypatch.setattr(binding.os, "sched_setaffinity", set_affinity, raising=False)
    binding.bind("0")
    assert sorted(binding._BOUND) == [0]


@needs_affinity
def test_bound_threads_stay_on_the_list_and_escaped_ones_are_named():
    """In a separate process, since a binding is permanent; with one processor, threads cannot escape."""
    code = """
import json, os, threading, time
from benchmarking.devices.support import binding, system_values
first, stop = min(os.sched_getaffinity(0)), threading.Event()
everywhere = os.sched_getaffinity(0)
early = threading.Thread(target=stop.wait); early.start()
binding.bind(str(first))
masks = [sorted(os.sched_getaffinity(int(task))) for task in os.listdir("/proc/self/task")]
before = binding.escaped_threads()
def escape():
    os.sched_setaffinity(0, everywhere)
    end = time.thread_time() + 0.05
    while time.thread_time() < end: pass
    stop.wait()
late = threading.Thread(target=escape); late.start()
time.sleep(0.3)
after = binding.escaped_threads()
print(json.dumps([first, len(everywhere), masks, before, len(after), binding.affinity().values]))
stop.set()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    first, count, masks, before, escaped, in_force = json.loads(done.stdout)
    assert masks == [[first]] * len(masks)
    assert len(masks) >= 2
    assert before == {}
    assert escaped == (1 if count > 1 else 0)
    assert (in_force["cpu_affinity"], in_force["cpus_allowed"]) == (str(first), 1)


def test_narrowed_or_idle_threads_have_not_escaped(plant, monkeypatch):
    monkeypatch.setattr(binding, "_BOUND", frozenset({0, 1}))
    monkeypatch.setattr(binding.sys, "platform", "linux")
    root = plant({**thread(10, "0-1"), **thread(11, "1"), **thread(12, "0-7", ran=0)})
    assert binding.escaped_threads(root) == {}


def test_escaped_thread_is_named_with_its_processor(plant, monkeypatch):
    monkeypatch.setattr(binding, "_BOUND", frozenset({0, 1}))
    monkeypatch.setattr(binding.sys, "platform", "linux")
    root = plant({**thread(10, "0-1"), **thread(11, "1-2,5", cpu=5, name="a) worker (1")})
    assert binding.escaped_threads(root) == {
        "11": {"name": "a) worker (1", "cpus_allowed": "1-2,5", "last_cpu": 5},
    }


def test_no_thread_escapes_without_a_binding(plant):
    assert binding.escaped_threads(plant(thread(10, "0-7"))) == {}


def test_memory_is_counted_by_node_in_pages_of_each_size(plant):
    maps = (
        "7f00 default anon=12 dirty=12 N0=10 N1=2 kernelpagesize_kB=4\n"
        "7f80 default file=/lib/x.so mapped=3 N1=3 kernelpagesize_kB=4\n"
        "7fc0 default huge anon=1 N0=1 kernelpagesize_kB=2048\n"
        "7fd0 default\n"
    )
    memory = binding.memory_by_node(plant({"proc/self/numa_maps": maps}))
    assert memory.values == {"memory_bytes_by_numa_node": {"0": 10 * 4096 + 2048 * 1024, "1": 5 * 4096}}


def test_a_kernel_without_numa_maps_has_a_reason(tmp_path):
    assert binding.memory_by_node(tmp_path).missing["memory_bytes_by_numa_node"].startswith("not_supported: no ")


def test_one_node_is_named_and_several_are_listed(plant, monkeypatch):
    nodes = "sys/devices/system/node"
    root = plant({f"{nodes}/node0/cpulist": "0-1", f"{nodes}/node1/cpulist": "2-3"})
    allow(monkeypatch, 2, 3)
    monkeypatch.setattr(binding.sys, "platform", "darwin")  # no control groups to look for
    assert binding.affinity(root).values == {"cpu_affinity": "2-3", "cpus_allowed": 2, "numa_node": 1}
    allow(monkeypatch, 1, 2)
    assert binding.affinity(root).values["numa_nodes"] == [0, 1]


def core(cpu, package, number):
    folder = f"sys/devices/system/cpu/cpu{cpu}/topology"
    return {f"{folder}/physical_package_id": package, f"{folder}/core_id": number}


@pytest.fixture
def two_sockets_with_smt(plant: Callable[[dict[str, Any]], Path]) -> Path:
    """Eight processors: 0-3 on package 0, 4-7 on package 1; a core's second thread is two further."""
    files = {}
    for cpu in range(8):
        files |= core(cpu, cpu // 4, cpu % 2)
    nodes = "sys/devices/system/node"
    return plant(
        {**files, f"{nodes}/node0/cpulist": "0-3", f"{nodes}/node1/cpulist": "4-7", f"{nodes}/node2/cpulist": ""}
    )


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0", (0,)),
        ("0-3,8", (0, 1, 2, 3, 8)),
        (" 2 , 0-1", (0, 1, 2)),
        ("1,1,0-1", (0, 1)),
        ("5-5", (5,)),
    ],
)
def test_cpu_list_is_parsed_in_linux_notation(text, cpus):
    assert binding.parse_cpu_list(text) == cpus


@pytest.mark.parametrize("text", ["", "a", "0,", "-1", "1-", "0:3", "0-3-5", "1.5", "²"])
def test_an_invalid_list_is_refused_with_the_expected_form(text):
    with pytest.raises(UsageError, match="takes a list such as 0-3,8: got"):
        binding.parse_cpu_list(text)


def test_descending_and_out_of_range_cpu_lists_are_refused():
    with pytest.raises(UsageError, match="'3-0' in '1,3-0' is descending"):
        binding.parse_cpu_list("1,3-0")
    with pytest.raises(UsageError, match="up to 65535: got 65536"):
        binding.parse_cpu_list("0-65536")


@pytest.mark.parametrize(
    ("cpus", "text"), [([0], "0"), ([3, 2, 1, 0], "0-3"), ([0, 1, 4, 6, 7, 7], "0-1,4,6-7"), ([], "")]
)
def test_cpu_lists_are_written_in_linux_notation(cpus, text):
    assert binding.cpu_list_text(cpus) == text


@pytest.mark.parametrize(("cpus", "cores"), [((0, 2), 1), ((0, 1), 2), ((0, 4), 2), (range(8), 4), ((), 0)])
def test_processors_of_one_core_count_once(two_sockets_with_smt, cpus, cores):
    assert binding.physical_cores(cpus, two_sockets_with_smt) == cores


@pytest.mark.parametrize("name", ["core_cpus_list", "thread_siblings_list"])
def test_cores_are_told_apart_where_their_numbers_begin_anew_in_each_cluster(plant, name):
    """An RK3588 under Linux 6.0 or newer: 4 + 2 + 2 cores in one package."""
    files = {}
    for cpu, number in enumerate((0, 1, 2, 3, 0, 1, 0, 1)):
        files |= core(cpu, 0, number) | {f"sys/devices/system/cpu/cpu{cpu}/topology/{name}": cpu}
    root = plant(files)
    assert binding.physical_cores(range(8), root) == 8
    assert system_values.linux_facts(root).values["cpu_cores"] == 8


def test_cpu_binding_defaults_to_one_thread_per_core(two_sockets_with_smt, tmp_path):
    assert binding.default_threads((0, 1, 2, 3), two_sockets_with_smt) == 2
    assert binding.default_threads((0, 1, 2, 3), tmp_path / "nothing") == 4


@pytest.mark.parametrize(("cpus", "nodes"), [((0, 3), [0]), ((4,), [1]), ((3, 4), [0, 1])])
def test_processors_have_their_memory_nodes(two_sockets_with_smt, cpus, nodes):
    assert binding.numa_nodes(cpus, two_sockets_with_smt) == nodes


def test_a_kernel_without_nodes_is_a_reason(tmp_path):
    with pytest.raises(UnreadableError, match=r"not_supported: no .*node0/cpulist"):
        binding.numa_nodes((0,), tmp_path)


def test_windows_uses_psutil(monkeypatch):
    import psutil

    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(binding.sys, "platform", "win32")
    monkeypatch.setattr(psutil.Process, "cpu_affinity", lambda self: [2, 0], raising=False)
    assert binding.allowed_cpus() == [0, 2]
