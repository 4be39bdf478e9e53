"""The graph that chooses next tokens: the same ids as numpy, and only they reach the host."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import onnxruntime
import pytest

from benchmarking.builds.store import BuildStore
from benchmarking.core.errors import BenchhouseError
from benchmarking.devices import cpu
from benchmarking.graphs.bundle import Graph
from benchmarking.graphs.operations import operation_of
from benchmarking.graphs.ort_graphs import (
    LOGITS,
    TOKENS,
    ensure_next_token,
    find_next_token,
    next_token_key,
    write_next_token,
)
from benchmarking.runtimes.support.onnxruntime.ort_runtime import SessionSettings
from benchmarking.runtimes.support.onnxruntime.ort_session import GraphSource, load_graphs, runner_of
from benchmarking.workloads.support.families import plugin_of

pytestmark = pytest.mark.forked_children

SETTINGS = SessionSettings(provider=cpu.ORT_PROVIDER, precision="float32", num_threads=1)
VOCABULARY = 50_257
SEED = 3


def logits_like(dtype, *, tied=False):
    """Logits of 4 sequences and 3 positions; tied ones are rounded to quarters, which makes hundreds of maxima."""
    made = np.random.default_rng(SEED).normal(size=(4, 3, VOCABULARY))
    return (np.round(made) / 4 if tied else made).astype(dtype)


@pytest.mark.parametrize("tied", [False, True], ids=["distinct", "tied"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_next_tokens_equal_numpys(tmp_path, dtype, tied):
    write_next_token(tmp_path / "graph.onnx", dtype, VOCABULARY)
    session = onnxruntime.InferenceSession(str(tmp_path / "graph.onnx"), providers=["CPUExecutionProvider"])
    logits = logits_like(dtype, tied=tied)
    (tokens,) = session.run([TOKENS], {LOGITS: logits})
    expected = logits[:, -1:].argmax(axis=-1)
    assert (tokens.dtype, tokens.tolist()) == (np.int64, expected.tolist())
    if tied:
        rows = logits[:, -1]
        assert ((rows == rows.max(axis=-1, keepdims=True)).sum(axis=-1) > 1).all()  # else nothing was tied


def test_infinite_logits_win_and_nan_gives_an_id_of_the_vocabulary(tmp_path):
    """An id outside the vocabulary would read beyond the embedding; the check for NaN in the logits comes later."""
    write_next_token(tmp_path / "graph.onnx", "float32", 5)
    session = onnxruntime.InferenceSession(str(tmp_path / "graph.onnx"), providers=["CPUExecutionProvider"])
    rows = np.array([[[0, 1, np.inf, 2, np.inf]], [[-np.inf] * 5], [[np.nan] * 5]], dtype=np.float32)
    (tokens,) = session.run([TOKENS], {LOGITS: rows})
    assert tokens.tolist() == [[2], [0], [4]]


@pytest.fixture(scope="module")
def runs(exported, tmp_path_factory):
    """A function that calls tiny-gpt2 on the CPU with bound memory, with or without choosing the next token there."""
    found = exported("tiny-gpt2")
    point = replace(found.point, batch_size=2, new_tokens=6)
    logits = next(one for one in found.bundle.graphs["decode"].outputs if one.name == "logits")
    path = tmp_path_factory.mktemp("graph") / "next_token.onnx"
    write_next_token(path, logits.dtype, logits.shape[-1])
    workload = found.cell.workload
    arrays = plugin_of(workload).inputs(workload, point, 0)

    def operation(*, on_device):
        source = GraphSource(
            folder=found.folder, bundle=found.bundle, settings=SETTINGS, next_token=path if on_device else None
        )
        loaded = load_graphs(source)
        return operation_of(found.bundle, runner_of(loaded, "device"), workload, point, arrays), loaded

    return operation


def test_generation_copies_only_tokens_to_the_host(runs, monkeypatch):
    fetched = []
    numpy = onnxruntime.OrtValue.numpy
    monkeypatch.setattr(
        onnxruntime.OrtValue, "numpy", lambda self: fetched.append((found := numpy(self)).nbytes) or found
    )
    operation, loaded = runs(on_device=True)
    output = operation.run(lambda name: None)
    assert fetched == [2 * 8] * 6  # an int64 for each of two sequences, six times
    assert loaded.chooses_tokens
    on_host, loaded = runs(on_device=False)
    fetched.clear()
    assert on_host.run(lambda name: None).tokens == output.tokens
    assert sum(fetched) > 6 * 2 * 4 * 1000  # the whole vocabulary's logits
    assert not loaded.chooses_tokens


def test_logits_stay_checked_and_comparable(runs):
    operation, _ = runs(on_device=True)
    output = operation.run(lambda name: None)
    assert operation.problem(output) is None
    first, again = operation.arrays(output)["logits"], operation.arrays(operation.run(lambda name: None))["logits"]
    assert first.shape == (2, 1024)
    np.testing.assert_array_equal(first, again)


def test_one_build_serves_all_models_of_a_vocabulary(exported, tmp_path, monkeypatch):
    monkeypatch.setenv("BENCHHOUSE_CACHE_DIR", str(tmp_path))
    bundle = exported("tiny-gpt2").bundle
    with pytest.raises(BenchhouseError, match="no next-token build"):
        find_next_token(bundle)
    build, is_new = ensure_next_token(bundle, BuildStore(), "if_needed")
    assert (is_new, build.facts["vocabulary"], build.facts["dtype"]) == (True, 1024, "float32")
    assert find_next_token(bundle).exists()
    other = replace(bundle, exporter="another")
    assert ensure_next_token(other, BuildStore(), "if_needed")[1] is False


def test_bundles_without_a_fixed_vocabulary_choose_on_the_host(exported):
    bundle = exported("tiny-gpt2").bundle
    decode = bundle.graphs["decode"]
    outputs = tuple(
        replace(one, shape=("batch", 1, "words")) if one.name == decode.result else one for one in decode.outputs
    )
    graph: Graph = replace(decode, outputs=outputs)
    assert next_token_key(replace(bundle, graphs={"decode": graph})) is None
    assert next_token_key(exported("tiny-bert").bundle) is None


def test_io_mode_flag_sets_the_memory_of_inputs(build_cache, monkeypatch, capsys):
    from benchmarking.run_hardware_benchmark import main

    monkeypatch.setenv("BENCHHOUSE_CACHE_DIR", str(build_cache))
    records = {}
    for io_mode in ("host", "device"):
        grid = ["--batch-sizes", "2", "--sequence-lengths", "8", "--new-tokens", "4", "--io-mode", io_mode]
        calls = ["--iterations", "3", "--warmup-iterations", "1", "--launches", "1", "--quiet", "--json"]
        command = ["--model-id", "tiny-gpt2", "--weights", "random", "--device", "cpu", "--runtime", "onnxruntime"]
        assert main([*command, *grid, *calls]) == 0
        (record,) = json.loads(capsys.readouterr().out)
        (result,) = record["results"]
        assert result["metrics"]["output_equal_token_share"] == 1.0
        records[io_mode] = json.dumps(record)
    assert '"tokens_chosen_on": "host"' in records["host"]
    assert '"tokens_chosen_on": "device"' in records["device"]
