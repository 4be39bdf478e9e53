"""Retrieval-augmented generation: an exact search, and the library's answer mixed from all passages."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from benchmarking.core.errors import UnsupportedError
from benchmarking.core.records import Point
from benchmarking.workloads import rag
from benchmarking.workloads.rag import PASSAGE_TOKENS, PLUGIN, make_corpus, search
from benchmarking.workloads.support import families
from benchmarking.workloads.support.families import family_of
from benchmarking.workloads.support.resolve import resolve
from benchmarking.workloads.support.weights import fill, skip_random_initialisation

# DPR's BERT without its pooler (109 482 240 - 590 592) and bart-large (406 291 456)
PUBLISHED = {"facebook/rag-token-nq": 515_183_104, "tiny-rag": 462_976}
POINT = Point(batch_size=3, sequence_length=12, new_tokens=9, axes={"documents": 50, "top_k": 4})


def make(attention="sdpa", dtype=torch.float32):
    workload = resolve("tiny-rag")
    with skip_random_initialisation():
        model = PLUGIN.build(workload, dtype=dtype, attention=attention)
    fill(model, seed=5, standard_deviation=0.8)
    return workload, model


def operation_of(workload, model, point=POINT):
    inputs = {name: torch.from_numpy(array) for name, array in PLUGIN.inputs(workload, point, 0).items()}
    return inputs, PLUGIN.torch_operation(model, workload, point, inputs, {"cache": "dynamic"})


@pytest.fixture(scope="module")
def loaded():
    return make()


def test_catalog_has_the_published_model():
    entries = [entry for entry in families.catalog_entries() if family_of(entry.config, entry.name) is PLUGIN]
    assert {entry.name: entry.parameter_count for entry in entries} == PUBLISHED


def test_search_by_hand():
    """(2, 0.5) has the products 2, 0.5 and 0.6 x 2 + 0.8 x 0.5 = 1.6; (0, 3) has 0, 3 and 2.4."""
    documents = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    scores, numbers = search(torch.tensor([[2.0, 0.5], [0.0, 3.0]]), documents, 2)
    assert numbers.tolist() == [[0, 2], [1, 2]]
    torch.testing.assert_close(scores, torch.tensor([[2.0, 1.6], [3.0, 2.4]]))


@pytest.mark.parametrize(("documents", "top_k"), [(1, 1), (7, 7), (1000, 5)])
def test_search_is_brute_force(documents, top_k):
    generator = np.random.default_rng(documents)
    corpus = generator.standard_normal((documents, 32)).astype(np.float32)
    questions = generator.standard_normal((4, 32)).astype(np.float32)
    scores, numbers = search(torch.from_numpy(questions), torch.from_numpy(corpus), top_k)
    products = questions.astype(np.float64) @ corpus.astype(np.float64).T
    expected = np.argsort(-products, axis=1)[:, :top_k]
    np.testing.assert_array_equal(numbers.numpy(), expected)
    np.testing.assert_allclose(scores.numpy(), np.take_along_axis(products, expected, axis=1), rtol=1e-5)


def test_half_precision_questions_are_searched_in_float32():
    scores, _ = search(torch.ones(1, 4, dtype=torch.bfloat16), torch.eye(4), 1)
    assert scores.dtype == torch.float32


def test_corpus_is_seeded_normalised_and_of_the_generators_vocabulary():
    workload = resolve("tiny-rag")
    corpus, again = (make_corpus(workload, 20, 64, "cpu") for _ in range(2))
    assert corpus.embeddings.shape == (20, 64)
    assert corpus.passages.shape == (20, PASSAGE_TOKENS)
    torch.testing.assert_close(corpus.embeddings.norm(dim=1), torch.ones(20))
    assert torch.equal(corpus.embeddings, again.embeddings)
    assert torch.equal(corpus.passages, again.passages)
    assert int(corpus.passages.max()) < 1024
    other = make_corpus(dataclasses.replace(workload, seed=1), 20, 64, "cpu")
    assert not torch.equal(corpus.embeddings, other.embeddings)
    assert not torch.equal(corpus.passages, other.passages)


@torch.inference_mode()
def test_reader_input_is_each_passage_and_the_question(loaded):
    inputs, operation = operation_of(*loaded)
    found = operation.retrieve()
    vectors = loaded[1].rag.question_encoder(inputs["input_ids"])[0].numpy()
    products = vectors @ operation._corpus.embeddings.numpy().T
    np.testing.assert_array_equal(found.numpy(), np.argsort(-products, axis=1)[:, :4])
    assert operation._reader_ids.shape == (3 * 4, PASSAGE_TOKENS + 12)
    row = operation._reader_ids[2 * 4 + 1]
    assert torch.equal(row[:PASSAGE_TOKENS], operation._corpus.passages[found[2, 1]].long())
    assert torch.equal(row[PASSAGE_TOKENS:], inputs["generator_input_ids"][2])


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_generated_tokens_equal_those_of_transformers_generate(attention):
    _, model = loaded = make(attention)
    _, operation = operation_of(*loaded)
    with torch.inference_mode():
        tokens = operation.run(lambda event: None).tokens
        output = model.generate(
            context_input_ids=operation._reader_ids,
            context_attention_mask=torch.ones_like(operation._reader_ids),
            doc_scores=operation._scores,
            n_docs=4,
            do_sample=False,
            num_beams=1,
            eos_token_id=9999,  # a token never generated: no stop, none suppressed
        )
    expected = output[:, 1:10].tolist()
    assert len({token for row in expected for token in row}) > 5, "a model that repeats itself proves nothing"
    assert [list(row) for row in tokens] == expected


@torch.inference_mode()
def test_first_token_is_the_mean_over_documents_weighted_by_their_scores(loaded):
    _, model = loaded
    _, operation = operation_of(*loaded)
    output = operation.run(lambda event: None)
    start = torch.full((12, 1), 2)
    each = model.rag.generator(input_ids=operation._reader_ids, decoder_input_ids=start).logits[:, -1].softmax(-1)
    weights = operation._scores.softmax(-1)
    expected = (each.view(3, 4, -1) * weights[:, :, None]).sum(dim=1)
    torch.testing.assert_close(output.prefill_logits.exp(), expected, rtol=1e-4, atol=1e-6)


@torch.inference_mode()
def test_phases_and_counts_of_a_call(loaded):
    _, operation = operation_of(*loaded)
    marks: list[str] = []
    operation.reset()
    output = operation.run(marks.append)
    assert marks == ["retrieve"] + ["token"] * 9
    assert operation.problem(output) is None
    assert (operation.items_per_call, operation.tokens_per_call, operation.new_tokens) == (3, 27, 9)
    assert operation.prompt_tokens_per_call == 3 * 4 * (128 + 12)
    assert operation.run(lambda event: None).tokens == output.tokens


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_gives_finite_numbers(dtype):
    workload, model = make(dtype=dtype)
    _, operation = operation_of(workload, model)
    with torch.inference_mode():
        assert operation.problem(operation.run(lambda event: None)) is None


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_both_models_have_the_requested_attention(attention):
    _, model = make(attention)
    parts = (model, model.rag.question_encoder, model.rag.generator)
    assert [part.config._attn_implementation for part in parts] == [attention] * 3


def test_a_saved_model_loads_whole_with_its_attention(tmp_path):
    _, model = make("eager")
    model.save_pretrained(tmp_path)
    loaded, missing = PLUGIN.load(resolve(str(tmp_path)), dtype=torch.float32, attention="eager")
    assert missing == ()
    assert loaded.rag.generator.config._attn_implementation == "eager"
    for (name, saved), (_, read) in zip(model.named_parameters(), loaded.named_parameters(), strict=True):
        assert torch.equal(saved, read), name


def test_attention_unsupported_by_one_model_is_refused():
    with pytest.raises(UnsupportedError, match="attention flash_attention_2"):
        PLUGIN.build(resolve("tiny-rag"), dtype=torch.float16, attention="flash_attention_2")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"axes": {"documents": 3, "top_k": 5}}, "top-k 5 exceeds the number of documents (3)"),
        ({"axes": {"documents": 3, "top_k": 0}}, "top-k 0: tiny-rag needs a whole number from 1"),
        ({"axes": {"documents": 2.5, "top_k": 1}}, "documents 2.5: tiny-rag needs a whole number from 1"),
        ({"axes": {"documents": 3}}, "missing top-k"),
        ({"axes": {"documents": 3, "top_k": 3, "steps": 2}}, "has no number of steps"),
        ({"sequence_length": None}, "missing sequence length"),
        ({"new_tokens": None}, "missing number of new tokens"),
        ({"sequence_length": 173}, "questions of at most 172 tokens after passages of 128"),
        ({"new_tokens": 513}, "generates at most 512"),
    ],
)
def test_impossible_points_are_refused(changes, why):
    workload = resolve("tiny-rag")
    assert PLUGIN.check(workload, POINT) is None
    assert why in PLUGIN.check(workload, dataclasses.replace(POINT, **changes))


@pytest.mark.parametrize(
    ("config", "longest"),
    [
        ({}, None),
        ({"max_combined_length": 300}, 172),
        ({"question_encoder": {"max_position_embeddings": 64}, "max_combined_length": 300}, 64),
        ({"generator": {"max_position_embeddings": 256}, "max_combined_length": 300}, 128),
    ],
)
def test_longest_question_fits_both_models(config, longest):
    assert PLUGIN.max_sequence_length(config) == longest


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"architectures": ["RagSequenceForGeneration"]}, "only RagTokenForGeneration is supported"),
        ({"question_encoder": {"model_type": "bert"}}, "only dpr is supported"),
    ],
)
def test_other_kinds_of_rag_are_refused(changes, why):
    workload = resolve("tiny-rag")
    with pytest.raises(UnsupportedError, match=why):
        PLUGIN.model_class(dataclasses.replace(workload, config={**workload.config, **changes}))


def test_inputs_are_the_question_in_both_vocabularies():
    arrays = PLUGIN.inputs(resolve("facebook/rag-token-nq", weights="random"), POINT, 0)
    assert {name: array.shape for name, array in arrays.items()} == {
        "input_ids": (3, 12),
        "generator_input_ids": (3, 12),
    }
    assert arrays["input_ids"].max() < 30_522
    assert arrays["generator_input_ids"].max() < 50_265


def test_how_the_corpus_is_searched_is_reported(loaded):
    assert PLUGIN.verified(loaded[1]) == {"retrieval": rag.SEARCH, "passage_tokens": 128}
