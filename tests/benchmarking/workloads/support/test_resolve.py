"""Sources of a model (folders, the catalog, the hub's cache, the hub) and their errors."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys

import pytest

from benchmarking.core import child_process
from benchmarking.core.errors import BenchhouseError, FormatError, StorageError, UsageError
from benchmarking.workloads.support import families
from benchmarking.workloads.support import hub as hub_module
from benchmarking.workloads.support.resolve import resolve
from benchmarking.workloads.support.weights import value_count, weight_files

TINY = {"model_type": "bert", "architectures": ["BertModel"], "vocab_size": 100, "max_position_embeddings": 32}


def write_config(folder, config):
    folder.mkdir(parents=True, exist_ok=True)
    text = config if isinstance(config, str) else json.dumps(config)
    (folder / "config.json").write_text(text)
    return folder


def write_weights(path, values=4):
    """A complete safetensors file with one float32 tensor."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [values], "data_offsets": [0, 4 * values]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(4 * values))
    return path


def test_catalog_name_with_random_weights_needs_no_reason():
    workload = resolve("gpt2", weights="random", seed=7)
    assert (workload.source, workload.weights, workload.weights_reason) == ("catalog", "random", None)
    assert (workload.family, workload.task, workload.seed) == ("decoder-only", "text-generation", 7)
    assert (workload.vocab_size, workload.path, workload.revision) == (50257, None, None)


def test_auto_falls_back_to_random_weights_with_the_reason():
    workload = resolve("google-bert/bert-base-uncased")
    assert (workload.source, workload.weights) == ("catalog", "random")
    assert workload.weights_reason == "it is not in the local cache, and HF_HUB_OFFLINE is set"


def test_pretrained_fails_where_auto_falls_back():
    with pytest.raises(UsageError, match=r"--weights pretrained: no weights of gpt2 were found: .*HF_HUB_OFFLINE"):
        resolve("gpt2", weights="pretrained")


def test_tiny_models_are_never_looked_for_on_the_hub(monkeypatch):
    monkeypatch.setattr(hub_module, "look_up", lambda name: pytest.fail("queried the hub"))
    assert resolve("tiny-t5").weights_reason == "the catalog has only configurations, and this model is not on the hub"
    with pytest.raises(UsageError, match="no weights of tiny-t5 were found"):
        resolve("tiny-t5", weights="pretrained")


def test_unknown_name_lists_similar_ones_and_how_to_list_all():
    with pytest.raises(UsageError) as caught:
        resolve("bert-base-uncasde")
    assert "Did you mean bert-base-uncased" in str(caught.value)
    assert "benchhouse run --list-models" in str(caught.value)


@pytest.mark.parametrize(
    ("typed", "first"),
    [
        *(("bert", "bert-base-uncased"), ("qwen", "Qwen/Qwen"), ("openai/gpt2", "gpt2\\?"), ("Tiny-BERT", "tiny-bert")),
        ("prajjwal1/bert-tiny", "tiny-bert"),  # the same words in another order
    ],
)
def test_the_beginning_of_a_name_is_answered_with_the_model_before_a_tiny_one(typed, first):
    with pytest.raises(UsageError, match=f"Did you mean {first}"):
        resolve(typed)


def test_similar_names_are_found_without_the_owner():
    with pytest.raises(UsageError, match="Did you mean facebook/opt-125m"):
        resolve("opt-125")


@pytest.mark.parametrize("name", ["./nowhere", "/no/such/folder", "a/b/c", "two words", "-x", "~no-such-user/m"])
def test_an_invalid_hub_name_is_reported_as_a_missing_folder(name):
    with pytest.raises(UsageError, match="no such folder"):
        resolve(name)
    with pytest.raises(UsageError, match=r"on the hub: .* --models gpt2,bert measures several"):
        resolve("gpt2,bert")


def test_a_file_is_not_a_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").write_text("x")
    with pytest.raises(UsageError, match=r"^MODEL notes is a file: give the folder"):
        resolve("notes")


def test_folder_with_weights_is_pretrained_and_has_a_revision(tmp_path, save_tiny):
    workload = resolve(str(save_tiny(tmp_path / "m")))
    assert (workload.source, workload.weights, workload.family) == ("local", "pretrained", "encoder-only")
    assert workload.path == str(tmp_path / "m")
    assert len(workload.revision) == 64
    assert workload.max_sequence_length == 512
    assert "transformers_version" not in workload.config
    assert "dtype" not in workload.config


def test_revision_changes_with_the_size_of_the_weights_only(tmp_path):
    folder = write_config(tmp_path / "m", TINY)
    write_weights(folder / "model.safetensors", 4)
    first = resolve(str(folder)).revision
    (folder / "README.md").write_text("more")
    assert resolve(str(folder)).revision == first
    write_weights(folder / "model.safetensors", 5)
    assert resolve(str(folder)).revision != first


def test_random_weights_of_a_quantized_configuration_are_said_not_to_be(tmp_path):
    quantized = {**TINY, "quantization_config": {"quant_method": "gptq", "bits": 4}}
    folder, note = write_config(tmp_path / "m", quantized), "they are not quantized, unlike its configuration's"
    assert resolve(str(folder)).weights_reason == f"{folder} has a configuration but no weights; {note}"
    assert resolve(str(folder), weights="random").weights_reason == note


def test_a_folder_without_weights_gets_random_ones_with_the_reason(tmp_path):
    folder = write_config(tmp_path / "m", TINY)
    workload = resolve(str(folder))
    assert (workload.weights, workload.weights_reason) == ("random", f"{folder} has a configuration but no weights")
    with pytest.raises(UsageError, match="--weights pretrained"):
        resolve(str(folder), weights="pretrained")


def test_folder_is_found_with_a_tilde(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    write_config(tmp_path / "m", TINY)
    assert resolve("~/m").source == "local"


@pytest.mark.parametrize("weights", ["auto", "pretrained"])
def test_pickled_weights_are_refused_with_the_way_out(tmp_path, weights):
    folder = write_config(tmp_path / "m", TINY)
    (folder / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(UsageError, match=r"only pickled weights \(pytorch_model.bin\).*save_pretrained"):
        resolve(str(folder), weights=weights)


def test_sharded_weights_need_every_shard(tmp_path, save_tiny):
    folder = save_tiny(tmp_path / "m", max_shard_size="300KB")
    shards = sorted(folder.glob("model-*.safetensors"))
    assert len(shards) > 1
    assert resolve(str(folder)).weights == "pretrained"
    shards[1].unlink()
    with pytest.raises(StorageError, match=rf"lacks 1 of {len(shards)} weight files: {shards[1].name}"):
        resolve(str(folder))


def test_index_with_tensors_missing_from_the_shards_is_refused(tmp_path, save_tiny):
    folder = save_tiny(tmp_path / "m", max_shard_size="300KB")
    index = folder / "model.safetensors.index.json"
    data = json.loads(index.read_text())
    data["weight_map"] |= dict.fromkeys(["ghost.weight", "ghost.bias"], "model-00001-of-00003.safetensors")
    index.write_text(json.dumps(data))
    with pytest.raises(FormatError, match=r"lists 2 tensors that are not in its files, such as ghost\.weight"):
        resolve(str(folder))


def test_values_are_counted_from_the_headers(tmp_path, save_tiny):
    folder = save_tiny(tmp_path / "m", max_shard_size="300KB")
    assert sum(value_count(path) for path in weight_files(folder)) == 202_688


def test_random_weights_are_made_despite_broken_files(tmp_path):
    folder = write_config(tmp_path / "m", TINY)
    (folder / "model.safetensors").write_bytes(b"")
    assert resolve(str(folder), weights="random").weights == "random"


def test_truncated_weights_are_detected_from_the_header(tmp_path):
    folder = write_config(tmp_path / "m", TINY)
    path = write_weights(folder / "model.safetensors")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(FormatError, match=f"truncated: {len(whole) - 1} of {len(whole)} bytes"):
        resolve(str(folder))
    path.write_bytes(whole[:20])
    with pytest.raises(FormatError, match="truncated"):
        resolve(str(folder))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a safetensors file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "git lfs pull"),
        (struct.pack("<Q", 5) + b"hello", "invalid header"),
        (struct.pack("<Q", 13) + b'{"w": {"a":1}}', "invalid header"),
    ],
)
def test_files_that_are_not_safetensors_are_refused(tmp_path, content, message):
    folder = write_config(tmp_path / "m", TINY)
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(FormatError, match=message):
        resolve(str(folder))


def test_broken_index_of_shards_is_refused(tmp_path):
    folder = write_config(tmp_path / "m", TINY)
    (folder / "model.safetensors.index.json").write_text("[]")
    with pytest.raises(FormatError, match="not an index of safetensors shards"):
        resolve(str(folder))


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        ("{", FormatError, "not JSON"),
        ("[1]", FormatError, "expected a JSON object"),
        ('{"model_type": "bert", "x": NaN}', FormatError, "NaN is not allowed"),
        ({"architectures": ["BertModel"]}, UsageError, "has no model_type"),
        ({"model_type": 3}, UsageError, "has no model_type"),
        ({**TINY, "quantization_config": {"quant_method": "aqlm"}}, UsageError, "quantized with aqlm"),
        ({"model_type": "brt"}, UsageError, r"unknown model_type 'brt' \(did you mean bert, bart"),
        ({"model_type": "zzz"}, UsageError, "Supported: .*encoder-only: albert, bert"),
        ({"_class_name": "UNet2DModel"}, UsageError, r"unknown model_type 'UNet2DModel' \(did you mean UNet2DCond"),
        ({**TINY, "is_decoder": True}, UsageError, "configured as a decoder"),
        ({"model_type": "t5", "architectures": ["T5EncoderModel"]}, UsageError, "half of an encoder-decoder"),
    ],
)
def test_unsupported_configurations_are_refused_with_the_reason(tmp_path, config, error, message):
    folder = write_config(tmp_path / "m", config)
    with pytest.raises(error, match=message):
        resolve(str(folder))


def test_a_known_model_type_that_is_not_supported_names_its_family(tmp_path, monkeypatch):
    speech = next(plugin for plugin in families.families() if plugin.name == "speech")
    monkeypatch.setattr(type(speech), "unsupported_model_types", frozenset({"bark"}))
    with pytest.raises(UsageError, match=r"is of family speech, but bark is not supported \(supported: data2vec"):
        resolve(str(write_config(tmp_path / "m", {"model_type": "bark"})))


def test_a_folder_without_configuration_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"has no config\.json"):
        resolve(str(tmp_path))


def test_family_and_task_come_from_the_configuration_not_the_name(tmp_path):
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 99, "n_positions": 20}
    workload = resolve(str(write_config(tmp_path / "bert-base-uncased", config)))
    assert (workload.family, workload.task) == ("decoder-only", "text-generation")
    assert workload.max_sequence_length == 20


def test_a_classifier_keeps_its_task(tmp_path):
    config = {**TINY, "architectures": ["BertForSequenceClassification"]}
    folder = str(write_config(tmp_path / "m", config))
    assert resolve(folder).task == "text-classification"
    assert resolve(folder, task="feature-extraction").task == "feature-extraction"


def test_task_of_another_family_is_refused():
    with pytest.raises(UsageError, match=r"--task text-generation: .* feature-extraction, fill-mask"):
        resolve("tiny-bert", task="text-generation")


def test_cached_hub_model_is_used_without_the_hub(cached_model):
    snapshot = cached_model("org/model")
    write_config(snapshot, TINY)
    write_weights(snapshot / "model.safetensors")
    workload = resolve("org/model")
    assert (workload.source, workload.weights, workload.revision) == ("hub", "pretrained", snapshot.name)
    assert workload.path == str(snapshot)


def test_cached_configuration_without_weights_is_random_with_the_reason(cached_model):
    write_config(cached_model("org/model"), TINY)
    workload = resolve("org/model")
    assert (workload.source, workload.weights) == ("hub", "random")
    assert "lacks weights (no safetensors), and HF_HUB_OFFLINE is set" in workload.weights_reason
    with pytest.raises(UsageError, match="--weights pretrained: the local cache lacks weights"):
        resolve("org/model", weights="pretrained")
    assert resolve("org/model", weights="random").weights_reason is None


def test_a_name_with_an_owner_may_end_like_a_file_on_the_hub(cached_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_config(cached_model("owner/small.gguf"), TINY)
    assert resolve("owner/small.gguf").source == "hub"
    with pytest.raises(UsageError, match=r"other/x\.gguf: there is no such file; as a name on the hub: .*HF_HUB_OFFL"):
        resolve("other/x.gguf")
    (tmp_path / "owner").mkdir()
    with pytest.raises(UsageError, match=r"owner/small\.gguf: there is no such file: check the path"):
        resolve("owner/small.gguf")


def test_cached_model_wins_over_the_catalog(cached_model):
    snapshot = cached_model("gpt2")
    write_config(snapshot, {"model_type": "gpt2", "vocab_size": 77, "n_positions": 9})
    write_weights(snapshot / "model.safetensors")
    assert resolve("gpt2").vocab_size == 77


def test_reachable_hub_gives_configuration_and_weights(hub, tmp_path):
    weights = write_weights(tmp_path / "w").read_bytes()
    hub["org/model"] = {"config.json": json.dumps(TINY).encode(), "model.safetensors": weights, "README.md": b"x"}
    workload = resolve("org/model")
    assert (workload.source, workload.weights, workload.weights_reason) == ("hub", "pretrained", None)
    assert sorted(os.listdir(workload.path)) == ["config.json", "model.safetensors"]


@pytest.mark.parametrize("weights", ["auto", "random"])
def test_the_tokenizer_comes_with_a_hub_model_and_no_weights_with_random_ones(hub, tmp_path, weights):
    files = {"config.json": json.dumps(TINY).encode(), "model.safetensors": write_weights(tmp_path / "w").read_bytes()}
    processors = ["merges.txt", "preprocessor_config.json", "tokenizer.json", "tokenizer_config.json", "vocab.json"]
    hub["org/model"] = {**files, **dict.fromkeys(processors, b"{}"), "README.md": b"x", "modeling.py": b"x"}
    own = ["model.safetensors"] if weights == "auto" else []
    assert sorted(os.listdir(resolve("org/model", weights=weights).path)) == sorted(["config.json", *own, *processors])


def test_the_tokenizer_of_a_model_cached_without_it_is_fetched(hub, cached_model, tmp_path):
    snapshot = cached_model("org/model")
    write_config(snapshot, TINY)
    write_weights(snapshot / "model.safetensors")
    hub["org/model"] = {"config.json": json.dumps(TINY).encode(), "tokenizer.json": b"{}"}
    assert resolve("org/model").weights == "pretrained"
    assert (snapshot / "tokenizer.json").is_file()


def test_hub_model_with_pickled_weights_only_is_random_with_the_reason(hub):
    hub["org/model"] = {"config.json": json.dumps(TINY).encode(), "pytorch_model.bin": b"x"}
    assert resolve("org/model").weights_reason == "org/model has no safetensors weights on the hub"


def test_name_the_hub_does_not_have_is_an_error_with_its_reason(hub):
    with pytest.raises(UsageError, match="the hub has no such model"):
        resolve("org/none")


def test_unreachable_hub_falls_back_to_the_catalog(monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # the discard port: refused at once
    assert "the hub is not reachable" in resolve("gpt2").weights_reason


def test_unresponsive_hub_is_abandoned(monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(hub_module, "LOOK_UP_LIMIT_S", 0.05)
    assert resolve("gpt2").weights_reason == "the hub did not answer within 0.05 s"


def test_broken_hub_process_is_an_error(monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(child_process, "OWN_PYTHON", (shutil.which("false"),))
    if shutil.which("false") is None:
        pytest.skip("needs a program that only fails")
    with pytest.raises(BenchhouseError, match="looking up gpt2 on the hub failed: exit code 1"):
        hub_module.look_up("gpt2")


def test_resolving_imports_nothing_heavy(tmp_path):
    folder = write_config(tmp_path / "m", TINY)
    code = (
        "import sys; from benchmarking.workloads.support.resolve import resolve; "
        f"resolve({str(folder)!r}); resolve('gpt2'); "
        "import benchmarking.runtimes.eager as e; "
        "heavy = {'torch', 'transformers', 'numpy', 'huggingface_hub', 'safetensors'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
