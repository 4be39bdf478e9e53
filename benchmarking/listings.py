"""What `--list-devices`, `--list-runtimes` and `--list-models` show, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from benchmarking.core.terminal import Page, stdout_page
from benchmarking.errors import EXIT_OK
from benchmarking.records import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A listing, made when it is asked for."""

    text: Callable[[Page], str]
    document: Callable[[], Json]


def show(listing: Listing, *, as_json: bool) -> int:
    """Print a listing; the exit code."""
    print(json.dumps(listing.document(), indent=1) if as_json else listing.text(stdout_page()))
    return EXIT_OK


def devices() -> Listing:
    """Every kind of device: found, or why not."""
    from benchmarking.devices._listing import listing_json, listing_text
    from benchmarking.devices._probing import probe_all

    found = probe_all()
    return Listing(text=lambda page: listing_text(found, page), document=lambda: listing_json(found))


def runtimes() -> Listing:
    """Every runtime: found, or why not."""
    from benchmarking.runtimes._listing import listing_json, listing_text

    return Listing(text=listing_text, document=listing_json)


def models() -> Listing:
    """The models of the catalog, those in the hub's cache, and those that were exported."""
    from benchmarking.model_listing import listing_json, listing_text

    return Listing(text=listing_text, document=listing_json)
