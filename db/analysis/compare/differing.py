"""The keys in which two results differ, in words: which one decides that they are not compared. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from benchmarking.core.records import LOOP, SCENARIO, Json
from benchmarking.core.text import listed
from db.analysis.compare.matching import MODEL_KEYS, MayDiffer, across_column, allowed_across

Differing = Mapping[str, tuple[Json, Json]]
"""Key -> the values of both sides; None for an absent one."""
SEE_ALONE = "see each alone, as its own curve on the page Loads or in --chart load_latency"
INSTEAD: Mapping[str, str] = {
    **dict.fromkeys(("definition", "metric_definition"), f"numbers of two definitions are never compared: {SEE_ALONE}"),
    "simulated": "an emulator's times are not a device's: compare what ran on devices",
    f"runtime_mode {LOOP}": f"requests wait for answers only in a closed loop: compare two of one loop, or {SEE_ALONE}",
    f"runtime_mode {SCENARIO}": "MLPerf's scenarios measure different things: compare two results of one scenario",
}
"""Key that must always be equal -> what to look at instead; the first that differs decides."""
ORDER: Sequence[str] = (
    *(*MODEL_KEYS, "hardware device_name", "hardware device_type", "hardware *", "runtime"),
    *("precision", "num_threads", "runtime_mode *", "*"),
)
"""Patterns of the other keys, the deciding ones first."""
WORDS = ("model", "hardware", "runtime", "precision", "threads", "weights", "task", "all")
"""Words of --across, the narrowest that allow a key first."""
HASHES = ("config_hash", "hardware_id", "model_revision")
"""Keys whose values mean nothing to people."""
DIGITS = 8
MAX_OTHERS = 4
"""Maximum further differences listed by name; the rest are counted."""


def why_not_compared(differing: Differing, may_differ: MayDiffer) -> str:
    """The deciding difference with both values and what to do, and the names of the others."""
    apart = sorted(differing, key=_rank)
    never = [name for name in apart if name in INSTEAD]
    decides = next((name for name in apart if not may_differ(name)), apart[0])
    ((name, values),) = in_words({decides: differing[decides]}).items()
    advice = INSTEAD[never[0]] if never else f"allow it with --across {','.join(_across(apart, may_differ))}"
    text = f"{name}: {values[0]} / {values[1]} ({advice})"
    others = {word: both for word, both in in_words({one: differing[one] for one in apart}).items() if word != name}
    if len(others) == 1:
        ((other, both),) = others.items()
        return f"{text}; also {other}: {both[0]} / {both[1]}"
    return f"{text}; also {listed(list(others), MAX_OTHERS)}" if others else text


def _rank(name: str) -> tuple[int, int, str]:
    """A sort key: keys that must always be equal, then those of `ORDER`."""
    if name in INSTEAD:
        return 0, list(INSTEAD).index(name), name
    return 1, next(place for place, pattern in enumerate(ORDER) if fnmatchcase(name, pattern)), name


def _across(names: Iterable[str], may_differ: MayDiffer) -> list[str]:
    """The words of --across that allow all of the keys to differ."""
    words: list[str] = []
    for name in names:
        if not may_differ(name) and not allowed_across(map(across_column, words))(name):
            words.append(next(word for word in WORDS if allowed_across([across_column(word)])(name)))
    return ["all"] if "all" in words else words


def in_words(differing: Mapping[str, tuple[object, object]]) -> dict[str, tuple[str, str]]:
    """Differing keys for people: settings by their own name, and hashes shortened, or left out if the name of the model
    differs too."""
    shown = {
        name: values for name, values in differing.items() if not (name == "config_hash" and "model_id" in differing)
    }
    names = {"model_id": "model", "config_hash": "configuration of the model", "num_threads": "threads"}
    return {
        names.get(name, name.removeprefix("runtime_mode ")): (_text(name, one), _text(name, other))
        for name, (one, other) in shown.items()
    }


def _text(name: str, value: object) -> str:
    return "none" if value is None else str(value)[: DIGITS if name in HASHES else None]
