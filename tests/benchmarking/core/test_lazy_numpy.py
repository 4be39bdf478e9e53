import subprocess
import sys

import numpy

from benchmarking.core.lazy_numpy import np


def test_importing_it_does_not_import_numpy_and_using_it_does():
    code = (
        "import sys; from benchmarking.core.lazy_numpy import np; before = 'numpy' in sys.modules; "
        "np.zeros(1); print(before, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_its_names_are_those_of_numpy():
    assert (np.float64, np.ndarray, np.fft, np.random) == (numpy.float64, numpy.ndarray, numpy.fft, numpy.random)
    assert isinstance(numpy.zeros(2), np.ndarray)
