"""Exports of the smallest models, compared with torch and called without it."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

from benchmarking import export_to_onnx
from benchmarking.core.errors import BenchhouseError
from benchmarking.core.records import Point
from benchmarking.graphs.export.agreement import PlainRunner, check_agreement, checked_points, traced_point
from benchmarking.graphs.exported_model import ensure_bundle, find_bundle, graph_operation, pack, why_not
from benchmarking.runtimes.support.torch.model_loading import load_model, parameter_count
from benchmarking.workloads.support.families import plugin_of, recipe_of
from benchmarking.workloads.support.resolve import resolve

pytest.importorskip("onnxruntime")

TINY = ("tiny-bert", "tiny-gpt2", "tiny-t5")


def model_of(workload):
    return load_model(workload, "float32", plugin_of(workload).default_attention(workload.config))[0]


def torch_call(workload, point):
    """The arrays and marks of the family's torch operation."""
    family, marks = plugin_of(workload), []
    inputs = {name: torch.from_numpy(array) for name, array in family.inputs(workload, point, workload.seed).items()}
    model = model_of(workload)
    with torch.inference_mode():
        operation = family.torch_operation(model, workload, point, inputs, {})
        operation.reset()
        return operation.arrays(operation.run(marks.append)), marks, operation


@pytest.mark.slow
@pytest.mark.parametrize("model_id", TINY)
def test_graphs_agree_with_torch_at_a_shape_that_was_not_traced(exported, model_id):
    made = exported(model_id)
    point = replace(made.point, batch_size=2, sequence_length=21)
    runner, marks = PlainRunner(made.bundle, made.folder), []
    operation = graph_operation(made.bundle, runner, made.cell.workload, point)
    arrays = operation.arrays(operation.run(marks.append))
    reference, torch_marks, torch_operation = torch_call(made.cell.workload, point)
    assert marks == torch_marks
    assert set(arrays) == set(reference)
    for name, array in reference.items():
        assert arrays[name].dtype == array.dtype
        assert arrays[name] == pytest.approx(array, abs=1e-5)
    for count in ("items_per_call", "tokens_per_call", "prompt_tokens_per_call", "new_tokens"):
        assert getattr(operation, count) == getattr(torch_operation, count)


@pytest.mark.parametrize("model_id", TINY)
def test_a_bundle_lists_its_content(exported, model_id):
    made = exported(model_id)
    model = model_of(made.cell.workload)
    assert made.bundle.parameter_count == made.facts["parameter_count"] == parameter_count(model)
    assert made.bundle.exporter == "transformers.exporters"
    assert made.facts["agreement"]["relative_l2"] < 1e-5
    assert made.facts["agreement"]["points"] == [
        point.label for point in checked_points(made.cell.workload, made.point, recipe_of(made.cell.workload))
    ]
    assert made.facts["weights_bytes"] == pytest.approx(4 * made.bundle.weight_dtypes["float32"], rel=0.05)
    assert all((made.folder / graph.file).exists() for graph in made.bundle.graphs.values())


def test_free_axes_are_named_and_files_do_not_identify_the_machine(exported):
    made = exported("tiny-gpt2")
    decode = made.bundle.graphs["decode"]
    assert decode.input("input_ids").shape == ("batch", "sequence")
    assert decode.input("past_0_key").shape == ("batch", 4, "past", 16)
    assert decode.states[0].first == ("batch", 4, 0, 16)
    logits = next(tensor for tensor in decode.outputs if tensor.name == "logits")
    assert logits.shape == ("batch", 1, 1024), "only the last position's logits are computed"
    assert b"site-packages" not in (made.folder / decode.file).read_bytes()


def test_further_outputs_of_torch_are_computed_too(exported):
    outputs = [tensor.name for tensor in exported("tiny-bert").bundle.graphs["model"].outputs]
    assert outputs == ["last_hidden_state", "pooler_output"]


def test_checks_use_other_sizes_than_the_trace():
    workload = resolve("tiny-gpt2", weights="random")
    point, recipe = Point(batch_size=1, sequence_length=8, new_tokens=4), recipe_of(workload)
    traced = traced_point(workload, point, recipe)
    for where in checked_points(workload, point, recipe):
        assert where.batch_size != traced.batch_size
        assert where.sequence_length != traced.sequence_length


def test_models_that_compute_in_blocks_are_checked_at_one_block_and_at_three():
    workload = resolve("mamba2-130m", weights="random")
    point, recipe = Point(batch_size=1, sequence_length=8, new_tokens=4), recipe_of(workload)
    block = workload.config.get("chunk_size", 256)
    lengths = [where.sequence_length // block + 1 for where in checked_points(workload, point, recipe)]
    assert lengths == [3, 1, 1]
    assert traced_point(workload, point, recipe).sequence_length // block + 1 == 2


def test_graph_with_different_outputs_is_an_error_with_numbers(exported, tmp_path):
    made = exported("tiny-bert")
    folder = tmp_path / "wrong"
    shutil.copytree(made.folder, folder)
    model = onnx.load(str(folder / "model.onnx"))
    weight = next(tensor for tensor in model.graph.initializer if len(tensor.dims) == 2 and tensor.dims[0] > 1)
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * np.float32(1.5), weight.name))
    onnx.save(model, str(folder / "model.onnx"))
    workload = made.cell.workload
    with pytest.raises(BenchhouseError, match=r"differ from the torch model at b3 s12: relative_l2 0\.\d+"):
        check_agreement(model_of(workload), workload, made.bundle, folder, made.point, recipe_of(workload), "float32")


def test_failing_graph_is_an_error_with_the_point(exported, tmp_path):
    made = exported("tiny-bert")
    folder = tmp_path / "wrong"
    shutil.copytree(made.folder, folder)
    model = onnx.load(str(folder / "model.onnx"))
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    onnx.save(model, str(folder / "model.onnx"))
    workload = made.cell.workload
    with pytest.raises(BenchhouseError, match=r"graphs of tiny-bert failed at b3 s12: "):
        check_agreement(model_of(workload), workload, made.bundle, folder, made.point, recipe_of(workload), "float32")


def test_an_export_is_made_once(exported):
    made = exported("tiny-bert")
    again = ensure_bundle(made.cell, (made.point, replace(made.point, batch_size=4)), made.store, "never")
    assert again["is_new"] is False
    assert again["digests"] == [made.facts["digest"]]
    assert find_bundle(made.cell, made.point, store=made.store) == made.folder


def test_int8_bundle_is_converted_from_float32_and_stays_close(exported):
    plain, small = exported("tiny-gpt2"), exported("tiny-gpt2", "int8")
    assert small.bundle.weight_dtypes["int8"] > 90_000
    assert small.facts["size_bytes"] < plain.facts["size_bytes"]
    operation = graph_operation(small.bundle, PlainRunner(small.bundle, small.folder), small.cell.workload, small.point)
    logits = operation.arrays(operation.run(lambda name: None))["logits"]
    reference = torch_call(small.cell.workload, small.point)[0]["logits"]
    assert 1e-5 < np.linalg.norm(logits - reference) / np.linalg.norm(reference) < 0.1


def test_measuring_process_needs_no_torch(exported):
    made = exported("tiny-gpt2")
    code = f"""
import sys
from pathlib import Path
from benchmarking.graphs.bundle import read_bundle
from benchmarking.graphs.export.agreement import PlainRunner
from benchmarking.graphs.exported_model import graph_operation
from benchmarking.core.records import Point
from benchmarking.workloads.support.resolve import resolve
folder = Path({str(made.folder)!r})
bundle = read_bundle(folder)
point = Point(batch_size=1, sequence_length=8, new_tokens=3)
operation = graph_operation(bundle, PlainRunner(bundle, folder), resolve("tiny-gpt2", weights="random"), point)
output = operation.run(lambda name: None)
print(operation.problem(output), sorted({{"torch", "transformers"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "None []"


@pytest.fixture
def command(
    exported: Callable[..., Any], build_cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Any]:
    """`benchhouse export` on models that are already in the tests' store."""
    exported("tiny-gpt2")
    monkeypatch.setenv("BENCHHOUSE_CACHE_DIR", str(build_cache))

    def run(*arguments):
        code = export_to_onnx.main(list(map(str, arguments)))
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_an_export_writes_files_and_prints_their_agreement(command, tmp_path):
    folder = tmp_path / "out"
    code, out, err = command("tiny-gpt2", "--output-dir", folder, "--max-length", 33)
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0].split() == ["file", "size"]
    assert [line.split()[0] for line in lines[2:-1]] == [
        *("config.json", "decode.onnx", "decode.onnx.data", "bundle.json")
    ]
    assert all(line.endswith("B") for line in lines[2:-1])
    assert lines[-1].startswith("agrees with torch: relative L2 ")
    assert lines[-1].endswith("100% of tokens equal (at b3 s12 n4; b1 s9 n4; b1 s33 n4)")
    assert {path.name for path in folder.iterdir()} == {line.split()[0] for line in lines[2:-1]}
    assert "exporting tiny-gpt2 (text-generation) to onnx" in err
    file = tmp_path / "alone.onnx"
    pack(folder, file)
    origin = {"model_id": "tiny-gpt2", "task": "text-generation", "weights": "random", "seed": 0, "revision": None}
    assert resolve(str(file)).config["exported_from"] == origin


def test_export_to_openvino_agrees_with_torch(command, tmp_path):
    pytest.importorskip("openvino")
    code, out, err = command("tiny-gpt2", "--format", "openvino", "--output-dir", tmp_path / "ir", "--json", "--quiet")
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert set(report["files"]) == {"config.json", "decode.xml", "decode.bin", "bundle.json"}
    assert report["agreement"]["equal_token_share"] == 1.0
    assert report["agreement"]["relative_l2"] < 1e-4
    assert resolve(str(tmp_path / "ir" / "decode.xml")).weights == "random"
    workload = resolve(str(tmp_path / "ir"))
    assert (workload.family, workload.weights) == ("decoder-only", "random")
    assert why_not(workload, "float16", ("onnx", "openvino"), ("float16",)) is None
    assert "is a file in openvino format, which this runtime does not read" in str(why_not(workload))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("tiny-rag",), "is an encoder, a search over a corpus"),
        (("tiny-gpt2", "--precision", "bfloat16"), "onnx files support float32, float16, int8, int4"),
        (
            ("tiny-gpt2", "--format", "openvino", "--precision", "int8"),
            "openvino files support float32, float16",
        ),
        (("tiny-gpt2", "--format", "openvino", "--opset", "18"), "--opset applies to ONNX files only"),
        (("tiny-gpt2", "--opset-version", "x"), "argument --opset-version: "),
        (("tiny-gpt2", "--max-length", "100000"), "100000"),
        (("tiny-vit", "--max-length", "8"), "has no token inputs"),
        (("no such model", "--task", "x"), "no such model"),
        (
            ("tiny-t5", "--output-name", "t5.onnx"),
            "t5.onnx: tiny-t5 has several graphs: give a folder",
        ),
    ],
)
def test_an_unsupported_export_is_refused_in_one_line(command, tmp_path, arguments, words):
    code, out, err = command(*arguments, "--output-dir", tmp_path / "out", "--quiet")
    assert code == 2
    assert out == ""
    assert words in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_nonempty_output_folder_is_left_unchanged(command, tmp_path):
    (tmp_path / "mine.txt").write_text("mine", encoding="utf-8")
    code, _, err = command("tiny-gpt2", "--output-dir", tmp_path, "--quiet")
    assert code == 2
    assert "not an empty folder" in err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_torchs_exporter_is_used_if_transformers_has_none(monkeypatch):
    from benchmarking.graphs.export import onnx_files

    assert onnx_files.installed_exporter("torch.onnx") == "torch.onnx"
    monkeypatch.setattr(onnx_files.importlib.util, "find_spec", lambda name: None)
    assert onnx_files.installed_exporter("transformers.exporters") == "torch.onnx"


@pytest.mark.parametrize(
    ("opset", "why"),
    [
        (
            "9",
            r"torch's TorchScript exporter cannot export the graph 'model': .*; operators from version 17 ",
        ),
        ("newest", r"cannot convert 'model' to operators of version \d+, it wrote version 18: use --opset 18"),
    ],
)
def test_a_version_of_operators_that_the_exporter_cannot_write_is_refused(command, tmp_path, opset, why):
    from onnx.defs import onnx_opset_version

    version = str(onnx_opset_version()) if opset == "newest" else opset
    (tmp_path / "model").mkdir()
    config = {**resolve("tiny-bert").config, "num_hidden_layers": 1}
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    code, _, err = command(tmp_path / "model", "--opset", version, "--output-dir", tmp_path / "out", "--quiet")
    assert code == 1
    assert re.search(why, err)
    assert not list((tmp_path / "out").glob("*"))


def test_operators_older_than_torchs_attention_are_written_with_eager_attention(command, tmp_path):
    (tmp_path / "model").mkdir()
    config = {**resolve("tiny-bert").config, "num_hidden_layers": 1}
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    code, out, _ = command(tmp_path / "model", "--opset", "11", "--output-dir", tmp_path / "out", "--quiet")
    assert (code, "agrees with torch" in out) == (0, True)


def test_what_exporters_print_is_kept_and_not_shown(capfd):
    from benchmarking.graphs.export.onnx_files import quiet

    printed = io.StringIO()
    with quiet(printed):
        print("progress")
        os.write(1, b"Torch IR graph")
    assert printed.getvalue() == "progress\nTorch IR graph"
    assert capfd.readouterr() == ("", "")
