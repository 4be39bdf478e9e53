"""A browser that crashes, that is left behind, and a library that computes something else.

They are skipped, with the reason, where there is no browser.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest

from benchmarking.builds.store import BuildStore
from benchmarking.core.errors import BenchhouseError
from benchmarking.core.records import Cell, Point
from benchmarking.measure.quality_measures import about_difference, compare
from benchmarking.runtimes.support.browser.browser import find_browser
from benchmarking.runtimes.support.browser.page import find_library


def test_crashed_page_is_reported_as_crash(open_page):
    page = open_page("wasm")
    try:
        import psutil

        for process_id in page.browser.process_ids():
            if "--type=renderer" in psutil.Process(process_id).cmdline():
                psutil.Process(process_id).kill()
        with pytest.raises(BenchhouseError, match=r"crash"):
            page.browser.call("memory")
    finally:
        page.close()


def test_the_browser_ends_with_its_process(open_page):
    """Killed without cleaning up."""
    import psutil

    code = (
        "import os, sys, time; from pathlib import Path\n"
        "from benchmarking.runtimes.support.browser.browser import Browser\n"
        "from benchmarking.runtimes.support.browser.browser import Site\n"
        "site = Site(); site.put('page.html', b'<script>globalThis.benchhouse = {}</script>')\n"
        f"browser = Browser(Path({str(find_browser())!r}), site.url + 'page.html')\n"
        "print('up', flush=True); time.sleep(600)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout.readline() == b"up\n"
        family = psutil.Process(process.pid).children(recursive=True)
        assert len(family) > 3
        process.kill()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and any(_is_alive(one) for one in family):
        time.sleep(0.1)
    assert [one for one in family if _is_alive(one)] == []


def _is_alive(process):
    import psutil

    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
def test_wrong_script_is_caught_by_its_output(open_page, build_cache, monkeypatch):
    """ONNX Runtime Web's older WebGPU provider silently computes BERT with free dimensions wrongly, by 60 %."""
    from benchmarking.devices.cpu import PLUGIN as CPU
    from benchmarking.runtimes.webgpu import SCRIPT, WebGpu
    from benchmarking.workloads.support.resolve import resolve

    library = find_library(BuildStore())
    monkeypatch.setenv("BENCHHOUSE_ORT_WEB_DIR", str(library.folder))
    monkeypatch.setenv("BENCHHOUSE_CACHE_DIR", str(build_cache))
    (device,) = CPU.probe()
    point = Point(batch_size=1, sequence_length=16)
    cell = Cell(workload=resolve("tiny-bert"), device=device, requested_device="cpu", runtime="webgpu")
    cell = replace(cell, runtime_mode={"io_mode": "host"})
    WebGpu().prepare(cell, (point,), BuildStore(), "if_needed")
    wanted = _eager_output(cell, point)
    kinds = {}
    for script in (SCRIPT, "ort.all.bundle.min.mjs"):
        opened = WebGpu(script).open(cell, SimpleNamespace(), _stage, (point,))
        try:
            operation = opened.operation(point)
            arrays = operation.arrays(operation.run(None))
        finally:
            opened.close()
        kinds[script] = [(doubt.kind, doubt.severity) for doubt in about_difference(compare(arrays, wanted), "float32")]
    assert kinds == {SCRIPT: [], "ort.all.bundle.min.mjs": [("output_differs", "invalid")]}


@contextmanager
def _stage(name):
    yield


def _eager_output(cell, point):
    from benchmarking.sweep.run.reference import ReferenceMaker, load_reference

    store = BuildStore()
    maker = ReferenceMaker(cell, store)
    try:
        return load_reference(store, maker.digest(point))
    finally:
        maker.close()
