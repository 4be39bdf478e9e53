"""Times and memory of a call, added up by hand from a trace in Kineto's format (fixtures/devices)."""

from __future__ import annotations

import pytest

from benchmarking.core.errors import FormatError
from benchmarking.runtimes.support.torch.trace import CALL, MARK, mean_totals, read_call

BASE_US = 88_511_388_203.0
RANGES = {"M (Model)": "M", "M.a (A)": "M.a", "M.b (B)": "M.b"}


def host(name, ts, dur, cat="cpu_op", tid=1, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": BASE_US + ts, "dur": dur, "args": args}


def memory(ts, size, device=0):
    about = {"Bytes": size, "Device Type": device}
    return {"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": BASE_US + ts, "args": about}


def kernel(ts, dur, correlation, name="gemm", **args):
    about = {"device": 0, "correlation": correlation, **args}
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": BASE_US + ts, "dur": dur, "args": about}


EVENTS = [
    host(CALL, 0, 100),
    host("M (Model)", 10, 80),
    host("M.a (A)", 20, 40),
    host("aten::linear", 25, 30, **{"External id": 5}),
    host("aten::addmm", 30, 20),
    host("M.b (B)", 65, 20),
    host("aten::add", 70, 10),
    host("M.b (B)", 75, 0.5),  # inside the operator that calls it again: the outer call has its time
    host("aten::add", 0, 100, tid=2),  # of another thread
    host("aten::add", 200, 5),  # after the call
]


def test_every_moment_of_a_call_belongs_to_one_module_and_one_operator():
    call = read_call({"traceEvents": EVENTS}, RANGES)
    spent = {
        name: (one.calls, one.inclusive_ns, one.exclusive_ns, one.outside_ns) for name, one in call.modules.items()
    }
    assert spent == {
        "": (1, pytest.approx(100e3), pytest.approx(20e3), pytest.approx(20e3)),
        "M": (1, pytest.approx(80e3), pytest.approx(20e3), pytest.approx(20e3)),
        "M.a": (1, pytest.approx(40e3), pytest.approx(40e3), pytest.approx(10e3)),
        "M.b": (2, pytest.approx(20e3), pytest.approx(20e3), pytest.approx(10.5e3)),
    }
    assert sum(one.exclusive_ns for one in call.modules.values()) == pytest.approx(call.duration_ns)
    operators = {key: (one.calls, one.inclusive_ns, one.exclusive_ns) for key, one in call.operators.items()}
    assert operators == {
        ("M.a", "aten::linear"): (1, pytest.approx(30e3), pytest.approx(10e3)),
        ("M.a", "aten::addmm"): (1, pytest.approx(20e3), pytest.approx(20e3)),
        ("M.b", "aten::add"): (1, pytest.approx(10e3), pytest.approx(9.5e3)),
    }
    assert call.operator_calls == 1  # of those that call nothing: addmm


def test_a_kernel_belongs_to_the_module_that_launched_it_and_gaps_are_between_kernels():
    events = [
        *EVENTS,
        host("cudaLaunchKernel", 35, 5, cat="cuda_runtime", correlation=101),
        kernel(60, 30, 101),
        kernel(95, 10, 999, **{"External id": 5}),  # its call of the driver is not in the trace
        kernel(300, 10, 555),  # of no call
    ]
    call = read_call({"traceEvents": events}, RANGES)
    assert {name: one.device_exclusive_ns for name, one in call.modules.items() if one.device_exclusive_ns} == {
        "M.a": pytest.approx(40e3)
    }
    assert call.modules["M"].device_inclusive_ns == call.modules[""].device_inclusive_ns == pytest.approx(40e3)
    linear, addmm = (call.operators["M.a", name] for name in ("aten::linear", "aten::addmm"))
    assert (linear.device_inclusive_ns, linear.device_exclusive_ns) == (pytest.approx(40e3), pytest.approx(10e3))
    assert addmm.device_exclusive_ns == pytest.approx(30e3)
    assert (call.busy_ns, call.largest_gap_ns) == (pytest.approx(40e3), pytest.approx(5e3))
    assert call.operators["M.a", "cudaLaunchKernel"].exclusive_ns == pytest.approx(5e3)


@pytest.mark.parametrize("category", ["cuda_runtime", "cuda_driver", "xpu_runtime", "xpu_driver"])
def test_a_launch_is_known_by_each_drivers_calls(category):
    events = [*EVENTS, host("launch", 35, 5, cat=category, correlation=101), kernel(60, 30, 101)]
    call = read_call({"traceEvents": events}, RANGES)
    assert call.modules["M.a"].device_exclusive_ns == pytest.approx(30e3)


def test_module_memory_peak_excludes_earlier_allocations():
    events = [*EVENTS, memory(5, 1000), memory(26, 500), memory(31, 300), memory(40, -300), memory(86, 200)]
    call = read_call({"traceEvents": events}, RANGES)
    found = {name: (one.allocations, one.allocated_bytes, one.peak_bytes) for name, one in call.modules.items()}
    assert found == {"": (1, 1000, 1800), "M": (1, 200, 800), "M.a": (2, 800, 800), "M.b": (0, 0, 0)}
    assert call.peak_bytes == 1800


def test_memory_of_the_accelerator_counts_where_there_is_one():
    events = [*EVENTS, memory(26, 500), memory(27, 70, device=1)]
    assert read_call({"traceEvents": events}, RANGES).peak_bytes == 70


def test_marks_end_phases_with_their_own_peaks():
    events = [*EVENTS, host(f"{MARK}encode", 62, 0), memory(26, 500), memory(50, -500), memory(72, 200)]
    call = read_call({"traceEvents": events}, RANGES)
    assert call.phases == [("encode", pytest.approx(62e3))]
    assert call.phase_peaks == [500, 200]


def test_means_over_calls_are_in_ms():
    calls = [read_call({"traceEvents": EVENTS}, RANGES).modules for _ in range(2)]
    assert mean_totals(calls)["M.a"]["inclusive_ms"] == pytest.approx(0.04)
    assert mean_totals([calls[0], {}])["M.a"]["inclusive_ms"] == pytest.approx(0.02)


def test_a_trace_without_the_call_is_refused():
    with pytest.raises(FormatError, match="no call"):
        read_call({"traceEvents": EVENTS[1:]}, RANGES)
