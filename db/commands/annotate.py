"""Stores notes about runs, results, series, machines and alerts: context that no measurement records.

Trend charts and pages show each note at the time of its subject.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

if __package__ in (None, ""):  # run as a file: the path has its folder, not the repository
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarking.core.command_line import Parser, run_command
from benchmarking.core.errors import EXIT_OK
from benchmarking.core.tables import Column, table_of, table_text
from benchmarking.core.terminal import stdout_page
from db.commands.arguments import (
    add_database,
    command_parser,
    open_to_read,
    open_to_write,
    plain_values,
    print_json,
)

if TYPE_CHECKING:
    from db.analysis.annotations import Annotation

NAME = "benchhouse annotate"
EXAMPLES = """
examples:
  benchhouse annotate add 0199a3f2 "the fan was replaced" --author mira
  benchhouse annotate list
  benchhouse annotate remove 0199a3f4
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command(NAME, _run, argv)


def _run(argv: Sequence[str]) -> int:
    arguments = _parser().parse_args(argv)
    return {"add": _add, "list": _list, "remove": _remove}[arguments.what](arguments)


def _parser() -> Parser:
    parser = command_parser(NAME, __doc__, EXAMPLES)
    commands = parser.add_subparsers(dest="what", required=True, metavar="add|list|remove")
    adding = commands.add_parser("add", help="store a note")
    adding.add_argument("target", metavar="ID", help="id of a run, result, series, machine or alert, or unique prefix")
    adding.add_argument("note", metavar="TEXT", help="text of the note, at most 2000 characters")
    adding.add_argument("--author", metavar="NAME", help="author of the note (default: none)")
    listing = commands.add_parser("list", help="show the notes, oldest first")
    removing = commands.add_parser("remove", help="delete a note")
    removing.add_argument("id", metavar="ID", help="id of the note or unique prefix")
    for command in (adding, listing, removing):
        command.add_argument("--json", action="store_true", help="print the result as JSON")
        add_database(command)
    return parser


def _add(arguments: argparse.Namespace) -> int:
    from db.analysis.annotations import annotate

    with open_to_write(arguments) as warehouse:
        annotation = annotate(warehouse, arguments.target, arguments.note, arguments.author)
    if arguments.json:
        print_json(plain_values(asdict(annotation)))
    else:
        print(f"{annotation.annotation_id}: about {annotation.target_kind} {annotation.target_id}")
    return EXIT_OK


def _list(arguments: argparse.Namespace) -> int:
    from db.analysis.annotations import list_annotations

    with open_to_read(arguments) as warehouse:
        annotations = list_annotations(warehouse)
    if arguments.json:
        print_json([plain_values(asdict(one)) for one in annotations])
    else:
        print(table_text(table_of(COLUMNS, annotations, stdout_page()), stdout_page()) if annotations else "no notes")
    return EXIT_OK


def _remove(arguments: argparse.Namespace) -> int:
    from db.analysis.annotations import remove_annotation

    with open_to_write(arguments) as warehouse:
        removed = remove_annotation(warehouse, arguments.id)
    if arguments.json:
        print_json({"removed": removed})
    else:
        print(f"{removed}: removed")
    return EXIT_OK


COLUMNS: tuple[Column[Annotation], ...] = (
    Column(heading="note", text=lambda one: one.annotation_id, is_key=True),
    Column(heading="written", text=lambda one: one.created_at.isoformat(sep=" ", timespec="minutes")),
    Column(heading="about", text=lambda one: f"{one.target_kind} {one.target_id}", is_key=True),
    Column(heading="author", text=lambda one: one.author),
    Column(heading="text", text=lambda one: one.note),
)


if __name__ == "__main__":
    sys.exit(main())
