"""The contract of a view, the list of views, and their addresses on a server or in files.

A view is a function from the warehouse and typed parameters to a typed page, which a template draws. It knows no
address: links name a view and its parameters, and `Site.url` makes an address of them.
"""

from __future__ import annotations

import hashlib
import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import quote, urlencode

from benchmarking.core.errors import BenchhouseError
from visualize.pages import parameters as params
from visualize.pages.elements import Link

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from jinja2 import Environment

    from db.warehouse import Warehouse
    from visualize.pages.snapshot import Data

    P = TypeVar("P", bound=DataclassInstance)
else:
    P = TypeVar("P")

FOLDER = Path(__file__).parent
STATIC = FOLDER / "static"
PACKAGE = "visualize.pages.views"
VIEWS = (
    *("overview", "results", "run", "compare", "trends", "loads", "load", "profiles", "profile", "recommend"),
    *("hardware", "live", "console"),
)
"""The modules of the views. Those with a place in the navigation come in this order."""
DIGEST_LETTERS = 10


class NotFoundError(BenchhouseError):
    """The run, series or file does not exist."""


@dataclass(frozen=True, kw_only=True)  # no slots: with them View[P](...) fails in Python 3.11
class View(Generic[P]):
    """A kind of page. Its template has its name."""

    name: str
    path: str
    """With the parameters in it: "/runs/{run_id}"."""
    title: str
    """In the navigation; of a page without a title of its own."""
    parameters: type[P]
    page: Callable[[Data, P], Any]
    """What the template draws, from the warehouse. Raises UsageError for invalid parameters, NotFoundError."""
    is_in_navigation: bool = True
    has_charts: bool = False
    """Whether its pages load the chart library."""
    reads_warehouse: bool = True
    """Whether it shows the warehouse, and needs its newest copy."""
    in_files: Callable[[P], P | None] | None = None
    """The parameters of the page that a site of files has for these: it has no page for each filter. None where it has
    none, as for a view that needs a server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file to download."""

    name: str
    media_type: str
    parts: Iterator[str | bytes]
    """Read from the warehouse as they are consumed."""


@dataclass(frozen=True, kw_only=True)
class Download(Generic[P]):
    """A kind of file."""

    name: str
    path: str
    parameters: type[P]
    file: Callable[[Data, P], File]
    """Raises as the page of a view does."""


@dataclass(frozen=True, kw_only=True)
class Action(Generic[P]):
    """A change of the user's database, requested by a form of a page."""

    name: str
    path: str
    parameters: type[P]
    """The fields of the form."""
    act: Callable[[Warehouse, P], Link]
    """Makes the change in the database, open for writing; gives the page to show then. Raises UsageError."""
    anchor: str
    """The element of that page that shows the change."""


class Site(ABC):
    """Where pages are."""

    is_live: bool
    """Whether there is a server, for forms, queries and downloads."""
    form_token: str | None = None
    """The token by which forms that change the database prove that they come from this site; None if nothing can be
    changed."""
    note: str = ""
    """The site's text in the footer."""
    policy: str | None = None
    """Content-Security-Policy in each page, where no server sends it."""

    @abstractmethod
    def url(self, view: str, parameters: DataclassInstance) -> str | None:
        """The address of a page or download; None if the site does not have it."""

    @abstractmethod
    def asset(self, name: str) -> str:
        """The address of a file in `static`."""


class LiveSite(Site):
    """The site of a server."""

    is_live = True

    def __init__(self, form_token: str | None = None) -> None:
        self.form_token = form_token

    def url(self, view: str, parameters: DataclassInstance) -> str:
        """An address with all parameters that are not defaults."""
        path = targets()[view].path.format(**{name: quote(text, safe="") for name, text in _path(parameters).items()})
        query = urlencode(params.query(parameters))
        return f"{path}?{query}" if query else path

    def asset(self, name: str) -> str:
        """With the content's digest, so that browsers may cache it forever."""
        return f"/static/{name}?v={asset_digest(name)}"


def _path(parameters: DataclassInstance) -> Mapping[str, str]:
    return params.path(parameters)


@cache
def views() -> Mapping[str, View[Any]]:
    """Every view, by name."""
    found = (importlib.import_module(f"{PACKAGE}.{name}").VIEW for name in VIEWS)
    return {view.name: view for view in found}


@cache
def downloads() -> Mapping[str, Download[Any]]:
    """Every download, by name."""
    modules = (importlib.import_module(f"{PACKAGE}.{name}") for name in VIEWS)
    return {one.name: one for module in modules for one in getattr(module, "DOWNLOADS", ())}


@cache
def actions() -> Mapping[str, Action[Any]]:
    """Every action, by name."""
    modules = (importlib.import_module(f"{PACKAGE}.{name}") for name in VIEWS)
    return {one.name: one for module in modules for one in getattr(module, "ACTIONS", ())}


@cache
def targets() -> Mapping[str, View[Any] | Download[Any]]:
    """Views and downloads, by name."""
    return {**views(), **downloads()}


@cache
def asset_digest(name: str) -> str:
    """The first digits of the SHA-256 of a static file."""
    return hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:DIGEST_LETTERS]


@cache
def environment() -> Environment:
    """Jinja2 with escaping switched on; an unknown name in a template is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals["navigation"] = [view for view in views().values() if view.is_in_navigation]
    return made


def render(site: Site, view: View[Any], data: Data, parameters: DataclassInstance) -> str:
    """The page as HTML. Raises as `View.page` does."""
    page = view.page(data, parameters)
    return draw(site, f"{view.name}.html", view=view, page=page, parameters=parameters, data=data)


def draw(site: Site, template: str, **context: object) -> str:
    """A template, with the functions that make addresses."""

    def url(link: Link) -> str | None:
        return site.url(link.view, link.parameters)

    def home(view: View[Any]) -> str | None:
        return site.url(view.name, view.parameters())

    return (
        environment()
        .get_template(template)
        .render(**{"view": None, "data": None, "title": "", **context}, site=site, url=url, home=home, asset=site.asset)
    )
