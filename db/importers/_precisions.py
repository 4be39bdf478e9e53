"""Precisions by the words of other tools."""

from __future__ import annotations

from benchmarking.records import Precision

WORDS: dict[str, Precision] = {
    **dict.fromkeys(("float32", "fp32", "f32"), "float32"),
    "tf32": "tf32",
    **dict.fromkeys(("bfloat16", "bf16"), "bfloat16"),
    **dict.fromkeys(("float16", "fp16", "f16", "half"), "float16"),
    **dict.fromkeys(("int8", "i8"), "int8"),
    **dict.fromkeys(("int4", "i4"), "int4"),
}


def precision_of(word: str | None) -> Precision:
    """The precision that a word means: "unknown" for none, "other" for one without a name here."""
    if word is None or word.strip().lower() in ("", "auto", "unspecified", "unknown", "none", "n/a"):
        return "unknown"
    return WORDS.get(word.strip().lower().removeprefix("torch."), "other")
