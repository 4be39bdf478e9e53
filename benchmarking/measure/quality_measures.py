"""Measures of quality from logits and outputs: perplexity, divergence from the reference, agreement, with intervals.

With q the model's distribution of the next token after a position, p the reference's, and t the token that follows:

    perplexity           exp(mean of -ln q(t))
    perplexity increase  exp(mean of ln p(t) - ln q(t)) - 1, in %: both models on the same tokens
    KL divergence        sum over tokens of p (ln p - ln q), in nats: its mean and its 99th percentile over positions
    top-1 agreement      share of positions at which both have the same most likely token
    cosine               x.y / (||x|| ||y||) of an embedding x and the reference's y, mean over inputs
    rank correlation     Spearman's, of the similarities of all pairs of inputs with those of the reference
    confidence error     mean |q(c) - p(c)|, with c the reference's first choice
    token error rate     edit distance of the tokens from the reference's, relative to the reference's length; both
                         up to the token that ends a text, after which a model that goes on generates anything
    latent error         ||y - x|| / ||x||

Logarithms are of a softmax in float64, with the maximum taken out first: a sum over 100 000 probabilities in float32
would be off by more than the divergence of a good quantization.

Intervals are 95 %, with windows as units, since neighbouring tokens depend on each other: Student's t over the windows'
means; for percentiles and correlations the percentile bootstrap over windows (seeded). A share is also never surer than
its tokens would allow if they were independent (Clopper and Pearson): equality in all windows does not prove equality
everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from statistics import fmean, stdev

from benchmarking.core.errors import BenchhouseError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import np
from benchmarking.core.quality import CONFIDENCE, MIN_WINDOWS, QualityValue
from benchmarking.core.sample_statistics import exact_share_interval
from benchmarking.core.student_t import quantile

RESAMPLES = 2000
SEED = 0
MAX_EXPONENT = 680.0
"""Logarithm whose exponential, and a hundred times it, still are values of a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowScores:
    """A window of a text: one value per scored token."""

    surprise: np.ndarray
    """-ln q of the token that follows."""
    reference_surprise: np.ndarray | None = None
    divergence: np.ndarray | None = None
    """KL divergence from the reference; None without one."""
    agrees: np.ndarray | None = None
    """Whether the most likely tokens are equal."""


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """ln of the softmax over the last axis, in float64. Raises BenchhouseError for NaN, and if all logits of a position
    are -inf; single ones may be (a masked token)."""
    values = np.asarray(logits, dtype=np.float64)
    largest = values.max(axis=-1, keepdims=True)
    if not np.isfinite(largest).all() or np.isnan(values).any():
        raise BenchhouseError("the logits contain NaN or Inf")
    shifted = values - largest
    result: np.ndarray = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


def window_scores(logits: np.ndarray, tokens: np.ndarray, reference: np.ndarray | None = None) -> WindowScores:
    """The scores of a window. `logits` and `reference` are positions x vocabulary, `tokens` the token that follows each
    position. Raises BenchhouseError for NaN, and for another vocabulary than the reference's."""
    if reference is not None and reference.shape != logits.shape:
        raise BenchhouseError(
            f"the logits are of {logits.shape[0]} positions and {logits.shape[1]} tokens, the reference's of "
            f"{reference.shape[0]} and {reference.shape[1]}"
        )
    at = (np.arange(len(tokens)), tokens)
    log_q = log_softmax(logits)
    if reference is None:
        return WindowScores(surprise=-log_q[at])
    log_p = log_softmax(reference)
    with np.errstate(invalid="ignore"):  # a token with probability 0 adds nothing, although its logarithms are infinite
        terms = np.where(log_p > -np.inf, np.exp(log_p) * (log_p - log_q), 0.0)
    return WindowScores(
        surprise=-log_q[at],
        reference_surprise=-log_p[at],
        divergence=np.maximum(terms.sum(axis=-1), 0.0),  # rounding may leave -1e-17
        agrees=log_p.argmax(axis=-1) == log_q.argmax(axis=-1),
    )


def text_values(windows: Sequence[WindowScores]) -> dict[str, QualityValue]:
    """The measures of a text. They are infinite if a token that follows is impossible to the model."""
    surprises = [float(window.surprise.mean()) for window in windows]
    found = {"perplexity": _exponential(surprises)}
    if all(window.divergence is not None for window in windows):
        divergence = [window.divergence for window in windows if window.divergence is not None]
        before = [
            float(window.reference_surprise.mean()) for window in windows if window.reference_surprise is not None
        ]
        shares = [float(window.agrees.mean()) for window in windows if window.agrees is not None]
        differences = [after - reference for after, reference in zip(surprises, before, strict=True)]
        increase = _exponential(differences)
        found |= {
            "perplexity_increase": QualityValue(
                value=100 * (increase.value - 1),
                low=None if increase.low is None else 100 * (increase.low - 1),
                high=None if increase.high is None else 100 * (increase.high - 1),
                by_window=tuple(100 * math.expm1(min(difference, MAX_EXPONENT)) for difference in differences),
            ),
            "kl_divergence": mean_value([float(one.mean()) for one in divergence], least=0.0),
            "kl_divergence_p99": resampled_value(divergence, lambda chosen: _p99(np.concatenate(chosen))),
            "top1_agreement": share_value(shares, sum(len(window.surprise) for window in windows)),
        }
    return found


def _p99(values: np.ndarray) -> float:
    """The 99th percentile; between infinite values there is nothing to interpolate."""
    return float(np.percentile(values, 99, method="linear" if np.isfinite(values).all() else "higher"))


def mean_value(by_window: Sequence[float], *, least: float = -math.inf, most: float = math.inf) -> QualityValue:
    """The mean over windows, with Student's t interval, limited to the possible values."""
    value = fmean(by_window)
    if len(by_window) < MIN_WINDOWS or not math.isfinite(value):
        return QualityValue(value=value, by_window=tuple(by_window))
    half = quantile(0.5 + CONFIDENCE / 2, len(by_window) - 1) * stdev(by_window) / math.sqrt(len(by_window))
    low, high = max(least, value - half), min(most, value + half)
    return QualityValue(value=value, low=low, high=high, by_window=tuple(by_window))


def share_value(by_window: Sequence[float], count: int) -> QualityValue:
    """A share of `count` tokens or inputs: its mean over windows, with the wider of the intervals from windows and from
    independent tokens."""
    found = mean_value(by_window, least=0.0, most=1.0)
    if found.low is None or found.high is None:
        return found
    low, high = exact_share_interval(round(found.value * count), count)
    return QualityValue(
        value=found.value, low=min(found.low, low), high=max(found.high, high), by_window=found.by_window
    )


def resampled_value(windows: Sequence[np.ndarray], statistic: Callable[[Sequence[np.ndarray]], float]) -> QualityValue:
    """A statistic of the values of all windows, with the percentile bootstrap over windows."""
    value = statistic(windows)
    if len(windows) < MIN_WINDOWS or not math.isfinite(value):
        return QualityValue(value=value)
    generator = np.random.default_rng(SEED)
    choices = generator.integers(0, len(windows), size=(RESAMPLES, len(windows)))
    found = [statistic([windows[index] for index in row]) for row in choices]
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.nanpercentile(found, [tail, 100 - tail])
    return QualityValue(value=value, low=min(value, float(low)), high=max(value, float(high)))


def _exponential(logarithms: Sequence[float]) -> QualityValue:
    """exp of the mean of logarithms, infinite if it is larger than a record can hold; and of the ends of its interval
    and the windows, which stop there."""

    def safe_exp(value: float) -> float:
        return math.exp(min(value, MAX_EXPONENT))

    found = mean_value(logarithms)
    return QualityValue(
        value=safe_exp(found.value) if found.value < MAX_EXPONENT else math.inf,
        low=None if found.low is None else safe_exp(found.low),
        high=None if found.high is None else safe_exp(found.high),
        by_window=tuple(map(safe_exp, found.by_window)),
    )


def embedding_values(output: np.ndarray, reference: np.ndarray) -> dict[str, QualityValue]:
    """The measures of embeddings, inputs x width, of which each input is a window. Raises BenchhouseError for NaN."""
    x, y = unit_rows(reference), unit_rows(output)
    cosines = [float(value) for value in (x * y).sum(axis=1)]
    found = {"embedding_cosine": mean_value(cosines, least=-1.0, most=1.0)}
    if len(x) < MIN_WINDOWS:
        return found
    pairs_of_reference, pairs = x @ x.T, y @ y.T

    def correlation(chosen: Sequence[np.ndarray]) -> float:
        rows = np.unique(np.concatenate(chosen))  # an input paired with itself would correlate perfectly
        above = np.triu_indices(len(rows), k=1)
        grid = np.ix_(rows, rows)
        return rank_correlation(pairs_of_reference[grid][above], pairs[grid][above])

    inputs = [np.array([index]) for index in range(len(x))]
    return found | {"embedding_rank_correlation": resampled_value(inputs, correlation)}


def unit_rows(rows: np.ndarray) -> np.ndarray:
    """The rows in float64 and of length 1; a row of zeros stays. Raises BenchhouseError for NaN."""
    values = np.asarray(rows, dtype=np.float64)
    if not np.isfinite(values).all():
        raise BenchhouseError("the output contains NaN or Inf")
    lengths = np.linalg.norm(values, axis=1, keepdims=True)
    result: np.ndarray = values / np.where(lengths > 0, lengths, 1.0)
    return result


def rank_correlation(x: np.ndarray, y: np.ndarray) -> float:
    """Spearman's rank correlation, with mean ranks for equal values; NaN if all values of one are equal."""

    def ranks(values: np.ndarray) -> np.ndarray:
        _, index, counts = np.unique(values, return_inverse=True, return_counts=True)
        ends = counts.cumsum()
        middle: np.ndarray = (ends - (counts - 1) / 2)[index]
        return middle

    a, b = ranks(x) - (len(x) + 1) / 2, ranks(y) - (len(y) + 1) / 2
    length = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / length if length > 0 else math.nan


def label_values(output: np.ndarray, reference: np.ndarray) -> dict[str, QualityValue]:
    """The measures of logits of labels, inputs x labels (or the last axis, after any others), of which each input is a
    window. Raises BenchhouseError for NaN."""
    log_q, log_p = log_softmax(output), log_softmax(reference)
    q, p = np.exp(log_q), np.exp(log_p)
    terms = np.where(log_p > -np.inf, p * (log_p - np.where(log_q > -np.inf, log_q, -1e300)), 0.0).sum(axis=-1)
    first, others = log_p.argmax(axis=-1), tuple(range(1, log_p.ndim - 1))
    agrees = first == log_q.argmax(axis=-1)
    chosen = np.expand_dims(first, -1)
    apart = np.abs(np.take_along_axis(q, chosen, -1) - np.take_along_axis(p, chosen, -1))[..., 0]

    def of_inputs(values: np.ndarray) -> list[float]:
        return [float(value) for value in (values.mean(axis=others) if others else values)]

    return {
        "kl_divergence": mean_value(of_inputs(np.maximum(terms, 0.0)), least=0.0),
        "top1_agreement": share_value(of_inputs(agrees), int(agrees.size)),
        "confidence_error": mean_value(of_inputs(apart), least=0.0, most=1.0),
    }


def token_values(output: np.ndarray, reference: np.ndarray, ends: Collection[int] = ()) -> dict[str, QualityValue]:
    """The measure of generated tokens, inputs x tokens, of which each input is a window. `ends` are the tokens that end
    a text. Raises BenchhouseError if the reference ends all texts at once."""

    def text(row: Sequence[int]) -> Sequence[int]:
        return row[: next((index for index, token in enumerate(row) if token in ends), len(row))]

    pairs = [(text(row), text(of)) for row, of in zip(output.tolist(), reference.tolist(), strict=True)]
    if not any(of for _, of in pairs):
        raise BenchhouseError("the reference generates no text")
    rates = [edit_distance(row, of) / max(1, len(of)) for row, of in pairs]
    return {"token_error_rate": mean_value(rates, least=0.0)}


def edit_distance(tokens: Sequence[int], reference: Sequence[int]) -> int:
    """The fewest insertions, deletions and replacements that turn one into the other (Levenshtein)."""
    row = list(range(len(reference) + 1))
    for index, token in enumerate(tokens, start=1):
        before, row[0] = row[0], index
        for column, other in enumerate(reference, start=1):
            kept = before if token == other else before + 1
            before, row[column] = row[column], min(kept, row[column] + 1, row[column - 1] + 1)
    return row[-1]


def latent_values(output: np.ndarray, reference: np.ndarray) -> dict[str, QualityValue]:
    """The measure of latents, inputs x any shape, of which each input is a window. Raises BenchhouseError for NaN."""
    x = np.asarray(reference, dtype=np.float64).reshape(len(reference), -1)
    y = np.asarray(output, dtype=np.float64).reshape(len(output), -1)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise BenchhouseError("the output contains NaN or Inf")
    lengths = np.linalg.norm(x, axis=1)
    errors = np.linalg.norm(y - x, axis=1) / np.where(lengths > 0, lengths, 1.0)
    return {"latent_error": mean_value([float(error) for error in errors], least=0.0)}


OUTPUT_VALUES: Mapping[str, Callable[[np.ndarray, np.ndarray], dict[str, QualityValue]]] = {
    "embeddings": embedding_values,
    "labels": label_values,
    "latents": latent_values,
}
"""By kind of output (`WorkloadFamily.quality`), of those that need nothing but the outputs."""
