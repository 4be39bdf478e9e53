import subprocess
import sys

import numpy
import psutil
import pytest

from benchmarking.core import lazy_modules
from benchmarking.core.lazy_modules import np


@pytest.mark.parametrize(
    ("name", "use"),
    [("np", "np.zeros(1)"), ("psutil", "psutil.Process"), ("onnx", "onnx.helper"), ("torch", "torch.zeros")],
)
def test_importing_it_does_not_import_the_library_and_using_it_does(name, use):
    library = {"np": "numpy"}.get(name, name)
    code = (
        f"import sys; from benchmarking.core.lazy_modules import {name}; before = {library!r} in sys.modules; "
        f"{use}; print(before, {library!r} in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_names_are_those_of_the_library():
    assert (np.float64, np.ndarray, np.fft, np.random) == (numpy.float64, numpy.ndarray, numpy.fft, numpy.random)
    assert isinstance(numpy.zeros(2), np.ndarray)
    with pytest.raises(AttributeError):
        lazy_modules.psutil.no_such_name  # noqa: B018 - looked up


def test_a_name_replaced_in_the_library_is_found_replaced(monkeypatch):
    assert lazy_modules.psutil.cpu_count is psutil.cpu_count
    monkeypatch.setattr(psutil, "cpu_count", lambda: 7)
    assert lazy_modules.psutil.cpu_count() == 7


def test_a_library_that_is_not_installed_is_an_import_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "psutil", None)
    with pytest.raises(ImportError):
        lazy_modules.psutil.cpu_count  # noqa: B018 - looked up


def test_a_thread_waits_while_another_imports_the_library(tmp_path):
    """As it does at an import statement: it does not find a library whose names are not there yet."""
    (tmp_path / "psutil.py").write_text("import begun; begun.event.set(); import time; time.sleep(0.2); NAME = 1")
    (tmp_path / "begun.py").write_text("import threading; event = threading.Event()")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import begun, threading; "
        "from benchmarking.core.lazy_modules import psutil; "
        "first = threading.Thread(target=lambda: psutil.NAME); first.start(); begun.event.wait(); print(psutil.NAME)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("1\n", "")
