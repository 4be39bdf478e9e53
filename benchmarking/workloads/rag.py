"""Retrieval-augmented generation: encode a question, search a corpus, read the retrieved documents, write the answer.

The search is exact: torch computes the inner products of every question with every document and takes the largest, on
the model's device, in float32 at any precision (tf32 applies here too). The questions' vectors are already there, so
nothing waits for the host; exact indexes of vector databases are also one matrix product.

The corpus is synthetic: seeded unit vectors, and passages of equal length from seeded ordinary tokens, placed before a
call. For each document the generator reads the passage and then the question.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from benchmarking.core.contracts import FamilyOperation, Mark
from benchmarking.core.errors import UnsupportedError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import np, torch
from benchmarking.core.model_contracts import QualityKind, Recipe
from benchmarking.core.records import Family, Json, Point, Scalar, Workload
from benchmarking.workloads.support import synthetic_inputs
from benchmarking.workloads.support.configuration import part
from benchmarking.workloads.support.families import positions, wrong_axes
from benchmarking.workloads.support.generation import GreedyGeneration, dynamic_caches, start_token
from benchmarking.workloads.support.transformers_models import TextFamily

AXES: Mapping[str, tuple[float, ...]] = {
    "sequence_length": (32, 128),
    "documents": (10_000,),
    "top_k": (5,),
    "new_tokens": (16,),
}
"""The sequence is the question. The model's own corpus, Wikipedia, has 21 million documents, of which it reads 5."""

PARTS = ("question_encoder", "generator")
"""Keys of the two models' configurations."""

QUESTION_ENCODERS = frozenset({"dpr"})
"""Model types whose output is one vector per question."""


class Rag(TextFamily):
    """RAG-token: a DPR question encoder, an exact search, and a BART or T5 that reads all passages at once."""

    name: Family = "rag"
    rank = 10
    model_types = frozenset({"rag"})
    quality: Mapping[str, QualityKind] = {"text2text-generation": "tokens"}
    caches: tuple[str, ...] = ("dynamic",)
    can_split_batch = False
    """All questions of a batch search the same corpus."""

    def axes(self, workload: Workload) -> Mapping[str, tuple[float, ...]]:
        return AXES

    def max_sequence_length(self, config: Mapping[str, Json]) -> int | None:
        """The question's limit: it must fit into the encoder and, after a passage, into the generator, within the
        length that the model was trained on (`max_combined_length`)."""
        encoder, generator = (positions(part(config, name)) for name in PARTS)
        combined = config.get("max_combined_length")
        generator_limits = [limit for limit in (generator, combined) if isinstance(limit, int)]
        limits = [limit - PASSAGE_TOKENS for limit in generator_limits] + ([encoder] if encoder is not None else [])
        return min(limits, default=None)

    def check(self, workload: Workload, point: Point) -> str | None:
        if (problem := wrong_axes(workload, point, tuple(AXES))) is not None:
            return problem
        documents, top_k = point.axes["documents"], point.axes["top_k"]
        for name, value in (("documents", documents), ("top-k", top_k)):
            if value != int(value) or value < 1:
                return f"{name} {value}: {workload.model_id} needs a whole number from 1"
        if top_k > documents:
            return f"top-k {top_k} exceeds the number of documents ({documents})"
        question, new_tokens = point.sequence_length or 0, point.new_tokens or 0
        limit = workload.max_sequence_length
        if limit is not None and question > limit:
            return (
                f"sequence length {question}: {workload.model_id} takes questions of at most {limit} tokens "
                f"after passages of {PASSAGE_TOKENS} tokens"
            )
        max_new_tokens = positions(part(workload.config, "generator"))
        if max_new_tokens is not None and new_tokens > max_new_tokens:
            return f"{new_tokens} new tokens: {workload.model_id} generates at most {max_new_tokens}"
        return None

    def inputs(self, workload: Workload, point: Point, seed: int) -> dict[str, np.ndarray]:
        """The question in the vocabularies of both models: `input_ids` and `generator_input_ids`."""
        encoder, generator = (synthetic_inputs.token_ids(workload_of(workload, name), point, seed) for name in PARTS)
        return {"input_ids": encoder, "generator_input_ids": generator}

    def model_class(self, workload: Workload) -> Any:
        from transformers.models.auto.modeling_auto import MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES

        # It is not among the models of AutoModelForSeq2SeqLM, whose `register` some versions ignore for configurations
        # of transformers' own.
        MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES["rag"] = "RagTokenForGeneration"
        names = workload.config.get("architectures") or ["RagTokenForGeneration"]
        if names != ["RagTokenForGeneration"]:
            raise UnsupportedError(f"{workload.model_id} is a {names}: only RagTokenForGeneration is supported")
        encoder = part(workload.config, "question_encoder").get("model_type")
        if encoder not in QUESTION_ENCODERS:
            raise UnsupportedError(f"{workload.model_id} has question encoder {encoder}: only dpr is supported")
        return super().model_class(workload)

    def build(self, workload: Workload, *, dtype: Any, attention: str | None = None) -> Any:
        self.model_class(workload)
        model = super().build(workload, dtype=dtype, attention=attention)
        _set_attention(model, attention)
        return model

    def load(self, workload: Workload, *, dtype: Any, attention: str | None = None) -> tuple[Any, tuple[str, ...]]:
        self.model_class(workload)
        model, missing = super().load(workload, dtype=dtype, attention=attention)
        _set_attention(model, attention)
        return model, missing

    def verified(self, model: Any) -> Mapping[str, Json]:
        """`retrieval`: how the corpus is searched; `passage_tokens`: the length of a document."""
        return {"retrieval": SEARCH, "passage_tokens": PASSAGE_TOKENS}

    def recipe(self, workload: Workload) -> Recipe | str:
        return (
            "retrieval-augmented generation cannot be exported: it is an encoder, a search over a corpus, and a "
            "generator that mixes several documents"
        )

    def torch_operation(
        self, model: Any, workload: Workload, point: Point, inputs: Mapping[str, Any], mode: Mapping[str, Scalar]
    ) -> FamilyOperation:
        return RetrievalGeneration(model, workload, point, inputs)


def _set_attention(model: Any, attention: str | None) -> None:
    """Set the requested attention on both models, as transformers sets it on the composite only.

    Raises UnsupportedError if a model does not support it."""
    for name in PARTS if attention is not None else ():
        model_part = getattr(model.rag, name)
        try:
            model_part.set_attn_implementation(attention)
        except (ImportError, ValueError) as error:
            raise UnsupportedError(f"attention {attention} for the {name}: {error}") from error
        if (used := model_part.config._attn_implementation) != attention:
            raise UnsupportedError(f"expected attention {attention}, but the {name} uses {used}")


PASSAGE_TOKENS = 128
"""Length of every passage: about 100 words, like DPR's passages of Wikipedia."""

SEARCH = "exact inner product by torch on the model's device"


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Documents to search and read."""

    embeddings: Any
    """Unit vectors, documents x width, float32."""
    passages: Any
    """Token ids of the generator's vocabulary, documents x PASSAGE_TOKENS, int32."""


def workload_of(workload: Workload, name: str) -> Workload:
    """The workload of only its "question_encoder" or "generator", with that model's configuration and vocabulary."""
    config = part(workload.config, name)
    vocab_size = config.get("vocab_size")
    return replace(workload, config=config, vocab_size=vocab_size if isinstance(vocab_size, int) else None)


def make_corpus(workload: Workload, documents: int, width: int, device: Any) -> Corpus:
    """A seeded corpus on a device. Equal seed and size give an equal corpus on every platform."""
    generator = np.random.default_rng([workload.seed, documents])
    embeddings = generator.standard_normal((documents, width), dtype=np.float32)
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    passages = Point(batch_size=documents, sequence_length=PASSAGE_TOKENS)
    tokens = synthetic_inputs.token_ids(workload_of(workload, "generator"), passages, workload.seed).astype(np.int32)
    return Corpus(embeddings=torch.from_numpy(embeddings).to(device), passages=torch.from_numpy(tokens).to(device))


def search(questions: Any, embeddings: Any, top_k: int) -> tuple[Any, Any]:
    """Scores and numbers of the documents with the largest inner products, largest first: each questions x top_k."""
    scores, documents = (questions.float() @ embeddings.T).topk(top_k, dim=1)
    return scores, documents


class RetrievalGeneration(GreedyGeneration):
    """A call of RAG-token: encode the questions and search (phase retrieve), read every passage with its question and
    generate the first token (prefill), generate the others (decode).

    Each step computes one token for every retrieved document and mixes them: a token's probability is its mean over the
    documents, weighted by the softmax of their scores. The prompt of a call is the generator's input:
    batch x top_k x (PASSAGE_TOKENS + question length) tokens.
    """

    def __init__(self, model: Any, workload: Workload, point: Point, inputs: Mapping[str, Any]) -> None:
        super().__init__(point)
        self._model = model
        self._question = inputs["input_ids"]
        self._top_k = int(point.axes["top_k"])
        self._questions = inputs["generator_input_ids"].repeat_interleave(self._top_k, dim=0)
        self.prompt_tokens_per_call = self._questions.shape[0] * (PASSAGE_TOKENS + self._questions.shape[1])
        self._start = self._question.new_full((point.batch_size, 1), start_token(model.rag.generator))
        width = int(model.config.retrieval_vector_size)
        self._corpus = make_corpus(workload, int(point.axes["documents"]), width, self._question.device)
        self._scores: Any = None
        self._reader_ids: Any = None

    def reset(self) -> None:
        super().reset()
        self._scores = self._reader_ids = None

    def encode(self, mark: Mark) -> None:
        self.retrieve()
        mark("retrieve")

    def retrieve(self) -> Any:
        """Find the documents. Returns their numbers, batch x top_k.

        Sets the generator's input: (batch x top_k) x (PASSAGE_TOKENS + question length), the passage first."""
        vectors = self._model.rag.question_encoder(self._question).pooler_output
        self._scores, documents = search(vectors, self._corpus.embeddings, self._top_k)
        passages = self._corpus.passages[documents.flatten()].to(self._questions.dtype)
        self._reader_ids = torch.cat([passages, self._questions], dim=1)
        return documents

    def prefill(self) -> Any:
        generator = self._model.rag.generator
        self._encoded = generator.get_encoder()(input_ids=self._reader_ids)
        self._cache = dynamic_caches(generator.config)
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


PLUGIN = Rag()
