"""How far outputs are from the reference's: the differences that a precision can explain, and measures of quality.

The reference is the output of the eager float32 model for the same inputs and weights. With x the reference and y the
output, over all values of an array:

    max abs error   max |y - x|
    relative L2     ||y - x|| / ||x||
    cosine          x.y / (||x|| ||y||)
    equal tokens    share of generated tokens that are equal, counting beyond the first difference

2026-11-21: tokens are compared at float32 only. At lower precisions, including tf32, two nearly equal logits may swap
ranks, after which every token differs even with a perfect runtime; there only the prompt's logits are compared. (Among
50 000 logits, the two largest are closer than 1e-3 of their spread in about 1 of 100 steps.)

2026-11-21: models with routed experts have a wider tolerance below float32. The router's logits may tie as well, and a
token routed to another expert has a different, equally legitimate output. With random weights, 2 of 4 to 16 experts per
token and 2 to 12 layers, the error exceeded 6 % at one position in 5 to 250 at bfloat16 and at no more than one in 80
at float16, with a maximum of 25 %; the median position was as close as in a dense model. An output may be a single
position (the prompt's last, in a batch of 1), so every position must pass. Wrong computations, with errors of 100 % and
more, are still detected. Trained routers tie less often.

Measures of quality are of logits and outputs, with intervals: perplexity, divergence from the reference, agreement.
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

Intervals are 95 %, with windows as units, since neighbouring tokens depend on each other: `mean_interval` of the
windows' means; for percentiles of the shares above them, and for correlations by the jackknife. A share is also never
surer than its tokens would allow if they were independent (Clopper and Pearson), and a token error rate never surer
than its inputs: equality in all windows does not prove equality everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from statistics import fmean

from benchmarking.core.doubts import doubt
from benchmarking.core.errors import BenchhouseError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import np
from benchmarking.core.quality import MIN_WINDOWS, QualityValue, reach_of_rare
from benchmarking.core.records import NOT_APPLICABLE, Doubt, Family, Json, Precision, Readings
from benchmarking.core.sample_statistics import exact_share_interval, mean_interval
from benchmarking.workloads.support.families import family_named

TOKENS = "tokens"
"""Name of the array of generated tokens, of shape batch x new tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """The largest differences that a precision can explain. Beyond them the runtime computed something else."""

    relative_l2: float
    cosine: float
    """Lower limit."""
    equal_tokens: float | None
    """Lower limit; None if tokens are not compared."""


TOLERANCES: Mapping[Precision, Tolerance] = {
    # A different order of summation costs about 1e-6 per operation, and graph rewrites (fused GELU, fast exp) 1e-5.
    "float32": Tolerance(relative_l2=1e-3, cosine=0.999999, equal_tokens=0.9),
    # 10 bits of mantissa inside products, as in float16, with sums in float32.
    "tf32": Tolerance(relative_l2=1e-2, cosine=0.9999, equal_tokens=None),
    # The same mantissa, but sums may be rounded to it: 0.05 to 0.08 % seen on two layers of nine families, 0.2 % on 24.
    # A lower limit would reject runtimes that also normalise at float16. The weights' type is verified separately.
    "float16": Tolerance(relative_l2=2e-2, cosine=0.9998, equal_tokens=None),
    # 7 bits of mantissa: 0.5 to 0.8 % seen on two layers, 1.2 % on 12, 1.6 % on 24. It grows as the root of the depth.
    "bfloat16": Tolerance(relative_l2=6e-2, cosine=0.998, equal_tokens=None),
    # 3 bits of mantissa in both operands of a product: 1 to 8 % with random weights on two layers of four families,
    # 3 to 12 % on 24, by rows and by tensors alike.
    "float8_e4m3": Tolerance(relative_l2=0.25, cosine=0.96, equal_tokens=None),
    # 8-bit weights with a scale per row: 0.5 to 2.5 % with random weights. With MiniLM's own weights 3 % on OpenVINO,
    # 7 % on torchao, and 18 % on ONNX Runtime, which has one scale for all activations, so outliers leave few steps for
    # the other values. That is the loss of the format rather than an error; the result records it.
    "int8": Tolerance(relative_l2=0.30, cosine=0.95, equal_tokens=None),
    # 4-bit weights with a scale per group of 32 or per row: 9 to 48 % with random weights on 12 to 48 layers, 23 to
    # 31 % with MiniLM's own weights.
    "int4": Tolerance(relative_l2=0.60, cosine=0.82, equal_tokens=None),
}
"""The largest loss observed for each format. An unrelated output has a cosine of 0 and an error of 1.4, beyond every
tolerance. The cosine corresponds to the error for two outputs of equal length: 1 - error^2 / 2."""
ROUTED = Tolerance(relative_l2=0.40, cosine=0.92, equal_tokens=None)
"""Minimum tolerance for models with routed experts, at every precision but float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The differences between an output and the reference. None if there is no array of that kind."""

    max_abs_error: float | None = None
    relative_l2: float | None = None
    cosine: float | None = None
    equal_token_share: float | None = None
    problem: str | None = None
    """Why they cannot be compared (names, shapes, NaN), which counts as a difference."""
    by_array: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """The three numbers of each array."""

    def readings(self) -> Readings:
        """The differences as metrics of a measurement, with reasons for those that do not apply."""
        return Readings.known(
            {
                "output_max_abs_error": self.max_abs_error,
                "output_error": self.relative_l2,
                "output_cosine_similarity": self.cosine,
                "output_equal_token_share": self.equal_token_share,
            },
            f"{NOT_APPLICABLE}: {self.problem or 'the output has no array of this kind'}",
        )


def tolerance_of(precision: Precision, family: Family | None) -> Tolerance:
    tolerance, plugin = TOLERANCES[precision], family_named(family)
    is_routed = plugin is not None and plugin.has_routed_experts and precision != "float32"
    return ROUTED if is_routed and tolerance.relative_l2 < ROUTED.relative_l2 else tolerance


def compare(output: Mapping[str, np.ndarray], reference: Mapping[str, np.ndarray]) -> Comparison:
    """The differences between an output and the reference; with several arrays, the worst of each number."""
    needed = {TOKENS} if set(output) == {TOKENS} and TOKENS in reference else set(reference)  # engines give no logits
    if missing := sorted(needed - set(output)):
        return Comparison(problem=f"the output has no {', '.join(missing)}")
    for name in sorted(needed):
        if output[name].shape != reference[name].shape:
            return Comparison(problem=f"{name} has shape {output[name].shape}, expected {reference[name].shape}")
        if not np.isfinite(output[name]).all():
            return Comparison(problem=f"{name} has NaN or Inf")
    errors = {name: _errors(output[name], array) for name, array in reference.items() if name in set(output) - {TOKENS}}
    tokens = reference.get(TOKENS)
    share = None if tokens is None or not tokens.size else float((output[TOKENS] == tokens).mean())
    if not errors:
        return Comparison(equal_token_share=share)
    return Comparison(
        max_abs_error=max(of["max_abs_error"] for of in errors.values()),
        relative_l2=max(of["relative_l2"] for of in errors.values()),
        cosine=min(of["cosine"] for of in errors.values()),
        equal_token_share=share,
        by_array=errors,
    )


def _errors(output: np.ndarray, reference: np.ndarray) -> dict[str, float]:
    """The errors, computed in float64 so that sums over large arrays add no error of their own."""
    x, y = reference.astype(np.float64).ravel(), output.astype(np.float64).ravel()
    difference, length_x, length_y = np.linalg.norm(y - x), np.linalg.norm(x), np.linalg.norm(y)
    both_zero = length_x == 0 and length_y == 0
    return {
        "max_abs_error": float(np.abs(y - x).max(initial=0.0)),
        # Any error relative to a reference of zeros is infinite; 1 is the error of a completely wrong output.
        "relative_l2": float(difference / length_x) if length_x > 0 else float(not both_zero),
        "cosine": float(x @ y / (length_x * length_y)) if length_x > 0 and length_y > 0 else float(both_zero),
    }


def about_difference(comparison: Comparison, precision: Precision, family: Family | None = None) -> tuple[Doubt, ...]:
    """`output_differs`, with every number that exceeds the precision's tolerance."""
    tolerance = tolerance_of(precision, family)
    evidence: dict[str, Json] = {}
    if comparison.problem is not None:
        evidence["problem"] = comparison.problem
    if comparison.relative_l2 is not None and not comparison.relative_l2 <= tolerance.relative_l2:
        evidence |= {"relative_l2": comparison.relative_l2, "tolerance_relative_l2": tolerance.relative_l2}
    if comparison.cosine is not None and not comparison.cosine >= tolerance.cosine:
        evidence |= {"cosine": comparison.cosine, "tolerance_cosine": tolerance.cosine}
    share, least = comparison.equal_token_share, tolerance.equal_tokens
    if share is not None and least is not None and share < least:
        evidence |= {"equal_token_share": share, "tolerance_equal_token_share": least}
    if not evidence:
        return ()
    return (doubt("output_differs", **evidence, precision=precision),)


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
            "kl_divergence_p99": percentile_value(divergence, 0.99),
            "top1_agreement": share_value(shares, sum(len(window.surprise) for window in windows)),
        }
    return found


def mean_value(by_window: Sequence[float], *, least: float = -math.inf, most: float = math.inf) -> QualityValue:
    """The mean over windows, with its interval, limited to the possible values."""
    value = fmean(by_window)
    if len(by_window) < MIN_WINDOWS or not math.isfinite(value):
        return QualityValue(value=value, by_window=tuple(by_window))
    low, high = mean_interval(by_window)
    return QualityValue(value=value, low=max(least, low), high=min(most, high), by_window=tuple(by_window))


def share_value(by_window: Sequence[float], count: int) -> QualityValue:
    """A share of `count` tokens or inputs: its mean over windows, with the wider of the intervals from windows and from
    independent tokens; the exact one where a window is one of them."""
    found = mean_value(by_window, least=0.0, most=1.0)
    if found.low is None or found.high is None:
        return found
    low, high = exact_share_interval(round(found.value * count), count)
    if count > len(by_window):
        low, high = min(found.low, low), max(found.high, high)
    return QualityValue(value=found.value, low=low, high=high, by_window=found.by_window)


def percentile_value(windows: Sequence[np.ndarray], q: float) -> QualityValue:
    """A percentile of the values of all windows. The ends of its interval are the percentiles at the ends of the
    interval of the share of values above it, over windows."""
    values = np.concatenate(windows)

    def at(share_above: float) -> float:
        place = 100 * (1 - min(max(share_above, 0.0), 1.0))  # between infinite values there is nothing to interpolate
        return float(np.percentile(values, place, method="linear" if np.isfinite(values).all() else "higher"))

    value = at(1 - q)
    if len(windows) < MIN_WINDOWS or not math.isfinite(value):
        return QualityValue(value=value)
    low, high = mean_interval([float((one > value).mean()) for one in windows])
    return QualityValue(value=value, low=min(value, at(high)), high=max(value, at(low)))


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

    def correlation(without: int | None) -> float:
        rows = np.delete(np.arange(len(x)), [] if without is None else [without])
        above, grid = np.triu_indices(len(rows), k=1), np.ix_(rows, rows)
        return rank_correlation(pairs_of_reference[grid][above], pairs[grid][above])

    value = correlation(None)
    if not math.isfinite(value):
        return found | {"embedding_rank_correlation": QualityValue(value=value)}
    # The jackknife over inputs, on Fisher's scale, where 1 is known to one exchange of neighbours among all pairs.
    count, pair_count = len(x), len(x) * (len(x) - 1) / 2
    most = 1 - 12 / (pair_count**3 - pair_count)
    each = [math.atanh(min(max(correlation(index), -most), most)) for index in range(count)]
    scaled, mean = math.atanh(min(max(value, -most), most)), fmean(each)
    low, high = mean_interval([scaled - (count - 1) * (one - mean) for one in each])
    interval = QualityValue(value=value, low=min(value, math.tanh(low)), high=max(value, math.tanh(high)))
    return found | {"embedding_rank_correlation": interval}


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
    found = mean_value(rates, least=0.0)
    if found.low is not None and found.high is not None and 2 * rates.count(0.0) >= len(rates):
        below, above = reach_of_rare(rates, 1.0)
        low, high = min(found.low, found.value - below), max(found.high, found.value + above)
        found = QualityValue(value=found.value, low=max(0.0, low), high=high, by_window=found.by_window)
    return {"token_error_rate": found}


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
