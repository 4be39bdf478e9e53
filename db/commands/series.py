"""Lists series, and joins two series into one history, such as after a rename.

A series is one model and point on one runtime, precision and hardware. Its id is a hash of these, so a renamed model or
a new setting starts a new series. An alias makes every command read the old series as the new one. No data is
rewritten, and unalias removes the alias.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

if __package__ in (None, ""):  # run as a file: the path has its folder, not the repository
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarking.core.command_line import command, note
from benchmarking.core.errors import EXIT_OK, UsageError
from benchmarking.core.tables import Table, table_text
from benchmarking.core.terminal import stdout_page
from benchmarking.core.text import visible
from db.commands.arguments import (
    add_database,
    add_selection,
    add_shared,
    command_parser,
    open_to_read,
    open_to_write,
    plain_values,
    print_json,
    selection_in,
    unstored_in,
)
from db.values import SETTINGS, precision_words

NAME = "benchhouse series"
EXAMPLES = """
examples:
  benchhouse series list model=gpt2
  benchhouse series alias 3f2a91bc 9b4b5571 --reason "renamed from gpt2-small"
  benchhouse series unalias 3f2a91bc
"""
JSON_COLUMNS = ("axes", "runtime_mode", "hashed_keys")


@command(NAME)
def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    parser = command_parser(NAME, __doc__, EXAMPLES)
    commands = parser.add_subparsers(dest="what", required=True, metavar="list|alias|unalias")
    listing = commands.add_parser("list", help="list series")
    add_selection(listing)
    alias = commands.add_parser("alias", help="alias a series")
    alias.add_argument("old", metavar="OLD", help="the series that ended: id or unique prefix")
    alias.add_argument("new", metavar="NEW", help="the series that continues it: id or unique prefix")
    alias.add_argument("--reason", required=True, metavar="TEXT", help="reason why the two are one history")
    unalias = commands.add_parser("unalias", help="remove the alias of a series")
    unalias.add_argument("old", metavar="OLD", help="series id or unique prefix")
    for subcommand in (listing, alias, unalias):
        add_shared(subcommand, json="print the result as JSON")
        add_database(subcommand)
    arguments = parser.parse_args(argv)
    if arguments.what == "list":
        from db.analysis.history.histories import list_series

        selection = selection_in(arguments, arguments.selection)
        with open_to_read(arguments) as warehouse:
            rows = list_series(warehouse, selection)
        if arguments.json:
            print_json([plain_values(row, lambda name: "JSON" if name in JSON_COLUMNS else "") for row in rows])
        elif rows:
            from benchmarking.core.records import Point

            subject = ("series", "model", "hardware", "runtime", "precision", SETTINGS, "point")
            headings = (*subject, "runs", "first", "newest", "alias of")
            cells = tuple(
                (
                    row["series_id"],
                    row["model_id"],
                    row["device_name"] or row["device_type"] or "-",
                    row["runtime"],
                    precision_words(row["precision"], row["runtime_mode"]),
                    row[SETTINGS] or "",
                    Point.from_columns(row).label,
                    str(row["runs"]),
                    f"{row['first_at']:%Y-%m-%d}",
                    f"{row['newest_at']:%Y-%m-%d}",
                    f"{row['read_as']}: {row['reason']}" if row["read_as"] else "",
                )
                for row in rows
            )
            table = Table(headings=headings, rows=cells, numbers=(headings.index("runs"),))
            print(table_text(table, stdout_page()))
        else:
            why = unstored_in(arguments, arguments.selection)
            note(f"{NAME}: no series in {arguments.selection or 'this database'}{why}")
        return EXIT_OK
    from db.analysis.history.histories import alias_series, unalias_series

    if arguments.what == "alias" and not arguments.reason.strip():
        raise UsageError("--reason is empty: say why the two are one history")
    with open_to_write(arguments) as warehouse:
        if arguments.what == "alias":
            changed = alias_series(warehouse, arguments.old, arguments.new, arguments.reason)
            words = f"{changed.series_id} is now an alias of {changed.read_as}"
        else:
            changed = unalias_series(warehouse, arguments.old)
            words = f"{changed.series_id} is no longer an alias of {changed.read_as}"
    if arguments.json:
        from dataclasses import asdict

        print_json(asdict(changed))
        return EXIT_OK
    moved = f"; aliases of {changed.series_id} that moved along: {changed.repointed}" if changed.repointed else ""
    print(words + moved)
    for name, (old, new) in changed.differs.items():
        values = (visible(json.dumps(value, ensure_ascii=False)) for value in (old, new))
        print(f"  {name}: {' / '.join(values)}")
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
