"""Aliases of series from two warehouses, joined: each series is read as the one at the end of its chain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from db.contents import Conflict


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    """What a series is read as."""

    canonical: str
    reason: str
    created_at: datetime


Aliases = Mapping[str, Alias]
"""By series."""


def united(mine: Aliases, theirs: Aliases) -> tuple[dict[str, Alias], list[Conflict]]:
    """Both together, and the series that would be read as two, or as themselves.

    One warehouse may read a as b where the other reads b as c: then a is read as c. Of two reasons for the same alias
    the earlier one stays.
    """
    found: dict[str, Alias] = {}
    clashing: list[Conflict] = []
    for series in sorted(mine.keys() | theirs.keys()):
        said = [aliases[series] for aliases in (mine, theirs) if series in aliases]
        ends = {end for alias in said for end in _ends(alias.canonical, mine, theirs)}
        if len(ends) == 1 and series not in ends:
            first = min(said, key=lambda alias: (alias.created_at, alias.reason))
            found[series] = replace(first, canonical=ends.pop())
        else:
            problem = f"is read as {' and as '.join(sorted(ends))}" if len(ends) > 1 else "is read as itself in the end"
            clashing.append(Conflict(table="series_alias", subject=series, problem=problem))
    return found, clashing


def _ends(series: str, mine: Aliases, theirs: Aliases) -> set[str]:
    """Where the chains that begin at the series end; empty where they go round in circles."""
    seen, ahead, ends = set[str](), [series], set[str]()
    while ahead:
        one = ahead.pop()
        if one in seen:
            continue
        seen.add(one)
        nexts = {aliases[one].canonical for aliases in (mine, theirs) if one in aliases}
        ahead += nexts
        ends |= set() if nexts else {one}
    return ends
