"""The kernelized runtime with real repositories in folders: replaced layers, facts, refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarking.commands import listings
from benchmarking.core.errors import BenchhouseError, UnsupportedError, UsageError
from benchmarking.core.records import Device, Point
from benchmarking.measure.quality_measures import about_difference, compare
from benchmarking.runtimes import kernelized
from benchmarking.runtimes.kernelized import PLUGIN
from benchmarking.workloads.support.resolve import resolve

POINT = Point(batch_size=1, sequence_length=16)
GELU = """
import torch
from torch import nn

class GELUActivation(nn.Module):
    def forward(self, input):
        return torch.nn.functional.gelu(input){twist}
"""
UNKNOWN = "from torch import nn\n\nclass Nowhere(nn.Module):\n    def forward(self, input):\n        return input\n"


def device(kind="cpu"):
    return Device(type=kind, selector=kind, found=True)


@pytest.fixture
def repository(tmp_path: Path) -> Callable[..., Path]:
    """A function that writes a kernel repository for the CPU."""

    def write(layers, name="test-layers", version=3):
        build = tmp_path / name / "build" / "torch-cpu"
        build.mkdir(parents=True)
        (build / "__init__.py").write_text("from . import layers\n\n__all__ = ['layers']\n")
        (build / "layers.py").write_text(layers)
        metadata = {"name": name, "id": f"_{name.replace('-', '_')}_{version}", "version": version, "license": "MIT"}
        metadata |= {"python-depends": [], "backend": {"type": "cpu"}}
        (build / "metadata.json").write_text(json.dumps(metadata))
        return tmp_path / name

    return write


def output(session):
    operation = session.operation(POINT)
    return operation.arrays(operation.run(lambda name: None))


def test_replaced_layers_are_in_the_facts_and_compute_as_the_model(open_torch, open_eager, repository, stages):
    folder = repository(GELU.format(twist=""))
    session = open_torch(PLUGIN, "tiny-bert", kernel_repo=str(folder))
    assert session.verified["kernels_replaced"] == {"GELUActivation": {"repo": str(folder), "version": 3, "count": 2}}
    assert stages == ["import", "weights_read", "to_device", "kernelize"]
    comparison = compare(output(session), output(open_eager("tiny-bert")))
    assert comparison.relative_l2 < 1e-6


def test_wrong_kernel_is_caught_by_its_output(open_torch, open_eager, repository):
    """The repository's code runs, and its output is compared."""
    session = open_torch(PLUGIN, "tiny-bert", kernel_repo=str(repository(GELU.format(twist=" + 1"), "wrong-layers")))
    comparison = compare(output(session), output(open_eager("tiny-bert")))
    (doubt,) = about_difference(comparison, "float32")
    assert doubt.kind == "output_differs"


def test_marks_on_the_models_classes_are_removed(open_torch, repository):
    from transformers.activations import GELUActivation

    before = dict(vars(GELUActivation))
    open_torch(PLUGIN, "tiny-bert", kernel_repo=str(repository(GELU.format(twist=""), "marking-layers")))
    assert dict(vars(GELUActivation)) == before


def test_repository_without_layers_of_the_model_is_refused(open_torch, repository):
    folder = repository(UNKNOWN, "other-layers")
    with pytest.raises(
        UnsupportedError, match=r"no layer of BertModel was replaced.* has Nowhere; the model has .*GELU"
    ):
        open_torch(PLUGIN, "tiny-bert", kernel_repo=str(folder))


def test_a_repository_that_does_not_load_is_an_error(open_torch, repository):
    folder = repository("raise ImportError('no such library')", "broken-layers")
    with pytest.raises(BenchhouseError, match=r"cannot use the kernels of .*: no such library"):
        open_torch(PLUGIN, "tiny-bert", kernel_repo=str(folder))


@pytest.fixture
def hub_is_usable(monkeypatch):
    monkeypatch.setattr(kernelized, "why_not_hub", lambda: None)


def installed(monkeypatch, kernels, wanted):
    """A machine with this version of the package, and a transformers that needs another."""
    monkeypatch.setattr(kernelized, "version_of", {"kernels": kernels, "transformers": "5.23.0"}.get)
    monkeypatch.setattr("importlib.metadata.requires", lambda name: ["torch>=2.4", f'kernels{wanted}; extra == "all"'])


def test_kernels_of_the_hub_are_refused_when_planned_and_listed_if_transformers_refuses_the_package(
    monkeypatch, repository
):
    installed(monkeypatch, "0.17.2", "<0.19,>=0.18.2")
    why_not = PLUGIN.unusable()
    assert why_not.startswith("transformers 5.23.0 needs kernels <0.19,>=0.18.2 for the hub, found 0.17.2")
    assert "pip install 'kernels<0.19,>=0.18.2'" in why_not
    with pytest.raises(UnsupportedError, match=r"for the hub, found 0\.17\.2"):
        PLUGIN.mode(device(), resolve("tiny-bert"), {})
    folder = repository(UNKNOWN, "any-layers")
    assert PLUGIN.mode(device(), resolve("tiny-bert"), {"kernel_repo": str(folder)})["kernel_repo"] == str(folder)
    assert PLUGIN.missing() is None
    (listed,) = [row for row in listings.runtimes_json() if row["name"] == "kernelized"]
    assert (listed["found"], listed["why_not"]) == (False, why_not)
    assert "kernelized" in listings.runtimes_text().partition("not found")[2]


def test_transformers_mapped_kernels_are_found(monkeypatch):
    installed(monkeypatch, "0.18.2", "<0.19,>=0.18.2")
    assert PLUGIN.unusable() is None


def test_kernels_requirement_matches_transformers_check():
    """With the real packages: the metadata agrees with transformers' own check."""
    from transformers.utils import is_kernels_available

    assert (kernelized.why_not_hub() is None) == is_kernels_available()


@pytest.mark.parametrize("mark", ["GELU", "GELUActivation"])
def test_a_layer_replaces_a_class_that_transformers_marked_with_another_name(open_torch, repository, monkeypatch, mark):
    """As transformers marks its classes if it accepts the installed version of the package."""
    from transformers.activations import GELUActivation

    monkeypatch.setattr(GELUActivation, "kernel_layer_name", mark, raising=False)
    folder = repository(GELU.format(twist=""), f"marked-{mark.lower()}-layers")
    session = open_torch(PLUGIN, "tiny-bert", kernel_repo=str(folder))
    assert sum(one["count"] for one in session.verified["kernels_replaced"].values()) == 2
    assert vars(GELUActivation)["kernel_layer_name"] == mark


def test_kernels_of_the_hub_need_a_package_that_transformers_knows(open_torch, monkeypatch, hub_is_usable):
    monkeypatch.setattr("transformers.integrations.hub_kernels.is_kernels_available", lambda: False)
    with pytest.raises(UnsupportedError, match=r"transformers .* does not load kernels from the hub with kernels \d"):
        open_torch(PLUGIN, "tiny-bert")


def test_hub_kernels_that_need_trusted_code_are_left_out(monkeypatch):
    from kernels import LayerRepository, Mode
    from transformers.integrations import hub_kernels

    from benchmarking.runtimes import kernelized as kernels

    trusted = LayerRepository(repo_id="kernels-community/activation", layer_name="FastGELU", version=1)
    trusting = LayerRepository(repo_id="somebody/gdn", layer_name="Net", version=1, trust_remote_code=True)
    mapping = {
        "FastGELU": {"cuda": {Mode.INFERENCE: trusted}},
        "Net": {"cuda": trusting},
        "Elsewhere": {"xpu": trusted},
        "Training": {"cuda": {Mode.TRAINING: trusted}},
    }
    monkeypatch.setattr(hub_kernels, "is_kernels_available", lambda: True)
    monkeypatch.setattr(hub_kernels, "get_kernel_mapping_transformers", lambda: mapping, raising=False)
    found = kernels._transformers_mapping("cuda")
    assert {name: (one.repo, one.version) for name, one in found.items()} == {
        "FastGELU": ("kernels-community/activation", 1)
    }


def test_the_mode_names_the_source(repository, hub_is_usable):
    workload = resolve("tiny-bert")
    assert PLUGIN.mode(device(), workload, {}) == {"attention": "sdpa", "kernel_repo": "hub"}
    named = {"kernel_repo": "kernels-community/activation@1"}
    assert PLUGIN.mode(device(), workload, named) == {"attention": "sdpa", **named}
    folder = repository(UNKNOWN, "mode-layers")
    assert PLUGIN.mode(device(), workload, {"kernel_repo": f"{folder}/."})["kernel_repo"] == str(folder)
    assert [option.name for option in PLUGIN.options(workload)] == ["attention", "kernel_repo"]


@pytest.mark.parametrize(
    ("source", "message"),
    [("nowhere", "neither a folder nor"), ("owner/name", "with a version"), ("{folder}", "no folder `build`")],
)
def test_an_invalid_kernel_repository_is_refused(tmp_path, source, message):
    with pytest.raises(UsageError, match=message):
        PLUGIN.mode(device(), resolve("tiny-bert"), {"kernel_repo": source.format(folder=tmp_path)})


def test_runtime_does_not_quantize():
    found = PLUGIN.supports(device(), resolve("tiny-bert"), "int8")
    assert found == "runtime kernelized does not quantize: use --runtime eager or compiled for int8"
