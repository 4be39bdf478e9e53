"""Retrieval over a corpus, and a generator that reads what was found.

The search is exact: the inner product of every question with every document, and the largest of them. It is done by
torch on the model's device, in float32 whatever the model's precision (a cell of tf32 has tf32 products here too): the
questions' vectors are there already, so nothing waits for the host, and one matrix product is what the exact indexes of
vector databases come to.

The corpus is made, not read: seeded unit vectors, and passages of seeded ordinary tokens of one fixed length. It is in
place before a call. What a generator reads for each document is the passage and then the question.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from benchmarking.records import Point, Workload
from benchmarking.runtimes import Mark
from benchmarking.workloads import _inputs
from benchmarking.workloads._config import part
from benchmarking.workloads._generation import GreedyGeneration, start_token

PASSAGE_TOKENS = 128
"""Of every passage: about what 100 words come to, the length of the passages that DPR cut Wikipedia into."""
SEARCH = "exact inner product by torch on the model's device"


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Documents, ready to be searched and read."""

    embeddings: Any
    """Unit vectors, documents x width, float32."""
    passages: Any
    """Token ids of the generator's vocabulary, documents x PASSAGE_TOKENS, int32."""


def workload_of(workload: Workload, name: str) -> Workload:
    """The workload as its "question_encoder" or "generator" alone, with that one's configuration and vocabulary."""
    config = part(workload.config, name)
    vocab_size = config.get("vocab_size")
    return replace(workload, config=config, vocab_size=vocab_size if isinstance(vocab_size, int) else None)


def make_corpus(workload: Workload, documents: int, width: int, device: Any) -> Corpus:
    """A seeded corpus on a device; the same seed and size give the same one on every platform."""
    import numpy as np
    import torch

    generator = np.random.default_rng([workload.seed, documents])
    embeddings = generator.standard_normal((documents, width), dtype=np.float32)
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    passages = Point(batch_size=documents, sequence_length=PASSAGE_TOKENS)
    tokens = _inputs.token_ids(workload_of(workload, "generator"), passages, workload.seed).astype(np.int32)
    return Corpus(
        embeddings=torch.from_numpy(embeddings).to(device),
        passages=torch.from_numpy(tokens).to(device),
    )


def search(questions: Any, embeddings: Any, top_k: int) -> tuple[Any, Any]:
    """Scores and numbers of the documents with the largest inner products, largest first: each questions x top_k."""
    scores, documents = (questions.float() @ embeddings.T).topk(top_k, dim=1)
    return scores, documents


class RetrievalGeneration(GreedyGeneration):
    """A call of RAG-token: encode the questions and search (phase retrieve), read every passage with its question and
    write the first token (prefill), write the others (decode).

    Each step writes one token for every document found and mixes them: a token's probability is its mean over the
    documents, weighted by the softmax of their scores. The prompt of a call is what the generator reads:
    batch x top_k x (PASSAGE_TOKENS + question length) tokens.
    """

    def __init__(self, model: Any, workload: Workload, point: Point, inputs: Mapping[str, Any]) -> None:
        super().__init__(point)
        self._model = model
        self._question = inputs["input_ids"]
        self._top_k = int(point.axes["top_k"])
        self._asked = inputs["generator_input_ids"].repeat_interleave(self._top_k, dim=0)
        self.prompt_tokens_per_call = self._asked.shape[0] * (PASSAGE_TOKENS + self._asked.shape[1])
        self._start = self._question.new_full((point.batch_size, 1), start_token(model.rag.generator))
        width = int(model.config.retrieval_vector_size)
        self._corpus = make_corpus(workload, int(point.axes["documents"]), width, self._question.device)
        self._scores: Any = None
        self._read: Any = None
        self._encoded: Any = None

    def reset(self) -> None:
        super().reset()
        self._scores = self._read = self._encoded = None

    def encode(self, mark: Mark) -> None:
        self.retrieve()
        mark("retrieve")

    def retrieve(self) -> Any:
        """Find the documents; their numbers, batch x top_k."""
        vectors = self._model.rag.question_encoder(self._question).pooler_output
        self._scores, documents = search(vectors, self._corpus.embeddings, self._top_k)
        self._read = _texts(self._corpus.passages[documents.flatten()], self._asked)
        return documents

    def prefill(self) -> Any:
        from transformers import DynamicCache, EncoderDecoderCache

        generator = self._model.rag.generator
        self._encoded = generator.get_encoder()(input_ids=self._read)
        self._cache = EncoderDecoderCache(DynamicCache(config=generator.config), DynamicCache(config=generator.config))
        return self.decode(self._start)

    def decode(self, tokens: Any) -> Any:
        output = self._model(
            decoder_input_ids=tokens,
            encoder_outputs=self._encoded,
            doc_scores=self._scores,
            past_key_values=self._cache,
            n_docs=self._top_k,
            do_marginalize=True,
            use_cache=True,
        )
        return output.logits[:, -1]


def _texts(passages: Any, questions: Any) -> Any:
    """What the generator reads: (batch x top_k) x (PASSAGE_TOKENS + question length), the passage first."""
    import torch

    return torch.cat([passages.to(questions.dtype), questions], dim=1)
