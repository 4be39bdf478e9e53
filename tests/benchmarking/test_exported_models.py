"""The model and the sizes that `benches --model`, `compare_onnx` and `profiler` measure without further flags."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from onnx import TensorProto, helper, save

from benchmarking import cli, compare_onnx, profiler
from benchmarking.commands import benches

pytestmark = pytest.mark.forked_children

NULL = ["--device", "null", "--runtime", "null", "--dry-run", "--json"]


@pytest.fixture(autouse=True)
def in_an_empty_folder(empty_working_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("BENCHHOUSE_CACHE_DIR", str(tmp_path / "cache"))


def write_graph(path, batch="batch"):
    """A graph of one input with two dimensions, the second of which is fixed."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, 4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", ends[:1], ends[1:])
    path.parent.mkdir(parents=True, exist_ok=True)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), str(path))


def planned(capsys):
    (plan,) = json.loads(capsys.readouterr().out)
    return plan


@pytest.mark.parametrize(
    ("model", "words", "expected"),
    [
        ("tiny-vit", [], {"batch_size": 1, "image_size": 32}),
        ("tiny-clip", [], {"batch_size": 1, "sequence_length": 32, "image_size": 32}),
        ("tiny-gpt2", [], {"batch_size": 1, "sequence_length": 128, "new_tokens": 16}),
        ("tiny-bert", ["--seq-length", "20"], {"batch_size": 1, "sequence_length": 20}),
        ("models/free.onnx", [], {"batch_size": 1}),
        ("models/fixed.onnx", [], {"batch_size": 3}),
    ],
)
def test_default_sizes_are_those_of_axes_that_the_model_has(model, words, expected, tmp_path, capsys):
    write_graph(tmp_path / "models" / "free.onnx")
    write_graph(tmp_path / "models" / "fixed.onnx", batch=3)
    assert cli.main(["benches", "--model", model, *words, *NULL]) == 0
    plan = planned(capsys)
    (point,) = plan["points"]
    axes = point.pop("axes", {})
    assert {name: value for name, value in {**point, **axes}.items() if value} == {"concurrency": 1, **expected}
    command = plan["provenance"]["command"]
    assert ("--sequence-lengths" in command) is ("sequence_length" in expected)  # the command repeats the run


def test_a_length_that_was_asked_for_is_refused_by_a_model_without_one(capsys):
    assert cli.main(["benches", "--model", "tiny-vit", "--seq-length", "64", *NULL]) == 2
    assert "has no sequence length" in capsys.readouterr().err


def test_compare_onnx_and_profiler_take_models_without_a_sequence(null_script, capsys):
    words = ["--device", "cpu", "--runtimes", "eager,compiled", "--dry-run", "--json"]
    assert compare_onnx.main(["--model", "tiny-vit", *words]) == 0
    assert {point["batch_size"] for plan in json.loads(capsys.readouterr().out) for point in plan["points"]} == {4}
    null_script(latency_ms={"*": [8.0]}, modules={"layers.0": 0.5})
    assert profiler.main(["--model", "tiny-vit", "--device", "null", "--output", "profile.json"]) == 0
    assert "b4 image_size=32" in capsys.readouterr().out


def test_a_name_in_another_folder_or_of_another_organisation_is_another_model(tmp_path, capsys):
    write_graph(tmp_path / "models" / "ids.onnx")
    write_graph(tmp_path / "sub" / "ids.onnx", batch=3)
    for name in ("nosuch/ids.onnx", str(tmp_path / "none" / "ids"), "other-org/ids"):
        assert cli.main(["benches", "--model", name, *NULL]) == 2
        assert name in capsys.readouterr().err
    for name in ("ids", "ids.onnx", "models/ids"):
        assert cli.main(["benches", "--model", name, *NULL]) == 0
        assert planned(capsys)["cell"]["workload"]["path"] == str(tmp_path / "models" / "ids.onnx")
    assert cli.main(["benches", "--model", "sub/ids", *NULL]) == 0
    assert planned(capsys)["cell"]["workload"]["path"] == str(tmp_path / "sub" / "ids.onnx")


def test_an_exported_folder_is_found_by_the_whole_name_of_its_model(tmp_path, monkeypatch):
    (tmp_path / "models" / "ids-onnx").mkdir(parents=True)
    (tmp_path / "models" / "ids-onnx" / "bundle.json").write_text("{}")
    bundle = SimpleNamespace(exported=SimpleNamespace(model_id="org/ids"))
    monkeypatch.setattr("benchmarking.workloads.support.exported_folder.bundle_in", lambda folder: bundle)
    assert [benches._path_of(name) for name in ("org/ids", "other/ids")] == ["models/ids-onnx", None]
