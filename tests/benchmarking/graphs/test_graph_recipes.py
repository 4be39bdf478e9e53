"""Which workloads have graphs, and what a bundle's key depends on, without torch."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from benchmarking.builds.store import BuildStore
from benchmarking.core.errors import BenchhouseError, UnsupportedError
from benchmarking.core.model_contracts import TORCH_EXPORTER, TRANSFORMERS_EXPORTER
from benchmarking.core.records import Cell, Device, Point
from benchmarking.graphs.exported_model import bundle_key, find_bundle, why_not
from benchmarking.workloads.support.families import recipe_of
from benchmarking.workloads.support.resolve import resolve

CPU = Device(type="cpu", selector="cpu", found=True)
KINDS = {
    "tiny-bert": "forward",
    "tiny-vit": "forward",
    "tiny-clip": "forward",
    "wav2vec2-base": "forward",
    "tiny-gpt2": "decoder",
    "tiny-mixtral": "decoder",
    "tiny-mamba": "decoder",
    "tiny-llava": "decoder",
    "tiny-t5": "encoder-decoder",
    "tiny-whisper": "encoder-decoder",
    "blip-image-captioning-base": "encoder-decoder",
    "tiny-unet": "denoiser",
}


def workload_of(model_id, **changes):
    return replace(resolve(model_id, weights="random"), **changes)


def cell_of(model_id="tiny-bert", precision="float32", **changes):
    return Cell(
        workload=workload_of(model_id, **changes),
        device=CPU,
        requested_device="cpu",
        runtime="onnxruntime",
        precision=precision,
    )


@pytest.mark.parametrize("model_id", KINDS)
def test_every_family_with_one_model_behind_its_call_has_graphs(model_id):
    workload = workload_of(model_id)
    assert why_not(workload) is None
    recipe = recipe_of(workload)
    assert recipe.kind == KINDS[model_id]
    assert recipe.exporter == (TORCH_EXPORTER if model_id == "tiny-unet" else TRANSFORMERS_EXPORTER)


@pytest.mark.parametrize(
    ("model_id", "words"),
    [
        ("tiny-rag", "a search over a corpus"),
        ("rwkv-4-169m-pile", "updated in place"),
        ("switch-base-8", "data-dependent loop"),
        ("Qwen2-VL-2B-Instruct", "three positions"),
    ],
)
def test_a_workload_without_graphs_has_a_reason(model_id, words):
    workload = workload_of(model_id)
    assert words in why_not(workload)
    with pytest.raises(UnsupportedError, match=words):
        bundle_key(cell_of(model_id), Point(batch_size=1))


def test_a_users_module_has_no_graphs():
    assert "not a module" in why_not(workload_of("tiny-bert", source="module"))


def test_decoder_with_feature_task_is_one_pass():
    assert recipe_of(workload_of("tiny-gpt2", task="feature-extraction")).kind == "forward"


def digest(cell, precision=None, **point):
    return bundle_key(cell, Point(batch_size=1, **point), precision).digest


def test_free_axes_share_a_bundle():
    short, long = Point(batch_size=1, sequence_length=8), Point(batch_size=4, sequence_length=128)
    assert bundle_key(cell_of(), short).digest == bundle_key(cell_of(), long).digest
    spoken = cell_of("wav2vec2-base")
    assert digest(spoken, axes={"audio_seconds": 1.0}) == digest(spoken, axes={"audio_seconds": 9.0})
    unet = cell_of("tiny-unet")
    assert digest(unet, axes={"image_size": 64, "steps": 2}) == digest(unet, axes={"image_size": 64, "steps": 9})


def test_image_sizes_have_separate_bundles():
    cell = cell_of("tiny-vit")
    assert digest(cell, axes={"image_size": 32}) != digest(cell, axes={"image_size": 64})
    assert bundle_key(cell, Point(batch_size=1, axes={"image_size": 32})).parts["signature"] == {
        "kind": "forward",
        "image_size": 32,
    }


def test_weights_task_precision_and_opset_change_the_bundle():
    point = Point(batch_size=1, sequence_length=8)
    plain = cell_of()
    others = [
        bundle_key(cell_of(seed=1), point),
        bundle_key(cell_of(weights="pretrained"), point),
        bundle_key(cell_of(revision="abc"), point),
        bundle_key(cell_of(config_hash="abc"), point),
        bundle_key(cell_of(task="fill-mask"), point),
        bundle_key(cell_of(precision="float16"), point),
        bundle_key(plain, point, opset=18),
        bundle_key(plain, point),
    ]
    assert len({key.digest for key in others}) == len(others)


def test_tf32_uses_the_float32_bundle_and_runtimes_may_name_the_source_precision():
    assert digest(cell_of(precision="tf32")) == digest(cell_of())
    assert digest(cell_of(precision="int8"), precision="float32") == digest(cell_of())
    assert digest(cell_of(precision="bfloat16"), precision="float32") == digest(cell_of())


def test_there_are_no_bfloat16_graphs():
    with pytest.raises(UnsupportedError, match="no graphs at bfloat16"):
        digest(cell_of(precision="bfloat16"))


def test_quantized_bundles_depend_on_the_quantizer_and_others_do_not():
    def packages(precision):
        return set(bundle_key(cell_of(precision=precision), Point(batch_size=1)).parts["versions"])

    assert packages("float32") == {"torch", "onnx", "onnxscript", "transformers"}
    assert {"onnxruntime", "onnxruntime-gpu"} & packages("int8")
    assert "diffusers" in bundle_key(cell_of("tiny-unet"), Point(batch_size=1)).parts["versions"]


def test_a_missing_bundle_is_named(tmp_path):
    with pytest.raises(BenchhouseError, match=r"no onnx build of tiny-bert at b1 s8 .* run it again"):
        find_bundle(cell_of(), Point(batch_size=1, sequence_length=8), store=BuildStore(tmp_path))


def test_asking_for_graphs_imports_nothing_heavy():
    code = (
        "import sys; from benchmarking.graphs import exported_model; "
        "from benchmarking.workloads.support.resolve import resolve;"
        "assert exported_model.why_not(resolve('tiny-bert', weights='random')) is None;"
        "print(sorted({'torch', 'transformers', 'numpy', 'onnx', 'onnxruntime'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
