"""Untrusted model folders are refused in one line, before anything is loaded or memory is allocated."""

from __future__ import annotations

import json
import os
import shutil
import struct
import time
from pathlib import Path

import pytest

from benchmarking.core.errors import BenchhouseError
from benchmarking.run_hardware_benchmark import main
from benchmarking.workloads.support import families, weights
from benchmarking.workloads.support.configuration import check_config, without_code
from benchmarking.workloads.support.footprint import min_parameter_count
from benchmarking.workloads.support.resolve import resolve
from tests.helpers.llama_server import write_model

TINY = {
    "model_type": "bert",
    "vocab_size": 100,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "max_position_embeddings": 32,
    "architectures": ["BertModel"],
}


@pytest.fixture
def folder(tmp_path):
    """A valid model folder."""
    made = tmp_path / "model"
    made.mkdir()
    (made / "config.json").write_text(json.dumps(TINY))
    write_weights(made / "model.safetensors", {"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}, 16)
    return made


def write_weights(path, tensors, size, *, length=None):
    header = json.dumps(tensors).encode()
    path.write_bytes(struct.pack("<Q", len(header) if length is None else length) + header + bytes(size))


def refusal(folder, **options):
    """The one line of an immediate refusal of a folder."""
    start = time.perf_counter()
    with pytest.raises(BenchhouseError) as raised:
        resolve(str(folder), **options)
    assert time.perf_counter() - start < 60
    assert "\n" not in str(raised.value)
    assert str(folder) in str(raised.value)
    return str(raised.value)


def test_valid_folder_is_resolved(folder):
    assert resolve(str(folder)).weights == "pretrained"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 10_000 + "]" * 10_000, "nested more than 64 levels deep"),
        ('{"model_type": "bert", "x": ' + '{"x":' * 900 + "1" + "}" * 901, "nested more than 64 levels deep"),
        ('{"model_type": "bert", "x": "\\ud800"}', "half of a surrogate pair"),
        ('{"model_type": "bert", "hidden_size": NaN}', "NaN is not allowed"),
        ('{"model_type": "bert", "hidden_size": ' + "9" * 5000 + "}", "an integer of 5000 digits"),
        ("\x00" * 100, "not JSON"),
        ("x" * 17_000_000, "larger than 16 MB"),
    ],
    ids=lambda value: value[:20],
)
def test_a_configuration_beyond_the_limits_is_refused(folder, text, reason):
    (folder / "config.json").write_text(text)
    assert reason in refusal(folder)


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ({"hidden_size": -8}, "hidden_size is -8: expected an integer from 1"),
        ({"hidden_size": 0}, "hidden_size is 0: expected"),
        ({"hidden_size": "8"}, "hidden_size is '8': expected"),
        ({"hidden_size": 8.5}, "hidden_size is 8.5: expected"),
        ({"hidden_size": True}, "hidden_size is True: expected"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers is 1000000: expected an integer from 0 to 10000"),
        ({"intermediate_size": 10**200}, "intermediate_size is 1000000000"),
        ({"vocab_size": [100, -1]}, "vocab_size is -1"),
        ({"text_config": {"hidden_size": -1}}, "hidden_size is -1"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_sizes_that_no_model_has_are_refused(folder, sizes, reason):
    (folder / "config.json").write_text(json.dumps({**TINY, **sizes}))
    assert reason in refusal(folder)


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        ("google/vit-base-patch16-224", {"patch_size": 0}, "patch_size is 0: expected an integer from 1"),
        ("google/vit-base-patch16-224", {"image_size": [[224], 224]}, "only square images are supported"),
        ("google/vit-base-patch16-224", {"image_size": []}, "only square images are supported"),
        ("llava-hf/llava-1.5-7b-hf", {"vision_config": {"patch_size": 0}}, "patch_size is 0: expected"),
        ("Qwen/Qwen2-VL-2B-Instruct", {"vision_config": {"spatial_merge_size": 0}}, "merge_size is 0: expected"),
        ("facebook/DiT-XL-2-256", {"patch_size": 0}, "patch_size is 0: expected"),
        ("facebook/wav2vec2-base", {"conv_kernel": [10, 3]}, "has 2 conv_kernel and 7 conv_stride"),
        ("openai/whisper-tiny", {"forced_decoder_ids": [[1], [1, 50259]]}, None),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_configuration_that_its_family_cannot_use_is_refused_in_words(folder, name, values, reason, capsys):
    (folder / "config.json").write_text(json.dumps({**families.catalog_entry(name).config, **values}))
    status = main(["--model-id", str(folder), "--device", "cpu", "--weights", "random", "--dry-run"])
    assert status == (0 if reason is None else 2)
    assert reason is None or reason in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("weights", ["random", "auto"])
def test_model_with_a_billion_columns_is_refused_by_its_memory(folder, weights, capsys):
    (folder / "config.json").write_text(json.dumps({**TINY, "hidden_size": 10**9}))
    assert main(["--model-id", str(folder), "--device", "cpu", "--weights", weights, "--dry-run"]) == 2
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert "needs at least 432.0 GB for weights at float32 (from its configuration" in line


def test_every_catalog_model_exceeds_its_minimum_parameter_count(monkeypatch):
    for entry in map(families.catalog_entry, families.catalog_names()):
        check_config(entry.config, entry.name)
        workload = resolve(entry.name, weights="random")
        if workload.parameter_count is not None:
            assert min_parameter_count(workload) <= workload.parameter_count, entry.name


FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json", "model.safetensors")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "dangling link", "link to a device"])
def test_a_special_file_is_refused_and_never_opened(folder, name, kind):
    path = folder / name
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "dangling link":
        path.symlink_to("nowhere")
    else:
        path.symlink_to("/dev/zero" if kind == "device" else "/dev/tty")
    assert f"cannot read {path}: " in refusal(folder)


@pytest.mark.parametrize("name", FILES)
def test_link_to_outside_the_folder_is_refused(folder, tmp_path, name):
    own = tmp_path / "private"
    own.write_text(json.dumps(TINY))
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(own)
    assert f"{folder / name} links to a file outside the model's folder" in refusal(folder)


def test_links_inside_the_folder_and_of_the_hub_s_cache_work(folder, tmp_path, monkeypatch):
    (folder / "config.json").rename(folder / "other.json")
    (folder / "config.json").symlink_to("other.json")
    assert resolve(str(folder)).weights == "pretrained"
    blobs, snapshot = tmp_path / "models--a--b" / "blobs", tmp_path / "models--a--b" / "snapshots" / "rev"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (blobs / name[:3]).write_bytes((folder / name).read_bytes())
        (snapshot / name).symlink_to(Path("..", "..", "blobs", name[:3]))
    assert resolve(str(snapshot)).weights == "pretrained"
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(blobs / "mod")
    assert resolve(str(folder)).weights == "pretrained"


@pytest.mark.parametrize("name", ["generation_config.json", "tokenizer_config.json", "preprocessor_config.json"])
def test_settings_beyond_the_limits_are_refused(folder, name):
    (folder / name).write_text('{"x":' * 5000 + "1" + "}" * 5000)
    assert f"{folder / name}: not JSON within the limits" in refusal(folder)


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        ({"dtype": "F32", "shape": [4], "data_offsets": [0, 12]}, "12 bytes for shape"),
        ({"dtype": "F32", "shape": [10**18, 10**18], "data_offsets": [0, 16]}, "16 bytes for shape"),
        ({"dtype": "F32", "shape": [-4], "data_offsets": [0, 16]}, "its shape is not a list of sizes"),
        ({"dtype": "F32", "shape": [1] * 10_000, "data_offsets": [0, 4]}, "its shape is not a list of sizes"),
        ({"dtype": "F32", "shape": ["4"], "data_offsets": [0, 16]}, "its shape is not a list of sizes"),
        ({"dtype": "F32", "shape": [4], "data_offsets": [16, 0]}, "its data_offsets are not"),
        ({"dtype": "F32", "shape": [4], "data_offsets": [0, 10**200]}, "its data_offsets are not"),
        ({"dtype": "F32", "shape": [4], "data_offsets": [8, 24]}, "overlaps another one"),
        ([], "not an object"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_inconsistent_weights_header_is_refused(folder, tensor, reason):
    tensors = {"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}, "b": tensor}
    write_weights(folder / "model.safetensors", tensors, 64)
    assert reason in refusal(folder)


@pytest.mark.parametrize("length", [99_000_000, 1 << 62, (1 << 64) - 1, 0])
def test_a_header_longer_than_its_file_is_refused(folder, length):
    write_weights(folder / "model.safetensors", {}, 0, length=length)
    assert "model.safetensors is " in refusal(folder)


def test_a_header_of_nested_lists_is_refused(folder):
    header = b'{"w":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    assert "nested more than 64 levels deep" in refusal(folder)


@pytest.mark.parametrize(
    "name", ["../private.safetensors", "/etc/passwd", "a/b.safetensors", "..\\x.safetensors", "passwd", "model.bin"]
)
def test_an_index_that_names_files_elsewhere_is_refused(folder, tmp_path, name):
    for shard in (tmp_path / "private.safetensors", folder / "private.safetensors", folder / "passwd"):
        shard.write_bytes((folder / "model.safetensors").read_bytes())
    (folder / "model.safetensors").unlink()  # which transformers loads rather than an index
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": name}}))
    assert f"names {name}: expected names of .safetensors files in its own folder" in refusal(folder)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt"])
def test_pickled_weights_are_refused(folder, name):
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(b"cos\nsystem\n(S'touch /tmp/x'\ntR.")
    assert "pickled weights" in refusal(folder)


def test_code_in_a_folder_is_never_run(folder, tmp_path, capsys):
    ran = tmp_path / "ran"
    line = f"open({str(ran)!r}, 'w').close()\n"
    names = {"AutoConfig": "own.OwnConfig", "AutoModel": "own.OwnModel", "AutoTokenizer": ["own.Own", None]}
    for file in ("own.py", "configuration_own.py", "modeling_bert.py", "numpy.py", "random.py", "conftest.py"):
        (folder / file).write_text(line)
    hostile = {**TINY, "auto_map": names, "attn_implementation": "someone/kernel", "use_kernels": True}
    (folder / "config.json").write_text(json.dumps(hostile))
    (folder / "tokenizer_config.json").write_text(json.dumps({"auto_map": names, "tokenizer_class": "Own"}))
    (folder / "generation_config.json").write_text(json.dumps({"custom_generate": "someone/code", "auto_map": names}))
    options = ["--batch-sizes", "1", "--sequence-lengths", "8", "--profile", "quick", "--iterations", "2", "--quiet"]
    options += ["--warmup-iterations", "0", "--launches", "1", "--device", "cpu", "--weights", "random"]
    code = main(["--model-id", str(folder), *options])
    assert code == 0, capsys.readouterr().err
    assert not ran.exists()


def test_keys_that_name_code_are_left_out_at_every_level():
    inner = {
        "auto_map": {},
        "hidden_size": 8,
        "_attn_implementation": "a/b",
        "transformers_weights": "sub/x.safetensors",
    }
    assert without_code({"text_config": inner, "auto_map": {}, "x": [1, inner, [inner]]}) == {
        "text_config": {"hidden_size": 8},
        "x": [1, {"hidden_size": 8}, [{"hidden_size": 8}]],
    }


def write_ctranslate2(folder, vocabulary, rows):
    """A decoder of CTranslate2 with this vocabulary.txt, and so many rows in its embeddings if there are any."""
    folder.mkdir()

    def text(value):
        return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"

    variables = [text("decoder/embeddings/weight") + struct.pack("<BIIBI", 2, rows, 1, 0, 4 * rows) + bytes(4 * rows)]
    head = struct.pack("<I", 6) + text("TransformerDecoderSpec") + struct.pack("<II", 1, len(variables) if rows else 0)
    (folder / "model.bin").write_bytes(head + b"".join(variables if rows else []) + struct.pack("<I", 0))
    (folder / "vocabulary.txt").write_bytes(vocabulary.encode())


def test_tokens_of_ctranslate2_that_are_line_breaks_elsewhere_are_tokens(tmp_path):
    """CTranslate2 reads a vocabulary up to each newline; Python's lines also end at other characters."""
    write_ctranslate2(tmp_path / "model", "a\n\u2028\nb\x0cc\n\x85\n", 4)
    assert resolve(str(tmp_path / "model")).vocab_size == 4


def test_model_of_ctranslate2_without_weights_is_refused(tmp_path):
    write_ctranslate2(tmp_path / "model", "", 0)
    assert "it has no weights" in refusal(tmp_path / "model")


def test_gguf_file_of_a_vocabulary_alone_is_refused(tmp_path):
    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()

    architecture = text("general.architecture") + struct.pack("<I", 8) + text("llama")
    vocabulary = text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b")
    (tmp_path / "vocabulary.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + architecture + vocabulary)
    assert "has a vocabulary but no weights" in refusal(tmp_path / "vocabulary.gguf")


@pytest.mark.parametrize("is_first_small", [False, True])
def test_a_model_in_several_gguf_files_has_the_weights_of_all(tmp_path, is_first_small):
    """llama.cpp loads the other files with the first, which may have no weights at all."""
    write_model(tmp_path / "whole.gguf")
    write_model(tmp_path / "m.gguf", split_max_tensors=8, small_first_shard=is_first_small)
    first, second, *_, last = sorted(tmp_path.glob("m-*.gguf"))
    whole, split = resolve(str(tmp_path / "whole.gguf")), resolve(str(first))
    assert split.parameter_count == whole.parameter_count
    assert split.config["weights_bytes"] == whole.config["weights_bytes"]
    assert len(split.config["files"]) == len(list(tmp_path.glob("m-*.gguf"))) > 2
    assert "is not the first of the" in refusal(second)
    renamed = shutil.copy(first, tmp_path / "renamed.gguf")
    assert "its own must end in -00001-of-0000" in refusal(renamed)
    last.unlink()
    assert f"{last} is missing" in refusal(first)


TOKENIZER = {"version": "1.0", "added_tokens": [], "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}


@pytest.mark.parametrize(
    ("file", "settings"),
    [
        ("tokenizer_config.json", {"fast_tokenizer_files": ["../elsewhere/tokenizer.4.0.0.json"]}),
        ("tokenizer_config.json", {"fast_tokenizer_files": ["sub/tokenizer.4.0.0.json"]}),
        ("tokenizer_config.json", {"vocab_file": "ELSEWHERE"}),
        ("tokenizer_config.json", {"vocab": "ELSEWHERE"}),
        ("tokenizer_config.json", {"init_inputs": ["ELSEWHERE"]}),
        ("tokenizer_config.json", {"gguf_file": "../elsewhere/tokenizer.4.0.0.json"}),
        ("tokenizer_config.json", {"sp_model_kwargs": {"model_file": "ELSEWHERE"}}),
        ("tokenizer_config.json", {"mecab_kwargs": {"mecab_option": "-r ELSEWHERE"}}),
        ("special_tokens_map.json", {"tokenizer_file": "ELSEWHERE"}),
        ("preprocessor_config.json", {"class_info_file": "ELSEWHERE"}),
        ("config.json", {"configuration_files": ["../elsewhere/tokenizer.4.0.0.json"]}),
        ("additional_chat_templates/own.jinja", None),
        ("question_encoder_tokenizer/tokenizer.json", None),
    ],
    ids=lambda value: str(value)[:60],
)
def test_settings_that_lead_outside_the_folder_are_refused(folder, tmp_path, file, settings):
    elsewhere = tmp_path / "elsewhere" / "tokenizer.4.0.0.json"
    elsewhere.parent.mkdir()
    elsewhere.write_text(json.dumps(TOKENIZER))
    for parent in ("sub", Path(file).parent):
        (folder / parent).mkdir(exist_ok=True)
    (folder / "sub" / elsewhere.name).symlink_to(elsewhere)
    if settings is None:
        (folder / file).symlink_to(elsewhere)
    else:
        text = json.dumps({**(TINY if file == "config.json" else {}), **settings})
        (folder / file).write_text(text.replace("ELSEWHERE", str(elsewhere)))
    assert "a file outside the model's folder" in refusal(folder)


def test_a_pipe_that_settings_name_is_refused_and_never_opened(folder):
    (folder / "sub").mkdir()
    os.mkfifo(folder / "sub" / "tokenizer.4.0.0.json")
    settings = {"fast_tokenizer_files": ["sub/tokenizer.4.0.0.json"]}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    assert "which is not a regular file" in refusal(folder)


def test_links_in_a_circle_that_settings_name_are_refused(folder, tmp_path):
    (tmp_path / "circle").symlink_to("circle")
    (folder / "tokenizer_config.json").write_text(json.dumps({"vocab_file": str(tmp_path / "circle")}))
    assert "vocab_file names a file outside the model's folder" in refusal(folder)


def test_settings_of_published_folders_are_accepted(folder):
    """Published settings name files of the machine on which they were saved, which transformers does not read."""
    old = {
        "tokenizer_file": "/proc/version",
        "name_or_path": "/usr",
        "vocab_file": None,
        "merges_file": "/root/no/m.txt",
        "model_file": "",
        "init_inputs": [""],
    }
    settings = {**old, "fast_tokenizer_files": ["tokenizer.json"], "eos_token": "/", "sp_model_kwargs": {}}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    (folder / "special_tokens_map.json").write_text(json.dumps({"eos_token": "/", "additional_special_tokens": ["/"]}))
    assert resolve(str(folder)).weights == "pretrained"


def test_only_the_checked_weights_are_loaded(folder, monkeypatch):
    """transformers loads other files than the usual ones if the configuration or the folder says so."""
    checked = resolve(str(folder)).revision
    (folder / "model-00001-of-00001.safetensors").write_bytes((folder / "model.safetensors").read_bytes() + b"x")
    index = {"weight_map": {"w": "model-00001-of-00001.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert resolve(str(folder)).revision == checked, "transformers loads a single file, not the shards"
    (folder / "config.json").write_text(json.dumps({**TINY, "transformers_weights": "model.safetensors"}))
    assert resolve(str(folder)).revision == checked
    (folder / "config.json").write_text(json.dumps({**TINY, "transformers_weights": "sub/x.safetensors"}))
    assert "names its weights in 'sub/x.safetensors' (transformers_weights)" in refusal(folder)
    assert resolve(str(folder), weights="random").weights == "random"
    (folder / "config.json").write_text(json.dumps(TINY))
    (folder / "adapter_config.json").write_text("{}")
    monkeypatch.setattr(weights, "is_installed", lambda module: module == "peft")
    assert "has an adapter (adapter_config.json)" in refusal(folder)
    (folder / "adapter_config.json").unlink()
    (folder / "shard-00000-model-00001-of-00001.safetensors").touch()
    assert "has weights of several processes" in refusal(folder)


def test_a_denoiser_has_the_weights_that_diffusers_loads(folder):
    (folder / "config.json").write_text(json.dumps({"_class_name": "UNet2DConditionModel"}))
    own = folder / "diffusion_pytorch_model.safetensors"
    shutil.copy(folder / "model.safetensors", own)
    assert weights.weight_files(folder) == (own,)
    shutil.copy(own, folder / "shard.safetensors")
    (folder / f"{own.name}.index.json").write_text(json.dumps({"weight_map": {"w": "shard.safetensors"}}))
    assert weights.weight_files(folder) == (folder / "shard.safetensors",)


def test_files_of_engines_lead_nowhere_else(folder, tmp_path):
    """CTranslate2's and mlx-lm's folders; mlx-lm loads each file whose name begins with model."""
    write_ctranslate2(tmp_path / "ct2", "a\nb\n", 2)
    (tmp_path / "ct2" / "model.bin").rename(tmp_path / "model.bin")
    (tmp_path / "ct2" / "model.bin").symlink_to(tmp_path / "model.bin")
    assert "links to a file outside the model's folder" in refusal(tmp_path / "ct2")
    (folder / "config.json").write_text(json.dumps({**TINY, "model_type": "llama", "quantization": {"bits": 4}}))
    assert resolve(str(folder)).config["files"] == ["config.json", "model.safetensors"]
    shutil.copy(folder / "model.safetensors", folder / "model-more.safetensors")
    assert "mlx-lm would load it too" in refusal(folder)


def test_parts_of_a_gguf_model_are_no_links_to_elsewhere(tmp_path):
    made, linked = tmp_path / "made", tmp_path / "linked"
    made.mkdir(), linked.mkdir()
    write_model(made / "m.gguf", split_max_tensors=8)
    for file in made.glob("*.gguf"):  # as in the hub's cache
        (linked / file.name).symlink_to(file)
    first, second, *_ = sorted(linked.glob("*.gguf"))
    assert resolve(str(first)).parameter_count
    second.unlink()
    second.symlink_to(shutil.copy(made / second.name, tmp_path))
    assert f"{second} links to a file elsewhere" in refusal(first)
