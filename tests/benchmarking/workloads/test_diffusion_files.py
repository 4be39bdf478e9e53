"""Diffusion models from folders: a component, a pipeline, and weights of another model."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from benchmarking.core.errors import BenchhouseError, StorageError, UsageError
from benchmarking.core.records import Cell, Device, Point
from benchmarking.runtimes.eager import PLUGIN as EAGER
from benchmarking.workloads.diffusion import PLUGIN
from benchmarking.workloads.support import families
from benchmarking.workloads.support.resolve import resolve

CONFIG = dict(families.catalog_entry("tiny-unet").config)
CPU = Device(type="cpu", selector="cpu", found=True, precisions=("float32", "bfloat16"))


@pytest.fixture(scope="module")
def unet():
    import diffusers

    torch.manual_seed(1)
    return diffusers.UNet2DConditionModel.from_config(CONFIG)


@pytest.fixture
def component(unet, tmp_path):
    """The folder of a denoiser only."""
    unet.save_pretrained(tmp_path / "component")
    return tmp_path / "component"


@pytest.fixture
def pipeline(unet, tmp_path):
    """The folder of a pipeline with only its denoiser."""
    folder = tmp_path / "pipeline"
    unet.save_pretrained(folder / "unet")
    parts = {"scheduler": ["diffusers", "DDIMScheduler"], "unet": ["diffusers", "UNet2DConditionModel"]}
    index = {"_class_name": "StableDiffusionPipeline", **parts}
    (folder / "model_index.json").write_text(json.dumps(index))
    return folder


def same(model, reference):
    return all(torch.equal(a, b) for a, b in zip(model.parameters(), reference.parameters(), strict=True))


def test_weights_of_a_component_are_the_models(component, unet):
    workload = resolve(str(component))
    model, missing = PLUGIN.load(workload, dtype=torch.float32)
    assert (workload.family, workload.task, workload.weights) == ("diffusion", "text-to-image", "pretrained")
    assert "_diffusers_version" not in workload.config
    assert missing == ()
    assert same(model, unet)
    assert not model.training


def test_pipelines_denoiser_is_run(pipeline, unet):
    workload = resolve(str(pipeline))
    assert (workload.weights, workload.path) == ("pretrained", str(pipeline / "unet"))
    assert same(PLUGIN.load(workload, dtype=torch.float32)[0], unet)


def test_a_pipelines_denoiser_may_be_a_transformer(tmp_path):
    import diffusers

    config = {"attention_head_dim": 8, "num_attention_heads": 2, "num_layers": 1, "sample_size": 8, "out_channels": 8}
    diffusers.DiTTransformer2DModel(**config).save_pretrained(tmp_path / "transformer")
    (tmp_path / "model_index.json").write_text('{"_class_name": "DiTPipeline"}')
    workload = resolve(str(tmp_path))
    assert (workload.task, workload.path) == ("unconditional-image-generation", str(tmp_path / "transformer"))
    assert type(PLUGIN.load(workload, dtype=torch.float32)[0]).__name__ == "DiTTransformer2DModel"


def test_old_transformer_class_is_dit(tmp_path):
    import diffusers

    config = {"attention_head_dim": 8, "num_attention_heads": 2, "num_layers": 1, "sample_size": 8, "out_channels": 8}
    model = diffusers.DiTTransformer2DModel(**config)
    model.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**saved, "_class_name": "Transformer2DModel"}))
    assert same(PLUGIN.load(resolve(str(tmp_path)), dtype=torch.float32)[0], model)


def test_a_cached_pipeline_is_found_without_the_hub(pipeline, cached_model, unet):
    snapshot = cached_model("org/pipeline")
    shutil.copytree(pipeline, snapshot, dirs_exist_ok=True)
    workload = resolve("org/pipeline")
    assert (workload.source, workload.weights, workload.revision) == ("hub", "pretrained", snapshot.name)
    assert workload.path == str(snapshot / "unet")


def test_only_the_denoiser_of_a_hub_pipeline_is_fetched(pipeline, hub):
    names = ("model_index.json", "unet/config.json", "unet/diffusion_pytorch_model.safetensors")
    others = ("unet/diffusion_pytorch_model.fp16.safetensors", "vae/diffusion_pytorch_model.safetensors")
    hub["org/pipeline"] = {name: (pipeline / name).read_bytes() for name in names} | dict.fromkeys(others, b"x")
    workload = resolve("org/pipeline")
    snapshot = Path(workload.path).parent
    assert (workload.source, workload.weights, workload.weights_reason) == ("hub", "pretrained", None)
    assert {path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*.*")} == set(names)


def test_a_pipeline_without_a_denoiser_is_refused_with_what_is_missing(tmp_path):
    (tmp_path / "model_index.json").write_text("{}")
    with pytest.raises(UsageError, match=r"has no config\.json"):
        resolve(str(tmp_path))


def test_sharded_weights_need_every_shard(tmp_path, unet):
    unet.save_pretrained(tmp_path, max_shard_size="1MB")
    shards = sorted(tmp_path.glob("diffusion_pytorch_model-*-of-*.safetensors"))
    assert len(shards) > 1
    assert same(PLUGIN.load(resolve(str(tmp_path)), dtype=torch.float32)[0], unet)
    shards[0].unlink()
    with pytest.raises(StorageError, match=rf"lacks 1 of {len(shards)} weight files: {shards[0].name}"):
        resolve(str(tmp_path))


def test_pickled_weights_are_refused(component):
    (component / "diffusion_pytorch_model.safetensors").unlink()
    (component / "diffusion_pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(UsageError, match=r"only pickled weights \(diffusion_pytorch_model.bin\)"):
        resolve(str(component))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda tensors: tensors.pop("conv_out.bias"), "lack 1 tensors of UNet2DConditionModel, such as conv_out"),
        (lambda tensors: tensors.update({"conv_out.bias": torch.ones(3)}), "cannot load the weights"),
    ],
)
def test_weights_of_another_model_are_refused(component, change, why):
    from safetensors.torch import load_file, save_file

    path = component / "diffusion_pytorch_model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(BenchhouseError, match=why):
        PLUGIN.load(resolve(str(component)), dtype=torch.float32)


def test_loading_restores_logging_and_the_default_dtype(component, capfd):
    import diffusers

    before = (diffusers.utils.logging.get_verbosity(), torch.get_default_dtype())
    PLUGIN.load(resolve(str(component)), dtype=torch.bfloat16)
    PLUGIN.build(resolve(str(component)), dtype=torch.bfloat16)
    assert (diffusers.utils.logging.get_verbosity(), torch.get_default_dtype()) == before
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_session_runs_pretrained_weights_and_verifies_them(component, precision):
    workload = resolve(str(component))
    cell = Cell(workload=workload, device=CPU, requested_device="cpu", runtime="eager", precision=precision)
    session = EAGER.open(cell, SimpleNamespace(torch_name="cpu"), lambda name: nullcontext(), ())
    operation = session.operation(Point(batch_size=1, axes={"image_size": 64, "steps": 2}))
    assert operation.problem(operation.run(lambda name: None)) is None
    assert session.verified["model_class"] == "UNet2DConditionModel"
    assert session.verified["parameter_dtypes"] == [precision]
    assert session.parameter_count == 792_964
    session.close()
