"""Graph files: their descriptions, refusals of untrusted files, and measurement without conversion."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarking import run_hardware_benchmark
from benchmarking.core.errors import BenchhouseError, UsageError
from benchmarking.core.records import Point
from benchmarking.graphs.bundle import EXPORTED_FROM, ORIGIN
from benchmarking.graphs.export import onnx_files
from benchmarking.workloads.support import graph_file
from benchmarking.workloads.support.graph_contents import describe
from benchmarking.workloads.support.graph_file import (
    FAMILY,
    GraphChoices,
    Input,
    array_of,
    chosen_text,
    graph_file_of,
    graph_file_workload,
)
from benchmarking.workloads.support.resolve import resolve

pytestmark = pytest.mark.forked_children
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


def moved_to_constants(path):
    """All weights in nodes, as some exporters write them."""
    model = onnx.load(str(path))
    constants = [onnx.helper.make_node("Constant", [], [one.name], value=one) for one in model.graph.initializer]
    del model.graph.initializer[:]
    nodes = [*constants, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, str(path))


def quantized_to_int8(path):
    from onnxruntime.quantization import quantize_dynamic

    quantize_dynamic(str(path), str(path), per_channel=True)


def packed_to_int4(path):
    """Blocks of 16 for a width of 8, filled up."""
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(onnx.load(str(path)), block_size=16, is_symmetric=False)
    quantizer.process()
    quantizer.model.save_model_to_file(str(path))


def shaped_by_integers(path):
    """The product, reshaped to a shape in an initializer."""
    from onnx import helper, numpy_helper

    model = onnx.load(str(path))
    model.graph.node[-1].output[0] = "rows_of_product"
    model.graph.initializer.append(numpy_helper.from_array(np.array([0, 0, 4]), "shape"))
    model.graph.node.append(helper.make_node("Reshape", ["rows_of_product", "shape"], ["product"]))
    onnx.save(model, str(path))


@pytest.mark.parametrize("change", [moved_to_constants, quantized_to_int8, packed_to_int4, shaped_by_integers])
def test_the_parameters_of_a_graph_are_those_of_the_model_however_it_stores_them(tmp_path, change):
    path = write_model(tmp_path)
    change(path)
    workload = graph_file_workload(str(path), path, task=None, seed=0)
    assert workload.parameter_count == 50 * 8 + 8 * 4
    assert "parameters" not in workload.config  # which is the model's identity


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_scales_and_zero_points_of_an_openvino_file_are_no_parameters(tmp_path, kind):
    """As compression writes them: (weights - zero points) * scales, in blocks of 16 and reshaped at int4."""
    ov = pytest.importorskip("openvino")
    from openvino import opset13 as op

    shape = [32, 64] if kind == "int8" else [32, 4, 16]
    rows = [*shape[:-1], 1]
    ints = ov.Type.u8 if kind == "int8" else ov.Type.u4
    weights, zeros = (op.convert(op.constant(np.ones(of), dtype=ints), "f16") for of in (shape, rows))
    scaled = op.multiply(op.subtract(weights, zeros), op.constant(np.ones(rows), dtype=ov.Type.f16))
    matrix = op.convert(op.reshape(scaled, op.constant([32, 64]), special_zero=False), "f32")
    given = op.parameter([-1, 64], dtype=np.float32, name="x")
    product = op.add(op.matmul(given, matrix, False, True), op.constant(np.ones((1, 32), dtype=np.float32)))
    path = tmp_path / "model.xml"
    ov.save_model(ov.Model([product], [given]), str(path), compress_to_fp16=False)
    assert graph_file_workload(str(path), path, task=None, seed=0).parameter_count == 32 * 64 + 32


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


@pytest.mark.parametrize(("op", "lost"), [("Mul", "output"), ("Cast", "input"), ("Gather", "input")])
def test_a_node_without_its_inputs_or_outputs_is_refused(tmp_path, op, lost):
    path = write_model(tmp_path)
    model = onnx.load(str(path))
    model.graph.node.add(op_type=op, input=["rows", "matrix"], output=["other"]).ClearField(lost)
    onnx.save(model, str(path))
    with pytest.raises(BenchhouseError, match=f"model.onnx is damaged: a node {op} has too few inputs or outputs"):
        describe(path)


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


def test_a_graph_file_does_not_pass_for_pretrained(tmp_path):
    path = write_model(tmp_path)
    assert resolve(str(path)).weights == "given"
    with pytest.raises(UsageError, match=r"--weights pretrained: .*model.onnx does not say what its weights are"):
        resolve(str(path), weights="pretrained")
    with pytest.raises(UsageError, match=r"--weights random: .*model.onnx has its own weights: omit --weights"):
        resolve(str(path), weights="random")


@pytest.mark.parametrize(
    ("stated", "weights"),
    [
        ('{"weights": "random", "model_id": "tiny-bert", "seed": 0, "revision": null}', "random"),
        ('{"weights": "pretrained", "model_id": "bert"}', "pretrained"),
        ('{"weights": "golden"}', "given"),
        ('{"weights": ["random"]}', "given"),
        ("[" * 5000, "given"),
        ('{"weights": "random", "model_id": "' + "x" * 20_000 + '"}', "given"),
    ],
)
def test_an_exported_file_says_itself_what_its_weights_are(tmp_path, stated, weights):
    path = write_model(tmp_path)
    onnx_files.add_metadata(path, ORIGIN, stated)
    assert resolve(str(path)).weights == weights
    if weights == "given":
        assert EXPORTED_FROM not in describe(path)
        return
    other = "pretrained" if weights == "random" else "random"
    with pytest.raises(UsageError, match=rf"--weights {other}: .*model.onnx has {weights} weights: omit --weights"):
        resolve(str(path), weights=other)


def test_a_file_converted_to_openvino_keeps_its_origin(tmp_path):
    openvino = pytest.importorskip("openvino")
    path = write_model(tmp_path)
    onnx_files.add_metadata(path, ORIGIN, '{"weights": "random", "model_id": "tiny-bert"}')
    openvino.save_model(openvino.convert_model(str(path)), str(tmp_path / "model.xml"))
    workload = resolve(str(tmp_path / "model.xml"))
    assert (workload.weights, workload.config[EXPORTED_FROM]["model_id"]) == ("random", "tiny-bert")


def test_file_changed_after_resolution_is_not_measured(tmp_path):
    path = write_model(tmp_path, location="weights.bin")
    workload = graph_file_workload(str(path), path, task=None, seed=0)
    (tmp_path / "copy").mkdir()
    assert graph_file.copy_checked(workload, tmp_path / "copy").read_bytes() == path.read_bytes()
    (tmp_path / "weights.bin").write_bytes(bytes(8 * 4 * 4))
    with pytest.raises(BenchhouseError, match="has changed since the start of the run"):
        graph_file.copy_checked(workload, tmp_path / "copy")


def test_a_git_lfs_pointer_is_called_that(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 132735\n")
    with pytest.raises(UsageError, match=r"model.onnx is a git-lfs pointer to the file: run `git lfs pull`"):
        resolve(str(path))


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
        ("state", (2, "state_1", 8), (2, 2, 8)),
    ],
)
def test_free_dimensions_have_meaningful_names(name, shape, expected):
    one = Input(name=name, dtype="float32", shape=shape)
    point = Point(batch_size=2, sequence_length=16, axes={"image_size": 64})
    assert array_of(one, point, np.random.default_rng(0), {}).shape == expected


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


def write_voice_detector(folder):
    """A recurrent graph as Silero's: a scalar chooses the branch, the state's batch has no name, and the weights are
    constants in subgraphs."""
    from onnx import TensorProto, helper, numpy_helper

    def branch(name, width):
        weight = numpy_helper.from_array(np.full((width, 1), 0.5, dtype=np.float32), f"{name}_weight")
        nodes = [
            helper.make_node("Constant", [], [f"{name}_w"], value=weight),
            helper.make_node("Slice", ["input", "zero", f"{name}_end", "one"], [f"{name}_head"]),
            helper.make_node("Constant", [], [f"{name}_end"], value=numpy_helper.from_array(np.array([width]), "e")),
            helper.make_node("MatMul", [f"{name}_head", f"{name}_w"], [f"{name}_out"]),
        ]
        nodes = [nodes[0], nodes[2], nodes[1], nodes[3]]
        return helper.make_graph(
            nodes, name, [], [helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, None)]
        )

    constants = {"rate": np.array(16000), "zero": np.array([0]), "one": np.array([1])}
    nodes = [
        *(
            helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value, name))
            for name, value in constants.items()
        ),
        helper.make_node("Equal", ["sr", "rate"], ["is_wide"]),
        helper.make_node("If", ["is_wide"], ["score"], then_branch=branch("wide", 32), else_branch=branch("narrow", 4)),
        helper.make_node("ReduceSum", ["state"], ["sum"], keepdims=0),
        helper.make_node("Add", ["score", "sum"], ["output"]),
    ]
    graph = helper.make_graph(
        nodes,
        "vad",
        [
            helper.make_tensor_value_info("input", TensorProto.FLOAT, [None, None]),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, [2, None, 4]),
            helper.make_tensor_value_info("sr", TensorProto.INT64, []),
        ],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, [None, 1])],
    )
    path = folder / "vad.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), str(path))
    return path


def described(path, **choices):
    return graph_file_workload(str(path), path, task=None, seed=0, choices=GraphChoices(**choices))


def test_what_only_the_user_knows_about_a_graph_replaces_the_guesses(tmp_path):
    path = write_voice_detector(tmp_path)
    point = Point(batch_size=3, sequence_length=64)
    guessed = described(path)
    arrays = FAMILY.inputs(guessed, point, 0)
    assert (arrays["state"].shape, arrays["input"].shape) == ((2, 3, 4), (3, 64))  # a recurrent state's middle is batch
    assert 0 <= arrays["sr"] < 100
    assert chosen_text(guessed) == (
        f"{path}: input_0 = batch size, input_1 = sequence length, state_1 = batch size, sr = random integers below "
        "100 (others: --dim NAME=N, --input NAME=VALUE, --inputs FILE.npz)"
    )
    chosen = described(path, dimensions={"input_1": 512}, values={"sr": 16000})
    arrays = FAMILY.inputs(chosen, Point(batch_size=3), 0)
    assert (arrays["input"].shape, arrays["sr"]) == ((3, 512), 16000)
    assert FAMILY.axes(chosen) == {}  # the only sequence has the chosen size
    assert chosen.config_hash != guessed.config_hash  # another series


def test_a_chosen_batch_is_the_only_one_and_a_dimension_can_be_called_the_batch(tmp_path):
    workload = described(write_voice_detector(tmp_path), dimensions={"input_0": 5})
    assert FAMILY.only_batch_size(workload) == 5
    workload = described(write_model(tmp_path), dimensions={"tokens": "batch"})
    assert FAMILY.inputs(workload, Point(batch_size=3), 0)["input_ids"].shape == (3, 3)


@pytest.mark.parametrize(
    ("choices", "why"),
    [
        ({"dimensions": {"input_7": 3}}, "--dim input_7: .* has no free dimension 'input_7': did you mean input_"),
        ({"values": {"rate": 1}}, "--input rate: .* has no input 'rate': .*it has input, state, sr"),
        ({"values": {"sr": 0.5}}, "'sr' is int64: give -9223372036854775808 to"),
        ({"file": "absent.npz"}, "--inputs absent.npz: no such .npz file"),
    ],
)
def test_a_choice_that_does_not_fit_the_graph_is_refused_with_what_fits(tmp_path, choices, why):
    with pytest.raises(UsageError, match=why):
        described(write_voice_detector(tmp_path), **choices)


def test_whole_inputs_come_from_a_file_and_fix_their_dimensions(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCHHOUSE_CACHE_DIR", str(tmp_path / "cache"))
    path, file = write_voice_detector(tmp_path), tmp_path / "inputs.npz"
    np.savez(file, input=np.arange(64.0).reshape(2, 32), sr=np.array(16000))
    workload = described(path, file=str(file))
    assert FAMILY.only_batch_size(workload) == 2
    assert FAMILY.axes(workload) == {}
    file.unlink()  # it was copied
    arrays = FAMILY.inputs(workload, Point(batch_size=2), 0)
    assert arrays["input"].dtype == np.float32
    assert (arrays["input"][1, 31], arrays["sr"], arrays["state"].shape) == (63, 16000, (2, 2, 4))
    np.savez(file, input=np.zeros((2, 3, 4)))
    with pytest.raises(UsageError, match=r"array 'input' has shape \[2, 3, 4\]: the graph takes"):
        described(path, file=str(file))
    np.savez(file, sr=np.array("text"))
    with pytest.raises(UsageError, match="expected numbers"):
        described(path, file=str(file))
    file.write_bytes(b"no archive")
    with pytest.raises(UsageError, match=r"is not a .npz file of arrays"):
        described(path, file=str(file))


def test_choices_are_for_graph_files_only(capsys):
    assert run_hardware_benchmark.main(["--model-id", "tiny-bert", "--device", "cpu", "--dim", "height=48"]) == 2
    assert "--dim, --input and --inputs are for graph files (.onnx, .xml), not tiny-bert" in capsys.readouterr().err


def measured(path, capsys, *words):
    """The only result of a short measurement of a file in ONNX Runtime, what was printed, and the run."""
    words = ["--model-id", str(path), "--device", "cpu", "--runtime", "onnxruntime", *words]
    words += ["--launches", "1", "--iterations", "3", "--warmup-iterations", "1", "--json"]
    code = run_hardware_benchmark.main([*words, "--cache-dir", str(path.parent / "cache")])
    captured = capsys.readouterr()
    return code, captured.err, json.loads(captured.out)[0] if captured.out else None


def test_a_graph_is_measured_with_the_users_inputs_and_what_is_guessed_is_printed(tmp_path, capsys):
    path = write_voice_detector(tmp_path)
    code, printed, run = measured(path, capsys, "--dim", "input_1=512", "--input", "sr=16000", "--batch-sizes", "2")
    (result,) = run["results"]
    assert (code, result["status"], result["point"]["sequence_length"]) == (0, "ok", None)
    assert "input_0 = batch size, state_1 = batch size (others: --dim NAME=N" in printed
    assert run["loads"][0]["verified"]["parameters_by_dtype"]["float32"] == 36  # constants in subgraphs are weights


def test_the_precision_of_a_quantized_graph_is_that_of_its_weights(tmp_path, capsys):
    quantization = pytest.importorskip("onnxruntime.quantization")
    path = write_model(tmp_path)
    quantization.quantize_dynamic(
        str(path), str(path.with_stem("model_int8")), op_types_to_quantize=["MatMul", "Gather"]
    )
    path = path.with_stem("model_int8")
    assert describe(path)["precision"] == "int8"
    code, printed, _ = measured(path, capsys)
    assert code == 2
    assert "model_int8.onnx are int8 (2 x float32, 33 x int8, 401 x uint8): use --precision int8" in printed
    code, _, run = measured(path, capsys, "--precision", "int8", "--sequence-lengths", "8", "--batch-sizes", "1")
    assert (code, run["cell"]["precision"], run["results"][0]["status"]) == (0, "int8", "ok")
    assert "quantized_operators" not in run["preparation"]["build"]  # the file itself, not quantized again


def test_values_of_a_sparse_constant_elsewhere_are_refused(tmp_path):
    from onnx import helper, numpy_helper

    path = write_model(tmp_path)
    model = onnx.load(str(path))
    values = numpy_helper.from_array(np.ones(2, dtype=np.float32), "values")
    onnx.external_data_helper.set_external_data(values, "../weights.bin", offset=0, length=8)
    values.ClearField("raw_data")
    values.data_location = onnx.TensorProto.EXTERNAL
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([0, 1])), [4])
    model.graph.node.insert(0, helper.make_node("Constant", [], ["sparse"], sparse_value=sparse))
    onnx.save(model, str(path))
    with pytest.raises(BenchhouseError, match="only files in the same folder are read"):
        describe(path)
