"""ONNX files by optimum in a model's folder are read instead of exported, and checked like an export."""

from __future__ import annotations

import shutil

import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarking.builds.store import BuildStore
from benchmarking.core.errors import BenchhouseError
from benchmarking.core.records import Cell, Device, Point
from benchmarking.graphs.bundle import read_bundle
from benchmarking.graphs.exported_model import bundle_key, ensure_bundle
from benchmarking.runtimes.support.torch.model_loading import load_model
from benchmarking.workloads.support.families import plugin_of
from benchmarking.workloads.support.resolve import resolve

pytest.importorskip("onnxruntime")
CPU = Device(type="cpu", selector="cpu", found=True)


def folder_with_weights(made, tmp_path):
    """The exported model as a folder with weights from save_pretrained."""
    workload = made.cell.workload
    folder = tmp_path / "model"
    model, _ = load_model(workload, "float32", plugin_of(workload).default_attention(workload.config))
    model.save_pretrained(folder)
    return folder


def bundle_of(folder, tmp_path, **point):
    cell = Cell(workload=resolve(str(folder)), device=CPU, requested_device="cpu", runtime="onnxruntime")
    store, where = BuildStore(tmp_path / "cache"), Point(batch_size=1, sequence_length=8, **point)
    facts = ensure_bundle(cell, (where,), store, "if_needed")
    return read_bundle(store.folder(bundle_key(cell, where))), facts


def give(made, target, names, more=()):
    """The export under other names, with further unused inputs."""
    (graph,) = made.bundle.graphs.values()
    model = onnx.load(str(made.folder / graph.file))
    for value in (*model.graph.input, *model.graph.output):
        value.name = names.get(value.name, value.name)
    for node in model.graph.node:
        for side in (node.input, node.output):
            for index, name in enumerate(side):
                side[index] = names.get(name, name)
    model.graph.input.extend(helper.make_tensor_value_info(name, TensorProto.INT64, ["b", "n"]) for name in more)
    target.parent.mkdir(exist_ok=True)
    onnx.save(model, str(target), save_as_external_data=True, location="model.onnx_data", size_threshold=1024)


def test_an_encoder_in_the_folder_is_read_with_its_mask_and_types(exported, tmp_path):
    made = exported("tiny-bert")
    folder = folder_with_weights(made, tmp_path)
    give(made, folder / "model.onnx", {}, more=("attention_mask", "token_type_ids"))
    bundle, facts = bundle_of(folder, tmp_path)
    assert bundle.exporter == facts["exporter"] == "optimum"
    assert bundle.graphs["model"].feeds == {
        "input_ids": "inputs.input_ids",
        "attention_mask": "ones.input_ids",
        "token_type_ids": "zeros.input_ids",
    }
    assert facts["agreement"]["relative_l2"] < 1e-5


def test_a_decoder_in_the_onnx_folder_is_read_with_its_past(exported, tmp_path):
    made = exported("tiny-gpt2")
    folder = folder_with_weights(made, tmp_path)
    names = {
        f"{ours}_{layer}_{part}": f"{theirs}.{layer}.{part}"
        for ours, theirs in (("past", "past_key_values"), ("present", "present"))
        for layer in (0, 1)
        for part in ("key", "value")
    }
    give(made, folder / "onnx" / "model.onnx", names, more=("attention_mask", "position_ids"))
    bundle, facts = bundle_of(folder, tmp_path, new_tokens=3)
    decode = bundle.graphs["decode"]
    assert decode.feeds == {"input_ids": "tokens", "attention_mask": "mask", "position_ids": "positions"}
    assert [state.output for state in decode.states][:2] == ["present.0.key", "present.0.value"]
    assert facts["agreement"]["equal_token_share"] == 1.0


def test_file_with_weights_of_another_model_is_an_error(exported, tmp_path):
    made = exported("tiny-bert")
    folder = folder_with_weights(made, tmp_path)
    give(made, folder / "model.onnx", {})
    model = onnx.load(str(folder / "model.onnx"))
    weight = next(tensor for tensor in model.graph.initializer if len(tensor.dims) == 2 and tensor.dims[0] > 1)
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * 2, weight.name))
    onnx.save(model, str(folder / "model.onnx"))
    with pytest.raises(BenchhouseError, match="differ from the torch model"):
        bundle_of(folder, tmp_path)


def test_a_file_with_an_unknown_input_is_refused_with_its_name(exported, tmp_path):
    made = exported("tiny-bert")
    folder = folder_with_weights(made, tmp_path)
    give(made, folder / "model.onnx", {}, more=("bias",))
    with pytest.raises(BenchhouseError, match=r"model.onnx has an unknown input 'bias': move it away"):
        bundle_of(folder, tmp_path)


def test_changed_file_changes_the_bundle_and_random_weights_ignore_it(exported, tmp_path):
    made = exported("tiny-bert")
    folder = folder_with_weights(made, tmp_path)

    def digest(weights="auto"):
        workload = resolve(str(folder), weights=weights)
        cell = Cell(workload=workload, device=CPU, requested_device="cpu", runtime="onnxruntime")
        return bundle_key(cell, Point(batch_size=1, sequence_length=8)).digest

    without, random = digest(), digest("random")
    give(made, folder / "model.onnx", {})
    given = digest()
    (folder / "model.onnx_data").write_bytes(b"others")
    assert len({without, given, digest()}) == 3
    assert digest("random") == random
    shutil.rmtree(folder)
