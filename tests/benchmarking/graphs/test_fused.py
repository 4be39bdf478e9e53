"""Graphs fused by onnxruntime.transformers' optimizer: fused operators in real exports, and changes of the outputs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from benchmarking.builds.store import BuildStore
from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.graphs.bundle import read_bundle
from benchmarking.graphs.exported_model import bundle_key
from benchmarking.graphs.ort_graphs import PATTERNS, ensure_fused, fused_key, why_not_fused, write_fused
from benchmarking.runtimes.onnxruntime import PLUGIN
from tests.benchmarking.graphs.conftest import CPU

pytestmark = pytest.mark.forked_children

OPERATORS = {
    "tiny-bert": {"BiasGelu": 2, "SkipLayerNormalization": 4},
    "tiny-gpt2": {"FastGelu": 2, "SkipLayerNormalization": 4},
}
"""Of two layers: an activation each, and two sums with the residual before a normalization each."""


def test_the_optimizer_has_every_pattern():
    from onnxruntime.transformers.optimizer import MODEL_TYPES

    assert set(PATTERNS.values()) <= set(MODEL_TYPES)


@pytest.mark.parametrize("model_id", OPERATORS)
def test_fused_patterns_are_recorded_and_inputs_unchanged(exported, build_cache, model_id):
    found = exported(model_id)
    facts = ensure_fused(found.cell, (found.point,), BuildStore(build_cache), "if_needed")
    assert facts["fused_operators"] == OPERATORS[model_id]
    bundle = read_bundle(BuildStore(build_cache).folder(fused_key(found.cell, found.point)))
    assert bundle.facts["fused_operators"] == OPERATORS[model_id]
    assert bundle.graphs == found.bundle.graphs
    assert bundle.weight_dtypes["float32"] == pytest.approx(found.bundle.weight_dtypes["float32"], rel=0.01)


@pytest.mark.parametrize("model_id", OPERATORS)
def test_fused_outputs_are_those_of_the_eager_model(build_cache, monkeypatch, capsys, model_id):
    from benchmarking.run_hardware_benchmark import main

    monkeypatch.setenv("BENCHHOUSE_CACHE_DIR", str(build_cache))
    grid = ["--batch-sizes", "2", "--sequence-lengths", "8", "--fusion", "transformers", "--num-threads", "1"]
    calls = ["--iterations", "3", "--warmup-iterations", "1", "--launches", "1", "--quiet", "--json"]
    generation = ["--new-tokens", "4"] if model_id == "tiny-gpt2" else []
    command = ["--model-id", model_id, "--weights", "random", "--device", "cpu", "--runtime", "onnxruntime"]
    assert main([*command, *generation, *grid, *calls]) == 0
    (record,) = json.loads(capsys.readouterr().out)
    assert record["cell"]["runtime_mode"]["fusion"] == "transformers"
    (result,) = record["results"]
    assert result["metrics"]["output_error"] < 1e-5
    verified = json.dumps(record)
    assert f'"fused_operators": {json.dumps(OPERATORS[model_id])}' in verified


def test_half_precision_graphs_are_fused_without_casts(exported, tmp_path):
    import onnx

    found = exported("tiny-bert", "float16")
    facts = write_fused(found.folder, found.cell.workload, tmp_path)
    assert facts["fused_operators"] == OPERATORS["tiny-bert"]
    count = {
        folder: sum(node.op_type == "Cast" for node in onnx.load(folder / "model.onnx").graph.node)
        for folder in (found.folder, tmp_path)
    }
    assert count[tmp_path] <= count[found.folder]
    assert facts["weight_dtypes"]["float16"] > 10 * facts["weight_dtypes"].get("float32", 0)


def test_fused_and_plain_bundles_have_different_keys(exported):
    found = exported("tiny-bert")
    assert fused_key(found.cell, found.point).digest != bundle_key(found.cell, found.point).digest


def test_model_unknown_to_the_optimizer_is_refused_with_the_known_ones(exported):
    workload = exported("tiny-bert").cell.workload
    other = replace(workload, config={**workload.config, "model_type": "mamba"})
    assert why_not_fused(workload) is None
    with pytest.raises(UsageError, match=r"fusion 'transformers': .* supports albert, bart, .*, not mamba"):
        PLUGIN.mode(CPU, other, {"fusion": "transformers"})
    with pytest.raises(UsageError, match="fused graphs are float32 or float16, not int8"):
        PLUGIN.mode_at("int8", {"io_mode": "host", "fusion": "transformers"})


def test_nothing_to_fuse_is_refused(exported, tmp_path):
    """An already fused graph is the input."""
    found = exported("tiny-bert")
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir(), second.mkdir()
    write_fused(found.folder, found.cell.workload, first)
    with pytest.raises(UnsupportedError, match="found nothing to fuse in model of tiny-bert: omit --fusion"):
        write_fused(first, found.cell.workload, second)
