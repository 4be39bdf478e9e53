"""Lists series, and joins them: a history that goes on under another name, or with another parameter.

A series is one model and point on one runtime, precision and hardware. Its id is a hash of all that; when a model is
renamed or a setting comes in, the id changes, and the history would start anew. An alias has the old series read as
the new one, everywhere. Nothing is rewritten: unalias takes it back.

  benchhouse series list model=gpt2
  benchhouse series alias 3f2a91bc 9b4b5571 --reason "renamed from gpt2-small"
  benchhouse series unalias 3f2a91bc
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __package__ in (None, ""):  # run as a file: its folder is on the path, that of the packages is wanted
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarking.core.command_line import Parser, add_database_flags, note, run_command
from benchmarking.core.errors import EXIT_OK, UsageError
from benchmarking.core.tables import Table, table_text
from benchmarking.core.terminal import stdout_page
from benchmarking.core.text import visible
from db.analysis.selection import Selection

if TYPE_CHECKING:
    from db.analysis.history.histories import JoinedSeries

NAME = "benchhouse series"
JSON_COLUMNS = ("axes", "runtime_mode", "hashed_keys")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command(NAME, _run, argv)


def _run(argv: Sequence[str]) -> int:
    arguments = _parser().parse_args(argv)
    if arguments.what == "list":
        _list(arguments)
    else:
        _change(arguments)
    return EXIT_OK


def _parser() -> argparse.ArgumentParser:
    shared = Parser(add_help=False)
    shared.add_argument("--json", action="store_true", help="all of it as JSON")
    add_database_flags(shared)
    parser = Parser(prog=NAME, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True, metavar="list|alias|unalias")
    listing = commands.add_parser("list", parents=[shared], help="list series")
    listing.add_argument("selection", nargs="?", default="", metavar="SELECTION", help="those with such results")
    alias = commands.add_parser("alias", parents=[shared], help="have one series read as another one")
    alias.add_argument("old", metavar="OLD", help="id of the series that ended, or how it begins")
    alias.add_argument("new", metavar="NEW", help="id of the series that goes on")
    alias.add_argument("--reason", required=True, metavar="TEXT", help="why they are the same")
    unalias = commands.add_parser("unalias", parents=[shared], help="have a series read as itself again")
    unalias.add_argument("old", metavar="OLD", help="its id, or how it begins")
    return parser


def _list(arguments: argparse.Namespace) -> None:
    from db.analysis.history.histories import list_series
    from db.warehouse import Warehouse

    selection = Selection.parse(arguments.selection)
    with Warehouse.open(arguments.db_path, for_questions=True, lock_timeout_s=arguments.lock_timeout) as warehouse:
        rows = list_series(warehouse, selection)
    if arguments.json:
        print(json.dumps([_json(row) for row in rows], indent=2, ensure_ascii=False))
    elif rows:
        print(table_text(_table(rows), stdout_page()))
    else:
        note(f"{NAME}: no series in {arguments.selection or 'this database'}")


def _json(row: dict[str, Any]) -> dict[str, Any]:
    from db.values import plain

    return {name: plain(value, "JSON" if name in JSON_COLUMNS else "") for name, value in row.items()}


def _table(rows: Sequence[dict[str, Any]]) -> Table:
    from benchmarking.core.records import Point

    headings = ("series", "model", "hardware", "runtime", "precision", "point", "runs", "first", "newest", "read as")
    cells = tuple(
        (
            row["series_id"],
            row["model_id"],
            row["device_name"] or row["device_type"] or "-",
            row["runtime"],
            row["precision"],
            Point.from_columns(row).label,
            str(row["runs"]),
            f"{row['first_at']:%Y-%m-%d}",
            f"{row['newest_at']:%Y-%m-%d}",
            f"{row['read_as']}: {row['reason']}" if row["read_as"] else "",
        )
        for row in rows
    )
    return Table(headings=headings, rows=cells, numbers=(headings.index("runs"),))


def _change(arguments: argparse.Namespace) -> None:
    from db.analysis.history.histories import join_series, part_series
    from db.warehouse import Warehouse

    if arguments.what == "alias" and not arguments.reason.strip():
        raise UsageError("--reason is empty: say why they are the same")
    with Warehouse.open(arguments.db_path, lock_timeout_s=arguments.lock_timeout, create=False) as warehouse:
        if arguments.what == "alias":
            done = join_series(warehouse, arguments.old, arguments.new, arguments.reason)
            words = f"{done.series_id} is now read as {done.read_as}"
        else:
            done = part_series(warehouse, arguments.old)
            words = f"{done.series_id} is read as itself again, no longer as {done.read_as}"
    _tell(done, words, as_json=arguments.json)


def _tell(done: JoinedSeries, words: str, *, as_json: bool) -> None:
    if as_json:
        from dataclasses import asdict

        print(json.dumps(asdict(done), indent=2, ensure_ascii=False))
        return
    also = f", and {done.repointed} that were read as {done.series_id}" if done.repointed else ""
    print(words + also)
    for name, (old, new) in done.differs.items():
        values = (visible(json.dumps(value, ensure_ascii=False)) for value in (old, new))
        print(f"  {name}: {' / '.join(values)}")


if __name__ == "__main__":
    sys.exit(main())
