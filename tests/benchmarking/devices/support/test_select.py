"""Probing in a child process that a driver may crash or hang, and selecting the requested device."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from inspect import signature
from typing import Any

import pytest

from benchmarking.core.errors import FormatError, UnsupportedError, UsageError
from benchmarking.core.records import Device, to_json
from benchmarking.devices.support import select as probing
from benchmarking.devices.support.select import Probes, parse_devices, probe_all, select


def device_printed_by(code, monkeypatch, time_limit_s=20.0):
    """The device cuda when its child process runs this code."""
    monkeypatch.setattr(probing, "CHILD_CODE", code)
    with Probes(["cuda"], time_limit_s) as probes:
        (device,) = probes.devices("cuda")
    assert (device.type, device.selector) == ("cuda", "cuda")
    return device


def test_devices_of_a_child_process_are_unchanged(monkeypatch):
    there = Device(type="cuda", selector="cuda", found=True, name="Ω 80GB", precisions=("float32",), memory_bytes=5)
    code = f"print({json.dumps(json.dumps([to_json(there)]))})"
    assert device_printed_by(code, monkeypatch) == there


def test_a_crashed_probe_is_not_found_with_its_last_line_on_stderr(monkeypatch):
    code = "import sys; print('loading', file=sys.stderr); sys.exit('ImportError: libcuda.so.1: no such file')"
    device = device_printed_by(code, monkeypatch)
    assert not device.found
    assert device.why_not == (
        "its probe ended with exit code 1: ImportError: libcuda.so.1: no such file; "
        "for details run python -m benchmarking.devices.support.select cuda"
    )


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
def test_a_killed_probe_names_its_signal(monkeypatch):
    device = device_printed_by("import os; os.kill(os.getpid(), 11)", monkeypatch)
    assert device.why_not.startswith("its probe ended with SIGSEGV: nothing on stderr")


def test_sixteen_gpus_that_a_driver_starts_one_after_the_other_are_within_the_limit():
    """Without persistence mode each takes up to 3 s; the limit is that of every command that probes."""
    assert probing.TIME_LIMIT_S > 16 * 3
    assert signature(Probes).parameters["time_limit_s"].default == probing.TIME_LIMIT_S
    assert "time_limit_s" not in signature(probe_all).parameters


def test_hanging_probe_is_killed_at_the_time_limit(monkeypatch):
    code = "import sys, time; print('asking the driver', file=sys.stderr, flush=True); time.sleep(600)"
    monkeypatch.setattr(probing, "CHILD_CODE", code)
    with Probes(["cuda"], 3) as probes:
        (device,) = probes.devices("cuda")
        process = probes._children["cuda"]._process
    assert device.why_not.startswith("its probe did not answer within 3 s: asking the driver")
    assert process.poll() is not None


@pytest.mark.parametrize("printed", ["", "hello", "[]", "{}", '[{"type": 1}]', '[{"type": "cuda"}]'])
def test_a_probe_with_an_invalid_answer_finds_no_device(monkeypatch, printed):
    device = device_printed_by(f"print({printed!r})", monkeypatch)
    assert not device.found
    assert "printed invalid output" in device.why_not


def test_a_verbose_probe_does_not_block(monkeypatch):
    code = "import sys; sys.stderr.write('x' * 1_000_000); sys.exit('done')"
    assert "exit code 1" in device_printed_by(code, monkeypatch).why_not


def test_leaving_the_context_ends_running_processes(monkeypatch):
    monkeypatch.setattr(probing, "CHILD_CODE", "import time; time.sleep(600)")
    with Probes(["cuda", "rocm"]) as probes:
        processes = [child._process for child in probes._children.values()]
        assert all(process.poll() is None for process in processes)
    assert all(process.poll() is not None for process in processes)


def test_drivers_stdout_is_redirected_to_stderr():
    code = (
        "import os\n"
        "from benchmarking.core import plugins\n"
        "from benchmarking.devices import cuda\n"
        "from benchmarking.devices.support import select\n"
        "real = cuda.PLUGIN.probe\n"
        "def loud():\n"
        "    os.write(1, b'driver says hello')\n"
        "    print('and python too', flush=True)\n"
        "    return real()\n"
        "cuda.PLUGIN.probe = loud\n"
        "select.main(['cuda'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [device.type for device in parse_devices(done.stdout)] == ["cuda"] * len(parse_devices(done.stdout))
    assert "driver says hello" in done.stderr


def test_the_module_probes_a_kind_from_the_command_line():
    command = [sys.executable, "-m", "benchmarking.devices.support.select", "rocm"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert {device.type for device in parse_devices(done.stdout)} == {"rocm"}


def test_empty_device_list_is_invalid():
    with pytest.raises(FormatError, match="not a list of devices"):
        parse_devices("[]")


def device(selector, **fields):
    defaults = {"type": selector.partition(":")[0], "selector": selector, "found": True, "name": f"a {selector}"}
    return Device(**{**defaults, **fields})


def absent(kind):
    return device(kind, found=False, why_not=f"no {kind} driver: install it")


NOTHING = {kind: (absent(kind),) for kind in ("cuda", "rocm", "mps", "xpu", "openvino", "qnn")}
EVERYTHING = {
    "cuda": (device("cuda:0"), device("cuda:1")),
    "rocm": (device("rocm:0"),),
    "mps": (device("mps"),),
    "xpu": (device("xpu:0"),),
    "openvino": tuple(device(f"openvino:{name}") for name in ("GPU.0", "GPU.1", "NPU", "CPU", "AUTO")),
    "qnn": (device("qnn"),),
    "cpu": (device("cpu"),),
    "null": (device("null", simulated=True),),
}


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A function that makes a machine with the given devices and records the kinds that were waited for."""
    waited = []

    def make(found):
        class Recorded:
            def __init__(self, names, time_limit_s=0.0):
                self.names = names

            def __enter__(self):
                return self

            def __exit__(self, *_):
                return None

            def devices(self, name):
                waited.append(name)
                return {**EVERYTHING, **found}[name]

        monkeypatch.setattr(probing, "Probes", Recorded)
        return waited

    return make


def anything(device):
    return None


def test_auto_selects_the_highest_ranked_device(machine):
    machine({})
    assert select("auto", anything).selector == "cuda:0"


@pytest.mark.parametrize(
    ("refused", "chosen"),
    [
        (("cuda",), "rocm:0"),
        (("cuda", "rocm"), "mps"),
        (("cuda", "rocm", "mps"), "xpu:0"),
        (("cuda", "rocm", "mps", "xpu"), "openvino:GPU.0"),
        (("cuda", "rocm", "mps", "xpu", "openvino:GPU"), "openvino:NPU"),
        (("cuda", "rocm", "mps", "xpu", "openvino:GPU", "openvino:NPU"), "qnn"),
        (("cuda", "rocm", "mps", "xpu", "openvino:GPU", "openvino:NPU", "qnn"), "openvino:CPU"),
        (("cuda", "rocm", "mps", "xpu", "openvino", "qnn"), "cpu"),
    ],
)
def test_auto_selects_the_next_device_that_supports_the_request(machine, refused, chosen):
    machine({})
    assert select("auto", lambda d: "no" if d.selector.startswith(refused) else None).selector == chosen


def test_auto_selects_the_second_gpu_if_only_it_supports_the_request(machine):
    machine({})
    assert select("auto", lambda d: "no" if d.selector == "cuda:0" else None).selector == "cuda:1"


def test_auto_waits_for_no_probe_after_the_chosen_device(machine):
    waited = machine({})
    select("auto", anything)
    assert waited == ["cuda"]


def test_auto_skips_absent_and_emulated_devices(machine):
    machine({**NOTHING, "qnn": (device("qnn", simulated=True),)})
    assert select("auto", anything).selector == "cpu"


def test_auto_never_takes_the_null_device_nor_openvinos_auto(machine):
    machine({})
    candidates = []
    with pytest.raises(UnsupportedError):
        select("auto", lambda d: candidates.append(d.selector) or "no")
    assert "null" not in candidates
    assert "openvino:AUTO" not in candidates


def test_auto_without_a_device_lists_every_reason(machine):
    machine(NOTHING)
    with pytest.raises(UnsupportedError, match=r"auto: no device supports this request. cpu: needs bfloat16"):
        select("auto", lambda d: "needs bfloat16")


@pytest.mark.parametrize(
    ("request_", "selector"),
    [
        ("cpu", "cpu"),
        ("cuda", "cuda:0"),
        ("cuda:1", "cuda:1"),
        ("rocm:0", "rocm:0"),
        ("openvino", "openvino:GPU.0"),
        ("openvino:GPU", "openvino:GPU.0"),
        ("openvino:gpu.1", "openvino:GPU.1"),
        ("openvino:CPU", "openvino:CPU"),
        ("openvino:AUTO", "openvino:AUTO"),
        ("null", "null"),
    ],
)
def test_request_names_a_device(machine, request_, selector):
    machine({})
    assert select(request_, anything).selector == selector


def test_missing_device_is_an_error_instead_of_a_fallback(machine):
    machine(NOTHING)
    with pytest.raises(UsageError, match=r"^device 'cuda' is not available: no cuda driver: install it$"):
        select("cuda", anything)
    with pytest.raises(UsageError, match=r"^device 'cuda:3' is not available: no cuda driver"):
        select("cuda:3", anything)


def test_an_index_out_of_range_lists_the_devices_found(machine):
    machine({})
    with pytest.raises(UsageError, match=r"no device 'cuda:2'\. Found: cuda:0 \(a cuda:0\), cuda:1 \(a cuda:1\)"):
        select("cuda:2", anything)


@pytest.mark.parametrize("request_", ["cuda:", "cuda:x", "cuda:-1", "cpu:0", "mps:0", "openvino:FPGA"])
def test_a_device_that_a_kind_lacks_is_an_error(machine, request_):
    machine({})
    with pytest.raises(UsageError, match=f"there is no device '{request_}'. Found: "):
        select(request_, anything)


def test_unknown_device_lists_similar_ones_and_all():
    with pytest.raises(UsageError, match=r"unknown device 'cud'\. Did you mean cuda or cpu\? Devices: auto, cpu, cuda"):
        select("cud", anything)


def test_an_unknown_device_without_similar_names_lists_all():
    with pytest.raises(
        UsageError,
        match=r"^unknown device 'tpu9000'\. Devices: auto, cpu, cuda, .*rocm, xpu; benchhouse run --list-devices tells",
    ):
        select("tpu9000", anything)


def test_explicit_device_that_cannot_run_the_request_is_unsupported(machine):
    machine({})
    with pytest.raises(UnsupportedError, match=r"device 'cuda:0' \(a cuda:0\) cannot run this: no int4"):
        select("cuda", lambda d: "no int4")


def test_probe_all_probes_hardware_only(machine):
    machine({})
    assert set(probe_all()) >= {"cpu", "cuda", "rocm", "mps", "xpu", "openvino", "qnn"}
    assert "null" not in probe_all()
    assert set(probe_all(["null"])) == {"null"}
