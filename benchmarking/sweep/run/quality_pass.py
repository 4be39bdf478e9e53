"""The quality of a loaded model, measured in the worker of a run's first launch after its last point, outside every
timed region; and the reference that it is compared with, made in the preparing process.

A text is scored as it would be generated: the context is the prompt, then each token of the text is one decode step, in
the runtime's own cache. Other tasks compare what one call returns for a batch of inputs.

A user's questions are answered by the logits that the model generates with:

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

import dataclasses
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarking.builds.store import BuildStore, model_parts
from benchmarking.core import plugins
from benchmarking.core.contracts import Operation, Session
from benchmarking.core.errors import BenchhouseError, UnsupportedError, always_after
from benchmarking.core.lazy_modules import np
from benchmarking.core.model_contracts import QualityKind
from benchmarking.core.quality import (
    MIN_WINDOWS,
    OF_QUESTIONS,
    QUALITY_METRICS,
    TEXT_WINDOWS,
    Quality,
    QualitySettings,
    QualityValue,
    without_quality,
)
from benchmarking.core.records import (
    FAILED,
    NOT_APPLICABLE,
    NOT_SUPPORTED,
    TOO_FEW_SAMPLES,
    Cell,
    Json,
    Point,
    Workload,
    canonical_hash,
)
from benchmarking.core.text import counted
from benchmarking.core.untrusted.redaction import cut_to
from benchmarking.measure.quality_measures import (
    OUTPUT_VALUES,
    WindowScores,
    log_softmax,
    share_value,
    text_values,
    token_values,
    window_scores,
)
from benchmarking.workloads.support import processing, synthetic_inputs
from benchmarking.workloads.support.families import family_named, plugin_of
from benchmarking.workloads.support.quality_inputs import (
    QuestionFile,
    QuestionTokens,
    first_tokens,
    question_tokens,
    read_questions,
    text_windows,
    tokenizer_of,
)
from benchmarking.workloads.support.synthetic_inputs import vocabulary_size

LOGITS = "logits.npy"
SIZE_STEP = 32
"""Prompts and answers are padded to multiples of this many tokens, since some runtimes compile for every size."""
KIND = "reference"
LATENT_OUTPUTS, OUTPUT_TOKENS, OUTPUT_LENGTH = 4, 32, 64
"""Inputs of diffusion by default, whose calls are slow, and the tokens that an input of other tasks generates or
holds."""
MAX_REASON = 300
"""Characters of an error that are kept as the reason."""
MAX_S = 300.0
"""Time for a text, after which its other windows are left out: some runtimes return probabilities slowly."""
METRICS_OF: Mapping[QualityKind, tuple[str, ...]] = {
    "text": ("perplexity", "perplexity_increase", "kl_divergence", "kl_divergence_p99", "top1_agreement"),
    "embeddings": ("embedding_cosine", "embedding_rank_correlation"),
    "labels": ("kl_divergence", "top1_agreement", "confidence_error"),
    "tokens": ("token_error_rate",),
    "latents": ("latent_error",),
}


def why_not_quality(workload: Workload) -> str | None:
    family = family_named(workload.family)
    if workload.weights == "random":
        return f"{NOT_APPLICABLE}: random weights have no quality"
    if workload.source == "module":
        return f"{NOT_SUPPORTED}: only of models with a name or folder"
    if family is None or family.quality_kind(workload) is None:
        return f"{NOT_SUPPORTED}: task {workload.task} has no measure of quality"
    return None


def kind_of(workload: Workload) -> QualityKind:
    """What a workload's quality is measured on, for one that has a quality."""
    kind = plugin_of(workload).quality_kind(workload)
    assert kind is not None
    return kind


def remark(workload: Workload, settings: QualitySettings) -> str | None:
    """What was asked of the quality that does not hold for this workload, or does otherwise; None if all holds."""
    if why_not_quality(workload) is not None or (kind := kind_of(workload)) == "text":
        return None
    rows = counted(quality_inputs(kind, settings), "input")
    asked = [f"--quality-{name}" for name in ("text", "file") if getattr(settings, name) is not None]
    if asked:
        return f"{' and '.join(asked)}: of text generation only; the quality of {workload.task} is measured on {rows}"
    if kind == "latents" and settings.windows == TEXT_WINDOWS:
        return f"the quality of {workload.task} is measured on {rows} (other numbers than {TEXT_WINDOWS} hold as given)"
    return None


def quality_inputs(kind: QualityKind, settings: QualitySettings) -> int:
    """The inputs on which the quality is measured, of another kind than text."""
    return LATENT_OUTPUTS if kind == "latents" and settings.windows == TEXT_WINDOWS else settings.windows


def quality_point(workload: Workload, settings: QualitySettings) -> Point:
    """The point of the calls by which quality is measured. Raises UnsupportedError if the model has no such point, or a
    text cannot be tokenized."""
    kind, family = kind_of(workload), plugin_of(workload)
    if kind == "text":
        windows = text_windows(workload, settings)
        return Point(batch_size=1, sequence_length=windows.context, new_tokens=windows.scored)
    hears = workload.path is not None and processing.has_processor(Path(workload.path), "audio")
    if kind == "tokens" and "audio" in family.modalities and not hears:
        raise UnsupportedError(
            "the model's folder has no processor (preprocessor_config.json), without which the sound would be noise"
        )
    axes = {name: values[0] for name, values in family.axes(workload).items()}
    if (length := axes.get("sequence_length")) is not None and family.modalities == ("text",):
        axes["sequence_length"] = min(length, OUTPUT_LENGTH)
    if "new_tokens" in axes:
        axes["new_tokens"] = OUTPUT_TOKENS
    fields = {name: int(axes.pop(name)) for name in ("sequence_length", "new_tokens") if name in axes}
    point = Point(batch_size=quality_inputs(kind, settings), **fields, axes=axes)
    if (problem := family.check(workload, point)) is not None:
        raise UnsupportedError(problem)
    return point


def quality_points(cell: Cell, settings: QualitySettings) -> tuple[Point, ...]:
    """The point of the quality, and the largest of the questions, unless their file is gone or the model can take none
    of them: they then have that reason. Raises what `quality_point` raises."""
    point, workload = quality_point(cell.workload, settings), cell.workload
    if settings.file is None or kind_of(workload) != "text":
        return (point,)
    try:
        tokens, _ = _tokens(workload, read_questions(settings.file))
        step, limit = size_step(cell), workload.max_sequence_length
        context, scored = max((call_size(len(one.prompt), one.most_new, step, limit) for one in tokens), key=sum)
        return point, Point(batch_size=1, sequence_length=context, new_tokens=scored)
    except Exception:  # noqa: BLE001 - whatever a tokenizer raises costs the scores, not the build
        return (point,)


def measured_quality(
    session: Session,
    workload: Workload,
    settings: QualitySettings,
    reference: str | None,
    why_no_reference: str | None,
    step: int = SIZE_STEP,
) -> Quality:
    """The quality of a loaded model. `reference` is the digest of the reference, None without one; `step` as in
    `size_step`. Whatever goes wrong becomes the reason of missing values."""
    kind = kind_of(workload)
    try:
        if kind == "text":
            found = _text_quality(session, workload, settings, reference, why_no_reference)
        else:
            found = _output_quality(session, workload, settings, kind, reference, why_no_reference)
    except Exception as error:  # noqa: BLE001 - whatever a runtime raises costs the quality, not the measured points
        found = left_out(workload, error)
    if settings.file is None:
        return found
    metrics = OF_QUESTIONS
    try:
        file = read_questions(settings.file)
        metrics = file.metrics
        if kind != "text":
            raise UnsupportedError(f"task {workload.task} does not continue a text")
        scored = question_quality(session, workload, file, step=step)
    except Exception as error:  # noqa: BLE001 - as above
        scored = without_quality(_reason(error), metrics)
    return dataclasses.replace(
        found,
        values={**found.values, **scored.values},
        missing={**found.missing, **scored.missing},
        how={**found.how, **scored.how},
    )


def left_out(workload: Workload, error: Exception) -> Quality:
    """A quality without values, because of an error."""
    return without_quality(_reason(error), METRICS_OF[kind_of(workload)])


def _reason(error: Exception) -> str:
    text = cut_to(" ".join(str(error).split()), MAX_REASON)
    kind = NOT_SUPPORTED if isinstance(error, UnsupportedError) else FAILED
    name = "" if isinstance(error, BenchhouseError) else f"{type(error).__name__}: "
    return f"{kind}: {name}{text}"


def _text_quality(
    session: Session, workload: Workload, settings: QualitySettings, reference: str | None, why_no_reference: str | None
) -> Quality:
    windows = text_windows(workload, settings)
    expected: np.ndarray | None = None
    if reference is not None:
        expected = np.load(BuildStore().root / KIND / reference / LOGITS, mmap_mode="r", allow_pickle=False)
    operation = session.operation(Point(batch_size=1, sequence_length=windows.context, new_tokens=windows.scored))
    begin_s, scores = time.perf_counter(), list[WindowScores]()
    with always_after(operation.close):
        for index, window in enumerate(windows.tokens):
            spent_s = time.perf_counter() - begin_s
            if index >= MIN_WINDOWS and spent_s * (index + 1) / index > MAX_S:
                break
            logits = operation.next_token_logits(window)
            tokens = window[-windows.scored :]
            scores.append(window_scores(logits, tokens, None if expected is None else expected[index]))
    how: dict[str, Json] = {
        "kind": "text",
        **windows.how,
        "windows": len(scores),
        "windows_planned": len(windows.tokens),
        "seconds": time.perf_counter() - begin_s,
    }
    return _quality("text", text_values(scores), windows.digest, how, why_no_reference)


def _output_quality(
    session: Session,
    workload: Workload,
    settings: QualitySettings,
    kind: QualityKind,
    reference: str | None,
    why_no_reference: str | None,
) -> Quality:
    from benchmarking.sweep.run.reference import load_reference

    if reference is None:
        return without_quality(why_no_reference or FAILED, METRICS_OF[kind])
    point = quality_point(workload, settings)
    operation = session.operation(point)
    begin_s = time.perf_counter()
    with always_after(operation.close):
        operation.reset()
        output = operation.run(lambda name: None)
        if (problem := operation.problem(output)) is not None:
            raise BenchhouseError(f"the output is invalid: {problem}")
        arrays = operation.arrays(output)
    expected = load_reference(BuildStore(), reference)
    name = "tokens" if kind == "tokens" else next((name for name in expected if name != "tokens"), "")
    if name not in arrays or name not in expected:
        raise UnsupportedError("the call returns nothing that can be compared")
    got, wanted = arrays[name], expected[name]
    if got.shape != wanted.shape:
        raise BenchhouseError(f"{name} has shape {got.shape}, the reference's {wanted.shape}")
    if kind == "embeddings":  # the mean over an input's positions, of inputs x positions x width; pooled ones stay
        got, wanted = (states.reshape(len(states), -1, states.shape[-1]).mean(axis=1) for states in (got, wanted))
    how: dict[str, Json] = {
        "kind": kind,
        "windows": len(got),
        "point": point.label,
        "seconds": time.perf_counter() - begin_s,
    }
    is_text = kind == "tokens"
    values = token_values(got, wanted, end_tokens(workload.config)) if is_text else OUTPUT_VALUES[kind](got, wanted)
    return _quality(kind, values, inputs_of(workload, kind, point), how, None)


def inputs_of(workload: Workload, kind: QualityKind, point: Point) -> str:
    """The digest of what the quality of outputs is measured on: equal if they can be compared one by one."""
    parts: dict[str, Json] = {**model_parts(workload), "point": point.label}
    if "audio" in plugin_of(workload).modalities:
        parts["sound"] = synthetic_inputs.speech_digest()
    if kind == "tokens":
        parts["counted"] = "to the end of the text"  # not compared with those that counted what follows it, too
    return canonical_hash(parts)


def end_tokens(config: Mapping[str, Json]) -> frozenset[int]:
    """The tokens that end a text, by a model's configuration or that of one of its parts. Decoders with BERT's
    vocabulary (BLIP) end with its separator, whatever else `eos_token_id` says."""
    parts = [config, *(part for part in config.values() if isinstance(part, dict))]
    found = [part.get(name) for part in parts for name in ("eos_token_id", "sep_token_id")]
    return frozenset(one for ids in found for one in (ids if isinstance(ids, list) else [ids]) if isinstance(one, int))


def _quality(
    kind: QualityKind,
    found: Mapping[str, QualityValue],
    inputs: str,
    how: Mapping[str, Json],
    why_no_reference: str | None,
) -> Quality:
    """The record of what was found; infinite values are missing."""
    values = {
        name: dataclasses.replace(one, by_window=one.by_window if all(map(math.isfinite, one.by_window)) else ())
        for name, one in found.items()
        if math.isfinite(one.value)
    }
    missing: dict[str, str] = {}
    for name in METRICS_OF[kind]:
        if name in values:
            continue
        if name in found and math.isnan(found[name].value):
            missing[name] = f"{NOT_APPLICABLE}: all similarities are equal"
        elif name in found:
            missing[name] = f"{NOT_SUPPORTED}: infinite, since an expected token has a probability of 0"
        elif QUALITY_METRICS[name].needs_reference and why_no_reference is not None:
            missing[name] = why_no_reference
        else:
            missing[name] = TOO_FEW_SAMPLES
    return Quality(inputs=inputs, values=values, missing=missing, how=how)


def size_step(cell: Cell) -> int:
    """What the lengths of the questions' calls are multiples of: 1 in an engine, which takes any."""
    return 1 if plugins.runtime(cell.runtime).opens_for_points else SIZE_STEP


QUESTIONS_MAX_S = 240.0
"""Time for the questions, after which the others are left out: with that for the text, less than a point may take."""
MOST_NAMED = 20
"""Left-out lines that are stored with their reason; further ones are counted."""
DEFINITIONS: Mapping[str, str] = {
    "exact_match": "share of prompts whose greedy text, until a stop text, is an expected answer",
    "choice_accuracy": "share of prompts whose right choice has the largest sum of log-probabilities",
}
Predicted = Callable[[list[int], int, int], "np.ndarray"]
"""(tokens, start, count) -> log-probabilities (count x vocabulary) of the tokens at `start` and after it, by the tokens
before each of them."""


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
            if index >= MIN_WINDOWS and time.perf_counter() - begin_s > QUESTIONS_MAX_S:
                break
            if one.question.choices:
                sums = []
                for choice in one.continuations:
                    rows = predicted([*one.prompt, *choice], len(one.prompt), len(choice))
                    sums.append(math.fsum(float(row[token]) for row, token in zip(rows, choice, strict=True)))
                chosen = max(range(len(sums)), key=sums.__getitem__)
                is_right = one.question.choices[chosen].strip() == one.question.answers[0]
            else:
                longest = one.most_new if limit is None else min(one.most_new, limit - len(one.prompt))
                decode = lambda made: str(tokenizer.decode(made, skip_special_tokens=True))  # noqa: E731
                is_right = answers_exactly(one, longest, predicted, decode, ends)
            scores[one.question.metric].append(float(is_right))
            asked = index + 1
    for one in questions[asked:]:
        left_out[one.question.line] = f"not asked within {QUESTIONS_MAX_S:g} s"
    seconds = time.perf_counter() - begin_s
    values = dict[str, QualityValue]()
    for metric, of_metric in scores.items():
        content = [one.question.content for one in questions if one.question.metric == metric]
        inputs = canonical_hash({"definition": DEFINITIONS[metric], "questions": content})
        if of_metric:
            values[metric] = dataclasses.replace(share_value(of_metric, len(of_metric)), inputs=inputs)
    missing = {metric: TOO_FEW_SAMPLES for metric in scores if metric not in values}
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
        if not any(may_become(begun, answer, question.stops) for answer in question.answers):
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
