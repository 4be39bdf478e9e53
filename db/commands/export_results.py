"""Exports results in other tools' formats, or a model as ONNX or OpenVINO.

No file is replaced. --format onnx and openvino take the flags of export-model.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

if __package__ in (None, ""):  # run as a file: the path has its folder, not the repository
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarking.core.command_line import command, note
from benchmarking.core.errors import EXIT_OK, UsageError
from benchmarking.core.settings import PATH, add_flags
from benchmarking.core.shared_settings import COMMON
from db.analysis.selection import FIELDS
from db.commands.arguments import add_database, add_shared, command_parser, open_to_read, selection_in
from db.exporters.support.exporting import ExportRequest, exporter_of, exporters

NAME = "benchhouse export"
EXAMPLES = """
examples:
  benchhouse export --output results.csv
  benchhouse export "runtime=eager,since=2026-01-01" --format markdown
  benchhouse export gpt2 --format onnx --output-dir gpt2_onnx
"""
EXIT_CODES = """
exit codes: 0 exported; 1 a file cannot be used; 2 usage, or no results
"""
MODEL_FORMATS = ("onnx", "openvino")


@command(NAME, only_prints=True)
def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    if _is_model_export(argv):
        from benchmarking.commands.export_model import main as export_model

        return export_model(argv)
    by_name = {exporter.name: exporter for exporter in exporters()}
    formats = "\n".join(f"  {name:<25} {exporter.summary}" for name, exporter in by_name.items())
    words = ", ".join((*FIELDS, "tag.NAME", "since", "until"))
    fields = textwrap.fill(f"{words}; or a run id, a commit, latest, sql:CONDITION", 78, subsequent_indent="  ")
    sections = (f"formats of results:\n{formats}", f"SELECTION: FIELD=VALUE,..., where FIELD is one of\n  {fields}")
    parser = command_parser(NAME, __doc__, *sections, EXAMPLES, EXIT_CODES)
    content = parser.add_argument_group("content")
    content.add_argument(
        "selection", nargs="?", default="", metavar="SELECTION", help="results, see below (default: all)"
    )
    content.add_argument(
        "--format",
        choices=(*by_name, *MODEL_FORMATS),
        metavar="FORMAT",
        help="see below (default: by the ending of --output)",
    )
    content.add_argument(
        "--tables",
        choices=("results", "all"),
        help="results only, or everything down to the raw samples (default: depends on the format)",
    )
    content.add_argument(
        "--anonymous", action="store_true", help="omit host and user names from run files (--format json)"
    )
    output = parser.add_argument_group("output")
    place = output.add_mutually_exclusive_group()
    add_flags(place, COMMON["output"].here(kind=PATH, help="new file", default_words="stdout"))
    place.add_argument(
        "--output-dir", type=Path, metavar="DIR", help="new folder, for formats of several files (default: none)"
    )
    add_shared(output, json="print the paths as JSON")
    add_database(parser)
    arguments = parser.parse_args(argv)
    file = Path(arguments.selection)
    if exporter_of(file) is not None and "=" not in arguments.selection:
        raise UsageError(f"{file} is no selection: did you mean --output {shlex.quote(str(file))}?")
    if arguments.format is not None:
        exporter = by_name[arguments.format]
    elif arguments.selection in by_name:
        raise UsageError(f"{file} is no selection: did you mean --format {file}?")
    elif arguments.output is None or (of_ending := exporter_of(arguments.output)) is None:
        raise UsageError("--format FORMAT is missing, such as --format csv; --output results.csv needs none")
    else:
        exporter = of_ending
    if arguments.anonymous and not getattr(exporter, "can_be_anonymous", False):
        raise UsageError(f"--anonymous: the format {exporter.name} contains host names: use --format json")
    tables = exporter.tables[0] if arguments.tables is None else arguments.tables
    if tables not in exporter.tables:
        raise UsageError(f"--tables {tables}: the format {exporter.name} supports only {' and '.join(exporter.tables)}")
    request = ExportRequest(
        anonymous=arguments.anonymous,
        selection=selection_in(arguments, arguments.selection),
        output=arguments.output_dir or arguments.output,
        is_folder=arguments.output_dir is not None,
        tables=tables,
        notify=note,
    )
    with open_to_read(arguments) as warehouse:
        paths_written = exporter.export(warehouse, request)
    if paths_written:
        paths = [str(path) for path in paths_written]
        print(json.dumps({"format": exporter.name, "made": paths}) if arguments.json else "\n".join(paths))
    return EXIT_OK


def _is_model_export(argv: Sequence[str]) -> bool:
    """Whether to export a model: it has its own formats, or is named, without a flag of results, for a folder."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("named", nargs="?", default="=")
    parser.add_argument("--anonymous", action="store_true", default=None)
    for flag in ("--format", "--output-dir", "--tables", "--db-path", "--lock-timeout"):
        parser.add_argument(flag)
    try:
        flags, _ = parser.parse_known_args(argv)
    except argparse.ArgumentError:  # a flag without its value: the command's own parser reports it
        return False
    if flags.format is not None or flags.output_dir is None or "=" in flags.named:
        return flags.format in MODEL_FORMATS
    return all(value is None for value in (flags.anonymous, flags.tables, flags.db_path, flags.lock_timeout))


if __name__ == "__main__":
    sys.exit(main())
