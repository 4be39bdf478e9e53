"""Gates CI: judges the newest results against the runs of their series before them.

Each result is held against a prediction interval of its series since the last confirmed change point (10 runs at
least, the last 40 at most). Worse than 99 % of runs would be that nothing happened to, and by more than 2 %, is
regressed. --confirm measures what is worse again in a fresh session, and only what is worse there too is regressed.
What is regressed becomes an alert (benchhouse alert list), once for the same commits.

  benchhouse check --session 0199a3f2 --confirm --junit gate.xml --markdown gate.md
  benchhouse check model=bert-base-uncased,runtime=eager --metric latency_median_ms,memory_peak_rss_infer_mb

exit codes: 0 nothing regressed, though some series may have too few runs to say (that is told);
            1 something regressed, or failed that was measured before; also where nearly everything moved together,
              which is more likely the machine than the code ("environment, not code?"): the gate cannot prove it;
            2 usage; 3 not enough data to judge anything
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if __package__ in (None, ""):  # run as a file: its folder is on the path, that of the packages is wanted
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarking.core.command_line import Parser, add_database_flags, choice, names, note, run_command
from benchmarking.core.errors import EXIT_NOT_ENOUGH_DATA, EXIT_OK, BenchhouseError, StorageError, UsageError
from benchmarking.core.metrics import DEFAULT_METRIC, JUDGED
from benchmarking.core.terminal import stdout_page
from db.analysis.selection import Selection

if TYPE_CHECKING:
    from db.analysis.gate.confirmation import FlaggedRun
    from db.analysis.gate.findings import Finding

NAME = "benchhouse check"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command(NAME, _run, argv)


def _run(argv: Sequence[str]) -> int:
    arguments = _parser().parse_args(argv)
    for metric in arguments.metric:
        choice(metric, tuple(JUDGED), "metric")
    selection = Selection.parse(arguments.selection)

    from db.analysis.gate.findings import exit_code

    if not arguments.no_alerts:
        _find_changes(arguments)
    findings, flagged = _findings(arguments, selection)
    if not findings:
        return _nothing(arguments)
    if arguments.confirm:
        findings = _confirmed(arguments, findings, flagged)
    try:
        if not arguments.no_alerts:
            _raise_alerts(arguments, findings)
    finally:  # what was found is told, whatever becomes of the alerts
        _tell(arguments, findings)
    return exit_code(findings)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog=NAME, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "selection",
        nargs="?",
        default="",
        metavar="SELECTION",
        help="judge only these: FIELD=VALUE,... with model, device, runtime, precision, tag.NAME; or sql:CONDITION",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--run", metavar="ID", help="judge this run: its id, or how that begins")
    which.add_argument("--session", metavar="ID", help="judge this session; without either the newest one")
    parser.add_argument(
        "--metric",
        type=names,
        default=(DEFAULT_METRIC,),
        metavar="COLUMN,...",
        help=f"what is judged (default {DEFAULT_METRIC})",
    )
    parser.add_argument("--confirm", action="store_true", help="measure what is worse again, in a fresh session")
    parser.add_argument(
        "--output-dir", default="benchmark_results", metavar="DIR", help="--confirm: run files (default %(default)s)"
    )
    parser.add_argument(
        "--no-alerts", action="store_true", help="only read the database: store neither alerts nor change points"
    )
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write JUnit's XML, a test case a series")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write a summary for a pull request")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    add_database_flags(parser)
    return parser


def _find_changes(arguments: argparse.Namespace) -> None:
    """Bring the change points up to date that segments begin at."""
    from db.analysis.history.changes import refresh_changes

    metrics = [JUDGED[name] for name in dict.fromkeys(arguments.metric)]
    refresh_changes(arguments.db_path, metrics, lock_timeout_s=arguments.lock_timeout)


def _findings(
    arguments: argparse.Namespace, selection: Selection
) -> tuple[tuple[Finding, ...], tuple[FlaggedRun, ...]]:
    """The findings, and the runs with a regression."""
    from db.analysis.gate.candidates import Scope, candidates
    from db.analysis.gate.confirmation import flagged_runs, with_commands
    from db.analysis.gate.findings import found
    from db.warehouse import Warehouse

    scope = Scope(run=arguments.run, session=arguments.session)
    metrics = [JUDGED[name] for name in dict.fromkeys(arguments.metric)]
    with Warehouse.open(arguments.db_path, read_only=True, lock_timeout_s=arguments.lock_timeout) as warehouse:
        findings = found(candidates(warehouse, selection, scope, metrics))
        flagged = flagged_runs(warehouse, findings)
    return with_commands(findings, flagged, _command), flagged


def _command(flagged: FlaggedRun) -> str:
    """The command that measures a flagged run again, for a shell."""
    from benchmarking.sweep.plan.repetition import repeated_request

    return shlex.join(repeated_request(flagged.run, flagged.points).command)


def _nothing(arguments: argparse.Namespace) -> int:
    """Say that nothing is selected: exit code 2 where something was named, 3 for a database without results."""
    asked = [arguments.selection, arguments.run, arguments.session]
    if any(asked):
        named = " ".join(word for word in asked if word)
        raise UsageError(f"{named!r} selects no result of {arguments.db_path}: see benchhouse history")
    note(f"{NAME}: not enough data: {arguments.db_path} has no results")
    return EXIT_NOT_ENOUGH_DATA


def _confirmed(
    arguments: argparse.Namespace, findings: Sequence[Finding], flagged: Sequence[FlaggedRun]
) -> tuple[Finding, ...]:
    """The findings after what regressed was measured again, in a fresh session for each run."""
    from db.analysis.gate.confirmation import confirm
    from db.warehouse import Warehouse

    def open_warehouse() -> Warehouse:
        return Warehouse.open(arguments.db_path, read_only=True, lock_timeout_s=arguments.lock_timeout)

    return confirm(findings, flagged, lambda one: _measure_again(arguments, one), open_warehouse)


def _measure_again(arguments: argparse.Namespace, flagged: FlaggedRun) -> str | None:
    """Measure a flagged run's points again and store them; gives why that failed, None where it worked.

    What is printed of it goes to stderr: stdout is the gate's.
    """
    from benchmarking.sweep.plan.repetition import repeated_request
    from benchmarking.sweep.run import session
    from benchmarking.sweep.run.warehouse import database

    try:
        request = repeated_request(flagged.run, flagged.points, flagged.tags)
        note(f"{NAME}: measuring again: {shlex.join(request.command)}")
        ingest = database(arguments.db_path, arguments.lock_timeout, quiet=False)
        with contextlib.redirect_stdout(sys.stderr):
            code = session.run([request], Path(arguments.output_dir), ingest, session.Show())
    except BenchhouseError as error:
        return str(error)
    return None if code == EXIT_OK else "not every point was measured and stored, see above"


def _tell(arguments: argparse.Namespace, findings: Sequence[Finding]) -> None:
    """The findings on stdout and in the files that were asked for."""
    from db.analysis.gate.gate import DEFAULTS
    from db.analysis.gate.text import gate_document, gate_markdown, gate_text, junit_xml

    if arguments.json:
        print(json.dumps(gate_document(findings, DEFAULTS), indent=2, ensure_ascii=False))
    else:
        print(gate_text(findings, DEFAULTS, stdout_page()))
    if arguments.junit is not None:
        _write("--junit", arguments.junit, junit_xml(findings))
    if arguments.markdown is not None:
        _write("--markdown", arguments.markdown, gate_markdown(findings, DEFAULTS))


def _write(flag: str, path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{flag}: cannot write {path}: {error.strerror}: name another file") from error


def _raise_alerts(arguments: argparse.Namespace, findings: Sequence[Finding]) -> None:
    """Store what regressed."""
    if all(finding.verdict != "regressed" for finding in findings):
        return
    from db.analysis.gate.alerts import store_alerts
    from db.analysis.gate.gate import DEFAULTS
    from db.warehouse import Warehouse

    with Warehouse.open(arguments.db_path, create=False, lock_timeout_s=arguments.lock_timeout) as warehouse:
        stored = store_alerts(warehouse, findings, DEFAULTS)
    note(f"{NAME}: alerts: {len(stored.new)} new, {len(stored.known)} known already: benchhouse alert list")


if __name__ == "__main__":
    sys.exit(main())
