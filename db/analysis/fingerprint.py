"""What makes two results comparable, key by key, and which keys a comparison lets differ. Pure.

The keys are those that series_id and hardware_id are the hashes of, so that a refusal to compare can say which one it
is about. A key that is null is as one that is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType

from benchmarking.cli_support import choice
from benchmarking.core.axes import AXES, POINT_FIELDS
from benchmarking.records import Json, Point
from db.analysis.selection import FIELDS

Keys = Mapping[str, Json]

POINT = (*POINT_FIELDS, "axes *")
"""Keys that say where on the grid a result is."""
MODEL = ("model_id", "model_revision", "config_hash", "weights", "architecture_type", "task")
ALWAYS = ("metric_definition", "definition", "simulated")
"""Never let differ: numbers of two definitions, or of a device and its emulator, are not of one kind."""
ALL = "all"

LET_DIFFER: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **dict.fromkeys(
            ("device", "device_type", "device_name", "hardware_id"), ("hardware *", "runtime_mode provider")
        ),
        "runtime": ("runtime", "runtime_mode *"),
        "runtime_mode": ("runtime_mode *",),
        "precision": ("precision", "runtime_mode quantization"),
        "model_id": MODEL,
        "architecture_type": MODEL,
        "model_revision": ("model_revision",),
        "weights": ("weights", "model_revision"),
        "task": ("task",),
        "num_threads": ("num_threads",),
        "cpu_list": ("cpu_list", "num_threads"),
        **{name: (name,) for name in POINT_FIELDS},
        "series_id": ("*",),
        ALL: ("*",),
    }
)
"""Column -> patterns of the keys that may differ where two selections differ in it; "*" is all but the point. A column
that is not here (run_id, git_commit, tags, ...) is no part of what makes a series."""
ACROSS = (*(word for word, column in FIELDS.items() if column in LET_DIFFER), "runtime_mode", "cpu_list", ALL)
"""What --across takes."""


def keys_of(series_keys: Keys, hardware_keys: Keys, *, is_simulated: bool) -> dict[str, Json]:
    """All keys in one: those of the series but for the hardware's id, the hardware's own ("hardware cpu_model"), and
    the settings of the runtime and the axes one by one ("runtime_mode attention")."""
    keys: dict[str, Json] = {"simulated": is_simulated}
    for name, value in series_keys.items():
        if isinstance(value, dict):
            keys |= {f"{name} {inner}": each for inner, each in value.items()}
        elif name != "hardware_id":
            keys[name] = value
    keys |= {f"hardware {name}": value for name, value in hardware_keys.items()}
    return {name: value for name, value in sorted(keys.items()) if value is not None}


def allowed_across(columns: Iterable[str]) -> Callable[[str], bool]:
    """Whether a key may differ where these columns do."""
    wanted = tuple(pattern for column in columns for pattern in LET_DIFFER.get(column, ()))
    named = tuple(pattern for pattern in wanted if pattern != "*")

    def may_differ(key: str) -> bool:
        if _is_any(key, ALWAYS):
            return False
        return _is_any(key, named) or ("*" in wanted and not _is_any(key, POINT))

    return may_differ


def across_column(word: str) -> str:
    """The column that a word of --across means. Raises UsageError for an unknown one."""
    return FIELDS.get(choice(word, ACROSS, "field of --across"), word)


def point_of(keys: Keys) -> Keys:
    """The keys that say where on the grid it is."""
    return {name: value for name, value in keys.items() if _is_any(name, POINT)}


def differences(before: Keys, after: Keys) -> dict[str, tuple[Json, Json]]:
    """The keys in which the two differ, with both values; None where there is none."""
    names = sorted(before.keys() | after.keys())
    return {name: (before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)}


def label(keys: Keys) -> str:
    """The point as it is called everywhere: "b1 s128 n16"."""
    axes = {name.removeprefix("axes "): value for name, value in keys.items() if name.startswith("axes ")}
    own = {name: keys.get(name) or AXES[name].implied for name in POINT_FIELDS}
    return Point(**own, axes=axes).label  # type: ignore[arg-type]


def _is_any(key: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(key, pattern) for pattern in patterns)
