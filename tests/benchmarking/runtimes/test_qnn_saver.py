"""QNN's saver writes down what it would do and computes nothing; the session does not say so, and gives whatever was
in memory. It is no backend of the device, and its outputs do not pass for a model's."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarking.core.records import PRECISIONS
from benchmarking.devices.qnn import BACKENDS
from benchmarking.measure.quality_measures import about_difference, compare
from tests.helpers.paths import FIXTURES

RECORDED = json.loads((FIXTURES / "onnxruntime/qnn_saver_output.json").read_text())


def output(backend):
    return {"output": np.array(RECORDED[backend], dtype=np.float32)}


def test_the_saver_is_not_among_the_backends_of_the_device():
    assert set(BACKENDS) == {"htp", "gpu", "cpu"}


@pytest.mark.parametrize("precision", PRECISIONS)
def test_outputs_of_the_qnn_saver_are_invalid(precision):
    assert RECORDED["get_providers"][0] == "QNNExecutionProvider"
    (doubt,) = about_difference(compare(output("saver"), output("reference")), precision, "encoder-only")
    assert (doubt.kind, doubt.severity) == ("output_differs", "invalid")
    assert about_difference(compare(output("htp"), output("reference")), precision, "encoder-only") == ()
