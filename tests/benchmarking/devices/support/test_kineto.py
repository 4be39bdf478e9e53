"""A GPU's work, read from a trace in the layout of torch's profiler."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from benchmarking.core.errors import BenchhouseError
from benchmarking.devices.support.torch_gpu import TorchTracer, device_spans
from benchmarking.measure.point import covered_ns

torch = pytest.importorskip("torch")


@pytest.fixture
def trace(recorded_text):
    return json.loads(recorded_text("kineto_2x_h100.json"))


def test_gpu_work_is_kernels_copies_and_fills_only(trace):
    spans = device_spans(trace, 0)
    begin = trace["traceEvents"][0]["ts"] * 1000
    assert [(round(a - begin), round(b - begin)) for a, b in sorted(spans)] == [
        (5_000, 6_500),  # the fill
        (10_000, 30_000),
        (25_000, 35_000),  # overlaps the kernel before on another stream
        (28_000, 30_000),
        (50_000, 54_125),  # the copy
    ]
    # 1.5 + (35 - 10) + 4.125 us; neither the user's range of 90 us, nor the wait of 12 us, nor the profiler's own time
    assert covered_ns(spans) == pytest.approx(30_625, abs=1)


def test_a_neighbouring_gpus_kernels_are_not_counted(trace):
    assert covered_ns(device_spans(trace, 1)) == pytest.approx(30_000, abs=1)
    assert device_spans(trace, 2) == []


def test_the_installed_profilers_trace_has_the_keys_that_are_read(tmp_path):
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        torch.ones(64, 64) @ torch.ones(64, 64)
    path = tmp_path / "trace.json"
    profiler.export_chrome_trace(str(path))
    found = json.loads(path.read_text())
    operators = [one for one in found["traceEvents"] if one.get("cat") == "cpu_op" and one["ph"] == "X"]
    assert {"ts", "dur", "args"} <= set(operators[0])
    assert device_spans(found, 0) == [], "a processor's operators are no work of a GPU"


def test_profiler_without_kernels_is_an_error(monkeypatch):
    from torch import profiler

    class Blind:
        def __init__(self, activities):
            self.activities = activities

        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

        def export_chrome_trace(self, path):
            with open(path, "w") as file:
                json.dump({"traceEvents": [{"ph": "M", "name": "process_name"}]}, file)

    monkeypatch.setattr(profiler, "profile", Blind)
    with pytest.raises(BenchhouseError, match="recorded no kernel"):
        TorchTracer(SimpleNamespace(), 0).spans(lambda: None)
