"""The command `visualize_benchmarks`: draws charts as image files, or writes a report, from a database or run files."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
import unicodedata
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if not __package__:  # run as a script: put the repository's root on the path
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarking.core.argument_types import names
from benchmarking.core.command_line import PART_OF_LIST, Parser, add_aliases, choice, command, note, one_line
from benchmarking.core.command_names import as_typed
from benchmarking.core.errors import EXIT_FAILED, EXIT_OK, StorageError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import DEFAULT_METRIC
from benchmarking.core.settings import SWITCH, WORD, Setting, Values, add_flags
from benchmarking.core.shared_settings import COMMON, SHARED
from benchmarking.core.text import distinct_names
from db.commands.arguments import add_selection
from db.file_copy import make_folder, replace_file
from visualize.drawing.figure import Figure, NotDrawn
from visualize.drawing.picture import picture as drawn
from visualize.drawing.rows import Row, Selection, charts
from visualize.drawing.style import DEFAULT_FORMATS, FORMATS, THEMES, ImageFormat, chosen, image

if TYPE_CHECKING:
    from db.analysis.selection import Selection as Words

NAME = "visualize_benchmarks"
GLYPH = re.compile(r"Glyph (\d+) ")
"""How matplotlib warns of a character that the font lacks."""
MOST_LETTERS = 10
"""Most of such characters that are named."""
LONGEST_STEM = 180
"""File systems allow names of 255 bytes; the rest is for extensions."""
DEFAULT_OUTPUT_DIR = "benchmark_visualizations"
ARCHITECTURES = "architecture_comparison"
NO_MODEL = re.compile(r"[^=]+=|sql:|latest$|[0-9a-f-]{7,}$")
"""A word after --model-id that is not one more model, but the selection."""
EXAMPLES = """examples:
  every chart of one model from the default database
    benchhouse charts model=bert-base-uncased
  a model before and now, dark, as PNG and PDF files
    benchhouse charts model=gpt2 --chart temporal_trend --theme dark --format png,pdf
  one chart straight from run files, without a database
    benchhouse charts --json-path benchmark_results --chart pareto_front
  a report of two runtimes that opens in any browser, without network
    benchhouse charts --report r.html --compare runtime=eager runtime=compiled
"""


@command(NAME)
def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    options = _parser().parse_args(argv)
    known = charts()
    if options.selection in known:
        raise UsageError(f"{options.selection!r} is a chart: did you mean --chart {options.selection}?")
    models = options.model_id
    options.model_id = models[0] if len(models) == 1 else None
    if len(models) > 1:
        options.selection = f"model={'|'.join(models)},{options.selection}".rstrip(",")
    if options.list_charts:
        columns = ("name", "title", "needs", "by_default")
        width = max(map(len, known))
        if options.json:
            print(json.dumps([{column: getattr(chart, column) for column in columns} for chart in known.values()]))
        for chart in () if options.json else known.values():
            only = "" if chart.by_default else "; drawn only when named"
            print(f"{chart.name:<{width}}  needs {chart.needs}{only}")
        return EXIT_OK
    _check(options)
    if options.report:
        return _report(options)
    demanded, wanted = _charts(options)
    formats = {choice(name, FORMATS, "format") for name in options.formats}
    rows, refused = _rows(options, wanted)
    folder = writable_folder(Path(options.output_dir))
    written: list[str] = []
    troubles = [
        *refused,
        *(
            f"chart {name}: no selected result has the required data: {known[name].needs}"
            for name in dict.fromkeys(demanded)
            if not rows[name]
        ),
    ]
    missing: dict[str, list[NotDrawn]] = {}
    not_in_font = set[str]()

    def pictured(name: str, drawings: Iterable[Figure | NotDrawn]) -> tuple[list[Path], list[NotDrawn]]:
        """The paths of the written image files, and what is not drawn. Each figure ends with its images."""
        pictures: list[Picture] = []
        reasons: list[NotDrawn] = []
        with chosen(options.theme), _missing_glyphs(not_in_font):
            for one in drawings:
                if isinstance(one, NotDrawn):
                    reasons.append(one)
                    continue
                figure = drawn(one)
                images = tuple((kind, image(figure, kind)) for kind in FORMATS if kind in formats)
                pictures.append(Picture(name_parts=one.name_parts, details=one.details, images=images))
        paths = write(name, pictures, folder)
        written.extend(map(str, paths))
        if not options.json:
            print(*paths, sep="\n", end="\n" if paths else "", flush=True)
        return paths, reasons

    for name, found in rows.items():
        if not found:
            continue
        paths, reasons = pictured(name, known[name].draw(found))
        if name in demanded and not paths:  # better the charts of single points than none
            paths, _ = pictured(name, (one.alone for one in reasons if one.alone))
            reasons = [one for one in reasons if one.alone is None]
        missing[name] = reasons
        if name in demanded and not paths:
            troubles += [f"{one.what}: {one.why}" for one in reasons[:1]]
        elif not options.quiet and reasons:
            note(f"not drawn: {one_line(not_drawn(name, reasons))}")
    if not written:
        for name, reasons in missing.items():
            pictured(name, (one.alone for one in reasons if one.alone))
    if any(rows.values()) and not written:
        every = [one for reasons in missing.values() for one in reasons]
        found_reasons = list(dict.fromkeys(f"{one.what}: {one.why}" for one in every))
        more = f"; and {len(found_reasons) - 2} more" if len(found_reasons) > 2 else ""
        raise StorageError(f"nothing could be drawn: {'; '.join(found_reasons[:2])}{more}")
    without_data = [name for name, found in rows.items() if not found and name not in demanded]
    if without_data and not options.quiet:
        note(f"no data for {', '.join(without_data)}: see {NAME} --list")
    if not_in_font and not options.quiet:
        letters = f"{''.join(sorted(not_in_font)[:MOST_LETTERS])}{'...' if len(not_in_font) > MOST_LETTERS else ''}"
        note(f"boxes in PNG and PDF, not in SVG: the font of pictures has no {one_line(letters)}")
    if options.json:
        print(json.dumps(written))
    for trouble in troubles:
        note(f"{as_typed('charts')}: error: {one_line(trouble)}")
    return EXIT_FAILED if troubles else EXIT_OK


@contextmanager
def _missing_glyphs(letters: set[str]) -> Iterator[None]:
    """Add the characters that the font lacks to `letters`, instead of matplotlib's warning about each."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.filterwarnings("always", GLYPH.pattern)
        yield
    for warning in warned:
        found = GLYPH.match(str(warning.message))
        if found is None:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
        elif (letter := chr(int(found[1]))).isprintable():
            letters.add(letter)


def _parser() -> Parser:
    parser = Parser(
        prog=NAME,
        description="Draw charts of benchmark results as image files, or write a report. Prints the path of each file.",
        epilog=EXAMPLES,
    )
    group = parser.add_argument_group("source of the results")
    source = group.add_mutually_exclusive_group()
    add_flags(source, SHARED["db_path"].here(default=None, default_words=SHARED["db_path"].default_words))
    source.add_argument(
        "--json-path", metavar="FILE", nargs="+", help="run files, folders or glob patterns (default: the database)"
    )
    add_flags(group, SHARED["lock_timeout"].here(default=30.0))
    group = parser.add_argument_group("selection of results")
    add_selection(group)
    models = group.add_argument(
        "--model-id", action=Values, type=names, default=(), metavar="A,B", help="models (default: every model)"
    )
    vars(models)[PART_OF_LIST] = lambda word: NO_MODEL.match(word) is None
    add_aliases(group, models, "--models", "--model")
    add_flags(
        group,
        Setting("device", WORD, "device or device type", default_words="every device"),
        Setting("runtime", WORD, "runtime", default_words="every runtime"),
        Setting("precision", WORD, "precision", default_words="every precision"),
    )
    charts = parser.add_argument_group("charts")
    what = "charts to draw: A,B (default: all with data, except those of single results)"
    chart = charts.add_argument("--chart", type=names, action="extend", dest="charts", metavar="NAME", help=what)
    add_aliases(charts, chart, "--charts")
    add_flags(
        charts,
        Setting("architecture_comparison", SWITCH, "compare all models by architecture family"),
        Setting("baseline", WORD, "device of which speedups are relative", default_words="the slowest"),
        COMMON["metric"].here(help="metric of charts over time and of --compare"),
    )
    charts_and_data = charts.add_argument(
        "--list", action="store_true", dest="list_charts", help="list the charts and the data they need"
    )
    add_aliases(charts, charts_and_data, "--list-charts")
    report = parser.add_argument_group("report")
    what = "findings, tables and charts in one file: FILE.html, or FILE.md for a pull request"
    add_flags(report, COMMON["report"].here(help=what))
    report.add_argument(
        "--compare", nargs=2, metavar=("A", "B"), help="--report: two selections to compare (default: none)"
    )
    add_flags(report, COMMON["across"].here(help="--compare: fields that may differ, or all"), lists=("across",))
    output = parser.add_argument_group("output")
    add_flags(output, SHARED["output_dir"].here(help="folder of the files", default=DEFAULT_OUTPUT_DIR))
    formats = output.add_argument(
        "--format",
        action=Values,
        type=names,
        default=DEFAULT_FORMATS,
        dest="formats",
        metavar="A,B",
        help="image formats: png, svg, pdf (default: png,svg)",
    )
    add_aliases(output, formats, "--formats")
    output.add_argument("--theme", choices=THEMES, default=THEMES[0], help="colours (default: %(default)s)")
    as_json = SHARED["json"].here(help="one JSON list on stdout (default: one path per line)")
    add_flags(output, as_json, SHARED["quiet"].here(help="no notes on stderr about missing charts"))
    return parser


def _charts(options: argparse.Namespace) -> tuple[list[str], list[str]]:
    """The charts requested by name, of which it is an error if one cannot be drawn, and all to draw. Raises
    UsageError."""
    known = tuple(charts())
    named = [choice(name, known, "chart") for name in options.charts or ()]
    named += [ARCHITECTURES] if options.architecture_comparison else []
    with_model = options.model_id and not options.charts
    usual = [name for name in known if charts()[name].by_default]
    default = [name for name in usual if not options.model_id or charts()[name].scope == "model"]
    wanted = [*default, *named] if with_model or not named else named
    if options.metric != DEFAULT_METRIC and not any(charts()[name].has_metric for name in wanted):
        of_any = [name for name in known if charts()[name].has_metric]
        raise UsageError(f"--metric applies to {', '.join(of_any)}: add --chart {of_any[0]}")
    return named, list(dict.fromkeys(wanted))


def _words(options: argparse.Namespace) -> Words:
    """The selection; user SQL in it is run here."""
    from visualize.sources import resolved

    return resolved(options.selection, options.json_path, options.db_path, options.lock_timeout)


def _selection(options: argparse.Namespace) -> Selection:
    fields = ("model_id", "device", "runtime", "precision", "baseline", "metric")
    return Selection(**{name: getattr(options, name) for name in fields})


def _check(options: argparse.Namespace) -> None:
    """Raise UsageError for options that exclude each other."""
    if options.compare is None and options.across:
        raise UsageError("--across applies to comparisons: add --compare A B")
    if options.report is None:
        if options.compare is not None:
            raise UsageError("--compare is part of a report: add --report FILE.html, or use benchhouse compare")
        return
    if options.compare is None and options.metric != DEFAULT_METRIC:
        raise UsageError("--metric applies to charts over time and to comparisons: add --compare A B")
    if options.charts or options.architecture_comparison:
        raise UsageError("--report has its own charts: leave out --chart and --architecture-comparison")
    narrowed = [options.selection, *(getattr(options, name) for name in ("model_id", "device", "runtime", "precision"))]
    if options.compare is not None and any(narrowed):
        raise UsageError("--compare has selections of its own: leave out SELECTION, --model-id, --device and the like")


def _report(options: argparse.Namespace) -> int:
    """Write the report and print its path."""
    from visualize.report.report_file import write_report

    refused = write_report(
        Path(options.report),
        options.json_path,
        options.db_path,
        options.lock_timeout,
        selection=_selection(options),
        words=_words(options),
        sides=options.compare,
        metric=options.metric,
        across=options.across,
    )
    print(json.dumps([options.report]) if options.json else options.report)
    for trouble in refused:
        note(f"{as_typed('charts')}: error: {one_line(trouble)}")
    return EXIT_FAILED if refused else EXIT_OK


def _rows(options: argparse.Namespace, wanted: Sequence[str]) -> tuple[dict[str, list[Row]], tuple[str, ...]]:
    """The rows of each chart, and the errors of unreadable files. The database is closed before drawing. Raises
    UsageError for unknown names and StorageError for an unreadable source."""
    from visualize import sources

    words = _words(options)
    source = sources.opened(options.json_path, options.db_path, options.lock_timeout)
    with source.warehouse:
        selection = sources.chosen(source, sources.checked(source, _selection(options)), words)
        every_model = replace(selection, model_id=None)
        rows = {
            name: chart.rows(source.warehouse, selection if chart.scope == "model" else every_model)
            for name in wanted
            for chart in [charts()[name]]
        }
        if not any(rows.values()) and not sources.has_results(source, selection):
            raise sources.nothing_selected(source, selection, words)
    return rows, source.refused


def not_drawn(chart: str, missing: Sequence[NotDrawn]) -> str:
    """One line for a chart: how many figures are missing, and the most common reason with an example."""
    reasons = Counter(one.why for one in missing)
    why, count = reasons.most_common(1)[0]
    example = next(one.what for one in missing if one.why == why)
    if len(missing) == 1:
        return f"{example}: {why}"
    others = f", {len(missing) - count} for other reasons" if len(reasons) > 1 else ""
    return f"{chart}: {len(missing)} figures, {count} such as {example}: {why}{others}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A drawing as image files, without its figure."""

    name_parts: tuple[str, ...]
    details: tuple[str, ...]
    images: tuple[tuple[ImageFormat, bytes], ...]


def stems(chart: str, pictures: Sequence[Picture]) -> list[str]:
    """File names without extension: safe on every file system, at most LONGEST_STEM long, and unique ignoring case."""
    plain = ["_".join(map(safe, (chart, *one.name_parts))) for one in pictures]
    facts = [[safe(fact) for fact in one.details] for one in pictures]
    apart = distinct_names([name.lower() for name in plain], facts, "_")
    whole = [name + other[len(name) :] for name, other in zip(plain, apart, strict=True)]
    return [
        one
        if len(one) <= LONGEST_STEM
        else f"{one[: LONGEST_STEM - 11]}-{hashlib.sha256(one.encode()).hexdigest()[:10]}"
        for one in whole
    ]


def safe(part: str) -> str:
    """A part of a file name: Latin letters, digits and . _ = - are kept, "/" becomes "--", everything else "-"; names
    in other letters, or pictures, get a digest, since they differ in nothing else."""
    kept = re.sub(r"[^A-Za-z0-9._=-]+", "-", part.replace("/", "--")).strip("._-")
    others = (letter for letter in part if not letter.isascii())
    is_lossy = any(one.isalnum() or unicodedata.category(one) == "So" for one in others)
    digest = [hashlib.sha256(part.encode("utf-8", "surrogatepass")).hexdigest()[:8]] if is_lossy else []
    return "-".join(filter(None, (kept, *digest))) or "-"


def writable_folder(folder: Path) -> Path:
    """The folder, created if missing. Raises StorageError if it cannot be created or written to."""
    make_folder(folder)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StorageError(f"cannot write to the folder {folder}: choose another with --output-dir")
    return folder


def write(chart: str, pictures: Sequence[Picture], folder: Path) -> list[Path]:
    """Write the pictures of a chart, replacing existing files, and return their paths. Raises StorageError."""
    paths = []
    for stem, one in zip(stems(chart, pictures), pictures, strict=True):
        for image_format, content in one.images:
            path = folder / f"{stem}.{image_format}"
            replace_file(path, content, "choose another --output-dir")
            paths.append(path)
    return paths


if __name__ == "__main__":
    sys.exit(main())
