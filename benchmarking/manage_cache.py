"""Shows and clears the build cache: exports, engines, compiled code and reference outputs that runs left behind.

list    a line a build: kind, model, precision, size, when it was made and last used, digest
stats   how many builds and bytes of each kind, and the space that is left on the disk
delete  builds by digest, or by what they are; half-made builds and stale locks go with them
report  the list as CSV

Nothing outside the cache folder is touched, symbolic links in it are left alone, and so is a build that somebody is
making. A build that is gone is made again when it is needed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

if __package__ in (None, ""):  # run as a file: its folder is on the path, the one above is wanted
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarking import flags
from benchmarking.builds import choosing, telling
from benchmarking.builds.choosing import Choice
from benchmarking.builds.cleaning import delete_folders, sweep_leftovers
from benchmarking.builds.contents import Contents, read_contents
from benchmarking.builds.sizes import size_text
from benchmarking.builds.store import BuildStore
from benchmarking.cli_support import Parser, non_negative_number, note, run_command
from benchmarking.core.terminal import stdout_page
from benchmarking.errors import EXIT_FAILED, EXIT_OK, StorageError

NAME = "manage_cache"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command(NAME, _run, argv)


def _run(argv: Sequence[str]) -> int:
    arguments = _parser().parse_args(argv)
    flags.use_cache_dir(arguments.cache_dir)
    root = BuildStore().root
    contents = read_contents(root)
    code: int = arguments.action(root, contents, arguments)
    return code


def _list(root: Path, contents: Contents, arguments: argparse.Namespace) -> int:
    if arguments.json:
        print(json.dumps(telling.list_json(contents), indent=1))
    else:
        print(telling.list_text(root, contents, stdout_page()))
    return EXIT_OK


def _stats(root: Path, contents: Contents, arguments: argparse.Namespace) -> int:
    if arguments.json:
        print(json.dumps(telling.stats_json(root, contents), indent=1))
    else:
        print(telling.stats_text(root, contents, stdout_page()))
    return EXIT_OK


def _report(root: Path, contents: Contents, arguments: argparse.Namespace) -> int:
    text = telling.csv_text(contents)
    if arguments.output is None:
        print(text, end="")
        return EXIT_OK
    path = Path(arguments.output)
    try:
        path.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}") from error
    note(f"report: {path}")
    return EXIT_OK


def _delete(root: Path, contents: Contents, arguments: argparse.Namespace) -> int:
    choice = Choice(
        digests=tuple(arguments.digest),
        kind=arguments.kind,
        model=arguments.model,
        older_than_days=arguments.older_than,
        everything=arguments.all,
    )
    folders = choosing.chosen(contents, choice, confirmed=arguments.yes)
    freed = delete_folders(root, folders)
    swept = sweep_leftovers(root, read_contents(root))
    builds = "build" if freed.count == 1 else "builds"
    print(f"{freed.count} {builds} deleted, {size_text(freed.size_bytes)} freed")
    if swept.size_bytes:
        print(f"half-made builds deleted, {size_text(swept.size_bytes)} freed")
    for path in freed.in_use:
        note(f"left alone: {path}: it is being made right now")
    return EXIT_FAILED if freed.in_use else EXIT_OK


def _parser() -> Parser:
    parser = Parser(prog=NAME, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(metavar="ACTION", required=True, parser_class=Parser)
    for name, action, what in (
        ("list", _list, "every build, a line each"),
        ("stats", _stats, "builds and bytes by kind, and the space that is left"),
    ):
        one = _action(actions, name, action, what)
        one.add_argument("--json", action="store_true", help="results on stdout as JSON")
    _add_choice(_action(actions, "delete", _delete, "delete builds"))
    report = _action(actions, "report", _report, "the list as CSV")
    report.add_argument("--output", metavar="FILE", help="where to; without it stdout")
    return parser


def _action(actions: argparse._SubParsersAction[Parser], name: str, action: object, what: str) -> Parser:
    parser = actions.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
    flags.add_cache_dir(parser.add_argument_group("cache"))
    parser.set_defaults(action=action)
    return parser


def _add_choice(parser: Parser) -> None:
    """Which builds are to be deleted: those that meet everything that is given."""
    which = parser.add_argument_group("which builds: those that meet all of these")
    which.add_argument("digest", nargs="*", metavar="DIGEST", help="digests, or their first digits")
    which.add_argument("--kind", metavar="KIND", help="onnx, openvino, reference, ...")
    which.add_argument("--model", metavar="MODEL", help="made from this model")
    which.add_argument(
        "--older-than", type=non_negative_number, metavar="DAYS", help="not used for as many days or longer"
    )
    which.add_argument("--all", action="store_true", help="every build; takes --yes")
    which.add_argument("--yes", action="store_true", help="really all of them")


if __name__ == "__main__":
    sys.exit(main())
