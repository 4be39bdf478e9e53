"""Calls of torch models: one forward pass, or greedy generation (prefill, argmax, then one decode step per token).

The generation loop replaces the library's `generate`, so that the time when each token reaches the host is known, no
stop token ends a call early, and only the model is timed. The tokens equal those of `generate(do_sample=False)`. A
token on the host is what a user sees, but waiting for each one leaves the device idle in between. Calls that do not
stream (`FamilyOperation.streams`) only wait for the first and last token.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from benchmarking.core.contracts import FamilyOperation, Mark, wrong_token_count
from benchmarking.core.errors import UnsupportedError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import np, torch
from benchmarking.core.records import Point

CACHES = ("dynamic", "static")
"""Kinds of key-value cache, the default first. Each kind is a separate cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    tokens: tuple[tuple[int, ...], ...]
    """Batch x new tokens."""
    prefill_logits: Any
    """Logits of the last prompt position, batch x vocabulary: comparable between runtimes, whichever tokens they
    pick."""
    last_logits: Any
    """Logits of the last step. These are checked, because an earlier NaN reaches them through the cache."""


class GreedyGeneration(FamilyOperation):
    """The loop shared by decoder-only and encoder-decoder models."""

    def __init__(self, point: Point) -> None:
        if point.new_tokens is None:
            raise UnsupportedError(f"point {point.label}: generation needs new tokens")
        self.new_tokens: int | None = point.new_tokens
        self._steps: int = point.new_tokens
        self.items_per_call = point.batch_size
        self.tokens_per_call: int | None = point.batch_size * point.new_tokens
        self.prompt_tokens_per_call: int | None = point.batch_size * (point.sequence_length or 0) or None
        self._cache: Any = None
        self._encoded: Any = None
        """What the phases before the prefill made."""
        self._prompt: Any = None
        """The text that a decoder-only model continues, batch x length; None for other models."""

    def encode(self, mark: Mark) -> None:
        """Phases before the prefill, each marked at its end; most models have none."""

    @abstractmethod
    def prefill(self) -> Any:
        """Process the prompt; returns the logits of its last position, batch x vocabulary."""

    @abstractmethod
    def decode(self, tokens: Any) -> Any:
        """Process one token per sequence (batch x 1); returns the next logits, batch x vocabulary."""

    def reset(self) -> None:
        """Release what the last call made. A call starts with an empty cache and includes its cost."""
        self._cache = self._encoded = None

    def run(self, mark: Mark) -> Generated:
        self.encode(mark)
        logits = prefill_logits = self.prefill()
        if not self.streams:  # waits for the device only twice: for the first token, and for all others at the end
            kept = [logits.argmax(dim=-1, keepdim=True)]
            rows = kept[0].tolist()
            mark("token")
            if self._steps > 1:
                while len(kept) < self._steps:
                    logits = self.decode(kept[-1])
                    kept.append(logits.argmax(dim=-1, keepdim=True))
                rows = torch.cat(kept, dim=1).tolist()
                mark("token")
            tokens_by_row = tuple(tuple(row) for row in rows)
            return Generated(tokens=tokens_by_row, prefill_logits=prefill_logits, last_logits=logits)
        steps: list[list[int]] = []
        while True:
            tokens = logits.argmax(dim=-1, keepdim=True)
            steps.append(tokens[:, 0].tolist())  # copies the token to the host, which waits for the device
            mark("token")
            if len(steps) == self._steps:
                break
            logits = self.decode(tokens)
        return Generated(tokens=tuple(zip(*steps, strict=True)), prefill_logits=prefill_logits, last_logits=logits)

    def next_token_logits(self, text: np.ndarray) -> np.ndarray:
        prompt = self._prompt
        if prompt is None:
            raise UnsupportedError("the model does not continue a text")
        self.reset()
        prompt.copy_(torch.from_numpy(text[None, : -self._steps]))  # in place, where compiled code expects it
        rows = [host_array(self.prefill())]
        for token in text[-self._steps : -1]:
            rows.append(host_array(self.decode(torch.full((1, 1), int(token), device=prompt.device))))
        logits: np.ndarray = np.concatenate(rows)
        return logits

    def problem(self, output: Generated) -> str | None:
        return (
            wrong_token_count(output.tokens, self.items_per_call, self._steps)
            or non_finite("prefill logits", output.prefill_logits)
            or non_finite("last logits", output.last_logits)
        )

    def arrays(self, output: Generated) -> dict[str, Any]:
        """Tokens (int64) and prefill logits (float32) as numpy arrays."""
        return {"tokens": np.array(output.tokens, dtype=np.int64), "logits": host_array(output.prefill_logits)}


class DecoderGeneration(GreedyGeneration):
    """Generation with a decoder-only model: the prompt passes through the same layers as the tokens after it.

    No attention mask is passed, because nothing is padded. Positions then follow from the cache's length, and the
    prefill uses the causal kernel, as with a mask of ones.
    """

    def __init__(self, model: Any, point: Point, inputs: Mapping[str, Any], cache: str) -> None:
        super().__init__(point)
        self._model = model
        self._prompt = inputs["input_ids"]
        self._last_only = last_logits_only(model)
        self._static: Any = None
        if cache == "static":
            self._static = static_cache(model, self._prompt.shape[1] + self._steps)

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
    """Generation with an encoder-decoder model: the phase encode, the decoder's first step as prefill, then one step
    per token.

    `inputs` are the encoder's. `prompt` holds the first tokens of every sequence, by default the start token.
    `encoded_length` is the length of the encoder's output, by default the input's.
    """

    def __init__(
        self,
        model: Any,
        point: Point,
        inputs: Mapping[str, Any],
        cache: str,
        *,
        prompt: tuple[int, ...] = (),
        encoded_length: int | None = None,
    ) -> None:
        from transformers import EncoderDecoderCache

        super().__init__(point)
        self._model = model
        self._inputs = dict(inputs)
        first = next(iter(self._inputs.values()))
        start = torch.tensor([prompt or (start_token(model),)], device=first.device)
        self._start = start.repeat(point.batch_size, 1)
        self._static: Any = None
        if cache == "static":
            own = static_cache(model, start.shape[1] + self._steps - 1)
            self._static = EncoderDecoderCache(own, static_cache(model, encoded_length or first.shape[1]))

    def encode(self, mark: Mark) -> None:
        self._encoded = self._model.get_encoder()(**self._inputs)
        mark("encode")

    def prefill(self) -> Any:
        if self._static is None:
            self._cache = dynamic_caches(self._model.config)
        else:
            self._static.reset()
            self._cache = self._static
        return self.decode(self._start)

    def decode(self, tokens: Any) -> Any:
        output = self._model(
            decoder_input_ids=tokens, encoder_outputs=self._encoded, past_key_values=self._cache, use_cache=True
        )
        return output.logits[:, -1]


def static_cache(model: Any, length: int) -> Any:
    """A static cache for `length` tokens. Its memory is allocated in the first call, which is never timed, because only
    the layers know their shapes; later calls clear and reuse it.

    Raises UnsupportedError if the model cannot use one.
    """
    from transformers import StaticCache

    if not getattr(model, "_can_compile_fullgraph", True):
        raise UnsupportedError(f"{type(model).__name__} has no static cache: use --cache dynamic")
    return StaticCache(config=model.config, max_cache_len=length)


def dynamic_caches(config: Any) -> Any:
    """An encoder-decoder model's empty dynamic cache, for self-attention and cross-attention."""
    from transformers import DynamicCache, EncoderDecoderCache

    return EncoderDecoderCache(DynamicCache(config=config), DynamicCache(config=config))


def last_logits_only(model: Any) -> dict[str, int]:
    """The argument for logits of only the last position, as in `generate`, since vocabularies are large."""
    return {"logits_to_keep": 1} if takes(model, "logits_to_keep") else {}


def start_token(model: Any) -> int:
    """The first id of a decoder. Raises UnsupportedError if the model has none."""
    for config in (model.generation_config, model.config):
        for name in ("decoder_start_token_id", "bos_token_id"):
            value = getattr(config, name, None)
            if isinstance(value, int):
                return value
    raise UnsupportedError("the configuration has neither decoder_start_token_id nor bos_token_id")


def takes(model: Any, argument: str) -> bool:
    """Whether the model's forward has this argument; for a compiled wrapper, the wrapped model's."""
    return argument in inspect.signature(getattr(model, "_orig_mod", model).forward).parameters


STATE_NAMES = ("cache", "cache_params", "state")
"""What forward and its output call the state of a recurrent model: Mamba's since transformers 5.24, before, RWKV's."""


def state_name(model: Any) -> str:
    """The name of a recurrent model's state, as an argument and in the output."""
    return next(name for name in STATE_NAMES if takes(model, name))


OUTPUT_NAMES = ("logits", "last_hidden_state")
"""Names of an output's main tensor, by its field in transformers' outputs."""


class ForwardPass(FamilyOperation):
    """`model(**inputs)`.

    No attention mask is passed, because nothing is padded. With scaled-dot-product attention transformers then uses the
    same kernel as for a mask of ones, which it drops after checking its values; on a GPU that check would wait for the
    device. With eager attention a mask of ones may become a bias that is added in every layer.
    """

    def __init__(self, model: Any, point: Point, inputs: Mapping[str, Any]) -> None:
        self.items_per_call = point.batch_size
        self.tokens_per_call: int | None = point.batch_size * (point.sequence_length or 0) or None
        self._model = model
        self._inputs = dict(inputs)

    def run(self, mark: Mark) -> Any:
        return self._model(**self._inputs)

    def tensors(self, output: Any) -> Mapping[str, Any]:
        """The tensors of an output that are checked and compared, by name."""
        return dict([main_tensor(output)])

    def problem(self, output: Any) -> str | None:
        problems = (non_finite(name, tensor) for name, tensor in self.tensors(output).items())
        return next((problem for problem in problems if problem is not None), None)

    def arrays(self, output: Any) -> dict[str, Any]:
        """The output on the host, as float32 numpy arrays by name."""
        return {name: host_array(tensor) for name, tensor in self.tensors(output).items()}


def floats_as(model: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs, floating-point ones in the dtype of the model's parameters, if it has any."""
    dtype = next((parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()), None)
    if dtype is None:
        return dict(inputs)
    return {name: value.to(dtype) if value.is_floating_point() else value for name, value in inputs.items()}


def main_tensor(output: Any) -> tuple[str, Any]:
    """The name and tensor of an output's logits, else of its hidden states."""
    for name in OUTPUT_NAMES:
        if getattr(output, name, None) is not None:
            return name, getattr(output, name)
    return "output", output[0] if isinstance(output, tuple | list) else output


def non_finite(name: str, tensor: Any) -> str | None:
    """None, or how much of a tensor is NaN or infinite."""
    values = _plain(tensor)
    finite = values.isfinite()
    if finite.all():
        return None
    return f"NaN or Inf in {name}: {values.numel() - int(finite.sum())} of {values.numel()} values"


def host_array(tensor: Any) -> Any:
    """A tensor as a float32 numpy array; complex numbers as their two parts."""
    values = _plain(tensor).detach()
    return (torch.view_as_real(values) if values.is_complex() else values).float().cpu().numpy()


def _plain(tensor: Any) -> Any:
    """A tensor's values in a dense tensor whose type torch computes with: those that a sparse or nested tensor stores,
    or that a quantized one stands for."""
    if tensor.layout == torch.sparse_coo:
        tensor = tensor._values()
    elif tensor.is_mkldnn:
        tensor = tensor.to_dense()
    elif tensor.layout != torch.strided or tensor.is_nested:
        tensor = tensor.values()
    if tensor.is_quantized:
        return tensor.dequantize()
    if tensor.is_floating_point() and tensor.element_size() == 1:
        return tensor.float()
    return tensor.resolve_conj().resolve_neg()
