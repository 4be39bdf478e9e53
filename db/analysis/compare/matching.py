"""Finds, for each result of one side, what it is to be compared with on the other. Pure.

What makes two results comparable, key by key, and which keys a comparison lets differ. Pure.

The keys are those that series_id and hardware_id are the hashes of, so that a refusal to compare can say which one it
is about. A key that is null is as one that is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from functools import cache
from types import MappingProxyType

from benchmarking.core.axes import AXES, POINT_FIELDS
from benchmarking.core.command_line import choice
from benchmarking.core.records import Json, Point, canonical_hash
from db.analysis.selection import FIELDS

MayDiffer = Callable[[str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A result, as far as comparing it goes."""

    result_id: str
    run_id: str
    series_id: str
    started_at: datetime
    """Of the run, UTC."""
    finished_at: datetime
    history_time: datetime
    keys: Keys
    """What makes it comparable."""
    kind: str
    """The hash of the keys."""
    value: float | None
    """In the metric's unit; None where it was not measured."""
    validity: str | None
    unfit: str | None
    """Why it may not be compared; None where it may."""
    doubts: tuple[str, ...]
    """Kinds, those that are only good to know left out."""
    about: Mapping[str, str | None]
    """Columns for people: model_id, device, runtime, ..., host, git_commit."""
    versions: Mapping[str, str]

    @property
    def point(self) -> str:
        """Label of the point."""
        return label(self.keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The result that stands for all of one series on a side: the newest that may be compared, else the newest."""

    result: Measured
    results: int
    """How many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """Who is compared with whom."""

    pairs: tuple[tuple[Standing, Standing], ...] = ()
    """That are comparable."""
    refused: tuple[tuple[Standing, Standing], ...] = ()
    """The same point of both sides, that differs in a key that may not differ."""
    only_before: tuple[Standing, ...] = ()
    only_after: tuple[Standing, ...] = ()


def match(before: Iterable[Measured], after: Iterable[Measured], may_differ: MayDiffer) -> Matched:
    """Each series of `after` with the very same one of `before`; where there is none, with every one that differs from
    it only in keys that may; and what is left with the one at its point that is nearest to it."""
    earlier, later = standing(before), standing(after)
    may_differ = cache(may_differ)  # asked of the same few names for every result
    groups: dict[str, list[Standing]] = {}
    for one in earlier:
        groups.setdefault(_shared(one, may_differ), []).append(one)
    pairs = [(base, one) for one in later for base in _bases(one, groups.get(_shared(one, may_differ), ()))]
    used = {id(one) for pair in pairs for one in pair}
    left_before, left_after = ([one for one in side if id(one) not in used] for side in (earlier, later))
    # Two lists of models that have nothing in common are not to be told as so many pairs of strangers.
    may_be_other_model = _has_one_model(earlier) and _has_one_model(later)
    refused = _nearest(left_before, left_after, may_be_other_model=may_be_other_model)
    used |= {id(one) for pair in refused for one in pair}
    return Matched(
        pairs=tuple(pairs),
        refused=tuple(refused),
        only_before=tuple(one for one in left_before if id(one) not in used),
        only_after=tuple(one for one in left_after if id(one) not in used),
    )


def standing(results: Iterable[Measured]) -> list[Standing]:
    """One result for each set of keys, in the order in which they first come."""
    groups: dict[str, list[Measured]] = {}
    for result in results:
        groups.setdefault(result.kind, []).append(result)
    return [Standing(result=max(group, key=_rank), results=len(group)) for group in groups.values()]


def _rank(result: Measured) -> tuple[bool, datetime, str]:
    return (result.unfit is None, result.started_at, result.result_id)


def _shared(one: Standing, may_differ: MayDiffer) -> str:
    """The hash of what must be equal."""
    return canonical_hash({name: value for name, value in one.result.keys.items() if not may_differ(name)})


def _bases(one: Standing, group: Sequence[Standing]) -> Sequence[Standing]:
    """What a result is compared with, of those that it may be compared with."""
    same = [base for base in group if base.result.keys == one.result.keys]
    return same or group


def _nearest(
    before: Sequence[Standing], after: Sequence[Standing], *, may_be_other_model: bool
) -> list[tuple[Standing, Standing]]:
    """Pairs at the same point that differ in the fewest keys, each used once."""
    places: dict[str, tuple[list[Standing], list[Standing]]] = {}
    for which, side in enumerate((before, after)):
        for one in side:
            places.setdefault(_place(one, with_model=not may_be_other_model), ([], []))[which].append(one)
    return [pair for earlier, later in places.values() for pair in _nearest_of(earlier, later)]


def _nearest_of(before: Sequence[Standing], after: Sequence[Standing]) -> list[tuple[Standing, Standing]]:
    distances = sorted(
        (len(differences(base.result.keys, one.result.keys)), place, other)
        for place, base in enumerate(before)
        for other, one in enumerate(after)
    )
    used: tuple[set[int], set[int]] = (set(), set())
    pairs: list[tuple[Standing, Standing]] = []
    for _, place, other in distances:
        if place not in used[0] and other not in used[1]:
            used[0].add(place)
            used[1].add(other)
            pairs.append((before[place], after[other]))
    return pairs


def _place(one: Standing, *, with_model: bool) -> str:
    """The hash of the point, and of the model where that is asked for."""
    keys = one.result.keys
    return canonical_hash([point_of(keys), keys.get("model_id") if with_model else None])


def _has_one_model(side: Sequence[Standing]) -> bool:
    return len({one.result.keys.get("model_id") for one in side}) == 1


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
