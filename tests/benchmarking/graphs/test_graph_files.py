"""Graph files: their descriptions, refusals of untrusted files, and measurement without conversion."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarking import run_hardware_benchmark
from benchmarking.core.errors import BenchhouseError, UsageError
from benchmarking.core.records import Point
from benchmarking.workloads.support import graph_file
from benchmarking.workloads.support.graph_file import FAMILY, describe, graph_file_of, graph_file_workload
from benchmarking.workloads.support.resolve import resolve

onnx = pytest.importorskip("onnx")


def write_model(folder, *, batch="batch", domain="", location=None, op="MatMul"):
    """A table of 50 rows indexed by integers, then a matrix product with weights in a separate file."""
    from onnx import TensorProto, helper, numpy_helper

    table = numpy_helper.from_array(np.ones((50, 8), dtype=np.float32), "table")
    matrix = numpy_helper.from_array(np.ones((8, 4), dtype=np.float32), "matrix")
    if location is not None:
        onnx.external_data_helper.set_external_data(matrix, location, offset=0, length=len(matrix.raw_data))
        (folder / "weights.bin").write_bytes(matrix.raw_data)
        matrix.ClearField("raw_data")
        matrix.data_location = TensorProto.EXTERNAL
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "input_ids"], ["rows"]),
            helper.make_node(op, ["rows", "matrix"], ["product"], domain=domain),
        ],
        "graph",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, [batch, "tokens"])],
        [helper.make_tensor_value_info("product", TensorProto.FLOAT, [batch, "tokens", 4])],
        [table, matrix],
    )
    opsets = [helper.make_opsetid("", 20), *([helper.make_opsetid(domain, 1)] if domain else [])]
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), str(path))
    return path


def test_a_file_is_described_by_its_graph(tmp_path):
    found = describe(write_model(tmp_path, location="weights.bin"))
    assert found["inputs"] == [{"name": "input_ids", "dtype": "int64", "shape": ["batch", "tokens"], "rows": 50}]
    assert found["outputs"] == [{"name": "product", "dtype": "float32", "shape": ["batch", "tokens", 4]}]
    assert (found["parameter_count"], found["files"]) == (50 * 8 + 8 * 4, ["model.onnx", "weights.bin"])


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"location": "../weights.bin"}, "only files in the same folder are read"),
        ({"location": "/etc/passwd"}, "only files in the same folder are read"),
        ({"location": "absent.bin"}, "needs 'absent.bin' in the same folder"),
        ({"domain": "com.somebody", "op": "Mine"}, "uses custom operators"),
        ({"domain": "com.microsoft", "op": "EPContext"}, "a vendor's compiled engine"),
    ],
)
def test_an_untrusted_files_violations_are_refused(tmp_path, fields, why):
    with pytest.raises(BenchhouseError, match=why):
        describe(write_model(tmp_path, **fields))


def test_a_link_and_truncated_weights_are_refused(tmp_path):
    path = write_model(tmp_path, location="weights.bin")
    weights = tmp_path / "weights.bin"
    weights.rename(tmp_path / "elsewhere.bin")
    weights.symlink_to(tmp_path / "elsewhere.bin")
    with pytest.raises(BenchhouseError, match="is a link or not a plain file"):
        describe(path)
    weights.unlink()
    weights.write_bytes(b"short")
    with pytest.raises(BenchhouseError, match=r"is shorter than model.onnx requires"):
        describe(path)


def test_file_changed_after_resolution_is_not_measured(tmp_path):
    path = write_model(tmp_path, location="weights.bin")
    workload = graph_file_workload(str(path), path, task=None, seed=0)
    (tmp_path / "copy").mkdir()
    assert graph_file.copy_checked(workload, tmp_path / "copy").read_bytes() == path.read_bytes()
    (tmp_path / "weights.bin").write_bytes(bytes(8 * 4 * 4))
    with pytest.raises(BenchhouseError, match="has changed since the start of the run"):
        graph_file.copy_checked(workload, tmp_path / "copy")


def test_invalid_graph_file_is_one_line(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"not a graph at all")
    with pytest.raises(UsageError, match="is not an ONNX file"):
        resolve(str(path))


def test_a_document_type_in_xml_is_refused(tmp_path):
    path = tmp_path / "model.xml"
    path.write_text('<!DOCTYPE net [<!ENTITY a "aaaa">]><net/>')
    (tmp_path / "model.bin").write_bytes(b"")
    pytest.importorskip("openvino")
    with pytest.raises(BenchhouseError, match="defines XML entities"):
        describe(path)


def test_old_export_is_accepted_with_a_single_graph_only(tmp_path):
    (tmp_path / "bundle.json").write_text("{}")
    path = write_model(tmp_path)
    assert graph_file_of(str(tmp_path)) == path
    (tmp_path / "decode.onnx").write_bytes(b"")
    with pytest.raises(UsageError, match="an export of 2 graphs"):
        graph_file_of(str(tmp_path))


def test_inputs_have_the_graphs_shapes_and_index_its_table(tmp_path):
    path = write_model(tmp_path)
    workload = graph_file_workload(str(path), path, task=None, seed=0)
    arrays = FAMILY.inputs(workload, Point(batch_size=3, sequence_length=16), 0)
    assert arrays["input_ids"].shape == (3, 16)
    assert arrays["input_ids"].max() < 50
    assert FAMILY.axes(workload) == {"sequence_length": (128,)}
    assert FAMILY.only_batch_size(workload) is None


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("pixel_values", ("batch", 3, "height", "width"), (2, 3, 64, 64)),
        ("past_key_values.0.key", ("batch", 4, "past_length", 8), (2, 4, 0, 8)),
        ("attention_mask", ("batch", "past_length + sequence"), (2, 16)),
        ("scalar", (), ()),
    ],
)
def test_free_dimensions_have_meaningful_names(name, shape, expected):
    one = graph_file.Input(name=name, dtype="float32", shape=shape)
    point = Point(batch_size=2, sequence_length=16, axes={"image_size": 64})
    assert graph_file._array(one, point, np.random.default_rng(0)).shape == expected


@pytest.mark.parametrize(
    "words",
    [
        ["--runtime", "eager"],
        ["--batch-sizes", "4"],
    ],
)
def test_unsupported_requests_of_a_file_are_refused_with_the_reason(tmp_path, capsys, words):
    path = write_model(tmp_path, batch=2)
    assert run_hardware_benchmark.main(["--model-id", str(path), "--device", "cpu", *words]) in (1, 2)
    assert "model.onnx" in capsys.readouterr().err


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
def test_a_file_is_measured_at_its_fixed_batch_and_marked_as_not_compared(tmp_path, capsys, runtime):
    path = write_model(tmp_path, batch=2, location="weights.bin")
    if runtime == "openvino":  # its own format
        openvino = pytest.importorskip("openvino")
        openvino.save_model(openvino.convert_model(str(path)), str(path.with_suffix(".xml")), compress_to_fp16=False)
        path = path.with_suffix(".xml")
    words = ["--runtime", runtime, "--sequence-lengths", "8", "--launches", "1", "--iterations", "3", "--json"]
    words += ["--warmup-iterations", "1", "--quiet", "--cache-dir", str(tmp_path / "cache")]
    assert run_hardware_benchmark.main(["--model-id", str(path), "--device", "cpu", *words]) == 0
    (run,) = json.loads(capsys.readouterr().out)
    (result,) = run["results"]
    assert (result["status"], result["point"]["batch_size"]) == ("ok", 2)
    assert result["metrics"]["latency_median_ms"] > 0
    assert run["cell"]["workload"]["source"] == "file"
    assert "not_compared" in [doubt["kind"] for doubt in result["doubts"]]
    assert result["missing"]["output_error"].startswith("not_supported: a graph in a file has no torch model")
