"""The answers of a loaded model to a user's questions (`benchmarking.workloads.support.questions`), by the logits that
it generates with.

    exact match       the greedy text after the prompt, until a stop text or the token that ends a text, is an expected
                      answer, both without the space around them
    choice accuracy   of the choices, the right one has the largest sum of ln q(t) over its tokens t after the prompt
                      (the first of equal ones is chosen), as acc of lm-evaluation-harness

Greedy text needs no call for each of its tokens: the expected answer is processed as if it had been generated, and as
long as its tokens are the likeliest ones, they are what the model generates. Where another token is likelier, it takes
its place, and what follows is asked again; once the text can no longer become an expected answer, it is wrong.

A question is a window: its score is 1 or 0.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from benchmarking.core.contracts import Operation, Session
from benchmarking.core.errors import always_after
from benchmarking.core.quality import MIN_WINDOWS, Quality, QualityValue
from benchmarking.core.records import TOO_FEW_SAMPLES, Json, Point, Workload, canonical_hash
from benchmarking.measure.quality_measures import log_softmax, share_value
from benchmarking.workloads.support.quality_inputs import first_tokens, tokenizer_of
from benchmarking.workloads.support.questions import QuestionFile, QuestionTokens, question_tokens
from benchmarking.workloads.support.synthetic_inputs import vocabulary_size

if TYPE_CHECKING:
    import numpy as np

MAX_S = 240.0
"""Time for the questions, after which the others are left out: with that for the text, less than a point may take."""
SIZE_STEP = 32
"""Prompts and answers are padded to multiples of this many tokens, since some runtimes compile for every size."""
MOST_NAMED = 20
"""Left-out lines that are stored with their reason; further ones are counted."""
DEFINITIONS: Mapping[str, str] = {
    "exact_match": "share of prompts whose greedy text, until a stop text, is an expected answer",
    "choice_accuracy": "share of prompts whose right choice has the largest sum of log-probabilities",
}
Predicted = Callable[[list[int], int, int], "np.ndarray"]
"""(tokens, start, count) -> log-probabilities (count x vocabulary) of the tokens at `start` and after it, by the tokens
before each of them."""


def question_point(workload: Workload, file: QuestionFile, step: int) -> Point:
    """The largest point of the calls that the questions need. Raises UnsupportedError if the model can take none of
    them."""
    tokens, _ = _tokens(workload, file)
    sizes = (call_size(len(one.prompt), one.most_new, step, workload.max_sequence_length) for one in tokens)
    context, scored = max(sizes, key=sum)
    return Point(batch_size=1, sequence_length=context, new_tokens=scored)


def call_size(start: int, count: int, step: int, limit: int | None) -> tuple[int, int]:
    """Context and scored tokens of a call that predicts `count` tokens after the first `start` ones: both multiples of
    `step` where the model has the positions."""
    context = max(1, start // step * step)
    scored = -(-(start + count - context) // step) * step
    return context, scored if limit is None else min(scored, limit - context)


def question_quality(session: Session, workload: Workload, file: QuestionFile, *, step: int = SIZE_STEP) -> Quality:
    """The scores of a loaded model. With a `step` of 1 no call is padded. Raises UnsupportedError if the runtime
    returns no probabilities, or the model has no tokenizer or can take no question."""
    questions, left_out = _tokens(workload, file)
    tokenizer = tokenizer_of(workload)
    of_model = workload.config.get("eos_token_id")
    ends = {tokenizer.eos_token_id, *(of_model if isinstance(of_model, list) else [of_model])}
    limit, begin_s = workload.max_sequence_length, time.perf_counter()
    operations = dict[tuple[int, int], Operation]()

    def close() -> None:
        while operations:
            operations.popitem()[1].close()

    def predicted(tokens: list[int], start: int, count: int) -> np.ndarray:
        import numpy as np

        context, scored = size = call_size(start, count, step, limit)
        if size not in operations:
            close()
            operations[size] = session.operation(Point(batch_size=1, sequence_length=context, new_tokens=scored))
        text = np.full(context + scored, tokens[-1], dtype=np.int64)  # what comes after a token does not change it
        text[: len(tokens)] = tokens[: len(text)]
        return log_softmax(operations[size].next_token_logits(text)[start - context : start - context + count])

    scores: dict[str, list[float]] = {metric: [] for metric in file.metrics}
    asked = 0
    with always_after(close):
        for index, one in enumerate(questions):
            if index >= MIN_WINDOWS and time.perf_counter() - begin_s > MAX_S:
                break
            if one.question.choices:
                is_right = chooses_right(one, predicted)
            else:
                longest = one.most_new if limit is None else min(one.most_new, limit - len(one.prompt))
                decode = lambda made: str(tokenizer.decode(made, skip_special_tokens=True))  # noqa: E731
                is_right = answers_exactly(one, longest, predicted, decode, ends)
            scores[one.question.metric].append(float(is_right))
            asked = index + 1
    for one in questions[asked:]:
        left_out[one.question.line] = f"not asked within {MAX_S:g} s"
    return _quality(file, questions, scores, left_out, time.perf_counter() - begin_s)


def _quality(
    file: QuestionFile,
    questions: Sequence[QuestionTokens],
    scores: Mapping[str, Sequence[float]],
    left_out: Mapping[int, str],
    seconds: float,
) -> Quality:
    values, missing = dict[str, QualityValue](), dict[str, str]()
    for metric, of_metric in scores.items():
        if not of_metric:
            missing[metric] = TOO_FEW_SAMPLES
            continue
        content = [one.question.content for one in questions if one.question.metric == metric]
        inputs = canonical_hash({"definition": DEFINITIONS[metric], "questions": content})
        value = share_value(of_metric, len(of_metric))
        values[metric] = QualityValue(
            value=value.value, low=value.low, high=value.high, by_window=value.by_window, inputs=inputs
        )
    named = sorted({**file.left_out, **left_out}.items())
    how: dict[str, Json] = {
        "file": file.name,
        "file_sha256": file.sha256,
        "counts": {metric: len(of_metric) for metric, of_metric in scores.items()},
        "definitions": {metric: DEFINITIONS[metric] for metric in scores},
        "left_out": {str(line): why for line, why in named[:MOST_NAMED]},
        "left_out_count": len(named),
        "seconds": seconds,
    }
    return Quality(inputs="", values=values, missing=missing, how={"questions": how})


def chooses_right(tokens: QuestionTokens, predicted: Predicted) -> bool:
    """Whether the right choice is the likeliest."""
    sums = []
    for choice in tokens.continuations:
        rows = predicted([*tokens.prompt, *choice], len(tokens.prompt), len(choice))
        sums.append(math.fsum(float(row[token]) for row, token in zip(rows, choice, strict=True)))
    chosen = max(range(len(sums)), key=sums.__getitem__)
    question = tokens.question
    return question.choices[chosen].strip() == question.answers[0]


def answers_exactly(
    tokens: QuestionTokens,
    longest: int,
    predicted: Predicted,
    decode: Callable[[Sequence[int]], str],
    ends: Collection[Any],
) -> bool:
    """Whether the greedy text is an expected answer; `longest` is how many tokens it may have."""
    question, made = tokens.question, list[int]()
    draft = list(tokens.continuations[0])
    while len(made) < longest:
        known = [*made, *draft][:longest]
        rows = predicted([*tokens.prompt, *known], len(tokens.prompt), longest)
        has_ended = False
        for position in range(len(made), longest):
            token = int(rows[position].argmax())
            if has_ended := token in ends:
                break
            made.append(token)
            if position >= len(known) or known[position] != token:
                break  # later rows follow another token
        text = decode(made).lstrip(" ")
        if cuts := [at for stop in question.stops if (at := text.find(stop)) >= 0]:
            text, has_ended = text[: min(cuts)], True
        if has_ended:
            return text.strip() in question.answers
        begun = text.lstrip().rstrip("\ufffd")  # part of a character
        if not any(may_become(begun, one, question.stops) for one in question.answers):
            return False
        draft = next((tail for tail in tokens.continuations if tail[: len(made)] == made), made)[len(made) :]
    return False


def may_become(text: str, answer: str, stops: Sequence[str]) -> bool:
    """Whether a text that has not ended is the beginning of an answer, or an answer with the beginning of a stop text
    after it."""
    if not text.startswith(answer):
        return answer.startswith(text)
    rest = text[len(answer) :]
    ends = range(len(rest) - len(rest.lstrip()) + 1)
    return any(stop.startswith(rest[end:]) for end in ends for stop in stops)


def _tokens(workload: Workload, file: QuestionFile) -> tuple[list[QuestionTokens], dict[int, str]]:
    tokenizer = tokenizer_of(workload)
    prefix = first_tokens(tokenizer)

    def encode(text: str) -> list[int]:
        return [*prefix, *tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]]

    return question_tokens(file.questions, encode, workload, vocabulary_size(workload))
