"""Differences between an output and the reference, which is the output of the eager float32 model for the same inputs
and weights.

With x the reference and y the output, over all values of an array:

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
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from benchmarking.core.doubts import doubt
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import np
from benchmarking.core.records import NOT_APPLICABLE, Doubt, Family, Json, Precision, Readings
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
        named: dict[str, float | None] = {
            "output_max_abs_error": self.max_abs_error,
            "output_error": self.relative_l2,
            "output_cosine_similarity": self.cosine,
            "output_equal_token_share": self.equal_token_share,
        }
        why = f"{NOT_APPLICABLE}: {self.problem or 'the output has no array of this kind'}"
        return Readings(
            values={name: value for name, value in named.items() if value is not None},
            missing={name: why for name, value in named.items() if value is None},
        )


def tolerance_of(precision: Precision, family: Family | None) -> Tolerance:
    """The tolerance for an output of a family at a precision."""
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
