"""Writes the pages of `benchhouse dashboard` as a static site, which opens from disk or from any web server.

The site has all results, or those of SELECTION. Host names, user names and folders of paths are removed unless
--with-hosts is given. Features that need a server are missing: filters, the page Charts, SQL queries, limits of
recommendations.

DIR appears once the site is complete. An earlier site in DIR is replaced.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

if __package__ in (None, ""):  # run as a script: put the repository's root on the path
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarking.core.command_line import command, note
from benchmarking.core.errors import EXIT_OK
from benchmarking.core.settings import add_settings
from benchmarking.core.shared_settings import SHARED
from benchmarking.core.text import size_text, visible
from db.commands.arguments import add_selection, command_parser

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
    from visualize.pages.static_site import FIRST, check_folder, write_site

    selection = Selection.parse(arguments.selection)
    folder = Path(arguments.folder)
    check_folder(folder.resolve())
    snapshots = Snapshots(arguments.db_path)
    try:
        with snapshots.reading() as source:
            chosen = selection.resolved(source.path)
            with public_copy(source, chosen, arguments.title, with_hosts=arguments.with_hosts) as data:
                site = write_site(data, folder, runs=arguments.runs, say=note)
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


if __name__ == "__main__":
    sys.exit(main())
