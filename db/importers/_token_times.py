"""Times of single tokens in foreign files: [iteration][request][token], in seconds."""

from __future__ import annotations

from itertools import pairwise

from db.importers._measures import MS_PER_S
from db.importers._reading import Fields
from db.importers._values import short

Times = tuple[tuple[float, ...], ...]
"""The times of each request's tokens, in seconds."""


def token_times(fields: Fields, name: str) -> tuple[Times, ...]:
    """The times of every iteration; empty when the field is absent. Raises FormatError for what is no such list."""
    iterations = fields.any(name)
    if iterations is None:
        return ()
    if not isinstance(iterations, list):
        fields.refuse(name, f"expected a list of iterations, found {short(iterations)}")
    return tuple(_requests(fields, f"{name}[{index}]", one) for index, one in enumerate(iterations) if one is not None)


def token_gaps_ms(times: Times) -> list[float]:
    """Gaps between successive tokens of each request in ms. Requests of one batch that share their times count once."""
    return [(after - before) * MS_PER_S for request in dict.fromkeys(times) for before, after in pairwise(request)]


def _requests(fields: Fields, place: str, requests: object) -> Times:
    if not isinstance(requests, list):
        fields.refuse(place, f"expected a list of requests, found {short(requests)}")
    return tuple(_tokens(fields, f"{place}[{index}]", one) for index, one in enumerate(requests))


def _tokens(fields: Fields, place: str, times: object) -> tuple[float, ...]:
    return Fields(fields.file, {"times": times}, place).numbers("times") or ()
