"""Writes the pages of `benchhouse dashboard` as a static site, which opens from disk or from any web server.

The site has all results, or those of SELECTION. Host names, user names and folders of paths are removed unless
--with-hosts is given. Features that need a server are missing: filters, the page Charts, SQL queries, limits of
recommendations.

DIR appears once the site is complete. An earlier site in DIR is replaced.
"""

from __future__ import annotations

import argparse
import errno
import hashlib
import json
import posixpath
import re
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

if __package__ in (None, ""):  # run as a script: put the repository's root on the path
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarking.core.command_line import command, note
from benchmarking.core.errors import EXIT_OK, BenchhouseError, StorageError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.settings import add_settings
from benchmarking.core.shared_settings import SHARED
from benchmarking.core.temporary import temporary_folder
from benchmarking.core.text import size_text, visible
from benchmarking.core.untrusted.input_files import read_json
from db.commands.arguments import add_selection, command_parser
from visualize.pages.elements import time_text
from visualize.pages.site import DIGEST_LETTERS, STATIC, Site, asset_digest, path_of, query_of, render, views

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from visualize.pages.snapshot import Data

NAME = "benchhouse publish"
RUNS = 200
MOST_RUNS = 10_000
TITLE = "benchhouse"
EXAMPLES = """examples:
  benchhouse publish site
  benchhouse publish site "model=bert-base-uncased,since=2026-01-01" --title "BERT on our servers"
"""
EXIT_CODES = """exit codes: 1 the database cannot be read, or DIR cannot be written; 2 usage, nothing is selected,
or DIR has other files"""
MARKER = "benchhouse-site.json"
"""Lists the files of a site, so a later site can replace them."""
ASSETS = "static"
FIRST = "index.html"
MOST_BYTES = 20_000_000
"""Maximum size of a file that static hosts accept."""
MOST_PAGES = 500
"""Maximum pages of each kind except runs."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; form-action 'none'; base-uri 'none'"
)
"""The policy of the server, without frame-ancestors, which a <meta> element cannot set."""
PLAIN = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
"""File names that are safe and distinct on every file system."""
SAY_EVERY_S = 10.0
NEWEST_RUNS = """
SELECT run_id FROM benchmark_runs WHERE task <> 'device-calibration' ORDER BY started_at DESC, run_id DESC
"""


@command(NAME, interrupted="DIR is as it was")
def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    parser = command_parser(NAME, __doc__, EXAMPLES, EXIT_CODES)
    parser.add_argument("folder", metavar="DIR", help="folder of the site: new, empty, or an earlier site")
    add_selection(parser)
    parser.add_argument(
        "--runs",
        type=_runs,
        default=RUNS,
        metavar="N",
        help="newest runs with a page of their own (default: %(default)s)",
    )
    parser.add_argument(
        "--title",
        type=_title,
        default=TITLE,
        metavar="TEXT",
        help="name in the footer of each page (default: %(default)s)",
    )
    parser.add_argument(
        "--with-hosts", action="store_true", help="keep host names, user names and folders of paths (default: removed)"
    )
    add_settings(parser, SHARED, "db_path")
    arguments = parser.parse_args(argv)

    from db.analysis.selection import Selection
    from visualize.pages.public_copy import public_copy
    from visualize.pages.snapshot import Snapshots

    selection = Selection.parse(arguments.selection)
    folder = Path(arguments.folder)
    check_folder(folder.resolve())
    said_s = time.monotonic()

    def say(text: str) -> None:
        """Print how far it is, every few seconds."""
        nonlocal said_s
        if time.monotonic() - said_s > SAY_EVERY_S:
            said_s = time.monotonic()
            note(text)

    snapshots = Snapshots(arguments.db_path)
    try:
        with snapshots.reading() as source:
            chosen = selection.resolved(source.path)
            with public_copy(source, chosen, arguments.title, with_hosts=arguments.with_hosts, say=say) as data:
                site = write_site(data, folder, runs=arguments.runs, say=say)
    finally:
        snapshots.close()
    print(folder / FIRST)
    left_out = (
        f"; {site.runs_left_out:,} older runs have no page: raise --runs to include them" if site.runs_left_out else ""
    )
    note(f"{NAME}: {site.pages:,} pages, {site.runs:,} of them of runs, {size_text(site.size_bytes)}{left_out}")
    return EXIT_OK


def _runs(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 9 and 1 <= int(text) <= MOST_RUNS):
        raise argparse.ArgumentTypeError(f"takes a whole number from 1 to {MOST_RUNS}: got {text!r}")
    return int(text)


def _title(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("takes a non-empty text")
    return visible(text.strip())


@dataclass(slots=True)
class SitePlan:
    """Pages and assets of a site while it is written: the pages of the navigation, and what rendered pages link to.

    So every link leads to a file, and unlinked pages are not written. Links to pages that the site does not have
    (`View.in_files`, `MOST_PAGES`) become plain text.
    """

    runs: Collection[str]
    """Ids of runs with a page."""
    paths: dict[tuple[str, str], str] = field(default_factory=dict)
    """File path of each page, by view and parameters."""
    waiting: deque[tuple[str, DataclassInstance, str]] = field(default_factory=deque)
    """Pages still to render: view, parameters, path."""
    assets: dict[str, None] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def path(self, view: str, parameters: DataclassInstance) -> str | None:
        """The file path of a page, which is scheduled on first use; None if the site does not have it."""
        own = _in_files(view, parameters)
        if own is None or (view == "run" and path_of(own)["run_id"] not in self.runs):
            return None
        key = (view, urlencode([*path_of(own).items(), *query_of(own)]))
        if key not in self.paths:
            if view != "run" and self.counts[view] >= MOST_PAGES:
                return None
            self.counts[view] += 1
            # The file path of a page, inside the site for any parameters.
            path, query = path_of(own), query_of(own)
            if view == next(iter(views())):
                self.paths[key] = FIRST
            elif not path and not query:
                self.paths[key] = f"{view}.html"
            else:
                words = "-".join([*path.values(), *(f"{name}-{value}" for name, value in query)])
                if query or not PLAIN.fullmatch(words):
                    digest = hashlib.sha256(urlencode([*path.items(), *query]).encode()).hexdigest()[:DIGEST_LETTERS]
                    words = re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")[:48].rstrip("-") + f"-{digest}"
                self.paths[key] = f"{view}/{words}.html"
            self.waiting.append((view, own, self.paths[key]))
        return self.paths[key]


@dataclass(frozen=True, slots=True)
class StaticPage(Site):
    """The site as seen from one of its pages; URLs are relative to that page."""

    plan: SitePlan
    here: str
    note: str
    policy = POLICY
    is_live = False

    def url(self, view: str, parameters: DataclassInstance) -> str | None:
        path = self.plan.path(view, parameters)
        if path is None or (path == self.here and _in_files(view, parameters) != parameters):
            return None  # a link to this page without its filter would be misleading
        return self._relative(path)

    def asset(self, name: str) -> str:
        """The URL with the content's digest, since browsers may cache files of an earlier site."""
        self.plan.assets[name] = None
        return f"{self._relative(f'{ASSETS}/{name}')}?v={asset_digest(name)}"

    def _relative(self, path: str) -> str:
        return posixpath.relpath(path, posixpath.dirname(self.here) or ".")


def _in_files(view: str, parameters: DataclassInstance) -> DataclassInstance | None:
    """Parameters of the static page for a view; None for downloads and pages that need a server."""
    known = views().get(view)
    return None if known is None or known.in_files is None else known.in_files(parameters)


def write_site(data: Data, folder: Path, *, runs: int, say: Callable[[str], None]) -> SimpleNamespace:
    """Write the site, with pages of the newest `runs` runs. It appears, or replaces an earlier site, once complete.
    Returns the numbers of pages, of those of runs, and of runs without one, and its size in bytes. `say` is told how
    far it is before each page.

    Raises UsageError for a folder with other content, StorageError for a write error.
    """
    folder = Path(folder).resolve()
    check_folder(folder)
    try:
        with temporary_folder(f".{folder.name}", folder.parent) as place:
            written = _write(data, place / "new", runs, say)
            check_folder(folder)  # again, since writing takes time
            _replace(folder, place / "new", place / "old")
    except OSError as error:
        at = error.filename or folder
        raise StorageError(f"cannot write {at}: {error.strerror}: choose another folder") from error
    return written


def _replace(folder: Path, new: Path, old: Path) -> None:
    """Move the new site into place; on an error the old one stays. Of several commands at once, the last one wins."""
    has_old = False
    with suppress(FileNotFoundError):
        folder.rename(old)
        has_old = True
    try:
        new.rename(folder)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise StorageError(f"{folder} was published by another command at the same time: try again") from error
        if has_old:
            old.rename(folder)
        raise


def check_folder(folder: Path) -> None:
    """Raise UsageError unless the path is unused, an empty folder, or an earlier site without other files."""
    if not folder.parent.is_dir():
        raise UsageError(f"{folder}: no folder {folder.parent}: create it, or choose another path")
    if not folder.exists() and not folder.is_symlink():
        return
    if not folder.is_dir():
        raise UsageError(f"{folder} is a file: choose a folder for the site")
    files = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    found = {path.relative_to(folder).as_posix() for path in files}
    if not found:
        return
    marker: Any = None
    with suppress(OSError, BenchhouseError):
        marker = read_json(folder / MARKER, MOST_BYTES)
    if not (isinstance(marker, dict) and marker.get("made_by") == NAME and isinstance(marker.get("files"), list)):
        raise UsageError(f"{folder} is not empty and not a site from {NAME}: choose another folder")
    others = sorted(found - {MARKER, *map(str, marker["files"])})
    if others:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise UsageError(
            f"{folder} contains files that {NAME} did not write and would delete: move {others[0]}{more} elsewhere"
        )


def _write(data: Data, folder: Path, runs: int, say: Callable[[str], None]) -> SimpleNamespace:
    newest = [row["run_id"] for row in data.warehouse.query(NEWEST_RUNS).dicts()]
    plan = SitePlan(runs=frozenset(newest[:runs]))
    note = f"results up to {time_text(data.taken_at)} UTC."
    if len(plan.runs) < len(newest):
        note += f" The newest {len(plan.runs):,} of {len(newest):,} runs have pages."
    sizes: dict[str, int] = {}
    for view in views().values():
        if view.is_in_navigation:
            plan.path(view.name, view.parameters())
    while plan.waiting:
        say(f"{len(sizes):,} pages written, {len(plan.waiting):,} known to be left")
        name, parameters, path = plan.waiting.popleft()
        text = render(StaticPage(plan, path, note), views()[name], data, parameters)
        sizes[path] = _write_file(folder, path, text.encode())
    licences = (name.replace(".min.js", ".LICENSE.txt") for name in plan.assets if name.endswith(".min.js"))
    for name in sorted({*plan.assets, *licences}):
        sizes[f"{ASSETS}/{name}"] = _write_file(folder, f"{ASSETS}/{name}", (STATIC / name).read_bytes())
    marker: Mapping[str, Any] = {"made_by": NAME, "files": sorted(sizes)}
    sizes[MARKER] = _write_file(folder, MARKER, f"{json.dumps(marker, indent=1)}\n".encode())
    return SimpleNamespace(
        pages=len(plan.paths),
        runs=plan.counts["run"],
        runs_left_out=len(newest) - len(plan.runs),
        size_bytes=sum(sizes.values()),
    )


def _write_file(folder: Path, path: str, content: bytes) -> int:
    """Write a file and return its size in bytes. Raises StorageError if it is too large."""
    if len(content) > MOST_BYTES:
        raise StorageError(
            f"{path}: {len(content) / 1e6:.0f} MB exceed the limit of {MOST_BYTES / 1e6:.0f} MB per file: "
            "select fewer results"
        )
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    return len(content)


if __name__ == "__main__":
    sys.exit(main())
