"""Exports results in other tools' formats, or a model as ONNX or OpenVINO.

Results: all, or those of SELECTION, as CSV, Parquet, run files, Markdown, ... Output appears only when it is complete,
and never replaces a file. Formats that are a single text go to stdout unless --output names a file.

Models: with --format onnx or openvino, MODEL is exported to files that are checked against torch; the flags are those
of export_to_onnx (benchhouse export --format onnx --help).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

if __package__ in (None, ""):  # run as a file: its folder is on the path, the one above the package is wanted
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarking.core.command_line import Parser, note, run_command
from benchmarking.core.errors import EXIT_OK, UsageError
from db.analysis.selection import FIELDS
from db.commands.arguments import add_database, command_parser, open_to_read, selection_in
from db.exporters.support.exporting import Exporter, ExportRequest, Tables, exporters

NAME = "benchhouse export"
EXAMPLES = """
examples:
  benchhouse export --format csv --output results.csv
  benchhouse export "runtime=eager,since=2026-01-01" --format markdown
  benchhouse export --format parquet --output warehouse_parquet
  benchhouse export gpt2 --format onnx --output-dir gpt2_onnx
"""
EXIT_CODES = """
exit codes: 0 exported; 1 a file cannot be read or written; 2 usage, or nothing is selected
"""
MODEL_FORMATS = ("onnx", "openvino")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    given = sys.argv[1:] if argv is None else list(argv)
    if _is_model_export(given):
        from benchmarking.export_to_onnx import main as export_model

        return export_model(given)
    return run_command(NAME, _run, given)


def _is_model_export(argv: Sequence[str]) -> bool:
    """Whether a model is to be exported: by the format, or by the flag that only models have."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--format")
    parser.add_argument("--output-dir")
    try:
        found, _ = parser.parse_known_args(argv)
    except argparse.ArgumentError:  # a flag without its value: the command's own parser reports it
        return False
    return found.format in MODEL_FORMATS or (found.format is None and found.output_dir is not None)


def _run(argv: Sequence[str]) -> int:
    known = {exporter.name: exporter for exporter in exporters()}
    arguments = _parser(known).parse_args(argv)
    exporter = known[arguments.format]
    if arguments.anonymous and not getattr(exporter, "can_be_anonymous", False):
        raise UsageError(f"--anonymous: the format {exporter.name} holds names of hosts: export --format json")
    request = ExportRequest(
        anonymous=arguments.anonymous,
        selection=selection_in(arguments, arguments.selection),
        output=arguments.output,
        tables=_tables(exporter, arguments.tables),
        notify=note,
    )
    with open_to_read(arguments) as warehouse:
        made = exporter.export(warehouse, request)
    if made:
        paths = [str(path) for path in made]
        print(json.dumps({"format": exporter.name, "made": paths}) if arguments.json else "\n".join(paths))
    return EXIT_OK


def _parser(known: dict[str, Exporter]) -> Parser:
    formats = "\n".join(f"  {name:<25} {exporter.summary}" for name, exporter in known.items())
    sections = (f"formats of results:\n{formats}", f"SELECTION: FIELD=VALUE,... with a FIELD of\n  {_fields()}")
    parser = command_parser(NAME, __doc__, *sections, EXAMPLES, EXIT_CODES)
    what = parser.add_argument_group("what is exported")
    what.add_argument("selection", nargs="?", default="", metavar="SELECTION", help="results, see below (default: all)")
    what.add_argument("--format", required=True, choices=(*known, *MODEL_FORMATS), metavar="FORMAT", help="see below")
    what.add_argument(
        "--tables",
        choices=("results", "all"),
        help="the results only, or everything down to the raw samples (default: by format)",
    )
    what.add_argument(
        "--anonymous", action="store_true", help="leave the names of hosts and users out of run files (--format json)"
    )
    output = parser.add_argument_group("output")
    output.add_argument("--output", type=Path, metavar="FILE|DIR", help="new file or folder (default: by format)")
    output.add_argument("--json", action="store_true", help="print the paths as JSON")
    add_database(parser)
    return parser


def _fields() -> str:
    import textwrap

    words = ", ".join((*FIELDS, "tag.NAME", "since", "until"))
    return textwrap.fill(f"{words}; or a run id, a commit, latest, sql:CONDITION", 110, subsequent_indent="  ")


def _tables(exporter: Exporter, chosen: Tables | None) -> Tables:
    """How much is exported. Raises UsageError for what the format does not have."""
    if chosen is None:
        return exporter.tables[0]
    if chosen not in exporter.tables:
        raise UsageError(f"--tables {chosen}: the format {exporter.name} has {' and '.join(exporter.tables)} only")
    return chosen


if __name__ == "__main__":
    sys.exit(main())
