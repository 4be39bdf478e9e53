"""The runtime qnn: its backends are chosen by name and verified."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.records import Cell, Device, Point, Readings, Workload
from benchmarking.devices.qnn import REFERENCE
from benchmarking.runtimes import qnn
from benchmarking.runtimes.qnn import PLUGIN, check_backend
from benchmarking.workloads.support.resolve import resolve

BURST = {"qnn_backend": "htp", "performance_mode": "burst"}
SIZES = {"batch": 2, "tokens": 8}


def device(*backends, simulated=False):
    facts = Readings(values={"backends": list(backends)})
    return Device(type="qnn", selector="qnn", found=True, name="NPU", facts=facts, simulated=simulated)


@pytest.fixture
def bert() -> Workload:
    return resolve("tiny-bert", weights="random")


def cell(bert, backend, **mode):
    where = device("htp", "gpu", "cpu")
    precision = "float16" if backend == "htp" else "float32"
    mode = {"qnn_backend": backend, **mode}
    return Cell(
        workload=bert, device=where, requested_device="qnn", runtime="qnn", runtime_mode=mode, precision=precision
    )


def test_tensor_processor_is_the_default_backend(bert):
    snapdragon = device("htp", "gpu", "cpu")
    assert PLUGIN.mode(snapdragon, bert, {}) == BURST
    assert PLUGIN.mode(snapdragon, bert, {"qnn_backend": "gpu"}) == {"qnn_backend": "gpu"}
    assert PLUGIN.mode(snapdragon, bert, {"qnn_backend": "cpu"}) == {"qnn_backend": "cpu"}
    assert PLUGIN.mode(device("gpu"), bert, {}) == {"qnn_backend": "gpu"}


@pytest.mark.parametrize(
    ("options", "kind", "problem"),
    [
        ({"qnn_backend": "saver"}, UsageError, "qnn_backend 'saver': runtime qnn has htp, gpu, cpu"),
        ({"qnn_backend": "cpu"}, UnsupportedError, "qnn_backend 'cpu': onnxruntime-qnn has htp, gpu on this machine"),
        ({"qnn_backend": "gpu", "performance_mode": "burst"}, UsageError, "omit it with --qnn-backend gpu"),
        ({"performance_mode": "fast"}, UsageError, "performance_mode 'fast': runtime qnn has burst"),
    ],
)
def test_a_missing_backend_or_mode_is_refused(bert, options, kind, problem):
    with pytest.raises(kind, match=problem):
        PLUGIN.mode(device("htp", "gpu"), bert, options)


def test_each_backend_has_its_own_precisions():
    assert PLUGIN.mode_at("float16", BURST) == BURST
    assert PLUGIN.mode_at("float32", {"qnn_backend": "gpu"}) == {"qnn_backend": "gpu"}
    with pytest.raises(UnsupportedError, match=r"QNN's htp supports float16, int8, not float32: use .* gpu or cpu"):
        PLUGIN.mode_at("float32", BURST)
    with pytest.raises(UnsupportedError, match=r"QNN's cpu supports float32, not float16: use .* htp or gpu"):
        PLUGIN.mode_at("float16", {"qnn_backend": "cpu"})


def test_session_with_the_wrong_backend_library_is_refused():
    check_backend({"backend_path": "/lib/libQnnGpu.so"}, "/lib/libQnnGpu.so")
    with pytest.raises(UnsupportedError, match=r"backend /lib/libQnnGpu.so, but the session uses /lib/libQnnHtp.so"):
        check_backend({"backend_path": "/lib/libQnnHtp.so"}, "/lib/libQnnGpu.so")
    with pytest.raises(UnsupportedError, match="but the session uses none"):
        check_backend({}, "/lib/libQnnGpu.so")


@pytest.fixture
def opened(bert: Workload, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A function that opens a backend on fakes and returns the session and its graph source."""
    backends = {name: f"/lib/{name}.so" for name in ("htp", "gpu", "cpu")}
    handle = SimpleNamespace(provider="QNNExecutionProvider", backends=backends, provider_devices=lambda: ("npu",))
    located = []

    class Session:
        def __init__(self, cell, points, locate, stage):
            located.append(locate(points[0]))
            options = {name: str(value) for name, value in located[-1].settings.provider_options.items()}
            self.verified = {"provider_options": options}

    monkeypatch.setattr("benchmarking.runtimes.support.onnxruntime.ort_session.OrtSession", Session)
    monkeypatch.setattr(qnn.graphs, "read_bundle", lambda folder: "bundle")
    monkeypatch.setattr(qnn.graphs, "find_bundle", lambda cell, point, store: "exported")
    monkeypatch.setattr(qnn.graphs, "sizes_at", lambda cell, point, bundle: SIZES)
    monkeypatch.setattr(qnn.graphs.FixedShapes, "find", lambda self, point, sizes: ("compiled", None))
    monkeypatch.setattr(qnn, "version_of", lambda name: "2.7.0")

    def open_at(backend, **mode):
        point = Point(batch_size=2, sequence_length=8)
        session = PLUGIN.open(cell(bert, backend, **mode), handle, None, (point,))
        return session, located[-1]

    return open_at


def test_only_the_tensor_processor_has_contexts_and_clock_modes(opened):
    session, source = opened("htp", performance_mode="balanced")
    assert source.folder == "compiled"
    assert source.settings.provider_options == {"backend_path": "/lib/htp.so", "htp_performance_mode": "balanced"}
    assert (session.verified["backend"], session.verified["context_cache"]) == ("htp", True)
    session, source = opened("gpu")
    assert (source.folder, source.settings.dimensions) == ("exported", SIZES)
    assert source.settings.entries == {"session.disable_cpu_ep_fallback": "1"}
    assert source.settings.provider_options == {"backend_path": "/lib/gpu.so"}
    assert (session.verified["is_simulated"], session.verified["context_cache"]) == (False, False)


def test_the_reference_backend_is_marked_and_never_ranked(opened):
    verified = opened(REFERENCE)[0].verified
    assert (verified["backend"], verified["is_reference_backend"], verified["is_simulated"]) == ("cpu", True, True)
    assert json.dumps(dict(verified))


def test_a_missing_backend_is_an_error_that_names_it(bert, opened):
    handle = SimpleNamespace(backends={"htp": "/lib/htp.so"}, provider="q", provider_devices=tuple)
    with pytest.raises(UnsupportedError, match=r"QNN backend gpu is no longer installed: found htp"):
        PLUGIN.open(cell(bert, "gpu"), handle, None, (Point(batch_size=1),))
