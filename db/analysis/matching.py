"""Finds, for each result of one side, what it is to be compared with on the other. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache

from benchmarking.records import canonical_hash
from db.analysis.fingerprint import Keys, differences, label, point_of

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
