"""LoRA adapters in each engine's format: the tokens equal eager's with the adapter merged into the weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarking.core import plugins
from benchmarking.core.errors import UsageError
from benchmarking.core.records import Workload
from benchmarking.runtimes.support.engines.weight_files import gguf_build
from tests.helpers.engines import CPU, POINT, called, installed, opened, prompts_at, tokens_of

pytestmark = pytest.mark.usefixtures("engine_cache")

RANK, ALPHA = 4, 8.0
PARTS = {"self_attn.q_proj": "attn_q", "self_attn.v_proj": "attn_v", "mlp.down_proj": "ffn_down"}
"""transformers' name of a matrix -> llama.cpp's."""


@dataclass(frozen=True)
class Adapter:
    """Two narrow matrices for some of a model's, by name: rank x inputs, and outputs x rank."""

    matrices: Mapping[str, tuple[np.ndarray, np.ndarray]]

    def merged_into(self, model: Any) -> Any:
        """The model with the adapter's product added to its weights, in place."""
        import torch

        for name, (narrow, wide) in self.matrices.items():
            model.get_submodule(name).weight.data += torch.from_numpy(ALPHA / RANK * wide @ narrow)
        return model

    def save_gguf(self, path: Path, heads: int) -> Path:
        """As written by llama.cpp's converter. Rows of Q are in ggml's rotation order."""
        import gguf

        writer = gguf.GGUFWriter(path, "llama")
        writer.add_type(gguf.GGUFType.ADAPTER)
        writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
        writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, ALPHA)
        for name, (narrow, wide) in self.matrices.items():
            _, _, layer, part = name.split(".", 3)
            if part.endswith("q_proj"):
                wide = wide.reshape(heads, 2, -1, RANK).swapaxes(1, 2).reshape(wide.shape)
            for ending, matrix in (("lora_a", narrow), ("lora_b", wide)):
                writer.add_tensor(f"blk.{layer}.{PARTS[part]}.weight.{ending}", np.ascontiguousarray(matrix))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    def save_mlx(self, folder: Path) -> Path:
        """As saved by mlx-lm after training."""
        from safetensors.numpy import save_file

        folder.mkdir()
        tensors = {}
        for name, (narrow, wide) in self.matrices.items():
            tensors[f"{name}.lora_a"], tensors[f"{name}.lora_b"] = narrow.T.copy(), wide.T.copy()
        save_file(tensors, folder / "adapters.safetensors")
        parameters = {"rank": RANK, "scale": ALPHA / RANK, "dropout": 0.0, "keys": list(PARTS)}
        config = {"fine_tune_type": "lora", "num_layers": -1, "lora_parameters": parameters}
        (folder / "adapter_config.json").write_text(json.dumps(config))
        return folder


@pytest.fixture(scope="module")
def adapter(llama: Workload) -> Adapter:
    width, inner = int(llama.config["hidden_size"]), int(llama.config["intermediate_size"])
    values = width // int(llama.config["num_attention_heads"]) * int(llama.config["num_key_value_heads"])
    sizes = {"self_attn.q_proj": (width, width), "self_attn.v_proj": (values, width), "mlp.down_proj": (width, inner)}
    chance = np.random.default_rng(0)

    def drawn(*shape: int) -> np.ndarray:
        return chance.normal(scale=0.2, size=shape).astype(np.float32)

    return Adapter(
        matrices={
            f"model.layers.{layer}.{part}": (drawn(RANK, inputs), drawn(outputs, RANK))
            for layer in range(int(llama.config["num_hidden_layers"]))
            for part, (outputs, inputs) in sizes.items()
        }
    )


@pytest.fixture(scope="module")
def expected(llama: Workload, adapter: Adapter) -> list[list[int]]:
    """The tokens of eager with merged weights, which differ from those without the adapter."""
    from benchmarking.runtimes.support.torch.model_loading import load_model

    model = load_model(llama, "float32", None)[0]
    prompts = prompts_at(llama, POINT)
    plain = tokens_of(model, prompts, POINT.new_tokens or 0)
    merged = tokens_of(adapter.merged_into(model), prompts, POINT.new_tokens or 0)
    assert plain != merged
    return merged


def test_an_adapter_in_gguf_makes_llama_cpp_choose_the_tokens_of_merged_weights(
    llama: Workload, adapter: Adapter, expected: list[list[int]], tmp_path: Path
) -> None:
    installed("llamacpp")
    file = adapter.save_gguf(tmp_path / "adapter.gguf", int(llama.config["num_attention_heads"]))
    with opened("llamacpp", llama, lora=str(file)) as (_, operation):
        assert called(operation) == called(operation) == expected
        assert operation.arrays(expected) == {}  # the reference has no adapter


def test_an_adapter_of_mlx_lm_makes_it_choose_the_tokens_of_merged_weights(
    llama: Workload, adapter: Adapter, expected: list[list[int]], tmp_path: Path
) -> None:
    installed("mlx")
    folder = adapter.save_mlx(tmp_path / "adapter")
    with opened("mlx", llama, lora=str(folder)) as (_, operation):
        assert called(operation) == expected


def test_file_of_another_kind_is_refused_as_adapter(llama: Workload, adapter: Adapter, tmp_path: Path) -> None:
    gguf_build(llama, "F32")[1](tmp_path)
    folder = adapter.save_mlx(tmp_path / "adapter")
    for name, path, why in (
        ("llamacpp", tmp_path / "model.gguf", "is a GGUF file of a model, not of an adapter"),
        ("llamacpp", folder, "is a folder: llama.cpp needs a GGUF file"),
        ("mlx", tmp_path, "expected an mlx-lm folder with adapters.safetensors"),
        ("openvino-genai", folder, "--lora: OpenVINO GenAI cannot apply an adapter to a GGUF file"),
        ("onnxruntime-genai", folder, "--lora: onnxruntime-genai supports adapters only for graphs"),
    ):
        with pytest.raises(UsageError, match=why):
            plugins.load("benchmarking.runtimes", name).mode(CPU, llama, {"lora": str(path)})
