"""Lists of processors, and what they share."""

import os

import pytest

from benchmarking.core.errors import UsageError
from benchmarking.devices.support import binding
from benchmarking.devices.support.reading import UnreadableError


def core(cpu, package, number):
    folder = f"sys/devices/system/cpu/cpu{cpu}/topology"
    return {f"{folder}/physical_package_id": package, f"{folder}/core_id": number}


@pytest.fixture
def two_sockets_with_smt(plant):
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
def test_a_list_is_read_as_linux_writes_it(text, cpus):
    assert binding.parse_cpu_list(text) == cpus


@pytest.mark.parametrize("text", ["", "a", "0,", "-1", "1-", "0:3", "0-3-5", "1.5", "²"])
def test_what_is_no_list_is_refused_with_the_form(text):
    with pytest.raises(UsageError, match="takes a list such as 0-3,8: got"):
        binding.parse_cpu_list(text)


def test_a_backward_range_and_an_absurd_number_say_what_is_wrong():
    with pytest.raises(UsageError, match="'3-0' in '1,3-0' runs backwards"):
        binding.parse_cpu_list("1,3-0")
    with pytest.raises(UsageError, match="up to 65535: got 65536"):
        binding.parse_cpu_list("0-65536")


@pytest.mark.parametrize(
    ("cpus", "text"), [([0], "0"), ([3, 2, 1, 0], "0-3"), ([0, 1, 4, 6, 7, 7], "0-1,4,6-7"), ([], "")]
)
def test_lists_are_written_as_the_kernel_does(cpus, text):
    assert binding.cpu_list_text(cpus) == text


@pytest.mark.parametrize(("cpus", "cores"), [((0, 2), 1), ((0, 1), 2), ((0, 4), 2), (range(8), 4), ((), 0)])
def test_processors_of_one_core_count_once(two_sockets_with_smt, cpus, cores):
    assert binding.physical_cores(cpus, two_sockets_with_smt) == cores


def test_a_binding_implies_a_thread_to_each_core(two_sockets_with_smt, tmp_path):
    assert binding.default_threads((0, 1, 2, 3), two_sockets_with_smt) == 2
    assert binding.default_threads((0, 1, 2, 3), tmp_path / "nothing") == 4


@pytest.mark.parametrize(("cpus", "nodes"), [((0, 3), [0]), ((4,), [1]), ((3, 4), [0, 1])])
def test_the_nodes_of_processors_are_told(two_sockets_with_smt, cpus, nodes):
    assert binding.numa_nodes(cpus, two_sockets_with_smt) == nodes


def test_a_kernel_without_nodes_is_a_reason(tmp_path):
    with pytest.raises(UnreadableError, match=r"not_supported: no .*node0/cpulist"):
        binding.numa_nodes((0,), tmp_path)


def test_windows_is_asked_through_psutil(monkeypatch):
    import psutil

    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(binding.sys, "platform", "win32")
    monkeypatch.setattr(psutil.Process, "cpu_affinity", lambda self: [2, 0], raising=False)
    assert binding.allowed_cpus() == [0, 2]
