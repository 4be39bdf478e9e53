"""Probing in a process of its own: what a driver may do to it."""

import json
import subprocess
import sys

import pytest

from benchmarking.core.errors import FormatError
from benchmarking.core.records import Device, to_json
from benchmarking.devices.support import select
from benchmarking.devices.support.select import Probes, read_answer


def answer_of(code, monkeypatch, time_limit_s=20.0):
    """What is said of cuda when its probing process runs this code."""
    monkeypatch.setattr(select, "ASK", code)
    with Probes(["cuda"], time_limit_s) as probes:
        (device,) = probes.answer("cuda")
    assert (device.type, device.selector) == ("cuda", "cuda")
    return device


def test_devices_come_back_as_they_were(monkeypatch):
    there = Device(type="cuda", selector="cuda", found=True, name="Ω 80GB", precisions=("float32",), memory_bytes=5)
    code = f"print({json.dumps(json.dumps([to_json(there)]))})"
    assert answer_of(code, monkeypatch) == there


def test_a_crash_is_not_found_with_the_last_word_on_stderr(monkeypatch):
    code = "import sys; print('loading', file=sys.stderr); sys.exit('ImportError: libcuda.so.1: no such file')"
    device = answer_of(code, monkeypatch)
    assert not device.found
    assert device.why_not == (
        "its probe ended with exit code 1: ImportError: libcuda.so.1: no such file; "
        "see more with python -m benchmarking.devices.support.select cuda"
    )


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
def test_a_killed_probe_names_its_signal(monkeypatch):
    device = answer_of("import os; os.kill(os.getpid(), 11)", monkeypatch)
    assert device.why_not.startswith("its probe ended with signal 11: nothing on stderr")


def test_a_hang_is_not_found_after_the_limit_and_its_process_is_gone(monkeypatch):
    code = "import sys, time; print('asking the driver', file=sys.stderr, flush=True); time.sleep(600)"
    monkeypatch.setattr(select, "ASK", code)
    with Probes(["cuda"], 3) as probes:
        (device,) = probes.answer("cuda")
        process = probes._asked["cuda"]._process
    assert device.why_not.startswith("its probe did not answer within 3 s: asking the driver")
    assert process.poll() is not None


@pytest.mark.parametrize("printed", ["", "hello", "[]", "{}", '[{"type": 1}]', '[{"type": "cuda"}]'])
def test_garbage_is_not_found(monkeypatch, printed):
    device = answer_of(f"print({printed!r})", monkeypatch)
    assert not device.found
    assert "gave no valid answer" in device.why_not


def test_a_probe_that_chatters_does_not_block(monkeypatch):
    code = "import sys; sys.stderr.write('x' * 1_000_000); sys.exit('done')"
    assert "exit code 1" in answer_of(code, monkeypatch).why_not


def test_processes_that_are_not_waited_for_end_with_the_context(monkeypatch):
    monkeypatch.setattr(select, "ASK", "import time; time.sleep(600)")
    with Probes(["cuda", "rocm"]) as probes:
        processes = [asked._process for asked in probes._asked.values()]
        assert all(process.poll() is None for process in processes)
    assert all(process.poll() is not None for process in processes)


def test_what_a_driver_prints_on_stdout_is_kept_out_of_the_answer():
    code = (
        "import os\n"
        "from benchmarking.core import plugins\n"
        "from benchmarking.devices import _asking, cuda\n"
        "real = cuda.PLUGIN.probe\n"
        "def loud():\n"
        "    os.write(1, b'driver says hello')\n"
        "    print('and python too', flush=True)\n"
        "    return real()\n"
        "cuda.PLUGIN.probe = loud\n"
        "_asking.main(['cuda'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [device.type for device in read_answer(done.stdout)] == ["cuda"] * len(read_answer(done.stdout))
    assert "driver says hello" in done.stderr


def test_the_module_can_be_asked_by_hand():
    command = [sys.executable, "-m", "benchmarking.devices.support.select", "rocm"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert {device.type for device in read_answer(done.stdout)} == {"rocm"}


def test_an_answer_that_is_no_list_is_refused():
    with pytest.raises(FormatError, match="not a list of devices"):
        read_answer("[]")
