"""Batches of real text that a tokenizer turns into exactly as many ids as a point asks for."""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarking.workloads._text_source import passage

if TYPE_CHECKING:
    import numpy as np

MOST_WORDS_PER_TOKEN = 4
"""Where a passage of this many words a token still gives too few tokens, the tokenizer cannot read the text."""


class UnsuitableError(Exception):
    """A tokenizer or processor cannot make what a point asks; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextBatch:
    """Texts that give exactly `length` tokens each, special ones among them, with at most one word cut off."""

    tokenizer: Any
    texts: tuple[str, ...]
    length: int

    def encode(self) -> np.ndarray:
        """Token ids, int64 of shape (rows, length): the texts tokenized, cut to the length and put into an array."""
        import numpy as np

        return np.array(_ids(self.tokenizer, list(self.texts), self.length), dtype=np.int64)


def text_batch(tokenizer: Any, rows: int, length: int) -> TextBatch:
    """A batch whose rows differ. Raises UnsuitableError when the tokenizer's special tokens leave no room for text, or
    it makes too few tokens of any text."""
    special = tokenizer.num_special_tokens_to_add()
    if length <= special:
        raise UnsuitableError(f"{length} tokens leave no room for text beside the tokenizer's {special} special ones")
    texts = tuple(passage(row, _words_needed(tokenizer, row, length)) for row in range(rows))
    return TextBatch(tokenizer=tokenizer, texts=texts, length=length)


def _words_needed(tokenizer: Any, row: int, length: int) -> int:
    """The fewest words of a row's text that give `length` tokens. Text much longer would be tokenized to be cut off,
    and the time for it would be counted."""

    def is_enough(words: int) -> bool:
        (ids,) = _ids(tokenizer, [passage(row, words)], length)
        return len(ids) == length

    most = next((length * factor for factor in (1, MOST_WORDS_PER_TOKEN) if is_enough(length * factor)), None)
    if most is None:
        raise UnsuitableError(f"{MOST_WORDS_PER_TOKEN * length} words give the tokenizer fewer than {length} tokens")
    return bisect.bisect_left(range(most), True, key=is_enough)


def _ids(tokenizer: Any, texts: list[str], length: int) -> list[list[int]]:
    """The ids of each text, `length` at most, special ones where the tokenizer puts them."""
    encoded = tokenizer(
        texts, truncation=True, max_length=length, padding=False, return_attention_mask=False, verbose=False
    )
    ids: list[list[int]] = encoded["input_ids"]
    return ids
