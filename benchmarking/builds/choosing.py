"""Which builds of a cache are meant."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarking.builds.contents import BrokenBuild, Contents, KeptBuild
from benchmarking.builds.sizes import size_text
from benchmarking.errors import UsageError

SECONDS_PER_DAY = 86_400.0

Candidate = KeptBuild | BrokenBuild


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a build must be to be meant: everything that is given here."""

    digests: tuple[str, ...] = ()
    """Digests or their first digits, of which one is enough."""
    kind: str | None = None
    model: str | None = None
    older_than_days: float | None = None
    """Days since it was last used, at least; of a broken one, since its folder was last written to."""
    everything: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing is given at all."""
        narrowed = (self.kind, self.model, self.older_than_days)
        return not self.digests and not self.everything and all(one is None for one in narrowed)


def chosen(contents: Contents, choice: Choice, *, confirmed: bool, now_s: float | None = None) -> tuple[Path, ...]:
    """The folders of the builds that are meant, broken ones among them.

    Raises UsageError when nothing says which, for a digest that no build or more than one has, for a kind or model that
    no build is of, and for all without `confirmed`.
    """
    if choice.is_empty:
        raise UsageError("which builds? name digests, --kind, --model, --older-than DAYS, or --all --yes")
    candidates: tuple[Candidate, ...] = (*contents.builds, *contents.broken)
    named = {folder for digest in choice.digests for folder in _of_digest(candidates, digest)}
    _check_known(candidates, choice)
    now_s = time.time() if now_s is None else now_s
    meant = [one for one in candidates if (not choice.digests or one.folder in named) and _meets(one, choice, now_s)]
    if choice.everything and not confirmed:
        size = size_text(sum(one.size_bytes for one in meant))
        raise UsageError(f"--all would delete {len(meant)} builds, {size}: add --yes if that is meant")
    return tuple(one.folder for one in meant)


def _of_digest(candidates: Sequence[Candidate], digest: str) -> list[Path]:
    found = [one.folder for one in candidates if one.folder.name.startswith(digest)]
    if not found:
        raise UsageError(f"no build has a digest that begins with {digest!r}: the action list shows them")
    if len(found) > 1:
        names = ", ".join(f"{folder.parent.name}/{folder.name}" for folder in found[:4])
        raise UsageError(f"{len(found)} builds have digests that begin with {digest!r}: {names}: give more digits")
    return found


def _check_known(candidates: Sequence[Candidate], choice: Choice) -> None:
    """Raise UsageError for a kind or model of which there is nothing: a word that is misspelt deletes nothing."""
    kinds = sorted({one.folder.parent.name for one in candidates})
    models = sorted({one.model_id for one in candidates if one.model_id is not None})
    for flag, word, known in (("--kind", choice.kind, kinds), ("--model", choice.model, models)):
        if word is not None and word not in known:
            raise UsageError(f"{flag} {word}: no build is of it; there are {', '.join(known) or 'none at all'}")


def _meets(one: Candidate, choice: Choice, now_s: float) -> bool:
    return (
        (choice.kind is None or one.folder.parent.name == choice.kind)
        and (choice.model is None or one.model_id == choice.model)
        and (choice.older_than_days is None or now_s - one.last_used_s >= choice.older_than_days * SECONDS_PER_DAY)
    )
