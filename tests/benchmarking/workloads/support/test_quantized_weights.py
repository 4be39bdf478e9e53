"""Quantized checkpoints: what is read from their configuration, why they are refused, and those that a CPU can run,
quantized here by the libraries themselves and loaded by transformers' quantizers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.records import Cell
from benchmarking.measure.doubt_rules import about_load
from benchmarking.runtimes.eager import PLUGIN
from benchmarking.sweep.run.reference import has_reference
from benchmarking.workloads.support import quantized_weights
from benchmarking.workloads.support.quantized_weights import parse, quantization_of, read_back
from benchmarking.workloads.support.resolve import resolve
from tests.helpers.engines import CPU, POINT

TORCHAO = {"quant_method": "torchao", "quant_type": {"default": {"_type": "Int8WeightOnlyConfig", "_data": {}}}}


def torchao(name: str, **data: Any) -> dict[str, Any]:
    return {"quant_method": "torchao", "quant_type": {"default": {"_type": name, "_data": data}}}


def compressed(bits: Any = 4, inputs: Any = None, **weights: Any) -> dict[str, Any]:
    kind = {"num_bits": bits, "type": "int", "strategy": "channel", **weights}
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized" if inputs is None else "int-quantized",
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": kind, "input_activations": inputs}},
    }


def per(name: str, **data: Any) -> dict[str, Any]:
    return {"_type": name, "_data": data, "_version": 1}


PER_GROUP, INT4 = per("PerGroup", group_size=32), {"_type": "torch.dtype", "_data": "int4"}
MIXED = {name: {"weights": {"num_bits": bits, "strategy": "channel"}} for name, bits in (("a", 4), ("b", 8))}
TOKEN_WISE = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True, "symmetric": True}
"""Activations of W8A8, quantized during the call with a scale per token."""


@pytest.mark.parametrize(
    ("config", "setting", "precision"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "gptq:int4:g128", "int4"),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "gptq:int8:channel", "int8"),
        ({"quant_method": "gptq", "bits": 3, "group_size": 64}, "gptq:int3:g64", "int4"),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 128}, "awq:int4:g128", "int4"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8:float8:g128x128", "float8_e4m3"),
        ({"quant_method": "fp8"}, "fp8:float8:tensor", "float8_e4m3"),
        ({"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, "bitsandbytes:nf4:g64", "int4"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "bitsandbytes:int8:channel", "int8"),
        ({"quant_method": "mxfp4"}, "mxfp4:mxfp4:g32", "int4"),
        (torchao("Int4WeightOnlyConfig", group_size=32), "torchao:int4:g32", "int4"),
        (torchao("Int8DynamicActivationInt8WeightConfig"), "torchao:int8:channel:a-int8", "int8"),
        (torchao("Int8DynamicActivationInt4WeightConfig", group_size=32), "torchao:int4:g32:a-int8", "int4"),
        (
            torchao("Float8DynamicActivationFloat8WeightConfig"),
            "torchao:float8:channel:a-float8",
            "float8_e4m3",
        ),
        ({"quant_method": "torchao", "quant_type": "int8_weight_only"}, "torchao:int8:channel", "int8"),
        (torchao("Int8WeightOnlyConfig", granularity=PER_GROUP, group_size=None), "torchao:int8:g32", "int8"),
        (torchao("Int8WeightOnlyConfig", granularity=per("PerTensor")), "torchao:int8:tensor", "int8"),
        (torchao("Int8WeightOnlyConfig", granularity=per("PerRow", dim=-1)), "torchao:int8:channel", "int8"),
        (
            torchao("Float8DynamicActivationFloat8WeightConfig", granularity=[per("PerTensor"), per("PerTensor")]),
            "torchao:float8:tensor:a-float8",
            "float8_e4m3",
        ),
        (
            torchao("Float8WeightOnlyConfig", granularity=per("PerBlock", block_size=[128, 128])),
            "torchao:float8:g128x128",
            "float8_e4m3",
        ),
        (torchao("IntxWeightOnlyConfig", granularity=PER_GROUP, weight_dtype=INT4), "torchao:int4:g32", "int4"),
        (
            torchao("Int8DynamicActivationIntxWeightConfig", weight_granularity=PER_GROUP, weight_dtype=INT4),
            "torchao:int4:g32:a-int8",
            "int4",
        ),
        (compressed(group_size=128, strategy="group"), "compressed-tensors:int4:g128", "int4"),
        (compressed(8, type="float"), "compressed-tensors:float8:channel", "float8_e4m3"),
        (compressed(8, TOKEN_WISE), "compressed-tensors:int8:channel:a-int8", "int8"),
    ],
)
def test_method_bits_and_group_size_are_read_from_the_configuration(
    config: dict[str, Any], setting: str, precision: str
) -> None:
    found = parse(config, "config.json")
    assert (found.setting, found.precision) == (setting, precision)
    assert quantized_weights.is_setting(setting)
    assert not quantized_weights.is_setting("weight-only")


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ("gptq", "is not an object"),
        ({"quant_method": "aqlm"}, "quantized with aqlm are not supported, only with awq, bitsandbytes"),
        ({"quant_method": ["gptq"]}, "are not supported"),
        ({}, "quantized with None are not supported"),
        ({"quant_method": "gptq"}, r"gptq does not say how many bits \(2 to 8\)"),
        ({"quant_method": "gptq", "bits": 10**9}, "does not say how many bits"),
        ({"quant_method": "compressed-tensors", "config_groups": []}, "does not say how many bits"),
        (compressed([4]), "does not say how many bits"),
        (torchao("IntxWeightOnlyConfig"), "does not say how many bits"),
        ({"quant_method": "torchao"}, "does not say how many bits"),
        (torchao("FqnToConfig"), "of torchao has FqnToConfig, which is not supported: use the unquantized model"),
        (
            {"quant_method": "compressed-tensors", "config_groups": MIXED},
            "of compressed-tensors has weights of several kinds, which is not supported",
        ),
    ],
)
def test_a_configuration_that_says_less_or_something_else_is_a_usage_error(config: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse(config, "config.json")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=128,
        max_position_embeddings=64,
    )
    folder = tmp_path_factory.mktemp("base")
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def with_config(base: Path, folder: Path, config: Any) -> Path:
    shutil.copytree(base, folder, dirs_exist_ok=True)
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "quantization_config": config}))
    return folder


def quantized(base: Path, folder: Path, config: Any, dtype: str = "float32") -> Path:
    """A checkpoint that transformers quantizes and saves."""
    from transformers import AutoModelForCausalLM

    AutoModelForCausalLM.from_pretrained(base, quantization_config=config, dtype=dtype).save_pretrained(folder)
    return folder


def by_torchao(base: Path, folder: Path) -> Path:
    pytest.importorskip("torchao")
    from torchao.quantization import Int8WeightOnlyConfig
    from transformers import TorchAoConfig

    return quantized(base, folder, TorchAoConfig(Int8WeightOnlyConfig()))


def by_torchao_in_groups(base: Path, folder: Path) -> Path:
    pytest.importorskip("torchao")
    from torchao.quantization import Int8WeightOnlyConfig, PerGroup
    from transformers import TorchAoConfig

    return quantized(base, folder, TorchAoConfig(Int8WeightOnlyConfig(granularity=PerGroup(32))))


def by_torchao_per_tensor(base: Path, folder: Path) -> Path:
    pytest.importorskip("torchao")
    from torchao.quantization import Int8WeightOnlyConfig, PerTensor
    from transformers import TorchAoConfig

    return quantized(base, folder, TorchAoConfig(Int8WeightOnlyConfig(granularity=PerTensor())))


def by_torchao_4_bits(base: Path, folder: Path) -> Path:
    pytest.importorskip("torchao")
    import torch
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, PerGroup
    from transformers import TorchAoConfig

    of = Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(32))
    return quantized(base, folder, TorchAoConfig(of), "bfloat16")


def by_bitsandbytes(base: Path, folder: Path) -> Path:
    pytest.importorskip("bitsandbytes")
    from transformers import BitsAndBytesConfig

    return quantized(base, folder, BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4"))


def by_compressed_tensors(base: Path, folder: Path) -> Path:
    """Symmetric int4 in groups of 32, as llm-compressor writes it."""
    packing = pytest.importorskip("compressed_tensors.compressors.pack_quantized.helpers")
    import torch
    from safetensors.torch import load_file, save_file

    with_config(base, folder, compressed(strategy="group", group_size=32, symmetric=True))
    tensors: dict[str, Any] = {}
    for name, weight in load_file(folder / "model.safetensors").items():
        if not name.endswith("proj.weight"):
            tensors[name] = weight
            continue
        groups = weight.reshape(weight.shape[0], -1, 32)
        scale = groups.abs().amax(2) / 7
        values = (groups / scale[..., None]).round().clamp(-8, 7).reshape(weight.shape).to(torch.int8)
        tensors |= {
            f"{name}_packed": packing.pack_to_int32(values, 4),
            f"{name}_scale": scale,
            f"{name}_shape": torch.tensor(weight.shape),
        }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def by_compressed_tensors_w8a8(base: Path, folder: Path) -> Path:
    """Symmetric int8 with a scale per row, and activations quantized token by token, as llm-compressor writes it."""
    pytest.importorskip("compressed_tensors")
    import torch
    from safetensors.torch import load_file, save_file

    with_config(base, folder, compressed(8, TOKEN_WISE, symmetric=True))
    tensors: dict[str, Any] = {}
    for name, weight in load_file(folder / "model.safetensors").items():
        tensors[name] = weight
        if name.endswith("proj.weight"):
            scale = weight.abs().amax(1, keepdim=True) / 127
            tensors |= {name: (weight / scale).round().to(torch.int8), f"{name}_scale": scale}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize(
    ("make", "setting", "precision", "bits", "dtype"),
    [
        (by_torchao, "torchao:int8:channel", "int8", 8, None),
        (by_torchao_in_groups, "torchao:int8:g32", "int8", 8, None),
        (by_torchao_per_tensor, "torchao:int8:tensor", "int8", 8, None),
        (by_torchao_4_bits, "torchao:int4:g32:a-int8", "int4", 4, None),
        (by_bitsandbytes, "bitsandbytes:nf4:g64", "int4", 4, None),
        (by_compressed_tensors, "compressed-tensors:int4:g32", "int4", 4, "bfloat16"),
        (by_compressed_tensors_w8a8, "compressed-tensors:int8:channel:a-int8", "int8", 8, "float32"),
    ],
)
def test_a_checkpoint_is_loaded_as_it_is_and_its_modules_are_read_back(
    make: Callable[[Path, Path], Path],
    setting: str,
    precision: Any,
    bits: int,
    dtype: str | None,
    base: Path,
    tmp_path: Path,
) -> None:
    from benchmarking.runtimes.support.torch.model_loading import weights_bytes

    workload = resolve(str(make(base, tmp_path / "model")))
    assert workload.weights == "pretrained"
    mode = PLUGIN.mode_at(precision, PLUGIN.mode(CPU, workload, {}))
    assert mode["quantization"] == setting
    cell = Cell(
        workload=workload, device=CPU, requested_device="cpu", runtime="eager", runtime_mode=mode, precision=precision
    )
    assert not has_reference(cell)  # there are no unquantized weights to compare with
    session = PLUGIN.open(cell, SimpleNamespace(torch_name="cpu"), lambda stage: _no_stage(), [POINT])
    operation = session.operation(replace(POINT, sequence_length=8, new_tokens=4))
    assert operation.problem(operation.run(lambda mark: None)) is None
    facts = session.verified
    size = weights_bytes(session._loaded.model) if hasattr(session, "_loaded") else None
    operation.close()
    session.close()
    assert (facts["quantization_method"], facts["quantization_bits"]) == (setting.partition(":")[0], bits)
    assert facts["quantized_matrix_share"] == 1.0
    assert session.parameter_count == 90432  # of the unquantized model, whatever the packing
    assert facts.get("weights_dequantized_to") == dtype
    kinds = [one.kind for one in about_load(facts)]
    assert ("dequantized" in kinds) == (dtype is not None)
    assert size is None or size < 4 * 90432
    why_other = quantized_weights.why_not(workload, "float32", on_processor=True, loads_quantized=True)
    assert f"holds weights of {setting}: use --precision {precision}" in str(why_other)


def test_biases_count_and_shared_matrices_count_once_however_a_module_holds_them() -> None:
    import torch
    from torch import nn

    class PackedLinear(nn.Module):
        """Eight 4-bit values an integer, all in buffers, as GPTQ's."""

        in_features, out_features = 8, 16

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("qweight", torch.zeros(1, 16, dtype=torch.int32))
            self.register_buffer("scales", torch.ones(1, 16))
            self.register_buffer("bias", torch.zeros(16))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(10, 8), nn.Linear(8, 10, bias=False)
            self.first, self.second, self.packed = nn.Linear(8, 16), nn.Linear(8, 16), PackedLinear()
            self.second.weight, self.head.weight = self.first.weight, self.table.weight

        def get_output_embeddings(self) -> nn.Linear:
            return self.head

    assert quantized_weights.parameter_count(Model()) == 10 * 8 + (8 * 16 + 2 * 16) + (8 * 16 + 16)


def _no_stage() -> Any:
    from contextlib import nullcontext

    return nullcontext()


def test_modules_that_hold_something_else_than_the_configuration_says_are_refused(base: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(base)
    stored = parse({"quant_method": "gptq", "bits": 4, "group_size": 128}, "")
    with pytest.raises(UnsupportedError, match="but 0% of the loaded matrix weights are quantized"):
        read_back(model, stored)
    for module in model.modules():
        if type(module).__name__ == "Linear":
            module.qweight, module.bits, module.group_size = module.weight, 8, 128
    with pytest.raises(UnsupportedError, match="says gptq:int4:g128, but loaded modules hold gptq:int8:g128"):
        read_back(model, stored)


@pytest.mark.parametrize(
    ("config", "absent", "why"),
    [
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 128},
            {"gptqmodel", "optimum"},
            "transformers needs gptqmodel, optimum: pip install gptqmodel optimum",
        ),
        (TORCHAO, {"torchao"}, "transformers needs torchao: pip install torchao"),
        ({"quant_method": "mxfp4"}, {"triton"}, "transformers needs triton: pip install accelerate kernels triton"),
        ({"quant_method": "fp8"}, set(), "transformers converts the weights to bfloat16: use a GPU"),
        (TORCHAO, set(), "use --precision int8"),
    ],
)
def test_what_cannot_be_loaded_here_is_refused_with_the_real_reason(
    config: dict[str, Any], absent: set[str], why: str, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantized_weights, "is_installed", lambda name: name not in absent)
    workload = resolve(str(with_config(base, tmp_path / "model", config)))
    found = quantized_weights.why_not(workload, "float32", on_processor=True, loads_quantized=True)
    assert why in str(found)
    of_engine = quantized_weights.why_not(workload, "int8", on_processor=True, loads_quantized=False)
    assert "which only torch's runtimes load: use --runtime eager" in str(of_engine)


def test_random_weights_are_not_quantized(base: Path, tmp_path: Path) -> None:
    folder = with_config(base, tmp_path / "model", {"quant_method": "gptq", "bits": 4, "group_size": 128})
    workload = resolve(str(folder), weights="random")
    assert quantization_of(workload) is None
    assert workload.config_hash == resolve(str(base), weights="random").config_hash


def test_a_method_of_ours_is_not_applied_to_a_quantized_checkpoint(base: Path, tmp_path: Path) -> None:
    workload = resolve(str(with_config(base, tmp_path / "model", TORCHAO)))
    with pytest.raises(UnsupportedError, match="holds torchao:int8:channel: omit it"):
        PLUGIN.mode(CPU, workload, {"quantization": "dynamic"})
