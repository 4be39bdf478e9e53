"""Retrieval-augmented generation: encode a question, search a corpus for it, read what was found, write the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from benchmarking.errors import UnsupportedError
from benchmarking.records import Family, Json, Point, Scalar, Workload
from benchmarking.workloads import _inputs, _limits, _retrieval
from benchmarking.workloads._config import part
from benchmarking.workloads._text import TextFamily

if TYPE_CHECKING:
    import numpy as np

    from benchmarking.workloads import FamilyOperation

AXES: Mapping[str, tuple[float, ...]] = {
    "sequence_length": (32, 128),
    "documents": (10_000,),
    "top_k": (5,),
    "new_tokens": (16,),
}
"""The sequence is the question. The model's own corpus, Wikipedia, is of 21 million documents; 5 is what it reads."""
PARTS = ("question_encoder", "generator")
"""The keys of the two models' configurations."""
QUESTION_ENCODERS = frozenset({"dpr"})
"""Model types whose output is one vector a question."""


class Rag(TextFamily):
    """RAG-token: a DPR question encoder, an exact search, and a BART or T5 that writes from all passages at once."""

    name: Family = "rag"
    model_types = frozenset({"rag"})
    tasks: tuple[str, ...] = ("text2text-generation",)
    generative_tasks = frozenset({"text2text-generation"})
    caches: tuple[str, ...] = ("dynamic",)

    def axes(self, workload: Workload) -> Mapping[str, tuple[float, ...]]:
        return AXES

    def max_sequence_length(self, config: Mapping[str, Json]) -> int | None:
        """Of the question: the encoder has to take it, and the generator has to take it behind a passage, in no more
        tokens than the model was made to read (`max_combined_length`)."""
        encoder, generator = (_limits.positions(part(config, name)) for name in PARTS)
        combined = config.get("max_combined_length")
        behind = [limit for limit in (generator, combined) if isinstance(limit, int)]
        limits = [limit - _retrieval.PASSAGE_TOKENS for limit in behind] + ([encoder] if encoder is not None else [])
        return min(limits, default=None)

    def check(self, workload: Workload, point: Point) -> str | None:
        if (problem := _limits.wrong_axes(workload, point, tuple(AXES))) is not None:
            return problem
        return _too_many(workload, point) or _too_long(workload, point)

    def inputs(self, workload: Workload, point: Point, seed: int) -> dict[str, np.ndarray]:
        """The question in the vocabularies of both models: `input_ids` and `generator_input_ids`."""
        encoder, generator = (_inputs.token_ids(_retrieval.workload_of(workload, name), point, seed) for name in PARTS)
        return {"input_ids": encoder, "generator_input_ids": generator}

    def model_class(self, workload: Workload) -> Any:
        from transformers import AutoModelForSeq2SeqLM, RagConfig, RagTokenForGeneration

        # transformers has it in none of its automatic classes.
        AutoModelForSeq2SeqLM.register(RagConfig, RagTokenForGeneration, exist_ok=True)
        _check_parts(workload)
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
        """`retrieval`: how the corpus is searched; `passage_tokens`: the length of what is read for a document."""
        return {"retrieval": _retrieval.SEARCH, "passage_tokens": _retrieval.PASSAGE_TOKENS}

    def torch_operation(
        self, model: Any, workload: Workload, point: Point, inputs: Mapping[str, Any], mode: Mapping[str, Scalar]
    ) -> FamilyOperation:
        return _retrieval.RetrievalGeneration(model, workload, point, inputs)


def _check_parts(workload: Workload) -> None:
    """Raise UnsupportedError for a model that does not retrieve with one vector or does not write token by token."""
    architectures = workload.config.get("architectures") or ["RagTokenForGeneration"]
    if architectures != ["RagTokenForGeneration"]:
        raise UnsupportedError(f"{workload.model_id} is a {architectures}: only RagTokenForGeneration is run")
    encoder = part(workload.config, "question_encoder").get("model_type")
    if encoder not in QUESTION_ENCODERS:
        raise UnsupportedError(f"{workload.model_id} has question encoder {encoder}: only dpr is run")


def _set_attention(model: Any, attention: str | None) -> None:
    """Give both models the attention that was asked for: transformers gives it to the composite alone.

    Raises UnsupportedError for one that a model does not have."""
    for name in PARTS if attention is not None else ():
        own = getattr(model.rag, name)
        try:
            own.set_attn_implementation(attention)
        except (ImportError, ValueError) as error:
            raise UnsupportedError(f"attention {attention} for the {name}: {error}") from error
        if (has := own.config._attn_implementation) != attention:
            raise UnsupportedError(f"asked for attention {attention}, but the {name} has {has}")


def _too_many(workload: Workload, point: Point) -> str | None:
    """None, or what is wrong with the numbers of documents."""
    documents, top_k = point.axes["documents"], point.axes["top_k"]
    for name, value in (("documents", documents), ("top-k", top_k)):
        if value != int(value) or value < 1:
            return f"{name} {value}: {workload.model_id} takes whole numbers from 1"
    if top_k > documents:
        return f"top-k {top_k} of {documents} documents: no more can be retrieved than there are"
    return None


def _too_long(workload: Workload, point: Point) -> str | None:
    """None, or why the question or the answer is too long."""
    question, new_tokens = point.sequence_length or 0, point.new_tokens or 0
    limit = workload.max_sequence_length
    if limit is not None and question > limit:
        return (
            f"sequence length {question}: {workload.model_id} takes questions of at most {limit} tokens, "
            f"read behind passages of {_retrieval.PASSAGE_TOKENS}"
        )
    writes = _limits.positions(part(workload.config, "generator"))
    if writes is not None and new_tokens > writes:
        return f"{new_tokens} new tokens: {workload.model_id} generates at most {writes}"
    return None


PLUGIN = Rag()
