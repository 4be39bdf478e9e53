"""The text that quality is measured on, as windows of a model's tokens.

A window is a context and the tokens after it, which are scored. It starts where the scored tokens of the window before
it start, so that each token of the text is scored at most once, with a context. Where the tokenizer begins a text with
a special token, every window does.

The text in the package (about 16 kB) is the beginnings of Pride and Prejudice (Jane Austen, 1813), Alice's Adventures
in Wonderland (Lewis Carroll, 1865), Moby-Dick (Herman Melville, 1851), A Tale of Two Cities (Charles Dickens, 1859), A
Scandal in Bohemia (Arthur Conan Doyle, 1891), the Declaration of Independence (1776) and The Time Machine (H. G. Wells,
1895), and the end of On the Origin of Species (Charles Darwin, 1872). All are in the public domain. Models have read
them, so the perplexity is lower than that of unknown text; the differences between runtimes are what counts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.quality import CONTEXT_TOKENS, SCORED_TOKENS, TEXT_WINDOWS, QualitySettings
from benchmarking.core.records import Json, Workload
from benchmarking.core.untrusted.input_files import open_regular, read_text
from benchmarking.workloads.support import processing
from benchmarking.workloads.support.questions import read_questions
from benchmarking.workloads.support.synthetic_inputs import vocabulary_size

if TYPE_CHECKING:
    import numpy as np

OWN_TEXT = "quality_text.txt"
MAX_TEXT_BYTES = 50_000_000
CHARACTERS_PER_TOKEN = 12
"""Characters of a long text that are tokenized at first, per token needed: three times as many as most need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextWindows:
    """Windows of a text."""

    tokens: np.ndarray
    """Windows x (context + scored) ids, int64."""
    scored: int
    digest: str
    """Of the windows: equal if they can be compared one by one."""
    how: dict[str, Json]
    """Text, windows, context, scored tokens, stride."""

    @property
    def context(self) -> int:
        """Tokens before the scored ones."""
        return int(self.tokens.shape[1]) - self.scored


def quality_settings(text: str | None, windows: int | None, file: str | None) -> QualitySettings:
    """The settings of the quality; None is the default. Raises UsageError for a text that cannot be read, and for a
    file without questions."""
    if text is not None:
        checked_text(text)
    if file is not None:
        read_questions(file)
    text, file = (None if path is None else str(Path(path).expanduser().absolute()) for path in (text, file))
    return QualitySettings(text=text, windows=TEXT_WINDOWS if windows is None else windows, file=file)


def checked_text(path: str | None) -> str:
    """The text of a file, or the package's for None. Raises UnreadableError, FormatError if it is not text, and
    UsageError if it is empty."""
    if path is None:
        return resources.files(__package__).joinpath(OWN_TEXT).read_text(encoding="utf-8")
    file = Path(path).expanduser()
    with open_regular(file):  # it is read again by other processes, which a pipe does not allow
        text = read_text(file, MAX_TEXT_BYTES)
    if not text.strip():
        raise UsageError(f"--quality-text {path} has no text")
    return text


def tokenizer_of(workload: Workload) -> Any:
    """The tokenizer in a model's folder or GGUF file. Raises UnsupportedError without one."""
    folder = None if workload.path is None else Path(workload.path)
    if folder is not None and workload.config.get("format") == "gguf":
        return processing.load(folder.parent, "text", folder.name)
    if folder is None or not folder.is_dir() or not processing.has_processor(folder, "text"):
        raise UnsupportedError("the model's folder has no tokenizer")
    return processing.load(folder, "text")


def text_windows(workload: Workload, settings: QualitySettings) -> TextWindows:
    """The windows of the text in a model's tokens. Raises UnsupportedError for a model without a tokenizer, and for a
    text of fewer tokens than a window."""
    tokenizer = tokenizer_of(workload)

    def encode(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    limit, size = workload.max_sequence_length, vocabulary_size(workload)
    return windows_of(encode, first_tokens(tokenizer), settings, limit=limit, vocabulary=size)


def windows_of(
    encode: Callable[[str], list[int]],
    prefix: Sequence[int],
    settings: QualitySettings,
    *,
    limit: int | None = None,
    vocabulary: int | None = None,
) -> TextWindows:
    """The windows of the text in the tokens of `encode`, each with `prefix` before it, for a model with `limit`
    positions and a `vocabulary` of that many ids. Raises UnsupportedError for a text of fewer tokens than a window."""
    import numpy as np

    text = checked_text(settings.text)
    context, scored = CONTEXT_TOKENS, SCORED_TOKENS
    while limit is not None and len(prefix) + context + scored > limit and scored > 1:
        context, scored = context // 2, scored // 2
    needed = context + settings.windows * scored
    ids = np.empty(0, dtype=np.int64)
    for beginning in (text[: needed * CHARACTERS_PER_TOKEN], text):
        if len(ids) < needed:
            ids = np.array(encode(beginning), dtype=np.int64)
    count = min(settings.windows, (len(ids) - context) // scored)
    if count < 1:
        raise UnsupportedError(f"the text has {len(ids)} tokens, and a window takes {context + scored}")
    if vocabulary is not None and (largest := int(ids.max())) >= vocabulary:
        raise UnsupportedError(f"the tokenizer makes id {largest}, but the model's vocabulary has {vocabulary} ids")
    rows = [[*prefix, *ids[start : start + context + scored]] for start in range(0, count * scored, scored)]
    tokens = np.array(rows, dtype=np.int64)
    how: dict[str, Json] = {
        "text": OWN_TEXT if settings.text is None else Path(settings.text).name,
        "text_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "windows": count,
        "context_tokens": context + len(prefix),
        "scored_tokens": scored,
        "stride": scored,
    }
    digest = hashlib.sha256(tokens.astype("<i8").tobytes() + str(scored).encode()).hexdigest()
    return TextWindows(tokens=tokens, scored=scored, digest=digest, how=how)


def first_tokens(tokenizer: Any) -> list[int]:
    """The special token with which the tokenizer begins a text; empty for most."""
    ids = list(tokenizer("", verbose=False)["input_ids"])
    return ids[:1] if ids and ids[0] == tokenizer.bos_token_id else []
