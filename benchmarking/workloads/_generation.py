"""Greedy generation, token by token: prefill, argmax, then a decode step for each further token.

Own loops rather than the library's `generate`, so that the moment a token reaches the host is known, no stop token ends
a call early, and nothing but the model is timed. The tokens are those of `generate(do_sample=False)`.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarking.errors import UnsupportedError
from benchmarking.records import Point
from benchmarking.runtimes import Mark
from benchmarking.workloads._forward import host_array, non_finite

CACHES = ("dynamic", "static")
"""Kinds of key-value cache, the default first. They make different cells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """What a call returns."""

    tokens: tuple[tuple[int, ...], ...]
    """Batch x new tokens."""
    prefill_logits: Any
    """Of the last prompt position, batch x vocabulary: the part two runtimes can be compared by whatever they pick."""
    last_logits: Any
    """Of the last step. A NaN anywhere before reaches them through the cache, so they are the ones to check."""


class GreedyGeneration(ABC):
    """The loop that decoder-only and encoder-decoder models share."""

    def __init__(self, point: Point) -> None:
        if point.sequence_length is None or point.new_tokens is None:
            raise UnsupportedError(f"point {point.label}: generation needs a sequence length and new tokens")
        self.new_tokens: int | None = point.new_tokens
        self._steps: int = point.new_tokens
        self.items_per_call = point.batch_size
        self.tokens_per_call: int | None = point.batch_size * point.new_tokens
        self.prompt_tokens_per_call: int | None = point.batch_size * point.sequence_length

    @abstractmethod
    def prefill(self) -> Any:
        """Take in the prompt; the logits of its last position, batch x vocabulary."""

    @abstractmethod
    def decode(self, tokens: Any) -> Any:
        """Take in one token a sequence (batch x 1); the logits that follow, batch x vocabulary."""

    def reset(self) -> None:
        """Nothing: a call begins with its own empty cache, whose cost is the call's."""

    def run(self, mark: Mark) -> Generated:
        logits = prefill_logits = self.prefill()
        steps: list[list[int]] = []
        while True:
            tokens = logits.argmax(dim=-1, keepdim=True)
            steps.append(tokens[:, 0].tolist())  # brings the token to the host, which waits for the device
            mark("token")
            if len(steps) == self._steps:
                break
            logits = self.decode(tokens)
        return Generated(tokens=tuple(zip(*steps, strict=True)), prefill_logits=prefill_logits, last_logits=logits)

    def problem(self, output: Generated) -> str | None:
        lengths = {len(row) for row in output.tokens}
        if len(output.tokens) != self.items_per_call or lengths != {self._steps}:
            return f"token count: {len(output.tokens)} rows of {sorted(lengths)}, asked {self._steps} each"
        return non_finite("prefill logits", output.prefill_logits) or non_finite("last logits", output.last_logits)

    def arrays(self, output: Generated) -> dict[str, Any]:
        """Tokens (int64) and prefill logits (float32) as numpy arrays: to compare with another runtime's."""
        import numpy as np

        return {"tokens": np.array(output.tokens, dtype=np.int64), "logits": host_array(output.prefill_logits)}


class DecoderGeneration(GreedyGeneration):
    """A decoder-only model's: the prompt goes through the same layers as the tokens after it.

    No attention mask is passed, because nothing is padded: positions then come from the cache's length, and prefill
    takes the causal kernel, as it does with a mask of ones.
    """

    def __init__(self, model: Any, point: Point, inputs: Mapping[str, Any], cache: str) -> None:
        super().__init__(point)
        self._model = model
        self._prompt = inputs["input_ids"]
        # As `generate` does: only the last position's logits are needed, and a vocabulary is wide.
        self._last_only = {"logits_to_keep": 1} if _takes(model, "logits_to_keep") else {}
        self._static: Any = None
        if cache == "static":
            self._static = static_cache(model, point.batch_size, self._prompt.shape[1] + self._steps)
        self._cache: Any = None

    def prefill(self) -> Any:
        from transformers import DynamicCache

        if self._static is None:
            self._cache = DynamicCache(config=self._model.config)
        else:
            self._static.reset()
            self._cache = self._static
        return self._step(self._prompt)

    def decode(self, tokens: Any) -> Any:
        return self._step(tokens)

    def _step(self, tokens: Any) -> Any:
        output = self._model(input_ids=tokens, past_key_values=self._cache, use_cache=True, **self._last_only)
        return output.logits[:, -1]


class EncoderDecoderGeneration(GreedyGeneration):
    """An encoder-decoder model's: the encoder and the decoder's first step are the prefill."""

    def __init__(self, model: Any, point: Point, inputs: Mapping[str, Any], cache: str) -> None:
        super().__init__(point)
        self._model = model
        self._prompt = inputs["input_ids"]
        self._start = self._prompt.new_full((point.batch_size, 1), start_token(model))
        self._static: Any = None
        if cache == "static":
            self._static = self._static_caches(point.batch_size)
        self._cache: Any = None
        self._encoded: Any = None

    def _static_caches(self, batch_size: int) -> Any:
        from transformers import EncoderDecoderCache

        own = static_cache(self._model, batch_size, self._steps)
        cross = static_cache(self._model, batch_size, self._prompt.shape[1])
        caches = EncoderDecoderCache(own, cross)
        caches.reset()  # made from allocated caches, it would take the cross-attention for filled
        return caches

    def prefill(self) -> Any:
        from transformers import DynamicCache, EncoderDecoderCache
        from transformers.modeling_outputs import BaseModelOutput

        if self._static is None:
            config = self._model.config
            self._cache = EncoderDecoderCache(DynamicCache(config=config), DynamicCache(config=config))
        else:
            self._static.reset()
            self._cache = self._static
        output = self._step(self._start, input_ids=self._prompt)
        self._encoded = BaseModelOutput(last_hidden_state=output.encoder_last_hidden_state)
        return output.logits[:, -1]

    def decode(self, tokens: Any) -> Any:
        return self._step(tokens, encoder_outputs=self._encoded).logits[:, -1]

    def _step(self, tokens: Any, **encoder: Any) -> Any:
        return self._model(decoder_input_ids=tokens, past_key_values=self._cache, use_cache=True, **encoder)


def static_cache(model: Any, batch_size: int, length: int) -> Any:
    """A static cache of `length` tokens, allocated now rather than in the first call."""
    from transformers import StaticCache

    config = model.config.get_text_config(decoder=True)
    heads = _decoder_heads(config)
    key_value_heads = getattr(config, "num_key_value_heads", None) or heads
    head_dim = getattr(config, "head_dim", None) or getattr(config, "d_kv", None) or config.hidden_size // heads
    cache = StaticCache(config=model.config, max_cache_len=length)
    cache.early_initialization(batch_size, key_value_heads, head_dim, model.dtype, model.device)
    return cache


def start_token(model: Any) -> int:
    """The id a decoder begins with. Raises UnsupportedError when the model names none."""
    for config in (model.generation_config, model.config):
        for name in ("decoder_start_token_id", "bos_token_id"):
            value = getattr(config, name, None)
            if isinstance(value, int):
                return value
    raise UnsupportedError("the configuration has neither decoder_start_token_id nor bos_token_id")


def _decoder_heads(config: Any) -> int:
    heads: int = getattr(config, "decoder_attention_heads", None) or config.num_attention_heads
    return heads


def _takes(model: Any, argument: str) -> bool:
    """Whether the model's forward has this argument; a compiled wrapper is asked for what it wraps."""
    return argument in inspect.signature(getattr(model, "_orig_mod", model).forward).parameters
