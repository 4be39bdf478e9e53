"""Folders of onnxruntime-genai and OpenVINO GenAI: their descriptions, and what is rejected in untrusted ones."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarking.core.errors import BenchhouseError, UsageError
from benchmarking.workloads.support import engine_folder
from benchmarking.workloads.support.engine_file import check_unchanged
from benchmarking.workloads.support.resolve import resolve

pytestmark = pytest.mark.forked_children

onnx = pytest.importorskip("onnx")

CONFIG: dict[str, Any] = {
    "model": {
        "bos_token_id": 0,
        "eos_token_id": [1, 2],
        "context_length": 64,
        "decoder": {
            "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
            "filename": "model.onnx",
            "head_size": 16,
            "inputs": {"input_ids": "input_ids", "past_key_names": "past_key_values.%d.key"},
            "outputs": {"logits": "logits"},
        },
        "type": "llama",
        "vocab_size": 50,
    },
    "search": {"do_sample": False, "max_length": 64, "top_p": 1.0},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A table of 50 rows, a packed product with its scales, and a configuration."""
    from onnx import TensorProto, helper, numpy_helper

    weights = {
        "table": np.ones((50, 32), dtype=np.float32),
        "packed": np.zeros((50, 1, 16), dtype=np.uint8),
        "scales": np.ones((50, 1), dtype=np.float32),
        "cos_cache": np.ones((64, 8), dtype=np.float32),
    }
    sizes = {"K": 32, "N": 50, "bits": 4, "block_size": 32}
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "input_ids"], ["rows"]),
            helper.make_node("MatMulNBits", ["rows", "packed", "scales"], ["logits"], domain="com.microsoft", **sizes),
        ],
        "graph",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "tokens"])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "tokens", 50])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), str(tmp_path / "model.onnx"))
    (tmp_path / "genai_config.json").write_text(json.dumps(CONFIG))
    return tmp_path


def test_a_folder_is_described_by_its_configuration_and_its_graph(folder: Path) -> None:
    workload = resolve(str(folder))
    assert (workload.family, workload.source, workload.vocab_size) == ("decoder-only", "file", 50)
    expected = {"format": "ort-genai", "precision": "int4", "quantization": "int4", "max_position_embeddings": 64}
    assert {name: workload.config[name] for name in expected} == expected
    assert workload.parameter_count == 50 * 32 + 50 * 32, "scales and tables of rotations are no parameters"
    assert workload.config["weights_bytes"] == 50 * 32 * 4 + 50 * 16 + 50 * 4
    assert check_unchanged(workload) == folder
    (folder / "genai_config.json").write_text(json.dumps(CONFIG).replace("[1, 2]", "[1, 3]"))
    with pytest.raises(BenchhouseError, match="has changed since the start of the run"):
        check_unchanged(workload)


def edited(*path: str, value: Any) -> Callable[[Path], object]:
    """A function that sets a value in the configuration."""

    def change(folder: Path) -> None:
        config = copy.deepcopy(CONFIG)
        place = config
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = value
        (folder / "genai_config.json").write_text(json.dumps(config))

    return change


def link(name: str) -> Callable[[Path], object]:
    """A function that replaces a file by a link to a copy outside the folder."""

    def change(folder: Path) -> None:
        target = folder.parent / f"{folder.name}-{name}"
        (folder / name).rename(target)
        (folder / name).symlink_to(target)

    return change


OPTIONS = ("model", "decoder", "session_options")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            edited(*OPTIONS, "custom_ops_library", value="/tmp/x.so"),
            "model.decoder.session_options.custom_ops_library is not allowed: remove it",
        ),
        (edited(*OPTIONS, "enable_profiling", value="out"), "enable_profiling is not allowed"),
        (edited(*OPTIONS, "provider_options", value=[{"mine": {}}]), "names .*mine.*: export the model for cpu, cuda"),
        (edited(*OPTIONS, "provider_options", value=[{"cuda": {"library": "x.so"}}]), "options other than switches"),
        (edited(*OPTIONS, "provider_options", value=[{"cpu": {"library": "x.so"}}]), "provider_options names"),
        (edited("model", "vision", value={}), "model.vision is not allowed"),
        (edited("engine", value={}), "engine is not allowed"),
        (edited("model", "decoder", value="x"), "expected an object"),
        (edited("search", "top_k", value="x.so"), "search.top_k: invalid value 'x.so'"),
        (edited("model", "decoder", "inputs", "past_key_names", value="%s%n"), "past_key_names: invalid value '%s%n'"),
        (
            edited("model", "decoder", "inputs", "past_key_names", value="%d.%d"),
            "past_key_names: invalid value '%d.%d'",
        ),
        (edited("model", "decoder", "filename", value="../model.onnx"), "only files in the same folder are read"),
        (edited("model", "decoder", "filename", value="/etc/x.onnx"), "only files in the same folder are read"),
        (edited("model", "decoder", "filename", value="model.so"), "expected an .onnx file in the same folder"),
        (edited("model", "decoder", "filename", value="absent.onnx"), "needs 'absent.onnx' in the same folder"),
        (edited("model", "decoder", "num_hidden_layers", value=10**9), "num_hidden_layers: invalid value 1000000000"),
        (edited("model", "type", value="whisper-mine"), "unknown model_type 'whisper-mine'"),
        (edited("model", "vocab_size", value=None), "has no vocab_size"),
        (link("genai_config.json"), "is a link"),
        (link("model.onnx"), "links to a file outside"),
        (lambda folder: (folder / "genai_config.json").write_text('{"model":'), "not JSON, or truncated"),
        (lambda folder: (folder / "model.onnx").write_bytes(b"torn"), "is not an ONNX file"),
    ],
)
def test_an_untrusted_folders_invalid_configuration_is_refused_in_one_line(
    folder: Path, change: Callable[[Path], object], why: str
) -> None:
    change(folder)
    with pytest.raises(UsageError, match=why) as refused:
        resolve(str(folder))
    assert "\n" not in str(refused.value)


def test_openvino_weights_are_counted_by_type_and_options_limited_to_arithmetic(tmp_path: Path) -> None:
    openvino = pytest.importorskip("openvino")
    from openvino import opset13 as operators

    ids = operators.parameter([-1, -1], np.int64, name="input_ids")
    table = operators.constant(np.ones((50, 32), dtype=np.int8))
    rows = operators.gather(operators.convert(table, np.float32), ids, operators.constant(0))
    scaled = operators.multiply(rows, operators.constant(np.ones((1, 1, 1), dtype=np.float32)))
    model = openvino.Model([operators.result(scaled)], [ids])
    model.outputs[0].get_tensor().set_names({"logits"})
    openvino.save_model(model, str(tmp_path / "openvino_model.xml"), compress_to_fp16=False)
    found = engine_folder._read_openvino(tmp_path / "openvino_model.xml")
    assert (found["values"], found["outputs"]["logits"][-1]) == ({"int8": 1600}, 32)

    model.set_rt_info("/tmp/cache", ["runtime_options", "CACHE_DIR"])
    openvino.save_model(model, str(tmp_path / "openvino_model.xml"), compress_to_fp16=False)
    with pytest.raises(BenchhouseError, match=r"runtime_options.CACHE_DIR is not allowed"):
        engine_folder._read_openvino(tmp_path / "openvino_model.xml")


def test_weights_of_an_unknown_type_are_refused() -> None:
    assert (
        engine_folder._weights_facts({"values": {"int4": 1, "int8": 9, "float16": 90}, "bytes": 5})["precision"]
        == "int4"
    )
    with pytest.raises(BenchhouseError, match="weights of type nf4 are not supported"):
        engine_folder._weights_facts({"values": {"nf4": 5, "float16": 9}, "bytes": 5})


def test_a_weights_folder_with_openvino_files_is_still_a_weights_folder(tmp_path: Path) -> None:
    (tmp_path / "openvino_model.xml").touch()
    assert engine_folder.is_ir_folder(tmp_path)
    (tmp_path / "model.safetensors").touch()
    assert not engine_folder.is_ir_folder(tmp_path)


def test_the_type_of_activations_is_read_from_the_graph_and_stated(folder: Path) -> None:
    """Level 4 of a product of packed weights is int8; without one the CPU's kernels compute in float32."""
    from benchmarking.runtimes.onnxruntime_genai import PLUGIN
    from tests.helpers.engines import CPU

    def modes() -> list[object]:
        engine, graph = resolve(str(folder)), resolve(str(folder / "model.onnx"))
        mode = PLUGIN.mode_at("int4", PLUGIN.mode(CPU, engine, {}))
        return [engine.config.get("activations"), graph.config.get("activations"), mode]

    assert modes() == [None, None, {"quantization": "int4"}]
    model = onnx.load(str(folder / "model.onnx"))
    (product,) = (node for node in model.graph.node if node.op_type == "MatMulNBits")
    product.attribute.append(onnx.helper.make_attribute("accuracy_level", 4))
    onnx.save(model, str(folder / "model.onnx"))
    assert modes() == ["int8", "int8", {"quantization": "int4", "activations": "int8"}]


def test_a_graph_exported_for_a_gpu_is_run_there_only(folder: Path) -> None:
    from benchmarking.runtimes.onnxruntime_genai import PLUGIN
    from tests.helpers.engines import CPU

    edited(*OPTIONS, "provider_options", value=[{"cuda": {"enable_cuda_graph": "0"}}])(folder)
    workload = resolve(str(folder))
    assert workload.config["provider"] == "cuda"
    assert "is exported for cuda, not for cpu: export it again" in str(PLUGIN.supports(CPU, workload, "int4"))
