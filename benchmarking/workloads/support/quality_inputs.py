"""What quality is measured on: a text, as windows of a model's tokens, or the questions of a user's file.

A window is a context and the tokens after it, which are scored. It starts where the scored tokens of the window before
it start, so that each token of the text is scored at most once, with a context. Where the tokenizer begins a text with
a special token, every window does.

The text in the package (about 16 kB) is the beginnings of Pride and Prejudice (Jane Austen, 1813), Alice's Adventures
in Wonderland (Lewis Carroll, 1865), Moby-Dick (Herman Melville, 1851), A Tale of Two Cities (Charles Dickens, 1859), A
Scandal in Bohemia (Arthur Conan Doyle, 1891), the Declaration of Independence (1776) and The Time Machine (H. G. Wells,
1895), and the end of On the Origin of Species (Charles Darwin, 1872). All are in the public domain. Models have read
them, so the perplexity is lower than that of unknown text; the differences between runtimes are what counts.

Questions are a user's own task: a file of prompts with expected answers, one JSON object a line.

    {"prompt": "The capital of France is", "answer": "Paris"}
    {"prompt": "2 + 2 =", "answer": ["4", "four"], "stop": ["\\n", "."]}
    {"prompt": "Water freezes at", "choices": ["0 °C", "50 °C", "90 °C"], "answer": 0}

With choices, the answer is the index of the right one, its text, or a letter (B is the second); without, the text that
the model has to generate, or several that are all right. A line that is no such question is left out and named by its
number; nothing that a line contains is repeated.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from benchmarking.core.codec import is_whole
from benchmarking.core.errors import FormatError, UnsupportedError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import np
from benchmarking.core.quality import CONTEXT_TOKENS, SCORED_TOKENS, TEXT_WINDOWS, QualitySettings
from benchmarking.core.records import Json, Workload
from benchmarking.core.text import listed
from benchmarking.core.untrusted.input_files import open_regular, parse_json, read_text
from benchmarking.workloads.support import processing
from benchmarking.workloads.support.synthetic_inputs import vocabulary_size

MAX_BYTES = 50_000_000
MAX_LINES = 20_000
MAX_LINE_BYTES = 1_000_000
MAX_CHOICES = 100
MAX_TEXTS = 1000
"""Right answers of a question, and its texts of stop."""
DEFAULT_STOP = "\n"
"""Where a generated answer ends, besides the token that ends a text."""
PROMPTS = ("prompt", "question", "input")
ANSWERS = ("answer", "expected", "target")
"""Names of the fields; the first that a line has counts."""
MORE_TOKENS = 8
"""Tokens that an answer may take beyond those of the expected one: for its end, and for other tokens of the same
text."""
MAX_ANSWER_TOKENS = 1024
"""Tokens of a choice or an answer: a call returns a number for each of them and each token of the vocabulary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A line of the file."""

    line: int
    prompt: str
    answers: tuple[str, ...]
    """Texts without space around them, each of which is right; with choices the one that is."""
    choices: tuple[str, ...] = ()
    stops: tuple[str, ...] = (DEFAULT_STOP,)

    @property
    def metric(self) -> str:
        """The measure of quality that it counts for."""
        return "choice_accuracy" if self.choices else "exact_match"

    @property
    def content(self) -> Json:
        """What two files must have in common for their scores to be comparable."""
        return [self.prompt, list(self.answers), list(self.choices), list(self.stops)]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionFile:
    name: str
    sha256: str
    questions: tuple[Question, ...]
    left_out: Mapping[int, str]
    """Number of a line -> why it is no question."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """The measures of quality that it has questions for."""
        return tuple(dict.fromkeys(sorted((question.metric for question in self.questions), reverse=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionTokens:
    question: Question
    prompt: list[int]
    continuations: tuple[list[int], ...]
    """The tokens after the prompt, of each choice or each right answer."""

    @property
    def most_new(self) -> int:
        """Tokens after the prompt that are looked at, at most."""
        longest = max(map(len, self.continuations))
        return longest if self.question.choices else longest + MORE_TOKENS


def read_questions(path: str) -> QuestionFile:
    """The questions of a file. Raises UnreadableError, FormatError for one that is too large, and UsageError if no line
    is a question."""
    file = Path(os.path.expanduser(path))
    with open_regular(file) as opened:
        content = opened.read(min(os.fstat(opened.fileno()).st_size, MAX_BYTES) + 1)
    lines = content.removeprefix(b"\xef\xbb\xbf").rstrip().split(b"\n")
    if len(content) > MAX_BYTES or len(lines) > MAX_LINES:
        raise FormatError(f"{path}: larger than {MAX_BYTES / 1e6:g} MB or {MAX_LINES} lines")
    questions, left_out = list[Question](), dict[int, str]()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            if len(line) > MAX_LINE_BYTES:
                raise FormatError(f"longer than {MAX_LINE_BYTES / 1e6:g} MB")
            questions.append(_question(parse_json(line, "the line"), number))
        except FormatError as error:
            left_out[number] = str(error).removeprefix("the line: ")
    if not questions:
        why = listed([f"line {number}: {reason}" for number, reason in left_out.items()], 1, "; ") or "it is empty"
        raise UsageError(f"--quality-file {path} has no question: {why}")
    return QuestionFile(
        name=file.name, sha256=hashlib.sha256(content).hexdigest(), questions=tuple(questions), left_out=left_out
    )


def _question(value: Any, number: int) -> Question:
    """The question of a line. Raises FormatError without repeating anything of it."""
    if not isinstance(value, dict):
        raise FormatError("not an object")
    prompt = next((value[name] for name in PROMPTS if name in value), None)
    answer = next((value[name] for name in ANSWERS if name in value), None)
    if not isinstance(prompt, str) or not prompt.strip():
        raise FormatError(f"no text in {' or '.join(PROMPTS)}")
    if answer is None:
        raise FormatError(f"no {' or '.join(ANSWERS)}")
    if (choices := value.get("choices")) is not None:
        if not _are_texts(choices) or not 2 <= len(choices) <= MAX_CHOICES:
            raise FormatError(f"choices is not a list of 2 to {MAX_CHOICES} texts")
        texts = [choice.strip() for choice in choices]
        if len(set(texts)) < len(texts):
            raise FormatError("two choices are the same")
        right = _index(answer, texts)
        return Question(line=number, prompt=prompt, answers=(texts[right],), choices=tuple(choices))
    stops = value.get("stop", [DEFAULT_STOP])
    stops = [stops] if isinstance(stops, str) else stops
    if not isinstance(stops, list) or not all(isinstance(one, str) and one for one in stops):
        raise FormatError("stop is not a text or a list of texts")
    answers = [answer] if isinstance(answer, str) else answer
    if not _are_texts(answers) or not answers:
        raise FormatError("the answer is not a text or a list of texts")
    if max(len(stops), len(answers)) > MAX_TEXTS:
        raise FormatError(f"more than {MAX_TEXTS} texts in stop or in the answer")
    texts = [one.strip() for one in answers]
    if any(stop in text for stop in stops for text in texts):
        raise FormatError("a text of stop is in the answer, which could never be generated")
    return Question(line=number, prompt=prompt, answers=tuple(dict.fromkeys(texts)), stops=tuple(stops))


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) and one.strip() for one in value)


def _index(answer: Any, choices: Sequence[str]) -> int:
    """The index of the right choice. Raises FormatError."""
    if isinstance(answer, str):
        if answer.strip() in choices:
            return choices.index(answer.strip())
        answer = ord(answer) - ord("A") if len(answer) == 1 and "A" <= answer <= "Z" else None
    if not is_whole(answer) or not 0 <= answer < len(choices):
        raise FormatError("the answer is not one of the choices, its index from 0, or its letter")
    return answer


def question_tokens(
    questions: Sequence[Question], encode: Callable[[str], list[int]], workload: Workload, vocabulary: int | None
) -> tuple[list[QuestionTokens], dict[int, str]]:
    """The questions in a model's tokens, and the lines that the model cannot take, with the reason. `encode` makes the
    tokens of a text, with the one that begins it. Raises UnsupportedError if no question is left.

    A space stands between a prompt and what follows, unless one of them has a white space there. At the border two
    tokens may become one: what follows are the tokens of both together after those that they share with the prompt's.
    """
    found, left_out = list[QuestionTokens](), dict[int, str]()
    limit = workload.max_sequence_length
    for question in questions:
        lead = question.prompt.rstrip(" ")
        prompt = encode(lead)
        if limit is not None and len(prompt) > 2 * limit:  # the choices, each after the prompt, would take long
            left_out[question.line] = f"{len(prompt)} tokens, of which the model takes {limit}"
            continue
        wholes = [
            encode(f"{lead}{'' if lead[-1:].isspace() or text[:1].isspace() else ' '}{text}")
            for text in question.choices or question.answers
        ]
        shared = [_shared(prompt, whole) for whole in wholes]
        if question.choices:  # all are scored from the same token on
            prompt, shared = prompt[: min(shared)], [min(shared)] * len(shared)
        tails = tuple(whole[start:] for whole, start in zip(wholes, shared, strict=True))
        tokens = QuestionTokens(question=question, prompt=prompt, continuations=tails)
        longest = max(map(len, tokens.continuations))
        total = len(prompt) + longest
        largest = max((token for whole in wholes for token in whole), default=0)
        if not prompt or not all(tokens.continuations):
            left_out[question.line] = "the tokenizer makes no tokens of its own of the prompt or of an answer"
        elif limit is not None and total > limit:
            left_out[question.line] = f"{total} tokens, of which the model takes {limit}"
        elif longest > MAX_ANSWER_TOKENS:
            left_out[question.line] = f"an answer of {longest} tokens, more than {MAX_ANSWER_TOKENS}"
        elif vocabulary is not None and largest >= vocabulary:
            left_out[question.line] = (
                f"the tokenizer makes id {largest}, but the model's vocabulary has {vocabulary} ids"
            )
        else:
            found.append(tokens)
    if not found:
        raise UnsupportedError(next(iter(left_out.values())))
    return found, left_out


def _shared(tokens: Sequence[int], others: Sequence[int]) -> int:
    """How many tokens both begin with."""
    pairs = zip(tokens, others, strict=False)
    return next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(tokens), len(others)))


OWN_TEXT = "quality_text.txt"
MAX_TEXT_BYTES = 50_000_000
CHARACTERS_PER_TOKEN = 12
"""Characters of a long text that are tokenized at first, per token needed: three times as many as most need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextWindows:
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
    text, file = (None if path is None else str(Path(os.path.expanduser(path)).absolute()) for path in (text, file))
    return QualitySettings(text=text, windows=TEXT_WINDOWS if windows is None else windows, file=file)


def checked_text(path: str | None) -> str:
    """The text of a file, or the package's for None. Raises UnreadableError, FormatError if it is not text, and
    UsageError if it is empty."""
    if path is None:
        return resources.files(__package__).joinpath(OWN_TEXT).read_text(encoding="utf-8")
    file = Path(os.path.expanduser(path))
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
