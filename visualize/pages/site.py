"""The contract of views, the list of views, their parameters, and their URLs on a server or in files.

A view is a function from the warehouse and typed parameters to a typed page, which a template renders. Views do not
know URLs: links name a view and its parameters, and `Site.url` returns the URL.

Parameters are fields of a frozen dataclass, parsed from and written to URLs. A field is a `str`, an `int`, a `float`
from 0, a `bool` or a `Literal` of texts, with `| None` if it may be missing, or a `tuple[str, ...]`, which is given
once for each text. Fields without a default are part of the URL's path, others of its query. Empty values count as
missing, since forms send them. URLs leave out defaults, so each state has exactly one URL.
"""

from __future__ import annotations

import hashlib
import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, fields
from functools import cache
from pathlib import Path
from types import ModuleType, NoneType, UnionType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Union, get_args, get_origin, get_type_hints
from urllib.parse import quote, urlencode

from benchmarking.core.command_line import choice
from benchmarking.core.errors import BenchhouseError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.text import visible
from db.analysis.selection import Selection
from visualize.pages.elements import FLAG, Link, on_pages

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from jinja2 import Environment
    from markupsafe import Markup

    from db.warehouse import Warehouse
    from visualize.pages.snapshot import Data

    P = TypeVar("P", bound=DataclassInstance)
else:
    P = TypeVar("P")

FOLDER = Path(__file__).parent
STATIC = FOLDER / "static"
PACKAGE = "visualize.pages.views"
VIEW_MODULES = (
    "overview_page",
    "results_page",
    "run_page",
    "compare_page",
    "trends_page",
    "charts_page",
    "loads_page",
    "profiles_page",
    "recommend_page",
    "hardware_page",
    "live_page",
    "console_page",
)
"""Modules of the views, in the order of the navigation."""
DIGEST_LETTERS = 10
MAX_LENGTH = 20_000
"""Maximum characters of a value: SQL may be long, and uvicorn accepts 64 kB of headers."""
MAX_NUMBER = 10**9
TEXTS = tuple[str, ...]
MOST_TEXTS = 50
"""Maximum texts of a field."""
YES = "1"
"""The value of a checked box."""
SPACE = "\t\r\n"
"""White space that texts keep."""


class NotFoundError(BenchhouseError):
    """The run, series or file does not exist."""


@dataclass(frozen=True, kw_only=True)  # no slots: with them View[P](...) fails in Python 3.11
class View(Generic[P]):
    """A kind of page; its template has the same name."""

    name: str
    path: str
    """URL path with parameters: "/runs/{run_id}"."""
    title: str
    """Title in the navigation, and of pages without their own title."""
    parameters: type[P]
    question: str = ""
    """The question that the page answers, for the overview."""
    page: Callable[[Data, P], Any]
    """Returns the content for the template. Raises UsageError for invalid parameters, NotFoundError."""
    is_in_navigation: bool = True
    has_charts: bool = False
    """Whether pages load the chart library."""
    reads_warehouse: bool = True
    """Whether pages need the newest copy of the warehouse."""
    runs_sql: Callable[[P], bool] | None = None
    """Whether the parameters have SQL of the user, which may run for long; None for views without."""
    in_files: Callable[[P], P | None] | None = None
    """Maps parameters to those of a page in a static site, which does not have every filter; returns None without such
    a page. None for views that need a server."""


def has_sql(*selections: str | None) -> bool:
    """Whether a selection has SQL of the user. Raises UsageError for an invalid one."""
    return any(Selection.parse(text).sql is not None for text in selections if text is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoParameters:
    """Of a view that has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A download."""

    name: str
    media_type: str
    parts: Iterator[str | bytes]
    """Content, read from the warehouse as it is consumed."""


@dataclass(frozen=True, kw_only=True)
class Download(Generic[P]):
    """A kind of download."""

    name: str
    path: str
    parameters: type[P]
    file: Callable[[Data, P], File]
    """Returns the file. Raises as `View.page`."""


@dataclass(frozen=True, kw_only=True)
class Action(Generic[P]):
    """A change of the user's database, requested by a form."""

    name: str
    path: str
    parameters: type[P]
    """Fields of the form."""
    act: Callable[[Warehouse, P], object]
    """Makes the change in the writable database. Raises UsageError."""
    next_page: Callable[[P], Link]
    anchor: str
    """Element of the next page that shows the change."""


class Site(ABC):
    """Provides the URLs of pages and assets."""

    is_live: bool
    """Whether a server provides forms, queries and downloads."""
    form_token: str | None = None
    """Token that proves that a form comes from this site; None if the database cannot be changed."""
    note: str = ""
    """Text for the footer."""
    policy: str | None = None
    """Content-Security-Policy for a <meta> element; None if the server sends it."""

    @abstractmethod
    def url(self, view: str, parameters: DataclassInstance) -> str | None:
        """The URL of a page or download; None if the site does not have it."""

    @abstractmethod
    def asset(self, name: str) -> str:
        """The URL of a file in `static`."""


class LiveSite(Site):
    """The site of a server."""

    is_live = True

    def __init__(self, form_token: str | None = None) -> None:
        self.form_token = form_token

    def url(self, view: str, parameters: DataclassInstance) -> str:
        """The URL with all parameters that are not defaults."""
        path = targets()[view].path.format(**{name: quote(text, safe="") for name, text in path_of(parameters).items()})
        query = urlencode(query_of(parameters))
        return f"{path}?{query}" if query else path

    def asset(self, name: str) -> str:
        """The URL with the content's digest, so browsers may cache it forever."""
        return f"/static/{name}?v={asset_digest(name)}"


def _modules() -> Iterator[ModuleType]:
    return (importlib.import_module(f"{PACKAGE}.{name}") for name in VIEW_MODULES)


@cache
def views() -> Mapping[str, View[Any]]:
    """All views by name."""
    return {view.name: view for module in _modules() for view in module.VIEWS}


@cache
def downloads() -> Mapping[str, Download[Any]]:
    """All downloads by name."""
    return {one.name: one for module in _modules() for one in getattr(module, "DOWNLOADS", ())}


@cache
def actions() -> Mapping[str, Action[Any]]:
    """All actions by name."""
    return {one.name: one for module in _modules() for one in getattr(module, "ACTIONS", ())}


@cache
def targets() -> Mapping[str, View[Any] | Download[Any]]:
    """All views and downloads by name."""
    return {**views(), **downloads()}


def parse(kind: type[P], given: Iterable[tuple[str, str]]) -> P:
    """Parse parameters. Raises UsageError for unknown, repeated, missing or invalid ones."""
    known = _types(kind)
    values: dict[str, Any] = {}
    for name, text in given:
        if name not in known:
            choice(name, tuple(known), "parameter")
        if not text.strip():
            continue
        if known[name] == TEXTS:
            values[name] = (*values.get(name, ()), _value(name, text.strip(), str))
            if len(values[name]) > MOST_TEXTS:
                raise UsageError(f"{name} is given more than {MOST_TEXTS} times")
            continue
        if name in values:
            raise UsageError(f"{name} is given twice: give it once")
        values[name] = _value(name, text.strip(), known[name])
    for field in fields(kind):
        if _is_required(field) and field.name not in values:
            raise UsageError(f"{field.name} is missing")
    return kind(**values)


def query_of(parameters: DataclassInstance) -> tuple[tuple[str, str], ...]:
    """Query parameters of a URL as texts, without defaults."""
    given = ((field, getattr(parameters, field.name)) for field in fields(parameters))
    return tuple(
        (field.name, _text(one))
        for field, value in given
        if not _is_required(field) and value not in (None, field.default)
        for one in (value if isinstance(value, tuple) else (value,))
    )


def path_of(parameters: DataclassInstance) -> Mapping[str, str]:
    """Path parameters of a URL as texts."""
    return {field.name: _text(getattr(parameters, field.name)) for field in fields(parameters) if _is_required(field)}


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING


def _text(value: object) -> str:
    return YES if value is True else f"{value:.15g}" if isinstance(value, float) else str(value)


@cache
def _types(kind: type) -> dict[str, Any]:
    """Field types, without None."""
    types = {}
    for field in fields(kind):
        hint = get_type_hints(kind)[field.name]
        if get_origin(hint) in (Union, UnionType):
            (hint,) = (get_arg for get_arg in get_args(hint) if get_arg is not NoneType)
        types[field.name] = hint
    return types


def _value(name: str, text: str, kind: Any) -> Any:
    if len(text) > MAX_LENGTH or "\0" in text:
        raise UsageError(f"{name}: expected at most {MAX_LENGTH} characters, and no NUL")
    if kind is str:
        return text
    if kind is bool:
        if text != YES:
            raise UsageError(f"{name}={visible(text)}: expected {YES}, or nothing")
        return True
    if kind is int:
        if not (text.isascii() and text.isdigit() and 0 < len(text) < 11 and 1 <= int(text) <= MAX_NUMBER):
            raise UsageError(f"{name}={visible(text)[:40]}: expected a whole number from 1 to {MAX_NUMBER}")
        return int(text)
    if kind is float:
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value <= MAX_NUMBER:  # also rejects NaN
            raise UsageError(f"{name}={visible(text)[:40]}: expected a number from 0 to {MAX_NUMBER}")
        return value
    return choice(text, get_args(kind), name)


@cache
def asset_digest(name: str) -> str:
    """The first digits of a static file's SHA-256."""
    return hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:DIGEST_LETTERS]


@cache
def environment() -> Environment:
    """Jinja2 with escaping, in which unknown names are errors."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup, escape

    jinja = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Control characters and changes of direction in a text become escapes, since browsers obey the latter. White
        # space stays, as in a statement that is shown again; markup is a subclass of str.
        finalize=lambda value: visible(value, SPACE) if type(value) is str else value,
    )

    def sentence(text: str) -> Markup:
        """A sentence of a command as HTML, with no line break within a flag."""
        escaped = str(escape(visible(on_pages(text), SPACE)))
        return Markup(FLAG.sub(r'<span class="flag">\g<0></span>', escaped))  # noqa: S704 - escaped above

    jinja.filters["on_pages"] = sentence
    jinja.globals["navigation"] = [view for view in views().values() if view.is_in_navigation]
    return jinja


def render(site: Site, view: View[Any], data: Data, parameters: DataclassInstance) -> str:
    """The page as HTML. Raises as `View.page`."""
    page = view.page(data, parameters)
    return draw(site, f"{view.name}.html", view=view, page=page, parameters=parameters, data=data)


def draw(site: Site, template: str, **context: object) -> str:
    """Render a template, with functions for URLs."""

    def url(link: Link) -> str | None:
        return site.url(link.view, link.parameters)

    def home(view: View[Any]) -> str | None:
        return site.url(view.name, view.parameters())

    return (
        environment()
        .get_template(template)
        .render(**{"view": None, "data": None, "title": "", **context}, site=site, url=url, home=home, asset=site.asset)
    )
