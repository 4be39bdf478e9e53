"""Lists what became worse since a date, worst first, with the commits between which the cause lies.

Answers from the stored change points, in one query, which the view `regressions` asks as well. Where results came in
since they were last searched, that is done first, and told; --no-update only reads.

  benchhouse regressions --since 2026-01-01
  benchhouse regressions --since 2026-01-01 model=gpt2 --metric latency_median_ms,memory_peak_rss_infer_mb --markdown

exit codes: 0 answered, also where there are none; 1 trouble; 2 usage
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

from benchmarking.core.command_line import Parser, add_database_flags, choice, names, note, run_command
from benchmarking.core.errors import EXIT_OK
from benchmarking.core.metrics import DEFAULT_METRIC, JUDGED
from benchmarking.core.terminal import stdout_page
from db.analysis.selection import Selection

if TYPE_CHECKING:
    from db.analysis.history.regressions import Regression

NAME = "benchhouse regressions"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command(NAME, _run, argv)


def _run(argv: Sequence[str]) -> int:
    arguments = _parser().parse_args(argv)
    metrics = [JUDGED[choice(name, tuple(JUDGED), "metric")] for name in arguments.metric]
    dates, selection = Selection.parse(_dates(arguments)), Selection.parse(arguments.selection)

    from db.analysis.history.changes import refresh_changes
    from db.analysis.history.regressions import regressions
    from db.warehouse import Warehouse

    if not arguments.no_update:
        done = refresh_changes(arguments.db_path, metrics, lock_timeout_s=arguments.lock_timeout)
        if done.series:
            note(f"{NAME}: {done.text}")
    with Warehouse.open(arguments.db_path, for_questions=True, lock_timeout_s=arguments.lock_timeout) as warehouse:
        found = regressions(warehouse, metrics, dates=dates, selection=selection)
    _show(found, arguments)
    return EXIT_OK


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog=NAME, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "selection",
        nargs="?",
        default="",
        metavar="SELECTION",
        help="only these: FIELD=VALUE,... with model, device, runtime, branch, tag.NAME, ...; or sql:CONDITION",
    )
    parser.add_argument("--since", metavar="DATE", help="first changed on that day or later, such as 2026-01-01")
    parser.add_argument("--until", metavar="DATE", help="first changed on that day at the latest")
    parser.add_argument(
        "--metric",
        type=names,
        default=(DEFAULT_METRIC,),
        metavar="COLUMN,...",
        help=f"by what (default {DEFAULT_METRIC})",
    )
    parser.add_argument("--no-update", action="store_true", help="only read: the change points as they were stored")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="all of it as JSON")
    form.add_argument("--markdown", action="store_true", help="as a page")
    add_database_flags(parser)
    return parser


def _dates(arguments: argparse.Namespace) -> str:
    """As a selection says it."""
    return ",".join(f"{word}={date}" for word in ("since", "until") if (date := getattr(arguments, word)) is not None)


def _show(found: Sequence[Regression], arguments: argparse.Namespace) -> None:
    if arguments.json:
        print(json.dumps([_json(one) for one in found], indent=2, ensure_ascii=False))
    elif not found:
        print(f"no regressions of {', '.join(arguments.metric)}{_when(arguments)}")
    else:
        from db.analysis.history.text import regressions_markdown, regressions_text

        title = f"Regressions of {', '.join(arguments.metric)}{_when(arguments)}"
        print(regressions_markdown(found, title) if arguments.markdown else regressions_text(found, stdout_page()))


def _when(arguments: argparse.Namespace) -> str:
    return "".join(f" {word} {date}" for word in ("since", "until") if (date := getattr(arguments, word)) is not None)


def _json(one: Regression) -> dict[str, Any]:
    from dataclasses import asdict

    from db.values import plain

    fields = {name: plain(value) for name, value in asdict(one).items() if name not in ("metric", "together")}
    together = None if one.together is None else {**asdict(one.together), "text": one.together.text}
    return {"metric": one.metric.column, "unit": one.metric.unit, **fields, "together": together}


if __name__ == "__main__":
    sys.exit(main())
