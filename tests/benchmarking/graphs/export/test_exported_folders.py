"""Folders of `export_to_onnx` as models: the family's calls on the folder's files, and refusals."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from benchmarking.builds.store import BuildStore
from benchmarking.commands import export_model
from benchmarking.core.errors import BenchhouseError, UsageError
from benchmarking.core.records import Cell, Point, Workload, canonical_hash
from benchmarking.graphs.bundle import read_bundle
from benchmarking.graphs.export.agreement import PlainRunner
from benchmarking.graphs.exported_model import ensure_bundle, find_bundle, graph_operation, why_not
from benchmarking.sweep.run.reference import reference_cell
from benchmarking.workloads.support import exported_folder
from benchmarking.workloads.support.exported_folder import copy_checked, torch_workload, why_not_point
from benchmarking.workloads.support.resolve import resolve

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.forked_children

POINT = Point(batch_size=2, sequence_length=9, new_tokens=3)


@pytest.fixture(scope="module")
def written(exported: Callable[..., Any], build_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an encoder-decoder, three graphs."""
    exported("tiny-t5")
    folder = tmp_path_factory.mktemp("exports") / "t5"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BENCHHOUSE_CACHE_DIR", str(build_cache))
        patch.setenv("HF_HUB_OFFLINE", "1")
        assert export_model.main(["tiny-t5", "--output-dir", str(folder), "--quiet", "--json"]) == 0
    return folder


@pytest.fixture(scope="module")
def described(written: Path) -> Workload:
    """The folder as written."""
    return resolve(str(written))


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(written, tmp_path / "t5"))


def list_again(folder: Path, name: str) -> None:
    """Update the entry of a changed file in bundle.json."""
    content = (folder / name).read_bytes()
    listed = {"size_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    edit(folder, lambda bundle: bundle["exported"]["files"].update({name: listed}))


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads((folder / "bundle.json").read_text())
    change(content)
    (folder / "bundle.json").write_text(json.dumps(content))


def outputs(workload: Workload, store: BuildStore) -> dict[str, np.ndarray]:
    """The outputs of a workload's prepared graphs."""
    (device,) = export_model.processor().probe()
    cell = Cell(workload=workload, device=device, requested_device="cpu", runtime="onnxruntime", precision="float32")
    facts = ensure_bundle(cell, (POINT,), store, "if_needed")
    if workload.source == "file":
        assert facts["exported_from"] == "tiny-t5"
        assert "decode.onnx.data" in facts["exported_files"]
    place = find_bundle(cell, POINT, store=store)
    bundle = read_bundle(place)
    operation = graph_operation(bundle, PlainRunner(bundle, place), workload, POINT)
    arrays: dict[str, np.ndarray] = operation.arrays(operation.run(lambda name: None))
    return arrays


def test_family_makes_the_calls_on_the_folders_graphs(
    exported: Callable[..., Any], folder: Path, tmp_path: Path
) -> None:
    made = exported("tiny-t5")
    original = made.cell.workload
    workload = resolve(str(folder))
    for name in ("family", "task", "weights", "vocab_size"):
        assert getattr(workload, name) == getattr(original, name)
    assert workload.parameter_count == made.bundle.parameter_count
    expected = outputs(original, made.store)["logits"]
    assert outputs(workload, BuildStore(tmp_path / "one"))["logits"] == pytest.approx(expected, abs=1e-6)

    model = onnx.load(str(folder / "decode.onnx"))
    weight = max(model.graph.initializer, key=lambda tensor: len(tensor.raw_data))
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * np.float32(2), weight.name))
    onnx.save(model, str(folder / "decode.onnx"), save_as_external_data=True, location="decode.onnx.data")
    list_again(folder, "decode.onnx")
    list_again(folder, "decode.onnx.data")
    changed = resolve(str(folder))
    assert changed.revision != workload.revision
    assert np.abs(outputs(changed, BuildStore(tmp_path / "two"))["logits"] - expected).max() > 1e-3


def test_seeded_exports_are_compared_with_eager_and_others_are_not(described: Workload) -> None:
    workload = described
    (device,) = export_model.processor().probe()
    cell = Cell(workload=workload, device=device, requested_device="cpu", runtime="onnxruntime", precision="float32")
    reference = reference_cell(cell).workload
    assert reference.config_hash == resolve("tiny-t5", weights="random").config_hash
    assert (reference.source, reference.weights, reference.seed) == ("local", "random", 0)
    assert torch_workload(replace(workload, weights="pretrained")) is None
    assert torch_workload(replace(workload, seed=1)) is None


def test_a_folder_runs_at_its_own_precision_and_fixed_axes(described: Workload) -> None:
    workload = described
    said = dict(exported_folder.export_facts(workload)) | {"precision": "int8", "fixed_axes": {"image_size": 64}}
    small = replace(workload, config={**workload.config, "exported": said})
    assert why_not(workload, "int8") is None
    assert why_not(small, "int8") is None
    assert str(why_not(small, "float32")).endswith(
        "was exported at int8: use --precision int8, or export it at float32"
    )
    assert why_not_point(workload, POINT) is None
    assert why_not_point(small, replace(POINT, axes={"image_size": 64})) is None
    assert "for image size 64, not for 128" in str(why_not_point(small, replace(POINT, axes={"image_size": 128})))


def missing(folder: Path) -> None:
    (folder / "cross.onnx").unlink()


def damaged(folder: Path) -> None:
    file = folder / "decode.onnx.data"
    file.write_bytes(bytes(file.stat().st_size))


def linked(folder: Path) -> None:
    (folder / "decode.onnx").rename(folder.parent / "elsewhere.onnx")
    (folder / "decode.onnx").symlink_to(folder.parent / "elsewhere.onnx")


def of_no_known_kind(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "mine"}')
    list_again(folder, "config.json")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (missing, "needs 'cross.onnx' in the same folder"),
        (damaged, "checksum mismatch for decode.onnx.data"),
        (linked, "'decode.onnx' is a link"),
        (of_no_known_kind, "unknown model_type 'mine'"),
        (lambda folder: (folder / "bundle.json").write_text('{"a":'), "bundle.json: not JSON"),
        (lambda folder: edit(folder, lambda one: one.pop("exported")), "by an earlier version.*export it again"),
        (lambda folder: edit(folder, lambda one: one["graphs"].pop("cross")), "has no graph 'cross'"),
        (lambda folder: edit(folder, lambda one: one.update(kind="forward")), "graphs of kind forward"),
        (
            lambda folder: edit(folder, lambda one: one["graphs"]["decode"].update(file="../elsewhere.onnx")),
            "graph 'decode' is in '../elsewhere.onnx'",
        ),
        (
            lambda folder: edit(folder, lambda one: one["exported"]["files"].update({"/etc/passwd": LISTED})),
            "only files in the same folder are read",
        ),
        (
            lambda folder: edit(folder, lambda one: one["exported"]["files"].pop("decode.onnx.data")),
            "does not list decode.onnx.data",
        ),
    ],
)
def test_a_modified_export_folder_is_refused_in_one_line(
    folder: Path, change: Callable[[Path], object], why: str
) -> None:
    change(folder)
    with pytest.raises(UsageError, match=why) as refused:
        resolve(str(folder))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"task": "fill-mask"}, "was exported for task text2text-generation, not fill-mask"),
        ({"weights": "pretrained"}, "was exported with random weights, not pretrained: omit"),
    ],
)
def test_another_task_or_other_weights_than_the_folder_has_are_refused(
    written: Path, options: dict[str, Any], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        resolve(str(written), **options)


LISTED = {"size_bytes": 1, "sha256": canonical_hash("x")}


def test_folder_changed_after_resolution_is_not_measured(described: Workload, folder: Path, tmp_path: Path) -> None:
    workload = replace(described, path=str(folder))
    (tmp_path / "copy").mkdir()
    damaged(folder)
    with pytest.raises(BenchhouseError, match="has changed since the start of the run"):
        copy_checked(workload, tmp_path / "copy")
